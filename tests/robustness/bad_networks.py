"""Files that run code in whoever loads them, in place of networks and forests that CARLA has saved."""

from __future__ import annotations

import copyreg
import io
import json
import pickle
import struct
import zipfile

import joblib
import numpy as np
import pytest
import torch
from bad_files import Payload
from joblib.numpy_pickle import NumpyArrayWrapper

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


class Filled:
    """Pickled as an object of a class that was never constructed, only filled."""

    def __init__(self, kind, **state):
        self.kind, self.state = kind, state

    __class__ = property(lambda self: self.kind)  # as pickle asks

    def __reduce_ex__(self, _):
        return copyreg.__newobj__, (self.kind,), self.state


def layer(kind=torch.nn.Identity, **state):
    """A layer that has more in it than layers have."""
    return Filled(kind, **{**torch.nn.Identity().__dict__, **state})


def program(mark):
    """A graph of torch.fx whose code touches a file when it is first called."""
    lazy = pytest.importorskip("torch.fx._lazy_graph_module")._LazyGraphModule
    interpreted = pytest.importorskip("torch.export.unflatten").InterpreterModule
    code = f"import pathlib\npathlib.Path({str(mark)!r}).touch()\ndef forward(self, x):\n    return x\n"
    source = layer(src=code, globals={}, _lineno_map={}, _prologue_start=0)
    last = layer(op="output", target="o", args=(source,), kwargs={}, _input_nodes=[])
    words = ["root_module", "record_func"]
    says = layer(interpreted, graph=layer(nodes=[last]), graph_module=1, _run_with_interpreter=True, arg_names=words)
    return layer(lazy, _graph=layer(_codegen=None, python_code=says, _co_fields={}))


def fills_itself(mark, path):
    """A network that calls a program of its own while it is loaded: it is filled twice."""
    made = io.BytesIO()
    torch.save(layer(__setstate__=program(mark)), made)
    with zipfile.ZipFile(made) as given, zipfile.ZipFile(path, "w") as archive:
        for part in given.infolist():
            content = given.read(part)
            archive.writestr(part, content[:-1] + b"}b." if part.filename.endswith("data.pkl") else content)


def forged_number():
    """A pickle of a number whose bytes are said to be a reference to an object."""

    def name(module, word):
        return f"c{module}\n{word}\n".encode()

    def text(words):
        return b"X" + struct.pack("<I", len(words)) + words.encode()

    objects, eight = (name("numpy", "dtype") + text(kind) + b"\x89\x88\x87R" for kind in ("O8", "V8"))
    record = b"(K\x03" + text("|") + b"N(" + text("f") + b"t}" + text("f") + b"(" + objects + b"K\x00ts"
    record += b"K\x08K\x01K\x00tb"
    return b"\x80\x02" + name("numpy.core.multiarray", "scalar") + b"(" + eight + record + b"U\x08AAAAAAAAtR."


def forged_in_torch(mark, path):
    """The same in a file of torch."""
    made = io.BytesIO()
    torch.save(torch.nn.Identity(), made)
    with zipfile.ZipFile(made) as given, zipfile.ZipFile(path, "w") as archive:
        for part in given.infolist():
            archive.writestr(part, forged_number() if part.filename.endswith("data.pkl") else given.read(part))


def constructed(mark, path):
    """A booster that is told to load another file."""
    core = pytest.importorskip("xgboost.core")

    class Loads:
        def __reduce__(self):
            return core.Booster, (None, (), str(mark))

    path.write_bytes(pickle.dumps(Loads()))


def old_style(mark, path):
    """A pickle of the first protocol, which calls whatever has a name."""
    path.write_bytes(b"(S'touch " + str(mark).encode() + b"'\ninumpy\ndtype\n.")


def large_array(mark, path):
    """A joblib file of hundred bytes with an array of terabytes."""
    wrapper = NumpyArrayWrapper(np.ndarray, (10**12,), "C", np.dtype(float))
    path.write_bytes(pickle.dumps(wrapper))


def short_list(mark, path):
    """An array of more objects than its list has."""
    content = pickle.dumps(np.array([None, None], dtype=object), protocol=2)
    assert content.count(b"K\x02\x85") == 1
    path.write_bytes(content.replace(b"K\x02\x85", b"K\x09\x85"))


def foreign_layer(mark, path):
    """A Keras network with a layer that has a name of Keras' own, and is of another package."""
    h5py = pytest.importorskip("h5py")
    dense = {"class_name": "Dense", "module": "os", "config": {"units": 2}}
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
    "a program in a layer": ("pytorch", lambda mark, path: torch.save(program(mark), path)),
    "a program while loading": ("pytorch", fills_itself),
    "a forged number, torch": ("pytorch", forged_in_torch),
    "a forged number, sklearn": ("sklearn", lambda mark, path: path.write_bytes(forged_number())),
    "a booster of another file": ("xgboost", constructed),
    "first protocol": ("sklearn", old_style),
    "an array of terabytes": ("sklearn", large_array),
    "more objects than there are": ("sklearn", short_list),
    "Keras": ("tensorflow", lambda_layer),
    "Keras, function": ("tensorflow", foreign_activation),
    "Keras, module": ("tensorflow", foreign_layer),
}
