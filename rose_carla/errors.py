"""Errors of this package: each message says what happened and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: Names that are listed, characters of a value and of somebody else's message that are shown.
_LISTED, _SHOWN, _SAID = 40, 80, 300


class RoseCarlaError(Exception):
    """Base of every error this package raises on purpose."""


class MissingPackageError(RoseCarlaError, ImportError):
    """A package that the requested piece needs is not installed."""


class DataError(RoseCarlaError, ValueError):
    """A data set, a column or a row cannot be used as it is."""


class ModelError(RoseCarlaError, ValueError):
    """A classifier cannot be trained, wrapped or called as it is."""


class NoiseError(RoseCarlaError, ValueError):
    """A density, a noise or a plan of actions cannot be computed as asked."""


class PlanError(RoseCarlaError, ValueError):
    """Recourse cannot be planned as asked."""


class ExperimentError(RoseCarlaError, ValueError):
    """An experiment cannot be run, resumed or shown as asked."""


class ContractError(RoseCarlaError, AssertionError):
    """A recourse method does not keep CARLA's contract, or not its own claims."""


def unknown_name(kind: str, name: object, known: Iterable[object]) -> str:
    """Sentence for an unknown ``name`` of some ``kind``, with the closest known name first.

    Examples
    --------
    >>> unknown_name("data set", "aduld", ["german", "adult"])
    "Unknown data set 'aduld': did you mean 'adult'? Known: 'adult', 'german'."
    """
    known = sorted(known, key=str)
    spelt = {str(each).lower(): each for each in known}
    close = difflib.get_close_matches(str(name).lower(), spelt, n=1)
    hint = f" did you mean {short_repr(spelt[close[0]])}?" if close else ""
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"Unknown {kind} {short_repr(name)}:{hint} Known: {', '.join(map(short_repr, known[:_LISTED]))}{more}."


def short_repr(value: object) -> str:
    """A value as messages show it: written as in code if that is short, otherwise only what kind of thing it is.

    Examples
    --------
    >>> short_repr("adult"), short_repr([1, 2]), short_repr(range(3)), short_repr("x" * 1000)[:9]
    ("'adult'", '[1, 2]', 'range(0, 3)', "'xxxxxxxx")
    """
    if isinstance(value, str):
        return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}..."
    written = repr(value)
    plain = len(written) <= _SHOWN and "\n" not in written and " at 0x" not in written
    array = hasattr(value, "dtype") and getattr(value, "ndim", 0) > 0
    return written if plain and not array else f"a value of type {type(value).__name__}"


def error_text(error: BaseException) -> str:
    """What an error of another library says, as the end of a sentence of ours.

    Examples
    --------
    >>> error_text(ValueError("no columns\\n")), error_text(KeyError())
    ('no columns.', 'KeyError.')
    """
    try:
        words = " ".join(str(error).split())
    except Exception:  # of somebody else's class, which cannot say it
        words = ""
    words = words if len(words) <= _SAID else words[:_SAID] + " ..."
    return (words or type(error).__name__).rstrip(".") + "."
