"""Cheaper drafts of the same margin: take something off one feature, put less onto another.

Only the classifier is asked, never the noise, so hundreds of drafts to a person can be looked at. The policy says onto
which features something is put.
"""

from __future__ import annotations

import numpy as np
from rose_carla.mdp import onto_edge
from rose_carla.planning.drafts import Drafts
from rose_carla.planning.task import Task
from rose_carla.policy import IMPOSSIBLE, ActorCritic

#: Taken off a feature, in units; 0 leaves the draft as it is, None takes the feature out.
_REDUCTIONS = (0, 1, 2, 4, 8, 16, None)
#: Features that something is taken off: the largest changes.
_FEATURES = 2


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
        _, first, self._line_of = np.unique(
            np.stack([space.feature_numbers, names]), axis=1, return_index=True, return_inverse=True
        )
        self._line_of = self._line_of.ravel()
        self._feature = space.feature_numbers[first]
        self._sign = np.sign(space.moves[first])
        self._action = first
        self._column = np.array([space.features[f].columns[0] for f in self._feature])
        self.n_lines = min(n_lines, len(first))

    def scores(self, drafts: Drafts) -> np.ndarray:
        """(b,) what is made small: units of action, and so many for every feature."""
        sizes = drafts.sizes()
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
            Rivals to a draft at most.

        Returns
        -------
        rivals, owners
            All rivals, and the numbers of the drafts they rival.
        """
        scores = self.scores(drafts)
        neighbours, owners, lines = self._around(drafts, scores, faithful=False)
        largest = drafts.sizes().argmax(axis=1)
        fits = (lines >= 0) & (self._feature[lines] != largest[owners])
        fits &= self.scores(neighbours) <= scores[owners] - 1 + 1e-6
        rows = np.flatnonzero(fits)
        if len(rows) == 0:
            return neighbours[rows], owners[rows]
        margins = self.task.margins(neighbours.ends[rows])
        rows, margins = rows[margins > 0], margins[margins > 0]
        # the best of each line, then the best lines
        order = np.lexsort((-margins, lines[rows], owners[rows]))
        rows, margins = rows[order], margins[order]
        _, first = np.unique(np.stack([owners[rows], lines[rows]]), axis=1, return_index=True)
        rows, margins = rows[first], margins[first]
        order = np.lexsort((-margins, owners[rows]))
        rows = rows[order]
        rank = np.arange(len(rows)) - np.searchsorted(owners[rows], owners[rows], side="left")
        rows = rows[rank < n]
        return neighbours[rows], owners[rows]

    def _round(
        self, drafts: Drafts, scores: np.ndarray, needed: np.ndarray, faithful: bool
    ) -> tuple[Drafts, np.ndarray, np.ndarray]:
        """Best neighbour of each draft that is better than it: neighbours, rows that have one, their scores."""
        neighbours, owners, _ = self._around(drafts, scores, faithful)
        found_scores = self.scores(neighbours)
        candidates = np.flatnonzero(found_scores < scores[owners] - 1e-6)
        margins = self.task.margins(neighbours.ends[candidates]) if len(candidates) else np.empty(0)
        candidates = candidates[margins >= needed[owners[candidates]]]
        order = np.lexsort((found_scores[candidates], owners[candidates]))
        found, first = np.unique(owners[candidates[order]], return_index=True)
        chosen = candidates[order[first]]
        return neighbours[chosen], found, found_scores[chosen]

    def _around(self, drafts: Drafts, scores: np.ndarray, faithful: bool) -> tuple[Drafts, np.ndarray, np.ndarray]:
        """All neighbours of drafts, whose they are, and the line onto which something was put, -1 for none."""
        bases, owners = self._bases(drafts, np.isfinite(scores))
        places, ends, lines = self._neighbours(bases, scores[owners], faithful)
        owners = owners[places]
        turns = bases.turns[places]
        put = lines >= 0
        last = np.where(np.isfinite(turns[put]), turns[put], -1).max(axis=1, initial=-1)
        turns[put, self._feature[lines[put]]] = last + 1
        return Drafts(drafts.space, drafts.factuals[owners], ends, turns), owners, lines

    def _bases(self, drafts: Drafts, reached: np.ndarray) -> tuple[Drafts, np.ndarray]:
        """Drafts with something taken off, and whose they are."""
        space, sizes = drafts.space, drafts.sizes()
        largest = np.argsort(-sizes, axis=1, kind="stable")[:, :_FEATURES]
        numeric = np.array([feature.encodings is None for feature in space.features])
        ends, turns, owners = [], [], []
        for slot in range(largest.shape[1]):
            features = largest[:, slot]
            size = sizes[np.arange(len(drafts)), features]
            columns = space.membership[:, features].T > 0
            for units in _REDUCTIONS:
                if units == 0:
                    rows = np.flatnonzero(~reached) if slot == 0 else np.empty(0, dtype=int)
                elif units is None:
                    rows = np.flatnonzero(size > 0)
                else:
                    rows = np.flatnonzero(numeric[features] & (size > units + 1e-6))
                if len(rows) == 0:
                    continue
                change = drafts.ends[rows] - drafts.factuals[rows]
                share = 0.0 if units is None else 1.0 - units / np.maximum(size[rows, None], 1.0)
                kept = np.where(columns[rows] & (units != 0), change * share, change)
                base_turns = drafts.turns[rows].copy()
                if units is None:
                    base_turns[np.arange(len(rows)), features[rows]] = np.inf
                ends.append(drafts.factuals[rows] + kept)
                turns.append(base_turns)
                owners.append(rows)
        owner = np.concatenate(owners) if owners else np.empty(0, dtype=int)
        if not owners:
            return drafts[owner], owner
        return Drafts(space, drafts.factuals[owner], np.concatenate(ends), np.concatenate(turns)), owner

    def _neighbours(
        self, bases: Drafts, scores: np.ndarray, faithful: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Bases themselves (line -1) and with something put on: number of the base, end, line."""
        space = bases.space
        preferences = self.policy.preferences(bases.ends, space.mask(bases.ends))
        of_lines = np.full((len(bases), len(self._feature)), -np.inf)
        for action, line in enumerate(self._line_of):
            of_lines[:, line] = np.maximum(of_lines[:, line], preferences[:, action])
        going = (bases.ends - bases.factuals)[:, self._column] * self._sign > 1e-9
        of_lines[going] = np.inf  # what the draft does already comes first
        top = np.argpartition(-of_lines, self.n_lines - 1, axis=1)[:, : self.n_lines]
        base, line = np.repeat(np.arange(len(bases)), self.n_lines), top.ravel()
        # no further than to the edge, nor than would be worth it, nor back to where the person is
        column, sign = self._column[line], self._sign[line]
        value = bases.ends[base, column]
        room = np.where(sign > 0, 1.0 - value, value) / space.action_unit + 1e-9
        spare = np.minimum(scores[base] - self.scores(bases)[base], self.max_units)
        units = np.minimum(room, spare).clip(0).astype(int)
        units[(value - bases.factuals[base, column]) * sign < -1e-9] = 0
        sets = sign == 0
        units[sets] = preferences[base[sets], self._action[line[sets]]] > IMPOSSIBLE / 2
        if faithful:
            units[~going[base, line]] = 0
        pair = np.repeat(np.arange(len(base)), units)
        step = np.arange(len(pair)) - np.repeat(np.cumsum(units) - units, units) + 1
        place, which = base[pair], line[pair]
        ends = bases.ends[place]
        rows = np.arange(len(ends))
        moved = ends[rows, self._column[which]] + self._sign[which] * step * space.action_unit
        ends[rows, self._column[which]] = onto_edge(moved)
        setting = sets[pair]
        ends[setting] = space.apply(bases.ends[place[setting]], self._action[which[setting]])
        return (
            np.concatenate([np.arange(len(bases)), place]),
            np.concatenate([bases.ends, ends]),
            np.concatenate([np.full(len(bases), -1), which]),
        )
