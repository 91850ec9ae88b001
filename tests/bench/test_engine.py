"""Where cells run: here, in worker processes that may be killed, on a Dask cluster; and the surroundings of a cell."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import dataclass

import fake_methods
import numpy as np
import pytest
import torch
from rose_carla import bench
from cell_examples import SETTING
from rose_carla.bench import Dask, Judgement, Local, Recourse, Result, Store, engine
from rose_carla.bench.engine import run_cell, run_jobs
from rose_carla.errors import ExperimentError
from rose_carla.metrics import NoiseSettings
from threadpoolctl import threadpool_limits

FEW = NoiseSettings.from_mapping({"n_samples": 50})
METRICS = ("Validity", "Plausible_AIR", "Acc_AIR")


def judgement(method, **options):
    return Judgement(Recourse.with_options(SETTING, method, **options), METRICS, FEW)


def run(judgements, folder, made, **options):
    try:
        return bench.run(judgements, Store(folder), made, progress=False, **options)
    finally:
        made.close()


def assert_same_arrays(expected, finished, cell, other=None):
    """Compare the results of a cell, or of a cell with those of ``other``."""
    for ours, theirs in ((cell, other or cell), (cell.recourse, (other or cell).recourse)):
        arrays = finished.results[theirs].arrays
        assert arrays.keys() == expected.results[ours].arrays.keys()
        for name, array in expected.results[ours].arrays.items():
            np.testing.assert_array_equal(arrays[name], array, err_msg=f"{theirs.description}: {name}")


@pytest.mark.slow
def test_two_workers_compute_what_one_does_even_if_some_die(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")  # the limits must be those of the engine, not of the tests
    monkeypatch.setattr(engine.joblib, "cpu_count", lambda: 6)
    plain = [judgement(name) for name in ("GrSp", "PROBE", "fake_methods:Liked")]
    reports, unlucky, doomed = (
        judgement(f"fake_methods:{name}", folder=str(tmp_path)) for name in ("ReportsThreads", "DiesOnce", "Dies")
    )
    two = Local(2)
    finished = run([plain[0], reports, unlucky, *plain[1:], doomed], tmp_path / "two", two)
    assert set(finished.errors) == {doomed, doomed.recourse}
    assert "The worker process died" in finished.errors[doomed]
    assert len([*tmp_path.glob("DiesOnce-*")]) == 2
    assert len([*tmp_path.glob("Dies-*")]) == 2
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
class Large:
    """A cell with a result of 50 MB, whose worker can be killed while it sends the result."""

    description: str
    dies: bool

    def run(self):
        if self.dies:
            threading.Thread(target=self._die_while_sending, daemon=True).start()
        return Result({"large": np.full(50_000_000 // 8, 1.0)})

    @staticmethod
    def _die_while_sending():
        main = threading.main_thread().ident
        while True:
            frame = sys._current_frames()[main]
            while frame is not None:
                if frame.f_code.co_name == "_send" and frame.f_locals.get("remaining", 0) > 1_000_000:
                    os.kill(os.getpid(), signal.SIGKILL)
                frame = frame.f_back


@pytest.mark.slow
def test_worker_killed_while_it_sends_a_large_result_ends_its_own_cell(monkeypatch):
    monkeypatch.setattr(engine, "_ATTEMPTS", 1)
    jobs = [(Large("dies", dies=True), ()), *((Large(f"lives {i}", dies=False), ()) for i in range(3))]
    two = Local(2)
    try:
        outcomes = {outcome.cell.description: outcome for outcome in run_jobs(two, jobs)}
    finally:
        two.close()
    assert "The worker process died" in outcomes.pop("dies").error
    assert [outcome.result.arrays["large"].sum() for outcome in outcomes.values()] == [6_250_000] * 3


@dataclass(frozen=True)
class Endless:
    """A cell that no exception can end."""

    description: str = "endless"

    def run(self):
        while True:
            try:
                time.sleep(60)
            except BaseException:
                continue


@pytest.mark.slow
def test_worker_that_cannot_be_interrupted_is_killed(monkeypatch):
    monkeypatch.setattr(engine, "_KILL_AFTER", 0.5)
    two = Local(2)
    try:
        (outcome,) = run_jobs(two, [(Endless(), ())])
    finally:
        two.close()
    assert outcome.error.startswith("TimeoutError: the worker process was killed")


SCRIPT = """
import signal
import sys
from pathlib import Path
from rose_carla.bench import Judgement, Local, Recourse, Setting, Store, run

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if the tests run in the background
    folder = sys.argv[1]
    cells = [
        Judgement(Recourse.with_options(Setting("compas", "linear", people=2), name, folder=folder), ("Proximity",))
        for name in ("fake_methods:Waits", "fake_methods:WaitsOnce")
    ]
    engine = Local(2)
    try:
        run(cells, Store(Path(folder, "cells")), engine, progress=False)
    finally:
        engine.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_process_that_started_them(number, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join([os.path.dirname(fake_methods.__file__), *sys.path])
    process = subprocess.Popen([sys.executable, script, str(tmp_path)], env={**os.environ, "PYTHONPATH": path})
    try:
        wait_until(lambda: len([*tmp_path.glob("Waits*-*")]) == 2)
        workers = [int(note.name.split("-")[1]) for note in tmp_path.glob("Waits*-*")]
        assert all(map(is_running, workers))
        process.send_signal(number)
        process.wait(60)
        wait_until(lambda: not any(map(is_running, workers)))
    finally:
        process.kill()


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def is_running(process):
    """Whether a process exists and is not a zombie."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


FAILS = {"Exits": "SystemExit: licence expired", "ExitsWell": "SystemExit: 0", "Speechless": "Mute: Mute"}
WORKS = ("Closes", "PrintsNames", "OddSettings", "Talks")


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_odd_methods_end_their_own_cells(jobs, tmp_path):
    made = {name: judgement(f"odd_methods:{name}") for name in (*FAILS, *WORKS)}
    finished = run(made.values(), tmp_path / "cells", Local(jobs), logs=tmp_path / "logs")
    for name, words in FAILS.items():
        assert finished.errors[made[name]] == words
    for name in WORKS:
        assert np.isfinite(finished.results[made[name]].arrays["Acc_AIR"]).all()
    about = finished.results[made["OddSettings"].recourse].about["hyperparams"]
    assert about == {"rate": 0.5, "where": about["where"], "seed": 3}
    logs = {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert any("data-\\udcff.csv" in text for text in logs.values())
    assert any("x" * 300_000 in text for text in logs.values())
    again = run(made.values(), tmp_path / "cells", Local(2))
    assert again.n_reused == 2 * len(WORKS)


@pytest.mark.slow
def test_libraries_have_one_thread_whatever_the_number_of_ours(tmp_path):
    cell, before = judgement("fake_methods:ReportsThreads", folder=str(tmp_path)).recourse, torch.get_num_threads()
    try:
        with threadpool_limits(4):
            torch.set_num_threads(4)
            assert not run_cell(cell, (), 3).error
    finally:
        torch.set_num_threads(before)
    threads = json.loads((tmp_path / "threads.json").read_text())
    assert threads.pop("ours") == 3
    assert len(threads) > 2
    assert set(threads.values()) == {1}


@pytest.mark.parametrize("cores", [1, 2, 3, 8])
def test_cores_are_shared_among_jobs(monkeypatch, cores):
    monkeypatch.setattr(engine.joblib, "cpu_count", lambda: cores)
    for jobs in range(1, 12):
        made = Local(jobs)
        assert made.n_threads >= 1
        assert made.n_threads * jobs <= max(cores, jobs)
        assert made.alone == (jobs == 1)
    assert Local(1).n_threads == cores
    with pytest.raises(ExperimentError, match="at least 1, got 0"):
        Local(0)


def test_run_cell_limits_threads_and_collects_output(monkeypatch, capfd):
    before, inside = torch.get_num_threads(), []

    def prepare(self, folder):
        inside.append((os.environ["ROSE_CARLA_THREADS"], torch.get_num_threads()))
        print("printed")
        warnings.warn("warned", stacklevel=1)
        logging.getLogger("carla").warning("logged")

    monkeypatch.setattr(fake_methods.Liked, "prepare", prepare)
    # pytest's own way of collecting warnings would catch this one too
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_: print(message, file=sys.stderr))
    monkeypatch.delenv("ROSE_CARLA_THREADS", raising=False)
    cell = judgement("fake_methods:Liked", folder=".").recourse
    torch.set_num_threads(4)
    try:
        outcome = run_cell(cell, (), 2)
        assert torch.get_num_threads() == 4
        assert "ROSE_CARLA_THREADS" not in os.environ
        monkeypatch.setenv("ROSE_CARLA_THREADS", "7")
        run_cell(cell, (), 3)
        assert os.environ["ROSE_CARLA_THREADS"] == "7"
    finally:
        torch.set_num_threads(before)
    assert inside == [("2", 1), ("3", 1)]
    for words in ("printed", "warned", "WARNING carla: logged", "finished after", "threads 2"):
        assert words in outcome.log
    assert capfd.readouterr() == ("", "")


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=logging.CRITICAL
    ) as made:
        yield made


@pytest.mark.slow
def test_dask_worker_may_be_killed_in_the_middle_of_a_cell(cluster, tmp_path):
    wanted = [judgement("fake_methods:WaitsOnce", folder=str(tmp_path)), judgement("GrSp"), judgement("PROBE")]
    killed = []

    def kill():
        while not (notes := [*tmp_path.glob("WaitsOnce-*")]):
            time.sleep(0.05)
        killed.append(int(notes[0].name.split("-")[1]))
        os.kill(killed[0], signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    finished = run(wanted, tmp_path / "dask", Dask(cluster.scheduler_address))
    assert not finished.errors
    workers = {int(note.name.split("-")[1]) for note in tmp_path.glob("WaitsOnce-*")}
    assert len(workers) == 2
    assert killed[0] in workers
    assert os.getpid() not in workers
    expected = run(wanted, tmp_path / "local", Local(1))
    for cell in wanted:
        assert_same_arrays(expected, finished, cell)


@pytest.mark.slow
def test_dask_workers_with_other_code_are_rejected(cluster, monkeypatch):
    monkeypatch.setattr(engine.provenance, "fingerprint", lambda *_: "0123456789abcdef")
    with pytest.raises(ExperimentError, match=r"has another source \(.* there, 0123456789ab here\)"):
        Dask(cluster.scheduler_address)


@pytest.mark.slow
def test_dask_workers_that_run_two_cells_in_one_process_are_rejected():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as made:
        with pytest.raises(ExperimentError, match="runs 2 cells at a time in one process: start it with --nthreads 1"):
            Dask(made.scheduler_address)
        with pytest.raises(ValueError, match="No clients found"):
            distributed.Client.current()


@pytest.mark.slow
def test_missing_dask_cluster_is_reported(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(engine, "_CONNECT_TIMEOUT", 1)
    for address in ("tcp://127.0.0.1:9", "nonsense://127.0.0.1:8786"):
        with pytest.raises(ExperimentError, match=f"no Dask cluster with a worker at '{address}'"):
            Dask(address)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as made,
        pytest.raises(ExperimentError, match="no Dask cluster with a worker"),
    ):
        Dask(made.scheduler_address)
