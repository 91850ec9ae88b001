"""Gradient descent on many people at once, each with a clock of its own; a row is frozen when it is accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from rose_carla._lib.runtime import Deadline
from rose_carla.baselines.box import Box, within
from rose_carla.models.training import one_thread
from tqdm.auto import tqdm

#: A loss that is noisy is looked at by its running mean; it has fallen if it did by that share.
_RUNNING, _FALLEN = 0.1, 1e-3
#: How many times as long the last round may go on without a falling loss.
_LAST_STALL = 4
#: Adam's memory of gradients and of their squares, and what keeps it from dividing by 0.
_MEMORY, _SQUARES, _TINY = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Look:
    """What a method is shown of b people at one step.

    Parameters
    ----------
    points
        (b, d) where they are, with valid categories.
    rows
        (b,) which of the people they are.
    """

    points: torch.Tensor
    rows: torch.Tensor


#: The robust loss (b,) of a look, without the term for the distance.
Objective = Callable[[Look], torch.Tensor]
#: Which points (b,) of a look are good enough, given how much the loss changed in the last step.
Accept = Callable[[Look, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Schedule:
    """How long, how fast, and how much distance counts.

    Parameters
    ----------
    weights
        Weight of the L1 distance in each round; the next one begins where nothing was accepted in the last.
    n_steps
        Steps to a round.
    learning_rate
        Step size of Adam (AMSGrad).
    patience
        Steps for which somebody goes on for a cheaper point after the first one was accepted.
    stall
        Steps without a falling loss after which a round ends early, the last one after four times as many; 0: never.
    every_step
        Look for acceptable points at every step and keep the cheapest; otherwise at the end of a round only.
    """

    weights: tuple[float, ...]
    n_steps: int
    learning_rate: float
    patience: int = 0
    stall: int = 0
    every_step: bool = True


class _People:
    """Everything that is known of the people still searched for, one row each."""

    def __init__(self, start: torch.Tensor) -> None:
        n = len(start)
        self.rows = torch.arange(n)
        self.start, self.points = start, start.clone()
        self.mean, self.square, self.largest = (torch.zeros_like(start) for _ in range(3))
        self.clock = torch.zeros(n, dtype=torch.long)
        self.round = torch.zeros(n, dtype=torch.long)
        self.loss = torch.full((n,), torch.inf)
        self.cost = torch.full((n,), torch.inf)
        self.waited = torch.zeros(n, dtype=torch.long)
        self.running = torch.full((n,), torch.inf)
        self.lowest = torch.full((n,), torch.inf)
        self.stalled = torch.zeros(n, dtype=torch.long)

    def keep(self, chosen: torch.Tensor) -> None:
        """Go on with some of them."""
        for name, value in vars(self).items():
            setattr(self, name, value[chosen])

    def move(self, gradient: torch.Tensor, rate: float) -> torch.Tensor:
        """Where a step of Adam (AMSGrad) leads; torch's own has one clock for all rows, here each has its own."""
        self.clock += 1
        self.mean.mul_(_MEMORY).add_(gradient, alpha=1 - _MEMORY)
        self.square.mul_(_SQUARES).addcmul_(gradient, gradient, value=1 - _SQUARES)
        torch.maximum(self.largest, self.square, out=self.largest)
        clock = self.clock[:, None].to(gradient.dtype)
        spread = (self.largest / (1 - _SQUARES**clock)).sqrt_().add_(_TINY)
        return self.points - rate / (1 - _MEMORY**clock) * self.mean / spread

    def note(self, loss: torch.Tensor) -> None:
        """Keep account of whether the loss still falls."""
        self.loss = loss
        first = torch.isinf(self.running)
        self.running = torch.where(first, loss, self.running + _RUNNING * (loss - self.running))
        fallen = first | (self.running < self.lowest - _FALLEN * self.lowest.abs())
        self.lowest = torch.where(fallen, self.running, self.lowest)
        self.stalled = torch.where(fallen, 0, self.stalled + 1)

    def restart(self, chosen: torch.Tensor) -> None:
        """Begin the next round for some of them, where they are."""
        self.round[chosen] += 1
        self.clock[chosen] = 0
        self.stalled[chosen] = 0
        self.running[chosen] = self.lowest[chosen] = torch.inf
        for memory in (self.mean, self.square, self.largest):
            memory[chosen] = 0


def descend(
    rows: np.ndarray,
    objective: Objective,
    accept: Accept,
    box: Box,
    schedule: Schedule,
    deadline: Deadline,
    bar: tqdm,
) -> np.ndarray:
    """The cheapest accepted point (b, d) of each of (b, d) rows; NaN where none was accepted.

    Minimises, for each row by itself, objective(x') + weight * ||x' - x||_1 over the box.
    """
    start = torch.tensor(rows, dtype=torch.float32)
    ends = torch.full_like(start, torch.nan)
    people = _People(start)
    weights = torch.tensor(schedule.weights)
    with one_thread(), torch.enable_grad():
        while len(people.rows) and not deadline.passed:
            relaxed = people.points.detach().requires_grad_()
            look = Look(box.valid(relaxed), people.rows)
            distance = (relaxed - people.start).abs().sum(dim=1)
            loss = objective(look) + weights[people.round] * distance
            (gradient,) = torch.autograd.grad(loss.sum(), relaxed)
            with torch.no_grad():
                _look(look, loss.detach(), people, accept, schedule, ends)
                moved = people.move(torch.nan_to_num(gradient) * box.mutable, schedule.learning_rate)
                people.points = box.inside(moved, people.start)
                _advance(people, schedule, bar)
    return _onto(rows, (ends - start).double().numpy(), box.clamp)


def _look(
    look: Look, loss: torch.Tensor, people: _People, accept: Accept, schedule: Schedule, ends: torch.Tensor
) -> None:
    """Note points that are accepted and cheaper than what was there."""
    points = look.points.detach()
    if schedule.every_step:
        looked_at = torch.ones(len(points), dtype=torch.bool)
    else:
        looked_at = people.clock == schedule.n_steps - 1
    cost = (points - people.start).abs().sum(dim=1)
    chosen = torch.nonzero(looked_at & (cost < people.cost)).squeeze(1)
    if len(chosen):
        part = Look(points[chosen], look.rows[chosen])
        better = chosen[accept(part, (loss - people.loss).abs()[chosen])]
        people.cost[better] = cost[better]
        ends[people.rows[better]] = points[better]
    people.waited += torch.isfinite(people.cost)
    people.note(loss)


def _advance(people: _People, schedule: Schedule, bar: tqdm) -> None:
    """Begin new rounds, and leave people alone who have what they need or got nowhere in the last one."""
    found = torch.isfinite(people.cost)
    over, last = people.clock >= schedule.n_steps, people.round == len(schedule.weights) - 1
    if schedule.stall:
        over |= people.stalled >= torch.where(last, _LAST_STALL * schedule.stall, schedule.stall)
    again = over & ~found & ~last
    people.restart(again)
    done = (over & ~again) | (people.waited > schedule.patience)
    if done.any():
        people.keep(torch.nonzero(~done).squeeze(1))
        bar.update(int(done.sum()))


def _onto(rows: np.ndarray, change: np.ndarray, clamp: bool) -> np.ndarray:
    """Changes of single precision put onto rows of double precision, which keep what did not change to the last bit."""
    ends = np.where(change == 0, rows, rows + change)
    return within(ends, rows) if clamp else ends
