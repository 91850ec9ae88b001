"""A table as a value: what stands in each of its places, before it becomes Markdown, LaTeX, HTML or CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from rose_carla.bench import comparison, paper
from rose_carla.bench.estimates import Estimate, estimate
from rose_carla.bench.measures import DATASETS, MEASURES, condition_words
from rose_carla.bench.methods import entry
from rose_carla.bench.reasons import reason
from rose_carla.bench.setting import CLASSIFIERS

#: Metrics that mean something only if a method had the machine to itself.
_TIMES = ("Recourse_Time", "Training_Time")
_UNFAIR = "Times after ~ were measured beside other cells and cannot be compared; --jobs 1 measures them alone."


@dataclass(frozen=True)
class Column:
    """A metric, under a condition where a table has several."""

    metric: str
    condition: str = ""

    @property
    def label(self) -> str:
        """Heading."""
        return MEASURES[self.metric].label

    @property
    def arrow(self) -> str:
        """Which way is better."""
        return "↑" if MEASURES[self.metric].higher else "↓"


@dataclass(frozen=True)
class Value:
    """What stands in one place.

    Parameters
    ----------
    text
        As printed: mean and deviation, or what went wrong, or how many seeds did not. Times that were measured beside
        other cells begin with ~.
    estimate
        None if the cell failed or nobody has recourse.
    printed, tag, reason
        The paper's value, how ours compares, and why, if it differs.
    best, best_robust
        Whether it is the best of its data set, and the best of the methods that are robust by design.
    """

    text: str
    estimate: Estimate | None = None
    printed: paper.Printed | None = None
    tag: str = ""
    reason: str = ""
    best: bool = False
    best_robust: bool = False


@dataclass(frozen=True)
class Row:
    """A method, a condition of one, or a classifier, on one data set."""

    dataset: str
    method: str
    condition: str
    values: tuple[Value, ...]

    @property
    def label(self) -> str:
        """Heading."""
        name = CLASSIFIERS.get(self.method, self.method.rpartition(":")[2])
        return f"{name}, {condition_words(self.condition)}" if self.condition else name


@dataclass(frozen=True)
class Table:
    """A table.

    Parameters
    ----------
    name
        Of its files.
    title, note
        For people.
    columns, rows
        Its body; rows of one data set follow one another.
    """

    name: str
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    @property
    def blocks(self) -> dict[str, list[Row]]:
        """Rows by the data set's name in the paper."""
        blocks: dict[str, list[Row]] = {}
        for row in self.rows:
            blocks.setdefault(DATASETS[row.dataset], []).append(row)
        return blocks

    @property
    def reasons(self) -> list[str]:
        """Reasons for differences, each once, in order."""
        return list(dict.fromkeys(value.reason for row in self.rows for value in row.values if value.reason))

    def frame(self) -> pd.DataFrame:
        """One row for each value, with everything known about it."""
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
    """What a table is to show.

    Parameters
    ----------
    name, title, note
        As in :class:`Table`.
    columns
        Metrics, under conditions.
    rows
        Methods, and conditions where a row is one.
    paper
        The paper's table in :mod:`.paper` to compare with; by default that of the same name, empty for none.
    marked
        Whether the best values are marked: not where rows are conditions of one method.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, str], ...]
    note: str = ""
    paper: str | None = None
    marked: bool = True


def build(
    layout: Layout, people: pd.DataFrame, datasets: Sequence[str], errors: Mapping[tuple[str, str, str], str]
) -> Table:
    """Fill a layout from the table of people.

    Parameters
    ----------
    people
        One row for each data set, method, condition, seed and person.
    datasets
        In order.
    errors
        What failed, by data set, method and condition.
    """
    groups = dict(iter(people.groupby(["Dataset", "Method", "Condition"])))
    n_seeds = people["Seed"].nunique()
    rows = []
    for dataset in datasets:
        estimates = {}
        for method, condition in layout.rows:
            for column in layout.columns:
                key = (dataset, method, condition or column.condition)
                if key in groups and column.metric in groups[key]:
                    part = groups[key]
                    values = part[column.metric].to_numpy(dtype=float)
                    estimates[method, condition, column] = estimate(values, part["Seed"].to_numpy())
        unfair = {method for method, condition in layout.rows if not _alone(groups, (dataset, method, condition))}
        marks = {
            column: _marks(layout, column, estimates)
            for column in layout.columns
            if layout.marked and not (unfair and column.metric in _TIMES)
        }
        for method, condition in layout.rows:
            values = []
            for column in layout.columns:
                known = estimates.get((method, condition, column))
                if known is None or known.n == 0:
                    error = errors.get((dataset, method, condition or column.condition))
                    values.append(Value("failed" if error else "–"))
                    continue
                top, robust = marks.get(column, (set(), set()))
                value = _value(layout, dataset, method, condition, column, known)
                if known.n_seeds < n_seeds:
                    value = replace(value, text=f"{value.text} ({known.n_seeds} of {n_seeds} seeds)")
                if column.metric in _TIMES and method in unfair:
                    values.append(Value(f"~{value.text}", known, value.printed))
                else:
                    values.append(replace(value, best=method in top, best_robust=method in robust))
            rows.append(Row(dataset, method, condition, tuple(values)))
    note = layout.note
    if any(value.text.startswith("~") for row in rows for value in row.values):
        note = f"{note} {_UNFAIR}".strip()
    return Table(layout.name, layout.title, note, layout.columns, tuple(rows))


def _alone(groups: Mapping[tuple[str, str, str], pd.DataFrame], key: tuple[str, str, str]) -> bool:
    return key not in groups or bool(groups[key]["Alone"].all())


def _marks(
    layout: Layout, column: Column, estimates: Mapping[tuple[str, str, Column], Estimate]
) -> tuple[set[str], set[str]]:
    means = {
        method: estimates[method, "", column].mean for method, _ in layout.rows if (method, "", column) in estimates
    }
    if column.metric == "Training_Time":
        return set(), set()
    robust = {name: mean for name, mean in means.items() if entry(name).robust}
    return comparison.best(means, column.metric), comparison.best(robust, column.metric)


def _value(
    layout: Layout,
    dataset: str,
    method: str,
    condition: str,
    column: Column,
    known: Estimate,
) -> Value:
    measure = MEASURES[column.metric]
    text = measure.text(known.mean)
    if measure.spread and np.isfinite(known.std):
        text += f" ± {measure.text(known.std)}"
    compared = layout.name if layout.paper is None else layout.paper
    printed = paper.printed(compared, dataset, method, column.metric, condition or column.condition)
    tag = comparison.tag(known.mean, printed, measure) if printed else ""
    why = reason(dataset, method, column.metric) if tag == comparison.DIFFERS else ""
    return Value(text, known, printed, tag, why)
