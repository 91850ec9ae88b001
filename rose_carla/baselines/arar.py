"""ARAR: recourse robust to uncertainty about the person (Dominguez-Olmedo et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from rose_carla._lib.params import integer, number
from rose_carla._lib.runtime import Deadline
from rose_carla.baselines.gradient_descent import (
    Batch,
    Constraints,
    GradientMethod,
    Linear,
    Schedule,
    clip_to_bounds,
    descend,
)
from rose_carla.baselines.linear_classifiers import cheapest_change
from rose_carla.method import OneShotSettings
from rose_carla.models import Logit, favourable
from rose_carla.noise import Claim
from tqdm.auto import tqdm

#: Relative overshoot of the exact solution: classifiers compute in single precision.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class ArarSettings(OneShotSettings):
    """Hyper-parameters of ARAR."""

    #: Radius of the ball of people around the factual for whom the same change must succeed.
    epsilon: float = number(0.01, ge=0)
    #: Weight lambda of the distance in the first round, and its factor from round to round.
    distance_weight: float = number(1.0, ge=0)
    decay: float = number(0.9, gt=0, lt=1)
    #: Learning rate of Adam.
    learning_rate: float = number(0.1, gt=0)
    #: Steps per round, and number of rounds.
    n_steps: int = integer(10)
    n_rounds: int = integer(60)
    #: Steps of the search for the worst point in the ball.
    n_adversary: int = integer(1)
    #: Further steps in search of a cheaper point after the first accepted one.
    patience: int = integer(10, ge=0)

    presets = {"paper": {"epsilon": 0.01}}


def adversary(g: Logit, points: torch.Tensor, epsilon: float, n_steps: int = 1) -> torch.Tensor:
    r"""Return the worst points (b, d) in balls of radius epsilon around ``points``, to first order.

    .. math:: x' - \epsilon \frac{\nabla g(x')}{\lVert \nabla g(x') \rVert_2}

    is exact for a linear g. More steps are projected gradient descent inside the ball.
    """
    worst = points.detach()
    for _ in range(n_steps):
        with torch.enable_grad():
            at = worst.requires_grad_()
            (gradient,) = torch.autograd.grad(g(at).sum(), at)
        length = epsilon if n_steps == 1 else 2.5 * epsilon / n_steps
        moved = at.detach() - length * gradient / gradient.norm(dim=1, keepdim=True).clamp_min(1e-12)
        away = moved - points.detach()
        worst = points.detach() + away * (epsilon / away.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp_max(1.0)
    return worst


class Arar(GradientMethod):
    r"""ARAR: a change that succeeds for all points in a ball around the person.

    For a linear classifier it is the exact solution of

    .. math:: \min \lVert a \rVert_1 \quad \text{s.t.} \quad w \cdot (x + a) + b \ge \epsilon \lVert w \rVert_2

    with bounds, immutable features and categories. For others,

    .. math:: \max_{\lVert u \rVert_2 \le \epsilon} \ell(h(x + a + u), 1) + \lambda \lVert a \rVert_1

    is minimised by Adam with decreasing lambda and the inner maximum by :func:`adversary`, until the point and the
    worst one around it are both favourable.

    Parameters
    ----------
    mlmodel
        A CARLA model with the torch backend.
    hyperparams
        Options of :class:`ArarSettings`; ``{"preset": "paper"}`` for those of the ROSE paper.

    Examples
    --------
    >>> from rose_carla import baselines, datasets, models
    >>> model = models.train(datasets.load("compas"), "linear")
    >>> factuals = models.negative_instances(model).head(5)
    >>> counterfactuals = baselines.Arar(model).get_counterfactuals(factuals)
    >>> bool(models.favourable(model)(counterfactuals.to_numpy()).all())
    True
    """

    name = "ARAR"
    settings_class = ArarSettings
    settings: ArarSettings

    def search(self, rows: np.ndarray, deadline: Deadline, bar: tqdm) -> np.ndarray:
        if self._linear is None or self.settings.reference_quirks:
            return self._descend(rows, deadline, bar)
        if deadline.passed:
            return np.full(rows.shape, np.nan)
        weights, bias = self._linear
        logits = rows @ weights + bias
        needed = self.settings.epsilon * np.linalg.norm(weights) - logits + _ROUNDING * (1 + np.abs(logits))
        changes, cost = cheapest_change(rows, needed, weights, self._mlmodel)
        bar.update(len(rows))
        return np.where(np.isfinite(cost)[:, None], clip_to_bounds(rows + changes, rows), np.nan)

    def _descend(self, rows: np.ndarray, deadline: Deadline, bar: tqdm) -> np.ndarray:
        s, quirks = self.settings, self.settings.reference_quirks
        scores = self._scores(rows)

        def objective(batch: Batch) -> torch.Tensor:
            g = scores(batch.rows)
            worst = adversary(g, batch.points, s.epsilon, s.n_adversary) - batch.points.detach()
            return torch.nn.functional.softplus(-g(batch.points + worst))

        def accept(batch: Batch, change: torch.Tensor) -> torch.Tensor:
            g = scores(batch.rows)
            return (g(batch.points) > 0) & (g(adversary(g, batch.points, s.epsilon, s.n_adversary)) > 0)

        weights = tuple(s.distance_weight * s.decay**k for k in range(s.n_rounds))
        constraints = Constraints(self._mlmodel, "relaxed", clamp=False) if quirks else Constraints(self._mlmodel)
        schedule = Schedule(weights, s.n_steps, s.learning_rate, 0 if quirks else s.patience)
        return descend(rows, objective, accept, constraints, schedule, deadline, bar)

    def claim(self) -> Claim | None:
        """Return the claim that a linear classifier accepts all points in the ball; None for other classifiers."""
        words = f"all points within {self.settings.epsilon:g} of the counterfactual are accepted"
        return self._linear_claim(words, self._failures)

    def _failures(self, linear: Linear, ends: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Count the unfavourable points on spheres around the ends: random ones and the worst."""
        offsets = np.vstack([rng.standard_normal((n_samples - 1, ends.shape[1])), -linear[0]])
        offsets *= self.settings.epsilon / np.linalg.norm(offsets, axis=1, keepdims=True)
        accepts = favourable(self._mlmodel)
        return np.array([(~accepts(end + offsets)).sum() for end in ends])
