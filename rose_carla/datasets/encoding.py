"""Categorical features of a CARLA data set in the encoded, normalised space."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from carla.data.catalog import DataCatalog
from rose_carla.datasets.validation import as_floats, check_rows
from rose_carla.errors import DataError


def encoded_columns(data: DataCatalog) -> dict[str, list[str]]:
    """Return the encoded columns of each categorical feature of ``data``.

    A feature with two categories has one column (0 or 1), any other has one column per category, unless the data
    set uses another encoding. Works for every CARLA ``DataCatalog``, not only ours.
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
    """Return the positions among encoded ``columns`` of each feature, continuous ones included."""
    encoded = encoded_columns(data)
    position = {column: i for i, column in enumerate(columns)}
    groups = {}
    for feature in [*data.continuous, *data.categorical]:
        found = [position[column] for column in encoded.get(feature, [feature]) if column in position]
        if found:
            groups[feature] = found
    return groups


def mutable_columns(data: DataCatalog, columns: Sequence[str]) -> np.ndarray:
    """Return for each of the encoded ``columns`` whether recourse may change it."""
    groups = encoded_columns(data)
    fixed = {column for feature in data.immutables for column in groups.get(feature, [feature])}
    return np.array([column not in fixed for column in columns])


def project_categories(data: DataCatalog, columns: Sequence[str], rows: np.ndarray) -> np.ndarray:
    """Move the categorical features of ``rows`` over encoded ``columns`` to the nearest valid encoding; NaN stays.

    Raises
    ------
    DataError
        If ``rows`` are not an array of numbers with one column for each of ``columns``.
    """
    projected = np.array(as_floats(rows, "encoded rows"))
    if projected.ndim != 2 or projected.shape[1] != len(columns):
        raise DataError(
            f"Rows over {len(columns)} columns must be an array (n, {len(columns)}), got {projected.shape}."
        )
    groups = feature_groups(data, columns)
    for feature in data.categorical:
        if feature not in groups:
            continue
        block = projected[:, groups[feature]]
        candidates = valid_encodings(data, feature, len(groups[feature]))
        # nearest by |x - c|^2, without the term that all candidates share; NaN is put back below
        closeness = np.nan_to_num(block) @ candidates.T - 0.5 * (candidates**2).sum(axis=1)
        valid = candidates[closeness.argmax(axis=1)]
        valid[np.isnan(block).any(axis=1)] = np.nan
        projected[:, groups[feature]] = valid
    return projected


def encoded_values(rows: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Return the numbers (n, d) of encoded ``columns``, which may be NaN.

    Raises
    ------
    DataError
        If columns are missing or duplicated, or values are not real numbers.
    """
    check_rows(rows, columns, "Encoded rows")
    return as_floats(rows[list(columns)], "encoded rows")


def valid_encodings(data: DataCatalog, feature: str, width: int) -> np.ndarray:
    """Return all valid encodings (c, width) of a categorical feature over ``width`` of its columns."""
    if data._identity_encoding:
        return np.unique(data.df[feature].to_numpy(dtype=float))[:, None]
    one_hot = np.eye(width)
    # with a column that the encoder dropped or the model leaves out, all zeros is a category too
    return one_hot if width == len(_categories(data, feature)) else np.vstack([np.zeros(width), one_hot])


def nearest_valid(data: DataCatalog, encoded: pd.DataFrame) -> pd.DataFrame:
    """Move the categorical features of encoded rows to the nearest valid encoding; rows of NaN stay NaN.

    Raises
    ------
    DataError
        If encoded columns are missing or duplicated, or values are not real numbers.
    """
    columns = [column for group in encoded_columns(data).values() for column in group]
    rows = encoded_values(encoded, columns)
    valid = encoded.copy()
    if columns:
        valid[columns] = project_categories(data, columns, rows)
    return valid
