"""Render tables as plain text, Markdown, LaTeX and HTML (Jinja2 templates), and write the files of a report."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from rose_carla import plots
from rose_carla._lib.files import write_file
from rose_carla.bench.comparison import claims, t_tests
from rose_carla.bench.runner import to_csv
from rose_carla.bench.table import DATASET_TITLES, TABLE_METRICS, Table, format_condition
from rose_carla.errors import MissingPackageError, format_columns, one_line, printable

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"$\sim$", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$",
    "σ²": r"$\sigma^2$", "²": r"$^2$", "σ": r"$\sigma$", "τ": r"$\tau$", "↑": r"$\uparrow$", "↓": r"$\downarrow$",
    "–": "--", "≥": r"$\geq$",
}  # fmt: skip
_LATEX_SPECIAL = re.compile("|".join(re.escape(sign) for sign in sorted(_LATEX, key=len, reverse=True)))
#: Rows that fit on a page; longer tables are split by data set.
_PAGE_ROWS = 40
_CLAIMS = (
    "Does any baseline have both a lower rate and a lower cost than ROSE?",
    "The claim: no baseline has both a lower Acc AIR and a lower L1 distance than ROSE-mul, nor both a lower Plausible "
    "AIR and a lower L1 distance than ROSE-one. Means are compared over the people who have recourse from both.",
)
_TESTS = (
    "Tests",
    "Welch's test compares all people of both methods; the paired test those who have recourse from both, under the "
    "same noise. The difference is ROSE minus the other, over the pairs.",
)


@dataclass(frozen=True)
class Section:
    """A section below a table: heading, explanation, and a frame of formatted text."""

    heading: str
    text: str
    frame: pd.DataFrame


@dataclass(frozen=True)
class Part:
    """A table of a report with its sections and figures."""

    table: Table
    sections: Sequence[Section] = ()
    #: Pairs of an SVG element and its caption; None without a section of figures.
    figures: Sequence[tuple[str, str]] | None = None
    #: Why there are no figures.
    message: str = ""


def escape_latex(text: str) -> str:
    """Escape text for LaTeX; characters without a LaTeX command become question marks.

    Examples
    --------
    >>> print(escape_latex("15 % of σ²"))
    15 \\% of $\\sigma^2$
    """
    escaped = _LATEX_SPECIAL.sub(lambda match: _LATEX[match.group()], text)
    return re.sub(r"(?<![\d$-])-(?=\d)", "$-$", escaped).encode("ascii", "replace").decode()


def escape_markdown(text: object) -> str:
    """Escape text for one line of Markdown or a cell of its tables; ``<`` before a space does not start a tag.

    Examples
    --------
    >>> escape_markdown("mine:<b>|"), escape_markdown("p < 0.001")
    ('mine:&lt;b&gt;\\\\|', 'p < 0.001')
    """
    escaped = one_line(text).replace("&", "&amp;").replace(">", "&gt;").replace("|", "\\|")
    return re.sub("<(?! )", "&lt;", escaped)


@functools.lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    """Return the environment of all templates; HTML is escaped automatically, the others by filters."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(md=escape_markdown, tex=escape_latex)
    environment.globals["zip"] = zip
    return environment


@functools.lru_cache(maxsize=1)
def _latex_environment() -> jinja2.Environment:
    """Return an environment with other delimiters: LaTeX uses braces and ``{%`` itself."""
    return _environment().overlay(
        block_start_string="<%", block_end_string="%>", variable_start_string="<<", variable_end_string=">>"
    )


def render_html(
    title: str, origin: str, parts: Sequence[Part], errors: Sequence[str] = (), provenance: str = ""
) -> str:
    """Render a report as one HTML page without scripts or other files."""
    template = _environment().get_template("report.html.j2")
    return template.render(title=title, origin=origin, parts=parts, errors=errors, provenance=provenance)


def render_markdown(title: str, origin: str, command: str, part: Part, errors: Sequence[str] = ()) -> str:
    """Render a table and its sections as Markdown; ``command`` is shown as a code block."""
    template = _environment().get_template("table.md.j2")
    return template.render(title=title, origin=origin, command=command, part=part, errors=errors)


def render_latex(tables: Sequence[Table], origin: str) -> str:
    """Render tables as a LaTeX document; each of its table environments can be copied into a paper.

    Parameters
    ----------
    origin
        Provenance of the numbers, for a comment at the top.
    """
    pages: list[Table] = []
    for table in tables:
        groups = {row.dataset if len(table.rows) > _PAGE_ROWS else "": None for row in table.rows}
        pages += [
            replace(table, rows=tuple(row for row in table.rows if not dataset or row.dataset == dataset))
            for dataset in groups
        ]
    return _latex_environment().get_template("table.tex.j2").render(pages=pages, origin=origin)


def render_text(table: Table) -> str:
    """Render a table for the terminal: ``*`` is best of all, ``_`` best of the methods that are robust by design."""
    heads = [["", *(column.label for column in table.columns)]]
    if any(column.condition for column in table.columns):
        heads.insert(0, ["", *(column.condition_label for column in table.columns)])
    cells = [
        [row.label, *(value.text + "*" * value.best + "_" * value.best_robust for value in row.values)]
        for row in table.rows
    ]
    aligned = iter(format_columns([*heads, *cells]).splitlines())
    lines = [table.title, *itertools.islice(aligned, len(heads))]
    for dataset, rows in table.blocks.items():
        lines += [dataset, *itertools.islice(aligned, len(rows))]
    if any(value.best for row in table.rows for value in row.values):
        lines += ["", "* best of all methods, _ best of those that are robust by design"]
    return "\n".join([*lines, ""])


def write_report(
    folder: Path,
    title: str,
    tables: Sequence[tuple[Table, pd.DataFrame]],
    provenance: Mapping[str, Any],
    errors: Sequence[str],
    compared: Sequence[str] = (),
) -> dict[str, pd.DataFrame]:
    """Write the files of a run: CSV, Markdown and LaTeX for each table, one HTML page, and ``run.json``.

    Parameters
    ----------
    tables
        Tables with their results frames.
    provenance
        See :func:`.provenance.provenance`.
    errors
        Messages of failed cells.
    compared
        Names of the tables that also get tests, claims and figures.

    Returns
    -------
    dict
        The :func:`.comparison.claims` of the tables that are compared.
    """
    command, about = printable(provenance["command"]), json.dumps(provenance, indent=2, ensure_ascii=False)
    origin = f"Made by: {command}\nrevision {provenance['revision']}, {provenance['started']}"
    checked, parts = {}, []
    for table, results in tables:
        part = Part(table)
        if table.name in compared and not results.empty:
            checked[table.name] = claims(results)
            part = _compare(folder, table, results, checked[table.name])
        parts.append(part)
        write_file(folder / f"{table.name}.csv", to_csv(table.frame()))
        write_file(folder / f"{table.name}-people.csv", to_csv(results))
        write_file(folder / f"{table.name}.tex", render_latex([table], origin))
        write_file(folder / f"{table.name}.md", render_markdown(title, origin, command, part, errors))
    write_file(folder / "report.html", render_html(title, origin, parts, errors, about))
    write_file(folder / "run.json", f"{about}\n")
    return checked


def _compare(folder: Path, table: Table, results: pd.DataFrame, checked: pd.DataFrame) -> Part:
    """Write tests, claims and figures of a table to files of their own, and return them for its report."""
    tests = t_tests(results[results["Condition"] == ""])
    sections, figures, message = [], [], ""
    for name, frame, texts, formatter in (
        ("claims", checked, _CLAIMS, _format_claims),
        ("tests", tests, _TESTS, _format_tests),
    ):
        if not frame.empty:
            sections.append(Section(*texts, formatter(frame)))
            write_file(folder / f"{table.name}-{name}.csv", to_csv(frame))
    try:
        for metric in ("Plausible_AIR", "Acc_AIR"):
            if metric in results and results[metric].notna().any():
                svg = plots.image(plots.frontier(results, metric, DATASET_TITLES), "svg").decode()
                write_file(folder / f"{table.name}-{metric.lower().replace('_', '-')}.svg", svg)
                caption = f"Mean {plots.RATES[metric]} against mean L1 distance: lower and further left is better."
                figures.append((svg[svg.index("<svg") :], caption))  # without the XML declaration
    except MissingPackageError as error:
        message = str(error)
    return Part(table, sections, figures, message)


def _format_claims(checked: pd.DataFrame) -> pd.DataFrame:
    variants = zip(checked["Ours"], checked["Condition"], strict=True)
    return pd.DataFrame(
        {
            "Data set": checked["Dataset"].map(DATASET_TITLES),
            "ROSE": [f"{method} {format_condition(condition)}".strip() for method, condition in variants],
            "Rate": checked["Metric"].map(lambda metric: TABLE_METRICS[metric].label),
            "Claim holds": checked["Held"].map({True: "yes", False: "no"}),
            "Both lower": checked["Safer and shorter"].replace("", "none"),
            "of which significant": checked["Beyond chance"].replace("", "none"),
        }
    )


def _format_tests(tests: pd.DataFrame) -> pd.DataFrame:
    def format_p(value: float) -> str:
        return "–" if pd.isna(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"

    others = zip(tests["Other"], tests["As"], strict=True)
    return pd.DataFrame(
        {
            "Data set": tests["Dataset"].map(DATASET_TITLES),
            "Metric": tests["Metric"].map(lambda metric: TABLE_METRICS[metric].label),
            "ROSE": tests["Ours"],
            "Mean": tests["Mean"].map("{:.3f}".format),
            "Against": [f"{name} ({role})" if role != name else name for name, role in others],
            "Its mean": tests["Other mean"].map("{:.3f}".format),
            "Welch p": tests["Welch p"].map(format_p),
            "Pairs": tests["Pairs"],
            "Difference": tests["Difference"].map("{:+.3f}".format),
            "Paired p": tests["Paired p"].map(format_p),
            "ROSE better": tests["Better"].map({True: "yes", False: "no"}),
        }
    )
