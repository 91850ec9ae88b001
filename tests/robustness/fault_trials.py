"""Trials of faults: commands in processes of their own, to which something happens, and a look at what they leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cli_examples import ROLES, people
from rose_carla._lib.files import load_arrays
from rose_carla.cli import main

#: Methods of a small run of the benchmark, and of one that is smaller still.
METHODS, QUICK_METHODS = ("GrSp", "Wachter", "PROBE"), ("GrSp",)
#: A training of seconds.
QUICK = ['ppo={"n_updates": 1, "n_envs": 8, "n_steps": 4}', "search=false"]
TIMES = ["Recourse_Time", "Training_Time"]
#: Seconds that no command of the trials needs.
LONG = 400
#: How often a fault was tried, and what came of it.
Came = tuple[int, str]


class NotTried(Exception):
    """A fault that cannot be brought about here, and why."""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    def check(self, *words: str, code: int = 2) -> None:
        """It ended so, with these words and without a traceback."""
        assert self.code == code, (self.code, self.err)
        assert "Traceback" not in self.err, self.err
        for each in words:
            assert each in self.err, (each, self.err)


class Process:
    """``rose-carla`` with some words: in a new interpreter, or, to be quick, as a fork of this one.

    Parameters
    ----------
    words
        What follows the program's name.
    folder
        For what it says.
    forked
        Whether to fork.
    before
        Called in the new process before anything else.
    env
        Of a new interpreter.
    out
        File to which stdout goes instead.
    """

    def __init__(
        self,
        words: list[str],
        folder: Path,
        forked: bool,
        before: Callable[[], object] = lambda: None,
        env: dict[str, str] | None = None,
        out: Path | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._code: int | None = None
        self._out, self._err = out or folder / "stdout", folder / "stderr"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        streams = [os.open(os.devnull, os.O_RDONLY), os.open(self._out, flags), os.open(self._err, flags)]
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.setsid()
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                before()
                if not forked:
                    os.execve(sys.executable, [sys.executable, "-m", "rose_carla", *words], env or dict(os.environ))
                code = _main(words)
            finally:
                os._exit(code)
        for stream in streams:
            os.close(stream)

    def poll(self) -> int | None:
        """The exit code if it has ended, negative for the signal that ended it."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self, seconds: float = LONG) -> bool:
        """Whether it ends within so many seconds."""
        end = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        return self.poll() is not None

    def kill(self) -> None:
        """Kill it and all of its processes, as ``kill -9`` does."""
        os.killpg(self.pid, signal.SIGKILL)
        assert self.wait()

    def done(self) -> Done:
        """Its end."""
        if not self.wait():
            self.kill()
            raise AssertionError("the command hangs")
        assert self._code is not None
        out = self._out.read_text() if self._out.is_file() else ""
        return Done(self._code, out, self._err.read_text())


def _main(words: list[str]) -> int:
    """As a new interpreter would start: streams that are closed are None."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            stream = open(number, mode, closefd=False)  # noqa: SIM115 - of the whole process
        except OSError:
            stream = None
        setattr(sys, name, stream)
    code = main(words)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code


@dataclass
class Trial:
    """Where, how often and how a fault is tried.

    Parameters
    ----------
    folder
        Empty at first.
    times
        How often, where that is open.
    quick
        Fork processes instead of starting interpreters, and compute fewer cells, in one process.
    rng
        For random moments and sizes.
    """

    folder: Path
    times: int = 1
    quick: bool = False
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def start(self, words: list[str], **options: Any) -> Process:
        """A command in a process of its own."""
        return Process(words, self.folder / "told", self.quick, **options)

    def run(self, words: list[str], **options: Any) -> Done:
        """A command to its end."""
        return self.start(words, **options).done()

    def benchmark(self, folder: Path, cells: Path | None = None) -> list[str]:
        """The command that makes a small Table 1 below ``folder``."""
        methods, jobs = (QUICK_METHODS, "1") if self.quick else (METHODS, "2")
        return [
            "table1", "--quick", "--datasets", "compas", "--methods", *methods, "--jobs", jobs,
            "--out", str(folder / "out"), "--cells", str(cells or folder / "cells"),
        ]  # fmt: skip

    @property
    def n_cells(self) -> int:
        """Cells of the benchmark."""
        return 4 * len(QUICK_METHODS if self.quick else METHODS)

    def calm(self) -> pd.DataFrame:
        """The table of a run to which nothing happens."""
        self.run(self.benchmark(self.folder / "calm")).check(code=0)
        return table(self.folder / "calm")

    def small(self, *options: str, name: str = "small") -> Small:
        """A folder with a table, people and a training, with options of the method."""
        small = Small(self.folder / name)
        small.folder.mkdir()
        people().to_csv(small.folder / "loans.csv", index=False)
        people().drop(columns="loan").head(60).to_csv(small.folder / "people.csv", index=False)
        self.run(small.train(*options)).check(code=0)
        return small


class Small:
    """A folder with a table, people and a training of a policy."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.policy = folder, folder / "policy"

    def train(self, *options: str, out: Path | None = None) -> list[str]:
        """The command that trains."""
        chosen = [word for each in (*QUICK, *options) for word in ("--set", each)]
        loans, out = self.folder / "loans.csv", out or self.policy
        return ["train", str(loans), *ROLES, "--model", "linear", *chosen, "--out", str(out)]

    def recourse(self, *further: object) -> list[str]:
        """The command that plans."""
        return ["recourse", str(self.folder / "people.csv"), "--policy", str(self.policy), *map(str, further)]


def finished(folder: Path) -> dict[Path, tuple[int, int]]:
    """Cells that are there, and what would tell that one was written again."""
    found = (folder / "cells").rglob("*.safetensors")
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def check_cells(folder: Path) -> None:
    """Whatever has the name of a finished cell is one."""
    for path in finished(folder):
        load_arrays(path)


def table(folder: Path) -> pd.DataFrame:
    """What a run of the benchmark says of every person, without times."""
    return pd.read_csv(folder / "out" / "table1-people.csv").drop(columns=TIMES)


def workers_of(pid: int) -> list[int]:
    """Processes that compute cells for another one."""
    told = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line.split()[0]) for line in told.stdout.splitlines() if "spawn_main" in line]


def crash_points(write: Callable[[], object]) -> Iterator[int]:
    """Have ``write`` killed at every step that reaches the disk, one after the other; yields after each.

    Every trial is a process of its own that kills itself at its first, second, ... of these steps: a file is about to
    be brought to the disk, is about to be renamed, has been renamed. The last trial gets through.
    """
    for last in range(1, 1000):
        through = gets_through(write, last)
        yield last
        if through:
            return
    raise AssertionError("it never gets through")


def gets_through(write: Callable[[], object], last: int) -> bool:
    """Whether ``write`` ends before its step ``last``, at which it is killed."""
    child = os.fork()
    if child == 0:
        _die_at_step(last)
        try:
            write()
        finally:
            os._exit(0)
    return os.WIFEXITED(os.waitpid(child, 0)[1])


def _die_at_step(last: int) -> None:
    steps = iter(range(1, last))
    fsync, replace = os.fsync, os.replace

    def step() -> None:
        if next(steps, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(LONG)

    def synced(file: int) -> None:
        step()
        fsync(file)

    def replaced(source: Any, target: Any) -> None:
        step()
        replace(source, target)
        step()

    os.fsync, os.replace = synced, replaced
