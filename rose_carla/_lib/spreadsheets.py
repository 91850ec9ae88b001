"""CSV files are opened in spreadsheets, which run what looks like a formula: nothing from data may look like one."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

#: Where a cell begins, for a spreadsheet that separates by something else than commas too, and what makes a formula.
_FORMULA = re.compile(r"(^|[\t\r\n;|])(?=[\s\"]*[=+\-@\t\r＝＋－＠])")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def harmless(cell: Any) -> Any:
    """A cell of a CSV file; a text that would be a formula is marked as text by an apostrophe, as spreadsheets do.

    NUL is left out, which Python 3.10 cannot write to such a file and no spreadsheet shows.

    Examples
    --------
    >>> harmless("=HYPERLINK(A1)"), harmless("-1.5"), harmless("rent - own"), harmless(-2)
    ("'=HYPERLINK(A1)", '-1.5', 'rent - own', -2)
    """
    if not isinstance(cell, str) or _NUMBER.fullmatch(cell):
        return cell
    return _FORMULA.sub(r"\1'", cell.replace("\0", ""))


def harmless_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """A table with all of its texts and names of columns :func:`harmless`."""
    columns = [column if column.dtype.kind in "biuf" else column.map(harmless) for _, column in frame.items()]
    if not columns:
        return frame
    return pd.concat(columns, axis=1).set_axis([harmless(name) for name in frame.columns], axis=1)
