"""Sizes of moves and lengths of episodes that follow from the table."""

from __future__ import annotations

import numpy as np
from rose_carla.rose.search import Task

#: Smallest and largest derived maximum number of actions.
MIN_ACTIONS, _MAX_ACTIONS = 50, 200
#: Largest move, as a share of a feature's range.
_LARGEST_MOVE = 0.2
#: Actions per unit of distance: noise asks for more than the border, and policies also make detours and small moves.
_ACTIONS_PER_UNIT = 1.5
#: Maximum number of actions of an ascent.
_ASCENT_LENGTH = 30
_SLACK = 1e-9


def default_multiples(action_unit: float) -> tuple[int, ...]:
    """Return powers of 2 of which the largest moves a feature by at most 0.2 of its range.

    Examples
    --------
    >>> default_multiples(0.025), default_multiples(0.005), default_multiples(0.5)
    ((1, 2, 4, 8), (1, 2, 4, 8, 16, 32), (1,))
    """
    largest = max(_LARGEST_MOVE / action_unit + _SLACK, 1.0)
    return tuple(2**power for power in range(int(np.log2(largest)) + 1))


def default_max_actions(task: Task, rows: np.ndarray) -> int:
    """Return 1.5 actions per unit of the distance to favourable states, from 50 to 200, in tens.

    The distance is the 90 % quantile of :func:`ascent_distances` over the rows that get there.
    """
    distances = ascent_distances(task, rows)
    distances = distances[np.isfinite(distances)]
    if len(distances) == 0:
        return MIN_ACTIONS
    needed = _ACTIONS_PER_UNIT * float(np.quantile(distances, 0.9))
    return int(np.clip(10 * np.ceil(needed / 10), MIN_ACTIONS, _MAX_ACTIONS))


def ascent_distances(task: Task, rows: np.ndarray) -> np.ndarray:
    """Return how far favourable states are from ``rows`` (b, d) by steepest ascent, in units of action.

    Each row repeats the possible action with the largest gain of probability per unit until it is favourable; infinite
    where no action raises the probability any more, or after 30 actions.
    """
    space, states = task.space, rows.copy()
    numbers = np.arange(space.n)
    distances = np.full(len(rows), np.inf)
    active = np.arange(len(rows))
    for _ in range(_ASCENT_LENGTH):
        mask = space.mask(states[active])
        active, mask = active[mask.any(axis=1)], mask[mask.any(axis=1)]
        if len(active) == 0:
            break
        before = np.repeat(states[active], space.n, axis=0)
        after = space.apply(before, np.tile(numbers, len(active)))
        sizes = (np.abs(after - before) / space.units).sum(axis=1)
        gains = task.probability(after) - np.repeat(task.probability(states[active]), space.n)
        rates = np.where(mask, (gains / np.maximum(sizes, _SLACK)).reshape(mask.shape), -np.inf)
        best = rates.argmax(axis=1)
        rises = rates.max(axis=1) > 0
        active, best = active[rises], best[rises]
        if len(active) == 0:
            break
        states[active] = space.apply(states[active], best)
        reached = task.probability(states[active]) > task.border
        done = active[reached]
        distances[done] = (np.abs(states[done] - rows[done]) / space.units).sum(axis=1)
        active = active[~reached]
    return distances
