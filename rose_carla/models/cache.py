"""Trained weights on disk: plain arrays and JSON in one ``.npz`` file, read without unpickling anything."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

#: Raise when the contents of a file change their meaning.
FORMAT = 1


class CacheError(Exception):
    """The file is not a usable cache entry; the reason is the message."""


def cache_dir() -> Path:
    """``$ROSE_CARLA_CACHE``, or ``rose_carla`` in the user's cache folder."""
    if chosen := os.environ.get("ROSE_CARLA_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rose_carla"


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
    path.parent.mkdir(parents=True, exist_ok=True)
    header = json.dumps({"format": FORMAT, "key": key, "sha256": _digest(arrays)})
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **{**arrays, "header": np.array(header)})  # type: ignore[arg-type]
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read(path: Path, key: str) -> dict[str, np.ndarray]:
    """The arrays of an entry.

    Raises
    ------
    CacheError
        If the file is damaged, of another format or written for another key.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(str(arrays.pop("header")))
        found = {name: header[name] for name in ("format", "key", "sha256")}
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise CacheError(f"it is damaged or not one of ours ({error})") from error
    if found["format"] != FORMAT:
        raise CacheError(f"it has format {found['format']}, this version reads {FORMAT}")
    if found["key"] != key:
        raise CacheError("it belongs to another data set or other settings")
    if found["sha256"] != _digest(arrays):
        raise CacheError("its contents do not match their checksum")
    return arrays
