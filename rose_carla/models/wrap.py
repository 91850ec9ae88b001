"""Turn a classifier that somebody else fitted into a CARLA ``MLModel`` with one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from carla.data.catalog import DataCatalog
from carla.models.api import MLModel
from carla.models.catalog.ANN_TF import model_ann as carla_tensorflow
from rose_carla.datasets import Dataset
from rose_carla.errors import ModelError, said, unknown_name
from rose_carla.models.gradient import log_odds
from rose_carla.models.mlmodel import EncodedModel, SklearnModel, TensorFlowModel, TorchModel
from rose_carla.models.network import Network
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

SPACES = ("encoded", "raw")
OUTPUTS = ("probability", "logit")


def wrap(
    model: Any,
    data: DataCatalog,
    *,
    feature_order: Sequence[str] | None = None,
    space: str | None = None,
    favourable: Any = 1,
    output: str | None = None,
) -> EncodedModel:
    """A CARLA ``MLModel`` around a fitted classifier.

    Parameters
    ----------
    model
        A fitted scikit-learn estimator or pipeline with ``predict_proba``, an ``xgboost.XGBClassifier``, an
        ``xgboost.Booster`` with objective ``binary:logistic``, or a torch module.
    data
        The data set it was fitted for.
    feature_order
        Columns in the order the classifier takes them. Known already if it was fitted on a DataFrame; otherwise they
        are taken to be those of the table without the target, ``data.df_train.drop(columns=data.target)``.
    space
        ``"encoded"`` if it takes encoded, normalised rows (``data.df``), ``"raw"`` if it takes rows as people write
        them, like a pipeline that encodes by itself. Told from the column names where they differ. torch modules are
        always in the encoded space.
    favourable
        The class of a scikit-learn estimator that people want.
    output
        torch only: whether the module returns ``"probability"`` or ``"logit"`` values, of shape (n, 2), (n, 1) or
        (n,); told from its last layer and its values on training rows if that leaves no doubt.

    Raises
    ------
    ModelError
        If the model is not fitted, gives no probabilities or does not fit the data.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from rose_carla import datasets, models
    >>> data = datasets.load("compas")
    >>> encoded = data.df_train.drop(columns=data.target)
    >>> model = models.wrap(LogisticRegression().fit(encoded, data.df_train[data.target]), data)
    >>> model.backend, model.predict_proba(data.df_test.head(3)).shape
    ('sklearn', (3, 2))
    """
    if isinstance(model, MLModel):
        raise ModelError("This is a CARLA MLModel already: use it as it is.")
    for kind, value, known in (("space", space, SPACES), ("output", output, OUTPUTS)):
        if value is not None and value not in known:
            raise ModelError(unknown_name(kind, value, known))
    if isinstance(model, torch.nn.Module):
        if space == "raw":
            raise ModelError("A torch module takes encoded rows: train it on data.df, or wrap a scikit-learn pipeline.")
        return _wrap_torch(model, data, feature_order, output)
    return _wrap_estimator(model, data, feature_order, space, favourable)


def to_tensorflow(model: TorchModel) -> TensorFlowModel:
    """The same classifier with the same weights as a Keras network, for CARLA's CEM (extra ``tensorflow``)."""
    if not isinstance(model.raw_model, Network):
        raise ModelError("Only classifiers made by rose_carla.models.train have a known architecture to translate.")
    layers = [layer for layer in model.raw_model.layers if isinstance(layer, torch.nn.Linear)]
    keras = carla_tensorflow.Sequential()
    for position, layer in enumerate(layers):
        last = position == len(layers) - 1
        keras.add(
            carla_tensorflow.Dense(
                layer.out_features, input_dim=layer.in_features, activation="softmax" if last else "relu"
            )
        )
    keras.set_weights([array for layer in layers for array in (layer.weight.numpy().T, layer.bias.numpy())])
    # Dense and Sequential come from CARLA's own module, so the network lives in the Keras that CARLA's methods use.
    return TensorFlowModel(model.data, keras, model.feature_input_order)


def _encoded_features(data: DataCatalog) -> list[str]:
    return [column for column in data.df_train.columns if column != data.target]


def _raw_features(data: DataCatalog) -> list[str]:
    if isinstance(data, Dataset):
        return data.raw_features
    return [*data.continuous, *data.categorical]


class TwoProbabilities(torch.nn.Module):
    """A module's output turned into probabilities of shape (n, 2), which CARLA's gradient methods expect."""

    def __init__(self, module: torch.nn.Module, output: str) -> None:
        super().__init__()
        self.module = module
        self.output = output

    def logit(self, x: torch.Tensor) -> torch.Tensor:
        """Logarithm of the odds of the favourable outcome, shape (n,), exact if the module returns logits."""
        values = self._values(x)
        if values.dim() == 2 and values.shape[1] == 2:
            return values[:, 1] - values[:, 0] if self.output == "logit" else log_odds(values)
        values = values.reshape(-1)
        return values if self.output == "logit" else torch.logit(values, torch.finfo(values.dtype).eps)

    def _values(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x.to(next(self.module.parameters()).dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Probabilities of the two outcomes."""
        values = self._values(x)
        if values.dim() == 2 and values.shape[1] == 2:
            return torch.softmax(values, dim=-1) if self.output == "logit" else values
        values = values.reshape(-1)
        favourable = torch.sigmoid(values) if self.output == "logit" else values
        return torch.stack([1 - favourable, favourable], dim=-1)


def _wrap_torch(
    module: torch.nn.Module, data: DataCatalog, feature_order: Sequence[str] | None, output: str | None
) -> TorchModel:
    parameter = next(module.parameters(), None)
    if parameter is None:
        raise ModelError("The torch module has no parameters, so nothing can have been trained.")
    order = list(feature_order or _encoded_features(data))
    _check_encoded(order, data)
    known = np.ascontiguousarray(data.df_train[order].to_numpy(dtype=float)[:1000])
    rows = torch.tensor(known, dtype=parameter.dtype)
    module.eval()
    try:
        with torch.no_grad():
            values = module(rows.to(parameter.device))
    except Exception as error:  # whatever a module may raise, the caller should know what was tried
        raise ModelError(
            f"The torch module does not take rows of {len(order)} features ({said(error)[:-1]}): give its columns in "
            "feature_order=[...]."
        ) from error
    shape = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
    if shape not in ((len(rows), 2), (len(rows), 1), (len(rows),)):
        raise ModelError(f"The torch module returns {shape} for {len(rows)} rows: expected (n, 2), (n, 1) or (n,).")
    if not torch.isfinite(values).all():
        raise ModelError("The torch module returns values that are not finite on training rows.")
    return TorchModel(data, TwoProbabilities(module, output or _kind_of(module, values.cpu())), order)


def _kind_of(module: torch.nn.Module, values: torch.Tensor) -> str:
    """Probabilities or logits, if that can be told."""
    inside = bool(((values >= 0) & (values <= 1)).all())
    if not inside:
        return "logit"
    if values.dim() == 2 and values.shape[1] == 2:
        ones = torch.ones(len(values), dtype=values.dtype)
        return "probability" if torch.allclose(values.sum(dim=1), ones, atol=1e-4) else "logit"
    last = list(module.modules())[-1]
    if isinstance(last, torch.nn.Sigmoid):
        return "probability"
    raise ModelError(
        "The torch module returns numbers between 0 and 1, which may be probabilities or small logits: say "
        "output='probability' or output='logit'."
    )


def _wrap_estimator(
    model: Any, data: DataCatalog, feature_order: Sequence[str] | None, space: str | None, favourable: Any
) -> SklearnModel:
    if isinstance(model, type):
        raise ModelError(f"{model.__name__} is a class: pass a fitted instance.")
    booster = type(model).__name__ == "Booster" and _is_xgboost(model)
    if not booster:
        _check_classifier(model)
    names, space = _columns_and_space(model, data, feature_order, space)
    order = names if space == "encoded" else _encoded_features(data)
    column = None if booster else _favourable_column(model, favourable)
    probabilities = EstimatorProbabilities(model, data, order, names, space, column)
    try:
        tried = probabilities(data.df_train[order].to_numpy(dtype=float)[:1000])
    except Exception as error:  # whatever an estimator may raise, the caller should know what was tried
        raise ModelError(f"{type(model).__name__} cannot predict rows of this data set: {said(error)}") from error
    if tried.min() < 0 or tried.max() > 1:
        raise ModelError(f"{type(model).__name__} returns values outside [0, 1]: it needs objective 'binary:logistic'.")
    backend = "xgboost" if _is_xgboost(model) else "sklearn"
    return SklearnModel(data, model, order, probabilities, backend)


def _check_classifier(model: Any) -> None:
    name = type(model).__name__
    if not hasattr(model, "fit"):
        raise ModelError(f"{name} is neither a scikit-learn estimator, an xgboost model nor a torch module.")
    if not hasattr(model, "predict_proba"):
        if isinstance(model, BaseEstimator) and is_classifier(model):
            raise ModelError(
                f"{name} gives no probabilities (predict_proba): wrap it in scikit-learn's CalibratedClassifierCV and "
                "fit that."
            )
        raise ModelError(f"{name} is not a classifier.")
    if not _is_fitted(model):
        raise ModelError(f"{name} is not fitted: call its fit method first.")


def _is_fitted(model: Any) -> bool:
    """Whether a classifier knows its classes; scikit-learn's own may know it by something else."""
    if not isinstance(model, BaseEstimator):
        return hasattr(model, "classes_")
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return True


class EstimatorProbabilities:
    """From encoded rows to probabilities (n, 2), through whatever the estimator was fitted on.

    Parameters
    ----------
    model
        The estimator.
    data
        Its data set.
    order
        Encoded columns of the rows that come in.
    names, space
        Columns that the estimator takes, and whether they are encoded or raw.
    column
        Position of the favourable class; None for an xgboost Booster, which returns its probability alone.
    """

    def __init__(
        self, model: Any, data: DataCatalog, order: Sequence[str], names: Sequence[str], space: str, column: int | None
    ) -> None:
        self.model, self.data = model, data
        self.order, self.names, self.space, self.column = list(order), list(names), space, column

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Probabilities of the two outcomes."""
        frame = pd.DataFrame(rows, columns=self.order)
        if self.space == "raw":
            frame = self.data.inverse_transform(frame)
        frame = frame[self.names]
        if self.column is None:
            wanted = self.model.inplace_predict(frame.to_numpy(), validate_features=False)
        else:
            takes_frames = hasattr(self.model, "feature_names_in_")
            wanted = self.model.predict_proba(frame if takes_frames else frame.to_numpy())[:, self.column]
        wanted = np.asarray(wanted, dtype=float)
        return np.stack([1 - wanted, wanted], axis=1)


def _is_xgboost(model: Any) -> bool:
    return any(base.__module__.startswith("xgboost.") for base in type(model).__mro__)


def _favourable_column(model: Any, favourable: Any) -> int:
    classes = list(model.classes_)
    if len(classes) != 2:
        raise ModelError(f"The classifier knows {len(classes)} classes; recourse here is between two outcomes.")
    if favourable not in classes:
        raise ModelError(f"No class {favourable!r} among {classes}: name the wanted one with favourable=...")
    return classes.index(favourable)


def _columns_and_space(
    model: Any, data: DataCatalog, feature_order: Sequence[str] | None, space: str | None
) -> tuple[list[str], str]:
    """Columns the estimator takes, and whether they are encoded or raw ones."""
    encoded, raw = _encoded_features(data), _raw_features(data)
    fitted = getattr(model, "feature_names_in_", getattr(model, "feature_names", None))
    names = list(feature_order) if feature_order is not None else None if fitted is None else list(map(str, fitted))
    if names is None:
        if space is None and isinstance(model, Pipeline) and len(raw) == len(encoded):
            raise ModelError("The pipeline knows no column names: say space='encoded' or space='raw'.")
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
                "Raw and encoded columns have the same names here: say space='encoded' if the classifier was fitted "
                "on data.df, space='raw' if on the original values."
            )
        space = "raw" if fits["raw"] else "encoded"
    if not fits[space]:
        strange = sorted(set(names) - set(encoded if space == "encoded" else raw))
        raise ModelError(f"The classifier takes columns that the data set does not have: {', '.join(strange[:5])}.")
    return names, space


def _check_encoded(order: Sequence[str], data: DataCatalog) -> None:
    strange = sorted(set(order) - set(_encoded_features(data)))
    if strange:
        raise ModelError(f"No such encoded columns in the data set: {', '.join(strange[:5])}.")
