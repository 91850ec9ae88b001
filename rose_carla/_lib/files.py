"""Files that are there whole or not at all, whoever is killed and whatever is full meanwhile."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

#: Names of files that are being written, and after how many seconds one of them is nobody's any more.
_UNFINISHED = ".rose-carla-{}.tmp"
_ABANDONED = 24 * 3600.0


@contextlib.contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which is in its place at the end; until then, and after an error, the old one is.

    It is written beside its place, brought to the disk and then renamed, so that a process that is killed leaves the
    old file and an unfinished one with a name of its own. Those that are a day old are removed on the way. The new file
    is as private as the old one. A link is replaced, not followed: whoever put it there does not choose what is written
    over.

    Raises
    ------
    OSError
        If it cannot be written, or there is something else than a file, such as a device.
    """
    _check_name(path)
    if path.exists() and not (path.is_file() or path.is_symlink()):
        raise OSError(errno.EINVAL, "there is a folder, a device or a pipe in its place")
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path.parent)
    unfinished = path.with_name(_UNFINISHED.format(secrets.token_hex(8)))
    try:
        with unfinished.open("xb") as file:
            _keep_mode(path, unfinished)  # before anything is in it that not everybody may read
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)


def check_folder(folder: Path) -> None:
    """Find out before hours of work whether a folder, which need not exist yet, can be written; nothing is left there.

    Raises
    ------
    OSError
        If it cannot be.
    """
    _check_name(folder)
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        try:
            _try_writing(folder)
        except FileNotFoundError:  # another process tried the same, and has just left nothing there
            _try_writing(folder)
    finally:
        for each in missing:
            with contextlib.suppress(OSError):
                each.rmdir()


def _try_writing(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def _check_name(path: Path) -> None:
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "no name of a file holds NUL")


def _keep_mode(old: Path, new: Path) -> None:
    """Let those who may use the old file, if there is one, use the new one; its owner always may."""
    try:
        mode = old.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISREG(mode):
        new.chmod(mode & 0o777 | stat.S_IRUSR | stat.S_IWUSR)


def _remove_abandoned(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for path in folder.glob(_UNFINISHED.format("*")):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED:
                    path.unlink()
