"""Hyper-parameters of ROSE: the paper's values are the defaults."""

from __future__ import annotations

from dataclasses import dataclass

from rose_carla._lib.params import factor, flag, integer, number
from rose_carla.errors import PlanError
from rose_carla.rose.sequential_config import SequentialSettings
from scipy.special import ndtri


@dataclass(frozen=True)
class RoseSettings(SequentialSettings):
    """How ROSE learns and plans."""

    #: Robustness threshold: a plan's invalidation rate is below 1 - tau.
    tau: float = number(0.75, gt=0, lt=1)
    #: Variance of one-off noise (ROSE-one).
    variance: float = number(0.01, ge=0)
    #: Variance of the noise of one unit of action (ROSE-mul).
    unit_variance: float = number(0.0005, ge=0)
    #: Noisy versions of a state (ROSE-one) or people to a plan (ROSE-mul) in training and walking.
    n_samples: int = integer(64, ge=2)
    #: Fresh noisy versions, or people, in the check that a plan has to pass.
    n_check: int = integer(500, ge=10)
    #: One-sided confidence of that check.
    confidence: float = number(0.995, gt=0.5, lt=1)
    #: Search where the policy alone does not get there, and for cheaper features; False is the paper's method.
    search: bool = flag(True)
    #: Take off what is not needed; False is the paper's method.
    shorten: bool = flag(True)
    #: Units of action that one feature less is worth when plans are compared.
    sparsity_weight: float = number(0.5, ge=0)
    #: Bandwidth, ridge and most kernels of the density; see :class:`rose_carla.noise.Density`.
    bandwidth: str | float = factor("scott", names=("scott", "silverman"))
    ridge: float = number(1e-6, ge=0)
    max_points: int = integer(50_000, ge=2)
    #: Move noisy categorical features to their nearest valid encoding before they are classified.
    project_categories: bool = flag(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        z = ndtri(self.confidence)
        least = int(z**2 * self.tau / (1 - self.tau)) + 1
        if self.n_check < least:
            raise PlanError(
                f"n_check = {self.n_check} is too few to be sure of tau = {self.tau:g} at confidence "
                f"{self.confidence:g}, even without a failure: take at least {least}."
            )
