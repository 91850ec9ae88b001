"""The paper's way to a plan: follow the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rose_carla.noise.distributions import SharedGenerators
from rose_carla.planning.drafts import Drafts
from rose_carla.planning.task import Task
from rose_carla.policy import ActorCritic


@dataclass
class Walks:
    """Where b people got by following the policy.

    Parameters
    ----------
    drafts
        The plans.
    reached
        (b,) whether the goal was reached.
    stuck
        (b,) whether a state was reached in which nothing can be done.
    rates
        (b,) last invalidation rate seen, 1 if none was.
    actions
        For every turn the rows that took one, and the actions.
    """

    drafts: Drafts
    reached: np.ndarray
    stuck: np.ndarray
    rates: np.ndarray
    actions: list[tuple[np.ndarray, np.ndarray]]

    def plans(self) -> list[np.ndarray]:
        """The actions (k, d) of each walk as they were taken."""
        space, states = self.drafts.space, self.drafts.factuals.copy()
        steps: list[list[np.ndarray]] = [[] for _ in states]
        for rows, numbers in self.actions:
            ends = space.apply(states[rows], numbers)
            for row, change in zip(rows, ends - states[rows], strict=True):
                steps[row].append(change)
            states[rows] = ends
        return [np.array(each).reshape(-1, states.shape[1]) for each in steps]


def walk(
    task: Task, policy: ActorCritic, factuals: np.ndarray, max_actions: int, rngs: Sequence[np.random.Generator]
) -> Walks:
    """Advance all factuals together by the most probable possible action, until each is robustly favourable.

    Parameters
    ----------
    rngs
        One generator for each factual.
    """
    drafts = Drafts.empty(task.space, factuals)
    n = len(factuals)
    walks = Walks(drafts, np.zeros(n, dtype=bool), np.zeros(n, dtype=bool), np.ones(n), [])
    crowd = np.repeat(factuals[:, None, :], task.robustness.crowd_size, axis=1)
    for turn in range(max_actions):
        rows = np.flatnonzero(~walks.reached & ~walks.stuck)
        mask = task.space.mask(drafts.ends[rows])
        possible = mask.any(axis=1)
        walks.stuck[rows[~possible]] = True
        rows, mask = rows[possible], mask[possible]
        if len(rows) == 0:
            break
        part = drafts[rows]
        before = part.ends
        numbers = policy.greedy(before, mask)
        part.act(numbers, turn)
        drafts[rows] = part
        walks.actions.append((rows, numbers))
        if task.robustness.crowd_size:
            shared = SharedGenerators(rngs[row] for row in rows)
            crowd[rows] = task.robustness.advance(crowd[rows], part.ends - before, shared)
        favourable = task.margins(part.ends) > 0
        if favourable.any():
            there = rows[favourable]
            walks.rates[there] = task.robustness.rates(
                part.ends[favourable], crowd[there], [rngs[row] for row in there]
            )
            walks.reached[there] = walks.rates[there] < task.limit
    return walks
