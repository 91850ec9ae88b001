"""Hyper-parameters of PPO, and the log of its training. Names are those of Stable-Baselines3 and CleanRL."""

from __future__ import annotations

from dataclasses import dataclass

from rose_carla._lib.params import Hyperparameters, integer, number


@dataclass(frozen=True)
class PPOSettings(Hyperparameters):
    """Hyper-parameters of PPO."""

    #: Number of parallel environments.
    n_envs: int = integer(128, le=10**5)
    #: Steps in each environment per update.
    n_steps: int = integer(32, le=10**5)
    #: Maximum number of updates of one attempt.
    n_updates: int = integer(60)
    #: Time limit in seconds.
    max_seconds: float = number(1e6, gt=0)
    #: Passes over a rollout per update.
    n_epochs: int = integer(4)
    #: Minibatch size.
    batch_size: int = integer(1024)
    #: Initial learning rate of Adam, annealed linearly.
    learning_rate: float = number(2e-3, gt=0, le=1e6)
    #: Width of the two hidden layers of actor and critic.
    hidden: int = integer(64, le=10**4)
    #: Lambda of generalised advantage estimation: 0 relies on the critic, 1 on the returns.
    gae_lambda: float = number(0.95, ge=0, le=1)
    #: Clipping range of probability ratios and of values.
    clip_range: float = number(0.2, gt=0, le=1e6)
    #: Initial coefficient of the entropy bonus, annealed linearly.
    ent_coef: float = number(0.005, ge=0)
    #: Coefficient of the value loss.
    vf_coef: float = number(0.5, ge=0)
    #: Maximum norm of the gradient.
    max_grad_norm: float = number(0.5, gt=0)
    #: Approximate KL divergence above which the epochs of an update stop.
    target_kl: float = number(0.05, gt=0)
    #: Factor on rewards, which keeps values near 1.
    reward_scale: float = number(0.01, gt=0)
    #: Updates between two evaluations of the greedy policy.
    evaluate_every: int = integer(1)
    #: Evaluations without improvement after which training stops.
    patience: int = integer(8)
    #: Relative decrease of the cost that counts as an improvement.
    tolerance: float = number(0.01, ge=0)
    #: Greedy validity below which training that no longer improves is stuck rather than converged.
    target_validity: float = number(0.9, ge=0, le=1)
    #: Further attempts with more exploration if training is stuck.
    restarts: int = integer(2, ge=0, le=100)


@dataclass(frozen=True)
class Update:
    """Log entry of one update."""

    #: Environment steps and time since the start of training.
    steps: int
    seconds: float
    #: Speed of this update, rollout and gradient steps together.
    steps_per_second: float
    #: Share of the episodes ended in this rollout that reached the goal; NaN if none ended.
    validity: float
    #: Mean size of the plans that reached it, in units of action; NaN without one.
    cost: float
    #: Entropy of the policy.
    entropy: float
    #: Approximate KL divergence from the policy before the update.
    approx_kl: float
    #: Share of steps whose probability ratio was clipped.
    clip_fraction: float
    #: Share of the variance of returns that the critic predicted.
    explained_variance: float
    #: Clipped value loss.
    value_loss: float
    #: Validity and cost of the greedy policy on held-out rows; NaN where it was not evaluated.
    greedy_validity: float = float("nan")
    greedy_cost: float = float("nan")
