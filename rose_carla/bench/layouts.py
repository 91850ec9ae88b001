"""The paper's tables: which cells they need and what they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rose_carla.bench.cells import Judgement, Recourse
from rose_carla.bench.methods import METHODS, TABLE_1
from rose_carla.bench.people import Point
from rose_carla.bench.setting import Setting
from rose_carla.bench.table import Column, Layout
from rose_carla.metrics import NoiseSettings

#: Metrics that cost next to nothing, together in one cell; the others have a cell each, for sweeps share them.
_CHEAP = ("Validity", "Sparsity", "Proximity", "Log_Density", "Gaussian_AIR")
_ALL = (_CHEAP, ("Plausible_AIR",), ("Acc_AIR",))
_MAIN = (
    "Validity",
    "Sparsity",
    "Proximity",
    "Recourse_Time",
    "Training_Time",
    "Log_Density",
    "Gaussian_AIR",
    "Plausible_AIR",
    "Acc_AIR",
)
#: What ROSE-one is planned for in the paper's figure of tau and the variance.
_TAUS, _VARIANCES = (0.6, 0.7, 0.8, 0.9), (0.005, 0.01, 0.015)
_PARAMETERS = (
    "unit_variance=0.0003",
    "unit_variance=0.0007",
    "unit_variance=0.001",
    "action_unit=0.05",
    "action_unit=0.1",
)


@dataclass(frozen=True)
class Plan:
    """A table to be made.

    Parameters
    ----------
    layout
        What it shows.
    points
        What it is made of.
    """

    layout: Layout
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Scope:
    """What all tables of a run have in common.

    Parameters
    ----------
    datasets, classifier, seeds, actionable, people
        As in :class:`.Setting`, one for each data set and seed.
    n_samples
        Noisy versions and noisy tries.
    """

    datasets: tuple[str, ...]
    classifier: str = "ann"
    seeds: tuple[int, ...] = (0,)
    actionable: bool = False
    people: int | None = None
    n_samples: int = 1000

    def settings(self, classifier: str | None = None) -> list[Setting]:
        """Data sets in order, seeds within each."""
        return [
            Setting(dataset, classifier or self.classifier, seed, self.actionable, self.people)
            for dataset in self.datasets
            for seed in self.seeds
        ]

    def noise(self, **options: float) -> NoiseSettings:
        """The paper's noise, or another."""
        return NoiseSettings.from_mapping({"n_samples": self.n_samples, **options})


def _judged(
    scope: Scope, cell: Recourse, condition: str = "", groups: Sequence[Sequence[str]] = _ALL, **noise: float
) -> Point:
    judgements = tuple(Judgement(cell, tuple(metrics), scope.noise(**noise)) for metrics in groups)
    return Point(condition, judgements)


def _comparable(layout: Layout, scope: Scope) -> Layout:
    """Without the paper's values if its protocol is not kept."""
    if not scope.actionable:
        return layout
    words = "Immutable features are kept, which the paper does not do: its values are not beside ours."
    return replace(layout, paper="", note=f"{layout.note} {words}".strip())


def table_1(scope: Scope, methods: Sequence[str] = TABLE_1) -> Plan:
    """Table 1: all methods, all metrics."""
    points = [_judged(scope, Recourse(setting, method)) for setting in scope.settings() for method in methods]
    layout = Layout(
        "table1",
        "ROSE beside the other methods (the paper's Table 1)",
        tuple(Column(metric) for metric in _MAIN),
        tuple((method, "") for method in methods),
        paper="linear" if scope.classifier == "linear" else "table1",
    )
    return Plan(_comparable(layout, scope), tuple(points))


def linear(scope: Scope) -> Plan:
    """The appendix' table with logistic regression, where ROAR and ARAR are at home."""
    methods = [name for name, entry in METHODS.items() if entry.robust]
    points = [_judged(scope, Recourse(setting, method)) for setting in scope.settings("linear") for method in methods]
    layout = Layout(
        "linear",
        "ROAR, ARAR and the robust methods with logistic regression",
        tuple(Column(metric) for metric in _MAIN if metric != "Log_Density"),
        tuple((method, "") for method in methods),
    )
    return Plan(_comparable(layout, scope), tuple(points))


def rose_one(scope: Scope) -> Plan:
    """ROSE-one planned for other thresholds and variances, and judged under the usual noise."""
    points = [
        _judged(
            scope,
            Recourse.with_options(setting, "ROSE-one", tau=tau, variance=variance),
            f"tau={tau:g}, variance={variance:g}",
            (_CHEAP, ("Plausible_AIR",)),
        )
        for setting in scope.settings()
        for tau in _TAUS
        for variance in _VARIANCES
    ]
    layout = Layout(
        "rose-one",
        "ROSE-one planned for other thresholds and other noise",
        tuple(Column(metric) for metric in ("Validity", "Sparsity", "Proximity", "Training_Time", "Plausible_AIR")),
        tuple(("ROSE-one", f"tau={tau:g}, variance={variance:g}") for tau in _TAUS for variance in _VARIANCES),
        note="Plans are made for the threshold and the variance in the row, and judged under σ² = 0.01 as in Table 1.",
        marked=False,
    )
    return Plan(_comparable(layout, scope), tuple(points))


def rose_mul(scope: Scope) -> Plan:
    """The appendix' table of ROSE-mul planned for other noise and judged under the usual."""
    points = []
    for setting in scope.settings():
        for condition in _PARAMETERS:
            name, value = condition.split("=")
            points.append(_judged(scope, Recourse.with_options(setting, "ROSE-mul", **{name: float(value)}), condition))
    layout = Layout(
        "rose-mul",
        "ROSE-mul planned for other noise",
        tuple(
            Column(metric)
            for metric in ("Validity", "Sparsity", "Proximity", "Recourse_Time", "Training_Time", "Acc_AIR")
        ),
        tuple(("ROSE-mul", condition) for condition in _PARAMETERS),
        note="Plans are made for the variance of a unit or the size of a unit in the row, and judged under σ² = 0.0005 "
        "and u = 0.025 as in Table 1.",
        marked=False,
    )
    return Plan(_comparable(layout, scope), tuple(points))


def _sweep(
    scope: Scope,
    methods: Sequence[str],
    name: str,
    title: str,
    option: str,
    values: Sequence[float],
    metrics: Sequence[str],
) -> Plan:
    """The recourse of Table 1 judged under other noise."""
    conditions = [f"{option}={value:g}" for value in values]
    groups: list[tuple[str, ...]] = [(metric,) for metric in metrics if metric != "Steps"]
    if "Steps" in metrics:
        groups.append(_CHEAP)
    points = [
        _judged(scope, Recourse(setting, method), condition, groups, **{option: value})
        for setting in scope.settings()
        for method in methods
        for condition, value in zip(conditions, values, strict=True)
    ]
    layout = Layout(
        name,
        title,
        tuple(Column(metric, condition) for condition in conditions for metric in metrics),
        tuple((method, "") for method in methods),
        note="The recourse is that of Table 1; only the noise that it is judged under differs.",
    )
    return Plan(_comparable(layout, scope), tuple(points))


def plausible(scope: Scope, methods: Sequence[str] = TABLE_1) -> Plan:
    """Plausible AIR under one-off noise of other variances."""
    values = (0.005, 0.01, 0.015)
    title = "Plausible AIR under more and less one-off noise"
    return _sweep(scope, methods, "plausible", title, "variance", values, ("Plausible_AIR",))


def accumulated(scope: Scope, methods: Sequence[str] = TABLE_1) -> Plan:
    """Acc AIR under accumulated noise of other variances: 3, 5, 7 and 10 % of the one-off noise."""
    values = (0.0003, 0.0005, 0.0007, 0.001)
    title = "Acc AIR under more and less noise in each unit of action"
    return _sweep(scope, methods, "accumulated", title, "unit_variance", values, ("Acc_AIR",))


def units(scope: Scope, methods: Sequence[str] = TABLE_1) -> Plan:
    """Number of steps and Acc AIR for larger units of action."""
    values = (0.025, 0.05, 0.1)
    title = "Number of steps and Acc AIR for larger units of action"
    return _sweep(scope, methods, "units", title, "action_unit", values, ("Steps", "Acc_AIR"))


def frontier(scope: Scope, methods: Sequence[str] = TABLE_1) -> Plan:
    """Robustness against cost: every method with a knob at several of its settings, the others as they are."""
    points: list[Point] = []
    rows: dict[tuple[str, str], None] = {}
    for setting in scope.settings():
        for method in methods:
            entry = METHODS[method]
            for level in entry.levels or (None,):
                condition = "" if level is None else f"{entry.knob}={level:g}"
                options = {} if level is None else {str(entry.knob): level}
                rows[method, condition] = None
                points.append(_judged(scope, Recourse.with_options(setting, method, **options), condition))
    layout = Layout(
        "frontier",
        "Robustness against cost, over every method's knob",
        tuple(
            Column(metric)
            for metric in ("Validity", "Sparsity", "Proximity", "Gaussian_AIR", "Plausible_AIR", "Acc_AIR")
        ),
        tuple(rows),
        marked=False,
    )
    return Plan(_comparable(layout, scope), tuple(points))
