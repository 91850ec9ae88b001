"""What a result depends on and where it comes from: sources, versions, machine, settings, time and command."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import rose_carla
import joblib

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
    """Return the modules of the package that a module imports, also inside functions."""
    path = _source(name, root)
    assert path is not None
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                found.append(module if _source(module, root) else str(node.module))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "importlib.import_module":
            found += [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
    return frozenset(module for module in found if _source(module, root))


@functools.lru_cache(maxsize=4096)
def _source(name: str, root: Path) -> Path | None:
    """Return the file of a module of the package, or None."""
    first, *parts = name.split(".")
    if first != _PACKAGE:
        return None
    path = root.joinpath(*parts)
    candidates = (path.with_name(f"{path.name}.py"), path / "__init__.py") if parts else (path / "__init__.py",)
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def command() -> str:
    """Return the command line, without the folders of this machine before the name of the script."""
    script = Path(sys.argv[0])
    name = f"python {script.parent.name}/{script.name}" if script.suffix == ".py" else script.name
    return shlex.join([*name.split(), *sys.argv[1:]])


def revision() -> str:
    """Return the git revision, with ``+`` for uncommitted changes; ``"-"`` outside a repository."""
    root = Path(rose_carla.__file__).parents[1]

    def git(*arguments: str) -> str:
        call = ["git", "-C", str(root), *arguments]
        return subprocess.run(call, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "rose_carla", "benchmarks")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return "-"


def provenance(started: float, started_revision: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything needed to reproduce the results, as JSON can hold it.

    Parameters
    ----------
    started
        Value of :func:`time.time` at the start.
    started_revision
        The :func:`revision` at the start: the code may change during a run.
    settings
        Options of the run.
    """
    return {
        "command": command(),
        "revision": started_revision,
        "source": fingerprint(*all_modules()),
        "started": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(started)),
        "seconds": round(time.time() - started, 1),
        "settings": dict(settings),
        "versions": {"python": platform.python_version(), **versions()},
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "processor": _processor(),
            "cores": joblib.cpu_count(),
            "memory_gb": _memory_gb(),
        },
        "peak_memory_gb": _peak_memory_gb(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    """Return the memory of the machine; None where the system does not report it (Windows)."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, ValueError, OSError):
        return None


def _peak_memory_gb() -> float | None:
    """Return the peak of this process or of the largest child process; None on Windows."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1e9 if sys.platform == "darwin" else 1e6
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return round(max(peaks) / unit, 2)
