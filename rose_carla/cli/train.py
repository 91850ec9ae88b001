"""The command ``rose-carla train`` and its folder: the policy, and what is needed to rebuild data and classifier."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rose_carla
import click
from rose_carla import models
from carla.models.api import MLModel
from rose_carla._lib.files import FileFormatError, check_writable, load_arrays, write_file
from rose_carla._lib.text import printable
from rose_carla.cli import Command, console, options
from rose_carla.cli.console import CommandError, check_not_input
from rose_carla.cli.options import DataChoice, LoadedData, find_planner, load_classifier
from rose_carla.errors import DataError
from rose_carla.rose.sequential import Sequential

#: The policy; its metadata holds the :class:`Training`.
POLICY = "policy.safetensors"
#: A copy of the training for people to read.
SUMMARY = "train.json"
#: People of the test split that the report plans for.
_REPORT_PEOPLE = 200
_EPILOG = """\
Examples:
  rose-carla train compas --out compas-policy
  rose-carla train loans.csv --target loan --favourable granted --immutable age sex --out policy
  rose-carla train loans.csv --target loan --favourable granted --model mymodels:forest --out policy
  rose-carla train adult --method ROSE-mul --set tau=0.9 --set monotone.education-num=increase --out adult-policy

The folder gets policy.safetensors, which also holds what is needed to rebuild the data set and the classifier, and
train.json, a readable summary. 'rose-carla recourse' and 'rose-carla evaluate' take it as --policy DIR.
"""


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


@click.command(cls=Command, epilog=_EPILOG)
@options.data_options("data", required=True)
@options.model_option("ann")
@options.planner_option
@options.method_options
@click.option("--out", required=True, metavar="DIR", help="the folder; created if it does not exist")
@click.option("--force", is_flag=True, help="overwrite another policy in the folder")
@click.pass_obj
def train(
    words: list[str],
    data: DataChoice,
    model: str | None,
    method: str | None,
    hyperparams: dict[str, Any],
    seed: int | None,
    out: str,
    force: bool,
) -> int:
    """Train a classifier and a policy that plans recourse for it, and save the policy in a folder.

    DATA is german, german-typed, adult, compas, or a CSV file with one row per person, in original units.
    """
    if data.source == console.STDIO:
        raise CommandError("The training data must be a file: they are read again together with the policy.")
    data.check()
    folder = Path(out).absolute()  # user code may change the working directory
    name, kind, seed = method or "ROSE-one", model or "ann", seed or 0
    find_planner(name)
    options.check_classifier_name(kind)
    settings = json.loads(json.dumps(options.check_hyperparams(name, hyperparams, seed)))  # as read back
    loaded = data.load(seed)
    if not data.is_built_in:
        data = dataclasses.replace(data, source=os.path.abspath(data.source))
    training = Training(data, loaded.sha256, kind, name, settings, seed)
    training.check_folder(Path(out), force)
    start = time.perf_counter()
    classifier = load_classifier(kind, loaded, seed)
    fitted = time.perf_counter()
    planner = options.build_method(name, classifier, seed, hyperparams)
    assert isinstance(planner, Sequential)
    trained = time.perf_counter()
    training.save(folder, planner, words)
    test = loaded.data.df_test
    accuracy, share = models.accuracy(classifier, test), test[loaded.data.target].mean()
    console.echo(f"data        {printable(loaded.summary())}")
    console.echo(
        f"classifier  {printable(kind)}, accuracy {accuracy:.3f} on the {len(test):,} people of the test split, "
        f"{fitted - start:.1f} s"
    )
    if accuracy <= max(share, 1 - share):
        console.remark("the classifier is no better than always predicting the more frequent outcome")
    console.echo(f"policy      {printable(name)}, trained in {trained - fitted:.1f} s")
    console.echo(f"plans       {_count_plans(planner, classifier, seed)}")
    console.echo(f"written     {printable(out)}/{POLICY}, {printable(out)}/{SUMMARY}")
    return console.DONE


def _count_plans(method: Sequential, model: MLModel, seed: int) -> str:
    """Describe for how many rejected people of the test split the method finds a plan."""
    try:
        rejected = models.negative_instances(model, split="test")
        sample = models.negative_instances(model, split="test", limit=_REPORT_PEOPLE, seed=seed)
    except DataError:
        return "no person of the test split is rejected"
    plans = method.plan(sample)
    lengths = [len(plan.steps) for plan in plans if plan.found and plan.steps]
    drawn = f"{len(sample)} sampled from the {len(rejected):,}" if len(sample) < len(rejected) else f"{len(sample)}"
    steps = sum(lengths) / max(len(lengths), 1)
    found = sum(plan.found for plan in plans)
    return f"for {found} of {drawn} people of the test split who are rejected, {steps:.2f} steps on average"
