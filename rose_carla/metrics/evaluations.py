"""The paper's eight metrics as classes in the manner of CARLA's development version.

Each is made with ``(mlmodel, hyperparameters)`` and answers ``get_evaluation(factuals, counterfactuals)`` with a frame
that has one row for each factual: NaN where a method found nothing (0 for validity). The mean of a column is the number
in the paper's tables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from carla.models.api import MLModel
from rose_carla.datasets import feature_groups
from rose_carla.errors import NoiseError, unknown_name
from rose_carla.metrics.alignment import align
from rose_carla.metrics.settings import NoiseSettings
from rose_carla.models import favourable
from rose_carla.models.contract import listed
from rose_carla.models.rows import finite_rows
from rose_carla.noise import (
    Density,
    GaussianNoise,
    InvalidationRate,
    Noise,
    PlausibleNoise,
    accumulated_invalidation_rate,
    common_noise,
    density_of,
    invalidation_rate,
    one_shot_plan,
)
from rose_carla.noise.arguments import check_number, numbers

#: A feature counts as changed from here on: methods that scale and rescale move others by rounding errors.
CHANGED = 1e-6


def _density(mlmodel: MLModel, settings: NoiseSettings, outcome: int | None = None) -> Density:
    return density_of(mlmodel, settings.bandwidth, settings.ridge, settings.max_points, outcome)


class Evaluation(ABC):
    """Base of the metrics.

    Parameters
    ----------
    mlmodel
        Any CARLA model.
    hyperparameters
        Options; an unknown one is an error.
    """

    #: Columns of the result.
    columns: tuple[str, ...]

    def __init__(self, mlmodel: MLModel, hyperparameters: Mapping[str, Any] | None = None) -> None:
        self.mlmodel = listed(mlmodel)
        if hyperparameters is not None and not isinstance(hyperparameters, Mapping):
            raise NoiseError(f"hyperparameters has to be a dictionary, got {type(hyperparameters).__name__}.")
        self.hyperparameters = dict(hyperparameters or {})
        self._read()

    def _read(self) -> None:
        """Check and keep the options; most metrics have none."""
        for key in self.hyperparameters:
            raise NoiseError(unknown_name("hyper-parameter", key, ()))

    @abstractmethod
    def get_evaluation(self, factuals: pd.DataFrame, counterfactuals: pd.DataFrame) -> pd.DataFrame:
        """One row for each factual, NaN where there is no counterfactual."""


class _OfFound(Evaluation):
    """A metric that is computed where there is a counterfactual."""

    def get_evaluation(self, factuals: pd.DataFrame, counterfactuals: pd.DataFrame) -> pd.DataFrame:
        """One row for each factual, NaN where there is no counterfactual."""
        order = self.mlmodel.feature_input_order
        aligned = align(factuals, counterfactuals, order)
        found = aligned.notna().all(axis=1).to_numpy()
        values = np.full((len(factuals), len(self.columns)), np.nan)
        if found.any():
            starts = factuals[order].to_numpy(dtype=float)[found]
            values[found] = self._values(starts, aligned.to_numpy()[found], np.flatnonzero(found), aligned.index[found])
        return pd.DataFrame(values, index=factuals.index, columns=list(self.columns))

    @abstractmethod
    def _values(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, labels: pd.Index) -> np.ndarray:
        """Values (m, columns) of factuals ``starts`` and counterfactuals ``ends``, numbered ``rows`` in the batch."""


class Validity(_OfFound):
    """1 if there is a counterfactual and the classifier accepts it, else 0."""

    columns = ("Validity",)

    def get_evaluation(self, factuals: pd.DataFrame, counterfactuals: pd.DataFrame) -> pd.DataFrame:
        """One row for each factual."""
        return super().get_evaluation(factuals, counterfactuals).fillna(0.0)

    def _values(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, labels: pd.Index) -> np.ndarray:
        return favourable(self.mlmodel)(ends).astype(float)[:, None]


class Sparsity(_OfFound):
    """Number of features that change; a categorical feature counts once however it is encoded."""

    columns = ("Sparsity",)

    def _values(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, labels: pd.Index) -> np.ndarray:
        changed = np.abs(ends - starts) > CHANGED
        groups = feature_groups(self.mlmodel.data, self.mlmodel.feature_input_order)
        return sum(changed[:, columns].any(axis=1) for columns in groups.values())[:, None]


class Proximity(_OfFound):
    """L1 distance between factual and counterfactual in the encoded space."""

    columns = ("Proximity",)

    def _values(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, labels: pd.Index) -> np.ndarray:
        return np.abs(ends - starts).sum(axis=1)[:, None]


class RecourseTime(Evaluation):
    """Seconds for one counterfactual: the option ``seconds``, which all of them took, over the number of factuals."""

    columns = ("Recourse_Time",)

    def _read(self) -> None:
        for key in self.hyperparameters:
            if key != "seconds":
                raise NoiseError(unknown_name("hyper-parameter", key, ("seconds",)))
        if "seconds" not in self.hyperparameters:
            raise NoiseError("RecourseTime cannot know the time: pass it as hyperparameters={'seconds': ...}.")
        check_number("seconds", self.hyperparameters["seconds"])

    def get_evaluation(self, factuals: pd.DataFrame, counterfactuals: pd.DataFrame) -> pd.DataFrame:
        """The same mean in every row, also where nothing was found: looking took its time."""
        finite_rows(factuals, self.mlmodel.feature_input_order)
        each = self.hyperparameters["seconds"] / len(factuals)
        return pd.DataFrame({"Recourse_Time": each}, index=factuals.index)


class _UnderNoise(_OfFound):
    """Base of the metrics that need a density; options are those of :class:`.NoiseSettings`."""

    def _read(self) -> None:
        self.settings = NoiseSettings.from_mapping(self.hyperparameters)

    def _favourable(self, rows: np.ndarray) -> np.ndarray:
        return favourable(self.mlmodel, self.settings.project_categories)(rows)

    def _generators(self, rows: np.ndarray) -> list[np.random.Generator]:
        """Noise of its own for each kind of noise and each row, the same for every method."""
        return common_noise([self.settings.seed, _STREAMS.index(type(self).__name__)], rows)


class LogDensity(_UnderNoise):
    """Log of the density of favourable training rows at the counterfactual."""

    columns = ("Log_Density",)

    def _values(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, labels: pd.Index) -> np.ndarray:
        return _density(self.mlmodel, self.settings, outcome=1).log_density(ends)[:, None]


class _OneOffAIR(_UnderNoise):
    """Invalidation rate under one-off noise, with its interval."""

    @abstractmethod
    def _noise(self) -> Noise:
        """The noise around a counterfactual."""

    def _values(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, labels: pd.Index) -> np.ndarray:
        s = self.settings
        rate = invalidation_rate(
            self._favourable, ends, self._noise(), s.variance, s.n_samples, self._generators(rows), s.confidence
        )
        return _with_interval(rate)


class GaussianAIR(_OneOffAIR):
    """Invalidation rate under Gaussian noise N(x, variance I)."""

    columns = ("Gaussian_AIR", "Gaussian_AIR_Lower", "Gaussian_AIR_Upper")

    def _noise(self) -> Noise:
        return GaussianNoise()


class PlausibleAIR(_OneOffAIR):
    """Invalidation rate under plausible noise (Definition 1)."""

    columns = ("Plausible_AIR", "Plausible_AIR_Lower", "Plausible_AIR_Upper")

    def _noise(self) -> Noise:
        return PlausibleNoise(_density(self.mlmodel, self.settings))


class AccAIR(_UnderNoise):
    """Invalidation rate under accumulated plausible noise (Definition 2, Algorithm 2).

    The option ``plans`` maps row labels to the actions of a sequential method in order, arrays of shape (k, d) in
    ``feature_input_order``. A row without one is a one-shot counterfactual: one action for each changed feature, in an
    order drawn from the seed and the row's number.
    """

    columns = ("Acc_AIR", "Acc_AIR_Lower", "Acc_AIR_Upper")

    def _read(self) -> None:
        options = dict(self.hyperparameters)
        plans = options.pop("plans", None)
        if plans is not None and not isinstance(plans, Mapping):
            raise NoiseError(f"plans has to be a mapping from row labels to arrays, got {type(plans).__name__}.")
        self.plans: Mapping[Hashable, np.ndarray] = {} if plans is None else plans
        self.settings = NoiseSettings.from_mapping(options)

    def _values(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, labels: pd.Index) -> np.ndarray:
        s = self.settings
        groups = list(feature_groups(self.mlmodel.data, self.mlmodel.feature_input_order).values())
        plans = []
        for start, end, row, label in zip(starts, ends, rows, labels, strict=True):
            if label in self.plans:
                plan = numbers(f"The actions of the plan of row {label!r}", self.plans[label])
                if plan.ndim != 2 or plan.shape[1] != len(start):
                    raise NoiseError(f"The plan of row {label!r} has shape {plan.shape}, expected (k, {len(start)}).")
                if not np.allclose(start + plan.sum(axis=0), end, atol=1e-5):
                    raise NoiseError(f"The plan of row {label!r} does not lead to its counterfactual.")
            else:
                order = np.random.default_rng([s.seed, len(_STREAMS), int(row)])
                plan = one_shot_plan(start, end, groups, order)
            plans.append(plan)
        rate = accumulated_invalidation_rate(
            self._favourable,
            starts,
            plans,
            PlausibleNoise(_density(self.mlmodel, s)),
            s.unit_variance,
            s.action_unit,
            s.n_samples,
            self._generators(rows),
            s.confidence,
        )
        return _with_interval(rate)


_STREAMS = ("GaussianAIR", "PlausibleAIR", "AccAIR")


def _with_interval(rate: InvalidationRate) -> np.ndarray:
    return np.stack([rate.rate, rate.lower, rate.upper], axis=1)
