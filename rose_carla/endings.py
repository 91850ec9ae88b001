"""How commands end: in a sentence and an exit code, not in a traceback that is no use to whoever typed them."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any, TextIO

from rose_carla.errors import RoseCarlaError

#: Exit codes: all is well, some of it failed, the command cannot be run as asked, somebody stopped it.
DONE, FAILED, REFUSED, STOPPED = 0, 1, 2, 130
_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def ended(run: Callable[[], int], stopped: str = "") -> int:
    """The exit code of ``run``, whatever comes of it.

    Parameters
    ----------
    stopped
        What to tell whoever stops it, beside that it is stopped.
    """
    _open_streams()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            warnings.showwarning = _as_remark
            code = run()
        sys.stdout.flush()
        return code
    except SystemExit as end:  # of a parser, which has said what there is to say
        return end.code if isinstance(end.code, int) else DONE
    except RoseCarlaError as error:
        return _refused(str(error))
    except BrokenPipeError:
        _let_go()  # whoever read our results has enough of them
        return DONE
    except OSError as error:
        _let_go()
        where = f" {error.filename!r}" if error.filename else ""
        return _refused(f"The file{where} cannot be read or written: {error.strerror or error}.")
    except MemoryError:
        return _refused("There is not enough memory: try fewer at a time, with --chunk or --jobs if there is one.")
    except KeyboardInterrupt:
        words = " ".join(filter(None, ["Stopped.", stopped]))
        print(f"\n{words}" if sys.stderr.isatty() else words, file=sys.stderr)  # after the terminal's ^C
        return STOPPED
    except Exception as error:
        traceback.print_exc()
        words = f"{type(error).__name__}: {error}"
        print(
            f"error: {one_line(words)}. This is no mistake of yours: please report it with what is above.",
            file=sys.stderr,
        )
        return FAILED


def _open_streams() -> None:
    """Have stdin, stdout and stderr, even if they were closed: otherwise the next file would get the place of one."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the smallest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - as long as the process lives
    for stream in (sys.stdout, sys.stderr):
        never_refuse(stream)


def never_refuse(stream: TextIO, encoding: str | None = None) -> None:
    """Have a stream write signs that its encoding lacks, such as ``\\u03a9``: they are no reason to stop.

    Parameters
    ----------
    encoding
        To be used from now on; None: the one it has.
    """
    if isinstance(stream, io.TextIOWrapper):
        with contextlib.suppress(OSError):  # it is done then, but where in a file the stream is cannot be told
            stream.reconfigure(encoding=encoding or stream.encoding, errors="backslashreplace")


def visible(text: str) -> str:
    """A text with signs for what would command a terminal, hide or turn round what is shown.

    Examples
    --------
    >>> print(visible("\x1b[2J" + "naïve"))
    \\x1b[2Jnaïve
    """
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def one_line(text: object) -> str:
    """A text without line breaks, and without anything that would command a terminal."""
    return visible(" ".join(str(text).split()))


def remark(text: object) -> None:
    """Tell people something that is no result."""
    print(f"remark: {one_line(text)}", file=sys.stderr)


def _as_remark(message: object, category: object, filename: str, *further: Any, **named: Any) -> None:
    """Warnings of this package are for people; those of libraries are for whoever calls them."""
    if filename.startswith(_PACKAGE):
        remark(message)


def _refused(text: str) -> int:
    print(f"error: {one_line(text)}", file=sys.stderr)
    return REFUSED


def _let_go() -> None:
    """Have Python's last flush of stdout succeed: it would complain once more about what has been told."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
