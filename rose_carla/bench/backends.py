"""Where cells run: in this process or several through joblib, or on a Dask cluster."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError
from rose_carla._lib.threads import n_cores
from rose_carla.bench import sources
from rose_carla.bench.aside import take, work_aside
from rose_carla.bench.cells import Cell, Result
from rose_carla.bench.work import Outcome, work
from rose_carla.errors import ExperimentError, MissingPackageError

#: A cell with the results that it needs.
Job = tuple[Cell, tuple[Result, ...]]
#: How often a cell is tried again whose process may have been killed.
_TRIES = 3
#: Seconds to wait for a scheduler.
_WAIT = 10


class Backend(Protocol):
    """Something that runs cells."""

    #: Whether cells run one at a time with the machine to themselves, so that their times can be compared.
    alone: bool
    #: Threads of each cell.
    n_threads: int

    def outcomes(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Run all jobs; outcomes come as they are finished, in any order."""

    def close(self) -> None:
        """Let go of processes and connections."""


class Local:
    """Cells in ``jobs`` processes of this machine, which share out its cores; one job needs no further process."""

    def __init__(self, jobs: int = 1) -> None:
        if jobs < 1:
            raise ExperimentError(f"jobs has to be at least 1, got {jobs}.")
        self.jobs = jobs
        self.alone = jobs == 1
        self.n_threads = max(1, n_cores() // jobs)

    def outcomes(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Run all jobs; where a process is killed, its cell is tried again three times before it is given up."""
        if self.alone:
            for cell, needed in jobs:
                yield work(cell, needed, self.n_threads)
            return
        left = {cell.key: (cell, needed) for cell, needed in jobs}
        while left:
            begun: dict[str, Cell] = {}
            try:
                for outcome in self._side_by_side(list(left.values()), begun):
                    del left[outcome.cell.key]
                    yield outcome
            except TerminatedWorkerError:
                pass  # nobody knows whose process it was: what may have run there is tried by itself
            for key in begun:
                if key in left:
                    yield self._by_itself(left.pop(key))

    def _by_itself(self, job: Job) -> Outcome:
        """One job with no other beside it, so that a process that is killed is its own."""
        told = ""
        for _ in range(_TRIES):
            try:
                (outcome,) = self._side_by_side([job], {})
                return outcome
            except TerminatedWorkerError as error:
                told = str(error)
        message = "The process was killed: the machine may be short of memory, try fewer jobs."
        return Outcome(job[0], None, message, f"{message}\n{told}\n", 0.0)

    def _side_by_side(self, jobs: Sequence[Job], begun: dict[str, Cell]) -> Iterator[Outcome]:
        """Jobs in as many processes as are needed; those that were handed out are in ``begun``, under their keys."""
        n = max(2, min(self.jobs, len(jobs)))  # joblib would take one for this process
        with (
            tempfile.TemporaryDirectory(prefix="rose-carla-") as folder,
            joblib.parallel_config("loky", n_jobs=n, inner_max_num_threads=1),
        ):
            parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")
            calls = (joblib.delayed(work_aside)(*job, self.n_threads, folder) for job in _noted(jobs, begun))
            for path in map(Path, parallel(calls)):
                yield take(begun[path.stem], path)

    def close(self) -> None:
        """End the processes."""
        if not self.alone:
            joblib.externals.loky.get_reusable_executor().shutdown(wait=True)


class Dask:
    """Cells on the workers of a Dask cluster, one at a time on each.

    Results travel through the scheduler, so workers need this package but no shared folder. When a worker dies, Dask
    gives its cell to another.

    Parameters
    ----------
    scheduler
        Its address, such as ``tcp://10.0.0.1:8786``.
    """

    alone = False
    n_threads = 1

    def __init__(self, scheduler: str) -> None:
        try:
            import distributed
        except ImportError as error:
            raise MissingPackageError(
                "Running on a Dask cluster needs Dask: pip install 'rose-carla[dask]', here and for its workers."
            ) from error
        self._distributed: Any = distributed
        with contextlib.ExitStack() as refused:
            try:
                self._client = distributed.Client(scheduler, timeout=_WAIT)
                refused.callback(self._client.close)
                self._client.wait_for_workers(1, timeout=_WAIT)
            except (OSError, ValueError, asyncio.TimeoutError) as error:
                raise ExperimentError(
                    f"There is no Dask cluster with a worker at {scheduler!r} ({error}): start `dask scheduler`, and "
                    "`dask worker ADDRESS --nthreads 1` once for each core to be used."
                ) from error
            self._check()
            refused.pop_all()

    def _check(self) -> None:
        """Cells seed global generators, so they need a process each; and the same code has to run everywhere."""
        for name, about in self._client.scheduler_info(n_workers=-1)["workers"].items():
            if about["nthreads"] != 1:
                raise ExperimentError(
                    f"The worker {name} runs {about['nthreads']} cells at a time in one process: start it with "
                    "--nthreads 1."
                )
        here = _code()
        for name, there in self._client.run(_code).items():
            for what in here:
                if there[what] != here[what]:
                    raise ExperimentError(
                        f"The worker {name} has another {what} ({there[what]:.12} there, {here[what]:.12} here): "
                        "install the same everywhere."
                    )

    def outcomes(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Run all jobs."""
        futures = {self._client.submit(work, cell, needed, self.n_threads, pure=False): cell for cell, needed in jobs}
        for future in self._distributed.as_completed(list(futures)):
            cell = futures.pop(future)
            error = future.exception()
            if error is None:
                yield future.result()
            else:
                yield Outcome(cell, None, f"{type(error).__name__}: {error}", f"{error!r}\n", 0.0)
            future.release()

    def close(self) -> None:
        """End the connection; the cluster goes on."""
        self._client.close()


def _noted(jobs: Iterable[Job], begun: dict[str, Cell]) -> Iterator[Job]:
    """The same jobs; those that were handed out are noted down."""
    for cell, needed in jobs:
        begun[cell.key] = cell
        yield cell, needed


def _code() -> dict[str, str]:
    return {**sources.versions(), "source": sources.fingerprint()}
