"""Tables from CSV files: what could be read in two ways is refused."""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path
from typing import Any, cast

import pandas as pd
from pandas.io.common import get_handle
from rose_carla.datasets.dataset import Dataset, from_frame
from rose_carla.errors import DataError, error_text, short_repr

#: How files are packed, by the end of their names.
_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zip": "zip", ".xz": "xz", ".zst": "zstd", ".tar": "tar"}
#: Bytes that any packed file may have, and larger ones for each byte that they are packed in.
_UNPACKED, _RATIO = 200_000_000, 100


def from_csv(path: str | os.PathLike[str], target: str, **options: Any) -> Dataset:
    """A data set from a CSV file; ``options`` as in :func:`from_frame`, ``name`` defaults to the file's."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise DataError(
            f"Expected the path of a CSV file, got {short_repr(path)}: read anything else with pandas and use "
            "datasets.from_frame."
        )
    called = os.fspath(path)
    name, end = os.path.splitext(os.path.basename(called))
    options.setdefault("name", name)
    try:
        content = Path(called).read_bytes()
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot read {called!r}: {error_text(error)}") from error
    return from_frame(read_table(content, called, _PACKED.get(end)), target, **options)


def read_table(content: bytes, called: str, packed: str | None = None) -> pd.DataFrame:
    """A CSV file in UTF-8 as a frame.

    Parameters
    ----------
    content
        All bytes of the file.
    called
        What the file is called in messages.
    packed
        How it is packed, as pandas calls it; None: not at all.

    Raises
    ------
    DataError
        If it cannot be read, if a column has no name of its own, or if a row has more values than there are columns.
    """
    try:
        content = _unpacked(content, packed)
        names = pd.read_csv(io.BytesIO(content), header=None, nrows=1, dtype=str, na_filter=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            # otherwise pandas takes the first column for row labels if there is a value too many
            frame = pd.read_csv(io.BytesIO(content), index_col=False, low_memory=False)
    except pd.errors.ParserWarning as error:
        raise DataError(
            f"{called!r} has rows with more values than there are column names: name every column."
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # beside those of pandas there are those of all that unpacks files
        raise DataError(f"Cannot read {called!r} as a CSV file in UTF-8: {error_text(error)}") from error
    _check_names(list(names.iloc[0]), called)
    return frame


def _unpacked(content: bytes, packed: str | None) -> bytes:
    """The bytes of a file, as many as a table of that size may have: a few zeros may be packed gigabytes."""
    if packed is None:
        return content
    most = max(_UNPACKED, _RATIO * len(content))
    with get_handle(io.BytesIO(content), "rb", compression=packed, is_text=False) as opened:
        found = cast("bytes", opened.handle.read(most + 1))
    if len(found) > most:
        raise ValueError(f"it unpacks to more than {most / 1e6:,.0f} MB, unpack it yourself")
    return found


def _check_names(names: list[str], called: str) -> None:
    """Refuse names that pandas would replace by others."""
    known: set[str] = set()
    for number, name in enumerate(names, 1):
        if not name.strip():
            raise DataError(f"Column {number} of {called!r} has no name: name or drop it.")
        if name in known:
            raise DataError(f"{called!r} has the column {name!r} twice: drop or rename one.")
        known.add(name)
