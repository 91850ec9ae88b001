"""People as frames: what every method asks of its factuals."""

from __future__ import annotations

import numpy as np
import pandas as pd
from carla.models.api import MLModel
from rose_carla.datasets import project_categories
from rose_carla.errors import DataError

#: Encodings that are off by less are valid.
_ROUNDING = 1e-6


def encoded_rows(mlmodel: MLModel, frame: pd.DataFrame) -> np.ndarray:
    """Encoded rows (n, d) in ``feature_input_order``, for methods that return one row for each.

    Raises
    ------
    DataError
        If columns are missing, a value is missing or infinite, a category is none, a row label occurs twice or there is
        no row.
    """
    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"Expected a DataFrame of encoded rows, got {type(frame).__name__}.")
    if len(frame) == 0:
        raise DataError("There are no factuals: the frame has no rows.")
    if not frame.index.is_unique:
        raise DataError("Row labels of the factuals occur twice: call factuals.reset_index(drop=True) first.")
    order = mlmodel.feature_input_order
    missing = [column for column in order if column not in frame.columns]
    if missing:
        raise DataError(
            f"The factuals lack the columns {', '.join(map(str, missing[:5]))}: pass encoded rows, for instance "
            "data.transform(raw_rows)."
        )
    try:
        rows = frame[order].to_numpy(dtype=float)
    except (TypeError, ValueError) as error:
        raise DataError(f"The factuals hold values that are no numbers ({error}): pass encoded rows.") from error
    broken = ~np.isfinite(rows).all(axis=1)
    if broken.any():
        labels = ", ".join(map(str, frame.index[broken][:5]))
        raise DataError(f"The factuals hold missing or infinite values in rows {labels}: drop or fill them first.")
    off = np.abs(project_categories(mlmodel.data, order, rows) - rows).max(axis=1, initial=0.0) > _ROUNDING
    if off.any():
        labels = ", ".join(map(str, frame.index[off][:5]))
        raise DataError(
            f"Categorical features of the factuals are at no valid encoding in rows {labels}: encode them with "
            "data.transform(raw_rows), or move them to the nearest one with datasets.nearest_valid(data, rows)."
        )
    return rows
