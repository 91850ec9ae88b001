"""Scripts of ``benchmarks/`` as modules, so that tests can call what they measure."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def script(name: str) -> ModuleType:
    """The script of that name, without running it."""
    path = Path(__file__).parents[1] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
