"""The scripts in benchmarks/ can be imported; running them takes minutes."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_scripts import script


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[2].glob("benchmarks/*.py")), ids=lambda path: path.stem)
def test_script_imports(path, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)
    script(path.stem)
