"""The two commands that make the paper's tables; ``benchmarks/`` has a script for each."""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rose_carla import datasets, experiments
from rose_carla.errors import RoseCarlaError, unknown_name
from rose_carla.experiments import Backend, Dask, Finished, Local, Store
from rose_carla.noise.threads import n_cores
from rose_carla.tables import layouts, report
from rose_carla.tables.classifiers import classifiers
from rose_carla.tables.columns import DATASETS, condition_words
from rose_carla.tables.layouts import Plan, Scope
from rose_carla.tables.people import Point, errors, people
from rose_carla.tables.provenance import provenance, revision
from rose_carla.tables.table import Table, build
from rose_carla.tables.terminal import shown

#: Exit codes: all is well, some cell failed, the command cannot be run as asked.
DONE, FAILED, REFUSED = 0, 1, 2
#: What ``--quick`` looks at: a look, no result.
_QUICK_PEOPLE, _QUICK_SAMPLES = 10, 100
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


def table_1(arguments: Sequence[str] | None = None) -> int:
    """``run_table1.py``: the paper's Table 1."""
    parser = _parser("The paper's Table 1: three data sets, nine methods, eight metrics.", "table1")
    parser.add_argument(
        "--methods",
        nargs="+",
        default=list(experiments.TABLE_1),
        metavar="NAME",
        help="default: all nine; your own as module:Class",
    )
    parser.add_argument("--classifier", default="ann", metavar="KIND", help="ann (default) or linear")
    chosen = parser.parse_args(arguments)
    sys.path.insert(0, os.getcwd())  # where people keep a method of their own
    for method in chosen.methods:
        try:
            experiments.entry(method)
        except RoseCarlaError as error:
            parser.error(str(error))
    scope = _scope(parser, chosen, chosen.classifier)
    plan = layouts.table_1(scope, tuple(dict.fromkeys(chosen.methods)))
    return _run(chosen, "ROSE: the paper's Table 1", [plan], ("table1",))


def appendix(arguments: Sequence[str] | None = None) -> int:
    """``run_appendix.py``: the tables of the paper's appendix, and the frontier."""
    parser = _parser("The tables of the paper's appendix, and robustness against cost.", "appendix")
    parser.add_argument(
        "parts", nargs="*", default=list(_PARTS), metavar="PART", help=f"some of {', '.join(_PARTS)}; default: all"
    )
    chosen = parser.parse_args(arguments)
    _known(parser, "part", chosen.parts, _PARTS)
    scope = _scope(parser, chosen, "ann")
    plans = [_APPENDIX[part](scope) for part in dict.fromkeys(chosen.parts) if part in _APPENDIX]
    further = [lambda: classifiers(scope)] if _CLASSIFIERS in chosen.parts else []
    return _run(chosen, "ROSE: the tables of the paper's appendix", plans, ("frontier", "linear"), further)


def _parser(description: str, name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description,
        epilog="Finished cells are kept: after an interruption the same command goes on where it stopped.",
    )
    parser.add_argument(
        "--datasets", nargs="+", default=list(datasets.NAMES), metavar="NAME", help="default: all three"
    )
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="repeat with seeds 0 to N-1; default 1")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{_QUICK_PEOPLE} people and {_QUICK_SAMPLES} samples: a look, no result",
    )
    parser.add_argument("--actionable", action="store_true", help="keep immutable features; the paper changes all")
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="cells side by side; default 1, which is what makes times comparable, or all cores with --quick",
    )
    parser.add_argument("--backend", default="joblib", metavar="NAME", help="joblib (default) or dask")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of the Dask cluster, such as tcp://10.0.0.1:8786")
    parser.add_argument(
        "--out", type=Path, default=Path("results") / name, metavar="DIR", help="default results/" + name
    )
    parser.add_argument(
        "--cells",
        type=Path,
        default=Path("results") / "cells",
        metavar="DIR",
        help="finished cells; default results/cells",
    )
    return parser


def _known(
    parser: argparse.ArgumentParser, kind: str, names: Sequence[str], known: Sequence[str] | Mapping[str, Any]
) -> None:
    for name in names:
        if name not in known:
            parser.error(unknown_name(kind, name, known))


def _scope(parser: argparse.ArgumentParser, chosen: argparse.Namespace, classifier: str) -> Scope:
    """What is wrong with the options is told before any work."""
    _known(parser, "data set", chosen.datasets, datasets.NAMES)
    _known(parser, "classifier", [classifier], experiments.CLASSIFIERS)
    _known(parser, "backend", [chosen.backend], ("joblib", "dask"))
    if chosen.backend == "dask" and not chosen.scheduler:
        parser.error("--backend dask needs --scheduler ADDRESS.")
    if chosen.scheduler and chosen.backend != "dask":
        parser.error("--scheduler is for --backend dask.")
    if chosen.seeds < 1:
        parser.error(f"--seeds has to be at least 1, got {chosen.seeds}.")
    if chosen.jobs is None:
        chosen.jobs = n_cores() if chosen.quick else 1
    if chosen.jobs < 1:
        parser.error(f"--jobs has to be at least 1, got {chosen.jobs}.")
    small = {"people": _QUICK_PEOPLE, "n_samples": _QUICK_SAMPLES} if chosen.quick else {}
    names = tuple(dict.fromkeys(chosen.datasets))
    return Scope(names, classifier, tuple(range(chosen.seeds)), chosen.actionable, **small)


def _run(
    chosen: argparse.Namespace,
    title: str,
    plans: Sequence[Plan],
    compared: Sequence[str],
    further: Sequence[Callable[[], tuple[Table, pd.DataFrame]]] = (),
) -> int:
    """Run the cells of all tables, write and show the tables; the exit code says whether any cell failed."""
    started, made_by = time.time(), revision()
    try:
        finished = _finished(chosen, [point for plan in plans for point in plan.points])
        parts = [*(_part(plan, finished, chosen.datasets) for plan in plans), *(make() for make in further)]
        failed = [
            f"{cell.words}: {words}"
            for cell, words in finished.errors.items()
            if isinstance(cell, experiments.Recourse) or cell.recourse not in finished.errors
        ]
        settings = {
            name: str(value) if isinstance(value, Path) else value for name, value in sorted(vars(chosen).items())
        }
        about = provenance(started, made_by, settings) | {
            "cells": {
                "reused": finished.n_reused,
                "all": finished.n_reused + finished.n_run,
                "seconds": round(sum(result.about["cell_seconds"] for result in finished.results.values()), 1),
            },
            "failed": failed,
            "hyperparameters": _hyperparameters(finished),
        }
        held = report.write(chosen.out, title, parts, about, failed, compared)
    except RoseCarlaError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("\nStopped. Finished cells are kept: the same command goes on from here.", file=sys.stderr)
        return 130
    for table, _ in parts:
        print(shown(table))
        if table.name in held:
            print(_verdict(held[table.name]))
    print(
        f"Written to {chosen.out}/ after {time.time() - started:.0f} s; of {finished.n_reused + finished.n_run} cells "
        f"{finished.n_reused} had been finished before."
    )
    for words in failed:
        print(f"failed: {words}", file=sys.stderr)
    return FAILED if failed else DONE


def _finished(chosen: argparse.Namespace, points: Sequence[Point]) -> Finished:
    store = Store(chosen.cells)
    backend: Backend = Dask(chosen.scheduler) if chosen.backend == "dask" else Local(chosen.jobs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            judgements = [judgement for point in points for judgement in point.judgements]
            return experiments.run(judgements, store, backend, chosen.out / "logs")
    finally:
        backend.close()


def _part(plan: Plan, finished: Finished, names: Sequence[str]) -> tuple[Table, pd.DataFrame]:
    frame = people(plan.points, finished)
    return build(plan.layout, frame, list(dict.fromkeys(names)), errors(plan.points, finished)), frame


def _hyperparameters(finished: Finished) -> dict[str, Any]:
    """Of each method as the tables have it."""
    found: dict[str, Any] = {}
    for cell, result in finished.results.items():
        if isinstance(cell, experiments.Recourse) and not cell.options and cell.method not in found:
            found[cell.method] = {k: v for k, v in result.about["hyperparameters"].items() if k != "seed"}
    return found


def _verdict(held: pd.DataFrame) -> str:
    """Whether anybody is both safer and shorter than ROSE, in a sentence for each data set and variant."""
    lines = []
    for row in held.itertuples():
        who = f"{row.Ours} {condition_words(row.Condition)}".strip()
        metric = row.Metric.replace("_", " ")
        if row.Held:
            lines.append(f"{DATASETS[row.Dataset]}: no baseline has both a lower {metric} and a lower L1 than {who}.")
        else:
            sure = f", beyond chance: {row[7]}" if row[7] else ", none of them beyond chance"
            lines.append(f"{DATASETS[row.Dataset]}: the claim fails for {who}: {row[6]} ({metric} and L1){sure}.")
    return "\n".join(lines) + "\n"
