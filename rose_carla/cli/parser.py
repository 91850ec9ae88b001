"""The parser of all commands: names that do not exist are refused with the close match."""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from rose_carla.bench.options import Parser
from rose_carla.errors import RoseCarlaError, unknown_name

#: The most people of an option: nobody has a file of more.
MANY = 1_000_000_000


class CommandError(RoseCarlaError, ValueError):
    """A command cannot be run as it was given."""


class CommandParser(Parser):
    """A parser that knows what an unknown option was meant to be."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The options, or the end with a sentence."""
        known = [name for action in self._actions for name in action.option_strings if name.startswith("--")]
        for word in arguments:  # first of all: a misspelt option may be the one that is required
            if word.startswith("--") and word.partition("=")[0] not in known:
                self.error(unknown_name("option", word.partition("=")[0], known))
        chosen, further = self.parse_known_args(arguments)
        if further:
            self.error(f"{further[0]!r} is one argument too many; see {self.prog} --help")
        return chosen


def run_command(name: str, arguments: Sequence[str], prog: str) -> int:
    """Parse the arguments of one of the commands and run it."""
    module = importlib.import_module(f"rose_carla.cli.{name}")
    described, _, examples = (module.__doc__ or "").partition("\n\n")
    parser = CommandParser(prog=prog, description=described, epilog=examples.rstrip())
    module.add_arguments(parser)
    chosen = parser.parse(arguments)
    chosen.typed = [*prog.split(), *arguments]
    code: int = module.run(chosen)
    return code


def at_least(least: int, most: float = math.inf) -> Callable[[str], int]:
    """For whole numbers of at least ``least`` and at most ``most``."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"has to be a whole number of at least {least}, got {text!r}")
        if value > most:
            raise argparse.ArgumentTypeError(f"has to be a whole number of at most {most}, got {text!r}")
        return value

    return number


def named(text: str, names: Sequence[str], kind: str) -> str:
    """One of some names.

    Raises
    ------
    CommandError
        With the close match, if it is none of them.
    """
    if text not in names:
        raise CommandError(unknown_name(kind, text, names))
    return text
