"""ROSE: robust sequential recourse for CARLA.

Importing this package makes ``import carla`` work on current Python, see :mod:`rose_carla.carla_compat`. CARLA, torch,
pandas and the subpackages are loaded at first use.
"""

from __future__ import annotations

import importlib
from typing import Any

from rose_carla import carla_compat, errors
from rose_carla._version import __version__

__all__ = [
    "Benchmark",
    "Method",
    "RoseMul",
    "RoseOne",
    "__version__",
    "baselines",
    "bench",
    "carla_compat",
    "checks",
    "datasets",
    "errors",
    "mdp",
    "metrics",
    "models",
    "noise",
    "plots",
    "ppo",
    "rose",
    "seeded",
]

carla_compat.activate()

#: Names that are imported at first use, and their modules; the other names are modules themselves.
_NAMES = {
    "Benchmark": "metrics",
    "Method": "method",
    "RoseMul": "rose",
    "RoseOne": "rose",
    "seeded": "_lib.runtime",
}


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"rose_carla.{_NAMES[name]}"), name)
    if name in __all__:
        return importlib.import_module(f"rose_carla.{name}")
    raise AttributeError(f"module 'rose_carla' has no attribute {name!r}")
