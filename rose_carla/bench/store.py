"""Finished cells on disk: each is written once, whole or not at all, under a key of all that shapes it."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from rose_carla._lib import files
from rose_carla.bench.cells import Cell, Recourse, Result
from rose_carla.errors import ExperimentError
from rose_carla.models import cache

_ABOUT = "about"


class Store:
    """A folder of finished cells, shared by all runs and, safely, by several at a time.

    Parameters
    ----------
    folder
        Made if it does not exist.

    Raises
    ------
    ExperimentError
        If nothing can be written there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ExperimentError(f"The folder {str(folder)!r} for finished cells cannot be made: {error}.") from error

    def path(self, cell: Cell) -> Path:
        """Where a cell is kept."""
        kind = "recourse" if isinstance(cell, Recourse) else "judgement"
        return self.folder / kind / f"{file_name(cell)}.npz"

    def find(self, cell: Cell) -> Result | None:
        """What was computed before; None if nothing was, or if the file is damaged, which a warning tells."""
        path = self.path(cell)
        if not path.exists():
            return None
        try:
            arrays = cache.read(path, cell.key)
            result = Result(arrays, dict(json.loads(str(arrays.pop(_ABOUT)))))
            why = "" if cell.fits(result) else "it lacks what such cells have"
        except cache.CacheError as error:
            why = str(error)
        except (KeyError, TypeError, ValueError, RecursionError):
            why = "nothing is known about it"
        if why:
            warnings.warn(f"Computing {cell.words!r} again: {path.name} is not used, {why}.", stacklevel=2)
            return None
        return result

    def check_places(self, cells: Iterable[Cell]) -> None:
        """Find out before hours of work whether cells can be kept.

        Raises
        ------
        ExperimentError
            If they cannot.
        """
        places = [self.path(cell) for cell in cells]
        for folder in dict.fromkeys(place.parent for place in places):
            check_folder(folder)
        for place in places:
            if place.is_dir():
                raise ExperimentError(f"There is a folder {str(place)!r} in the place of a finished cell: remove it.")

    def keep(self, cell: Cell, result: Result) -> None:
        """Write a finished cell.

        Raises
        ------
        ExperimentError
            If it cannot be written; nothing that was there before is touched.
        """
        about = np.array(json.dumps(dict(result.about)))
        try:
            cache.write(self.path(cell), cell.key, {**result.arrays, _ABOUT: about})
        except OSError as error:
            raise ExperimentError(f"The finished cell {cell.words!r} cannot be kept: {error}.") from error


def check_folder(folder: Path) -> None:
    """Find out before hours of work whether a folder, which need not exist yet, can be written.

    Raises
    ------
    ExperimentError
        If it cannot be.
    """
    try:
        files.check_folder(folder)
    except OSError as error:
        raise ExperimentError(f"The folder {str(folder)!r} cannot be written: {error.strerror or error}.") from error


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file; readers see the old one or the whole new one, never a part.

    Raises
    ------
    ExperimentError
        If it cannot be written.
    """
    try:
        with files.whole(path) as file:
            # names of files, and what methods print, need not be text
            file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)
    except OSError as error:
        raise ExperimentError(f"The file {str(path)!r} cannot be written: {error}.") from error


def file_name(cell: Cell) -> str:
    """A name without a suffix that tells people which cell it is, and is no other cell's."""
    return f"{re.sub('[^A-Za-z0-9._=-]+', '-', cell.words)[:100]}-{cell.key[:16]}"
