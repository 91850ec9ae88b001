"""The classifier as noise and search see it: encoded rows in, favourable or not out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from carla.models.api import MLModel
from rose_carla.datasets import project_categories
from rose_carla.errors import ModelError, RoseCarlaError, error_text
from rose_carla.models.contract import Listed, feature_order
from rose_carla.models.mlmodel import EncodedModel
from rose_carla.models.rows import as_floats

#: Rows classified together: what a network computes for more of them no longer fits into a cache.
_TOGETHER = 32_768
#: By how much rounding may carry a probability out of [0, 1], and two of them away from adding up to 1.
_ROUNDING, _SUM = 1e-6, 1e-3


def probability(mlmodel: MLModel) -> Callable[..., np.ndarray]:
    """Function from encoded rows (n, d), in ``feature_input_order``, to probabilities of the favourable outcome.

    Works for every CARLA model, ours or not. What rows are called in messages can be given as a second argument.
    """
    order = feature_order(mlmodel)

    def predict(rows: np.ndarray, labels: Sequence[Hashable] | None = None) -> np.ndarray:
        rows = _table(rows)
        if len(rows) > _TOGETHER:
            parts = [slice(start, start + _TOGETHER) for start in range(0, len(rows), _TOGETHER)]
            return np.concatenate([predict(rows[part], None if labels is None else labels[part]) for part in parts])
        known = _own(rows)
        if not isinstance(mlmodel, EncodedModel):  # CARLA's own models warn about anything but frames
            known = _frame(known, order)
        return _answer(mlmodel, known, labels)[:, 1]

    return predict


def probabilities(mlmodel: MLModel, rows: Any, labels: Sequence[Hashable] | None = None) -> np.ndarray:
    """What a model predicts for rows (n, d), as an array (n, 2) of probabilities.

    Parameters
    ----------
    rows
        What the model takes: a frame, or an array in ``feature_input_order``.
    labels
        What rows are called in messages, if not by their numbers.

    Raises
    ------
    ModelError
        If the model raises, or returns anything but two probabilities for each row.
    """
    return _answer(mlmodel, _own(_table(rows)), labels)


def _table(rows: Any) -> Any:
    """Rows in a form that has a length: as they are, or lists as an array."""
    if not isinstance(rows, (np.ndarray, pd.DataFrame, torch.Tensor)):
        try:
            rows = as_floats(rows)
        except (TypeError, ValueError, OverflowError) as error:
            raise ModelError(
                f"Expected encoded rows (n, d), got values that are no numbers ({error_text(error)[:-1]})."
            ) from error
    if rows.ndim == 0:
        raise ModelError("Expected encoded rows (n, d), got a single value.")
    return rows


def _own(rows: Any) -> Any:
    """A copy of rows, as they are in memory: a model that changes what it is given must not change its caller's."""
    if isinstance(rows, np.ndarray):
        return rows.copy(order="K")
    return rows.copy() if isinstance(rows, pd.DataFrame) else rows.clone()


def _frame(rows: Any, order: list[str]) -> pd.DataFrame:
    if not isinstance(rows, pd.DataFrame) and (rows.ndim != 2 or rows.shape[1] != len(order)):
        raise ModelError(
            f"Expected rows of {len(order)} features in feature_input_order, got shape {tuple(rows.shape)}."
        )
    return pd.DataFrame(rows, columns=order)


def _answer(mlmodel: MLModel, rows: Any, labels: Sequence[Hashable] | None) -> np.ndarray:
    """Probabilities (n, 2) that a model predicts for rows that are its own."""
    if len(rows) == 0:
        return np.empty((0, 2))
    name = name_of(mlmodel)
    try:
        answer = mlmodel.predict_proba(rows)
    except RoseCarlaError:
        raise
    except Exception as error:  # whatever somebody's model may raise, the caller should know whose error it is
        raise ModelError(
            f"{name} cannot predict {len(rows)} rows: {type(error).__name__}, {error_text(error)}"
        ) from error
    try:
        values = np.asarray(answer)
        # always a copy: a model may answer in the same array every time
        values = values if np.iscomplexobj(values) else values.astype(float)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ModelError(f"predict_proba of {name} returned no array of numbers: {error_text(error)}") from error
    if np.iscomplexobj(values):
        raise ModelError(f"predict_proba of {name} returned complex numbers, not probabilities.")
    if values.shape != (len(rows), 2):
        raise ModelError(f"predict_proba of {name} returned shape {values.shape} for {len(rows)} rows, not (n, 2).")
    if not (values.min() >= -_ROUNDING and values.max() <= 1 + _ROUNDING):  # also if one is NaN
        _refuse(name, values, labels)
    if np.abs(values[:, 0] + values[:, 1] - 1).max() > _SUM:
        raise ModelError(f"predict_proba of {name} returned pairs that do not add up to 1: they are no probabilities.")
    return values


def name_of(mlmodel: MLModel) -> str:
    """What a model is called in messages: by the class of what it wraps, if it wraps something."""
    mlmodel = mlmodel.original if isinstance(mlmodel, Listed) else mlmodel
    raw = getattr(mlmodel, "raw_model", None)
    return type(mlmodel if raw is None else getattr(raw, "module", raw)).__name__


def _refuse(name: str, values: np.ndarray, labels: Sequence[Hashable] | None) -> None:
    wrong = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(wrong):
        called = ", ".join(str(row if labels is None else labels[row]) for row in wrong[:5].tolist())
        raise ModelError(
            f"The classifier ({name}) predicts no number for rows {called}: check its weights and their values."
        )
    raise ModelError(
        f"predict_proba of {name} returned values from {values.min():g} to {values.max():g}, which are no "
        "probabilities: turn logits or scores into probabilities first."
    )


def favourable(mlmodel: MLModel, project: bool = False) -> Callable[[np.ndarray], np.ndarray]:
    """Function from encoded rows (n, d), in ``feature_input_order``, to whether each is classified favourably.

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
