"""CARLA models: checks of any of them, their predictions for encoded rows, and the people whom they reject."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from carla.data.api import Data
from carla.data.catalog import DataCatalog
from carla.models.api import MLModel
from rose_carla._lib.params import check_seed
from rose_carla.datasets import mutable_columns, project_categories
from rose_carla.datasets.dataset import LARGEST, as_floats, check_labels, check_rows
from rose_carla.errors import DataError, ModelError, RoseCarlaError, error_text, short_repr, unknown_name

#: Rows per call of a classifier: the layers of a network for more of them no longer fit into the CPU's cache.
_BATCH = 32_768
#: Tolerances of probabilities outside [0, 1], of their sum, and of encoded categories.
_ROUNDING, _SUM_ROUNDING, _ENCODING_ROUNDING = 1e-6, 1e-3, 1e-6
#: The paper's choice per data set: (split, largest number of rows). Other data sets: all of the test split.
PAPER_SELECTION: dict[str, tuple[str, int | None]] = {
    "german": ("all", None),
    "german-typed": ("all", None),
    "adult": ("test", 200),
    "compas": ("test", None),
}


def check_model(model: object) -> None:
    """Raise an error for anything but a CARLA model."""
    if not isinstance(model, MLModel):
        raise ModelError(f"Expected a CARLA model, got {type(model).__name__}: make one with models.wrap.")


def check_data(data: object) -> None:
    """Raise an error for anything but a CARLA data set."""
    if not isinstance(data, Data):
        raise ModelError(f"Expected a CARLA data set, got {type(data).__name__}: make one with datasets.from_frame.")


def encoded_features(data: Data) -> list[str]:
    """Return the encoded columns of a data set without its target."""
    return [column for column in data.df_train.columns if column != data.target]


def column_list(columns: Any, what: str) -> list[str]:
    """Return column names as a list; ``what`` names them in messages.

    Raises
    ------
    ModelError
        If they are not a sequence of names, or one occurs twice.

    Examples
    --------
    >>> column_list(("age", "income"), "feature_order")
    ['age', 'income']
    """
    try:
        names = None if isinstance(columns, (str, bytes)) else list(columns)
        distinct = set(names or [])
    except TypeError:
        names = None
    if names is None:
        raise ModelError(f"{what} must be a list of column names, got {short_repr(columns)}.")
    if not names:
        raise ModelError(f"{what} is empty: a classifier takes at least one feature.")
    if len(distinct) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ModelError(f"{what} contains {short_repr(twice)} more than once: name every column once.")
    return names


def feature_order(mlmodel: MLModel) -> list[str]:
    """Return ``feature_input_order`` of any CARLA model as a list."""
    check_model(mlmodel)
    return column_list(mlmodel.feature_input_order, f"feature_input_order of {type(mlmodel).__name__}")


class ListOrderModel(MLModel):
    """Model whose ``feature_input_order`` is a list, around one where it is a tuple, an array or an index.

    Parameters
    ----------
    original
        The model that predicts.
    """

    def __init__(self, original: MLModel) -> None:
        super().__init__(original.data)
        self.original = original
        self._order = feature_order(original)

    feature_input_order = property(lambda self: list(self._order))
    backend = property(lambda self: self.original.backend)
    raw_model = property(lambda self: self.original.raw_model)

    def predict(self, x: Any) -> Any:
        """Return what the original predicts."""
        return self.original.predict(x)

    def predict_proba(self, x: Any) -> Any:
        """Return what the original predicts."""
        return self.original.predict_proba(x)


def with_list_order(mlmodel: MLModel) -> MLModel:
    """Return the model, wrapped if its ``feature_input_order`` is not a list: pandas takes a tuple for one column."""
    feature_order(mlmodel)
    return mlmodel if isinstance(mlmodel.feature_input_order, list) else ListOrderModel(mlmodel)


class EncodedModel(MLModel):
    """Classifier on the encoded, normalised space with a fixed order of features.

    Parameters
    ----------
    data
        The data set it belongs to.
    raw_model
        The classifier in its own framework.
    feature_input_order
        Encoded columns in the order the classifier takes them.
    """

    _backend = ""

    def __init__(self, data: DataCatalog, raw_model: Any, feature_input_order: Sequence[str]) -> None:
        super().__init__(data)
        self._raw_model = raw_model
        self._feature_input_order = column_list(feature_input_order, "feature_input_order")

    @property
    def feature_input_order(self) -> list[str]:
        """Encoded columns in the order the classifier takes them."""
        return list(self._feature_input_order)

    @property
    def backend(self) -> str:
        """Framework of the classifier, as CARLA names it."""
        return self._backend

    @property
    def raw_model(self) -> Any:
        """The classifier in its own framework."""
        return self._raw_model

    def get_mutable_mask(self) -> np.ndarray:
        """Return for each encoded column whether recourse may change it, as CARLA's development version asks."""
        return mutable_columns(self.data, self._feature_input_order)

    def _ordered(self, x: Any) -> Any:
        """Return ``x`` as a writable array, or as a tensor, of the classifier's columns."""
        if isinstance(x, pd.DataFrame):
            missing = [column for column in self._feature_input_order if column not in x.columns]
            if missing:
                raise ModelError(
                    f"Columns missing for the classifier: {', '.join(map(str, missing[:5]))}. Pass encoded rows, for "
                    "instance data.transform(raw_rows)."
                )
            x = x[self._feature_input_order]
        if not isinstance(x, torch.Tensor):
            x = as_floats(x, "rows for the classifier", ModelError)
            x = np.require(x, requirements="W")  # pandas 3 returns read-only arrays
        if len(x.shape) != 2 or x.shape[1] != len(self._feature_input_order):
            raise ModelError(
                f"Expected rows of {len(self._feature_input_order)} features in feature_input_order, got shape "
                f"{tuple(x.shape)}."
            )
        return x

    @abstractmethod
    def predict_proba(self, x: Any) -> Any:
        """Return probabilities of the two outcomes, shape (n, 2), as a tensor if ``x`` is one."""

    def predict(self, x: Any) -> Any:
        """Return the probability of the favourable outcome, shape (n, 1)."""
        return self.predict_proba(x)[:, 1].reshape((-1, 1))


def probability(mlmodel: MLModel) -> Callable[..., np.ndarray]:
    """Return a function from encoded rows (n, d) to probabilities (n,) of the favourable outcome, for any CARLA model.

    Columns are in ``feature_input_order``. The function takes labels of rows for messages as a second argument.
    """
    order = feature_order(mlmodel)

    def predict(rows: np.ndarray, labels: Sequence[Hashable] | None = None) -> np.ndarray:
        rows = as_floats(rows, "encoded rows", ModelError)
        if rows.ndim == 2 and len(rows) > _BATCH:
            parts = [slice(start, start + _BATCH) for start in range(0, len(rows), _BATCH)]
            return np.concatenate([predict(rows[part], None if labels is None else labels[part]) for part in parts])
        if rows.ndim != 2 or rows.shape[1] != len(order):
            raise ModelError(f"Expected rows of {len(order)} features in feature_input_order, got shape {rows.shape}.")
        own: Any = rows.copy(order="K")  # models may change what they are given
        if not isinstance(mlmodel, EncodedModel):  # CARLA's own models warn about anything but frames
            own = pd.DataFrame(own, columns=order)
        return _predict(mlmodel, own, labels)

    return predict


def _predict(mlmodel: MLModel, rows: Any, labels: Sequence[Hashable] | None) -> np.ndarray:
    """Return the favourable one of the two probabilities that a model predicts for each row, (n,)."""
    if len(rows) == 0:
        return np.empty(0)
    name = _name(mlmodel)
    with model_errors(f"{name} cannot predict {len(rows)} rows"):
        answer = mlmodel.predict_proba(rows)
    try:
        values = np.asarray(answer)
        if np.iscomplexobj(values):
            raise TypeError("complex numbers")
        values = values.astype(float)  # a copy: models may return the same array every time
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ModelError(f"predict_proba of {name} did not return real numbers: {error_text(error)}") from error
    if values.shape != (len(rows), 2):
        raise ModelError(f"predict_proba of {name} returned shape {values.shape} for {len(rows)} rows, not (n, 2).")
    if not (values.min() >= -_ROUNDING and values.max() <= 1 + _ROUNDING):  # also if one is NaN
        broken = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(broken):
            some = ", ".join(str(row if labels is None else labels[row]) for row in broken[:5].tolist())
            raise ModelError(
                f"The classifier ({name}) returned NaN or infinity for rows {some}: check its weights and the rows."
            )
        raise ModelError(
            f"predict_proba of {name} returned values from {values.min():g} to {values.max():g}, which are not "
            "probabilities: convert logits or scores to probabilities first."
        )
    if np.abs(values[:, 0] + values[:, 1] - 1).max() > _SUM_ROUNDING:
        raise ModelError(f"predict_proba of {name} returned pairs that do not sum to 1, so they are not probabilities.")
    return values[:, 1]


@contextlib.contextmanager
def model_errors(failure: str) -> Iterator[None]:
    """Turn what a user's model raises into a :class:`ModelError` that starts with ``failure``."""
    try:
        yield
    except RoseCarlaError:
        raise
    except Exception as error:
        raise ModelError(f"{failure}: {type(error).__name__}, {error_text(error)}") from error


def _name(mlmodel: MLModel) -> str:
    """Return the class of the wrapped classifier, for messages."""
    mlmodel = mlmodel.original if isinstance(mlmodel, ListOrderModel) else mlmodel
    raw = getattr(mlmodel, "raw_model", None)
    return type(mlmodel if raw is None else getattr(raw, "module", raw)).__name__


def favourable(mlmodel: MLModel, project: bool = False) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from encoded rows (n, d), in ``feature_input_order``, to whether each is classified favourably.

    Parameters
    ----------
    project
        Move categorical features to their nearest valid encoding first.
    """
    predict = probability(mlmodel)
    if not project:
        return lambda rows: predict(rows) > 0.5
    data, order = mlmodel.data, feature_order(mlmodel)
    return lambda rows: predict(project_categories(data, order, rows)) > 0.5


def encoded_rows(mlmodel: MLModel, frame: pd.DataFrame) -> np.ndarray:
    """Return the encoded rows (n, d) of factuals in ``feature_input_order``.

    This is the one check of the people that methods compute recourse for.

    Raises
    ------
    DataError
        If columns are missing or duplicated, a value is missing, infinite or too large, a categorical feature is not
        at a valid encoding, a row label occurs twice, or the frame has no rows.
    """
    order = feature_order(mlmodel)
    rows = finite_rows(frame, order)
    off = np.abs(project_categories(mlmodel.data, order, rows) - rows).max(axis=1, initial=0.0) > _ENCODING_ROUNDING
    if off.any():
        raise DataError(
            f"Categorical features of the factuals are not at a valid encoding in rows {_some(frame, off)}: encode "
            "them with data.transform(raw_rows), or move them to the nearest with datasets.nearest_valid(data, rows)."
        )
    return rows


def finite_rows(factuals: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Return the values (n, d) of factuals in ``columns``, checked as in :func:`encoded_rows` except for categories."""
    rows = numeric_columns(factuals, columns, "factuals")
    if len(rows) == 0:
        raise DataError("The frame of factuals has no rows.")
    check_labels(factuals, "factuals", " of the factuals")
    broken = ~np.isfinite(rows).all(axis=1)
    if broken.any():
        raise DataError(
            f"The factuals contain missing or infinite values in rows {_some(factuals, broken)}: drop or fill them "
            "first."
        )
    far = np.abs(rows).max(axis=1, initial=0.0) > LARGEST
    if far.any():
        raise DataError(
            f"The factuals contain values beyond {LARGEST:g} in rows {_some(factuals, far)}: pass encoded rows, in "
            "which features are scaled to [0, 1]."
        )
    return rows


def numeric_columns(frame: pd.DataFrame, columns: Sequence[str], what: str) -> np.ndarray:
    """Return numbers (n, d) of a frame in ``columns``, which may be NaN or infinite; ``what`` names its rows."""
    if isinstance(frame, pd.DataFrame):
        frame = frame.loc[:, frame.columns.isin(list(columns))]  # further columns may be anything
    check_rows(frame, columns, f"The {what}", ": pass encoded rows, for instance data.transform(raw_rows).")
    return as_floats(frame[list(columns)], what)


def _some(frame: pd.DataFrame, chosen: np.ndarray) -> str:
    return ", ".join(map(str, frame.index[chosen][:5]))


def accuracy(model: MLModel, frame: pd.DataFrame) -> float:
    """Return the share of rows of an encoded ``frame`` with target whose outcome the classifier predicts.

    Raises
    ------
    ModelError
        If the model cannot predict the rows.
    DataError
        If columns are missing, there are no rows, or outcomes other than 0 and 1.
    """
    check_model(model)
    target = model.data.target
    check_rows(frame, [target], "The rows")
    if len(frame) == 0:
        raise DataError("The frame has no rows.")
    outcomes = frame[target]
    odd = ~outcomes.isin((0, 1))
    if odd.any():
        raise DataError(
            f"The target {target!r} must be 0 or 1, but is {short_repr(outcomes[odd].tolist()[0])} in row "
            f"{short_repr(outcomes.index[odd].tolist()[0])}: pass encoded rows, such as data.df_test."
        )
    rows = numeric_columns(frame, feature_order(model), "rows")
    accepted = probability(model)(rows, frame.index) > 0.5
    return float((accepted == outcomes.to_numpy()).mean())


def negative_instances(
    model: MLModel, *, split: str | None = None, limit: int | None = None, seed: int = 0
) -> pd.DataFrame:
    """Return the encoded rows that ``model`` rejects, selected as in the paper by default.

    The paper takes all of German, 200 random rows of Adult's test split and all of COMPAS' test split.

    Parameters
    ----------
    model
        Any CARLA model.
    split
        ``"all"``, ``"train"`` or ``"test"``.
    limit
        Draw at most so many rows, without replacement.
    seed
        Seed of that draw.

    Returns
    -------
    pd.DataFrame
        Columns in ``model.feature_input_order`` and, like CARLA's own ``predict_negative_instances``, the target,
        which CRUD and CausalRecourse need; row labels as in the data set.

    Examples
    --------
    >>> from rose_carla import datasets, models
    >>> model = models.train(datasets.load("compas"), "linear")
    >>> models.negative_instances(model, limit=50).shape
    (50, 8)
    """
    order, data = feature_order(model), model.data
    frames = {"all": "df", "train": "df_train", "test": "df_test"}
    paper_split, paper_limit = PAPER_SELECTION.get(getattr(data, "name", ""), ("test", None))
    if split is None and limit is None:
        limit = paper_limit
    split = paper_split if split is None else split
    if not isinstance(split, str) or split not in frames:
        raise DataError(unknown_name("split", split, frames))
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, (int, np.integer)) or limit < 1):
        raise DataError(f"limit must be an integer of at least 1, got {short_repr(limit)}.")
    seed = check_seed(seed)
    rows = getattr(data, frames[split])
    missing = [column for column in order if column not in rows.columns]
    if missing:
        raise DataError(f"The data set lacks columns that the model takes: {', '.join(map(str, missing[:5]))}.")
    rows = rows[[*order, data.target]]
    negative = rows[probability(model)(as_floats(rows[order], "rows of the data set"), rows.index) <= 0.5]
    if negative.empty:
        raise DataError(f"The classifier accepts all {len(rows)} rows of the {split} split.")
    if limit is not None and limit < len(negative):
        chosen = np.random.default_rng(seed).choice(len(negative), size=limit, replace=False)
        negative = negative.iloc[np.sort(chosen)]
    return negative
