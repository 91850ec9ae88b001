"""Classifiers of the fuzz tests: valid ones, and ones that raise or return anything but probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from rose_carla import datasets, models, seeded
from carla.models.api import MLModel
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier


class FuzzModel(MLModel):
    """A CARLA model with the answers of a function in ``ANSWERS``."""

    backend = "fuzz"
    raw_model = None
    feature_input_order: Any = None  # abstract in CARLA's class

    def __init__(self, data: datasets.Dataset, kind: str) -> None:
        super().__init__(data)
        self.kind, self.n_calls = kind, 0
        self.rng = np.random.default_rng(0)
        self.feature_input_order = sorted(column for column in data.df.columns if column != data.target)

    def predict(self, x: Any) -> Any:
        return np.asarray(self.predict_proba(x))[:, [1]]

    def predict_proba(self, x: Any) -> Any:
        self.n_calls += 1
        answer = ANSWERS[self.kind](self, np.asarray(x, dtype=float))
        if self.kind == "changes its rows":
            x *= 0
        return answer


def _pair(favourable: np.ndarray) -> np.ndarray:
    return np.stack([1 - favourable, favourable], axis=1)


def _smooth(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(8 * (x.mean(axis=1) - 0.5), -50, 50)))


def _raise(error: Exception) -> Any:
    raise error


Answer = Callable[[FuzzModel, np.ndarray], Any]
VALID_ANSWERS: dict[str, Answer] = {
    "smooth": lambda m, x: _pair(_smooth(x)),
    "single precision": lambda m, x: _pair(_smooth(x)).astype(np.float32),
    "lists": lambda m, x: _pair(_smooth(x)).tolist(),
    "tensor": lambda m, x: torch.tensor(_pair(_smooth(x))),
    "frame": lambda m, x: pd.DataFrame(_pair(_smooth(x)), index=[f"r{i}" for i in range(len(x))]),
    "changes its rows": lambda m, x: _pair(_smooth(x)),
    "saturated": lambda m, x: _pair((x.mean(axis=1) > 0.5).astype(float)),
    "never": lambda m, x: _pair(np.zeros(len(x))),
    "always": lambda m, x: _pair(np.ones(len(x))),
    "half": lambda m, x: _pair(np.full(len(x), 0.5)),
}
INVALID_ANSWERS: dict[str, Answer] = {
    "random": lambda m, x: _pair(m.rng.random(len(x))),
    "drifts": lambda m, x: _pair(np.full(len(x), 0.9 if m.n_calls > 3 else 0.1)),
    "raises": lambda m, x: _raise(RuntimeError("no connection to the server")),
    "raises later": lambda m, x: _raise(KeyError("x0")) if m.n_calls > 3 else _pair(_smooth(x)),
    "raises without a message": lambda m, x: _raise(ValueError()),
    "NaN": lambda m, x: _pair(np.where(x.mean(axis=1) > 0.6, np.nan, 0.2)),
    "one NaN": lambda m, x: np.stack([np.full(len(x), np.nan), _smooth(x)], axis=1),
    "infinite": lambda m, x: _pair(np.full(len(x), np.inf)),
    "logits": lambda m, x: np.stack([-x.sum(axis=1), x.sum(axis=1)], axis=1),
    "one column": lambda m, x: _smooth(x)[:, None],
    "three columns": lambda m, x: np.full((len(x), 3), 1 / 3),
    "one row missing": lambda m, x: _pair(_smooth(x))[1:],
    "text": lambda m, x: np.full((len(x), 2), "yes"),
    "None": lambda m, x: None,
    "ragged": lambda m, x: [[0.5, 0.5], [1.0]],
    "complex": lambda m, x: _pair(_smooth(x)) * (1 + 1j),
}
ANSWERS = {**VALID_ANSWERS, **INVALID_ANSWERS}
#: The answers of these change from call to call, so results cannot be repeated.
CHANGING = ("random", "drifts", "raises later", "torch raises later", "torch NaN later")


class FailingTree(DecisionTreeClassifier):
    """A scikit-learn classifier that raises when it predicts."""

    def predict_proba(self, x: Any, check_input: bool = True) -> Any:
        raise OSError("licence expired")


class FailsLater(torch.nn.Module):
    """A torch module that raises, or returns NaN, from its third call on."""

    def __init__(self, inner: torch.nn.Module, raises: bool) -> None:
        super().__init__()
        self.inner, self.raises, self.n_calls = inner, raises, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n_calls += 1
        if self.n_calls > 2 and self.raises:
            raise RuntimeError("CUDA error: device-side assert triggered")
        return self.inner(x) * (torch.nan if self.n_calls > 2 else 1)


class ChangesRows(torch.nn.Module):
    """A torch module that returns probabilities (n, 2) and overwrites its rows."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        favourable = torch.sigmoid(self.inner(x.clone()))
        x *= 0
        return torch.cat([1 - favourable, favourable], dim=1)


class Then(torch.nn.Module):
    """A torch module followed by any function."""

    def __init__(self, inner: torch.nn.Module, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.inner, self.function = inner, function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.inner(x))


class UnwrappedModel(FuzzModel):
    """A CARLA model of backend ``"pytorch"`` that calls its torch module directly."""

    backend = "pytorch"

    def __init__(self, data: datasets.Dataset, module: torch.nn.Module) -> None:
        super().__init__(data, "smooth")
        self.raw_model = module

    def predict_proba(self, x: Any) -> Any:
        with torch.no_grad():
            return self.raw_model(torch.tensor(np.asarray(x, dtype=np.float32)))


def _module(data: datasets.Dataset, *last: torch.nn.Module) -> torch.nn.Module:
    with seeded(3):
        return torch.nn.Sequential(
            torch.nn.Linear(data.df.shape[1] - 1, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1), *last
        )


def _train(data: datasets.Dataset, hidden: tuple[int, ...], learning_rate: float = 0.05) -> MLModel:
    settings = models.TrainingSettings(hidden=hidden, learning_rate=learning_rate, batch_size=32, epochs=4)
    return models.train(data, "ann", settings=settings, use_cache=False)


def _fit(data: datasets.Dataset, estimator: Any) -> MLModel:
    rows = data.df_train
    return models.wrap(estimator.fit(rows.drop(columns=data.target), rows[data.target]), data, space="encoded")


Build = Callable[[datasets.Dataset], MLModel]
VALID_MODELS: dict[str, Build] = {
    "linear": lambda data: _train(data, ()),
    "ann": lambda data: _train(data, (4,)),
    "logistic": lambda data: _fit(data, LogisticRegression(max_iter=50)),
    "tree": lambda data: _fit(data, DecisionTreeClassifier(max_depth=3, random_state=0)),
    "torch logit": lambda data: models.wrap(_module(data), data, output="logit"),
    "torch probability": lambda data: models.wrap(_module(data, torch.nn.Sigmoid()).double(), data),
    "unwrapped": lambda data: UnwrappedModel(data, ChangesRows(_module(data))),
}
INVALID_MODELS: dict[str, Build] = {
    "unwrapped column": lambda data: UnwrappedModel(data, _module(data, torch.nn.Sigmoid())),
    "unwrapped tuple": lambda data: UnwrappedModel(data, Then(_module(data), lambda values: (values, values))),
    "torch booleans": lambda data: models.wrap(
        Then(_module(data), lambda values: values > 0), data, output="probability"
    ),
    "torch raises later": lambda data: models.wrap(FailsLater(_module(data), raises=True), data, output="logit"),
    "torch NaN later": lambda data: models.wrap(FailsLater(_module(data), raises=False), data, output="logit"),
    "failing tree": lambda data: _fit(data, FailingTree(random_state=0)),
    "duplicate column": lambda data: models.wrap(
        torch.nn.Linear(2, 1), data, feature_order=[data.df.columns[0]] * 2, output="logit"
    ),
    "diverges": lambda data: _train(data, (50,) * 6, learning_rate=1e6),
}


def build_model(kind: str, data: datasets.Dataset) -> MLModel:
    """Return a model of one of the kinds above."""
    known = {**VALID_MODELS, **INVALID_MODELS}
    return known[kind](data) if kind in known else FuzzModel(data, kind)


def model_kinds(invalid: bool = False) -> st.SearchStrategy[str]:
    """Draw kinds of models, all valid or all invalid."""
    valid = [*VALID_MODELS, *VALID_MODELS, *VALID_ANSWERS]
    return st.sampled_from([*INVALID_MODELS, *INVALID_ANSWERS] if invalid else valid)
