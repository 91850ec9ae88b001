"""CROCO: cost-robust counterfactuals with a bound on the invalidation rate (Guyomard et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from rose_carla._lib.params import integer, number, numbers
from rose_carla._lib.runtime import Deadline
from rose_carla.baselines.gradient_descent import Batch, Constraints, GradientMethod, Schedule, descend
from rose_carla.errors import PlanError
from rose_carla.method import OneShotSettings
from rose_carla.models import Logit
from rose_carla.noise import Claim
from tqdm.auto import tqdm

#: Tolerance of the bound above its target.
_TOLERANCE = 0.01
#: Numbers of noisy versions and tolerances that reject most points early.
_EARLY_CHECKS = ((32, 0.1), (128, 0.04))
#: Noisy rows per call of the classifier, so that activations fit into the cache.
_CHUNK = 8192


@dataclass(frozen=True)
class CrocoSettings(OneShotSettings):
    """Hyper-parameters of CROCO."""

    #: Target D_t of the bound on the invalidation rate.
    target: float = number(0.3, gt=0, lt=1)
    #: Variance of the Gaussian noise.
    variance: float = number(0.01, gt=0)
    #: Noisy versions K of the bound.
    n_samples: int = integer(500)
    #: Fresh noisy versions per gradient; the published implementation takes K.
    n_gradient: int = integer(50)
    #: Slack m of the bound.
    slack: float = number(0.1, gt=0, lt=1)
    #: Probability t above which a point is favourable.
    threshold: float = number(0.5, ge=0.5, lt=1)
    #: Weights lambda of the distance, one per round; the published ones end at 0.25.
    distance_weights: tuple[float, ...] = numbers(
        (1.0, 0.75, 0.5, 0.25, 0.0), ge=0, words="a list of numbers of at least 0"
    )
    #: Learning rate of Adam.
    learning_rate: float = number(0.01, gt=0)
    #: Steps per round.
    n_steps: int = integer(1000)
    #: Further steps in search of a cheaper point after the first accepted one.
    patience: int = integer(50, ge=0)
    #: Steps without a decrease of the loss after which a round ends.
    stall: int = integer(50)

    presets = {"paper": {"target": 0.3, "variance": 0.01, "n_samples": 500, "slack": 0.1}}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reference_quirks and not any(weight > 0 for weight in self.distance_weights):
            raise PlanError(
                "With reference_quirks one of distance_weights must be above 0: rounds with weight 0 are left out."
            )
        least = self.slack / (1 - self.threshold)
        if self.target <= least:
            raise PlanError(
                f"target must be above m / (1 - t) = {least:g}, got {self.target:g}: the bound (m + Theta) / (1 - t) "
                "is never below it. Take a larger target or a smaller slack."
            )


def bound(theta: torch.Tensor, slack: float, threshold: float) -> torch.Tensor:
    r"""Return the upper bound on the invalidation rate by Markov's and Hoeffding's inequalities.

    .. math:: B = \frac{m + \Theta_K}{1 - t}, \qquad \Theta_K = \frac{1}{K} \sum_k 1 - h(x' + \epsilon_k)

    It holds with probability at least 1 - exp(-2 m^2 K).
    """
    return (slack + theta) / (1 - threshold)


def theta(g: Logit, points: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Return the mean unfavourable probability (b,) of points (b, d) with ``noise`` (k, d) around each."""
    parts = points.split(max(1, _CHUNK // len(noise)))
    return torch.cat([torch.sigmoid(-g(_around(part, noise))).reshape(-1, len(noise)).mean(dim=1) for part in parts])


def _around(points: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    return (points[:, None, :] + noise).reshape(-1, points.shape[1])


class Croco(GradientMethod):
    r"""CROCO: recourse with a guaranteed bound on its invalidation rate under Gaussian noise.

    Minimises for each person

    .. math::
        (B(x') - D_t)^2 + (1 - h(x'))^2 + \lambda \lVert x' - x \rVert_1, \qquad B = \frac{m + \Theta_K}{1 - t}

    by Adam with fresh noise at every step and decreasing lambda. A point is accepted when h(x') > t and, on noise that
    is not used for gradients, B < D_t + 0.01; the cheapest is kept.

    Parameters
    ----------
    mlmodel
        A CARLA model with the torch backend.
    hyperparams
        Options of :class:`CrocoSettings`; ``{"preset": "paper"}`` for those of the ROSE paper.

    Examples
    --------
    >>> from rose_carla import baselines, datasets, models
    >>> model = models.train(datasets.load("compas", all_actionable=True), "linear")
    >>> factuals = models.negative_instances(model).head(5)
    >>> counterfactuals = baselines.Croco(model).get_counterfactuals(factuals)
    >>> bool(models.favourable(model)(counterfactuals.to_numpy()).all())
    True
    """

    name = "CROCO"
    settings_class = CrocoSettings
    settings: CrocoSettings

    def search(self, rows: np.ndarray, deadline: Deadline, bar: tqdm) -> np.ndarray:
        s, quirks = self.settings, self.settings.reference_quirks
        generator = torch.Generator().manual_seed(s.seed)
        constraints = Constraints(self._mlmodel, "fixed", clamp=False) if quirks else Constraints(self._mlmodel)
        # with quirks noisy categories are rounded, which removes their noise
        spread = s.variance**0.5 * (~constraints.categorical if quirks else torch.ones(rows.shape[1]))
        n_gradient = s.n_samples if quirks else s.n_gradient
        check = s.variance**0.5 * torch.randn(s.n_samples, rows.shape[1], generator=generator)

        def objective(batch: Batch) -> torch.Tensor:
            noise = spread * torch.randn(n_gradient, rows.shape[1], generator=generator)
            found = bound(theta(self._logit, batch.points, noise), s.slack, s.threshold)
            return (found - s.target) ** 2 + torch.sigmoid(-self._logit(batch.points)) ** 2

        def accept(batch: Batch, change: torch.Tensor) -> torch.Tensor:
            good = torch.sigmoid(self._logit(batch.points)) > s.threshold
            if quirks:
                return good
            for n, more in (*_EARLY_CHECKS, (s.n_samples, 0.0)):
                chosen = torch.nonzero(good).squeeze(1)
                found = bound(theta(self._logit, batch.points[chosen], check[:n]), s.slack, s.threshold)
                good[chosen] = found < s.target + _TOLERANCE + more
            return good

        weights = tuple(weight for weight in s.distance_weights if weight > 0 or not quirks)
        schedule = Schedule(weights, s.n_steps, s.learning_rate, s.patience, 0 if quirks else s.stall, not quirks)
        return descend(rows, objective, accept, constraints, schedule, deadline, bar)

    def claim(self) -> Claim:
        """Return the claim that the invalidation rate under Gaussian noise is at most the target of the bound."""
        s = self.settings
        return self._gaussian_claim("D_t + 0.01", s.target + _TOLERANCE, s.variance)
