"""ARAR: recourse robust to uncertainty about the person (Dominguez-Olmedo et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from carla.models.api import MLModel
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
from rose_carla.datasets import feature_groups, valid_encodings
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


def cheapest_change(
    rows: np.ndarray, needed: np.ndarray, weights: np.ndarray, mlmodel: MLModel
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the exact changes of least L1 length that raise a linear score by a required amount.

    .. math:: \min \lVert a \rVert_1 \quad \text{s.t.} \quad w \cdot a \ge c, \quad x + a \in [0, 1]^d

    with valid categories and unchanged immutable features; values outside [0, 1] may stay there. Continuous features
    are moved to their bounds in the order of |w|, for each Pareto-optimal choice of categories by cost and gain.

    Parameters
    ----------
    rows
        (b, d) factuals x.
    needed
        (b,) required gains c.
    weights
        (d,) weights w.
    mlmodel
        Model whose data set has the immutable and categorical features.

    Returns
    -------
    changes, cost
        (b, d) changes a and their lengths (b,), infinite where the problem is infeasible.
    """
    data, order = mlmodel.data, mlmodel.feature_input_order
    groups = {name: columns for name, columns in feature_groups(data, order).items() if name not in data.immutables}
    options = [
        (columns, valid_encodings(data, name, len(columns)))
        for name, columns in groups.items()
        if name in data.categorical
    ]
    cost, gain, choice = _pareto_fronts(rows, weights, options)
    single = np.array([columns[0] for name, columns in groups.items() if name not in data.categorical], dtype=int)
    single = single[np.argsort(-np.abs(weights[single]), kind="stable")]
    single = single[weights[single] != 0]
    slopes = weights[single]
    room = np.where(slopes > 0, 1 - rows[:, single], rows[:, single]).clip(0)
    empty = np.zeros((len(rows), 1))
    raised = np.hstack([empty, (room * np.abs(slopes)).cumsum(axis=1)])
    spent = np.hstack([empty, room.cumsum(axis=1)])
    rest = (needed[:, None] - gain).clip(0)  # gain needed of continuous features, for each choice of categories
    full = (raised[:, None, 1:] < rest[:, :, None]).sum(axis=2)  # number of features moved to their bounds
    enough = full < raised.shape[1] - 1
    at = np.minimum(full, max(len(single) - 1, 0))
    people = np.arange(len(rows))[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        last = (rest - raised[people, full]) / np.append(np.abs(slopes), 1.0)[at]
    last = np.where(rest > 0, last, 0.0)
    total = np.where(enough | (rest <= 0), cost + spent[people, full] + last, np.inf)
    best = total.argmin(axis=1)
    people = people[:, 0]
    changes = np.zeros_like(rows)
    filled = np.where(np.arange(len(single)) < full[people, best][:, None], room, 0.0)
    partly = np.flatnonzero((rest[people, best] > 0) & enough[people, best])
    filled[partly, full[partly, best[partly]]] = last[partly, best[partly]]
    changes[:, single] = filled * np.sign(slopes)
    for feature, (columns, encodings) in enumerate(options):
        changes[:, columns] = encodings[choice[people, best, feature]] - rows[:, columns]
    return changes, total[people, best]


def _pareto_fronts(
    rows: np.ndarray, weights: np.ndarray, options: Sequence[tuple[list[int], np.ndarray]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return costs (b, m), gains (b, m) and encodings (b, m, features) of the Pareto-optimal choices of each row."""
    n = len(rows)
    cost, gain, choice = np.zeros((n, 1)), np.zeros((n, 1)), np.zeros((n, 1, 0), dtype=int)
    for columns, encodings in options:
        changes = encodings - rows[:, None, columns]
        costs, gains = np.abs(changes).sum(axis=2), changes @ weights[columns]
        cost = (cost[:, :, None] + costs[:, None, :]).reshape(n, -1)
        gain = (gain[:, :, None] + gains[:, None, :]).reshape(n, -1)
        before, last = np.divmod(np.arange(cost.shape[1]), len(encodings))
        choice = np.concatenate([choice[:, before], np.repeat(last[None, :, None], n, axis=0)], axis=2)
        order = np.lexsort((-gain, cost.round(12)), axis=1)
        cost, gain = np.take_along_axis(cost, order, axis=1), np.take_along_axis(gain, order, axis=1)
        choice = np.take_along_axis(choice, order[:, :, None], axis=1)
        highest = np.maximum.accumulate(gain, axis=1)
        dominated = np.hstack([np.zeros((n, 1), dtype=bool), gain[:, 1:] <= highest[:, :-1] + 1e-12])
        cost = np.where(dominated, np.inf, cost)
        order = np.argsort(dominated, axis=1, kind="stable")[:, : (~dominated).sum(axis=1).max()]
        cost, gain = np.take_along_axis(cost, order, axis=1), np.take_along_axis(gain, order, axis=1)
        choice = np.take_along_axis(choice, order[:, :, None], axis=1)
    return cost, gain, choice
