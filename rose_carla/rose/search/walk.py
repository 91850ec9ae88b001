"""Walks: the policy's greedy actions, or a beam search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rose_carla._lib.runtime import Deadline
from rose_carla.ppo import ActorCritic
from rose_carla.rose.search.drafts import Drafts, Task

#: Actions per node that the beam search tries.
_BRANCHES = 6


@dataclass
class Walks:
    """Results of the walks of b people."""

    #: Plans; where the goal was not reached, the most robust one.
    drafts: Drafts
    #: (b,) whether the goal was reached.
    reached: np.ndarray
    #: (b,) invalidation rates estimated during the walk, 1 if no state was favourable.
    rates: np.ndarray
    #: For each person the numbers of the actions taken, in order.
    actions: list[np.ndarray]

    def __setitem__(self, rows: np.ndarray, walks: Walks) -> None:
        self.drafts[rows] = walks.drafts
        self.reached[rows], self.rates[rows] = walks.reached, walks.rates
        for row, actions in zip(rows, walks.actions, strict=True):
            self.actions[row] = actions

    def plans(self) -> list[np.ndarray]:
        """Return the actions (k, d) of each person exactly as they were taken."""
        space, plans = self.drafts.space, []
        for factual, numbers in zip(self.drafts.factuals, self.actions, strict=True):
            states = [factual]
            for number in numbers:
                states.append(space.apply(states[-1][None], np.array([number]))[0])
            plans.append(np.diff(np.array(states), axis=0))
        return plans


@dataclass
class _Nodes:
    """Nodes of the beam search; ``owners`` are the people they belong to."""

    owners: np.ndarray
    drafts: Drafts
    crowds: np.ndarray
    actions: np.ndarray

    def __getitem__(self, chosen: np.ndarray) -> _Nodes:
        return _Nodes(self.owners[chosen], self.drafts[chosen], self.crowds[chosen], self.actions[chosen])


def walk(
    task: Task,
    policy: ActorCritic,
    factuals: np.ndarray,
    max_actions: int,
    rngs: Sequence[np.random.Generator],
    *,
    width: int = 1,
    gamma: float = 0.99,
    deadline: Deadline | None = None,
) -> Walks:
    """Follow the policy from all factuals together until each state is robustly favourable.

    Parameters
    ----------
    task, policy, factuals
        Goal, policy and starts (b, d).
    max_actions
        Maximum number of actions per person.
    rngs
        One generator for each factual.
    width
        1 takes the most probable possible action. More is a beam search: the most probable actions of every node are
        tried, and the ``width`` nodes of a person with the largest estimated return are kept, gamma^(size so far) times
        the critic's value.
    gamma
        Discount of one unit of action, for the beam search.
    deadline
        Time at which walks end wherever they are.
    """
    n, m = len(factuals), task.robustness.crowd_size
    found = Walks(Drafts.empty(task.space, factuals), np.zeros(n, dtype=bool), np.ones(n), [np.empty(0, dtype=int)] * n)
    nodes = _Nodes(
        np.arange(n),
        Drafts.empty(task.space, factuals),
        np.repeat(factuals[:, None, :], m, axis=1),
        np.empty((n, 0), dtype=int),
    )
    for turn in range(max_actions):
        mask = task.space.mask(nodes.drafts.ends)
        possible = mask.any(axis=1) & ~found.reached[nodes.owners]
        nodes, mask = nodes[np.flatnonzero(possible)], mask[possible]
        if len(nodes.owners) == 0 or (deadline is not None and deadline.passed):
            break
        observations = task.robustness.observe(nodes.drafts.ends, nodes.crowds)
        log_probabilities = policy.predict_log_probabilities(observations, mask)
        if width == 1:
            parents, numbers = np.arange(len(mask)), log_probabilities.argmax(axis=1)
        else:
            parents, numbers = _expand(task, policy, nodes, log_probabilities, mask, width, gamma)
        before = nodes[parents]
        drafts = before.drafts.copy()
        drafts.act(numbers, turn)
        generators = [rngs[owner] for owner in before.owners.tolist()]
        crowds = task.robustness.advance(before.crowds, drafts.ends - before.drafts.ends, generators)
        nodes = _Nodes(before.owners, drafts, crowds, np.column_stack([before.actions, numbers]))
        _record_best(task, nodes, found, rngs)
    return found


def _expand(
    task: Task,
    policy: ActorCritic,
    nodes: _Nodes,
    log_probabilities: np.ndarray,
    mask: np.ndarray,
    width: int,
    gamma: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best ``width`` successors of each person's nodes, as numbers of nodes and of actions."""
    branches = min(_BRANCHES, mask.shape[1])
    best = np.argpartition(-log_probabilities, branches - 1, axis=1)[:, :branches]
    parents = np.repeat(np.arange(len(best)), branches)
    numbers = best.ravel()
    allowed = mask[parents, numbers]
    parents, numbers = parents[allowed], numbers[allowed]
    ends = task.space.apply(nodes.drafts.ends[parents], numbers)
    owners = nodes.owners[parents]
    size = (np.abs(ends - nodes.drafts.factuals[parents]) / task.space.units).sum(axis=1)
    returns = gamma**size * policy.predict_values(ends)
    # keep one of several paths to the same state
    states = np.column_stack([owners, (ends / task.space.units * 4).round()])
    _, first = np.unique(states, axis=0, return_index=True)
    order = first[np.lexsort((-returns[first], owners[first]))]
    rank = np.arange(len(order)) - np.searchsorted(owners[order], owners[order], side="left")
    kept = np.sort(order[rank < width])
    return parents[kept], numbers[kept]


def _record_best(task: Task, nodes: _Nodes, found: Walks, rngs: Sequence[np.random.Generator]) -> None:
    """Store for each person the cheapest node at the goal, else the one with the lowest invalidation rate so far."""
    ends, owners = nodes.drafts.ends, nodes.owners
    rates = np.ones(len(owners))
    favourable = np.flatnonzero(task.margins(ends) > 0)
    if len(favourable):
        generators = [rngs[owner] for owner in owners[favourable].tolist()]
        rates[favourable] = task.robustness.rates(ends[favourable], nodes.crowds[favourable], generators)
    reached = rates < task.limit
    size = nodes.drafts.sizes().sum(axis=1)
    order = np.lexsort((np.where(reached, size, rates), ~reached, owners))
    people, first = np.unique(owners[order], return_index=True)
    chosen = order[first]
    better = reached[chosen] | (rates[chosen] <= found.rates[people])
    people, chosen = people[better], chosen[better]
    found.drafts[people] = nodes.drafts[chosen]
    found.reached[people], found.rates[people] = reached[chosen], rates[chosen]
    for person, node in zip(people, chosen, strict=True):
        found.actions[person] = nodes.actions[node]
