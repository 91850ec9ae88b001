"""Run what is missing of a table: finished cells are reused, every new one is kept as soon as it is finished."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rose_carla._lib.files import check_writable, write_file
from rose_carla._lib.text import one_line
from rose_carla.bench.backends import Backend, Job
from rose_carla.bench.cells import Cell, Judgement, Recourse, Result
from rose_carla.bench.store import Store, file_name
from rose_carla.bench.work import Outcome
from tqdm import tqdm

#: Seconds that cells take, roughly, on two cores: they shape the estimate of the time left and nothing else.
_SIZE = {"german": 1.0, "adult": 1.5, "compas": 0.3}
_TYPICAL = {"CoGS": 60.0, "ROSE-mul": 70.0, "DiCE": 60.0, "ROSE-one": 8.0, "FastAR": 8.0, "Acc_AIR": 25.0}


@dataclass(frozen=True)
class Finished:
    """All cells that were asked for.

    Parameters
    ----------
    results
        Of those that succeeded.
    errors
        What the others failed of, in one line each.
    n_reused, n_run
        How many had been finished before, and how many had not.
    """

    results: Mapping[Cell, Result]
    errors: Mapping[Cell, str]
    n_reused: int
    n_run: int


def run(
    judgements: Iterable[Judgement], store: Store, backend: Backend, logs: Path | None = None, progress: bool = True
) -> Finished:
    """Generate and judge what has not been yet.

    Parameters
    ----------
    judgements
        What is wanted; the recourse they judge is generated first.
    store
        Where finished cells are looked for and kept.
    backend
        Where cells run. With one that runs them alone, recourse that was generated beside other cells is generated
        again, for its time.
    logs
        Folder for a log file of each cell that is run.
    progress
        Show a bar with the time left.

    Raises
    ------
    ExperimentError
        If finished cells cannot be kept. Those that were kept stay, and the same call goes on from there.
    """
    wanted = list(dict.fromkeys(judgements))
    sources = list(dict.fromkeys(cell.recourse for cell in wanted))
    everything: list[Cell] = [*sources, *wanted]
    found = {cell: result for cell in everything if (result := store.find(cell)) is not None}
    results: dict[Cell, Result] = {cell: result for cell, result in found.items() if _reusable(cell, result, backend)}
    missing = [cell for cell in everything if cell not in results]
    store.check_writable(missing)
    if missing and logs is not None:
        check_writable(logs)
    errors: dict[Cell, str] = {}
    with _Bar(missing, progress) as bar:
        first: list[Job] = [(cell, ()) for cell in missing if isinstance(cell, Recourse)]
        for outcome in _each(first, backend, store, logs, bar):
            _sort(outcome, results, errors)
        second: list[Job] = []
        for cell in missing:
            if not isinstance(cell, Judgement):
                continue
            if cell.recourse in errors:
                errors[cell] = errors[cell.recourse]
                bar.over(cell)
            else:
                second.append((cell, (results[cell.recourse],)))
        for outcome in _each(second, backend, store, logs, bar):
            _sort(outcome, results, errors)
    return Finished(results, errors, len(everything) - len(missing), len(missing))


def _reusable(cell: Cell, result: Result, backend: Backend) -> bool:
    """Whether a result is of a run, which tells how it came about, and was timed as the backend would time it."""
    alone, seconds = result.about.get("alone"), result.about.get("cell_seconds")
    if not isinstance(alone, bool) or not isinstance(seconds, (int, float)):
        return False
    return alone or not backend.alone or not isinstance(cell, Recourse)


def _sort(outcome: Outcome, results: dict[Cell, Result], errors: dict[Cell, str]) -> None:
    if outcome.result is None:
        errors[outcome.cell] = outcome.error
    else:
        results[outcome.cell] = outcome.result


def _each(jobs: list[Job], backend: Backend, store: Store, logs: Path | None, bar: _Bar) -> Iterator[Outcome]:
    """Run jobs, keep what they computed and write their logs."""
    if not backend.alone:
        jobs = sorted(jobs, key=lambda job: -_expected(job[0]))  # or the longest is left over at the end
    bar.now(jobs)
    for outcome in backend.outcomes(jobs) if jobs else ():
        if outcome.result is not None:
            how = {"alone": backend.alone, "threads": backend.n_threads, "cell_seconds": outcome.seconds}
            result = replace(outcome.result, about={**outcome.result.about, **how})
            store.save(outcome.cell, result)  # before the log, which may be on a disk that is full
            outcome = replace(outcome, result=result)
        if logs is not None:
            write_file(logs / f"{file_name(outcome.cell)}.log", outcome.log)
        bar.over(outcome.cell, outcome.error)
        yield outcome


class _Bar:
    """A progress bar in expected seconds: cells differ a thousandfold."""

    def __init__(self, cells: list[Cell], shown: bool) -> None:
        self._bar = tqdm(
            total=sum(map(_expected, cells)),
            disable=not shown or not cells,
            file=sys.stderr,
            mininterval=0.1 if sys.stderr.isatty() else 15,
            bar_format="{percentage:3.0f}%|{bar:25}| {elapsed} gone, about {remaining} left{postfix}",
        )
        self._left: list[Cell] = []

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def now(self, jobs: list[Job]) -> None:
        """These cells come next, about in this order."""
        self._left = [cell for cell, _ in jobs]
        self._tell()

    def over(self, cell: Cell, error: str = "") -> None:
        """A cell is finished or has failed."""
        if cell in self._left:
            self._left.remove(cell)
        if error:
            tqdm.write(one_line(f"{cell.words} failed: {error}"), file=sys.stderr)
        self._tell()
        self._bar.update(_expected(cell))

    def _tell(self) -> None:
        if self._left:
            self._bar.set_postfix_str(f" {len(self._left)} to do, now {one_line(self._left[0].words)}", refresh=False)


def _expected(cell: Cell) -> float:
    recourse = cell if isinstance(cell, Recourse) else cell.recourse
    size = _SIZE[recourse.setting.dataset] * (1.0 if recourse.setting.people is None else 0.2)
    if isinstance(cell, Recourse):
        return size * _TYPICAL.get(cell.method, 3.0)
    return size * sum(_TYPICAL.get(metric, 0.5) for metric in cell.metrics)
