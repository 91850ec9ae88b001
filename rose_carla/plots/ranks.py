"""Methods by their mean rank, with the difference that chance alone may make."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from rose_carla.errors import ExperimentError
from rose_carla.plots.columns import check_columns
from rose_carla.plots.style import COLUMN, dataset_style, dataset_title, literally, method_style, one_axes, styled
from scipy.stats import friedmanchisquare, rankdata, studentized_range


def mean_ranks(people: pd.DataFrame, metric: str, lower_is_better: bool = True) -> pd.DataFrame:
    """Rank of each method among the others for the same person, 1 the best, ties shared: a row for each person.

    Nobody is left out: a method that finds nothing for somebody comes last there, and several such share that rank.

    Parameters
    ----------
    people
        Columns ``Dataset``, ``Seed``, ``Person``, ``Method`` and ``metric``; each method once to a person.
    metric
        What is compared.

    Raises
    ------
    ExperimentError
        If there is no such column, or a method is there twice.

    Examples
    --------
    >>> rows = [["german", 0, 1, "A", 0.1], ["german", 0, 1, "B", float("nan")], ["german", 0, 1, "C", 0.1]]
    >>> people = pd.DataFrame(rows, columns=["Dataset", "Seed", "Person", "Method", "Acc_AIR"])
    >>> mean_ranks(people, "Acc_AIR").iloc[0].to_dict()
    {'A': 1.5, 'B': 3.0, 'C': 1.5}
    """
    check_columns(people, metric)
    person = ["Dataset", "Seed", "Person"]
    twice = people.loc[people.duplicated([*person, "Method"]), "Method"]
    if len(twice):
        raise ExperimentError(f"{twice.iloc[0]!r} is there more than once for a person: choose one of its conditions.")
    wide = people.pivot(index=person, columns="Method", values=metric)
    names = list(people["Dataset"].unique())
    wide = wide[list(people["Method"].unique())].sort_index(
        level="Dataset", key=lambda labels: labels.map(names.index), sort_remaining=False
    )
    values = wide.to_numpy(dtype=float)
    worst_last = np.where(np.isfinite(values), values if lower_is_better else -values, np.inf)
    return pd.DataFrame(rankdata(worst_last, axis=1), index=wide.index, columns=list(wide.columns))


def critical_difference(n_methods: int, n_people: int, level: float = 0.05) -> float:
    """Difference of two mean ranks beyond which Nemenyi's test tells methods apart.

    .. math:: CD = q_\\alpha \\sqrt{k (k + 1) / (6 N)}

    with :math:`q_\\alpha` of the studentised range over :math:`\\sqrt 2`, k methods and N people.

    Examples
    --------
    >>> round(critical_difference(4, 14), 2)  # 2.569 * sqrt(4 * 5 / (6 * 14))
    1.25
    """
    quantile = float(studentized_range.ppf(1 - level, n_methods, np.inf)) / math.sqrt(2)
    return quantile * math.sqrt(n_methods * (n_methods + 1) / (6 * n_people))


@styled
def critical_difference_diagram(
    people: pd.DataFrame,
    metric: str,
    label: str,
    level: float = 0.05,
    titles: Mapping[str, str] | None = None,
    ax: Any = None,
) -> Any:
    """Mean ranks of methods over all people of all data sets, the best at the top, as matplotlib ``Axes``.

    A bar is as long as the critical difference: methods whose bars overlap are not told apart by Nemenyi's test. The
    open marks are a method's mean ranks on each data set.

    Parameters
    ----------
    people
        As in :func:`mean_ranks`.
    metric, label
        What is compared, and how it is called.
    level
        Of the tests.
    titles
        Names of the data sets for people.
    ax
        Draw there; otherwise a figure of the right height is made.

    Raises
    ------
    ExperimentError
        If there are fewer than three methods or two people.
    """
    ranks = mean_ranks(people, metric)
    n, k = ranks.shape
    if k < 3 or n < 2:
        raise ExperimentError(f"Ranks are compared from three methods and two people on, here are {k} and {n}.")
    means = ranks.mean().sort_values(kind="stable")
    difference = critical_difference(k, n, level)
    alike = bool((ranks.to_numpy() == (k + 1) / 2).all())  # for everybody, which leaves Friedman's test nothing
    p = 1.0 if alike else friedmanchisquare(*ranks.to_numpy().T).pvalue
    each = ranks.groupby(level="Dataset", sort=False).mean()
    ax = one_axes(ax, COLUMN, (0.9 if len(each) > 1 else 0.75) + 0.16 * k)
    for row, (method, mean) in enumerate(means.items()):
        colour = method_style(str(method))[0]
        ax.plot([mean - difference / 2, mean + difference / 2], [row, row], color=colour, linewidth=4, alpha=0.35)
        ax.plot(mean, row, "o", color=colour, markersize=4.5, zorder=3)
        for dataset in each.index if len(each) > 1 else ():
            shade, marker = dataset_style(str(dataset))
            name = dataset_title(str(dataset), titles) if row == 0 else None
            look = {"markerfacecolor": "none", "markeredgewidth": 0.8, "markersize": 4, "linestyle": "none"}
            ax.plot(each.loc[dataset, method], row, marker, color=shade, label=name, zorder=2, **look)
    ax.set_yticks(range(k), [f"{literally(str(method))}  {mean:.2f}" for method, mean in means.items()])
    for text, method in zip(ax.get_yticklabels(), means.index, strict=True):
        text.set_fontweight("bold" if str(method).startswith("ROSE") else "normal")
    ax.set_ylim(k - 0.4, -0.6)
    ax.set_xlim(0.8, k + 0.2)
    ax.set_xticks(range(1, k + 1))
    verdict = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    ax.set_xlabel(f"mean rank by {label}\n({n} people, Friedman test {verdict})")
    ax.grid(True, axis="x", alpha=0.3, linewidth=0.5)
    ax.tick_params(axis="y", length=0)
    if len(each) > 1:
        above = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": len(each), "frameon": False}
        ax.legend(**above, handletextpad=0.2, columnspacing=1.0, borderpad=0)
    return ax
