"""Proximal policy optimisation with generalised advantage estimation, from top to bottom.

The numbers in the comments are those of docs/ppo.md, which gives the reason for each detail.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from rose_carla.mdp import VectorMDP
from rose_carla.models.training import one_thread
from rose_carla.ppo.actor_critic import ActorCritic
from rose_carla.ppo.config import PPOSettings, Update
from torch import nn
from tqdm.auto import tqdm


@dataclass
class _Rollout:
    """(steps, environments) of everything, as tensors."""

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
    r"""Advantages (steps, environments) by GAE with a discount of its own for every step.

    .. math:: \hat A_t = \delta_t + \gamma_t \lambda \hat A_{t+1}, \qquad \delta_t = r_t + \gamma_t V(s_{t+1}) - V(s_t)

    Parameters
    ----------
    rewards, values, discounts
        r_t, V(s_t), gamma_t.
    next_values
        V(s_{t+1}): 0 where the goal was reached, the value of the state itself where an episode was cut off.
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
    """Learn a policy for ``mdp``.

    Parameters
    ----------
    mdp
        What to learn.
    settings
        Hyper-parameters.
    seed
        Of weights, actions and environments. No global seed is touched.
    policy
        Go on with this one, and its hidden layers, instead of starting from scratch; it is not changed.
    evaluate
        From a policy to validity and mean cost without exploration. With it the best policy seen is returned, and
        training ends early once it gets no better.
    progress
        Show a progress bar; None: if it goes to a terminal.

    Returns
    -------
    policy, log
        The policy and one :class:`Update` for each update.
    """
    settings = settings or PPOSettings()
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    with one_thread(), torch.enable_grad():
        known = policy
        hidden = settings.hidden if known is None else known.hidden
        policy = ActorCritic(mdp.width, mdp.n_actions, hidden, generator)  # 1, 2
        if known is not None:
            policy.load_state_dict(known.state_dict())
        optimiser = torch.optim.Adam(policy.parameters(), lr=settings.learning_rate, eps=1e-5)  # 3
        collector = _Collector(mdp, settings, generator, rng)
        log: list[Update] = []
        best = _Best(settings)
        bar = tqdm(
            range(settings.n_updates), desc="policy", disable=None if progress is None else not progress, leave=False
        )
        start = time.perf_counter()
        for number in bar:
            before = time.perf_counter()
            left = 1.0 - number / settings.n_updates
            for group in optimiser.param_groups:
                group["lr"] = settings.learning_rate * left  # 4
            rollout = collector.collect(policy)
            update = _improve(policy, optimiser, rollout, settings, settings.entropy * left, generator)
            now = time.perf_counter()
            update = replace(
                update,
                steps=(number + 1) * settings.n_environments * settings.n_steps,
                seconds=now - start,
                steps_per_second=settings.n_environments * settings.n_steps / (now - before),
                validity=collector.validity(),
                cost=collector.cost(),
            )
            if evaluate is not None and (number + 1) % settings.evaluate_every == 0:
                validity, cost = evaluate(policy)
                update = replace(update, greedy_validity=validity, greedy_cost=cost)
                best.look(policy, validity, cost)
            log.append(update)
            bar.set_postfix_str(f"validity {update.validity:.2f}, cost {update.cost:.1f} units")
            if best.converged or now - start > settings.max_seconds:
                break
    best.restore(policy)
    return policy.requires_grad_(False), log


class _Collector:
    """Acts in the environments, from where it left off."""

    def __init__(
        self, mdp: VectorMDP, settings: PPOSettings, generator: torch.Generator, rng: np.random.Generator
    ) -> None:
        self.mdp = mdp
        self.settings = settings
        self.generator = generator
        self.observations = _single(mdp.reset(settings.n_environments, rng))
        self._spent = np.zeros(settings.n_environments)

    def collect(self, policy: ActorCritic) -> _Rollout:
        """``n_steps`` actions drawn from the policy in each environment."""
        n_steps, n = self.settings.n_steps, self.settings.n_environments
        floats = {
            name: torch.zeros(n_steps, n) for name in ("log_probabilities", "next_values", "rewards", "discounts")
        }
        observations = torch.empty(n_steps, n, self.mdp.width)
        masks = torch.empty(n_steps, n, self.mdp.n_actions, dtype=torch.bool)
        actions = torch.empty(n_steps, n, dtype=torch.int64)
        ended = torch.empty(n_steps, n, dtype=torch.bool)
        cut: list[tuple[int, np.ndarray, np.ndarray]] = []
        terminated = np.empty((n_steps, n), dtype=bool)
        self._reached, self._ended = 0, 0
        self._costs: list[float] = []
        with torch.no_grad():
            for t in range(n_steps):
                observations[t] = self.observations
                masks[t] = torch.from_numpy(self.mdp.mask())
                logs = policy.log_probabilities(observations[t], masks[t])
                gumbel = -torch.empty_like(logs).exponential_(generator=self.generator).log()  # 5
                actions[t] = (logs + gumbel).argmax(dim=1)
                floats["log_probabilities"][t] = logs.gather(1, actions[t][:, None])[:, 0]
                step = self.mdp.step(actions[t].numpy())
                floats["rewards"][t] = _single(step.rewards) * self.settings.reward_scale  # 6
                floats["discounts"][t] = _single(step.discounts)  # 7
                ended[t] = torch.from_numpy(step.terminated | step.truncated)
                terminated[t] = step.terminated
                if step.truncated.any():
                    cut.append((t, np.flatnonzero(step.truncated), step.finals[step.truncated]))
                self._count(step.sizes, step.terminated | step.truncated, step.reached)
                self.observations = _single(step.observations)
            values = policy.values(torch.cat([observations, self.observations[None]]))
            next_values = values[1:] * ~torch.from_numpy(terminated)
            for t, rows, finals in cut:  # 8
                next_values[t, torch.from_numpy(rows)] = policy.values(_single(finals))
        floats["next_values"] = next_values
        return _Rollout(
            observations=observations, masks=masks, actions=actions, values=values[:-1], ended=ended, **floats
        )

    def validity(self) -> float:
        """Share of the episodes that ended since :meth:`collect` began which reached the goal."""
        return self._reached / self._ended if self._ended else float("nan")

    def cost(self) -> float:
        """Mean size of their plans, in units of action."""
        return float(np.mean(self._costs)) if self._costs else float("nan")

    def _count(self, sizes: np.ndarray, ended: np.ndarray, reached: np.ndarray) -> None:
        self._spent += sizes
        self._ended += int(ended.sum())
        self._reached += int(reached.sum())
        self._costs.extend(self._spent[reached])
        self._spent[ended] = 0.0


class _Best:
    """The best policy seen, and whether it gets any better."""

    def __init__(self, settings: PPOSettings) -> None:
        self.settings = settings
        self.score = (-1.0, -np.inf)
        self.weights: dict[str, torch.Tensor] | None = None
        self.waited = 0
        self.converged = False

    def look(self, policy: ActorCritic, validity: float, cost: float) -> None:
        """First validity counts, then cost."""
        known_validity, known_cost = self.score[0], -self.score[1]
        enough = (1 - self.settings.tolerance) * known_cost
        better = validity > known_validity + self.settings.tolerance or (validity >= known_validity and cost < enough)
        self.waited = 0 if better else self.waited + 1
        if (validity, -cost) > self.score:
            self.score = (validity, -cost)
            self.weights = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
        self.converged = self.waited >= self.settings.patience

    def restore(self, policy: ActorCritic) -> None:
        """Put the best weights back."""
        if self.weights is not None:
            policy.load_state_dict(self.weights)


def _improve(
    policy: ActorCritic,
    optimiser: torch.optim.Optimizer,
    rollout: _Rollout,
    settings: PPOSettings,
    entropy_weight: float,
    generator: torch.Generator,
) -> Update:
    """One update of actor and critic."""
    advantages = generalised_advantages(
        rollout.rewards,
        rollout.values,
        rollout.next_values,
        rollout.discounts,
        rollout.ended,
        settings.gae_lambda,
    ).flatten()
    old_values = rollout.values.flatten()
    returns = advantages + old_values
    observations, masks = rollout.observations.flatten(0, 1), rollout.masks.flatten(0, 1)
    actions, old_logs = rollout.actions.flatten(), rollout.log_probabilities.flatten()
    kls, clipped, entropies, value_losses = [], [], [], []
    for _ in range(settings.n_epochs):
        for rows in torch.randperm(len(actions), generator=generator).split(settings.batch_size):  # 9
            logs = policy.log_probabilities(observations[rows], masks[rows])
            log_ratio = logs.gather(1, actions[rows, None])[:, 0] - old_logs[rows]
            ratio = log_ratio.exp()
            advantage = advantages[rows]
            advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)  # 10
            bounded = ratio.clamp(1 - settings.clip, 1 + settings.clip)
            actor_loss = -torch.minimum(advantage * ratio, advantage * bounded).mean()  # 11
            values = policy.values(observations[rows])
            near = old_values[rows] + (values - old_values[rows]).clamp(-settings.clip, settings.clip)
            errors = torch.maximum((values - returns[rows]) ** 2, (near - returns[rows]) ** 2)  # 12
            entropy = -(logs.exp() * logs).sum(dim=1).mean()  # 13
            loss = actor_loss + settings.value_weight * errors.mean() - entropy_weight * entropy
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), settings.max_gradient)  # 14
            optimiser.step()
            with torch.no_grad():
                kls.append(float((ratio - 1 - log_ratio).mean()))
                clipped.append(float(((ratio - 1).abs() > settings.clip).float().mean()))
                entropies.append(float(entropy))
                value_losses.append(float(errors.mean()))
        if kls[-1] > settings.max_kl:  # 15
            break
    spread = returns.var(correction=0)
    explained = 1 - (returns - old_values).var(correction=0) / spread if spread > 0 else torch.tensor(float("nan"))
    unknown = float("nan")
    return Update(
        steps=0,
        seconds=0.0,
        steps_per_second=0.0,
        validity=unknown,
        cost=unknown,
        entropy=float(np.mean(entropies)),
        kl=kls[-1],
        clip_fraction=float(np.mean(clipped)),
        explained_variance=float(explained),
        value_loss=float(np.mean(value_losses)),
    )


def _single(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.asarray(array, dtype=np.float32))
