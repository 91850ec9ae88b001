"""Mean ranks of methods, and the critical difference diagram."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from rose_carla.errors import ExperimentError
from rose_carla.plots import style
from scipy.stats import friedmanchisquare, rankdata, studentized_range


def rank_methods(results: pd.DataFrame, metric: str, lower_is_better: bool = True) -> pd.DataFrame:
    """Rank the methods for each person, 1 is the best, ties share a rank: a row for each person.

    Methods without recourse for a person share the last rank.

    Parameters
    ----------
    results
        Columns ``Dataset``, ``Seed``, ``Person``, ``Method`` and ``metric``; each method once per person.
    metric
        Column that is compared.

    Raises
    ------
    ExperimentError
        If the column is missing, or a method occurs more than once for a person.

    Examples
    --------
    >>> rows = [["german", 0, 1, "A", 0.1], ["german", 0, 1, "B", float("nan")], ["german", 0, 1, "C", 0.1]]
    >>> results = pd.DataFrame(rows, columns=["Dataset", "Seed", "Person", "Method", "Acc_AIR"])
    >>> rank_methods(results, "Acc_AIR").iloc[0].to_dict()
    {'A': 1.5, 'B': 3.0, 'C': 1.5}
    """
    style.check_columns(results, metric)
    person = ["Dataset", "Seed", "Person"]
    twice = results.loc[results.duplicated([*person, "Method"]), "Method"]
    if len(twice):
        raise ExperimentError(f"{twice.iloc[0]!r} occurs more than once for a person: choose one of its conditions.")
    wide = results.pivot(index=person, columns="Method", values=metric)
    names = list(results["Dataset"].unique())
    wide = wide[list(results["Method"].unique())].sort_index(
        level="Dataset", key=lambda labels: labels.map(names.index), sort_remaining=False
    )
    values = wide.to_numpy(dtype=float)
    worst_last = np.where(np.isfinite(values), values if lower_is_better else -values, np.inf)
    return pd.DataFrame(rankdata(worst_last, axis=1), index=wide.index, columns=list(wide.columns))


def critical_difference(n_methods: int, n_people: int, level: float = 0.05) -> float:
    """Return the difference of two mean ranks that is significant by Nemenyi's test.

    .. math:: CD = q_\\alpha \\sqrt{k (k + 1) / (6 N)}

    with :math:`q_\\alpha` of the studentised range over :math:`\\sqrt 2`, k methods and N people.

    Examples
    --------
    >>> round(critical_difference(4, 14), 2)  # 2.569 * sqrt(4 * 5 / (6 * 14))
    1.25
    """
    quantile = float(studentized_range.ppf(1 - level, n_methods, np.inf)) / math.sqrt(2)
    return quantile * math.sqrt(n_methods * (n_methods + 1) / (6 * n_people))


@style.styled
def critical_difference_diagram(
    results: pd.DataFrame,
    metric: str,
    label: str,
    level: float = 0.05,
    titles: Mapping[str, str] | None = None,
    ax: Any = None,
) -> Any:
    """Draw mean ranks over all people of all data sets, the best at the top, and return the matplotlib ``Axes``.

    Bars have the length of the critical difference: methods whose bars overlap do not differ significantly by Nemenyi's
    test. Open markers are the mean ranks on each data set.

    Parameters
    ----------
    results
        As in :func:`rank_methods`.
    metric, label
        Column that is compared, and its name in the figure.
    level
        Significance level.
    titles
        Titles of the data sets.
    ax
        Axes to draw on; by default those of a new figure of the right height.

    Raises
    ------
    ExperimentError
        If there are fewer than three methods or two people.
    """
    ranks = rank_methods(results, metric)
    n, k = ranks.shape
    if k < 3 or n < 2:
        raise ExperimentError(f"Comparing ranks needs at least three methods and two people, got {k} and {n}.")
    means = ranks.mean().sort_values(kind="stable")
    difference = critical_difference(k, n, level)
    all_tied = bool((ranks.to_numpy() == (k + 1) / 2).all())  # Friedman's test is undefined
    p = 1.0 if all_tied else friedmanchisquare(*ranks.to_numpy().T).pvalue
    each = ranks.groupby(level="Dataset", sort=False).mean()
    ax = style.axes_or_new(ax, style.COLUMN, (0.9 if len(each) > 1 else 0.75) + 0.16 * k)
    for row, (method, mean) in enumerate(means.items()):
        colour = style.method_style(str(method))[0]
        ax.plot([mean - difference / 2, mean + difference / 2], [row, row], color=colour, linewidth=4, alpha=0.35)
        ax.plot(mean, row, "o", color=colour, markersize=4.5, zorder=3)
        for dataset in each.index if len(each) > 1 else ():
            shade, marker = style.dataset_style(str(dataset))
            name = style.dataset_title(str(dataset), titles) if row == 0 else None
            look = {"markerfacecolor": "none", "markeredgewidth": 0.8, "markersize": 4, "linestyle": "none"}
            ax.plot(each.loc[dataset, method], row, marker, color=shade, label=name, zorder=2, **look)
    ax.set_yticks(range(k), [f"{style.escape_math(str(method))}  {mean:.2f}" for method, mean in means.items()])
    for text, method in zip(ax.get_yticklabels(), means.index, strict=True):
        text.set_fontweight("bold" if str(method).startswith("ROSE") else "normal")
    ax.set_ylim(k - 0.4, -0.6)
    ax.set_xlim(0.8, k + 0.2)
    ax.set_xticks(range(1, k + 1))
    verdict = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    ax.set_xlabel(f"mean rank by {label}\n({n} people, Friedman test {verdict})")
    style.draw_grid(ax, "x")
    ax.tick_params(axis="y", length=0)
    if len(each) > 1:
        above = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": len(each), "frameon": False}
        ax.legend(**above, handletextpad=0.2, columnspacing=1.0, borderpad=0)
    return ax
