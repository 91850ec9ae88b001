"""Tables as Markdown."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from rose_carla._lib.text import one_line
from rose_carla.bench.measures import MEASURES, condition_words
from rose_carla.bench.table import Column, Table, Value

LEGEND = (
    "Mean ± standard deviation over people who have recourse, the mean's 95 % confidence interval in brackets, then "
    "the paper's value with a tag. **Bold**: best of all methods; underlined: best of those that are robust by design."
)


def markdown(table: Table) -> str:
    """A table with the paper's values beside ours, and the reasons for differences below."""
    numbers = {words: i for i, words in enumerate(table.reasons, start=1)}
    heads = ["", *(_head(column) for column in table.columns)]
    lines = [f"## {harmless(table.title)}", ""]
    for note in (harmless(table.note), LEGEND):
        lines += [note, ""] if note else []
    for dataset, rows in table.blocks.items():
        lines += [f"### {harmless(dataset)}", "", _line(heads), _line(["---"] * len(heads))]
        for row in rows:
            lines.append(
                _line(
                    [
                        harmless(row.label),
                        *(
                            cell(value, column, numbers)
                            for value, column in zip(row.values, table.columns, strict=True)
                        ),
                    ]
                )
            )
        lines.append("")
    if numbers:
        lines += ["Why values differ:", ""]
        lines += [f"{number}. {harmless(words)}." for words, number in numbers.items()]
        lines.append("")
    return "\n".join(lines)


def cell(value: Value, column: Column, numbers: dict[str, int]) -> str:
    """One place: ours, the interval, the paper's."""
    text = f"<u>{value.text}</u>" if value.best_robust else value.text
    parts = [f"**{text}**" if value.best else text, interval(value, column)]
    if value.printed is not None:
        note = f" [{numbers[value.reason]}]" if value.reason else ""
        parts.append(f"paper {printed(value, column)}{', ' if value.tag else ''}{value.tag}{note}")
    return "<br>".join(part for part in parts if part)


def interval(value: Value, column: Column) -> str:
    """The confidence interval, if there is one."""
    known, measure = value.estimate, MEASURES[column.metric]
    if known is None or not np.isfinite(known.lower):
        return ""
    lower, upper = measure.text(known.lower), measure.text(known.upper)
    return "" if lower == upper else f"[{lower}, {upper}]"


def printed(value: Value, column: Column) -> str:
    """The paper's value as it prints it."""
    assert value.printed is not None
    measure, (mean, std) = MEASURES[column.metric], value.printed
    return measure.text(mean) + ("" if std is None else f" ± {measure.text(std)}")


def frame_markdown(frame: pd.DataFrame) -> str:
    """Any small frame; numbers are to be formatted before."""
    lines = [_line([harmless(str(name)) for name in frame.columns]), _line(["---"] * frame.shape[1])]
    lines += [_line([harmless(str(value)) for value in row]) for row in frame.itertuples(index=False)]
    return "\n".join(lines) + "\n"


def harmless(text: str) -> str:
    """A text in which no tag begins and no line ends: pages are made of Markdown. ``<`` before a space begins none.

    Examples
    --------
    >>> harmless("mine:<b>"), harmless("p < 0.001")
    ('mine:&lt;b&gt;', 'p < 0.001')
    """
    return re.sub("<(?! )", "&lt;", one_line(text).replace("&", "&amp;").replace(">", "&gt;"))


def _head(column: Column) -> str:
    condition = f"{harmless(condition_words(column.condition))}<br>" if column.condition else ""
    return f"{condition}{column.label} {column.arrow}"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |"
