"""Wall-clock limits: one that searches look at as they go, and one for code that does not."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Iterator


class Deadline:
    """So many seconds from now.

    Examples
    --------
    >>> Deadline(3600).passed, Deadline(0).passed
    (False, True)
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return time.monotonic() >= self._end


@contextlib.contextmanager
def interrupted_after(seconds: float, message: str) -> Iterator[None]:
    """Raise :class:`TimeoutError` in code that has no limit of its own, between two of its Python instructions.

    Works in any thread. A single call into compiled code is not interrupted before it returns.

    Examples
    --------
    >>> with interrupted_after(0.05, "too slow"):
    ...     while True:
    ...         pass
    Traceback (most recent call last):
    TimeoutError: too slow
    """
    thread = threading.get_ident()
    lock, over = threading.Lock(), False

    def interrupt() -> None:
        with lock:
            if not over:
                _raise_in(thread, _Interrupted)

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        try:
            yield
        finally:
            with lock:
                over = True
                _raise_in(thread, None)
            timer.cancel()
    except _Interrupted:
        raise TimeoutError(message) from None


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    """Have a thread raise an exception as soon as it comes to it; None takes back what has not been raised yet."""
    asked = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), asked)


class _Interrupted(BaseException):
    """Not an Exception: a method that catches those is stopped all the same."""
