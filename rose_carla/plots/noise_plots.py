"""Noise around recourse and along its path, in a plane of two features."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rose_carla.carla_compat import import_optional
from rose_carla.noise import GaussianNoise, Noise, execute
from rose_carla.plots.plane import (
    Plane,
    draw_arrow,
    draw_noise,
    draw_path,
    draw_samples,
    draw_start,
    draw_target,
    plane_panels,
)
from rose_carla.plots.style import BLUE, COLUMN, GREEN, ORANGE, PAGE, PURPLE, RED, legend_beside, styled

#: Noisy samples of an invalidation rate that is written into a figure.
_RATE_SAMPLES = 20_000
#: The models of :func:`perturbations`: variance of the noise; slope of the causal model and radius of its disturbances;
#: half the sides of the box.
_VARIANCE, _SLOPE, _RADIUS, _BOX = 0.01, 0.6, 0.16, (0.2, 0.1)
#: Variance of the noise of each action in :func:`accumulation`.
_ACTION_VARIANCE = 0.02


@styled
def noise_around(plane: Plane, point: np.ndarray, variance: float = 0.01, n_samples: int = 300) -> Any:
    """Draw Gaussian and plausible noise of the same variance around a point (Definition 1).

    Parameters
    ----------
    plane, point
        The plane, and the intended state (2,), marked by a cross.
    variance
        The paper's sigma^2.
    n_samples
        Noisy samples that are drawn.

    Returns
    -------
    Figure
        A matplotlib figure.

    Examples
    --------
    >>> from rose_carla import plots
    >>> figure = plots.noise_around(plots.savings(), np.array([0.62, 0.68]), n_samples=10)
    >>> [ax.get_title() for ax in figure.axes]
    ['Gaussian noise', 'plausible noise']
    """
    point = np.asarray(point, dtype=float)
    kinds: dict[str, Noise] = {"Gaussian noise": GaussianNoise(), "plausible noise": plane.noise}
    figure, axes = plane_panels(plane, list(kinds), COLUMN, 1.85, points=200)
    for ax, noise in zip(axes, kinds.values(), strict=True):
        samples = noise.sample(point[None], variance, n_samples, np.random.default_rng(0))[0]
        draw_samples(ax, samples, ORANGE, size=2)
        draw_noise(ax, plane, point, variance, plausible=not isinstance(noise, GaussianNoise))
        draw_target(ax, point, 6, 1.6)
    return figure


@styled
def lengths(
    plane: Plane,
    factuals: Sequence[np.ndarray],
    ends: Sequence[np.ndarray],
    variance: float = 0.01,
    unit_variance: float = 0.001,
    action_unit: float = 0.05,
) -> Any:
    """Draw short and long recourse under the same Gaussian noise, and under plausible noise that grows with its length.

    Parameters
    ----------
    plane, factuals, ends
        The plane, and start and intended end of each recourse.
    variance
        Variance of the Gaussian noise, whatever the length.
    unit_variance, action_unit
        Variance of the noise of each unit of action, and the size of a unit.

    Returns
    -------
    Figure
        A matplotlib figure with the invalidation rate (IR) of 20,000 noisy samples below each start; 200 are drawn.
    """
    starts, targets = np.array(factuals, dtype=float), np.array(ends, dtype=float)
    rng = np.random.default_rng(0)
    plans = [change[None] for change in targets - starts]
    reached = {
        "Gaussian, one size": GaussianNoise().sample(targets, variance, _RATE_SAMPLES, rng),
        "plausible, each unit": execute(starts, plans, plane.noise, unit_variance, action_unit, _RATE_SAMPLES, rng),
    }
    figure, axes = plane_panels(plane, list(reached), COLUMN, 1.85)
    for ax, samples in zip(axes, reached.values(), strict=True):
        colours = itertools.cycle((ORANGE, PURPLE))
        for start, target, states, colour in zip(starts, targets, samples, colours, strict=False):
            draw_start(ax, start, "")
            draw_path(ax, [start, target], BLUE)
            draw_samples(ax, states[:200], colour)
            draw_target(ax, target)
            at_edge = ax.transAxes.inverted().transform(ax.transData.transform(start))[0] > 0.8
            options = {"textcoords": "offset points", "va": "top", "ha": "right" if at_edge else "center"}
            ax.annotate(_rate_text(plane, states), start, xytext=(0, -4), color="black", **options)
    return figure


def _rate_text(plane: Plane, reached: np.ndarray) -> str:
    """Format the share of noisy samples that end outside the desirable region."""
    return f"IR {(plane.favourable(reached) <= 0.5).mean():.2f}"


@styled
def perturbations(plane: Plane, factual: np.ndarray, actions: np.ndarray) -> Any:
    """Draw four models of perturbation around the same recourse, as a matplotlib ``Figure``.

    Gaussian noise; disturbances of a linear causal model in which the first feature moves the second; a box of manually
    chosen ranges; and plausible noise of each step.

    Parameters
    ----------
    plane, factual, actions
        The plane, the current state (2,) and two actions (2, 2); the first three panels show the end of both together.
    """
    factual, actions = np.asarray(factual, dtype=float), np.asarray(actions, dtype=float)
    end, first = factual + actions.sum(axis=0), factual + actions[0]
    titles = ("normal distribution", "causal model", "chosen ranges", "plausible, each step")
    figure, axes = plane_panels(plane, titles, PAGE, 2.15, points=150)
    gaussian, causal, boxed, plausible = axes
    for ax in axes:
        draw_start(ax, factual)
    for ax in (gaussian, causal, boxed):
        draw_path(ax, [factual, end], BLUE)
        draw_target(ax, end)
    draw_noise(gaussian, plane, end, _VARIANCE, plausible=False, colors=RED)
    angles = np.linspace(0, 2 * np.pi, 200)
    disturbances = _RADIUS * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    causal.plot(*(end + disturbances @ np.array([[1.0, _SLOPE], [0.0, 1.0]])).T, color=RED, linewidth=1.1, zorder=3)
    rectangle = import_optional("matplotlib.patches").Rectangle
    corner = end[0] - _BOX[0], end[1] - _BOX[1]
    boxed.add_patch(rectangle(corner, 2 * _BOX[0], 2 * _BOX[1], fill=False, edgecolor=RED, linewidth=1.1))
    moved = plane.noise.mean(first[None], _VARIANCE)[0]
    for start, target in ((factual, first), (moved, moved + actions[1])):
        draw_noise(plausible, plane, target, _VARIANCE, plausible=True, colors=RED)
        draw_path(plausible, [start, target], BLUE)
        draw_target(plausible, target)
    return figure


@styled
def accumulation(plane: Plane, factual: np.ndarray, actions: np.ndarray) -> Any:
    """Draw how noise adds up over actions, as a matplotlib ``Figure`` (Definition 2, Proposition 2).

    On the left white noise is added to each intended state, and the next action starts from the intended one; on the
    right each action starts from the state that was reached, on which plausible noise depends.

    Parameters
    ----------
    plane, factual, actions
        The plane, the current state (2,) and the actions (k, 2).
    """
    factual, actions = np.asarray(factual, dtype=float), np.asarray(actions, dtype=float)
    rng = np.random.default_rng(0)
    figure, (unaware, aware) = plane_panels(plane, ("noise-unaware", "noise-aware"), COLUMN, 1.95)
    for ax in (unaware, aware):
        draw_start(ax, factual, "$s_0$")
    intended = np.vstack([factual, factual + actions.cumsum(axis=0)])
    draw_path(unaware, list(intended), GREEN)
    for number, state in enumerate(intended[1:], start=1):
        _draw_miss(unaware, state, GaussianNoise().sample(state[None], _ACTION_VARIANCE, 1, rng)[0, 0], number)
    state = factual
    for number, action in enumerate(actions, start=1):
        target = state + action
        draw_path(aware, [state, target], BLUE)
        state = plane.noise.sample(target[None], _ACTION_VARIANCE, 1, rng)[0, 0]
        _draw_miss(aware, target, state, number)
    return figure


def _draw_miss(ax: Any, target: np.ndarray, reached: np.ndarray, number: int) -> None:
    draw_arrow(ax, target, reached, RED, 1.0)
    ax.plot(*reached, "o", color=RED, markersize=3, zorder=5)
    ax.annotate(f"$s_{number}'$", reached, xytext=(4, 3), textcoords="offset points", color=RED)


@styled
def noisy_paths(
    plane: Plane,
    plans: Mapping[str, tuple[np.ndarray, np.ndarray]],
    unit_variance: float,
    action_unit: float,
    n_samples: int = 100,
    seed: int = 0,
) -> Any:
    """Draw the intended path of each plan and its noise-aware path, a panel for each, as a matplotlib ``Figure``.

    Around the end of each action ``n_samples`` points of its plausible noise are drawn; the next action starts from
    their mean, which makes the noise-aware path. The invalidation rate comes from 20,000 noisy executions of the plan,
    each of which continues from its own last state (Algorithm 2, with every action executed as one unit).

    Parameters
    ----------
    plane, plans
        The plane; and from the title of a panel to the start of a plan, (2,), and its actions, (k, 2).
    unit_variance, action_unit
        Variance of the noise of one unit of action, and the size of a unit.
    n_samples, seed
        Points that are drawn around each action.

    Examples
    --------
    >>> from rose_carla import plots
    >>> plans = {"one": (np.array([0.8, 0.2]), np.array([[-0.4, 0.5]]))}
    >>> figure = plots.noisy_paths(plots.patches(), plans, 0.001, 0.05)
    >>> figure.axes[0].get_title()
    'one'
    """
    size = (COLUMN, 2.05) if len(plans) <= 2 else (PAGE, 2.55)
    figure, axes = plane_panels(plane, list(plans), *size, points=200)
    for ax, plan in zip(axes, plans.values(), strict=True):
        factual, actions = (np.asarray(part, dtype=float) for part in plan)
        variances = unit_variance * np.abs(actions).sum(axis=1) / action_unit
        rng = np.random.default_rng(seed)
        draw_start(ax, factual)
        means = [factual]
        for action, variance in zip(actions, variances, strict=True):
            samples = plane.noise.sample((means[-1] + action)[None], variance, n_samples, rng)[0]
            draw_samples(ax, samples, ORANGE, alpha=0.55)
            means.append(samples.mean(axis=0))
        draw_path(ax, [factual, *(factual + actions.cumsum(axis=0))], BLUE, "as intended")
        draw_path(ax, means, RED, "with noise")
        particles = np.repeat(factual[None], _RATE_SAMPLES, axis=0)
        for action, variance in zip(actions, variances, strict=True):
            particles = plane.noise.sample(particles + action, variance, 1, rng)[:, 0]
        ax.text(0.04, 0.04, _rate_text(plane, particles), transform=ax.transAxes, color="black")
    legend_beside(figure, axes, "outside lower center", ncols=2)
    return figure
