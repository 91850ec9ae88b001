"""CSV files: tables to train on, people in original units, validated row by row, and cells safe in a spreadsheet.

Ambiguous tables are rejected as a whole; an invalid row of a file of people does not stop the others.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.io.common import infer_compression
from rose_carla.datasets.dataset import LARGEST, Dataset
from rose_carla.datasets.frames import from_frame
from rose_carla.datasets.scaling import reachable_values
from rose_carla.errors import DataError, error_text, short_repr, unknown_name

#: Words for a missing value in CSV files, beside an empty cell.
_MISSING = frozenset("na nan n/a null none <na> #n/a".split())
#: Values outside the range of the data by less, relative to the range, are rounding errors.
_ROUNDING = 1e-9
#: Number of ignored columns that a warning lists.
_LISTED = 10
#: Start of a cell, also for spreadsheets that split at other separators than commas, followed by a formula.
_FORMULA = re.compile(r"(^|[\t\r\n;|])(?=[\s\"]*[=+\-@\t\r＝＋－＠])")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def from_csv(path: str | os.PathLike[str], target: str, **options: Any) -> Dataset:
    """Make a data set from a CSV file; ``options`` as in :func:`from_frame`, ``name`` defaults to the file's."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise DataError(
            f"Expected the path of a CSV file, got {short_repr(path)}: read anything else with pandas and use "
            "datasets.from_frame."
        )
    file_name = os.fspath(path)
    options.setdefault("name", Path(file_name).stem)
    try:
        content = Path(file_name).read_bytes()  # once: it may be a pipe
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot read {file_name!r}: {error_text(error)}") from error
    return from_frame(read_table(content, file_name, infer_compression(file_name, "infer")), target, **options)


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

    def read(**options: Any) -> pd.DataFrame:
        return pd.read_csv(io.BytesIO(content), compression=compression, **options)

    try:
        names = read(header=None, nrows=1, dtype=str, na_filter=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            # without index_col pandas uses the first column as row labels if rows are too long
            frame = read(index_col=False, low_memory=False)
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


def _check_names(names: list[str], file_name: str) -> None:
    """Check for names that pandas would replace."""
    known: set[str] = set()
    for number, name in enumerate(names, 1):
        if not name.strip():
            raise DataError(f"Column {number} of {file_name!r} has no name: name or drop it.")
        if name in known:
            raise DataError(f"{file_name!r} has the column {name!r} twice: drop or rename one.")
        known.add(name)


@dataclass
class PeopleChunk:
    """Some people of a file.

    Parameters
    ----------
    labels
        Labels of all rows.
    encoded
        Valid rows, encoded, indexed by their positions in ``labels``.
    invalid
        From positions to why a row is invalid.
    outside
        From positions to values outside the range of the data.
    empty
        Positions of rows without any value.
    """

    labels: list[str]
    encoded: pd.DataFrame = field(default_factory=pd.DataFrame)
    invalid: dict[int, str] = field(default_factory=dict)
    outside: dict[int, str] = field(default_factory=dict)
    empty: list[int] = field(default_factory=list)


class PeopleReader:
    """Read people with the features of a data set from CSV files.

    Parameters
    ----------
    data
        The data set.
    label
        Column that identifies people; default: rows are numbered from 1.
    extrapolate
        Accept values outside the range of the data; otherwise such rows are invalid.
    keep_empty
        Keep rows without any value instead of skipping them.
    """

    def __init__(
        self, data: Dataset, label: str | None = None, extrapolate: bool = False, keep_empty: bool = False
    ) -> None:
        self.data, self.label, self.extrapolate, self.keep_empty = data, label, extrapolate, keep_empty
        self.ranges = feature_ranges(data)
        self.widths = {feature: float(np.ptp(reachable_values(data, feature))) for feature in self.ranges}
        self.categories = feature_categories(data)

    def chunks(self, source: str, size: int) -> Iterator[PeopleChunk]:
        """Yield the people of a file, or of stdin for ``-``, ``size`` at a time.

        Raises
        ------
        DataError
            If the file cannot be read, or lacks columns.
        """
        lines = _read_rows(source)
        header = next(lines, [])
        self._check_header(source, header)
        numbered = enumerate((line for line in lines if line or self.keep_empty), start=1)
        while some := list(itertools.islice(numbered, size)):
            yield self._chunk(header, [line for _, line in some], [number for number, _ in some])

    def _check_header(self, source: str, header: Sequence[str]) -> None:
        if not header:
            raise DataError(f"{source!r} is empty: its first line must name the columns.")
        repeated = sorted(name for name, count in Counter(header).items() if count > 1)
        if repeated:
            raise DataError(f"{source!r} has the column {repeated[0]!r} twice: drop or rename one.")
        columns = set(header)
        missing = [feature for feature in self.data.raw_features if feature not in columns]
        if missing:
            separator = next((each for each in ";\t" if len(header) == 1 and each in header[0]), None)
            hint = f" It seems to be separated by {separator!r}: use commas." if separator else ""
            raise DataError(f"{source!r} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}.{hint}")
        if self.label is not None and self.label not in columns:
            raise DataError(unknown_name("column", self.label, header))
        known = {*self.data.raw_features, self.data.target, self.label}
        further = [name for name in header if name not in known]
        if further:
            more = f" and {len(further) - _LISTED} more" if len(further) > _LISTED else ""
            warnings.warn(f"ignored columns that are not features: {', '.join(further[:_LISTED])}{more}", stacklevel=2)

    def _chunk(self, header: Sequence[str], lines: Sequence[Sequence[str]], numbers: Sequence[int]) -> PeopleChunk:
        width = len(header)
        problems: list[list[str]] = [[] for _ in lines]
        for line, found in zip(lines, problems, strict=True):
            if line and len(line) != width:
                found.append(f"the row has {len(line)} values for {width} columns: check commas and quotes")
        written = pd.DataFrame([[*line, *[""] * width][:width] for line in lines], columns=list(header), dtype=object)
        chunk = PeopleChunk([str(number) for number in numbers])
        if self.label is not None:
            names = [name.strip() for name in written[self.label]]
            chunk.labels = [name or f"row {number}" for name, number in zip(names, numbers, strict=True)]
            for name, found in zip(names, problems, strict=True):
                if not name:
                    found.append(f"{self.label} is missing: every person needs a value there")
        if self.keep_empty:
            blank = [not any(map(str.strip, row)) for row in written[self.data.raw_features].to_numpy()]
            chunk.empty = [int(row) for row in np.flatnonzero(blank)]
        raw = pd.DataFrame(
            {feature: self._parse(feature, written[feature], problems, chunk) for feature in self.data.raw_features}
        )
        for row, text in {} if self.extrapolate else chunk.outside.items():
            problems[row].append(f"{text}: check the value, or use --extrapolate")
        ignored = {*chunk.empty}
        chunk.invalid = {row: "; ".join(found) for row, found in enumerate(problems) if found and row not in ignored}
        valid = [row for row, found in enumerate(problems) if not found and row not in ignored]
        if valid:
            chunk.encoded = self.data.transform(raw.loc[valid])
        return chunk

    def _parse(self, feature: str, cells: pd.Series, problems: list[list[str]], chunk: PeopleChunk) -> pd.Series:
        """Return the values of a feature, and add what is wrong with each cell to ``problems`` or ``chunk.outside``."""
        if feature in self.categories:
            parsed = {cell: self._parse_category(feature, cell) for cell in cells.unique()}
            for row, cell in enumerate(cells):
                if parsed[cell][1]:
                    problems[row].append(parsed[cell][1])
            return cells.map(lambda cell: parsed[cell][0])
        cells = cells.str.strip()
        values = pd.to_numeric(cells, errors="coerce").astype(float)
        low, high = self.ranges[feature]
        slack = _ROUNDING * max(high - low, abs(high), abs(low))
        finite = np.isfinite(values)
        known = f"the range {plain(low)} to {plain(high)} of the data"
        for row in map(int, np.flatnonzero(~finite)):
            missing = _is_missing(cells[row])
            problems[row].append(
                f"{feature} is missing: fill it in" if missing else f"{feature} is {cells[row]!r}, not a finite number"
            )
        for row in map(int, np.flatnonzero(finite & ((values < low - slack) | (values > high + slack)))):
            if abs(values[row] - low) / (self.widths[feature] or 1.0) > LARGEST:
                problems[row].append(f"{feature} is {cells[row]}, too far outside {known}: check the value")
            else:
                text = f"{feature} is {cells[row]}, outside {known}"
                chunk.outside[row] = "; ".join(filter(None, [chunk.outside.get(row), text]))
        return values

    def _parse_category(self, feature: str, cell: str) -> tuple[str, str]:
        """Return the category as the data set spells it, and what is wrong."""
        known = self.categories[feature]
        values = self.data.originals.get(feature, {name: name for name in known})
        found = match_value(cell, [values[name] for name in known])
        if found is not None:
            return next(name for name in known if values[name] is found), ""
        if _is_missing(cell.strip()):
            return "", f"{feature} is missing: fill it in"
        return "", unknown_name(f"category of {feature!r}", cell.strip(), known).rstrip(".")


def _read_rows(source: str) -> Iterator[list[str]]:
    """Yield the rows of a CSV file as they arrive; an empty line is an empty list."""
    line = 0
    try:
        with contextlib.ExitStack() as stack:
            raw = sys.stdin.buffer if source == "-" else stack.enter_context(open(source, "rb"))
            # spreadsheets write a byte order mark before the first column's name
            text = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
            stack.callback(text.detach)
            reader = csv.reader(text, strict=True)
            for row in reader:
                line = reader.line_num
                yield row
    except UnicodeDecodeError as error:
        raise DataError(f"{source!r} is not UTF-8 text: save it as 'CSV UTF-8'.") from error
    except csv.Error as error:
        raise DataError(
            f"Cannot read {source!r} as a CSV file from line {line + 1} on: {error}. Look for an unclosed quote, or "
            f"a value of more than {csv.field_size_limit():,} characters."
        ) from error
    except OSError as error:
        raise DataError(f"Cannot read {source!r}: {error.strerror or error}.") from error


def match_value(text: str, values: Iterable[Any]) -> Any:
    """Return the value (text, number or boolean) that ``text`` stands for, or None.

    Examples
    --------
    >>> match_value("2", [1.0, 2.0]), match_value("TRUE", [False, True]), match_value("no", ["yes", "no"])
    (2.0, True, 'no')
    """
    values = list(values)
    short = text.strip()
    for wanted in (text, short):
        for value in values:
            if str(value) == wanted:
                return value
    for value in values:
        if isinstance(value, str):
            if short == value.strip():
                return value
        elif short.lower() == str(value).lower() or _as_number(short) == value:
            return value
    return None


def _as_number(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)  # Python reads 1_0 as ten, CSV files do not
    except ValueError:
        return None


def _is_missing(text: str) -> bool:
    return not text or text.lower() in _MISSING


def feature_ranges(data: Dataset) -> dict[str, tuple[float, float]]:
    """Return the smallest and largest value of each continuous feature."""
    if not data.continuous:
        return {}
    edges = zip(data.continuous, data.scaler.data_min_, data.scaler.data_max_, strict=True)
    return {feature: (float(low), float(high)) for feature, low, high in edges}


def feature_categories(data: Dataset) -> dict[str, list[str]]:
    """Return the categories of each categorical feature, as text."""
    if not data.categorical:
        return {}
    return {name: list(map(str, known)) for name, known in zip(data.categorical, data.encoder.categories_, strict=True)}


def plain(value: float) -> str:
    """Format a number without rounding errors.

    Examples
    --------
    >>> plain(29.0), plain(2.4000000000000004), plain(-0.1)
    ('29', '2.4', '-0.1')
    """
    return f"{value:.12g}"


def csv_safe(value: Any) -> Any:
    """Escape text that a spreadsheet would run as a formula, with a leading apostrophe.

    NUL characters are removed: the csv module of Python 3.10 cannot write them.

    Examples
    --------
    >>> csv_safe("=HYPERLINK(A1)"), csv_safe("-1.5"), csv_safe("rent - own"), csv_safe(-2)
    ("'=HYPERLINK(A1)", '-1.5', 'rent - own', -2)
    """
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    return _FORMULA.sub(r"\1'", value.replace("\0", ""))


def csv_safe_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Apply :func:`csv_safe` to every text cell and column name of a frame."""
    columns = [column if column.dtype.kind in "biuf" else column.map(csv_safe) for _, column in frame.items()]
    if not columns:
        return frame
    return pd.concat(columns, axis=1).set_axis([csv_safe(name) for name in frame.columns], axis=1)
