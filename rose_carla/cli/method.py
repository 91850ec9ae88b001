"""Recourse methods by name or from a module, and their hyper-parameters."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from carla.models.api import MLModel
from carla.recourse_methods.api import RecourseMethod
from rose_carla.bench.methods import METHODS, Entry, entry
from rose_carla.cli.classifier import told
from rose_carla.cli.parser import CommandError, at_least
from rose_carla.cli.streams import printing_aside
from rose_carla.datasets.dataset import LARGEST_SEED
from rose_carla.errors import ExperimentError, PlanError, RoseCarlaError, short_repr, unknown_name
from rose_carla.rose.sequential import Sequential

#: Methods that plan steps.
PLANNERS = tuple(
    name for name, each in METHODS.items() if isinstance(each.make, type) and issubclass(each.make, Sequential)
)
#: Hyper-parameters that commands give themselves.
_NOT_SET = {"seed": "Give the seed as --seed N.", "fit": "'fit' cannot be set: commands train what they use."}
_WORDS = {"True": True, "False": False, "None": None}


def add_method_options(parser: argparse.ArgumentParser, method: str | None = "ROSE-one") -> None:
    """Options that say which method, with which hyper-parameters and which seed; no method if None."""
    if method is not None:
        parser.add_argument(
            "--method", metavar="NAME", help=f"{', '.join(PLANNERS)}, or module:Class; default {method}"
        )
    add_set_option(parser)
    parser.add_argument(
        "--seed",
        type=at_least(0, LARGEST_SEED),
        metavar="N",
        help="of the split, the classifier, the people drawn, and the method; default 0",
    )


def add_set_option(parser: argparse.ArgumentParser) -> None:
    """The option for hyper-parameters."""
    parser.add_argument(
        "--set",
        action="append",
        metavar="NAME=VALUE",
        help="a hyper-parameter, such as tau=0.9; NAME.KEY=VALUE for one key of a mapping, such as "
        "monotone.age=increase or ppo.n_updates=30; VALUE may be JSON",
    )


def hyperparameters(words: Iterable[str] | None) -> dict[str, Any]:
    """Hyper-parameters from what was typed.

    Raises
    ------
    CommandError
        If something is no ``name=value``.

    Examples
    --------
    >>> hyperparameters(["tau=0.9", "search=false", "monotone.age=increase", 'ppo={"n_updates": 8}', "bandwidth=scott"])
    {'tau': 0.9, 'search': False, 'monotone': {'age': 'increase'}, 'ppo': {'n_updates': 8}, 'bandwidth': 'scott'}
    """
    found: dict[str, Any] = {}
    for word in words or ():
        path, equals, text = word.partition("=")
        name, dot, key = path.strip().partition(".")
        if not equals or not name or (dot and not key):
            raise CommandError(f"--set takes NAME=VALUE, such as tau=0.9, got {word!r}.")
        if name in _NOT_SET:
            raise CommandError(_NOT_SET[name])
        value = _value(text)
        if dot:
            before = found.setdefault(name, {})
            if not isinstance(before, dict):
                raise CommandError(f"--set {name}.{key} and --set {name} do not go together.")
            before[key] = value
        else:
            found[name] = value
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return _WORDS.get(text, text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"--set cannot take {short_repr(text)}: write a smaller value.") from error


def method_entry(name: str) -> Entry:
    """A method of the tables, or somebody's own.

    Raises
    ------
    ExperimentError
        If there is no such method.
    """
    try:
        with printing_aside():
            return entry(name)
    except RoseCarlaError:
        raise
    except Exception as error:  # a module of somebody else may raise anything
        raise ExperimentError(f"The method {name!r} cannot be imported: {told(error)}") from error


def settings_of(name: str, options: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """All hyper-parameters of a method, so that what is wrong with them is told before any work.

    Raises
    ------
    RoseCarlaError
        For an unknown name, with the close match, or a value that cannot be.
    """
    found = method_entry(name)
    seeds = {"seed": seed} if found.seeded else {}
    settings = getattr(found.make, "settings_class", None)
    if settings is not None:
        given = {**found.options, **seeds, **options}
        return dict(settings.from_mapping(given, found.make.default_overrides).as_dict())  # type: ignore[attr-defined]
    known = getattr(found.make, "_DEFAULT_HYPERPARAMS", {} if name in METHODS else None)
    for option in options:  # CARLA drops unknown ones without a word
        if known is not None and option not in {*known, *found.options}:
            raise PlanError(unknown_name(f"hyper-parameter of {name}", option, {*known, *found.options}))
    return {**found.options, **options}


def planner_class(name: str) -> type[Sequential]:
    """The class of a method that plans steps.

    Raises
    ------
    CommandError
        If the method finds counterfactuals only.
    """
    make = method_entry(name).make
    if not (isinstance(make, type) and issubclass(make, Sequential)):
        raise CommandError(f"{name} plans no steps and has nothing to keep: choose {_listed(PLANNERS)}.")
    return make


def build(name: str, model: MLModel, seed: int, options: Mapping[str, Any]) -> RecourseMethod:
    """The method, trained if it has to be.

    Raises
    ------
    RoseCarlaError
        If it cannot be made for the model.
    """
    try:
        with printing_aside():
            return method_entry(name).build(model, seed, options)
    except RoseCarlaError:
        raise
    except Exception as error:  # methods of CARLA and of users raise what they like
        raise ExperimentError(f"{name} cannot be made for this model: {told(error)}") from error


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
