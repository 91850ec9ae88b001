"""Drafts without the policy: towards accepted training rows, and by coordinate ascent within a person's box.

They serve people for whom walks find nothing. Predictions are cheap and noise is not, so both
build drafts one feature at a time by smoothed margins, and the invalidation rates of a few of them are estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from rose_carla.rose.search.drafts import Drafts, Task, best_of_each
from rose_carla.rose.search.screening import Screening

#: Accepted training rows compared with a person, those judged under noise, and those that drafts lead towards.
_ROWS, _SAMPLE, _TARGETS = 1000, 256, 8
#: Maximum number of features that a draft changes.
_MAX_FEATURES = 10
#: Lengths of moves in the ascent, in units; the bound is tried as well.
_LENGTHS = np.array([1, 2, 4, 8, 12, 16, 24, 32])
#: Starts of the ascent on the margin besides the person.
_STARTS = 4
#: Corners of a person's box that are tried.
_CORNERS = 512
#: Shares of the rate aimed at for which the cheapest drafts are returned; the last are the most robust ones.
_CHOICES = (1.0, 0.6, 0.0)
#: People searched for at a time, which bounds memory.
_PEOPLE = 32
#: Seed of the corners.
_SEED = 31


@dataclass(eq=False)
class Reach:
    """Search for drafts that end favourably, independent of a policy."""

    #: Goal of the plans.
    task: Task
    #: (n, d) training rows.
    rows: np.ndarray
    #: Invalidation rate that should pass the check.
    aim: float
    #: Cost of changing one more feature, in units of action.
    sparsity_weight: float
    #: Parts that are switched off: "rows" of the training data, "ascent"; "sweeps" and "redo" under accumulated noise.
    without: frozenset[str] = frozenset()
    _accepted: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        accepted = self.rows[self.task.margins(self.rows) > 0] if len(self.rows) else self.rows
        rng = np.random.default_rng(len(accepted))
        self._accepted = accepted[np.sort(rng.permutation(len(accepted))[:_ROWS])]
        self.screening = Screening(self.task, self.aim, self._moves, self._cost, self.without)
        space = self.task.space
        self._mutable = space.membership.sum(axis=1) > 0
        self._numeric = np.array([feature.encodings is None for feature in space.features])
        self._column = np.array([feature.columns[0] for feature in space.features])
        self._direction = np.array([feature.direction for feature in space.features])

    def search(self, factuals: np.ndarray, rngs: Sequence[np.random.Generator]) -> list[tuple[Drafts, np.ndarray]]:
        """Return drafts of each person, and their estimated invalidation rates: 1 if none ends favourably.

        The first is the cheapest at a rate that should pass, the following ones are more robust and often the same.
        """
        best = [(Drafts.empty(self.task.space, factuals), np.ones(len(factuals))) for _ in _CHOICES]
        for start in range(0, len(factuals), _PEOPLE):
            part = np.arange(start, min(start + _PEOPLE, len(factuals)))
            inside, near, far = zip(*(self._near(factual) for factual in factuals[part]), strict=True)
            corners = [self._corners(factual) for factual in factuals[part]]
            found = []
            if "rows" not in self.without:
                found += [_flat(inside), self._towards(factuals[part], near)]  # whole rows come first
            if "ascent" not in self.without:
                alone = [factual[None] for factual in factuals[part]]
                smoothed, plain = self.task.smoothed_margins, self.task.margins
                found += [self._ascend(factuals[part], alone, smoothed, by_cost) for by_cost in (True, False)]
                found += [self._ascend(factuals[part], starts, plain, False) for starts in (alone, far, corners)]
            if not found:
                continue
            owners = part[np.concatenate([owner for owner, _ in found])]
            ends = np.concatenate([end for _, end in found])
            sources = np.repeat(np.arange(len(found)), [len(owner) for owner, _ in found])
            candidates, people, seen = self.screening.judge(factuals, owners, ends, sources, rngs)
            costs = self._cost(candidates.factuals, candidates.ends)
            for share, (drafts, rates) in zip(_CHOICES, best, strict=True):
                first = best_of_each(people, np.where(seen < share * self.aim, costs, 1e6 * (1 + seen)), 1)
                drafts[people[first]], rates[people[first]] = candidates[first], seen[first]
        return best

    def _near(self, factual: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return accepted states with mutable features taken from training rows: some of all, and the targets.

        Half of the targets are the nearest, the others are those with the largest margins, for noise that carries
        people a long way. Third are starts for the ascent, those with the largest margins, accepted or not.
        """
        space = self.task.space
        states = np.where(self._mutable, self._accepted, factual)
        column = self._column[self._numeric]
        value, moved = factual[column], states[:, column]
        blocked = (moved - value) * self._direction[self._numeric] < 0
        lower, upper = np.minimum(value, space.lower[column]), np.maximum(value, space.upper[column])
        states[:, column] = np.where(blocked, value, moved.clip(lower, upper))
        if len(states) == 0:
            return states, states, states
        margins = self.task.margins(states)
        by_margin = np.argsort(-margins, kind="stable")
        inside = np.flatnonzero(margins > 0)
        costs = (np.abs(states[inside] - factual) / space.units).sum(axis=1)
        half = inside[np.argsort(costs, kind="stable")][: _TARGETS // 2]
        rest = by_margin[: _TARGETS - len(half)]
        targets = np.union1d(half, rest[margins[rest] > 0])
        return states[inside[:_SAMPLE]], states[targets], states[by_margin[:_STARTS]]

    def _corners(self, factual: np.ndarray) -> np.ndarray:
        """Return random corners of the person's box with the largest margins: features at a bound or as they are."""
        space, rng = self.task.space, np.random.default_rng(_SEED)
        states = np.repeat(factual[None], _CORNERS, axis=0)
        for number, feature in enumerate(space.features):
            columns = list(feature.columns)
            values = factual[None, columns]
            if feature.encodings is not None:
                values = np.concatenate([values, feature.encodings])
            else:
                ends = np.array([[space.lower[columns[0]]], [space.upper[columns[0]]]])
                values = np.concatenate([values, ends[(ends - values).ravel() * self._direction[number] >= 0]])
            states[:, columns] = values[rng.integers(len(values), size=_CORNERS)]
        return states[np.argsort(-self.task.margins(states), kind="stable")[:_STARTS]]

    def _towards(self, factuals: np.ndarray, near: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return owners and ends of drafts that adopt values of accepted states, one feature after the other."""
        owners, targets = _flat(near)
        space, states = self.task.space, factuals[owners]
        guide = self.task.smoothed_margins(states) if len(states) else np.empty(0)
        left = (np.abs(targets - states) / space.units) @ space.membership > 1e-6
        found_owners, found = [], []
        for _ in range(_MAX_FEATURES):
            row, feature = np.nonzero(left)
            if len(row) == 0:
                break
            columns = space.membership[:, feature].T > 0
            candidates = np.where(columns, targets[row], states[row])
            costs = (np.abs(candidates - states[row]) / space.units).sum(axis=1) + self.sparsity_weight
            scores = self.task.smoothed_margins(candidates)
            chosen = _best_gains(row, scores, guide, costs)
            row = row[chosen]
            left[row, feature[chosen]] = False
            states[row], guide[row] = candidates[chosen], scores[chosen]
            # what is still rejected is not recorded, but goes on
            inside = row[self.task.margins(states[row]) > 0]
            found_owners.append(owners[inside])
            found.append(states[inside])
        return _joined(found_owners, found, factuals.shape[1])

    def _ascend(
        self,
        factuals: np.ndarray,
        starts: Sequence[np.ndarray],
        objective: Callable[[np.ndarray], np.ndarray],
        by_cost: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return owners and ends of drafts by coordinate ascent, for the largest gain per cost or the largest gain."""
        found_owners, found = [], []
        owners, states = _flat(starts)
        guide = objective(states) if len(states) else np.empty(0)
        alive = np.arange(len(states))
        inside = np.flatnonzero(self.task.margins(states) > 0) if len(states) else alive
        found_owners.append(owners[inside])
        found.append(states[inside])
        for _ in range(_MAX_FEATURES):
            if len(alive) == 0:
                break
            row, candidates = self._moves(factuals[owners[alive]], states[alive])
            row = alive[row]
            costs = self._cost(factuals[owners[row]], candidates) - self._cost(factuals[owners[row]], states[row])
            scores = objective(candidates)
            chosen = _best_gains(row, scores, guide, costs.clip(1) if by_cost else np.ones(len(row)))
            chosen = chosen[scores[chosen] > guide[row[chosen]] + 1e-6]
            alive = row[chosen]
            states[alive], guide[alive] = candidates[chosen], scores[chosen]
            inside = alive[self.task.margins(states[alive]) > 0] if len(alive) else alive
            found_owners.append(owners[inside])
            found.append(states[inside])
        return _joined(found_owners, found, factuals.shape[1])

    def _cost(self, factuals: np.ndarray, states: np.ndarray) -> np.ndarray:
        sizes = (np.abs(states - factuals) / self.task.space.units) @ self.task.space.membership
        return sizes.sum(axis=1) + self.sparsity_weight * (sizes > 1e-9).sum(axis=1)

    def _moves(self, factuals: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return all states that differ in one feature, with its value on a grid around the factual."""
        space, rows = self.task.space, np.arange(len(states))
        owners, candidates = [], []
        for number, feature in enumerate(space.features):
            columns = list(feature.columns)
            if feature.encodings is not None:
                for encoding in feature.encodings:
                    moved = states.copy()
                    moved[:, columns] = encoding
                    owners.append(rows)
                    candidates.append(moved)
                continue
            column = np.full(len(states), columns[0])
            for sign in (1, -1):
                if sign * self._direction[number] < 0:
                    continue
                for length in [*_LENGTHS, np.inf]:
                    values = factuals[:, columns[0]] + sign * length * space.units[columns[0]]
                    moved = states.copy()
                    moved[:, columns[0]] = space.stop_at_bounds(values, column, np.full(len(states), sign))
                    fits = (moved[:, columns[0]] - factuals[:, columns[0]]) * sign > 1e-9
                    owners.append(rows[fits])
                    candidates.append(moved[fits])
        owner, ends = np.concatenate(owners), np.concatenate(candidates)
        changed = np.abs(ends - states[owner]).max(axis=1) > 1e-9
        return owner[changed], ends[changed]


def _best_gains(rows: np.ndarray, scores: np.ndarray, guide: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return the candidate of each row with the largest gain per cost; without a gain, the smallest loss."""
    gains = scores - guide[rows]
    return best_of_each(rows, -np.where(gains > 0, gains / costs, gains - 1e3), 1)


def _flat(groups: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the groups, one for each row, and all rows."""
    return np.repeat(np.arange(len(groups)), [len(group) for group in groups]), np.concatenate(groups)


def _joined(owners: list[np.ndarray], states: list[np.ndarray], width: int) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.concatenate([np.empty(0, dtype=int), *owners]),
        np.concatenate([np.empty((0, width)), *states]),
    )
