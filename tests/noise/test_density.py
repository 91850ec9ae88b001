"""The density against scipy and the formula."""

from __future__ import annotations

import numpy as np
import pytest
from noise_examples import clusters, plausible, rng
from numba import njit
from rose_carla.errors import ModelError, NoiseError
from rose_carla.noise import Density, density_of, reference
from rose_carla.noise._sampling import kernels
from rose_carla.noise._sampling.lanes import TILE, products
from scipy.stats import gaussian_kde


@pytest.mark.parametrize("bandwidth", ["scott", "silverman", 0.4])
@pytest.mark.parametrize(("n", "d"), [(2, 1), (5, 1), (40, 2), (200, 7), (1000, 20)])
def test_density_is_scipys(n, d, bandwidth):
    rows = clusters(n, d)
    if n <= d + 1:
        rows = rows + rng(1).normal(size=rows.shape)
    states = rows[:5] + 0.1
    ours = Density(bandwidth=bandwidth, ridge=0).fit(rows)
    theirs = gaussian_kde(rows.T, bw_method=bandwidth)
    np.testing.assert_allclose(ours.log_density(states), theirs.logpdf(states.T), rtol=1e-9)
    np.testing.assert_allclose(ours.covariance_, theirs.covariance)


def test_density_with_ridge_against_the_formula():
    rows = np.column_stack([clusters(50, 2), np.ones(50), np.zeros(50)])  # constant columns
    rows = np.column_stack([rows, rows[:, 0] + rows[:, 1]])  # and a collinear one
    density = Density(ridge=1e-4).fit(rows)
    covariance = np.cov(rows.T) * 50 ** (-2 / (5 + 4)) + 1e-4 * np.eye(5)
    expected = np.log(reference.kernel_density(rows[:7], (rows, covariance)))
    np.testing.assert_allclose(density.log_density(rows[:7]), expected, rtol=1e-8)
    with pytest.raises(NoiseError, match="needs a ridge"):
        Density(ridge=0).fit(rows)


def test_density_of_one_hot_columns_and_far_states():
    rows = np.eye(4)[rng().integers(4, size=100)]
    density = Density().fit(rows)
    near, far = density.log_density(np.array([rows[0], np.full(4, 1e6)]))
    assert np.isfinite([near, far]).all()
    assert near > far


def test_a_cap_keeps_the_bandwidth_of_all_rows():
    rows = clusters(20_000, 3)
    full, capped, other = (
        Density().fit(rows),
        Density(max_points=2000).fit(rows),
        Density(max_points=2000, seed=1).fit(rows),
    )
    assert len(capped.points_) == 2000
    assert capped.n_rows_ == 20_000
    assert capped.factor_ == full.factor_
    np.testing.assert_array_equal(capped.covariance_, full.covariance_)
    assert not np.array_equal(capped.points_, other.points_)
    gap = capped.log_density(rows[:200]) - full.log_density(rows[:200])
    assert abs(gap.mean()) < 0.05
    assert np.abs(gap).mean() < 0.2


def test_a_million_rows():
    rows = rng().random((1_000_000, 4))
    noise = plausible(rows)
    assert noise.density.n_rows_ == 1_000_000
    assert len(noise.density.points_) == 50_000
    assert np.isfinite(noise.sample(rows[:10], 0.01, 3, rng())).all()


def test_density_of_a_model(compas_ann):
    density = Density.from_model(compas_ann)
    accepted = Density.from_model(compas_ann, outcome=1, max_points=1000)
    data = compas_ann.data
    assert density.n_rows_ == len(data.df_train)
    assert accepted.n_rows_ == data.df_train[data.target].sum()
    assert len(accepted.points_) == 1000


@njit
def _products(points, factors, squares, out, tops):
    for box in range(len(points)):
        products(points, box, factors, squares, out, tops)


def test_products_are_accurate_to_1e_5():
    """Weights of all points for states as far out as products are used, against double precision."""
    points = rng().normal(size=(50, 20, kernels.BOX)).astype(np.float32) * np.float32(1.4)
    states = rng(1).normal(size=(20, TILE))
    states *= np.sqrt(kernels._CENTRAL / (states**2).sum(axis=0))
    factors = states.astype(np.float32)
    out, tops = np.empty((TILE, points[:, 0].size), np.float32), np.full(TILE * kernels.BOX, -1e12, np.float32)
    exact = points.astype(float)
    squares = (exact**2).sum(axis=1)
    _products(points, factors, squares.ravel().astype(np.float32), out, tops)
    expected = np.einsum("kt,bkj->tbj", factors.astype(float), exact) - 0.5 * squares
    error = out.reshape(expected.shape) - expected
    assert np.sqrt((error**2).mean()) < 1e-5
    assert np.abs(error).max() < 5e-5
    np.testing.assert_array_equal(tops.reshape(TILE, -1), out.reshape(expected.shape).max(axis=1))


def test_rows_that_cannot_be_used_are_explained():
    rows = rng().random((20, 2))
    for bad, message in [
        (rows[:1], "at least 2 rows"),
        (rows[0], "at least 2 rows"),
        (rows * [np.nan, 1.0], "missing or infinite"),
        (rows * [1e160, 1.0], "too large: scale features"),
    ]:
        with pytest.raises(NoiseError, match=message):
            Density().fit(bad)
    with pytest.raises(NoiseError, match="not fitted"):
        Density().log_density(rows)


@pytest.mark.parametrize("bandwidth", ["scot", -1.0, 0, None, np.ones(2)])
def test_unknown_bandwidths_are_explained(bandwidth):
    with pytest.raises(NoiseError, match="bandwidth must be 'scott', 'silverman' or a factor above 0"):
        Density(bandwidth=bandwidth).fit(rng().random((20, 2)))


def test_density_needs_a_model():
    with pytest.raises(ModelError, match="Expected a CARLA model"):
        density_of(None)
