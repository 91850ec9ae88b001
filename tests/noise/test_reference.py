"""The fast noise against the paper's definitions in plain numpy, which draw by rejection."""

from __future__ import annotations

import numpy as np
import pytest
from noise_examples import clusters, kernels_of, plausible, rng
from rose_carla.noise import accumulated_invalidation_rate, execute, invalidation_rate, noisy_step, reference
from scipy.stats import binomtest, gaussian_kde, ks_2samp


def has_same_distribution(ours, theirs):
    """Compare two samples (m, d) in every coordinate and along their sum."""
    pairs = [*zip(ours.T, theirs.T, strict=True), (ours.sum(axis=1), theirs.sum(axis=1))]
    return min(ks_2samp(a, b).pvalue for a, b in pairs) > 1e-4


def is_favourable(x):
    return x.sum(axis=1) > 1


def test_kernel_density_is_that_of_scipy():
    rows = clusters(40, 2)
    theirs = gaussian_kde(rows.T)
    np.testing.assert_allclose(
        reference.kernel_density(rows[:5] + 0.1, (rows, theirs.covariance)), theirs(rows[:5].T + 0.1)
    )


@pytest.mark.parametrize("n", [20, 2500])
@pytest.mark.parametrize("variance", [0.0005, 0.01])
@pytest.mark.parametrize("width", [1, 3])
def test_mixture_is_the_density_of_definition_1(n, variance, width):
    """sum_j w_j N(m_j, C) is proportional to N(x, s^2 I) K at any points."""
    noise = plausible(clusters(n, width))
    state = noise.density.points_[0] + 0.03
    x = state + np.sqrt(variance) * rng().standard_normal((6, width))
    ((_, weights, means, covariance),) = noise.components(state[None], variance)
    mixture = sum(w * reference.normal_density(x, m, covariance[0]) for w, m in zip(weights[0], means[0], strict=True))
    ratio = mixture / reference.plausible_noise_density(x, state, variance, kernels_of(noise))
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-6)


@pytest.mark.parametrize(("n", "width"), [(30, 1), (60, 2), (2100, 2)])
@pytest.mark.parametrize("variance", [0.001, 0.02])
def test_samples_follow_definition_1(n, width, variance):
    noise = plausible(clusters(n, width))
    state = noise.density.points_[1] + 0.02
    ours = noise.sample(state[None], variance, 4000, rng())[0]
    theirs = [reference.sample_plausible_noise(state, variance, kernels_of(noise), rng(seed)) for seed in range(120)]
    assert has_same_distribution(ours, np.array(theirs))


def test_noisy_step_follows_algorithm_1():
    noise = plausible(clusters(40, 2))
    state, action = noise.density.points_[2], np.array([0.04, -0.02])
    ours = noisy_step(np.repeat(state[None], 4000, axis=0), np.tile(action, (4000, 1)), noise, 0.001, 0.025, rng())
    generator, kernels = rng(1), kernels_of(noise)
    theirs = [reference.noisy_step(state, action, 0.001, 0.025, kernels, generator) for _ in range(300)]
    assert has_same_distribution(ours, np.array(theirs))


@pytest.mark.parametrize("noise_per", ["unit", "action"])
def test_accumulated_noise_follows_definition_2(noise_per):
    noise = plausible(clusters(40, 2))
    factual, plan = noise.density.points_[2], np.array([[0.06, 0.0], [0.0, -0.04]])
    ours = execute(factual[None], [plan], noise, 0.001, 0.025, 4000, rng(), noise_per)[0]
    generator, kernels = rng(1), kernels_of(noise)
    theirs = [
        reference.accumulate_noise(factual, plan, 0.001, 0.025, kernels, generator, noise_per) for _ in range(200)
    ]
    assert has_same_distribution(ours, np.array(theirs))


def test_accumulated_rate_of_whole_actions_follows_algorithm_2():
    noise = plausible(clusters(40, 2))
    factual, plan, generator = np.array([0.42, 0.42]), np.array([[0.1, 0.0], [0.0, 0.1]]), rng(1)
    ours = accumulated_invalidation_rate(
        is_favourable, factual[None], [plan], noise, 0.001, 0.05, 20_000, rng(), noise_per="action"
    )
    theirs = reference.accumulated_invalidation_rate(
        is_favourable, factual, plan, 0.001, 0.05, kernels_of(noise), 200, generator, "action"
    )
    assert binomtest(round(200 * theirs), 200, ours.rate[0]).pvalue > 1e-3
    assert 0.05 < ours.rate[0] < 0.95


def test_invalidation_rates_follow_proposition_1_and_algorithm_2():
    noise = plausible(clusters(40, 2))
    factual, plan = np.array([0.42, 0.42]), np.array([[0.1, 0.0], [0.0, 0.1]])
    end, generator, kernels = factual + plan.sum(axis=0), rng(1), kernels_of(noise)
    once = invalidation_rate(is_favourable, end[None], noise, 0.01, 20_000, rng()).rate[0]
    noisy = [reference.sample_plausible_noise(end, 0.01, kernels, generator) for _ in range(300)]
    theirs = reference.invalidation_rate(is_favourable, noisy)
    assert binomtest(round(300 * theirs), 300, once).pvalue > 1e-3
    path = accumulated_invalidation_rate(is_favourable, factual[None], [plan], noise, 0.001, 0.05, 20_000, rng()).rate[
        0
    ]
    theirs = reference.accumulated_invalidation_rate(is_favourable, factual, plan, 0.001, 0.05, kernels, 200, generator)
    assert binomtest(round(200 * theirs), 200, path).pvalue > 1e-3
    assert 0.05 < path < 0.95
