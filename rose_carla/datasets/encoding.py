"""How a CARLA data set's categorical features appear in the encoded, normalised space."""

from __future__ import annotations

import numpy as np
import pandas as pd
from carla.data.catalog import DataCatalog


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


def nearest_valid(data: DataCatalog, encoded: pd.DataFrame) -> pd.DataFrame:
    """``encoded`` with every categorical feature moved to the nearest valid encoding; NaN rows stay NaN."""
    valid = encoded.copy()
    for feature, columns in encoded_columns(data).items():
        block = valid[columns].to_numpy(dtype=float)
        unknown = np.isnan(block).any(axis=1)
        if len(columns) < len(_categories(data, feature)):
            projected = (block > 0.5).astype(float)
        else:
            projected = np.zeros_like(block)
            filled = np.where(np.isnan(block), -np.inf, block)
            projected[np.arange(len(block)), filled.argmax(axis=1)] = 1.0
        projected[unknown] = np.nan
        valid[columns] = projected
    return valid
