"""Robustness against cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rose_carla.carla_compat import import_optional
from rose_carla.errors import ExperimentError, unknown_name
from rose_carla.plots.style import PAGE, dataset_title, legend_beside, literally, method_style, new_axes, styled

#: Invalidation rates and their names in the paper.
RATES = {"Plausible_AIR": "Plausible AIR", "Acc_AIR": "Acc AIR", "Gaussian_AIR": "Gaussian AIR"}


@styled
def frontier(people: pd.DataFrame, metric: str = "Acc_AIR", titles: Mapping[str, str] | None = None) -> Any:
    """Mean invalidation rate against mean L1 distance, a panel for each data set, as a matplotlib ``Figure``.

    The settings of one method are joined by a line: its trade-off. Lower and further left is better.

    Parameters
    ----------
    people
        Columns ``Dataset``, ``Method``, ``Condition``, ``Proximity`` and ``metric``.
    metric
        One of the three invalidation rates.
    titles
        Names of the data sets for people.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [["german", "ROSE-one", f"tau={tau}", 1 - tau, tau] for tau in (0.6, 0.7)]
    >>> people = pd.DataFrame(rows, columns=["Dataset", "Method", "Condition", "Acc_AIR", "Proximity"])
    >>> frontier(people).axes[0].get_xlabel()
    'L1 distance'
    """
    check_rate(people, metric)
    datasets = list(people["Dataset"].unique())
    figure, axes = new_axes(PAGE, 2.4, 1, len(datasets), sharey=True)
    for ax, dataset in zip(axes[0], datasets, strict=True):
        part = people[people["Dataset"] == dataset].dropna(subset=[metric, "Proximity"])
        means = part.groupby(["Method", "Condition"], sort=False)[["Proximity", metric]].mean()
        for method, points in means.groupby(level=0, sort=False):
            colour, marker = method_style(str(method))
            ours = str(method).startswith("ROSE")
            ax.plot(
                points["Proximity"],
                points[metric],
                marker=marker,
                color=colour,
                markeredgecolor="black",
                markeredgewidth=0.4,
                markersize=5 if ours else 4,
                linewidth=1.4 if ours else 0.9,
                label=literally(str(method)),
                zorder=3 if ours else 2,
            )
        log_scale(ax)
        ax.set_title(dataset_title(dataset, titles))
        ax.set_xlabel("L1 distance")
        ax.grid(True, alpha=0.3, linewidth=0.5)
    axes[0][0].set_ylim(bottom=-0.02)  # of all panels, and only now that everything is drawn
    axes[0][0].set_ylabel(RATES[metric])
    legend_beside(figure, axes[0])
    return figure


def check_rate(people: pd.DataFrame, metric: str) -> None:
    """Refuse what is no invalidation rate, or not in the table.

    Raises
    ------
    ExperimentError
        With what can be drawn instead.
    """
    if metric not in RATES:
        raise ExperimentError(unknown_name("invalidation rate", metric, RATES))
    if metric not in people:
        raise ExperimentError(f"The table of people has no column {metric!r}: judge them under that noise first.")


def log_scale(ax: Any) -> None:
    """A logarithmic axis of distances with numbers as people write them."""
    ticker = import_optional("matplotlib.ticker")
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(ticker.NullFormatter())
