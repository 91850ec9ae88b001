"""Run compiled loops in threads.

The compiled loops release Python's global lock, so plain threads run them in parallel. Unlike numba's own parallel
loops they do not spin while they wait (on a busy machine that makes everything ten times slower), can be called from
several Python threads at once, and survive a fork.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rose_carla.errors import NoiseError

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def n_threads() -> int:
    """Return ``$ROSE_CARLA_THREADS``, or the number of cores. It never changes a result."""
    value = os.environ.get("ROSE_CARLA_THREADS")
    if value is None:
        return n_cores()
    if not value.isdigit() or int(value) < 1:
        raise NoiseError(f"ROSE_CARLA_THREADS must be an integer above 0, got {value!r}.")
    return int(value)


def parallel_ranges(n: int, work: float, call: Callable[[int, int], None]) -> None:
    """Call ``call(first, last)`` for parts of ``range(n)``, in parallel if the work is worth it.

    Parameters
    ----------
    work
        Rough number of basic operations of all parts; below 200,000, threads cost more than they save.
    """
    threads = n_threads()
    if threads == 1 or n == 1 or work < 2e5:
        call(0, n)
        return
    key = os.getpid(), threads  # threads do not survive a fork
    if key not in _pools:
        _pools[key] = ThreadPoolExecutor(threads, thread_name_prefix="rose_carla")
    # more parts than threads: some states take longer than others
    parts = min(n, 4 * threads)
    bounds = [i * n // parts for i in range(parts + 1)]
    list(_pools[key].map(call, bounds[:-1], bounds[1:]))
