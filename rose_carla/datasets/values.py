"""Values of a table: what cannot be used as a feature or as an outcome is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types
from rose_carla.datasets.schema import Schema
from rose_carla.errors import DataError, error_text, short_repr

#: scikit-learn takes a feature that varies by less for constant and does not scale it.
_NARROWEST = 10 * np.finfo(float).eps


def check_rows(rows: Any, columns: Iterable[str], called: str, parts: str) -> None:
    """Refuse anything but a frame with all ``columns``, and with every column once.

    Parameters
    ----------
    called, parts
        What the rows and the columns are called, such as ``"Raw rows"`` and ``"features"``.
    """
    if not isinstance(rows, pd.DataFrame):
        raise DataError(
            f"{called} have to be a pandas DataFrame, got {type(rows).__name__}: wrap them in pd.DataFrame(...), and "
            "take a single row with frame.iloc[[0]]."
        )
    missing = [column for column in columns if column not in rows.columns]
    if missing:
        raise DataError(f"{called} lack the {parts} {', '.join(missing[:5])}.")
    if not rows.columns.is_unique:
        repeated = short_repr(rows.columns[rows.columns.duplicated()][0])
        raise DataError(f"{called} have the column {repeated} twice: drop or rename one.")


def dense(table: pd.DataFrame, columns: Iterable[str]) -> pd.DataFrame:
    """The table with none of ``columns`` sparse: of sparse columns alone scikit-learn makes a sparse matrix."""
    sparse = [column for column in columns if isinstance(table[column].dtype, pd.SparseDtype)]
    return table.assign(**{column: table[column].sparse.to_dense() for column in sparse}) if sparse else table


def check_numbers(values: pd.Series) -> None:
    """Refuse rows of a continuous feature without a finite number.

    Raises
    ------
    DataError
        With the first of them.
    """
    odd = np.flatnonzero(~np.isfinite(numbers(values)))
    if len(odd):
        label, value = short_repr(values.index[odd[0]]), short_repr(values.iloc[odd[0]])
        raise DataError(
            f"{values.name!r} is {value} in row {label}, which is no finite number: fill it in, or drop the row."
        )


def numbers(values: pd.Series) -> np.ndarray:
    """Numbers of a column, NaN for whatever is no real one: pandas would count days, and cut complex numbers."""
    if values.dtype.kind in "mMc" or isinstance(values.dtype, pd.PeriodDtype):
        return np.full(len(values), np.nan)
    try:
        found = pd.to_numeric(values, errors="coerce")
        if found.dtype.kind != "c":
            return found.to_numpy(dtype=float, na_value=np.nan)
    except Exception:  # a value of some class, or a whole number beyond floats: found one by one
        pass
    return np.array([_number(value) for value in values], dtype=float)


def _number(value: Any) -> float:
    try:
        found = pd.to_numeric(value, errors="coerce")
        return np.nan if np.iscomplexobj(found) else float(found)
    except Exception:
        return np.nan


def is_missing(values: pd.Series) -> np.ndarray:
    """For each value whether it is missing."""
    try:
        return values.isna().to_numpy(dtype=bool)
    except Exception as error:  # signaling NaN takes part in no comparison
        raise no_categories(values.name, error) from error


def no_categories(name: Any, error: Exception) -> DataError:
    """The refusal of a column whose values raise an error as they are written, compared or counted."""
    return DataError(f"{name!r} holds values that are no categories, turn them into text: {error_text(error)}")


def check_values(table: pd.DataFrame, schema: Schema) -> None:
    """Refuse missing values, and features that can be neither scaled nor counted."""
    if len(table) == 0:
        raise DataError("The table has no rows.")
    missing = {column: is_missing(table[column]).sum() for column in table.columns}
    if any(missing.values()):
        counts = ", ".join(f"{column} ({count})" for column, count in missing.items() if count)
        raise DataError(f"Missing values in: {counts}. Drop those rows with frame.dropna() or fill them first.")
    for feature in schema.continuous:
        values = table[feature]
        if not types.is_numeric_dtype(values) or types.is_bool_dtype(values) or types.is_complex_dtype(values):
            raise DataError(
                f"Continuous feature {feature!r} holds {values.dtype} values: convert it with pd.to_numeric or name "
                "it in categorical=[...]."
            )
        found = values.to_numpy(dtype=float)
        if not np.isfinite(found).all() or not np.isfinite(found.max() - found.min()):
            raise DataError(
                f"Continuous feature {feature!r} holds infinite or too large values: drop or cap those rows."
            )
        if 0 < found.max() - found.min() < _NARROWEST:
            raise DataError(
                f"Continuous feature {feature!r} varies by {found.max() - found.min():.2g} only, too little to be "
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
    except Exception as error:  # values that can be neither hashed nor compared
        raise no_categories(values.name, error) from error


def outcome(values: pd.Series, favourable: Any) -> pd.Series:
    """1 where the outcome is the favourable one, otherwise 0; both have to occur."""
    try:
        found = _equal(values, favourable).astype("int64")
    except Exception as error:  # values of the target may be of any class
        raise DataError(f"favourable has to be one value of the target, got {short_repr(favourable)}.") from error
    if found.nunique() < 2:
        listed = ", ".join(list(dict.fromkeys(map(short_repr, values.tolist())))[:5])
        which = "every row" if found.iloc[0] == 1 else "no row"
        raise DataError(
            f"The target has {which} with the favourable outcome {short_repr(favourable)} (values: {listed}): pass "
            "favourable=... or use data with both outcomes."
        )
    return found


def _equal(values: pd.Series, one: Any) -> pd.Series:
    """Where a column holds ``one`` value."""
    if not types.is_list_like(one):
        return values == one
    hash(one)  # lists and arrays are no values, but tuples may be
    # pandas would compare a tuple of as many values row by row
    return pd.Series([bool(value == one) for value in values.tolist()], index=values.index)


def check_encoded_names(table: pd.DataFrame, schema: Schema) -> None:
    """CARLA names an encoded column ``feature_category``; two features must not end up with the same one."""
    names = [*schema.features, schema.target]
    for feature in schema.categorical:
        names += [f"{feature}_{category}" for category in table[feature].unique()]
    for name in names:
        if any("\ud800" <= sign <= "\udfff" for sign in name):
            raise DataError(f"{short_repr(name)} has signs that are no Unicode text: rename that column or category.")
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if repeated:
        raise DataError(f"Encoded columns would collide: {', '.join(repeated[:5])}. Rename one of the features.")
