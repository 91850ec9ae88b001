"""The paper's metrics, with the interfaces of both CARLA releases."""

from rose_carla.metrics.benchmark import Benchmark
from rose_carla.metrics.evaluations import (
    METRICS,
    AccAIR,
    Evaluation,
    GaussianAIR,
    LogDensity,
    Metric,
    NoiseSettings,
    PlausibleAIR,
    Proximity,
    RecourseTime,
    Sparsity,
    Validity,
    align,
)

__all__ = [
    "METRICS",
    "AccAIR",
    "Benchmark",
    "Evaluation",
    "GaussianAIR",
    "LogDensity",
    "Metric",
    "NoiseSettings",
    "PlausibleAIR",
    "Proximity",
    "RecourseTime",
    "Sparsity",
    "Validity",
    "align",
]
