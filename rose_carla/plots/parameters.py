"""What ROSE's hyper-parameters do to robustness and cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from rose_carla.carla_compat import import_optional
from rose_carla.errors import ExperimentError
from rose_carla.plots.columns import check_columns
from rose_carla.plots.style import COLUMN, PAGE, dataset_style, dataset_title, legend_beside, new_axes, styled

#: Markers of growing thresholds.
_MARKERS = "osD^vP"


@styled
def thresholds(people: pd.DataFrame, titles: Mapping[str, str] | None = None) -> Any:
    """Plausible AIR against L1 distance of ROSE-one planned for other thresholds and variances, as a ``Figure``.

    A line for each threshold tau, along which the variance sigma^2 grows; a panel for each data set.

    Parameters
    ----------
    people
        Columns ``Dataset``, ``Condition`` (such as ``"tau=0.8, variance=0.01"``), ``Proximity``, ``Plausible_AIR``.
    titles
        Names of the data sets for people.
    """
    check_columns(people, "Proximity", "Plausible_AIR")
    options = _options(people, ("tau", "variance"))
    table = people.assign(**options).dropna(subset=["Proximity", "Plausible_AIR"])
    datasets = list(people["Dataset"].unique())
    figure, axes = new_axes(PAGE if len(datasets) > 1 else COLUMN, 2.2, 1, len(datasets), sharey=True)
    colours = import_optional("matplotlib").colormaps["viridis"]
    taus = sorted(options["tau"].unique())
    for ax, dataset in zip(axes[0], datasets, strict=True):
        part = table[table["Dataset"] == dataset]
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
        ax.set_title(dataset_title(dataset, titles))
        ax.set_xlabel("L1 distance")
        ax.grid(True, alpha=0.3, linewidth=0.5)
    axes[0, 0].set_ylabel("Plausible AIR")
    axes[0, 0].set_ylim(bottom=0)
    variances = ", ".join(f"{value:g}" for value in sorted(options["variance"].unique()))
    legend_beside(figure, axes[0], title=rf"on a line $\sigma^2$ is" f"\n{variances}")
    return figure


@styled
def action_units(people: pd.DataFrame, titles: Mapping[str, str] | None = None) -> Any:
    """Acc AIR and L1 distance of ROSE-mul planned for other sizes of a unit of action, as a ``Figure``.

    Bars are 95 % intervals of the mean over people.

    Parameters
    ----------
    people
        Columns ``Dataset``, ``Condition`` (such as ``"action_unit=0.05"``), ``Proximity`` and ``Acc_AIR``.
    titles
        Names of the data sets for people.
    """
    check_columns(people, "Acc_AIR", "Proximity")
    options = _options(people, ("action_unit",))
    table = people.assign(**options)
    figure, axes = new_axes(COLUMN, 2.1, 1, 2)
    units = sorted(options["action_unit"].unique())
    datasets = list(people["Dataset"].unique())
    for ax, (metric, label) in zip(axes[0], {"Acc_AIR": "Acc AIR", "Proximity": "L1 distance"}.items(), strict=True):
        for number, dataset in enumerate(datasets):
            colour, marker = dataset_style(dataset)
            groups = table[table["Dataset"] == dataset].groupby("action_unit")[metric]
            means, errors = groups.mean(), 1.96 * groups.std() / np.sqrt(groups.count())
            ax.errorbar(
                [units.index(unit) + 0.06 * (number - (len(datasets) - 1) / 2) for unit in means.index],
                means,
                errors,
                marker=marker,
                color=colour,
                markersize=4,
                elinewidth=0.8,
                label=dataset_title(dataset, titles),
            )
        ax.set_xticks(range(len(units)), [f"{unit:g}" for unit in units])
        ax.set_xlabel("unit of action $u$")
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
        ax.grid(True, axis="y", alpha=0.3, linewidth=0.5)
    legend_beside(figure, axes[0, :1], "outside lower center", ncols=3)
    return figure


def _options(people: pd.DataFrame, names: tuple[str, ...]) -> dict[str, pd.Series]:
    """Values of hyper-parameters out of conditions."""
    found = {name: people["Condition"].str.extract(rf"\b{name}=([-+.\de]+)")[0].astype(float) for name in names}
    for name, values in found.items():
        if values.isna().any():
            wrong = people["Condition"][values.isna()].iloc[0]
            raise ExperimentError(f"The condition {wrong!r} does not say which {name} it stands for.")
    return found
