"""Run cells: in this process, in worker processes of this machine (pebble), or on a Dask cluster.

Both kinds of workers return futures, and :func:`run_jobs` is the one loop over them.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

import joblib
from pebble import ProcessExpired, ProcessPool
from rose_carla.bench import provenance
from rose_carla.bench.cells import PATIENCE, Cell, Outcome, Result, run_cell
from rose_carla.errors import ExperimentError, MissingPackageError, error_text

#: A cell with the results that it needs.
Job = tuple[Cell, tuple[Result, ...]]
#: Number of times that a cell is run whose worker process dies.
_ATTEMPTS = 2
#: Seconds after which the worker process of a cell is killed, for code that :func:`.time_limit` cannot interrupt.
_KILL_AFTER = 2 * PATIENCE
#: Seconds to wait for a Dask scheduler.
_CONNECT_TIMEOUT = 10


class Engine(Protocol):
    """Something that runs cells."""

    #: Whether cells run one at a time with the machine to themselves, so that their times can be compared.
    alone: bool
    #: Threads of each cell.
    n_threads: int
    #: Number of cells to submit before the first of them is finished.
    n_slots: int

    def submit(self, cell: Cell, needed: tuple[Result, ...]) -> Future[Outcome]:
        """Start a cell."""

    def close(self) -> None:
        """End worker processes and connections."""


class Local:
    """Cells in ``jobs`` worker processes of this machine, which share its cores; in this process if ``jobs`` is 1.

    Each worker has a pool of its own: processes that share a pipe would all hang after one of them is killed while it
    sends a large result. Scripts that use workers need ``if __name__ == "__main__":``.
    """

    def __init__(self, jobs: int = 1) -> None:
        if jobs < 1:
            raise ExperimentError(f"jobs must be at least 1, got {jobs}.")
        self.alone = jobs == 1
        self.n_slots = jobs
        self.n_threads = max(1, joblib.cpu_count() // jobs)
        self._workers: list[tuple[ProcessPool, Future[Outcome]]] = []

    def submit(self, cell: Cell, needed: tuple[Result, ...]) -> Future[Outcome]:
        """Run the cell here, or start it in a worker that is free."""
        future: Future[Outcome]
        if self.alone:
            future = Future()
            future.set_result(run_cell(cell, needed, self.n_threads))
            return future
        pool = self._free_worker()
        with _sigint_blocked():
            future = pool.schedule(run_cell, args=(cell, needed, self.n_threads), timeout=_KILL_AFTER)
        self._workers.append((pool, future))
        return future

    def _free_worker(self) -> ProcessPool:
        for worker in [worker for worker in self._workers if worker[1].done()]:
            pool, last = worker
            self._workers.remove(worker)
            if pool.active and last.exception() is None:
                return pool
            _stop(pool)  # its worker was killed, perhaps in the middle of a message
        context = multiprocessing.get_context("spawn")  # threads of torch and numba do not survive a fork
        return ProcessPool(1, initializer=_exit_with_parent, initargs=(os.getpid(),), context=context)

    def close(self) -> None:
        """End the worker processes."""
        while self._workers:
            _stop(self._workers.pop()[0])


class Dask:
    """Cells on the workers of a Dask cluster, one at a time on each.

    Results travel through the scheduler, so the workers need this package but not a shared folder. When a worker dies,
    Dask gives its cell to another.

    Parameters
    ----------
    scheduler
        Its address, such as ``tcp://10.0.0.1:8786``.
    """

    alone = False
    n_threads = 1
    n_slots = sys.maxsize

    def __init__(self, scheduler: str) -> None:
        try:
            import distributed
        except ImportError as error:
            raise MissingPackageError(
                "Running on a Dask cluster needs Dask: pip install 'rose-carla[dask]', here and for its workers."
            ) from error
        with contextlib.ExitStack() as on_error:
            try:
                self._client: Any = distributed.Client(scheduler, timeout=_CONNECT_TIMEOUT)
                on_error.callback(self._client.close)
                self._client.wait_for_workers(1, timeout=_CONNECT_TIMEOUT)
            except (OSError, ValueError, asyncio.TimeoutError) as error:
                raise ExperimentError(
                    f"There is no Dask cluster with a worker at {scheduler!r} ({error}): start `dask scheduler`, and "
                    "`dask worker ADDRESS --nthreads 1` once for each core to be used."
                ) from error
            self._check_workers()
            on_error.pop_all()
        self._executor: Any = self._client.get_executor(pure=False)

    def _check_workers(self) -> None:
        """Check that each worker runs one cell at a time, because cells seed global generators, and has our code."""
        for name, about in self._client.scheduler_info(n_workers=-1)["workers"].items():
            if about["nthreads"] != 1:
                raise ExperimentError(
                    f"The worker {name} runs {about['nthreads']} cells at a time in one process: start it with "
                    "--nthreads 1."
                )
        here = _code()
        for name, there in self._client.run(_code).items():
            for part in here:
                if there[part] != here[part]:
                    raise ExperimentError(
                        f"The worker {name} has another {part} ({there[part]:.12} there, {here[part]:.12} here): "
                        "install the same everywhere."
                    )

    def submit(self, cell: Cell, needed: tuple[Result, ...]) -> Future[Outcome]:
        """Hand the cell to the scheduler."""
        future: Future[Outcome] = self._executor.submit(_run_on_dask_worker, cell, needed, self.n_threads)
        return future

    def close(self) -> None:
        """End the connection; the cluster goes on."""
        self._client.close()


def run_jobs(engine: Engine, jobs: Iterable[Job]) -> Iterator[Outcome]:
    """Yield the outcome of each job as it finishes; a cell whose worker process dies is tried once more."""
    waiting = deque((job, 1) for job in jobs)
    running: dict[Future[Outcome], tuple[Job, int]] = {}
    while waiting or running:
        while waiting and len(running) < engine.n_slots:
            job, attempt = waiting.popleft()
            running[engine.submit(*job)] = job, attempt
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            job, attempt = running.pop(future)
            error = CancelledError("the scheduler is gone") if future.cancelled() else future.exception()
            if error is None:
                yield future.result()
            elif isinstance(error, (ProcessExpired, BrokenProcessPool)) and attempt < _ATTEMPTS:
                waiting.append((job, attempt + 1))
            else:
                words = _describe(error)
                yield Outcome(job[0], None, words, f"{words}\n{error!r}\n", 0.0)


def _describe(error: BaseException) -> str:
    if isinstance(error, (ProcessExpired, BrokenProcessPool)):
        return "The worker process died: the machine may be short of memory, try fewer jobs."
    if isinstance(error, TimeoutError):
        return f"TimeoutError: the worker process was killed after {_KILL_AFTER:.0f} s"
    return f"{type(error).__name__}: {error_text(error).rstrip('.')}"


def _stop(pool: ProcessPool) -> None:
    pool.stop()
    pool.join()


@contextlib.contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Start worker processes that ignore Ctrl-C, also while they import; this process ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _exit_with_parent(parent: int) -> None:
    """End this worker process when the process that started it is killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_on_dask_worker(cell: Cell, needed: tuple[Result, ...], n_threads: int) -> Outcome:
    """Run a cell in a thread, where no signal can interrupt it: the worker process ends when the time is over."""
    timer = threading.Timer(_KILL_AFTER, os._exit, (1,))
    timer.daemon = True
    timer.start()
    try:
        return run_cell(cell, needed, n_threads)
    finally:
        timer.cancel()


def _code() -> dict[str, str]:
    return {**provenance.versions(), "source": provenance.fingerprint(*provenance.all_modules())}
