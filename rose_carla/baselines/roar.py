"""ROAR: recourse robust to shifts of the model (Upadhyay et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from rose_carla._lib.params import integer, number
from rose_carla._lib.runtime import Deadline
from rose_carla.baselines.gradient_descent import Batch, Constraints, GradientMethod, Linear, Schedule, descend
from rose_carla.method import OneShotSettings
from rose_carla.noise import Claim
from tqdm.auto import tqdm


@dataclass(frozen=True)
class RoarSettings(OneShotSettings):
    """Hyper-parameters of ROAR."""

    #: Largest shift of each weight and of the bias of the classifier.
    max_shift: float = number(0.01, ge=0)
    #: Weight lambda of the distance.
    distance_weight: float = number(0.01, ge=0)
    #: Learning rate of Adam.
    learning_rate: float = number(0.1, gt=0)
    #: Change of the loss below which it has converged.
    convergence: float = number(1e-3, gt=0)
    #: Maximum number of steps.
    n_steps: int = integer(1000)

    presets = {"paper": {"learning_rate": 0.1, "distance_weight": 0.01, "max_shift": 0.01}}


def worst_logit(values: torch.Tensor, points: torch.Tensor, max_shift: float) -> torch.Tensor:
    r"""Return the lowest logit (b,) at points (b, d) over shifts of weights and bias by up to ``max_shift``.

    .. math:: \min_{\lVert \delta \rVert_\infty \le \delta_{max}} (w + \delta_w) \cdot x' + b + \delta_b
        = w \cdot x' + b - \delta_{max} (\lVert x' \rVert_1 + 1)

    ``values`` are the logits without a shift; for a nonlinear classifier, those of its tangent at x'.
    """
    return values - max_shift * (points.abs().sum(dim=1) + 1)


class Roar(GradientMethod):
    r"""ROAR: recourse that stays valid when the weights of the classifier shift.

    Minimises for each person

    .. math::
        \max_{\lVert \delta \rVert_\infty \le \delta_{max}} \ell\left(\sigma((w + \delta_w) \cdot x' + b + \delta_b),
        1\right) + \lambda \lVert x' - x \rVert_1

    by Adam; the inner maximum is :func:`worst_logit`. A nonlinear classifier is replaced by its tangent at x' in every
    step. A point is accepted when the loss has converged and the worst logit is favourable.

    Parameters
    ----------
    mlmodel
        A CARLA model with the torch backend.
    hyperparams
        Options of :class:`RoarSettings`; ``{"preset": "paper"}`` for those of the ROSE paper.

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

    def search(self, rows: np.ndarray, deadline: Deadline, bar: tqdm) -> np.ndarray:
        s, quirks = self.settings, self.settings.reference_quirks
        scores = self._scores(rows)

        def worst(batch: Batch) -> torch.Tensor:
            return worst_logit(scores(batch.rows)(batch.points), batch.points, s.max_shift)

        def objective(batch: Batch) -> torch.Tensor:
            return torch.nn.functional.softplus(-worst(batch))

        def accept(batch: Batch, change: torch.Tensor) -> torch.Tensor:
            return (change <= s.convergence) & (worst(batch) > 0)

        constraints = Constraints(self._mlmodel, "fixed", clamp=False) if quirks else Constraints(self._mlmodel)
        schedule = Schedule((s.distance_weight,), s.n_steps, s.learning_rate)
        return descend(rows, objective, accept, constraints, schedule, deadline, bar)

    def claim(self) -> Claim | None:
        """Return the claim that a linear classifier accepts under every shift; None for other classifiers."""
        words = f"accepted by every classifier with weights shifted by up to {self.settings.max_shift:g}"
        return self._linear_claim(words, self._failures)

    def _failures(self, linear: Linear, ends: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Count the shifts, random corners and the worst one, under which the ends are unfavourable."""
        weights, bias = linear
        shifts = self.settings.max_shift * rng.choice([-1.0, 1.0], size=(n_samples - 1, len(weights) + 1))
        logits = ends @ (weights + shifts[:, :-1]).T + bias + shifts[:, -1]
        worst = ends @ weights + bias - self.settings.max_shift * (np.abs(ends).sum(axis=1) + 1)
        return (logits <= 0).sum(axis=1) + (worst <= 0)
