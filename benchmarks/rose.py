"""How good and how fast ROSE is: robustness, cost against the exhaustive oracle, training, inference, other libraries.

Run as ``make bench-rose`` or ``python benchmarks/rose.py [quality] [tau] [speed] [people] [--datasets ...]``. Protocol
of the paper: every feature actionable, the network classifier, negative instances as the paper selects them, the noise
of the metrics. Machines are noisy: read ratios, which come from one run.

``people`` takes several seeds, and tables and classifiers that no method was tuned for (``measured_tables.py``): who
gets no plan although a crude search finds a robust state, and what is wrong with plans. It takes hours for all of them:
``python benchmarks/rose.py people --settings made-up --seeds 0 1 --out people.csv`` measures some, and goes on where it
was interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import rose_carla
import carla.recourse_methods as carla_methods
import numpy as np
import oracle
import pandas as pd
from rose_carla import RoseMul, RoseOne, datasets, mdp, models, ppo
from measured_tables import TABLES, Build, MeasuredTable, add_options, build, chosen_tables
from plan_quality import fresh_rates, judge
from result_file import ResultFile, markdown
from rose_carla.noise import wilson_interval
from rose_carla.rose import Rose
from rose_carla.rose.search.settle import Settling

PARTS = ("quality", "tau", "speed", "people")
SEEDS = (0, 1, 2, 3, 4)
#: Fresh draws that decide whether a state of the crude search is robust.
FRESH_DRAWS = 4000


def setting(name: str) -> tuple[Any, pd.DataFrame]:
    """The paper's classifier and people of one data set."""
    model = models.train(datasets.load(name, all_actionable=True), "ann")
    return model, models.negative_instances(model)


def acceptance(method: Rose, rng: np.random.Generator) -> oracle.Accepts:
    """Return the acceptance test of the oracle: ROSE's check, twice, because the oracle tries many plans."""
    settling: Settling = method.planner.settling

    def accepts(factual: np.ndarray, plans: list[np.ndarray]) -> np.ndarray:
        rows = np.repeat(factual[None], len(plans), axis=0)
        ends = np.stack([factual + plan.sum(axis=0) for plan in plans])
        rates = settling.task.robustness.evaluate(rows, plans, 64, rng, 0.998)
        good = np.flatnonzero(rates.lower < settling.task.limit)
        for _ in range(2):
            if len(good):
                generators = [np.random.default_rng(rng.integers(2**63)) for _ in good]
                passed, _ = settling.check(rows[good], [plans[i] for i in good], ends[good], generators)
                good = good[passed]
        return np.isin(np.arange(len(plans)), good)

    return accepts


def quality(name: str, n_oracle: int) -> None:
    model, factuals = setting(name)
    rows = factuals[model.feature_input_order].to_numpy(dtype=float)
    for kind in (RoseOne, RoseMul):
        start = time.perf_counter()
        method = kind(model)
        trained = time.perf_counter() - start
        start = time.perf_counter()
        ends = method.get_counterfactuals(factuals).to_numpy()
        seconds = time.perf_counter() - start
        found = np.isfinite(ends).all(axis=1)
        plans = [method.plans[label] for label in factuals.index[found]]
        rates = fresh_rates(method, rows[found], plans)
        lower, _ = wilson_interval(rates * 1000, 1000)
        limit = 1 - method.settings.tau
        proximity = np.abs(ends - rows).sum(axis=1)
        valid = np.zeros(len(rows))
        valid[found] = models.favourable(model)(ends[found]) & (rates < limit)
        print(
            f"{name:7} {method.name}: trained in {trained:5.1f} s; {len(rows)} people: plan for {found.mean():.3f}, "
            f"valid on fresh noise {valid.mean():.3f}, sparsity {np.mean([len(plan) for plan in plans]):.2f}, "
            f"L1 {proximity[found].mean():.3f}, AIR {rates.mean():.3f}, beyond the interval {(lower >= limit).sum()}, "
            f"{1e3 * seconds / len(rows):.2f} ms a person",
            flush=True,
        )
        compare(method, rows, found, proximity, n_oracle if kind is RoseOne else max(n_oracle // 3, 1))


def compare(method: Rose, rows: np.ndarray, found: np.ndarray, proximity: np.ndarray, n_oracle: int) -> None:
    """Cost against the exhaustive search, on people for whom both have a plan."""
    chosen = np.linspace(0, len(rows) - 1, min(n_oracle, len(rows))).astype(int)
    accepts = acceptance(method, np.random.default_rng(1))
    start = time.perf_counter()
    # with accumulated noise a plan takes a thousand times as long to evaluate, too long for pairs of features
    n_features = 1 if isinstance(method, RoseMul) else 2
    best = {
        row: oracle.cheapest(method.space, rows[row], method.task.probability, accepts, n_features) for row in chosen
    }
    both = {row: plan for row, plan in best.items() if plan is not None and found[row]}
    text = f"        oracle on {len(chosen)} of them, up to {n_features} features: "
    text += f"a plan for {sum(plan is not None for plan in best.values())}"
    if both:
        costs, ours = np.array([np.abs(plan).sum() for plan in both.values()]), proximity[list(both)]
        text += f", sparsity {np.mean([len(plan) for plan in both.values()]):.2f}, L1 {costs.mean():.3f} against "
        text += f"{ours.mean():.3f}, ratio {ours.sum() / costs.sum():.3f}"
    print(f"{text}; {(time.perf_counter() - start) / len(chosen):.2f} s a person", flush=True)


def tau(name: str) -> None:
    model, factuals = setting(name)
    rows = factuals[model.feature_input_order].to_numpy(dtype=float)
    for level in (0.75, 0.85, 0.95):
        method = RoseOne(model, {"tau": level})
        ends = method.get_counterfactuals(factuals).to_numpy()
        found = np.isfinite(ends).all(axis=1)
        rates = fresh_rates(method, rows[found], [method.plans[label] for label in factuals.index[found]])
        print(
            f"{name:7} ROSE-one, tau {level:.2f}: plan for {found.mean():.3f}, AIR {rates.mean():.3f}, "
            f"L1 {np.abs(ends - rows)[found].sum(axis=1).mean():.3f}",
            flush=True,
        )


def seconds_of(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        call()
    return time.perf_counter() - start


def many(model: Any, n: int) -> pd.DataFrame:
    """``n`` negative rows of the whole data set, some of them repeatedly where there are fewer."""
    frame, order = model.data.df, model.feature_input_order
    frame = frame[~models.favourable(model)(frame[order].to_numpy(dtype=float))]
    return frame.sample(n, replace=len(frame) < n, random_state=0).reset_index(drop=True)


def speed(name: str) -> None:
    model, _ = setting(name)
    method = RoseOne(model)
    people = many(model, 2000)
    method.get_counterfactuals(people.head(100))
    each = {n: seconds_of(lambda: method.get_counterfactuals(people.head(n))) / n for n in (250, 1000, 2000)}  # noqa: B023
    print(f"{name:7} ROSE-one, ms a person: " + ", ".join(f"{n} people {1e3 * t:.2f}" for n, t in each.items()))
    plain = RoseOne(model, {"search": False, "shorten": False})
    plain.get_counterfactuals(people.head(100))
    taken = seconds_of(lambda: plain.get_counterfactuals(people.head(1000)))
    print(f"        without search and shortening, the paper's method: {taken:.2f} ms a person (1000 people)")
    few = people.head(10)
    others = {
        "Wachter": carla_methods.Wachter(model, {"loss_type": "MSE", "y_target": [1]}),
        "GrowingSpheres": carla_methods.GrowingSpheres(model, {}),
    }
    for label, other in others.items():
        taken = seconds_of(lambda: other.get_counterfactuals(few)) / len(few)  # noqa: B023
        print(f"        {label}: {1e3 * taken:.1f} ms a person, {taken / each[1000]:.0f} times as long")
    beside_busy_processes(method, people.head(20))
    steps_per_second(name, model, method)


def beside_busy_processes(method: Rose, people: pd.DataFrame, n_processes: int = 2) -> None:
    """Processor time of single plans on an otherwise idle machine, and beside processes that keep its cores busy."""

    def median_ms() -> float:
        taken = []
        for row in range(len(people)):
            start = time.process_time()
            method.plan(people.iloc[row : row + 1])
            taken.append(time.process_time() - start)
        return 1e3 * float(np.median(taken))

    quiet = median_ms()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n_processes)]
    try:
        beside = median_ms()
    finally:
        for process in busy:
            process.kill()
    print(
        f"        processor time of a single plan: {quiet:.1f} ms, beside {n_processes} busy processes "
        f"{beside:.1f} ms, {beside / quiet:.2f} times"
    )


def steps_per_second(name: str, model: Any, method: Rose) -> None:
    """Environment steps per second of training, ours and Stable-Baselines3's on the same MDP."""
    try:
        from stable_baselines3 import PPO
    except ImportError:
        print("        (pip install stable-baselines3 to compare environment steps per second)")
        return
    frame = model.data.df_train[model.feature_input_order].to_numpy(dtype=float)
    starts = frame[~models.favourable(model)(frame)]
    world = method.mdp(starts)
    ppo.train(world, ppo.PPOSettings(n_updates=1))
    n = 4 * 4096
    ours = n / seconds_of(lambda: ppo.train(world, ppo.PPOSettings(n_updates=4)))
    theirs_model = PPO("MlpPolicy", mdp.gymnasium_env(method.mdp(starts)), device="cpu", verbose=0)
    theirs_model.learn(2048)
    theirs = 4096 / seconds_of(lambda: theirs_model.learn(4096))
    print(f"        environment steps per second: {ours:.0f}, Stable-Baselines3 {theirs:.0f}: {ours / theirs:.1f} x")


@dataclass(frozen=True)
class PeopleRow:
    """Results of one setting, seed and method."""

    setting: str
    seed: int
    method: str
    #: People, and those with a plan.
    people: int
    served: int
    #: People without a plan for whom the crude search was run, and those for whom it found a robust state.
    tried: int
    helpable: int
    #: Of those tried, people with the reason 'no state in reach' although the search found an accepted state.
    false_reasons: int
    #: See :class:`plan_quality.PlanQuality`.
    droppable: int
    surely_droppable: int
    shortenable: int
    surely_shortenable: int
    beyond: int
    #: Means over the plans: own AIR, L1 and number of changed features.
    air: float
    l1: float
    features: float
    #: Time of planning, with the reported success.
    ms: float
    training_seconds: float
    #: Labels of those who could be helped, with the lowest rate found: "12:0.131 40:0.240".
    given_up: str

    @property
    def share(self) -> float:
        """Share of people with a plan."""
        return self.served / self.people

    @property
    def share_of_helpable(self) -> float:
        """Share of people with a plan among those for whom any search found a robust state."""
        missing = (self.people - self.served) * self.helpable / max(self.tried, 1)
        return self.served / max(self.served + missing, 1e-9)


def people(tables: dict[str, Build], chosen: argparse.Namespace) -> None:
    """Who gets no plan although there is a robust state, and what is wrong with plans."""
    results = ResultFile(PeopleRow, ("setting", "seed", "method"), chosen.out)
    for name, make in tables.items():
        for seed in chosen.seeds:
            table: MeasuredTable | None = None
            for method in chosen.methods:
                row = results.find(name, seed, method)
                if row is None:
                    table = table or build(name, make, seed, chosen.first)
                    row = people_row(table, method, seed, chosen.people)
                    results.add(row)
                print(people_line(row), flush=True)
        for method in chosen.methods:
            rows = [row for seed in chosen.seeds if (row := results.find(name, seed, method))]
            shares = [row.share for row in rows]
            of_helpable = [row.share_of_helpable for row in rows]
            print(
                f"{name:18} {method}: best and worst of {len(rows)} seeds differ by {np.ptp(shares):.3f} in people "
                f"served, by {np.ptp(of_helpable):.3f} of those who can be helped",
                flush=True,
            )
    print("\n" + people_summary(results, list(tables), chosen.methods, chosen.seeds), flush=True)


def people_row(table: MeasuredTable, method_name: str, seed: int, n_tried: int) -> PeopleRow:
    """Measure one method on one table."""
    start = time.perf_counter()
    method = table.method(method_name, seed)
    trained = time.perf_counter() - start
    start = time.perf_counter()
    plans = method.plan(table.factuals)
    seconds = time.perf_counter() - start
    rows, served = table.rows, np.array([plan.found for plan in plans])
    actions = [plan.actions for plan in plans if plan.found]
    quality = judge(method, rows[served], actions)
    changes = np.abs(np.stack([plan.sum(axis=0) for plan in actions])) if actions else np.zeros((0, rows.shape[1]))
    without = np.flatnonzero(~served)[:n_tried]
    found = [crude_search(method, rows[row], table.model, np.random.default_rng([seed, row])) for row in without]
    limit = method.task.limit
    return PeopleRow(
        setting=table.name,
        seed=seed,
        method=method_name,
        people=len(rows),
        served=int(served.sum()),
        tried=len(without),
        helpable=sum(rate < limit for _, rate in found),
        false_reasons=sum(
            accepted and "no state in reach" in plans[row].reason
            for row, (accepted, _) in zip(without, found, strict=True)
        ),
        droppable=quality.droppable,
        surely_droppable=quality.surely_droppable,
        shortenable=quality.shortenable,
        surely_shortenable=quality.surely_shortenable,
        beyond=quality.beyond,
        air=mean(quality.rates),
        l1=mean(changes.sum(axis=1)),
        features=mean(((changes > 1e-9) @ method.space.membership > 0).sum(axis=1)),
        ms=1e3 * seconds / len(rows),
        training_seconds=trained,
        given_up=" ".join(
            f"{plans[row].label}:{rate:.3f}" for row, (_, rate) in zip(without, found, strict=True) if rate < limit
        ),
    )


def crude_search(method: Rose, factual: np.ndarray, model: Any, rng: np.random.Generator) -> tuple[bool, float]:
    """Return whether the crude search finds an accepted state, and the rate of its best on fresh draws.

    Rates are those of the method's own noise.
    """
    training = model.data.df_train[model.feature_input_order].to_numpy(dtype=float)
    if isinstance(method, RoseMul):
        plan, _ = oracle.most_robust_plan(method.task, factual, training, rng)
        if plan is None:
            return False, 1.0
    else:
        state, _ = oracle.most_robust(method.task, factual, training, rng)
        if method.task.margins(state[None])[0] <= 0:
            return False, 1.0
        plan = (state - factual)[None]
    return True, float(method.task.robustness.evaluate(factual[None], [plan], FRESH_DRAWS, rng, 0.95).rate[0])


def mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def people_line(row: PeopleRow) -> str:
    return (
        f"{row.setting:18} seed {row.seed} {row.method}: {row.people} people: plan for {row.share:.3f}; "
        f"of {row.tried} without, {row.helpable} can be helped: served {row.share_of_helpable:.3f} of those who can; "
        f"false 'no state in reach' {row.false_reasons}; a step can be left out of {row.droppable} plans "
        f"({row.surely_droppable} on more tries), shortened in {row.shortenable} ({row.surely_shortenable}); "
        f"beyond the interval {row.beyond}; AIR {row.air:.3f}, L1 {row.l1:.3f}, features {row.features:.2f}, "
        f"{row.ms:.1f} ms a person, trained in {row.training_seconds:.1f} s"
    )


def people_summary(
    results: ResultFile[PeopleRow], settings: Sequence[str], methods: Sequence[str], seeds: Sequence[int]
) -> str:
    """Return a Markdown table with a row for each setting and method: means over seeds, and the worst of them."""
    header = ["", "seeds", "with a plan (worst)", "of those who can be helped (worst)", "false reasons"]
    header += ["step left out, shortened", "beyond", "AIR (worst)", "L1", "features", "ms a person"]
    lines = []
    for name, method in itertools.product(settings, methods):
        rows = [row for seed in seeds if (row := results.find(name, seed, method))]
        if rows:
            shares, of_helpable = [row.share for row in rows], [row.share_of_helpable for row in rows]
            plans = max(sum(row.served for row in rows), 1)
            spare = [sum(row.surely_droppable for row in rows), sum(row.surely_shortenable for row in rows)]
            lines.append(
                [
                    f"{name}, {method}",
                    str(len(rows)),
                    f"{np.mean(shares):.3f} ({min(shares):.3f})",
                    f"{np.mean(of_helpable):.3f} ({min(of_helpable):.3f})",
                    str(sum(row.false_reasons for row in rows)),
                    ", ".join(f"{count / plans:.3f}" for count in spare),
                    str(sum(row.beyond for row in rows)),
                    f"{np.nanmean([row.air for row in rows]):.3f} ({np.nanmax([row.air for row in rows]):.3f})",
                    f"{np.nanmean([row.l1 for row in rows]):.3f}",
                    f"{np.nanmean([row.features for row in rows]):.2f}",
                    f"{np.mean([row.ms for row in rows]):.1f}",
                ]
            )
    return markdown(header, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=[], metavar="PART", help=f"any of {', '.join(PARTS)}; default all")
    parser.add_argument("--datasets", nargs="+", default=list(datasets.NAMES), choices=datasets.NAMES)
    parser.add_argument(
        "--people",
        type=int,
        default=100,
        help="people the oracle is run for (a third for ROSE-mul); with people: those without a plan, per setting",
    )
    add_options(parser, list(TABLES), SEEDS)
    chosen = parser.parse_args()
    for part in chosen.parts:
        if part not in PARTS:
            parser.error(rose_carla.errors.unknown_name("part", part, PARTS))
    run = {"quality": lambda name: quality(name, chosen.people), "tau": tau, "speed": speed}
    tables = chosen_tables(parser, chosen)
    for part in chosen.parts or PARTS:
        if part == "people":
            people(tables, chosen)
            continue
        for name in chosen.datasets:
            run[part](name)


if __name__ == "__main__":
    main()
