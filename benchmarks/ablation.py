"""What each part of ROSE brings: plans without it.

Run as ``make bench-ablation`` or ``python benchmarks/ablation.py [--settings ...] [--parts ...] [--out FILE]``. One
policy is trained for each setting, seed and method. Its planner runs with everything, without each part of the search
(``rose_carla.rose.search.planner.PARTS``), without both sources of other drafts, which replace each other, and as the
paper's plain method, without search and shortening. *Policy training* leaves the policy as it is initialised, with the
same planner, calibrated in the same way.

Costs are compared over people who have a plan in every variant, and over all who have one. A part that brings less than
0.02 in people with a plan, and less than 2 % in the cost of people served with and without it, in every setting and for
both methods, is marked.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import rose_carla
import numpy as np
from measured_tables import Build, MeasuredTable, add_options, build, chosen_tables
from plan_quality import fresh_rates, spare, without_a_step
from result_file import ResultFile, markdown
from rose_carla.rose import Rose
from rose_carla.rose.search.planner import PARTS

EVERYTHING, TRAINING, PLAIN = "everything", "policy training", "plain paper method"
#: A variant without several parts has their names with a plus sign between them.
VARIANTS = (*PARTS, "rows+ascent", TRAINING, PLAIN)
SETTINGS = ("german", "adult", "compas", "made-up-hard", "made-up-hard-trees")
#: A part is marked if it gains less: share of people with a plan, and share of the cost.
LITTLE_FOUND, LITTLE_COST = 0.02, 0.02
#: Training that leaves the policy as it is.
UNTRAINED = {"n_updates": 1, "n_envs": 1, "n_steps": 2, "learning_rate": 1e-12, "restarts": 0}


@dataclass(frozen=True)
class AblationRow:
    """Results of a variant of one method on one table."""

    setting: str
    seed: int
    method: str
    #: What is left out.
    variant: str
    #: Means over the plans: invalidation rate on fresh noise, changed features, and share with a step to spare.
    air: float
    features: float
    droppable: float
    ms: float
    #: L1 of each person's plan, nan without one: "0.25 nan".
    costs: str

    @property
    def lengths(self) -> np.ndarray:
        """L1 (b,) of each person's plan, NaN without one."""
        return np.array(self.costs.split(), dtype=float)


def without(method: Rose, variant: str) -> Rose:
    """Return the method with a planner that leaves something out, or nothing."""
    parts = frozenset(variant.split("+")) & frozenset(PARTS)
    method.planner = dataclasses.replace(
        method.planner, search=variant != PLAIN, shorten=variant != PLAIN, without=parts
    )
    return method


def untrained(table: MeasuredTable, method_name: str, seed: int) -> Rose:
    """Return a method whose policy is as it was initialised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such a policy serves few
        return table.method(method_name, seed, ppo=UNTRAINED)


def measured(method: Rose, table: MeasuredTable, variant: str, seed: int) -> AblationRow:
    """Plan for the people of a table, and judge the plans."""
    start = time.perf_counter()
    ends = method.get_counterfactuals(table.factuals).to_numpy()
    seconds = time.perf_counter() - start
    found = np.isfinite(ends).all(axis=1)
    plans = [method.plans[label] for label in table.factuals.index[found]]
    changed = np.abs(ends - table.rows)[found] > 1e-9
    droppable, _ = spare(method, table.rows[found], plans, without_a_step)
    n = max(int(found.sum()), 1)
    return AblationRow(
        setting=table.name,
        seed=seed,
        method=method.name,
        variant=variant,
        air=fresh_rates(method, table.rows[found], plans).sum() / n,
        features=float((changed @ method.space.membership > 0).sum()) / n,
        droppable=droppable / n,
        ms=1e3 * seconds / len(ends),
        costs=" ".join(f"{cost:.6g}" for cost in np.abs(ends - table.rows).sum(axis=1)),
    )


def measure(results: ResultFile[AblationRow], name: str, make: Build, seed: int, chosen: argparse.Namespace) -> None:
    """Measure what is not in the results yet, for one setting and seed."""
    table: MeasuredTable | None = None
    for method_name in chosen.methods:
        trained: Rose | None = None
        for variant in (EVERYTHING, *chosen.parts):
            row = results.find(name, seed, method_name, variant)
            if row is None:
                table = table or build(name, make, seed, chosen.first)
                if variant == TRAINING:
                    method = untrained(table, method_name, seed)
                else:
                    trained = trained or table.method(method_name, seed)
                    method = without(trained, variant)
                row = measured(method, table, variant, seed)
                results.add(row)
            share = np.isfinite(row.lengths).mean()
            print(
                f"{name:18} seed {seed} {method_name}, {words(variant)}: plan for {share:.3f}, "
                f"L1 {mean(row.lengths):.3f}, AIR {row.air:.3f}, {row.ms:.1f} ms a person",
                flush=True,
            )


def words(variant: str) -> str:
    return variant if variant in (EVERYTHING, PLAIN) else f"without {variant}"


def mean(lengths: np.ndarray) -> float:
    """Return the mean of what is not NaN; NaN without any."""
    return float(np.nanmean(lengths)) if np.isfinite(lengths).any() else float("nan")


@dataclass(frozen=True)
class Comparison:
    """A variant of one method in one setting, over all seeds."""

    variant: str
    found: float
    features: float
    #: Mean L1 of people served by all variants, and of all who are served.
    cost_of_common: float
    cost: float
    #: What leaving it out costs: share of people with a plan lost, and relative increase of L1 over people served with
    #: and without it.
    lost: float
    dearer: float
    air: float
    droppable: float
    ms: float


def compare(rows: dict[str, list[AblationRow]]) -> list[Comparison]:
    """Compare variants: from a variant to its rows, of the same seeds and people for all."""
    lengths = {variant: np.concatenate([row.lengths for row in each]) for variant, each in rows.items()}
    served = {variant: np.isfinite(each) for variant, each in lengths.items()}
    common = np.logical_and.reduce(list(served.values()))
    whole = EVERYTHING
    compared = []
    for variant, each in rows.items():
        both = served[whole] & served[variant]
        before, after = lengths[whole][both].sum(), lengths[variant][both].sum()
        weights = np.array([np.isfinite(row.lengths).sum() for row in each]) + 1e-12
        compared.append(
            Comparison(
                variant,
                served[variant].mean(),
                np.average([row.features for row in each], weights=weights),
                mean(lengths[variant][common]),
                mean(lengths[variant]),
                served[whole].mean() - served[variant].mean(),
                after / before - 1 if before > 0 else float("nan"),
                np.average([row.air for row in each], weights=weights),
                np.average([row.droppable for row in each], weights=weights),
                float(np.mean([row.ms for row in each])),
            )
        )
    return compared


def gains_little(comparisons: Sequence[Comparison]) -> bool:
    """Return whether leaving a part out costs little in every setting."""
    return all(each.lost < LITTLE_FOUND and not each.dearer >= LITTLE_COST for each in comparisons)


def summary(
    results: ResultFile[AblationRow],
    settings: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    parts: Sequence[str],
) -> str:
    """Return a Markdown table for each setting and method, and the parts that bring little."""
    header = ["without", "with a plan", "features", "L1 of common", "L1", "lost", "dearer", "AIR", "step to spare"]
    texts, by_variant = [], {variant: list[Comparison]() for variant in parts}
    for name, method in itertools.product(settings, methods):
        rows = {}
        for variant in (EVERYTHING, *parts):
            found = [results.find(name, seed, method, variant) for seed in seeds]
            rows[variant] = [row for row in found if row is not None]
        compared = compare(rows)
        for each in compared[1:]:
            by_variant[each.variant].append(each)
        lines = [
            [
                f"({EVERYTHING})" if each.variant == EVERYTHING else each.variant,
                *(f"{value:.3f}" for value in (each.found, each.features, each.cost_of_common, each.cost)),
                f"{each.lost:+.3f}",
                f"{100 * each.dearer:+.1f} %",
                *(f"{value:.3f}" for value in (each.air, each.droppable)),
                f"{each.ms:.1f}",
            ]
            for each in compared
        ]
        texts.append(f"{name}, {method}\n\n{markdown([*header, 'ms a person'], lines)}")
    little = [variant for variant in parts if variant != PLAIN and gains_little(by_variant[variant])]
    texts.append(
        f"Less than {LITTLE_FOUND:.2f} in people with a plan and less than {100 * LITTLE_COST:.0f} % in L1 everywhere: "
        f"{', '.join(little) or 'none'}."
    )
    return "\n\n".join(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=list(VARIANTS), metavar="PART", help=f"any of {VARIANTS}, or a+b")
    add_options(parser, SETTINGS, (0,))
    chosen = parser.parse_args()
    for part in chosen.parts:
        for name in part.split("+"):
            if part not in VARIANTS and name not in PARTS:
                parser.error(rose_carla.errors.unknown_name("part", name, VARIANTS))
    tables = chosen_tables(parser, chosen)
    results = ResultFile(AblationRow, ("setting", "seed", "method", "variant"), chosen.out)
    for name, make in tables.items():
        for seed in chosen.seeds:
            measure(results, name, make, seed, chosen)
    print("\n" + summary(results, list(tables), chosen.methods, chosen.seeds, chosen.parts), flush=True)


if __name__ == "__main__":
    main()
