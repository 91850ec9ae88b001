"""Exchange moves: reduce the change of one feature and increase that of another, for a cheaper draft.

Candidates are compared by the classifier's margin, without noise, so hundreds of drafts per person are affordable. The
policy chooses the features that rivals of a draft increase.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from rose_carla.ppo import ActorCritic
from rose_carla.rose.search.drafts import Drafts, Task

#: Reductions of a change, in units; 0 undoes it.
_REDUCTIONS = (0, 1, 2, 3, 4, 8, 16)
#: Number of features, those with the largest changes, that are reduced.
_FEATURES = 3


@dataclass(frozen=True)
class _Neighbours:
    """Neighbours of drafts: reduced drafts (bases), and bases that moved ``units`` along a line, from the value
    ``origins``.

    ``owners`` are the numbers of the drafts; ``lines`` is -1 for bases themselves; ``turns`` and ``removed``, whether a
    feature is no longer changed, are those of the bases.
    """

    owners: np.ndarray
    bases: np.ndarray
    lines: np.ndarray
    units: np.ndarray
    origins: np.ndarray
    ends: np.ndarray
    scores: np.ndarray
    turns: np.ndarray
    removed: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> _Neighbours:
        return replace(self, **{name: getattr(self, name)[rows] for name in _ROWS})

    def concat(self, others: _Neighbours) -> _Neighbours:
        """Return these neighbours and others of the same bases."""
        return replace(self, **{name: np.concatenate([getattr(self, name), getattr(others, name)]) for name in _ROWS})


#: Fields of neighbours with one row each.
_ROWS = ("owners", "bases", "lines", "units", "origins", "ends", "scores")


@dataclass(eq=False)
class Exchange:
    """Local search among the neighbours of drafts.

    A *line* is the moves of one feature in one direction, or one category to set.
    """

    #: Goal and policy.
    task: Task
    policy: ActorCritic
    #: Cost of changing one more feature, in units of action.
    sparsity_weight: float
    #: Number of lines to try, the most probable ones of the policy.
    n_lines: int = 4
    #: Longest move tried for a draft that does not reach its margin yet.
    max_units: int = 16
    #: Maximum number of exchanges per draft.
    rounds: int = 4

    def __post_init__(self) -> None:
        space = self.task.space
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
        self.n_lines = min(self.n_lines, len(first))

    def scores(self, drafts: Drafts) -> np.ndarray:
        """Return the objective (b,): units of action plus ``sparsity_weight`` for each changed feature."""
        return self._score(drafts.sizes())

    def _score(self, sizes: np.ndarray) -> np.ndarray:
        return sizes.sum(axis=1) + self.sparsity_weight * (sizes > 0).sum(axis=1)

    def improve(self, drafts: Drafts, margins: np.ndarray, needed: np.ndarray) -> Drafts:
        """Return the best drafts found with margins of at least ``needed``, or the given ones where none was found.

        Parameters
        ----------
        drafts
            Drafts to improve.
        margins
            (b,) margins of the drafts: where below ``needed``, any draft that reaches it is better.
        needed
            (b,) required margins.
        """
        drafts = drafts.copy()
        scores = np.where(margins >= needed, self.scores(drafts), np.inf)
        rows = np.arange(len(drafts))
        for _ in range(self.rounds):
            better, found, found_scores = self._round(drafts[rows], scores[rows], needed[rows])
            rows = rows[found]
            if len(rows) == 0:
                break
            drafts[rows], scores[rows] = better, found_scores
        return drafts

    def rivals(self, drafts: Drafts, n: int) -> tuple[Drafts, np.ndarray]:
        """Return cheaper neighbours that increase a feature other than the largest change, by largest margin.

        The robustness of a margin depends on the features, so a rival with a smaller margin may be as robust.

        Parameters
        ----------
        drafts
            Drafts to compete with.
        n
            Maximum number of rivals per draft, each of those that remove a feature and of the others.

        Returns
        -------
        rivals, owners
            All rivals, and the numbers of the drafts they compete with.
        """
        scores = self.scores(drafts)
        around = self._neighbours(drafts, scores, same_features=False)
        largest = drafts.sizes().argmax(axis=1)
        fits = (around.lines >= 0) & (self._feature[around.lines] != largest[around.owners])
        rows = np.flatnonzero(fits & (around.scores < scores[around.owners] - 1e-6))
        margins = self.task.guide(around.ends[rows]) if len(rows) else np.empty(0)
        rows, margins = rows[margins > 0], margins[margins > 0]
        # the best neighbour of each line, with and without removal of a feature; then the best lines
        kinds = 2 * around.owners[rows] + around.removed[around.bases[rows]]
        order = np.lexsort((-margins, around.lines[rows], kinds))
        rows, margins, kinds = rows[order], margins[order], kinds[order]
        same = np.stack([kinds, around.lines[rows]])
        first = np.flatnonzero(np.r_[True, (np.diff(same, axis=1) != 0).any(axis=0)][: len(rows)])
        order = first[np.lexsort((-margins[first], kinds[first]))]
        rows, kinds = rows[order], kinds[order]
        rank = np.arange(len(rows)) - np.searchsorted(kinds, kinds, side="left")
        rows = rows[rank < n]
        return self._as_drafts(drafts, around, rows), around.owners[rows]

    def _round(self, drafts: Drafts, scores: np.ndarray, needed: np.ndarray) -> tuple[Drafts, np.ndarray, np.ndarray]:
        """Return the best neighbours that improve their draft, the rows of those drafts, and the new scores."""
        around = self._neighbours(drafts, scores, same_features=True)
        # only lines whose far end has the needed margin can have it nearer
        enough = self._has_margin(around, needed)
        around = self._with_nearer(around[np.flatnonzero(enough)])
        better = around.scores < scores[around.owners] - 1e-6
        around = around[np.flatnonzero(better)]
        around = around[np.flatnonzero(self._has_margin(around, needed))]
        order = np.lexsort((around.scores, around.owners))
        found, first = np.unique(around.owners[order], return_index=True)
        chosen = order[first]
        return self._as_drafts(drafts, around, chosen), found, around.scores[chosen]

    def _has_margin(self, around: _Neighbours, needed: np.ndarray) -> np.ndarray:
        if len(around.owners) == 0:
            return np.empty(0, dtype=bool)
        return self.task.guide(around.ends) >= needed[around.owners]

    def _with_nearer(self, around: _Neighbours) -> _Neighbours:
        """Return the neighbours and all those that move fewer units along the same lines."""
        fewer = np.maximum(np.ceil(around.units - 1e-9).astype(int) - 1, 0)
        place = np.repeat(np.arange(len(fewer)), fewer)
        units = np.arange(len(place)) - np.repeat(np.cumsum(fewer) - fewer, fewer) + 1.0
        nearer = around[place]
        column, space = self._column[nearer.lines], self.task.space
        nearer.ends[np.arange(len(place)), column] = (
            nearer.origins + self._sign[nearer.lines] * units * space.units[column]
        )
        nearer = replace(nearer, scores=nearer.scores - (nearer.units - units), units=units)
        return around.concat(nearer)

    def _as_drafts(self, drafts: Drafts, around: _Neighbours, chosen: np.ndarray) -> Drafts:
        """Return the chosen neighbours as drafts whose moves along lines come last."""
        turns = around.turns[around.bases[chosen]]
        lines = around.lines[chosen]
        moved = np.flatnonzero(lines >= 0)
        last = np.where(np.isfinite(turns[moved]), turns[moved], -1).max(axis=1, initial=-1)
        turns[moved, self._feature[lines[moved]]] = last + 1
        return Drafts(drafts.space, drafts.factuals[around.owners[chosen]], around.ends[chosen], turns)

    def _neighbours(self, drafts: Drafts, scores: np.ndarray, same_features: bool) -> _Neighbours:
        """Return reduced drafts, and these moved along each line as far as the score can still improve."""
        space = self.task.space
        bases, owners, removed = self._reduce(drafts, np.isfinite(scores))
        sizes = bases.sizes()
        base_scores = self._score(sizes)
        base, line, units = self._lines(drafts, bases, owners, scores[owners] - base_scores, same_features)
        base, line, units = base[units > 0], line[units > 0], units[units > 0]
        ends = bases.ends[base]
        rows = np.arange(len(ends))
        column, sign = self._column[line], self._sign[line]
        origins = ends[rows, column]
        ends[rows, column] = space.stop_at_bounds(origins + sign * units * space.units[column], column, sign)
        fresh = self.sparsity_weight * (sizes[base, self._feature[line]] == 0)
        moved_scores = base_scores[base] + units + fresh
        sets = np.flatnonzero(self._sign[line] == 0)
        if len(sets):
            ends[sets] = space.apply(bases.ends[base[sets]], self._action[line[sets]])
            moved_scores[sets] = self.scores(Drafts(space, bases.factuals[base[sets]], ends[sets], ends[sets]))
        zeros = np.zeros(len(bases), dtype=int)
        return _Neighbours(
            np.concatenate([owners, owners[base]]),
            np.concatenate([np.arange(len(bases)), base]),
            np.concatenate([zeros - 1, line]),
            np.concatenate([zeros, units]),
            np.concatenate([zeros, origins]),
            np.concatenate([bases.ends, ends]),
            np.concatenate([base_scores, moved_scores]),
            bases.turns,
            removed,
        )

    def _reduce(self, drafts: Drafts, reached: np.ndarray) -> tuple[Drafts, np.ndarray, np.ndarray]:
        """Return reduced drafts, their owners, and whether a feature was removed; unreduced where not ``reached``."""
        sizes = drafts.sizes()
        largest = np.argsort(-sizes, axis=1, kind="stable")[:, :_FEATURES]
        numeric = np.array([feature.encodings is None for feature in drafts.space.features])
        bases, owners = [drafts[~reached]], [np.flatnonzero(~reached)]
        removed = [np.zeros(len(owners[0]), dtype=bool)]
        for features in largest.T:
            size = sizes[np.arange(len(drafts)), features]
            for units in _REDUCTIONS:
                undo = units == 0
                rows = np.flatnonzero(size > 0 if undo else numeric[features] & (size > units + 1e-6))
                if len(rows):
                    amount = np.full(len(rows), np.inf if undo else units)
                    bases.append(drafts[rows].reduce(features[rows], amount))
                    owners.append(rows)
                    removed.append(np.full(len(rows), undo))
        return Drafts.concat(bases), np.concatenate(owners), np.concatenate(removed)

    def _lines(
        self, drafts: Drafts, bases: Drafts, owners: np.ndarray, spare: np.ndarray, same_features: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the moves to try: numbers of bases and of lines, and the maximum units."""
        space = bases.space
        log_probabilities = self.policy.predict_log_probabilities(drafts.factuals, space.mask(drafts.factuals))
        preferences = np.maximum.reduceat(log_probabilities[:, self._by_line], self._line_starts, axis=1)
        in_use = (drafts.ends - drafts.factuals)[:, self._column] * self._sign > 1e-9
        preferences[in_use] = np.inf  # lines of the draft come first
        top = np.argpartition(-preferences, self.n_lines - 1, axis=1)[:, : self.n_lines]
        base, line = np.repeat(np.arange(len(bases)), self.n_lines), top[owners].ravel()
        if same_features:
            kept = in_use[owners[base], line]
            base, line = base[kept], line[kept]
        # not beyond the bounds, not further than the score can improve, not back towards the factual
        column, sign = self._column[line], self._sign[line]
        value = bases.ends[base, column]
        room = np.where(sign > 0, space.upper[column] - value, value - space.lower[column]) / space.units[column]
        most = np.where(np.isfinite(spare), np.floor(spare + 1e-9), self.max_units)[base]
        units = np.minimum(room, most).clip(0)
        units[units < 1e-6] = 0
        units[(value - bases.factuals[base, column]) * sign < -1e-9] = 0
        units[sign == 0] = 1
        return base, line, units
