"""Versions and source files that a result depends on."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
from collections.abc import Iterable, Iterator
from pathlib import Path

import rose_carla

#: Distributions whose release may change a number.
LIBRARIES = ("carla-recourse", "dice-ml", "numba", "numpy", "pandas", "scikit-learn", "scipy", "torch")
#: Modules whose imports are not followed: the registry names all methods and cells name all metrics, but a cell
#: depends on some of them.
_NOT_FOLLOWED = ("rose_carla.bench.method_registry", "rose_carla.bench.cells")
_PACKAGE = "rose_carla"


@functools.lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the releases of this package and of the libraries it computes with; ``"-"`` if not installed."""
    found = {"rose-carla": rose_carla.__version__}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "-"
    return found


def fingerprint(*modules: str, root: Path | None = None) -> str:
    """Return a hash of the source of ``modules`` of this package and of all modules of it that they import.

    Parameters
    ----------
    modules
        Full names, such as ``"rose_carla.baselines.roar"``.
    root
        Folder of the package, if it is not the one that is running.

    Examples
    --------
    >>> fingerprint("rose_carla.noise.density") == fingerprint("rose_carla.baselines.roar")
    False
    """
    return _fingerprint(tuple(sorted(set(modules))), root or Path(rose_carla.__file__).parent)


def all_modules() -> tuple[str, ...]:
    """Return the names of all modules of this package, for code whose imports are unknown."""
    root = Path(rose_carla.__file__).parent
    return tuple(".".join([_PACKAGE, *path.relative_to(root).with_suffix("").parts]) for path in root.rglob("*.py"))


@functools.lru_cache(maxsize=256)
def _fingerprint(modules: tuple[str, ...], root: Path) -> str:
    digest = hashlib.sha256()
    for name in sorted(_closure(modules, root)):
        path = _source(name, root)
        assert path is not None
        digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _closure(modules: Iterable[str], root: Path) -> set[str]:
    """Return ``modules`` and all modules that they import, directly or not.

    A package's ``__init__`` counts if it is imported itself, not if only one of its modules is.
    """
    found, waiting = set(), [name for name in modules if _source(name, root)]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            if name not in _NOT_FOLLOWED:
                waiting += _imports(name, root)
    return found


@functools.lru_cache(maxsize=1024)
def _imports(name: str, root: Path) -> frozenset[str]:
    path = _source(name, root)
    assert path is not None
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return frozenset(_imported_names(ast.parse(path.read_bytes()), package, root))


def _imported_names(tree: ast.AST, package: str, root: Path) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _source(alias.name, root))
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([base] if base else [])])
            for alias in node.names:
                module = next((each for each in (f"{base}.{alias.name}", base) if _source(each, root)), None)
                if module is not None:
                    yield module
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "importlib.import_module":
            names = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
            yield from (name for name in names if _source(name, root))


@functools.lru_cache(maxsize=4096)
def _source(name: str, root: Path) -> Path | None:
    """Return the file of a module of the package, or None."""
    first, *parts = name.split(".")
    if first != _PACKAGE:
        return None
    path = root.joinpath(*parts)
    candidates = (path.with_name(f"{path.name}.py"), path / "__init__.py") if parts else (path / "__init__.py",)
    return next((candidate for candidate in candidates if candidate.is_file()), None)
