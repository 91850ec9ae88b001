"""CROCO: cost-robust counterfactuals with a bound on the invalidation rate (Guyomard et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from rose_carla._lib.params import integer, number, numbers
from rose_carla._lib.runtime import Deadline
from rose_carla.baselines.box import Box
from rose_carla.baselines.descent import Look, Schedule, descend
from rose_carla.baselines.gradient import GradientMethod
from rose_carla.baselines.one_shot import OneShotSettings
from rose_carla.errors import PlanError
from rose_carla.models import Logit
from rose_carla.noise import Claim
from tqdm.auto import tqdm

#: By how much the bound may be above its target.
_TOLERANCE = 0.01
#: Most points are far from it: so few noisy versions, and a bound that is so much too high, are enough to tell.
_SURELY = ((32, 0.1), (128, 0.04))
#: Noisy rows that are classified together: what a network computes for more of them does not fit into a cache.
_TOGETHER = 8192


@dataclass(frozen=True)
class CrocoSettings(OneShotSettings):
    """Options of CROCO."""

    #: Target D_t of the bound on the invalidation rate.
    target: float = number(0.3, gt=0, lt=1)
    #: Variance of the Gaussian noise.
    variance: float = number(0.01, gt=0)
    #: Noisy versions K behind the bound.
    n_samples: int = integer(500)
    #: Fresh noisy versions behind each gradient; the published implementation takes K of them.
    n_gradient: int = integer(50)
    #: Slack m of the bound.
    slack: float = number(0.1, gt=0, lt=1)
    #: Probability t from which on a point is favourable.
    threshold: float = number(0.5, ge=0.5, lt=1)
    #: Weights lambda of the distance, one round each; the published ones end at 0.25.
    distance_weights: tuple[float, ...] = numbers(
        (1.0, 0.75, 0.5, 0.25, 0.0), ge=0, words="a list of numbers from 0 on"
    )
    #: Step size of Adam.
    learning_rate: float = number(0.01, gt=0)
    #: Steps to a round.
    n_steps: int = integer(1000)
    #: Steps for which a cheaper point is looked for after the first one that is accepted.
    patience: int = integer(50, ge=0)
    #: Steps without a falling loss after which a round ends before its time.
    stall: int = integer(50)

    presets = {"paper": {"target": 0.3, "variance": 0.01, "n_samples": 500, "slack": 0.1}}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reference_quirks and not any(weight > 0 for weight in self.distance_weights):
            raise PlanError("With reference_quirks some of distance_weights have to be above 0: they do not end at 0.")
        least = self.slack / (1 - self.threshold)
        if self.target <= least:
            raise PlanError(
                f"target = {self.target:g} is out of reach: the bound (m + Theta) / (1 - t) is never below "
                f"m / (1 - t) = {least:g}. Take a larger target, or a smaller slack."
            )


def bound(theta: torch.Tensor, slack: float, threshold: float) -> torch.Tensor:
    r"""Upper bound on the invalidation rate by Markov's and Hoeffding's inequalities.

    .. math:: B = \frac{m + \Theta_K}{1 - t}, \qquad \Theta_K = \frac{1}{K} \sum_k 1 - h(x' + \epsilon_k)

    It holds with probability of at least 1 - exp(-2 m^2 K).
    """
    return (slack + theta) / (1 - threshold)


def theta(g: Logit, points: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Mean unfavourable probability (b,) of points (b, d) with ``noise`` (k, d) around each."""
    parts = points.split(max(1, _TOGETHER // len(noise)))
    return torch.cat([torch.sigmoid(-g(_around(part, noise))).reshape(-1, len(noise)).mean(dim=1) for part in parts])


def _around(points: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    return (points[:, None, :] + noise).reshape(-1, points.shape[1])


class Croco(GradientMethod):
    r"""CROCO: recourse with a guaranteed bound on its invalidation rate under Gaussian noise.

    Minimises, for each person,

    .. math::
        (B(x') - D_t)^2 + (1 - h(x'))^2 + \lambda \lVert x' - x \rVert_1, \qquad B = \frac{m + \Theta_K}{1 - t}

    by Adam with fresh noise at every step, for falling lambda. A point is accepted when h(x') > t and, on noise that
    is not used for gradients, B < D_t + 0.01; the cheapest accepted one is kept.

    Parameters
    ----------
    mlmodel
        A CARLA model with the torch backend.
    hyperparams
        Options of :class:`CrocoSettings`; ``{"preset": "paper"}`` takes those of the ROSE paper.

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

    def _search(self, rows: np.ndarray, deadline: Deadline, bar: tqdm) -> np.ndarray:
        s, quirks = self.settings, self.settings.reference_quirks
        generator = torch.Generator().manual_seed(s.seed)
        box = Box(self._mlmodel, "fixed", clamp=False) if quirks else Box(self._mlmodel)
        # with quirks noisy categories are rounded, which takes their noise away
        spread = s.variance**0.5 * (~box.categorical if quirks else torch.ones(rows.shape[1]))
        n_gradient = s.n_samples if quirks else s.n_gradient
        check = s.variance**0.5 * torch.randn(s.n_samples, rows.shape[1], generator=generator)

        def objective(look: Look) -> torch.Tensor:
            noise = spread * torch.randn(n_gradient, rows.shape[1], generator=generator)
            found = bound(theta(self._logit, look.points, noise), s.slack, s.threshold)
            return (found - s.target) ** 2 + torch.sigmoid(-self._logit(look.points)) ** 2

        def accept(look: Look, change: torch.Tensor) -> torch.Tensor:
            good = torch.sigmoid(self._logit(look.points)) > s.threshold
            if quirks:
                return good
            for n, more in (*_SURELY, (s.n_samples, 0.0)):
                chosen = torch.nonzero(good).squeeze(1)
                found = bound(theta(self._logit, look.points[chosen], check[:n]), s.slack, s.threshold)
                good[chosen] = found < s.target + _TOLERANCE + more
            return good

        weights = tuple(weight for weight in s.distance_weights if weight > 0 or not quirks)
        schedule = Schedule(weights, s.n_steps, s.learning_rate, s.patience, 0 if quirks else s.stall, not quirks)
        return descend(rows, objective, accept, box, schedule, deadline, bar)

    def claim(self) -> Claim:
        """The invalidation rate under Gaussian noise is at most the bound that was asked for."""
        s = self.settings
        return self._gaussian_claim("D_t + 0.01", s.target + _TOLERANCE, s.variance)
