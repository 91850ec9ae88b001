"""The commands ``rose-carla table1``, ``appendix`` and ``figures``; the scripts in ``benchmarks/`` call them."""

from __future__ import annotations

import functools
import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import joblib
import pandas as pd
from rose_carla import bench, plots
from rose_carla import datasets as data_sets
from rose_carla._lib.files import check_writable, write_file
from rose_carla.bench import layouts
from rose_carla.bench.engine import Dask, Engine, Local
from rose_carla.bench.figure_recipes import RECIPES
from rose_carla.bench.layouts import Scope, TableSpec, classifiers
from rose_carla.bench.provenance import provenance, revision
from rose_carla.bench.render import render_text, write_report
from rose_carla.bench.runner import Experiment, Finished, Store, experiment_errors, results_frame
from rose_carla.bench.table import DATASET_TITLES, Table, build_table, format_condition
from rose_carla.carla_compat import import_optional
from rose_carla.cli import console, options
from rose_carla.cli.inputs import find_method
from rose_carla.cli.options import Command, NameType, WordsOption
from rose_carla.errors import RoseCarlaError, printable
from tqdm import tqdm

_RESUME = "Finished cells are kept: the same command continues where it stopped."
#: Sizes of ``--quick``.
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


@dataclass(frozen=True)
class BenchRun:
    """Options of a command that computes cells."""

    #: Data sets, seeds and sizes.
    scope: Scope
    #: The folder for results, as typed.
    out: str
    #: Absolute paths of the folders: methods may change the working directory.
    out_path: Path
    cells: Path
    #: Where cells are computed.
    jobs: int
    scheduler: str | None
    #: All options, for ``run.json``.
    settings: dict[str, Any]

    def compute(self, experiments: Sequence[Experiment]) -> Finished:
        """Return all cells of some experiments; those that are not stored are computed."""
        check_writable(self.out_path)
        store = Store(self.cells)
        engine: Engine = Dask(self.scheduler) if self.scheduler else Local(self.jobs)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                judgements = [judgement for each in experiments for judgement in each.judgements]
                return bench.run(judgements, store, engine, self.out_path / "logs")
        except KeyboardInterrupt as error:
            raise console.Interrupted(_RESUME) from error
        finally:
            engine.close()


def run_options(folder: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Add the options of commands that compute cells; the command gets a :class:`BenchRun` as ``run``."""
    names = {"cls": WordsOption, "type": NameType("data set", data_sets.NAMES), "default": data_sets.NAMES}
    count = {"type": click.IntRange(1, 10_000), "metavar": "N"}
    quick = f"{_QUICK_PEOPLE} people and {_QUICK_SAMPLES} samples: a preview only"
    jobs = "cells computed in parallel; default 1, for comparable times, or all cores with --quick"
    backends = NameType("backend", ("local", "dask"))
    params: dict[str, dict[str, Any]] = {
        "datasets": {**names, "metavar": "NAME ...", "help": "default: all three"},
        "seeds": {**count, "default": 1, "help": "use seeds 0 to N-1; default 1"},
        "quick": {"is_flag": True, "help": quick},
        "actionable": {"is_flag": True, "help": "keep immutable features; the paper changes all"},
        "noise_per": options.NOISE_PER_OPTION,
        "jobs": {**count, "type": click.IntRange(1, 1024), "help": jobs},
        "backend": {"type": backends, "default": "local", "help": "local (default) or dask"},
        "scheduler": {"metavar": "ADDRESS", "help": "of the Dask cluster, such as tcp://10.0.0.1:8786"},
        "out": {"default": f"results/{folder}", "metavar": "DIR", "help": f"default results/{folder}"},
        "cells": {"default": "results/cells", "metavar": "DIR", "help": "stored cells; default results/cells"},
    }

    def decorate(func: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(func)
        def command(**chosen: Any) -> int:
            further = {name: value for name, value in chosen.items() if name not in params}
            return func(run=_bench_run(chosen), **further)

        for name, attributes in reversed(params.items()):
            command = click.option(f"--{name.replace('_', '-')}", **attributes)(command)
        return command

    return decorate


def _bench_run(params: dict[str, Any]) -> BenchRun:
    if params["backend"] == "dask" and not params["scheduler"]:
        raise console.CommandError("--backend dask requires --scheduler ADDRESS.")
    if params["backend"] != "dask" and params["scheduler"]:
        raise console.CommandError("--scheduler requires --backend dask.")
    jobs = params["jobs"] or (joblib.cpu_count() if params["quick"] else 1)
    sizes: dict[str, Any] = {"people": _QUICK_PEOPLE, "n_samples": _QUICK_SAMPLES} if params["quick"] else {}
    names, seeds = tuple(dict.fromkeys(params["datasets"])), tuple(range(params["seeds"]))
    scope = Scope(names, params.get("classifier", "ann"), seeds, params["actionable"], noise_per=params["noise_per"])
    scope = replace(scope, closed_loop=params.get("closed_loop", False), **sizes)
    out, cells = (Path(params[name]).absolute() for name in ("out", "cells"))
    settings = {name: list(value) if isinstance(value, tuple) else value for name, value in sorted(params.items())}
    return BenchRun(scope, params["out"], out, cells, jobs, params["scheduler"], {**settings, "jobs": jobs})


_CLOSED_LOOP_OPTION = click.option(
    "--closed-loop",
    is_flag=True,
    help="add the closed-loop AIR to Table 1 and to the frontier: methods are asked again, which takes much longer",
)


@click.command(cls=Command, epilog=f"{_RESUME}\n")
@click.option(
    "--methods",
    cls=WordsOption,
    default=bench.TABLE_1,
    metavar="NAME ...",
    help="default: all nine; also ROAR, ARAR, ROSE-one-plain, ROSE-mul-plain, or your own as module:Class",
)
@click.option(
    "--classifier",
    type=NameType("classifier", bench.CLASSIFIERS),
    default="ann",
    metavar="KIND",
    help="ann (default) or linear",
)
@_CLOSED_LOOP_OPTION
@run_options("table1")
def table1(run: BenchRun, methods: tuple[str, ...], classifier: str, closed_loop: bool) -> int:
    """Compute the paper's Table 1: three data sets, nine methods, eight metrics."""
    for method in methods:
        find_method(method)
    spec = layouts.table_1(run.scope, tuple(dict.fromkeys(methods)))
    return _make_tables(run, "ROSE: the paper's Table 1", [spec], ("table1",))


@click.command(cls=Command, epilog=f"{_RESUME}\n")
@click.argument("parts", nargs=-1, type=NameType("part", _PARTS), metavar="[PART ...]")
@_CLOSED_LOOP_OPTION
@run_options("appendix")
def appendix(run: BenchRun, parts: tuple[str, ...], closed_loop: bool) -> int:
    """Compute the tables of the paper's appendix, and robustness against cost (frontier).

    Parts: rose-one, rose-mul, plausible, accumulated, units, linear, frontier, classifiers; default: all.
    """
    parts = tuple(dict.fromkeys(parts or _PARTS))
    specs = [_APPENDIX[part](run.scope) for part in parts if part in _APPENDIX]
    further = [lambda: classifiers(run.scope)] if _CLASSIFIERS in parts else []
    return _make_tables(run, "ROSE: the tables of the paper's appendix", specs, ("frontier", "linear"), further)


def _make_tables(
    run: BenchRun,
    title: str,
    specs: Sequence[TableSpec],
    compared: Sequence[str],
    further: Sequence[Callable[[], tuple[Table, pd.DataFrame]]] = (),
) -> int:
    """Compute the cells of all tables, write and print the tables."""
    started, made_by = time.time(), revision()
    finished = run.compute([each for spec in specs for each in spec.experiments])
    parts = [_build(spec, finished, run.scope.datasets) for spec in specs]
    parts += [make() for make in further]
    failed = _failures(finished)
    about = _provenance(run, started, made_by, finished, failed) | {"hyperparams": _hyperparams(finished)}
    held = write_report(run.out_path, title, parts, about, failed, compared)
    for table, _ in parts:
        console.echo(render_text(table))
        if table.name in held:
            console.echo(_format_claims(held[table.name]))
    console.echo(
        f"Written to {printable(run.out)}/ after {time.time() - started:.0f} s; "
        f"{finished.n_reused} of {finished.n_reused + finished.n_run} cells were stored before."
    )
    for text in failed:
        console.report_failure(text)
    return console.FAILED if failed else console.DONE


def _build(spec: TableSpec, finished: Finished, names: Sequence[str]) -> tuple[Table, pd.DataFrame]:
    frame = results_frame(spec.experiments, finished)
    return build_table(spec.layout, frame, list(names), experiment_errors(spec.experiments, finished)), frame


def _failures(finished: Finished) -> list[str]:
    """Return one line per failure; evaluations of failed recourse are left out."""
    return [
        f"{cell.description}: {text}"
        for cell, text in finished.errors.items()
        if isinstance(cell, bench.Recourse) or cell.recourse not in finished.errors
    ]


def _provenance(
    run: BenchRun, started: float, made_by: str, finished: Finished, failed: Sequence[str]
) -> dict[str, Any]:
    cells = {
        "reused": finished.n_reused,
        "all": finished.n_reused + finished.n_run,
        "seconds": round(sum(result.about["cell_seconds"] for result in finished.results.values()), 1),
    }
    return provenance(started, made_by, run.settings) | {"cells": cells, "failed": list(failed)}


def _hyperparams(finished: Finished) -> dict[str, Any]:
    """Return the hyper-parameters of each method in the tables."""
    found: dict[str, Any] = {}
    for cell, result in finished.results.items():
        if isinstance(cell, bench.Recourse) and not cell.options and cell.method not in found:
            found[cell.method] = {k: v for k, v in result.about["hyperparams"].items() if k != "seed"}
    return found


def _format_claims(claims: pd.DataFrame) -> str:
    """Format the paper's claim, one sentence for each data set and variant of ROSE."""
    lines = []
    for row in claims.to_dict("records"):
        ours = f"{row['Ours']} {format_condition(row['Condition'])}".strip()
        metric, title = row["Metric"].replace("_", " "), DATASET_TITLES[row["Dataset"]]
        if row["Held"]:
            lines.append(f"{title}: no baseline has both a lower {metric} and a lower L1 than {ours}.")
            continue
        significant = row["Beyond chance"]
        tested = f"significant: {significant}" if significant else "none of them significant"
        lines.append(f"{title}: the claim fails for {ours}: {row['Safer and shorter']} ({metric} and L1), {tested}.")
    return "\n".join(lines) + "\n"


_FIGURES = "\n".join(f"  {name:<24}{recipe.description}" for name, recipe in RECIPES.items())


@click.command(cls=Command, epilog=f"Figures:\n{_FIGURES}\n\n{_RESUME}\n")
@click.argument("names", nargs=-1, type=NameType("figure", RECIPES), metavar="[NAME ...]")
@click.option(
    "--formats",
    cls=WordsOption,
    type=NameType("format", plots.FORMATS),
    default=("pdf", "png"),
    metavar="KIND ...",
    help=f"some of {', '.join(plots.FORMATS)}; default pdf png",
)
@run_options("figures")
def figures(run: BenchRun, names: tuple[str, ...], formats: tuple[str, ...]) -> int:
    """Draw the paper's figures and a few more, from runs of this package; default: all."""
    started, made_by = time.time(), revision()
    import_optional("matplotlib")
    experiments = {name: RECIPES[name].experiments(run.scope) for name in names or RECIPES}
    finished = run.compute([each for some in experiments.values() for each in some])
    failed, drawn = _failures(finished), []
    for name in tqdm(experiments, "figures", disable=None, leave=False):
        try:
            figure = RECIPES[name].draw(run.scope, results_frame(experiments[name], finished))
        except RoseCarlaError as error:
            failed.append(f"{name}: {error}")
            continue
        plots.save(figure, run.out_path / name, formats)
        drawn.append(name)
    about = _provenance(run, started, made_by, finished, failed)
    write_file(run.out_path / "run.json", json.dumps(about, indent=2, ensure_ascii=False) + "\n")
    for name in drawn:
        console.echo(f"{printable(str(Path(run.out) / name))}: {RECIPES[name].description}")
    for text in failed:
        console.report_failure(text)
    return console.FAILED if failed else console.DONE
