"""Algorithm 3: robust recourse as a Markov decision process, many environments at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from rose_carla.errors import PlanError
from rose_carla.mdp.actions import ActionSpace
from rose_carla.mdp.noise_models import Robustness
from rose_carla.noise.invalidation import Favourable as Classifier

#: From states (b, d) to what being in each of them costs.
StateCost = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Step:
    """What one action in each of n environments led to.

    Parameters
    ----------
    observations
        (n, d) where the next actions start: environments that ended have been started anew.
    rewards
        (n,).
    sizes
        (n,) size of each action in units.
    discounts
        (n,) what the future is worth after actions of these sizes.
    terminated
        (n,) whether the goal was reached, or nothing could be done any more.
    truncated
        (n,) whether an episode was cut off for its length: the state is no end, its value still counts.
    reached
        (n,) whether the goal was reached.
    finals
        (n, d) observations the actions led to, before any new start.
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
    """What :func:`rose_carla.ppo.train` learns on: n environments that advance together."""

    width: int
    n_actions: int

    def reset(self, n_envs: int, rng: np.random.Generator) -> np.ndarray:
        """Start ``n_envs``; all their randomness comes from ``rng``. Observations (n, width)."""

    def mask(self) -> np.ndarray:
        """Which actions are possible now, (n, n_actions)."""

    def step(self, actions: np.ndarray) -> Step:
        """Take one action in each environment; those that end start anew."""


class RecourseMDP:
    r"""State, actions, transition and reward of Algorithm 3.

    .. math::
        r = \begin{cases} (1 - IR) \cdot R & f(s') = 1 \text{ and } IR < 1 - \tau \text{, the end} \\
        p(s') & \text{otherwise} \end{cases}

    and the discount of an action a is gamma^(|a| / u): the size of an action is time.

    Parameters
    ----------
    actions
        The action space.
    probability
        From states (b, d) to the probability of the favourable outcome.
    starts
        (n, d) states in which episodes start: training rows that the classifier turns down.
    robustness
        The noise.
    tau
        Robustness threshold.
    gamma
        Discount of one unit of action.
    reward
        The large constant reward R.
    max_actions
        Actions to an episode.
    border
        Probability above which a state counts as favourable.
    cost
        What being in a state costs: it is taken off the reward.
    """

    def __init__(
        self,
        actions: ActionSpace,
        probability: Classifier,
        starts: np.ndarray,
        robustness: Robustness,
        tau: float = 0.75,
        gamma: float = 0.99,
        reward: float = 100.0,
        max_actions: int = 50,
        border: float = 0.5,
        cost: StateCost | None = None,
    ) -> None:
        starts = np.asarray(starts, dtype=float)
        if starts.ndim != 2 or starts.shape[1] != actions.width or len(starts) == 0:
            raise PlanError(f"Expected states to start from of shape (n, {actions.width}), got {starts.shape}.")
        if not 0 < tau <= 1 or not 0 < gamma < 1 or max_actions < 1:
            raise PlanError(
                f"tau has to be in (0, 1], gamma in (0, 1), max_actions at least 1: {tau}, {gamma}, {max_actions}."
            )
        starts = starts[actions.mask(starts).any(axis=1)]
        if len(starts) == 0:
            raise PlanError("In no state to start from is any action possible: check immutables and monotone features.")
        self.actions = actions
        self.probability = probability
        self.starts = starts
        self.robustness = robustness
        self.tau = tau
        self.gamma = gamma
        self.reward = reward
        self.max_actions = max_actions
        self.border = border
        self.cost = cost
        self.width = actions.width
        self.n_actions = actions.n

    def reset(self, n_envs: int, rng: np.random.Generator) -> np.ndarray:
        """Start ``n_envs`` in random states of ``starts``."""
        self._rng = rng
        self._states = np.empty((n_envs, self.width))
        self._crowds = np.empty((n_envs, self.robustness.crowd_size, self.width))
        self._taken = np.zeros(n_envs, dtype=np.int64)
        self._restart(np.ones(n_envs, dtype=bool))
        return self._observations()

    @property
    def states(self) -> np.ndarray:
        """(n, d) where the actions taken so far lead if implemented precisely: always a valid encoding."""
        return self._states.copy()

    def mask(self) -> np.ndarray:
        """Which actions are possible, (n, n_actions)."""
        return self.actions.mask(self._states)

    def step(self, actions: np.ndarray) -> Step:
        """Transition and reward of Algorithm 3 in every environment."""
        before = self._states
        self._states = self.actions.apply(before, actions)
        changes = self._states - before
        self._crowds = self.robustness.advance(self._crowds, changes, self._rng)
        sizes = np.abs(changes).sum(axis=1) / self.actions.action_unit
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
