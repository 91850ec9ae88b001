"""A wall-clock limit that searches look at as they go."""

from __future__ import annotations

import time


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
