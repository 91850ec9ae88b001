"""Policies on disk: plain arrays and JSON in one ``.npz`` file, read without unpickling anything."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from carla.models.api import MLModel
from rose_carla.datasets import project_categories
from rose_carla.errors import PlanError, error_text, short_repr
from rose_carla.models import cache, probability
from rose_carla.models.contract import check_model
from rose_carla.models.network import put_weights
from rose_carla.ppo import ActorCritic, Update

#: Raise when the contents of a file change their meaning.
FORMAT = 1
_KEY = "rose_carla policy"
#: Rows at which two models have to agree to count as the same, and how closely.
_PROBES, _CLOSE = 256, 1e-3


def write(
    path: str | os.PathLike[str],
    about: Mapping[str, Any],
    policy: ActorCritic,
    log: list[Update],
    mlmodel: MLModel,
) -> None:
    """Write a policy; ``about`` has to be made of plain values."""
    where = named(path)
    header = {**about, "format": FORMAT, "features": mlmodel.feature_input_order}
    arrays = {f"weights.{name}": tensor.numpy() for name, tensor in policy.state_dict().items()}
    arrays["log"] = np.array([dataclasses.astuple(update) for update in log]).reshape(len(log), -1)
    arrays["fingerprint"] = fingerprint(mlmodel)
    arrays["about"] = np.array(json.dumps(header))
    try:
        cache.write(where, _KEY, arrays)
    except OSError as error:
        raise PlanError(f"The policy cannot be written to {str(where)!r}: {error.strerror or error}.") from error


def read(
    path: str | os.PathLike[str], method: str, mlmodel: MLModel
) -> tuple[dict[str, Any], dict[str, np.ndarray], list[Update]]:
    """What is known of a policy, its weights and how its training went.

    Raises
    ------
    PlanError
        If the file cannot be used for that method and model.
    ModelError
        If the model is none.
    """
    where = str(named(path))
    check_model(mlmodel)
    if not os.path.exists(where):
        raise PlanError(f"There is no file {where!r}.")
    try:
        arrays = cache.read(Path(where), _KEY)
        about = json.loads(str(arrays.pop("about")))
        found, features, known = about["format"], about["features"], _predictions(arrays.pop("fingerprint"))
        made, about["slope"], about["settings"] = about["method"], _slope(about["slope"]), dict(about["settings"])
        log = [_update(row) for row in arrays.pop("log")]
        weights = {name.removeprefix("weights."): array for name, array in arrays.items()}
    except cache.CacheError as error:
        raise PlanError(f"{where!r} is no policy that can be used: {error}.") from error
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError, RecursionError) as error:
        raise PlanError(
            f"{where!r} is no policy that can be used: it is damaged or not one of ours, and lacks what policies have."
        ) from error
    if found != FORMAT:
        raise PlanError(
            f"{where!r} has format {short_repr(found)}, this version reads {FORMAT}: train and save the policy anew."
        )
    if made != method:
        raise PlanError(f"{where!r} holds a policy of {short_repr(made)}, not of {method!r}.")
    if features != mlmodel.feature_input_order:
        raise PlanError(f"{where!r} was trained for a model with other features: {short_repr(features)}.")
    here = fingerprint(mlmodel)
    if known.shape != here.shape or not (np.abs(known - here) <= _CLOSE).all():
        raise PlanError(f"{where!r} was trained for another model: this one predicts otherwise. Train a new policy.")
    return about, weights, log


def named(path: str | os.PathLike[str]) -> Path:
    """The path of a policy's file.

    Raises
    ------
    PlanError
        If it is none.
    """
    try:
        return Path(path)
    except TypeError as error:
        raise PlanError(
            f"A policy is kept in a file, name it by a text or a Path, not by {short_repr(path)}."
        ) from error


def filled(weights: Mapping[str, np.ndarray], width: int, n_actions: int, hidden: int) -> ActorCritic:
    """The policy of so many numbers, actions and hidden units that has weights from a file."""
    try:
        if hidden**2 > sum(array.size for array in weights.values()):  # before so large a network takes memory
            raise ValueError(f"they are too few for {hidden:,} hidden units")
        policy = ActorCritic(width, n_actions, hidden)
        put_weights(policy, weights)
    except ValueError as error:
        raise PlanError(
            "The file is damaged or not one of ours, its weights do not fit the features and settings: "
            f"{error_text(error)} Train and save the policy anew."
        ) from error
    return policy


def fingerprint(mlmodel: MLModel) -> np.ndarray:
    """A model's predictions at fixed random states: two models that agree there are the same for our purposes."""
    order = mlmodel.feature_input_order
    states = np.random.default_rng(0).random((_PROBES, len(order)))
    return probability(mlmodel)(project_categories(mlmodel.data, order, states))


def _predictions(known: np.ndarray) -> np.ndarray:
    if known.dtype.kind != "f" or not np.isfinite(known).all():
        raise ValueError("predictions are finite numbers")
    return known


def _slope(value: Any) -> float:
    slope = float(value)
    if not 0 < slope < math.inf:
        raise ValueError("a slope is above 0 and finite")
    return slope


def _update(row: np.ndarray) -> Update:
    values = [float(value) for value in row]
    return Update(int(values[0]), *values[1:])
