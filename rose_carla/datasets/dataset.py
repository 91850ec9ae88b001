"""CARLA data sets: checks of their rows, their encoding, and valid categories.

The functions of a data set take every CARLA ``DataCatalog``, not only ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from carla.data.catalog import DataCatalog
from carla.data.pipelining import decode, descale, encode, scale
from pandas.api import types
from rose_carla._lib.params import check_seed
from rose_carla.datasets.scaling import PiecewiseScaler
from rose_carla.errors import DataError, RoseCarlaError, error_text, short_repr, unknown_name
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder

#: The largest seed that scikit-learn takes.
LARGEST_SEED = 2**32 - 1
#: The largest encoded value of a person. Features are in [0, 1], or a bit outside for people beyond the data;
#: classifiers and densities in single precision overflow for much larger numbers.
LARGEST = 1e15


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


class _Encoder(OneHotEncoder):
    """Encoder with ``get_feature_names``, which CARLA's methods call also for data without categorical features."""

    def get_feature_names(self, features: Sequence[str]) -> np.ndarray:
        """Return the names of the encoded columns."""
        return self.get_feature_names_out(features) if len(features) else np.array([], dtype=object)


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
        # CARLA's own constructor chooses scaler and encoder itself
        self.name, self._identity_encoding = schema.name, False
        self.scaler, self.encoder = FunctionTransformer(), _Encoder(drop="if_binary", sparse_output=False)
        self._pipeline = [("scaler", lambda df: scale(self.scaler, self.continuous, df))]
        self._inverse_pipeline = [("scaler", lambda df: descale(self.scaler, self.continuous, df))]
        if schema.continuous:
            self.scaler = (PiecewiseScaler(self.robust) if self.robust else MinMaxScaler()).fit(raw[self.continuous])
        if schema.categorical:
            self.encoder.fit(raw[self.categorical])
            self._pipeline.append(("encoder", lambda df: encode(self.encoder, self.categorical, df)))
            self._inverse_pipeline.insert(0, ("encoder", lambda df: decode(self.encoder, self.categorical, df)))
        # the index stays, so a row has the same label in splits, factuals and counterfactuals
        self._df = self.transform(raw)
        self._df_train, self._df_test = self._df.iloc[train].copy(), self._df.iloc[test].copy()

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
            raw[feature] = _restore_values(raw[feature], values)
        return raw


def _restore_values(texts: pd.Series, values: Mapping[str, Any]) -> pd.Series:
    """Convert the texts of categories back to their values."""
    kinds = {type(value) for value in values.values()}
    if len(kinds) > 1 or any(issubclass(kind, str) for kind in kinds):
        # pandas would convert numbers to one type, and subclasses of str to str
        return pd.Series([values[text] for text in texts], index=texts.index, name=texts.name, dtype=object)
    return texts.map(values)


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


def as_text(values: pd.Series) -> pd.Series:
    """Convert categories to text value by value; a missing one is a :class:`DataError`."""
    missing = np.flatnonzero(values.isna())
    if len(missing):
        label = short_repr(values.index[missing[0]])
        raise DataError(f"{values.name!r} is missing in row {label}: fill it in, or drop the row.")
    # not astype(str), which decodes bytes and keeps subclasses of str
    texts = [str(value) for value in as_objects(values)]
    return pd.Series(texts, index=values.index, name=values.name, dtype=object)


def as_objects(values: pd.Series) -> list[Any]:
    """Return numbers as numpy's scalars and anything else as Python objects; dates would be numpy's in pandas 1."""
    some = values if types.is_numeric_dtype(values) else values.astype(object)
    return list(some.to_numpy() if isinstance(some.dtype, np.dtype) else some.array)


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
    """Return the numbers (n, d) of encoded ``columns``, which may be NaN; anything else is a :class:`DataError`."""
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
