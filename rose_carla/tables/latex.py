"""Tables as LaTeX documents: booktabs, and nothing that a basic TeX lacks."""

from __future__ import annotations

import re

from rose_carla.tables.columns import condition_words
from rose_carla.tables.markdown import interval, printed
from rose_carla.tables.table import Column, Table, Value

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
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
    body = "\n".join(part for table in tables for part in (_environment(table), _beside(table)))
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
    return re.sub(r"(?<![\d$])-(?=\d)", "$-$", plain).encode("ascii", "replace").decode()


def _environment(table: Table) -> str:
    """Ours, as the paper prints it."""
    caption = f"{table.title}. {table.note} Best of all methods in bold, best of the robust by design underlined."
    return _tabular(table, caption, lambda value, _: _marked(value), r"\footnotesize")


def _beside(table: Table) -> str:
    """Means with their intervals, and the paper's beside them."""

    def text(value: Value, column: Column) -> str:
        ours = value.text.split(" ±")[0]
        known = f"{ours} {interval(value, column)}".strip()
        theirs = f" / {printed(value, column)}" if value.printed is not None else ""
        return escape(f"{known}{theirs}")

    caption = f"{table.title}: mean with its 95 % confidence interval / the paper's value."
    return _tabular(table, caption, text, r"\scriptsize\setlength{\tabcolsep}{2pt}")


def _tabular(table: Table, caption: str, text: object, size: str) -> str:
    assert callable(text)
    width = len(table.columns) + 1
    lines = [r"\begin{table*}[p]", r"\centering", size, rf"\caption{{{escape(caption)}}}"]
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
