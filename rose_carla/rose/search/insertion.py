"""Ascent under accumulated noise: insert one change at a time, before or after the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from rose_carla.mdp import Accumulated
from rose_carla.rose.search.drafts import MAX_LOGIT, Drafts, Task

#: People in the simulation of a draft.
_CROWD = 32
#: Maximum number of insertions.
_ROUNDS = 8
#: Increase of the mean margin of a crowd that counts as one.
_GAIN = 0.02
#: Share of the rate aimed at where the ascent ends: small crowds are inaccurate.
_SAFETY = 0.6
#: Units added to costs, so that the first changes are not the smallest ones.
_COST_OFFSET = 12.0


def insert_changes(
    task: Task,
    drafts: Drafts,
    aim: float,
    moves: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    costs: Callable[[np.ndarray, np.ndarray], np.ndarray],
    rngs: Sequence[np.random.Generator],
) -> Drafts:
    """Return drafts whose crowds end further inside, until their invalidation rate should pass the check.

    Every unit of a later change draws the earlier ones back to the data. A change that the data pull at belongs to the
    end and others before it, so each is tried at both places. Drafts of one person are compared on common random
    numbers, by the mean margin of the crowd per cost.

    Parameters
    ----------
    task
        Goal, with accumulated noise.
    drafts
        Drafts to improve.
    aim
        Invalidation rate that should pass the check.
    moves
        From factuals and states (b, d) to states that differ in one feature: their owners and (n, d) states.
    costs
        From factuals and states to the costs of the changes.
    rngs
        One generator for each draft.
    """
    assert isinstance(task.robustness, Accumulated)
    drafts = drafts.copy()
    alive = np.arange(len(drafts))
    for _ in range(_ROUNDS):
        seeds = np.array([int(rngs[row].integers(2**63)) for row in alive.tolist()])
        now, failures = _simulate(task, drafts[alive], seeds)
        left = (failures > _SAFETY * aim) | (task.margins(drafts.ends[alive]) <= 0)
        alive, now, seeds = alive[left], now[left], seeds[left]
        if len(alive) == 0:
            break
        current = drafts[alive]
        owners, ends = moves(current.factuals, current.ends)
        # beyond MAX_LOGIT margins are equally good
        inside = task.margins(ends) >= task.margins(current.ends).clip(max=MAX_LOGIT)[owners]
        variants, owners = _placed(current, owners[inside], ends[inside])
        if len(owners) == 0:
            break
        mean, _ = _simulate(task, variants, seeds[owners])
        spent = costs(variants.factuals, variants.ends) - costs(current.factuals, current.ends)[owners]
        gains = mean - now[owners]
        order = np.lexsort((-np.where(gains > _GAIN, gains / (spent.clip(0) + _COST_OFFSET), -np.inf), owners))
        people, first = np.unique(owners[order], return_index=True)
        best = order[first]
        better = gains[best] > _GAIN
        drafts[alive[people[better]]] = variants[best[better]]
        alive = alive[people[better]]
        if len(alive) == 0:
            break
    return drafts


def _placed(drafts: Drafts, owners: np.ndarray, ends: np.ndarray) -> tuple[Drafts, np.ndarray]:
    """Return drafts to ``ends`` with the changed feature first, and with it last."""
    base = drafts[owners]
    changed = (np.abs(ends - base.ends) @ drafts.space.membership).argmax(axis=1)
    rows = np.arange(len(owners))
    known = np.where(np.isfinite(base.turns), base.turns, 0.0)
    placed = []
    for turn in (known.min(axis=1) - 1, known.max(axis=1) + 1):
        turns = base.turns.copy()
        turns[rows, changed] = turn
        placed.append(Drafts(drafts.space, base.factuals, ends.copy(), turns))
    return Drafts.concat(placed), np.concatenate([owners, owners])


def _simulate(task: Task, drafts: Drafts, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean margin and the invalidation rate of a small crowd that follows each draft."""
    assert isinstance(task.robustness, Accumulated)
    rngs = [np.random.default_rng(seed) for seed in seeds.tolist()]
    crowd = task.robustness.follow(drafts.factuals, drafts.plans(), _CROWD, rngs)
    margins = task.margins(crowd.reshape(-1, crowd.shape[2])).reshape(crowd.shape[:2])
    return margins.clip(-MAX_LOGIT, MAX_LOGIT).mean(axis=1), (margins <= 0).mean(axis=1)
