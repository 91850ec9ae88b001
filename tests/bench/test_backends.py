"""Where cells run: here, in processes that may be killed, on a Dask cluster; and what is around each of them."""

from __future__ import annotations

import itertools
import json
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from dataclasses import dataclass

import fake_methods
import numpy as np
import pytest
import torch
from rose_carla import bench
from joblib.externals.loky.process_executor import TerminatedWorkerError
from rose_carla.bench import Dask, Judgement, Local, Recourse, Setting, Store, backends
from rose_carla.bench.work import Outcome, work
from rose_carla.errors import ExperimentError
from rose_carla.metrics import NoiseSettings
from threadpoolctl import threadpool_limits

SETTING = Setting("compas", "linear", people=4)
FEW = NoiseSettings.from_mapping({"n_samples": 50})
METRICS = ("Validity", "Plausible_AIR", "Acc_AIR")


def judged(method, **options):
    return Judgement(Recourse.with_options(SETTING, method, **options), METRICS, FEW)


def run(judgements, folder, backend):
    return bench.run(judgements, Store(folder), backend, progress=False)


def assert_same_arrays(expected, finished, cell, under=None):
    """What ``finished`` has for a cell, or for the cell ``under`` which should be its equal, is what is expected."""
    for ours, theirs in ((cell, under or cell), (cell.recourse, (under or cell).recourse)):
        arrays = finished.results[theirs].arrays
        assert arrays.keys() == expected.results[ours].arrays.keys()
        for name, array in expected.results[ours].arrays.items():
            np.testing.assert_array_equal(arrays[name], array, err_msg=f"{theirs.words}: {name}")


def test_two_processes_compute_what_one_does_even_if_some_are_killed(tmp_path, monkeypatch):
    # the limits have to be ours: neither those of the tests, nor what joblib would choose for a machine of two cores
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(backends, "n_cores", lambda: 6)
    monkeypatch.setattr("joblib._parallel_backends.cpu_count", lambda **_: 6)
    monkeypatch.setattr(backends, "_TRIES", 2)  # each takes seconds
    plain = [judged(name) for name in ("GrSp", "PROBE", "fake_methods:Liked")]
    tells, unlucky, doomed = (
        judged(f"fake_methods:{name}", folder=str(tmp_path)) for name in ("Tells", "DiesOnce", "Dies")
    )
    two = Local(2)
    finished = run([plain[0], tells, unlucky, *plain[1:], doomed], tmp_path / "two", two)
    two.close()
    assert set(finished.errors) == {doomed, doomed.recourse}
    assert "The process was killed" in finished.errors[doomed]
    assert len([*tmp_path.glob("DiesOnce-*")]) >= 2
    assert len([*tmp_path.glob("Dies-*")]) >= 2
    expected = run(plain, tmp_path / "one", Local(1))
    for cell in plain:
        assert_same_arrays(expected, finished, cell)
    assert_same_arrays(expected, finished, plain[2], unlucky)
    for cell in (*plain, unlucky):
        assert finished.results[cell.recourse].about["alone"] is False
    threads = json.loads((tmp_path / "threads.json").read_text())
    assert threads.pop("ours") == two.n_threads == 3
    assert {"torch", "loaded later"} < threads.keys()
    assert set(threads.values()) == {1}


@dataclass(frozen=True)
class Killing:
    """A cell whose process is killed so often."""

    key: str
    often: int


def test_every_cell_is_tried_again_three_times_whoever_else_is_killed(monkeypatch):
    doomed = [Killing(f"doomed {i}", 99) for i in range(3)]
    unlucky = [Killing(f"unlucky {i}", often) for i, often in enumerate((0, 1, 2, 3, 0))]
    runs = Counter()

    def side_by_side(self, jobs, begun):
        waiting = iter(jobs)
        while together := [cell for cell, _ in itertools.islice(waiting, self.jobs)]:
            begun.update((cell.key, cell) for cell in together)
            runs.update(together)
            if any(runs[cell] <= cell.often for cell in together):
                raise TerminatedWorkerError
            yield from (Outcome(cell, "a result", "", "", 0.0) for cell in together)

    monkeypatch.setattr(Local, "_side_by_side", side_by_side)
    outcomes = [*Local(2).outcomes([(cell, ()) for cell in (*doomed, *unlucky)])]
    assert {outcome.cell: outcome.result for outcome in outcomes} == {
        **dict.fromkeys(doomed, None),
        **dict.fromkeys(unlucky, "a result"),
    }
    assert len(outcomes) == len(doomed) + len(unlucky)
    assert {runs[cell] for cell in doomed} == {1 + 3}
    assert all("The process was killed" in outcome.error for outcome in outcomes if outcome.cell in doomed)


def test_libraries_have_one_thread_whatever_the_number_of_ours(tmp_path):
    cell, before = judged("fake_methods:Tells", folder=str(tmp_path)).recourse, torch.get_num_threads()
    try:
        with threadpool_limits(4):
            torch.set_num_threads(4)
            assert not work(cell, (), 3).error
    finally:
        torch.set_num_threads(before)
    threads = json.loads((tmp_path / "threads.json").read_text())
    assert threads.pop("ours") == 3
    assert len(threads) > 2
    assert set(threads.values()) == {1}


@pytest.mark.parametrize("cores", [1, 2, 3, 8])
def test_cores_are_shared_out_and_not_oversubscribed(monkeypatch, cores):
    monkeypatch.setattr(backends, "n_cores", lambda: cores)
    for jobs in range(1, 12):
        backend = Local(jobs)
        assert backend.n_threads >= 1
        assert backend.n_threads * jobs <= max(cores, jobs)
        assert backend.alone == (jobs == 1)
    assert Local(1).n_threads == cores
    with pytest.raises(ExperimentError, match="at least 1, got 0"):
        Local(0)


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=logging.CRITICAL
    ) as made:
        yield made


def test_a_dask_worker_may_be_killed_in_the_middle_of_a_cell(cluster, tmp_path):
    wanted = [judged("fake_methods:WaitsOnce", folder=str(tmp_path)), judged("GrSp"), judged("PROBE")]
    killed = []

    def kill():
        while not (notes := [*tmp_path.glob("WaitsOnce-*")]):
            time.sleep(0.05)
        killed.append(int(notes[0].name.split("-")[1]))
        os.kill(killed[0], signal.SIGKILL)

    backend = Dask(cluster.scheduler_address)
    threading.Thread(target=kill, daemon=True).start()
    finished = run(wanted, tmp_path / "dask", backend)
    backend.close()
    assert not finished.errors
    workers = {int(note.name.split("-")[1]) for note in tmp_path.glob("WaitsOnce-*")}
    assert len(workers) == 2
    assert killed[0] in workers
    assert os.getpid() not in workers
    expected = run(wanted, tmp_path / "local", Local(1))
    for cell in wanted:
        assert_same_arrays(expected, finished, cell)


def test_dask_workers_with_other_code_are_refused(cluster, monkeypatch):
    monkeypatch.setattr(backends.code, "fingerprint", lambda: "0123456789abcdef")
    with pytest.raises(ExperimentError, match=r"has another source \(.* there, 0123456789ab here\)"):
        Dask(cluster.scheduler_address)


def test_dask_workers_that_run_two_cells_in_one_process_are_refused():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as made:
        with pytest.raises(ExperimentError, match="runs 2 cells at a time in one process: start it with --nthreads 1"):
            Dask(made.scheduler_address)
        with pytest.raises(ValueError, match="No clients found"):
            distributed.Client.current()


def test_a_dask_cluster_that_is_not_there_is_told(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(backends, "_WAIT", 1)
    for address in ("tcp://127.0.0.1:9", "nonsense://127.0.0.1:8786"):
        with pytest.raises(ExperimentError, match=f"no Dask cluster with a worker at '{address}'"):
            Dask(address)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as made,
        pytest.raises(ExperimentError, match="no Dask cluster with a worker"),
    ):
        Dask(made.scheduler_address)


def test_work_sets_threads_and_keeps_what_is_said_out_of_the_way(monkeypatch, capfd):
    before, inside = torch.get_num_threads(), []

    def prepare(self, folder):
        inside.append((os.environ["ROSE_CARLA_THREADS"], torch.get_num_threads()))
        print("said aloud")
        warnings.warn("said by a warning", stacklevel=1)
        logging.getLogger("carla").warning("said by a logger")

    monkeypatch.setattr(fake_methods.Liked, "prepare", prepare)
    # pytest's own way of collecting warnings would catch this one too
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_: print(message, file=sys.stderr))
    monkeypatch.delenv("ROSE_CARLA_THREADS", raising=False)
    cell = judged("fake_methods:Liked", folder=".").recourse
    torch.set_num_threads(4)
    try:
        outcome = work(cell, (), 2)
        assert torch.get_num_threads() == 4
        assert "ROSE_CARLA_THREADS" not in os.environ
        monkeypatch.setenv("ROSE_CARLA_THREADS", "7")
        work(cell, (), 3)
        assert os.environ["ROSE_CARLA_THREADS"] == "7"
    finally:
        torch.set_num_threads(before)
    assert inside == [("2", 1), ("3", 1)]
    for words in ("said aloud", "said by a warning", "WARNING carla: said by a logger", "finished after", "threads 2"):
        assert words in outcome.log
    assert capfd.readouterr() == ("", "")
