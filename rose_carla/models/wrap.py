"""Wrap a fitted classifier as a CARLA ``MLModel``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from carla.data.catalog import DataCatalog
from carla.models.api import MLModel
from carla.models.catalog.ANN_TF import model_ann as carla_tensorflow
from rose_carla.carla_compat import import_optional
from rose_carla.errors import ModelError, error_text, unknown_name
from rose_carla.models.estimators import check_favourable_is_one, wrap_estimator
from rose_carla.models.mlmodel import (
    EncodedModel,
    check_data,
    check_model,
    column_list,
    encoded_features,
)
from rose_carla.models.networks import Network, TorchModel, log_odds

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
    """Wrap a fitted classifier as a CARLA ``MLModel``.

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
        them, like a pipeline that encodes them itself. Inferred from the column names where they differ. torch
        modules are always in the encoded space.
    favourable
        The favourable class of a scikit-learn estimator. An ``xgboost.Booster`` and a torch module have no names of
        classes: 1 is the favourable outcome.
    output
        torch only: whether the module returns ``"probability"`` or ``"logit"`` values, of shape (n, 2), (n, 1) or
        (n,); inferred from its last layer and its values on training rows where possible.

    Raises
    ------
    ModelError
        If the model is not fitted, does not predict probabilities or does not fit the data.

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
        raise ModelError("The model is a CARLA MLModel already: use it as it is.")
    check_data(data)
    for kind, value, known in (("space", space, SPACES), ("output", output, OUTPUTS)):
        if value is not None and not (isinstance(value, str) and value in known):
            raise ModelError(unknown_name(kind, value, known))
    order = None if feature_order is None else column_list(feature_order, "feature_order")
    if isinstance(model, torch.nn.Module):
        if space == "raw":
            raise ModelError("A torch module takes encoded rows: train it on data.df, or wrap a scikit-learn pipeline.")
        return _wrap_module(model, data, order, favourable, output)
    return wrap_estimator(model, data, order, space, favourable)


class TensorFlowModel(EncodedModel):
    """A Keras network that returns probabilities of shape (n, 2), in TensorFlow's graph mode as CARLA uses it."""

    _backend = "tensorflow"

    @property
    def session(self) -> Any:
        """The TensorFlow session that holds the network's weights; needed by CARLA's CEM."""
        return import_optional("tf_keras.api._v1.keras.backend").get_session()

    def predict_proba(self, x: Any) -> Any:
        """Return probabilities of the two outcomes, shape (n, 2)."""
        return self._raw_model.predict(np.asarray(self._ordered(x)), verbose=0)


def to_tensorflow(model: TorchModel) -> TensorFlowModel:
    """Convert a trained classifier to a Keras network with the same weights, for CARLA's CEM (extra ``tensorflow``)."""
    check_model(model)
    if not isinstance(model.raw_model, Network):
        raise ModelError("Only classifiers of rose_carla.models.train can be converted.")
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
    # Dense and Sequential of CARLA's own module, so that the network is of the Keras that CARLA's methods use
    return TensorFlowModel(model.data, keras, model.feature_input_order)


class TwoProbabilities(torch.nn.Module):
    """Module that converts another one's output to probabilities (n, 2), as CARLA's gradient methods expect."""

    def __init__(self, module: torch.nn.Module, output: str) -> None:
        super().__init__()
        self.module = module
        self.output = output

    def logit(self, x: torch.Tensor) -> torch.Tensor:
        """Return the log-odds of the favourable outcome, shape (n,), exact if the module returns logits."""
        values = self._values(x)
        if values.dim() == 2 and values.shape[1] == 2:
            return values[:, 1] - values[:, 0] if self.output == "logit" else log_odds(values)
        values = values.reshape(-1)
        return values if self.output == "logit" else torch.logit(values, torch.finfo(values.dtype).eps)

    def _values(self, x: torch.Tensor) -> torch.Tensor:
        values = self.module(x.to(next(self.module.parameters()).dtype))
        # numpy has no bfloat16, and with its rounding two probabilities would not sum to 1
        return values.float() if values.dtype == torch.bfloat16 else values

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return probabilities of the two outcomes."""
        values = self._values(x)
        if values.dim() == 2 and values.shape[1] == 2:
            return torch.softmax(values, dim=-1) if self.output == "logit" else values
        values = values.reshape(-1)
        favourable = torch.sigmoid(values) if self.output == "logit" else values
        return torch.stack([1 - favourable, favourable], dim=-1)


def _wrap_module(
    module: torch.nn.Module, data: DataCatalog, order: list[str] | None, favourable: object, output: str | None
) -> TorchModel:
    """Wrap a torch module; arguments as in :func:`wrap`."""
    parameter = next(module.parameters(), None)
    if parameter is None:
        raise ModelError("The torch module has no parameters, so it cannot have been trained.")
    check_favourable_is_one(module, favourable)
    order = encoded_features(data) if order is None else order
    _check_encoded(order, data)
    known = np.ascontiguousarray(data.df_train[order].to_numpy(dtype=float)[:1000])
    module.eval()
    try:
        with torch.no_grad():
            values = module(torch.tensor(known, dtype=parameter.dtype).to(parameter.device))
    except Exception as error:  # the module is the user's code
        raise ModelError(
            f"The torch module does not take rows of {len(order)} features ({error_text(error)[:-1]}): give its "
            "columns in feature_order=[...]."
        ) from error
    _check_values(values, len(known))
    return TorchModel(data, TwoProbabilities(module, output or _output_of(module, values.cpu())), order)


def _check_values(values: object, n: int) -> None:
    """Check that a module returned one or two finite real numbers for each of ``n`` rows."""
    shape = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
    if not isinstance(values, torch.Tensor) or shape not in ((n, 2), (n, 1), (n,)):
        raise ModelError(f"The torch module returns {shape} for {n} rows: expected (n, 2), (n, 1) or (n,).")
    if values.is_meta:
        raise ModelError("The torch module is on the device meta, which has no weights: load them first.")
    if values.layout != torch.strided or values.is_complex() or values.dtype == torch.bool:
        kind = str(values.dtype if values.layout == torch.strided else values.layout).removeprefix("torch.")
        raise ModelError(f"The torch module returns {kind} values, not a dense tensor of real numbers.")
    if not torch.isfinite(values).all():
        raise ModelError("The torch module returns NaN or infinity for training rows.")


def _output_of(module: torch.nn.Module, values: torch.Tensor) -> str:
    """Return whether values are probabilities or logits.

    Raises
    ------
    ModelError
        If they may be either.
    """
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
        "The torch module returns numbers between 0 and 1, which may be probabilities or small logits: pass "
        "output='probability' or output='logit'."
    )


def _check_encoded(order: list[str], data: DataCatalog) -> None:
    strange = sorted(map(str, set(order) - set(encoded_features(data))))
    if strange:
        raise ModelError(f"No such encoded columns in the data set: {', '.join(strange[:5])}.")
