"""The paper's Table 1 on the methods there are: three data sets, eight metrics, mean and standard deviation.

Run as ``make table1`` or ``python benchmarks/run_table1.py [--quick] [--datasets ...] [--methods ...]``. The protocol
is the paper's: every feature actionable, negative instances as the paper selects them, one-off noise of variance 0.01
with 1000 samples, accumulated noise of variance 0.0005 per unit of 0.025 with 1000 tries. Results are printed and
written to ``--out``: one CSV file with a row per data set, method and person, one with the table, and ``run.json``
with versions, settings and the command.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.metadata
import io
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rose_carla
import carla.recourse_methods as carla_methods
import pandas as pd
from rose_carla import baselines, datasets, models
from rose_carla.errors import unknown_name
from rose_carla.metrics import NoiseSettings
from rose_carla.seeds import seeded
from tqdm import tqdm

#: Name in the table -> from a model and a seed to the method, with the paper's hyper-parameters where it names them.
METHODS: dict[str, Callable[[Any, int], Any]] = {
    "Wachter": lambda model, _: carla_methods.Wachter(model, {"loss_type": "MSE", "y_target": [1]}),
    "GrSp": lambda model, _: carla_methods.GrowingSpheres(model, {}),
    "DiCE": lambda model, _: carla_methods.Dice(model, {"num": 1, "desired_class": 1, "posthoc_sparsity_param": 0.1}),
    "FastAR": lambda model, seed: baselines.FastAR(model, {"preset": "paper", "seed": seed}),
    "CoGS": lambda model, seed: baselines.Cogs(model, {"preset": "paper", "seed": seed}),
    "PROBE": lambda model, seed: baselines.Probe(model, {"preset": "paper", "seed": seed}),
    "CROCO": lambda model, seed: baselines.Croco(model, {"preset": "paper", "seed": seed}),
    "ROSE-one": lambda model, seed: rose_carla.RoseOne(model, {"seed": seed}),
    "ROSE-mul": lambda model, seed: rose_carla.RoseMul(model, {"seed": seed}),
}
METRICS = {
    "Validity": "Validity",
    "Sparsity": "Sparsity",
    "Proximity": "Proximity",
    "Recourse_Time": "Time (s)",
    "Log_Density": "Log density",
    "Gaussian_AIR": "Gaussian AIR",
    "Plausible_AIR": "Plausible AIR",
    "Acc_AIR": "Acc AIR",
}
#: Printed without a deviation, as in the paper.
SINGLE = {"Validity": "{:.2f}", "Recourse_Time": "{:.3f}"}


def evaluate(model: Any, name: str, factuals: pd.DataFrame, options: dict[str, Any], seed: int) -> pd.DataFrame:
    """The eight metrics of one method on one data set, one row for each factual."""
    with seeded(seed), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        benchmark = rose_carla.Benchmark(model, METHODS[name](model, seed), factuals, options)
    parts = [getattr(benchmark, f"compute_{metric.lower()}")() for metric in METRICS]
    return pd.concat(parts, axis=1)


def cell(values: pd.Series) -> str:
    """Mean and deviation over the people for whom there is a counterfactual."""
    if values.name in SINGLE:
        return SINGLE[values.name].format(values.mean())
    return "-" if values.isna().all() else f"{values.mean():.2f} ± {values.std():.2f}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=list(datasets.NAMES), metavar="NAME")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), metavar="NAME")
    parser.add_argument("--classifier", choices=("ann", "linear"), default="ann")
    parser.add_argument(
        "--quick", action="store_true", help="10 people per data set and 100 samples: a look, no result"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results") / "table1")
    chosen = parser.parse_args()
    for kind, names, known in (("data set", chosen.datasets, datasets.NAMES), ("method", chosen.methods, METHODS)):
        for name in names:
            if name not in known:
                parser.error(unknown_name(kind, name, known))
    return chosen


def main() -> None:
    chosen = arguments()
    options = {"seed": chosen.seed, **({"n_samples": 100} if chosen.quick else {})}
    start = time.perf_counter()
    results = []
    with tqdm(total=len(chosen.datasets) * len(chosen.methods), file=sys.stderr) as progress:
        for name in chosen.datasets:
            data = datasets.load(name, all_actionable=True)
            model = models.train(data, chosen.classifier, seed=chosen.seed)
            factuals = models.negative_instances(model, seed=chosen.seed)
            factuals = factuals.head(10) if chosen.quick else factuals
            for method in chosen.methods:
                progress.set_description(f"{name}, {method}")
                result = evaluate(model, method, factuals, options, chosen.seed)
                result.insert(0, "Dataset", name)
                result.insert(1, "Method", method)
                results.append(result.rename_axis("Person").reset_index())
                progress.update()
    people = pd.concat(results, ignore_index=True)
    groups = people.groupby(["Dataset", "Method"], sort=False)
    table = groups[list(METRICS)].agg(cell).rename(columns=METRICS)
    table.insert(0, "People", groups.size())
    chosen.out.mkdir(parents=True, exist_ok=True)
    people.to_csv(chosen.out / "people.csv", index=False)
    table.to_csv(chosen.out / "table1.csv")
    provenance = {
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "settings": {**vars(chosen), "out": str(chosen.out), "noise": dataclasses.asdict(NoiseSettings.of(options))},
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("rose-carla", "carla-recourse", "dice-ml", "numpy", "pandas", "scikit-learn", "torch")
        },
        "python": platform.python_version(),
        "seconds": round(time.perf_counter() - start, 1),
    }
    (chosen.out / "run.json").write_text(json.dumps(provenance, indent=2) + "\n")
    print(table.to_string())
    print(f"\nWritten to {chosen.out}/ after {time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    main()
