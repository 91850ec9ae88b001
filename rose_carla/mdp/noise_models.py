"""Noise models of the MDP: noise along the way, and the invalidation rate of where it leads.

ROSE-one uses one-off plausible noise: every action is implemented precisely and the end point is perturbed once.
ROSE-mul uses accumulated noise: a crowd of people implements every action noisily. FastAR has no noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from rose_carla.noise import (
    InvalidationRate,
    Noise,
    accumulated_invalidation_rate,
    action_sizes,
    continue_from,
    execute,
    invalidation_rate,
    noisy_step,
    unit_actions,
)
from rose_carla.noise.invalidation import Favourable
from rose_carla.noise.plausible import Randomness, SharedGenerators

#: Floats of a crowd held at once.
_MAX_FLOATS = 8_000_000


class Robustness(Protocol):
    """Noise model of an MDP. A *crowd* (b, m, d) is m people for each of b plans, who implement it noisily."""

    #: People per plan.
    crowd_size: int

    def with_samples(self, n: int) -> Robustness:
        """Return a copy with ``n`` noisy versions of a state, or people per plan."""

    def advance(self, crowd: np.ndarray, changes: np.ndarray, rng: Randomness) -> np.ndarray:
        """Return the crowd (b, m, d) after its people implemented the action (b, d) of their plan."""

    def land(self, states: np.ndarray, crowd: np.ndarray) -> np.ndarray:
        """Return the states (b, d) in which the next actions are taken, given the precise ones and the crowd."""

    def observe(self, states: np.ndarray, crowd: np.ndarray) -> np.ndarray:
        """Return the observations (b, d) of the policy, given the states (b, d) and the crowd."""

    def rates(self, states: np.ndarray, crowd: np.ndarray, rng: Randomness) -> np.ndarray:
        """Return the invalidation rates (b,) of plans that end in ``states`` (b, d)."""

    def evaluate(
        self, factuals: np.ndarray, plans: Sequence[np.ndarray], n_samples: int, rng: Randomness, confidence: float
    ) -> InvalidationRate:
        """Return the invalidation rates of whole plans, each (k, d), exactly as the metrics compute them."""

    def evaluate_steps(
        self, factuals: np.ndarray, plans: Sequence[np.ndarray], n_samples: int, rngs: Sequence[np.random.Generator]
    ) -> InvalidationRate:
        """Return the invalidation rates after each action, those of all plans in turn, then those of the factuals."""


class Precise:
    """No noise (FastAR): the invalidation rate of a plan that ends favourably is 0.

    Parameters
    ----------
    favourable
        Classifier of the ends of whole plans; without one all count as favourable.
    """

    crowd_size = 0

    def __init__(self, favourable: Favourable | None = None) -> None:
        self.favourable = favourable

    def with_samples(self, n: int) -> Robustness:
        """Return the model itself."""
        return self

    def advance(self, crowd: np.ndarray, changes: np.ndarray, rng: Randomness) -> np.ndarray:
        """No-op without noise."""
        return crowd

    def land(self, states: np.ndarray, crowd: np.ndarray) -> np.ndarray:
        """Return the states: a plan goes on as if it were implemented precisely."""
        return states

    def observe(self, states: np.ndarray, crowd: np.ndarray) -> np.ndarray:
        """Return the states."""
        return states.copy()

    def rates(self, states: np.ndarray, crowd: np.ndarray, rng: Randomness) -> np.ndarray:
        """Return 0 for every state."""
        return np.zeros(len(states))

    def evaluate(
        self, factuals: np.ndarray, plans: Sequence[np.ndarray], n_samples: int, rng: Randomness, confidence: float
    ) -> InvalidationRate:
        """Return 0 for plans that end favourably and 1 for others, with intervals of length 0."""
        rates = np.zeros(len(plans))
        if self.favourable is not None:
            rates = 1.0 - np.asarray(self.favourable(final_states(factuals, plans)), dtype=float)
        return InvalidationRate(rates, rates, rates, n_samples)

    def evaluate_steps(
        self, factuals: np.ndarray, plans: Sequence[np.ndarray], n_samples: int, rngs: Sequence[np.random.Generator]
    ) -> InvalidationRate:
        """Return the rates of all beginnings of the plans: each action is implemented precisely."""
        beginnings = [(row, plan[:k]) for row, plan in enumerate(plans) for k in range(1, len(plan) + 1)]
        beginnings += [(row, plan[:0]) for row, plan in enumerate(plans)]
        owners = [row for row, _ in beginnings]
        chosen = [rngs[row] for row in owners]
        return self.evaluate(factuals[owners], [plan for _, plan in beginnings], n_samples, chosen, 0.95)


@dataclass(frozen=True, eq=False)
class OneOff(Precise):
    """Precise transitions, then noise around the end point (Definition 1).

    Parameters
    ----------
    favourable
        Classifier.
    noise, variance
        Noise around the end point.
    n_samples
        Noisy versions of an end point.
    """

    favourable: Favourable
    noise: Noise
    variance: float
    n_samples: int

    def with_samples(self, n: int) -> Robustness:
        """Return a copy with ``n`` noisy versions of a state."""
        return replace(self, n_samples=n)

    def rates(self, states: np.ndarray, crowd: np.ndarray, rng: Randomness) -> np.ndarray:
        """Return the share of noisy versions of each state that are unfavourable."""
        return invalidation_rate(self.favourable, states, self.noise, self.variance, self.n_samples, rng).rate

    def evaluate(
        self, factuals: np.ndarray, plans: Sequence[np.ndarray], n_samples: int, rng: Randomness, confidence: float
    ) -> InvalidationRate:
        """Return the Plausible AIR of the end of each plan."""
        ends = final_states(factuals, plans)
        return invalidation_rate(self.favourable, ends, self.noise, self.variance, n_samples, rng, confidence)


@dataclass(eq=False)
class Accumulated:
    """Noisy transitions (Definition 2): the crowd implements every action by NoisySteps, unit by unit.

    Metrics implement plans unit by unit too, and it makes a difference: eight NoisySteps of one unit, each drawn back
    towards the data, end elsewhere than one of eight units. Actions of more than ``max_parts`` units, such as setting a
    category, are implemented in that many equal parts. With ``noise_per="action"`` an action is one NoisyStep.

    Parameters
    ----------
    favourable
        Classifier.
    noise, variance, action_unit
        Noise of one unit of action, and its size, or (d,) that of each column.
    crowd_size
        People per plan.
    max_parts
        Maximum number of NoisySteps per action.
    noise_per
        ``"unit"`` or ``"action"``, as in :func:`~rose_carla.noise.accumulated.execute`.
    """

    favourable: Favourable
    noise: Noise
    variance: float
    action_unit: float | np.ndarray
    crowd_size: int
    max_parts: int = 8
    noise_per: str = "unit"

    def with_samples(self, n: int) -> Robustness:
        """Return a copy with ``n`` people per plan."""
        return replace(self, crowd_size=n)

    def advance(self, crowd: np.ndarray, changes: np.ndarray, rng: Randomness) -> np.ndarray:
        """Return the crowd after one noisy action each."""
        units = action_sizes(changes, self.action_unit)
        most = self.max_parts if self.noise_per == "unit" else 1
        parts = np.ceil(units - 1e-9).clip(0, most).astype(int)
        crowd = crowd.copy()
        for part in range(parts.max(initial=0)):
            rows = np.flatnonzero(parts > part)
            chosen = rng if isinstance(rng, np.random.Generator) else [rng[row] for row in rows.tolist()]
            crowd[rows] = self.step(crowd[rows], changes[rows] / parts[rows, None], chosen)
        return crowd

    def step(self, crowd: np.ndarray, actions: np.ndarray, rng: Randomness) -> np.ndarray:
        """Return the crowd (b, m, d) after one NoisyStep each; ``actions`` (b, d) are of one unit."""
        shared = rng if isinstance(rng, np.random.Generator) else SharedGenerators(rng)
        people, each = crowd.reshape(-1, crowd.shape[2]), np.repeat(actions, crowd.shape[1], axis=0)
        return noisy_step(people, each, self.noise, self.variance, self.action_unit, shared).reshape(crowd.shape)

    def land(self, states: np.ndarray, crowd: np.ndarray) -> np.ndarray:
        """Return the states: a plan goes on as if it were implemented precisely."""
        return states

    def observe(self, states: np.ndarray, crowd: np.ndarray) -> np.ndarray:
        """Return the mean of the crowd: the state that noisy implementation of the plan leads to."""
        return crowd.mean(axis=1)

    def rates(self, states: np.ndarray, crowd: np.ndarray, rng: Randomness) -> np.ndarray:
        """Return the unfavourable share of each crowd, which carries the noise already."""
        accepted = np.asarray(self.favourable(crowd.reshape(-1, crowd.shape[2])), dtype=float)
        return 1.0 - accepted.reshape(crowd.shape[:2]).mean(axis=1)

    def follow(self, factuals: np.ndarray, plans: Sequence[np.ndarray], n: int, rng: Randomness) -> np.ndarray:
        """Return where ``n`` people end up who follow each plan, (b, n, d)."""
        return execute(factuals, plans, self.noise, self.variance, self.action_unit, n, rng, self.noise_per)

    def go_on(self, crowd: np.ndarray, plans: Sequence[np.ndarray], rng: Randomness) -> np.ndarray:
        """Return the crowd (b, m, d) after its people followed one more plan each."""
        return continue_from(crowd, plans, self.noise, self.variance, self.action_unit, rng, self.noise_per)

    def sweep_last_action(
        self, factuals: np.ndarray, plans: Sequence[np.ndarray], n: int, rngs: Sequence[np.random.Generator]
    ) -> list[np.ndarray]:
        """Return for each plan its invalidation rates after 0, 1, ... units of its last action.

        People who implement an action unit by unit pass all shorter versions of it, so one simulation is enough. With
        noise per action it is not: then there are only the rates before and after.
        """
        crowd = self.follow(factuals, [plan[:-1] for plan in plans], n, rngs)
        last = [plan[-1:] for plan in plans]
        units = [unit_actions(plan, self.action_unit) if self.noise_per == "unit" else plan for plan in last]
        rates = [[rate] for rate in self.rates(factuals, crowd, rngs).tolist()]
        for step in range(max(len(each) for each in units)):
            rows = np.array([row for row, each in enumerate(units) if step < len(each)])
            chosen = [rngs[row] for row in rows.tolist()]
            crowd[rows] = self.step(crowd[rows], np.stack([units[row][step] for row in rows]), chosen)
            for row, rate in zip(rows.tolist(), self.rates(factuals[rows], crowd[rows], chosen), strict=True):
                rates[row].append(float(rate))
        return [np.array(each) for each in rates]

    def evaluate(
        self, factuals: np.ndarray, plans: Sequence[np.ndarray], n_samples: int, rng: Randomness, confidence: float
    ) -> InvalidationRate:
        """Return the Acc AIR of each plan."""
        return accumulated_invalidation_rate(
            self.favourable,
            factuals,
            plans,
            self.noise,
            self.variance,
            self.action_unit,
            n_samples,
            rng,
            confidence,
            self.noise_per,
        )

    def evaluate_steps(
        self, factuals: np.ndarray, plans: Sequence[np.ndarray], n_samples: int, rngs: Sequence[np.random.Generator]
    ) -> InvalidationRate:
        """Return the rates among people who follow the whole plans, after each of their actions."""
        after: list[list[float]] = [[] for _ in plans]
        at_factuals = np.empty(len(plans))
        people = max(1, _MAX_FLOATS // factuals.shape[1] // n_samples)
        for start in range(0, len(plans), people):
            part = np.arange(start, min(start + people, len(plans)))
            crowd = np.repeat(factuals[part, None, :], n_samples, axis=1)
            at_factuals[part] = self.rates(factuals[part], crowd, [rngs[row] for row in part.tolist()])
            for step in range(max(len(plans[row]) for row in part)):
                rows = part[[step < len(plans[row]) for row in part]]
                chosen = [rngs[row] for row in rows.tolist()]
                crowd[rows - start] = self.go_on(
                    crowd[rows - start], [plans[row][step : step + 1] for row in rows], chosen
                )
                for row, rate in zip(
                    rows.tolist(), self.rates(factuals[rows], crowd[rows - start], chosen), strict=True
                ):
                    after[row].append(float(rate))
        rates = np.concatenate([*after, at_factuals])
        return InvalidationRate.from_failures((rates * n_samples).round().astype(int), n_samples, 0.95)


@dataclass(eq=False)
class Revisited(Accumulated):
    """Noisy transitions of a single person, who looks where they landed before the next action: the closed loop.

    The next action starts in the noisy state, which may be between categories, out of range or far from the data.

    Parameters
    ----------
    stop
        One-off noise that the state at the goal must stand; None: it is enough that it is favourable.
    """

    crowd_size: int = 1
    stop: OneOff | None = None

    def with_samples(self, n: int) -> Robustness:
        """Return a copy with ``n`` noisy versions of a state at the goal."""
        return replace(self, stop=self.stop and replace(self.stop, n_samples=n))

    def land(self, states: np.ndarray, crowd: np.ndarray) -> np.ndarray:
        """Return where the person landed."""
        return crowd[:, 0].copy()

    def rates(self, states: np.ndarray, crowd: np.ndarray, rng: Randomness) -> np.ndarray:
        """Return the rate of each state under one-off noise, or 0 for favourable states without it."""
        return super().rates(states, crowd, rng) if self.stop is None else self.stop.rates(states, crowd, rng)


def final_states(factuals: np.ndarray, plans: Sequence[np.ndarray]) -> np.ndarray:
    """Return the states (b, d) after precise implementation of whole plans."""
    return np.stack([factual + plan.sum(axis=0) for factual, plan in zip(factuals, plans, strict=True)])
