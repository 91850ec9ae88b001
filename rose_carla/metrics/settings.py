"""How noise is applied when recourse is judged: the paper's values are the defaults."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from rose_carla.errors import NoiseError, unknown_name


@dataclass(frozen=True)
class NoiseSettings:
    """Options of the robustness metrics.

    Parameters
    ----------
    variance
        Variance of one-off noise, Gaussian and plausible.
    unit_variance
        Variance of the noise of one unit of action, in accumulated noise: 5 % of the one-off noise.
    action_unit
        Size of a unit of action, u.
    n_samples
        Noisy versions of each counterfactual, and noisy tries of each plan.
    bandwidth, ridge, max_points
        Of the density; see :class:`rose_carla.noise.Density`.
    project_categories
        Move noisy categorical features to their nearest valid encoding before they are classified. The paper, like
        the literature on Gaussian noise, classifies them as they are.
    confidence
        Of the Wilson intervals.
    seed
        Row i of every method sees the same noise for the same seed.
    """

    variance: float = 0.01
    unit_variance: float = 0.0005
    action_unit: float = 0.025
    n_samples: int = 1000
    bandwidth: str | float = "scott"
    ridge: float = 1e-6
    max_points: int = 50_000
    project_categories: bool = False
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("variance", "unit_variance", "ridge"):
            if not 0 <= getattr(self, name) < math.inf:
                raise NoiseError(f"{name} has to be finite and not negative, got {getattr(self, name)}.")
        for name, least in (("n_samples", 1), ("max_points", 2), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or value < least:
                raise NoiseError(f"{name} has to be a whole number of at least {least}, got {value!r}.")
        if not 0 < self.action_unit < math.inf:
            raise NoiseError(f"action_unit has to be finite and above 0, got {self.action_unit}.")
        if not 0 < self.confidence < 1:
            raise NoiseError(f"confidence has to be between 0 and 1, got {self.confidence}.")

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> NoiseSettings:
        """Settings from a mapping; an unknown key is an error that names the close match."""
        known = [field.name for field in dataclasses.fields(cls)]
        for key in options or {}:
            if key not in known:
                raise NoiseError(unknown_name("hyper-parameter", key, known))
        return cls(**(options or {}))
