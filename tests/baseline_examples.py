"""Models with known solutions, and checks, for the tests of the baselines."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import torch
from rose_carla import datasets, models
from rose_carla._lib import runtime as deadline
from rose_carla.datasets import feature_groups, valid_encodings
from rose_carla.models.networks import Network


def array(model, frame):
    """Encoded rows in the model's order."""
    return frame[model.feature_input_order].to_numpy(dtype=float, copy=True)


def linear(data, weights, bias, order):
    """Linear classifier with ``weights`` of the encoded columns ``order``."""
    network = Network(len(order))
    with torch.no_grad():
        network.layers[0].weight[1] = torch.tensor(np.asarray(weights, dtype=np.float32))
        network.layers[0].bias[1] = float(bias)
    return models.TorchModel(data, network, order)


def weights_of(model):
    """Weights (d,) and bias of the logit of a linear classifier."""
    layer = model.raw_model.layers[0]
    weights = (layer.weight[1] - layer.weight[0]).detach().double().numpy()
    return weights, float(layer.bias[1] - layer.bias[0])


def numbers_only(values, name="numbers", immutables=()):
    """Data set of continuous features x0, x1, ... with (n, d) values that span [0, 1]."""
    values = np.asarray(values, dtype=float)
    frame = pd.DataFrame(values, columns=[f"x{i}" for i in range(values.shape[1])])
    frame["good"] = np.arange(len(frame)) % 2
    return datasets.from_frame(frame, "good", name=name, immutables=immutables)


def cube(d, n=64, seed=0, **options):
    """Uniform rows, with 0 and 1 in every feature."""
    values = np.random.default_rng(seed).random((n, d))
    values[:2], values[-2:] = [[0], [1]], [[1], [0]]  # in the test rows as well as in the training rows
    return numbers_only(values, **options)


def one_category(yes, number, bias):
    """Linear classifier of a category with weight ``yes`` and a number with weight ``number``."""
    frame = pd.DataFrame({"x0": np.linspace(0, 1, 40), "job": ["no", "yes"] * 20, "good": [0, 0, 1, 1] * 10})
    return linear(datasets.from_frame(frame, "good", name="category"), [yes, number], bias, ["job_yes", "x0"])


def stop_after(monkeypatch, calls=10**9):
    """Patch the clock of deadlines to advance one second per call; return the times."""
    times = []

    def monotonic():
        times.append(float(len(times)))
        assert len(times) < calls, "deadline ignored"
        return times[-1]

    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=monotonic))
    return times


def check_legal(model, starts, ends):
    """Check that immutables are equal, numbers in [0, 1] and categories valid encodings."""
    data, order = model.data, model.feature_input_order
    for feature, columns in feature_groups(data, order).items():
        if feature in data.immutables:
            assert (ends[:, columns] == starts[:, columns]).all(), feature
        elif feature in data.categorical:
            allowed = valid_encodings(data, feature, len(columns))
            assert (np.abs(ends[:, None, columns] - allowed).max(axis=2).min(axis=1) == 0).all(), feature
        else:
            assert (ends[:, columns] >= 0).all(), feature
            assert (ends[:, columns] <= 1).all(), feature
