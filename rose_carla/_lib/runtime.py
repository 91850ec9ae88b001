"""Time limits, threads, and global random generators."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import joblib
import numpy as np
import torch
from rose_carla.errors import NoiseError

#: Basic operations below which threads cost more than they save.
_WORTH = 1e6
#: Pools by process and number of threads: threads do not survive a fork.
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_thread = threading.local()


class Deadline:
    """A point in time, ``seconds`` from now, that a search checks as it goes.

    Examples
    --------
    >>> Deadline(3600).passed, Deadline(0).passed
    (False, True)
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def passed(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._end


class _TimeLimitReached(BaseException):
    """Not an Exception, so that code which catches every Exception is stopped as well."""


@contextlib.contextmanager
def time_limit(seconds: float, message: str) -> Iterator[None]:
    """Raise :class:`TimeoutError` in code that has no time limit of its own.

    Works in the main thread on systems with ``SIGALRM``; elsewhere the code runs without a limit. A call into compiled
    code is interrupted when it returns.

    Examples
    --------
    >>> with time_limit(0.05, "too slow"):
    ...     while True:
    ...         pass
    Traceback (most recent call last):
    TimeoutError: too slow
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def interrupt(*_: Any) -> None:
        raise _TimeLimitReached

    outer_handler, outer_timer = signal.signal(signal.SIGALRM, interrupt), (0.0, 0.0)
    try:
        try:
            # repeated, because an exception that is raised in a destructor is lost
            outer_timer = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _TimeLimitReached:
        raise TimeoutError(message) from None
    finally:
        signal.signal(signal.SIGALRM, outer_handler)
        signal.setitimer(signal.ITIMER_REAL, *outer_timer)


def n_threads() -> int:
    """Return ``$ROSE_CARLA_THREADS``, or the number of cores. It never changes a result."""
    value = os.environ.get("ROSE_CARLA_THREADS")
    if value is None:
        return _n_cores()
    if not value.isdigit() or int(value) < 1:
        raise NoiseError(f"ROSE_CARLA_THREADS must be an integer above 0, got {value!r}.")
    return int(value)


@functools.lru_cache(maxsize=1)
def _n_cores() -> int:
    """Return the number of cores that this process may use; asking takes longer than a small loop."""
    return int(joblib.cpu_count())


def parallel_ranges(n: int, work: float, call: Callable[[int, int], None]) -> None:
    """Call ``call(first, last)`` for parts of ``range(n)``, in parallel if the work is worth it.

    The compiled loops release Python's global lock, so plain threads run them in parallel. Unlike numba's own parallel
    loops they do not spin while they wait (on a busy machine that makes everything ten times slower), can be called
    from several Python threads at once, and survive a fork.

    Parameters
    ----------
    work
        Rough number of basic operations of all parts.
    """
    threads = n_threads()
    # threads of the pool do not wait for others of it
    if threads == 1 or n == 1 or work < _WORTH or getattr(_thread, "is_ours", False):
        call(0, n)
        return
    key = os.getpid(), threads
    if key not in _pools:
        _pools[key] = ThreadPoolExecutor(threads, "rose_carla", lambda: setattr(_thread, "is_ours", True))
    # more parts than threads: some states take longer than others
    parts = min(n, 4 * threads)
    bounds = [i * n // parts for i in range(parts + 1)]
    list(_pools[key].map(call, bounds[:-1], bounds[1:]))


@contextlib.contextmanager
def one_torch_thread() -> Iterator[None]:
    """Run torch on one thread, on which small networks are fastest and results do not vary.

    Its own threads spin while they wait, which makes predictions several times slower on a busy machine.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def global_state() -> tuple[Any, ...]:
    """Return the states of Python's, NumPy's and torch's global generators, comparable with ``==``."""
    legacy: Any = np.random.get_state()  # noqa: NPY002
    numpy_state = legacy[1].tobytes(), *legacy[2:]
    return random.getstate(), numpy_state, torch.get_rng_state().numpy().tobytes()


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators, which CARLA's methods use, and restore their states at the end."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(before[2])
