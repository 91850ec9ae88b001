"""The noise model against independent truths: integration on a grid, scipy, importance sampling, brute force."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from rose_carla.errors import NoiseError
from rose_carla.models import favourable
from rose_carla.noise import (
    Density,
    GaussianNoise,
    PlausibleNoise,
    accumulated_invalidation_rate,
    common_noise,
    execute,
    invalidation_rate,
    linear_invalidation_rate,
    noisy_step,
    one_shot_plan,
    unit_actions,
    wilson_interval,
)
from scipy.stats import binom, gaussian_kde, multivariate_normal, norm


def rng(seed=0):
    return np.random.default_rng(seed)


def clusters(n=300, d=2, seed=0):
    """Two correlated clouds in the unit cube."""
    generator = rng(seed)
    mixing = generator.normal(size=(d, d)) * 0.08
    centres = generator.choice([0.3, 0.7], size=n)[:, None]
    return centres + generator.normal(size=(n, d)) @ mixing


def plausible(rows, **options):
    return PlausibleNoise(Density(**options).fit(rows))


# --- density


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
    expected = np.log(np.mean([multivariate_normal(row, covariance).pdf(rows[:7]) for row in rows], axis=0))
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
    density = Density.of(compas_ann)
    accepted = Density.of(compas_ann, outcome=1, max_points=1000)
    data = compas_ann.data
    assert density.n_rows_ == len(data.df_train)
    assert accepted.n_rows_ == data.df_train[data.target].sum()
    assert len(accepted.points_) == 1000


# --- plausible noise


def test_mean_and_covariance_against_integration_in_one_dimension():
    rows = clusters(40, 1)
    noise = plausible(rows)
    grid = np.linspace(-2, 3, 200_001)
    for state, variance in [(0.5, 0.01), (0.1, 0.05), (1.2, 0.0005)]:
        density = norm(state, variance**0.5).pdf(grid) * np.exp(noise.density.log_density(grid[:, None]))
        density /= density.sum()
        mean = (density * grid).sum()
        spread = (density * (grid - mean) ** 2).sum()
        np.testing.assert_allclose(noise.mean([[state]], variance)[0, 0], mean, rtol=1e-6)
        np.testing.assert_allclose(noise.covariance([[state]], variance)[0, 0, 0], spread, rtol=1e-5)


def test_mean_and_covariance_against_integration_in_two_dimensions():
    rows = clusters(30, 2)
    noise = plausible(rows)
    axis = np.linspace(-0.6, 1.6, 601)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    states, variances = np.array([[0.5, 0.5], [0.2, 0.7]]), np.array([0.01, 0.03])
    log_k = noise.density.log_density(grid)
    for i in range(2):
        density = np.exp(multivariate_normal(states[i], variances[i] * np.eye(2)).logpdf(grid) + log_k)
        density /= density.sum()
        mean = density @ grid
        covariance = (grid - mean).T @ (density[:, None] * (grid - mean))
        np.testing.assert_allclose(noise.mean(states, variances)[i], mean, rtol=1e-6)
        np.testing.assert_allclose(noise.covariance(states, variances)[i], covariance, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(("n", "d"), [(30, 2), (700, 3), (5000, 3), (5000, 8)])
def test_samples_have_the_closed_form_moments(n, d):
    """Few points are all weighed, many go through boxes and shelves: both have to be exact."""
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
    """Rows in other units, far from 0: the same kernels are drawn as for the plain rows."""
    rows = rng().random((3000, 3))
    plain, moved = Density(ridge=0).fit(rows), Density(ridge=0).fit((rows + offset) * scale)
    seeds = np.arange(200, dtype=np.uint64)
    variance = np.full(200, 0.0005)
    ours = plain.draw_points(rows[:200], variance, 20, seeds)
    theirs = moved.draw_points((rows[:200] + offset) * scale, variance * scale**2, 20, seeds)
    assert (ours == theirs).mean() > 0.95


@pytest.mark.parametrize("n", [2, 15, 17, 255, 257, 2047, 2049, 4097])
@pytest.mark.parametrize(("variance", "bandwidth"), [(1e20, "scott"), (0.01, 1e9), (1e-12, "scott"), (1e30, 1e-6)])
def test_extreme_widths_never_read_beyond_the_points(n, variance, bandwidth):
    """Boxes are filled up to 16 points, shelves to 16 boxes; what fills them must never be drawn or weighed."""
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


def test_sampling_works_in_a_forked_child_and_in_threads():
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_same_seed_same_bits_whatever_the_batch_and_the_threads(compas_ann):
    rows = compas_ann.data.df_train[compas_ann.feature_input_order].to_numpy()
    noise = plausible(rows)
    states = rows[:50] + 0.02
    whole = noise.sample(states, 0.001, 4, common_noise(3, range(50)))
    np.testing.assert_array_equal(whole, noise.sample(states, 0.001, 4, common_noise(3, range(50))))
    np.testing.assert_array_equal(whole[20:], noise.sample(states[20:], 0.001, 4, common_noise(3, range(20, 50))))
    np.testing.assert_array_equal(noise.sample(states, 0.001, 4, rng(5)), noise.sample(states, 0.001, 4, rng(5)))
    code = (
        "import numpy as np; from rose_carla.noise import *;"
        "rows = np.random.default_rng(0).random((4000, 5));"
        "noise = PlausibleNoise(Density().fit(rows));"
        "print(noise.sample(rows[:30], 0.01, 3, np.random.default_rng(1)).tobytes().hex())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**_environment(), "ROSE_CARLA_THREADS": n},
            capture_output=True,
            check=True,
        ).stdout
        for n in ("1", "2")
    }
    assert len(outputs) == 1


def _environment():
    import os

    return dict(os.environ)


finite = st.floats(-3, 3, width=32)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rows=hnp.arrays(float, st.tuples(st.integers(2, 40), st.integers(1, 6)), elements=finite),
    variance=st.sampled_from([1e-12, 0.0005, 0.01, 1.0, 1e6]),
    n_samples=st.integers(1, 5),
    dtype=st.sampled_from([np.float32, np.float64, "object"]),
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


@pytest.mark.parametrize("noise", [GaussianNoise(), plausible(clusters(50, 2))], ids=["gaussian", "plausible"])
def test_bad_input_is_explained(noise):
    good = np.zeros((2, 2))
    for states, variance, n, message in [
        (good, -1.0, 1, "not negative"),
        (good, np.nan, 1, "finite"),
        (good, np.array([0.1, 0.2, 0.3]), 1, "one for each of 2 states"),
        (good + np.nan, 0.1, 1, "missing or infinite"),
        (np.zeros((0, 2)), 0.1, 1, "empty"),
        (np.zeros(2), 0.1, 1, "shape"),
        (good, 0.1, 0, "n_samples"),
    ]:
        with pytest.raises(NoiseError, match=message):
            noise.sample(states, variance, n, rng())
    with pytest.raises(NoiseError, match="generators"):
        noise.sample(good, 0.1, 1, common_noise(0, range(3)))


def test_bad_densities_are_explained():
    for rows, options, message in [
        (np.zeros((1, 2)), {}, "at least 2 rows"),
        (np.zeros(4), {}, "at least 2 rows"),
        (np.full((4, 2), np.nan), {}, "missing or infinite"),
        (np.eye(3), {"bandwidth": "scot"}, "bandwidth is"),
        (np.eye(3), {"bandwidth": -1.0}, "bandwidth is"),
        (np.eye(3), {"ridge": -1.0}, "ridge must not be negative"),
        (np.eye(3), {"ridge": np.nan}, "ridge must not be negative"),
        (np.eye(3), {"bandwidth": True}, "bandwidth is"),
        (np.eye(3), {"max_points": 1}, "max_points"),
    ]:
        with pytest.raises(NoiseError, match=message):
            Density(**options).fit(rows)
    with pytest.raises(NoiseError, match="not fitted"):
        Density().log_density(np.eye(3))
    with pytest.raises(NoiseError, match=r"shape \(b, 3\)"):
        plausible(np.eye(3)).sample(np.zeros((2, 4)), 0.1, 1, rng())


# --- steps and paths


def test_a_noisy_step_moves_and_scales_its_noise():
    states = np.zeros((20_000, 3))
    actions = np.tile([0.05, 0.0, -0.05], (20_000, 1))
    moved = noisy_step(states, actions, GaussianNoise(), 0.0005, 0.025, rng())
    np.testing.assert_allclose(moved.mean(axis=0), actions[0], atol=5 * np.sqrt(0.002 / 20_000))
    np.testing.assert_allclose(moved.var(axis=0), 4 * 0.0005, rtol=0.05)  # |a|_1 = 0.1 is four units


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


def test_bad_steps_and_plans_are_explained():
    noise, one = GaussianNoise(), np.zeros((1, 2))
    with pytest.raises(NoiseError, match="above 0"):
        noisy_step(one, one, noise, 0.1, 0.0, rng())
    with pytest.raises(NoiseError, match="above 0"):
        unit_actions(one, -1.0)
    with pytest.raises(NoiseError, match="one finite action of 2 numbers"):
        noisy_step(one, np.zeros((2, 2)), noise, 0.1, 0.025, rng())
    with pytest.raises(NoiseError, match="one finite action"):
        noisy_step(one, one + np.nan, noise, 0.1, 0.025, rng())
    with pytest.raises(NoiseError, match="one plan for each of 1 factuals, got 2"):
        execute(one, [one, one], noise, 0.1, 0.025, 1, rng())
    with pytest.raises(NoiseError, match="2 numbers each"):
        execute(one, [np.ones((1, 3))], noise, 0.1, 0.025, 1, rng())
    with pytest.raises(NoiseError, match="n_particles"):
        execute(one, [one], noise, 0.1, 0.025, 0, rng())
    with pytest.raises(NoiseError, match=r"\(k, d\)"):
        unit_actions(np.zeros(3), 0.1)


# --- invalidation rate


def test_wilson_interval_against_statsmodels_values():
    # of the score interval at 95 %, from the quadratic that defines it: (p - x)^2 = z^2 x (1 - x) / n
    low, high = wilson_interval(np.array([0, 3, 50, 100]), 100)
    z = norm.ppf(0.975)
    for share, ends in zip([0.0, 0.03, 0.5, 1.0], zip(low, high, strict=True), strict=True):
        for end in ends:
            assert (share - end) ** 2 == pytest.approx(z**2 * end * (1 - end) / 100, abs=1e-12)
    with pytest.raises(NoiseError, match="between 0 and 1"):
        wilson_interval(np.array([1]), 10, confidence=95)


@pytest.mark.parametrize("kind", ["gaussian", "plausible"])
def test_closed_form_for_linear_models_against_monte_carlo(kind, compas_linear):
    data = compas_linear.data
    rows = data.df_train[compas_linear.feature_input_order].to_numpy()
    noise = GaussianNoise() if kind == "gaussian" else plausible(rows)
    layer = compas_linear.raw_model.layers[0]
    weights = (layer.weight[1] - layer.weight[0]).numpy().astype(float)
    bias = float(layer.bias[1] - layer.bias[0])
    states = data.df_test[compas_linear.feature_input_order].to_numpy()[:40]
    exact = linear_invalidation_rate(states, noise, 0.01, weights, bias)
    estimate = invalidation_rate(favourable(compas_linear), states, noise, 0.01, 4000, rng())
    failures = estimate.rate * 4000
    assert (binom.cdf(failures, 4000, exact) > 1e-6).all()
    assert (binom.sf(failures - 1, 4000, exact) > 1e-6).all()
    assert estimate.n_samples == 4000


def test_intervals_cover_the_truth_as_often_as_they_say():
    noise, state = GaussianNoise(), np.full((400, 1), 0.1)
    exact = linear_invalidation_rate(state[:1], noise, 0.01, np.ones(1), 0.0)[0]
    ir = invalidation_rate(lambda x: x[:, 0] > 0, state, noise, 0.01, 200, rng(), confidence=0.9)
    covered = ((ir.lower <= exact) & (exact <= ir.upper)).mean()
    assert 0.85 < covered < 0.95


@pytest.mark.parametrize("noise", [GaussianNoise(), plausible(clusters(400, 2))], ids=["gaussian", "plausible"])
def test_more_variance_never_helps_a_valid_point_of_a_linear_model(noise):
    """Plausible noise is centred where data are; a point deep on the good side, in the middle of its cloud."""
    rows = clusters(400, 2)
    centre = rows[rows.sum(axis=1) > 1].mean(axis=0)
    rates = [
        linear_invalidation_rate(centre[None], noise, variance, np.ones(2), -1.0)[0]
        for variance in (1e-6, 1e-4, 1e-3, 0.01, 0.03, 0.1, 1.0)
    ]
    assert rates[0] < 1e-6
    assert (np.diff(rates) >= -1e-12).all()


def test_longer_recourse_is_invalidated_more_often():
    """The paper's Figure 'step-noise': two starts, one twice as far, the same counterfactual in the top left."""
    generator = rng()
    rows = generator.random((4000, 2))
    rows = rows[np.abs(rows[:, 0] + rows[:, 1] - 1) < 0.6]
    noise = plausible(rows)
    good = lambda x: (x[:, 0] < 0.45) & (x[:, 1] > 0.55)  # noqa: E731
    end = np.array([0.35, 0.65])
    starts = np.array([[0.6, 0.4], [0.85, 0.15]])
    plans = [np.array([[end[0] - s[0], 0.0], [0.0, end[1] - s[1]]]) for s in starts]
    ir = accumulated_invalidation_rate(good, starts, plans, noise, 0.0005, 0.025, 4000, rng(1))
    assert ir.upper[0] < ir.lower[1]


def test_accumulated_rate_is_the_share_of_failures():
    """Algorithm 2 as a plain loop; the paper's own line returns successes, which is one minus that."""
    rows = clusters(300, 2)
    noise = plausible(rows)
    good = lambda x: x.sum(axis=1) > 1  # noqa: E731
    factuals, plans = rows[:2], [np.array([[0.2, 0.0]]), np.array([[0.0, 0.1], [0.1, 0.0]])]
    ir = accumulated_invalidation_rate(good, factuals, plans, noise, 0.0005, 0.025, 300, common_noise(2, [0, 1]))
    for row in range(2):
        ends = execute(factuals[row : row + 1], plans[row : row + 1], noise, 0.0005, 0.025, 300, common_noise(2, [row]))
        assert ir.rate[row] == np.mean([not good(end[None])[0] for end in ends[0]])


def test_common_noise_compares_methods_on_the_same_draws():
    """The difference between two near points is known far better on common noise than on independent noise."""
    noise, good = GaussianNoise(), lambda x: x[:, 0] > 0
    a, b = np.full((60, 1), 0.10), np.full((60, 1), 0.11)

    def differences(seed_b):
        first = invalidation_rate(good, a, noise, 0.01, 500, common_noise(0, range(60)))
        second = invalidation_rate(good, b, noise, 0.01, 500, common_noise(seed_b, range(60)))
        return first.rate - second.rate

    assert differences(0).std() < 0.5 * differences(1).std()
    assert (differences(0) >= 0).all()


def test_a_classifier_has_to_say_yes_or_no():
    """Probabilities would all count as yes."""
    states, noise = np.zeros((4, 2)), GaussianNoise()
    for classifier in (lambda x: x[:, 0] * 0 + 0.3, lambda x: np.ones((len(x), 1)), lambda x: np.ones(3)):
        with pytest.raises(NoiseError, match="whether it is favourable"):
            invalidation_rate(classifier, states, noise, 0.01, 10, rng())
    assert invalidation_rate(lambda x: np.ones(len(x), int), states, noise, 0.01, 10, rng()).rate.max() == 0


def test_more_bad_rates_are_explained():
    good, one, noise = lambda x: x[:, 0] > 0, np.zeros((1, 2)), GaussianNoise()
    with pytest.raises(NoiseError, match="n_samples"):
        invalidation_rate(good, one, noise, 0.01, 0, rng())
    with pytest.raises(NoiseError, match="one plan for each"):
        accumulated_invalidation_rate(good, one, [], noise, 0.01, 0.025, 10, rng())
    with pytest.raises(NoiseError, match="not negative"):
        linear_invalidation_rate(one, noise, -1.0, np.ones(2), 0.0)
    with pytest.raises(NoiseError, match="2 finite weights"):
        linear_invalidation_rate(one, noise, 0.1, np.ones(3), 0.0)
    with pytest.raises(NoiseError, match="generators"):
        invalidation_rate(good, np.zeros((4, 2)), noise, 0.01, 10, common_noise(np.int64(0), range(2)))
    with pytest.raises(NoiseError, match="belong to no feature"):
        one_shot_plan(np.zeros(2), np.ones(2), [[0]], rng())
    with pytest.raises(NoiseError, match="finite"):
        one_shot_plan(np.zeros(2), np.array([np.nan, 1.0]), [[0], [1]], rng())


def test_large_batches_go_in_parts_that_change_nothing(monkeypatch):
    import rose_carla.noise.invalidation as module

    good, noise, states = lambda x: x.sum(axis=1) > 0, GaussianNoise(), rng().normal(0, 0.1, (30, 2))
    variances = np.linspace(0.001, 0.1, 30)
    whole = invalidation_rate(good, states, noise, variances, 50, common_noise(0, range(30))).rate
    monkeypatch.setattr(module, "_NUMBERS", 400)  # four states at once
    np.testing.assert_array_equal(
        whole, invalidation_rate(good, states, noise, variances, 50, common_noise(0, range(30))).rate
    )
    monkeypatch.setattr(module, "_NUMBERS", 40)  # a state in three parts
    exact = linear_invalidation_rate(states, noise, variances, np.ones(2), 0.0)
    parts = invalidation_rate(good, states, noise, variances, 2000, common_noise(0, range(30))).rate
    np.testing.assert_allclose(parts, exact, atol=0.06)


def test_no_closed_form_for_a_strange_noise():
    class Strange:
        pass

    with pytest.raises(NoiseError, match="No closed form is known for Strange"):
        linear_invalidation_rate(np.zeros((1, 2)), Strange(), 0.01, np.ones(2), 0.0)
