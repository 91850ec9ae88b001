"""Cheaper drafts of the same margin: take something off one feature, put less onto another.

Only the classifier is asked, never the noise, so hundreds of drafts to a person can be looked at. The policy says onto
which features something is put.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from rose_carla.mdp import onto_edge
from rose_carla.ppo import ActorCritic
from rose_carla.rose.search.drafts import Drafts
from rose_carla.rose.search.task import Task

#: Taken off a feature, in units; 0 takes the feature out.
_REDUCTIONS = (0, 1, 2, 3, 4, 8, 16)
#: Features that something is taken off: the largest changes.
_FEATURES = 3


@dataclass(frozen=True)
class _Neighbours:
    """Neighbours of drafts.

    Whose they are, the base and the line they were made of (-1: nothing put on), how many units were put on, where they
    end and their scores. ``turns`` and whether a feature was taken out are those of the bases.
    """

    owners: np.ndarray
    bases: np.ndarray
    lines: np.ndarray
    units: np.ndarray
    ends: np.ndarray
    scores: np.ndarray
    turns: np.ndarray
    taken_out: np.ndarray

    def some(self, rows: np.ndarray) -> _Neighbours:
        """Those neighbours."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _OF_NEIGHBOURS})

    def with_others(self, others: _Neighbours) -> _Neighbours:
        """These and others of the same bases."""
        joined = {name: np.concatenate([getattr(self, name), getattr(others, name)]) for name in _OF_NEIGHBOURS}
        return replace(self, **joined)


_OF_NEIGHBOURS = ("owners", "bases", "lines", "units", "ends", "scores")


class Exchange:
    """Search among the neighbours of drafts.

    Parameters
    ----------
    task, policy
        What has to be achieved, and who knows how.
    sparsity_weight
        Units of action that one feature less is worth.
    n_lines
        Features and directions, or categories, onto which something is put: the most preferred.
    max_units
        Longest move looked at for a draft that does not reach its margin yet.
    rounds
        Exchanges to a draft.
    """

    def __init__(
        self,
        task: Task,
        policy: ActorCritic,
        sparsity_weight: float,
        n_lines: int = 4,
        max_units: int = 16,
        rounds: int = 4,
    ) -> None:
        self.task = task
        self.policy = policy
        self.sparsity_weight = sparsity_weight
        self.max_units = max_units
        self.rounds = rounds
        space = task.space
        # a line: the moves of one feature in one direction, or one category to be set
        names = np.where(space.moves != 0, np.sign(space.moves), np.arange(space.n) + 2)
        _, first, line_of = np.unique(
            np.stack([space.feature_numbers, names]), axis=1, return_index=True, return_inverse=True
        )
        self._by_line = np.argsort(line_of.ravel(), kind="stable")
        self._line_starts = np.searchsorted(line_of.ravel()[self._by_line], np.arange(len(first)))
        self._feature = space.feature_numbers[first]
        self._sign = np.sign(space.moves[first])
        self._action = first
        self._column = np.array([space.features[f].columns[0] for f in self._feature])
        self.n_lines = min(n_lines, len(first))

    def scores(self, drafts: Drafts) -> np.ndarray:
        """(b,) what is made small: units of action, and so many for every feature."""
        return self._score(drafts.sizes())

    def _score(self, sizes: np.ndarray) -> np.ndarray:
        return sizes.sum(axis=1) + self.sparsity_weight * (sizes > 0).sum(axis=1)

    def improve(self, drafts: Drafts, margins: np.ndarray, needed: np.ndarray, faithful: bool) -> Drafts:
        """The best drafts found whose margin is at least ``needed``; where none is, the draft as it was.

        Parameters
        ----------
        margins
            (b,) of the drafts: where it is below ``needed``, any draft that reaches it is better.
        faithful
            Change no feature that the draft does not change.
        """
        drafts = drafts[np.arange(len(drafts))]
        scores = np.where(margins >= needed, self.scores(drafts), np.inf)
        rows = np.arange(len(drafts))
        for _ in range(self.rounds):
            better, found, found_scores = self._round(drafts[rows], scores[rows], needed[rows], faithful)
            rows = rows[found]
            if len(rows) == 0:
                break
            drafts[rows], scores[rows] = better, found_scores
        return drafts

    def rivals(self, drafts: Drafts, n: int) -> tuple[Drafts, np.ndarray]:
        """Cheaper neighbours that put something onto another feature than the largest: those of the largest margin.

        How far a margin keeps noise away depends on the features, so a rival of a smaller margin may be as robust.

        Parameters
        ----------
        n
            Rivals to a draft at most, of those that take a feature out and of the others.

        Returns
        -------
        rivals, owners
            All rivals, and the numbers of the drafts they rival.
        """
        scores = self.scores(drafts)
        around = self._around(drafts, scores, faithful=False)
        largest = drafts.sizes().argmax(axis=1)
        fits = (around.lines >= 0) & (self._feature[around.lines] != largest[around.owners])
        rows = np.flatnonzero(fits & (around.scores < scores[around.owners] - 1e-6))
        margins = self.task.margins(around.ends[rows]) if len(rows) else np.empty(0)
        rows, margins = rows[margins > 0], margins[margins > 0]
        # of each line the best, with and without the feature that something was taken off; then the best lines
        kinds = 2 * around.owners[rows] + around.taken_out[around.bases[rows]]
        order = np.lexsort((-margins, around.lines[rows], kinds))
        rows, margins, kinds = rows[order], margins[order], kinds[order]
        same = np.stack([kinds, around.lines[rows]])
        first = np.flatnonzero(np.r_[True, (np.diff(same, axis=1) != 0).any(axis=0)][: len(rows)])
        order = first[np.lexsort((-margins[first], kinds[first]))]
        rows, kinds = rows[order], kinds[order]
        rank = np.arange(len(rows)) - np.searchsorted(kinds, kinds, side="left")
        rows = rows[rank < n]
        return self._chosen(drafts, around, rows), around.owners[rows]

    def _round(
        self, drafts: Drafts, scores: np.ndarray, needed: np.ndarray, faithful: bool
    ) -> tuple[Drafts, np.ndarray, np.ndarray]:
        """Best neighbour of each draft that is better than it: neighbours, rows that have one, their scores."""
        around = self._around(drafts, scores, faithful)
        # a line whose far end is not enough needs no closer look
        enough = self._enough(around, needed)
        around = self._nearer(around.some(np.flatnonzero(enough)))
        better = around.scores < scores[around.owners] - 1e-6
        around = around.some(np.flatnonzero(better))
        around = around.some(np.flatnonzero(self._enough(around, needed)))
        order = np.lexsort((around.scores, around.owners))
        found, first = np.unique(around.owners[order], return_index=True)
        chosen = order[first]
        return self._chosen(drafts, around, chosen), found, around.scores[chosen]

    def _enough(self, around: _Neighbours, needed: np.ndarray) -> np.ndarray:
        if len(around.owners) == 0:
            return np.empty(0, dtype=bool)
        return self.task.margins(around.ends) >= needed[around.owners]

    def _nearer(self, around: _Neighbours) -> _Neighbours:
        """Neighbours that put up to ``units`` onto a line, and all that put fewer onto it."""
        fewer = np.maximum(around.units - 1, 0)
        place = np.repeat(np.arange(len(fewer)), fewer)
        less = np.arange(len(place)) - np.repeat(np.cumsum(fewer) - fewer, fewer) + 1
        nearer = around.some(place)
        rows, column = np.arange(len(place)), self._column[nearer.lines]
        nearer.ends[rows, column] -= self._sign[nearer.lines] * less * self.task.space.action_unit
        nearer = replace(nearer, scores=nearer.scores - less, units=nearer.units - less)
        return around.with_others(nearer)

    def _chosen(self, drafts: Drafts, around: _Neighbours, chosen: np.ndarray) -> Drafts:
        """Some neighbours as drafts: what was put on comes last."""
        turns = around.turns[around.bases[chosen]]
        lines = around.lines[chosen]
        put = np.flatnonzero(lines >= 0)
        last = np.where(np.isfinite(turns[put]), turns[put], -1).max(axis=1, initial=-1)
        turns[put, self._feature[lines[put]]] = last + 1
        return Drafts(drafts.space, drafts.factuals[around.owners[chosen]], around.ends[chosen], turns)

    def _around(self, drafts: Drafts, scores: np.ndarray, faithful: bool) -> _Neighbours:
        """Neighbours of drafts: something taken off, and that with as much put onto a line as may be worth it."""
        space = self.task.space
        bases, owners, taken_out = self._bases(drafts, np.isfinite(scores))
        sizes = bases.sizes()
        base_scores = self._score(sizes)
        base, line, units = self._lines(drafts, bases, owners, scores[owners] - base_scores, faithful)
        base, line, units = base[units > 0], line[units > 0], units[units > 0]
        ends = bases.ends[base]
        rows = np.arange(len(ends))
        moved = ends[rows, self._column[line]] + self._sign[line] * units * space.action_unit
        ends[rows, self._column[line]] = onto_edge(moved)
        fresh = self.sparsity_weight * (sizes[base, self._feature[line]] == 0)
        put_scores = base_scores[base] + units + fresh
        sets = np.flatnonzero(self._sign[line] == 0)
        if len(sets):
            ends[sets] = space.apply(bases.ends[base[sets]], self._action[line[sets]])
            put_scores[sets] = self.scores(Drafts(space, bases.factuals[base[sets]], ends[sets], ends[sets]))
        nothing = np.zeros(len(bases), dtype=int)
        return _Neighbours(
            np.concatenate([owners, owners[base]]),
            np.concatenate([np.arange(len(bases)), base]),
            np.concatenate([nothing - 1, line]),
            np.concatenate([nothing, units]),
            np.concatenate([bases.ends, ends]),
            np.concatenate([base_scores, put_scores]),
            bases.turns,
            taken_out,
        )

    def _bases(self, drafts: Drafts, reached: np.ndarray) -> tuple[Drafts, np.ndarray, np.ndarray]:
        """Drafts with something taken off, whose they are, and whether it was all of a feature."""
        space, sizes = drafts.space, drafts.sizes()
        largest = np.argsort(-sizes, axis=1, kind="stable")[:, :_FEATURES]
        numeric = np.array([feature.encodings is None for feature in space.features])
        ends, turns = [drafts.ends[~reached]], [drafts.turns[~reached]]
        owners, out = [np.flatnonzero(~reached)], [np.zeros((~reached).sum(), dtype=bool)]
        for features in largest.T:
            size = sizes[np.arange(len(drafts)), features]
            for units in _REDUCTIONS:
                rows = np.flatnonzero(numeric[features] & (size > units + 1e-6) if units else size > 0)
                if len(rows) == 0:
                    continue
                change = drafts.ends[rows] - drafts.factuals[rows]
                kept = 1.0 - units / size[rows, None] if units else 0.0
                columns = space.membership[:, features[rows]].T > 0
                base_turns = drafts.turns[rows]
                if not units:
                    base_turns[np.arange(len(rows)), features[rows]] = np.inf
                ends.append(drafts.factuals[rows] + np.where(columns, change * kept, change))
                turns.append(base_turns)
                owners.append(rows)
                out.append(np.full(len(rows), not units))
        owner = np.concatenate(owners)
        bases = Drafts(space, drafts.factuals[owner], np.concatenate(ends), np.concatenate(turns))
        return bases, owner, np.concatenate(out)

    def _lines(
        self, drafts: Drafts, bases: Drafts, owners: np.ndarray, spare: np.ndarray, faithful: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Onto which lines something is put: numbers of bases and lines, and how many units at most."""
        space = bases.space
        preferences = self.policy.predict_log_probabilities(drafts.factuals, space.mask(drafts.factuals))
        of_lines = np.maximum.reduceat(preferences[:, self._by_line], self._line_starts, axis=1)
        going = (drafts.ends - drafts.factuals)[:, self._column] * self._sign > 1e-9
        of_lines[going] = np.inf  # what the draft does already comes first
        top = np.argpartition(-of_lines, self.n_lines - 1, axis=1)[:, : self.n_lines]
        base, line = np.repeat(np.arange(len(bases)), self.n_lines), top[owners].ravel()
        if faithful:
            kept = going[owners[base], line]
            base, line = base[kept], line[kept]
        # no further than to the edge, nor than would be worth it, nor back to where the person is
        column, sign = self._column[line], self._sign[line]
        value = bases.ends[base, column]
        room = np.where(sign > 0, 1.0 - value, value) / space.action_unit + 1e-9
        units = np.minimum(room, np.where(np.isfinite(spare), spare, self.max_units)[base]).clip(0).astype(int)
        units[(value - bases.factuals[base, column]) * sign < -1e-9] = 0
        units[sign == 0] = 1
        return base, line, units
