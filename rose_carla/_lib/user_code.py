"""Code of somebody else that whoever types a command names: where it is found, and that it ends no command."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from rose_carla.errors import RoseCarlaError


class ExitError(RoseCarlaError):
    """Code of somebody else wanted to end the process."""

    def __init__(self, end: SystemExit) -> None:
        frames = traceback.extract_tb(end.__traceback__)
        where = f" in {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
        super().__init__(f"sys.exit() was called{where}: have that code return, or raise an error.")


def imported(name: str) -> Any:
    """What ``module:name`` stands for, in a module that is installed or in the folder where the command was typed.

    Raises
    ------
    Exception
        Whatever the module raises, but that it cannot end the process.
    """
    module, _, attribute = name.partition(":")
    with ends_nothing(), _folder_is_searched():
        return getattr(importlib.import_module(module), attribute)


@contextlib.contextmanager
def ends_nothing() -> Iterator[None]:
    """While code of somebody else runs: ``sys.exit`` is an error like others, instead of the end without a word.

    Raises
    ------
    ExitError
        If it is called.
    """
    try:
        yield
    except SystemExit as end:
        raise ExitError(end) from end


@contextlib.contextmanager
def _folder_is_searched() -> Iterator[None]:
    """Have modules of the working directory found, last, so that no file there stands in for a library.

    Only for a while: libraries look for optional packages at any time, and a file of that name would be run.
    """
    here = os.getcwd()
    if here in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # that module may have changed the list
            sys.path.remove(here)
