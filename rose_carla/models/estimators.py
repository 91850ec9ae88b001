"""Fitted estimators of scikit-learn and xgboost as CARLA models."""

from __future__ import annotations

import json
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from carla.data.catalog import DataCatalog
from carla.models.catalog import MLModelCatalog
from rose_carla.datasets import Dataset
from rose_carla.errors import ModelError, error_text, short_repr
from rose_carla.models.mlmodel import EncodedModel, encoded_features
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

#: Objectives of an xgboost Booster that predicts probabilities.
OBJECTIVES = ("binary:logistic", "reg:logistic")


class SklearnModel(EncodedModel):
    """A fitted estimator with the scikit-learn interface.

    Parameters
    ----------
    probabilities
        From an array of encoded rows, in ``feature_input_order``, to probabilities of shape (n, 2).
    backend
        ``"sklearn"`` or ``"xgboost"``.
    """

    def __init__(
        self,
        data: DataCatalog,
        raw_model: Any,
        feature_input_order: Sequence[str],
        probabilities: Callable[[np.ndarray], np.ndarray],
        backend: str = "sklearn",
    ) -> None:
        super().__init__(data, raw_model, feature_input_order)
        self._probabilities = probabilities
        self._backend = backend

    def predict_proba(self, x: Any) -> Any:
        """Return probabilities of the two outcomes, shape (n, 2), as a tensor if ``x`` is one."""
        x = self._ordered(x)
        rows = x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else x
        probabilities = self._probabilities(rows) if len(rows) else np.empty((0, 2))
        return torch.as_tensor(probabilities, dtype=x.dtype) if isinstance(x, torch.Tensor) else probabilities

    def predict(self, x: Any) -> Any:
        """Return predicted labels, shape (n,), as CARLA's own models of these two backends do."""
        return np.asarray(self.predict_proba(x)[:, 1] > 0.5).astype("int64")

    @property
    def tree_iterator(self) -> Any:
        """The trees of a forest, in the form CARLA's FeatureTweak and FOCUS walk them."""
        forest = self._backend != "xgboost"
        if forest:
            if not hasattr(self._raw_model, "estimators_"):
                raise ModelError(f"{type(self._raw_model).__name__} is not a forest, which CARLA's tree methods need.")
            if list(self._raw_model.classes_) != [0, 1]:
                raise ModelError("CARLA's tree methods read the trees themselves: fit them on outcomes 0 and 1.")
        if getattr(self._probabilities, "column", None) == 0:
            raise ModelError(
                "CARLA's tree methods read the trees themselves and take the second class as favourable: fit the trees "
                "with 1 for it."
            )
        if forest:
            return self._raw_model
        booster = self._raw_model.get_booster() if hasattr(self._raw_model, "get_booster") else self._raw_model
        boosters = list(booster)
        for booster in boosters:
            booster.feature_names = self.feature_input_order
        return boosters


# CARLA's FeatureTweak checks for its own class, and works with ours as well.
MLModelCatalog.register(SklearnModel)


def wrap_estimator(
    model: Any, data: DataCatalog, feature_order: list[str] | None, space: str | None, favourable: Any
) -> SklearnModel:
    """Wrap a fitted estimator; arguments as in :func:`rose_carla.models.wrap`."""
    if isinstance(model, type):
        raise ModelError(f"{model.__name__} is a class: pass a fitted instance.")
    booster = type(model).__name__ == "Booster" and _is_xgboost(model)
    if booster:
        check_favourable_is_one(model, favourable)
        _check_objective(model)
    else:
        _check_classifier(model)
    names, space = _columns_and_space(model, data, feature_order, space)
    order = names if space == "encoded" else encoded_features(data)
    column = None if booster else _favourable_column(model, favourable)
    probabilities = EstimatorProbabilities(model, data, order, names, space, column)
    try:
        tried = probabilities(data.df_train[order].to_numpy(dtype=float)[:1000])
    except Exception as error:  # the estimator is the user's code
        raise ModelError(f"{type(model).__name__} cannot predict rows of this data set: {error_text(error)}") from error
    if tried.min() < 0 or tried.max() > 1:
        raise ModelError(f"{type(model).__name__} returns values outside [0, 1], which are not probabilities.")
    backend = "xgboost" if _is_xgboost(model) else "sklearn"
    return SklearnModel(data, model, order, probabilities, backend)


def check_favourable_is_one(model: object, favourable: object) -> None:
    """Check that the favourable outcome is 1 for a model without names of classes."""
    if not isinstance(favourable, (numbers.Real, np.bool_)) or favourable != 1:
        raise ModelError(
            f"{type(model).__name__} has no names of classes, so favourable must be 1, got {short_repr(favourable)}."
        )


def _check_objective(booster: Any) -> None:
    """Check that a Booster predicts probabilities."""
    try:
        objective = json.loads(booster.save_config())["learner"]["objective"]["name"]
    except Exception as error:  # depends on the release of xgboost
        raise ModelError(f"The objective of the Booster cannot be read: {error_text(error)}") from error
    if objective not in OBJECTIVES:
        raise ModelError(
            f"The Booster was trained for {short_repr(objective)}, so it does not predict probabilities: train it "
            "with objective 'binary:logistic', or wrap an XGBClassifier."
        )


def _check_classifier(model: Any) -> None:
    name = type(model).__name__
    if not hasattr(model, "fit"):
        raise ModelError(f"{name} is neither a scikit-learn estimator, an xgboost model nor a torch module.")
    if not hasattr(model, "predict_proba"):
        if isinstance(model, BaseEstimator) and is_classifier(model):
            raise ModelError(
                f"{name} has no predict_proba: wrap it in scikit-learn's CalibratedClassifierCV and fit that."
            )
        raise ModelError(f"{name} is not a classifier.")
    if not _is_fitted(model):
        raise ModelError(f"{name} is not fitted: call its fit method first.")


def _is_fitted(model: Any) -> bool:
    """Return whether a classifier is fitted, as scikit-learn defines it or by its attribute ``classes_``."""
    if not isinstance(model, BaseEstimator):
        return hasattr(model, "classes_")
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return True


@dataclass(frozen=True)
class EstimatorProbabilities:
    """Function from encoded rows to probabilities (n, 2) of an estimator."""

    model: Any
    data: DataCatalog
    #: Encoded columns of the rows.
    order: list[str]
    #: Columns that the estimator takes, and whether they are encoded or raw.
    names: list[str]
    space: str
    #: Position of the favourable class; None for an xgboost Booster, which returns its probability alone.
    column: int | None

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return probabilities of the two outcomes."""
        frame = pd.DataFrame(rows, columns=self.order)
        if self.space == "raw":
            frame = self.data.inverse_transform(frame)
        frame = frame[self.names]
        if self.column is None:
            wanted = self.model.inplace_predict(frame.to_numpy(), validate_features=False)
        else:
            if self.space == "encoded" and _is_xgboost(self.model):
                # numbers in its own order: xgboost takes longer to convert a frame than to predict a few thousand rows
                probabilities = self.model.predict_proba(frame.to_numpy(), validate_features=False)
            else:
                takes_frames = hasattr(self.model, "feature_names_in_")
                probabilities = self.model.predict_proba(frame if takes_frames else frame.to_numpy())
            wanted = probabilities[:, self.column]
        wanted = np.asarray(wanted, dtype=float)
        if wanted.shape != (len(rows),):
            raise ModelError(f"It returned shape {wanted.shape} for {len(rows)} rows instead of a probability of each.")
        return np.stack([1 - wanted, wanted], axis=1)


def _is_xgboost(model: Any) -> bool:
    return any(base.__module__.startswith("xgboost.") for base in type(model).__mro__)


def _favourable_column(model: Any, favourable: Any) -> int:
    name = type(model).__name__
    try:
        classes = list(model.classes_)
    except Exception as error:  # the estimator is the user's code
        raise ModelError(f"The classes_ of {name} cannot be read: {error_text(error)}") from error
    if any(isinstance(each, (list, tuple, np.ndarray)) for each in classes):
        raise ModelError(f"{name} predicts several targets at once: fit a classifier of one.")
    if len(classes) != 2:
        raise ModelError(f"The classifier has {len(classes)} classes, but recourse is between two outcomes.")
    try:
        return classes.index(favourable)
    except (TypeError, ValueError):
        raise ModelError(
            f"No class {short_repr(favourable)} among {classes}: pass the favourable one with favourable=..."
        ) from None


def _columns_and_space(
    model: Any, data: DataCatalog, feature_order: list[str] | None, space: str | None
) -> tuple[list[str], str]:
    """Return the columns that the estimator takes, and whether they are encoded or raw."""
    encoded, raw = encoded_features(data), _raw_features(data)
    fitted = getattr(model, "feature_names_in_", getattr(model, "feature_names", None))
    names = feature_order if feature_order is not None else None if fitted is None else list(map(str, fitted))
    if names is None:
        if space is None and isinstance(model, Pipeline) and len(raw) == len(encoded):
            raise ModelError("The pipeline was fitted without column names: pass space='encoded' or space='raw'.")
        names = raw if space == "raw" else encoded
        width = getattr(model, "n_features_in_", len(names))
        if width != len(names):
            raise ModelError(
                f"The classifier takes {width} features, the data set has {len(names)}: fit it on a DataFrame, or give "
                "its columns in feature_order=[...]."
            )
    fits = {"encoded": set(names) <= set(encoded), "raw": set(names) <= set(raw)}
    if space is None:
        if fits["encoded"] and fits["raw"]:
            raise ModelError(
                "Raw and encoded columns have the same names: pass space='encoded' if the classifier was fitted "
                "on data.df, space='raw' if on the original values."
            )
        space = "raw" if fits["raw"] else "encoded"
    if not fits[space]:
        strange = sorted(map(str, set(names) - set(encoded if space == "encoded" else raw)))
        raise ModelError(f"The classifier takes columns that the data set does not have: {', '.join(strange[:5])}.")
    return names, space


def _raw_features(data: DataCatalog) -> list[str]:
    if isinstance(data, Dataset):
        return data.raw_features
    return [*data.continuous, *data.categorical]
