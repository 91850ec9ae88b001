"""Errors of this package: each message says what happened and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """Sentence for an unknown ``name`` of some ``kind``, with the closest known name first.

    Examples
    --------
    >>> unknown_name("data set", "aduld", ["german", "adult"])
    "Unknown data set 'aduld': did you mean 'adult'? Known: 'adult', 'german'."
    """
    known = sorted(known)
    spelt = {each.lower(): each for each in known}
    close = difflib.get_close_matches(str(name).lower(), spelt, n=1)
    hint = f" did you mean {spelt[close[0]]!r}?" if close else ""
    return f"Unknown {kind} {name!r}:{hint} Known: {', '.join(map(repr, known))}."
