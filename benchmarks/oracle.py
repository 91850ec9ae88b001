"""The oracle: exhaustive search over every change of one or two features, at the same robustness as ROSE.

Candidates are all points of the lattice of action units that differ from a factual in one or two features, from the
cheapest on; the first that a check accepts is the cheapest plan there is.
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
