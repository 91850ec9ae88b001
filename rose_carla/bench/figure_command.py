"""The command that makes the figures; ``benchmarks/make_figures.py`` and ``rose-carla figures`` call it."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from rose_carla import plots
from rose_carla._lib.endings import DONE, FAILED, ended, show, tell_failed
from rose_carla._lib.files import write_file
from rose_carla._lib.text import printable
from rose_carla.bench.figure_recipes import RECIPES
from rose_carla.bench.layouts import Scope
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
from rose_carla.bench.results import results_frame
from rose_carla.carla_compat import import_optional
from rose_carla.errors import RoseCarlaError
from tqdm import tqdm


def figures(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Make figures from finished cells, after computing those that are missing."""
    parser = run_parser("The paper's figures and a few more, from runs of this package.", "figures", prog)
    listed = "\n".join(f"  {name:<24}{recipe.description}" for name, recipe in RECIPES.items())
    parser.usage = "%(prog)s [NAME ...] [options]"  # names after --formats would be taken for its own
    parser.epilog = f"figures:\n{listed}\n\n{parser.epilog}"
    parser.add_argument("names", nargs="*", default=list(RECIPES), metavar="NAME", help="default: all of them")
    parser.add_argument(
        "--formats", nargs="+", default=["pdf", "png"], metavar="KIND", help=f"some of {', '.join(plots.FORMATS)}"
    )
    chosen = parser.parse_args(arguments)
    parser.known("figure", chosen.names, RECIPES)
    parser.known("format", chosen.formats, plots.FORMATS)
    scope = scope_of(parser, chosen, "ann")
    return ended(lambda: _run(chosen, scope), KEPT, arguments is None)


def _run(chosen: argparse.Namespace, scope: Scope) -> int:
    """Compute, draw, write; the exit code says whether anything failed."""
    names, started, made_by = list(dict.fromkeys(chosen.names)), time.time(), revision()
    problems: list[str] = []
    made: list[str] = []
    import_optional("matplotlib")
    experiments = {name: RECIPES[name].experiments(scope) for name in names}
    finished = finished_cells(chosen, [each for some in experiments.values() for each in some])
    for name in tqdm(names, "figures", disable=None, leave=False):
        try:
            figure = RECIPES[name].draw(scope, results_frame(experiments[name], finished))
        except RoseCarlaError as error:
            problems.append(f"{name}: {error}")
            continue
        plots.save(figure, chosen.out.path / name, chosen.formats)
        made.append(name)
    problems = failures(finished) + problems
    about = provenance(started, made_by, plain(chosen)) | {"cells": about_cells(finished), "failed": problems}
    write_file(chosen.out.path / "run.json", json.dumps(about, indent=2, ensure_ascii=False) + "\n")
    for name in made:
        show(f"{printable(str(Path(chosen.out.typed) / name))}: {RECIPES[name].description}")
    for words in problems:
        tell_failed(words)
    return FAILED if problems else DONE
