"""Odd files and names on the command line: pipes, files both read and written, absurd values, signs of terminals."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import resource
import shutil
import struct
import termios
import threading
import time

import pytest
from cli_examples import ROLES, changed, read
from fault_trials import Process, _main
from rose_carla.datasets.people import PeopleReader

pytest_plugins = ("cli_examples",)  # its fixtures

RECOURSE = ["recourse", "people.csv", "--policy", "policy", "--id", "name"]
#: Clears a screen.
ESC = "\x1b[2J"
METHODS = f"""
from fake_methods import Liked

class Breaks(Liked):
    def get_counterfactuals(self, factuals):
        raise ValueError({ESC!r} + "\\n" + {ESC!r})

globals()[{ESC!r}] = Liked
"""


def in_terminal(words):
    """What a command sends to a terminal of 200 columns, as a fork of this process."""
    pid, terminal = os.forkpty()
    if pid == 0:
        code = 1
        try:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
            code = _main(words)
        finally:
            os._exit(code)
    told = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while part := os.read(terminal, 65536):
            told += part
    os.waitpid(pid, 0)
    os.close(terminal)
    return told.decode(errors="replace")


@pytest.fixture(scope="module")
def odd(folder):
    """The folder, with names that clear the screen."""
    (folder / "cli_hostile.py").write_text(METHODS)
    shutil.copy(folder / "people.csv", folder / f"{ESC}.csv")
    changed(folder, "odd_people.csv", lambda frame: frame.__setitem__("name", ESC + frame["name"]))
    return folder


JUDGED = ["evaluate", "--policy", "policy", "--samples", "5", "--limit", "2"]
QUICK = ["table1", "--quick", "--jobs", "1", "--classifier", "linear", "--datasets", "compas"]


@pytest.mark.parametrize(
    "words",
    [
        [*JUDGED, "--people", "odd_people.csv", "--id", "name", "--per-person", "-"],
        [*JUDGED, "--people", "odd_people.csv", "--id", "name", "--per-person", "/dev/tty"],
        [*JUDGED, "--people", "people.csv", "--counterfactuals", f"{ESC}.csv"],
        [*JUDGED, "--people", "people.csv", "--counterfactuals", f"{ESC}.csv", "--format", "csv"],
        [*JUDGED, "--people", "people.csv", "--methods", "cli_hostile:Breaks"],
        ["datasets", f"{ESC}.csv"],
        ["datasets", f"{ESC}.csv", *ROLES, "--ignore", "name"],
        ["check", "GrSp", "--data", f"{ESC}.csv", *ROLES, "--ignore", "name", "--limit", "2"],
        ["check", f"cli_hostile:{ESC}", "--limit", "2"],
        ["table1", "--methods", f"os:{ESC}"],
        ["table1", f"--x{ESC}\ny"],
        ["train", "compas", f"--x{ESC}\ny"],
        [*QUICK, "--methods", f"cli_hostile:{ESC}", "cli_hostile:Breaks", "--out", f"o{ESC}", "--cells", f"c{ESC}"],
    ],
    ids=lambda words: " ".join(words[:1] + words[-2:]).encode("unicode_escape").decode(),
)
def test_no_name_commands_a_terminal(words, odd, run):
    told = in_terminal(words)
    assert ESC not in told
    assert "\\x1b[2J" in told
    assert "Traceback" not in told


def test_errors_of_ours_command_no_terminal_either(odd, run, monkeypatch):
    monkeypatch.setattr(PeopleReader, "chunks", lambda *_: (_ for _ in ()).throw(ValueError(f"{ESC}\r{ESC}")))
    told = in_terminal(RECOURSE)
    assert "This is a bug in rose-carla" in told
    assert "Traceback" in told
    assert ESC not in told


def test_refusals_are_one_line(run):
    assert run("table1", "--x\n\ny").err.startswith("error: Unknown option '--x\\n\\ny': ")


def test_a_pipe_with_a_name_is_read_once(run, folder, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    feeding = threading.Thread(target=lambda: pipe.write_bytes((folder / "people.csv").read_bytes()), daemon=True)
    feeding.start()
    process = Process(["recourse", str(pipe), *RECOURSE[2:]], tmp_path, True)
    if not process.wait(60):
        process.kill()
    assert process.done().out == run(*RECOURSE).out


@pytest.mark.parametrize("name", ["policy.safetensors"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "endless"])
def test_a_training_with_something_endless_in_it_is_not_waited_for(name, make, folder, tmp_path, run):
    shutil.copytree(folder / "policy", tmp_path / "policy")
    (tmp_path / "policy" / name).unlink(missing_ok=True)
    make(tmp_path / "policy" / name)
    limited = functools.partial(resource.setrlimit, resource.RLIMIT_DATA, (8 << 30, 8 << 30))
    process = Process(["recourse", "people.csv", "--policy", str(tmp_path / "policy")], tmp_path, True, before=limited)
    if not process.wait(60):
        process.kill()
    process.done().check("has no policy.safetensors")


def test_a_command_does_not_append_to_what_it_reads(folder, tmp_path, run):
    for words in (RECOURSE, [*JUDGED, "--people", "people.csv"]):
        grows = tmp_path / "grows.csv"
        shutil.copy(folder / "people.csv", grows)
        there = [str(grows) if word == "people.csv" else word for word in words]

        def appended(grows=grows):
            os.dup2(os.open(grows, os.O_WRONLY | os.O_APPEND), 1)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # should it go on without end

        Process(there, tmp_path, True, before=appended).done().check("stdout is redirected to an input")
        assert grows.read_bytes() == (folder / "people.csv").read_bytes()


def test_absurd_values_are_refused_by_themselves(run, folder):
    income = ["1e300", "-1e308"]
    name = changed(folder, "absurd.csv", lambda frame: frame.__setitem__("income", [*income, *frame["income"][2:]]))
    done = run("recourse", name, *RECOURSE[2:], "--extrapolate")
    assert done.code == 1
    answers, usual = read(done.out), read(run(*RECOURSE).out)
    assert list(answers["status"][:2]) == ["invalid"] * 2
    assert answers["reason"][0].startswith("income is 1e300, too far outside the range ")
    others = usual[~usual["person"].isin(["P0", "P1"])].reset_index(drop=True)
    assert answers[2:].reset_index(drop=True).equals(others)


def test_wide_files_of_people_are_read_in_no_time(direct, capsys):
    header = [*direct.data.raw_features, *(f"further {i}" for i in range(40_000))]
    start = time.perf_counter()
    PeopleReader(direct.data)._check_header("wide.csv", header)
    assert time.perf_counter() - start < 5
