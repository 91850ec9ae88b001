"""Tables as LaTeX documents: booktabs, and nothing that a basic TeX lacks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from rose_carla.bench.comparison import BETTER, DIFFERS, WITHIN
from rose_carla.bench.markdown import interval, printed
from rose_carla.bench.measures import condition_words
from rose_carla.bench.table import Column, Table, Value

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"$\sim$",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "σ²": r"$\sigma^2$",
    "²": r"$^2$",
    "σ": r"$\sigma$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "–": "--",
    "≥": r"$\geq$",
    "τ": r"$\tau$",
}
#: Rows that fit on a page.
_ROWS = 40
#: Of the tags, beside the paper's values.
_SIGNS = {WITHIN: r"$^=$", BETTER: r"$^+$", DIFFERS: r"$^{\neq}$"}
_PREAMBLE = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage[a4paper,landscape,margin=1cm]{geometry}
\usepackage{booktabs}
\begin{document}
"""


def latex(tables: list[Table], comment: str) -> str:
    """A document that compiles as it is; each table environment in it can be copied into a paper.

    Parameters
    ----------
    comment
        Where the numbers come from, for the first lines.
    """
    head = "".join(f"% {line}\n" for line in comment.splitlines())
    body = "\n".join(part for table in tables for page in _pages(table) for part in _environments(page))
    return f"{head}{_PREAMBLE}{body}\\end{{document}}\n"


def escape(text: str) -> str:
    """Text that TeX prints as it is; what it has no sign for becomes a question mark.

    Examples
    --------
    >>> print(escape("15 % of σ²"))
    15 \\% of $\\sigma^2$
    """
    signs = re.compile("|".join(re.escape(sign) for sign in sorted(_SPECIAL, key=len, reverse=True)))
    plain = signs.sub(lambda found: _SPECIAL[found.group()], text)
    return re.sub(r"(?<![\d$-])-(?=\d)", "$-$", plain).encode("ascii", "replace").decode()


def _pages(table: Table) -> list[Table]:
    """A table that fits on a page, or the parts of one that does not, a data set each."""
    if len(table.rows) <= _ROWS:
        return [table]
    names = dict.fromkeys(row.dataset for row in table.rows)
    return [replace(table, rows=tuple(row for row in table.rows if row.dataset == name)) for name in names]


def _environments(table: Table) -> list[str]:
    """Ours as the paper prints it, the confidence intervals, and the paper's values beside ours."""

    def interval_of(value: Value, column: Column) -> str:
        return escape(f"{_mean(value)} {interval(value, column)}".strip())

    def beside(value: Value, column: Column) -> str:
        if value.printed is None:
            return escape(_mean(value))
        return escape(f"{_mean(value)} / {printed(value, column)}") + _SIGNS.get(value.tag, "")

    note = f"{table.note} " if table.note else ""
    marks = "Best of all methods in bold, best of the robust by design underlined."
    tags = "$^=$ within 15\\,\\%, $^+$ better, $^{\\neq}$ differs"
    small = r"\scriptsize\setlength{\tabcolsep}{3pt}"
    return [
        _tabular(table, escape(f"{table.title}. {note}{marks}"), lambda value, _: _marked(value), r"\footnotesize"),
        _tabular(table, escape(f"{table.title}: means and their 95 % confidence intervals."), interval_of, small),
        _tabular(table, escape(f"{table.title}: our mean / the paper's value; ") + tags + ".", beside, small),
    ]


def _mean(value: Value) -> str:
    return value.text.split(" ±")[0]


def _tabular(table: Table, caption: str, text: Callable[[Value, Column], str], size: str) -> str:
    width = len(table.columns) + 1
    lines = [r"\begin{table*}[p]", r"\centering", size, rf"\caption{{{caption}}}"]
    lines += [rf"\begin{{tabular}}{{@{{}}l{'r' * (width - 1)}@{{}}}}", r"\toprule"]
    if any(column.condition for column in table.columns):
        lines.append(
            " & ".join(["", *(escape(condition_words(column.condition)) for column in table.columns)]) + r" \\"
        )
    lines.append(" & ".join(["", *(escape(f"{column.label} {column.arrow}") for column in table.columns)]) + r" \\")
    for dataset, rows in table.blocks.items():
        lines += [r"\midrule", rf"\multicolumn{{{width}}}{{@{{}}l}}{{\emph{{{escape(dataset)}}}}} \\"]
        for row in rows:
            values = [text(value, column) for value, column in zip(row.values, table.columns, strict=True)]
            lines.append(" & ".join([escape(row.label), *values]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", r"\end{table*}", ""]
    return "\n".join(lines)


def _marked(value: Value) -> str:
    text = escape(value.text)
    text = rf"\underline{{{text}}}" if value.best_robust else text
    return rf"\textbf{{{text}}}" if value.best else text
