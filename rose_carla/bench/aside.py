"""Work in another process of this machine: what comes of it is put into a file, and only its name is sent back.

Processes of loky share one pipe for results. One that is killed while it sends more than a pipe holds would have all
others wait for the rest for ever; a name is sent at once or not at all.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from pathlib import Path
from typing import Any

from rose_carla._lib.files import load_arrays, save_arrays
from rose_carla.bench.cells import Cell, Result
from rose_carla.bench.work import Outcome, work
from rose_carla.errors import ExperimentError

#: Seconds between looks at whether anybody waits for a result.
_LOOK = 1.0


def work_aside(cell: Cell, needed: tuple[Result, ...], n_threads: int, folder: str) -> str:
    """:func:`.work`, and the name of the file in ``folder`` that has its outcome.

    Raises
    ------
    ExperimentError
        If that file cannot be written.
    """
    _end_with(os.getppid())
    path = Path(folder, f"{cell.key}.npz")
    outcome = work(cell, needed, n_threads)
    try:
        put(outcome, path)
    except OSError as error:
        raise ExperimentError(
            f"The finished cell {cell.words!r} cannot be kept for a moment in {folder!r}: {error.strerror or error}. "
            "Set TMPDIR to a folder with room."
        ) from error
    return str(path)


def put(outcome: Outcome, path: Path) -> None:
    """Write an outcome."""
    result = outcome.result
    told: dict[str, Any] = {"error": outcome.error, "seconds": outcome.seconds}
    told["about"] = None if result is None else dict(result.about)
    save_arrays(path, {} if result is None else result.arrays, {**told, "log": outcome.log})


def take(cell: Cell, path: Path) -> Outcome:
    """Read the outcome of a cell, and remove its file.

    Raises
    ------
    ExperimentError
        If somebody has done something to the file.
    """
    try:
        arrays, told = load_arrays(path)
        path.unlink()
    except (ValueError, OSError) as error:
        raise ExperimentError(f"What came of {cell.words!r} is lost, {str(path)!r} cannot be read: {error}.") from error
    result = None if told["about"] is None else Result(arrays, told["about"])
    return Outcome(cell, result, told["error"], told["log"], told["seconds"])


@functools.cache
def _end_with(parent: int) -> None:
    """Have this process end when the one that started it has, even if that was killed and could tell nobody."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()
