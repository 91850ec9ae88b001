"""CARLA ``MLModel`` classes around a torch module, a scikit-learn or xgboost estimator, or a Keras network."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from carla.data.catalog import DataCatalog
from carla.models.api import MLModel
from carla.models.catalog import MLModelCatalog
from rose_carla.carla_compat import import_optional
from rose_carla.datasets import mutable_columns
from rose_carla.errors import ModelError, error_text
from rose_carla.models.contract import column_list
from rose_carla.models.rows import as_floats


class EncodedModel(MLModel):
    """A classifier on the encoded, normalised space with a fixed order of features.

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
        """Framework of the classifier, in CARLA's words."""
        return self._backend

    @property
    def raw_model(self) -> Any:
        """The classifier in its own framework."""
        return self._raw_model

    def get_mutable_mask(self) -> np.ndarray:
        """For each encoded column whether recourse may change it (asked for by CARLA's development version)."""
        return mutable_columns(self.data, self._feature_input_order)

    def _ordered(self, x: Any) -> Any:
        """``x`` as an array or tensor of the classifier's columns."""
        if isinstance(x, pd.DataFrame):
            missing = [column for column in self._feature_input_order if column not in x.columns]
            if missing:
                raise ModelError(
                    f"Columns missing for the classifier: {', '.join(map(str, missing[:5]))}. Pass encoded rows, for "
                    "instance data.transform(raw_rows)."
                )
            x = x[self._feature_input_order]
        if not isinstance(x, torch.Tensor):
            try:
                # frames of pandas 3 hand out what may not be written to
                x = np.require(as_floats(x), requirements="W") if isinstance(x, pd.DataFrame) else as_floats(x)
            except (TypeError, ValueError, OverflowError) as error:
                raise ModelError(
                    f"The rows for the classifier hold values that are not numbers ({error_text(error)[:-1]}): pass "
                    "encoded rows, for instance data.transform(raw_rows)."
                ) from error
        if len(x.shape) != 2 or x.shape[1] != len(self._feature_input_order):
            raise ModelError(
                f"Expected rows of {len(self._feature_input_order)} features in feature_input_order, got shape "
                f"{tuple(x.shape)}."
            )
        return x

    @abstractmethod
    def predict_proba(self, x: Any) -> Any:
        """Probabilities of the two outcomes, shape (n, 2); a torch tensor in gives a torch tensor out."""

    def predict(self, x: Any) -> Any:
        """Probability of the favourable outcome, shape (n, 1)."""
        return self.predict_proba(x)[:, 1].reshape((-1, 1))


class TorchModel(EncodedModel):
    """A torch module that returns probabilities of shape (n, 2); differentiable for tensors."""

    _backend = "pytorch"

    def __init__(self, data: DataCatalog, raw_model: torch.nn.Module, feature_input_order: Sequence[str]) -> None:
        super().__init__(data, raw_model.eval(), feature_input_order)

    def predict_proba(self, x: Any) -> Any:
        """Probabilities of the two outcomes, shape (n, 2); a torch tensor in gives a torch tensor out."""
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
        """Probabilities of the two outcomes, shape (n, 2); a torch tensor in gives a torch tensor out."""
        x = self._ordered(x)
        rows = x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else x
        probabilities = self._probabilities(rows) if len(rows) else np.empty((0, 2))
        return torch.as_tensor(probabilities, dtype=x.dtype) if isinstance(x, torch.Tensor) else probabilities

    def predict(self, x: Any) -> Any:
        """Predicted labels, shape (n,): what CARLA's own models of these two backends return."""
        return np.asarray(self.predict_proba(x)[:, 1] > 0.5).astype("int64")

    @property
    def tree_iterator(self) -> Any:
        """The trees of a forest, in the form CARLA's FeatureTweak and FOCUS walk them."""
        if self._backend != "xgboost":
            if not hasattr(self._raw_model, "estimators_"):
                raise ModelError(f"{type(self._raw_model).__name__} is no forest: CARLA's tree methods need one.")
            if list(self._raw_model.classes_) != [0, 1]:
                raise ModelError("CARLA's tree methods read the trees themselves: fit them on outcomes 0 and 1.")
        if getattr(self._probabilities, "column", None) == 0:
            raise ModelError(
                "CARLA's tree methods read the trees themselves, and take their second class for the favourable one: "
                "fit them with 1 for it."
            )
        if self._backend != "xgboost":
            return self._raw_model
        booster = self._raw_model.get_booster() if hasattr(self._raw_model, "get_booster") else self._raw_model
        boosters = list(booster)
        for booster in boosters:
            booster.feature_names = self.feature_input_order
        return boosters


# CARLA's FeatureTweak asks for its own catalog's models by class, and would take ours just as well.
MLModelCatalog.register(SklearnModel)


class TensorFlowModel(EncodedModel):
    """A Keras network that returns probabilities of shape (n, 2), in TensorFlow's graph mode as CARLA uses it."""

    _backend = "tensorflow"

    @property
    def session(self) -> Any:
        """The TensorFlow session that holds the network's weights; CARLA's CEM asks for it."""
        return import_optional("tf_keras.api._v1.keras.backend").get_session()

    def predict_proba(self, x: Any) -> Any:
        """Probabilities of the two outcomes, shape (n, 2)."""
        return self._raw_model.predict(np.asarray(self._ordered(x)), verbose=0)
