"""Classifiers by name or from a module: the option that says which, and what it means."""

from __future__ import annotations

import argparse
import sys
import traceback
from typing import Any

import numpy as np
import torch
from rose_carla import models
from carla.models.api import MLModel
from rose_carla._lib import user_code as foreign
from rose_carla.bench.setting import CLASSIFIERS
from rose_carla.cli.data import Loaded
from rose_carla.cli.streams import printing_aside
from rose_carla.datasets import Dataset
from rose_carla.errors import ModelError, RoseCarlaError, unknown_name


def add_model_option(parser: argparse.ArgumentParser, default: str = "ann") -> None:
    """The option that says which classifier."""
    parser.add_argument(
        "--model",
        metavar="KIND",
        help=f"ann (neural network), linear (logistic regression), or module:name, a fitted model or a function that "
        f"takes the data set and returns one; default {default}",
    )
    parser.set_defaults(usual_model=default)


def check_name(choice: str) -> None:
    """Refuse a classifier that does not exist, before any work."""
    if ":" not in choice and choice not in CLASSIFIERS:
        raise ModelError(f"{unknown_name('classifier', choice, CLASSIFIERS)} Your own is given as 'module:name'.")


def classifier(choice: str, loaded: Loaded, seed: int) -> MLModel:
    """The trained classifier.

    Raises
    ------
    ModelError
        If it does not exist, cannot be imported, or does not fit the data.
    """
    check_name(choice)
    if choice in CLASSIFIERS:
        return models.train(loaded.data, choice, seed=seed, progress=sys.stderr.isatty())
    found = imported(choice)
    if not _is_fitted_model(found) and callable(found) and not isinstance(found, type):
        try:
            with printing_aside():
                found = found(loaded.data)
        except RoseCarlaError:
            raise
        except Exception as error:  # code of somebody else
            raise ModelError(f"{choice!r} cannot make a model: {told(error)}") from error
    if isinstance(found, MLModel):
        _check_data(choice, found, loaded.data)
        return found
    wanted = loaded.favourable if loaded.favourable in list(getattr(found, "classes_", ())) else 1
    return models.wrap(found, loaded.data, favourable=wanted)


def imported(choice: str) -> Any:
    """What ``module:name`` stands for.

    Raises
    ------
    ModelError
        If there is no such thing, or its module fails.
    """
    try:
        with printing_aside():
            return foreign.imported(choice)
    except Exception as error:  # a module of somebody else may raise anything
        raise ModelError(f"The model {choice!r} cannot be imported: {told(error)}") from error


def told(error: Exception) -> str:
    """What somebody else's code raised, and where, in a sentence."""
    if isinstance(error, RoseCarlaError):
        return str(error)
    frames = [each for each in traceback.extract_tb(error.__traceback__) if "rose_carla/cli" not in each.filename]
    own = [each for each in frames if not each.filename.startswith("<frozen")]
    where = f" ({own[-1].filename}, line {own[-1].lineno})" if own and not isinstance(error, ImportError) else ""
    return f"{type(error).__name__}: {error}{where}."


def _is_fitted_model(found: Any) -> bool:
    return isinstance(found, (MLModel, torch.nn.Module)) or hasattr(found, "predict_proba") or hasattr(found, "fit")


def _check_data(choice: str, model: MLModel, data: Dataset) -> None:
    """Refuse a CARLA model that was made for other data: its numbers would mean something else."""
    if model.data is data:
        return
    order = model.feature_input_order
    known = [column for column in order if column in data.df.columns and column in model.data.df.columns]
    same = len(known) == len(order) and len(model.data.df) == len(data.df)
    if not same or not np.allclose(model.data.df[order].to_numpy(float), data.df[order].to_numpy(float)):
        raise ModelError(
            f"{choice!r} is a CARLA model for other data than {data.name!r}: make it in a function that takes the "
            "data set."
        )
    if sorted(model.data.immutables) != sorted(data.immutables):
        raise ModelError(f"{choice!r} has data with other immutable features than {data.name!r}.")
