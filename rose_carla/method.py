"""Base classes of recourse methods, and what their settings are made of."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from carla.models.api import MLModel
from carla.recourse_methods.api import RecourseMethod
from rose_carla._lib.params import Hyperparameters, flag, integer, mapping, number, numbers, optional, seed
from rose_carla._lib.runtime import Deadline
from rose_carla.models import encoded_rows, probability
from rose_carla.models.mlmodel import with_list_order
from rose_carla.noise import Claim
from tqdm.auto import tqdm

__all__ = ["Deadline", "Hyperparameters", "Method", "flag", "integer", "mapping", "number", "numbers", "seed"]


class Method(RecourseMethod):
    """A recourse method that fulfils CARLA's contract.

    A subclass sets :attr:`name` and :attr:`settings_class`, and implements :meth:`find_counterfactuals`.

    Parameters
    ----------
    mlmodel
        A CARLA model.
    hyperparams
        Options by name, as in the settings class; an unknown one is an error.
    """

    #: Name in tables, files and messages.
    name: ClassVar[str]
    #: Dataclass of the options.
    settings_class: ClassVar[type[Hyperparameters]]
    #: Defaults that differ from those of the settings class.
    default_overrides: ClassVar[Mapping[str, Any]] = {}
    #: Probability up to which a row is rejected.
    border: float = 0.5

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "settings_class" in vars(cls) or "default_overrides" in vars(cls):
            cls._DEFAULT_HYPERPARAMS = cls.settings_class.carla_defaults(cls.default_overrides)

    def __init__(self, mlmodel: MLModel, hyperparams: Mapping[str, Any] | None = None) -> None:
        super().__init__(with_list_order(mlmodel))
        self.settings = self.settings_class.from_mapping(hyperparams, self.default_overrides)

    def get_counterfactuals(self, factuals: pd.DataFrame) -> pd.DataFrame:
        """Return a counterfactual per factual, with its label; NaN where none was found.

        Rows that the classifier accepts are returned unchanged.

        Parameters
        ----------
        factuals
            Encoded, normalised rows; further columns are ignored.

        Raises
        ------
        DataError
            If the factuals cannot be used.
        """
        ends = encoded_rows(self._mlmodel, factuals).copy()
        rejected = probability(self._mlmodel)(ends, factuals.index) <= self.border
        ends[rejected] = self.find_counterfactuals(ends[rejected], list(factuals.index[rejected]))
        return pd.DataFrame(ends, index=factuals.index, columns=self._mlmodel.feature_input_order)

    @abstractmethod
    def find_counterfactuals(self, rows: np.ndarray, labels: Sequence[Hashable]) -> np.ndarray:
        """Return counterfactuals (n, d) of rejected rows (n, d), NaN rows where none was found; n may be 0."""

    def claim(self) -> Claim | None:
        """Return the robustness that the method guarantees, for the contract check; None without a guarantee."""
        return None


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
    progress: bool | None = optional(flag(False))


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
