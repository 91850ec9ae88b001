"""How good and how fast ROSE is: robustness, cost against the exhaustive oracle, training, inference, other libraries.

Run as ``make bench-rose`` or ``python benchmarks/rose.py [quality] [tau] [speed] [--datasets ...] [--people N]``.
Protocol of the paper: every feature actionable, the network classifier, negative instances as the paper selects them,
the noise of the metrics. Machines are noisy: read ratios, which come from one run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import time
from collections.abc import Callable
from typing import Any

import rose_carla
import carla.recourse_methods as carla_methods
import numpy as np
import oracle
import pandas as pd
from rose_carla import RoseMul, RoseOne, datasets, mdp, models, ppo
from rose_carla.noise import wilson_interval
from rose_carla.rose import Rose
from rose_carla.rose.search.settle import Settling

PARTS = ("quality", "tau", "speed")


def setting(name: str) -> tuple[Any, pd.DataFrame]:
    """The paper's classifier and people of one data set."""
    model = models.train(datasets.load(name, all_actionable=True), "ann")
    return model, models.negative_instances(model)


def fresh_rates(method: Rose, rows: np.ndarray, plans: list[np.ndarray], n: int = 1000) -> np.ndarray:
    """Invalidation rates under noise that no part of planning has seen."""
    return method.task.robustness.evaluate(rows, plans, n, np.random.default_rng(2**40 + 1), 0.95).rate


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
    steps_per_second(name, model, method)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=[], metavar="PART", help=f"any of {', '.join(PARTS)}; default all")
    parser.add_argument("--datasets", nargs="+", default=list(datasets.NAMES), choices=datasets.NAMES)
    parser.add_argument("--people", type=int, default=100, help="people the oracle is run for (a third for ROSE-mul)")
    chosen = parser.parse_args()
    for part in chosen.parts:
        if part not in PARTS:
            parser.error(rose_carla.errors.unknown_name("part", part, PARTS))
    run = {"quality": lambda name: quality(name, chosen.people), "tau": tau, "speed": speed}
    for part in chosen.parts or PARTS:
        for name in chosen.datasets:
            run[part](name)


if __name__ == "__main__":
    main()
