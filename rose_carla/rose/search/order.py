"""The order of a plan's actions, chosen under the noise."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from rose_carla.rose.search.drafts import Drafts, Task

#: Maximum number of changes of which all orders are compared.
_ALL_ORDERS = 4
#: Noisy versions per order.
_SAMPLES = 96
#: Increase of the invalidation rate by one step that counts as one.
_TOLERANCE = 0.02


def choose_order(task: Task, drafts: Drafts, rngs: Sequence[np.random.Generator]) -> Drafts:
    """Return the drafts with their actions in the most robust order.

    Under accumulated noise every unit of a later action draws earlier changes back to the data, so the order decides
    where people end up. Orders are compared on common random numbers: all of them for up to four changes; for more,
    the last action is chosen first, then the one before it. Of orders that are equally robust, one in which no action
    raises the invalidation rate is preferred: under one-off noise all orders end equally robust.
    """
    ordered = drafts.copy()
    counts = (drafts.sizes() > 0).sum(axis=1)
    for row in np.flatnonzero(counts > 1).tolist():
        draft = drafts[np.array([row])]
        changed = np.flatnonzero(draft.sizes()[0] > 0)
        changed = changed[np.argsort(draft.turns[0, changed], kind="stable")]
        seed = int(rngs[row].integers(2**63))
        if len(changed) <= _ALL_ORDERS:
            order = _best(task, draft, list(itertools.permutations(changed)), seed)
        else:
            order = _greedy(task, draft, list(changed), seed)
        ordered.turns[row, list(order)] = np.arange(len(order))
    return ordered


def _greedy(task: Task, draft: Drafts, first: list[int], seed: int) -> tuple[int, ...]:
    """Choose the last action, given the others in their present order, then the one before it, and so on."""
    last: tuple[int, ...] = ()
    while len(first) > 1:
        orders = [(*(f for f in first if f != each), each, *last) for each in first]
        chosen = _best(task, draft, orders, seed)[len(first) - 1]
        first.remove(chosen)
        last = (chosen, *last)
    return (first[0], *last)


def _best(task: Task, draft: Drafts, orders: list[tuple[int, ...]], seed: int) -> tuple[int, ...]:
    """Return the order with the lowest invalidation rate at the end; among ties, with the smallest rises before it."""
    change = (draft.ends - draft.factuals)[0]
    membership = task.space.membership.T
    plans = [change * membership[list(order)] for order in orders]
    # prefixes that several orders share are evaluated once
    prefixes = {tuple(order[:k]): plan[:k] for order, plan in zip(orders, plans, strict=True) for k in _lengths(order)}
    if _ignores_order(task):
        prefixes = {tuple(sorted(key)): plan for key, plan in prefixes.items()}
    rates = dict(zip(prefixes, _rates(task, draft.factuals[0], list(prefixes.values()), seed), strict=True))
    keys = []
    for order in orders:
        path = [rates[tuple(sorted(order[:k])) if _ignores_order(task) else tuple(order[:k])] for k in _lengths(order)]
        rises = sum(max(0.0, after - before - _TOLERANCE) for before, after in itertools.pairwise(path))
        keys.append((path[-1] + rises, sum(path)))
    return orders[min(range(len(orders)), key=keys.__getitem__)]


def _lengths(order: tuple[int, ...]) -> range:
    return range(len(order) + 1)


def _ignores_order(task: Task) -> bool:
    return task.robustness.crowd_size == 0


def _rates(task: Task, factual: np.ndarray, plans: list[np.ndarray], seed: int) -> np.ndarray:
    rngs = [np.random.default_rng(seed) for _ in plans]
    factuals = np.repeat(factual[None], len(plans), axis=0)
    return task.robustness.evaluate(factuals, plans, _SAMPLES, rngs, 0.95).rate
