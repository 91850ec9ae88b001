"""What all recourse methods of this package have in common: settings, factuals in, counterfactuals out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from carla.models.api import MLModel
from carla.recourse_methods.api import RecourseMethod
from rose_carla._lib.params import Hyperparameters
from rose_carla.models import encoded_rows, probability
from rose_carla.models.contract import listed
from rose_carla.noise import Claim


class Method(RecourseMethod):
    """A CARLA recourse method that keeps CARLA's contract.

    A subclass names its settings in :attr:`settings_class` and finds counterfactuals in :meth:`find_counterfactuals`.

    Parameters
    ----------
    mlmodel
        A CARLA model.
    hyperparams
        Options by name, as in the settings class; an unknown one is an error.
    """

    #: Name in tables, files and messages.
    name: ClassVar[str]
    #: The dataclass of its options.
    settings_class: ClassVar[type[Hyperparameters]]
    #: Probability up to which somebody is turned down.
    border: float = 0.5
    default_overrides: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "settings_class" in vars(cls) or "default_overrides" in vars(cls):
            cls._DEFAULT_HYPERPARAMS = cls.settings_class.carla_defaults(cls.default_overrides)

    def __init__(self, mlmodel: MLModel, hyperparams: Mapping[str, Any] | None = None) -> None:
        super().__init__(listed(mlmodel))
        self.settings = self.settings_class.from_mapping(hyperparams, self.default_overrides)

    def get_counterfactuals(self, factuals: pd.DataFrame) -> pd.DataFrame:
        """A counterfactual for each factual, under its label; NaN where none was found.

        Rows that are accepted already come back as they are.

        Parameters
        ----------
        factuals
            Encoded, normalised rows; further columns are ignored.

        Raises
        ------
        DataError
            If the factuals cannot be used; the message says why.
        """
        ends = encoded_rows(self._mlmodel, factuals).copy()
        refused = probability(self._mlmodel)(ends, factuals.index) <= self.border
        ends[refused] = self.find_counterfactuals(ends[refused], list(factuals.index[refused]))
        return pd.DataFrame(ends, index=factuals.index, columns=self._mlmodel.feature_input_order)

    @abstractmethod
    def find_counterfactuals(self, rows: np.ndarray, labels: Sequence[Hashable]) -> np.ndarray:
        """Counterfactuals (n, d) of rows (n, d) that are turned down, maybe none; NaN rows where there is none."""

    def claim(self) -> Claim | None:
        """What the method promises about the robustness of its counterfactuals, to be checked; None: nothing."""
        return None
