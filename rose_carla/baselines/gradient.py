"""Baselines that follow gradients: what they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from carla.models.api import MLModel
from rose_carla.baselines.descent import Look
from rose_carla.baselines.linear import linear_weights, probability_surrogate
from rose_carla.baselines.one_shot import OneShot
from rose_carla.mdp import OneOff
from rose_carla.models import Logit, favourable, logit
from rose_carla.noise import Claim, GaussianNoise


class GradientMethod(OneShot):
    """Base of the baselines that need a differentiable torch model."""

    def __init__(self, mlmodel: MLModel, hyperparams: Mapping[str, Any] | None = None) -> None:
        super().__init__(mlmodel, hyperparams)
        self._logit = logit(mlmodel, self.name)

    @cached_property
    def _linear(self) -> tuple[np.ndarray, float] | None:
        """Weights and bias, if the classifier is linear."""
        return linear_weights(self._logit, self._mlmodel)

    def _gaussian_claim(self, words: str, limit: float, variance: float) -> Claim:
        """That the invalidation rate under Gaussian noise is at most ``limit``, which is called ``words``."""
        noise = OneOff(favourable(self._mlmodel), GaussianNoise(), variance, n_samples=1)
        return Claim(f"{self.name}: Gaussian invalidation rate at most {words} = {limit:g}", limit, noise.evaluate)

    def _score(self, rows: np.ndarray) -> Callable[[Look], Logit]:
        """What is followed from ``rows``: the logit; in published ports, if it is not linear, a surrogate for it."""
        if self.settings.reference_quirks and self._linear is None:
            return probability_surrogate(self._logit, rows, self._mlmodel, self.settings.seed)
        return lambda look: self._logit
