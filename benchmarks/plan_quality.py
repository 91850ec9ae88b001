"""What is wrong with plans: judged on noise that no part of planning has seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from rose_carla.mdp import ActionSpace
from rose_carla.noise import wilson_interval
from rose_carla.rose import Rose

#: Fresh tries of a plan; of a plan without one of its steps, and again, to be sure.
TRIES, SHORTER_TRIES, SURE_TRIES = 1000, 400, 2000
#: Observed rate below which a plan without a step passes. The check of ROSE requires about as much.
PASSES = 0.2


def fresh_rates(
    method: Rose, rows: np.ndarray, plans: Sequence[np.ndarray], n: int = TRIES, stream: int = 1
) -> np.ndarray:
    """Invalidation rates under noise that no part of planning has seen; other streams are other noise."""
    if len(plans) == 0:
        return np.empty(0)
    return method.task.robustness.evaluate(rows, plans, n, np.random.default_rng(2**40 + stream), 0.95).rate


@dataclass(frozen=True)
class PlanQuality:
    """Numbers of plans, except for the rates."""

    #: (n,) invalidation rates on fresh tries.
    rates: np.ndarray
    #: Plans of which a step can be left out, and those for which more tries agree.
    droppable: int
    surely_droppable: int
    #: Plans of which a step can be shortened by a unit.
    shortenable: int
    surely_shortenable: int
    #: Plans beyond the limit by more than the 95 % interval.
    beyond: int


def judge(method: Rose, rows: np.ndarray, plans: Sequence[np.ndarray]) -> PlanQuality:
    """Judge plans of the people ``rows`` (n, d), who all have one."""
    rates = fresh_rates(method, rows, plans)
    lower, _ = wilson_interval(rates * TRIES, TRIES)
    dropped = spare(method, rows, plans, without_a_step)
    shortened = spare(method, rows, plans, lambda plan: with_a_shorter_step(method.space, plan))
    return PlanQuality(rates, *dropped, *shortened, int((lower >= method.task.limit - 1e-12).sum()))


def without_a_step(plan: np.ndarray) -> list[np.ndarray]:
    """Return the plans that remain if one step is left out."""
    return [np.delete(plan, step, axis=0) for step in range(len(plan))]


def with_a_shorter_step(space: ActionSpace, plan: np.ndarray) -> list[np.ndarray]:
    """Return the plans in which a change of a number is one unit smaller; changes of up to a unit remain."""
    numbers = [feature.columns[0] for feature in space.features if feature.encodings is None]
    shorter = []
    for step, column in zip(*np.nonzero(plan[:, numbers]), strict=True):
        number = numbers[column]
        size, unit = abs(plan[step, number]), space.units[number]
        if size > unit + 1e-6:
            shorter.append(plan.copy())
            shorter[-1][step, number] *= 1 - unit / size
    return shorter


def spare(
    method: Rose, rows: np.ndarray, plans: Sequence[np.ndarray], variants: Callable[[np.ndarray], list[np.ndarray]]
) -> tuple[int, int]:
    """Return for how many plans a variant passes: its end is accepted, and its rate low; then on more tries as well."""
    owners, tried = [], []
    for row, plan in enumerate(plans):
        for variant in variants(plan):
            if len(variant):
                owners.append(row)
                tried.append(variant)
    if not tried:
        return 0, 0
    people = np.array(owners)
    ends = np.stack([rows[row] + variant.sum(axis=0) for row, variant in zip(owners, tried, strict=True)])
    passing = np.flatnonzero(method.task.margins(ends) > 0)
    found = []
    for stream, n in ((2, SHORTER_TRIES), (3, SURE_TRIES)):
        rates = fresh_rates(method, rows[people[passing]], [tried[i] for i in passing], n, stream)
        passing = passing[rates < PASSES]
        found.append(len(np.unique(people[passing])))
    return found[0], found[1]
