"""Time limits, and global random generators."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch


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
