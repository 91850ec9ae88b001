"""How training went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rose_carla.compat import import_optional
from rose_carla.errors import PlanError
from rose_carla.policy import Update

#: Colours that also people who are colour-blind tell apart.
_VALIDITY, _COST = "#0072B2", "#D55E00"


def learning_curve(log: Sequence[Update], ax: Any = None) -> Any:
    """Validity and cost of the policy over training, as matplotlib ``Axes``.

    Lines are the policy without exploration on the rows that training is judged by, dots the episodes of training.

    Parameters
    ----------
    log
        ``method.log_`` of a trained method, or the log of :func:`rose_carla.policy.train`.
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
    plt = import_optional("matplotlib.pyplot")
    if ax is None:
        _, ax = plt.subplots(figsize=(3.5, 2.4), layout="constrained")
    steps = np.array([update.steps for update in log]) / 1000
    ax.plot(steps, [update.validity for update in log], ".", color=_VALIDITY, markersize=3, alpha=0.5)
    ax.plot(steps, [update.greedy_validity for update in log], "-", color=_VALIDITY)
    ax.set_xlabel("environment steps (thousands)")
    ax.set_ylabel("validity", color=_VALIDITY)
    ax.set_ylim(0, 1.05)
    costs = ax.twinx()
    costs.plot(steps, [update.cost for update in log], ".", color=_COST, markersize=3, alpha=0.5)
    costs.plot(steps, [update.greedy_cost for update in log], "--", color=_COST)
    costs.set_ylabel("cost (units of action)", color=_COST)
    finite = [each.greedy_cost for each in log if np.isfinite(each.greedy_cost)]
    costs.set_ylim(0, 3 * np.median(finite) if finite else None)
    ax.plot([], [], "-", color="0.4", label="without exploration")
    ax.plot([], [], ".", color="0.4", markersize=3, alpha=0.5, label="in training")
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    for side in (ax, costs):
        side.spines["top"].set_visible(False)
    return ax
