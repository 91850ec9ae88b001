"""What commands work on: the data set, classifier and method that options name, and the policy of a folder."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rose_carla
import numpy as np
import pandas as pd
import torch
from rose_carla import datasets, models
from carla.models.api import MLModel
from carla.recourse_methods.api import RecourseMethod
from rose_carla._lib.files import FileFormatError, check_writable, load_arrays, write_file
from rose_carla._lib.user_code import import_object
from rose_carla.bench.cells import CLASSIFIERS
from rose_carla.bench.method_registry import METHODS, Entry, entry
from rose_carla.cli.console import STDIO, CommandError, check_not_input, user_code
from rose_carla.datasets import Dataset
from rose_carla.datasets.csv_files import match_value, read_table
from rose_carla.errors import DataError, ExperimentError, ModelError, unknown_name
from rose_carla.rose.sequential import Sequential

#: Built-in data sets and the arguments of :func:`rose_carla.datasets.load` for each.
BUILT_IN: Mapping[str, Mapping[str, str]] = {
    "german": {"name": "german"},
    "german-typed": {"name": "german", "form": "typed"},
    "adult": {"name": "adult"},
    "compas": {"name": "compas"},
}
#: Methods that plan sequences of steps.
PLANNERS = tuple(name for name, e in METHODS.items() if isinstance(e.make, type) and issubclass(e.make, Sequential))
#: The policy of a folder; its metadata holds the :class:`Training`.
POLICY = "policy.safetensors"
#: A copy of the training for people to read.
SUMMARY = "train.json"


@dataclass(frozen=True)
class DataChoice:
    """A data set as chosen by options."""

    #: A built-in name, the path of a CSV file, or ``-``; empty if not given.
    source: str
    #: Options of a CSV file.
    target: str | None = None
    favourable: str | None = None
    immutable: tuple[str, ...] = ()
    continuous: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    #: As in :func:`rose_carla.datasets.from_frame`.
    scale: str | Mapping[str, str] = "auto"
    unit: Mapping[str, float] | None = None
    noise: Mapping[str, float] | None = None
    #: Option of built-in data.
    all_actionable: bool = False

    @property
    def given_options(self) -> list[str]:
        """Options beside the source that were given, as typed."""
        given = [each.name for each in dataclasses.fields(self)[1:] if getattr(self, each.name) != each.default]
        return [f"--{name.replace('_', '-')}" for name in given]

    @property
    def is_built_in(self) -> bool:
        """Whether the data set needs no file."""
        return self.source in BUILT_IN

    @property
    def name(self) -> str:
        """Name for messages."""
        return self.source if self.is_built_in else "stdin" if self.source == STDIO else Path(self.source).name

    def check(self) -> None:
        """Raise an error if the source does not exist or the options do not fit it."""
        if not self.source:
            raise CommandError("Missing DATA: a built-in name or a CSV file, before options that take several columns.")
        if self.is_built_in:
            for option in self.given_options:
                if option != "--all-actionable":
                    raise CommandError(f"{option} is for CSV files; the columns of {self.source!r} are known.")
        elif self.all_actionable:
            raise CommandError("--all-actionable is for built-in data: leave out --immutable for a CSV file.")
        elif os.path.isdir(self.source):
            raise DataError(f"{self.source!r} is a directory: name the CSV file in it.")
        elif self.source != STDIO and not os.path.exists(self.source):
            if os.path.basename(self.source) == self.source and not os.path.splitext(self.source)[1]:
                raise DataError(f"{unknown_name('data set', self.source, BUILT_IN)} Or give the path of a CSV file.")
            raise DataError(f"There is no file {self.source!r}.")

    def load(self, seed: int, sha256: str | None = None) -> LoadedData:
        """Load the data set, split with ``seed``; the CSV file must have the hash ``sha256``, if given."""
        self.check()
        if self.is_built_in:
            options: dict[str, Any] = {**BUILT_IN[self.source], "all_actionable": self.all_actionable, "seed": seed}
            return LoadedData(datasets.load(**options), None, 1)
        if self.target is None:
            raise DataError(f"Name the column of {self.name!r} with the outcome: --target COL.")
        frame, digest = read_frame(self.source)
        if sha256 is not None and digest != sha256:
            raise DataError(f"{self.source!r} has changed since training: give the original file (DATA).")
        favourable = self.favourable_value(frame)
        return LoadedData(self.build(frame, favourable, seed), digest, favourable)

    def favourable_value(self, frame: pd.DataFrame) -> Any:
        """Check the columns that options name, and return the favourable outcome with the type it has in ``frame``."""
        named = {
            "target column": (self.target,),
            "immutable feature": self.immutable,
            "continuous feature": self.continuous,
            "categorical feature": self.categorical,
            "column to ignore": self.ignore,
        }
        for kind, names in named.items():
            for name in names:
                if name not in frame.columns:
                    raise DataError(unknown_name(kind, name, map(str, frame.columns)))
        known = list(frame[self.target].dropna().unique())
        value = match_value("1" if self.favourable is None else self.favourable, known)
        if value is None and known:
            if self.favourable is None:
                found = ", ".join(repr(str(each)) for each in known[:5])
                raise DataError(f"Name the favourable outcome: --favourable VALUE; {self.target!r} has {found}.")
            raise DataError(unknown_name(f"value of {self.target!r}", self.favourable, map(str, known[:20])))
        return value

    def build(self, frame: pd.DataFrame, favourable: Any, seed: int) -> Dataset:
        """Build the data set from the frame of the CSV file."""
        assert self.target is not None
        return datasets.from_frame(
            frame.drop(columns=list(self.ignore)),
            self.target,
            name=f"{self.name}.csv" if self.name in BUILT_IN else self.name,
            continuous=list(self.continuous) or None,
            categorical=list(self.categorical) or None,
            immutables=self.immutable,
            favourable=favourable,
            scale=self.scale,
            units=self.unit,
            noise=self.noise,
            seed=seed,
        )


@dataclass(frozen=True)
class LoadedData:
    """A data set, the SHA-256 of its CSV file, and the favourable outcome as it appears there."""

    data: Dataset
    sha256: str | None
    favourable: Any

    def summary(self) -> str:
        """Describe the data set in one line."""
        data = self.data
        fixed = f"{len(data.immutables) or 'none'} of them immutable"
        favourable = f"{data.df[data.target].mean():.0%} with the favourable outcome"
        return f"{data.name}: {len(data.df):,} people, {len(data.raw_features)} features, {fixed}, {favourable}"


def read_frame(source: str) -> tuple[pd.DataFrame, str]:
    """Read a CSV file, or stdin for ``-``; return it with the SHA-256 of its bytes."""
    try:
        content = sys.stdin.buffer.read() if source == STDIO else Path(source).read_bytes()
    except OSError as error:
        raise DataError(f"Cannot read {source!r}: {error.strerror or error}.") from error
    return read_table(content, source), hashlib.sha256(content).hexdigest()


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
