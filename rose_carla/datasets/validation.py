"""Checks of tables and encoded rows that users pass in, and conversion of categories to text and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types
from rose_carla.errors import DataError, RoseCarlaError, error_text, short_repr, unknown_name

#: scikit-learn treats a feature that varies by less as constant and does not scale it.
_NARROWEST = 10 * np.finfo(float).eps


def check_rows(rows: Any, columns: Iterable[str], what: str, advice: str = ".") -> None:
    """Check that ``rows``, called ``what``, are a frame with all ``columns`` (or give ``advice``) and no duplicates."""
    if not isinstance(rows, pd.DataFrame):
        raise DataError(
            f"{what} must be a pandas DataFrame, got {type(rows).__name__}: wrap them in pd.DataFrame(...), and take a "
            "single row with frame.iloc[[0]]."
        )
    missing = [column for column in columns if column not in rows.columns]
    if missing:
        raise DataError(f"{what} lack the columns {', '.join(map(str, missing[:5]))}{advice}")
    if not rows.columns.is_unique:
        repeated = short_repr(rows.columns[rows.columns.duplicated()][0])
        raise DataError(f"{what} have the column {repeated} twice: drop or rename one.")


def check_labels(frame: pd.DataFrame, name: str, owner: str = "") -> None:
    """Check that row labels are unique and not missing.

    Parameters
    ----------
    name
        Variable name of the frame in the advice.
    owner
        Words after "Row labels", such as ``" of the factuals"``.
    """
    index = frame.index
    if not index.is_unique:
        raise DataError(f"Row labels{owner} occur twice: call {name}.reset_index(drop=True) first.")
    parts = index.codes if isinstance(index, pd.MultiIndex) else [np.where(index.isna(), -1, 0)]
    if any((np.asarray(part) < 0).any() for part in parts):
        raise DataError(f"Row labels{owner} are missing: call {name}.reset_index(drop=True) first.")


def as_floats(values: Any, what: str, error: type[RoseCarlaError] = DataError) -> np.ndarray:
    """Convert encoded rows, a frame, an array or nested lists, to floats; ``what`` names them in messages.

    Raises
    ------
    RoseCarlaError
        The given ``error``, if values are not real numbers.
    """
    try:
        frame = isinstance(values, pd.DataFrame)
        kinds = {dtype.kind for dtype in values.dtypes} if frame else {np.asarray(values).dtype.kind}
        if kinds & set("cmM"):  # numpy would convert complex numbers and dates silently
            raise TypeError("dates or complex numbers")
        return values.to_numpy(dtype=float) if frame else np.asarray(values, dtype=float)
    except (TypeError, ValueError, OverflowError) as reason:
        raise error(
            f"The {what} contain values that are not numbers ({error_text(reason)[:-1]}): pass encoded rows, for "
            "instance data.transform(raw_rows)."
        ) from reason


def dense(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table without sparse columns, which scikit-learn would encode as a sparse matrix."""
    sparse = [column for column in table.columns if isinstance(table[column].dtype, pd.SparseDtype)]
    return table.assign(**{column: table[column].sparse.to_dense() for column in sparse}) if sparse else table


def check_columns(frame: pd.DataFrame, target: str) -> None:
    """Check that ``frame`` is one with unique names and labels, and has the target column."""
    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"Expected a pandas DataFrame, got {type(frame).__name__}: wrap it in pd.DataFrame(...).")
    repeated = sorted(set(map(str, frame.columns[frame.columns.duplicated()])))
    if repeated:
        raise DataError(f"Column names occur twice: {', '.join(repeated)}. Rename or drop them.")
    odd = [column for column in frame.columns if not isinstance(column, str)]
    if odd:
        found = ", ".join(map(short_repr, odd[:5]))
        raise DataError(f"Column names must be text, got {found}: rename with frame.columns = [...].")
    if not isinstance(target, str) or target not in frame.columns:
        raise DataError(unknown_name("target column", target, frame.columns))
    check_labels(frame, "frame")


def feature_roles(
    frame: pd.DataFrame, target: str, continuous: Sequence[str] | None, categorical: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    """Return the continuous and the categorical features: as given, by default by the type of their columns."""
    features = [column for column in frame.columns if column != target]
    continuous = None if continuous is None else feature_list("continuous", continuous)
    categorical = None if categorical is None else feature_list("categorical", categorical)
    for given in (continuous, categorical):
        if given is not None and len(set(given)) < len(given):
            raise DataError(f"Features are named twice in {short_repr(given)}.")
        for feature in given or ():
            if feature not in features:
                raise DataError(unknown_name("feature column", feature, features))
    if continuous is None and categorical is None:
        continuous = [f for f in features if types.is_numeric_dtype(frame[f]) and not types.is_bool_dtype(frame[f])]
    if continuous is None:
        continuous = [f for f in features if f not in set(categorical or ())]
    if categorical is None:
        categorical = [f for f in features if f not in set(continuous)]
    both = sorted(set(continuous) & set(categorical))
    if both:
        raise DataError(f"Features are both continuous and categorical: {', '.join(both)}. Choose one for each.")
    if not continuous and not categorical:
        raise DataError("The table has no feature column beside the target.")
    return list(continuous), list(categorical)


def feature_list(name: str, given: Any) -> list[str]:
    """Return names of features as a list; ``name`` is that of the parameter."""
    if isinstance(given, str):
        raise DataError(f"{name} must be a list of features: pass [{short_repr(given)}].")
    if not isinstance(given, Iterable):
        raise DataError(f"{name} must be a list of features, got {short_repr(given)}.")
    names = list(given)
    odd = [each for each in names if not isinstance(each, str)]
    if odd:
        raise DataError(f"{name} must be a list of names of features, got {short_repr(odd[0])} in it.")
    return names


def check_table(table: pd.DataFrame, continuous: Sequence[str], categorical: Sequence[str]) -> None:
    """Check that no value is missing, continuous features can be scaled, and categorical ones have few values."""
    if len(table) == 0:
        raise DataError("The table has no rows.")
    missing = {column: table[column].isna().sum() for column in table.columns}
    if any(missing.values()):
        counts = ", ".join(f"{column} ({count})" for column, count in missing.items() if count)
        raise DataError(f"Missing values in: {counts}. Drop those rows with frame.dropna() or fill them first.")
    for feature in continuous:
        values = table[feature]
        if not types.is_numeric_dtype(values) or types.is_bool_dtype(values) or types.is_complex_dtype(values):
            raise DataError(
                f"Continuous feature {feature!r} has {values.dtype} values: convert it with pd.to_numeric or name it "
                "in categorical=[...]."
            )
        found = values.to_numpy(dtype=float)
        with np.errstate(over="ignore", invalid="ignore"):
            spread = found.max() - found.min()
        if not np.isfinite(found).all() or not np.isfinite(spread):
            raise DataError(f"Continuous feature {feature!r} has infinite or too large values: drop or cap those rows.")
        if 0 < spread < _NARROWEST:
            raise DataError(
                f"Continuous feature {feature!r} varies by {spread:.2g} only, too little to be scaled to [0, 1]: "
                "change its unit, or drop it."
            )
    for feature in categorical:
        try:
            levels = table[feature].nunique()
        except TypeError as error:  # unhashable
            raise _not_categories(feature, error) from error
        if levels > 50 and levels > len(table) / 2:
            raise DataError(
                f"Categorical feature {feature!r} has {levels} values in {len(table)} rows, like a name or a date: "
                "drop it, or turn it into a number."
            )


def check_numbers(values: pd.Series) -> None:
    """Check that every row of a continuous feature is a finite number."""
    try:
        if values.dtype.kind in "mM" or isinstance(values.dtype, pd.PeriodDtype):  # pandas would convert them silently
            raise TypeError(f"{values.dtype} values")
        numbers = pd.to_numeric(values, errors="coerce")
        if numbers.dtype.kind == "c":
            raise TypeError("complex numbers")
        found = numbers.to_numpy(dtype=float, na_value=np.nan)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise DataError(f"{values.name!r} has values that are not finite numbers: {error_text(error)}") from error
    odd = np.flatnonzero(~np.isfinite(found))
    if len(odd):
        label, value = short_repr(values.index[odd[0]]), short_repr(values.iloc[odd[0]])
        raise DataError(f"{values.name!r} is {value} in row {label}, not a finite number: fill it in, or drop the row.")


def binary_target(values: pd.Series, favourable: Any) -> pd.Series:
    """Return 1 where the target is the favourable value, otherwise 0; both must occur."""
    try:
        if types.is_list_like(favourable):
            hash(favourable)  # a tuple may be a value, a list may not
            # pandas would compare a tuple row by row
            found = pd.Series([bool(value == favourable) for value in values.tolist()], index=values.index)
        else:
            found = values == favourable
        found = found.astype("int64")
    except Exception as error:  # values may be of any class
        raise DataError(f"favourable must be one value of the target, got {short_repr(favourable)}.") from error
    if found.nunique() < 2:
        some = ", ".join(list(dict.fromkeys(map(short_repr, values.tolist())))[:5])
        which = "every row" if found.iloc[0] == 1 else "no row"
        raise DataError(
            f"The target has {which} with the favourable outcome {short_repr(favourable)} (values: {some}): pass "
            "favourable=... or use data with both outcomes."
        )
    return found


def check_encoded_names(table: pd.DataFrame, names: Iterable[str], categorical: Iterable[str]) -> None:
    """Check that the names ``feature_category`` that CARLA gives to encoded columns are unique and valid text."""
    names = list(names)
    for feature in categorical:
        names += [f"{feature}_{category}" for category in table[feature].unique()]
    for name in names:
        if any("\ud800" <= sign <= "\udfff" for sign in name):
            raise DataError(f"{short_repr(name)} is not valid Unicode: rename that column or category.")
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if repeated:
        raise DataError(f"Encoded columns would collide: {', '.join(repeated[:5])}. Rename one of the features.")


def as_text(values: pd.Series) -> pd.Series:
    """Convert categories to text value by value, independently of the other values of the column.

    Raises
    ------
    DataError
        If a value is missing.
    """
    missing = np.flatnonzero(values.isna())
    if len(missing):
        label = short_repr(values.index[missing[0]])
        raise DataError(f"{values.name!r} is missing in row {label}: fill it in, or drop the row.")
    # not astype(str), which decodes bytes and keeps subclasses of str
    texts = [str(value) for value in _objects(values)]
    return pd.Series(texts, index=values.index, name=values.name, dtype=object)


def original_values(values: pd.Series) -> dict[str, Any] | None:
    """Return a mapping from the text of each category to its value, or None if all values are text.

    Raises
    ------
    DataError
        If different values have the same text, or equal values have different texts.
    """
    objects = _objects(values)
    try:
        pairs = list(dict.fromkeys((str(value), value) for value in objects))
        texts, distinct = {text for text, _ in pairs}, len(set(objects))
        is_text = all(text is value or text == value for text, value in pairs)
    except Exception as error:  # values may be of any class
        raise _not_categories(values.name, error) from error
    if len(texts) < len(pairs):
        raise DataError(f"Different values of {values.name!r} look the same as text: convert them to one type.")
    if distinct < len(pairs):
        known: dict[Any, str] = {}
        one, other = next((known[value], text) for text, value in pairs if known.setdefault(value, text) != text)
        raise DataError(
            f"Equal values of {values.name!r} differ as text, {short_repr(one)} and {short_repr(other)}: write them in "
            "one way."
        )
    return None if is_text else dict(pairs)


def restore_values(texts: pd.Series, values: Mapping[str, Any]) -> pd.Series:
    """Convert texts back to the values of :func:`original_values`."""
    kinds = {type(value) for value in values.values()}
    if len(kinds) > 1 or any(issubclass(kind, str) for kind in kinds):
        # pandas would convert numbers to one type, and subclasses of str to str
        return pd.Series([values[text] for text in texts], index=texts.index, name=texts.name, dtype=object)
    return texts.map(values)


def _objects(values: pd.Series) -> list[Any]:
    """Return numbers as numpy's scalars and anything else as Python objects; dates would be numpy's in pandas 1."""
    some = values if types.is_numeric_dtype(values) else values.astype(object)
    return list(some.to_numpy() if isinstance(some.dtype, np.dtype) else some.array)


def _not_categories(name: Any, error: Exception) -> DataError:
    return DataError(f"{name!r} has values that cannot be categories, convert them to text: {error_text(error)}")
