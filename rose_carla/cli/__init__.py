"""The command ``rose-carla``: data sets, training, recourse, evaluation, the paper's tables and figures.

``--help`` and ``--version`` import nothing but this file. Each command is a module of its own, imported when it is
called.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence

from rose_carla._lib.endings import DONE, ended
from rose_carla._version import __version__
from rose_carla.errors import RoseCarlaError, unknown_name

__all__ = ["COMMANDS", "PASSED_ON", "main"]

PROGRAM = "rose-carla"

#: Commands of this package, each a module of :mod:`rose_carla.cli`, and what it does.
COMMANDS: Mapping[str, str] = {
    "datasets": "list the built-in data sets, or check a CSV file before training",
    "train": "train a classifier and a policy, and keep the policy in a folder",
    "recourse": "plans for the people of a CSV file",
    "evaluate": "the paper's eight metrics, for methods, a policy or counterfactuals made elsewhere",
    "check": "check this installation, or whether a recourse method keeps the contract",
}
#: Commands that take all further arguments as they are: the module, the function, and what it does.
PASSED_ON: Mapping[str, tuple[str, str, str]] = {
    "table1": ("rose_carla.bench.table_commands", "table_1", "the paper's Table 1"),
    "appendix": ("rose_carla.bench.table_commands", "appendix", "the tables of the paper's appendix"),
    "figures": ("rose_carla.bench.figure_command", "figures", "the paper's figures"),
}

_EXAMPLES = """\
examples:
  rose-carla datasets loans.csv --target loan --favourable granted
  rose-carla train loans.csv --target loan --favourable granted --immutable age --out policy
  rose-carla recourse applicants.csv --policy policy --out plans.csv
  rose-carla evaluate compas --methods GrSp ROSE-one --limit 50
  rose-carla table1 --quick
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 if all is well, 1 if some of it failed, 2 if it was refused, 130 if stopped.

    Parameters
    ----------
    arguments
        What follows the program's name; None: what was typed.

    Examples
    --------
    >>> main(["--version"])  # doctest: +ELLIPSIS
    rose-carla ...
    0
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    return ended(lambda: _run(words), last=arguments is None)


def _run(words: list[str]) -> int:
    if not words:
        raise RoseCarlaError(f"Say what to do: {', '.join(_summaries())}; '{PROGRAM} --help' shows examples.")
    name, *further = words
    if name in ("-h", "--help"):
        print(_help())
        return DONE
    if name == "--version":
        print(f"{PROGRAM} {__version__}")
        return DONE
    if name in PASSED_ON:
        module, function, _ = PASSED_ON[name]
        code: int = getattr(importlib.import_module(module), function)(further, prog=f"{PROGRAM} {name}")
        return code
    if name in COMMANDS:
        return importlib.import_module("rose_carla.cli.parser").run_command(name, further, f"{PROGRAM} {name}")
    raise RoseCarlaError(unknown_name("command", name, _summaries()))


def _summaries() -> dict[str, str]:
    return {**COMMANDS, **{name: summary for name, (_, _, summary) in PASSED_ON.items()}}


def _help() -> str:
    width = max(map(len, _summaries()))
    listed = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in _summaries().items())
    return (
        f"usage: {PROGRAM} COMMAND ...\n\n"
        "Robust sequential recourse (ROSE): what people whom a model turns down should change, step by step, so that\n"
        "it still works when every step is implemented imperfectly.\n\n"
        f"commands:\n{listed}\n\n"
        "options:\n  -h, --help  this text; after a command, its options and examples\n"
        "  --version   the version\n\n"
        f"{_EXAMPLES}\n"
        "Results go to stdout, progress and remarks to stderr; '-' in place of a CSV file is stdin. Exit codes: 0 all\n"
        "is well, 1 some of it failed, 2 it cannot be done as asked, 130 stopped."
    )
