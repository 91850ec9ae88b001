"""Base class of this package's recourse methods, and what their settings are made of."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from carla.models.api import MLModel
from carla.recourse_methods.api import RecourseMethod
from rose_carla._lib.params import Hyperparameters, flag, integer, mapping, number, numbers, seed
from rose_carla._lib.runtime import Deadline
from rose_carla.models import encoded_rows, probability
from rose_carla.models.mlmodel import with_list_order
from rose_carla.noise import Claim

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
