"""How commands end: in a sentence and an exit code, not in a traceback that is no use to whoever typed them."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, NoReturn, TextIO

from rose_carla._lib.text import one_line, printable_lines
from rose_carla._lib.user_code import ExitError
from rose_carla.errors import RoseCarlaError

#: Exit codes: all is well, some of it failed, the command cannot be run as asked, somebody stopped it.
DONE, FAILED, REFUSED, STOPPED = 0, 1, 2, 130
_PACKAGE = os.path.dirname(os.path.abspath(__file__))


class Said(SystemExit):
    """The end of a parser, which has said what there is to say."""


def ended(run: Callable[[], int], stopped: str = "", last: bool = False) -> int:
    """The exit code of ``run``, whatever comes of it.

    Parameters
    ----------
    stopped
        What to tell whoever stops it, beside that it is stopped.
    last
        Whether nothing comes after it but the end of the process, which a second Ctrl-C does not disturb.
    """
    _open_streams()
    with _remarks_never_fail(), _signals_stop():
        code = _code(run, stopped, last)
        if last and code == STOPPED:
            _cannot_be_stopped()
    return code


def _code(run: Callable[[], int], stopped: str, last: bool) -> int:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            warnings.showwarning = _as_remark
            code = run()
        sys.stdout.flush()
        return code
    except Said as end:
        return int(end.code or DONE)
    except SystemExit as end:
        return _refused(str(ExitError(end)))
    except RoseCarlaError as error:
        return _refused(str(error))
    except BrokenPipeError:
        _let_go(sys.stdout)  # whoever read our results has enough of them
        return DONE
    except OSError as error:
        _let_go(sys.stdout)
        where = f" {error.filename!r}" if error.filename else ""
        return _refused(f"The file{where} cannot be read or written: {error.strerror or error}.")
    except MemoryError:
        return _refused("There is not enough memory: try fewer at a time, with --chunk or --jobs if there is one.")
    except KeyboardInterrupt:
        if last:
            _cannot_be_stopped()
        words = " ".join(filter(None, ["Stopped.", stopped]))
        print(f"\n{words}" if sys.stderr.isatty() else words, file=sys.stderr)  # after the terminal's ^C
        return STOPPED
    except Exception as error:
        print(printable_lines(traceback.format_exc().rstrip()), file=sys.stderr)
        words = f"{type(error).__name__}: {error}"
        print(
            f"error: {one_line(words)}. This is no mistake of yours: please report it with what is above.",
            file=sys.stderr,
        )
        return FAILED


@contextlib.contextmanager
def _signals_stop() -> Iterator[None]:
    """Have SIGTERM and SIGHUP stop a command as Ctrl-C does, so that it ends the processes it has started.

    Whoever had them ignored, as ``nohup`` does, or handles them, has that as it was.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():  # Python allows no other
        for number in _signals("SIGTERM", "SIGHUP"):
            if signal.getsignal(number) == signal.SIG_DFL:
                before[number] = signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) == _stop:
                signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _cannot_be_stopped() -> None:
    if threading.current_thread() is threading.main_thread():
        for number in _signals("SIGINT", "SIGTERM", "SIGHUP"):
            signal.signal(number, signal.SIG_IGN)


def _signals(*names: str) -> list[signal.Signals]:
    """Those that this system has."""
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


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


@contextlib.contextmanager
def _remarks_never_fail() -> Iterator[None]:
    """Have the work go on when stderr goes away or is full: progress and remarks are no results."""
    before = sys.stderr
    sys.stderr = _Lossy(before)
    try:
        yield
    finally:
        if isinstance(sys.stderr, _Lossy):
            sys.stderr = before
        _let_go(before)


class _Lossy:
    """A stream to which everything can be written: what cannot is lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, if that is possible."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def writelines(self, texts: Iterable[str]) -> None:
        """Write, if that is possible."""
        self.write("".join(texts))

    def flush(self) -> None:
        """Bring it on its way, if that is possible."""
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


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


def show(text: str) -> None:
    """Print a result for people, in which nothing but line breaks commands a terminal."""
    print(printable_lines(text))


def remark(text: object) -> None:
    """Tell people something that is no result."""
    print(f"remark: {one_line(text)}", file=sys.stderr)


def tell_failed(text: object) -> None:
    """Tell people what failed while the rest went on."""
    print(f"failed: {one_line(text)}", file=sys.stderr)


def _as_remark(message: object, category: object, filename: str, *further: Any, **named: Any) -> None:
    """Warnings of this package are for people; those of libraries are for whoever calls them."""
    if filename.startswith(_PACKAGE):
        remark(message)


def _refused(text: str) -> int:
    print(f"error: {one_line(text)}", file=sys.stderr)
    return REFUSED


def _let_go(stream: TextIO) -> None:
    """Have Python's last flush of a stream succeed: it would complain once more about what has been told."""
    try:
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError):  # streams of somebody else need not have a number
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
