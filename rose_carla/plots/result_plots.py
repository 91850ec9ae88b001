"""Results of methods: robustness against cost, effects of hyper-parameters, distances, and mean ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from rose_carla.carla_compat import import_optional
from rose_carla.errors import ExperimentError, unknown_name
from rose_carla.plots import style
from scipy.stats import friedmanchisquare, rankdata, studentized_range

#: Invalidation rates and their names in the paper.
RATES = {"Plausible_AIR": "Plausible AIR", "Acc_AIR": "Acc AIR", "Gaussian_AIR": "Gaussian AIR"}
#: Markers of increasing thresholds.
_MARKERS = "osD^vP"
#: Classifiers with their names in legends and hatches of their bars, which differ without colours too.
_CLASSIFIERS = {"ann": ("NN", ""), "linear": ("LR", "////")}


@style.styled
def frontier(results: pd.DataFrame, metric: str = "Acc_AIR", titles: Mapping[str, str] | None = None) -> Any:
    """Draw the mean invalidation rate against the mean L1 distance, a panel for each data set, as a ``Figure``.

    A line joins the conditions of one method: its trade-off. Lower and further left is better.

    Parameters
    ----------
    results
        Columns ``Dataset``, ``Method``, ``Condition``, ``Proximity`` and ``metric``.
    metric
        One of the three invalidation rates.
    titles
        Titles of the data sets.

    Raises
    ------
    ExperimentError
        If ``metric`` is not an invalidation rate, or not in ``results``.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [["german", "ROSE-one", f"tau={tau}", 1 - tau, tau] for tau in (0.6, 0.7)]
    >>> results = pd.DataFrame(rows, columns=["Dataset", "Method", "Condition", "Acc_AIR", "Proximity"])
    >>> frontier(results).axes[0].get_xlabel()
    'L1 distance'
    """
    if metric not in RATES:
        raise ExperimentError(unknown_name("invalidation rate", metric, RATES))
    style.check_columns(results, metric, "Proximity")
    figure, axes = style.new_axes(style.PAGE, 2.4, 1, results["Dataset"].nunique(), sharey=True)
    for ax, part in _trade_off_panels(axes[0], results, metric, titles):
        means = part.groupby(["Method", "Condition"], sort=False)[["Proximity", metric]].mean()
        for method, points in means.groupby(level=0, sort=False):
            colour, marker = style.method_style(str(method))
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
                label=style.escape_math(str(method)),
                zorder=3 if ours else 2,
            )
        style.set_log_scale(ax)
    axes[0, 0].set_ylim(bottom=-0.02)  # after drawing: it fixes the upper limit of all panels
    style.legend_beside(figure, axes[0])
    return figure


@style.styled
def thresholds(results: pd.DataFrame, titles: Mapping[str, str] | None = None) -> Any:
    """Draw Plausible AIR against L1 distance of ROSE-one for other thresholds and variances, as a ``Figure``.

    A line for each threshold tau, along which the variance sigma^2 grows; a panel for each data set.

    Parameters
    ----------
    results
        Columns ``Dataset``, ``Condition`` (such as ``"tau=0.8, variance=0.01"``), ``Proximity``, ``Plausible_AIR``.
    titles
        Titles of the data sets.
    """
    style.check_columns(results, "Proximity", "Plausible_AIR")
    options = _parse_conditions(results, "tau", "variance")
    n_datasets = results["Dataset"].nunique()
    figure, axes = style.new_axes(style.PAGE if n_datasets > 1 else style.COLUMN, 2.2, 1, n_datasets, sharey=True)
    colours = import_optional("matplotlib").colormaps["viridis"]
    taus = sorted(options["tau"].unique())
    for ax, part in _trade_off_panels(axes[0], results.assign(**options), "Plausible_AIR", titles):
        for number, tau in enumerate(taus):
            means = part[part["tau"] == tau].groupby("variance")[["Proximity", "Plausible_AIR"]].mean()
            ax.plot(
                means["Proximity"],
                means["Plausible_AIR"],
                marker=_MARKERS[number % len(_MARKERS)],
                color=colours(0.05 + 0.75 * number / max(len(taus) - 1, 1)),
                markersize=4,
                label=rf"$\tau$ = {tau:g}",
            )
    axes[0, 0].set_ylim(bottom=0)
    variances = ", ".join(f"{value:g}" for value in sorted(options["variance"].unique()))
    style.legend_beside(figure, axes[0], title=rf"on a line $\sigma^2$ is" f"\n{variances}")
    return figure


@style.styled
def action_units(results: pd.DataFrame, titles: Mapping[str, str] | None = None) -> Any:
    """Draw Acc AIR and L1 distance of ROSE-mul for other sizes of a unit of action, as a ``Figure``.

    Error bars are 95 % intervals of the mean over people.

    Parameters
    ----------
    results
        Columns ``Dataset``, ``Condition`` (such as ``"action_unit=0.05"``), ``Proximity`` and ``Acc_AIR``.
    titles
        Titles of the data sets.
    """
    style.check_columns(results, "Acc_AIR", "Proximity")
    options = _parse_conditions(results, "action_unit")
    units = sorted(options["action_unit"].unique())
    parts = dict(iter(results.assign(**options).groupby("Dataset", sort=False)))
    figure, axes = style.new_axes(style.COLUMN, 2.1, 1, 2)
    for ax, metric, label in zip(axes[0], ("Acc_AIR", "Proximity"), ("Acc AIR", "L1 distance"), strict=True):
        for number, (dataset, part) in enumerate(parts.items()):
            colour, marker = style.dataset_style(str(dataset))
            groups = part.groupby("action_unit")[metric]
            means, errors = groups.mean(), 1.96 * groups.std() / np.sqrt(groups.count())
            ax.errorbar(
                [units.index(unit) + 0.06 * (number - (len(parts) - 1) / 2) for unit in means.index],
                means,
                errors,
                marker=marker,
                color=colour,
                markersize=4,
                elinewidth=0.8,
                label=style.dataset_title(str(dataset), titles),
            )
        ax.set_xticks(range(len(units)), [f"{unit:g}" for unit in units])
        ax.set_xlabel("unit of action $u$")
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
        style.draw_grid(ax, "y")
    style.legend_beside(figure, axes[0, :1], "outside lower center", ncols=3)
    return figure


@style.styled
def proximity(results: pd.DataFrame, largest: Mapping[str, float], titles: Mapping[str, str] | None = None) -> Any:
    """Draw the mean L1 distance as a share of the largest distance between two rows of the data, as a ``Figure``.

    The dotted line is the largest distance; the number above each bar is the distance itself.

    Parameters
    ----------
    results
        Columns ``Dataset``, ``Method``, ``Classifier`` (``"ann"`` or ``"linear"``) and ``Proximity``.
    largest
        Largest L1 distance between two rows of each data set.
    titles
        Titles of the data sets.

    Raises
    ------
    ExperimentError
        If no method found recourse.
    """
    style.check_columns(results, "Classifier", "Proximity")
    means = results.groupby(["Dataset", "Method", "Classifier"], sort=False)["Proximity"].mean().dropna()
    if means.empty:
        raise ExperimentError("No method found recourse: there are no distances to draw.")
    groups = list(dict.fromkeys((method, classifier) for _, method, classifier in means.index))
    datasets = list(results["Dataset"].unique())
    figure, axes = style.new_axes(style.COLUMN, 2.3)
    ax = axes[0, 0]
    width = 0.8 / len(groups)
    for number, (method, classifier) in enumerate(groups):
        name, hatch = _CLASSIFIERS[classifier]
        label: str | None = f"{style.escape_math(method)} ({name})"
        for place, dataset in enumerate(datasets):
            distance = means.get((dataset, method, classifier))
            if distance is None:
                continue
            ratio, x = distance / largest[dataset], place + (number - (len(groups) - 1) / 2) * width
            look = {"color": _bar_colour(method), "edgecolor": "black", "linewidth": 0.4, "hatch": hatch}
            ax.bar(x, ratio, 0.92 * width, label=label, **look)
            label = None  # once in the legend
            text = f"{distance:.2g}" if distance < 10 else f"{distance:.0f}"
            above = {"xytext": (0, 2), "textcoords": "offset points", "ha": "center", "va": "bottom"}
            ax.annotate(text, (x, ratio), rotation=90, fontsize=style.SMALL, **above)
    ax.axhline(1, color=style.RED, linestyle="dotted", linewidth=1)
    ax.set_xticks(range(len(datasets)), [style.dataset_title(dataset, titles) for dataset in datasets])
    ax.tick_params(axis="x", length=0)
    ax.set_ylabel("L1 distance / largest in the data")
    ax.margins(y=0.15)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


def _trade_off_panels(
    axes: np.ndarray, results: pd.DataFrame, metric: str, titles: Mapping[str, str] | None
) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Yield the axes of each data set with its results, and label them: ``metric`` against L1 distance."""
    axes[0].set_ylabel(RATES[metric])
    for ax, dataset in zip(axes, results["Dataset"].unique(), strict=True):
        yield ax, results[results["Dataset"] == dataset].dropna(subset=[metric, "Proximity"])
        ax.set_title(style.dataset_title(dataset, titles))
        ax.set_xlabel("L1 distance")
        style.draw_grid(ax)


def _parse_conditions(results: pd.DataFrame, *names: str) -> dict[str, pd.Series]:
    """Extract the values of hyper-parameters from conditions."""
    found = {name: results["Condition"].str.extract(rf"\b{name}=([-+.\de]+)")[0].astype(float) for name in names}
    for name, values in found.items():
        if values.isna().any():
            wrong = results["Condition"][values.isna()].iloc[0]
            raise ExperimentError(f"The condition {wrong!r} has no value of {name}.")
    return found


def _bar_colour(method: str) -> str:
    return {"ROAR": style.GREY, "ARAR": style.GREEN}.get(method, style.method_style(method)[0])


def rank_methods(results: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Rank the methods for each person, 1 is the lowest value, ties share a rank: a row for each person.

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
    worst_last = np.where(np.isfinite(values), values, np.inf)
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
    difference = critical_difference(k, n)
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
