"""ARAR: recourse that is robust to uncertainty about the person (Dominguez-Olmedo et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from rose_carla._lib.params import integer, number
from rose_carla._lib.runtime import Deadline
from rose_carla.baselines.box import Box, within
from rose_carla.baselines.descent import Look, Schedule, descend
from rose_carla.baselines.gradient import GradientMethod
from rose_carla.baselines.linear import cheapest_change
from rose_carla.baselines.one_shot import OneShotSettings
from rose_carla.mdp.noise_models import final_states
from rose_carla.models import Logit, favourable
from rose_carla.noise import Claim, InvalidationRate
from tqdm.auto import tqdm

#: By how much, relative to the score that is needed, the exact solution overshoots: classifiers compute in single
#: precision.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class ArarSettings(OneShotSettings):
    """Options of ARAR."""

    #: Radius of the ball of people around the factual who have to be helped by the same change.
    epsilon: float = number(0.01, ge=0)
    #: Weight lambda of the distance in the first round, and the factor by which it falls from round to round.
    distance_weight: float = number(1.0, ge=0)
    decay: float = number(0.9, gt=0, lt=1)
    #: Step size of Adam.
    learning_rate: float = number(0.1, gt=0)
    #: Steps to a round, and rounds.
    n_steps: int = integer(10)
    n_rounds: int = integer(60)
    #: Steps by which the worst person in the ball is looked for.
    n_adversary: int = integer(1)
    #: Steps for which a cheaper point is looked for after the first one that is accepted.
    patience: int = integer(10, ge=0)

    presets = {"paper": {"epsilon": 0.01}}


def adversary(g: Logit, points: torch.Tensor, epsilon: float, n_steps: int = 1) -> torch.Tensor:
    r"""The worst points (b, d) in balls of radius epsilon around ``points``, to first order.

    .. math:: x' - \epsilon \frac{\nabla g(x')}{\lVert \nabla g(x') \rVert_2}

    is exact for a linear g. More steps of projected gradient descent look further into the ball.
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
    r"""ARAR: a change that helps everybody in a ball around the person.

    For a linear classifier the exact solution of

    .. math:: \min \lVert a \rVert_1 \quad \text{s.t.} \quad w \cdot (x + a) + b \ge \epsilon \lVert w \rVert_2

    with bounds, immutable features and categories. For others

    .. math:: \max_{\lVert u \rVert_2 \le \epsilon} \ell(h(x + a + u), 1) + \lambda \lVert a \rVert_1

    is minimised by Adam, with the inner maximum by :func:`adversary`, for falling lambda, until the point and the worst
    one around it are both favourable.

    Parameters
    ----------
    mlmodel
        A CARLA model with the torch backend.
    hyperparams
        Options of :class:`ArarSettings`; ``{"preset": "paper"}`` takes those of the ROSE paper.

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

    def _search(self, rows: np.ndarray, deadline: Deadline, bar: tqdm) -> np.ndarray:
        if self._linear is None or self.settings.reference_quirks:
            return self._descend(rows, deadline, bar)
        if deadline.passed:
            return np.full(rows.shape, np.nan)
        weights, bias = self._linear
        logits = rows @ weights + bias
        needed = self.settings.epsilon * np.linalg.norm(weights) - logits + _ROUNDING * (1 + np.abs(logits))
        changes, cost = cheapest_change(rows, needed, weights, self._mlmodel)
        bar.update(len(rows))
        return np.where(np.isfinite(cost)[:, None], within(rows + changes, rows), np.nan)

    def _descend(self, rows: np.ndarray, deadline: Deadline, bar: tqdm) -> np.ndarray:
        s, quirks = self.settings, self.settings.reference_quirks
        score = self._score(rows)

        def objective(look: Look) -> torch.Tensor:
            g = score(look)
            worst = adversary(g, look.points, s.epsilon, s.n_adversary) - look.points.detach()
            return torch.nn.functional.softplus(-g(look.points + worst))

        def accept(look: Look, change: torch.Tensor) -> torch.Tensor:
            g = score(look)
            return (g(look.points) > 0) & (g(adversary(g, look.points, s.epsilon, s.n_adversary)) > 0)

        weights = tuple(s.distance_weight * s.decay**k for k in range(s.n_rounds))
        box = Box(self._mlmodel, "relaxed", clamp=False) if quirks else Box(self._mlmodel)
        schedule = Schedule(weights, s.n_steps, s.learning_rate, 0 if quirks else s.patience)
        return descend(rows, objective, accept, box, schedule, deadline, bar)

    def claim(self) -> Claim | None:
        """A linear classifier accepts all points in the ball; of others only the worst to first order is promised."""
        if self._linear is None:
            return None
        words = f"ARAR: everybody within {self.settings.epsilon:g} of the counterfactual is accepted"
        return Claim(words, 0.0, self._judge)

    def _judge(
        self,
        factuals: np.ndarray,
        plans: Sequence[np.ndarray],
        n_samples: int,
        rng: np.random.Generator,
        confidence: float,
    ) -> InvalidationRate:
        """Share of points on the sphere around the ends, random ones and the worst, that are not favourable."""
        assert self._linear is not None
        away = np.vstack([rng.standard_normal((n_samples - 1, factuals.shape[1])), -self._linear[0]])
        away *= self.settings.epsilon / np.linalg.norm(away, axis=1, keepdims=True)
        accepts = favourable(self._mlmodel)
        failures = np.array([(~accepts(end + away)).sum() for end in final_states(factuals, plans)])
        return InvalidationRate.from_failures(failures, n_samples, confidence)
