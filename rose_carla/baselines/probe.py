"""PROBE: probabilistically robust recourse (Pawelczyk et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from rose_carla._lib.params import integer, number
from rose_carla._lib.runtime import Deadline
from rose_carla.baselines.gradient_descent import Batch, Constraints, GradientMethod, Schedule, descend
from rose_carla.method import OneShotSettings
from rose_carla.models import Logit
from rose_carla.noise import Claim
from tqdm.auto import tqdm

#: Decrease of the distance weight from round to round.
_LESS = 0.1
#: The published implementation's target probability.
_PUBLISHED_TARGET = 0.55
#: Its steps per round; it runs until the time limit.
_PUBLISHED_STEPS, _PUBLISHED_ROUNDS = 200, 5000


@dataclass(frozen=True)
class ProbeSettings(OneShotSettings):
    """Hyper-parameters of PROBE."""

    timeout: float = number(30.0, ge=0)
    #: Target invalidation rate r.
    invalidation_target: float = number(0.35, gt=0, lt=1)
    #: Variance of the Gaussian noise.
    variance: float = number(0.01, gt=0)
    #: Tolerance above the target.
    tolerance: float = number(0.01, ge=0)
    #: Weight a of the robustness term.
    robustness_weight: float = number(3.0, ge=0)
    #: Weight lambda of the distance in the first round; 0.1 less in each further round, but at least 0.
    distance_weight: float = number(0.01, ge=0)
    #: Learning rate of Adam.
    learning_rate: float = number(1e-3, gt=0)
    #: Steps per round, and number of rounds.
    n_steps: int = integer(1000)
    n_rounds: int = integer(2)
    #: Further steps in search of a cheaper point after the first accepted one.
    patience: int = integer(20, ge=0)
    #: Steps without a decrease of the loss after which a round ends.
    stall: int = integer(100)
    #: Noisy versions in the Monte Carlo check.
    n_samples: int = integer(1000)

    presets = {"paper": {"invalidation_target": 0.35, "variance": 0.01, "timeout": 30.0}}


def invalidation(g: Logit, points: torch.Tensor, variance: float) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Return logits g(x') and first-order invalidation rates D(x') under Gaussian noise, differentiable (b,) each.

    .. math:: D(x') = 1 - \Phi\left(\frac{g(x')}{\sigma \lVert \nabla g(x') \rVert_2}\right)

    is exact for a linear g.
    """
    with torch.enable_grad():
        if not points.requires_grad:
            points = points.detach().requires_grad_()
        values = g(points)
        (gradients,) = torch.autograd.grad(values.sum(), points, create_graph=True)
    spread = variance**0.5 * gradients.norm(dim=1).clamp_min(1e-12)
    return values, torch.special.ndtr(-values / spread)


class Probe(GradientMethod):
    r"""PROBE: recourse whose invalidation rate under Gaussian noise stays below a target.

    Minimises for each person

    .. math::
        a \max(0, D(x') - r) + \ell(h(x'), 1) + \lambda \lVert x' - x \rVert_1, \qquad
        D(x') = 1 - \Phi\left(\frac{g(x')}{\sigma \lVert \nabla g(x') \rVert_2}\right)

    by Adam, with binary cross-entropy as loss. A point is accepted when it is favourable and its invalidation rate, by
    formula and by Monte Carlo, is below r + tolerance; without one, lambda is lowered. The cheapest is kept.

    Parameters
    ----------
    mlmodel
        A CARLA model with the torch backend.
    hyperparams
        Options of :class:`ProbeSettings`; ``{"preset": "paper"}`` for those of the ROSE paper.

    Examples
    --------
    >>> from rose_carla import baselines, datasets, models
    >>> model = models.train(datasets.load("compas"), "linear")
    >>> factuals = models.negative_instances(model).head(5)
    >>> counterfactuals = baselines.Probe(model).get_counterfactuals(factuals)
    >>> bool(models.favourable(model)(counterfactuals.to_numpy()).all())
    True
    """

    name = "PROBE"
    settings_class = ProbeSettings
    settings: ProbeSettings

    def search(self, rows: np.ndarray, deadline: Deadline, bar: tqdm) -> np.ndarray:
        s, quirks = self.settings, self.settings.reference_quirks
        generator = torch.Generator().manual_seed(s.seed)
        noise = s.variance**0.5 * torch.randn(s.n_samples, rows.shape[1], generator=generator)
        limit = s.invalidation_target + s.tolerance
        target = _PUBLISHED_TARGET if quirks else 1.0

        def objective(batch: Batch) -> torch.Tensor:
            values, rates = invalidation(self._logit, batch.points, s.variance)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                values, torch.full_like(values, target), reduction="none"
            )
            return s.robustness_weight * (rates - s.invalidation_target).clamp_min(0) + loss

        def accept(batch: Batch, change: torch.Tensor) -> torch.Tensor:
            values, rates = invalidation(self._logit, batch.points, s.variance)
            good = values > 0
            if not quirks:
                good &= rates < limit
            chosen = torch.nonzero(good).squeeze(1)
            good[chosen] = monte_carlo(self._logit, batch.points[chosen], noise) < limit
            return good

        n_steps, n_rounds = (_PUBLISHED_STEPS, _PUBLISHED_ROUNDS) if quirks else (s.n_steps, s.n_rounds)
        decreasing = [s.distance_weight - _LESS * k for k in range(n_rounds)]
        weights = decreasing if quirks else [max(weight, 0.0) for weight in decreasing]
        constraints = Constraints(self._mlmodel, "relaxed", clamp=False) if quirks else Constraints(self._mlmodel)
        schedule = Schedule(tuple(weights), n_steps, s.learning_rate, s.patience, 0 if quirks else s.stall, not quirks)
        return descend(rows, objective, accept, constraints, schedule, deadline, bar)

    def claim(self) -> Claim:
        """Return the claim that the invalidation rate under Gaussian noise is at most r + tolerance."""
        s = self.settings
        return self._gaussian_claim("r + tolerance", s.invalidation_target + s.tolerance, s.variance)


def monte_carlo(g: Logit, points: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Return the unfavourable share (b,) of noisy versions of each point, with ``noise`` (k, d) around it."""
    rates = [(g(point + noise) <= 0).double().mean() for point in points]
    return torch.stack(rates) if rates else torch.empty(0, dtype=torch.double)
