"""The folder of a training: the policy, and all that is needed to make its data and its classifier again."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rose_carla
from carla.models.api import MLModel
from rose_carla._lib import files
from rose_carla._lib.files import write_file
from rose_carla.cli.classifier import classifier
from rose_carla.cli.data import DataChoice, Loaded
from rose_carla.cli.method import planner_class
from rose_carla.cli.parser import CommandError
from rose_carla.cli.streams import apart
from rose_carla.datasets.dataset import LARGEST_SEED
from rose_carla.errors import DataError, short_repr
from rose_carla.rose.sequential import Sequential

#: Raise when the contents of a file change their meaning.
FORMAT = 2
_POLICY, _TRAINING = "policy.safetensors", "train.json"
#: A policy whose training is being written: it becomes the policy once ``train.json`` speaks of it.
_NEXT = "policy-next.safetensors"
_FILES = (_POLICY, _NEXT, _TRAINING)
#: Bytes of ``train.json`` that are read: what is longer was not written by us.
_LONGEST = 1 << 26


@dataclass(frozen=True)
class Training:
    """What was trained.

    Parameters
    ----------
    data
        The data, with the whole path of a CSV file.
    sha256
        Of the CSV file.
    model, method
        As they were typed.
    settings
        All hyper-parameters.
    seed
        Of split, classifier and policy.
    """

    data: DataChoice
    sha256: str | None
    model: str
    method: str
    settings: dict[str, Any]
    seed: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as for JSON."""
        return {**dataclasses.asdict(self), "data": self.data.as_dict()}

    def check_types(self) -> None:
        """Refuse fields of other types, and a CSV file of which nobody knows whether it has changed.

        Raises
        ------
        TypeError
            If there are any.
        """
        data = self.data
        lists = [data.immutable, data.ignore]
        lists += [names for names in (data.continuous, data.categorical) if names is not None]
        texts: list[Any] = [data.source, self.model, self.method, *(name for names in lists for name in names)]
        texts += [text for text in (data.target, data.favourable) if text is not None]
        texts += [] if data.built_in else [self.sha256]
        if not (
            all(isinstance(names, tuple) for names in lists)
            and all(isinstance(text, str) for text in texts)
            and isinstance(data.all_actionable, bool)
            and isinstance(self.settings, dict)
            and type(self.seed) is int
            and 0 <= self.seed <= LARGEST_SEED
        ):
            raise TypeError("fields are of other types")

    def check_folder(self, folder: Path, force: bool) -> None:
        """Refuse to write over another training, or over the data.

        Raises
        ------
        CommandError
            If they are there, or if nothing can be written there.
        """
        if folder.exists() and not folder.is_dir():
            raise CommandError(f"{str(folder)!r} is a file: name a folder.")
        files.check_writable(folder)
        for name in _FILES if not self.data.built_in else ():
            apart(str(folder / name), self.data.source)
        if force or not any((folder / name).exists() for name in (_POLICY, _TRAINING)):
            return
        try:
            same = read(folder)[0] == self
        except CommandError:
            same = False
        if not same:
            raise CommandError(f"{str(folder)!r} holds another training: name another folder, or add --force.")

    def write(self, folder: Path, method: Sequential, typed: Sequence[str]) -> None:
        """Write the policy, then the file that makes it a training; whoever is killed leaves the old one or the new."""
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            _settle(folder)
            method.save(folder / _NEXT)
            about = {
                "format": FORMAT,
                **self.as_dict(),
                "policy_sha256": _digest(folder / _NEXT),
                "version": rose_carla.__version__,
                "command": shlex.join(typed),
            }
            write_file(folder / _TRAINING, json.dumps({**about, "checksum": checksum(about)}, indent=2) + "\n")
            os.replace(folder / _NEXT, folder / _POLICY)


def read(folder: Path) -> tuple[Training, str]:
    """What was trained, and the sha256 of its policy.

    Raises
    ------
    CommandError
        If the folder holds no training that can be used.
    """
    path = folder / _TRAINING
    if not folder.is_dir():
        raise CommandError(f"There is no folder {str(folder)!r}: make one with 'rose-carla train'.")
    if not path.is_file():  # a pipe would be waited for
        raise CommandError(f"{str(folder)!r} holds no training ({_TRAINING}): make one with 'rose-carla train'.")
    try:
        with path.open("rb") as file:
            about = json.loads(file.read(_LONGEST).decode("utf-8"))
        if about["format"] != FORMAT:
            found = short_repr(about["format"])
            raise CommandError(f"{str(path)!r} has format {found}, this version reads {FORMAT}: train anew.")
        if about.pop("checksum") != checksum(about):
            raise CommandError(f"{str(path)!r} was changed or damaged after it was written: train anew.")
        data: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in about["data"].items()
        }
        fields = {field.name: about[field.name] for field in dataclasses.fields(Training)}
        training = Training(**{**fields, "data": DataChoice(**data)})
        training.check_types()
        return training, str(about["policy_sha256"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, CommandError):
            raise
        raise CommandError(f"{str(path)!r} is damaged or no training: train anew.") from error


def sources(folder: Path | None) -> list[str]:
    """Files that whoever uses a training reads, and may not write over; None: there is no training.

    Raises
    ------
    CommandError
        If the folder holds no training that can be used.
    """
    if folder is None:
        return []
    data = read(folder)[0].data
    return [*(str(folder / name) for name in _FILES), *([] if data.built_in else [data.source])]


def load(folder: Path, source: str | None, model: str | None, method: str | None = None) -> Loading:
    """The policy of a folder with its classifier.

    Parameters
    ----------
    folder
        Of ``rose-carla train``.
    source
        Where the CSV file is now; None: where it was.
    model, method
        Code is run only if whoever types the command names it: a classifier or method of the form ``module:name`` has
        to be given once more. None: it is one of this package.

    Raises
    ------
    RoseCarlaError
        If the data, the classifier or the policy are not those of the training.
    """
    training, digest = read(folder)
    for option, given, known in (("--model", model, training.model), ("--method", method, training.method)):
        if given is not None and given != known:
            raise CommandError(f"{str(folder)!r} was trained with {option} {known}, not {given}.")
        if given is None and ":" in known:
            raise CommandError(f"{str(folder)!r} was trained with code of its own: add {option} {known} to run it.")
    choice = training.data
    if source is not None:
        if choice.built_in and source != choice.source:
            raise CommandError(f"{str(folder)!r} was trained on {choice.source!r}, not on {source!r}.")
        choice = dataclasses.replace(choice, source=source)
    elif not choice.built_in and not Path(choice.source).is_file():
        raise DataError(f"The training data {choice.source!r} are not there any more: name the file (DATA).")
    made = planner_class(training.method)
    loaded = choice.load(training.seed, training.sha256)
    fitted = classifier(training.model, loaded, training.seed)
    files_there = [folder / name for name in (_POLICY, _NEXT) if (folder / name).is_file()]
    policy = next((path for path in files_there if _digest(path) == digest), None)
    if policy is None:
        raise CommandError(f"The policy in {str(folder)!r} is missing, damaged or of another training: train anew.")
    return Loading(training, loaded, fitted, made.load(policy, fitted))


@dataclass(frozen=True)
class Loading:
    """A policy from a folder, with its data and its classifier."""

    training: Training
    loaded: Loaded
    model: MLModel
    method: Sequential


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Have other processes that write a training to the folder wait, where the system can do that."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):  # Windows has none, and some networks' disks do not
            import fcntl

            number = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, number)  # which ends the lock, as does the end of the process
            fcntl.flock(number, fcntl.LOCK_EX)
        yield


def _settle(folder: Path) -> None:
    """Finish what a killed process began: a policy that is a training already gets the name it should have."""
    with contextlib.suppress(CommandError, OSError):
        if (folder / _NEXT).is_file() and read(folder)[1] == _digest(folder / _NEXT):
            os.replace(folder / _NEXT, folder / _POLICY)


def checksum(about: Mapping[str, Any]) -> str:
    """Of all that a training says of itself."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
