"""Settings that follow from the table, and the warning of a policy that serves few."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from rose_carla import RoseOne, datasets, models
from rose_carla.mdp import ActionSpace, Feature, Precise
from rose_carla.rose.derived_settings import ascent_distances, default_max_actions
from rose_carla.rose.search import Task
from scipy.special import expit
from sklearn.linear_model import LogisticRegression


def task(weights, bias, unit=0.025):
    space = ActionSpace([Feature(f"x{i}", (i,)) for i in range(len(weights))], len(weights), unit, (1, 2, 4, 8))
    return Task(space, lambda states: expit(states @ weights + bias), Precise(), 0.75)


def test_distance_of_a_linear_classifier():
    """The steepest feature moves to the border; the last move may be too long by up to 8 units."""
    weights = np.array([3.0, 1.0])
    row = np.array([[0.1, 0.1]])
    least = (2.0 - 0.4) / 3 / 0.025
    assert least <= ascent_distances(task(weights, -2.0), row)[0] <= least + 8
    assert np.isinf(ascent_distances(task(weights, -5.0), row)).all()


def test_longer_distances_need_more_actions():
    rows = np.random.default_rng(0).random((50, 8)) * 0.1
    near = default_max_actions(task(np.full(8, 1.0), -1.0), rows)
    far = default_max_actions(task(np.full(8, 1.0), -4.0), rows)
    assert near == 50
    assert 50 < far <= 200
    assert default_max_actions(task(np.full(8, 1.0), -99.0), rows) == 50


def test_a_policy_that_serves_few_warns():
    """Only a feature without any effect may change."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.random(200), "b": rng.random(200)})
    frame["y"] = (frame["a"] > 0.5).astype(int)
    data = datasets.from_frame(frame, "y", name="fixed", immutables=["a"])

    frame = data.df_train
    model = models.wrap(LogisticRegression(C=100).fit(frame[["a"]].assign(b=0.0), frame["y"]), data, space="encoded")
    options = {"ppo": {"n_updates": 2, "n_envs": 8, "n_steps": 8}, "max_actions": 5, "n_check": 100, "progress": False}
    with pytest.warns(UserWarning, match="policy alone reaches the goal for 0%"):
        RoseOne(model, options)
