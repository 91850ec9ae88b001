"""Tables from CSV files; ambiguous files are rejected."""

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

#: Compression, as pandas names it, by the end of the file name.
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zip": "zip", ".xz": "xz", ".zst": "zstd", ".tar": "tar"}
#: Limits of decompressed files: bytes, or more for files of at most this compression ratio.
_MAX_BYTES, _MAX_RATIO = 200_000_000, 100


def from_csv(path: str | os.PathLike[str], target: str, **options: Any) -> Dataset:
    """Make a data set from a CSV file; ``options`` as in :func:`from_frame`, ``name`` defaults to the file's."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise DataError(
            f"Expected the path of a CSV file, got {short_repr(path)}: read anything else with pandas and use "
            "datasets.from_frame."
        )
    file_name = os.fspath(path)
    name, end = os.path.splitext(os.path.basename(file_name))
    options.setdefault("name", name)
    try:
        content = Path(file_name).read_bytes()
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot read {file_name!r}: {error_text(error)}") from error
    return from_frame(read_table(content, file_name, _COMPRESSIONS.get(end)), target, **options)


def read_table(content: bytes, file_name: str, compression: str | None = None) -> pd.DataFrame:
    """Read the content of a CSV file in UTF-8.

    Parameters
    ----------
    content
        All bytes of the file.
    file_name
        Name of the file in messages.
    compression
        As pandas names it; None: not compressed.

    Raises
    ------
    DataError
        If it cannot be read, a column name is empty or duplicated, or a row has more values than there are columns.
    """
    try:
        content = _decompress(content, compression)
        names = pd.read_csv(io.BytesIO(content), header=None, nrows=1, dtype=str, na_filter=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            # without index_col pandas uses the first column as row labels if rows are too long
            frame = pd.read_csv(io.BytesIO(content), index_col=False, low_memory=False)
    except pd.errors.ParserWarning as error:
        raise DataError(
            f"{file_name!r} has rows with more values than there are column names: name every column."
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # pandas' errors, and those of decompression
        raise DataError(f"Cannot read {file_name!r} as a CSV file in UTF-8: {error_text(error)}") from error
    _check_names(list(names.iloc[0]), file_name)
    return frame


def _decompress(content: bytes, compression: str | None) -> bytes:
    """Return the content of a file, with a limit of size against decompression bombs."""
    if compression is None:
        return content
    limit = max(_MAX_BYTES, _MAX_RATIO * len(content))
    with get_handle(io.BytesIO(content), "rb", compression=compression, is_text=False) as opened:
        found = cast("bytes", opened.handle.read(limit + 1))
    if len(found) > limit:
        raise ValueError(f"it decompresses to more than {limit / 1e6:,.0f} MB, decompress it first")
    return found


def _check_names(names: list[str], file_name: str) -> None:
    """Check for names that pandas would replace."""
    known: set[str] = set()
    for number, name in enumerate(names, 1):
        if not name.strip():
            raise DataError(f"Column {number} of {file_name!r} has no name: name or drop it.")
        if name in known:
            raise DataError(f"{file_name!r} has the column {name!r} twice: drop or rename one.")
        known.add(name)
