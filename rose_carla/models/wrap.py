"""Turn a classifier that somebody else fitted into a CARLA ``MLModel`` with one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from carla.data.catalog import DataCatalog
from carla.models.api import MLModel
from carla.models.catalog.ANN_TF import model_ann as carla_tensorflow
from rose_carla.errors import ModelError, unknown_name
from rose_carla.models.mlmodel import EncodedModel, SklearnModel, TensorFlowModel, TorchModel
from rose_carla.models.network import Network
from sklearn.exceptions import NotFittedError
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
        A fitted scikit-learn estimator or pipeline with ``predict_proba``, an ``xgboost.XGBClassifier`` or a torch
        module.
    data
        The data set it was fitted for.
    feature_order
        Columns in the order the classifier takes them. Known already if it was fitted on a DataFrame; otherwise the
        sorted encoded columns, the order of :func:`rose_carla.models.train`.
    space
        ``"encoded"`` if it takes encoded, normalised rows (``data.df``), ``"raw"`` if it takes rows as people write
        them, like a pipeline that encodes by itself. Told from the column names where they differ. torch modules are
        always in the encoded space.
    favourable
        The class of a scikit-learn estimator that people want.
    output
        torch only: whether the module returns ``"probability"`` or ``"logit"`` values, of shape (n, 2), (n, 1) or
        (n,); told from its values on training rows if left out.

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
    return sorted(column for column in data.df_train.columns if column != data.target)


class TwoProbabilities(torch.nn.Module):
    """A module's output turned into probabilities of shape (n, 2), which CARLA's gradient methods expect."""

    def __init__(self, module: torch.nn.Module, output: str) -> None:
        super().__init__()
        self.module = module
        self.output = output

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Probabilities of the two outcomes."""
        values = self.module(x)
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
    rows = torch.tensor(data.df_train[order].to_numpy(dtype=float)[:1000], dtype=parameter.dtype)
    module.eval()
    try:
        with torch.no_grad():
            values = module(rows.to(parameter.device)).cpu()
    except RuntimeError as error:
        raise ModelError(
            f"The torch module does not take rows of {len(order)} features ({error}): give its columns in "
            "feature_order=[...]."
        ) from error
    shape = tuple(values.shape)
    if shape not in ((len(rows), 2), (len(rows), 1), (len(rows),)):
        raise ModelError(
            f"The torch module returns shape {shape} for {len(rows)} rows: expected (n, 2), (n, 1) or (n,)."
        )
    if not torch.isfinite(values).all():
        raise ModelError("The torch module returns values that are not finite on training rows.")
    return TorchModel(data, TwoProbabilities(module, output or _kind_of(values)), order)


def _kind_of(values: torch.Tensor) -> str:
    inside = bool(((values >= 0) & (values <= 1)).all())
    if values.dim() == 2 and values.shape[1] == 2:
        inside = inside and bool(
            torch.allclose(values.sum(dim=1), torch.ones(len(values), dtype=values.dtype), atol=1e-4)
        )
    return "probability" if inside else "logit"


def _wrap_estimator(
    model: Any, data: DataCatalog, feature_order: Sequence[str] | None, space: str | None, favourable: Any
) -> SklearnModel:
    if isinstance(model, type):
        raise ModelError(f"{model.__name__} is a class: pass a fitted instance.")
    if not hasattr(model, "predict_proba"):
        raise ModelError(
            f"{type(model).__name__} gives no probabilities (predict_proba): wrap it in scikit-learn's "
            "CalibratedClassifierCV and fit that."
        )
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise ModelError(f"{type(model).__name__} is not fitted: call its fit method first.") from error
    except TypeError as error:
        raise ModelError(f"{type(model).__name__} is neither a scikit-learn estimator nor a torch module.") from error
    column = _favourable_column(model, favourable)
    names, space = _columns_and_space(model, data, feature_order, space)
    order = names if space == "encoded" else _encoded_features(data)
    take = _takes(model, names, data, order, space)

    def probabilities(rows: np.ndarray) -> np.ndarray:
        wanted = np.asarray(model.predict_proba(take(rows)), dtype=float)[:, column]
        return np.stack([1 - wanted, wanted], axis=1)

    try:
        probabilities(data.df_train[order].to_numpy(dtype=float)[:2])
    except ValueError as error:
        raise ModelError(f"{type(model).__name__} cannot predict rows of this data set: {error}") from error
    backend = "xgboost" if _is_xgboost(model) else "sklearn"
    return SklearnModel(data, model, order, probabilities, backend)


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
    encoded, raw = _encoded_features(data), [*data.continuous, *data.categorical]
    fitted = getattr(model, "feature_names_in_", None)
    names = list(feature_order) if feature_order is not None else None if fitted is None else list(map(str, fitted))
    if names is None:
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


def _takes(
    model: Any, names: Sequence[str], data: DataCatalog, order: Sequence[str], space: str
) -> Callable[[np.ndarray], Any]:
    """Function from encoded rows to what the estimator was fitted on: a DataFrame or an array, encoded or raw."""
    as_frame = hasattr(model, "feature_names_in_")

    def take(rows: np.ndarray) -> Any:
        if space == "encoded" and not as_frame:
            return rows
        frame = pd.DataFrame(rows, columns=list(order))
        if space == "raw":
            frame = data.inverse_transform(frame)
        frame = frame[list(names)]
        return frame if as_frame else frame.to_numpy()

    return take
