"""Drafts without the policy: towards accepted training rows, and by coordinate ascent within a person's box.

They serve people for whom the walk and the beam search find nothing. Predictions are cheap and noise is not, so both
build drafts one feature at a time by smoothed margins, and estimate the invalidation rate of a few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from rose_carla.noise.plausible import CommonNoise
from rose_carla.rose.search.drafts import Drafts, Task
from rose_carla.rose.search.sweeps import sweep_search

#: Accepted training rows compared with a person, those judged under noise, and those that drafts lead towards.
_ROWS, _SAMPLE, _TARGETS = 1000, 256, 8
#: Maximum number of features that a draft changes.
_MAX_FEATURES = 10
#: Lengths of moves in the ascent, in units; the bound is tried as well.
_LENGTHS = np.array([1, 2, 4, 8, 12, 16, 24, 32])
#: Noisy versions of many drafts, of a few of them, of moves in the ascent on the rate, and under accumulated noise.
_SCREENING, _FINAL, _CLIMBING, _ACCUMULATED = 48, 400, 200, 160
#: Shares of the rate aimed at for which the cheapest drafts are judged further, and how many of the most robust ones.
_SHARES, _ROBUST = (1.0, 0.7, 0.4), 4
#: Starts of the ascent on the margin besides the person.
_STARTS = 4
#: The ascent on the rate: starts and moves judged in each round, first some and then all; rounds; the share of the rate
#: aimed at where it ends.
_CLIMB_STAGES: tuple[tuple[int, int | None], ...] = ((6, 16), (3, None))
#: Starts from one source of drafts, which resemble each other.
_PER_SOURCE = 2
_CLIMBS, _CLIMB_TO = 20, 0.75
#: Share of the rate aimed at below which a rate is not just a lucky draw; shares at which the cheapest drafts are
#: returned, and the most robust ones.
_SAFE, _CHOICES = 0.85, (1.0, 0.6, 0.0)
#: Noisy versions of drafts in the first look under accumulated noise, and the rate below which there is a second.
_FEW, _HOPEFUL = 24, 0.5
#: Number of the source of drafts that are whole rows, and how many of them are judged under accumulated noise.
_WHOLE, _WHOLE_ROWS = 0, 24
#: Rate under one-off noise below which they are preferred.
_ROBUST_RATE = 0.1
#: Corners of a person's box that are tried.
_CORNERS = 512
#: People searched for at a time, which bounds memory.
_PEOPLE = 32
#: Floats of noisy versions held at once.
_MAX_FLOATS = 8_000_000
#: Seed of the noise of the screening, the same for all drafts.
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
    #: Parts that are switched off: "rows" of the training data, "ascent", "sweeps" under accumulated noise.
    without: frozenset[str] = frozenset()
    _accepted: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        accepted = self.rows[self.task.margins(self.rows) > 0] if len(self.rows) else self.rows
        rng = np.random.default_rng(len(accepted))
        self._accepted = accepted[np.sort(rng.permutation(len(accepted))[:_ROWS])]
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
            candidates, people, seen = self._judge(factuals, owners, ends, sources, rngs)
            costs = self._cost(candidates.factuals, candidates.ends)
            for share, (drafts, rates) in zip(_CHOICES, best, strict=True):
                first = _first(people, np.where(seen < share * self.aim, costs, 1e6 * (1 + seen)))
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

    def _climb(self, factuals: np.ndarray, states: np.ndarray, n_moves: int | None) -> np.ndarray:
        """Return accepted states with lower one-off rates, by coordinate ascent on the rate itself.

        Of the moves of a state the ``n_moves`` with the largest margins are judged, or all of them.
        """
        states = states.copy()
        alive = np.arange(len(states))
        for turn in range(_CLIMBS):
            if len(alive) == 0:
                break
            rates = self._screen(states, _CLIMBING, 2 + turn)
            row, candidates = self._moves(factuals[alive], states[alive])
            scores = self.task.guide(candidates) if self.task.has_plateaus else self.task.smoothed_margins(candidates)
            kept = _best(row, -scores, n_moves) if n_moves is not None else np.arange(len(row))
            kept = kept[self.task.margins(candidates[kept]) > 0] if len(kept) else kept
            row, candidates = alive[row[kept]], candidates[kept]
            seen = self._screen(candidates, _CLIMBING, 2 + turn)
            best = _first(row, seen)
            best = best[seen[best] < rates[row[best]] - 1e-9]
            states[row[best]] = candidates[best]
            alive = row[best][seen[best] > _CLIMB_TO * self.aim]
        return states

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

    def _judge(
        self,
        factuals: np.ndarray,
        owners: np.ndarray,
        ends: np.ndarray,
        sources: np.ndarray,
        rngs: Sequence[np.random.Generator],
    ) -> tuple[Drafts, np.ndarray, np.ndarray]:
        """Return the best drafts of each owner, and others on the way to them, with their invalidation rates."""
        if len(owners) == 0:
            return Drafts.empty(self.task.space, factuals[:0]), owners, np.empty(0)
        costs = self._cost(factuals[owners], ends)
        # the best of many rates from the same few samples are lucky: judge some of them with more and other noise
        screened = self._screen(ends, _SCREENING, 0)
        is_whole = sources == _WHOLE
        whole, people = ends[is_whole], owners[is_whole]
        # rows that stand one-off noise first, the nearest of them
        preference = costs[is_whole] + 1e6 * (screened[is_whole] > _ROBUST_RATE)
        kept = np.union1d(
            _finalists(owners, costs, screened, self.aim),
            _best(owners * (sources.max() + 1) + sources, screened, _PER_SOURCE),
        )
        owners, ends, sources = owners[kept], ends[kept], sources[kept]
        rates = self._screen(ends, _FINAL, 1)
        for n_starts, n_moves in _CLIMB_STAGES:
            starts = _best(owners * (sources.max() + 1) + sources, rates, _PER_SOURCE)
            starts = starts[_best(owners[starts], rates[starts], n_starts)]
            starts = starts[~np.isin(owners[starts], owners[rates < _SAFE * self.aim]) & (rates[starts] < 1)]
            if len(starts):
                higher = self._climb(factuals[owners[starts]], ends[starts], n_moves)
                owners, ends = np.concatenate([owners, owners[starts]]), np.concatenate([ends, higher])
                sources = np.concatenate([sources, sources[starts]])
                rates = np.concatenate([rates, self._screen(higher, _FINAL, 1)])
        costs = self._cost(factuals[owners], ends)
        drafts = Drafts.largest_first(self.task.space, factuals[owners], ends)
        if self.task.one_off is not None and self.task.one_off is not self.task.robustness:
            kept = _finalists(owners, costs, rates, self.aim)
            far = np.unique(owners[kept])[
                np.bincount(owners[kept], rates[kept] < _HOPEFUL)[np.unique(owners[kept])] == 0
            ]
            drafts, owners, rates = self._judged(
                drafts[kept[:0]], owners[:0], rates[:0], drafts[kept], owners[kept], rngs
            )
            if "sweeps" not in self.without:
                drafts, owners, rates = self._append(drafts, owners, rates, rngs)
            if "rows" not in self.without:
                left = np.flatnonzero(~np.isin(people, [*owners[rates < _SAFE * self.aim], *far]))
                near = left[_best(people[left], preference[left], _WHOLE_ROWS)]
                more = Drafts.largest_first(self.task.space, factuals[people[near]], whole[near])
                drafts, owners, rates = self._judged(drafts, owners, rates, more, people[near], rngs)
        return drafts, owners, rates

    def _append(
        self, drafts: Drafts, owners: np.ndarray, rates: np.ndarray, rngs: Sequence[np.random.Generator]
    ) -> tuple[Drafts, np.ndarray, np.ndarray]:
        """Return the drafts and, for people without one that should pass, others by sweeps under accumulated noise.

        The sweeps start from nothing, which gives the shortest plans, and from the most robust draft.
        """
        starts = _first(owners, rates)
        starts = starts[rates[starts] >= _SAFE * self.aim]
        if len(starts) == 0:
            return drafts, owners, rates
        start = Drafts.concat([Drafts.empty(self.task.space, drafts.factuals[starts]), drafts[starts]])
        more, people = sweep_search(self.task, start, np.tile(owners[starts], 2), self.aim, self._cost, rngs)
        return self._judged(drafts, owners, rates, more, people, rngs)

    def _judged(
        self,
        drafts: Drafts,
        owners: np.ndarray,
        rates: np.ndarray,
        more: Drafts,
        people: np.ndarray,
        rngs: Sequence[np.random.Generator],
    ) -> tuple[Drafts, np.ndarray, np.ndarray]:
        """Return the drafts with ``more`` of ``people`` and their rates under accumulated noise."""
        if len(people) == 0:
            return drafts, owners, rates
        if len(people) > _ROBUST:
            chosen = [rngs[owner] for owner in people.tolist()]
            few = self.task.evaluate(more, _FEW, chosen).rate
            kept = _best(people, few, _ROBUST)
            kept = np.union1d(kept[few[kept] < _HOPEFUL], _best(people, few, 1))
            more, people = more[kept], people[kept]
        seen = self.task.evaluate(more, _ACCUMULATED, [rngs[owner] for owner in people.tolist()]).rate
        seen[self.task.margins(more.ends) <= 0] = 1.0
        return Drafts.concat([drafts, more]), np.concatenate([owners, people]), np.concatenate([rates, seen])

    def _screen(self, states: np.ndarray, n: int, stream: int) -> np.ndarray:
        """Return one-off invalidation rates from ``n`` noisy versions, the same noise for all states."""
        one_off = self.task.one_off
        if len(states) == 0 or one_off is None:
            return np.zeros(len(states))
        rates = np.empty(len(states))
        step = max(1, _MAX_FLOATS // states.shape[1] // n)
        for start in range(0, len(states), step):
            part = slice(start, start + step)
            noisy = one_off.noise.sample(states[part], one_off.variance, n, CommonNoise(_SEED + stream))
            accepted = np.asarray(one_off.favourable(noisy.reshape(-1, states.shape[1])), dtype=float)
            rates[part] = 1.0 - accepted.reshape(-1, n).mean(axis=1)
        return rates


def _finalists(owners: np.ndarray, costs: np.ndarray, rates: np.ndarray, aim: float) -> np.ndarray:
    """Return the cheapest entries of each owner at a few rates that should pass, and the most robust ones."""
    cheap = [_first(owners, costs + 1e6 * (rates > share * aim)) for share in _SHARES]
    robust = [_first(owners, rates + 1e-9 * costs, rank) for rank in range(_ROBUST)]
    return np.unique(np.concatenate(cheap + robust))


def _best_gains(rows: np.ndarray, scores: np.ndarray, guide: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return the candidate of each row with the largest gain per cost; without a gain, the smallest loss."""
    gains = scores - guide[rows]
    return _first(rows, -np.where(gains > 0, gains / costs, gains - 1e3))


def _best(owners: np.ndarray, keys: np.ndarray, n: int) -> np.ndarray:
    """Return the ``n`` entries of each owner with the smallest keys."""
    order = np.lexsort((keys, owners))
    place = np.arange(len(order)) - np.searchsorted(owners[order], owners[order], side="left")
    return order[place < n]


def _first(owners: np.ndarray, keys: np.ndarray, rank: int = 0) -> np.ndarray:
    """Return the entry of each owner with the smallest key, or that of another rank."""
    order = np.lexsort((keys, owners))
    place = np.arange(len(order)) - np.searchsorted(owners[order], owners[order], side="left")
    return order[place == rank]


def _flat(groups: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the groups, one for each row, and all rows."""
    return np.repeat(np.arange(len(groups)), [len(group) for group in groups]), np.concatenate(groups)


def _joined(owners: list[np.ndarray], states: list[np.ndarray], width: int) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.concatenate([np.empty(0, dtype=int), *owners]),
        np.concatenate([np.empty((0, width)), *states]),
    )
