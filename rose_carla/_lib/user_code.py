"""Import and run user code given as ``module:name``."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from rose_carla.errors import RoseCarlaError


class UserExitError(RoseCarlaError):
    """User code called ``sys.exit()``."""

    def __init__(self, error: SystemExit) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        where = f" in {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
        super().__init__(f"sys.exit() was called{where}: return or raise an error instead.")


def import_object(name: str) -> Any:
    """Import ``module:name``; modules are also searched in the current directory.

    The directory comes last on ``sys.path``, so its files do not shadow installed packages, and only during this
    import: libraries try to import optional packages at any time.

    Raises
    ------
    Exception
        Any error of the module; ``sys.exit()`` becomes a :class:`UserExitError`.
    """
    module, _, attribute = name.partition(":")
    here = os.getcwd()
    added = here not in sys.path
    if added:
        sys.path.append(here)
    try:
        with exit_raises():
            return getattr(importlib.import_module(module), attribute)
    finally:
        if added:
            with contextlib.suppress(ValueError):  # the module may have changed sys.path
                sys.path.remove(here)


@contextlib.contextmanager
def exit_raises() -> Iterator[None]:
    """Turn ``sys.exit()`` into a :class:`UserExitError`."""
    try:
        yield
    except SystemExit as error:
        raise UserExitError(error) from error
