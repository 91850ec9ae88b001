"""Algorithm 3: robust recourse as a Markov decision process, vectorised over environments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from rose_carla.errors import PlanError
from rose_carla.mdp.actions import ActionSpace
from rose_carla.mdp.noise_models import Robustness

#: From states (b, d) to the probability of the favourable outcome (b,).
Probability = Callable[[np.ndarray], np.ndarray]
#: From states (b, d) to a cost (b,) that is subtracted from the reward.
StateCost = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Step:
    """Result of one action in each of n environments.

    Parameters
    ----------
    observations
        (n, d) observations for the next actions; environments that ended have been reset.
    rewards
        (n,) rewards.
    sizes
        (n,) size of each action in units.
    discounts
        (n,) discount of each action.
    terminated
        (n,) whether the goal was reached, or no action is possible any more.
    truncated
        (n,) whether the episode reached its maximum length; the value of its last state still counts.
    reached
        (n,) whether the goal was reached.
    finals
        (n, d) observations after the actions, before any reset.
    """

    observations: np.ndarray
    rewards: np.ndarray
    sizes: np.ndarray
    discounts: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    reached: np.ndarray
    finals: np.ndarray


class VectorMDP(Protocol):
    """Interface of :func:`rose_carla.ppo.train` to n environments that advance together."""

    width: int
    n_actions: int

    def reset(self, n_envs: int, rng: np.random.Generator) -> np.ndarray:
        """Start ``n_envs`` environments, with all randomness from ``rng``; return observations (n, width)."""

    def mask(self) -> np.ndarray:
        """Return which actions are possible now, (n, n_actions)."""

    def step(self, actions: np.ndarray) -> Step:
        """Take one action in each environment; reset those that end."""


@dataclass(eq=False)
class RecourseMDP:
    r"""Algorithm 3: state, actions, transition and reward.

    .. math::
        r = \begin{cases} (1 - IR) \cdot R & f(s') = 1 \text{ and } IR < 1 - \tau \text{, the end} \\
        p(s') & \text{otherwise} \end{cases}

    The discount of an action a is gamma^(|a| / u): the size of an action is time.

    Parameters
    ----------
    actions
        The action space.
    probability
        From states (b, d) to the probability of the favourable outcome.
    starts
        (n, d) states in which episodes start: training rows with an unfavourable outcome.
    robustness
        The noise model.
    tau
        Robustness threshold.
    gamma
        Discount of one unit of action.
    reward
        The large constant reward R.
    max_actions
        Maximum number of actions per episode.
    border
        Probability above which a state counts as favourable.
    cost
        Cost of a state, subtracted from the reward.
    """

    actions: ActionSpace
    probability: Probability
    starts: np.ndarray
    robustness: Robustness
    tau: float = 0.75
    gamma: float = 0.99
    reward: float = 100.0
    max_actions: int = 50
    border: float = 0.5
    cost: StateCost | None = None

    def __post_init__(self) -> None:
        self.width, self.n_actions = self.actions.width, self.actions.n
        self.starts = self.starts[self.actions.mask(self.starts).any(axis=1)]
        if len(self.starts) == 0:
            raise PlanError("No action is possible in any start state: check immutable and monotone features.")

    def reset(self, n_envs: int, rng: np.random.Generator) -> np.ndarray:
        """Start ``n_envs`` environments in random states of ``starts``."""
        self._rng = rng
        self._states = np.empty((n_envs, self.width))
        self._crowds = np.empty((n_envs, self.robustness.crowd_size, self.width))
        self._taken = np.zeros(n_envs, dtype=np.int64)
        self._restart(np.ones(n_envs, dtype=bool))
        return self._observations()

    @property
    def states(self) -> np.ndarray:
        """(n, d) states in which the next actions are taken: after precise implementation of the actions so far, which
        are valid encodings, or where people landed."""
        return self._states.copy()

    def mask(self) -> np.ndarray:
        """Return which actions are possible, (n, n_actions)."""
        return self.actions.mask(self._states)

    def step(self, actions: np.ndarray) -> Step:
        """Make the transition of Algorithm 3 in every environment and return its reward."""
        before = self._states
        after = self.actions.apply(before, actions)
        changes = after - before
        self._crowds = self.robustness.advance(self._crowds, changes, self._rng)
        self._states = self.robustness.land(after, self._crowds)
        sizes = (np.abs(changes) / self.actions.units).sum(axis=1)
        self._taken += 1
        chance = self.probability(self._states)
        rates = np.ones(len(chance))
        accepted = chance > self.border
        if accepted.any():
            rates[accepted] = self.robustness.rates(self._states[accepted], self._crowds[accepted], self._rng)
        reached = accepted & (rates < 1 - self.tau)
        stuck = ~reached & ~self.mask().any(axis=1)
        truncated = ~reached & ~stuck & (self._taken >= self.max_actions)
        rewards = np.where(reached, (1 - rates) * self.reward, chance)
        if self.cost is not None:
            rewards = rewards - self.cost(self._states)
        finals = self._observations()
        ended = reached | stuck | truncated
        if ended.any():
            self._restart(ended)
        return Step(
            observations=self._observations(),
            rewards=rewards,
            sizes=sizes,
            discounts=self.gamma**sizes,
            terminated=reached | stuck,
            truncated=truncated,
            reached=reached,
            finals=finals,
        )

    def _observations(self) -> np.ndarray:
        return self.robustness.observe(self._states, self._crowds)

    def _restart(self, ended: np.ndarray) -> None:
        chosen = self._rng.integers(len(self.starts), size=ended.sum())
        self._states[ended] = self.starts[chosen]
        self._crowds[ended] = self.starts[chosen][:, None, :]
        self._taken[ended] = 0
