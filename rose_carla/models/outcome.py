"""The classifier as noise and search see it: encoded rows in, favourable or not out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from carla.models.api import MLModel
from rose_carla.datasets import project_categories
from rose_carla.errors import ModelError
from rose_carla.models.mlmodel import EncodedModel

#: Rows classified together: what a network computes for more of them no longer fits into a cache.
_TOGETHER = 32_768


def probability(mlmodel: MLModel) -> Callable[[np.ndarray], np.ndarray]:
    """Function from encoded rows (n, d), in ``feature_input_order``, to probabilities of the favourable outcome.

    Works for every CARLA model, ours or not.
    """
    order = mlmodel.feature_input_order

    def predict(rows: np.ndarray) -> np.ndarray:
        if len(rows) > _TOGETHER:
            return np.concatenate([predict(rows[i : i + _TOGETHER]) for i in range(0, len(rows), _TOGETHER)])
        # CARLA's own models warn about anything but frames
        known = rows if isinstance(mlmodel, EncodedModel) else pd.DataFrame(rows, columns=order)
        probabilities = np.asarray(mlmodel.predict_proba(known), dtype=float)
        if probabilities.shape != (len(rows), 2):
            raise ModelError(f"predict_proba returned shape {probabilities.shape} for {len(rows)} rows, not (n, 2).")
        return probabilities[:, 1]

    return predict


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
