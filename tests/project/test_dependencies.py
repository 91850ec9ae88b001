"""Declared dependencies: bounds agree in all files, optional packages stay optional. ``make lint`` checks imports."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from rose_carla.carla_compat import OPTIONAL_PACKAGES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def requirements(text: str) -> dict[str, Requirement]:
    """Parse requirements, one per line, with comments; keyed by name."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return {canonicalize_name(each.name): each for each in map(Requirement, filter(None, lines))}


def read_file(name: str) -> dict[str, Requirement]:
    return requirements((ROOT / "requirements" / name).read_text())


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIRED = requirements("\n".join(PROJECT["dependencies"]))
EXTRAS = {name: requirements("\n".join(lines)) for name, lines in PROJECT["optional-dependencies"].items()}
EXTRAS.pop("all")
OPTIONAL = {name: each for extra in EXTRAS for name, each in EXTRAS[extra].items() if extra not in ("docs", "test")}
DIRECT = {**REQUIRED, **{name: each for extra in EXTRAS.values() for name, each in extra.items()}}
DIRECT.pop("rose-carla", None)
NO_DEPS = {**read_file("no-deps.txt"), **read_file("no-deps-test.txt")}
LOWEST = read_file("lowest.txt")
#: Packages for platforms that have no CPU-only build, with the CPU-only one.
SAME_AS = {"tensorflow": "tensorflow-cpu", "xgboost": "xgboost-cpu"}


def test_bounds_match_lowest_versions_and_have_upper_limits():
    tested = {name: {f">={pin.version}" for pin in each.specifier} for name, each in LOWEST.items()}
    lower = {
        name: {str(bound) for bound in each.specifier if bound.operator == ">="}
        for name, each in DIRECT.items()
        if name not in EXTRAS["tensorflow"]
    }
    assert lower == tested
    for each in DIRECT.values():
        assert {bound.operator for bound in each.specifier} in ({">=", "<"}, {"~="}), each


def test_overrides_match_bounds():
    exact = {**NO_DEPS, **read_file("torch.txt")}
    for name, each in read_file("overrides.txt").items():
        if name in exact or (name in DIRECT and each.marker is None):
            assert each.specifier == (exact.get(name) or DIRECT[name]).specifier, each


def test_installed_versions_are_within_bounds():
    for name, each in DIRECT.items():
        if each.marker is None or each.marker.evaluate():
            try:
                installed = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
            assert each.specifier.contains(installed, prereleases=True), (name, installed)


def test_pinned_torch_is_within_bounds():
    assert all(DIRECT["torch"].specifier.contains(pin.version) for pin in read_file("torch.txt")["torch"].specifier)


def test_messages_about_optional_packages_name_existing_extras_and_pins():
    for extras, no_deps in OPTIONAL_PACKAGES.values():
        assert not {extra for extra in extras.split(",") if extra} - EXTRAS.keys()
        if no_deps and "==" in no_deps:
            assert Requirement(no_deps) == NO_DEPS[canonicalize_name(Requirement(no_deps).name)]
    keras = Version(next(iter(NO_DEPS["tf-keras"].specifier)).version)
    assert all(each.specifier.contains(keras) for each in EXTRAS["tensorflow"].values())


@pytest.mark.slow
def test_package_imports_without_optional_packages():
    """Import every module in a process in which the optional packages are missing."""
    modules = {"scikit-learn": "sklearn", "pyyaml": "yaml", "xgboost-cpu": "xgboost", "tensorflow-cpu": "tensorflow"}
    missing = [modules.get(name, name.replace("-", "_")) for name in OPTIONAL]
    code = f"""
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys({missing!r}))
import rose_carla
for module in pkgutil.walk_packages(rose_carla.__path__, "rose_carla."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_documented_versions_match_bounds():
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w-]+) \| ([\d.]+) \| ([\d.]+) \| `(.+)` \|$", page, flags=re.MULTILINE)
    assert {name for name, *_ in rows} == (REQUIRED.keys() | OPTIONAL.keys()) - SAME_AS.keys()
    for name, lowest, newest, bounds in rows:
        allowed = DIRECT[name].specifier
        assert Requirement(name + bounds).specifier == allowed
        assert allowed.contains(newest)
        assert allowed.contains(lowest)
        if name in LOWEST:
            assert LOWEST[name].specifier.contains(lowest)
