"""Trained weights on disk: plain arrays and JSON in one ``.npz`` file, read without unpickling anything."""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rose_carla._lib import files
from rose_carla.errors import error_text, short_repr

#: Raise when the contents of a file change their meaning.
FORMAT = 1
#: Of arrays that are read: truth values, numbers and text.
_KINDS = "biufU"


class CacheError(Exception):
    """The file is not a usable cache entry; the reason is the message."""


def cache_dir() -> Path:
    """``$ROSE_CARLA_CACHE``, or ``rose_carla`` in the user's cache folder.

    Raises
    ------
    CacheError
        If it is in the home of a user who has none.
    """
    try:
        if chosen := os.environ.get("ROSE_CARLA_CACHE"):
            return Path(chosen).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rose_carla"
    except RuntimeError as error:
        raise CacheError("there is no home folder for it, set ROSE_CARLA_CACHE to a folder") from error


def key_of(description: Mapping[str, Any]) -> str:
    """Hash of a JSON-able description."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name}{arrays[name].dtype}{arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def write(path: Path, key: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an entry; readers see the old file or the whole new one, never a part."""
    header = json.dumps({"format": FORMAT, "key": key, "sha256": _digest(arrays)})
    with files.whole(path) as file:
        np.savez(file, **{**arrays, "header": np.array(header)})  # type: ignore[arg-type]


def read(path: Path, key: str) -> dict[str, np.ndarray]:
    """The arrays of an entry. Nothing is run, and no more memory is taken than the file has bytes.

    Raises
    ------
    CacheError
        If the file is damaged, of another format or written for another key.
    """
    if not path.is_file():
        raise CacheError("it is missing or no file")
    try:
        arrays = _arrays(path)
        header = json.loads(str(arrays.pop("header")))
        found = {name: header[name] for name in ("format", "key", "sha256")}
    except OSError as error:
        raise CacheError(f"it cannot be read ({error.strerror or error})") from error
    except Exception as error:  # whoever made the file has chosen what zip, arrays and JSON stumble over
        raise CacheError(f"it is damaged or not one of ours ({error_text(error).rstrip('.')})") from error
    if found["format"] != FORMAT:
        raise CacheError(f"it has format {short_repr(found['format'])}, this version reads {FORMAT}")
    if found["key"] != key:
        raise CacheError("it belongs to another data set or other settings")
    if found["sha256"] != _digest(arrays):
        raise CacheError("its contents do not match their checksum")
    return arrays


def _arrays(path: Path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        packed = any(part.compress_type != zipfile.ZIP_STORED for part in parts)
        if packed or sum(part.file_size for part in parts) > path.stat().st_size:
            raise ValueError("it would unpack to more than it is")
        return {part.filename.removesuffix(".npy"): _array(archive, part) for part in parts}


def _array(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> np.ndarray:
    """An array of plain numbers or text, as large as it claims to be."""
    with archive.open(part) as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError(f"{short_repr(part.filename)} is of another version")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        left = part.file_size - file.tell()
        empty = dtype.itemsize == 0 or max(shape, default=0) > part.file_size  # of which any number takes no bytes
        if dtype.kind not in _KINDS or empty or math.prod(shape) * dtype.itemsize != left:
            raise ValueError(f"{short_repr(part.filename)} is not what it claims to be")
        file.seek(0)
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
