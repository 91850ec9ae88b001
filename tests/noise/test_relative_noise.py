"""Noise and units that differ between features, against rejection sampling and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from noise_examples import clusters, rng
from rose_carla.noise import (
    Density,
    GaussianNoise,
    PlausibleNoise,
    action_sizes,
    execute,
    invalidation_rate,
    linear_invalidation_rate,
    noisy_step,
    reference,
    unit_actions,
)
from scipy.stats import gaussian_kde, multivariate_normal

SCALE = np.array([0.3, 2.0])
STATE = np.array([[0.45, 0.5]])


def noises(scale=SCALE):
    """Plausible noise of which columns have the relative standard deviations ``scale``."""
    rows = clusters(60, 2)
    return PlausibleNoise(Density(relative_noise=scale).fit(rows))


def kernels(noise):
    return noise.density.points_, noise.density.covariance_


def test_the_density_itself_does_not_depend_on_the_noise():
    rows = clusters(200, 2)
    points = rng(1).random((50, 2))
    expected = gaussian_kde(rows.T).logpdf(points.T)
    np.testing.assert_allclose(Density(ridge=0, relative_noise=SCALE).fit(rows).log_density(points), expected)


def test_moments_against_integration_over_a_grid():
    noise, variance = noises(), 0.01
    axis = np.linspace(-0.6, 1.6, 250)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    density = multivariate_normal(STATE[0], np.diag(variance * SCALE**2)).pdf(grid)
    density = density * reference.kernel_density(grid, kernels(noise))
    weights = density / density.sum()
    mean = weights @ grid
    covariance = (grid - mean).T @ ((grid - mean) * weights[:, None])
    np.testing.assert_allclose(noise.mean(STATE, variance)[0], mean, atol=1e-6)
    np.testing.assert_allclose(noise.covariance(STATE, variance)[0], covariance, atol=1e-6)


def test_samples_have_these_moments():
    noise, variance, n = noises(), 0.01, 40_000
    samples = noise.sample(STATE, variance, n, rng())[0]
    covariance = noise.covariance(STATE, variance)[0]
    errors = np.sqrt(np.diag(covariance) / n)
    assert (np.abs(samples.mean(axis=0) - noise.mean(STATE, variance)[0]) < 5 * errors).all()
    np.testing.assert_allclose(np.cov(samples.T), covariance, atol=0.03 * covariance.max())


@pytest.mark.slow
def test_samples_against_rejection_sampling():
    noise, variance, n = noises(), 0.01, 1500
    generator = rng(3)
    rejected = np.array(
        [reference.sample_plausible_noise(STATE[0], variance * SCALE**2, kernels(noise), generator) for _ in range(n)]
    )
    samples = noise.sample(STATE, variance, 20 * n, rng(4))[0]
    for j in range(2):
        levels = np.quantile(samples[:, j], [0.1, 0.25, 0.5, 0.75, 0.9])
        shares = (rejected[:, j, None] < levels).mean(axis=0)
        np.testing.assert_allclose(shares, [0.1, 0.25, 0.5, 0.75, 0.9], atol=5 * 0.5 / np.sqrt(n))


def test_equal_relative_noise_is_another_variance():
    rows = clusters(200, 3)
    doubled = PlausibleNoise(Density(relative_noise=np.full(3, 2.0)).fit(rows))
    plain = PlausibleNoise(Density().fit(rows))
    np.testing.assert_allclose(doubled.mean(rows[:5], 0.01), plain.mean(rows[:5], 0.04), atol=1e-10)
    np.testing.assert_allclose(doubled.covariance(rows[:5], 0.01), plain.covariance(rows[:5], 0.04), atol=1e-10)


def test_relative_noise_of_one_changes_no_bit():
    rows = clusters(200, 3)
    ones, plain = PlausibleNoise(Density(relative_noise=np.ones(3)).fit(rows)), PlausibleNoise(Density().fit(rows))
    np.testing.assert_array_equal(ones.sample(rows[:5], 0.01, 10, rng()), plain.sample(rows[:5], 0.01, 10, rng()))
    one, other = GaussianNoise(np.ones(3)), GaussianNoise()
    np.testing.assert_array_equal(one.sample(rows[:5], 0.01, 10, rng()), other.sample(rows[:5], 0.01, 10, rng()))


def test_gaussian_noise_has_the_deviations_asked_for():
    noise = GaussianNoise(SCALE)
    samples = noise.sample(STATE, 0.04, 50_000, rng())[0]
    np.testing.assert_allclose(samples.std(axis=0), 0.2 * SCALE, rtol=0.02)
    np.testing.assert_array_equal(noise.covariance(STATE, 0.04)[0], np.diag(0.04 * SCALE**2))


@pytest.mark.parametrize("noise", [GaussianNoise(SCALE), noises()], ids=["Gaussian", "plausible"])
def test_linear_invalidation_rates_against_samples(noise):
    weights, bias, n = np.array([1.0, -0.7]), -0.05, 40_000
    states = np.array([[0.45, 0.5], [0.6, 0.4], [0.3, 0.35]])
    exact = linear_invalidation_rate(states, noise, 0.01, weights, bias)
    estimated = invalidation_rate(lambda rows: rows @ weights + bias > 0, states, noise, 0.01, n, rng())
    np.testing.assert_allclose(estimated.rate, exact, atol=5 * 0.5 / np.sqrt(n))
    plain = GaussianNoise() if isinstance(noise, GaussianNoise) else noises(None)
    assert np.abs(exact - linear_invalidation_rate(states, plain, 0.01, weights, bias)).max() > 0.02


def test_unit_actions_with_units_of_columns():
    units = np.array([0.02, 0.5])
    split = unit_actions(np.array([[0.05, 0.0], [0.0, -0.75], [0.02, 0.5]]), units)
    expected = [[0.02, 0.0], [0.02, 0.0], [0.01, 0.0], [0.0, -0.5], [0.0, -0.25], [0.01, 0.25], [0.01, 0.25]]
    np.testing.assert_allclose(split, expected, atol=1e-12)
    assert (action_sizes(split, units) <= 1 + 1e-9).all()
    equal = np.array([[0.06, 0.0], [0.0, -0.025]])
    np.testing.assert_allclose(unit_actions(equal, np.full(2, 0.025)), unit_actions(equal, 0.025), atol=1e-15)


def test_a_noisy_step_has_the_variance_of_its_units():
    units, n = np.array([0.02, 0.5]), 40_000
    actions = np.tile([0.04, 0.5], (n, 1))  # two units and one
    moved = noisy_step(np.zeros((n, 2)), actions, GaussianNoise(SCALE), 0.0005, units, rng())
    np.testing.assert_allclose(moved.std(axis=0), np.sqrt(3 * 0.0005) * SCALE, rtol=0.02)


@pytest.mark.slow
def test_execution_with_units_and_noise_of_columns_against_the_reference():
    noise, variance, n = noises(), 0.002, 250
    units = np.array([0.05, 0.2])
    plan = np.array([[0.1, 0.0], [0.0, -0.3]])
    ends = execute(STATE, [plan], noise, variance, units, 80 * n, rng())[0]
    generator = rng(5)
    slow = np.array(
        [
            reference.accumulate_noise(STATE[0], plan, variance * SCALE**2, units, kernels(noise), generator)
            for _ in range(n)
        ]
    )
    errors = slow.std(axis=0) / np.sqrt(n)
    assert (np.abs(slow.mean(axis=0) - ends.mean(axis=0)) < 5 * errors).all()
    np.testing.assert_allclose(slow.std(axis=0), ends.std(axis=0), rtol=0.25)
