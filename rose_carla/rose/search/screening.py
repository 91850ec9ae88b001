"""Drafts under noise: invalidation rates of a few of many drafts, and ascent on the rate where none is robust."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from rose_carla.noise.plausible import CommonNoise
from rose_carla.rose.search.drafts import Drafts, Task, best_of_each
from rose_carla.rose.search.sweeps import redo_changes, sweep_search

#: Number of the source of drafts that are whole training rows.
WHOLE = 0
#: Noisy versions of many drafts, of a few of them, of moves in the ascent on the rate, and under accumulated noise.
_SCREENING, _FINAL, _CLIMBING, _ACCUMULATED = 48, 400, 200, 160
#: Shares of the rate aimed at for which the cheapest drafts are judged further, and how many of the most robust ones.
_SHARES, _ROBUST = (1.0, 0.7, 0.4), 4
#: The ascent on the rate: starts and moves judged in each round, first some and then all; rounds; the share of the rate
#: aimed at where it ends.
_CLIMB_STAGES: tuple[tuple[int, int | None], ...] = ((6, 16), (3, None))
_CLIMBS, _CLIMB_TO = 20, 0.75
#: Starts from one source of drafts, which resemble each other.
_PER_SOURCE = 4
#: Share of the rate aimed at below which a rate is not just a lucky draw.
_SAFE = 0.85
#: Noisy versions of drafts in the first look under accumulated noise, and the rate below which there is a second.
_FEW, _HOPEFUL = 24, 0.5
#: Whole rows that are judged under accumulated noise: the nearest, and those with the largest margins.
_NEAR_ROWS, _INNER_ROWS = 24, 12
#: Most robust drafts whose changes are redone under accumulated noise, and the rates below which they are, at first and
#: once more.
_REDONE, _REDONE_BELOW = 2, (1.0, 0.5)
#: Rate under one-off noise below which they are preferred.
_ROBUST_RATE = 0.1
#: Floats of noisy versions held at once.
_MAX_FLOATS = 8_000_000
#: Seed of the noise of the screening, the same for all drafts.
_SEED = 31


@dataclass(eq=False)
class Screening:
    """Judgement of drafts under noise."""

    #: Goal of the plans.
    task: Task
    #: Invalidation rate that should pass the check.
    aim: float
    #: From factuals and states (b, d) to states that differ in one feature: their owners and (n, d) states.
    moves: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    #: From factuals and states to the costs of the changes.
    cost: Callable[[np.ndarray, np.ndarray], np.ndarray]
    #: Parts that are switched off: "rows" of the training data, "sweeps" and "redo" under accumulated noise.
    without: frozenset[str] = frozenset()

    def judge(
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
        costs = self.cost(factuals[owners], ends)
        # the best of many rates from the same few samples are lucky: judge some of them with more and other noise
        screened = self._screen(ends, _SCREENING, 0)
        is_whole = sources == WHOLE
        whole, people = ends[is_whole], owners[is_whole]
        # rows that stand one-off noise first, the nearest of them
        preference = costs[is_whole] + 1e6 * (screened[is_whole] > _ROBUST_RATE)
        kept = np.union1d(
            _finalists(owners, costs, screened, self.aim),
            best_of_each(owners * (sources.max() + 1) + sources, screened, _PER_SOURCE),
        )
        owners, ends, sources = owners[kept], ends[kept], sources[kept]
        rates = self._screen(ends, _FINAL, 1)
        for n_starts, n_moves in _CLIMB_STAGES:
            starts = best_of_each(owners * (sources.max() + 1) + sources, rates, _PER_SOURCE)
            starts = starts[best_of_each(owners[starts], rates[starts], n_starts)]
            starts = starts[~np.isin(owners[starts], owners[rates < _SAFE * self.aim]) & (rates[starts] < 1)]
            if len(starts):
                higher = self._climb(factuals[owners[starts]], ends[starts], n_moves)
                owners, ends = np.concatenate([owners, owners[starts]]), np.concatenate([ends, higher])
                sources = np.concatenate([sources, sources[starts]])
                rates = np.concatenate([rates, self._screen(higher, _FINAL, 1)])
        drafts = Drafts.largest_first(self.task.space, factuals[owners], ends)
        if self.task.one_off is None or self.task.one_off is self.task.robustness:
            return drafts, owners, rates
        kept = _finalists(owners, self.cost(factuals[owners], ends), rates, self.aim)
        hopeful = np.isin(people, owners[kept[rates[kept] < _HOPEFUL]])
        whole_rows = Drafts.largest_first(self.task.space, factuals[people], whole)[np.flatnonzero(hopeful)]
        return self._judge_crowds(drafts[kept], owners[kept], whole_rows, people[hopeful], preference[hopeful], rngs)

    def _judge_crowds(
        self,
        drafts: Drafts,
        owners: np.ndarray,
        whole_rows: Drafts,
        people: np.ndarray,
        preference: np.ndarray,
        rngs: Sequence[np.random.Generator],
    ) -> tuple[Drafts, np.ndarray, np.ndarray]:
        """Return the best drafts under accumulated noise: these, then of each kind until one should pass.

        After sweeps from these drafts come whole training rows of ``people``, those with the smallest ``preference``
        and those with the largest margins, then the most robust drafts with their changes redone.
        """
        nothing = Drafts.empty(self.task.space, drafts.factuals[:0])
        drafts, owners, rates = self._judged(nothing, owners[:0], np.empty(0), drafts, owners, rngs)
        if "sweeps" not in self.without:
            drafts, owners, rates = self._append(drafts, owners, rates, rngs)
        left = np.flatnonzero(~np.isin(people, owners[rates < _SAFE * self.aim]))
        if len(left) and "rows" not in self.without:
            inner = -self.task.smoothed_margins(whole_rows.ends[left])
            nearest = best_of_each(people[left], preference[left], _NEAR_ROWS)
            left = left[np.union1d(nearest, best_of_each(people[left], inner, _INNER_ROWS))]
            drafts, owners, rates = self._judged(drafts, owners, rates, whole_rows[left], people[left], rngs)
        for highest in _REDONE_BELOW if "redo" not in self.without else ():
            starts = best_of_each(owners, rates, _REDONE)
            starts = starts[~np.isin(owners[starts], owners[rates < _SAFE * self.aim]) & (rates[starts] < highest)]
            if len(starts):
                more = redo_changes(self.task, drafts[starts], owners[starts], self.aim, rngs)
                drafts, owners, rates = self._judged(drafts, owners, rates, more, owners[starts], rngs)
        return drafts, owners, rates

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
            row, candidates = self.moves(factuals[alive], states[alive])
            scores = self.task.guide(candidates) if self.task.has_plateaus else self.task.smoothed_margins(candidates)
            kept = best_of_each(row, -scores, n_moves) if n_moves is not None else np.arange(len(row))
            kept = kept[self.task.margins(candidates[kept]) > 0] if len(kept) else kept
            row, candidates = alive[row[kept]], candidates[kept]
            seen = self._screen(candidates, _CLIMBING, 2 + turn)
            best = best_of_each(row, seen, 1)
            best = best[seen[best] < rates[row[best]] - 1e-9]
            states[row[best]] = candidates[best]
            alive = row[best][seen[best] > _CLIMB_TO * self.aim]
        return states

    def _append(
        self, drafts: Drafts, owners: np.ndarray, rates: np.ndarray, rngs: Sequence[np.random.Generator]
    ) -> tuple[Drafts, np.ndarray, np.ndarray]:
        """Return the drafts and, for people without one that should pass, others by sweeps under accumulated noise.

        The sweeps start from nothing, which gives the shortest plans, and from the most robust draft.
        """
        starts = best_of_each(owners, rates, 1)
        starts = starts[rates[starts] >= _SAFE * self.aim]
        if len(starts) == 0:
            return drafts, owners, rates
        start = Drafts.concat([Drafts.empty(self.task.space, drafts.factuals[starts]), drafts[starts]])
        more, people = sweep_search(self.task, start, np.tile(owners[starts], 2), self.aim, self.cost, rngs)
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
        """Return the drafts with the best of ``more`` of ``people`` that end accepted, and their accumulated rates."""
        accepted = np.flatnonzero(self.task.margins(more.ends) > 0)
        more, people = more[accepted], people[accepted]
        if len(people) == 0:
            return drafts, owners, rates
        few = self.task.evaluate(more, _FEW, [rngs[owner] for owner in people.tolist()]).rate
        kept = best_of_each(people, few, _ROBUST)
        kept = np.union1d(kept[few[kept] < _HOPEFUL], best_of_each(people, few, 1))
        more, people = more[kept], people[kept]
        seen = self.task.evaluate(more, _ACCUMULATED, [rngs[owner] for owner in people.tolist()]).rate
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
    cheap = [best_of_each(owners, costs + 1e6 * (rates > share * aim), 1) for share in _SHARES]
    robust = best_of_each(owners, rates + 1e-9 * costs, _ROBUST)
    return np.unique(np.concatenate([*cheap, robust]))
