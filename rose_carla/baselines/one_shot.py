"""Baselines that name where to go, not how: what they share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from rose_carla.deadline import Deadline
from rose_carla.hyperparameters import Hyperparameters, flag, number, whole
from rose_carla.method import Method
from rose_carla.models import probability
from tqdm.auto import tqdm


@dataclass(frozen=True)
class OneShotSettings(Hyperparameters):
    """What the one-shot baselines share."""

    #: Most seconds that the search for somebody may take; people who are searched for together share them.
    timeout: float = number(600.0, least=0)
    #: People who are searched for together.
    together: int = whole(1000)
    #: Seed of the method's own randomness. No global seed is touched.
    seed: int = whole(0, least=0)
    #: Behave as the published implementation does, where that differs; docs/baselines.md says how.
    reference_quirks: bool = flag(False)
    #: Show a progress bar; None: if it goes to a terminal.
    progress: bool | None = None


class OneShot(Method):
    """Base of the one-shot baselines: the people who are turned down are searched for, a batch at a time."""

    settings: OneShotSettings

    def _find(self, rows: np.ndarray, labels: Sequence[Hashable]) -> np.ndarray:
        s, predict = self.settings, probability(self._mlmodel)
        ends = rows.copy()
        turned_down = np.flatnonzero(predict(rows) <= 0.5)
        disable = None if s.progress is None else not s.progress
        with tqdm(total=len(turned_down), desc=self.name, unit="person", disable=disable, leave=False) as bar:
            for first in range(0, len(turned_down), s.together):
                part = turned_down[first : first + s.together]
                ends[part] = self._search(rows[part], Deadline(s.timeout), bar)
        found = turned_down[np.isfinite(ends[turned_down]).all(axis=1)]
        refused = np.setdiff1d(turned_down, found[predict(ends[found]) > 0.5]) if len(found) else turned_down
        ends[refused] = np.nan
        return ends

    @abstractmethod
    def _search(self, rows: np.ndarray, deadline: Deadline, bar: tqdm) -> np.ndarray:
        """Counterfactuals (b, d) of rows (b, d) that are turned down; NaN where there is none by the deadline."""
