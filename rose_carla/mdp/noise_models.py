"""How noise enters the MDP: what happens along the way, and the invalidation rate of where it leads.

ROSE-one knows one-off plausible noise: people implement every action precisely and the end point is perturbed once.
ROSE-mul knows accumulated noise: a crowd of people implements every action noisily. Without either the MDP is FastAR's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from rose_carla.noise import InvalidationRate, Noise, accumulated_invalidation_rate, invalidation_rate, noisy_step
from rose_carla.noise.arguments import Randomness, SharedGenerators
from rose_carla.noise.invalidation import Favourable


class Robustness(Protocol):
    """The noise of an MDP. A *crowd* (b, m, d) are the people, m to a plan, who follow it noisily."""

    #: People to a plan.
    crowd_size: int

    def sized(self, n: int) -> Robustness:
        """The same with ``n`` noisy versions, or people to a plan."""

    def advance(self, crowd: np.ndarray, changes: np.ndarray, rng: Randomness) -> np.ndarray:
        """Where the people of (b, m, d) are after they implemented each its plan's action of (b, d)."""

    def observe(self, states: np.ndarray, crowd: np.ndarray) -> np.ndarray:
        """What the policy is shown (b, d) of states to which plans lead precisely, and of where the crowd is."""

    def rates(self, states: np.ndarray, crowd: np.ndarray, rng: Randomness) -> np.ndarray:
        """Invalidation rate (b,) of ending in ``states`` (b, d), to which the plans of the crowd lead precisely."""

    def judge(
        self, factuals: np.ndarray, plans: Sequence[np.ndarray], n_samples: int, rng: Randomness, confidence: float
    ) -> InvalidationRate:
        """Invalidation rate of whole plans, each (k, d), exactly as the metrics compute it."""


class Precise:
    """No noise: every plan that ends favourably is as good as any (FastAR).

    Parameters
    ----------
    favourable
        The classifier, to tell whole plans that do not end favourably; without one all are taken to.
    """

    crowd_size = 0

    def __init__(self, favourable: Favourable | None = None) -> None:
        self.favourable = favourable

    def sized(self, n: int) -> Robustness:
        """Itself: there is no noise."""
        return self

    def advance(self, crowd: np.ndarray, changes: np.ndarray, rng: Randomness) -> np.ndarray:
        """Nobody is there."""
        return crowd

    def observe(self, states: np.ndarray, crowd: np.ndarray) -> np.ndarray:
        """The states."""
        return states.copy()

    def rates(self, states: np.ndarray, crowd: np.ndarray, rng: Randomness) -> np.ndarray:
        """0 for every state."""
        return np.zeros(len(states))

    def judge(
        self, factuals: np.ndarray, plans: Sequence[np.ndarray], n_samples: int, rng: Randomness, confidence: float
    ) -> InvalidationRate:
        """0 for every plan that ends favourably, 1 for others, and sure of it."""
        rates = np.zeros(len(plans))
        if self.favourable is not None:
            rates = 1.0 - np.asarray(self.favourable(ends_of(factuals, plans)), dtype=float)
        return InvalidationRate(rates, rates, rates, n_samples)


class OneOff(Precise):
    """Precise transitions, then noise around the end point (Definition 1).

    Parameters
    ----------
    favourable
        The classifier.
    noise, variance
        Noise around the end point.
    n_samples
        Noisy versions of an end point.
    """

    favourable: Favourable

    def __init__(self, favourable: Favourable, noise: Noise, variance: float, n_samples: int) -> None:
        super().__init__(favourable)
        self.noise = noise
        self.variance = variance
        self.n_samples = n_samples

    def sized(self, n: int) -> Robustness:
        """The same with ``n`` noisy versions."""
        return OneOff(self.favourable, self.noise, self.variance, n)

    def rates(self, states: np.ndarray, crowd: np.ndarray, rng: Randomness) -> np.ndarray:
        """Share of noisy versions of each state that are not favourable."""
        return invalidation_rate(self.favourable, states, self.noise, self.variance, self.n_samples, rng).rate

    def judge(
        self, factuals: np.ndarray, plans: Sequence[np.ndarray], n_samples: int, rng: Randomness, confidence: float
    ) -> InvalidationRate:
        """Plausible AIR of where each plan leads."""
        ends = ends_of(factuals, plans)
        return invalidation_rate(self.favourable, ends, self.noise, self.variance, n_samples, rng, confidence)


class Accumulated:
    """Noisy transitions (Definition 2): the crowd implements every action by NoisySteps, unit by unit.

    A plan is judged unit by unit too, and it makes a difference: one NoisyStep of eight units goes where eight of one
    unit each, every one of them drawn back towards the data, do not get. Actions of more than ``max_parts`` units, the
    setting of a category, are implemented in that many equal parts.

    Parameters
    ----------
    favourable
        The classifier.
    noise, variance, action_unit
        Noise of one unit of action, and its size.
    crowd_size
        People to a plan.
    max_parts
        Most NoisySteps to an action.
    """

    def __init__(
        self,
        favourable: Favourable,
        noise: Noise,
        variance: float,
        action_unit: float,
        crowd_size: int,
        max_parts: int = 8,
    ) -> None:
        self.favourable = favourable
        self.noise = noise
        self.variance = variance
        self.action_unit = action_unit
        self.crowd_size = crowd_size
        self.max_parts = max_parts

    def sized(self, n: int) -> Robustness:
        """The same with ``n`` people to a plan."""
        return Accumulated(self.favourable, self.noise, self.variance, self.action_unit, n, self.max_parts)

    def advance(self, crowd: np.ndarray, changes: np.ndarray, rng: Randomness) -> np.ndarray:
        """The crowd after a noisy action each."""
        units = np.abs(changes).sum(axis=1) / self.action_unit
        parts = np.ceil(units - 1e-9).clip(0, self.max_parts).astype(int)
        crowd = crowd.copy()
        for part in range(parts.max(initial=0)):
            rows = np.flatnonzero(parts > part)
            actions = np.repeat(changes[rows] / parts[rows, None], crowd.shape[1], axis=0)
            shared: Randomness = rng
            if not isinstance(rng, np.random.Generator):
                shared = SharedGenerators(rng[row] for row in rows.tolist())
            people = crowd[rows].reshape(-1, crowd.shape[2])
            moved = noisy_step(people, actions, self.noise, self.variance, self.action_unit, shared)
            crowd[rows] = moved.reshape(len(rows), *crowd.shape[1:])
        return crowd

    def observe(self, states: np.ndarray, crowd: np.ndarray) -> np.ndarray:
        """The middle of the crowd: where following the plan so far has led people, noise and all."""
        return crowd.mean(axis=1)

    def rates(self, states: np.ndarray, crowd: np.ndarray, rng: Randomness) -> np.ndarray:
        """Share of each crowd that does not end favourably: no noise is drawn, it is in the crowd already."""
        accepted = np.asarray(self.favourable(crowd.reshape(-1, crowd.shape[2])), dtype=float)
        return 1.0 - accepted.reshape(crowd.shape[:2]).mean(axis=1)

    def judge(
        self, factuals: np.ndarray, plans: Sequence[np.ndarray], n_samples: int, rng: Randomness, confidence: float
    ) -> InvalidationRate:
        """Acc AIR of each plan, implemented unit by unit."""
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
        )


def ends_of(factuals: np.ndarray, plans: Sequence[np.ndarray]) -> np.ndarray:
    """(b, d) where plans lead if they are implemented precisely."""
    return np.stack([factual + plan.sum(axis=0) for factual, plan in zip(factuals, plans, strict=True)])
