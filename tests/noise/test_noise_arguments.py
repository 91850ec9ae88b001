"""Odd arguments of the noise are refused in a sentence, and numbers at the edge of floats give right answers."""

from __future__ import annotations

import numpy as np
import pytest
from rose_carla import noise
from rose_carla.errors import ModelError, NoiseError
from scipy.special import ndtr

STATES = np.array([[0.6, 0.7], [0.2, 0.1]])
RNG = np.random.default_rng(0)
PLANS = [np.array([[0.1, 0.0]]), np.array([[0.0, 0.1]])]
GAUSSIAN = noise.GaussianNoise()


def rate(favourable=lambda x: x[:, 0] > 0.5, states=STATES, chosen=GAUSSIAN, variance=0.01, rng=RNG):
    return noise.invalidation_rate(favourable, states, chosen, variance, 5, rng)


def accumulated(plans):
    return noise.accumulated_invalidation_rate(lambda x: x[:, 0] > 0.5, STATES, plans, GAUSSIAN, 0.01, 0.1, 5, RNG)


def executed(plans, chosen=GAUSSIAN, rng=RNG):
    return noise.execute(STATES, plans, chosen, 0.01, 0.1, 5, rng)


def linear(weights=(1.0, 1.0), bias=0.0):
    return noise.linear_invalidation_rate(STATES, GAUSSIAN, 0.01, weights, bias)


REFUSED = {
    "a number as generator": lambda: rate(rng=5),
    "no generator": lambda: rate(rng=None),
    "an old generator": lambda: rate(rng=np.random.RandomState(0)),
    "numbers as generators": lambda: rate(rng=[5, 6]),
    "a number as generator of paths": lambda: executed(PLANS, rng=5),
    "a number as generator of steps": lambda: noise.noisy_step(STATES, STATES, GAUSSIAN, 0.01, 0.1, 5),
    "a number as generator of orders": lambda: noise.one_shot_plan(np.zeros(2), np.ones(2), [[0], [1]], 5),
    "a model as classifier": lambda: rate(favourable="model"),
    "a class as noise": lambda: rate(chosen=noise.GaussianNoise),
    "no noise": lambda: rate(chosen=None),
    "no noise for paths": lambda: executed(PLANS, chosen=None),
    "states without width": lambda: rate(states=np.zeros((2, 0))),
    "complex states": lambda: rate(states=STATES * 1j),
    "days as states": lambda: rate(states=np.full((2, 2), np.datetime64("2024-01-01"))),
    "a state beyond floats": lambda: rate(states=[[10**400, 0]]),
    "a variance beyond floats": lambda: rate(variance=10**400),
    "no plans": lambda: accumulated(None),
    "plans as an iterator": lambda: accumulated(iter(PLANS)),
    "plans by row": lambda: accumulated(dict(enumerate(PLANS))),
    "plans as text": lambda: executed("ab"),
    "weights as text": lambda: linear(weights="x"),
    "no bias": lambda: linear(bias=None),
    "a complex bias": lambda: linear(bias=1j),
    "several biases": lambda: linear(bias=[0.0, 1.0]),
    "a column twice": lambda: noise.one_shot_plan(np.zeros(2), np.ones(2), [[0], [0], [1]], RNG),
    "a column outside": lambda: noise.one_shot_plan(np.zeros(2), np.ones(2), [[0], [1], [2]], RNG),
    "a column from behind": lambda: noise.one_shot_plan(np.zeros(2), np.ones(2), [[0], [-1]], RNG),
    "ends of other width": lambda: noise.one_shot_plan(np.zeros(2), np.ones(3), [[0], [1], [2]], RNG),
    "no samples": lambda: noise.wilson_interval(np.array([0]), 0),
    "more failures than samples": lambda: noise.wilson_interval(np.array([5]), 3),
    "fewer failures than none": lambda: noise.wilson_interval(np.array([-1]), 3),
    "a negative seed": lambda: noise.common_noise(-1, [0]),
    "no seed": lambda: noise.common_noise(None, [0]),
    "a seed as text": lambda: noise.common_noise("x", [0]),
    "a negative row": lambda: noise.common_noise(0, [-1]),
    "half a row": lambda: noise.common_noise(0, [0.5]),
    "a density's negative seed": lambda: noise.Density(seed=-1, max_points=5).fit(RNG.random((10, 2))),
    "a density's ridge beyond floats": lambda: noise.Density(ridge=10**400).fit(RNG.random((10, 2))),
    "a density that is not fitted": lambda: rate(chosen=noise.PlausibleNoise(noise.Density())),
    "no density": lambda: noise.PlausibleNoise(None),
}


@pytest.mark.parametrize("name", REFUSED)
def test_odd_arguments_are_refused(name):
    with pytest.raises(NoiseError) as refused:
        REFUSED[name]()
    assert len(str(refused.value).split()) >= 5


def test_a_density_needs_a_model():
    with pytest.raises(ModelError, match="Expected a CARLA model"):
        noise.density_of(None)


@pytest.mark.parametrize("options", [{"bandwidth": [1]}, {"outcome": [1]}, {"outcome": 2}, {"outcome": np.ones(2)}])
def test_odd_densities_of_a_model_are_refused(options, compas_linear):
    with pytest.raises(NoiseError):
        noise.density_of(compas_linear, **options)


@pytest.mark.parametrize("scale", [1e-300, 1e-5, 1.0, 1e5, 1e300])
def test_the_closed_form_is_the_same_for_multiples_of_weights_and_bias(scale):
    weights, bias = np.array([1.0, 0.5]), -0.8
    expected = ndtr(-(STATES @ weights + bias) / (0.1 * np.linalg.norm(weights)))
    np.testing.assert_allclose(linear(scale * weights, scale * bias), expected, rtol=1e-9)


def test_weights_of_zero_leave_the_bias():
    np.testing.assert_array_equal(linear((0.0, 0.0), 1e-300), [0, 0])
    np.testing.assert_array_equal(linear((0.0, 0.0), -1e300), [1, 1])


def test_seeds_may_be_numbers_of_numpy():
    ours, numpys = noise.common_noise(3, [0, 5]), noise.common_noise([np.int64(3)], np.array([0, 5]))
    assert [each.random() for each in ours] == [each.random() for each in numpys]
