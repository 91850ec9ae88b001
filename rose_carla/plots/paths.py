"""Paths of recourse in a plane: as intended, and as they go when every action is implemented with noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rose_carla.plots.noise import TRIES, rate_of, write_rate
from rose_carla.plots.plane import Plane, draw_path, draw_plane, draw_start
from rose_carla.plots.style import BLUE, COLUMN, ORANGE, PAGE, RED, legend_beside, new_axes, styled


@styled
def noisy_paths(
    plane: Plane,
    plans: Mapping[str, tuple[np.ndarray, np.ndarray]],
    unit_variance: float,
    action_unit: float,
    n_samples: int = 100,
    seed: int = 0,
) -> Any:
    """The intended path of each plan and its noise-aware path, a panel for each, as a matplotlib ``Figure``.

    Around the end of each action ``n_samples`` points of its plausible noise are drawn; their mean is where the next
    action starts, which makes the noise-aware path. The invalidation rate at the end comes from 20,000 tries, each of
    which goes on from wherever its own last step ended (Algorithm 2, with every action implemented as a whole).

    Parameters
    ----------
    plane
        Where.
    plans
        From the title of a panel to where the plan starts, (2,), and its actions, (k, 2).
    unit_variance, action_unit
        Noise of one unit of action, and its size.
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
    narrow = len(plans) <= 2
    figure, axes = new_axes(COLUMN if narrow else PAGE, 2.05 if narrow else 2.55, 1, len(plans), sharey=True)
    for ax, (title, plan) in zip(axes[0], plans.items(), strict=True):
        factual, actions = (np.asarray(part, dtype=float) for part in plan)
        variances = unit_variance * np.abs(actions).sum(axis=1) / action_unit
        draw_plane(ax, plane, points=200)
        draw_start(ax, factual)
        rng = np.random.default_rng(seed)
        state, states = factual, [factual]
        for action, variance in zip(actions, variances, strict=True):
            samples = plane.noise.sample((state + action)[None], variance, n_samples, rng)[0]
            ax.plot(*samples.T, ".", color=ORANGE, markersize=1.6, alpha=0.55, zorder=2)
            state = samples.mean(axis=0)
            states.append(state)
        draw_path(ax, np.vstack([factual, factual + actions.cumsum(axis=0)]), BLUE, "as intended")
        draw_path(ax, np.array(states), RED, "with noise")
        particles = np.repeat(factual[None], TRIES, axis=0)
        for action, variance in zip(actions, variances, strict=True):
            particles = plane.noise.sample(particles + action, variance, 1, rng)[:, 0]
        write_rate(ax, rate_of(plane, particles))
        ax.set_title(title)
        if ax is not axes[0, 0]:
            ax.set_ylabel("")
    legend_beside(figure, axes[0], "outside lower center", ncols=2)
    return figure
