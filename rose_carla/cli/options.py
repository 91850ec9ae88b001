"""Options shared by commands, and the data set, classifier and method they name."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import torch
from rose_carla import datasets, models
from carla.models.api import MLModel
from carla.recourse_methods.api import RecourseMethod
from rose_carla._lib.user_code import import_object
from rose_carla.bench.cells import CLASSIFIERS
from rose_carla.bench.method_registry import METHODS, Entry, entry
from rose_carla.cli import NameType, WordsOption
from rose_carla.cli.console import STDIO, CommandError, user_code
from rose_carla.cli.option_values import parse_hyperparams, parse_numbers, parse_scale
from rose_carla.datasets import Dataset
from rose_carla.datasets.csv_files import match_value, read_table
from rose_carla.errors import DataError, ExperimentError, ModelError, PlanError, unknown_name
from rose_carla.noise import NOISE_PER
from rose_carla.rose.sequential import Sequential

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

#: Built-in data sets and the arguments of :func:`rose_carla.datasets.load` for each.
BUILT_IN: Mapping[str, Mapping[str, str]] = {
    "german": {"name": "german"},
    "german-typed": {"name": "german", "form": "typed"},
    "adult": {"name": "adult"},
    "compas": {"name": "compas"},
}
#: Methods that plan sequences of steps.
PLANNERS = tuple(name for name, e in METHODS.items() if isinstance(e.make, type) and issubclass(e.make, Sequential))
#: Attributes of the option ``--noise-per``.
NOISE_PER_OPTION: dict[str, Any] = {
    "type": NameType("kind of noisy step", NOISE_PER),
    "default": "unit",
    "metavar": "KIND",
    "help": "noisy steps of Acc AIR: one per unit of action (unit, default) or per action",
}
_COLUMN_OPTIONS = {
    "immutable": "features that no plan may change",
    "continuous": "numeric features; default: all numeric columns",
    "categorical": "categorical features; default: all other columns",
    "ignore": "columns that are not features, such as a name",
}
_FEATURE_OPTIONS = {
    "scale": (
        "auto|minmax|robust",
        "scale of numeric features, or COL=... of single ones: minmax from the smallest to the largest value, robust "
        "by the central part, auto (default) robust for features with outliers",
    ),
    "unit": ("COL=SIZE ...", "size of a unit of action of features, in original units, such as income=500"),
    "noise": ("COL=FACTOR ...", "noise of features relative to all others, such as income=0.5"),
}
_WORDS_OPTIONS = (*_COLUMN_OPTIONS, *_FEATURE_OPTIONS)
_CSV_OPTIONS = ("target", "favourable", *_WORDS_OPTIONS)


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
    #: Words FEATURE=VALUE, for the scale also VALUE.
    scale: tuple[str, ...] = ()
    unit: tuple[str, ...] = ()
    noise: tuple[str, ...] = ()
    #: Option of built-in data.
    all_actionable: bool = False

    @property
    def given_options(self) -> list[str]:
        """Options beside the source that were given, as typed."""
        names = (*_CSV_OPTIONS, "all_actionable")
        return [f"--{name.replace('_', '-')}" for name in names if getattr(self, name) not in (None, (), False)]

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
            scale=parse_scale(self.scale),
            units=parse_numbers("unit", self.unit),
            noise=parse_numbers("noise", self.noise),
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


def data_options(declaration: str, required: bool = False) -> Decorator:
    """Add the data set, as argument ``data`` or option ``--data``, and its options; the command gets a DataChoice."""
    help_text = f"{', '.join(BUILT_IN)}, or a CSV file with one row per person, in original units"
    if declaration.startswith("--"):
        options = [click.option(declaration, metavar="DATA", help=help_text)]
    else:
        options = [click.argument(declaration, metavar="DATA" if required else "[DATA]", required=required)]
    options += [
        click.option("--target", metavar="COL", help="CSV: the column with the outcome"),
        click.option("--favourable", metavar="VALUE", help="CSV: the outcome people want; default 1"),
        *(
            click.option(f"--{name}", cls=WordsOption, metavar="COL ...", help=f"CSV: {text}")
            for name, text in _COLUMN_OPTIONS.items()
        ),
        *(
            click.option(f"--{name}", cls=WordsOption, metavar=metavar, help=f"CSV: {text}")
            for name, (metavar, text) in _FEATURE_OPTIONS.items()
        ),
        click.option("--all-actionable", is_flag=True, help="built-in data: plans may change every feature"),
    ]

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def command(**params: Any) -> Any:
            chosen = {field.name: params.pop(field.name) for field in dataclasses.fields(DataChoice)[1:]}
            words = {name: tuple(dict.fromkeys(chosen[name])) for name in _WORDS_OPTIONS}
            return func(data=DataChoice(params.pop("data") or "", **{**chosen, **words}), **params)

        return functools.reduce(lambda decorated, option: option(decorated), reversed(options), command)

    return decorate


def model_option(default: str) -> Decorator:
    """Add ``--model``; it is None if not given."""
    return click.option(
        "--model",
        metavar="KIND",
        help="ann (neural network), linear (logistic regression), or module:name, a fitted model or a function that "
        f"takes the data set and returns one; default {default}",
    )


def method_options(func: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--set`` (as ``hyperparams``) and ``--seed``; the seed is None if not given."""
    seed_help = "of the split, the classifier, the sample of people, and the method; default 0"
    func = click.option("--seed", type=click.IntRange(0, 2**32 - 1), metavar="N", help=seed_help)(func)
    return click.option(
        "--set",
        "hyperparams",
        multiple=True,
        metavar="NAME=VALUE",
        callback=lambda ctx, param, words: parse_hyperparams(words),
        help="a hyper-parameter, such as tau=0.9; NAME.KEY=VALUE for one key of a mapping, such as "
        "monotone.age=increase or ppo.n_updates=30; VALUE may be JSON",
    )(func)


planner_option = click.option(
    "--method", metavar="NAME", help=f"{', '.join(PLANNERS)} or module:Class; default ROSE-one"
)


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


def find_method(name: str) -> Entry:
    """Return a method by name or ``module:Class``."""
    if name in METHODS:
        return METHODS[name]
    with user_code(f"The method {name!r} cannot be imported", ExperimentError):
        return entry(name)


def check_hyperparams(name: str, hyperparams: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return all hyper-parameters of a method, or raise an error for unknown names and invalid values."""
    found = find_method(name)
    settings = getattr(found.make, "settings_class", None)
    if settings is not None:
        given = {**found.options, **({"seed": seed} if found.seeded else {}), **hyperparams}
        return dict(settings.from_mapping(given, found.make.default_overrides).as_dict())  # type: ignore[attr-defined]
    known = getattr(found.make, "_DEFAULT_HYPERPARAMS", {} if name in METHODS else None)
    for option in hyperparams:  # CARLA ignores unknown ones silently
        if known is not None and option not in {*known, *found.options}:
            raise PlanError(unknown_name(f"hyper-parameter of {name}", option, {*known, *found.options}))
    return {**found.options, **hyperparams}


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
