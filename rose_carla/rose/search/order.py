"""The order of a plan's actions, chosen under the noise."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from rose_carla.mdp import Accumulated
from rose_carla.rose.search.drafts import Drafts, Task

#: Maximum number of changes of which all orders are compared.
_ALL_ORDERS = 4
#: Noisy versions per order.
_SAMPLES = 96
#: Increase of the invalidation rate by one step that counts as one.
_TOLERANCE = 0.02
#: People compared at a time, which bounds memory.
_PEOPLE = 64

#: Features in the order in which they change.
_Order = tuple[int, ...]


def choose_order(task: Task, drafts: Drafts, rngs: Sequence[np.random.Generator]) -> Drafts:
    """Return the drafts with their actions in the most robust order.

    Under accumulated noise every unit of a later action draws earlier changes back to the data, so the order decides
    where people end up. Orders are compared on common random numbers: all of them for up to four changes; for more,
    the last action is chosen first, then the one before it. Of orders that are equally robust, one in which no action
    raises the invalidation rate is preferred: under one-off noise all orders end equally robust.
    """
    ordered = drafts.copy()
    sizes = drafts.sizes()
    counts = (sizes > 0).sum(axis=1)
    for few in (True, False):
        rows = np.flatnonzero((counts > 1) & ((counts <= _ALL_ORDERS) == few))
        for start in range(0, len(rows), _PEOPLE):
            part = rows[start : start + _PEOPLE]
            seeds = [int(rngs[row].integers(2**63)) for row in part.tolist()]
            given = [
                tuple(sorted(np.flatnonzero(size > 0).tolist(), key=turn.__getitem__))
                for size, turn in zip(sizes[part], drafts.turns[part], strict=True)
            ]
            compare = _all_orders if few else _from_the_end
            for row, order in zip(part, compare(task, drafts[part], given, seeds), strict=True):
                ordered.turns[row, list(order)] = np.arange(len(order))
    return ordered


def _all_orders(task: Task, drafts: Drafts, given: Sequence[_Order], seeds: Sequence[int]) -> list[_Order]:
    return _best(task, drafts, [list(itertools.permutations(order)) for order in given], seeds)


def _from_the_end(task: Task, drafts: Drafts, given: Sequence[_Order], seeds: Sequence[int]) -> list[_Order]:
    """Choose the last action, given the others in their present order, then the one before it, and so on."""
    orders = list(given)
    for done in range(max(len(order) for order in orders) - 1):
        variants = []
        for order in orders:
            first, last = order[: len(order) - done], order[len(order) - done :]
            variants.append([(*(f for f in first if f != each), each, *last) for each in first] or [order])
        orders = _best(task, drafts, variants, seeds)
    return orders


def _best(task: Task, drafts: Drafts, orders: Sequence[list[_Order]], seeds: Sequence[int]) -> list[_Order]:
    """Return of each person's orders that with the lowest rate at the end; among ties, with the smallest rises."""
    noise = task.robustness
    if isinstance(noise, Accumulated):
        rates = _after_prefixes(noise, drafts, orders, seeds)
    else:
        rates = _after_sets(task, drafts, orders, seeds)
    chosen = []
    for row, candidates in enumerate(orders):
        keys = []
        for order in candidates:
            path = [rates[row, _key(noise, order[:k])] for k in range(len(order) + 1)]
            rises = sum(max(0.0, after - before - _TOLERANCE) for before, after in itertools.pairwise(path))
            keys.append((path[-1] + rises, sum(path)))
        chosen.append(candidates[min(range(len(keys)), key=keys.__getitem__)])
    return chosen


def _key(noise: object, prefix: _Order) -> _Order:
    """Return what the rate after a prefix depends on: under one-off noise, not on its order."""
    return prefix if isinstance(noise, Accumulated) else tuple(sorted(prefix))


def _after_prefixes(
    noise: Accumulated, drafts: Drafts, orders: Sequence[list[_Order]], seeds: Sequence[int]
) -> dict[tuple[int, _Order], float]:
    """Return the invalidation rates after all prefixes; crowds go on from a prefix to all its successors."""
    change, membership = drafts.ends - drafts.factuals, drafts.space.membership.T
    rates: dict[tuple[int, _Order], float] = {(row, ()): 1.0 for row in range(len(drafts))}
    nodes: list[tuple[int, _Order]] = list(rates)
    crowds = np.repeat(drafts.factuals[:, None, :], _SAMPLES, axis=1)
    for length in range(1, max(len(order) for each in orders for order in each) + 1):
        parents = {node: number for number, node in enumerate(nodes)}
        following = {(row, order[:length]) for row, each in enumerate(orders) for order in each if len(order) >= length}
        nodes = sorted(following)
        crowds = crowds[[parents[row, prefix[:-1]] for row, prefix in nodes]]
        actions = [(change[row] * membership[prefix[-1]])[None] for row, prefix in nodes]
        rngs = [np.random.default_rng([seeds[row], length]) for row, _ in nodes]
        crowds = noise.go_on(crowds, actions, rngs)
        rates.update(zip(nodes, noise.rates(crowds[:, 0], crowds, rngs).tolist(), strict=True))
    return rates


def _after_sets(
    task: Task, drafts: Drafts, orders: Sequence[list[_Order]], seeds: Sequence[int]
) -> dict[tuple[int, _Order], float]:
    """Return the invalidation rates under noise at the end, after all sets of changes that are a prefix."""
    prefixes = {
        (row, tuple(sorted(order[:k])))
        for row, each in enumerate(orders)
        for order in each
        for k in range(len(order) + 1)
    }
    nodes = sorted(prefixes)
    rows = [row for row, _ in nodes]
    membership = drafts.space.membership
    changed = np.stack([membership[:, list(features)].sum(axis=1) for _, features in nodes])
    plans = list(((drafts.ends - drafts.factuals)[rows] * changed)[:, None, :])
    rngs = [np.random.default_rng(seeds[row]) for row in rows]
    rates = task.robustness.evaluate(drafts.factuals[rows], plans, _SAMPLES, rngs, 0.95).rate
    return dict(zip(nodes, rates.tolist(), strict=True))
