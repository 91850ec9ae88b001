"""Files that run code when they are loaded, in place of networks and forests that CARLA has saved."""

from __future__ import annotations

import copyreg
import io
import json
import zipfile

import joblib
import pytest
import torch
from bad_files import Payload

NETWORK = {"learning_rate": 0.002, "epochs": 1, "batch_size": 512, "hidden_size": [4]}
FOREST = {"max_depth": 2, "n_estimators": 2}
#: Backend: kind of classifier, settings, and the file that CARLA saves it to.
CARLAS = {
    "pytorch": ("ann", NETWORK, "ann_layers_4.pt"),
    "tensorflow": ("ann", NETWORK, "ann_layers_4.h5"),
    "sklearn": ("forest", FOREST, "forest.skjoblib"),
    "xgboost": ("forest", FOREST, "forest.xgjoblib"),
}


def scripted(mark, path):
    """Save a TorchScript network that writes a file when it is loaded."""

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


class Filled:
    """Pickled as an object of class ``kind`` that was not constructed, with attributes ``state``."""

    def __init__(self, kind, **state):
        self.kind, self.state = kind, state

    __class__ = property(lambda self: self.kind)  # as pickle asks

    def __reduce_ex__(self, _):
        return copyreg.__newobj__, (self.kind,), self.state


def layer(kind=torch.nn.ReLU, **state):
    """Return a layer with additional attributes."""
    return Filled(kind, **{**torch.nn.ReLU().__dict__, **state})


def program(mark):
    """Return a graph of torch.fx whose code touches a file when it is first called."""
    lazy = pytest.importorskip("torch.fx._lazy_graph_module")._LazyGraphModule
    interpreted = pytest.importorskip("torch.export.unflatten").InterpreterModule
    code = f"import pathlib\npathlib.Path({str(mark)!r}).touch()\ndef forward(self, x):\n    return x\n"
    source = layer(src=code, globals={}, _lineno_map={}, _prologue_start=0)
    last = layer(op="output", target="o", args=(source,), kwargs={}, _input_nodes=[])
    words = ["root_module", "record_func"]
    says = layer(interpreted, graph=layer(nodes=[last]), graph_module=1, _run_with_interpreter=True, arg_names=words)
    return layer(lazy, _graph=layer(_codegen=None, python_code=says, _co_fields={}))


def own_setstate(mark, path):
    """Save a network whose ``__setstate__`` is a program in the file, called when its state is set a second time."""
    made = io.BytesIO()
    torch.save(layer(__setstate__=program(mark)), made)
    with zipfile.ZipFile(made) as given, zipfile.ZipFile(path, "w") as archive:
        for part in given.infolist():
            content = given.read(part)
            archive.writestr(part, content[:-1] + b"}b." if part.filename.endswith("data.pkl") else content)


def lambda_layer(mark, path):
    """Save a Keras network with a lambda layer."""
    keras = pytest.importorskip("tf_keras")
    touch = keras.layers.Lambda(lambda x, where=str(mark): __import__("pathlib").Path(where).touch() or x)
    keras.Sequential([keras.layers.InputLayer((7,)), touch, keras.layers.Dense(2)]).save(path)
    mark.unlink(missing_ok=True)  # building the layer has run it


def foreign_activation(mark, path):
    """Save a Keras network whose activation is a function of another package."""
    h5py = pytest.importorskip("h5py")
    function = {"class_name": "function", "module": "os", "config": "system", "registered_name": "system"}
    dense = {"class_name": "Dense", "config": {"units": 2, "activation": function}}
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": {"layers": [dense]}})


HOSTILE = {
    "torch": ("pytorch", lambda mark, path: torch.save(Payload(mark), path)),
    "torch before 1.6": (
        "pytorch",
        lambda mark, path: torch.save(Payload(mark), path, _use_new_zipfile_serialization=False),
    ),
    "TorchScript": ("pytorch", scripted),
    "a program in a layer": ("pytorch", lambda mark, path: torch.save(program(mark), path)),
    "a program while loading": ("pytorch", own_setstate),
    "a damaged file": ("pytorch", lambda mark, path: path.write_bytes(b"PK\x03\x04")),
    "joblib, sklearn": ("sklearn", lambda mark, path: joblib.dump(Payload(mark), path)),
    "joblib, xgboost": ("xgboost", lambda mark, path: joblib.dump(Payload(mark), path)),
    "Keras, lambda": ("tensorflow", lambda_layer),
    "Keras, function": ("tensorflow", foreign_activation),
    "Keras, not HDF5": ("tensorflow", lambda mark, path: path.write_bytes(b"\x89HDF")),
}
