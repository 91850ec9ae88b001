"""People in original units, from a CSV file, some at a time; a row that cannot be used does not stop the others."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from rose_carla._lib.endings import remark
from rose_carla.cli.data import meant
from rose_carla.cli.streams import rows
from rose_carla.datasets import Dataset
from rose_carla.errors import DataError, unknown_name
from rose_carla.models.rows import LARGEST

#: What stands for a missing value in CSV files, beside nothing at all.
_MISSING = frozenset("na nan n/a null none <na> #n/a".split())
#: Beyond the smallest and largest value by less is rounding; in shares of the range.
_ROUNDING = 1e-9


@dataclass
class Chunk:
    """Some people of a file.

    Parameters
    ----------
    labels
        Of all rows.
    encoded
        Those that can be used, encoded, under their positions in ``labels``.
    refused
        From positions to why a row cannot be used.
    outside
        From positions to what is outside the range of the data.
    empty
        Positions of rows without any value.
    """

    labels: list[str]
    encoded: pd.DataFrame
    refused: dict[int, str] = field(default_factory=dict)
    outside: dict[int, str] = field(default_factory=dict)
    empty: list[int] = field(default_factory=list)


class People:
    """Reads people of a data set.

    Parameters
    ----------
    data
        The data set whose columns they have.
    label
        Column with their names; None: rows are numbered from 1.
    beyond
        Take values outside the range of the data too; otherwise such rows are refused.
    blank
        Whether an empty line is a row.
    """

    def __init__(self, data: Dataset, label: str | None = None, beyond: bool = False, blank: bool = False) -> None:
        self.data, self.label, self.beyond, self.blank = data, label, beyond, blank
        self.ranges = ranges(data)
        self.categories = categories(data)

    def chunks(self, source: str, size: int) -> Iterator[Chunk]:
        """All people of a file, ``size`` at a time.

        Raises
        ------
        DataError
            If the file cannot be read, or lacks columns.
        """
        lines = rows(source)
        header = next(lines, [])
        self._check_header(source, header)
        people = (line for line in lines if line or self.blank)
        numbers = itertools.count(1)
        while some := list(itertools.islice(people, size)):
            yield self._chunk(header, some, [next(numbers) for _ in some])

    def _check_header(self, source: str, header: Sequence[str]) -> None:
        if not header:
            raise DataError(f"{source!r} is empty: its first line has to name the columns.")
        repeated = sorted(name for name, count in Counter(header).items() if count > 1)
        if repeated:
            raise DataError(f"{source!r} has the column {repeated[0]!r} twice: drop or rename one.")
        features = self.data.raw_features
        there = set(header)
        missing = [feature for feature in features if feature not in there]
        if missing:
            other = next((mark for mark in ";\t" if len(header) == 1 and mark in header[0]), None)
            hint = f" It seems to be separated by {other!r}: use commas." if other else ""
            raise DataError(f"{source!r} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}.{hint}")
        if self.label is not None and self.label not in header:
            raise DataError(unknown_name("column", self.label, header))
        known = {*features, self.data.target, self.label}
        further = [name for name in header if name not in known]
        if further:
            remark(f"columns that are no features are ignored: {', '.join(further)}")

    def _chunk(self, header: Sequence[str], lines: Sequence[Sequence[str]], numbers: Sequence[int]) -> Chunk:
        width = len(header)
        problems: list[list[str]] = [[] for _ in lines]
        for line, wrong in zip(lines, problems, strict=True):
            if line and len(line) != width:
                wrong.append(f"the row has {len(line)} values and there are {width} columns: check commas and quotes")
        cells = [[*line, *[""] * width][:width] for line in lines]
        written = pd.DataFrame(cells, columns=list(header), dtype=object)
        text = pd.DataFrame([[cell.strip() for cell in row] for row in cells], columns=list(header), dtype=object)
        chunk = Chunk([str(number) for number in numbers], pd.DataFrame())
        if self.label is not None:
            chunk.labels = [name or f"row {number}" for name, number in zip(text[self.label], numbers, strict=True)]
            for name, wrong in zip(text[self.label], problems, strict=True):
                if not name:
                    wrong.append(f"{self.label} is missing: everybody needs a name there")
        if self.blank:
            filled = (text[self.data.raw_features] != "").any(axis=1)
            chunk.empty = [int(row) for row in np.flatnonzero(~filled)]
        raw, outside = self._values(text, written, problems)
        for row, words in enumerate(outside):
            if words and not self.beyond:
                problems[row] += [
                    f"{each}: check the value, or plan beyond the range with --extrapolate" for each in words
                ]
            elif words:
                chunk.outside[row] = "; ".join(words)
        usable = [row for row, wrong in enumerate(problems) if not wrong and row not in chunk.empty]
        chunk.refused = {
            row: "; ".join(wrong) for row, wrong in enumerate(problems) if wrong and row not in chunk.empty
        }
        if usable:
            chunk.encoded = self.data.transform(raw.loc[usable])
        return chunk

    def _values(
        self, text: pd.DataFrame, written: pd.DataFrame, problems: list[list[str]]
    ) -> tuple[pd.DataFrame, list[list[str]]]:
        """Values of all features, as far as they can be read, and what is outside the range of the data.

        Categories may differ by spaces only, so that they are found as they were ``written``.
        """
        raw = pd.DataFrame(index=text.index)
        outside: list[list[str]] = [[] for _ in problems]
        for feature in self.data.raw_features:
            words = (written if feature in self.categories else text)[feature]
            if feature in self.categories:
                found = {word: self._category(feature, word) for word in words.unique()}
                raw[feature] = words.map(lambda word, found=found: found[word][0])
                told = words.map(lambda word, found=found: found[word][1])
            else:
                raw[feature] = numbers = pd.to_numeric(words, errors="coerce").astype(float)
                told = pd.Series("", index=text.index, dtype=object)
                for row in np.flatnonzero(~np.isfinite(numbers)):
                    told[row] = _not_a_number(feature, words[row])
                low, high = self.ranges[feature]
                slack = _ROUNDING * max(high - low, abs(high), abs(low))
                for row in np.flatnonzero((numbers < low - slack) | (numbers > high + slack)):
                    if told[row]:
                        continue
                    known = f"the range {plain(low)} to {plain(high)} of the data"
                    if abs(float(numbers[row]) - low) / ((high - low) or 1.0) > LARGEST:  # encoded
                        told[row] = f"{feature} is {words[row]}, too far outside {known}: check the value"
                    else:
                        outside[row].append(f"{feature} is {words[row]}, outside {known}")
            for row in np.flatnonzero(told != ""):
                problems[row].append(told[row])
        return raw, outside

    def _category(self, feature: str, word: str) -> tuple[str, str]:
        """A category as the data set spells it, or what is wrong."""
        known = self.categories[feature]
        values = self.data.originals.get(feature, {name: name for name in known})
        found = meant(word, [values[name] for name in known])
        if found is not None:
            return next(name for name in known if values[name] is found), ""
        if _is_missing(word.strip()):
            return "", f"{feature} is missing: fill it in"
        return "", unknown_name(f"category of {feature!r}", word.strip(), known).rstrip(".")


def ranges(data: Dataset) -> dict[str, tuple[float, float]]:
    """Smallest and largest value of each continuous feature."""
    if not data.continuous:
        return {}
    scaler = data.scaler
    edges = zip(data.continuous, scaler.data_min_, scaler.data_max_, strict=True)
    return {feature: (float(low), float(high)) for feature, low, high in edges}


def categories(data: Dataset) -> dict[str, list[str]]:
    """Categories of each categorical feature, as text."""
    if not data.categorical:
        return {}
    return {name: list(map(str, known)) for name, known in zip(data.categorical, data.encoder.categories_, strict=True)}


def plain(value: float) -> str:
    """A number without rounding errors.

    Examples
    --------
    >>> plain(29.0), plain(2.4000000000000004), plain(-0.1)
    ('29', '2.4', '-0.1')
    """
    return f"{value:.12g}"


def _is_missing(word: str) -> bool:
    return not word or word.lower() in _MISSING


def _not_a_number(feature: str, word: str) -> str:
    if _is_missing(word):
        return f"{feature} is missing: fill it in"
    return f"{feature} is {word!r}, which is no finite number"
