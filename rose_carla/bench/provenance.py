"""Where results come from: versions, machine, settings, time, revision and the command that made them."""

from __future__ import annotations

import os
import platform
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rose_carla
from rose_carla._lib.threads import n_cores
from rose_carla.bench import sources


def command() -> str:
    """What was typed, without this machine's folders before the script's name."""
    script = Path(sys.argv[0])
    name = f"python {script.parent.name}/{script.name}" if script.suffix == ".py" else script.name
    return shlex.join([*name.split(), *sys.argv[1:]])


def revision() -> str:
    """The git revision of the code, with ``+`` if it has been changed since; ``"-"`` outside a repository."""
    root = Path(rose_carla.__file__).parents[1]

    def git(*words: str) -> str:
        asked = ["git", "-C", str(root), *words]
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "rose_carla", "benchmarks")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return "-"


def provenance(started: float, made_by: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All that somebody needs who wants the same numbers again.

    Parameters
    ----------
    started
        Of :func:`time.time`.
    made_by
        The :func:`revision` then: the code may change while it runs.
    settings
        Options of the run.
    """
    return {
        "command": command(),
        "revision": made_by,
        "source": sources.fingerprint(),
        "started": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(started)),
        "seconds": round(time.time() - started, 1),
        "settings": dict(settings),
        "versions": {"python": platform.python_version(), **sources.versions()},
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "processor": _processor(),
            "cores": n_cores(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        },
        "peak_memory_gb": round(_peak(), 2),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _peak() -> float:
    """Of this process, and of the largest that it started."""
    unit = 1e9 if sys.platform == "darwin" else 1e6
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / unit
