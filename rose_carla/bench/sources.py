"""What a result depends on beside its settings: the code that computed it."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from pathlib import Path

import rose_carla

#: Distributions whose release may shape a number.
LIBRARIES = ("carla-recourse", "dice-ml", "numba", "numpy", "pandas", "scikit-learn", "scipy", "torch")
#: What runs, keeps or shows results shapes none of them.
_SHOWN_ONLY = ("__main__.py", "cli", "plots")


@functools.lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Releases of this package and of what it computes with; ``"-"`` for what is not installed."""
    found = {"rose-carla": rose_carla.__version__}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "-"
    return found


@functools.lru_cache(maxsize=1)
def fingerprint() -> str:
    """Hash of the package's source, without the parts that only show results: another method is another result."""
    root = Path(rose_carla.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not name.startswith(_SHOWN_ONLY):
            digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
