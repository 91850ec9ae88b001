"""Data sets from a user's table: checks of its columns and roles, and conversion of categories to text."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types
from rose_carla.datasets.dataset import Dataset, Schema, as_objects, as_text, check_labels, dense
from rose_carla.datasets.scaling import check_units, choose_scales, outlier_warning, positive_numbers
from rose_carla.errors import DataError, error_text, short_repr, unknown_name

#: Names of the paper's data sets, which select settings of training and negative instances.
RESERVED_NAMES = ("german", "german-typed", "adult", "compas")
#: scikit-learn treats a feature that varies by less as constant and does not scale it.
_NARROWEST = 10 * np.finfo(float).eps


def from_frame(
    frame: pd.DataFrame,
    target: str,
    *,
    name: str,
    continuous: Sequence[str] | None = None,
    categorical: Sequence[str] | None = None,
    immutables: Iterable[str] = (),
    favourable: Any = 1,
    scale: str | Mapping[str, str] = "auto",
    units: Mapping[str, float] | None = None,
    noise: Mapping[str, float] | None = None,
    test_size: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Make a data set from a table.

    Parameters
    ----------
    frame
        One row per person, in original units, without missing values.
    target
        Column with the outcome.
    name
        Name of the data set; keep it distinct, because it is part of every cache key.
    continuous, categorical
        Feature columns. By default numeric columns are continuous and all others, also boolean ones, categorical;
        with one of them given, all other columns are of the other kind.
    immutables
        Features that recourse may not change.
    favourable
        The favourable value of ``target``; every other value is unfavourable.
    scale
        How continuous features are scaled to [0, 1]: ``"minmax"`` from the smallest to the largest value; ``"robust"``
        mostly by the central part of the values, in which actions stay; ``"auto"`` is robust for features with
        outliers, which a warning names. Or a mapping from some features to one of these; all others are ``"auto"``.
    units
        Size of a unit of action of some continuous features, in original units: ``{"income": 500}``. All others have
        that of the method, a share of the scale.
    noise
        Standard deviation of the noise of some continuous features, relative to all others: ``{"income": 0.5}``.
    test_size, seed
        Share of test rows and seed of the stratified split.

    Raises
    ------
    DataError
        If the table cannot be used; the message says what to change.

    Examples
    --------
    >>> import pandas as pd
    >>> from rose_carla import datasets
    >>> homes, loans = ["rent", "own"] * 10, ["no", "no", "yes", "no"] * 5
    >>> people = pd.DataFrame({"income": range(20), "home": homes, "loan": loans})
    >>> data = datasets.from_frame(people, "loan", name="loans", favourable="yes")
    >>> list(data.df.columns)
    ['income', 'loan', 'home_rent']
    """
    check_columns(frame, target)
    frame = dense(frame)
    continuous, categorical = feature_roles(frame, target, continuous, categorical)
    immutables = tuple(feature_list("immutables", immutables))
    if not isinstance(name, str) or not name:
        raise DataError(f"name must be text, got {short_repr(name)}.")
    if name in RESERVED_NAMES:
        raise DataError(f"The name {name!r} belongs to one of the paper's data sets: choose another with name=...")
    for feature in immutables:
        if feature not in continuous + categorical:
            raise DataError(unknown_name("immutable feature", feature, continuous + categorical))
    schema = Schema(name, target, tuple(sorted(continuous)), tuple(sorted(categorical)), immutables)
    features = {*continuous, *categorical}
    table = frame[[column for column in frame.columns if column in features or column == target]].copy()
    check_table(table, schema.continuous, schema.categorical)
    table[target] = binary_target(table[target], favourable)
    values = {feature: original_values(table[feature]) for feature in categorical}
    for feature in categorical:
        table[feature] = as_text(table[feature])
    check_encoded_names(table, [*schema.features, target], schema.categorical)
    originals = {feature: found for feature, found in values.items() if found is not None}
    robust, outlying = choose_scales(table, schema.continuous, schema.categorical, scale)
    data = Dataset(
        table,
        schema,
        test_size=test_size,
        seed=seed,
        originals=originals,
        robust=robust,
        units=positive_numbers("units", units, schema.continuous, schema.categorical),
        noise=positive_numbers("noise", noise, schema.continuous, schema.categorical),
    )
    check_units(data)
    if outlying:
        warnings.warn(outlier_warning(data, outlying), stacklevel=2)
    return data


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


def _not_categories(name: Any, error: Exception) -> DataError:
    return DataError(f"{name!r} has values that cannot be categories, convert them to text: {error_text(error)}")
