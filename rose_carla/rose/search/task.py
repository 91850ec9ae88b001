"""What a plan has to achieve, and how far a state is from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from rose_carla.mdp import ActionSpace, Robustness
from rose_carla.noise import InvalidationRate
from rose_carla.rose.search.drafts import Drafts
from scipy.special import logit

#: Probabilities nearer to 0 and 1 than that all have the same logit.
_SURE = 1e-7


@dataclass(frozen=True)
class Task:
    """Reach a state that is favourable and stays so under noise: f(s) = 1 and IR < 1 - tau.

    Parameters
    ----------
    space
        What can be done.
    probability
        From states (b, d) to the probability of the favourable outcome.
    robustness
        The noise.
    tau
        Robustness threshold.
    border
        Probability above which a state is favourable.
    """

    space: ActionSpace
    probability: Callable[[np.ndarray], np.ndarray]
    robustness: Robustness
    tau: float
    border: float = 0.5

    @property
    def limit(self) -> float:
        """The invalidation rate that a plan has to stay below."""
        return 1.0 - self.tau

    def margins(self, states: np.ndarray) -> np.ndarray:
        """(b,) how far each state is inside the favourable side, in logits: above 0 it is favourable."""
        chances = np.asarray(self.probability(states), dtype=float).clip(_SURE, 1 - _SURE)
        return logit(chances) - logit(self.border)

    def judge(
        self, drafts: Drafts, n_samples: int, rngs: Sequence[np.random.Generator], confidence: float
    ) -> InvalidationRate:
        """Invalidation rates of drafts."""
        return self.robustness.judge(drafts.factuals, drafts.plans(), n_samples, rngs, confidence)
