"""The figures: the experiments that each is made of, and how it is drawn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from rose_carla import RoseMul, bench, datasets, models, plots
from rose_carla.bench import layouts
from rose_carla.bench.layouts import Scope
from rose_carla.bench.method_registry import OURS
from rose_carla.bench.runner import Experiment
from rose_carla.bench.table import DATASET_TITLES
from rose_carla.errors import PlanError
from rose_carla.rose.plan import Plan

#: Features of a loan that a person can act upon.
_ACTIONABLE = ("credit-amount", "duration", "existing-credits", "installment-rate", "savings")
#: Robustness of the plan that is shown, people among whom it is searched, and its largest number of steps.
_PLAN_TAU, _PLAN_PEOPLE, _PLAN_STEPS = 0.85, 50, 4
#: People of each data set who come back: methods are asked some hundred times for each.
_CLOSED_LOOP_PEOPLE = 20


@dataclass(frozen=True)
class Recipe:
    """A figure."""

    #: What it shows.
    description: str
    #: Draws the figure from the scope of the run and the results frame.
    draw: Callable[[Scope, pd.DataFrame], Any]
    #: Experiments of the results frame; none for figures of synthetic data.
    experiments: Callable[[Scope], tuple[Experiment, ...]] = lambda scope: ()


def _lengths(scope: Scope, results: pd.DataFrame) -> Any:
    starts, ends = [[0.2, 0.46], [0.92, 0.14]], [[0.22, 0.74], [0.34, 0.8]]
    return plots.lengths(plots.patches(), list(np.array(starts)), list(np.array(ends)), 0.01, 0.0005, 0.025)


def _perturbations(scope: Scope, results: pd.DataFrame) -> Any:
    return plots.perturbations(plots.patches(), np.array([0.8, 0.25]), np.array([[-0.15, 0.35], [-0.3, 0.15]]))


def _accumulation(scope: Scope, results: pd.DataFrame) -> Any:
    return plots.accumulation(plots.patches(), np.array([0.8, 0.2]), np.array([[-0.1, 0.4], [-0.35, 0.1]]))


def _orders(scope: Scope, results: pd.DataFrame) -> Any:
    start, up, left = np.array([0.75, 0.25]), np.array([0.0, 0.25]), np.array([-0.22, 0.0])
    plans = {
        "increase $x_2$, then decrease $x_1$": (start, np.array([up, up, left, left])),
        "decrease $x_1$, then increase $x_2$": (start, np.array([left, left, up, up])),
        "both at the same time": (start, np.array([(up + left) / 2] * 4)),
    }
    return plots.noisy_paths(plots.patches(), plans, 0.002, 0.1)


def _steps(scope: Scope, results: pd.DataFrame) -> Any:
    step = np.array([-0.2, 0.2])
    plans = {
        "one step": (np.array([0.57, 0.5]), step[None]),
        "two steps": (np.array([0.77, 0.3]), np.array([step, step])),
    }
    return plots.noisy_paths(plots.patches(), plans, 0.002, 0.1)


def _learning(scope: Scope, results: pd.DataFrame) -> Any:
    logs = {}
    for setting in replace(scope, seeds=scope.seeds[:1]).settings():
        for name in OURS:
            title = f"{name}, {DATASET_TITLES[setting.dataset]}"
            logs[title] = bench.entry(name).build(setting.model(), setting.seed, {}).log_
    return plots.learning_curves(logs, n_columns=len(OURS))


def loan_plan(seed: int = 0) -> Plan:
    """Plan with ROSE-mul for a loan over actionable features, and return a plan of several steps that all help.

    Raises
    ------
    PlanError
        If no such plan was found with this seed.
    """
    typed = datasets.load("german", form="typed")
    table = typed.inverse_transform(typed.df)
    fixed = [column for column in table if column not in (*_ACTIONABLE, typed.target)]
    loans = datasets.from_frame(table, typed.target, name="german-loans", immutables=fixed, seed=seed)
    model = models.train(loans, "ann", seed=seed, settings=models.paper_settings("ann", "german"))
    method = RoseMul(model, {"tau": _PLAN_TAU, "seed": seed})
    plans = method.plan(models.negative_instances(model, limit=_PLAN_PEOPLE))
    increasing = [plan for plan in plans if plan.found and len(plan.steps) <= _PLAN_STEPS and _every_step_helps(plan)]
    if not increasing:
        raise PlanError("No plan was found in which every step helps: try another seed.")
    return max(increasing, key=lambda plan: len(plan.steps))


def _every_step_helps(plan: Plan) -> bool:
    chances = [0.0, *(step.success.probability for step in plan.steps)]
    return chances[-1] >= _PLAN_TAU and all(before < after for before, after in itertools.pairwise(chances))


def _unit_experiments(scope: Scope) -> tuple[Experiment, ...]:
    """ROSE-mul for other units of action, and with the unit of Table 1."""
    other = [each for each in layouts.rose_mul(scope).experiments if each.condition.startswith("action_unit=")]
    default = layouts.table_1(scope, ("ROSE-mul",)).experiments
    unit = bench.METHODS["ROSE-mul"].resolve({})["action_unit"]
    return (*(replace(each, condition=f"action_unit={unit:g}") for each in default), *other)


def _distances(scope: Scope, results: pd.DataFrame) -> Any:
    largest = {}
    for name in scope.datasets:
        data = datasets.load(name)
        largest[name] = largest_distance(data.df.drop(columns=data.target).to_numpy())
    return plots.proximity(results, largest, DATASET_TITLES)


def largest_distance(rows: np.ndarray) -> float:
    """Return the exact largest L1 distance between two of ``rows`` (n, d).

    By the triangle inequality two rows are at most the sum of their distances from the median apart. With the outermost
    rows first, few pairs remain.

    Examples
    --------
    >>> largest_distance(np.array([[0.0, 0.0], [1.0, 0.5], [0.2, 0.9]]))
    1.5
    """
    rows = np.unique(np.asarray(rows, dtype=float), axis=0)
    radius = np.abs(rows - np.median(rows, axis=0)).sum(axis=1)
    order = np.argsort(-radius, kind="stable")
    rows, radius = rows[order], radius[order]
    largest = 0.0
    for i in range(len(rows)):
        candidates = int(np.searchsorted(-radius, -(largest - radius[i]), side="right"))
        if candidates <= i:  # pairs of later rows are even closer, and earlier rows have been compared
            break
        largest = max(largest, float(np.abs(rows[:candidates] - rows[i]).sum(axis=1).max()))
    return largest


def _distance_experiments(scope: Scope) -> tuple[Experiment, ...]:
    """ROAR with both classifiers, ARAR with the linear one, ROSE with the network; only distances are evaluated.

    Noise along ROAR's long paths would take minutes.
    """
    linear = [each for each in layouts.linear(scope).experiments if each.key[1] in ("ROAR", "ARAR")]
    every = [*layouts.table_1(scope, ("ROAR",)).experiments, *linear, *layouts.table_1(scope, OURS).experiments]
    return tuple(
        replace(each, judgements=tuple(cell for cell in each.judgements if "Proximity" in cell.metrics))
        for each in every
    )


def _closed_loop_experiments(scope: Scope) -> tuple[Experiment, ...]:
    """Table 1 with the closed-loop AIR, for fewer people, without metrics that the figure does not show."""
    few = replace(scope, closed_loop=True, people=min(scope.people or _CLOSED_LOOP_PEOPLE, _CLOSED_LOOP_PEOPLE))
    needed = {"Proximity", "Acc_AIR", "Closed_Loop_AIR"}
    return tuple(
        replace(each, judgements=tuple(cell for cell in each.judgements if needed & set(cell.metrics)))
        for each in layouts.table_1(few).experiments
    )


def _frontier(metric: str) -> Recipe:
    return Recipe(
        f"{plots.RATES[metric]} against L1 distance over the trade-off hyper-parameter of each method",
        lambda scope, results: plots.frontier(results, metric, DATASET_TITLES),
        lambda scope: layouts.frontier(scope).experiments,
    )


def _ranks(metric: str, label: str) -> Recipe:
    return Recipe(
        f"mean ranks by {label} over all people, with the critical difference",
        lambda scope, results: plots.critical_difference_diagram(results, metric, label, titles=DATASET_TITLES).figure,
        lambda scope: layouts.table_1(scope).experiments,
    )


#: All figures, in the order of the paper; further figures are last.
RECIPES: Mapping[str, Recipe] = {
    "lengths": Recipe("short and long recourse under Gaussian and under plausible noise", _lengths),
    "noise": Recipe(
        "Gaussian and plausible noise around a point",
        lambda scope, results: plots.noise_around(plots.savings(), np.array([0.62, 0.62])),
    ),
    "orders": Recipe("recourse of different order and its noise-aware path", _orders),
    "thresholds": Recipe(
        "ROSE-one: tau and sigma^2 against Plausible AIR and distance",
        lambda scope, results: plots.thresholds(results, DATASET_TITLES),
        lambda scope: layouts.rose_one(scope).experiments,
    ),
    "action-units": Recipe(
        "ROSE-mul: the unit of action against Acc AIR and distance",
        lambda scope, results: plots.action_units(results, DATASET_TITLES),
        _unit_experiments,
    ),
    "perturbations": Recipe("four kinds of perturbation", _perturbations),
    "steps": Recipe("one-step and two-step recourse with their invalidation rates", _steps),
    "distances": Recipe(
        "distances of ROAR, ARAR and ROSE relative to the largest in the data", _distances, _distance_experiments
    ),
    "accumulation": Recipe("how noise adds up over two actions", _accumulation),
    "frontier-plausible-air": _frontier("Plausible_AIR"),
    "frontier-acc-air": _frontier("Acc_AIR"),
    "ranks-plausible-air": _ranks("Plausible_AIR", "Plausible AIR"),
    "ranks-acc-air": _ranks("Acc_AIR", "Acc AIR"),
    "ranks-proximity": _ranks("Proximity", "L1 distance"),
    "closed-loop": Recipe(
        "success against cost of fixed recourse and of people who come back and ask again",
        lambda scope, results: plots.closed_loop(results, DATASET_TITLES),
        _closed_loop_experiments,
    ),
    "plan": Recipe(
        "a plan, step by step", lambda scope, results: plots.plan_chart(loan_plan(scope.seeds[0]), _PLAN_TAU).figure
    ),
    "learning": Recipe("learning curves of both variants", _learning),
}
