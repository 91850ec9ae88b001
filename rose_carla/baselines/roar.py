"""ROAR: recourse that is robust to shifts of the model (Upadhyay et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from rose_carla._lib.params import integer, number
from rose_carla._lib.runtime import Deadline
from rose_carla.baselines.box import Box
from rose_carla.baselines.descent import Look, Schedule, descend
from rose_carla.baselines.gradient import GradientMethod
from rose_carla.baselines.one_shot import OneShotSettings
from rose_carla.mdp.noise_models import final_states
from rose_carla.noise import Claim, InvalidationRate
from tqdm.auto import tqdm


@dataclass(frozen=True)
class RoarSettings(OneShotSettings):
    """Options of ROAR."""

    #: Largest change of each weight, and of the bias, of the classifier.
    max_shift: float = number(0.01, ge=0)
    #: Weight lambda of the distance.
    distance_weight: float = number(0.01, ge=0)
    #: Step size of Adam.
    learning_rate: float = number(0.1, gt=0)
    #: Change of the loss at which it counts as converged.
    convergence: float = number(1e-3, gt=0)
    #: Most steps.
    n_steps: int = integer(1000)

    presets = {"paper": {"learning_rate": 0.1, "distance_weight": 0.01, "max_shift": 0.01}}


def worst_logit(values: torch.Tensor, points: torch.Tensor, max_shift: float) -> torch.Tensor:
    r"""The lowest logit (b,) at points (b, d) when all weights and the bias shift by up to ``max_shift``.

    .. math:: \min_{\lVert \delta \rVert_\infty \le \delta_{max}} (w + \delta_w) \cdot x' + b + \delta_b
        = w \cdot x' + b - \delta_{max} (\lVert x' \rVert_1 + 1)

    ``values`` are the logits without a shift: of a classifier that is not linear, of its tangent at x'.
    """
    return values - max_shift * (points.abs().sum(dim=1) + 1)


class Roar(GradientMethod):
    r"""ROAR: recourse that stays valid when the weights of the classifier shift.

    Minimises, for each person,

    .. math::
        \max_{\lVert \delta \rVert_\infty \le \delta_{max}} \ell\left(\sigma((w + \delta_w) \cdot x' + b + \delta_b),
        1\right) + \lambda \lVert x' - x \rVert_1

    by Adam; the inner maximum is :func:`worst_logit`. A classifier that is not linear is replaced by its tangent at x',
    anew at every step. A point is accepted when the loss has converged and the worst logit is favourable.

    Parameters
    ----------
    mlmodel
        A CARLA model with the torch backend.
    hyperparams
        Options of :class:`RoarSettings`; ``{"preset": "paper"}`` takes those of the ROSE paper.

    Examples
    --------
    >>> from rose_carla import baselines, datasets, models
    >>> model = models.train(datasets.load("compas"), "linear")
    >>> factuals = models.negative_instances(model).head(5)
    >>> counterfactuals = baselines.Roar(model).get_counterfactuals(factuals)
    >>> bool(models.favourable(model)(counterfactuals.to_numpy()).all())
    True
    """

    name = "ROAR"
    settings_class = RoarSettings
    settings: RoarSettings

    def _search(self, rows: np.ndarray, deadline: Deadline, bar: tqdm) -> np.ndarray:
        s, quirks = self.settings, self.settings.reference_quirks
        score = self._score(rows)

        def worst(look: Look) -> torch.Tensor:
            return worst_logit(score(look)(look.points), look.points, s.max_shift)

        def objective(look: Look) -> torch.Tensor:
            return torch.nn.functional.softplus(-worst(look))

        def accept(look: Look, change: torch.Tensor) -> torch.Tensor:
            return (change <= s.convergence) & (worst(look) > 0)

        box = Box(self._mlmodel, "fixed", clamp=False) if quirks else Box(self._mlmodel)
        schedule = Schedule((s.distance_weight,), s.n_steps, s.learning_rate)
        return descend(rows, objective, accept, box, schedule, deadline, bar)

    def claim(self) -> Claim | None:
        """A linear classifier accepts the counterfactuals under every shift; of others nothing is promised."""
        if self._linear is None:
            return None
        words = f"ROAR: accepted by every classifier with weights shifted by up to {self.settings.max_shift:g}"
        return Claim(words, 0.0, self._judge)

    def _judge(
        self,
        factuals: np.ndarray,
        plans: Sequence[np.ndarray],
        n_samples: int,
        rng: np.random.Generator,
        confidence: float,
    ) -> InvalidationRate:
        """Share of shifts, random corners of the box of shifts and the worst one, that make the ends unfavourable."""
        assert self._linear is not None
        weights, bias = self._linear
        shifts = self.settings.max_shift * rng.choice([-1.0, 1.0], size=(n_samples - 1, len(weights) + 1))
        ends = final_states(factuals, plans)
        logits = ends @ (weights + shifts[:, :-1]).T + bias + shifts[:, -1]
        worst = ends @ weights + bias - self.settings.max_shift * (np.abs(ends).sum(axis=1) + 1)
        failures = (logits <= 0).sum(axis=1) + (worst <= 0)
        return InvalidationRate.from_failures(failures, n_samples, confidence)
