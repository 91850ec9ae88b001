"""Noisy steps and paths against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from noise_examples import clusters, plausible, rng
from rose_carla.errors import NoiseError
from rose_carla.noise import (
    GaussianNoise,
    common_noise,
    execute,
    noisy_step,
    one_shot_plan,
    unit_actions,
)


def test_a_noisy_step_moves_and_scales_its_noise():
    states = np.zeros((20_000, 3))
    actions = np.tile([0.05, 0.0, -0.05], (20_000, 1))
    moved = noisy_step(states, actions, GaussianNoise(), 0.0005, 0.025, rng())
    np.testing.assert_allclose(moved.mean(axis=0), actions[0], atol=5 * np.sqrt(0.002 / 20_000))
    np.testing.assert_allclose(moved.var(axis=0), 4 * 0.0005, rtol=0.05)  # |a|_1 = 0.1 is four units


@pytest.mark.slow
def test_a_noisy_step_samples_around_the_state_it_reaches():
    rows = clusters(3000, 2)
    noise = plausible(rows)
    states, actions = np.repeat(rows[:1], 30_000, axis=0), np.tile([0.1, 0.0], (30_000, 1))
    moved = noisy_step(states, actions, noise, 0.0005, 0.025, rng())
    reached, variance = rows[:1] + np.array([[0.1, 0.0]]), 0.002
    errors = np.sqrt(np.diag(noise.covariance(reached, variance)[0]) / 30_000)
    assert (np.abs(moved.mean(axis=0) - noise.mean(reached, variance)[0]) < 5 * errors).all()


@given(
    actions=hnp.arrays(float, st.tuples(st.integers(0, 5), st.integers(1, 4)), elements=st.floats(-1, 1, width=32)),
    unit=st.sampled_from([0.025, 0.05, 0.1, 0.3, 7.0]),
)
@settings(deadline=None)
def test_unit_actions_add_up_in_order(actions, unit):
    units = unit_actions(actions, unit)
    sizes = np.abs(units).sum(axis=1)
    assert (sizes <= unit * (1 + 1e-6)).all()
    np.testing.assert_allclose(units.sum(axis=0), actions.sum(axis=0), atol=1e-6)
    # plain loop: walk each action in steps of one unit, the last one partial
    expected = []
    for action in actions:
        left = np.abs(action).sum()
        direction = action / left if left > 0 else action
        while left > unit * 1e-8:
            step = min(unit, left)
            expected.append(direction * step)
            left -= step
    assert abs(len(units) - len(expected)) <= len(actions)  # a whole number of units, give or take rounding
    if len(units) == len(expected) and expected:
        np.testing.assert_allclose(units, expected, atol=1e-6)


def test_the_papers_number_of_steps():
    plan = np.array([[0.5, 0.0], [0.0, -0.06]])
    assert len(unit_actions(plan, 0.025)) == 20 + 3


def test_one_shot_plans_change_whole_features_in_a_seeded_order():
    factual, counterfactual = np.zeros(5), np.array([0.3, 1.0, -1.0, 0.0, 0.2])
    groups = [[0], [1, 2], [3], [4]]
    plan = one_shot_plan(factual, counterfactual, groups, rng(0))
    assert plan.shape == (3, 5)
    np.testing.assert_allclose(plan.sum(axis=0), counterfactual)
    assert sorted(tuple(np.flatnonzero(action)) for action in plan) == [(0,), (1, 2), (4,)]
    orders = {tuple(map(tuple, one_shot_plan(factual, counterfactual, groups, rng(s)))) for s in range(40)}
    assert len(orders) == 6
    assert one_shot_plan(factual, factual, groups, rng(0)).shape == (0, 5)


def test_execute_against_a_plain_loop():
    rows = clusters(200, 2)
    noise = plausible(rows)
    factuals = rows[:3]
    plans = [np.array([[0.06, 0.0]]), np.empty((0, 2)), np.array([[0.0, 0.03], [-0.05, 0.0]])]
    ends = execute(factuals, plans, noise, 0.0005, 0.025, 4, common_noise(1, range(3)))
    for row in range(3):
        (generator,) = common_noise(1, [row])
        states = np.repeat(factuals[row : row + 1], 4, axis=0)
        for action in unit_actions(plans[row], 0.025):
            size = np.abs(action).sum() / 0.025
            states = noise.sample(states + action, 0.0005 * size, 1, generator)[:, 0]
        np.testing.assert_array_equal(ends[row], states)


def test_execute_of_whole_actions_against_a_plain_loop():
    noise, factual = plausible(clusters(200, 2)), np.array([[0.4, 0.4]])
    plan = np.array([[0.0, 0.03], [0.0, 0.0], [-0.05, 0.1]])
    ends = execute(factual, [plan], noise, 0.0005, 0.025, 4, common_noise(1, [0]), "action")
    (generator,) = common_noise(1, [0])
    states = np.repeat(factual, 4, axis=0)
    for action in plan[[0, 2]]:
        states = noise.sample(states + action, 0.0005 * np.abs(action).sum() / 0.025, 1, generator)[:, 0]
    np.testing.assert_array_equal(ends[0], states)


def test_two_half_actions_have_the_variance_of_one_whole_under_gaussian_noise():
    factual, noise = np.zeros((1, 1)), GaussianNoise()
    halves = execute(factual, [np.array([[0.05], [0.05]])], noise, 0.0005, 0.05, 40_000, rng())
    whole = noisy_step(np.zeros((40_000, 1)), np.full((40_000, 1), 0.1), noise, 0.0005, 0.05, rng(1))
    assert halves.var() == pytest.approx(0.001, rel=0.03)
    assert whole.var() == pytest.approx(0.001, rel=0.03)


def test_order_of_actions_matters_under_plausible_noise():
    """Along a band of data from bottom left over bottom right to top right, one way is populated, the other not."""
    generator = rng()
    along = np.column_stack([generator.random(3000), np.zeros(3000)])
    up = np.column_stack([np.ones(3000), generator.random(3000)])
    noise = plausible(np.vstack([along, up]) + generator.normal(0, 0.03, (6000, 2)))
    start, right, top = np.zeros((1, 2)), np.array([1.0, 0.0]), np.array([0.0, 1.0])
    ends = [
        execute(start, [np.stack(plan)], noise, 0.0005, 0.025, 2000, rng(1))[0].mean(axis=0)
        for plan in ((right, top), (top, right))
    ]
    assert np.abs(ends[0] - ends[1]).max() > 0.1


def test_plans_of_millions_of_steps_raise_an_error():
    with pytest.raises(NoiseError, match="more than 100,000 units"):
        unit_actions(np.array([[1e200, 0.0]]), 0.025)
