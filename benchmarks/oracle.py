"""The oracle: exhaustive search over every change of one or two features, at the same robustness as ROSE.

Candidates are all points of the lattice of action units that differ from a factual in one or two features, from the
cheapest on; the first that a check accepts is the cheapest plan there is. With accumulated noise a pair of features is
tried in both orders.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from rose_carla.mdp import ActionSpace

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
    space: ActionSpace, factual: np.ndarray, probability: Callable[[np.ndarray], np.ndarray], ordered: bool
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Favourable candidates, cheapest first, in batches: their costs, and the plans."""
    single = ladders(space, factual)
    pairs = []
    for a, b in itertools.combinations(range(len(single)), 2):
        pairs.append((np.repeat(single[a], len(single[b]), axis=0), np.tile(single[b], (len(single[a]), 1))))
    one = np.concatenate(single)
    zeros = np.zeros_like(one)
    first = np.concatenate([one, *(a for a, _ in pairs)])
    second = np.concatenate([zeros, *(b for _, b in pairs)])
    cost = np.abs(first).sum(axis=1) + np.abs(second).sum(axis=1)
    favourable = probability(factual + first + second) > 0.5
    chosen = np.flatnonzero(favourable)
    chosen = chosen[np.argsort(cost[chosen].round(9), kind="stable")]
    for start in range(0, len(chosen), BATCH):
        rows = chosen[start : start + BATCH]
        plans, costs = [], []
        for row in rows:
            blocks = [block for block in (first[row], second[row]) if block.any()]
            plans.append(np.stack(blocks))
            costs.append(cost[row])
            if ordered and len(blocks) == 2:
                plans.append(np.stack(blocks[::-1]))
                costs.append(cost[row])
        yield np.array(costs), plans


def cheapest(
    space: ActionSpace,
    factual: np.ndarray,
    probability: Callable[[np.ndarray], np.ndarray],
    accepts: Accepts,
    ordered: bool = False,
    budget: int | None = None,
) -> np.ndarray | None:
    """The cheapest accepted plan of at most two features for a factual, or None, within ``budget`` plans if given."""
    looked_at = 0
    for costs, plans in candidates(space, factual, probability, ordered):
        if budget is not None and looked_at >= budget:
            break
        looked_at += len(plans)
        accepted = accepts(factual, plans)
        if accepted.any():
            number = int(np.flatnonzero(accepted)[np.argmin(costs[accepted])])
            return plans[number]
    return None
