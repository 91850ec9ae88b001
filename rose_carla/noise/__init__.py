"""The paper's noise model: density, plausible noise, accumulated noise, invalidation rate."""

from rose_carla.noise.accumulated import (
    NOISE_PER,
    action_sizes,
    continue_from,
    execute,
    noisy_step,
    one_shot_plan,
    unit_actions,
)
from rose_carla.noise.closed_loop import ClosedLoop, closed_loop
from rose_carla.noise.density import Density, density_of
from rose_carla.noise.invalidation import (
    Claim,
    InvalidationRate,
    accumulated_invalidation_rate,
    common_noise,
    invalidation_rate,
    linear_invalidation_rate,
    most_failures_below,
    row_generators,
    wilson_interval,
)
from rose_carla.noise.plausible import GaussianNoise, Noise, PlausibleNoise

__all__ = [
    "NOISE_PER",
    "Claim",
    "ClosedLoop",
    "Density",
    "GaussianNoise",
    "InvalidationRate",
    "Noise",
    "PlausibleNoise",
    "accumulated_invalidation_rate",
    "action_sizes",
    "closed_loop",
    "common_noise",
    "continue_from",
    "density_of",
    "execute",
    "invalidation_rate",
    "linear_invalidation_rate",
    "most_failures_below",
    "noisy_step",
    "one_shot_plan",
    "row_generators",
    "unit_actions",
    "wilson_interval",
]
