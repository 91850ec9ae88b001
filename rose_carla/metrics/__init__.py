"""The paper's metrics, with the interfaces of both CARLA releases."""

from rose_carla.metrics.benchmark import Benchmark
from rose_carla.metrics.evaluations import (
    AccAIR,
    Evaluation,
    GaussianAIR,
    LogDensity,
    NoiseSettings,
    PlausibleAIR,
    Proximity,
    RecourseTime,
    Sparsity,
    Validity,
    align,
)
from rose_carla.metrics.registry import METRICS, Metric

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
