"""The list of all metrics, and how tables show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd
from carla.models.api import MLModel
from rose_carla.metrics.closed_loop_air import ClosedLoopAIR, ClosedLoopSettings
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


@dataclass(frozen=True)
class Metric:
    """A metric, and how tables show it.

    Parameters
    ----------
    label
        Name in tables and figures.
    higher_is_better
        Direction of improvement.
    evaluation
        Class that computes it; not of columns that only tables have.
    needs
        Options that it takes: ``"noise"`` for those of :class:`.NoiseSettings`, and names of others.
    digits
        Digits after the decimal point.
    show_std
        Whether tables show the standard deviation over people, as the paper does.
    in_paper
        Whether it is one of the paper's eight; others are computed on request.

    Examples
    --------
    >>> from rose_carla.metrics import METRICS
    >>> METRICS["Acc_AIR"].label, METRICS["Acc_AIR"].higher_is_better
    ('Acc AIR', False)
    """

    label: str
    higher_is_better: bool
    evaluation: type[Evaluation] = Evaluation  # type: ignore[type-abstract]
    needs: tuple[str, ...] = ()
    digits: int = 2
    show_std: bool = True
    in_paper: bool = True


#: All metrics by result column: the paper's eight in its order, then those on request.
METRICS: Mapping[str, Metric] = {
    "Validity": Metric("Validity", True, Validity, show_std=False),
    "Sparsity": Metric("Sparsity", False, Sparsity),
    "Proximity": Metric("Proximity", False, Proximity),
    "Recourse_Time": Metric("Time (s)", False, RecourseTime, ("seconds",), digits=3, show_std=False),
    "Log_Density": Metric("Log density", True, LogDensity, ("noise",)),
    "Gaussian_AIR": Metric("Gaussian AIR", False, GaussianAIR, ("noise",)),
    "Plausible_AIR": Metric("Plausible AIR", False, PlausibleAIR, ("noise",)),
    "Acc_AIR": Metric("Acc AIR", False, AccAIR, ("noise", "plans")),
    "Closed_Loop_AIR": Metric(
        "Closed-loop AIR",
        False,
        ClosedLoopAIR,
        ("noise", "method", *(each.name for each in fields(ClosedLoopSettings))),
        in_paper=False,
    ),
}
#: Columns of the paper's eight metrics.
PAPER_METRICS = tuple(column for column, metric in METRICS.items() if metric.in_paper)


def compute_metric(
    column: str,
    mlmodel: MLModel,
    factuals: pd.DataFrame,
    counterfactuals: pd.DataFrame,
    noise: Mapping[str, Any],
    given: Mapping[str, Any],
) -> pd.DataFrame:
    """Compute one of :data:`METRICS`, one row per factual.

    Parameters
    ----------
    column
        Result column of the metric.
    noise
        Options of metrics that use noise.
    given
        Other options by name; those that the metric does not need are left out.
    """
    metric = METRICS[column]
    options = {**(noise if "noise" in metric.needs else {}), **{n: given[n] for n in metric.needs if n in given}}
    return metric.evaluation(mlmodel, options).get_evaluation(factuals, counterfactuals)
