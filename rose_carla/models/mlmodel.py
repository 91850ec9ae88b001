"""CARLA models around torch, scikit-learn, xgboost or Keras classifiers, and checks of any CARLA model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from carla.data.api import Data
from carla.data.catalog import DataCatalog
from carla.models.api import MLModel
from carla.models.catalog import MLModelCatalog
from rose_carla.carla_compat import import_optional
from rose_carla.datasets import mutable_columns
from rose_carla.datasets.dataset import as_floats
from rose_carla.errors import ModelError, short_repr


def check_model(model: object) -> None:
    """Raise an error for anything but a CARLA model."""
    if not isinstance(model, MLModel):
        raise ModelError(f"Expected a CARLA model, got {type(model).__name__}: make one with models.wrap.")


def check_data(data: object) -> None:
    """Raise an error for anything but a CARLA data set."""
    if not isinstance(data, Data):
        raise ModelError(f"Expected a CARLA data set, got {type(data).__name__}: make one with datasets.from_frame.")


def encoded_features(data: Data) -> list[str]:
    """Return the encoded columns of a data set without its target."""
    return [column for column in data.df_train.columns if column != data.target]


def column_list(columns: Any, what: str) -> list[str]:
    """Return column names as a list; ``what`` names them in messages.

    Raises
    ------
    ModelError
        If they are not a sequence of names, or one occurs twice.

    Examples
    --------
    >>> column_list(("age", "income"), "feature_order")
    ['age', 'income']
    """
    try:
        names = None if isinstance(columns, (str, bytes)) else list(columns)
        distinct = set(names or [])
    except TypeError:
        names = None
    if names is None:
        raise ModelError(f"{what} must be a list of column names, got {short_repr(columns)}.")
    if not names:
        raise ModelError(f"{what} is empty: a classifier takes at least one feature.")
    if len(distinct) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ModelError(f"{what} contains {short_repr(twice)} more than once: name every column once.")
    return names


def feature_order(mlmodel: MLModel) -> list[str]:
    """Return ``feature_input_order`` of any CARLA model as a list."""
    check_model(mlmodel)
    return column_list(mlmodel.feature_input_order, f"feature_input_order of {type(mlmodel).__name__}")


class ListOrderModel(MLModel):
    """Model whose ``feature_input_order`` is a list, around one where it is a tuple, an array or an index.

    Parameters
    ----------
    original
        The model that predicts.
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
        """Framework of the classifier, as CARLA names it."""
        return self.original.backend

    @property
    def raw_model(self) -> Any:
        """The classifier in its own framework."""
        return self.original.raw_model

    def predict(self, x: Any) -> Any:
        """Return what the original predicts."""
        return self.original.predict(x)

    def predict_proba(self, x: Any) -> Any:
        """Return what the original predicts."""
        return self.original.predict_proba(x)


def with_list_order(mlmodel: MLModel) -> MLModel:
    """Return the model, wrapped if its ``feature_input_order`` is not a list: pandas takes a tuple for one column."""
    feature_order(mlmodel)
    return mlmodel if isinstance(mlmodel.feature_input_order, list) else ListOrderModel(mlmodel)


class EncodedModel(MLModel):
    """Classifier on the encoded, normalised space with a fixed order of features.

    Parameters
    ----------
    data
        The data set it belongs to.
    raw_model
        The classifier in its own framework.
    feature_input_order
        Encoded columns in the order the classifier takes them.
    """

    _backend = ""

    def __init__(self, data: DataCatalog, raw_model: Any, feature_input_order: Sequence[str]) -> None:
        super().__init__(data)
        self._raw_model = raw_model
        self._feature_input_order = column_list(feature_input_order, "feature_input_order")

    @property
    def feature_input_order(self) -> list[str]:
        """Encoded columns in the order the classifier takes them."""
        return list(self._feature_input_order)

    @property
    def backend(self) -> str:
        """Framework of the classifier, as CARLA names it."""
        return self._backend

    @property
    def raw_model(self) -> Any:
        """The classifier in its own framework."""
        return self._raw_model

    def get_mutable_mask(self) -> np.ndarray:
        """Return for each encoded column whether recourse may change it, as CARLA's development version asks."""
        return mutable_columns(self.data, self._feature_input_order)

    def _ordered(self, x: Any) -> Any:
        """Return ``x`` as a writable array, or as a tensor, of the classifier's columns."""
        if isinstance(x, pd.DataFrame):
            missing = [column for column in self._feature_input_order if column not in x.columns]
            if missing:
                raise ModelError(
                    f"Columns missing for the classifier: {', '.join(map(str, missing[:5]))}. Pass encoded rows, for "
                    "instance data.transform(raw_rows)."
                )
            x = x[self._feature_input_order]
        if not isinstance(x, torch.Tensor):
            x = as_floats(x, "rows for the classifier", ModelError)
            x = np.require(x, requirements="W")  # pandas 3 returns read-only arrays
        if len(x.shape) != 2 or x.shape[1] != len(self._feature_input_order):
            raise ModelError(
                f"Expected rows of {len(self._feature_input_order)} features in feature_input_order, got shape "
                f"{tuple(x.shape)}."
            )
        return x

    @abstractmethod
    def predict_proba(self, x: Any) -> Any:
        """Return probabilities of the two outcomes, shape (n, 2), as a tensor if ``x`` is one."""

    def predict(self, x: Any) -> Any:
        """Return the probability of the favourable outcome, shape (n, 1)."""
        return self.predict_proba(x)[:, 1].reshape((-1, 1))


class TorchModel(EncodedModel):
    """A torch module that returns probabilities of shape (n, 2); differentiable for tensors."""

    _backend = "pytorch"

    def __init__(self, data: DataCatalog, raw_model: torch.nn.Module, feature_input_order: Sequence[str]) -> None:
        super().__init__(data, raw_model.eval(), feature_input_order)

    def predict_proba(self, x: Any) -> Any:
        """Return probabilities of the two outcomes, shape (n, 2), as a tensor if ``x`` is one."""
        x = self._ordered(x)
        parameter = next(self._raw_model.parameters())
        if isinstance(x, torch.Tensor):
            return self._raw_model(x.to(parameter.dtype))
        narrow = np.float32 if parameter.dtype == torch.float32 else np.float64
        rows = torch.as_tensor(np.array(x, dtype=narrow), dtype=parameter.dtype, device=parameter.device)
        with torch.no_grad():
            return self._raw_model(rows).cpu().numpy()


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
