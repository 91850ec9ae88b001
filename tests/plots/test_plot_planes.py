"""Figures of noise in a plane: contours, paths and rates against closed forms, loops and scipy's density."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from rose_carla import plots
from matplotlib.colors import same_color
from matplotlib.contour import ContourSet
from matplotlib.patches import Rectangle
from rose_carla.bench.figure_recipes import RECIPES
from rose_carla.noise import noisy_step
from rose_carla.plots import style
from rose_carla.plots.plane import draw_noise, draw_plane
from scipy.stats import gaussian_kde, norm

PATCHES = plots.patches()
SAVINGS = plots.savings()


@functools.cache
def drawn(name):
    return RECIPES[name].draw(None, None)


def contours(ax, n_levels):
    """Return the contours with ``n_levels`` levels, in drawing order."""
    return [each for each in ax.collections if isinstance(each, ContourSet) and len(each.levels) == n_levels]


def arrows(ax, colour):
    """Return start and end of each arrow of a colour (n, 2, 2), in drawing order."""
    found = [text for text in ax.texts if getattr(text, "arrow_patch", None) is not None]
    return np.array([[text.xyann, text.xy] for text in found if same_color(text.arrow_patch.get_edgecolor(), colour)])


def dots(ax, colour, marker="."):
    """Return the coordinates of each group of dots of a colour."""
    lines = [line for line in ax.get_lines() if line.get_marker() == marker and same_color(line.get_color(), colour)]
    return [np.array(line.get_xydata(), dtype=float) for line in lines]


def rates(ax):
    return [float(text.get_text().removeprefix("IR ")) for text in ax.texts if text.get_text().startswith("IR ")]


def missed(states):
    """Return the share of states outside the desirable region of ``patches``."""
    return 1 - np.mean([x < 0.48 and y > 0.58 for x, y in states])


def weighed(plane, centre, variance, n=20_000, seed=5):
    """Sample states around ``centre``, with their weights under plausible noise by scipy's density."""
    states = np.random.default_rng(seed).normal(centre, np.sqrt(variance), (n, 2))
    weights = gaussian_kde(plane.density.points_.T)(states.T)
    return states, weights / weights.sum()


def shares(contour, states, weights):
    return [float(weights[path.contains_points(states)].sum()) for path in contour.get_paths()]


def test_contours_enclose_50_and_90_percent_of_noise():
    point = np.array([0.62, 0.62])
    gaussian, plausible = drawn("noise").axes
    states, weights = weighed(SAVINGS, point, 0.01)
    alike = np.full(len(states), 1 / len(states))
    assert shares(contours(gaussian, 2)[-1], states, alike) == pytest.approx([0.9, 0.5], abs=0.03)
    assert shares(contours(plausible, 2)[-1], states, weights) == pytest.approx([0.9, 0.5], abs=0.03)
    assert np.abs(np.array(shares(contours(plausible, 2)[-1], states, alike)) - [0.9, 0.5]).max() > 0.1
    samples = SAVINGS.noise.sample(point[None], 0.01, 10_000, np.random.default_rng(9))[0]
    each = np.full(len(samples), 1 / len(samples))
    assert shares(contours(plausible, 2)[-1], samples, each) == pytest.approx([0.9, 0.5], abs=0.03)


@pytest.mark.parametrize("variance", [0.002, 0.02])
@pytest.mark.parametrize("state", [(0.5, 0.5), (0.6, 0.45)])
def test_contours_of_other_states_and_variances(state, variance):
    _, axes = style.new_axes(2, 2, 1, 2)
    states, weights = weighed(PATCHES, state, variance)
    alike = np.full(len(states), 1 / len(states))
    for ax, plausible, share in zip(axes[0], (False, True), (alike, weights), strict=True):
        draw_noise(ax, PATCHES, np.array(state), variance, plausible=plausible)
        assert shares(contours(ax, 2)[0], states, share) == pytest.approx([0.9, 0.5], abs=0.03)


def test_dots_are_samples_of_noise():
    for ax in drawn("noise").axes:
        (samples,) = dots(ax, style.ORANGE)
        assert len(samples) == 300
        each = np.full(300, 1 / 300)
        assert shares(contours(ax, 2)[-1], samples, each) == pytest.approx([0.9, 0.5], abs=0.08)
        np.testing.assert_array_equal(dots(ax, style.RED, "x")[0], [[0.62, 0.62]])


def test_border_of_desirable_region_is_decision_boundary():
    _, axes = style.new_axes(2, 2, 1, 2)
    for ax, plane in zip(axes[0], (SAVINGS, PATCHES), strict=True):
        draw_plane(ax, plane)
        border, filled = (contours(ax, n)[-1] for n in (1, 2))
        assert list(border.levels) == [0.5]
        states = np.random.default_rng(0).random((4000, 2))
        inside = np.array(plane.favourable(states)) > 0.5
        (region,) = filled.get_paths()
        assert (region.contains_points(states) == inside).mean() > 0.99
    (line,) = contours(axes[0, 0], 1)[0].get_paths()
    np.testing.assert_allclose(SAVINGS.favourable(line.vertices), 0.5, atol=0.01)
    np.testing.assert_allclose(line.vertices.sum(axis=1), 1.15, atol=0.001)
    (line,) = contours(axes[0, 1], 1)[0].get_paths()
    x, y = line.vertices.T
    cell = 1 / 139
    assert np.minimum(np.abs(x - 0.48), np.abs(y - 0.58)).max() < cell
    assert x.max() < 0.48 + cell
    assert y.min() > 0.58 - cell


def test_contours_of_data_match_scipy_density():
    _, axes = style.new_axes(2, 2)
    draw_plane(axes[0, 0], PATCHES, points=50)
    (contour,) = contours(axes[0, 0], 5)
    estimate = gaussian_kde(PATCHES.density.points_.T)
    top = estimate(PATCHES.states().T).max()
    for level, path in zip((0.03, 0.1, 0.25, 0.5, 0.8), contour.get_paths(), strict=True):
        np.testing.assert_allclose(estimate(path.vertices.T) / top, level, rtol=0.02)
    np.testing.assert_array_equal(dots(axes[0, 0], style.GREY)[0], PATCHES.density.points_[:50])


STARTS, ENDS = np.array([[0.2, 0.46], [0.92, 0.14]]), np.array([[0.22, 0.74], [0.34, 0.8]])


def test_rates_under_gaussian_noise_match_closed_form():
    ax = drawn("lengths").axes[0]
    np.testing.assert_allclose(arrows(ax, style.BLUE), np.stack([STARTS, ENDS], axis=1))
    for rate, (x, y) in zip(rates(ax), ENDS, strict=True):
        assert rate == pytest.approx(1 - norm.cdf((0.48 - x) / 0.1) * norm.cdf((y - 0.58) / 0.1), abs=0.01)


def test_rates_under_plausible_noise_match_loop_over_units():
    ax = drawn("lengths").axes[1]
    rng = np.random.default_rng(77)
    for rate, start, end in zip(rates(ax), STARTS, ENDS, strict=True):
        length = np.abs(end - start).sum()
        states, left = np.repeat(start[None], 4000, axis=0), length
        while left > 1e-9:
            size = min(0.025, left)
            action = np.broadcast_to((end - start) * size / length, states.shape)
            states = noisy_step(states, action, PATCHES.noise, 0.0005, 0.025, rng)
            left -= size
        assert rate == pytest.approx(missed(states), abs=0.02)
    short, long = rates(ax)
    assert short < long


def test_dots_of_lengths_match_their_rates():
    for ax in drawn("lengths").axes:
        for colour, rate in zip((style.ORANGE, style.PURPLE), rates(ax), strict=True):
            (tries,) = dots(ax, colour)
            assert tries.shape == (200, 2)
            assert missed(tries) == pytest.approx(rate, abs=0.08)


@pytest.mark.parametrize("name", ["orders", "steps"])
def test_paths_join_intended_states_and_means_of_noise(name):
    starts = [[0.75, 0.25]] * 3 if name == "orders" else [[0.57, 0.5], [0.77, 0.3]]
    changes = {
        "orders": [
            [[0, 0.25], [0, 0.25], [-0.22, 0], [-0.22, 0]],
            [[-0.22, 0], [-0.22, 0], [0, 0.25], [0, 0.25]],
            [[-0.11, 0.125]] * 4,
        ],
        "steps": [[[-0.2, 0.2]], [[-0.2, 0.2]] * 2],
    }[name]
    for ax, start, actions in zip(drawn(name).axes, starts, changes, strict=True):
        states = [np.array(start)]
        for action in actions:
            states.append(states[-1] + action)
        np.testing.assert_allclose(arrows(ax, style.BLUE), list(itertools.pairwise(states)))
        clouds = dots(ax, style.ORANGE)
        assert [len(cloud) for cloud in clouds] == [100] * len(actions)
        means = [np.array(start), *(cloud.mean(axis=0) for cloud in clouds)]
        np.testing.assert_allclose(arrows(ax, style.RED), list(itertools.pairwise(means)))
        for before, action, cloud in zip(means, actions, clouds, strict=False):
            variance = 0.002 * np.abs(action).sum() / 0.1
            around, weights = weighed(PATCHES, before + action, variance, 4000)
            mean = weights @ around
            spread = np.sqrt(weights @ (around - mean) ** 2)
            np.testing.assert_array_less(np.abs(cloud.mean(axis=0) - mean), 4 * spread / 10)
            np.testing.assert_allclose(cloud.std(axis=0), spread, rtol=0.35)
        particles = np.repeat([start], 10_000, axis=0)
        rng = np.random.default_rng(123)
        for action in actions:
            each = np.broadcast_to(action, particles.shape)
            particles = noisy_step(particles, each, PATCHES.noise, 0.002, 0.1, rng)
        assert rates(ax) == [pytest.approx(missed(particles), abs=0.02)]


def test_four_perturbations_surround_the_same_recourse():
    figure = drawn("perturbations")
    gaussian, causal, boxed, plausible = figure.axes
    start, actions = np.array([0.8, 0.25]), np.array([[-0.15, 0.35], [-0.3, 0.15]])
    end = np.array([0.35, 0.75])
    for ax in (gaussian, causal, boxed):
        np.testing.assert_allclose(arrows(ax, style.BLUE), [[start, end]])
    states, weights = weighed(PATCHES, end, 0.01)
    alike = np.full(len(states), 1 / len(states))
    assert shares(contours(gaussian, 2)[-1], states, alike) == pytest.approx([0.9, 0.5], abs=0.03)

    (curve,) = [line.get_xydata() for line in causal.get_lines() if len(line.get_xdata()) == 200]
    # the first feature is its disturbance, the second its own and 0.6 of the first
    first = curve[:, 0] - end[0]
    second = curve[:, 1] - end[1] - 0.6 * first
    np.testing.assert_allclose(np.hypot(first, second), 0.16)
    angles = np.unwrap(np.arctan2(second, first))
    assert angles[-1] - angles[0] == pytest.approx(2 * np.pi)
    assert np.abs(np.diff(angles)).max() < 0.04

    (box,) = [patch for patch in boxed.patches if isinstance(patch, Rectangle)]
    corners = {tuple(corner) for corner in box.get_corners().round(9)}
    assert corners == {(0.15, 0.65), (0.55, 0.65), (0.15, 0.85), (0.55, 0.85)}

    around, weights = weighed(PATCHES, start + actions[0], 0.01)
    moved = weights @ around
    (one, middle), (again, last) = arrows(plausible, style.BLUE)
    np.testing.assert_allclose([one, middle], [start, start + actions[0]])
    np.testing.assert_allclose(again, moved, atol=0.005)
    np.testing.assert_allclose(last, again + actions[1])
    for contour, centre in zip(contours(plausible, 2)[-2:], (middle, last), strict=True):
        states, weights = weighed(PATCHES, centre, 0.01)
        assert shares(contour, states, weights) == pytest.approx([0.9, 0.5], abs=0.03)


def test_accumulation_carries_noise_along_on_the_right_only():
    unaware, aware = drawn("accumulation").axes
    start, actions = np.array([0.8, 0.2]), np.array([[-0.1, 0.4], [-0.35, 0.1]])
    intended = [start, start + actions[0], start + actions[0] + actions[1]]
    np.testing.assert_allclose(arrows(unaware, style.GREEN), [intended[:2], intended[1:]])
    np.testing.assert_allclose(arrows(unaware, style.RED)[:, 0], intended[1:])
    for ax in (unaware, aware):
        reached = np.concatenate(dots(ax, style.RED, "o"))
        np.testing.assert_allclose(arrows(ax, style.RED)[:, 1], reached)
        assert [text.get_text() for text in ax.texts if text.get_text()] == ["$s_0$", "$s_1'$", "$s_2'$"]
    steps, misses = arrows(aware, style.BLUE), arrows(aware, style.RED)
    np.testing.assert_allclose(steps[0][0], start)
    np.testing.assert_allclose(steps[1][0], misses[0][1])
    np.testing.assert_allclose(steps[:, 1] - steps[:, 0], actions)
    np.testing.assert_allclose(misses[:, 0], steps[:, 1])
    assert np.abs(misses[:, 1] - misses[:, 0]).max() > 0.02


def test_noisy_paths_depend_on_seed_only():
    plans = {"a": (np.array([0.8, 0.2]), np.array([[-0.4, 0.5]]))}
    clouds = [
        dots(plots.noisy_paths(PATCHES, plans, 1e-3, 0.05, 5, seed).axes[0], style.ORANGE)[0] for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(clouds[0], clouds[1])
    assert not np.isclose(clouds[0], clouds[2]).any()


def test_plane_with_other_corners_and_names():
    plane = plots.Plane(PATCHES.density, PATCHES.favourable, ("a", "b"), (-1.0, 0.5), (2.0, 1.5))
    ax = plots.noise_around(plane, np.array([0.3, 0.8])).axes[0]
    assert (ax.get_xlim(), ax.get_ylim()) == ((-1, 2), (0.5, 1.5))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "b")
    states = plane.states()
    assert (states.min(axis=0).tolist(), states.max(axis=0).tolist()) == ([-1, 0.5], [2, 1.5])
    across, up = plane.axes()
    grid = plane.on_grid(states[:, 0] + 10 * states[:, 1])
    np.testing.assert_allclose(grid, across[None, :] + 10 * up[:, None])
