"""Provenance of results: versions, machine, settings, time, revision and the command that made them."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rose_carla
from rose_carla._lib.runtime import n_cores
from rose_carla.bench import sources

if sys.platform != "win32":
    import resource


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
        "source": sources.fingerprint(),
        "started": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(started)),
        "seconds": round(time.time() - started, 1),
        "settings": dict(settings),
        "versions": {"python": platform.python_version(), **sources.versions()},
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "processor": _processor(),
            "cores": n_cores(),
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
    if sys.platform == "win32":
        return None
    unit = 1e9 if sys.platform == "darwin" else 1e6
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return round(max(peaks) / unit, 2)
