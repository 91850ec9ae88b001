"""What all commands of this package share: how they refuse, which options runs of cells have, how cells are run."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from rose_carla import bench, datasets
from rose_carla._lib.endings import DONE, REFUSED, Said
from rose_carla._lib.files import check_writable
from rose_carla._lib.text import one_line
from rose_carla._lib.threads import n_cores
from rose_carla.bench.backends import Backend, Dask, Local
from rose_carla.bench.layouts import Scope
from rose_carla.bench.results import Experiment
from rose_carla.bench.runner import Finished
from rose_carla.bench.store import Store
from rose_carla.errors import short_repr, unknown_name

#: For whoever stops a run.
KEPT = "Finished cells are kept: the same command goes on from here."
#: More of these is a slip of the hand.
_MOST = {"seeds": 10_000, "jobs": 1024}
#: What ``--quick`` looks at: a look, no result.
_QUICK_PEOPLE, _QUICK_SAMPLES = 10, 100


@dataclass(frozen=True)
class Folder:
    """A folder to write to: it stays where it was when it was typed, whatever methods do to the working directory."""

    typed: str
    path: Path

    @classmethod
    def of(cls, typed: str) -> Folder:
        """What was typed."""
        return cls(str(Path(typed)), Path(typed).absolute())

    def __str__(self) -> str:
        return self.typed


class Parser(argparse.ArgumentParser):
    """A parser that refuses in one sentence, and shows examples as they are written."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and end."""
        sentence = message if message.endswith((".", "?")) else f"{message}."
        self.exit(REFUSED, f"error: {one_line(sentence[:1].upper() + sentence[1:])}\n")

    def exit(self, status: int = DONE, message: str | None = None) -> NoReturn:
        """End as somebody who is no stranger to :func:`.endings.ended`."""
        if message:
            print(message, end="", file=sys.stderr)
        raise Said(status)

    def known(self, kind: str, names: Sequence[str], known: Sequence[str] | Mapping[str, Any]) -> None:
        """Refuse a name that does not exist, with the close match."""
        for name in names:
            if name not in known:
                self.error(unknown_name(kind, name, known))


def run_parser(description: str, name: str, prog: str | None) -> Parser:
    """Options of commands that run cells and write to ``results/<name>``."""
    parser = Parser(
        prog=prog,
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
        "--out", type=Folder.of, default=f"results/{name}", metavar="DIR", help="default results/" + name
    )
    parser.add_argument(
        "--cells",
        type=Folder.of,
        default="results/cells",
        metavar="DIR",
        help="finished cells; default results/cells",
    )
    return parser


def scope_of(parser: Parser, chosen: argparse.Namespace, classifier: str) -> Scope:
    """What was chosen; what is wrong with it is told before any work."""
    parser.known("data set", chosen.datasets, datasets.NAMES)
    parser.known("classifier", [classifier], bench.CLASSIFIERS)
    parser.known("backend", [chosen.backend], ("joblib", "dask"))
    if chosen.backend == "dask" and not chosen.scheduler:
        parser.error("--backend dask needs --scheduler ADDRESS.")
    if chosen.scheduler and chosen.backend != "dask":
        parser.error("--scheduler is for --backend dask.")
    if chosen.jobs is None:
        chosen.jobs = n_cores() if chosen.quick else 1
    for name, most in _MOST.items():
        value = getattr(chosen, name)
        if value < 1:
            parser.error(f"--{name} has to be at least 1, got {value}.")
        if value > most:
            parser.error(f"--{name} has to be at most {most}, got {short_repr(value)}.")
    small = {"people": _QUICK_PEOPLE, "n_samples": _QUICK_SAMPLES} if chosen.quick else {}
    names = tuple(dict.fromkeys(chosen.datasets))
    return Scope(names, classifier, tuple(range(chosen.seeds)), chosen.actionable, **small)


def finished_cells(chosen: argparse.Namespace, experiments: Sequence[Experiment]) -> Finished:
    """All cells of some experiments, computed where they have not been."""
    check_writable(chosen.out.path)
    store = Store(chosen.cells.path)
    backend: Backend = Dask(chosen.scheduler) if chosen.backend == "dask" else Local(chosen.jobs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            judgements = [judgement for experiment in experiments for judgement in experiment.judgements]
            return bench.run(judgements, store, backend, chosen.out.path / "logs")
    finally:
        backend.close()


def failures(finished: Finished) -> list[str]:
    """What failed, in a line each; a judgement of recourse that failed is not told again."""
    return [
        f"{cell.words}: {words}"
        for cell, words in finished.errors.items()
        if isinstance(cell, bench.Recourse) or cell.recourse not in finished.errors
    ]


def about_cells(finished: Finished) -> dict[str, Any]:
    """What a run's file tells about its cells."""
    return {
        "reused": finished.n_reused,
        "all": finished.n_reused + finished.n_run,
        "seconds": round(sum(result.about["cell_seconds"] for result in finished.results.values()), 1),
    }


def plain(chosen: argparse.Namespace) -> dict[str, Any]:
    """Options as JSON can hold them."""
    return {name: str(value) if isinstance(value, Folder) else value for name, value in sorted(vars(chosen).items())}
