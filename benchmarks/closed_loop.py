"""How people fare who look where they landed and ask again, beside ROSE-mul's fixed plans and a slow reference.

Run as ``make bench-closed-loop`` or ``python benchmarks/closed_loop.py [--settings ...] [--seeds ...] [--out FILE]``.
Protocol of the paper: every feature actionable, the network classifier, its people and its noise.

*Fixed plan* is the success of ROSE-mul's plans on fresh noise. *Twice the cost* are people who come back and may spend
twice the length of their plan, with at most 20 and at most 60 answers; *cost* is the mean cost of successful tries (20
answers) relative to the plans of the same people. These are of people with a plan; the columns after them of all
people, without a limit of cost.

The reference plans anew with the whole search at every visit, and people implement the first step of that plan. It is
compared with the policy on a few people with a plan, within twice the cost of it, with the same number of tries; the
interval of the difference is over people.

``--price`` measures what the closed-loop AIR of each method of Table 1 costs instead: 10 people, 10 tries of each.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass

import rose_carla
import numpy as np
import pandas as pd
from rose_carla import bench
from measured_tables import Build, MeasuredTable, add_options, build, chosen_tables
from result_file import ResultFile, markdown
from rose_carla.metrics import compute_metric
from rose_carla.noise import ClosedLoop
from rose_carla.rose import Rose
from rose_carla.rose.advice import simulate

SETTINGS = ("german", "adult", "compas")
#: Maximum number of answers, and a larger one.
MAX_DECISIONS, MORE_DECISIONS = 20, 60
#: People and tries of each whose price is measured.
PRICE_PEOPLE, PRICE_TRIES = 10, 10
#: Units of a short plan: with twice its cost there are few tries.
SHORT = 4
#: Numbers of decisions after which success is reported.
AFTER = (1, 2, 3, 5, 10, 20)


@dataclass(frozen=True)
class ClosedLoopRow:
    """Results of one setting and seed."""

    setting: str
    seed: int
    people: int
    tries: int
    #: People with a plan, and the mean success of their plans.
    served: int
    fixed: float
    #: Success within twice the cost of the plan, the same with more answers, of people whose plan is longer than four
    #: units and of the others, and mean cost of successful tries relative to plans of the same people.
    within: float
    within_more: float
    within_longer: float
    within_short: float
    short: int
    cost_ratio: float
    #: All people, without a limit of cost: success, and cost relative to plans.
    success: float
    free_cost_ratio: float
    without_plan: float
    decisions: float
    decisions_q90: float
    #: Success after at most each of :data:`AFTER` decisions: "0.812 0.945".
    after: str
    seconds: float
    processor_seconds: float
    training_seconds: float
    #: Policy and slow reference on the same people; mean of the differences of their rates, and half of its interval.
    compared: int
    compared_tries: int
    policy: float
    reference: float
    difference: float
    margin: float
    reference_seconds: float


def measure(table: MeasuredTable, seed: int, chosen: argparse.Namespace) -> ClosedLoopRow:
    """Measure one setting with one seed."""
    method = table.method("ROSE-mul", seed)
    start = time.perf_counter()
    method.fit_closed_loop()
    training = time.perf_counter() - start
    plans = method.plan(table.factuals)
    costs = np.array([plan.cost if plan.found else np.nan for plan in plans])
    served = np.flatnonzero(np.isfinite(costs))
    within, more = (
        method.follow(table.factuals.iloc[served], chosen.tries, max_cost=2 * costs[served], max_decisions=most).tries
        for most in (MAX_DECISIONS, MORE_DECISIONS)
    )
    start, started = time.perf_counter(), time.process_time()
    free = method.follow(table.factuals, chosen.tries, max_decisions=MAX_DECISIONS).tries
    seconds, processor = time.perf_counter() - start, time.process_time() - started
    rates = within.succeeded.mean(axis=1)
    short = np.array([sum(step.size for step in plans[row].steps) < SHORT + 1e-6 for row in served])
    decisions = free.decisions[free.succeeded]
    others = served[np.linspace(0, len(served) - 1, min(chosen.reference, len(served))).astype(int)]
    differences, policy, reference, reference_seconds = compare(
        method, table.factuals.iloc[others], costs[others], chosen
    )
    return ClosedLoopRow(
        setting=table.name,
        seed=seed,
        people=len(costs),
        tries=chosen.tries,
        served=len(served),
        fixed=mean([plans[row].success.probability for row in served]),
        within=mean(rates),
        within_more=float(more.succeeded.mean()),
        within_longer=mean(rates[~short]),
        within_short=mean(rates[short]),
        short=int(short.sum()),
        cost_ratio=cost_ratio(within, costs[served]),
        success=float(free.succeeded.mean()),
        free_cost_ratio=cost_ratio(ClosedLoop(*(each[served] for each in vars(free).values())), costs[served]),
        without_plan=mean(free.succeeded[np.isnan(costs)].mean(axis=1)),
        decisions=mean(decisions),
        decisions_q90=float(np.quantile(decisions, 0.9)),
        after=" ".join(f"{(free.succeeded & (free.decisions <= most)).mean():.4f}" for most in AFTER),
        seconds=seconds,
        processor_seconds=processor,
        training_seconds=training,
        compared=len(others),
        compared_tries=chosen.reference_tries,
        policy=policy,
        reference=reference,
        difference=mean(differences),
        margin=float(1.96 * np.std(differences, ddof=1) / np.sqrt(len(differences))) if len(differences) > 1 else 1.0,
        reference_seconds=reference_seconds,
    )


def cost_ratio(tries: ClosedLoop, costs: np.ndarray) -> float:
    """Return the mean cost of successful tries (b, n) relative to the plans of the same people."""
    done = tries.succeeded
    return float(tries.costs[done].sum() / (costs[:, None] * done).sum())


def compare(
    method: Rose, people: pd.DataFrame, costs: np.ndarray, chosen: argparse.Namespace
) -> tuple[np.ndarray, float, float, float]:
    """Return the differences of success (b,) between policy and reference, both means, and the reference's seconds."""
    policy = method.follow(
        people, chosen.reference_tries, max_cost=2 * costs, max_decisions=MAX_DECISIONS
    ).tries.succeeded.mean(axis=1)
    start = time.perf_counter()
    rows = people[method._mlmodel.feature_input_order].to_numpy(dtype=float)
    reference = simulate(
        Replanning(method),
        method._implementation(),
        method.settings.tau,
        rows,
        chosen.reference_tries,
        MAX_DECISIONS,
        method.settings.seed,
        2 * costs,
    ).succeeded.mean(axis=1)
    return policy - reference, mean(policy), mean(reference), time.perf_counter() - start


class Replanning:
    """Answers with the first step of a new plan from where people are, found by the whole search."""

    def __init__(self, method: Rose) -> None:
        self.method = method

    def __call__(self, states: np.ndarray, budgets: np.ndarray) -> Sequence[np.ndarray]:
        """Return the first action (1, d) of a plan from each of ``states``; (0, d) where no plan is found."""
        different, which = np.unique(states, axis=0, return_inverse=True)
        self.method.find_counterfactuals(different, range(len(different)))
        empty = np.empty((0, states.shape[1]))
        return [self.method.plans.get(row, empty)[:1] for row in which.ravel().tolist()]


def mean(values: Sequence[float] | np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


HEADER = (
    *("", "people with a plan", "fixed plan", "within twice the cost, 20 / 60 answers", "short / longer plans", "cost"),
    *("all people, no limit", "cost of it", "decisions (90 %)", "after 1 / 2 / 3 / 5 / 10 / 20", "s", "training, s"),
    *("policy / reference", "difference", "reference, s"),
)


def table_line(rows: Sequence[ClosedLoopRow]) -> list[str]:
    """Return the cells of a line of the printed table: means over seeds."""

    def of(name: str) -> float:
        return float(np.nanmean([getattr(row, name) for row in rows]))

    after = np.array([row.after.split() for row in rows], dtype=float).mean(axis=0)
    margin = np.sqrt(sum(row.margin**2 for row in rows)) / len(rows)
    seeds = f", {len(rows)} seeds" if len(rows) > 1 else ""
    return [
        f"{rows[0].setting}{seeds}, {rows[0].people} people x {rows[0].tries} tries",
        f"{of('served'):.0f}",
        f"{of('fixed'):.3f}",
        f"{of('within'):.3f} / {of('within_more'):.3f}",
        f"{of('within_short'):.3f} ({of('short'):.0f}) / {of('within_longer'):.3f}",
        f"{of('cost_ratio'):.2f}",
        f"{of('success'):.3f}",
        f"{of('free_cost_ratio'):.2f}",
        f"{of('decisions'):.2f} ({of('decisions_q90'):.0f})",
        " / ".join(f"{each:.2f}" if each < 0.99 else f"{each:.3f}" for each in after),
        f"{of('seconds'):.0f}",
        f"{of('training_seconds'):.0f}",
        f"{of('policy'):.3f} / {of('reference'):.3f}",
        f"{of('difference'):+.3f} ± {margin:.3f}",
        f"{of('reference_seconds'):.0f}",
    ]


def run(tables: dict[str, Build], chosen: argparse.Namespace) -> None:
    """Measure what is not in the results yet, and print the table."""
    results = ResultFile(ClosedLoopRow, ("setting", "seed"), chosen.out)
    for name, make in tables.items():
        for seed in chosen.seeds:
            row = results.find(name, seed)
            if row is None:
                row = measure(build(name, make, seed, chosen.first), seed, chosen)
                results.add(row)
            print(row, flush=True)
    parts = [[row for seed in chosen.seeds if (row := results.find(name, seed))] for name in tables]
    print("\n" + markdown(HEADER, [table_line(rows) for rows in parts]), flush=True)


def price(names: Sequence[str], seed: int) -> None:
    """Print what the closed-loop AIR of each method takes: seconds, and those of the processor, without training."""
    lines = []
    settings = [bench.Setting(name, seed=seed, people=PRICE_PEOPLE) for name in names]
    for method_name in bench.TABLE_1:
        cells = []
        for setting in settings:
            model, people = setting.model(), setting.factuals()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                method, _ = bench.Recourse(setting, method_name).build(model, people)
                if isinstance(method, Rose):
                    method.fit_closed_loop()
                ends = method.get_counterfactuals(people.copy())
                start, started = time.perf_counter(), time.process_time()
                options = {"method": method, "n_tries": PRICE_TRIES}
                rates = compute_metric("Closed_Loop_AIR", model, people, ends, {"seed": seed}, options)
            seconds, processor = time.perf_counter() - start, time.process_time() - started
            cells.append(f"{seconds:.2g} ({processor:.2g})")
            means = ", ".join(f"{name} {mean(rates[name].dropna()):.3f}" for name in rates)
            print(f"{setting.dataset} {method_name}: {cells[-1]} s; {means}", flush=True)
        lines.append([method_name, *cells])
    print("\n" + markdown(["", *names], lines), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, SETTINGS, [0])
    parser.add_argument("--tries", type=int, default=100, metavar="N", help="of each person; default 100")
    parser.add_argument("--reference", type=int, default=20, metavar="N", help="people of the slow reference")
    parser.add_argument("--reference-tries", type=int, default=10, metavar="N", help="of each of them; default 10")
    parser.add_argument("--price", action="store_true", help="what the metric takes for each method of Table 1 instead")
    chosen = parser.parse_args()
    print(f"rose_carla {rose_carla.__version__}; people with an unfavourable prediction, network, noise of the paper")
    if chosen.price:
        price(chosen.settings or SETTINGS, chosen.seeds[0])
    else:
        run(chosen_tables(parser, chosen), chosen)


if __name__ == "__main__":
    main()
