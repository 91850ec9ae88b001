"""Predictions of any CARLA model for encoded rows, their differentiable logits, and the people whom it rejects."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from carla.data.catalog import DataCatalog
from carla.models.api import MLModel
from rose_carla._lib.params import check_seed
from rose_carla.datasets import project_categories
from rose_carla.datasets.dataset import as_floats, check_labels, check_rows
from rose_carla.errors import DataError, ModelError, RoseCarlaError, error_text, short_repr, unknown_name
from rose_carla.models.mlmodel import EncodedModel, ListOrderModel, check_data, check_model, feature_order
from rose_carla.models.training import Network

#: Rows per call of a classifier: the layers of a network for more of them no longer fit into the CPU's cache.
_BATCH = 32_768
#: Tolerances of probabilities outside [0, 1], of their sum, and of encoded categories.
_ROUNDING, _SUM_ROUNDING, _ENCODING_ROUNDING = 1e-6, 1e-3, 1e-6
#: The largest value of a factual. Features are in [0, 1], or a bit outside for people beyond the data; classifiers
#: and densities in single precision overflow for much larger numbers.
LARGEST = 1e15
#: The paper's choice per data set: (split, largest number of rows). Other data sets: all of the test split.
PAPER_SELECTION: dict[str, tuple[str, int | None]] = {
    "german": ("all", None),
    "german-typed": ("all", None),
    "adult": ("test", 200),
    "compas": ("test", None),
}
#: Function from encoded rows (n, d), a tensor, to logits (n,).
Logit = Callable[[torch.Tensor], torch.Tensor]


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
        return _predict(mlmodel, own, labels)[:, 1]

    return predict


def probabilities(mlmodel: MLModel, rows: pd.DataFrame) -> np.ndarray:
    """Return the probabilities (n, 2) that a model predicts for a frame of encoded rows.

    Raises
    ------
    ModelError
        If the model raises, or returns anything but two probabilities for each row.
    """
    return _predict(mlmodel, rows.copy(), rows.index)


def _predict(mlmodel: MLModel, rows: Any, labels: Sequence[Hashable] | None) -> np.ndarray:
    if len(rows) == 0:
        return np.empty((0, 2))
    name = _name(mlmodel)
    with _model_errors(f"{name} cannot predict {len(rows)} rows"):
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
    return values


@contextlib.contextmanager
def _model_errors(failure: str) -> Iterator[None]:
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
        If the target is missing, there are no rows, or outcomes other than 0 and 1.
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
    predicted = probabilities(model, frame).argmax(axis=1)
    return float((predicted == outcomes.to_numpy()).mean())


def negative_instances(
    model: MLModel,
    data: DataCatalog | None = None,
    *,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the encoded rows that ``model`` rejects, selected as in the paper by default.

    The paper takes all of German, 200 random rows of Adult's test split and all of COMPAS' test split.

    Parameters
    ----------
    model
        Any CARLA model.
    data
        Defaults to the model's own data set.
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
    order = feature_order(model)
    data = model.data if data is None else data
    check_data(data)
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
    negative = rows[probabilities(model, rows).argmax(axis=1) == 0]
    if negative.empty:
        raise DataError(f"The classifier accepts all {len(rows)} rows of the {split} split.")
    if limit is not None and limit < len(negative):
        chosen = np.random.default_rng(seed).choice(len(negative), size=limit, replace=False)
        negative = negative.iloc[np.sort(chosen)]
    return negative


def log_odds(probabilities: torch.Tensor) -> torch.Tensor:
    """Return log p1 - log p0 of probabilities (n, 2), finite also where one of them is rounded to 0."""
    logarithms = probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()
    return logarithms[:, 1] - logarithms[:, 0]


def logit(mlmodel: MLModel, method: str = "A gradient method") -> Logit:
    """Return a differentiable function from encoded rows (n, d), a tensor, to g = log p1 - log p0 (> 0: favourable).

    It is the module's method ``logit`` if it has one, as our networks and wrapped modules do, which is exact however
    confident the classifier is. For other modules it is computed from probabilities, exact until they are rounded to 0.

    Parameters
    ----------
    mlmodel
        A CARLA model with the torch backend.
    method
        Name of the method, for messages.

    Raises
    ------
    ModelError
        If the model cannot be differentiated; from the function, if the model raises or does not return
        probabilities (n, 2).

    Examples
    --------
    >>> import torch
    >>> from rose_carla import datasets, models
    >>> model = models.train(datasets.load("compas"), "linear")
    >>> rows = torch.zeros(1, 7, requires_grad=True)
    >>> torch.autograd.grad(models.logit(model)(rows).sum(), rows)[0].shape
    torch.Size([1, 7])
    """
    width = len(feature_order(mlmodel))
    module = mlmodel.raw_model
    if mlmodel.backend != "pytorch" or not isinstance(module, torch.nn.Module):
        raise ModelError(
            f"{method} follows gradients and needs a torch model, this one is {mlmodel.backend or 'unknown'}: wrap a "
            "torch module with models.wrap, or use a method that needs predictions only, such as Cogs, FastAR, RoseOne "
            "or RoseMul."
        )
    parameter = next(module.parameters(), None)
    if parameter is None:
        raise ModelError(f"{method}: the torch model has no parameters, so it cannot have been trained.")

    copy = not isinstance(module, Network)  # other modules may change what they are given

    def g(rows: torch.Tensor) -> torch.Tensor:
        with _model_errors(f"{method}: the torch model cannot compute {len(rows)} rows"):
            values = _logits(module, rows.to(parameter, copy=copy)).cpu()
        if values.shape != (len(rows),):
            raise ModelError(
                f"{method}: the torch model's logits of {len(rows)} rows have shape {tuple(values.shape)}, not "
                f"({len(rows)},)."
            )
        return values

    with torch.enable_grad(), _model_errors(f"{method}: the torch model cannot compute gradients"):
        some = torch.full((2, width), 0.5, dtype=parameter.dtype, requires_grad=True)
        values = g(some)
        known = values.requires_grad and torch.autograd.grad(values.sum(), some, allow_unused=True)[0] is not None
    if not known:
        raise ModelError(
            f"{method} follows gradients, but the torch model's output does not depend on its input differentiably: it "
            "detaches, ignores it, or computes outside torch."
        )
    return g


def _logits(module: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
    own = getattr(module, "logit", None)
    if callable(own) and not isinstance(own, torch.nn.Module):  # not a layer of that name
        return own(rows)
    values = module(rows)
    shape = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
    if shape != (len(rows), 2):
        raise ModelError(
            f"The torch model ({type(module).__name__}) returns {shape} for {len(rows)} rows instead of probabilities "
            "(n, 2): wrap the module with models.wrap, which takes other shapes, too."
        )
    return log_odds(values)
