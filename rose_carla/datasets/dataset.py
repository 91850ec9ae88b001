"""CARLA data sets from tables."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from carla.data.catalog import DataCatalog
from pandas.api import types
from rose_carla._lib.params import check_seed
from rose_carla.datasets.encoding import (
    as_text,
    check_numbers,
    check_rows,
    dense,
    encoded_values,
    nearest_valid,
    reachable_values,
)
from rose_carla.datasets.scaling import PiecewiseScaler
from rose_carla.datasets.validation import (
    binary_target,
    check_columns,
    check_encoded_names,
    check_table,
    choose_scales,
    feature_list,
    feature_roles,
    original_values,
    positive_numbers,
    restore_values,
)
from rose_carla.errors import DataError, error_text, short_repr, unknown_name
from sklearn.model_selection import train_test_split

#: Names of the paper's data sets, which select settings of training and negative instances.
RESERVED_NAMES = ("german", "german-typed", "adult", "compas")
#: The largest seed that scikit-learn takes.
LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True)
class Schema:
    """Names and roles of the columns of a raw (neither scaled nor encoded) table.

    Parameters
    ----------
    name
        Name of the data set; part of every cache key.
    target
        Column with the outcome, 1 = favourable.
    continuous, categorical
        Feature columns, sorted.
    immutables
        Features that recourse may not change.
    """

    name: str
    target: str
    continuous: tuple[str, ...]
    categorical: tuple[str, ...]
    immutables: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """All feature columns."""
        return self.continuous + self.categorical


class Dataset(DataCatalog):
    """Data set with a seeded split, continuous features scaled to [0, 1] and categorical ones one-hot encoded.

    Use :func:`rose_carla.datasets.load` or :func:`from_frame`, which check the table.

    Parameters
    ----------
    raw
        Table with the columns of ``schema``, categories as text, outcomes 0 and 1.
    schema
        Names and roles of the columns.
    test_size
        Share of rows in the test split.
    seed
        Seed of the split, which is stratified by the target.
    originals
        For categorical features whose values are not text, a mapping from text to value.
    robust
        Continuous features with a scale that survives outliers; see :class:`~rose_carla.datasets.PiecewiseScaler`.
    units
        Size of a unit of action of some continuous features, in original units.
    noise
        Standard deviation of the noise of some continuous features, relative to that of all others.

    Examples
    --------
    >>> from rose_carla import datasets
    >>> data = datasets.load("compas")
    >>> data.df_train.shape, data.df_test.shape
    ((4937, 8), (1235, 8))
    """

    def __init__(
        self,
        raw: pd.DataFrame,
        schema: Schema,
        test_size: float = 0.2,
        seed: int = 0,
        originals: Mapping[str, Mapping[str, Any]] | None = None,
        robust: Iterable[str] = (),
        units: Mapping[str, float] | None = None,
        noise: Mapping[str, float] | None = None,
    ) -> None:
        self.schema = schema
        self.originals = dict(originals or {})
        self.robust = tuple(robust)
        self.units, self.noise = dict(units or {}), dict(noise or {})
        self._raw = raw
        self._integers = [f for f in schema.continuous if types.is_integer_dtype(raw[f])]
        self.test_size = test_size
        self.seed = check_seed(seed, DataError, LARGEST_SEED)
        rows = np.arange(len(raw))
        try:
            train, test = train_test_split(
                rows, test_size=test_size, random_state=self.seed, stratify=raw[schema.target].to_numpy()
            )
        except (TypeError, ValueError) as error:
            raise DataError(
                f"Cannot split {len(raw)} rows into train and test with test_size={short_repr(test_size)}: "
                f"{error_text(error)} Each outcome needs at least one row on either side."
            ) from error
        # CARLA keeps the index, so a row has the same label in splits, factuals and counterfactuals.
        scaling = "MinMax" if schema.continuous else "Identity"
        super().__init__(schema.name, raw, raw.iloc[train], raw.iloc[test], scaling_method=scaling)
        if self.robust:  # CARLA's constructor takes no scaler, so encode once more
            self.scaler = PiecewiseScaler(self.robust).fit(raw[self.continuous])
            self._df, self._df_train, self._df_test = map(self.transform, (raw, raw.iloc[train], raw.iloc[test]))

    @property
    def categorical(self) -> list[str]:
        """Categorical features, by their raw names."""
        return list(self.schema.categorical)

    @property
    def continuous(self) -> list[str]:
        """Continuous features. Sorted: CARLA's FOCUS returns them in this order but computes in sorted order."""
        return list(self.schema.continuous)

    @property
    def immutables(self) -> list[str]:
        """Features that recourse may not change, by their raw names."""
        return list(self.schema.immutables)

    @property
    def raw_features(self) -> list[str]:
        """Features by their raw names, in the order of the table."""
        return [column for column in self._raw.columns if column in self.schema.features]

    @property
    def target(self) -> str:
        """Column with the outcome, 1 = favourable."""
        return self.schema.target

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the table and its split; CARLA's pipeline cannot be pickled."""
        further = (self.originals, self.robust, self.units, self.noise)
        return type(self), (self._raw, self.schema, self.test_size, self.seed, *further)

    def transform(self, df: pd.DataFrame) -> pd.DataFrame:
        """Encode and normalise rows in original units.

        Raises
        ------
        DataError
            If features, numbers or categories are missing or unknown.
        """
        check_rows(df, self.schema.features, "Raw rows")
        if len(df) == 0:
            return self.transform(self._raw.head(1).reindex(columns=df.columns)).head(0).set_axis(df.index, axis=0)
        raw = dense(df).copy()
        for feature in self.schema.continuous:
            check_numbers(raw[feature])
        for feature in self.schema.categorical:
            raw[feature] = as_text(raw[feature])
            known = self.encoder.categories_[self.schema.categorical.index(feature)]
            strange = sorted(set(raw[feature]) - set(known))
            if strange:
                raise DataError(unknown_name(f"category of {feature!r}", strange[0], known))
        return super().transform(raw)

    def inverse_transform(self, df: pd.DataFrame) -> pd.DataFrame:
        """Convert encoded rows to original units; rows of NaN stay NaN.

        An encoding between two categories becomes the nearer one. Features of integers are corrected for rounding
        errors, but not rounded.

        Raises
        ------
        DataError
            If columns are missing or duplicated, or values are not numbers.
        """
        columns = [column for column in self._df.columns if column != self.target]
        encoded = encoded_values(df, columns)
        if np.isinf(encoded).any():
            raise DataError("Encoded rows contain infinite values: drop those rows.")
        complete = ~np.isnan(encoded).any(axis=1)
        df = dense(df)
        if complete.all() and len(df):
            return self._decode(df)
        # by position, because labels may occur twice
        some = df[complete] if complete.any() else self._df.head(1).reindex(columns=df.columns)
        raw = self._decode(some).set_axis(np.flatnonzero(complete) if complete.any() else [-1], axis=0)
        return raw.reindex(range(len(df))).set_axis(df.index, axis=0)

    def _decode(self, df: pd.DataFrame) -> pd.DataFrame:
        raw = super().inverse_transform(nearest_valid(self, df))
        for feature in self._integers:
            nearest = raw[feature].round()
            raw[feature] = raw[feature].where((raw[feature] - nearest).abs() > 1e-6, nearest)
        for feature, values in self.originals.items():
            raw[feature] = restore_values(raw[feature], values)
        return raw


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
    _check_units(data)
    if outlying:
        warnings.warn(_outlier_warning(data, outlying), stacklevel=2)
    return data


def _check_units(data: DataCatalog) -> None:
    """Raise :class:`DataError` for units of action beyond the values that actions lead to."""
    for feature, unit in data.units.items():
        low, high = reachable_values(data, feature)
        if unit > high - low:
            raise DataError(
                f"The unit of {feature!r} is {unit:g}, but its values reach from {low:g} to {high:g} only: choose a "
                "smaller one."
            )


def _outlier_warning(data: DataCatalog, features: Sequence[str]) -> str:
    """Return the warning about features for which a robust scale was chosen."""
    ranges = []
    for feature in features:
        j, (low, high) = data.continuous.index(feature), reachable_values(data, feature)
        lowest, highest = data.scaler.data_min_[j], data.scaler.data_max_[j]
        ranges.append(f"{feature} ({low:.6g} to {high:.6g} of {lowest:.9g} to {highest:.9g})")
    return (
        f"features with outliers are scaled by their central part, which actions do not leave: {', '.join(ranges)}; "
        "choose with scale='minmax' or 'robust', --scale on the command line"
    )
