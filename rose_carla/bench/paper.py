"""What the paper printed: every number of its Table 1 and of the tables in its appendix."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple

import pandas as pd


class Printed(NamedTuple):
    """A value in the paper."""

    mean: float
    std: float | None


@functools.lru_cache(maxsize=1)
def frame() -> pd.DataFrame:
    """All values, one in a row: table, dataset, method, condition, metric, mean, std (NaN where none is printed)."""
    with resources.files(__package__).joinpath("paper.csv").open() as file:
        return pd.read_csv(file, keep_default_na=False, na_values={"std": [""]})


@functools.lru_cache(maxsize=1)
def _values() -> Mapping[tuple[str, ...], Printed]:
    return {
        tuple(row[:5]): Printed(float(row[5]), None if pd.isna(row[6]) else float(row[6]))
        for row in frame().itertuples(index=False)
    }


def printed(table: str, dataset: str, method: str, metric: str, condition: str = "") -> Printed | None:
    """One value; None if the paper has none.

    Examples
    --------
    >>> printed("table1", "german", "ROSE-mul", "Acc_AIR")
    Printed(mean=0.23, std=0.02)
    """
    return _values().get((table, dataset, method, condition, metric))
