"""Compiled loops whose machine code is kept between processes, whatever happens to it there.

numba keeps machine code in a folder, beside the source or in the user's cache. On its own it stops at a folder that
cannot be written, at a damaged file and at a full disk; two processes may give one file to two signatures; and it does
not see that a module which a loop is made of has changed. None of that may cost more than compiling once more.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from rose_carla._lib import files


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit(cache=True)`` that compiles again wherever kept machine code cannot be used, read or written.

    Examples
    --------
    >>> @compiled()
    ... def double(x):
    ...     return 2 * x
    >>> double(4)
    8
    """

    def decorate(function: Callable[..., Any]) -> Any:
        loop = numba.njit(**options)(function)
        with contextlib.suppress(RuntimeError, OSError):  # nowhere to keep anything: each process compiles its own
            loop._cache = _Kept(function)
        return loop

    return decorate


class _Kept(FunctionCache):
    """Machine code on disk that is used if it can be."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _Files(self.cache_path, self._impl.filename_base, _sources(inspect.getfile(function)))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # a damaged file may raise anything
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)


class _Files(IndexDataCacheFile):
    """An index that is whole or not there, and a file of its own for whatever is compiled."""

    def save(self, key: Any, data: Any) -> None:
        try:
            self._load_index()
        except Exception:
            self.flush()
        super().save(key, data)
        self._remove_others()

    def _data_name(self, number: int) -> str:
        return f"{self._index_name.removesuffix('.nbi')}.{secrets.token_hex(6)}.nbc"

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[Any]:
        with files.atomic_write(Path(filepath)) as file:
            yield file

    def _remove_others(self) -> None:
        """Files that nobody finds any more: of other sources, or of a process that wrote its index at the same time."""
        known = {*self._load_index().values()}
        for path in Path(self._cache_path).glob(f"{self._index_name.removesuffix('.nbi')}.*.nbc"):
            if path.name not in known:
                path.unlink(missing_ok=True)


@functools.cache
def _sources(file: str) -> str:
    """Hash of all modules beside ``file``: loops are made of functions from several."""
    digest = hashlib.sha256()
    for path in sorted(Path(file).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
