"""Policies on disk: weights in a safetensors file, with settings and training log as metadata."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from carla.models.api import MLModel
from rose_carla._lib.files import FileFormatError, load_arrays, save_arrays
from rose_carla.datasets import project_categories
from rose_carla.errors import PlanError, error_text, short_repr
from rose_carla.models import probability
from rose_carla.models.mlmodel import check_model
from rose_carla.models.training import put_weights
from rose_carla.ppo import ActorCritic, Update

_WEIGHTS, _FINGERPRINT = "weights.", "fingerprint"
#: Number of random states at which two models are compared, and the largest difference between equal models.
_PROBES, _CLOSE = 256, 1e-3


def write(
    path: str | os.PathLike[str], about: Mapping[str, Any], policy: ActorCritic, log: list[Update], mlmodel: MLModel
) -> None:
    """Write a policy; ``about`` holds the method's name, settings and slope as JSON-able values.

    Raises
    ------
    FileWriteError
        If the file cannot be written.
    """
    metadata = {
        **about,
        "features": mlmodel.feature_input_order,
        "log": [[float(value) for value in dataclasses.astuple(each)] for each in log],
    }
    arrays = {f"{_WEIGHTS}{name}": tensor.numpy() for name, tensor in policy.state_dict().items()}
    save_arrays(_as_path(path), {**arrays, _FINGERPRINT: fingerprint(mlmodel)}, metadata)


def read(
    path: str | os.PathLike[str], method: str, mlmodel: MLModel
) -> tuple[dict[str, Any], dict[str, np.ndarray], list[Update]]:
    """Return the metadata, the weights and the training log of a policy of ``method`` for ``mlmodel``.

    Raises
    ------
    PlanError
        If the file is not a policy, or was written for another method or model.
    ModelError
        If ``mlmodel`` is not a CARLA model.
    """
    where = str(_as_path(path))
    check_model(mlmodel)
    if not os.path.exists(where):
        raise PlanError(f"There is no file {where!r}.")
    try:
        arrays, about = load_arrays(Path(where))
        trained_method, features, known = about["method"], about["features"], _check_finite(arrays.pop(_FINGERPRINT))
        about["slope"], about["settings"] = _check_slope(about["slope"]), dict(about["settings"])
        log = [_as_update(row) for row in about.pop("log")]
        weights = {name.removeprefix(_WEIGHTS): array for name, array in arrays.items()}
    except FileFormatError as error:
        raise PlanError(f"The policy cannot be loaded: {error} Train and save it again.") from error
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise PlanError(
            f"The policy cannot be loaded: {where!r} is damaged or not a policy of rose-carla. Train and save it again."
        ) from error
    if trained_method != method:
        raise PlanError(f"{where!r} holds a policy of {short_repr(trained_method)}, not of {method!r}.")
    if features != mlmodel.feature_input_order:
        raise PlanError(f"{where!r} was trained for a model with other features: {short_repr(features)}.")
    here = fingerprint(mlmodel)
    if known.shape != here.shape or not (np.abs(known - here) <= _CLOSE).all():
        raise PlanError(f"{where!r} was trained for another model, with other predictions. Train a new policy.")
    return about, weights, log


def policy_from_weights(weights: Mapping[str, np.ndarray], width: int, n_actions: int, hidden: int) -> ActorCritic:
    """Build the policy for ``width`` features and ``n_actions`` actions with weights from a file.

    Raises
    ------
    PlanError
        If the weights do not fit.
    """
    try:
        if hidden**2 > sum(array.size for array in weights.values()):  # before the network allocates memory
            raise ValueError(f"they are too few for {hidden:,} hidden units")
        policy = ActorCritic(width, n_actions, hidden)
        put_weights(policy, weights)
    except ValueError as error:
        raise PlanError(
            "The policy cannot be loaded: the file is damaged, its weights do not fit the features and settings: "
            f"{error_text(error)} Train and save it again."
        ) from error
    return policy


def fingerprint(mlmodel: MLModel) -> np.ndarray:
    """Return the model's predictions at fixed random states; models that agree there are taken to be the same."""
    order = mlmodel.feature_input_order
    states = np.random.default_rng(0).random((_PROBES, len(order)))
    return probability(mlmodel)(project_categories(mlmodel.data, order, states))


def _as_path(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path)
    except TypeError as error:
        raise PlanError(f"The path of a policy must be a string or a Path, got {short_repr(path)}.") from error


def _check_finite(predictions: np.ndarray) -> np.ndarray:
    if predictions.dtype.kind != "f" or not np.isfinite(predictions).all():
        raise ValueError("predictions must be finite")
    return predictions


def _check_slope(value: Any) -> float:
    slope = float(value)
    if not 0 < slope < math.inf:
        raise ValueError("the slope must be above 0 and finite")
    return slope


def _as_update(row: list[Any]) -> Update:
    values = [float(value) for value in row]
    return Update(int(values[0]), *values[1:])
