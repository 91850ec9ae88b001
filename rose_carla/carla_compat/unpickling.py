"""Read the whole networks and forests that CARLA pickles, and nothing else that a pickle can hold."""

from __future__ import annotations

import collections
import importlib
import inspect
import io
import math
import os
import pickle
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from joblib.numpy_pickle import NumpyArrayWrapper, NumpyUnpickler
from rose_carla.carla_compat.guarded import OPERATIONS, STAND_INS, Guard, plain, refused
from rose_carla.errors import error_text

#: What tensors and the state of optimisers are made of.
_OF_NETWORKS = (
    torch._utils._rebuild_parameter,
    torch._utils._rebuild_tensor_v2,
    torch.device,
    torch.Size,
    collections.OrderedDict,
    collections.defaultdict,
    dict,
    set,
)
#: Where layers, optimisers and CARLA's networks are. Elsewhere in torch there are some that run what they hold.
_HOMES = ("torch.nn.modules.", "torch.optim.", "carla.")
#: What forests of scikit-learn and xgboost are made of; those packages are imported when one of them is loaded.
_OF_FORESTS = {
    "sklearn.ensemble._forest": ("RandomForestClassifier",),
    "sklearn.tree._classes": ("DecisionTreeClassifier",),
    "sklearn.tree._tree": ("Tree",),
    "xgboost.sklearn": ("XGBClassifier",),
    "xgboost.core": ("Booster",),
    "numpy": ("ndarray",),
    "numpy.core.multiarray": ("_reconstruct",),
    "numpy._core.multiarray": ("_reconstruct",),
    "collections": ("OrderedDict",),
}
#: What joblib tells about an array.
_OF_ARRAYS = {"subclass", "shape", "order", "dtype", "allow_mmap", "numpy_array_alignment_bytes"}
_Joblib: Any = NumpyUnpickler
#: How a zip file starts.
_ZIP = b"PK\x03\x04"


class _NetworkUnpickler(Guard):
    """Finds layers, optimisers, tensors and numbers of modules that are loaded already; nothing is imported for it."""

    whole = "a network"
    functions = _OF_NETWORKS
    dispatch = {**Guard.dispatch, **OPERATIONS}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in STAND_INS:
            return STAND_INS[module, name]
        known = sys.modules.get("builtins" if module == "__builtin__" else module)
        found = getattr(known, name, None)
        part = isinstance(found, type) and issubclass(found, (torch.nn.Module, torch.optim.Optimizer))
        storage = module == "torch" and name.endswith("Storage")
        if (part and f"{found.__module__}.".startswith(_HOMES)) or storage:
            return found
        if any(found is each for each in _OF_NETWORKS):
            return found
        raise refused(f"{module}.{name}", self.whole)


_RESTRICTED = SimpleNamespace(Unpickler=_NetworkUnpickler, __name__=__name__)


def load(file: Any, *arguments: Any, **options: Any) -> Any:
    """``torch.load`` of whole networks, as torch had it before 2.6, for files from anywhere.

    Raises
    ------
    pickle.UnpicklingError
        If there is something in the file that networks are not made of.
    """
    content = _content(file)
    if not content.startswith(_ZIP):
        raise pickle.UnpicklingError(
            "The file is no network as torch saves it since 1.6: it is not loaded. Train the network anew."
        )
    # torch hands these to its own interpreter, whatever the unpickler
    if "constants.pkl" in torch._C.PyTorchFileReader(io.BytesIO(content)).get_all_records():
        raise pickle.UnpicklingError("The file holds TorchScript, which is a program: it is not loaded.")
    options = {"pickle_module": _RESTRICTED, **options, "weights_only": False}
    return torch.load(io.BytesIO(content), *arguments, **options)


def _content(file: Any) -> bytes:
    if hasattr(file, "read"):
        return bytes(file.read())
    with open(os.fspath(file), "rb") as opened:
        return opened.read()


class _Array(NumpyArrayWrapper):
    """An array in a file of joblib. What it holds, if that is objects, is a pickle of its own."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        if not set(state) <= _OF_ARRAYS:
            raise pickle.UnpicklingError("The file holds an array that joblib has not written: it is not loaded.")
        self.__dict__.update(state, subclass=np.ndarray, dtype=plain(state["dtype"]))

    def read(self, unpickler: Any, *options: Any) -> Any:
        if self.dtype.hasobject:
            return _forest(unpickler.file_handle)
        if math.prod(self.shape) * max(self.dtype.itemsize, 1) > unpickler.file_handle.getbuffer().nbytes:
            raise pickle.UnpicklingError("The file holds an array that is larger than the file: it is not loaded.")
        return super().read(unpickler, *options)


class _ForestUnpickler(_Joblib, Guard):
    """Finds trees, boosters, arrays and numbers."""

    whole = "a forest"
    dispatch = {**_Joblib.dispatch, **OPERATIONS}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("joblib.numpy_pickle", "NumpyArrayWrapper"):
            return _Array
        if (module, name) in STAND_INS:
            return STAND_INS[module, name]
        if name not in _OF_FORESTS.get(module, ()):
            raise refused(f"{module}.{name}", self.whole)
        found = getattr(importlib.import_module(module), name)
        if name in ("Tree", "_reconstruct"):
            self.functions = (*self.functions, found)
        return found


def _forest(file: Any) -> Any:
    options = {"ensure_native_byte_order": True}  # older joblib does not ask
    known = inspect.signature(NumpyUnpickler).parameters
    return _ForestUnpickler("", file, **{name: value for name, value in options.items() if name in known}).load()


def load_forest(path: str | os.PathLike[str]) -> Any:
    """``joblib.load`` of forests, as CARLA saves them, for files from anywhere.

    Raises
    ------
    pickle.UnpicklingError
        If there is something in the file that forests are not made of.
    """
    try:
        return _forest(io.BytesIO(_content(path)))
    except (OSError, MemoryError, ImportError, pickle.UnpicklingError):
        raise
    except Exception as error:  # whoever made the file has chosen what the unpickler stumbles over
        raise pickle.UnpicklingError(
            f"The file is no forest as CARLA saves it, or damaged: {error_text(error)}"
        ) from error
