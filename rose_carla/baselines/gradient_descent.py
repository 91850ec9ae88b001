"""Gradient descent for many people at once, under the constraints of the data set; base of PROBE, CROCO, ROAR, ARAR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from carla.models.api import MLModel
from rose_carla._lib.runtime import Deadline, one_torch_thread
from rose_carla.datasets import feature_groups, mutable_columns, valid_encodings
from rose_carla.mdp import OneOff
from rose_carla.mdp.noise_models import final_states
from rose_carla.method import OneShot
from rose_carla.models import Logit, favourable, logit
from rose_carla.noise import Claim, GaussianNoise, InvalidationRate
from tqdm.auto import tqdm

#: Rate of the exponential moving average of the loss, and the relative decrease that counts as progress.
_AVERAGE_RATE, _MIN_DECREASE = 0.1, 1e-3
#: Factor on ``stall`` in the last round.
_LAST_STALL = 4
#: Number of training rows, and relative tolerance, of the test for linearity.
_TEST_ROWS, _TOLERANCE = 256, 1e-4
#: Points around a person that a surrogate is fitted to, and its ridge.
_POINTS, _RIDGE = 1000, 1.0
#: Hyper-parameters of Adam.
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


def clip_to_bounds(ends: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Clip ``ends`` (b, d) to [0, 1], or to the value in ``rows`` (b, d) where that is outside; NaN stays."""
    return np.clip(ends, np.minimum(rows, 0.0), np.maximum(rows, 1.0))


class Constraints:
    """Points that gradient descent may visit.

    Parameters
    ----------
    mlmodel
        Model whose data set has the immutable and categorical features.
    categories
        ``"valid"``: categories are rounded to valid encodings, with straight-through gradients; ``"fixed"``: they do
        not change; ``"relaxed"``: they are treated as numbers.
    clamp
        Whether values stay in [0, 1].

    Attributes
    ----------
    mutable : (d,) tensor of bool
        Columns that may change.
    categorical : (d,) tensor of bool
        Columns of categorical features.
    """

    def __init__(self, mlmodel: MLModel, categories: str = "valid", clamp: bool = True) -> None:
        data, order = mlmodel.data, mlmodel.feature_input_order
        self.clamp = clamp
        self.mutable = torch.tensor(mutable_columns(data, order))
        self.categorical = torch.zeros(len(order), dtype=torch.bool)
        self._groups: list[tuple[torch.Tensor, torch.Tensor]] = []
        binary: list[int] = []
        for feature, columns in feature_groups(data, order).items():
            self.categorical[columns] = feature in data.categorical
            if feature not in data.categorical or feature in data.immutables:
                continue
            if categories == "fixed":
                self.mutable[columns] = False
            elif categories == "valid":
                encodings = valid_encodings(data, feature, len(columns))
                if np.array_equal(encodings, [[0.0], [1.0]]):
                    binary += columns
                else:
                    self._groups.append((torch.tensor(columns), torch.tensor(encodings, dtype=torch.float32)))
        self._binary = torch.tensor(binary, dtype=torch.long)

    def project(self, points: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Clip ``points`` (b, d) to [0, 1], or to ``start`` where that is outside; keep immutable columns of it."""
        if self.clamp:
            points = torch.maximum(torch.minimum(points, start.clamp_min(1.0)), start.clamp_max(0.0))
        return torch.where(self.mutable, points, start)

    def round_categories(self, points: torch.Tensor) -> torch.Tensor:
        """Round categories to valid encodings; the gradient is that of ``points`` (straight-through)."""
        if len(self._binary) == 0 and not self._groups:
            return points
        with torch.no_grad():
            rounded = points.clone()
            rounded[:, self._binary] = (points[:, self._binary] > 0.5).to(points.dtype)
            for columns, encodings in self._groups:
                # nearest by |x - c|^2, without |x|^2, which is the same for all candidates c
                candidates = encodings.to(points.dtype)
                closeness = points[:, columns] @ candidates.T - 0.5 * (candidates**2).sum(dim=1)
                rounded[:, columns] = candidates[closeness.argmax(dim=1)]
        return points + (rounded - points).detach()


@dataclass(frozen=True)
class Batch:
    """Current points of the people still searched for."""

    #: (b, d) points with valid categories.
    points: torch.Tensor
    #: (b,) row numbers of the people.
    rows: torch.Tensor


#: Weights (d,) and bias of a linear classifier.
Linear = tuple[np.ndarray, float]
#: Robust loss (b,) of a batch, without the distance term.
Objective = Callable[[Batch], torch.Tensor]
#: Which points (b,) of a batch are acceptable, given the change of the loss in the last step.
Accept = Callable[[Batch, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Schedule:
    """Length, learning rate and distance weights of the descent."""

    #: Weight of the L1 distance in each round; people without an accepted point start the next round.
    weights: tuple[float, ...]
    #: Steps per round.
    n_steps: int
    #: Learning rate of Adam (AMSGrad).
    learning_rate: float
    #: Further steps in search of a cheaper point after the first accepted one.
    patience: int = 0
    #: Steps without a decrease of the loss after which a round ends, four times as many in the last one; 0: never.
    stall: int = 0
    #: Whether to test acceptance at every step and keep the cheapest point, or only at the end of a round.
    every_step: bool = True


class _State:
    """State of the people still searched for, one row each; each has its own step count."""

    def __init__(self, start: torch.Tensor) -> None:
        n = len(start)
        self.rows = torch.arange(n)
        self.start, self.points = start, start.clone()
        self.mean, self.square, self.largest = (torch.zeros_like(start) for _ in range(3))
        self.step = torch.zeros(n, dtype=torch.long)
        self.round = torch.zeros(n, dtype=torch.long)
        self.loss = torch.full((n,), torch.inf)
        self.cost = torch.full((n,), torch.inf)
        self.waited = torch.zeros(n, dtype=torch.long)
        self.average = torch.full((n,), torch.inf)
        self.lowest = torch.full((n,), torch.inf)
        self.stalled = torch.zeros(n, dtype=torch.long)

    def keep(self, chosen: torch.Tensor) -> None:
        """Drop all other people."""
        for name, value in vars(self).items():
            setattr(self, name, value[chosen])

    def adam_step(self, gradient: torch.Tensor, rate: float) -> torch.Tensor:
        """Return the points after a step of Adam (AMSGrad); torch's own has one step count for all rows."""
        self.step += 1
        self.mean.mul_(_BETA1).add_(gradient, alpha=1 - _BETA1)
        self.square.mul_(_BETA2).addcmul_(gradient, gradient, value=1 - _BETA2)
        torch.maximum(self.largest, self.square, out=self.largest)
        step = self.step[:, None].to(gradient.dtype)
        spread = (self.largest / (1 - _BETA2**step)).sqrt_().add_(_EPSILON)
        return self.points - rate / (1 - _BETA1**step) * self.mean / spread

    def update_loss(self, loss: torch.Tensor) -> None:
        """Update the moving average of the loss and count steps without a decrease."""
        self.loss = loss
        first = torch.isinf(self.average)
        self.average = torch.where(first, loss, self.average + _AVERAGE_RATE * (loss - self.average))
        decreased = first | (self.average < self.lowest - _MIN_DECREASE * self.lowest.abs())
        self.lowest = torch.where(decreased, self.average, self.lowest)
        self.stalled = torch.where(decreased, 0, self.stalled + 1)

    def restart(self, chosen: torch.Tensor) -> None:
        """Start the next round of some people at their current points."""
        self.round[chosen] += 1
        self.step[chosen] = 0
        self.stalled[chosen] = 0
        self.average[chosen] = self.lowest[chosen] = torch.inf
        for moment in (self.mean, self.square, self.largest):
            moment[chosen] = 0


def descend(
    rows: np.ndarray,
    objective: Objective,
    accept: Accept,
    constraints: Constraints,
    schedule: Schedule,
    deadline: Deadline,
    bar: tqdm,
) -> np.ndarray:
    """Return the cheapest accepted point (b, d) of each of (b, d) rows; NaN where none was accepted.

    Minimises objective(x') + weight * ||x' - x||_1 under the constraints, independently for each row.
    """
    start = torch.tensor(rows, dtype=torch.float32)
    ends = torch.full_like(start, torch.nan)
    state = _State(start)
    weights = torch.tensor(schedule.weights)
    with one_torch_thread(), torch.enable_grad():
        while len(state.rows) and not deadline.passed:
            relaxed = state.points.detach().requires_grad_()
            batch = Batch(constraints.round_categories(relaxed), state.rows)
            distance = (relaxed - state.start).abs().sum(dim=1)
            loss = objective(batch) + weights[state.round] * distance
            (gradient,) = torch.autograd.grad(loss.sum(), relaxed)
            with torch.no_grad():
                _keep_accepted(batch, loss.detach(), state, accept, schedule, ends)
                moved = state.adam_step(torch.nan_to_num(gradient) * constraints.mutable, schedule.learning_rate)
                state.points = constraints.project(moved, state.start)
                _next_round(state, schedule, bar)
    # add single-precision changes to double-precision rows: unchanged values stay exactly the same
    change = (ends - start).double().numpy()
    found = np.where(change == 0, rows, rows + change)
    return clip_to_bounds(found, rows) if constraints.clamp else found


def _keep_accepted(
    batch: Batch, loss: torch.Tensor, state: _State, accept: Accept, schedule: Schedule, ends: torch.Tensor
) -> None:
    """Store points that are accepted and cheaper than those before."""
    points = batch.points.detach()
    if schedule.every_step:
        candidates = torch.ones(len(points), dtype=torch.bool)
    else:
        candidates = state.step == schedule.n_steps - 1
    cost = (points - state.start).abs().sum(dim=1)
    chosen = torch.nonzero(candidates & (cost < state.cost)).squeeze(1)
    if len(chosen):
        part = Batch(points[chosen], batch.rows[chosen])
        better = chosen[accept(part, (loss - state.loss).abs()[chosen])]
        state.cost[better] = cost[better]
        ends[state.rows[better]] = points[better]
    state.waited += torch.isfinite(state.cost)
    state.update_loss(loss)


def _next_round(state: _State, schedule: Schedule, bar: tqdm) -> None:
    """Start new rounds, and drop people who are done or whose last round is over."""
    found = torch.isfinite(state.cost)
    over, last = state.step >= schedule.n_steps, state.round == len(schedule.weights) - 1
    if schedule.stall:
        over |= state.stalled >= torch.where(last, _LAST_STALL * schedule.stall, schedule.stall)
    again = over & ~found & ~last
    state.restart(again)
    done = (over & ~again) | (state.waited > schedule.patience)
    if done.any():
        state.keep(torch.nonzero(~done).squeeze(1))
        bar.update(int(done.sum()))


def linear_weights(g: Logit, mlmodel: MLModel) -> tuple[np.ndarray, float] | None:
    """Return the weights (d,) and bias of g if it is linear, else None."""
    rows = mlmodel.data.df_train[mlmodel.feature_input_order].to_numpy(dtype=float)
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), _TEST_ROWS)).astype(int)]
    with torch.enable_grad():
        zero = torch.zeros(1, rows.shape[1], requires_grad=True)
        value = g(zero)
        (gradient,) = torch.autograd.grad(value.sum(), zero)
    with torch.no_grad():
        values = g(torch.tensor(rows, dtype=torch.float32)).double().numpy()
    weights, bias = gradient[0].double().numpy(), float(value.detach())
    off = np.abs(rows @ weights + bias - values).max()
    return (weights, bias) if off <= _TOLERANCE * max(1.0, np.abs(values).max()) else None


def probability_surrogate(g: Logit, rows: np.ndarray, mlmodel: MLModel, seed: int) -> Callable[[torch.Tensor], Logit]:
    """Fit ridge regressions on *probabilities* around each of (b, d) rows, as LIME does; return them by row number.

    Some published ports of ROAR and ARAR use them in place of logits, although neither the scale nor the decision
    border is the same.
    """
    train = mlmodel.data.df_train[mlmodel.feature_input_order].to_numpy(dtype=float)
    spread = torch.tensor(train.std(axis=0), dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    unit = torch.randn(_POINTS, rows.shape[1], generator=generator)
    width = 0.75 * rows.shape[1] ** 0.5
    nearness = torch.exp(-(unit**2).sum(dim=1) / width**2)
    design = torch.cat([unit * spread, torch.ones(_POINTS, 1)], dim=1).double()
    ridge = _RIDGE * torch.eye(design.shape[1], dtype=torch.double)
    ridge[-1, -1] = 0.0
    normal = design.T @ (nearness[:, None] * design) + ridge
    start = torch.tensor(rows, dtype=torch.float32)
    with torch.no_grad():
        probabilities = torch.stack([torch.sigmoid(g(row + unit * spread)) for row in start]).double()
    solved = torch.linalg.solve(normal, design.T @ (nearness * probabilities).T).T
    weights = solved[:, :-1].float()
    biases = solved[:, -1].float() - (weights * start).sum(dim=1)
    return lambda numbers: lambda points: (weights[numbers] * points).sum(dim=1) + biases[numbers]


class GradientMethod(OneShot):
    """Base class of the baselines that need a differentiable torch model."""

    def __init__(self, mlmodel: MLModel, hyperparams: Mapping[str, Any] | None = None) -> None:
        super().__init__(mlmodel, hyperparams)
        self._logit = logit(mlmodel, self.name)

    @cached_property
    def _linear(self) -> Linear | None:
        """Weights and bias of a linear classifier, else None."""
        return linear_weights(self._logit, self._mlmodel)

    def _linear_claim(
        self, words: str, failures: Callable[[Linear, np.ndarray, int, np.random.Generator], np.ndarray]
    ) -> Claim | None:
        """Claim that none of some samples around the ends (b, d), whose ``failures`` are counted, is unfavourable; None
        for classifiers that are not linear."""
        linear = self._linear
        if linear is None:
            return None

        def evaluate(
            factuals: np.ndarray, plans: Sequence[np.ndarray], n: int, rng: np.random.Generator, confidence: float
        ) -> InvalidationRate:
            found = failures(linear, final_states(factuals, plans), n, rng)
            return InvalidationRate.from_failures(found, n, confidence)

        return Claim(f"{self.name}: {words}", 0.0, evaluate)

    def _gaussian_claim(self, words: str, limit: float, variance: float) -> Claim:
        """Claim that the invalidation rate under Gaussian noise is at most ``limit``, described by ``words``."""
        noise = OneOff(favourable(self._mlmodel), GaussianNoise(), variance, n_samples=1)
        return Claim(f"{self.name}: Gaussian invalidation rate at most {words} = {limit:g}", limit, noise.evaluate)

    def _scores(self, rows: np.ndarray) -> Callable[[torch.Tensor], Logit]:
        """Return the score of people by row number: the logit, or with quirks a surrogate of a nonlinear one."""
        if self.settings.reference_quirks and self._linear is None:
            return probability_surrogate(self._logit, rows, self._mlmodel, self.settings.seed)
        return lambda numbers: self._logit
