"""Run the missing cells of a table, store each as soon as it is finished, and collect the results in a frame."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rose_carla._lib.files import FileFormatError, check_writable, load_arrays, save_arrays, write_file
from rose_carla.bench.cells import Cell, Judgement, Recourse, Result
from rose_carla.bench.engine import Engine, Job, Outcome, run_jobs
from rose_carla.datasets.csv_files import csv_safe_frame
from rose_carla.errors import one_line
from rose_carla.metrics.registry import METRICS
from tqdm import tqdm

#: Typical seconds of cells on two cores, for the estimate of the time left only.
_SIZE = {"german": 1.0, "adult": 1.5, "compas": 0.3}
_TYPICAL = {
    "CoGS": 60.0,
    "DiCE": 60.0,
    "ROSE-mul": 70.0,
    "Acc_AIR": 25.0,
    "Closed_Loop_AIR": 100.0,
    **dict.fromkeys(("FastAR", "ROSE-one", "ROSE-one-plain", "ROSE-mul-plain"), 8.0),
}


class Store:
    """A folder of finished cells, which several runs may share at the same time.

    Parameters
    ----------
    folder
        Created with the first cell.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, cell: Cell) -> Path:
        """Return the file of a cell."""
        kind = "recourse" if isinstance(cell, Recourse) else "judgement"
        return self.folder / kind / f"{file_name(cell)}.safetensors"

    def find(self, cell: Cell) -> Result | None:
        """Return the result of a finished cell, or None if it is missing or, with a warning, damaged."""
        path = self.path(cell)
        if not path.exists():
            return None
        try:
            arrays, metadata = load_arrays(path, cell.key)
        except FileFormatError as error:
            warnings.warn(f"Computing {cell.description!r} again: {error}", stacklevel=2)
            return None
        return Result(arrays, metadata["about"])

    def check_writable(self, cells: Iterable[Cell]) -> None:
        """Raise :class:`FileWriteError` before hours of work if the results of ``cells`` cannot be written."""
        for folder in dict.fromkeys(self.path(cell).parent for cell in cells):
            check_writable(folder)

    def save(self, cell: Cell, result: Result) -> None:
        """Write the result of a finished cell.

        Raises
        ------
        FileWriteError
            If it cannot be written; an older file of the cell stays as it is.
        """
        save_arrays(self.path(cell), result.arrays, {"key": cell.key, "about": dict(result.about)})


def file_name(cell: Cell) -> str:
    """Return a readable file name without a suffix, unique to the cell."""
    return f"{re.sub('[^A-Za-z0-9._=-]+', '-', cell.description)[:100]}-{cell.key[:16]}"


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
    """Whether a result was stored by :func:`run` and its time was measured as the engine would."""
    if not {"alone", "cell_seconds"} <= result.about.keys():
        return False
    return result.about["alone"] or not engine.alone or not isinstance(cell, Recourse)


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


@dataclass(frozen=True)
class Experiment:
    """A method under a condition, on one data set with one seed."""

    #: What differs from the default settings of the table, such as ``"tau=0.85"``; empty if nothing does.
    condition: str
    #: Evaluations of the same recourse.
    judgements: tuple[Judgement, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        """Data set, method and condition."""
        recourse = self.judgements[0].recourse
        return recourse.setting.dataset, recourse.method, self.condition


def results_frame(experiments: Iterable[Experiment], finished: Finished) -> pd.DataFrame:
    """Collect the results of experiments; those without recourse, which failed, are left out.

    ``Recourse_Time`` (mean per person) and ``Training_Time`` are in seconds; ``Alone`` is whether they can be compared.
    ``Steps`` is the number of units of action, the paper's '# of steps'.
    """
    frames = []
    for experiment in experiments:
        cell = experiment.judgements[0].recourse
        recourse = finished.results.get(cell)
        if recourse is None:
            continue
        columns: dict[str, object] = {
            "Dataset": cell.setting.dataset,
            "Classifier": cell.setting.classifier,
            "Method": cell.method,
            "Condition": experiment.condition,
            "Seed": cell.setting.seed,
            "Person": recourse.about["labels"],
        }
        for judgement in experiment.judgements:
            evaluated = finished.results.get(judgement)
            for metric in judgement.metrics:  # stored arrays are sorted by name: restore the order of the metrics
                names = METRICS[metric].evaluation.columns
                columns |= {name: np.nan if evaluated is None else evaluated.arrays[name] for name in names}
            if evaluated is not None and "Proximity" in evaluated.arrays:
                columns["Steps"] = evaluated.arrays["Proximity"] / judgement.noise.action_unit
        columns["Recourse_Time"] = recourse.about["seconds"] / recourse.about["people"]
        columns["Training_Time"] = recourse.about["training_seconds"]
        columns["Alone"] = recourse.about["alone"]
        frames.append(pd.DataFrame(columns))
    if not frames:
        return pd.DataFrame(columns=["Dataset", "Method", "Condition", "Seed", "Person"])
    return pd.concat(frames, ignore_index=True)


def experiment_errors(experiments: Iterable[Experiment], finished: Finished) -> dict[tuple[str, str, str], str]:
    """Return the first error message of each failed experiment, by data set, method and condition."""
    found = {}
    for experiment in experiments:
        cells: list[Cell] = [experiment.judgements[0].recourse, *experiment.judgements]
        messages = [finished.errors[cell] for cell in cells if cell in finished.errors]
        if messages:
            found[experiment.key] = messages[0]
    return found


def to_csv(frame: pd.DataFrame) -> str:
    """Return a frame as CSV with six digits, more than any table prints, and without spreadsheet formulas."""
    return str(csv_safe_frame(frame).replace({np.inf: np.nan}).to_csv(index=False, float_format="%.6g"))
