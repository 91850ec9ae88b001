"""The classifier as noise and search see it: encoded rows in, favourable or not out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from carla.models.api import MLModel
from rose_carla.datasets import project_categories
from rose_carla.errors import ModelError, RoseCarlaError, said
from rose_carla.models.mlmodel import EncodedModel

#: Rows classified together: what a network computes for more of them no longer fits into a cache.
_TOGETHER = 32_768
#: By how much rounding may carry a probability out of [0, 1], and two of them away from adding up to 1.
_ROUNDING, _SUM = 1e-6, 1e-3


def probability(mlmodel: MLModel) -> Callable[..., np.ndarray]:
    """Function from encoded rows (n, d), in ``feature_input_order``, to probabilities of the favourable outcome.

    Works for every CARLA model, ours or not. What rows are called in messages can be given as a second argument.
    """
    order = mlmodel.feature_input_order

    def predict(rows: np.ndarray, labels: Sequence[Hashable] | None = None) -> np.ndarray:
        if len(rows) > _TOGETHER:
            parts = [slice(start, start + _TOGETHER) for start in range(0, len(rows), _TOGETHER)]
            return np.concatenate([predict(rows[part], None if labels is None else labels[part]) for part in parts])
        # CARLA's own models warn about anything but frames
        known = rows if isinstance(mlmodel, EncodedModel) else pd.DataFrame(rows, columns=order)
        return probabilities(mlmodel, known, labels)[:, 1]

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
    if len(rows) == 0:
        return np.empty((0, 2))
    name = name_of(mlmodel)
    try:
        answer = mlmodel.predict_proba(rows)
    except RoseCarlaError:
        raise
    except Exception as error:  # whatever somebody's model may raise, the caller should know whose error it is
        raise ModelError(f"{name} cannot predict {len(rows)} rows: {type(error).__name__}, {said(error)}") from error
    try:
        values = np.asarray(answer)
        values = values if np.iscomplexobj(values) else values.astype(float, copy=False)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ModelError(f"predict_proba of {name} returned no array of numbers: {said(error)}") from error
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
    data, order = mlmodel.data, mlmodel.feature_input_order
    return lambda rows: predict(project_categories(data, order, rows)) > 0.5
