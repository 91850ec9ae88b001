"""Finished cells on disk, each in a file of its own under the cell's key."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from pathlib import Path

from rose_carla._lib.files import FileFormatError, check_writable, load_arrays, save_arrays
from rose_carla.bench.cells import Cell, Recourse, Result
from rose_carla.errors import ExperimentError


class Store:
    """A folder of finished cells, which several runs may share at the same time.

    Parameters
    ----------
    folder
        Created if it does not exist.

    Raises
    ------
    ExperimentError
        If it cannot be created.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ExperimentError(f"The folder {str(folder)!r} for finished cells cannot be made: {error}.") from error

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
            arrays, metadata = load_arrays(path)
            if metadata.get("key") != cell.key or not isinstance(metadata.get("about"), dict):
                raise FileFormatError(f"{str(path)!r} belongs to another cell.")
            result = Result(arrays, metadata["about"])
            if not cell.accepts(result):
                raise FileFormatError(f"{str(path)!r} lacks values of such a cell.")
        except FileFormatError as error:
            warnings.warn(f"Computing {cell.description!r} again: {error}", stacklevel=2)
            return None
        return result

    def check_writable(self, cells: Iterable[Cell]) -> None:
        """Check before hours of work that the results of ``cells`` can be written.

        Raises
        ------
        RoseCarlaError
            If they cannot.
        """
        paths = [self.path(cell) for cell in cells]
        for folder in dict.fromkeys(path.parent for path in paths):
            check_writable(folder)
        for path in paths:
            if path.is_dir():
                raise ExperimentError(f"{str(path)!r} should be the file of a finished cell, not a folder: remove it.")

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
