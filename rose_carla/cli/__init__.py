"""The command ``rose-carla``: data sets, training, recourse, evaluation, the paper's tables and figures.

``--help`` and ``--version`` import :mod:`.console` only; the module of a command is imported when it is called.
"""

from rose_carla.cli.console import main

__all__ = ["main"]
