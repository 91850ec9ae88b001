"""The paper's tables: the experiments they need and the layouts they are shown in."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from rose_carla import models
from rose_carla.bench.cells import CLASSIFIERS, Judgement, Recourse, Setting
from rose_carla.bench.method_registry import METHODS, PLAIN, TABLE_1
from rose_carla.bench.runner import Experiment
from rose_carla.bench.table import Column, Layout, Table, build_table
from rose_carla.metrics import NoiseSettings
from rose_carla.metrics.registry import PAPER_METRICS

#: Metrics that take long have a cell each, which sweeps share; the cheap ones are together in one.
_COSTLY = (("Plausible_AIR",), ("Acc_AIR",))
_CHEAP = tuple(name for name in PAPER_METRICS if name not in ("Recourse_Time", "Plausible_AIR", "Acc_AIR"))
_ALL = (_CHEAP, *_COSTLY)
#: The paper's metrics, and the time of training after that of recourse.
_MAIN = tuple(
    column for name in PAPER_METRICS for column in ((name, "Training_Time") if name == "Recourse_Time" else (name,))
)

#: The closed-loop AIR, and columns that come with it.
CLOSED_LOOP = ("Closed_Loop_AIR", "Closed_Loop_Cost", "Closed_Loop_Decisions")


@dataclass(frozen=True)
class TableSpec:
    """A table: its layout, and the experiments that fill it."""

    layout: Layout
    experiments: tuple[Experiment, ...]


@dataclass(frozen=True)
class Scope:
    """What all tables and figures of a run have in common."""

    #: As in :class:`.Setting`, one for each data set and seed.
    datasets: tuple[str, ...]
    classifier: str = "ann"
    seeds: tuple[int, ...] = (0,)
    actionable: bool = False
    people: int | None = None
    #: Noisy samples of each rate.
    n_samples: int = 1000
    #: Whether Acc AIR has a NoisyStep per unit of action or per action.
    noise_per: str = "unit"
    #: Whether Table 1 and the frontier have the closed-loop AIR.
    closed_loop: bool = False

    def settings(self, classifier: str | None = None) -> list[Setting]:
        """Return a setting for each data set and seed, seeds within data sets."""
        return [
            Setting(dataset, classifier or self.classifier, seed, self.actionable, self.people)
            for dataset in self.datasets
            for seed in self.seeds
        ]

    def experiment(
        self, recourse: Recourse, condition: str = "", metrics: Sequence[Sequence[str]] = _ALL, **noise: float
    ) -> Experiment:
        """Evaluate recourse by groups of metrics, a cell for each, under the paper's noise or another."""
        settings = NoiseSettings.from_mapping({"n_samples": self.n_samples, "noise_per": self.noise_per, **noise})
        return Experiment(condition, tuple(Judgement(recourse, tuple(group), settings) for group in metrics))

    def table(
        self,
        layout: Layout,
        points: Iterable[tuple[str, str, Mapping[str, float]]],
        classifier: str | None = None,
        metrics: Sequence[Sequence[str]] = _ALL,
    ) -> TableSpec:
        """Return a table of recourse by methods with a condition and its hyper-parameters, for every setting."""
        cells = itertools.product(self.settings(classifier), points)
        return self.spec(
            layout,
            [
                self.experiment(Recourse.with_options(setting, method, **options), condition, metrics)
                for setting, (method, condition, options) in cells
            ],
        )

    def spec(self, layout: Layout, experiments: Iterable[Experiment]) -> TableSpec:
        """Return a table with its experiments; without the paper's values if its protocol is not followed."""
        if self.actionable:
            note = "Immutable features are kept, which the paper does not do: its values are not beside ours."
            layout = replace(layout, paper="", note=f"{layout.note} {note}".strip())
        if self.noise_per == "action":
            note = "Acc AIR has one NoisyStep for each action, not for each unit of action."
            layout = replace(layout, note=f"{layout.note} {note}".strip())
        return TableSpec(layout, tuple(experiments))

    def main_metrics(self, *metrics: str) -> tuple[Sequence[Sequence[str]], tuple[Column, ...]]:
        """Return the groups of metrics and the columns of a table with the paper's metrics, and others on request."""
        if not self.closed_loop:
            return _ALL, _columns(*metrics)
        return (*_ALL, CLOSED_LOOP[:1]), _columns(*metrics, *CLOSED_LOOP)


def _columns(*metrics: str) -> tuple[Column, ...]:
    return tuple(Column(metric) for metric in metrics)


def _rows(methods: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple((method, "") for method in methods)


def table_1(scope: Scope, methods: Sequence[str] = TABLE_1) -> TableSpec:
    """Table 1: all methods, all metrics."""
    metrics, columns = scope.main_metrics(*_MAIN)
    layout = Layout(
        "table1",
        "ROSE beside the other methods (the paper's Table 1)",
        columns,
        _rows(methods),
        paper="linear" if scope.classifier == "linear" else "table1",
    )
    return scope.table(layout, [(method, "", {}) for method in methods], metrics=metrics)


def linear(scope: Scope) -> TableSpec:
    """The appendix' table with logistic regression, for which ROAR and ARAR were designed."""
    methods = [name for name, entry in METHODS.items() if entry.robust and name not in PLAIN]
    layout = Layout(
        "linear",
        "ROAR, ARAR and the robust methods with logistic regression",
        _columns(*(metric for metric in _MAIN if metric != "Log_Density")),
        _rows(methods),
    )
    return scope.table(layout, [(method, "", {}) for method in methods], "linear")


def rose_one(scope: Scope) -> TableSpec:
    """ROSE-one planned for other thresholds and variances, evaluated under the default noise."""
    grid = itertools.product((0.6, 0.7, 0.8, 0.9), (0.005, 0.01, 0.015))
    points = [
        ("ROSE-one", f"tau={tau:g}, variance={variance:g}", {"tau": tau, "variance": variance})
        for tau, variance in grid
    ]
    layout = Layout(
        "rose-one",
        "ROSE-one planned for other thresholds and other noise",
        _columns("Validity", "Sparsity", "Proximity", "Training_Time", "Plausible_AIR"),
        tuple(point[:2] for point in points),
        note="Plans are made for the threshold and variance in the row, and evaluated under σ² = 0.01 as in Table 1.",
        mark_best=False,
    )
    return scope.table(layout, points, metrics=(_CHEAP, ("Plausible_AIR",)))


def rose_mul(scope: Scope) -> TableSpec:
    """The appendix' table of ROSE-mul planned for other noise, evaluated under the default noise."""
    grid = [("unit_variance", value) for value in (0.0003, 0.0007, 0.001)]
    grid += [("action_unit", value) for value in (0.05, 0.1)]
    points = [("ROSE-mul", f"{name}={value:g}", {name: value}) for name, value in grid]
    layout = Layout(
        "rose-mul",
        "ROSE-mul planned for other noise",
        _columns("Validity", "Sparsity", "Proximity", "Recourse_Time", "Training_Time", "Acc_AIR"),
        tuple(point[:2] for point in points),
        note="Plans are made for the variance or the size of a unit in the row, and evaluated under σ² = 0.0005 "
        "and u = 0.025 as in Table 1.",
        mark_best=False,
    )
    return scope.table(layout, points)


def _sweep(scope: Scope, name: str, title: str, metrics: Sequence[str], **noise: Sequence[float]) -> TableSpec:
    """The recourse of Table 1 evaluated under other noise, the values of one option: nothing is generated again."""
    ((option, values),) = noise.items()
    groups = [(metric,) for metric in metrics if metric != "Steps"] + ([_CHEAP] if "Steps" in metrics else [])
    conditions = {f"{option}={value:g}": value for value in values}
    layout = Layout(
        name,
        title,
        tuple(Column(metric, condition) for condition in conditions for metric in metrics),
        _rows(TABLE_1),
        note="The recourse is that of Table 1; only the noise of the evaluation differs.",
    )
    experiments = [
        scope.experiment(Recourse(setting, method), condition, groups, **{option: value})
        for setting, method, (condition, value) in itertools.product(scope.settings(), TABLE_1, conditions.items())
    ]
    return scope.spec(layout, experiments)


def plausible(scope: Scope) -> TableSpec:
    """Plausible AIR under one-off noise of other variances."""
    title = "Plausible AIR under more and less one-off noise"
    return _sweep(scope, "plausible", title, ("Plausible_AIR",), variance=(0.005, 0.01, 0.015))


def accumulated(scope: Scope) -> TableSpec:
    """Acc AIR under accumulated noise of other variances: 3, 5, 7 and 10 % of the one-off noise."""
    title = "Acc AIR under more and less noise in each unit of action"
    return _sweep(scope, "accumulated", title, ("Acc_AIR",), unit_variance=(0.0003, 0.0005, 0.0007, 0.001))


def units(scope: Scope) -> TableSpec:
    """Number of steps and Acc AIR for larger units of action."""
    title = "Number of steps and Acc AIR for larger units of action"
    return _sweep(scope, "units", title, ("Steps", "Acc_AIR"), action_unit=(0.025, 0.05, 0.1))


def frontier(scope: Scope, methods: Sequence[str] = TABLE_1) -> TableSpec:
    """Robustness against cost: methods with a trade-off hyper-parameter at several values of it."""
    points: list[tuple[str, str, Mapping[str, float]]] = []
    for method in methods:
        knob, levels = str(METHODS[method].knob), METHODS[method].levels
        points += [(method, f"{knob}={level:g}", {knob: level}) for level in levels] or [(method, "", {})]
    metrics, columns = scope.main_metrics(
        "Validity", "Sparsity", "Proximity", "Gaussian_AIR", "Plausible_AIR", "Acc_AIR"
    )
    layout = Layout(
        "frontier",
        "Robustness against cost, over the trade-off hyper-parameter of each method",
        columns,
        tuple(point[:2] for point in points),
        mark_best=False,
    )
    return scope.table(layout, points, metrics=metrics)


CLASSIFIERS_LAYOUT = Layout(
    "classifiers",
    "Classifiers: training, accuracy on the test split, people with an unfavourable prediction",
    _columns("Batch_Size", "Epochs", "Learning_Rate", "Accuracy", "People"),
    _rows(reversed(CLASSIFIERS)),
    mark_best=False,
)


def classifiers(scope: Scope) -> tuple[Table, pd.DataFrame]:
    """Return the appendix' table of classifiers, and the rows of the test splits that it is computed from."""
    frames = []
    for kind in CLASSIFIERS:
        for setting in scope.settings(kind):
            model = setting.model()
            test = model.data.df_test
            favourable = models.favourable(model)(test[model.feature_input_order].to_numpy(dtype=float))
            trained = models.paper_settings(kind, setting.dataset)
            columns = {
                "Dataset": setting.dataset,
                "Method": kind,
                "Condition": "",
                "Seed": setting.seed,
                "Person": test.index,
                "Accuracy": (favourable == test[model.data.target].to_numpy()).astype(float),
                "People": len(models.negative_instances(model, seed=setting.seed)),
                "Batch_Size": trained.batch_size,
                "Epochs": trained.epochs,
                "Learning_Rate": trained.learning_rate,
                "Alone": True,
            }
            frames.append(pd.DataFrame(columns))
    rows = pd.concat(frames, ignore_index=True)
    return build_table(CLASSIFIERS_LAYOUT, rows, scope.datasets, {}), rows
