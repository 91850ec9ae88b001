"""Which cells are kept, and which are computed again: none for a log that cannot be written, or for another wording."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest import mock

import rose_carla
import pytest
from rose_carla import bench
from rose_carla.bench import Judgement, Local, Recourse, Setting, Store, runner
from rose_carla.bench import sources as code
from rose_carla.errors import ExperimentError


def test_a_cell_is_kept_though_its_log_cannot_be(tmp_path, monkeypatch):
    cell = Judgement(Recourse(Setting("compas", "linear", people=4), "fake_methods:Liked"), ("Proximity",))
    store, full = Store(tmp_path / "cells"), mock.Mock(side_effect=ExperimentError("No space left on device."))
    monkeypatch.setattr(runner, "write_file", full)
    with pytest.raises(ExperimentError, match="No space left"):
        bench.run([cell], store, Local(1), tmp_path / "logs", progress=False)
    assert full.call_args[0][0].suffix == ".log"
    assert store.find(cell.recourse) is not None


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A copy of the package, of which the fingerprint is."""
    folder = shutil.copytree(Path(rose_carla.__file__).parent, tmp_path / "rose_carla")
    monkeypatch.setattr(rose_carla, "__file__", str(folder / "__init__.py"))
    return folder


@pytest.mark.parametrize(
    ("name", "another"),
    [
        ("models/network.py", True),
        ("experiments/cells.py", True),
        ("seeds.py", True),
        ("endings.py", False),
        ("files.py", False),
        ("foreign.py", False),
        ("experiments/aside.py", False),
        ("cli/people.py", False),
        ("tables/html.py", False),
        ("experiments/backends.py", False),
    ],
)
def test_only_a_change_of_what_computes_makes_other_cells(name, another, source):
    before = code.fingerprint.__wrapped__()
    with (source / name).open("a") as file:
        file.write("\n# another wording\n")
    assert (code.fingerprint.__wrapped__() != before) == another
