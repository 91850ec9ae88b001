"""Write the files of a run: people, tables in four forms, tests, claims, one HTML page, and where it all comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
from rose_carla import plots
from rose_carla._lib.files import write_file
from rose_carla._lib.text import printable
from rose_carla.bench.comparison import claims, t_tests
from rose_carla.bench.html import Page
from rose_carla.bench.latex import latex
from rose_carla.bench.markdown import frame_markdown, harmless, markdown
from rose_carla.bench.measures import DATASETS, MEASURES, condition_words
from rose_carla.bench.people import tidy_csv
from rose_carla.bench.table import Table
from rose_carla.errors import MissingPackageError

_TESTS = (
    "Welch's test compares all people of both methods; the paired test those who have recourse from both, under the "
    "same noise. The difference is ROSE minus the other, over the pairs."
)
_CLAIM = (
    "The claim: no baseline has both a lower Acc AIR and a lower L1 distance than ROSE-mul, nor both a lower Plausible "
    "AIR and a lower L1 distance than ROSE-one. Means are compared over the people who have recourse from both."
)


def write(
    folder: Path,
    title: str,
    parts: Sequence[tuple[Table, pd.DataFrame]],
    provenance: Mapping[str, Any],
    errors: Sequence[str],
    compared: Sequence[str] = (),
) -> dict[str, pd.DataFrame]:
    """Write everything that a run leaves behind.

    Parameters
    ----------
    parts
        Tables, each with the people that it was made of.
    provenance
        See :func:`.provenance.provenance`.
    errors
        What failed, in sentences.
    compared
        Names of tables whose people are also compared by tests and claims, and drawn.

    Returns
    -------
    dict
        The :func:`.comparison.claims` of the tables that are compared.
    """
    held = {table.name: claims(people) for table, people in parts if table.name in compared and not people.empty}
    origin = f"Made by: {printable(provenance['command'])}\nrevision {provenance['revision']}, {provenance['started']}"
    page = Page(title)
    page.code(origin)
    if errors:
        page.heading("What failed")
        page.items(list(errors))
    for table, people in parts:
        page.table(table)
        text = f"{markdown(table)}\n"
        write_file(folder / f"{table.name}.csv", tidy_csv(table.frame()))
        write_file(folder / f"{table.name}.tex", latex([table], origin))
        write_file(folder / f"{table.name}-people.csv", tidy_csv(people))
        if table.name in held:
            text += _compared(folder, table.name, people, held[table.name], page)
        about = escape(origin, quote=False)  # nothing in it ends the comment
        head = f"<!-- {about} -->\n\n# {harmless(title)}\n\n```\n{printable(provenance['command'])}\n```\n\n"
        failed = "".join(f"- {harmless(words)}\n" for words in errors)
        write_file(folder / f"{table.name}.md", head + (f"## What failed\n\n{failed}\n" if failed else "") + text)
    page.heading("Where this comes from")
    page.code(json.dumps(provenance, indent=2, ensure_ascii=False))
    write_file(folder / "report.html", page.html())
    write_file(folder / "run.json", json.dumps(provenance, indent=2, ensure_ascii=False) + "\n")
    return held


def _compared(folder: Path, name: str, people: pd.DataFrame, held: pd.DataFrame, page: Page) -> str:
    """Tests, claims and figures on the page and in files of their own; what is to be read, as Markdown."""
    text = ""
    if not held.empty:
        page.heading("Is anybody both safer and shorter than ROSE?")
        page.text(_CLAIM)
        page.frame(_told(held))
        write_file(folder / f"{name}-claims.csv", tidy_csv(held))
        text += f"## Is anybody both safer and shorter than ROSE?\n\n{_CLAIM}\n\n{frame_markdown(_told(held))}\n"
    tests = t_tests(people[people["Condition"] == ""])
    if not tests.empty:
        page.heading("Tests")
        page.text(_TESTS)
        page.frame(_formatted(tests))
        write_file(folder / f"{name}-tests.csv", tidy_csv(tests))
        text += f"## Tests\n\n{_TESTS}\n\n{frame_markdown(_formatted(tests))}\n"
    page.heading("Robustness against cost")
    for metric in ("Plausible_AIR", "Acc_AIR"):
        if metric not in people or people[metric].isna().all():
            continue
        try:
            svg = plots.image(plots.frontier(people, metric, DATASETS), "svg").decode()
        except MissingPackageError as error:
            page.text(str(error))
            break
        write_file(folder / f"{name}-{metric.lower().replace('_', '-')}.svg", svg)
        page.figure(svg, f"Mean {MEASURES[metric].label} against mean L1 distance: lower and further left is better.")
    return text


def _told(held: pd.DataFrame) -> pd.DataFrame:
    """Claims for people."""
    return pd.DataFrame(
        {
            "Data set": held["Dataset"].map(DATASETS),
            "ROSE": [f"{row.Ours} {condition_words(row.Condition)}".strip() for row in held.itertuples()],
            "Rate": held["Metric"].map(lambda metric: MEASURES[metric].label),
            "Held": held["Held"].map({True: "yes", False: "no"}),
            "Both safer and shorter": held["Safer and shorter"].replace("", "nobody"),
            "of which beyond chance": held["Beyond chance"].replace("", "nobody"),
        }
    )


def _formatted(tests: pd.DataFrame) -> pd.DataFrame:
    """Tests for people."""

    def p(value: float) -> str:
        return "–" if pd.isna(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"

    return pd.DataFrame(
        {
            "Data set": tests["Dataset"].map(DATASETS),
            "Metric": tests["Metric"].map(lambda metric: MEASURES[metric].label),
            "ROSE": tests["Ours"],
            "Mean": tests["Mean"].map("{:.3f}".format),
            "Against": [f"{row.Other} ({row.As})" if row.As != row.Other else row.Other for row in tests.itertuples()],
            "Its mean": tests["Other mean"].map("{:.3f}".format),
            "Welch p": tests["Welch p"].map(p),
            "Pairs": tests["Pairs"],
            "Difference": tests["Difference"].map("{:+.3f}".format),
            "Paired p": tests["Paired p"].map(p),
            "ROSE better": tests["Better"].map({True: "yes", False: "no"}),
        }
    )
