"""ROSE: robust sequential recourse for CARLA.

Importing this package makes ``import carla`` work on current Python (see :mod:`rose_carla.compat`). The subpackages
load on first use, so the import itself stays quick.
"""

from __future__ import annotations

import importlib
from typing import Any

from rose_carla import compat, errors
from rose_carla._version import __version__

__all__ = ["Benchmark", "__version__", "compat", "datasets", "errors", "metrics", "models", "noise"]

compat.activate()

_SUBPACKAGES = ("datasets", "metrics", "models", "noise")


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"rose_carla.{name}")
    if name == "Benchmark":
        return importlib.import_module("rose_carla.metrics").Benchmark
    raise AttributeError(f"module 'rose_carla' has no attribute {name!r}")
