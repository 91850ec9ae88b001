"""Exceptions of this package, and the text of messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

#: Limits of messages: names in a list, characters of a value, characters of another library's message.
_MAX_NAMES, _MAX_VALUE, _MAX_MESSAGE = 40, 80, 300


class RoseCarlaError(Exception):
    """Base class of the errors this package raises."""


class MissingPackageError(RoseCarlaError, ImportError):
    """A required optional package is not installed."""


class DataError(RoseCarlaError, ValueError):
    """A data set, a column or a row cannot be used."""


class ModelError(RoseCarlaError, ValueError):
    """A classifier cannot be trained, wrapped or called."""


class NoiseError(RoseCarlaError, ValueError):
    """A density, noise or an invalidation rate cannot be computed."""


class PlanError(RoseCarlaError, ValueError):
    """Recourse cannot be planned."""


class ExperimentError(RoseCarlaError, ValueError):
    """An experiment cannot be run, resumed or shown."""


class ContractError(RoseCarlaError, AssertionError):
    """A recourse method violates CARLA's contract or its own claims."""


def unknown_name(kind: str, name: object, known: Iterable[object]) -> str:
    """Format the message for an unknown ``name``, with a close match and the known names.

    Examples
    --------
    >>> unknown_name("data set", "aduld", ["german", "adult"])
    "Unknown data set 'aduld': did you mean 'adult'? Known: 'adult', 'german'."
    """
    known = sorted(known, key=str)
    by_lowercase = {str(each).lower(): each for each in known}
    close = difflib.get_close_matches(str(name).lower(), by_lowercase, n=1)
    hint = f" did you mean {short_repr(by_lowercase[close[0]])}?" if close else ""
    more = f" and {len(known) - _MAX_NAMES} more" if len(known) > _MAX_NAMES else ""
    return f"Unknown {kind} {short_repr(name)}:{hint} Known: {', '.join(map(short_repr, known[:_MAX_NAMES]))}{more}."


def short_repr(value: object) -> str:
    """Format a value for a message: its repr if that is short, otherwise its type.

    Examples
    --------
    >>> short_repr("adult"), short_repr([1, 2]), short_repr(range(3)), short_repr("x" * 1000)[:9]
    ("'adult'", '[1, 2]', 'range(0, 3)', "'xxxxxxxx")
    """
    if isinstance(value, str):
        return repr(value) if len(value) <= _MAX_VALUE else f"{value[:_MAX_VALUE]!r}..."
    text = repr(value)
    is_short = len(text) <= _MAX_VALUE and "\n" not in text and " at 0x" not in text
    is_array = hasattr(value, "dtype") and getattr(value, "ndim", 0) > 0
    return text if is_short and not is_array else f"a value of type {type(value).__name__}"


def error_text(error: BaseException) -> str:
    """Format the message of another library's error as the end of a sentence.

    Examples
    --------
    >>> error_text(ValueError("no columns\\n")), error_text(KeyError())
    ('no columns.', 'KeyError.')
    """
    try:
        text = " ".join(str(error).split())
    except Exception:  # user-defined exceptions may have a broken __str__
        text = ""
    text = text if len(text) <= _MAX_MESSAGE else text[:_MAX_MESSAGE] + " ..."
    return (text or type(error).__name__).rstrip(".") + "."


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
