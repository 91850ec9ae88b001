"""Values of a table: what cannot be used as a feature or as an outcome is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types
from rose_carla.datasets.schema import Schema
from rose_carla.errors import DataError, said, shown

#: scikit-learn takes a feature that varies by less for constant and does not scale it.
_NARROWEST = 10 * np.finfo(float).eps


def check_numbers(values: pd.Series) -> None:
    """Refuse rows of a continuous feature without a finite number.

    Raises
    ------
    DataError
        With the first of them.
    """
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    odd = np.flatnonzero(~np.isfinite(numbers))
    if len(odd):
        label, value = shown(values.index[odd[0]]), shown(values.iloc[odd[0]])
        raise DataError(
            f"{values.name!r} is {value} in row {label}, which is no finite number: fill it in, or drop the row."
        )


def check_values(table: pd.DataFrame, schema: Schema) -> None:
    """Refuse missing values, and features that can be neither scaled nor counted."""
    if len(table) == 0:
        raise DataError("The table has no rows.")
    missing = table.isna().sum()
    if missing.any():
        counts = ", ".join(f"{column} ({count})" for column, count in missing[missing > 0].items())
        raise DataError(f"Missing values in: {counts}. Drop those rows with frame.dropna() or fill them first.")
    for feature in schema.continuous:
        values = table[feature]
        if not types.is_numeric_dtype(values) or types.is_bool_dtype(values) or types.is_complex_dtype(values):
            raise DataError(
                f"Continuous feature {feature!r} holds {values.dtype} values: convert it with pd.to_numeric or name "
                "it in categorical=[...]."
            )
        numbers = values.to_numpy(dtype=float)
        if not np.isfinite(numbers).all() or not np.isfinite(numbers.max() - numbers.min()):
            raise DataError(
                f"Continuous feature {feature!r} holds infinite or too large values: drop or cap those rows."
            )
        if 0 < numbers.max() - numbers.min() < _NARROWEST:
            raise DataError(
                f"Continuous feature {feature!r} varies by {numbers.max() - numbers.min():.2g} only, too little to be "
                "scaled to [0, 1]: change its unit, or drop it."
            )
    for feature in schema.categorical:
        levels = _levels(table[feature])
        if levels > 50 and levels > len(table) / 2:
            raise DataError(
                f"Categorical feature {feature!r} has {levels} values in {len(table)} rows, like a name or a date: "
                "drop it, or turn it into a number."
            )


def _levels(values: pd.Series) -> int:
    try:
        return values.nunique()
    except TypeError as error:
        message = f"Categorical feature {values.name!r} holds values that are no categories, turn them into text"
        raise DataError(f"{message}: {said(error)}") from error


def outcome(values: pd.Series, favourable: Any) -> pd.Series:
    """1 where the outcome is the favourable one, otherwise 0; both have to occur."""
    try:
        found = (values == favourable).astype("int64")
    except (TypeError, ValueError) as error:
        raise DataError(f"favourable has to be one value of the target, got {shown(favourable)}.") from error
    if found.nunique() < 2:
        listed = ", ".join(map(shown, values.unique().tolist()[:5]))
        which = "every row" if found.iloc[0] == 1 else "no row"
        raise DataError(
            f"The target has {which} with the favourable outcome {shown(favourable)} (values: {listed}): pass "
            "favourable=... or use data with both outcomes."
        )
    return found


def check_encoded_names(table: pd.DataFrame, schema: Schema) -> None:
    """CARLA names an encoded column ``feature_category``; two features must not end up with the same one."""
    names = [*schema.features, schema.target]
    for feature in schema.categorical:
        names += [f"{feature}_{category}" for category in table[feature].unique()]
    for name in names:
        if any("\ud800" <= sign <= "\udfff" for sign in name):
            raise DataError(f"{shown(name)} has signs that are no Unicode text: rename that column or category.")
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if repeated:
        raise DataError(f"Encoded columns would collide: {', '.join(repeated[:5])}. Rename one of the features.")
