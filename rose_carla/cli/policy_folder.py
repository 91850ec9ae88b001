"""The folder of ``rose-carla train``: the policy, and what is needed to rebuild its data set and classifier."""

from __future__ import annotations

import dataclasses
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rose_carla
from carla.models.api import MLModel
from rose_carla._lib.files import FileFormatError, check_writable, load_arrays, write_file
from rose_carla.cli.console import CommandError, check_not_input
from rose_carla.cli.options import DataChoice, LoadedData, find_planner, load_classifier
from rose_carla.errors import DataError
from rose_carla.rose.sequential import Sequential

#: The policy; its metadata holds the :class:`Training`.
POLICY = "policy.safetensors"
#: A copy of the training for people to read.
SUMMARY = "train.json"


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
        training = Training(**{**fields, "data": DataChoice(**data)})
        _check_types(training)
        return training
    except FileFormatError as error:
        raise CommandError(f"{error} Re-run 'rose-carla train'.") from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CommandError(f"{str(folder)!r} is not a valid policy folder; re-run 'rose-carla train'.") from error


def _check_types(training: Training) -> None:
    data = training.data
    words = (data.immutable, data.continuous, data.categorical, data.ignore, data.scale, data.unit, data.noise)
    optional = [text for text in (data.target, data.favourable, training.sha256) if text is not None]
    texts: list[Any] = [data.source, training.model, training.method, *optional]
    if (
        not all(isinstance(each, tuple) for each in words)
        or not all(isinstance(text, str) for text in [*texts, *(word for some in words for word in some)])
        or not (isinstance(training.settings, dict) and isinstance(data.all_actionable, bool))
        or type(training.seed) is not int
        or (training.sha256 is None and not data.is_built_in)
    ):
        raise TypeError("unexpected types")


def input_files(folder: Path | None) -> list[str]:
    """Return the files that are read to load the policy of a folder; none without a folder."""
    if folder is None:
        return []
    data = read_training(folder).data
    return [str(folder / POLICY), str(folder / SUMMARY), *([] if data.is_built_in else [data.source])]


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
