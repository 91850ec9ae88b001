"""The oracle: exhaustive search over every change of one or two features, at the same robustness as ROSE.

Candidates are all points of the lattice of action units that differ from a factual in one or two features, from the
cheapest on; the first that a check accepts is the cheapest plan there is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from rose_carla.mdp import ActionSpace, Feature
from rose_carla.noise import invalidation_rate
from rose_carla.rose.search import Task

#: From a factual (d,) and plans, each (k, d), to which of them are accepted.
Accepts = Callable[[np.ndarray, list[np.ndarray]], np.ndarray]
#: Plans looked at together.
BATCH = 128


def ladders(space: ActionSpace, factual: np.ndarray) -> list[np.ndarray]:
    """For each feature everything it can become, as changes (m, d), cheapest first."""
    single = []
    for feature in space.features:
        columns = list(feature.columns)
        if feature.encodings is None:
            most = int(1 / space.action_unit) + 1
            units = np.array([k for k in range(-most, most + 1) if k and k * feature.direction >= 0])
            ends = factual[columns[0]] + units * space.action_unit
            inside = (ends >= -1e-9) & (ends <= 1 + 1e-9)
            values = ends[inside].clip(0, 1)[:, None]
        else:
            values = feature.encodings[np.abs(feature.encodings - factual[columns]).max(axis=1) > 1e-9]
        changes = np.zeros((len(values), space.width))
        changes[:, columns] = values - factual[columns]
        single.append(changes[np.argsort(np.abs(changes).sum(axis=1), kind="stable")])
    return single


def candidates(
    space: ActionSpace, factual: np.ndarray, probability: Callable[[np.ndarray], np.ndarray], n_features: int
) -> Iterator[list[np.ndarray]]:
    """Favourable plans of at most ``n_features`` features, cheapest first, in batches."""
    single = ladders(space, factual)
    first = [np.concatenate(single)]
    second = [np.zeros_like(first[0])]
    for a, b in itertools.combinations(single, 2) if n_features == 2 else ():
        first.append(np.repeat(a, len(b), axis=0))
        second.append(np.tile(b, (len(a), 1)))
    blocks = np.stack([np.concatenate(first), np.concatenate(second)], axis=1)
    cost = np.abs(blocks).sum(axis=(1, 2)).round(9)
    chosen = np.flatnonzero(probability(factual + blocks.sum(axis=1)) > 0.5)
    chosen = chosen[np.argsort(cost[chosen], kind="stable")]
    for start in range(0, len(chosen), BATCH):
        yield [plan[plan.any(axis=1)] for plan in blocks[chosen[start : start + BATCH]]]


def cheapest(
    space: ActionSpace,
    factual: np.ndarray,
    probability: Callable[[np.ndarray], np.ndarray],
    accepts: Accepts,
    n_features: int = 2,
) -> np.ndarray | None:
    """The cheapest accepted plan of one feature, or of two, for a factual; None if there is none."""
    for plans in candidates(space, factual, probability, n_features):
        accepted = accepts(factual, plans)
        if accepted.any():
            return plans[int(accepted.argmax())]
    return None


def most_robust(
    task: Task, factual: np.ndarray, rows: np.ndarray, rng: np.random.Generator, n_samples: int = 200
) -> tuple[np.ndarray, float]:
    """Return the accepted state in reach with the lowest one-off invalidation rate that a crude search finds.

    Up to 400 accepted training rows are moved into the box of the person: immutable features keep their values, and
    monotone ones do not move the wrong way. The five most robust of them are improved by three rounds of coordinate
    ascent on the rate itself, over nine values of each continuous feature and all categories.

    Returns
    -------
    state, rate
        The factual and 1.0 if no accepted state was found; an accepted state may have a rate of 1.0 too.
    """
    boxes = [_values(task.space, feature, factual) for feature in task.space.features]
    states = _moved_rows(task, factual, rows, rng)
    seen = _one_off_rates(task, states, 64, rng)
    best_state, best_rate = factual, 1.0
    for start in np.argsort(seen, kind="stable")[:5]:
        state, rate = states[start], seen[start]
        for _ in range(3):
            for feature, values in zip(task.space.features, boxes, strict=True):
                moved = np.repeat(state[None], len(values), axis=0)
                moved[:, list(feature.columns)] = values
                found = _one_off_rates(task, moved, n_samples, rng)
                if found.min() < rate or rate == 1.0:
                    # without an accepted state yet, climb the probability
                    chosen = found.argmin() if found.min() < 1 else task.probability(moved).argmax()
                    state, rate = moved[chosen], found[chosen]
        is_first = best_state is factual and task.margins(state[None])[0] > 0
        if rate < best_rate or is_first:
            best_state, best_rate = state, float(rate)
    return best_state, best_rate


def most_robust_plan(
    task: Task, factual: np.ndarray, rows: np.ndarray, rng: np.random.Generator, n_samples: int = 60
) -> tuple[np.ndarray | None, float]:
    """Return the plan with an accepted end and the lowest accumulated rate that a crude search finds.

    Plans change one feature after the other, the largest change first, to the values of accepted training rows moved
    into the box of the person, and of the state of :func:`most_robust`: of the 12 nearest and of the 24 that stand
    one-off noise best. The three most robust plans are improved by three rounds of coordinate ascent on the rate
    itself, over nine values of each continuous feature and all categories, each in its place and as the last change.

    Returns
    -------
    plan, rate
        Actions (k, d) and the rate on the samples of the search; None and 1.0 if no accepted state was found.
    """
    space = task.space
    states = np.concatenate([most_robust(task, factual, rows, rng)[0][None], _moved_rows(task, factual, rows, rng)])
    states = states[task.margins(states) > 0]
    if len(states) == 0:
        return None, 1.0
    near = np.argsort(np.abs(states - factual).sum(axis=1), kind="stable")[:12]
    robust = np.argsort(_one_off_rates(task, states, 64, rng), kind="stable")[:24]
    states = states[np.union1d(near, robust)]
    orders = [_largest_first(space, state - factual) for state in states]
    rates = _accumulated_rates(task, factual, states, orders, n_samples, rng)
    best: tuple[np.ndarray | None, float] = None, 1.0
    for start in np.argsort(rates, kind="stable")[:3]:
        state, order, rate = states[start], orders[start], rates[start]
        for _ in range(3):
            for number, feature in enumerate(space.features):
                values = _values(space, feature, factual)
                moved = np.repeat(state[None], 2 * len(values), axis=0)
                moved[:, list(feature.columns)] = np.tile(values, (2, 1))
                last = [*(each for each in order if each != number), number]
                tried = [order if number in order else last] * len(values) + [last] * len(values)
                found = _accumulated_rates(task, factual, moved, tried, n_samples, rng)
                if found.min() < rate:
                    state, order, rate = moved[found.argmin()], tried[found.argmin()], found.min()
        if rate < best[1] or best[0] is None:
            best = _as_plan(space, state - factual, order), float(rate)
    return best


def _moved_rows(task: Task, factual: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the factual and up to 400 accepted rows moved into its box."""
    accepted = rows[task.margins(rows) > 0]
    accepted = accepted[rng.permutation(len(accepted))[:400]]
    states = np.repeat(factual[None], len(accepted) + 1, axis=0)
    for feature in task.space.features:
        columns, values = list(feature.columns), _values(task.space, feature, factual)
        if feature.encodings is not None:
            states[1:, columns] = accepted[:, columns]
        else:
            states[1:, columns[0]] = accepted[:, columns[0]].clip(values.min(), values.max())
    return states


def _one_off_rates(task: Task, states: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return the one-off rates of states, 1 where they are not accepted."""
    one_off = task.one_off
    assert one_off is not None
    rates = np.ones(len(states))
    good = np.flatnonzero(task.margins(states) > 0)
    if len(good):
        rates[good] = invalidation_rate(one_off.favourable, states[good], one_off.noise, one_off.variance, n, rng).rate
    return rates


def _accumulated_rates(
    task: Task, factual: np.ndarray, ends: np.ndarray, orders: list[list[int]], n: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the accumulated rates of plans to ``ends``, 1 where these are not accepted."""
    rates = np.ones(len(ends))
    good = np.flatnonzero(task.margins(ends) > 0)
    if len(good):
        plans = [_as_plan(task.space, ends[row] - factual, orders[row]) for row in good]
        rates[good] = task.robustness.evaluate(np.repeat(factual[None], len(good), axis=0), plans, n, rng, 0.95).rate
    return rates


def _largest_first(space: ActionSpace, change: np.ndarray) -> list[int]:
    """Return the features that change, those that change most first."""
    sizes = (np.abs(change) / space.units) @ space.membership
    return [int(number) for number in np.argsort(-sizes, kind="stable") if sizes[number] > 1e-9]


def _as_plan(space: ActionSpace, change: np.ndarray, order: list[int]) -> np.ndarray:
    """Return the actions (k, d) that change features in that order."""
    actions = change * space.membership.T[order]
    return actions[actions.any(axis=1)]


def _values(space: ActionSpace, feature: Feature, factual: np.ndarray) -> np.ndarray:
    """Return the values (m, columns) that a feature can take: nine of a continuous one, or all categories."""
    if feature.encodings is not None:
        return feature.encodings
    column = feature.columns[0]
    value = factual[column]
    lower = value if feature.direction > 0 else min(value, space.lower[column])
    upper = value if feature.direction < 0 else max(value, space.upper[column])
    return np.linspace(lower, upper, 9)[:, None]
