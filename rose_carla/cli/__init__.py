"""The command ``rose-carla``: data sets, training, recourse, evaluation, the paper's tables and figures.

``--help`` and ``--version`` import this module and :mod:`.console` only; the module of a command is imported when it
is called.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rose_carla._version import __version__
from rose_carla.cli.console import STDIO, run_command
from rose_carla.errors import unknown_name

__all__ = ["COMMANDS", "Command", "NameType", "WordsOption", "main"]

PROGRAM = "rose-carla"
#: Commands by name: the module that defines the click command, and a one-line summary.
COMMANDS = {
    "datasets": ("describe_data", "list the built-in data sets, or check a CSV file before training"),
    "train": ("train", "train a classifier and a policy, and save the policy in a folder"),
    "recourse": ("recourse", "plan recourse for the people of a CSV file"),
    "evaluate": ("evaluate", "compute the paper's eight metrics for methods, a policy or counterfactuals"),
    "check": ("check", "check this installation, or the contract of a recourse method"),
    "table1": ("tables", "the paper's Table 1"),
    "appendix": ("tables", "the tables of the paper's appendix"),
    "figures": ("tables", "the paper's figures"),
}

_EPILOG = """\
Examples:
  rose-carla datasets loans.csv --target loan --favourable granted
  rose-carla train loans.csv --target loan --favourable granted --immutable age --out policy
  rose-carla recourse applicants.csv --policy policy --out plans.csv
  rose-carla evaluate compas --methods GrSp ROSE-one --limit 50
  rose-carla table1 --quick

Results go to stdout, progress and remarks to stderr; '-' in place of a CSV file is stdin.
Exit codes: 0 success, 1 some of it failed, 2 invalid input or options, 130 interrupted.
"""


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


class _CommandGroup(click.Group):
    """Group that imports the module of a command when it is called."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            raise click.UsageError(f"Missing command: {', '.join(COMMANDS)}; '{PROGRAM} --help' shows examples.", ctx)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, name: str) -> click.Command:
        if name not in COMMANDS:
            raise click.UsageError(unknown_name("command", name, COMMANDS), ctx)
        module = importlib.import_module(f"rose_carla.cli.{COMMANDS[name][0]}")
        command: click.Command = getattr(module, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"\n{self.epilog}\n")


@click.group(
    PROGRAM,
    cls=_CommandGroup,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__, message=f"{PROGRAM} %(version)s")
def _group() -> None:
    """Robust sequential recourse (ROSE): what people whom a model rejects should change, step by step, so that it still
    works when every step is implemented imperfectly.
    """


def main(arguments: Sequence[str] | None = None, command: str | None = None) -> int:
    """Run a command and return its exit code: 0 success, 1 some of it failed, 2 invalid input, 130 interrupted.

    Parameters
    ----------
    arguments
        Command-line arguments; default: those of the process.
    command
        Name of the command; default: the first argument.

    Examples
    --------
    >>> main(["--version"])  # doctest: +ELLIPSIS
    rose-carla ...
    0
    """
    words = [*([command] if command else []), *(sys.argv[1:] if arguments is None else arguments)]

    def run() -> int:
        with _group.make_context(PROGRAM, [*words], obj=[PROGRAM, *words]) as ctx:
            code: int = _group.invoke(ctx)
            return code

    return run_command(run, is_main=arguments is None)
