"""What commands work on: the classifier and method that options name, and the policy of a folder."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rose_carla
import numpy as np
import torch
from rose_carla import models
from carla.models.api import MLModel
from carla.recourse_methods.api import RecourseMethod
from rose_carla._lib.files import FileFormatError, check_writable, load_arrays, write_file
from rose_carla._lib.user_code import import_object
from rose_carla.bench.cells import CLASSIFIERS
from rose_carla.bench.method_registry import METHODS, Entry, entry
from rose_carla.cli.console import CommandError, check_not_input, user_code
from rose_carla.cli.options import PLANNERS, DataChoice, LoadedData
from rose_carla.datasets import Dataset
from rose_carla.errors import DataError, ExperimentError, ModelError, unknown_name
from rose_carla.rose.sequential import Sequential

#: The policy of a folder; its metadata holds the :class:`Training`.
POLICY = "policy.safetensors"
#: A copy of the training for people to read.
SUMMARY = "train.json"


def check_classifier_name(name: str) -> None:
    """Raise an error for an unknown classifier, before any work."""
    if ":" not in name and name not in CLASSIFIERS:
        raise ModelError(f"{unknown_name('classifier', name, CLASSIFIERS)} Your own is given as 'module:name'.")


def load_classifier(name: str, loaded: LoadedData, seed: int) -> MLModel:
    """Train a built-in classifier, or import ``module:name``."""
    if name in CLASSIFIERS:
        return models.train(loaded.data, name, seed=seed, progress=sys.stderr.isatty())
    with user_code(f"The model {name!r} cannot be imported", ModelError):
        model = import_object(name)
    fitted = isinstance(model, (MLModel, torch.nn.Module)) or hasattr(model, "predict_proba") or hasattr(model, "fit")
    if not fitted and callable(model) and not isinstance(model, type):
        with user_code(f"{name!r} failed to return a model", ModelError):
            model = model(loaded.data)
    if isinstance(model, MLModel):
        _check_same_data(name, model, loaded.data)
        return model
    favourable = loaded.favourable if loaded.favourable in list(getattr(model, "classes_", ())) else 1
    return models.wrap(model, loaded.data, favourable=favourable)


def _check_same_data(name: str, model: MLModel, data: Dataset) -> None:
    """Raise an error if a CARLA model was built for other data: its encoding would differ."""
    if model.data is data:
        return
    columns = list(model.feature_input_order)
    frames = [each.df for each in (model.data, data)]
    known = all(set(columns) <= set(frame.columns) for frame in frames) and len(frames[0]) == len(frames[1])
    if not known or not np.allclose(*(frame[columns].to_numpy(float) for frame in frames)):
        raise ModelError(
            f"{name!r} is a CARLA model for other data than {data.name!r}: build it in a function of the data set."
        )
    if sorted(model.data.immutables) != sorted(data.immutables):
        raise ModelError(f"{name!r} has data with other immutable features than {data.name!r}.")


def load_model(
    data: DataChoice, name: str, seed: int, methods: Iterable[str] = (), hyperparams: Mapping[str, Any] | None = None
) -> MLModel:
    """Load the classifier, after checking before any work that methods, hyper-parameters and data are known."""
    data.check()
    check_classifier_name(name)
    for method in methods:
        find_method(method).resolve(hyperparams or {}, seed)
    return load_classifier(name, data.load(seed), seed)


def find_method(name: str) -> Entry:
    """Return a method by name or ``module:Class``."""
    if name in METHODS:
        return METHODS[name]
    with user_code(f"The method {name!r} cannot be imported", ExperimentError):
        return entry(name)


def find_planner(name: str) -> type[Sequential]:
    """Return the class of a method that plans steps."""
    make = find_method(name).make
    if not (isinstance(make, type) and issubclass(make, Sequential)):
        raise CommandError(f"{name} does not plan steps: choose one of {', '.join(PLANNERS)}.")
    return make


def build_method(name: str, model: MLModel, seed: int, hyperparams: Mapping[str, Any]) -> RecourseMethod:
    """Build a method for ``model``, and train it if it learns."""
    with user_code(f"{name} cannot be built for this model", ExperimentError):
        return find_method(name).build(model, seed, hyperparams)


@dataclass(frozen=True)
class Training:
    """What a policy was trained with."""

    #: The data set; a CSV file has an absolute path.
    data: DataChoice
    #: Hash of the CSV file.
    sha256: str | None
    #: Names as typed.
    model: str
    method: str
    #: All hyper-parameters.
    settings: dict[str, Any]
    #: Seed of split, classifier and policy.
    seed: int

    def check_folder(self, folder: Path, force: bool) -> None:
        """Raise an error if the folder cannot be written, or holds another policy or the data."""
        if folder.exists() and not folder.is_dir():
            raise CommandError(f"{str(folder)!r} is a file: name a folder.")
        check_writable(folder)
        for name in (POLICY, SUMMARY):
            check_not_input(str(folder / name), [self.data.source])
        if force or not (folder / POLICY).exists():
            return
        try:
            same = read_training(folder) == self
        except CommandError:
            same = False
        if not same:
            raise CommandError(f"{str(folder)!r} holds another policy: name another folder, or add --force.")

    def save(self, folder: Path, method: Sequential, words: list[str]) -> None:
        """Write the policy with this training as metadata, and a readable copy of it."""
        training = dataclasses.asdict(self)
        method.save(folder / POLICY, {"training": training})
        summary = {**training, "version": rose_carla.__version__, "command": shlex.join(words)}
        write_file(folder / SUMMARY, json.dumps(summary, indent=2) + "\n")


@dataclass(frozen=True)
class LoadedPolicy:
    """A policy with its data set and classifier."""

    training: Training
    loaded: LoadedData
    model: MLModel
    method: Sequential


def read_training(folder: Path) -> Training:
    """Read what the policy of a folder was trained with."""
    if not folder.is_dir():
        raise CommandError(f"There is no folder {str(folder)!r}: create one with 'rose-carla train'.")
    if not (folder / POLICY).is_file():
        raise CommandError(f"{str(folder)!r} has no {POLICY}: create it with 'rose-carla train'.")
    try:
        fields = load_arrays(folder / POLICY)[1]["training"]
        data: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields["data"].items()
        }
        return Training(**{**fields, "data": DataChoice(**data)})
    except FileFormatError as error:
        raise CommandError(f"{error} Re-run 'rose-carla train'.") from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CommandError(f"{str(folder)!r} is not a valid policy folder; re-run 'rose-carla train'.") from error


def input_files(folder: Path | None) -> list[str]:
    """Return the files that are read to load the policy of a folder; none without a folder."""
    if folder is None:
        return []
    data = read_training(folder).data
    return [str(folder / POLICY), str(folder / SUMMARY), *([] if data.is_built_in else [data.source])]


def check_part_of_training(policy: object, hyperparams: Mapping[str, Any], seed: int | None) -> None:
    """Raise an error for options that a policy has fixed."""
    for option, given in (("--set", bool(hyperparams)), ("--seed", seed is not None)):
        if given:
            raise CommandError(f"{option} is part of the training in {str(policy)!r}: leave it out.")


def load_policy(folder: Path, data: DataChoice, model: str | None, method: str | None = None) -> LoadedPolicy:
    """Load a policy with its data set and classifier.

    Parameters
    ----------
    folder
        Folder of ``rose-carla train``.
    data
        Where the CSV file is now, if it has moved; its other options must not be given.
    model, method
        Names to confirm. User code is run only if the user names it: a classifier or method of the form
        ``module:name`` must be given again.
    """
    training = read_training(folder)
    if data.given_options:
        raise CommandError(f"{data.given_options[0]} is part of the training in {str(folder)!r}: leave it out.")
    for option, given, known in (("--model", model, training.model), ("--method", method, training.method)):
        if given is not None and given != known:
            raise CommandError(f"{str(folder)!r} was trained with {option} {known}, not {given}.")
        if given is None and ":" in known:
            raise CommandError(f"{str(folder)!r} was trained with user code: add {option} {known} to run it.")
    choice = training.data
    if data.source:
        if choice.is_built_in and data.source != choice.source:
            raise CommandError(f"{str(folder)!r} was trained on {choice.source!r}, not on {data.source!r}.")
        choice = dataclasses.replace(choice, source=data.source)
    elif not choice.is_built_in and not Path(choice.source).is_file():
        raise DataError(f"The training data {choice.source!r} no longer exist: give the file (DATA).")
    planner = find_planner(training.method)
    loaded = choice.load(training.seed, training.sha256)
    classifier = load_classifier(training.model, loaded, training.seed)
    return LoadedPolicy(training, loaded, classifier, planner.load(folder / POLICY, classifier))
