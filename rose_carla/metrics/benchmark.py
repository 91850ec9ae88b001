"""CARLA's benchmark with the paper's metrics as further columns."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import carla.evaluation
import pandas as pd
from carla.models.api import MLModel
from carla.recourse_methods.api import RecourseMethod
from rose_carla.errors import PlanError, short_repr
from rose_carla.metrics.alignment import align
from rose_carla.metrics.evaluations import (
    AccAIR,
    Evaluation,
    GaussianAIR,
    LogDensity,
    PlausibleAIR,
    Proximity,
    RecourseTime,
    Sparsity,
    Validity,
)
from rose_carla.metrics.settings import NoiseSettings
from rose_carla.models.contract import listed


class _OnCopies:
    """A method that may do to its factuals what it likes: they are copies."""

    def __init__(self, method: RecourseMethod) -> None:
        self._method = method

    def get_counterfactuals(self, factuals: pd.DataFrame) -> pd.DataFrame:
        return self._method.get_counterfactuals(factuals.copy())


class Benchmark(carla.evaluation.Benchmark):
    """CARLA 0.0.5's ``Benchmark`` for any CARLA method, with the paper's eight metrics added.

    Unlike CARLA's own it copes with methods that renumber their rows, and every row of its results carries the label
    of its factual.

    Parameters
    ----------
    mlmodel
        Any CARLA model.
    recourse_method
        Any CARLA method. If it has an attribute ``plans``, a mapping from row labels to arrays of actions (k, d) in
        ``feature_input_order``, these are what accumulated noise is applied to.
    factuals
        Encoded rows with unique labels.
    hyperparameters
        Options of the metrics; see :class:`rose_carla.metrics.NoiseSettings`.

    Examples
    --------
    >>> from carla.recourse_methods import GrowingSpheres
    >>> from rose_carla import Benchmark, datasets, models
    >>> model = models.train(datasets.load("compas"), "linear")
    >>> factuals = models.negative_instances(model).head(3)
    >>> result = Benchmark(model, GrowingSpheres(model, {}), factuals, {"n_samples": 100}).run_benchmark()
    >>> bool((result.index == factuals.index).all()), "Plausible_AIR" in result.columns
    (True, True)
    """

    def __init__(
        self,
        mlmodel: MLModel,
        recourse_method: RecourseMethod,
        factuals: pd.DataFrame,
        hyperparameters: Mapping[str, Any] | None = None,
    ) -> None:
        # what is wrong with the input is told before hours of work
        NoiseSettings.from_mapping(hyperparameters)
        mlmodel = listed(mlmodel)
        if isinstance(recourse_method, type) or not callable(getattr(recourse_method, "get_counterfactuals", None)):
            raise PlanError(f"Expected a recourse method that is made for a model, got {short_repr(recourse_method)}.")
        own = align(factuals, factuals, mlmodel.feature_input_order)
        self._noise_options = dict(hyperparameters or {})
        super().__init__(mlmodel, _OnCopies(recourse_method), factuals)
        self._recourse_method, self._factuals = recourse_method, own
        returned: pd.DataFrame = self._counterfactuals  # type: ignore[has-type]
        self._counterfactuals = align(factuals, returned, mlmodel.feature_input_order)
        self._plans = getattr(recourse_method, "plans", None)

    @property
    def counterfactuals(self) -> pd.DataFrame:
        """What the method returned, with the factuals' row labels; NaN where it found nothing."""
        return self._counterfactuals.copy()

    def _evaluate(self, metric: Evaluation) -> pd.DataFrame:
        return metric.get_evaluation(self._factuals, self._counterfactuals)

    def compute_validity(self) -> pd.DataFrame:
        """Whether each row has a counterfactual that the classifier accepts."""
        return self._evaluate(Validity(self._mlmodel))

    def compute_sparsity(self) -> pd.DataFrame:
        """Number of features that change."""
        return self._evaluate(Sparsity(self._mlmodel))

    def compute_proximity(self) -> pd.DataFrame:
        """L1 distance in the encoded space."""
        return self._evaluate(Proximity(self._mlmodel))

    def compute_log_density(self) -> pd.DataFrame:
        """Log density of favourable training rows at the counterfactual."""
        return self._evaluate(LogDensity(self._mlmodel, self._noise_options))

    def compute_gaussian_air(self) -> pd.DataFrame:
        """Invalidation rate under one-off Gaussian noise, with its interval."""
        return self._evaluate(GaussianAIR(self._mlmodel, self._noise_options))

    def compute_plausible_air(self) -> pd.DataFrame:
        """Invalidation rate under one-off plausible noise, with its interval."""
        return self._evaluate(PlausibleAIR(self._mlmodel, self._noise_options))

    def compute_acc_air(self) -> pd.DataFrame:
        """Invalidation rate under accumulated plausible noise, with its interval."""
        return self._evaluate(AccAIR(self._mlmodel, {**self._noise_options, "plans": self._plans}))

    def compute_recourse_time(self) -> pd.DataFrame:
        """Seconds for one counterfactual."""
        return self._evaluate(RecourseTime(self._mlmodel, {"seconds": self._timer}))

    def compute_distances(self) -> pd.DataFrame:
        """CARLA's four distances."""
        return self._labelled(super().compute_distances())

    def compute_redundancy(self) -> pd.DataFrame:
        """CARLA's redundancy."""
        return self._labelled(super().compute_redundancy())

    def compute_constraint_violation(self) -> pd.DataFrame:
        """CARLA's constraint violation; NaN, with a warning, for models that leave features out: CARLA cannot."""
        try:
            return self._labelled(super().compute_constraint_violation())
        except (KeyError, ValueError) as error:
            warnings.warn(f"CARLA cannot compute constraint violation for this model: {error}", stacklevel=2)
            return pd.DataFrame({"Constraint_Violation": float("nan")}, index=self._factuals.index)

    def run_benchmark(self) -> pd.DataFrame:
        """CARLA's measures and the paper's metrics, one row for each factual.

        As in CARLA, what exists once for the whole run (y-Nearest-Neighbours, Success_Rate, Average_Time) stands in the
        first row.
        """
        first = self._factuals.index[:1]
        once = [self.compute_ynn(), self.compute_success_rate(), self.compute_average_time()]
        parts = [
            self.compute_distances(),
            self.compute_constraint_violation(),
            self.compute_redundancy(),
            *(frame.set_axis(first, axis=0) for frame in once),
            self.compute_validity(),
            self.compute_sparsity(),
            self.compute_proximity(),
            self.compute_log_density(),
            self.compute_gaussian_air(),
            self.compute_plausible_air(),
            self.compute_acc_air(),
            self.compute_recourse_time(),
        ]
        return pd.concat([part.reindex(self._factuals.index) for part in parts], axis=1)

    def _labelled(self, measure: pd.DataFrame) -> pd.DataFrame:
        """CARLA numbers the rows that have a counterfactual; give them back their labels."""
        found = self._counterfactuals.index[self._counterfactuals.notna().all(axis=1)]
        return measure.set_axis(found, axis=0).reindex(self._factuals.index)
