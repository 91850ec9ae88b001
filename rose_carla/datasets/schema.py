"""What a data set says about its columns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schema:
    """Names and roles of the columns of a raw (neither scaled nor encoded) table.

    Parameters
    ----------
    name
        Name of the data set; part of every cache key.
    target
        Column with the outcome, 1 = favourable.
    continuous, categorical
        Feature columns, sorted.
    immutables
        Features that no recourse may change.
    """

    name: str
    target: str
    continuous: tuple[str, ...]
    categorical: tuple[str, ...]
    immutables: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """All feature columns."""
        return self.continuous + self.categorical
