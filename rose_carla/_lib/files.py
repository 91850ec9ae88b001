"""Atomic writes, and arrays with JSON metadata in safetensors files."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from rose_carla.errors import RoseCarlaError, error_text, short_repr

#: Version of the files of :func:`save_arrays`; increase it when their contents change their meaning.
FORMAT = 2
#: Names of temporary files, and the seconds after which a temporary file belongs to a process that was killed.
_TEMPORARY = ".rose-carla-{}.tmp"
_STALE = 24 * 3600.0
#: The entry of a safetensors header that holds our JSON.
_HEADER = "rose_carla"


class FileFormatError(RoseCarlaError, ValueError):
    """A file is damaged, of another format, or was not written by this package."""


class FileWriteError(RoseCarlaError, OSError):
    """A file or folder cannot be written."""


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Yield a binary file that replaces ``path`` when the block ends without an error.

    The contents are written beside ``path``, flushed to the disk and renamed, so a process that is killed leaves the
    old file and a temporary one; those older than a day are removed here. The mode of an old file is kept. A symbolic
    link is replaced, not followed.

    Raises
    ------
    OSError
        If the file cannot be written, or ``path`` is a folder, a device or a pipe.
    """
    if path.exists() and not (path.is_file() or path.is_symlink()):
        raise OSError(errno.EINVAL, "it is a folder, a device or a pipe")
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(path.parent)
    temporary = path.with_name(_TEMPORARY.format(secrets.token_hex(8)))
    try:
        with temporary.open("xb") as file:
            _copy_mode(path, temporary)  # before the contents: they may be private
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file atomically, text as UTF-8, or raise :class:`FileWriteError`."""
    # file names and the output of methods may hold bytes that are not UTF-8
    encoded = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    try:
        with atomic_write(path) as file:
            file.write(encoded)
    except (OSError, ValueError) as error:  # a ValueError for a NUL character in the name
        reason = getattr(error, "strerror", None) or error
        raise FileWriteError(f"Cannot write {str(path)!r}: {reason}.") from error


def check_writable(folder: Path) -> None:
    """Raise :class:`FileWriteError` if no file can be created in ``folder``, which need not exist yet."""
    missing = [each for each in (folder, *folder.parents) if not os.path.exists(each)]
    try:
        try:
            _create_file_in(folder)
        except FileNotFoundError:  # another process ran the same check and has just removed the folder
            _create_file_in(folder)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileWriteError(f"Cannot write to the folder {str(folder)!r}: {reason}.") from error
    finally:
        for each in missing:
            with contextlib.suppress(OSError, ValueError):
                each.rmdir()


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> None:
    """Write numeric arrays and JSON-able metadata to a safetensors file, with a checksum of both.

    Examples
    --------
    >>> path = Path(tempfile.mkdtemp()) / "example.safetensors"
    >>> save_arrays(path, {"weights": np.arange(3.0)}, {"key": "abc"})
    >>> load_arrays(path)
    ({'weights': array([0., 1., 2.])}, {'key': 'abc'})
    """
    from safetensors.numpy import save

    plain = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()}
    text = json.dumps(dict(metadata), sort_keys=True)
    # safetensors sorts the arrays, so their order is stored as well
    header = {"format": FORMAT, "sha256": _digest(plain, text), "metadata": text, "names": list(plain)}
    write_file(path, save(plain, metadata={_HEADER: json.dumps(header)}))


def load_arrays(path: Path, key: str | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read the arrays and metadata of :func:`save_arrays`, whose metadata must have this ``key``, if given.

    Nothing in the file is executed, and no more memory is used than the size of the file.

    Raises
    ------
    FileFormatError
        If the file is missing, damaged, of another format or key, or was not written by :func:`save_arrays`.
    """
    from safetensors import safe_open

    if not path.is_file():
        raise FileFormatError(f"{str(path)!r} does not exist or is not a regular file.")
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {})[_HEADER])
            found, digest, text = header["format"], header["sha256"], header["metadata"]
            arrays = {name: file.get_tensor(name) for name in header["names"]}
        metadata = dict(json.loads(text))
        for name, array in arrays.items():
            if not array.size and max(array.shape) > path.stat().st_size:
                raise ValueError(f"{short_repr(name)} has an impossible shape")
    except OSError as error:
        raise FileFormatError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from error
    except Exception as error:  # the file decides what the parsers of safetensors and JSON raise
        raise FileFormatError(f"{str(path)!r} is damaged or not a rose-carla file: {error_text(error)}") from error
    if found != FORMAT:
        raise FileFormatError(f"{str(path)!r} has format {short_repr(found)}, this version reads format {FORMAT}.")
    if digest != _digest(arrays, text):
        raise FileFormatError(f"{str(path)!r} is damaged: its contents do not match their checksum.")
    if key is not None and metadata.get("key") != key:
        raise FileFormatError(f"{str(path)!r} was computed from other data or settings.")
    return arrays, metadata


def cache_dir() -> Path:
    """Return ``$ROSE_CARLA_CACHE``, or ``rose_carla`` in the user's cache folder.

    Raises
    ------
    FileWriteError
        If it is in a home folder and the user has none.
    """
    try:
        if chosen := os.environ.get("ROSE_CARLA_CACHE"):
            return Path(chosen).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rose_carla"
    except RuntimeError as error:
        raise FileWriteError("the user has no home folder: set ROSE_CARLA_CACHE to a folder.") from error


def key_of(description: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON-able description."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def _digest(arrays: Mapping[str, np.ndarray], metadata: str) -> str:
    digest = hashlib.sha256(metadata.encode())
    for name, array in arrays.items():
        digest.update(f"\0{name}\0{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _create_file_in(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def _copy_mode(old: Path, new: Path) -> None:
    try:
        mode = old.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISREG(mode):
        new.chmod(mode & 0o777 | stat.S_IRUSR | stat.S_IWUSR)


def _remove_stale(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for path in folder.glob(_TEMPORARY.format("*")):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE:
                    path.unlink()
