"""PPO against closed forms, and on grid worlds whose optimal policy is known."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from mdp_examples import MOVES, GridWorld, greedy_values, optimal_values
from rose_carla.errors import PlanError
from rose_carla.mdp import Step, check_mdp
from rose_carla.ppo import ActorCritic, PPOSettings, generalised_advantages, train

#: Enough for grid worlds of a few cells.
SMALL = PPOSettings(n_envs=32, n_steps=32, n_updates=30, batch_size=256)
ONE_UPDATE = replace(SMALL, n_updates=1)
#: Enough to change the weights.
SHORT = PPOSettings(n_envs=8, n_steps=8, n_updates=2, batch_size=32, hidden=16)


def weights(policy):
    return [tensor.numpy().tobytes() for tensor in policy.state_dict().values()]


def advantage_by_sum(t, rewards, values, next_values, discounts, ended, gae_lambda):
    """Sum over all later steps k of the episode of delta_k times what steps t to k - 1 discount."""
    total, weight = 0.0, 1.0
    for k in range(t, len(rewards)):
        total += weight * (rewards[k] + discounts[k] * next_values[k] - values[k])
        if ended[k]:
            break
        weight *= discounts[k] * gae_lambda
    return total


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.sampled_from([0.0, 0.5, 0.95, 1.0]))
@hypothesis_settings(deadline=None, max_examples=60)
def test_advantages_are_a_sum_over_later_deltas(seed, steps, gae_lambda):
    rng = np.random.default_rng(seed)
    rewards, values, next_values = rng.normal(size=(3, steps, 4))
    discounts = rng.uniform(0.5, 1.0, (steps, 4))
    terminated = rng.random((steps, 4)) < 0.2
    ended = terminated | (rng.random((steps, 4)) < 0.2)  # the others are truncated: their last state keeps its value
    next_values[terminated] = 0.0
    found = generalised_advantages(
        *map(torch.from_numpy, (rewards, values, next_values, discounts, ended)), gae_lambda
    ).numpy()
    for t in range(steps):
        for e in range(4):
            columns = [array[:, e] for array in (rewards, values, next_values, discounts, ended)]
            assert found[t, e] == pytest.approx(advantage_by_sum(t, *columns, gae_lambda), abs=1e-12)


def test_advantages_by_hand():
    """Three steps with discounts 1/2, 1/4, 1/2; the second ends an episode, the third is not the last of its own."""
    found = generalised_advantages(
        rewards=torch.tensor([[1.0], [8.0], [2.0]]),
        values=torch.tensor([[3.0], [4.0], [5.0]]),
        next_values=torch.tensor([[4.0], [0.0], [6.0]]),
        discounts=torch.tensor([[0.5], [0.25], [0.5]]),
        ended=torch.tensor([[False], [True], [False]]),
        gae_lambda=0.5,
    )
    assert found[:, 0].tolist() == [0.0 + 0.5 * 0.5 * 4.0, 4.0, 0.0]


@pytest.fixture(scope="module")
def learned():
    """A small grid, and what is learned there."""
    world = GridWorld(side=4, moves=MOVES[:4])
    return world, *train(world, SMALL, seed=0)


def test_shortest_paths_are_learned(learned):
    world, policy, log = learned
    check_mdp(world)
    cells = {start: walked for start, (_, walked) in greedy_values(world, policy).items()}
    assert cells == {(x, y): (3 - x) + (3 - y) for x, y in world.starts}
    assert log[-1].validity == 1.0
    assert log[-1].cost < log[0].cost


@pytest.mark.slow
def test_grid_with_walls_and_a_poor_goal_against_value_iteration():
    """The poor goal is near, the rich one behind a wall with one gap."""
    walls = [(2, y) for y in range(5)]
    world = GridWorld(side=6, goals={(5, 0): 100.0, (0, 0): 20.0}, walls=walls, gamma=0.93)
    check_mdp(world)
    best = optimal_values(world)
    total = sum(best.values())
    untrained = ActorCritic(2, world.n_actions, generator=torch.Generator().manual_seed(0))
    assert sum(value for value, _ in greedy_values(world, untrained).values()) < 0.5 * total
    policy, _ = train(world, PPOSettings(n_envs=64, n_steps=32, n_updates=40, batch_size=512), seed=0)
    learned = {start: value for start, (value, _) in greedy_values(world, policy).items()}
    assert all(learned[start] <= best[start] + 1e-9 for start in best)
    assert sum(learned.values()) > 0.95 * total


class TwoStates:
    """One action: from state 0 to state 1, where the episode ends or is truncated; in state 1 it pays 100 and ends."""

    width, n_actions = 1, 1

    def __init__(self, truncate):
        self.truncate = truncate

    def reset(self, n_envs, rng):
        self.n, self.rng = n_envs, rng
        self.states = rng.integers(2, size=(self.n, 1)).astype(float)
        return self.states

    def mask(self):
        return np.ones((self.n, self.n_actions), dtype=bool)

    def step(self, actions):
        paid = self.states[:, 0] == 1
        cut = ~paid & self.truncate
        half, finals = np.full(self.n, 0.5), np.ones((self.n, 1))
        return Step(self.reset(self.n, self.rng), 100.0 * paid, 2 * half, half, ~cut, cut, paid, finals)


@pytest.mark.parametrize(("truncate", "value"), [(True, 0.5), (False, 0.0)])
def test_values_are_bootstrapped_at_truncation_but_not_at_termination(truncate, value):
    check_mdp(TwoStates(truncate))
    settings = PPOSettings(n_envs=16, n_steps=4, n_updates=80, learning_rate=1e-2)
    policy, _ = train(TwoStates(truncate), settings)
    assert policy.predict_values(np.array([[0.0], [1.0]])) == pytest.approx([value, 1.0], abs=0.03)


def test_same_seed_same_bits():
    policies = [train(GridWorld(side=3), SHORT, seed=seed)[0] for seed in (3, 3, 4)]
    assert weights(policies[0]) == weights(policies[1])
    assert all(a != b for a, b in zip(weights(policies[0]), weights(policies[2]), strict=True))


def test_training_leaves_global_state_unchanged():
    def state():
        python, numpy, pytorch = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
        return python, numpy, pytorch, torch.get_num_threads(), torch.is_grad_enabled()

    before = state()
    train(GridWorld(side=3), SHORT)
    assert state() == before
    with torch.no_grad():  # training enables gradients itself
        assert weights(train(GridWorld(side=3), SHORT)[0]) == weights(train(GridWorld(side=3), SHORT)[0])


class OneInMany(TwoStates):
    """One possible action of many, different in every environment and step."""

    n_actions = 50

    def __init__(self):
        super().__init__(truncate=True)
        self.taken = []

    def reset(self, n_envs, rng):
        self.possible = rng.integers(self.n_actions, size=n_envs)
        return super().reset(n_envs, rng)

    def mask(self):
        return np.arange(self.n_actions) == self.possible[:, None]

    def step(self, actions):
        self.taken.append((actions.copy(), self.possible))
        return super().step(actions)


def test_masked_actions_are_never_sampled():
    world = OneInMany()
    train(world, PPOSettings(n_envs=64, n_steps=32, n_updates=5))
    assert len(world.taken) == 5 * 32
    for actions, possible in world.taken:
        np.testing.assert_array_equal(actions, possible)


def test_masked_actions_have_probability_and_entropy_zero():
    policy = ActorCritic(2, 5, generator=torch.Generator().manual_seed(0))
    rows, mask = np.random.default_rng(0).random((200, 2)), np.array([[True, False, True, False, False]] * 200)
    logs = policy.predict_log_probabilities(rows, mask)
    assert (np.exp(logs)[~mask] == 0).all()
    assert (np.exp(logs) * logs)[~mask].sum() == 0
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1, rtol=1e-6)
    assert set(policy.greedy(rows, mask)) <= {0, 2}


def test_initial_weights_equal_torch_orthogonal():
    """Same bits as ``nn.init.orthogonal_`` with the global generator."""
    policy = ActorCritic(5, 80, hidden=16, generator=torch.Generator().manual_seed(7))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        for network, gain in ((policy.actor, 0.01), (policy.critic, 1.0)):
            for layer, scale in zip(network[::2], (2**0.5, 2**0.5, gain), strict=True):
                expected = torch.nn.init.orthogonal_(torch.empty_like(layer.weight), scale)
                assert torch.equal(layer.weight, expected)
                assert not layer.bias.any()


def test_warm_start_continues_from_a_copy_of_the_policy(learned):
    world, known, _ = learned
    before = weights(known)
    warm, warm_log = train(world, ONE_UPDATE, seed=1, policy=known)
    _, cold_log = train(world, ONE_UPDATE, seed=1)
    assert weights(known) == before
    assert weights(warm) != before
    assert not any(parameter.requires_grad for parameter in known.parameters())
    assert warm_log[0].cost < 0.7 * cold_log[0].cost


def test_warm_start_keeps_the_hidden_size():
    known, _ = train(GridWorld(side=3), SHORT)
    warm, _ = train(GridWorld(side=3), replace(SHORT, hidden=32), policy=known)
    assert warm.hidden == known.hidden == 16


def test_early_stopping_returns_the_best_policy():
    seen = []

    def evaluate(policy):
        seen.append(weights(policy))
        return (0.9, 10.0) if len(seen) == 3 else (0.5, 5.0)  # cheap, but valid less often

    settings = PPOSettings(n_envs=4, n_steps=4, n_updates=20, batch_size=16, hidden=8, patience=4)
    policy, log = train(GridWorld(side=3), settings, evaluate=evaluate)
    assert len(log) == len(seen) == 3 + 4
    assert weights(policy) == seen[2] != seen[-1]
    assert [update.greedy_validity for update in log] == [0.5, 0.5, 0.9, 0.5, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n_steps", 0, "an integer of at least 1"),
        ("batch_size", 2.5, "an integer of at least 1"),
        ("patience", "8", "an integer of at least 1"),
        ("learning_rate", 0.0, "above 0"),
        ("clip_range", float("nan"), "above 0"),
        ("reward_scale", float("inf"), "above 0"),
        ("ent_coef", -0.1, "at least 0"),
        ("gae_lambda", 1.5, "at most 1"),
    ],
)
def test_settings_out_of_range_raise_an_error(name, value, message):
    with pytest.raises(PlanError, match=f"{name} .*{message}.*{value}"):
        PPOSettings(**{name: value})


def test_stuck_training_restarts_with_more_exploration():
    """The evaluation finds nothing good until the third attempt."""
    settings = replace(SHORT, n_updates=20, patience=2, restarts=2, target_validity=0.9)
    seen = []

    def evaluate(policy):
        seen.append(weights(policy))
        return (1.0 if len(seen) > 10 else 0.1), 1.0

    _, log = train(GridWorld(side=3), settings, 0, evaluate=evaluate)
    assert max(update.greedy_validity for update in log) == 1.0
    assert len(log) > 10
    stops = replace(settings, restarts=0)
    seen.clear()
    _, log = train(GridWorld(side=3), stops, 0, evaluate=lambda policy: (0.1, 1.0))
    assert len(log) < 10


def test_training_at_a_fair_validity_gives_up_after_one_attempt_in_vain():
    settings = replace(SHORT, n_updates=50, patience=2, restarts=5)
    _, log = train(GridWorld(side=3), settings, 0, evaluate=lambda policy: (0.7, 1.0))
    _, longer = train(GridWorld(side=3), settings, 0, evaluate=lambda policy: (0.2, 1.0))
    assert len(log) < len(longer)
