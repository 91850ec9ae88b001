"""Hostile input of the command line: control characters, pipes and devices, output into an input, extreme values."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import resource
import shutil
import struct
import termios
import threading

import pytest
from cli_examples import ROLES, changed, read
from fault_trials import Process, run_main
from rose_carla.datasets.csv_files import PeopleReader

pytest_plugins = ("cli_examples",)  # its fixtures

RECOURSE = ["recourse", "people.csv", "--policy", "policy", "--id", "name"]
EVALUATE = ["evaluate", "--policy", "policy", "--samples", "5", "--limit", "2"]
QUICK = ["table1", "--quick", "--jobs", "1", "--classifier", "linear", "--datasets", "compas"]
#: Clears the screen of a terminal.
ESC = "\x1b[2J"
METHODS = f"""
from fake_methods import Liked

class Breaks(Liked):
    def get_counterfactuals(self, factuals):
        raise ValueError({ESC!r} + "\\n" + {ESC!r})

globals()[{ESC!r}] = Liked
"""


def run_in_terminal(words):
    """Run a command in a fork with a terminal of 200 columns, and return everything it prints."""
    pid, terminal = os.forkpty()
    if pid == 0:
        code = 1
        try:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
            code = run_main(words)
        finally:
            os._exit(code)
    output = b""
    with contextlib.suppress(OSError):  # raised at the end
        while part := os.read(terminal, 65536):
            output += part
    os.waitpid(pid, 0)
    os.close(terminal)
    return output.decode(errors="replace")


@pytest.fixture(scope="module")
def hostile(folder):
    """The folder with names that clear the screen."""
    (folder / "cli_hostile.py").write_text(METHODS)
    shutil.copy(folder / "people.csv", folder / f"{ESC}.csv")
    changed(folder, "hostile.csv", lambda frame: frame.__setitem__("name", ESC + frame["name"]))
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["recourse", "hostile.csv", "--policy", "policy", "--id", "name"],
        ["recourse", "hostile.csv", "--policy", "policy", "--id", "name", "--format", "text"],
        [*EVALUATE, "--people", "hostile.csv", "--id", "name", "--per-person", "-"],
        [*EVALUATE, "--people", "people.csv", "--counterfactuals", f"{ESC}.csv"],
        [*EVALUATE, "--people", "people.csv", "--methods", "cli_hostile:Breaks"],
        ["datasets", f"{ESC}.csv", *ROLES, "--ignore", "name"],
        ["check", f"cli_hostile:{ESC}", "--limit", "2"],
        ["table1", f"--x{ESC}\ny"],
        [*QUICK, "--methods", f"cli_hostile:{ESC}", "cli_hostile:Breaks", "--out", f"o{ESC}", "--cells", f"c{ESC}"],
    ],
    ids=lambda words: " ".join(words[:1] + words[-2:]).encode("unicode_escape").decode(),
)
def test_control_characters_are_escaped(words, hostile, run):
    output = run_in_terminal(words)
    assert ESC not in output
    assert "\\x1b[2J" in output
    assert "Traceback" not in output


def test_control_characters_in_json_are_kept_as_escapes(hostile, run):
    out = run("recourse", "hostile.csv", "--policy", "policy", "--id", "name", "--format", "json").out
    assert json.loads(out.splitlines()[7])["person"] == f"{ESC}P7"
    assert all(character.isprintable() or character == "\n" for character in out)


def test_control_characters_in_tracebacks_are_escaped(hostile, run, monkeypatch):
    monkeypatch.setattr(PeopleReader, "chunks", lambda *_: (_ for _ in ()).throw(ValueError(f"{ESC}\r{ESC}")))
    output = run_in_terminal(RECOURSE)
    assert "This is a bug in rose-carla" in output
    assert "Traceback" in output
    assert ESC not in output


def test_named_pipe_is_read_once(run, folder, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes((folder / "people.csv").read_bytes()), daemon=True)
    writer.start()
    process = Process(["recourse", str(pipe), *RECOURSE[2:]], tmp_path, forked=True)
    assert process.complete(60).out == run(*RECOURSE).out


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_pipes_and_devices_are_not_read_as_policies(make, folder, tmp_path, run):
    shutil.copytree(folder / "policy", tmp_path / "policy")
    (tmp_path / "policy" / "policy.safetensors").unlink()
    make(tmp_path / "policy" / "policy.safetensors")
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_DATA, (8 << 30, 8 << 30))
    words = ["recourse", "people.csv", "--policy", str(tmp_path / "policy")]
    Process(words, tmp_path, forked=True, before=limit).complete(60).check("has no policy.safetensors")


def test_output_is_not_appended_to_an_input(folder, tmp_path, run):
    people = tmp_path / "people.csv"
    for words in (RECOURSE, [*EVALUATE, "--people", "people.csv"]):
        shutil.copy(folder / "people.csv", people)

        def append_stdout():
            os.dup2(os.open(people, os.O_WRONLY | os.O_APPEND), 1)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # in case of an endless loop

        words = [str(people) if word == "people.csv" else word for word in words]
        Process(words, tmp_path, forked=True, before=append_stdout).complete().check("stdout is redirected to an input")
        assert people.read_bytes() == (folder / "people.csv").read_bytes()


def test_people_with_extreme_values_are_invalid(run, folder):
    income = ["1e300", "-1e308"]
    name = changed(folder, "extreme.csv", lambda frame: frame.__setitem__("income", [*income, *frame["income"][2:]]))
    done = run("recourse", name, *RECOURSE[2:], "--extrapolate")
    assert done.code == 1
    answers, usual = read(done.out), read(run(*RECOURSE).out)
    assert list(answers["status"][:2]) == ["invalid"] * 2
    assert answers["reason"][0].startswith("income is 1e300, too far outside the range ")
    others = usual[~usual["person"].isin(["P0", "P1"])].reset_index(drop=True)
    assert answers[2:].reset_index(drop=True).equals(others)
