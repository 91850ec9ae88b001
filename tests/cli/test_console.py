"""Exit codes, signals, lost streams, and files that commands write."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import warnings

import pytest
from rose_carla import bench
from cli_examples import ROLES
from fault_trials import Process
from rose_carla.cli import console
from rose_carla.cli.console import INTERRUPTED, CommandError, Interrupted, check_output, open_output, run_command

pytest_plugins = ("cli_examples",)

QUICK = ["table1", "--quick", "--datasets", "compas", "--classifier", "linear", "--jobs", "1", "--methods", "GrSp"]
STOPPED = ["train", "loans.csv", *ROLES, "--model", "signals:terminated", "--out", "terminated"]


@pytest.fixture(scope="module", autouse=True)
def module(folder):
    text = "import os\n\ndef terminated(data):\n    os.kill(os.getpid(), int(os.environ['SIGNAL']))\n    return 1 / 0\n"
    (folder / "signals.py").write_text(text)


@pytest.fixture
def handlers():
    """Signal handlers as in a foreground process."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def raiser(error):
    def func():
        raise error

    return func


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (CommandError("No such\nthing."), 2, "error: No such thing.\n"),
        (OSError(28, "No space left on device", "x"), 2, "error: Cannot read or write the file 'x': No space left"),
        (MemoryError(), 2, "error: Out of memory"),
        (BrokenPipeError(), 0, ""),
        (KeyboardInterrupt(), 130, "Stopped.\n"),
        (Interrupted("Run it again."), 130, "Stopped. Run it again.\n"),
        (ZeroDivisionError("\x1b[2J"), 1, "Traceback (most recent call last):\n"),
    ],
)
def test_errors_become_exit_codes(error, code, message, capsys, handlers):
    assert run_command(raiser(error)) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(message)
    assert "\x1b" not in err
    assert ("This is a bug in rose-carla" in err) == (code == 1)


def test_warnings_of_the_package_are_remarks(capsys):
    def warn():
        warnings.warn_explicit("watch\nout", UserWarning, f"{console._PACKAGE}/models/x.py", 1)
        warnings.warn_explicit("elsewhere", UserWarning, "/lib/x.py", 1)
        return 0

    assert run_command(warn) == 0
    assert capsys.readouterr().err == "remark: watch out\n"


def test_ctrl_c_ends_in_one_line(run, folder, handlers):
    done = run("train", "loans.csv", *ROLES, "--model", "cli_models:stopped", "--out", "stopped")
    assert (done.code, done.out, done.err) == (130, "", "Stopped.\n")
    assert not (folder / "stopped").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_end_a_command_as_ctrl_c_does(number, run, folder, tmp_path, monkeypatch, handlers):
    monkeypatch.setenv("SIGNAL", str(int(number)))
    done = Process(STOPPED, tmp_path, True).complete()
    assert (done.code, done.err) == (130, "Stopped.\n")
    assert signal.getsignal(number) == signal.SIG_DFL
    assert not (folder / "terminated").exists()


def test_nohup_stays_in_effect(run, monkeypatch, handlers):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    monkeypatch.setenv("SIGNAL", str(int(signal.SIGHUP)))
    assert "ZeroDivisionError" in run(*STOPPED).err
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_benchmark_that_is_terminated_says_how_to_resume(tmp_path, monkeypatch, handlers):
    monkeypatch.setattr(bench, "run", lambda *args, **kwargs: signal.raise_signal(signal.SIGTERM))
    words = [*QUICK, "--out", str(tmp_path / "out"), "--cells", str(tmp_path / "cells")]
    done = Process(words, tmp_path, True).complete()
    assert done.code == 130
    assert done.err == "Stopped. Finished cells are kept: the same command continues where it stopped.\n"


def test_command_runs_in_another_thread():
    codes = []
    thread = threading.Thread(target=lambda: codes.append(run_command(lambda: 7, is_main=True)))
    thread.start()
    thread.join()
    assert codes == [7]


def test_second_ctrl_c_does_not_disturb_the_end_of_the_process(handlers):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            code = run_command(raiser(KeyboardInterrupt()), is_main=True)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.raise_signal(number)
        except BaseException:
            code = 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == INTERRUPTED


def broken_pipe():
    """stderr is a pipe without a reader."""
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, 2)


def full_disk():
    """stderr is on a full disk."""
    os.dup2(os.open("/dev/full", os.O_WRONLY), 2)


@pytest.mark.slow
@pytest.mark.parametrize("lose", [broken_pipe, full_disk])
def test_work_goes_on_without_stderr(lose, run, folder, tmp_path):
    if lose is full_disk and not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    plans = tmp_path / "plans.csv"
    words = ["recourse", "people.csv", "--policy", "policy", "--out", str(plans)]
    assert Process(words, tmp_path, True, before=lose).complete().code == 0
    assert plans.read_text() == run(*words[:-2]).out
    words = [*QUICK, "--out", str(tmp_path / "out"), "--cells", str(tmp_path / "cells")]
    assert Process(words, tmp_path, True, before=lose).complete().code == 0
    assert (tmp_path / "out" / "table1.csv").is_file()
    words = ["recourse", "none.csv", "--policy", "policy"]
    assert Process(words, tmp_path, True, before=lose).complete().code == 2


def test_output_file_is_written_atomically_through_links(tmp_path):
    path, link = tmp_path / "file.csv", tmp_path / "link.csv"
    link.symlink_to(path)
    for before in (None, "before"):
        with contextlib.suppress(KeyError), open_output(str(link)) as file:
            file.write("half")
            raise KeyError
        assert (path.read_text() if path.exists() else None) == before
        path.write_text("before")
    path.chmod(0o600)
    with open_output(str(link)) as file:
        file.write("whole")
    assert link.is_symlink()
    assert path.read_text() == "whole"
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file.csv", "link.csv"]


def test_pipe_is_written_and_not_replaced(tmp_path):
    queue = tmp_path / "queue"
    os.mkfifo(queue)
    reader = os.open(queue, os.O_RDONLY | os.O_NONBLOCK)
    with open_output(str(queue)) as file:
        file.write("through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert queue.is_fifo()


def test_redirected_stdin_is_not_overwritten(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("before")
    script = "import sys; from rose_carla.cli.console import check_output; check_output(sys.argv[1], '-')"
    with path.open() as file:
        done = subprocess.run([sys.executable, "-c", script, path], stdin=file, capture_output=True, text=True)
    assert "would be overwritten" in done.stderr
    with pytest.raises(CommandError, match="there is no directory"):
        check_output(str(tmp_path / "missing" / "file.csv"))
