"""Tables as values: estimates with intervals, marks, and the paper's values beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from rose_carla.bench import comparison
from rose_carla.bench.cells import CLASSIFIERS
from rose_carla.bench.comparison import PaperValue, explain_difference, paper_value
from rose_carla.bench.method_registry import entry
from rose_carla.metrics.registry import METRICS, Metric
from rose_carla.noise.invalidation import wilson_interval
from scipy import stats

#: Data sets by their names in the paper.
DATASET_TITLES = {"german": "German Credit", "adult": "Adult Income", "compas": "COMPAS"}
#: Confidence level of all intervals.
CONFIDENCE = 0.95
#: Metrics that can be compared only if a cell had the machine to itself.
_TIMES = ("Recourse_Time", "Training_Time")
_SHARED_MACHINE = "Times after ~ were measured beside other cells and cannot be compared; --jobs 1 measures them alone."
_SYMBOLS = {"variance": "σ²", "unit_variance": "σ² of a unit", "action_unit": "u", "tau": "τ"}


#: All metrics that a table can show, by their column in the results frame.
TABLE_METRICS: Mapping[str, Metric] = {
    **METRICS,
    "Closed_Loop_Cost": Metric("Closed-loop L1", False),
    "Closed_Loop_Decisions": Metric("# of decisions", False),
    "Training_Time": Metric("Training (s)", False, digits=1, show_std=False),
    "Steps": Metric("# of steps", False),
    "Accuracy": Metric("Accuracy", True, show_std=False),
    "People": Metric("# of points", True, digits=0, show_std=False),
    "Batch_Size": Metric("Batch size", True, digits=0, show_std=False),
    "Epochs": Metric("Epochs", True, digits=0, show_std=False),
    "Learning_Rate": Metric("Learning rate", True, digits=3, show_std=False),
}


def format_condition(condition: str) -> str:
    """Format a condition with the paper's symbols; a method's own hyper-parameters keep their names.

    Examples
    --------
    >>> format_condition("action_unit=0.05")
    'u = 0.05'
    >>> format_condition("tau=0.9, variance=0.01")
    'τ = 0.9, σ² = 0.01'
    """
    pairs = [part.partition("=") for part in condition.split(", ")]
    return ", ".join(f"{_SYMBOLS.get(name, name)} = {value}" if value else name for name, _, value in pairs)


@dataclass(frozen=True)
class Estimate:
    """A mean over people."""

    #: Over people who have a value, as in the paper.
    mean: float
    std: float
    #: Confidence interval of the mean; NaN with a single value.
    lower: float
    upper: float
    #: Numbers of values and of seeds they come from.
    n: int
    n_seeds: int = 1


def estimate(values: np.ndarray, seeds: np.ndarray) -> Estimate:
    """Estimate the mean of ``values`` (NaN: no recourse) with its standard deviation and confidence interval.

    With one seed the sample is the people: Student's interval, or Wilson's for zeros and ones. With several it is the
    means of the seeds, because people of one seed share a classifier and a policy.

    Examples
    --------
    >>> estimate(np.array([1.0, 1.0, 0.0, 1.0]), np.zeros(4)).mean
    0.75
    """
    known = np.isfinite(values)
    values, seeds = values[known], seeds[known]
    n = len(values)
    if n == 0:
        return Estimate(np.nan, np.nan, np.nan, np.nan, 0, 0)
    std = float(values.std(ddof=1)) if n > 1 else np.nan
    seed_means = np.array([values[seeds == seed].mean() for seed in np.unique(seeds)])
    if len(seed_means) == 1 and np.isin(values, (0.0, 1.0)).all():
        lower, upper = (float(bound[0]) for bound in wilson_interval(np.array([values.sum()]), n, CONFIDENCE))
    else:
        lower, upper = _student_interval(seed_means if len(seed_means) > 1 else values)
    return Estimate(float(values.mean()), std, lower, upper, n, len(seed_means))


def _student_interval(sample: np.ndarray) -> tuple[float, float]:
    n = len(sample)
    if n < 2:
        return np.nan, np.nan
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * sample.std(ddof=1) / np.sqrt(n)
    return float(sample.mean() - half), float(sample.mean() + half)


@dataclass(frozen=True)
class Value:
    """One value of a table."""

    #: Mean and standard deviation as printed, ``failed``, or ``–`` without recourse. Times measured beside other
    #: cells start with ``~``.
    text: str
    #: None if the cell failed or no person has recourse.
    estimate: Estimate | None = None
    #: The paper's value, how ours compares, and why it differs if it does.
    printed: PaperValue | None = None
    tag: str = ""
    reason: str = ""
    #: Whether it is the best on its data set, and the best of the methods that are robust by design.
    best: bool = False
    best_robust: bool = False

    @property
    def mean_text(self) -> str:
        """The text without the standard deviation."""
        return self.text.split(" ±")[0]


@dataclass(frozen=True)
class Column:
    """A metric, under a condition where a table has several."""

    metric: str
    condition: str = ""

    @property
    def label(self) -> str:
        """Name of the metric."""
        return TABLE_METRICS[self.metric].label

    @property
    def arrow(self) -> str:
        """Direction of improvement."""
        return "↑" if TABLE_METRICS[self.metric].higher_is_better else "↓"

    @property
    def condition_label(self) -> str:
        """Formatted condition, or an empty string."""
        return format_condition(self.condition)

    def format(self, mean: float, std: float | None = None) -> str:
        """Format a mean, and its standard deviation if there is one."""
        digits = TABLE_METRICS[self.metric].digits
        return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")

    def format_interval(self, value: Value) -> str:
        """Format the confidence interval; empty if there is none or it has no width in the printed digits."""
        if value.estimate is None or not np.isfinite(value.estimate.lower):
            return ""
        lower, upper = self.format(value.estimate.lower), self.format(value.estimate.upper)
        return "" if lower == upper else f"[{lower}, {upper}]"

    def format_printed(self, value: Value) -> str:
        """Format the paper's value; empty if there is none."""
        return self.format(*value.printed) if value.printed is not None else ""


@dataclass(frozen=True)
class Row:
    """A method, a condition of one, or a classifier, on one data set."""

    dataset: str
    method: str
    condition: str
    values: tuple[Value, ...]

    @property
    def label(self) -> str:
        """Name of the method or classifier, with the condition."""
        name = CLASSIFIERS.get(self.method, self.method.rpartition(":")[2])
        return f"{name}, {format_condition(self.condition)}" if self.condition else name


@dataclass(frozen=True)
class Table:
    """A table; rows of one data set follow one another."""

    name: str
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    @property
    def blocks(self) -> dict[str, list[Row]]:
        """Rows by the title of their data set."""
        blocks: dict[str, list[Row]] = {}
        for row in self.rows:
            blocks.setdefault(DATASET_TITLES[row.dataset], []).append(row)
        return blocks

    @property
    def reasons(self) -> list[str]:
        """Unique reasons for differences, in the order of the values."""
        return list(dict.fromkeys(value.reason for row in self.rows for value in row.values if value.reason))

    def frame(self) -> pd.DataFrame:
        """Return one row per value with all its attributes."""
        return pd.DataFrame(
            [
                {
                    "dataset": row.dataset,
                    "method": row.method,
                    "condition": row.condition or column.condition,
                    "metric": column.metric,
                    "text": value.text,
                    **{name: getattr(value.estimate, name, np.nan) for name in ("mean", "std", "lower", "upper", "n")},
                    "paper_mean": value.printed.mean if value.printed else np.nan,
                    "paper_std": np.nan if value.printed is None or value.printed.std is None else value.printed.std,
                    "tag": value.tag,
                    "reason": value.reason,
                    "best": value.best,
                    "best_robust": value.best_robust,
                }
                for row in self.rows
                for column, value in zip(self.columns, row.values, strict=True)
            ]
        )


@dataclass(frozen=True)
class Layout:
    """Columns and rows of a table."""

    #: As in :class:`Table`.
    name: str
    title: str
    #: Metrics, under conditions.
    columns: tuple[Column, ...]
    #: Pairs of a method and a condition, which is empty where conditions are columns.
    rows: tuple[tuple[str, str], ...]
    note: str = ""
    #: The paper's table to compare with; by default the one of the same name, an empty string for none.
    paper: str | None = None
    #: Whether the best values are marked; not where rows are conditions of one method.
    mark_best: bool = True


def build_table(
    layout: Layout, results: pd.DataFrame, datasets: Sequence[str], errors: Mapping[tuple[str, str, str], str]
) -> Table:
    """Fill a layout with estimates.

    Parameters
    ----------
    results
        One row for each data set, method, condition, seed and person; see :func:`.results_frame`.
    datasets
        In order.
    errors
        Error messages by data set, method and condition.
    """
    groups = dict(iter(results.groupby(["Dataset", "Method", "Condition"])))
    rows: list[Row] = []
    for dataset in datasets:
        rows += _dataset_rows(layout, dataset, groups, errors, results["Seed"].nunique())
    note = layout.note
    if any(value.text.startswith("~") for row in rows for value in row.values):
        note = f"{note} {_SHARED_MACHINE}".strip()
    return Table(layout.name, layout.title, note, layout.columns, tuple(rows))


def _dataset_rows(
    layout: Layout,
    dataset: str,
    groups: Mapping[tuple[str, str, str], pd.DataFrame],
    errors: Mapping[tuple[str, str, str], str],
    n_seeds: int,
) -> list[Row]:
    estimates: dict[tuple[str, str, Column], Estimate] = {}
    timed_beside_others = set()
    for method, condition in layout.rows:
        group = groups.get((dataset, method, condition))
        if group is not None and not group["Alone"].all():
            timed_beside_others.add(method)
        for column in layout.columns:
            group = groups.get((dataset, method, condition or column.condition))
            if group is not None and column.metric in group:
                values = group[column.metric].to_numpy(dtype=float)
                estimates[method, condition, column] = estimate(values, group["Seed"].to_numpy())

    best: dict[Column, set[str]] = {}
    best_robust: dict[Column, set[str]] = {}
    for column in layout.columns:
        marked = layout.mark_best and column.metric != "Training_Time"
        marked = marked and not (timed_beside_others and column.metric in _TIMES)
        means = {method: known.mean for (method, _, other), known in estimates.items() if marked and other == column}
        robust = {method: mean for method, mean in means.items() if entry(method).robust}
        best[column] = comparison.best_methods(means, TABLE_METRICS[column.metric])
        best_robust[column] = comparison.best_methods(robust, TABLE_METRICS[column.metric])

    def value(method: str, condition: str, column: Column) -> Value:
        known, metric = estimates.get((method, condition, column)), TABLE_METRICS[column.metric]
        if known is None or known.n == 0:
            return Value("failed" if errors.get((dataset, method, condition or column.condition)) else "–")
        text = column.format(known.mean, known.std if metric.show_std and np.isfinite(known.std) else None)
        if known.n_seeds < n_seeds:
            text += f" ({known.n_seeds} of {n_seeds} seeds)"
        table = layout.name if layout.paper is None else layout.paper
        printed = paper_value(table, dataset, method, column.metric, condition or column.condition)
        if column.metric in _TIMES and method in timed_beside_others:
            return Value(f"~{text}", known, printed)
        tag = comparison.tag(known.mean, printed, metric) if printed else ""
        reason = explain_difference(dataset, method, column.metric) if tag == comparison.DIFFERS else ""
        return Value(text, known, printed, tag, reason, method in best[column], method in best_robust[column])

    return [
        Row(dataset, method, condition, tuple(value(method, condition, column) for column in layout.columns))
        for method, condition in layout.rows
    ]
