"""Checks of tables, roles and options of features that users pass in, and conversion of categories back from text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types
from rose_carla.datasets.encoding import as_objects, check_labels
from rose_carla.datasets.scaling import has_outliers
from rose_carla.errors import DataError, error_text, short_repr, unknown_name

#: scikit-learn treats a feature that varies by less as constant and does not scale it.
_NARROWEST = 10 * np.finfo(float).eps
#: Ways to scale a continuous feature.
SCALES = ("auto", "minmax", "robust")


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


def choose_scales(
    table: pd.DataFrame, continuous: Sequence[str], categorical: Sequence[str], scale: Any
) -> tuple[list[str], list[str]]:
    """Return the features with a robust scale, and those of them for which ``"auto"`` chose it.

    Raises
    ------
    DataError
        If ``scale`` is neither one of :data:`SCALES` nor a mapping from continuous features to them.
    """
    given = dict(scale) if isinstance(scale, Mapping) else dict.fromkeys(continuous, scale)
    _check_continuous("scale", given, continuous, categorical)
    for each in given.values():
        if not isinstance(each, str) or each not in SCALES:
            raise DataError(unknown_name("scale", each, SCALES))
    chosen = {feature: given.get(feature, "auto") for feature in continuous}
    outlying = [
        feature
        for feature, each in chosen.items()
        if each == "auto" and has_outliers(table[feature].to_numpy(dtype=float))
    ]
    robust = [feature for feature, each in chosen.items() if each == "robust" or feature in outlying]
    return robust, outlying


def positive_numbers(name: str, given: Any, continuous: Sequence[str], categorical: Sequence[str]) -> dict[str, float]:
    """Return ``given``, a mapping from continuous features to positive numbers or None, as a dictionary of floats.

    Raises
    ------
    DataError
        If it is anything else; ``name`` is that of the parameter.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise DataError(f"{name} must be a mapping from features to numbers, got {short_repr(given)}.")
    _check_continuous(name, given, continuous, categorical)
    for feature, value in given.items():
        is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, (bool, np.complexfloating))
        if not is_number or not 0 < value < math.inf:
            raise DataError(f"{name} of {feature!r} must be a number above 0, got {short_repr(value)}.")
    return {feature: float(value) for feature, value in given.items()}


def _check_continuous(
    name: str, features: Mapping[Any, Any], continuous: Sequence[str], categorical: Sequence[str]
) -> None:
    for feature in features:
        if feature in categorical:
            raise DataError(f"{name} is for continuous features, but {feature!r} is categorical: leave it out.")
        if feature not in continuous:
            raise DataError(unknown_name("continuous feature", feature, continuous))


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


def original_values(values: pd.Series) -> dict[str, Any] | None:
    """Return a mapping from the text of each category to its value, or None if all values are text.

    Raises
    ------
    DataError
        If different values have the same text, or equal values have different texts.
    """
    objects = as_objects(values)
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


def _not_categories(name: Any, error: Exception) -> DataError:
    return DataError(f"{name!r} has values that cannot be categories, convert them to text: {error_text(error)}")
