"""Turn a classifier that somebody else fitted into a CARLA ``MLModel`` with one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from carla.data.catalog import DataCatalog
from carla.models.api import MLModel
from carla.models.catalog.ANN_TF import model_ann as carla_tensorflow
from rose_carla.errors import ModelError, unknown_name
from rose_carla.models.contract import check_data, check_model, column_list
from rose_carla.models.estimators import wrap_estimator
from rose_carla.models.mlmodel import EncodedModel, TensorFlowModel, TorchModel
from rose_carla.models.modules import wrap_module
from rose_carla.models.network import Network

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
        The class of a scikit-learn estimator that people want. An ``xgboost.Booster`` and a torch module name no
        classes: 1 is the favourable outcome for them.
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
    check_data(data)
    for kind, value, known in (("space", space, SPACES), ("output", output, OUTPUTS)):
        if value is not None and not (isinstance(value, str) and value in known):
            raise ModelError(unknown_name(kind, value, known))
    order = None if feature_order is None else column_list(feature_order, "feature_order")
    if isinstance(model, torch.nn.Module):
        if space == "raw":
            raise ModelError("A torch module takes encoded rows: train it on data.df, or wrap a scikit-learn pipeline.")
        return wrap_module(model, data, order, favourable, output)
    return wrap_estimator(model, data, order, space, favourable)


def to_tensorflow(model: TorchModel) -> TensorFlowModel:
    """The same classifier with the same weights as a Keras network, for CARLA's CEM (extra ``tensorflow``)."""
    check_model(model)
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
