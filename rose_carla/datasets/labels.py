"""Row labels: everything that is found out about somebody is kept under theirs."""

from __future__ import annotations

import numpy as np
import pandas as pd
from rose_carla.errors import DataError


def check_labels(frame: pd.DataFrame, called: str, owner: str = "") -> None:
    """Refuse labels that occur twice, or are missing: NaN is not equal to itself, so nothing is found under it.

    Parameters
    ----------
    called
        What the frame is called in the advice.
    owner
        Whose labels they are, such as ``" of the factuals"``.
    """
    index = frame.index
    if not index.is_unique:
        raise DataError(f"Row labels{owner} occur twice: call {called}.reset_index(drop=True) first.")
    parts = index.codes if isinstance(index, pd.MultiIndex) else [np.where(index.isna(), -1, 0)]
    if any((np.asarray(part) < 0).any() for part in parts):
        raise DataError(f"Row labels{owner} are missing: call {called}.reset_index(drop=True) first.")
