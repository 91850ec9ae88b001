"""What a method does to whoever calls it ends its own cell at most; the others go on."""

from __future__ import annotations

import os
import pickle
import signal
import time

import numpy as np
import pytest
from rose_carla.bench import Judgement, Local, Recourse, Result, Setting, Store, aside, run
from rose_carla.bench.work import Outcome
from rose_carla.errors import ExperimentError


def judged(method):
    return Judgement(Recourse(Setting("compas", "linear", people=2), method), ("Proximity",))


FAILS = {"Exits": "SystemExit: licence expired", "ExitsWell": "SystemExit: 0", "Speechless": "Mute: Mute"}
WORKS = ("Closes", "PrintsNames", "OddSettings", "Talks")


@pytest.mark.parametrize("jobs", [1, 2])
def test_odd_methods_end_their_own_cells(jobs, tmp_path):
    cells = {name: judged(f"odd_methods:{name}") for name in (*FAILS, *WORKS)}
    backend = Local(jobs)
    try:
        finished = run(cells.values(), Store(tmp_path / "cells"), backend, logs=tmp_path / "logs", progress=False)
    finally:
        backend.close()
    for name, words in FAILS.items():
        assert finished.errors[cells[name]] == words
    for name in WORKS:
        assert (finished.results[cells[name]].arrays["Proximity"] > 0).all()
    about = finished.results[cells["OddSettings"].recourse].about["hyperparameters"]
    assert about == {"rate": 0.5, "where": about["where"], "seed": 3}
    logs = {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert any("data-\\udcff.csv" in text for text in logs.values())
    assert any("x" * 300_000 in text for text in logs.values())
    again = run(cells.values(), Store(tmp_path / "cells"), Local(2), progress=False)
    assert again.n_reused == 2 * len(WORKS)


def test_a_link_in_the_place_of_a_cell_is_replaced(tmp_path):
    cell, store = judged("GrSp"), Store(tmp_path)
    place = store.path(cell.recourse)
    place.parent.mkdir()
    place.symlink_to(place)
    assert not run([cell], store, Local(), progress=False).errors
    assert store.find(cell.recourse) is not None
    assert not place.is_symlink()


@pytest.mark.parametrize("result", [None, Result({"a": np.arange(6.0).reshape(2, 3)}, {"people": 3})])
def test_what_came_of_work_goes_through_a_file(result, tmp_path):
    outcome = Outcome(judged("GrSp"), result, "" if result else "ValueError: no", "said \udcff\0\0", 1.5)
    aside.put(outcome, tmp_path / "file.safetensors")
    found = aside.take(outcome.cell, tmp_path / "file.safetensors")
    assert (found.cell, found.error, found.log, found.seconds) == (outcome.cell, outcome.error, outcome.log, 1.5)
    assert not list(tmp_path.iterdir())
    if result is None:
        assert found.result is None
    else:
        assert found.result.about == result.about
        for name, array in result.arrays.items():
            np.testing.assert_array_equal(found.result.arrays[name], array)


def test_what_is_sent_between_processes_is_sent_at_once(tmp_path, monkeypatch):
    """A pipe takes 4,096 bytes whole; with more, whoever is killed in the middle leaves others waiting for the rest."""
    monkeypatch.setattr(aside, "_end_with", lambda parent: None)
    sent = aside.work_aside(judged("odd_methods:Talks").recourse, (), 1, str(tmp_path))
    assert len(pickle.dumps(sent)) < 1000
    assert (tmp_path / sent).stat().st_size > 300_000


def test_files_between_processes_that_cannot_be_written_or_read_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(aside, "_end_with", lambda parent: None)
    cell = judged("odd_methods:Talks").recourse
    (tmp_path / "file").touch()
    with pytest.raises(ExperimentError, match=r"cannot be kept for a moment .*Set TMPDIR"):
        aside.work_aside(cell, (), 1, str(tmp_path / "file"))
    (tmp_path / "damaged.npz").write_bytes(b"x")
    for name in ("damaged.npz", "gone.npz"):
        with pytest.raises(ExperimentError, match=r"is lost, .* cannot be read"):
            aside.take(cell, tmp_path / name)


def test_processes_end_with_the_one_that_started_them():
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        if os.fork() == 0:
            aside._end_with.__wrapped__(os.getppid())
            os.write(writing, f"{os.getpid()} ".encode())
        time.sleep(60)
        os._exit(0)
    child = int(os.read(reading, 20))
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    end = time.monotonic() + 30
    while _runs(child) and time.monotonic() < end:
        time.sleep(0.05)
    assert not _runs(child)


def _runs(process):
    """Whether a process is there, and not only waited for."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
