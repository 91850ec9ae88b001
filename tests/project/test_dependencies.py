"""What setup.cfg asks for is used and bounded on both sides; what is imported is asked for."""

from __future__ import annotations

import ast
import configparser
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from rose_carla.carla_compat.extras import OPTIONAL_PACKAGES

ROOT = Path(__file__).parents[2]
OURS = [ROOT / "rose_carla", ROOT / "benchmarks", ROOT / "examples", ROOT / "docs" / "site"]

#: Names on the package index of packages that are imported by another name.
PROJECTS = {
    "carla": "carla-recourse",
    "pymdownx": "pymdown-extensions",
    "sklearn": "scikit-learn",
    "tensorflow": "tensorflow-cpu",
    "xgboost": "xgboost-cpu",
    "yaml": "pyyaml",
}
#: Dependencies that none of our code imports, and the package that does; it is looked at if it is installed.
NEEDED_BY = {
    "causalgraphicalmodels": "carla",
    "jsonschema": "dice_ml",
    "lime": "carla",
    "networkx": "carla",
    "prettytable": "recourse",
    "pymdown-extensions": "mkdocstrings",
    "pyyaml": "carla",
    "seaborn": "carla",
}
#: Those that are not imported at all, and the file that has them run.
RUN_BY = {
    "ipykernel": "examples/loan_plan.ipynb",
    "mkdocstrings": "mkdocs.yml",
    "mypy": "Makefile",
    "pytest-xdist": "Makefile",
    "ruff": "Makefile",
}
#: The same packages for platforms that have no build for processors only.
ELSEWHERE = {"tensorflow": "tensorflow-cpu", "xgboost": "xgboost-cpu"}
#: Imports without a line in setup.cfg.
UNDECLARED = {
    "llvmlite": "each numba has its own and pins it",
    "packaging": "pytest needs it",
    "stable_baselines3": "only make bench-rose compares with it, and installs it",
}


def requirements(text: str) -> dict[str, Requirement]:
    """Requirements by name, from lines with comments between."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return {canonicalize_name(one.name): one for one in map(Requirement, filter(None, lines))}


def file_of(name: str) -> dict[str, Requirement]:
    return requirements((ROOT / "requirements" / name).read_text())


SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
ALWAYS = requirements(SETUP["options"]["install_requires"])
EXTRAS = {name: requirements(lines) for name, lines in SETUP["options.extras_require"].items() if name != "all"}
OPTIONAL = {name: one for extra in EXTRAS for name, one in EXTRAS[extra].items() if extra not in ("docs", "test")}
DIRECT = {**ALWAYS, **{name: one for extra in EXTRAS.values() for name, one in extra.items() if name != "rose-carla"}}
NO_DEPS = {**file_of("no-deps.txt"), **file_of("no-deps-test.txt")}
LOWEST = file_of("lowest.txt")


def imports(tree: ast.AST, at_import: bool = True) -> Iterator[tuple[str, bool]]:
    """Top-level names of what a module imports, and whether it does so as soon as it is imported itself."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], at_import) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0], at_import
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_optional":
            yield from ((one.value.partition(".")[0], at_import) for one in node.args if isinstance(one, ast.Constant))
        inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        yield from imports(node, at_import and not inside)


def imported_by(*folders: Path) -> dict[str, bool]:
    """Names of packages imported below some folders, ours and Python's own left out, and whether at import."""
    found: dict[str, bool] = {}
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        for name, at_import in imports(ast.parse(path.read_text(encoding="utf-8"))):
            found[name] = found.get(name, False) or at_import
    beside = {path.stem for folder in folders for path in folder.glob("*.py")}
    return {name: found[name] for name in found.keys() - sys.stdlib_module_names - beside - {"rose_carla", ""}}


def project(name: str) -> str:
    return PROJECTS.get(name, canonicalize_name(name))


def test_imports_are_found_wherever_they_are():
    code = """
        import a.b
        from c.d import e
        from . import own
        try:
            import f
        except ImportError:
            import_optional("g.h")
        class C:
            import i
            def method(self):
                import j
                return import_optional("k").l
    """
    found = dict(imports(ast.parse("if True:\n" + code)))
    assert {name for name in found if found[name]} == {"a", "c", "f", "g", "i"}
    assert {name for name in found if not found[name]} == {"j", "k"}


def test_every_dependency_is_used():
    used = {project(name) for name in imported_by(*OURS, ROOT / "tests")}
    unused = DIRECT.keys() - used - NEEDED_BY.keys() - RUN_BY.keys() - ELSEWHERE.keys()
    assert not unused
    ours = {project(name) for name in imported_by(*OURS)}
    assert not ours & (NEEDED_BY.keys() | RUN_BY.keys()), "is imported, and needs no reason"


@pytest.mark.parametrize("name", NEEDED_BY)
def test_what_others_are_said_to_need_they_import(name):
    package = importlib.util.find_spec(NEEDED_BY[name])
    if package is None:
        pytest.skip(f"{NEEDED_BY[name]} is not installed")
    assert name in {project(one) for one in imported_by(*map(Path, package.submodule_search_locations))}


@pytest.mark.parametrize("name", RUN_BY)
def test_what_is_run_is_run(name):
    word = {"ipykernel": "kernelspec", "pytest-xdist": "pytest -n"}.get(name, name)
    assert word in (ROOT / RUN_BY[name]).read_text(encoding="utf-8")


def test_every_import_is_declared():
    declared = {*DIRECT, *NO_DEPS, *map(canonicalize_name, UNDECLARED)}
    assert not {name for name in imported_by(*OURS, ROOT / "tests") if project(name) not in declared}
    assert all(name in imported_by(*OURS, ROOT / "tests") for name in UNDECLARED)


def test_nothing_optional_is_imported_with_the_package():
    at_import = {project(name) for name, at_import in imported_by(ROOT / "rose_carla").items() if at_import}
    assert at_import == {*ALWAYS, "carla-recourse", "llvmlite"} - NEEDED_BY.keys()
    assert not at_import & OPTIONAL.keys()


def test_optional_packages_are_installed_as_the_requirements_say():
    for extras, no_deps in OPTIONAL_PACKAGES.values():
        assert not {extra for extra in extras.split(",") if extra} - EXTRAS.keys()
        if no_deps and "==" in no_deps:
            assert Requirement(no_deps) == NO_DEPS[canonicalize_name(Requirement(no_deps).name)]
    tensorflow = Version(next(iter(NO_DEPS["tf-keras"].specifier)).version)
    assert all(EXTRAS["tensorflow"][name].specifier.contains(tensorflow) for name in EXTRAS["tensorflow"])


def test_lower_bounds_are_those_that_are_tried_and_there_is_an_upper_one():
    tried = {name: {f">={pin.version}" for pin in one.specifier} for name, one in LOWEST.items()}
    lower = {
        name: {str(bound) for bound in one.specifier if bound.operator == ">="}
        for name, one in DIRECT.items()
        if name not in EXTRAS["tensorflow"]
    }
    assert lower == tried
    assert all(pin.operator == "==" for one in LOWEST.values() for pin in one.specifier)
    for one in DIRECT.values():
        assert {bound.operator for bound in one.specifier} in ({">=", "<"}, {"~="}), one


def test_overrides_agree_with_the_bounds():
    exact = {**NO_DEPS, **file_of("torch.txt")}
    for name, one in file_of("overrides.txt").items():
        if name in exact or (name in DIRECT and one.marker is None):
            assert one.specifier == (exact.get(name) or DIRECT[name]).specifier, one


@pytest.mark.parametrize(
    "name", sorted(name for name, one in DIRECT.items() if not one.marker or one.marker.evaluate())
)
def test_what_is_installed_is_within_the_bounds(name):
    try:
        installed = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    assert DIRECT[name].specifier.contains(installed, prereleases=True)


def test_torch_as_pinned_is_within_the_bounds():
    assert all(DIRECT["torch"].specifier.contains(pin.version) for pin in file_of("torch.txt")["torch"].specifier)


def test_the_page_tells_the_bounds_and_what_was_tried():
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w-]+) \| ([\d.]+) \| ([\d.]+) \| `(.+)` \|$", page, flags=re.MULTILINE)
    told = {name: (lowest, newest, bounds) for name, lowest, newest, bounds in rows}
    assert told.keys() == (ALWAYS.keys() | OPTIONAL.keys()) - ELSEWHERE.keys()
    for name, (lowest, newest, bounds) in told.items():
        one = DIRECT[name].specifier
        assert Requirement(name + bounds).specifier == one
        assert one.contains(newest)
        assert one.contains(lowest)
        if name in LOWEST:
            assert LOWEST[name].specifier.contains(lowest)
