"""Run commands: exit codes, one-sentence errors, messages, signals, and the files commands read and write."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NoReturn, TextIO

import click
from rose_carla._lib.user_code import UserExitError, exit_raises
from rose_carla._version import __version__
from rose_carla.errors import DataError, RoseCarlaError, one_line, printable, printable_lines, unknown_name

# Exit codes.
DONE, FAILED, USAGE_ERROR, INTERRUPTED = 0, 1, 2, 130
#: Stands for stdin or stdout in place of a file name.
STDIO = "-"
PROGRAM = "rose-carla"
#: Commands by name: the module that defines the click command, and a one-line summary.
COMMANDS = {
    "datasets": ("describe_data", "list the built-in data sets, or check a CSV file before training"),
    "train": ("train", "train a classifier and a policy, and save the policy in a folder"),
    "recourse": ("recourse", "plan recourse for the people of a CSV file"),
    "next": ("next_step", "say the next step of people from where they are now"),
    "evaluate": ("evaluate", "compute the paper's eight metrics for methods, a policy or counterfactuals"),
    "check": ("check", "check this installation, or the contract of a recourse method"),
    "table1": ("tables", "the paper's Table 1"),
    "appendix": ("tables", "the tables of the paper's appendix"),
    "figures": ("tables", "the paper's figures"),
}
_PACKAGE = str(Path(__file__).parents[1])


_EPILOG = """\
Examples:
  rose-carla datasets loans.csv --target loan --favourable granted
  rose-carla train loans.csv --target loan --favourable granted --immutable age --out policy
  rose-carla recourse applicants.csv --policy policy --out plans.csv
  rose-carla evaluate compas --methods GrSp ROSE-one --limit 50
  rose-carla table1 --quick

Results go to stdout, progress and remarks to stderr; '-' in place of a CSV file is stdin.
Exit codes: 0 success, 1 some of it failed, 2 invalid input or options, 130 interrupted.
"""


class CommandError(RoseCarlaError, ValueError):
    """The command cannot run with these arguments."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C with a hint to show the user."""


class _CommandGroup(click.Group):
    """Group that imports the module of a command when it is called."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            raise click.UsageError(f"Missing command: {', '.join(COMMANDS)}; '{PROGRAM} --help' shows examples.", ctx)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, name: str) -> click.Command:
        if name not in COMMANDS:
            raise click.UsageError(unknown_name("command", name, COMMANDS), ctx)
        module = importlib.import_module(f"rose_carla.cli.{COMMANDS[name][0]}")
        command: click.Command = getattr(module, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"\n{self.epilog}\n")


@click.group(
    PROGRAM,
    cls=_CommandGroup,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__, message=f"{PROGRAM} %(version)s")
def _group() -> None:
    """Robust sequential recourse (ROSE): what people whom a model rejects should change, step by step, so that it still
    works when every step is implemented imperfectly.
    """


def main(arguments: Sequence[str] | None = None, command: str | None = None) -> int:
    """Run a command and return its exit code: 0 success, 1 some of it failed, 2 invalid input, 130 interrupted.

    Parameters
    ----------
    arguments
        Command-line arguments; default: those of the process.
    command
        Name of the command; default: the first argument.

    Examples
    --------
    >>> main(["--version"])  # doctest: +ELLIPSIS
    rose-carla ...
    0
    """
    words = [*([command] if command else []), *(sys.argv[1:] if arguments is None else arguments)]

    def run() -> int:
        with _group.make_context(PROGRAM, [*words], obj=[PROGRAM, *words]) as ctx:
            code: int = _group.invoke(ctx)
            return code

    return run_command(run, is_main=arguments is None)


def run_command(func: Callable[[], int], is_main: bool = False) -> int:
    """Run ``func`` and return an exit code; errors are printed as one sentence on stderr.

    Parameters
    ----------
    func
        Runs the command and returns its exit code.
    is_main
        Whether the process ends afterwards; further signals are then ignored once it was interrupted.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed before Python started
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        escape_unencodable(getattr(sys, name))
    with _lossy_stderr(), _signals_interrupt():
        code = _exit_code(func)
    if is_main and code == INTERRUPTED:
        _ignore_signals()
    return code


def _exit_code(func: Callable[[], int]) -> int:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            warnings.showwarning = _show_warning
            code = func()
        sys.stdout.flush()
        return code
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        return _usage_error(_click_message(error))
    except SystemExit as error:
        return _usage_error(str(UserExitError(error)))
    except RoseCarlaError as error:
        return _usage_error(str(error))
    except BrokenPipeError:  # for example `| head`: the reader has enough
        _discard(sys.stdout)
        return DONE
    except OSError as error:
        _discard(sys.stdout)
        name = f" {error.filename!r}" if error.filename else ""
        return _usage_error(f"Cannot read or write the file{name}: {error.strerror or error}.")
    except MemoryError:
        return _usage_error("Out of memory: process fewer rows at a time (--chunk) or use fewer processes (--jobs).")
    except KeyboardInterrupt as error:
        text = f"Stopped. {error if isinstance(error, Interrupted) else ''}".strip()
        print(f"\n{text}" if sys.stderr.isatty() else text, file=sys.stderr)  # after the terminal's ^C
        return INTERRUPTED
    except Exception as error:
        print(printable_lines(traceback.format_exc().rstrip()), file=sys.stderr)
        text = one_line(f"{type(error).__name__}: {error}")
        print(f"error: {text}. This is a bug in rose-carla; please report the traceback above.", file=sys.stderr)
        return FAILED


def _click_message(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        params = error.ctx.command.get_params(error.ctx)
        known = [name for each in params for name in each.opts if name.startswith("--")]
        return unknown_name("option", error.option_name, known)
    text = error.format_message()
    return text if text.endswith((".", "?")) else f"{text}."


def _usage_error(text: str) -> int:
    print(f"error: {one_line(text)}", file=sys.stderr)
    return USAGE_ERROR


def _show_warning(message: object, category: object, filename: str, *args: Any, **kwargs: Any) -> None:
    """Print warnings of this package; those of libraries are for developers."""
    if filename.startswith(_PACKAGE):
        remark(message)


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP like Ctrl-C, so that worker processes are ended; ``nohup`` stays in effect."""
    previous = {}
    if threading.current_thread() is threading.main_thread():
        for number in _signals("SIGTERM", "SIGHUP"):
            if signal.getsignal(number) == signal.SIG_DFL:
                previous[number] = signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    if threading.current_thread() is threading.main_thread():
        for number in _signals("SIGINT", "SIGTERM", "SIGHUP"):
            signal.signal(number, signal.SIG_IGN)


def _signals(*names: str) -> list[signal.Signals]:
    return [getattr(signal, name) for name in names if hasattr(signal, name)]  # Windows lacks SIGHUP


class _LossyStream:
    """Text stream that drops what cannot be written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def _lossy_stderr() -> Iterator[None]:
    """Go on if stderr is closed or its disk is full: messages are not results."""
    stderr = sys.stderr
    sys.stderr = _LossyStream(stderr)
    try:
        yield
    finally:
        sys.stderr = stderr
        _discard(stderr)


def _discard(stream: TextIO) -> None:
    """Redirect a stream that cannot be flushed to the null device, or Python would report it once more at exit."""
    try:
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError):  # not every stream has a file descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def escape_unencodable(stream: TextIO, encoding: str | None = None) -> None:
    """Escape characters that the stream's encoding lacks, such as ``\\u03a9``, instead of raising an error."""
    if isinstance(stream, io.TextIOWrapper):
        with contextlib.suppress(OSError):
            stream.reconfigure(encoding=encoding or stream.encoding, errors="backslashreplace")


def use_utf8_stdout() -> None:
    """Write output for programs in UTF-8, whatever the terminal's encoding."""
    escape_unencodable(sys.stdout, "utf-8")


@contextlib.contextmanager
def user_code(failure: str = "", error_class: type[RoseCarlaError] = CommandError) -> Iterator[None]:
    """Run user code: it prints to stderr, since stdout is for results, and ``sys.exit()`` is an error.

    With ``failure``, other exceptions become an ``error_class`` with this message and where they were raised.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr), exit_raises():
            yield
    except RoseCarlaError:
        raise
    except Exception as error:
        if not failure:
            raise
        raise error_class(f"{failure}: {describe_error(error)}") from error


def describe_error(error: Exception) -> str:
    """Return what user code raised, and where, as one sentence."""
    if isinstance(error, RoseCarlaError):
        return str(error)
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith("<frozen")]
    frames = [each for each in frames if not each.filename.startswith(os.path.join(_PACKAGE, "cli"))]
    shown = frames and not isinstance(error, ImportError)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if shown else ""
    return f"{type(error).__name__}: {error}{where}."


def echo(text: str) -> None:
    """Print a result, with control characters escaped."""
    print(printable_lines(text))


def remark(text: object) -> None:
    """Print a remark on stderr."""
    print(f"remark: {one_line(text)}", file=sys.stderr)


def report_failure(text: object) -> None:
    """Print on stderr what failed while the rest went on."""
    print(f"failed: {one_line(text)}", file=sys.stderr)


def for_stream(text: str, file: TextIO) -> str:
    """Escape control characters if ``file`` is a terminal; files get the text unchanged."""
    return printable(text) if file.isatty() else text


def check_inputs(paths: list[str | None], data: str) -> None:
    """Check before long work that files can be read, and that stdin is used at most once, also for ``data``."""
    if [*paths, data].count(STDIO) > 1:
        raise CommandError("'-' is stdin, which can be read only once: use a file for the other input.")
    for path in paths:
        try:
            if path and path != STDIO and not (os.path.exists(path) and _is_pipe_or_device(path)):
                open(path, "rb").close()
        except OSError as error:
            raise DataError(f"Cannot read {path!r}: {error.strerror or error}.") from error


def check_output(path: str | None, *inputs: str | None) -> str | None:
    """Check before long work that ``path`` can be written and is not an input; return it as an absolute path."""
    if path is None or path == STDIO:
        if any(_is_same_file(each, 1) for each in inputs if each):
            raise CommandError("stdout is redirected to an input of this command: redirect it to another file.")
        return path
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise CommandError(f"{path!r} is a directory: name a file in it.")
    if not target.parent.is_dir():
        raise CommandError(f"Cannot write {path!r}: there is no directory {str(target.parent)!r}.")
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise CommandError(f"Cannot write {path!r}: permission denied.")
    check_not_input(path, inputs)
    return os.path.abspath(path)  # user code may change the working directory


def check_not_input(path: str, inputs: Iterable[str | None]) -> None:
    """Raise an error if ``path`` is one of ``inputs``, which would be overwritten."""
    if any(_is_same_file(each, path) for each in inputs if each):
        raise CommandError(f"{path!r} is an input of this command and would be overwritten: name another file.")


def _is_same_file(source: str, path: str | int) -> bool:
    try:
        return os.path.isfile(path) and os.path.samefile(0 if source == STDIO else source, path)
    except (OSError, ValueError):
        return False


def _is_pipe_or_device(path: str) -> bool:
    return not os.path.isfile(path) and not os.path.isdir(path)


@contextlib.contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    """Open stdout, or a UTF-8 file that is replaced atomically at the end; links are followed."""
    from rose_carla._lib.files import atomic_write  # not needed by --help

    if path is None or path == STDIO:
        yield sys.stdout
        return
    try:
        with contextlib.ExitStack() as stack:
            raw: BinaryIO
            if os.path.exists(path) and _is_pipe_or_device(path):
                raw = stack.enter_context(open(path, "ab"))
            else:
                raw = stack.enter_context(atomic_write(Path(os.path.realpath(path))))
            text = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", newline="", write_through=True)
            stack.callback(text.detach)
            yield text
    except OSError as error:
        raise CommandError(f"Cannot write {path!r}: {error.strerror or error}.") from error
