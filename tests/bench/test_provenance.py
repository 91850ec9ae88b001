"""Keys of cells change with the sources they depend on and with no other; provenance of results."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from pathlib import Path
from unittest import mock

import rose_carla
import pytest
from rose_carla.bench import METHODS, VARIANTS, Judgement, Recourse, Setting, cells, provenance


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the package from which keys are computed."""
    ignored = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc")
    copy = tmp_path_factory.mktemp("source") / "rose_carla"
    folder = shutil.copytree(Path(rose_carla.__file__).parent, copy, ignore=ignored)
    with mock.patch.object(rose_carla, "__file__", str(folder / "__init__.py")):
        yield folder


def keys():
    provenance._fingerprint.cache_clear()
    made = {name: Recourse(Setting("compas"), name) for name in [*METHODS, "fake_methods:Liked"]}
    found = {name: cell.key for name, cell in made.items()}
    judged = Judgement(made["Wachter"], ("Acc_AIR",))
    return {**found, "metric": judged.key}


CARLAS = {"Wachter", "GrSp", "DiCE"}
LEARNING = {"FastAR", *VARIANTS}
OURS = METHODS.keys() - CARLAS
USER, METRIC = "fake_methods:Liked", "metric"
EVERYTHING = {*METHODS, USER, METRIC}


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("baselines/roar.py", {"ROAR", USER}),
        ("baselines/gradient_descent.py", {"ROAR", "ARAR", "PROBE", "CROCO", USER}),
        ("noise/density.py", {*LEARNING, "PROBE", "CROCO", USER, METRIC}),
        ("rose/sequential.py", {*LEARNING, USER}),
        ("metrics/evaluations.py", {USER, METRIC}),
        ("datasets/__init__.py", EVERYTHING),
        ("models/networks.py", EVERYTHING),
        ("bench/cells.py", EVERYTHING),
        ("carla_compat/views.py", EVERYTHING),
        ("bench/method_registry.py", {USER}),
        ("bench/render.py", {USER}),
        ("cli/__init__.py", {USER}),
    ],
)
def test_edit_changes_the_keys_of_cells_that_depend_on_it(name, changed, package):
    before, source = keys(), (package / name).read_text()
    (package / name).write_text(f"{source}\n# another comment\n")
    after = keys()
    (package / name).write_text(source)
    found = {cell for cell, key in after.items() if key != before[cell]}
    assert changed <= found
    assert not found - changed - ({"ROAR", "ARAR", "CoGS"} if name == "noise/density.py" else set())


def test_imports_of_all_forms_are_followed(tmp_path):
    files = {
        "__init__.py": "",
        "a.py": "from rose_carla import b\nfrom rose_carla.package import c\nimport numpy",
        "b.py": "def later():\n    import rose_carla.package.d as d",
        "package/__init__.py": "from rose_carla import unused",
        "package/c.py": "import importlib\nimportlib.import_module('rose_carla.e')",
        "package/d.py": "from rose_carla.f import something\nfrom rose_carla.package.g import thing",
        "package/g.py": "",
        "e.py": "",
        "f.py": "",
        "unused.py": "",
    }
    for name, source in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    found = provenance._closure(["rose_carla.a"], tmp_path)
    assert {name.removeprefix("rose_carla.") for name in found} == {
        "a", "b", "package.c", "package.d", "package.g", "e", "f",
    }  # fmt: skip


def test_versions_of_libraries_are_part_of_the_key(monkeypatch):
    before = Recourse(Setting("compas"), "GrSp").key
    monkeypatch.setattr(cells.provenance, "versions", lambda: {"numpy": "another"})
    assert Recourse(Setting("compas"), "GrSp").key != before


def test_provenance_is_json_with_positive_memory():
    about = provenance.provenance(time.time() - 2, "abc", {"seeds": 1})
    assert json.loads(json.dumps(about)) == about
    assert about["seconds"] >= 2
    assert about["source"] != hashlib.sha256().hexdigest()  # that of no source at all
    assert about["machine"]["memory_gb"] > 0
    assert about["peak_memory_gb"] > 0


def test_memory_is_unknown_on_windows(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.delattr(os, "sysconf")
    about = provenance.provenance(time.time(), "abc", {})
    assert about["machine"]["memory_gb"] is about["peak_memory_gb"] is None
