"""How noise is applied when recourse is judged: the paper's values are the defaults."""

from __future__ import annotations

from dataclasses import dataclass

from rose_carla._lib.params import Hyperparameters, factor, flag, integer, number, seed
from rose_carla.errors import NoiseError


@dataclass(frozen=True)
class NoiseSettings(Hyperparameters):
    """Options of the robustness metrics."""

    error = NoiseError

    #: Variance of one-off noise, Gaussian and plausible.
    variance: float = number(0.01, ge=0)
    #: Variance of the noise of one unit of action, in accumulated noise: 5 % of the one-off noise.
    unit_variance: float = number(0.0005, ge=0)
    #: Size of a unit of action, u.
    action_unit: float = number(0.025, gt=0)
    #: Noisy versions of each counterfactual, and noisy tries of each plan.
    n_samples: int = integer(1000)
    #: Bandwidth, ridge and most kernels of the density; see :class:`rose_carla.noise.Density`.
    bandwidth: str | float = factor("scott", names=("scott", "silverman"))
    ridge: float = number(1e-6, ge=0)
    max_points: int = integer(50_000, ge=2)
    #: Move noisy categorical features to their nearest valid encoding before they are classified. The paper, like the
    #: literature on Gaussian noise, classifies them as they are.
    project_categories: bool = flag(False)
    #: Of the Wilson intervals.
    confidence: float = number(0.95, gt=0, lt=1)
    #: Row i of every method sees the same noise for the same seed.
    seed: int = seed()
