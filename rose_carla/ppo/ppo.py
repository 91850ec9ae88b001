"""Proximal policy optimisation (PPO) with generalised advantage estimation (GAE).

Comments name each implementation detail where it applies; docs/ppo.md gives the reason for each. Names of
hyper-parameters are those of Stable-Baselines3 and CleanRL.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from rose_carla._lib.params import Hyperparameters, integer, number
from rose_carla._lib.runtime import one_torch_thread
from rose_carla.mdp import VectorMDP
from rose_carla.ppo.policy import ActorCritic, Update
from torch import nn
from tqdm.auto import tqdm

#: Factor on the entropy coefficient in each further attempt.
_MORE_ENTROPY = 3.0
#: Validity below which a further attempt starts from new weights.
_FAIR_VALIDITY = 0.5


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


@dataclass
class _Rollout:
    """Tensors of shape (n_steps, n_envs, ...)."""

    observations: torch.Tensor
    masks: torch.Tensor
    actions: torch.Tensor
    log_probabilities: torch.Tensor
    values: torch.Tensor
    next_values: torch.Tensor
    rewards: torch.Tensor
    discounts: torch.Tensor
    ended: torch.Tensor


def generalised_advantages(
    rewards: torch.Tensor,
    values: torch.Tensor,
    next_values: torch.Tensor,
    discounts: torch.Tensor,
    ended: torch.Tensor,
    gae_lambda: float,
) -> torch.Tensor:
    r"""Return the GAE advantages (n_steps, n_envs), with one discount per step.

    .. math:: \hat A_t = \delta_t + \gamma_t \lambda \hat A_{t+1}, \qquad \delta_t = r_t + \gamma_t V(s_{t+1}) - V(s_t)

    Parameters
    ----------
    rewards, values, discounts
        r_t, V(s_t), gamma_t.
    next_values
        V(s_{t+1}): 0 after termination, the value of the final state after truncation.
    ended
        Whether the next step belongs to another episode.
    """
    advantages = torch.empty_like(rewards)
    following = torch.zeros_like(rewards[0])
    deltas = rewards + discounts * next_values - values
    weights = discounts * gae_lambda * (~ended)
    for t in reversed(range(len(rewards))):
        following = advantages[t] = deltas[t] + weights[t] * following
    return advantages


def train(
    mdp: VectorMDP,
    settings: PPOSettings | None = None,
    seed: int = 0,
    *,
    policy: ActorCritic | None = None,
    evaluate: Callable[[ActorCritic], tuple[float, float]] | None = None,
    progress: bool | None = False,
) -> tuple[ActorCritic, list[Update]]:
    """Train a policy on ``mdp``.

    Parameters
    ----------
    mdp
        Vectorised environment.
    settings
        Hyper-parameters.
    seed
        Seed of weights, actions and environments; global generators are not used.
    policy
        Policy to start from, including its hidden size, instead of random weights; it is not modified.
    evaluate
        Function from a policy to the validity and mean cost of its greedy actions. If given, the best policy is
        returned and training stops early once it no longer improves; if it is stuck at a low validity, it is
        continued with more exploration or restarted first.
    progress
        Whether to show a progress bar; None: only on a terminal.

    Returns
    -------
    policy, log
        The policy and one :class:`Update` for each update.
    """
    settings = settings or PPOSettings()
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    with one_torch_thread(), torch.enable_grad():
        initial = policy
        hidden = settings.hidden if initial is None else initial.hidden
        # Orthogonal initialisation, invalid action masking: in ActorCritic
        policy = ActorCritic(mdp.width, mdp.n_actions, hidden, generator)
        if initial is not None:
            policy.load_state_dict(initial.state_dict())
        # Adam epsilon
        optimiser = torch.optim.Adam(policy.parameters(), lr=settings.learning_rate, eps=1e-5)
        collector = _Collector(mdp, settings, generator, rng)
        log: list[Update] = []
        best = _Best(settings)
        bar = tqdm(
            total=settings.n_updates, desc="policy", disable=None if progress is None else not progress, leave=False
        )
        start = time.perf_counter()
        number, begin, ent_coef = 0, 0, settings.ent_coef
        while number < begin + settings.n_updates:
            before = time.perf_counter()
            # Learning rate and entropy annealing
            left = 1.0 - (number - begin) / settings.n_updates
            for group in optimiser.param_groups:
                group["lr"] = settings.learning_rate * left
            rollout = collector.collect(policy)
            statistics = _improve(policy, optimiser, rollout, settings, ent_coef * left, generator)
            now = time.perf_counter()
            number += 1
            update = Update(
                steps=number * settings.n_envs * settings.n_steps,
                seconds=now - start,
                steps_per_second=settings.n_envs * settings.n_steps / (now - before),
                validity=collector.validity(),
                cost=collector.cost(),
                **statistics,
            )
            best.rollouts.append(update.validity)
            if evaluate is not None and number % settings.evaluate_every == 0:
                validity, cost = evaluate(policy)
                update = replace(update, greedy_validity=validity, greedy_cost=cost)
                best.update(policy, validity, cost)
            log.append(update)
            bar.set_postfix_str(f"validity {update.validity:.2f}, cost {update.cost:.1f} units")
            bar.update()
            if best.converged or now - start > settings.max_seconds:
                break
            # Restarts of stuck training
            if best.stuck:
                fresh = ActorCritic(mdp.width, mdp.n_actions, hidden, generator)
                best.restart(policy, (initial or fresh).state_dict())
                optimiser = torch.optim.Adam(policy.parameters(), lr=settings.learning_rate, eps=1e-5)
                begin, ent_coef = number, _MORE_ENTROPY * ent_coef
                bar.reset()
        bar.close()
    best.restore(policy)
    return policy.requires_grad_(False), log


class _Collector:
    """Collector of rollouts; each continues the episodes of the last."""

    def __init__(
        self, mdp: VectorMDP, settings: PPOSettings, generator: torch.Generator, rng: np.random.Generator
    ) -> None:
        self.mdp = mdp
        self.settings = settings
        self.generator = generator
        self.observations = _float32(mdp.reset(settings.n_envs, rng))
        self._spent = np.zeros(settings.n_envs)

    def collect(self, policy: ActorCritic) -> _Rollout:
        """Take ``n_steps`` sampled actions in each environment."""
        n_steps, n = self.settings.n_steps, self.settings.n_envs
        log_probabilities, rewards, discounts = torch.empty(3, n_steps, n)
        observations = torch.empty(n_steps, n, self.mdp.width)
        masks = torch.empty(n_steps, n, self.mdp.n_actions, dtype=torch.bool)
        actions = torch.empty(n_steps, n, dtype=torch.int64)
        terminated, ended = torch.empty(2, n_steps, n, dtype=torch.bool)
        truncated: list[tuple[int, np.ndarray, np.ndarray]] = []
        self._reached, self._ended = 0, 0
        self._costs: list[float] = []
        with torch.no_grad():
            for t in range(n_steps):
                observations[t] = self.observations
                masks[t] = torch.from_numpy(self.mdp.mask())
                logs = policy.log_probabilities(observations[t], masks[t])
                # Gumbel-max sampling
                gumbel = -torch.empty_like(logs).exponential_(generator=self.generator).log()
                actions[t] = (logs + gumbel).argmax(dim=1)
                log_probabilities[t] = logs.gather(1, actions[t][:, None])[:, 0]
                step = self.mdp.step(actions[t].numpy())
                # Reward scaling
                rewards[t] = _float32(step.rewards) * self.settings.reward_scale
                # Discount per step: the size of an action is time
                discounts[t] = _float32(step.discounts)
                ended[t] = torch.from_numpy(step.terminated | step.truncated)
                terminated[t] = torch.from_numpy(step.terminated)
                if step.truncated.any():
                    truncated.append((t, np.flatnonzero(step.truncated), step.finals[step.truncated]))
                self._count(step.sizes, step.terminated | step.truncated, step.reached)
                self.observations = _float32(step.observations)
            values = policy.values(torch.cat([observations, self.observations[None]]))
            next_values = values[1:] * ~terminated
            # Bootstrapping at truncation
            for t, rows, finals in truncated:
                next_values[t, torch.from_numpy(rows)] = policy.values(_float32(finals))
        return _Rollout(
            observations, masks, actions, log_probabilities, values[:-1], next_values, rewards, discounts, ended
        )

    def validity(self) -> float:
        """Share of the episodes ended in the last rollout that reached the goal."""
        return self._reached / self._ended if self._ended else float("nan")

    def cost(self) -> float:
        """Mean size of the plans that reached it, in units of action."""
        return float(np.mean(self._costs)) if self._costs else float("nan")

    def _count(self, sizes: np.ndarray, ended: np.ndarray, reached: np.ndarray) -> None:
        self._spent += sizes
        self._ended += int(ended.sum())
        self._reached += int(reached.sum())
        self._costs.extend(self._spent[reached])
        self._spent[ended] = 0.0


class _Best:
    """Best policy so far, early stopping and restarts."""

    def __init__(self, settings: PPOSettings) -> None:
        self.settings = settings
        self.score = (-1.0, -np.inf)
        self.weights: dict[str, torch.Tensor] | None = None
        self.waited = 0
        self.converged = False
        #: Whether training should be restarted.
        self.stuck = False
        #: Validity of the rollouts of this attempt.
        self.rollouts: list[float] = []
        self._attempts = 0
        self._validity_before = -1.0

    def update(self, policy: ActorCritic, validity: float, cost: float) -> None:
        """Compare by validity, then by cost."""
        best_validity, best_cost = self.score[0], -self.score[1]
        enough = (1 - self.settings.tolerance) * best_cost
        better = validity > best_validity + self.settings.tolerance or (validity >= best_validity and cost < enough)
        self.waited = 0 if better else self.waited + 1
        if (validity, -cost) > self.score:
            self.score = (validity, -cost)
            self.weights = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
        if self.waited < self.settings.patience:
            return
        if self.score[0] >= self.settings.target_validity:
            self.converged = True
        elif not self._improves_in_rollouts():
            gained = self.score[0] > self._validity_before + self.settings.tolerance
            # an attempt in vain at a fair validity: the other rows are probably out of reach
            hopeless = not gained and self.score[0] >= _FAIR_VALIDITY
            self.stuck = self._attempts < self.settings.restarts and not hopeless
            self.converged = not self.stuck

    def restart(self, policy: ActorCritic, initial: dict[str, torch.Tensor]) -> None:
        """Begin another attempt: from the best weights, or from ``initial`` ones if those serve few."""
        policy.load_state_dict(initial if self.score[0] < _FAIR_VALIDITY or self.weights is None else self.weights)
        self._attempts += 1
        self._validity_before = self.score[0]
        self.rollouts, self.waited, self.stuck = [], 0, False

    def _improves_in_rollouts(self) -> bool:
        """Whether the validity of sampled episodes still rises, or there are too few of them to judge."""
        window = self.settings.patience * self.settings.evaluate_every
        if len(self.rollouts) < 2 * window:
            return True
        earlier, later = np.nan_to_num(self.rollouts[-2 * window :]).reshape(2, window).mean(axis=1)
        return bool(later > earlier + self.settings.tolerance)

    def restore(self, policy: ActorCritic) -> None:
        """Load the best weights."""
        if self.weights is not None:
            policy.load_state_dict(self.weights)


def _improve(
    policy: ActorCritic,
    optimiser: torch.optim.Optimizer,
    rollout: _Rollout,
    settings: PPOSettings,
    ent_coef: float,
    generator: torch.Generator,
) -> dict[str, float]:
    """Update actor and critic on a rollout; return statistics for the log."""
    steps = rollout.rewards, rollout.values, rollout.next_values, rollout.discounts, rollout.ended
    advantages = generalised_advantages(*steps, settings.gae_lambda).flatten()
    old_values = rollout.values.flatten()
    returns = advantages + old_values
    observations, masks = rollout.observations.flatten(0, 1), rollout.masks.flatten(0, 1)
    actions, old_logs = rollout.actions.flatten(), rollout.log_probabilities.flatten()
    kls, clipped, entropies, value_losses = [], [], [], []
    for _ in range(settings.n_epochs):
        # Shuffled minibatches
        for rows in torch.randperm(len(actions), generator=generator).split(settings.batch_size):
            logs = policy.log_probabilities(observations[rows], masks[rows])
            log_ratio = logs.gather(1, actions[rows, None])[:, 0] - old_logs[rows]
            ratio = log_ratio.exp()
            # Advantage normalisation
            advantage = advantages[rows]
            advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
            # Clipped surrogate objective
            clipped_ratio = ratio.clamp(1 - settings.clip_range, 1 + settings.clip_range)
            policy_loss = -torch.minimum(advantage * ratio, advantage * clipped_ratio).mean()
            # Clipped value loss
            values = policy.values(observations[rows])
            change = (values - old_values[rows]).clamp(-settings.clip_range, settings.clip_range)
            clipped_values = old_values[rows] + change
            errors = torch.maximum((values - returns[rows]) ** 2, (clipped_values - returns[rows]) ** 2)
            # Entropy bonus
            entropy = -(logs.exp() * logs).sum(dim=1).mean()
            loss = policy_loss + settings.vf_coef * errors.mean() - ent_coef * entropy
            optimiser.zero_grad()
            loss.backward()
            # Global gradient clipping
            nn.utils.clip_grad_norm_(policy.parameters(), settings.max_grad_norm)
            optimiser.step()
            with torch.no_grad():
                kls.append(float((ratio - 1 - log_ratio).mean()))
                clipped.append(float(((ratio - 1).abs() > settings.clip_range).float().mean()))
                entropies.append(float(entropy))
                value_losses.append(float(errors.mean()))
        # Early stopping by KL divergence
        if kls[-1] > settings.target_kl:
            break
    spread = returns.var(correction=0)
    explained = 1 - (returns - old_values).var(correction=0) / spread if spread > 0 else torch.tensor(float("nan"))
    return {
        "entropy": float(np.mean(entropies)),
        "approx_kl": kls[-1],
        "clip_fraction": float(np.mean(clipped)),
        "explained_variance": float(explained),
        "value_loss": float(np.mean(value_losses)),
    }


def _float32(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.asarray(array, dtype=np.float32))
