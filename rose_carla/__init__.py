"""ROSE: robust sequential recourse for CARLA.

Importing this package makes ``import carla`` work on current Python (see :mod:`rose_carla.compat`). The subpackages
load on first use, so the import itself stays quick.
"""

from __future__ import annotations

import importlib
from typing import Any

from rose_carla import compat, errors
from rose_carla._version import __version__

__all__ = [
    "Benchmark",
    "Method",
    "RoseMul",
    "RoseOne",
    "__version__",
    "baselines",
    "checks",
    "compat",
    "datasets",
    "errors",
    "experiments",
    "figures",
    "mdp",
    "metrics",
    "models",
    "noise",
    "planning",
    "plots",
    "policy",
    "rose",
    "tables",
]

compat.activate()

_SUBPACKAGES = (
    "baselines",
    "checks",
    "datasets",
    "experiments",
    "figures",
    "mdp",
    "metrics",
    "models",
    "noise",
    "planning",
    "plots",
    "policy",
    "rose",
    "tables",
)
_CLASSES = {"Benchmark": "metrics", "Method": "method", "RoseMul": "rose", "RoseOne": "rose"}


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"rose_carla.{name}")
    if name in _CLASSES:
        return getattr(importlib.import_module(f"rose_carla.{_CLASSES[name]}"), name)
    raise AttributeError(f"module 'rose_carla' has no attribute {name!r}")
