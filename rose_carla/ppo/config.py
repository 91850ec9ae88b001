"""What the learner is told, and what it tells."""

from __future__ import annotations

from dataclasses import dataclass

from rose_carla._lib.params import Hyperparameters, integer, number


@dataclass(frozen=True)
class PPOSettings(Hyperparameters):
    """Hyper-parameters of the learner."""

    #: Environments that advance together.
    n_environments: int = integer(128, le=10**5)
    #: Actions in each environment between two updates.
    n_steps: int = integer(32, le=10**5)
    #: Most updates; training ends earlier when it has converged.
    n_updates: int = integer(60)
    #: Most seconds; training ends earlier when it has converged.
    max_seconds: float = number(1e6, gt=0)
    #: Passes over the collected steps in an update.
    n_epochs: int = integer(4)
    #: Steps to a gradient.
    batch_size: int = integer(1024)
    #: Step size of Adam at the start; falls linearly.
    learning_rate: float = number(2e-3, gt=0, le=1e6)
    #: Width of the two hidden layers of actor and critic.
    hidden: int = integer(64, le=10**4)
    #: Weight of far rewards in the advantage: 0 trusts the critic, 1 the returns.
    gae_lambda: float = number(0.95, ge=0, le=1)
    #: How far the probability of an action may move in an update.
    clip: float = number(0.2, gt=0, le=1e6)
    #: Weight of the entropy bonus at the start; falls linearly.
    entropy: float = number(0.005, ge=0)
    #: Weight of the critic's loss.
    value_weight: float = number(0.5, ge=0)
    #: Longest gradient.
    max_gradient: float = number(0.5, gt=0)
    #: Epochs of an update end when the policy has moved by so much.
    max_kl: float = number(0.05, gt=0)
    #: Rewards are multiplied by that, so that values are about 1.
    reward_scale: float = number(0.01, gt=0)
    #: Updates between two looks at the policy without exploration.
    evaluate_every: int = integer(1)
    #: Looks without improvement after which training ends.
    patience: int = integer(8)
    #: Improvement below that share of the cost does not count.
    tolerance: float = number(0.01, ge=0)


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
