"""Base class of the one-shot baselines, which return counterfactuals without a sequence of actions."""

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
    """Hyper-parameters that the one-shot baselines share."""

    #: Time limit of a batch in seconds.
    timeout: float = number(600.0, ge=0)
    #: People per batch.
    batch_size: int = integer(1000)
    #: Seed of the method's own generator; global generators are not used.
    seed: int = seed()
    #: Whether to reproduce the bugs of the published implementation; see docs/baselines.md.
    reference_quirks: bool = flag(False)
    #: Whether to show a progress bar; None: only on a terminal.
    progress: bool | None = optional_flag()


class OneShot(Method):
    """Base class of methods that search for the counterfactuals of one batch of rejected people at a time."""

    settings: OneShotSettings

    def find_counterfactuals(self, rows: np.ndarray, labels: Sequence[Hashable]) -> np.ndarray:
        """Search batch by batch; NaN where no counterfactual was found or the classifier rejects it."""
        s = self.settings
        ends = np.full(rows.shape, np.nan)
        disable = None if s.progress is None else not s.progress
        with tqdm(total=len(rows), desc=self.name, unit="person", disable=disable, leave=False) as bar:
            for first in range(0, len(rows), s.batch_size):
                part = slice(first, first + s.batch_size)
                ends[part] = self.search(rows[part], Deadline(s.timeout), bar)
        found = np.flatnonzero(np.isfinite(ends).all(axis=1))
        accepted = probability(self._mlmodel)(ends[found]) > self.border if len(found) else np.empty(0, dtype=bool)
        ends[np.setdiff1d(np.arange(len(rows)), found[accepted])] = np.nan
        return ends

    @abstractmethod
    def search(self, rows: np.ndarray, deadline: Deadline, bar: tqdm) -> np.ndarray:
        """Return counterfactuals (b, d) of rejected rows (b, d); NaN where none is found by the deadline."""
