"""The Gymnasium adapter against Gymnasium's checker and the MDP itself."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest
from gymnasium import Env
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeLimit
from mdp_examples import GridWorld
from rose_carla.errors import MissingPackageError, PlanError
from rose_carla.mdp import Accumulated, ActionSpace, Feature, Precise, RecourseMDP, gymnasium_adapter, gymnasium_env
from rose_carla.noise import GaussianNoise

ACTIONS = ActionSpace([Feature("income", (0,)), Feature("home", (1,), np.array([[0.0], [1.0]]))], 2, action_unit=0.1)


def recourse(robustness=None, **options):
    starts = np.array([[0.0, 0.0], [0.1, 1.0], [0.2, 0.0]])
    return RecourseMDP(ACTIONS, lambda states: states[:, 0], starts, robustness or Precise(), **options)


def noisy():
    return Accumulated(lambda rows: rows[:, 0] > 0.5, GaussianNoise(), 0.001, 0.1, crowd_size=4)


@pytest.mark.parametrize("make", [recourse, lambda: recourse(noisy()), GridWorld])
def test_gymnasium_checker_passes(make):
    env = gymnasium_env(make())
    assert isinstance(env, Env)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # observations have no bounds, and an environment made by hand has no registered spec
        warnings.filterwarnings("ignore", message=".*Box observation space (minimum|maximum) value is.*infinity")
        warnings.filterwarnings("ignore", message=".*alternative render modes.*spec")
        check_env(env, skip_render_check=True)


def test_episode_equals_that_of_the_mdp():
    """The same generator and actions in the adapter and in the MDP itself, to the end and past it."""
    env, mdp, rng = gymnasium_env(recourse(noisy(), max_actions=12)), recourse(noisy(), max_actions=12), None
    chooser, ends = np.random.default_rng(0), {"terminated": 0, "truncated": 0}
    for episode in range(20):
        observation, info = env.reset(seed=5 if episode == 0 else None)
        rng = np.random.Generator(np.random.PCG64(5)) if rng is None else rng
        np.testing.assert_array_equal(observation, mdp.reset(1, rng)[0].astype(np.float32))
        assert info == {}
        over = False
        while not over:
            np.testing.assert_array_equal(env.action_masks(), mdp.mask()[0])
            assert env.action_masks().shape == (env.action_space.n,)
            action = chooser.choice(np.flatnonzero(env.action_masks()))
            observation, reward, terminated, truncated, info = env.step(action)
            step = mdp.step(np.array([action]))
            np.testing.assert_array_equal(observation, step.finals[0].astype(np.float32))
            assert (reward, terminated, truncated) == (step.rewards[0], step.terminated[0], step.truncated[0])
            assert info == {
                "discount": step.discounts[0],
                "size": step.sizes[0],
                "reached": step.reached[0],
                "possible": True,
            }
            ends["terminated"] += terminated
            ends["truncated"] += truncated
            over = terminated or truncated
    assert min(ends.values()) > 0, ends


def test_same_seed_same_episode():
    env = gymnasium_env(recourse(noisy()))
    episodes = []
    for seed in (1, 1, 2):
        start, _ = env.reset(seed=seed)
        episodes.append([start.tolist(), *(env.step(1)[0].tolist() for _ in range(3))])
    assert episodes[0] == episodes[1] != episodes[2]


def test_impossible_action_changes_nothing():
    env = gymnasium_env(recourse())
    start, _ = env.reset(seed=0)
    impossible = int(np.flatnonzero(~env.action_masks())[0])
    mask = env.action_masks()
    for _ in range(100):  # more than max_actions: they do not count
        observation, reward, terminated, truncated, info = env.step(impossible)
        np.testing.assert_array_equal(observation, start)
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert info == {"discount": 1.0, "size": 0.0, "reached": False, "possible": False}
    np.testing.assert_array_equal(env.action_masks(), mask)
    assert env.step(1)[4]["possible"]


def test_time_limit_ends_episode_of_impossible_actions():
    env = TimeLimit(gymnasium_env(recourse()), 5)
    env.reset(seed=0)
    impossible = int(np.flatnonzero(~env.unwrapped.action_masks())[0])
    assert [env.step(impossible)[3] for _ in range(5)] == [False] * 4 + [True]


def test_observations_are_copies():
    env = gymnasium_env(recourse())
    start, _ = env.reset(seed=0)
    expected = start.copy()
    start[:] = 9
    impossible = int(np.flatnonzero(~env.action_masks())[0])
    np.testing.assert_array_equal(env.step(impossible)[0], expected)


def test_step_without_reset_and_unknown_action_raise_an_error():
    env = gymnasium_env(recourse(max_actions=1))
    with pytest.raises(PlanError, match=r"Call reset\(\)"):
        env.step(0)
    env.reset(seed=0)
    for action in (-1, 4):
        with pytest.raises(PlanError, match=f"from 0 to 3, got {action}"):
            env.step(action)
    assert env.step(1)[3]
    with pytest.raises(PlanError, match=r"Call reset\(\)"):
        env.step(1)


def test_missing_gymnasium_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    gymnasium_adapter._env_class.cache_clear()
    with pytest.raises(MissingPackageError, match=r"rose-carla\[gymnasium\]"):
        gymnasium_env(recourse())
