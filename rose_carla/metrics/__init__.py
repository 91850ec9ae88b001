"""The paper's metrics, with the interfaces of both CARLA releases."""

from rose_carla.metrics.benchmark import Benchmark
from rose_carla.metrics.closed_loop_air import ClosedLoopAIR, ClosedLoopSettings
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
from rose_carla.metrics.registry import METRICS, PAPER_METRICS, Metric, compute_metric

__all__ = [
    "METRICS",
    "PAPER_METRICS",
    "AccAIR",
    "Benchmark",
    "ClosedLoopAIR",
    "ClosedLoopSettings",
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
    "compute_metric",
]
