"""Options shared by commands, how their values are parsed, and the data set that they choose."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pandas as pd
from rose_carla import datasets
from rose_carla.bench.method_registry import METHODS
from rose_carla.cli.console import STDIO, CommandError
from rose_carla.datasets import Dataset
from rose_carla.datasets.csv_files import match_value, read_table
from rose_carla.errors import DataError, short_repr, unknown_name
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


class WordsOption(click.Option):
    """Option that takes all words up to the next option: ``--immutable age sex``; it may also be repeated."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "multiple": True})


class Command(click.Command):
    """Command with :class:`WordsOption` options, whose epilog is printed as written."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the name of a :class:`WordsOption` before each of its words, which is what click parses."""
        options = {name: each for each in self.params if isinstance(each, click.Option) for name in each.opts}
        words: list[str] = []
        current = None
        for i, word in enumerate(args):
            if word == "--":
                words += args[i:]
                break
            option = options.get(word)
            if option is not None and not option.is_flag and (i + 1 == len(args) or args[i + 1] in options):
                raise click.BadOptionUsage(word, f"Option {word!r} requires a value.", ctx)
            if word.startswith("-") and word != STDIO:
                current = word if isinstance(option, WordsOption) else None
                if current:
                    continue
            words += [current, word] if current else [word]
        return super().parse_args(ctx, words)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the epilog without rewrapping it."""
        if self.epilog:
            formatter.write(f"\n{self.epilog}\n")


class NameType(click.ParamType):
    """One of some names; an unknown name is an error with the closest match.

    Parameters
    ----------
    kind
        What is named, for the message.
    known
        All names.
    """

    name = "name"

    def __init__(self, kind: str, known: Iterable[str]) -> None:
        self.kind, self.known = kind, tuple(known)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return ``value`` if it is known."""
        if value not in self.known:
            raise click.UsageError(unknown_name(self.kind, value, self.known), ctx)
        return value


#: Attributes of the option ``--noise-per``.
NOISE_PER_OPTION: dict[str, Any] = {
    "type": NameType("kind of noisy step", NOISE_PER),
    "default": "unit",
    "metavar": "KIND",
    "help": "noisy steps of Acc AIR: one per unit of action (unit, default) or per action",
}
_RESERVED = {"seed": "Use --seed N for the seed.", "fit": "'fit' cannot be set: commands train the methods they use."}
_PYTHON_WORDS = {"True": True, "False": False, "None": None}
_COLUMN_OPTIONS = {
    "immutable": "features that no plan may change",
    "continuous": "numeric features; default: all numeric columns",
    "categorical": "categorical features; default: all other columns",
    "ignore": "columns that are not features, such as a name",
}


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
        """Return the favourable outcome with its type in ``frame``, which must have it and the columns to ignore."""
        for kind, names in (("target column", (self.target,)), ("column to ignore", self.ignore)):
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
        click.option(
            "--scale",
            cls=WordsOption,
            callback=lambda ctx, param, words: parse_scale(words),
            metavar="auto|minmax|robust",
            help="CSV: scale of numeric features, or COL=... of single ones: minmax from the smallest to the largest "
            "value, robust by the central part, auto (default) robust for features with outliers",
        ),
        click.option(
            "--unit",
            cls=WordsOption,
            callback=lambda ctx, param, words: parse_numbers("unit", words),
            metavar="COL=SIZE ...",
            help="CSV: size of a unit of action of features, in original units, such as income=500",
        ),
        click.option(
            "--noise",
            cls=WordsOption,
            callback=lambda ctx, param, words: parse_numbers("noise", words),
            metavar="COL=FACTOR ...",
            help="CSV: noise of features relative to all others, such as income=0.5",
        ),
        click.option("--all-actionable", is_flag=True, help="built-in data: plans may change every feature"),
    ]

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def command(**params: Any) -> Any:
            chosen = {field.name: params.pop(field.name) for field in dataclasses.fields(DataChoice)[1:]}
            words = {name: tuple(dict.fromkeys(chosen[name])) for name in _COLUMN_OPTIONS}
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


def parse_hyperparams(words: Sequence[str]) -> dict[str, Any]:
    """Parse ``NAME=VALUE`` words.

    Examples
    --------
    >>> parse_hyperparams(["tau=0.9", "search=false", "monotone.age=increase", 'ppo={"n_updates": 8}'])
    {'tau': 0.9, 'search': False, 'monotone': {'age': 'increase'}, 'ppo': {'n_updates': 8}}
    """
    parsed: dict[str, Any] = {}
    for word in words:
        path, equals, text = word.partition("=")
        name, dot, key = path.strip().partition(".")
        if not equals or not name or (dot and not key):
            raise CommandError(f"--set takes NAME=VALUE, such as tau=0.9, got {word!r}.")
        if name in _RESERVED:
            raise CommandError(_RESERVED[name])
        value = _parse_value(text)
        if not dot:
            parsed[name] = value
        elif isinstance(mapping := parsed.setdefault(name, {}), dict):
            mapping[key] = value
        else:
            raise CommandError(f"Use either --set {name}.{key} or --set {name}, not both.")
    return parsed


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return _PYTHON_WORDS.get(text, text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"The value {short_repr(text)} of --set is too large.") from error


def parse_scale(words: Sequence[str]) -> str | dict[str, str]:
    """Parse the words of ``--scale``: one for all features, or ``FEATURE=SCALE`` words.

    Examples
    --------
    >>> parse_scale([]), parse_scale(["minmax"]), parse_scale(["income=robust", "debt=minmax"])
    ('auto', 'minmax', {'income': 'robust', 'debt': 'minmax'})
    """
    if not any("=" in word for word in words):
        if len(words) > 1:
            raise CommandError(f"--scale takes one scale for all features or COL=SCALE words, got {' '.join(words)!r}.")
        return words[0] if words else "auto"
    return _parse_pairs("scale", words)


def parse_numbers(option: str, words: Sequence[str]) -> dict[str, float] | None:
    """Parse ``FEATURE=NUMBER`` words; None without any.

    Examples
    --------
    >>> parse_numbers("unit", ["income=500", "debt=2.5"])
    {'income': 500.0, 'debt': 2.5}
    """
    numbers = {}
    for feature, text in _parse_pairs(option, words).items():
        try:
            numbers[feature] = float(text)
        except ValueError as error:
            raise CommandError(f"--{option} takes COL=NUMBER, got {f'{feature}={text}'!r}.") from error
    return numbers or None


def _parse_pairs(option: str, words: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for word in words:
        feature, equals, value = word.rpartition("=")  # names of features may contain it
        if not equals or not feature:
            raise CommandError(f"--{option} takes COL=VALUE, got {word!r}.")
        if feature in pairs:
            raise CommandError(f"--{option} names {feature!r} twice.")
        pairs[feature] = value
    return pairs
