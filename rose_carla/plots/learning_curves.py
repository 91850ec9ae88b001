"""Learning curves of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rose_carla.errors import PlanError
from rose_carla.plots.style import (
    BLUE,
    COLUMN,
    PAGE,
    RED,
    axes_or_new,
    legend_beside,
    new_axes,
    set_small_ticks,
    styled,
)

if TYPE_CHECKING:
    from rose_carla.ppo import Update


@styled
def learning_curve(log: Sequence[Update], ax: Any = None) -> Any:
    """Draw validity and cost of the policy over training, and return the matplotlib ``Axes``.

    Lines are the policy without exploration on the validation rows, dots the episodes of training.

    Parameters
    ----------
    log
        ``method.log_`` of a trained method, or the log of :func:`rose_carla.ppo.train`.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> from rose_carla import RoseOne, datasets, models, plots
    >>> method = RoseOne(models.train(datasets.load("compas"), "linear"))
    >>> plots.learning_curve(method.log_).get_xlabel()
    'environment steps (thousands)'
    """
    ax = axes_or_new(ax, COLUMN, 2.2)
    _draw(ax, log)
    ax.legend(frameon=False, loc="lower right")
    return ax


@styled
def learning_curves(logs: Mapping[str, Sequence[Update]], n_columns: int = 2) -> Any:
    """Draw a :func:`learning_curve` for each method in a panel of its own, and return the matplotlib ``Figure``.

    Parameters
    ----------
    logs
        From the title of a panel to ``method.log_``.
    n_columns
        Number of panels side by side.
    """
    if not logs:
        raise PlanError("There are no logs to draw: train a policy first.")
    n_rows = -(-len(logs) // n_columns)
    figure, axes = new_axes(COLUMN if n_columns == 1 else PAGE, 1.7 * n_rows + 0.3, n_rows, n_columns)
    for ax, (title, log) in zip(axes.ravel(), logs.items(), strict=False):
        _draw(ax, log)
        ax.set_title(title)
    for ax in axes.ravel()[len(logs) :]:
        ax.remove()
    legend_beside(figure, axes.ravel()[:1], "outside lower center", ncols=2)
    return figure


def _draw(ax: Any, log: Sequence[Update]) -> None:
    if not log:
        raise PlanError("A log is empty: train a policy first.")
    # only some updates are evaluated without exploration: the lines join those
    evaluated = [update for update in log if not np.isnan(update.greedy_validity)]
    costs = ax.twinx()
    for axis, name, label, colour, line in (
        (ax, "validity", "validity", BLUE, "-"),
        (costs, "cost", "cost (units of action)", RED, "--"),
    ):
        steps, values = [update.steps / 1000 for update in log], [getattr(update, name) for update in log]
        axis.plot(steps, values, ".", color=colour, markersize=3, alpha=0.5)
        steps = [update.steps / 1000 for update in evaluated]
        axis.plot(steps, [getattr(update, f"greedy_{name}") for update in evaluated], line, color=colour)
        axis.set_ylabel(label, color=colour)
    ax.set_xlabel("environment steps (thousands)")
    ax.set_ylim(0, 1.05)
    finite = [update.greedy_cost for update in log if np.isfinite(update.greedy_cost)]
    costs.set_ylim(0, 3 * np.median(finite) if finite else None)
    ax.plot([], [], "-", color="0.4", label="without exploration")
    ax.plot([], [], ".", color="0.4", markersize=3, alpha=0.5, label="in training")
    set_small_ticks(costs)
    costs.spines["right"].set_visible(True)
