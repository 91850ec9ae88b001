"""Read the Keras networks that CARLA saves, and no file that holds a program."""

from __future__ import annotations

import importlib
import json
import os
import pickle
from typing import Any

from rose_carla.carla_compat.extras import import_optional
from rose_carla.errors import short_repr

#: What CARLA's networks are made of, also in the files of older releases.
_PARTS = ("Sequential", "InputLayer", "Dense", "GlorotUniform", "VarianceScaling", "Zeros")


def load_network(path: str | os.PathLike[str], **options: Any) -> Any:
    """``keras.models.load_model`` of dense networks, as CARLA saves them, for files from anywhere.

    Raises
    ------
    pickle.UnpicklingError
        If there is something in the file that CARLA's networks are not made of, such as a layer with a program.
    """
    keras = import_optional("tf_keras")
    with importlib.import_module("h5py").File(os.fspath(path), "r") as file:
        _check(_description(file))
        return keras.models.load_model(file, **options)


def _description(file: Any) -> dict[str, Any]:
    try:
        described = json.loads(file.attrs["model_config"])
    except (KeyError, TypeError, ValueError, RecursionError):
        described = None
    if not isinstance(described, dict):
        raise pickle.UnpicklingError("The file describes no network: it is not loaded.")
    return described


def _check(described: dict[str, Any]) -> None:
    """Every part of a description has to be known, however deep it is."""
    waiting: list[Any] = [described]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            _check_part(part)
        waiting.extend(part.values() if isinstance(part, dict) else part if isinstance(part, list) else ())


def _check_part(part: dict[str, Any]) -> None:
    name, module = part.get("class_name"), part.get("module")
    ours = module is None or (isinstance(module, str) and module.split(".")[0] == "keras")
    if ("class_name" in part and name not in _PARTS) or not ours:
        raise pickle.UnpicklingError(
            f"The file holds {short_repr(name)}, which is no part of a network: it is not loaded."
        )
