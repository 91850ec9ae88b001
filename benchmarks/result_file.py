"""Results of long measurements: a CSV file that an interrupted run goes on with, and Markdown tables."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, get_type_hints

Row = TypeVar("Row")


class ResultFile(Generic[Row]):
    """Rows of results, each kept in a CSV file as soon as it is there.

    Parameters
    ----------
    row_type
        A dataclass of text, integers and floats.
    key
        Fields that identify a row.
    path
        The file, read first if it exists; None keeps rows in memory. The last line of an interrupted run is removed if
        it is incomplete.
    """

    def __init__(self, row_type: type[Row], key: Sequence[str], path: str | None = None) -> None:
        self.rows: list[Row] = []
        self._types = {name: kind for name, kind in get_type_hints(row_type).items() if name in _fields(row_type)}
        self._row_type, self._key = row_type, tuple(key)
        self._path = Path(path) if path else None
        if self._path and self._path.exists():
            self._read(self._path)

    def find(self, *key: Any) -> Row | None:
        """Return the row with that key, or None."""
        for row in self.rows:
            if tuple(getattr(row, name) for name in self._key) == key:
                return row
        return None

    def add(self, row: Row) -> None:
        """Append a row, to the file too."""
        self.rows.append(row)
        if self._path:
            is_new = not self._path.exists() or self._path.stat().st_size == 0
            with self._path.open("a", encoding="utf-8", newline="") as file:
                lines = [list(self._types)] if is_new else []
                csv.writer(file, lineterminator="\n").writerows([*lines, [getattr(row, name) for name in self._types]])

    def _read(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            path.write_text(whole, encoding="utf-8", newline="")
        reader = csv.DictReader(io.StringIO(whole))
        if whole and reader.fieldnames != list(self._types):
            raise SystemExit(f"{path} has other columns than this measurement: name another file with --out.")
        for cells in reader:
            self.rows.append(self._row_type(**{name: kind(cells[name]) for name, kind in self._types.items()}))


def _fields(row_type: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(row_type)]


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table.

    Examples
    --------
    >>> print(markdown(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [" | ".join(cells) for cells in [header, *rows]]
    return (
        "\n".join(f"| {line} |" for line in lines[:1])
        + "\n"
        + "|"
        + "---|" * len(header)
        + "".join(f"\n| {line} |" for line in lines[1:])
    )
