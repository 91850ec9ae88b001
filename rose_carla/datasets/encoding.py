"""How a CARLA data set's categorical features appear in the encoded, normalised space."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from carla.data.catalog import DataCatalog
from rose_carla.datasets.values import check_rows, is_missing, numbers
from rose_carla.errors import DataError, error_text, short_repr


def encoded_columns(data: DataCatalog) -> dict[str, list[str]]:
    """Encoded columns of each categorical feature of ``data``.

    A feature with two categories has one column (0 or 1), any other has one column per category, unless the data
    set was made with another encoding. Works for every CARLA ``DataCatalog``, not only ours.
    """
    categorical = list(data.categorical)
    if not categorical:
        return {}
    if data._identity_encoding:
        return {feature: [feature] for feature in categorical}
    names = list(data.encoder.get_feature_names_out(categorical))
    dropped = data.encoder.drop_idx_
    columns, start = {}, 0
    for position, feature in enumerate(categorical):
        width = len(_categories(data, feature))
        if dropped is not None and dropped[position] is not None:
            width -= 1
        columns[feature] = names[start : start + width]
        start += width
    return columns


def _categories(data: DataCatalog, feature: str) -> np.ndarray:
    return data.encoder.categories_[list(data.categorical).index(feature)]


def feature_groups(data: DataCatalog, columns: Sequence[str]) -> dict[str, list[int]]:
    """Positions among encoded ``columns`` of each feature, continuous ones included."""
    encoded = encoded_columns(data)
    position = {column: i for i, column in enumerate(columns)}
    groups = {}
    for feature in [*data.continuous, *data.categorical]:
        found = [position[column] for column in encoded.get(feature, [feature]) if column in position]
        if found:
            groups[feature] = found
    return groups


def mutable_columns(data: DataCatalog, columns: Sequence[str]) -> np.ndarray:
    """For each of the encoded ``columns`` whether recourse may change it: it belongs to no immutable feature."""
    groups = encoded_columns(data)
    fixed = {column for feature in data.immutables for column in groups.get(feature, [feature])}
    return np.array([column not in fixed for column in columns])


def project_categories(data: DataCatalog, columns: Sequence[str], rows: np.ndarray) -> np.ndarray:
    """``rows`` over encoded ``columns`` with every categorical feature at its nearest valid encoding; NaN stays.

    Raises
    ------
    DataError
        If ``rows`` are no array of numbers with one column for each of ``columns``.
    """
    projected = _numbers(rows)
    if projected.ndim != 2 or projected.shape[1] != len(columns):
        raise DataError(
            f"Rows over {len(columns)} columns have to be an array (n, {len(columns)}), got {projected.shape}."
        )
    groups = feature_groups(data, columns)
    for feature in data.categorical:
        if feature not in groups:
            continue
        block = projected[:, groups[feature]]
        candidates = valid_encodings(data, feature, len(groups[feature]))
        # nearest by |x - c|^2, without the term that all candidates share; NaN compares false and is put back below
        closeness = np.nan_to_num(block) @ candidates.T - 0.5 * (candidates**2).sum(axis=1)
        valid = candidates[closeness.argmax(axis=1)]
        valid[np.isnan(block).any(axis=1)] = np.nan
        projected[:, groups[feature]] = valid
    return projected


def _numbers(rows: np.ndarray) -> np.ndarray:
    """A copy of ``rows`` as real numbers."""
    try:
        if np.asarray(rows).dtype.kind not in "cmM":  # numpy would cut complex numbers, and count days
            return np.array(rows, dtype=float)
        why = "they are days or complex."
    except Exception as error:  # words, ragged lists
        why = error_text(error)
    raise DataError(f"Encoded rows have to be real numbers: {why}")


def check_encoded(rows: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Numbers (n, d) of encoded ``columns``, NaN where some are missing.

    Raises
    ------
    DataError
        If columns are missing or twice, or hold anything but real numbers.
    """
    check_rows(rows, columns, "Encoded rows", "columns")
    some = rows[list(columns)]
    if all(isinstance(dtype, np.dtype) and dtype.kind in "fiub" for dtype in some.dtypes):
        return some.to_numpy(dtype=float)
    encoded = np.full(some.shape, np.nan)
    for position, column in enumerate(columns):
        encoded[:, position] = numbers(some[column])
        odd = np.flatnonzero(np.isnan(encoded[:, position]) & ~is_missing(some[column]))
        if len(odd):
            raise DataError(
                f"Encoded rows must be real numbers, but {column!r} is {short_repr(some[column].iloc[odd[0]])} in row "
                f"{short_repr(some.index[odd[0]])}."
            )
    return encoded


def valid_encodings(data: DataCatalog, feature: str, width: int) -> np.ndarray:
    """Every valid encoding (c, width) of a categorical feature over the columns of it that are there."""
    if data._identity_encoding:
        return np.unique(data.df[feature].to_numpy(dtype=float))[:, None]
    one_hot = np.eye(width)
    # A dropped column (of two categories), or one that a model leaves out, makes all zeros a category too.
    return one_hot if width == len(_categories(data, feature)) else np.vstack([np.zeros(width), one_hot])


def nearest_valid(data: DataCatalog, encoded: pd.DataFrame) -> pd.DataFrame:
    """``encoded`` with every categorical feature moved to the nearest valid encoding; NaN rows stay NaN.

    Raises
    ------
    DataError
        If encoded columns of a categorical feature are missing or twice, or hold anything but real numbers.
    """
    columns = [column for group in encoded_columns(data).values() for column in group]
    rows = check_encoded(encoded, columns)
    valid = encoded.copy()
    if columns:
        valid[columns] = project_categories(data, columns, rows)
    return valid
