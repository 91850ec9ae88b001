"""Options shared by commands, and how their values are parsed."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import click
from rose_carla.cli import NameType, WordsOption
from rose_carla.cli.console import CommandError
from rose_carla.cli.inputs import BUILT_IN, PLANNERS, DataChoice
from rose_carla.errors import short_repr
from rose_carla.noise import NOISE_PER

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

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
