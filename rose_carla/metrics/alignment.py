"""Which counterfactual belongs to whom: CARLA's methods disagree about row labels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
from rose_carla.errors import DataError
from rose_carla.models.rows import finite_rows, numeric_columns


def align(factuals: pd.DataFrame, counterfactuals: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """``counterfactuals`` with the row labels of ``factuals``, in their order, and exactly ``columns``.

    Labels decide where they are the factuals' own, in any order; a factual without a row gets NaN. A method that
    renumbered its rows from 0 returns one for each factual, and position decides; a warning tells where the factuals
    have the same numbers in another order. A row that is not finite throughout becomes all NaN.

    Raises
    ------
    DataError
        If it cannot be told which row belongs to which factual.
    """
    finite_rows(factuals, columns)
    if isinstance(counterfactuals, pd.DataFrame) and len(counterfactuals) == 0:
        return pd.DataFrame(np.nan, index=factuals.index, columns=list(columns))
    values = numeric_columns(counterfactuals, columns, "counterfactuals")
    found = pd.DataFrame(values, index=counterfactuals.index, columns=list(columns))
    labels = found.index
    numbered = labels.equals(pd.RangeIndex(len(found)))
    if numbered and len(found) == len(factuals):
        if not factuals.index.equals(labels) and labels.isin(factuals.index).all():
            warnings.warn(
                "Counterfactuals numbered from 0 are taken to be in the order of the factuals, whose labels are the "
                "same numbers in another order; if they were sorted by their labels, they are not.",
                stacklevel=2,
            )
        found = found.set_axis(factuals.index, axis=0)
    elif labels.is_unique and labels.isin(factuals.index).all():
        if numbered:
            warnings.warn(
                f"{len(found)} counterfactuals numbered from 0 for {len(factuals)} factuals are taken to belong to "
                "those of the same label; if the method dropped rows and renumbered the rest, they do not.",
                stacklevel=2,
            )
        found = found.reindex(factuals.index)
    else:
        raise DataError(
            f"Cannot tell which of {len(found)} counterfactuals belongs to which of {len(factuals)} factuals: a method "
            "has to keep the row labels, or return one row for each factual in order."
        )
    return found.where(np.isfinite(found).all(axis=1))
