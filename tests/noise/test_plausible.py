"""Gaussian and plausible noise against the definitions, importance sampling and brute force."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from noise_examples import clusters, kernels_of, plausible, rng
from numba import njit
from rose_carla.errors import NoiseError
from rose_carla.models import favourable
from rose_carla.noise import (
    Density,
    GaussianNoise,
    PlausibleNoise,
    common_noise,
    reference,
)
from rose_carla.noise._sampling import jit
from rose_carla.noise._sampling.normals import normal
from scipy.stats import gaussian_kde, kstest, multivariate_normal, norm


def test_mean_and_covariance_against_integration_in_one_dimension():
    rows = clusters(40, 1)
    noise = plausible(rows)
    grid = np.linspace(-1, 2, 20_001)
    for state, variance in [(0.5, 0.01), (0.1, 0.05), (1.2, 0.0005)]:
        state = np.array([state])
        density = reference.plausible_noise_density(grid[:, None], state, variance, kernels_of(noise))
        density /= density.sum()
        mean = (density * grid).sum()
        spread = (density * (grid - mean) ** 2).sum()
        np.testing.assert_allclose(noise.mean(state[None], variance)[0, 0], mean, rtol=1e-6)
        np.testing.assert_allclose(noise.covariance(state[None], variance)[0, 0, 0], spread, rtol=1e-5)


def test_mean_and_covariance_against_integration_in_two_dimensions():
    rows = clusters(30, 2)
    noise = plausible(rows)
    axis = np.linspace(-0.3, 1.3, 321)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    states, variances = np.array([[0.5, 0.5], [0.2, 0.7]]), np.array([0.01, 0.03])
    for i in range(2):
        density = reference.plausible_noise_density(grid, states[i], variances[i], kernels_of(noise))
        density /= density.sum()
        mean = density @ grid
        covariance = (grid - mean).T @ (density[:, None] * (grid - mean))
        np.testing.assert_allclose(noise.mean(states, variances)[i], mean, rtol=1e-6)
        np.testing.assert_allclose(noise.covariance(states, variances)[i], covariance, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(("n", "d"), [(30, 2), (700, 3), (5000, 3), (5000, 8)])
def test_samples_have_the_closed_form_moments(n, d):
    """Few points are all weighed, many are drawn by bounds: both must be exact."""
    rows = clusters(n, d)
    noise = plausible(rows)
    states, variances = rows[:3] + 0.05, np.array([0.0005, 0.01, 0.1])
    samples = noise.sample(states, variances, 40_000, rng())
    mean, covariance = noise.mean(states, variances), noise.covariance(states, variances)
    errors = np.sqrt(np.einsum("bkk->bk", covariance) / samples.shape[1])
    assert (np.abs(samples.mean(axis=1) - mean) < 5 * errors).all()
    for i in range(3):
        scale = np.sqrt(np.outer(np.diag(covariance[i]), np.diag(covariance[i])))
        assert (np.abs(np.cov(samples[i].T) - covariance[i]) < 0.05 * scale).all()


@pytest.mark.parametrize("variance", [0.0005, 0.01])
def test_kernels_are_drawn_by_their_weights(compas_ann, variance):
    """The draw that skips most points against the plain formula for all of them: a chi-square test."""
    data = compas_ann.data
    rows = data.df_train[compas_ann.feature_input_order].to_numpy()
    density = Density().fit(rows)
    assert len(rows) > 2048
    for state in (rows[5] + 0.04, rows[100], np.full(7, 0.5)):
        weights = np.exp(density.log_weights(state[None], np.array([variance])))[0]
        total = variance * np.eye(7) + density.covariance_
        brute = multivariate_normal(state, total).logpdf(density.points_)
        brute = np.exp(brute - brute.max())
        np.testing.assert_allclose(weights, brute / brute.sum(), rtol=1e-6, atol=1e-12)
        seeds = rng().integers(2**63, size=100).astype(np.uint64)
        drawn = density.draw_points(np.repeat(state[None], 100, axis=0), np.full(100, variance), 2000, seeds)
        counts, expected = np.bincount(drawn.ravel(), minlength=len(rows)), weights * drawn.size
        often = expected > 10
        pooled = np.append(counts[often], counts[~often].sum()), np.append(expected[often], expected[~often].sum())
        statistic = ((pooled[0] - pooled[1]) ** 2 / np.maximum(pooled[1], 1e-9)).sum()
        degrees = often.sum()
        assert abs(statistic - degrees) < 5 * np.sqrt(2 * degrees) + 10


@pytest.mark.parametrize(("n", "d", "weigh_all"), [(800, 20, True), (3000, 5, True), (6000, 3, False)])
def test_one_draw_for_each_state_among_others_follows_the_weights(n, d, weigh_all):
    """States near and off the data and of several variances side by side, drawn in both ways."""
    rows = clusters(n, d)
    density = Density().fit(rows)
    assert density._boxes.weigh_all == weigh_all
    states = np.stack([rows[3], rows[4] + 0.05, rows[5] + 0.15, np.full(d, 0.5), rows[6] + 0.5, rows[7] - 1.5])
    variances = np.array([0.0005, 0.0005, 0.0005, 0.02, 0.0001, 0.0005])
    each = 8000
    chosen = np.tile(np.arange(len(states)), each)
    seeds = rng().integers(2**63, size=len(chosen)).astype(np.uint64)
    drawn = density.draw_points(states[chosen], variances[chosen], 1, seeds)[:, 0]
    for i, weights in enumerate(np.exp(density.log_weights(states, variances))):
        counts, expected = np.bincount(drawn[chosen == i], minlength=n), weights * each
        often = expected > 10
        gaps = (counts[often] - expected[often]) ** 2 / expected[often]
        assert abs(gaps.sum() - often.sum()) < 5 * np.sqrt(2 * often.sum()) + 10
        rare = expected[~often].sum()
        assert abs(counts[~often].sum() - rare) < 5 * np.sqrt(rare) + 5


@pytest.mark.parametrize("n", [700, 5000])
def test_draws_do_not_depend_on_the_batch(n):
    """With few points several states share a pass: any number of them, of any variances, and far ones."""
    rows = clusters(n, 6)
    density = Density().fit(rows)
    states = np.concatenate([rows[:21] + 0.01, rows[:2] + 5.0, rows[:2] + 1e9])
    variances = np.where(np.arange(25) % 7 == 3, 0.01, 0.0005)
    seeds = np.arange(25, dtype=np.uint64)
    whole = density.draw(states, variances, 2, seeds)
    backwards = density.draw(states[::-1].copy(), variances[::-1].copy(), 2, seeds[::-1].copy())
    np.testing.assert_array_equal(whole, backwards[::-1])
    for size in (1, 2, 3, 5):
        parts = [slice(start, start + size) for start in range(0, 25, size)]
        cut = [density.draw(states[part], variances[part], 2, seeds[part]) for part in parts]
        np.testing.assert_array_equal(whole, np.concatenate(cut))


def test_importance_sampling_as_a_second_opinion(compas_ann):
    """Gaussian proposals weighted by scipy's density: slow, independent, and the same expectation."""
    rows = compas_ann.data.df_train[compas_ann.feature_input_order].to_numpy()
    noise = plausible(rows, ridge=1e-12)
    state, variance = rows[7], 0.01
    proposals = state + 0.1 * rng().standard_normal((20_000, 7))
    weights = gaussian_kde(rows.T).pdf(proposals.T)
    weights /= weights.sum()
    predict = favourable(compas_ann)
    expected, effective = (weights * predict(proposals)).sum(), 1 / (weights**2).sum()
    ours = predict(noise.sample(state[None], variance, 20_000, rng(1))[0]).mean()
    assert abs(ours - expected) < 4 * np.sqrt(0.25 / effective + 0.25 / 20_000)
    np.testing.assert_allclose(noise.mean(state[None], variance)[0], weights @ proposals, atol=0.02)


def test_wide_kernels_make_it_gaussian_noise():
    rows = clusters(50, 3)
    noise = plausible(rows, bandwidth=1e5)
    state = np.array([[0.2, 0.9, 0.5]])
    np.testing.assert_allclose(noise.mean(state, 0.01), state, atol=1e-6)
    np.testing.assert_allclose(noise.covariance(state, 0.01)[0], 0.01 * np.eye(3), atol=1e-8)


def test_no_variance_gives_the_state():
    rows = clusters(3000, 3)
    noise = plausible(rows)
    states = rows[:4] + 0.1
    np.testing.assert_array_equal(noise.sample(states, 0.0, 2, rng()), np.repeat(states[:, None], 2, axis=1))
    np.testing.assert_allclose(noise.sample(states, 1e-14, 2, rng())[:, 0], states, atol=1e-5)
    mixed = noise.sample(states, np.array([0.0, 0.01, 0.0, 0.01]), 2, rng())
    assert (mixed[[0, 2]] == states[[0, 2], None]).all()
    assert (mixed[[1, 3]] != states[[1, 3], None]).all()


@pytest.mark.parametrize("n", [100, 5000])
@pytest.mark.parametrize("distance", [10.0, 1e3, 1e8, 1e100, 1e160, 1e300])
def test_far_from_the_data_nothing_breaks(n, distance):
    rows = clusters(n, 3)
    noise = plausible(rows)
    far = np.full((1, 3), distance)
    samples = noise.sample(far, 0.01, 50, rng())
    assert np.isfinite(samples).all()
    assert np.isfinite(noise.mean(far, 0.01)).all()
    assert not np.isnan(noise.density.log_density(far)).any()
    if distance < 1e6:
        deviation = np.sqrt(np.diag(noise.covariance(far, 0.01)[0]).max())
        assert np.abs(samples - noise.mean(far, 0.01)).max() < 8 * max(deviation, 1e-9)


@pytest.mark.parametrize("offset", [0.0, 100.0, 1e5])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e7])
def test_neither_units_nor_offset_matter(offset, scale):
    """Rows in other units, far from 0: kernels are drawn by the weights of the plain rows."""
    rows = rng().random((3000, 3))
    plain, moved = Density(ridge=0).fit(rows), Density(ridge=0).fit((rows + offset) * scale)
    n, variance = 20, np.full(20, 0.0005)
    drawn = moved.draw_points((rows[:n] + offset) * scale, variance * scale**2, 20_000, np.arange(n, dtype=np.uint64))
    weights = np.exp(plain.log_weights(rows[:n], variance))
    mean = weights @ rows
    error = np.sqrt((weights @ rows**2 - mean**2) / 20_000)
    assert (np.abs(rows[drawn].mean(axis=1) - mean) < 5 * error).all()


@pytest.mark.parametrize("n", [2, 15, 17, 255, 257, 2047, 2049, 4097])
@pytest.mark.parametrize(("variance", "bandwidth"), [(1e20, "scott"), (0.01, 1e9), (1e-12, "scott"), (1e30, 1e-6)])
def test_extreme_widths_never_read_beyond_the_points(n, variance, bandwidth):
    """Boxes are padded to 16 points, shelves to 16 boxes; padding must never be drawn."""
    rows = rng(n).random((n, 2))
    density = Density(bandwidth=bandwidth).fit(rows)
    draws = [
        density.draw_points(rows[:2], np.full(2, variance), 500, np.array([3, 4], dtype=np.uint64)) for _ in range(3)
    ]
    assert (draws[0] == draws[1]).all()
    assert (draws[0] == draws[2]).all()
    assert draws[0].min() >= 0
    assert draws[0].max() < n
    if variance > 1 and bandwidth == "scott":  # all weights alike
        assert len(np.unique(draws[0])) > 0.8 * min(n, 500 * (1 - 0.4))


def test_sampling_works_in_a_forked_child_and_in_threads(warm_python):
    code = """
import os
import numpy as np
from concurrent.futures import ThreadPoolExecutor
from rose_carla.noise import *
rows = np.random.default_rng(0).random((4000, 5))
noise = PlausibleNoise(Density().fit(rows))
sample = lambda seed=1: noise.sample(rows[:500], 0.01, 3, np.random.default_rng(seed))
expected = sample()
with ThreadPoolExecutor(4) as pool:
    assert all((each == expected).all() for each in pool.map(sample, [1] * 8))
pid = os.fork()
if pid == 0:
    os._exit(0 if (sample() == expected).all() else 1)
assert os.waitpid(pid, 0)[1] == 0
"""
    program = [warm_python.executable, "-c", code]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_same_seed_same_bits_whatever_the_batch_and_the_threads(compas_ann, monkeypatch):
    rows = compas_ann.data.df_train[compas_ann.feature_input_order].to_numpy()
    noise = plausible(rows)
    states = rows[:50] + 0.02
    whole = noise.sample(states, 0.001, 4, common_noise(3, range(50)))
    np.testing.assert_array_equal(whole, noise.sample(states, 0.001, 4, common_noise(3, range(50))))
    np.testing.assert_array_equal(whole[20:], noise.sample(states[20:], 0.001, 4, common_noise(3, range(20, 50))))
    np.testing.assert_array_equal(noise.sample(states, 0.001, 4, rng(5)), noise.sample(states, 0.001, 4, rng(5)))
    many = np.tile(states, (20, 1))  # few states are drawn on one thread
    drawn = []
    for threads in ("1", "2"):
        monkeypatch.setenv("ROSE_CARLA_THREADS", threads)
        drawn.append(noise.sample(many, 0.001, 20, rng(1)))
    np.testing.assert_array_equal(*drawn)


finite = st.floats(-3, 3, width=32)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rows=hnp.arrays(float, st.tuples(st.integers(2, 40), st.integers(1, 6)), elements=finite),
    variance=st.sampled_from([1e-12, 0.0005, 0.01, 1.0, 1e6]),
    n_samples=st.integers(1, 5),
    dtype=st.sampled_from([np.float32, np.float64]),
    repeat=st.sampled_from([1, 80]),
)
def test_any_data_gives_finite_samples_of_the_right_shape(rows, variance, n_samples, dtype, repeat):
    density = Density().fit(np.repeat(rows, repeat, axis=0))
    states = rows[:3].astype(dtype)
    for noise in (GaussianNoise(), PlausibleNoise(density)):
        samples = noise.sample(states, variance, n_samples, rng())
        assert samples.shape == (len(states), n_samples, rows.shape[1])
        assert np.isfinite(samples).all()
        assert np.isfinite(noise.mean(states, variance)).all()
        assert (np.linalg.eigvalsh(noise.covariance(states, variance)) > -1e-9 * max(1, variance)).all()
    assert np.isfinite(density.log_density(states)).all()


def test_plausible_noise_needs_a_fitted_density():
    with pytest.raises(NoiseError, match="not fitted"):
        PlausibleNoise(Density())
    with pytest.raises(NoiseError, match="needs a Density"):
        PlausibleNoise(np.zeros((5, 2)))


@njit
def _fill(seed, numbers):
    stream = np.array([seed], dtype=np.uint64)
    for i in range(len(numbers)):
        numbers[i] = normal(stream)


def test_loops_compile_without_a_writable_cache(monkeypatch):
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])

    @jit
    def double(x):
        return 2 * x

    assert double(4) == 8


def test_ziggurat_draws_standard_normal_numbers():
    numbers = np.empty(1_000_000)
    _fill(7, numbers)
    assert kstest(numbers, "norm").pvalue > 1e-3
    # the tail beyond the last layer, which a test of all numbers hardly sees
    tail = np.abs(numbers[np.abs(numbers) > 3.0])
    assert abs(len(tail) - 2 * norm.sf(3.0) * len(numbers)) < 5 * np.sqrt(len(tail))
    assert kstest(tail, lambda x: 1 - norm.sf(x) / norm.sf(3.0)).pvalue > 1e-3
    neighbours = np.corrcoef(numbers[:-1], numbers[1:])[0, 1]
    assert abs(neighbours) < 5e-3
