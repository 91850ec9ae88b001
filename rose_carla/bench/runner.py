"""Run the missing cells of a table: finished cells are reused, each new one is stored as soon as it is finished."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rose_carla._lib.files import check_writable, write_file
from rose_carla._lib.text import one_line
from rose_carla.bench.cells import Cell, Judgement, Recourse, Result
from rose_carla.bench.engine import Engine, Job, Outcome, run_jobs
from rose_carla.bench.store import Store, file_name
from tqdm import tqdm

#: Typical seconds of cells on two cores, for the estimate of the time left only.
_SIZE = {"german": 1.0, "adult": 1.5, "compas": 0.3}
_TYPICAL = {"CoGS": 60.0, "ROSE-mul": 70.0, "DiCE": 60.0, "ROSE-one": 8.0, "FastAR": 8.0, "Acc_AIR": 25.0}


@dataclass(frozen=True)
class Finished:
    """All requested cells."""

    #: Results of the cells that succeeded.
    results: Mapping[Cell, Result]
    #: One line for each cell that failed.
    errors: Mapping[Cell, str]
    #: Number of cells that were finished before, and that were not.
    n_reused: int
    n_run: int


def run(
    judgements: Iterable[Judgement], store: Store, engine: Engine, logs: Path | None = None, progress: bool = True
) -> Finished:
    """Run the judgements that are not finished, and the recourse they need.

    Parameters
    ----------
    judgements
        The requested cells.
    store
        Folder of finished cells.
    engine
        Where cells run. If it runs them alone, recourse that was generated beside other cells is generated again, to
        measure its time.
    logs
        Folder for a log file of each cell that is run.
    progress
        Show a progress bar with the time left.

    Raises
    ------
    FileWriteError
        If a finished cell cannot be stored. Those that were stored stay, and the same call continues from there.
    """
    wanted = list(dict.fromkeys(judgements))
    cells: list[Cell] = [*dict.fromkeys(cell.recourse for cell in wanted), *wanted]
    found = {cell: store.find(cell) for cell in cells}
    results = {cell: result for cell, result in found.items() if result and _is_reusable(cell, result, engine)}
    missing = [cell for cell in cells if cell not in results]
    store.check_writable(missing)
    if missing and logs is not None:
        check_writable(logs)
    errors: dict[Cell, str] = {}
    with _progress_bar(missing, progress) as bar:
        for kind in (Recourse, Judgement):  # a judgement needs the recourse it is about
            jobs: list[Job] = []
            for cell in missing:
                if isinstance(cell, Judgement) and cell.recourse in errors:
                    errors[cell] = errors[cell.recourse]
                    bar.update(_expected_seconds(cell))
                elif isinstance(cell, kind):
                    jobs.append((cell, () if isinstance(cell, Recourse) else (results[cell.recourse],)))
            if not engine.alone:
                jobs.sort(key=lambda job: -_expected_seconds(job[0]))  # the longest would be left over at the end
            left = [cell for cell, _ in jobs]
            _show_next(bar, left)
            for outcome in run_jobs(engine, jobs):
                cell = outcome.cell
                result = _store(outcome, store, engine, logs)
                if result is None:
                    errors[cell] = outcome.error
                    tqdm.write(one_line(f"{cell.description} failed: {outcome.error}"), file=sys.stderr)
                else:
                    results[cell] = result
                left.remove(cell)
                _show_next(bar, left)
                bar.update(_expected_seconds(cell))
    return Finished(results, errors, len(cells) - len(missing), len(missing))


def _is_reusable(cell: Cell, result: Result, engine: Engine) -> bool:
    """Whether a result was written by :func:`run` and its time was measured as the engine would."""
    alone, seconds = result.about.get("alone"), result.about.get("cell_seconds")
    if not isinstance(alone, bool) or not isinstance(seconds, (int, float)):
        return False
    return alone or not engine.alone or not isinstance(cell, Recourse)


def _store(outcome: Outcome, store: Store, engine: Engine, logs: Path | None) -> Result | None:
    """Store the result of a cell and write its log."""
    result = outcome.result
    if result is not None:
        how = {"alone": engine.alone, "threads": engine.n_threads, "cell_seconds": outcome.seconds}
        result = replace(result, about={**result.about, **how})
        store.save(outcome.cell, result)  # before the log, for which there may be no space
    if logs is not None:
        write_file(logs / f"{file_name(outcome.cell)}.log", outcome.log)
    return result


def _progress_bar(cells: list[Cell], progress: bool) -> Any:
    """Return a bar in expected seconds: the times of cells differ by a factor of a thousand."""
    return tqdm(
        total=sum(map(_expected_seconds, cells)),
        disable=not progress or not cells,
        file=sys.stderr,
        mininterval=0.1 if sys.stderr.isatty() else 15,
        bar_format="{percentage:3.0f}%|{bar:25}| {elapsed} gone, about {remaining} left{postfix}",
    )


def _show_next(bar: Any, left: list[Cell]) -> None:
    if left:
        bar.set_postfix_str(f" {len(left)} to do, now {one_line(left[0].description)}", refresh=False)


def _expected_seconds(cell: Cell) -> float:
    recourse = cell if isinstance(cell, Recourse) else cell.recourse
    size = _SIZE[recourse.setting.dataset] * (1.0 if recourse.setting.people is None else 0.2)
    if isinstance(cell, Recourse):
        return size * _TYPICAL.get(cell.method, 3.0)
    return size * sum(_TYPICAL.get(metric, 0.5) for metric in cell.metrics)
