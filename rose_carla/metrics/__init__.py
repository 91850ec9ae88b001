"""The paper's metrics, in the two styles of CARLA's releases."""

from rose_carla.metrics.alignment import align
from rose_carla.metrics.benchmark import Benchmark
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

__all__ = [
    "AccAIR",
    "Benchmark",
    "Evaluation",
    "GaussianAIR",
    "LogDensity",
    "NoiseSettings",
    "PlausibleAIR",
    "Proximity",
    "RecourseTime",
    "Sparsity",
    "Validity",
    "align",
]
