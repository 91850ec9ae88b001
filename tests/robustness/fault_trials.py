"""Harness of the fault tests: run commands in their own processes, kill them, and inspect the files they leave."""

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

#: Methods of the small benchmark, and of its quick form.
METHODS, QUICK_METHODS = ("GrSp", "Wachter", "PROBE"), ("GrSp",)
#: Hyper-parameters of a policy that is trained in seconds.
QUICK_TRAINING = ['ppo={"n_updates": 1, "n_envs": 8, "n_steps": 4}', "search=false"]
TIMES = ["Recourse_Time", "Training_Time"]
#: Seconds after which a command counts as hanging.
TIMEOUT = 400
#: Number of trials and their outcome.
Outcome = tuple[int, str]


class NotTried(Exception):
    """The fault cannot be injected on this machine."""


@dataclass(frozen=True)
class Completed:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    def check(self, *words: str, code: int = 2) -> None:
        """Check the exit code, that there is no traceback, and that ``words`` are in the message."""
        assert self.code == code, (self.code, self.err)
        assert "Traceback" not in self.err, self.err
        for each in words:
            assert each in self.err, (each, self.err)


class Process:
    """The command ``rose-carla words``, in a new interpreter or, to be quick, in a fork of this one.

    Output goes to files in ``folder``, stdout to ``out`` if given; ``before`` is called in the new process.
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
                code = run_main(words)
            finally:
                os._exit(code)
        for stream in streams:
            os.close(stream)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while the process runs."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self, seconds: float = TIMEOUT) -> bool:
        """Return whether the process ends within so many seconds."""
        end = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        return self.poll() is not None

    def kill(self) -> None:
        """Kill the process and its children with SIGKILL."""
        os.killpg(self.pid, signal.SIGKILL)
        assert self.wait()

    def complete(self, seconds: float = TIMEOUT) -> Completed:
        """Wait for the end of the process and return its output."""
        if not self.wait(seconds):
            self.kill()
            raise AssertionError("the command hangs")
        assert self._code is not None
        out = self._out.read_text() if self._out.is_file() else ""
        return Completed(self._code, out, self._err.read_text())


def run_main(words: list[str]) -> int:
    """Run the command with streams as a new interpreter opens them: None if they are closed."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            stream = open(number, mode, closefd=False)  # noqa: SIM115 - for the whole process
        except OSError:
            stream = None
        setattr(sys, name, stream)
    code = main(words)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code


@dataclass
class Trial:
    """How a fault is tried."""

    #: An empty folder.
    folder: Path
    #: Number of trials of a fault that happens at random.
    times: int = 1
    #: Fork processes instead of starting interpreters, and compute fewer cells, in one process.
    quick: bool = False
    #: For random moments and sizes.
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def start(self, words: list[str], **options: Any) -> Process:
        """Start a command."""
        return Process(words, self.folder / "output", self.quick, **options)

    def run(self, words: list[str], **options: Any) -> Completed:
        """Run a command to its end."""
        return self.start(words, **options).complete()

    def benchmark(self, folder: Path, cells: Path | None = None) -> list[str]:
        """Return the command for a small Table 1 in ``folder``."""
        methods, jobs = (QUICK_METHODS, "1") if self.quick else (METHODS, "2")
        return [
            "table1", "--quick", "--datasets", "compas", "--methods", *methods, "--jobs", jobs,
            "--out", str(folder / "out"), "--cells", str(cells or folder / "cells"),
        ]  # fmt: skip

    @property
    def n_cells(self) -> int:
        """Number of cells of the benchmark."""
        return 4 * len(QUICK_METHODS if self.quick else METHODS)

    def undisturbed(self) -> pd.DataFrame:
        """Return the table of a run without faults."""
        self.run(self.benchmark(self.folder / "undisturbed")).check(code=0)
        return table(self.folder / "undisturbed")

    def example(self, *options: str, name: str = "example") -> Example:
        """Return a folder with data, people and a policy, trained with ``options``."""
        example = Example(self.folder / name)
        example.folder.mkdir()
        people().to_csv(example.folder / "loans.csv", index=False)
        people().drop(columns="loan").head(60).to_csv(example.folder / "people.csv", index=False)
        self.run(example.train(*options)).check(code=0)
        return example


class Example:
    """A folder with data, people and a policy."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.policy = folder, folder / "policy"

    def train(self, *options: str, out: Path | None = None) -> list[str]:
        """Return the command that trains the policy."""
        chosen = [word for each in (*QUICK_TRAINING, *options) for word in ("--set", each)]
        loans, out = self.folder / "loans.csv", out or self.policy
        return ["train", str(loans), *ROLES, "--model", "linear", *chosen, "--out", str(out)]

    def recourse(self, *further: object) -> list[str]:
        """Return the command that computes plans."""
        return ["recourse", str(self.folder / "people.csv"), "--policy", str(self.policy), *map(str, further)]


def stored_cells(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return the stored cells with inode and time, which change if one is written again."""
    walk = os.walk(folder / "cells")  # unlike rglob it accepts that folders disappear
    found = [Path(parent, name) for parent, _, names in walk for name in names if name.endswith(".safetensors")]
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def check_cells(folder: Path) -> None:
    """Check that all stored cells can be loaded."""
    for path in stored_cells(folder):
        load_arrays(path)


def table(folder: Path) -> pd.DataFrame:
    """Return the results of all people without the times."""
    return pd.read_csv(folder / "out" / "table1-people.csv").drop(columns=TIMES)


def workers_of(pid: int) -> list[int]:
    """Return the worker processes of a benchmark."""
    ps = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line.split()[0]) for line in ps.stdout.splitlines() if "spawn_main" in line]


def crash_points(write: Callable[[], object]) -> Iterator[int]:
    """Run ``write`` in one process after the other, the i-th of which kills itself at its i-th step; yield after each.

    A step is: before a file is flushed to the disk, before it is renamed, after it is renamed. The last process
    completes.
    """
    for last in range(1, 1000):
        completes = run_until_step(write, last)
        yield last
        if completes:
            return
    raise AssertionError("it never completes")


def run_until_step(write: Callable[[], object], last: int) -> bool:
    """Run ``write`` in a process that is killed at step ``last``; return whether it completes before."""
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
            time.sleep(TIMEOUT)

    def dying_fsync(file: int) -> None:
        step()
        fsync(file)

    def dying_replace(source: Any, target: Any) -> None:
        step()
        replace(source, target)
        step()

    os.fsync, os.replace = dying_fsync, dying_replace
