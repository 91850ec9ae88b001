"""Load the classifiers that CARLA saves, published or trained locally, without running code from a file.

CARLA pickles whole networks and forests, and loading a pickle can run anything. Here a torch network is read with
``weights_only=True`` and a list of classes, and a Keras network by its weights. Forests are not read: scikit-learn and
xgboost cannot load the published ones in any way, and training one takes about a second.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from typing import Any

import torch
from rose_carla.carla_compat import import_optional
from rose_carla.errors import ModelError

_RETRAIN = "Train the classifier again: MLModelCatalog(..., load_online=False).train(..., force_train=True)."


def load_torch(file: Any, *args: Any, **kwargs: Any) -> Any:
    """Load a state dict or one of CARLA's two networks, as ``torch.load`` does; else raise :class:`ModelError`."""
    try:
        with _carla_networks_allowed():
            return torch.load(file, *args, **{**kwargs, "weights_only": True})
    except (OSError, MemoryError):
        raise
    except Exception as error:  # depends on what the file contains
        old = "" if hasattr(torch.serialization, "safe_globals") else " or needs torch 2.5 or newer"
        raise ModelError(f"{_name(file)} is not a torch network saved by CARLA{old}. {_RETRAIN}") from error


def _carla_networks_allowed() -> contextlib.AbstractContextManager[Any]:
    safe_globals = getattr(torch.serialization, "safe_globals", None)
    if safe_globals is None:
        return contextlib.nullcontext()
    catalog = "carla.models.catalog"
    ann = importlib.import_module(f"{catalog}.ANN_TORCH").AnnModel
    linear = importlib.import_module(f"{catalog}.Linear_TORCH").LinearModel
    layers = [torch.nn.Linear, torch.nn.ModuleList, torch.nn.ReLU, torch.nn.Softmax]
    return safe_globals([ann, linear, *layers, set])


def load_keras(path: str | os.PathLike[str], **_: Any) -> Any:
    """Build one of CARLA's dense networks with the weights of an HDF5 file, in place of ``keras.models.load_model``.

    The description of layers in the file is compared with CARLA's architecture, not evaluated; other files raise
    :class:`ModelError`.
    """
    keras = import_optional("tf_keras")
    try:
        with importlib.import_module("h5py").File(os.fspath(path), "r") as file:
            config = json.loads(file.attrs["model_config"])["config"]["layers"]
            layers = [layer for layer in config if layer["class_name"] != "InputLayer"]
            kinds = [(layer["class_name"], layer["config"]["activation"]) for layer in layers]
            if kinds != [("Dense", "relu")] * (len(kinds) - 1) + [("Dense", "softmax")]:
                raise ValueError("other layers or activations")
            groups = [file["model_weights"][layer["config"]["name"]] for layer in layers]
            weights = [group[name][()] for group in groups for name in group.attrs["weight_names"]]
        network = keras.Sequential()
        for kernel, (_, activation) in zip(weights[::2], kinds, strict=True):
            network.add(keras.layers.Dense(kernel.shape[1], activation=activation, input_dim=kernel.shape[0]))
        network.set_weights(weights)
    except MemoryError:
        raise
    except Exception as error:  # depends on what the file contains
        raise ModelError(f"{_name(path)} is not a Keras network saved by CARLA. {_RETRAIN}") from error
    return network


def reject_forest(path: Any, **_: Any) -> Any:
    """Raise :class:`ModelError` in place of ``joblib.load``."""
    raise ModelError(
        f"{_name(path)} is a pickled forest, which could run code when it is loaded; the forests that CARLA published "
        f"are of scikit-learn 0.23 and xgboost 1.4, which newer versions cannot read. {_RETRAIN}"
    )


def skip_forest(forest: Any, path: Any, **_: Any) -> list[str]:
    """Write nothing in place of ``joblib.dump``, and remove the forest that would have been overwritten.

    CARLA would load the file whatever the number and depth of trees asked for next time.
    """
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
    return []


def _name(file: Any) -> str:
    return repr(os.fspath(file)) if isinstance(file, str | os.PathLike) else "The file"
