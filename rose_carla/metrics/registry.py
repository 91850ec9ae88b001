"""The list of metrics that benchmarks, tables, figures and the command line use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
    needs_noise
        Whether its options are those of :class:`.NoiseSettings`.
    digits
        Digits after the decimal point.
    show_std
        Whether tables show the standard deviation over people, as the paper does.

    Examples
    --------
    >>> from rose_carla.metrics import METRICS
    >>> METRICS["Acc_AIR"].label, METRICS["Acc_AIR"].higher_is_better
    ('Acc AIR', False)
    """

    label: str
    higher_is_better: bool
    evaluation: type[Evaluation] = Evaluation  # type: ignore[type-abstract]
    needs_noise: bool = False
    digits: int = 2
    show_std: bool = True


#: The paper's eight metrics in its order, by result column.
METRICS: Mapping[str, Metric] = {
    "Validity": Metric("Validity", True, Validity, show_std=False),
    "Sparsity": Metric("Sparsity", False, Sparsity),
    "Proximity": Metric("Proximity", False, Proximity),
    "Recourse_Time": Metric("Time (s)", False, RecourseTime, digits=3, show_std=False),
    "Log_Density": Metric("Log density", True, LogDensity, needs_noise=True),
    "Gaussian_AIR": Metric("Gaussian AIR", False, GaussianAIR, needs_noise=True),
    "Plausible_AIR": Metric("Plausible AIR", False, PlausibleAIR, needs_noise=True),
    "Acc_AIR": Metric("Acc AIR", False, AccAIR, needs_noise=True),
}
