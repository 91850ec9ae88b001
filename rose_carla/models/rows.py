"""People as frames: what every method asks of its factuals."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from carla.models.api import MLModel
from rose_carla.datasets import project_categories
from rose_carla.datasets.labels import check_labels
from rose_carla.errors import DataError, error_text
from rose_carla.models.contract import feature_order

#: Encodings that are off by less are valid.
_ROUNDING = 1e-6
#: The largest value of a factual. Features are in [0, 1]; those of people beyond the data are a bit more, and no
#: classifier or density computes with much larger numbers than this in single precision.
LARGEST = 1e15
#: What numpy casts to floats, though it is none: kinds of arrays, and objects in them.
_NO_FLOATS = "cmM"
_NO_FLOAT = (complex, np.complexfloating, np.datetime64, np.timedelta64, datetime.datetime, datetime.timedelta)


def encoded_rows(mlmodel: MLModel, frame: pd.DataFrame) -> np.ndarray:
    """Encoded rows (n, d) in ``feature_input_order``, for methods that return one row for each.

    Raises
    ------
    DataError
        If columns are missing or there twice, a value is missing, infinite or too large, a category is none, a row
        label occurs twice or there is no row.
    """
    order = feature_order(mlmodel)
    rows = finite_rows(frame, order)
    off = np.abs(project_categories(mlmodel.data, order, rows) - rows).max(axis=1, initial=0.0) > _ROUNDING
    if off.any():
        raise DataError(
            f"Categorical features of the factuals are at no valid encoding in rows {_some(frame, off)}: encode them "
            "with data.transform(raw_rows), or move them to the nearest one with datasets.nearest_valid(data, rows)."
        )
    return rows


def finite_rows(factuals: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Values (n, d) of factuals in ``columns``, whatever their categories.

    Raises
    ------
    DataError
        As :func:`encoded_rows`, but for categories.
    """
    rows = numeric_columns(factuals, columns, "factuals")
    if len(rows) == 0:
        raise DataError("There are no factuals: the frame has no rows.")
    check_labels(factuals, "factuals", " of the factuals")
    broken = ~np.isfinite(rows).all(axis=1)
    if broken.any():
        raise DataError(
            f"The factuals hold missing or infinite values in rows {_some(factuals, broken)}: drop or fill them first."
        )
    far = np.abs(rows).max(axis=1, initial=0.0) > LARGEST
    if far.any():
        raise DataError(
            f"The factuals hold values beyond {LARGEST:g} in rows {_some(factuals, far)}: pass encoded rows, in which "
            "features are scaled to [0, 1]."
        )
    return rows


def numeric_columns(frame: pd.DataFrame, columns: Sequence[str], what: str) -> np.ndarray:
    """Numbers (n, d) of a frame in ``columns``, maybe NaN or infinite; ``what`` is what its rows are called."""
    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"Expected the {what} as a DataFrame of encoded rows, got {type(frame).__name__}.")
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise DataError(
            f"The {what} lack the columns {', '.join(map(str, missing[:5]))}: pass encoded rows, for instance "
            "data.transform(raw_rows)."
        )
    found = frame[list(columns)]
    if found.shape[1] != len(columns):
        twice = found.columns[found.columns.duplicated()]
        raise DataError(f"The {what} have columns twice: {', '.join(map(str, twice[:5]))}. Drop one of each.")
    try:
        return as_floats(found)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"The {what} hold values that are no numbers ({error_text(error)[:-1]}): pass encoded rows."
        ) from error


def as_floats(values: Any) -> np.ndarray:
    """Numbers of a frame, an array or lists as floats.

    Raises
    ------
    TypeError, ValueError, OverflowError
        If some are none. Days, durations and complex numbers are none, though numpy would cast them without a word.
    """
    if not isinstance(values, pd.DataFrame):
        array = np.asarray(values)
        if array.dtype == np.float64:  # nearly always, and classifiers are asked in loops
            return array
        _check_real(array)
        return array.astype(float, copy=False)
    for position, dtype in enumerate(values.dtypes):
        _check_real(values.iloc[:, position] if dtype.kind == "O" else dtype)
    return values.to_numpy(dtype=float)


def _check_real(values: Any) -> None:
    """Refuse an array or a column with values that are no real numbers, or a type of such values."""
    dtype = getattr(values, "dtype", values)
    if dtype.kind in _NO_FLOATS:
        raise TypeError(f"they are of type {dtype}")
    if dtype.kind == "O":
        odd = next((value for value in np.asarray(values, dtype=object).flat if isinstance(value, _NO_FLOAT)), None)
        if odd is not None:
            raise TypeError(f"one is of type {type(odd).__name__}")


def _some(frame: pd.DataFrame, chosen: np.ndarray) -> str:
    return ", ".join(map(str, frame.index[chosen][:5]))
