"""Drafts: plans of a batch while they are looked for, as one array."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rose_carla.mdp import ActionSpace, onto_edge

#: A feature counts as changed from here on.
_CHANGED = 1e-9


@dataclass
class Drafts:
    """Where the plans of b people lead and in which order they change features.

    A draft changes a feature once, by all that it changes, when it would have been touched last: what a walk does back
    and forth is left out, and what it does at the end, when noise can no longer undo it, stays there.

    Parameters
    ----------
    space
        The action space.
    factuals
        (b, d) where people are.
    ends
        (b, d) where the plans lead.
    turns
        (b, f) when a feature is changed: smaller is earlier.
    """

    space: ActionSpace
    factuals: np.ndarray
    ends: np.ndarray
    turns: np.ndarray

    @classmethod
    def empty(cls, space: ActionSpace, factuals: np.ndarray) -> Drafts:
        """Nothing is changed yet."""
        return cls(space, factuals, factuals.copy(), np.full((len(factuals), len(space.features)), np.inf))

    def __len__(self) -> int:
        return len(self.factuals)

    def __getitem__(self, rows: np.ndarray) -> Drafts:
        return Drafts(self.space, self.factuals[rows], self.ends[rows].copy(), self.turns[rows].copy())

    def __setitem__(self, rows: np.ndarray, drafts: Drafts) -> None:
        self.ends[rows], self.turns[rows] = drafts.ends, drafts.turns

    def sizes(self) -> np.ndarray:
        """(b, f) how much each feature changes, in units."""
        sizes = np.abs(self.ends - self.factuals) @ self.space.membership
        return np.where(sizes < _CHANGED, 0.0, sizes) / self.space.action_unit

    def act(self, numbers: np.ndarray, turn: int) -> None:
        """Take one more action each, as turn number ``turn``."""
        self.ends = self.space.apply(self.ends, numbers)
        features = self.space.feature_numbers[numbers]
        self.turns[np.arange(len(self)), features] = turn

    def lengthened(self, units: int) -> Drafts:
        """Drafts that move the continuous feature they touch last, of those with room, so many units further."""
        space = self.space
        numeric = np.array([feature.encodings is None for feature in space.features])
        column = np.array([feature.columns[0] for feature in space.features])
        change = (self.ends - self.factuals)[:, column]
        room = np.where(change > 0, 1.0 - self.ends[:, column], self.ends[:, column]) / space.action_unit + _CHANGED
        open_to = numeric & (np.abs(change) > _CHANGED) & (room >= 1)
        feature = np.where(open_to, self.turns, -1.0).argmax(axis=1)
        rows = np.flatnonzero(open_to.any(axis=1))
        longer = self[np.arange(len(self))]
        at = rows, column[feature[rows]]
        step = np.minimum(np.floor(room[rows, feature[rows]]), units) * np.sign(change[rows, feature[rows]])
        longer.ends[at] = onto_edge(longer.ends[at] + step * space.action_unit)
        return longer

    def plans(self) -> list[np.ndarray]:
        """The actions (k, d) of each draft in order, one for each changed feature."""
        sizes = self.sizes()
        order = np.argsort(np.where(sizes > 0, self.turns, np.inf), axis=1, kind="stable")
        counts = (sizes > 0).sum(axis=1)
        changes = self.ends - self.factuals
        membership = self.space.membership.T
        return [
            change * membership[features[:count]]
            for change, features, count in zip(changes, order, counts, strict=True)
        ]
