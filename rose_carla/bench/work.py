"""Run one cell, wherever that is: quietly, on so many threads, with a log, and with errors caught."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from rose_carla.bench.cells import Cell, Result
from rose_carla.errors import error_text
from threadpoolctl import threadpool_limits


@dataclass(frozen=True)
class Outcome:
    """How a cell went.

    Parameters
    ----------
    cell
        What was run.
    result
        None if it failed.
    error
        In one line; empty if it did not fail.
    log
        What the method printed, warned and logged, and where an error came from.
    seconds
        Of the whole cell.
    """

    cell: Cell
    result: Result | None
    error: str
    log: str
    seconds: float


def work(cell: Cell, needed: tuple[Result, ...], n_threads: int) -> Outcome:
    """Run a cell on ``n_threads`` threads of our own loops."""
    log = _Log()
    start = time.perf_counter()
    print(
        f"{time.strftime('%Y-%m-%d %H:%M:%S')} {cell.words}: on {socket.gethostname()}, threads {n_threads}", file=log
    )
    result, error = None, ""
    with threads(n_threads), _told_to(log):
        try:
            result = cell.run(*needed)
        except (Exception, SystemExit) as raised:  # whatever a method does ends its own cell only
            error = f"{type(raised).__name__}: {error_text(raised).rstrip('.')}"
            traceback.print_exc(file=log)
    seconds = time.perf_counter() - start
    about = "" if result is None else "".join(f"; {name} {value}" for name, value in result.about.items())
    print(f"{'finished' if result else 'failed'} after {seconds:.2f} s{about}", file=log)
    return Outcome(cell, result, error, log.getvalue(), seconds)


class _Log(io.StringIO):
    """A text that stays open: a method may close what it prints to."""

    def close(self) -> None:
        """Nothing."""


@contextlib.contextmanager
def threads(n: int) -> Iterator[None]:
    """Let our own loops use ``n`` threads, and torch and all libraries with pools of their own one, for a while.

    Ours compute the same bits on any number; a library may add in another order on another number, and so might tables
    differ between numbers of jobs. Networks as small as these also run fastest on one of torch's threads, which spin
    while they wait: beside another busy process several of them took ten times as long.
    """
    before, ours = torch.get_num_threads(), os.environ.get("ROSE_CARLA_THREADS")
    os.environ["ROSE_CARLA_THREADS"] = str(n)
    try:
        with threadpool_limits(1):
            torch.set_num_threads(1)  # whether or not the limits find it
            yield
    finally:
        torch.set_num_threads(before)
        if ours is None:
            del os.environ["ROSE_CARLA_THREADS"]
        else:
            os.environ["ROSE_CARLA_THREADS"] = ours


@contextlib.contextmanager
def _told_to(log: io.StringIO) -> Iterator[None]:
    """Everything that is printed, warned or logged goes to ``log``: a hundred progress bars are no help to anybody."""
    handler = logging.StreamHandler(log)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(log),
            contextlib.redirect_stderr(log),
        ):
            warnings.simplefilter("default")
            warnings.showwarning = _written_down  # whatever a command does with them
            yield
    finally:
        root.removeHandler(handler)


def _written_down(message: Any, category: Any, filename: str, lineno: int, *_: Any, **__: Any) -> None:
    print(warnings.formatwarning(message, category, filename, lineno), end="", file=sys.stderr)
