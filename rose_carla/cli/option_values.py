"""Parse the values of options that are ``NAME=VALUE`` words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rose_carla.cli.console import CommandError
from rose_carla.errors import short_repr

_RESERVED = {"seed": "Use --seed N for the seed.", "fit": "'fit' cannot be set: commands train the methods they use."}
_PYTHON_WORDS = {"True": True, "False": False, "None": None}


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


def parse_numbers(option: str, words: Sequence[str]) -> dict[str, float]:
    """Parse ``FEATURE=NUMBER`` words.

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
    return numbers


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
