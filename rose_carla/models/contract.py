"""What is asked of a CARLA model and of a data set, whoever made them."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from carla.data.api import Data
from carla.models.api import MLModel
from rose_carla.errors import ModelError, short_repr


def check_model(model: object) -> None:
    """Refuse what is no CARLA model."""
    if not isinstance(model, MLModel):
        raise ModelError(f"Expected a CARLA model, got {type(model).__name__}: make one with models.wrap.")


def check_data(data: object) -> None:
    """Refuse what is no CARLA data set."""
    if not isinstance(data, Data):
        raise ModelError(f"Expected a CARLA data set, got {type(data).__name__}: make one with datasets.from_frame.")


def encoded_features(data: Data) -> list[str]:
    """Encoded columns of a data set, without its target."""
    return [column for column in data.df_train.columns if column != data.target]


def check_favourable_is_one(model: object, favourable: object) -> None:
    """Refuse another favourable outcome than 1 for a model that names no classes."""
    if not isinstance(favourable, (numbers.Real, np.bool_)) or favourable != 1:
        raise ModelError(
            f"{type(model).__name__} names no classes, so favourable={short_repr(favourable)} is unknown: train it "
            "on outcomes of which 1 is the favourable one."
        )


def column_list(columns: Any, called: str) -> list[str]:
    """Names of columns as a list, whatever sequence they come in; ``called`` is what they are called in messages.

    Raises
    ------
    ModelError
        If they are none, or one is there twice.

    Examples
    --------
    >>> column_list(("age", "income"), "feature_order")
    ['age', 'income']
    """
    try:
        names = None if isinstance(columns, (str, bytes)) else list(columns)
        known = set(names or [])
    except TypeError:  # nothing to walk through, or an entry that is no name
        names = None
    if names is None:
        raise ModelError(f"{called} has to be a list of column names, got {short_repr(columns)}.")
    if not names:
        raise ModelError(f"{called} names no columns: a classifier takes at least one feature.")
    if len(known) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ModelError(f"{called} names {short_repr(twice)} more than once: name every column once.")
    return names


def feature_order(mlmodel: MLModel) -> list[str]:
    """``feature_input_order`` of a model as a list, which CARLA asks for, and not everybody's model has."""
    check_model(mlmodel)
    return column_list(mlmodel.feature_input_order, f"feature_input_order of {type(mlmodel).__name__}")


class Listed(MLModel):
    """A model whose ``feature_input_order`` is a list, of one where it is a tuple, an array or an index.

    Parameters
    ----------
    original
        The model that is asked.
    """

    def __init__(self, original: MLModel) -> None:
        super().__init__(original.data)
        self.original = original
        self._order = feature_order(original)

    @property
    def feature_input_order(self) -> list[str]:
        """Encoded columns in the order the classifier takes them."""
        return list(self._order)

    @property
    def backend(self) -> Any:
        """Framework of the classifier, in CARLA's words."""
        return self.original.backend

    @property
    def raw_model(self) -> Any:
        """The classifier in its own framework."""
        return self.original.raw_model

    def predict(self, x: Any) -> Any:
        """What the original predicts."""
        return self.original.predict(x)

    def predict_proba(self, x: Any) -> Any:
        """What the original predicts."""
        return self.original.predict_proba(x)


def listed(mlmodel: MLModel) -> MLModel:
    """The model itself if its ``feature_input_order`` is a list, otherwise one that asks it.

    Frames take a tuple for the name of one column, so methods ask for a list once instead of making one at every use.
    """
    feature_order(mlmodel)
    return mlmodel if isinstance(mlmodel.feature_input_order, list) else Listed(mlmodel)
