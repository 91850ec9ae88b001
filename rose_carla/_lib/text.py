"""Text that is safe to print on a terminal or to open in a spreadsheet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# Start of a cell, also for spreadsheets that split at other separators than commas, followed by a formula.
_FORMULA = re.compile(r"(^|[\t\r\n;|])(?=[\s\"]*[=+\-@\t\r＝＋－＠])")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def printable(text: str) -> str:
    """Escape control characters, which a terminal would execute, and invisible characters.

    Examples
    --------
    >>> print(printable("\x1b[2J" + "naïve"))
    \\x1b[2Jnaïve
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def printable_lines(text: str) -> str:
    """Escape control characters except for line breaks."""
    return "\n".join(map(printable, text.split("\n")))


def one_line(text: object) -> str:
    """Return ``text`` as one :func:`printable` line.

    Examples
    --------
    >>> one_line("two\\n  lines")
    'two lines'
    """
    return printable(" ".join(str(text).split()))


def format_columns(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Align a small table; the first ``left`` columns to the left, the others to the right.

    Examples
    --------
    >>> print(format_columns([["name", "n"], ["a", "10"]]))
    name   n
    a     10
    """
    rows = [[printable(text) for text in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        lines.append("  ".join(text.ljust(w) if i < left else text.rjust(w) for i, (text, w) in cells).rstrip())
    return "\n".join(lines)


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
    import pandas as pd  # loaded here: messages are formatted without pandas

    columns = [column if column.dtype.kind in "biuf" else column.map(csv_safe) for _, column in frame.items()]
    if not columns:
        return frame
    return pd.concat(columns, axis=1).set_axis([csv_safe(name) for name in frame.columns], axis=1)
