"""Files that run code in whoever loads them, in place of networks and forests that CARLA has saved."""

from __future__ import annotations

import json

import joblib
import numpy as np
import pytest
import torch
from bad_files import Payload

NETWORK = {"learning_rate": 0.002, "epochs": 1, "batch_size": 512, "hidden_size": [4]}
FOREST = {"max_depth": 2, "n_estimators": 2}
#: What CARLA trains, and the end of the file that keeps it.
CARLAS = {
    "pytorch": ("ann", NETWORK, "pt"),
    "tensorflow": ("ann", NETWORK, "h5"),
    "sklearn": ("forest", FOREST, "skjoblib"),
    "xgboost": ("forest", FOREST, "xgjoblib"),
}


def scripted(mark, path):
    """A network of TorchScript that writes a file when it is loaded."""

    class Writes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mark = str(mark)

        @torch.jit.export
        def __getstate__(self):
            return self.mark, self.training

        @torch.jit.export
        def __setstate__(self, state: tuple[str, bool]):
            self.mark, self.training = state
            torch.save(torch.zeros(1), self.mark)

        def forward(self, x):
            return x

    torch.jit.script(Writes()).save(str(path))


def array_of(evil, path):
    """A file of joblib with an array of objects, which is a pickle inside of the pickle."""
    objects = np.empty(1, dtype=object)
    objects[0] = evil
    joblib.dump({"feature_names_in_": objects}, path)


def lambda_layer(mark, path):
    """A Keras network with a layer that runs."""
    keras = pytest.importorskip("tf_keras")
    layer = keras.layers.Lambda(lambda x, where=str(mark): __import__("pathlib").Path(where).touch() or x)
    keras.Sequential([keras.layers.InputLayer((7,)), layer, keras.layers.Dense(2)]).save(path)
    mark.unlink(missing_ok=True)  # building the layer has run it


def foreign_activation(mark, path):
    """A Keras network whose activation is a function of another package."""
    h5py = pytest.importorskip("h5py")
    function = {"class_name": "function", "module": "os", "config": "system", "registered_name": "system"}
    dense = {"class_name": "Dense", "config": {"units": 2, "activation": function}}
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": {"layers": [dense]}})


HOSTILE = {
    "torch": ("pytorch", lambda mark, path: torch.save(Payload(mark), path)),
    "torch of old": (
        "pytorch",
        lambda mark, path: torch.save(Payload(mark), path, _use_new_zipfile_serialization=False),
    ),
    "TorchScript": ("pytorch", scripted),
    "joblib, sklearn": ("sklearn", lambda mark, path: joblib.dump(Payload(mark), path)),
    "joblib, packed": ("sklearn", lambda mark, path: joblib.dump(Payload(mark), path, compress=3)),
    "joblib, array": ("sklearn", lambda mark, path: array_of(Payload(mark), path)),
    "joblib, xgboost": ("xgboost", lambda mark, path: joblib.dump(Payload(mark), path)),
    "Keras": ("tensorflow", lambda_layer),
    "Keras, function": ("tensorflow", foreign_activation),
}
