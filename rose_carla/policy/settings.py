"""What the learner is told, and what it tells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rose_carla.errors import PlanError


@dataclass(frozen=True)
class PPOSettings:
    """Hyper-parameters of the learner."""

    #: Environments that advance together.
    n_environments: int = 128
    #: Actions in each environment between two updates.
    n_steps: int = 32
    #: Most updates; training ends earlier when it has converged.
    n_updates: int = 60
    #: Passes over the collected steps in an update.
    n_epochs: int = 4
    #: Steps to a gradient.
    batch_size: int = 1024
    #: Step size of Adam at the start; falls linearly.
    learning_rate: float = 2e-3
    #: Width of the two hidden layers of actor and critic.
    hidden: int = 64
    #: Weight of far rewards in the advantage: 0 trusts the critic, 1 the returns.
    gae_lambda: float = 0.95
    #: How far the probability of an action may move in an update.
    clip: float = 0.2
    #: Weight of the entropy bonus at the start; falls linearly.
    entropy: float = 0.005
    #: Weight of the critic's loss.
    value_weight: float = 0.5
    #: Longest gradient.
    max_gradient: float = 0.5
    #: Epochs of an update end when the policy has moved by so much.
    max_kl: float = 0.05
    #: Rewards are multiplied by that, so that values are about 1.
    reward_scale: float = 0.01
    #: Updates between two looks at the policy without exploration.
    evaluate_every: int = 1
    #: Looks without improvement after which training ends.
    patience: int = 8
    #: Improvement below that share of the cost does not count.
    tolerance: float = 0.01

    def __post_init__(self) -> None:
        for name in (
            "n_environments",
            "n_steps",
            "n_updates",
            "n_epochs",
            "batch_size",
            "hidden",
            "patience",
            "evaluate_every",
        ):
            if not isinstance(getattr(self, name), (int, np.integer)) or getattr(self, name) < 1:
                raise PlanError(f"{name} has to be a whole number of at least 1, got {getattr(self, name)!r}.")
        for name in ("learning_rate", "clip", "max_gradient", "max_kl", "reward_scale"):
            if not 0 < getattr(self, name) < np.inf:
                raise PlanError(f"{name} has to be above 0, got {getattr(self, name)!r}.")
        for name in ("entropy", "value_weight", "tolerance"):
            if not 0 <= getattr(self, name) < np.inf:
                raise PlanError(f"{name} must not be negative, got {getattr(self, name)!r}.")
        if not 0 <= self.gae_lambda <= 1:
            raise PlanError(f"gae_lambda has to be in [0, 1], got {self.gae_lambda!r}.")


@dataclass(frozen=True)
class Update:
    """What happened up to and in one update.

    Parameters
    ----------
    steps
        Environment steps so far.
    seconds
        Time so far.
    steps_per_second
        Of collecting and learning together, in this update.
    validity
        Share of the episodes that ended in this update which reached the goal; NaN if none ended.
    cost
        Mean size of the plans of those, in units of action; NaN if none.
    entropy
        Of the policy.
    kl
        How far the update moved the policy.
    clip_fraction
        Share of steps whose probability ratio was clipped.
    explained_variance
        Share of the variance of returns that the critic had predicted.
    value_loss
        Of the critic.
    greedy_validity, greedy_cost
        Of the policy without exploration on rows kept for it; NaN where it was not looked at.
    """

    steps: int
    seconds: float
    steps_per_second: float
    validity: float
    cost: float
    entropy: float
    kl: float
    clip_fraction: float
    explained_variance: float
    value_loss: float
    greedy_validity: float = float("nan")
    greedy_cost: float = float("nan")
