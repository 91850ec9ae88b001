"""Classifiers of the fuzz tests: good ones, odd ones that keep the contract of a model, and ones that break it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from rose_carla import datasets, models
from carla.models.api import MLModel
from hypothesis import strategies as st
from rose_carla._lib.runtime import seeded
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier


class Odd(MLModel):
    """A CARLA model that answers as the function of its kind does."""

    backend = "odd"
    raw_model = None
    feature_input_order: Any = None  # abstract in CARLA's class

    def __init__(self, data: datasets.Dataset, kind: str) -> None:
        super().__init__(data)
        self.kind, self.calls = kind, 0
        self.rng = np.random.default_rng(0)
        self.feature_input_order = sorted(column for column in data.df.columns if column != data.target)

    def predict(self, x: Any) -> Any:
        return np.asarray(self.predict_proba(x))[:, [1]]

    def predict_proba(self, x: Any) -> Any:
        self.calls += 1
        answer = ANSWERS[self.kind](self, np.asarray(x, dtype=float))
        if self.kind == "changes its rows":
            x *= 0
        return answer


def _both(chances: np.ndarray) -> np.ndarray:
    return np.stack([1 - chances, chances], axis=1)


def _smooth(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(8 * (x.mean(axis=1) - 0.5), -50, 50)))


def _raise(error: Exception) -> Any:
    raise error


#: From a kind of odd model to its answer. The first ones are within the contract of a model, the others break it.
ANSWERS = {
    "smooth": lambda m, x: _both(_smooth(x)),
    "single precision": lambda m, x: _both(_smooth(x)).astype(np.float32),
    "lists": lambda m, x: _both(_smooth(x)).tolist(),
    "tensor": lambda m, x: torch.tensor(_both(_smooth(x))),
    "frame": lambda m, x: pd.DataFrame(_both(_smooth(x)), index=[f"r{i}" for i in range(len(x))]),
    "changes its rows": lambda m, x: _both(_smooth(x)),
    "saturated": lambda m, x: _both((x.mean(axis=1) > 0.5).astype(float)),
    "never": lambda m, x: _both(np.zeros(len(x))),
    "always": lambda m, x: _both(np.ones(len(x))),
    "half": lambda m, x: _both(np.full(len(x), 0.5)),
    "random": lambda m, x: _both(m.rng.random(len(x))),
    "drifting": lambda m, x: _both(np.full(len(x), 0.9 if m.calls > 3 else 0.1)),
    "raises": lambda m, x: _raise(RuntimeError("no connection to the server")),
    "raises later": lambda m, x: _raise(KeyError("x0")) if m.calls > 3 else _both(_smooth(x)),
    "raises nothing said": lambda m, x: _raise(ValueError()),
    "NaN": lambda m, x: _both(np.full(len(x), np.nan)),
    "NaN inside": lambda m, x: _both(np.where(x.mean(axis=1) > 0.6, np.nan, 0.2)),
    "one NaN": lambda m, x: np.stack([np.full(len(x), np.nan), _smooth(x)], axis=1),
    "infinite": lambda m, x: _both(np.full(len(x), np.inf)),
    "outside": lambda m, x: _both(3 * _smooth(x)),
    "logits": lambda m, x: np.stack([-x.sum(axis=1), x.sum(axis=1)], axis=1),
    "one column": lambda m, x: _smooth(x)[:, None],
    "flat": lambda m, x: _smooth(x),
    "three": lambda m, x: np.full((len(x), 3), 1 / 3),
    "one row less": lambda m, x: _both(_smooth(x))[1:],
    "words": lambda m, x: np.full((len(x), 2), "yes"),
    "nothing": lambda m, x: None,
    "ragged": lambda m, x: [[0.5, 0.5], [1.0]],
    "complex": lambda m, x: _both(_smooth(x)) * (1 + 1j),
    "huge": lambda m, x: [[10**400, 0]] * len(x),
}
FAIR = tuple(ANSWERS)[:10]
#: What these say changes from call to call, so nothing can be promised but the form of the first answer.
FICKLE = ("random", "drifting", "raises later", "torch raises", "torch NaN", "torch pairs")


class Stubborn(DecisionTreeClassifier):
    """A scikit-learn classifier that is in the way when it is asked."""

    def predict_proba(self, x: Any, check_input: bool = True) -> Any:
        raise OSError("licence expired")


def _torch(data: datasets.Dataset, last: torch.nn.Module | None = None) -> torch.nn.Module:
    width = data.df.shape[1] - 1
    with seeded(3):
        return torch.nn.Sequential(
            torch.nn.Linear(width, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1), *([last] if last else [])
        )


class Sulking(torch.nn.Module):
    """A torch module that gives up on rows it does not know, or on two of them."""

    def __init__(self, inner: torch.nn.Module, answer: str) -> None:
        super().__init__()
        self.inner, self.answer, self.calls = inner, answer, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.answer == "pairs" and len(x) == 2:
            raise KeyError("no pairs")
        if self.answer != "pairs" and self.calls > 2:
            if self.answer == "raises":
                raise RuntimeError("CUDA error: device-side assert triggered")
            return self.inner(x) * torch.nan
        return self.inner(x)


class Greedy(torch.nn.Module):
    """Probabilities (n, 2) of the rows, which are something else afterwards."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chances = torch.sigmoid(self.inner(x.clone()))
        x *= 0
        return torch.cat([1 - chances, chances], dim=1)


class Then(torch.nn.Module):
    """A module, and then something odd."""

    def __init__(self, inner: torch.nn.Module, odd: Any) -> None:
        super().__init__()
        self.inner, self.odd = inner, odd

    def forward(self, x: torch.Tensor) -> Any:
        return self.odd(self.inner(x))


class Bare(Odd):
    """A CARLA model around a torch module as it is, which nobody has wrapped."""

    backend = "pytorch"

    def __init__(self, data: datasets.Dataset, module: torch.nn.Module) -> None:
        super().__init__(data, "smooth")
        self.raw_model = module

    def predict_proba(self, x: Any) -> Any:
        with torch.no_grad():
            return self.raw_model(torch.tensor(np.asarray(x, dtype=np.float32)))


def _trained(data: datasets.Dataset, hidden: Any, *, seed: Any = 0, **changed: Any) -> MLModel:
    usual = {"hidden": hidden, "learning_rate": 0.05, "batch_size": 32, "epochs": 4}
    settings = models.TrainingSettings(**{**usual, **changed})
    return models.train(data, "ann", settings=settings, use_cache=False, seed=seed)


def _fitted(data: datasets.Dataset, estimator: Any) -> MLModel:
    rows = data.df_train
    return models.wrap(estimator.fit(rows.drop(columns=data.target), rows[data.target]), data, space="encoded")


MODELS = {
    "linear": lambda data: _trained(data, ()),
    "ann": lambda data: _trained(data, (4,)),
    "logistic": lambda data: _fitted(data, LogisticRegression(max_iter=50)),
    "tree": lambda data: _fitted(data, DecisionTreeClassifier(max_depth=3, random_state=0)),
    "torch logit": lambda data: models.wrap(_torch(data), data, output="logit"),
    "torch probability": lambda data: models.wrap(_torch(data, torch.nn.Sigmoid()).double(), data),
    "bare": lambda data: Bare(data, Greedy(_torch(data))),
    "bare column": lambda data: Bare(data, _torch(data, torch.nn.Sigmoid())),
    "bare flat": lambda data: Bare(data, torch.nn.Sequential(_torch(data, torch.nn.Sigmoid()), torch.nn.Flatten(0))),
    "bare tuple": lambda data: Bare(data, Then(_torch(data), lambda values: (values, values))),
    "bare nothing": lambda data: Bare(data, Then(_torch(data), lambda values: None)),
    "torch truth": lambda data: models.wrap(Then(_torch(data), lambda values: values > 0), data, output="probability"),
    "torch pairs": lambda data: models.wrap(Sulking(_torch(data), "pairs"), data, output="logit"),
    "torch raises": lambda data: models.wrap(Sulking(_torch(data), "raises"), data, output="logit"),
    "torch NaN": lambda data: models.wrap(Sulking(_torch(data), "NaN"), data, output="logit"),
    "stubborn": lambda data: _fitted(data, Stubborn(random_state=0)),
    "column twice": lambda data: models.wrap(
        torch.nn.Linear(2, 1), data, feature_order=[data.df.columns[0]] * 2, output="logit"
    ),
    "a class": lambda data: models.wrap(LogisticRegression, data),
    "not fitted": lambda data: models.wrap(LogisticRegression(), data),
    "no model": lambda data: "ann",
    "no width": lambda data: _trained(data, 5),
    "half a width": lambda data: _trained(data, (2.5,)),
    "no rate": lambda data: _trained(data, (), learning_rate="x"),
    "infinite rate": lambda data: _trained(data, (), learning_rate=np.inf),
    "diverges": lambda data: _trained(data, (50,) * 6, learning_rate=1e6),
    "half a row": lambda data: _trained(data, (), batch_size=2.5),
    "long seed": lambda data: _trained(data, (), seed=2**64),
}
GOOD_MODELS = tuple(MODELS)[:7]


def build_model(kind: str, data: datasets.Dataset) -> Any:
    """A model by its kind: one of ``MODELS``, or an odd one."""
    return MODELS[kind](data) if kind in MODELS else Odd(data, kind)


def model_kinds(broken: bool = False) -> st.SearchStrategy[str]:
    """Kinds of models; all of the broken ones are no good, or no good for long."""
    sound = [*GOOD_MODELS, *GOOD_MODELS, *FAIR]
    return st.sampled_from([kind for kind in [*MODELS, *ANSWERS] if kind not in sound] if broken else sound)
