"""CARLA's benchmark with the paper's metrics as further columns."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import carla.evaluation
import numpy as np
import pandas as pd
from carla.models.api import MLModel
from carla.recourse_methods.api import RecourseMethod
from rose_carla.errors import NoiseError, PlanError, short_repr, unknown_name
from rose_carla.metrics.closed_loop_air import ClosedLoopSettings
from rose_carla.metrics.evaluations import NoiseSettings, align
from rose_carla.metrics.registry import METRICS, PAPER_METRICS, compute_metric
from rose_carla.models.mlmodel import ListOrderModel, with_list_order


class _CopiesFactuals:
    """Wrapper that passes copies to a method which may change its factuals."""

    def __init__(self, method: RecourseMethod) -> None:
        self._method = method

    def get_counterfactuals(self, factuals: pd.DataFrame) -> pd.DataFrame:
        return self._method.get_counterfactuals(factuals.copy())


class _CopiesRows(ListOrderModel):
    """Wrapper that passes copies to a model which may change its rows; CARLA's y-Nearest-Neighbours does not."""

    def predict_proba(self, x: Any) -> Any:
        return self.original.predict_proba(np.array(x))


class Benchmark(carla.evaluation.Benchmark):
    """CARLA 0.0.5's ``Benchmark`` for any CARLA method, with the paper's eight metrics added.

    Unlike CARLA's own it supports methods that renumber their rows, and every row of its results has the label of its
    factual.

    Parameters
    ----------
    mlmodel
        Any CARLA model.
    recourse_method
        Any CARLA method. If it has an attribute ``plans``, a mapping from row labels to arrays of actions (k, d) in
        ``feature_input_order``, accumulated noise is applied to these actions.
    factuals
        Encoded rows with unique labels.
    hyperparams
        Options of the metrics; see :class:`rose_carla.metrics.NoiseSettings`.
    closed_loop
        If given, the results have the closed-loop AIR as well, for which the method is asked again some ten times for
        each try. Options that it has beside or instead of ``hyperparams``: ``n_tries``, ``max_decisions``,
        ``max_cost`` and others of :class:`rose_carla.metrics.ClosedLoopSettings`.

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
        hyperparams: Mapping[str, Any] | None = None,
        closed_loop: Mapping[str, Any] | None = None,
    ) -> None:
        # check the input before the method runs, possibly for hours
        NoiseSettings.from_mapping(hyperparams)
        ClosedLoopSettings.from_mapping(closed_loop)
        mlmodel = with_list_order(mlmodel)
        if isinstance(recourse_method, type) or not callable(getattr(recourse_method, "get_counterfactuals", None)):
            raise PlanError(f"Expected an instance of a recourse method, got {short_repr(recourse_method)}.")
        numeric_factuals = align(factuals, factuals, mlmodel.feature_input_order)
        super().__init__(mlmodel, _CopiesFactuals(recourse_method), factuals)
        self._mlmodel, self._metrics_model = _CopiesRows(mlmodel), mlmodel
        self._recourse_method, self._factuals = recourse_method, numeric_factuals
        returned: pd.DataFrame = self._counterfactuals  # type: ignore[has-type]
        self._counterfactuals = align(factuals, returned, mlmodel.feature_input_order)
        self._noise_options = dict(hyperparams or {})
        self._columns = PAPER_METRICS if closed_loop is None else (*PAPER_METRICS, "Closed_Loop_AIR")
        plans = getattr(recourse_method, "plans", None)
        self._given = {"plans": plans, "seconds": self._timer, "method": recourse_method, **(closed_loop or {})}

    @property
    def counterfactuals(self) -> pd.DataFrame:
        """Counterfactuals with the factuals' row labels; NaN where the method found nothing."""
        return self._counterfactuals.copy()

    def compute_metric(self, column: str) -> pd.DataFrame:
        """Compute one of :data:`rose_carla.metrics.METRICS`, with its interval if it has one.

        Parameters
        ----------
        column
            Result column of the metric, such as ``"Acc_AIR"``.
        """
        if column not in METRICS:
            raise NoiseError(unknown_name("metric", column, METRICS))
        return compute_metric(
            column, self._metrics_model, self._factuals, self._counterfactuals, self._noise_options, self._given
        )

    def compute_distances(self) -> pd.DataFrame:
        """Compute CARLA's four distances."""
        return self._with_labels(super().compute_distances())

    def compute_redundancy(self) -> pd.DataFrame:
        """Compute CARLA's redundancy."""
        return self._with_labels(super().compute_redundancy())

    def compute_constraint_violation(self) -> pd.DataFrame:
        """Compute CARLA's constraint violation; NaN, with a warning, for models that leave features out."""
        try:
            return self._with_labels(super().compute_constraint_violation())
        except (KeyError, ValueError) as error:
            warnings.warn(f"CARLA cannot compute constraint violation for this model: {error}", stacklevel=2)
            return pd.DataFrame({"Constraint_Violation": float("nan")}, index=self._factuals.index)

    def run_benchmark(self) -> pd.DataFrame:
        """Compute CARLA's measures and the paper's metrics, one row per factual.

        As in CARLA, values for the whole run (y-Nearest-Neighbours, Success_Rate, Average_Time) are in the first row.
        """
        first = self._factuals.index[:1]
        once = [self.compute_ynn(), self.compute_success_rate(), self.compute_average_time()]
        parts = [
            self.compute_distances(),
            self.compute_constraint_violation(),
            self.compute_redundancy(),
            *(frame.set_axis(first, axis=0) for frame in once),
            *(self.compute_metric(column) for column in self._columns),
        ]
        return pd.concat([part.reindex(self._factuals.index) for part in parts], axis=1)

    def _with_labels(self, measure: pd.DataFrame) -> pd.DataFrame:
        """Restore row labels: CARLA renumbers the rows that have a counterfactual."""
        found = self._counterfactuals.index[self._counterfactuals.notna().all(axis=1)]
        return measure.set_axis(found, axis=0).reindex(self._factuals.index)
