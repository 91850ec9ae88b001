"""Files that commands read and write: ``-`` is stdin or stdout, and a file is written whole or not at all."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pandas as pd
from rose_carla._lib import files
from rose_carla._lib.endings import never_refuse
from rose_carla._lib.text import printable
from rose_carla._lib.user_code import ends_nothing
from rose_carla.cli.parser import CommandError
from rose_carla.errors import DataError

STANDARD = "-"


def content(source: str) -> bytes:
    """All bytes of a file, or of stdin.

    Raises
    ------
    DataError
        If it cannot be read.
    """
    try:
        return sys.stdin.buffer.read() if source == STANDARD else Path(source).read_bytes()
    except OSError as error:
        raise DataError(f"{source!r} cannot be read: {error.strerror or error}.") from error


def readable(source: str) -> None:
    """Refuse a file that cannot be read before hours of work.

    Raises
    ------
    DataError
        If it cannot be.
    """
    if source == STANDARD:
        return
    try:
        if os.path.isfile(source) or not os.access(source, os.R_OK) or os.path.isdir(source):
            open(source, "rb").close()  # a pipe would be empty afterwards
    except OSError as error:
        raise DataError(f"{source!r} cannot be read: {error.strerror or error}.") from error


def once(*sources: str | None) -> None:
    """Refuse to read stdin for two purposes."""
    if sources.count(STANDARD) > 1:
        raise CommandError("'-' is stdin, which can be read only once: give a file for the other.")


def rows(source: str) -> Iterator[list[str]]:
    """Lines of a CSV file as lists of text, as they come; an empty line is an empty list.

    Raises
    ------
    DataError
        If it cannot be read, or is no CSV file in UTF-8.
    """
    line = 0
    try:
        with contextlib.ExitStack() as stack:
            raw = sys.stdin.buffer if source == STANDARD else stack.enter_context(open(source, "rb"))
            # spreadsheets put a byte order mark before the first column's name
            text = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
            stack.callback(text.detach)
            reader = csv.reader(text, strict=True)
            for row in reader:
                line = reader.line_num
                yield row
    except UnicodeDecodeError as error:
        raise DataError(f"{source!r} is no text in UTF-8: save it as 'CSV UTF-8'.") from error
    except csv.Error as error:
        raise DataError(
            f"{source!r} cannot be read as a CSV file from line {line + 1} on: {error}. Look for a quote that is not "
            f"closed, or for a value of more than {csv.field_size_limit():,} signs."
        ) from error
    except OSError as error:
        raise DataError(f"{source!r} cannot be read: {error.strerror or error}.") from error


@contextlib.contextmanager
def written(path: str | None) -> Iterator[TextIO]:
    """A text to write to: stdout, or a file that is there in the end, whole, or as it was before.

    Raises
    ------
    CommandError
        If it cannot be written.
    """
    if path is None or path == STANDARD:
        yield sys.stdout
        return
    try:
        with contextlib.ExitStack() as stack:
            if _replaceable(path):  # a link stays a link to what is written
                raw = stack.enter_context(files.atomic_write(Path(os.path.realpath(path))))
            else:
                raw = stack.enter_context(open(path, "ab"))
            # names of files, which may be in it, need not be text
            text = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", newline="", write_through=True)
            stack.callback(text.detach)
            yield text
    except OSError as error:
        raise CommandError(f"{path!r} cannot be written: {error.strerror or error}.") from error


def _replaceable(path: str) -> bool:
    """Whether another file may be put in its place: not of a device, a pipe, or a stream such as /dev/stdout."""
    stream = os.path.abspath(path).startswith(("/dev/std", "/dev/fd/", "/proc/"))
    return not stream and (not os.path.exists(path) or os.path.isfile(path))


def writable(path: str | None, *sources: str | None) -> str | None:
    """Refuse a file that cannot be written, or that is one of the sources, before hours of work.

    Returns
    -------
    str, optional
        The same file, even if code of somebody else changes the working directory.

    Raises
    ------
    CommandError
        If it cannot be.
    """
    if path is None or path == STANDARD:
        if any(_same(source, 1) for source in sources if source):
            raise CommandError("stdout goes to a file that is read by this command: send it to another file.")
        return path
    target = Path(os.path.realpath(path) if os.path.islink(path) and _replaceable(path) else path)
    if target.is_dir():
        raise CommandError(f"{path!r} is a folder: name a file in it.")
    if not target.parent.is_dir():
        raise CommandError(f"{path!r} cannot be written: there is no folder {str(target.parent)!r}.")
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise CommandError(f"{path!r} cannot be written: permission denied.")
    apart(path, *sources)
    return os.path.abspath(path)


def apart(path: str, *sources: str | None) -> None:
    """Refuse to write over a file that is read.

    Raises
    ------
    CommandError
        If it is one of the sources.
    """
    if any(_same(source, path) for source in sources if source):
        raise CommandError(f"{path!r} is read by this command, and would be written over: name another file.")


def _same(source: str, path: str | int) -> bool:
    """Whether two names, or a name and a number, are of one file; stdin is the file that a shell has put there."""
    try:
        return os.path.isfile(path) and os.path.samefile(0 if source == STANDARD else source, path)
    except (OSError, ValueError):  # one of them is not there, or cannot be
        return False


def for_programs() -> None:
    """Have stdout in UTF-8, as files are: in the encoding of a terminal names might be lost."""
    never_refuse(sys.stdout, "utf-8")


@contextlib.contextmanager
def printing_aside() -> Iterator[None]:
    """While code of somebody else runs: stdout is for results, so what it prints goes to stderr; nor does it end us."""
    with contextlib.redirect_stdout(sys.stderr), ends_nothing():
        yield


def on_screen(text: str, file: TextIO) -> str:
    """A cell of a CSV file: a terminal gets signs for what would command it, a file the names as they are."""
    return printable(text) if file.isatty() else text


def frame_on_screen(frame: pd.DataFrame, file: TextIO) -> pd.DataFrame:
    """A table with all of its texts as :func:`on_screen`."""
    texts = {name: column for name, column in frame.items() if column.dtype.kind not in "biuf"}
    return frame.assign(**{name: column.map(lambda text: on_screen(str(text), file)) for name, column in texts.items()})


def aligned(lines: list[list[str]], left: int = 1) -> str:
    """Lines of a small table under one another, the first ``left`` columns to the left, numbers to the right."""
    lines = [[printable(text) for text in line] for line in lines]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]

    def padded(line: list[str]) -> str:
        cells = zip(line, widths, strict=True)
        return "  ".join(t.ljust(w) if i < left else t.rjust(w) for i, (t, w) in enumerate(cells)).rstrip()

    return "\n".join(padded(line) for line in lines)
