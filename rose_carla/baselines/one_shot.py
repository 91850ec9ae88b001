"""Baselines that name where to go, not how: what they share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from rose_carla._lib.params import Hyperparameters, flag, integer, number, optional_flag, seed
from rose_carla._lib.runtime import Deadline
from rose_carla.method import Method
from rose_carla.models import probability
from tqdm.auto import tqdm


@dataclass(frozen=True)
class OneShotSettings(Hyperparameters):
    """What the one-shot baselines share."""

    #: Most seconds that the search for somebody may take; people who are searched for together share them.
    timeout: float = number(600.0, ge=0)
    #: People who are searched for together.
    together: int = integer(1000)
    #: Seed of the method's own randomness. No global seed is touched.
    seed: int = seed()
    #: Behave as the published implementation does, where that differs; docs/baselines.md says how.
    reference_quirks: bool = flag(False)
    #: Show a progress bar; None: if it goes to a terminal.
    progress: bool | None = optional_flag()


class OneShot(Method):
    """Base of the one-shot baselines: the people who are turned down are searched for, a batch at a time."""

    settings: OneShotSettings

    def find_counterfactuals(self, rows: np.ndarray, labels: Sequence[Hashable]) -> np.ndarray:
        s = self.settings
        ends = np.full(rows.shape, np.nan)
        disable = None if s.progress is None else not s.progress
        with tqdm(total=len(rows), desc=self.name, unit="person", disable=disable, leave=False) as bar:
            for first in range(0, len(rows), s.together):
                part = slice(first, first + s.together)
                ends[part] = self._search(rows[part], Deadline(s.timeout), bar)
        found = np.flatnonzero(np.isfinite(ends).all(axis=1))
        accepted = probability(self._mlmodel)(ends[found]) > self.border if len(found) else np.empty(0, dtype=bool)
        ends[np.setdiff1d(np.arange(len(rows)), found[accepted])] = np.nan
        return ends

    @abstractmethod
    def _search(self, rows: np.ndarray, deadline: Deadline, bar: tqdm) -> np.ndarray:
        """Counterfactuals (b, d) of rows (b, d) that are turned down; NaN where there is none by the deadline."""
