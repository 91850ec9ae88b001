"""Robustness against cost."""

from __future__ import annotations

from typing import Any

import pandas as pd
from rose_carla.compat import import_optional
from rose_carla.errors import ExperimentError

#: Colours that also people who are colour-blind tell apart (Okabe and Ito), and a marker for each.
_STYLES = {
    "Wachter": ("#999999", "v"),
    "GrSp": ("#999999", "s"),
    "DiCE": ("#999999", "D"),
    "FastAR": ("#E69F00", "^"),
    "ROAR": ("#999999", "P"),
    "ARAR": ("#999999", "X"),
    "CoGS": ("#F0E442", "o"),
    "PROBE": ("#CC79A7", "s"),
    "CROCO": ("#009E73", "D"),
    "ROSE-one": ("#0072B2", "o"),
    "ROSE-mul": ("#D55E00", "o"),
}
_LABELS = {"Plausible_AIR": "Plausible AIR", "Acc_AIR": "Acc AIR", "Gaussian_AIR": "Gaussian AIR"}


def frontier(people: pd.DataFrame, metric: str = "Acc_AIR", titles: dict[str, str] | None = None) -> Any:
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
    if metric not in _LABELS or metric not in people:
        raise ExperimentError(f"There is no invalidation rate {metric!r} to draw: choose one of {', '.join(_LABELS)}.")
    plt, ticker = import_optional("matplotlib.pyplot"), import_optional("matplotlib.ticker")
    datasets = list(people["Dataset"].unique())
    figure, axes = plt.subplots(
        1, len(datasets), figsize=(3.2 * len(datasets) + 1.2, 3.1), layout="constrained", squeeze=False, sharey=True
    )
    for ax, dataset in zip(axes[0], datasets, strict=True):
        part = people[people["Dataset"] == dataset].dropna(subset=[metric, "Proximity"])
        means = part.groupby(["Method", "Condition"], sort=False)[["Proximity", metric]].mean()
        for method, points in means.groupby(level=0, sort=False):
            colour, marker = _STYLES.get(str(method), ("#000000", "*"))
            ours = str(method).startswith("ROSE")
            ax.plot(
                points["Proximity"],
                points[metric],
                marker=marker,
                color=colour,
                markeredgecolor="black",
                markeredgewidth=0.5,
                markersize=7 if ours else 5,
                linewidth=1.5 if ours else 1.0,
                label=method,
                zorder=3 if ours else 2,
            )
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:g}"))
        ax.xaxis.set_minor_formatter(ticker.NullFormatter())
        ax.set_title((titles or {}).get(dataset, dataset), fontsize="medium")
        ax.set_xlabel("L1 distance")
        ax.grid(True, alpha=0.3, linewidth=0.5)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    axes[0][0].set_ylim(bottom=-0.02)  # of all panels, and only now that everything is drawn
    axes[0][0].set_ylabel(_LABELS[metric])
    handles: dict[str, Any] = {}
    for ax in axes[0]:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside right center", frameon=False, fontsize="small")
    return figure
