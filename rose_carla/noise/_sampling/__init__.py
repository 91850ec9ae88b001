"""Compiled loops of the noise: exact draws of kernels and of normal numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def jit(function: Callable[..., Any]) -> Any:
    """Compile ``function`` without Python's global lock; machine code is cached where numba finds a writable folder."""
    try:
        return numba.njit(function, nogil=True, cache=True)
    except RuntimeError:  # neither the package's folder nor the home is writable: each process compiles
        return numba.njit(function, nogil=True)
