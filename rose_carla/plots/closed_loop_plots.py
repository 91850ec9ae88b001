"""Success against cost of people who follow fixed recourse, and of those who come back and ask again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rose_carla.plots import style

#: Mean cost and invalidation rate of fixed recourse, and of people who come back.
_FIXED, _BACK = ("Proximity", "Acc_AIR"), ("Closed_Loop_Cost", "Closed_Loop_AIR")


@style.styled
def closed_loop(results: pd.DataFrame, titles: Mapping[str, str] | None = None) -> Any:
    """Draw success against cost with and without coming back, a panel for each data set, as a ``Figure``.

    A line joins two points of each method: fixed recourse (open), 1 - Acc AIR at the mean L1 distance, and people who
    look where they landed and ask again (filled), 1 - closed-loop AIR at the mean cost of their successful tries.
    Higher and further left is better.

    Parameters
    ----------
    results
        Columns ``Dataset``, ``Method``, ``Proximity``, ``Acc_AIR``, ``Closed_Loop_AIR`` and ``Closed_Loop_Cost``.
    titles
        Titles of the data sets.

    Examples
    --------
    >>> import pandas as pd
    >>> columns = ["Dataset", "Method", "Proximity", "Acc_AIR", "Closed_Loop_Cost", "Closed_Loop_AIR"]
    >>> figure = closed_loop(pd.DataFrame([["german", "ROSE-mul", 0.6, 0.2, 0.5, 0.01]], columns=columns))
    >>> figure.axes[0].get_ylabel()
    'success'
    """
    style.check_columns(results, *_FIXED, *_BACK)
    n_datasets = results["Dataset"].nunique()
    figure, axes = style.new_axes(style.PAGE, 2.6, 1, n_datasets, sharey=True)
    axes[0, 0].set_ylabel("success")
    for ax, (dataset, part) in zip(axes[0], results.groupby("Dataset", sort=False), strict=True):
        for method, rows in part.groupby("Method", sort=False):
            _draw_method(ax, str(method), [_mean_point(rows, *columns) for columns in (_FIXED, _BACK)])
        ax.set_title(style.dataset_title(str(dataset), titles))
        ax.set_xlabel("cost (L1)")
        style.set_log_scale(ax)
        style.draw_grid(ax)
    axes[0, 0].set_ylim(top=1.02)
    for label, face in (("as planned", "white"), ("coming back", style.GREY)):
        look = {"color": style.GREY, "markerfacecolor": face, "markeredgecolor": "black", "markeredgewidth": 0.6}
        axes[0, 0].plot([], [], marker="o", markersize=5, linestyle="none", label=label, **look)
    style.legend_beside(figure, axes[0])
    return figure


def _mean_point(rows: pd.DataFrame, cost: str, rate: str) -> tuple[float, float]:
    """Return mean cost and mean success of people with recourse; cost is that of people who have one."""
    return float(rows[cost].mean()), 1.0 - float(rows[rate].mean())


def _draw_method(ax: Any, method: str, points: list[tuple[float, float]]) -> None:
    """Draw the two points of a method and the line between them."""
    colour, marker = style.method_style(method)
    ours = method.startswith("ROSE")
    x, y = zip(*points, strict=True)
    above = 3 if ours else 2
    ax.plot(x, y, color=colour, linewidth=1.4 if ours else 0.9, zorder=above)
    look = {"marker": marker, "markersize": 5.5 if ours else 4.5, "linestyle": "none", "zorder": above + 0.5}
    ax.plot(x[:1], y[:1], markerfacecolor="white", markeredgecolor=colour, markeredgewidth=1.0, **look)
    ax.plot(
        x[1:],
        y[1:],
        markerfacecolor=colour,
        markeredgecolor="black",
        markeredgewidth=0.4,
        label=style.escape_math(method),
        **look,
    )
