"""Accuracy of the paper's two classifiers on its three data sets, and the paper's values.

Run as ``python benchmarks/classifiers.py [--seeds N]``. For each data set and classifier it prints the accuracy on the
test split for the default seed, the mean and range over N seeds (split and weights), the accuracy over all rows, the
number of rejected people (the paper's selection) and the time of training.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from rose_carla import bench, datasets, models

#: Settings in the paper's text; those of its appendix are the defaults.
TEXT_SETTINGS = models.TrainingSettings(hidden=(50,), learning_rate=0.002, batch_size=50, epochs=100)


def row(name: str, kind: str, seeds: int, settings: models.TrainingSettings | None) -> str:
    test, everyone, rejected, seconds = [], [], [], []
    for seed in range(seeds):
        data = datasets.load(name, seed=seed)
        start = time.perf_counter()
        model = models.train(data, kind, seed=seed, settings=settings, use_cache=False)
        seconds.append(time.perf_counter() - start)
        test.append(models.accuracy(model, data.df_test))
        everyone.append(models.accuracy(model, data.df))
        rejected.append(len(models.negative_instances(model)))
    printed = {metric: bench.paper_value("classifiers", name, kind, metric) for metric in ("Accuracy", "People")}
    paper, points = (value.mean for value in printed.values() if value is not None)
    verdict = "within 0.02" if abs(test[0] - paper) <= 0.02 + 1e-9 else "differs"
    return (
        f"{name:7} {kind:7} {'text' if settings else 'appendix':9} {test[0]:6.3f} {np.mean(test):6.3f} "
        f"[{min(test):.3f}, {max(test):.3f}] {np.mean(everyone):6.3f} {paper:6.2f}  {verdict:12} {rejected[0]:5d} "
        f"{points:5.0f} {np.median(seconds):7.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="seeds to average over (default 5)")
    seeds = parser.parse_args().seeds
    print(
        f"{'data':7} {'kind':7} {'settings':9} {'test':>6} {'mean':>6} {'range':^14} {'all':>6} {'paper':>6}  "
        f"{'seed 0':12} {'neg.':>5} {'paper':>5} {'time':>9}"
    )
    for kind in ("ann", "linear"):
        for name in datasets.NAMES:
            print(row(name, kind, seeds, None), flush=True)
    print(row("german", "ann", seeds, TEXT_SETTINGS))


if __name__ == "__main__":
    main()
