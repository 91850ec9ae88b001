"""The paper's eight metrics as classes with the interface of CARLA's development version.

Each is created with ``(mlmodel, hyperparams)``, and ``get_evaluation(factuals, counterfactuals)`` returns a frame with
one row per factual: NaN where the method found no counterfactual (0 for validity). The mean of a column is the number
in the paper's tables.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from carla.models.api import MLModel
from rose_carla._lib.params import REQUIRED, Hyperparameters, choice, factor, flag, integer, number, seed
from rose_carla.datasets import action_units, feature_groups, relative_noise
from rose_carla.errors import DataError, NoiseError, error_text
from rose_carla.models import favourable
from rose_carla.models.mlmodel import finite_rows, numeric_columns, with_list_order
from rose_carla.noise import (
    NOISE_PER,
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

#: Smallest difference that counts as a change: methods that scale and rescale leave rounding errors.
CHANGED = 1e-6
#: Random stream of the order of actions in one-shot counterfactuals; streams 0 to 2 are those of the AIR metrics.
_ORDER_STREAM = 3


@dataclass(frozen=True)
class NoSettings(Hyperparameters):
    """Options of a metric without options."""

    error = NoiseError


@dataclass(frozen=True)
class TimeSettings(Hyperparameters):
    """Options of :class:`RecourseTime`."""

    error = NoiseError

    #: Time that all counterfactuals took together.
    seconds: float = number(REQUIRED, ge=0)


@dataclass(frozen=True)
class NoiseSettings(Hyperparameters):
    """Options of the metrics that use noise or a density; the defaults are the paper's values."""

    error = NoiseError

    #: Variance of one-off noise, Gaussian and plausible.
    variance: float = number(0.01, ge=0)
    #: Variance of the noise of one unit of action in accumulated noise: 5 % of the one-off noise.
    unit_variance: float = number(0.0005, ge=0)
    #: Size of a unit of action, u, of features for which the data set has no unit.
    action_unit: float = number(0.025, gt=0)
    #: Whether accumulated noise has a NoisyStep per unit of action or per action.
    noise_per: str = choice("unit", names=NOISE_PER)
    #: Noisy versions of each counterfactual, and noisy executions of each plan.
    n_samples: int = integer(1000)
    #: Bandwidth, ridge and maximum number of kernels of the density; see :class:`rose_carla.noise.Density`.
    bandwidth: str | float = factor("scott", names=("scott", "silverman"))
    ridge: float = number(1e-6, ge=0)
    max_points: int = integer(50_000, ge=2)
    #: Move noisy categorical features to their nearest valid encoding before classification. The paper, like the
    #: literature on Gaussian noise, classifies them as they are.
    project_categories: bool = flag(False)
    #: Confidence of the Wilson intervals.
    confidence: float = number(0.95, gt=0, lt=1)
    #: Row i of every method sees the same noise for the same seed.
    seed: int = seed()


def align(factuals: pd.DataFrame, counterfactuals: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return ``counterfactuals`` with the row labels of ``factuals``, in their order, and exactly ``columns``.

    Rows are matched by label where the labels are those of the factuals, in any order; a factual without a row gets
    NaN. Rows that a method renumbered from 0 are matched by position if there is one per factual, with a warning where
    the factuals have the same numbers in another order. A row with any NaN or infinite value becomes all NaN.

    Raises
    ------
    DataError
        If the rows cannot be matched.
    """
    finite_rows(factuals, columns)
    if isinstance(counterfactuals, pd.DataFrame) and len(counterfactuals) == 0:
        return pd.DataFrame(np.nan, index=factuals.index, columns=list(columns))
    values = numeric_columns(counterfactuals, columns, "counterfactuals")
    found = pd.DataFrame(values, index=counterfactuals.index, columns=list(columns))
    labels = found.index
    renumbered = labels.equals(pd.RangeIndex(len(found)))
    if renumbered and len(found) == len(factuals):
        if not factuals.index.equals(labels) and labels.isin(factuals.index).all():
            warnings.warn(
                "Counterfactuals numbered from 0 are matched by position with factuals that have the same numbers in "
                "another order; this is wrong if the method sorted its rows by label.",
                stacklevel=2,
            )
        found = found.set_axis(factuals.index, axis=0)
    elif labels.is_unique and labels.isin(factuals.index).all():
        if renumbered:
            warnings.warn(
                f"{len(found)} counterfactuals numbered from 0 are matched by label with {len(factuals)} factuals; "
                "this is wrong if the method dropped rows and renumbered the rest.",
                stacklevel=2,
            )
        found = found.reindex(factuals.index)
    else:
        raise DataError(
            f"Cannot match {len(found)} counterfactuals with {len(factuals)} factuals: a method must keep the row "
            "labels, or return one row per factual in order."
        )
    return found.where(np.isfinite(found).all(axis=1))


class Evaluation(ABC):
    """Base class of metrics; a subclass sets :attr:`columns` and implements :meth:`evaluate_rows`.

    Parameters
    ----------
    mlmodel
        Any CARLA model.
    hyperparams
        Options by name, as in the settings class; an unknown one is an error.
    """

    #: Columns of the result.
    columns: ClassVar[tuple[str, ...]]
    #: Dataclass of the options.
    settings_class: ClassVar[type[Hyperparameters]] = NoSettings
    #: Value of rows without a counterfactual.
    missing_value: ClassVar[float] = np.nan

    def __init__(self, mlmodel: MLModel, hyperparams: Mapping[str, Any] | None = None) -> None:
        self.mlmodel = with_list_order(mlmodel)
        self.settings: Any = self.settings_class.from_mapping(hyperparams)
        self.hyperparams = dict(hyperparams or {})

    def get_evaluation(self, factuals: pd.DataFrame, counterfactuals: pd.DataFrame) -> pd.DataFrame:
        """Return one row per factual; see :func:`align` for how counterfactuals are matched."""
        order = self.mlmodel.feature_input_order
        aligned = align(factuals, counterfactuals, order)
        found = aligned.notna().all(axis=1).to_numpy()
        values = np.full((len(factuals), len(self.columns)), self.missing_value)
        if found.any():
            starts, ends = factuals[order].to_numpy(dtype=float)[found], aligned.to_numpy()[found]
            values[found] = self.evaluate_rows(starts, ends, np.flatnonzero(found), aligned.index[found])
        return pd.DataFrame(values, index=factuals.index, columns=list(self.columns))

    @abstractmethod
    def evaluate_rows(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, labels: pd.Index) -> np.ndarray:
        """Return values (m, columns) of factuals ``starts`` (m, d) and counterfactuals ``ends`` (m, d).

        ``rows`` are their positions among all factuals, ``labels`` their row labels.
        """


class Validity(Evaluation):
    """1 if there is a counterfactual and the classifier accepts it, else 0."""

    columns = ("Validity",)
    missing_value = 0.0

    def evaluate_rows(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, labels: pd.Index) -> np.ndarray:
        return favourable(self.mlmodel)(ends).astype(float)[:, None]


class Sparsity(Evaluation):
    """Number of features that change; a categorical feature counts once however it is encoded."""

    columns = ("Sparsity",)

    def evaluate_rows(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, labels: pd.Index) -> np.ndarray:
        changed = np.abs(ends - starts) > CHANGED
        groups = feature_groups(self.mlmodel.data, self.mlmodel.feature_input_order)
        return sum(changed[:, columns].any(axis=1) for columns in groups.values())[:, None]


class Proximity(Evaluation):
    """L1 distance between factual and counterfactual in the encoded space."""

    columns = ("Proximity",)

    def evaluate_rows(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, labels: pd.Index) -> np.ndarray:
        return np.abs(ends - starts).sum(axis=1)[:, None]


class RecourseTime(Evaluation):
    """Seconds per counterfactual: the option ``seconds``, the time of all of them, over the number of factuals."""

    columns = ("Recourse_Time",)
    settings_class = TimeSettings

    def __init__(self, mlmodel: MLModel, hyperparams: Mapping[str, Any] | None = None) -> None:
        if not hyperparams:
            raise NoiseError("RecourseTime does not measure time itself: pass hyperparams={'seconds': ...}.")
        super().__init__(mlmodel, hyperparams)

    def get_evaluation(self, factuals: pd.DataFrame, counterfactuals: pd.DataFrame) -> pd.DataFrame:
        """Return the same mean in every row, also where nothing was found: the search took time there too."""
        return super().get_evaluation(factuals, factuals)

    def evaluate_rows(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, labels: pd.Index) -> np.ndarray:
        return np.full((len(rows), 1), self.settings.seconds / len(rows))


class LogDensity(Evaluation):
    """Log of the density of favourable training rows at the counterfactual."""

    columns = ("Log_Density",)
    settings_class = NoiseSettings

    def evaluate_rows(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, labels: pd.Index) -> np.ndarray:
        return density_with(self.mlmodel, self.settings, outcome=1).log_density(ends)[:, None]


class InvalidationMetric(Evaluation):
    """Base class of invalidation rates."""

    settings_class = NoiseSettings
    #: Number of the random stream: each kind of noise has its own, the same for every method.
    stream: ClassVar[int]

    def _favourable(self, rows: np.ndarray) -> np.ndarray:
        return favourable(self.mlmodel, self.settings.project_categories)(rows)

    def _generators(self, rows: np.ndarray) -> list[np.random.Generator]:
        return common_noise([self.settings.seed, self.stream], rows)


class _OneOffAIR(InvalidationMetric):
    """Invalidation rate under one-off noise, with its interval."""

    @abstractmethod
    def _noise(self) -> Noise:
        """Return the noise."""

    def evaluate_rows(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, labels: pd.Index) -> np.ndarray:
        s = self.settings
        rate = invalidation_rate(
            self._favourable, ends, self._noise(), s.variance, s.n_samples, self._generators(rows), s.confidence
        )
        return _with_interval(rate)


class GaussianAIR(_OneOffAIR):
    """Invalidation rate under Gaussian noise N(x, variance I)."""

    columns = ("Gaussian_AIR", "Gaussian_AIR_Lower", "Gaussian_AIR_Upper")
    stream = 0

    def _noise(self) -> Noise:
        return GaussianNoise(relative_noise(self.mlmodel.data, self.mlmodel.feature_input_order))


class PlausibleAIR(_OneOffAIR):
    """Invalidation rate under plausible noise (Definition 1)."""

    columns = ("Plausible_AIR", "Plausible_AIR_Lower", "Plausible_AIR_Upper")
    stream = 1

    def _noise(self) -> Noise:
        return PlausibleNoise(density_with(self.mlmodel, self.settings))


class AccAIR(InvalidationMetric):
    """Invalidation rate under accumulated plausible noise (Definition 2, Algorithm 2).

    The option ``plans`` maps row labels to the actions of a sequential method in order, arrays of shape (k, d) in
    ``feature_input_order``. A row without a plan is a one-shot counterfactual: one action per changed feature, in an
    order drawn from the seed and the row's position.
    """

    columns = ("Acc_AIR", "Acc_AIR_Lower", "Acc_AIR_Upper")
    stream = 2

    def __init__(self, mlmodel: MLModel, hyperparams: Mapping[str, Any] | None = None) -> None:
        plans = None
        if isinstance(hyperparams, Mapping) and "plans" in hyperparams:
            hyperparams = dict(hyperparams)
            plans = hyperparams.pop("plans")
        super().__init__(mlmodel, hyperparams)
        if plans is not None and not isinstance(plans, Mapping):
            raise NoiseError(f"plans must be a mapping from row labels to arrays, got {type(plans).__name__}.")
        self.plans: Mapping[Hashable, np.ndarray] = {} if plans is None else plans

    def evaluate_rows(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, labels: pd.Index) -> np.ndarray:
        s = self.settings
        data, order = self.mlmodel.data, self.mlmodel.feature_input_order
        groups = list(feature_groups(data, order).values())
        plans = []
        for start, end, row, label in zip(starts, ends, rows, labels, strict=True):
            if label in self.plans:
                plans.append(_checked_plan(label, self.plans[label], start, end))
            else:
                rng = np.random.default_rng([s.seed, _ORDER_STREAM, int(row)])
                plans.append(one_shot_plan(start, end, groups, rng))
        rate = accumulated_invalidation_rate(
            self._favourable,
            starts,
            plans,
            PlausibleNoise(density_with(self.mlmodel, s)),
            s.unit_variance,
            action_units(data, order, s.action_unit),
            s.n_samples,
            self._generators(rows),
            s.confidence,
            s.noise_per,
        )
        return _with_interval(rate)


def _checked_plan(label: Hashable, plan: Any, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return a method's plan as an array (k, d) that leads from ``start`` to ``end``."""
    try:
        plan = np.asarray(plan, dtype=float)
    except (TypeError, ValueError) as error:
        raise NoiseError(f"The plan of row {label!r} must be an array of numbers: {error_text(error)}") from error
    if plan.ndim != 2 or plan.shape[1] != len(start):
        raise NoiseError(f"The plan of row {label!r} has shape {plan.shape}, expected (k, {len(start)}).")
    if not np.allclose(start + plan.sum(axis=0), end, atol=1e-5):
        raise NoiseError(f"The plan of row {label!r} does not lead to its counterfactual.")
    return plan


def density_with(mlmodel: MLModel, settings: NoiseSettings, outcome: int | None = None) -> Density:
    """Return the density of training rows, all or those of one outcome, with the options of a metric."""
    return density_of(mlmodel, settings.bandwidth, settings.ridge, settings.max_points, outcome)


def _with_interval(rate: InvalidationRate) -> np.ndarray:
    return np.stack([rate.rate, rate.lower, rate.upper], axis=1)
