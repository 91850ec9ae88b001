"""The six baselines: what batching over people saves, what they reach, and what published quirks do to their numbers.

Run as ``make bench-baselines`` or ``python benchmarks/baselines.py [speed] [quality] [feasible] [--datasets ...]``.
Every feature is actionable and the people are the paper's, as in its tables. The classifier is the network, and for
ROAR and ARAR, as in the paper's appendix, logistic regression too. Machines are noisy: read ratios, which come from one
run.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import rose_carla
import numpy as np
import pandas as pd
import torch
from rose_carla import baselines, datasets, models
from rose_carla.baselines.croco import bound, theta
from rose_carla.bench import paper_value
from rose_carla.method import Method

PARTS = ("speed", "quality", "feasible")
#: Baselines that follow gradients.
GRADIENT = (baselines.Probe, baselines.Croco, baselines.Roar, baselines.Arar)
#: What the paper prints of them.
PRINTED = ("Validity", "Sparsity", "Proximity", "Gaussian_AIR")


def setting(name: str, kind: str = "ann", all_actionable: bool = True) -> tuple[Any, pd.DataFrame]:
    """The paper's classifier and people of one data set."""
    model = models.train(datasets.load(name, all_actionable=all_actionable), kind)
    return model, models.negative_instances(model)


def seconds_of(method: Method, factuals: pd.DataFrame) -> float:
    start = time.perf_counter()
    method.get_counterfactuals(factuals)
    return time.perf_counter() - start


def speed(name: str, n_alone: int = 20) -> None:
    """Time per person in one batch and one by one; the latter on some people only, between two full runs."""
    for kind, methods in (("ann", (*GRADIENT, baselines.Cogs)), ("linear", (baselines.Roar, baselines.Arar))):
        model, factuals = setting(name, kind)
        chosen = np.linspace(0, len(factuals) - 1, n_alone).astype(int)
        for each in methods:
            method = each(model, {"timeout": 3600.0})
            method.get_counterfactuals(factuals.iloc[:2])
            together = [seconds_of(method, factuals)]
            alone = sum(seconds_of(method, factuals.iloc[[i]]) for i in chosen) / n_alone * len(factuals)
            together.append(seconds_of(method, factuals))
            mean = sum(together) / 2
            print(
                f"{name:7} {kind:6} {method.name:6}: {len(factuals)} people together {mean:6.2f} s "
                f"({1e3 * mean / len(factuals):.1f} ms each), one by one {alone:6.1f} s (from {n_alone} of them), "
                f"{alone / mean:.0f} times as long",
                flush=True,
            )


def measured(model: Any, method: Method, factuals: pd.DataFrame) -> str:
    """A row of the table: means over the people for whom there is a counterfactual."""
    benchmark = rose_carla.Benchmark(model, method, factuals)
    found = {
        name: benchmark.compute_metric(name)[name].mean()
        for name in ("Validity", "Sparsity", "Proximity", "Gaussian_AIR", "Plausible_AIR", "Recourse_Time")
    }
    return (
        f"{found['Validity']:.2f} | {found['Sparsity']:.2f} | {found['Proximity']:.2f} | {found['Gaussian_AIR']:.2f} | "
        f"{found['Plausible_AIR']:.2f} | {1e3 * found['Recourse_Time']:.1f}"
    )


def quality(name: str) -> None:
    """Correct by default, with quirks, and the paper's numbers, as rows of a Markdown table."""
    runs: list[tuple[str, type[Method], str, dict[str, Any]]] = [
        ("ann", baselines.FastAR, "default", {}),
        ("ann", baselines.FastAR, "margin 0.75", {"margin": 0.75}),
        ("ann", baselines.Cogs, "default", {}),
        ("ann", baselines.Cogs, "preset paper", {"preset": "paper"}),
        ("ann", baselines.Cogs, "quirks", {"reference_quirks": True}),
        ("ann", baselines.Probe, "default", {}),
        ("ann", baselines.Probe, "quirks", {"reference_quirks": True}),
        ("ann", baselines.Croco, "default", {}),
        ("ann", baselines.Croco, "quirks", {"reference_quirks": True}),
    ]
    for each in (baselines.Roar, baselines.Arar):
        for kind in ("linear", "ann"):
            runs += [(kind, each, "default", {}), (kind, each, "quirks", {"reference_quirks": True})]
    print("| data | classifier | method | | validity | sparsity | L1 | Gaussian AIR | Plausible AIR | ms a person |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    paper_of = ""
    for kind, each, words, options in runs:
        model, factuals = setting(name, kind)
        if each.name != paper_of:
            paper_of = each.name
            table = "linear" if each in (baselines.Roar, baselines.Arar) else "table1"
            values = [paper_value(table, name, each.name, metric) for metric in PRINTED]
            numbers = " | ".join("" if value is None else f"{value.mean:.2f}" for value in values) + " | | |"
            print(f"| {name} | {kind} | {each.name} | the paper | {numbers}")
        print(
            f"| {name} | {kind} | {each.name} | {words} | {measured(model, each(model, options), factuals)} |",
            flush=True,
        )


def feasible(name: str) -> None:
    """People without recourse by CROCO, and whether a training row or a random one satisfies its bound."""
    for free in (True, False):
        model, factuals = setting(name, all_actionable=free)
        method = baselines.Croco(model)
        s, order = method.settings, model.feature_input_order
        ends = method.get_counterfactuals(factuals).to_numpy()
        missing = np.flatnonzero(np.isnan(ends).any(axis=1))
        drawn = np.random.default_rng(1).random((20_000, len(order)))
        drawn = datasets.project_categories(model.data, order, drawn)
        train = np.unique(np.vstack([model.data.df_train[order].to_numpy(dtype=float), drawn]), axis=0)
        mutable = model.get_mutable_mask()
        noise = s.variance**0.5 * torch.randn(s.n_samples, len(order), generator=torch.Generator().manual_seed(1))
        possible = 0
        for row in factuals[order].to_numpy(dtype=float)[missing]:
            others = torch.tensor(np.where(mutable, train, row), dtype=torch.float32)
            with torch.no_grad():
                sure = others[models.logit(model)(others).argsort(descending=True)[:500]]
                lowest = bound(theta(models.logit(model), sure, noise), s.slack, s.threshold).min()
            possible += bool(lowest < s.target + 0.01)
        reachable = len(factuals) - len(missing) + possible
        print(
            f"{name:7} CROCO, {'every feature actionable' if free else 'immutable features kept'}: recourse for "
            f"{len(factuals) - len(missing)} of {len(factuals)}; bound met by a training or random row with their "
            f"immutable features for {possible} of the other {len(missing)}: validity where feasible "
            f"{(len(factuals) - len(missing)) / max(reachable, 1):.3f}, infeasible {len(missing) - possible}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=[], metavar="PART", help=f"any of {', '.join(PARTS)}; default all")
    parser.add_argument("--datasets", nargs="+", default=list(datasets.NAMES), choices=datasets.NAMES)
    chosen = parser.parse_args()
    for part in chosen.parts:
        if part not in PARTS:
            parser.error(rose_carla.errors.unknown_name("part", part, PARTS))
    run = {"speed": speed, "quality": quality, "feasible": feasible}
    for part in chosen.parts or PARTS:
        for name in chosen.datasets:
            run[part](name)


if __name__ == "__main__":
    main()
