"""The two commands that make the paper's tables; ``benchmarks/`` has a script for each."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
from rose_carla import bench
from rose_carla._lib.endings import DONE, FAILED, ended, show, tell_failed
from rose_carla._lib.text import printable
from rose_carla.bench import layouts
from rose_carla.bench.layouts import TableSpec, classifiers
from rose_carla.bench.options import (
    KEPT,
    about_cells,
    failures,
    finished_cells,
    plain,
    run_parser,
    scope_of,
)
from rose_carla.bench.provenance import provenance, revision
from rose_carla.bench.render import render_text, write_report
from rose_carla.bench.results import experiment_errors, results_frame
from rose_carla.bench.runner import Finished
from rose_carla.bench.table import DATASET_TITLES, Table, build_table, format_condition
from rose_carla.errors import RoseCarlaError

_APPENDIX = {
    "rose-one": layouts.rose_one,
    "rose-mul": layouts.rose_mul,
    "plausible": layouts.plausible,
    "accumulated": layouts.accumulated,
    "units": layouts.units,
    "linear": layouts.linear,
    "frontier": layouts.frontier,
}
_CLASSIFIERS = "classifiers"
_PARTS = (*_APPENDIX, _CLASSIFIERS)


def table_1(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """``run_table1.py``: the paper's Table 1."""
    parser = run_parser("The paper's Table 1: three data sets, nine methods, eight metrics.", "table1", prog)
    parser.add_argument(
        "--methods",
        nargs="+",
        default=list(bench.TABLE_1),
        metavar="NAME",
        help="default: all nine; your own as module:Class",
    )
    parser.add_argument("--classifier", default="ann", metavar="KIND", help="ann (default) or linear")
    chosen = parser.parse_args(arguments)
    for method in chosen.methods:
        try:
            bench.entry(method)
        except RoseCarlaError as error:
            parser.error(str(error))
    scope = scope_of(parser, chosen, chosen.classifier)
    spec = layouts.table_1(scope, tuple(dict.fromkeys(chosen.methods)))
    return ended(lambda: _run(chosen, "ROSE: the paper's Table 1", [spec], ("table1",)), KEPT, arguments is None)


def appendix(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """``run_appendix.py``: the tables of the paper's appendix, and the frontier."""
    parser = run_parser("The tables of the paper's appendix, and robustness against cost.", "appendix", prog)
    parser.usage = "%(prog)s [PART ...] [options]"  # parts after --datasets would be taken for its own
    parser.add_argument(
        "parts", nargs="*", default=list(_PARTS), metavar="PART", help=f"some of {', '.join(_PARTS)}; default: all"
    )
    chosen = parser.parse_args(arguments)
    parser.known("part", chosen.parts, _PARTS)
    scope = scope_of(parser, chosen, "ann")
    specs = [_APPENDIX[part](scope) for part in dict.fromkeys(chosen.parts) if part in _APPENDIX]
    further = [lambda: classifiers(scope)] if _CLASSIFIERS in chosen.parts else []
    title = "ROSE: the tables of the paper's appendix"
    return ended(lambda: _run(chosen, title, specs, ("frontier", "linear"), further), KEPT, arguments is None)


def _run(
    chosen: argparse.Namespace,
    title: str,
    specs: Sequence[TableSpec],
    compared: Sequence[str],
    further: Sequence[Callable[[], tuple[Table, pd.DataFrame]]] = (),
) -> int:
    """Run the cells of all tables, write and show the tables; the exit code says whether any cell failed."""
    started, made_by = time.time(), revision()
    finished = finished_cells(chosen, [each for spec in specs for each in spec.experiments])
    parts = [*(_part(spec, finished, chosen.datasets) for spec in specs), *(make() for make in further)]
    failed = failures(finished)
    about = provenance(started, made_by, plain(chosen)) | {
        "cells": about_cells(finished),
        "failed": failed,
        "hyperparameters": _hyperparameters(finished),
    }
    held = write_report(chosen.out.path, title, parts, about, failed, compared)
    for table, _ in parts:
        show(render_text(table))
        if table.name in held:
            show(_verdict(held[table.name]))
    show(
        f"Written to {printable(str(chosen.out))}/ after {time.time() - started:.0f} s; of "
        f"{finished.n_reused + finished.n_run} cells {finished.n_reused} had been finished before."
    )
    for words in failed:
        tell_failed(words)
    return FAILED if failed else DONE


def _part(spec: TableSpec, finished: Finished, names: Sequence[str]) -> tuple[Table, pd.DataFrame]:
    frame = results_frame(spec.experiments, finished)
    return build_table(
        spec.layout, frame, list(dict.fromkeys(names)), experiment_errors(spec.experiments, finished)
    ), frame


def _hyperparameters(finished: Finished) -> dict[str, Any]:
    """Of each method as the tables have it."""
    found: dict[str, Any] = {}
    for cell, result in finished.results.items():
        if isinstance(cell, bench.Recourse) and not cell.options and cell.method not in found:
            found[cell.method] = {k: v for k, v in result.about["hyperparameters"].items() if k != "seed"}
    return found


def _verdict(held: pd.DataFrame) -> str:
    """Whether anybody is both safer and shorter than ROSE, in a sentence for each data set and variant."""
    lines = []
    for row in held.itertuples():
        who = f"{row.Ours} {format_condition(row.Condition)}".strip()
        metric = row.Metric.replace("_", " ")
        if row.Held:
            lines.append(
                f"{DATASET_TITLES[row.Dataset]}: no baseline has both a lower {metric} and a lower L1 than {who}."
            )
        else:
            sure = f", beyond chance: {row[7]}" if row[7] else ", none of them beyond chance"
            lines.append(f"{DATASET_TITLES[row.Dataset]}: the claim fails for {who}: {row[6]} ({metric} and L1){sure}.")
    return "\n".join(lines) + "\n"
