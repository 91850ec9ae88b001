"""Follow the policy: the paper's way to a plan, and a beam search where that does not get there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rose_carla._lib.runtime import Deadline
from rose_carla.ppo import ActorCritic
from rose_carla.rose.search.drafts import Drafts
from rose_carla.rose.search.task import Task

#: Actions of a node that the beam looks at.
_BRANCHES = 6


@dataclass
class Walks:
    """Where b people got.

    Parameters
    ----------
    drafts
        The plans; of people who did not reach the goal, the one that came nearest.
    reached
        (b,) whether the goal was reached.
    rates
        (b,) invalidation rate of the plans as it was estimated on the way, 1 if never favourable.
    actions
        For each person the numbers of the actions taken, in order.
    """

    drafts: Drafts
    reached: np.ndarray
    rates: np.ndarray
    actions: list[np.ndarray]

    def __setitem__(self, rows: np.ndarray, walks: Walks) -> None:
        self.drafts[rows] = walks.drafts
        self.reached[rows], self.rates[rows] = walks.reached, walks.rates
        for row, actions in zip(rows, walks.actions, strict=True):
            self.actions[row] = actions

    def plans(self) -> list[np.ndarray]:
        """The actions (k, d) of each person as they were taken, one after the other."""
        space, plans = self.drafts.space, []
        for factual, numbers in zip(self.drafts.factuals, self.actions, strict=True):
            states = [factual]
            for number in numbers:
                states.append(space.apply(states[-1][None], np.array([number]))[0])
            plans.append(np.diff(np.array(states), axis=0))
        return plans


@dataclass
class _Nodes:
    """Ends of the branches that are followed."""

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
    """Advance all factuals together until each is robustly favourable.

    Parameters
    ----------
    max_actions
        Actions to a plan.
    rngs
        One generator for each factual.
    width
        1 follows the most probable possible action. More is a beam search: the most probable actions of every node are
        tried, and of a person's nodes the ``width`` are kept that promise the largest discounted return,
        gamma^(size so far) times the critic's value.
    deadline
        When to stop, wherever people are.
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
        preferences = policy.predict_log_probabilities(observations, mask)
        if width == 1:
            parents, numbers = np.arange(len(preferences)), preferences.argmax(axis=1)
        else:
            parents, numbers = _branches(task, policy, nodes, preferences, mask, width, gamma)
        before = nodes[parents]
        drafts = before.drafts[np.arange(len(parents))]
        drafts.act(numbers, turn)
        generators = [rngs[owner] for owner in before.owners.tolist()]
        crowds = task.robustness.advance(before.crowds, drafts.ends - before.drafts.ends, generators)
        nodes = _Nodes(before.owners, drafts, crowds, np.column_stack([before.actions, numbers]))
        _arrive(task, nodes, found, rngs)
    return found


def _branches(
    task: Task,
    policy: ActorCritic,
    nodes: _Nodes,
    preferences: np.ndarray,
    mask: np.ndarray,
    width: int,
    gamma: float,
) -> tuple[np.ndarray, np.ndarray]:
    """The most promising ``width`` actions of each person's nodes: numbers of nodes and actions."""
    branches = min(_BRANCHES, mask.shape[1])
    best = np.argpartition(-preferences, branches - 1, axis=1)[:, :branches]
    parents = np.repeat(np.arange(len(best)), branches)
    numbers = best.ravel()
    allowed = mask[parents, numbers]
    parents, numbers = parents[allowed], numbers[allowed]
    ends = task.space.apply(nodes.drafts.ends[parents], numbers)
    owners = nodes.owners[parents]
    spent = np.abs(ends - nodes.drafts.factuals[parents]).sum(axis=1) / task.space.action_unit
    promise = gamma**spent * policy.predict_values(ends)
    # of several ways to one place the first is kept
    places = np.column_stack([owners, (ends / task.space.action_unit * 4).round()])
    _, first = np.unique(places, axis=0, return_index=True)
    order = first[np.lexsort((-promise[first], owners[first]))]
    rank = np.arange(len(order)) - np.searchsorted(owners[order], owners[order], side="left")
    kept = np.sort(order[rank < width])
    return parents[kept], numbers[kept]


def _arrive(task: Task, nodes: _Nodes, found: Walks, rngs: Sequence[np.random.Generator]) -> None:
    """Note for each person the cheapest node at the goal, or the one with the lowest invalidation rate so far."""
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
