"""ROSE: robust sequential recourse for CARLA.

Importing this package makes ``import carla`` work on current Python (see :mod:`rose_carla.compat`). The subpackages
load on first use, so the import itself stays quick.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from rose_carla import compat, errors
from rose_carla._version import __version__

__all__ = ["__version__", "compat", "datasets", "errors", "models"]

compat.activate()


def __getattr__(name: str) -> ModuleType:
    if name in ("datasets", "models"):
        return importlib.import_module(f"rose_carla.{name}")
    raise AttributeError(f"module 'rose_carla' has no attribute {name!r}")
