"""How far methods send people, beside the largest distance in the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rose_carla.errors import ExperimentError
from rose_carla.plots.columns import check_columns
from rose_carla.plots.style import (
    COLUMN,
    GREEN,
    GREY,
    RED,
    SMALL,
    dataset_title,
    literally,
    method_style,
    new_axes,
    styled,
)

#: Fillings of bars, so that they differ without colours too.
_HATCHES = {"NN": "", "LR": "////"}
_BAR = 0.8


@styled
def proximity(people: pd.DataFrame, largest: Mapping[str, float], titles: Mapping[str, str] | None = None) -> Any:
    """Mean L1 distance as a share of the largest distance between two rows of the data, as a matplotlib ``Figure``.

    The dotted line is the largest distance; above each bar is the distance itself.

    Parameters
    ----------
    people
        Columns ``Dataset``, ``Method``, ``Classifier`` (``"ann"`` or ``"linear"``) and ``Proximity``.
    largest
        For each data set the largest L1 distance between two of its rows.
    titles
        Names of the data sets for people.

    Raises
    ------
    ExperimentError
        If nobody has recourse.
    """
    check_columns(people, "Classifier", "Proximity")
    means = people.groupby(["Dataset", "Method", "Classifier"], sort=False)["Proximity"].mean().dropna()
    if means.empty:
        raise ExperimentError("No method found recourse for anybody: there are no distances to draw.")
    groups = list(dict.fromkeys((method, classifier) for _, method, classifier in means.index))
    datasets = list(people["Dataset"].unique())
    figure, axes = new_axes(COLUMN, 2.3)
    ax = axes[0, 0]
    width = _BAR / len(groups)
    for number, (method, classifier) in enumerate(groups):
        kind = {"ann": "NN", "linear": "LR"}[classifier]
        label: str | None = f"{literally(method)} ({kind})"
        for place, dataset in enumerate(datasets):
            distance = means.get((dataset, method, classifier))
            if distance is None:
                continue
            ratio, across = distance / largest[dataset], place + (number - (len(groups) - 1) / 2) * width
            ax.bar(
                across,
                ratio,
                0.92 * width,
                color=_colour(method),
                edgecolor="black",
                linewidth=0.4,
                hatch=_HATCHES[kind],
                label=label,
            )
            label = None  # once in the legend
            ax.annotate(
                f"{distance:.2g}" if distance < 10 else f"{distance:.0f}",
                (across, ratio),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                rotation=90,
                fontsize=SMALL,
            )
    ax.axhline(1, color=RED, linestyle="dotted", linewidth=1)
    ax.set_xticks(range(len(datasets)), [dataset_title(dataset, titles) for dataset in datasets])
    ax.tick_params(axis="x", length=0)
    ax.set_ylabel("L1 distance / largest in the data")
    ax.margins(y=0.15)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


def _colour(method: str) -> str:
    return {"ROAR": GREY, "ARAR": GREEN}.get(method, method_style(method)[0])
