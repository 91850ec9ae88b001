"""Kinds of noise around recourse, in a plane of two features."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from rose_carla.carla_compat import import_optional
from rose_carla.noise import GaussianNoise, Noise, execute
from rose_carla.plots.plane import Plane, draw_arrow, draw_noise, draw_path, draw_plane, draw_start
from rose_carla.plots.style import BLUE, COLUMN, GREEN, ORANGE, PAGE, PURPLE, RED, new_axes, styled

#: Tries behind an invalidation rate that is written into a figure.
TRIES = 20_000


@styled
def noise_around(plane: Plane, point: np.ndarray, variance: float = 0.01, n_samples: int = 300, seed: int = 0) -> Any:
    """Gaussian and plausible noise of the same variance around a point, as a matplotlib ``Figure`` (Definition 1).

    Parameters
    ----------
    plane
        Where.
    point
        (2,) the intended state, marked by a cross.
    variance
        Of the noise, the paper's sigma^2.
    n_samples, seed
        Noisy versions that are drawn.

    Examples
    --------
    >>> from rose_carla import plots
    >>> figure = plots.noise_around(plots.savings(), np.array([0.62, 0.68]), n_samples=10)
    >>> [ax.get_title() for ax in figure.axes]
    ['Gaussian noise', 'plausible noise']
    """
    point = np.asarray(point, dtype=float)
    figure, axes = new_axes(COLUMN, 1.85, 1, 2, sharey=True)
    kinds: list[tuple[str, Noise]] = [("Gaussian noise", GaussianNoise()), ("plausible noise", plane.noise)]
    for ax, (title, noise) in zip(axes[0], kinds, strict=True):
        draw_plane(ax, plane, points=200)
        samples = noise.sample(point[None], variance, n_samples, np.random.default_rng(seed))[0]
        ax.plot(*samples.T, ".", color=ORANGE, markersize=2, alpha=0.7, zorder=2)
        draw_noise(ax, plane, point, variance, plausible=title == "plausible noise")
        ax.plot(*point, "x", color=RED, markersize=6, markeredgewidth=1.6, zorder=5)
        ax.set_title(title)
    axes[0, 1].set_ylabel("")
    return figure


@styled
def lengths(
    plane: Plane,
    factuals: Sequence[np.ndarray],
    ends: Sequence[np.ndarray],
    variance: float = 0.01,
    unit_variance: float = 0.001,
    action_unit: float = 0.05,
    n_samples: int = 200,
    seed: int = 0,
) -> Any:
    """Short and long recourse under the same Gaussian noise, and under plausible noise that grows with its length.

    Parameters
    ----------
    plane
        Where.
    factuals, ends
        Where each recourse starts and is meant to end.
    variance
        Of the Gaussian noise, whatever the length.
    unit_variance, action_unit
        Of the noise of each unit of action, and its size.
    n_samples, seed
        Noisy tries that are drawn; the rates in the figure come from 20,000.

    Returns
    -------
    Figure
        Of matplotlib, with the invalidation rate (IR) below each start.
    """
    starts, meant = np.array(factuals, dtype=float), np.array(ends, dtype=float)
    rng = np.random.default_rng(seed)
    plans = [change[None] for change in meant - starts]
    reached = {
        "Gaussian, one size": GaussianNoise().sample(meant, variance, TRIES, rng),
        "plausible, each unit": execute(
            starts, plans, plane.noise, unit_variance, action_unit, TRIES, rng
        ),
    }  # fmt: skip
    figure, axes = new_axes(COLUMN, 1.85, 1, 2, sharey=True)
    for ax, (title, tries) in zip(axes[0], reached.items(), strict=True):
        draw_plane(ax, plane)
        for start, end, where, colour in zip(starts, meant, tries, itertools.cycle((ORANGE, PURPLE)), strict=False):
            draw_start(ax, start, "")
            draw_path(ax, np.array([start, end]), BLUE)
            ax.plot(*where[:n_samples].T, ".", color=colour, markersize=1.6, alpha=0.7, zorder=2)
            ax.plot(*end, "x", color=RED, markersize=5, markeredgewidth=1.4, zorder=5)
            write_rate(ax, rate_of(plane, where), start)
        ax.set_title(title)
    axes[0, 1].set_ylabel("")
    return figure


def rate_of(plane: Plane, reached: np.ndarray) -> float:
    """Share of noisy tries that end outside the desirable region."""
    return float((plane.favourable(reached) <= 0.5).mean())


def write_rate(ax: Any, rate: float, where: np.ndarray | None = None, colour: str = "black") -> None:
    """An invalidation rate below a state, or in the corner that the pictures leave free."""
    if where is None:
        ax.text(0.04, 0.04, f"IR {rate:.2f}", transform=ax.transAxes, color=colour)
        return
    at_the_edge = ax.transAxes.inverted().transform(ax.transData.transform(where))[0] > 0.8
    look = {"textcoords": "offset points", "va": "top", "color": colour, "ha": "right" if at_the_edge else "center"}
    ax.annotate(f"IR {rate:.2f}", where, xytext=(0, -4), **look)


@styled
def perturbations(
    plane: Plane,
    factual: np.ndarray,
    actions: np.ndarray,
    variance: float = 0.01,
    slope: float = 0.6,
    radius: float = 0.16,
    box: tuple[float, float] = (0.2, 0.1),
) -> Any:
    """Four ways to say how people miss what they aim at, around one and the same recourse, as a ``Figure``.

    Parameters
    ----------
    plane
        Where.
    factual, actions
        (2,) and (2, 2): today, and two actions; the first three panels show where both together lead.
    variance
        Of the Gaussian and the plausible noise of each step.
    slope, radius
        The causal set: disturbances up to ``radius`` of a linear causal model in which the first feature moves the
        second by ``slope``.
    box
        Half the sides of the box of manually chosen ranges.
    """
    patches = import_optional("matplotlib.patches")
    factual, actions = np.asarray(factual, dtype=float), np.asarray(actions, dtype=float)
    end = factual + actions.sum(axis=0)
    figure, axes = new_axes(PAGE, 2.15, 1, 4, sharey=True)
    gaussian, causal, boxed, plausible = axes[0]
    for ax in axes[0]:
        draw_plane(ax, plane, points=150)
        draw_start(ax, factual)
    for ax in (gaussian, causal, boxed):
        draw_path(ax, np.array([factual, end]), BLUE)
        ax.plot(*end, "x", color=RED, markersize=5, markeredgewidth=1.4, zorder=5)
    draw_noise(gaussian, plane, end, variance, plausible=False, colors=RED)
    angles = np.linspace(0, 2 * np.pi, 200)
    disturbances = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    spread = end + disturbances @ np.array([[1.0, slope], [0.0, 1.0]])
    causal.plot(*spread.T, color=RED, linewidth=1.1, zorder=3)
    corner = end - np.array(box)
    boxed.add_patch(patches.Rectangle(tuple(corner), 2 * box[0], 2 * box[1], fill=False, edgecolor=RED, linewidth=1.1))
    first = factual + actions[0]
    draw_noise(plausible, plane, first, variance, plausible=True, colors=RED)
    moved = plane.noise.mean(first[None], variance)[0]
    second = moved + actions[1]
    draw_noise(plausible, plane, second, variance, plausible=True, colors=RED)
    draw_path(plausible, np.array([factual, first]), BLUE)
    draw_path(plausible, np.array([moved, second]), BLUE)
    for state in (first, second):
        plausible.plot(*state, "x", color=RED, markersize=5, markeredgewidth=1.4, zorder=5)
    titles = ("normal distribution", "causal model", "chosen ranges", "plausible, each step")
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(title)
        if ax is not gaussian:
            ax.set_ylabel("")
    return figure


@styled
def accumulation(plane: Plane, factual: np.ndarray, actions: np.ndarray, variance: float = 0.02, seed: int = 0) -> Any:
    """How noise adds up over two actions, as a matplotlib ``Figure`` (Definition 2, Proposition 2).

    On the left white noise is added to each intended state and the path goes on as if nothing had happened; on the
    right every action starts where the last one really ended, which is what plausible noise has to know.

    Parameters
    ----------
    plane
        Where.
    factual, actions
        (2,) and (k, 2).
    variance
        Of the noise of each action.
    seed
        Of the one noisy try that is drawn.
    """
    factual, actions = np.asarray(factual, dtype=float), np.asarray(actions, dtype=float)
    rng = np.random.default_rng(seed)
    figure, axes = new_axes(COLUMN, 1.95, 1, 2, sharey=True)
    unaware, aware = axes[0]
    for ax in axes[0]:
        draw_plane(ax, plane)
        draw_start(ax, factual, "$s_0$")
    intended = np.vstack([factual, factual + actions.cumsum(axis=0)])
    draw_path(unaware, intended, GREEN)
    for number, state in enumerate(intended[1:], start=1):
        noisy = GaussianNoise().sample(state[None], variance, 1, rng)[0, 0]
        _missed(unaware, state, noisy, number)
    state = factual
    for number, action in enumerate(actions, start=1):
        draw_path(aware, np.array([state, state + action]), BLUE)
        noisy = plane.noise.sample((state + action)[None], variance, 1, rng)[0, 0]
        _missed(aware, state + action, noisy, number)
        state = noisy
    unaware.set_title("noise-unaware")
    aware.set_title("noise-aware")
    aware.set_ylabel("")
    return figure


def _missed(ax: Any, meant: np.ndarray, reached: np.ndarray, number: int) -> None:
    draw_arrow(ax, meant, reached, RED, 1.0)
    ax.plot(*reached, "o", color=RED, markersize=3, zorder=5)
    ax.annotate(f"$s_{number}'$", reached, xytext=(4, 3), textcoords="offset points", color=RED)
