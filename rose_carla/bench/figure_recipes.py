"""Which runs each figure is made of, and how it is drawn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from rose_carla import RoseMul, bench, datasets, models, plots
from rose_carla.bench import layouts
from rose_carla.bench.farthest import largest_distance
from rose_carla.bench.layouts import Scope
from rose_carla.bench.measures import DATASETS
from rose_carla.bench.methods import OURS
from rose_carla.bench.people import Point
from rose_carla.errors import PlanError
from rose_carla.plots.worlds import patches, savings
from rose_carla.rose.plan import Plan

#: What somebody who asks for a loan can do something about.
_ACTIONABLE = ("credit-amount", "duration", "existing-credits", "installment-rate", "savings")
#: Robustness asked for, and people among whom a plan worth showing is looked for.
_PLAN_TAU, _PLAN_PEOPLE, _PLAN_STEPS = 0.85, 50, 4


@dataclass(frozen=True)
class Recipe:
    """A figure to be made.

    Parameters
    ----------
    words
        What it shows.
    draw
        From the scope of the run and the table of people to the figure.
    points
        What the table of people is made of; nothing for pictures of made-up worlds.
    """

    words: str
    draw: Callable[[Scope, pd.DataFrame], Any]
    points: Callable[[Scope], tuple[Point, ...]] = lambda scope: ()


def noise(scope: Scope, people: pd.DataFrame) -> Any:
    """Gaussian and plausible noise around a point."""
    return plots.noise_around(savings(), np.array([0.62, 0.62]))


def lengths(scope: Scope, people: pd.DataFrame) -> Any:
    """Short and long recourse under both kinds of noise."""
    starts, ends = [[0.2, 0.46], [0.92, 0.14]], [[0.22, 0.74], [0.34, 0.8]]
    return plots.lengths(patches(), list(np.array(starts)), list(np.array(ends)), 0.01, 0.0005, 0.025)


def perturbations(scope: Scope, people: pd.DataFrame) -> Any:
    """Four kinds of perturbation."""
    return plots.perturbations(patches(), np.array([0.8, 0.25]), np.array([[-0.15, 0.35], [-0.3, 0.15]]))


def accumulation(scope: Scope, people: pd.DataFrame) -> Any:
    """How noise adds up along two actions."""
    return plots.accumulation(patches(), np.array([0.8, 0.2]), np.array([[-0.1, 0.4], [-0.35, 0.1]]))


def orders(scope: Scope, people: pd.DataFrame) -> Any:
    """The same changes in three orders."""
    start, up, left = np.array([0.75, 0.25]), np.array([0.0, 0.25]), np.array([-0.22, 0.0])
    plans = {
        "increase $x_2$, then decrease $x_1$": (start, np.array([up, up, left, left])),
        "decrease $x_1$, then increase $x_2$": (start, np.array([left, left, up, up])),
        "both at the same time": (start, np.array([(up + left) / 2] * 4)),
    }
    return plots.noisy_paths(patches(), plans, 0.002, 0.1)


def steps(scope: Scope, people: pd.DataFrame) -> Any:
    """One step, and two of the same size."""
    step = np.array([-0.2, 0.2])
    plans = {
        "one step": (np.array([0.57, 0.5]), step[None]),
        "two steps": (np.array([0.77, 0.3]), np.array([step, step])),
    }
    return plots.noisy_paths(patches(), plans, 0.002, 0.1)


def learning(scope: Scope, people: pd.DataFrame) -> Any:
    """How both variants learn on each data set."""
    logs = {}
    for setting in scope.settings():
        if setting.seed == scope.seeds[0]:
            for name in OURS:
                title = f"{name}, {DATASETS[setting.dataset]}"
                logs[title] = bench.entry(name).build(setting.model(), setting.seed, {}).log_
    return plots.learning_curves(logs, n_columns=len(OURS))


def plan(scope: Scope, people: pd.DataFrame) -> Any:
    """A plan for a loan, of somebody for whom it takes several steps."""
    return plots.plan_chart(loan_plan(scope.seeds[0]), _PLAN_TAU).figure


def loan_plan(seed: int = 0) -> Plan:
    """A plan of ROSE-mul for a loan, over what people can do something about: several steps, each of which helps."""
    typed = datasets.load("german", form="typed")
    table = typed.inverse_transform(typed.df)
    fixed = [column for column in table if column not in (*_ACTIONABLE, typed.target)]
    loans = datasets.from_frame(table, typed.target, name="german-loans", immutables=fixed, seed=seed)
    model = models.train(loans, "ann", seed=seed, settings=models.paper_settings("ann", "german"))
    method = RoseMul(model, {"tau": _PLAN_TAU, "seed": seed})
    found = [each for each in method.plan(models.negative_instances(model, limit=_PLAN_PEOPLE)) if each.found]
    rising = [each for each in found if _helpful(each) and len(each.steps) <= _PLAN_STEPS]
    if not rising:
        raise PlanError("No plan was found in which every step helps: try another seed.")
    return max(rising, key=lambda each: len(each.steps))


def _helpful(plan: Plan) -> bool:
    chances = [0.0, *(step.success.probability for step in plan.steps)]
    return chances[-1] >= _PLAN_TAU and all(before < after for before, after in itertools.pairwise(chances))


def _thresholds(scope: Scope, people: pd.DataFrame) -> Any:
    return plots.thresholds(people, DATASETS)


def _action_units(scope: Scope, people: pd.DataFrame) -> Any:
    return plots.action_units(people, DATASETS)


def _unit_points(scope: Scope) -> tuple[Point, ...]:
    """ROSE-mul for other units, and as Table 1 has it."""
    varied = [point for point in layouts.rose_mul(scope).points if point.condition.startswith("action_unit=")]
    usual = layouts.table_1(scope, ("ROSE-mul",)).points
    unit = bench.METHODS["ROSE-mul"].usual()["action_unit"]
    return (*(Point(f"action_unit={unit:g}", point.judgements) for point in usual), *varied)


def _distances(scope: Scope, people: pd.DataFrame) -> Any:
    largest = {}
    for name in scope.datasets:
        data = datasets.load(name)
        largest[name] = largest_distance(data.df.drop(columns=data.target).to_numpy())
    return plots.proximity(people, largest, DATASETS)


def _long_points(scope: Scope) -> tuple[Point, ...]:
    """ROAR with both classifiers, ARAR with the linear one, ROSE with the network."""
    linear = [point for point in layouts.linear(scope).points if point.key[1] in ("ROAR", "ARAR")]
    every = [*layouts.table_1(scope, ("ROAR",)).points, *linear, *layouts.table_1(scope, OURS).points]
    return tuple(_only(point, "Proximity") for point in every)


def _only(point: Point, metric: str) -> Point:
    """Without the judgements that a figure does not look at: noise along ROAR's long ways takes minutes."""
    return Point(point.condition, tuple(each for each in point.judgements if metric in each.metrics))


def _frontier(metric: str) -> Recipe:
    return Recipe(
        f"{plots.RATES[metric]} against L1 distance over every method's knob",
        lambda scope, people: plots.frontier(people, metric, DATASETS),
        lambda scope: layouts.frontier(scope).points,
    )


def _ranks(metric: str, label: str) -> Recipe:
    return Recipe(
        f"mean ranks by {label} over all people, and what chance alone may make of them",
        lambda scope, people: plots.critical_difference_diagram(people, metric, label, titles=DATASETS).figure,
        lambda scope: layouts.table_1(scope).points,
    )


#: All figures, in the order of the paper; what it does not have comes last.
RECIPES: Mapping[str, Recipe] = {
    "lengths": Recipe("short and long recourse under Gaussian and under plausible noise", lengths),
    "noise": Recipe("Gaussian and plausible noise around a point", noise),
    "orders": Recipe("recourse of different order and its noise-aware path", orders),
    "thresholds": Recipe(
        "ROSE-one: tau and sigma^2 against Plausible AIR and distance",
        _thresholds,
        lambda scope: layouts.rose_one(scope).points,
    ),
    "action-units": Recipe("ROSE-mul: the unit of action against Acc AIR and distance", _action_units, _unit_points),
    "perturbations": Recipe("four kinds of perturbation", perturbations),
    "steps": Recipe("one-step and two-step recourse with their invalidation rates", steps),
    "distances": Recipe("distance of ROAR, ARAR and ROSE beside the largest in the data", _distances, _long_points),
    "accumulation": Recipe("how noise adds up over two actions", accumulation),
    "frontier-plausible-air": _frontier("Plausible_AIR"),
    "frontier-acc-air": _frontier("Acc_AIR"),
    "ranks-plausible-air": _ranks("Plausible_AIR", "Plausible AIR"),
    "ranks-acc-air": _ranks("Acc_AIR", "Acc AIR"),
    "ranks-proximity": _ranks("Proximity", "L1 distance"),
    "plan": Recipe("a plan, step by step", plan),
    "learning": Recipe("learning curves of both variants", learning),
}
