"""How training went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rose_carla.errors import PlanError
from rose_carla.plots.style import BLUE, COLUMN, PAGE, RED, legend_beside, new_axes, one_axes, small_ticks, styled
from rose_carla.ppo import Update

_VALIDITY, _COST = BLUE, RED


@styled
def learning_curve(log: Sequence[Update], ax: Any = None) -> Any:
    """Validity and cost of the policy over training, as matplotlib ``Axes``.

    Lines are the policy without exploration on the rows that training is judged by, dots the episodes of training.

    Parameters
    ----------
    log
        ``method.log_`` of a trained method, or the log of :func:`rose_carla.ppo.train`.
    ax
        Draw there; otherwise a new figure is made.

    Examples
    --------
    >>> from rose_carla import RoseOne, datasets, models, plots
    >>> method = RoseOne(models.train(datasets.load("compas"), "linear"))
    >>> plots.learning_curve(method.log_).get_xlabel()
    'environment steps (thousands)'
    """
    if not log:
        raise PlanError("The log is empty: train a policy first.")
    _draw(one := one_axes(ax, COLUMN, 2.2), log)
    one.legend(frameon=False, loc="lower right")
    return one


@styled
def learning_curves(logs: Mapping[str, Sequence[Update]], n_columns: int = 2) -> Any:
    """:func:`learning_curve` of several methods, a panel for each, as a matplotlib ``Figure``.

    Parameters
    ----------
    logs
        From the title of a panel to ``method.log_``.
    n_columns
        Panels side by side.
    """
    if not logs or not all(logs.values()):
        raise PlanError("A log is empty: train a policy first.")
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
    steps = np.array([update.steps for update in log]) / 1000
    ax.plot(steps, [update.validity for update in log], ".", color=_VALIDITY, markersize=3, alpha=0.5)
    # not every update is judged without exploration: the line joins those that are
    judged = np.array([not np.isnan(update.greedy_validity) for update in log])
    ax.plot(steps[judged], np.array([update.greedy_validity for update in log])[judged], "-", color=_VALIDITY)
    ax.set_xlabel("environment steps (thousands)")
    ax.set_ylabel("validity", color=_VALIDITY)
    ax.set_ylim(0, 1.05)
    costs = ax.twinx()
    costs.plot(steps, [update.cost for update in log], ".", color=_COST, markersize=3, alpha=0.5)
    costs.plot(steps[judged], np.array([update.greedy_cost for update in log])[judged], "--", color=_COST)
    costs.set_ylabel("cost (units of action)", color=_COST)
    finite = [each.greedy_cost for each in log if np.isfinite(each.greedy_cost)]
    costs.set_ylim(0, 3 * np.median(finite) if finite else None)
    ax.plot([], [], "-", color="0.4", label="without exploration")
    ax.plot([], [], ".", color="0.4", markersize=3, alpha=0.5, label="in training")
    small_ticks(costs)
    costs.spines["right"].set_visible(True)
