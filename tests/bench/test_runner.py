"""The runner: finished cells are stored at once and reused, damaged files computed again, failing cells fail alone."""

from __future__ import annotations

import dataclasses
import itertools
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from rose_carla import bench
from cell_examples import FEW, fake, judgement, run
from rose_carla._lib.files import FileWriteError, save_arrays
from rose_carla.bench import METRICS, Judgement, Local, Recourse, Result, Setting, Store, cells, runner
from rose_carla.bench.runner import file_name

RECOURSE = Recourse(Setting("compas", "linear", people=4), "GrSp")
CELL, OTHER = (Judgement(RECOURSE, (metric,)) for metric in ("Proximity", "Sparsity"))


def test_sweep_over_evaluation_noise_generates_recourse_once(monkeypatch, tmp_path):
    noises = [dataclasses.replace(FEW, variance=variance) for variance in (0.001, 0.01, 0.1)]
    first = run([judgement(metric="Plausible_AIR", noise=noises[0])], tmp_path)
    assert (first.n_run, first.n_reused) == (2, 0)

    def never(self):
        raise AssertionError("recourse was generated")

    monkeypatch.setattr(Recourse, "run", never)
    sweep = [judgement(metric="Plausible_AIR", noise=noise) for noise in noises]
    swept = run(sweep, tmp_path)
    assert not swept.errors
    assert (swept.n_run, swept.n_reused) == (2, 2)
    rates = [swept.results[cell].arrays["Plausible_AIR"].mean() for cell in sweep]
    assert len(set(rates)) == 3


def test_finished_cells_are_reused_and_each_is_run_once(monkeypatch, tmp_path):
    made = []
    fake(monkeypatch, lambda: made.append("GrSp"))
    fake(monkeypatch, lambda: made.append("Wachter"), "Wachter")
    wanted = [judgement(), judgement(metric="Sparsity"), judgement()]
    first = run(wanted, tmp_path)
    assert (first.n_run, first.n_reused, made) == (3, 0, ["GrSp"])
    more = run([*wanted, judgement("Wachter")], tmp_path)
    assert (more.n_run, more.n_reused, made) == (2, 3, ["GrSp", "Wachter"])
    for cell, result in first.results.items():
        assert dict(result.about) == dict(more.results[cell].about)
        for name, array in result.arrays.items():
            np.testing.assert_array_equal(array, more.results[cell].arrays[name])


def test_failing_method_fails_alone_and_is_run_again(monkeypatch, tmp_path):
    trouble = [ValueError("no such\n  luck"), None]

    def prepare():
        print("about to try")
        if error := trouble.pop(0):
            raise error

    fake(monkeypatch, prepare)
    bad, good = judgement(), judgement("Wachter")
    logs = tmp_path / "logs"
    first = run([bad, good], tmp_path, logs=logs)
    assert dict(first.errors) == {bad.recourse: "ValueError: no such luck", bad: "ValueError: no such luck"}
    assert set(first.results) == {good.recourse, good}
    log = (logs / f"{file_name(bad.recourse)}.log").read_text()
    for words in (bad.recourse.description, "about to try", "Traceback", "raise error", "failed after"):
        assert words in log
    second = run([bad, good], tmp_path, logs=logs)
    assert not second.errors
    assert (second.n_run, second.n_reused) == (2, 2)
    assert "finished after" in (logs / f"{file_name(bad.recourse)}.log").read_text()


def test_failing_metric_fails_alone(monkeypatch, tmp_path):
    bad, good = judgement(metric="Sparsity"), judgement()
    monkeypatch.setitem(METRICS, "Sparsity", SimpleNamespace(evaluation=lambda model, options: 1 / 0, needs=()))
    finished = run([bad, good], tmp_path)
    assert dict(finished.errors) == {bad: "ZeroDivisionError: division by zero"}
    assert set(finished.results) == {good.recourse, good}


def test_recourse_is_generated_again_to_measure_its_time_alone(monkeypatch, tmp_path):
    made = []
    fake(monkeypatch, lambda: made.append(1))
    beside, alone = Local(1), Local(1)
    beside.submit, beside.alone = alone.submit, False
    for engine, n_made, flag in [(beside, 1, False), (beside, 1, False), (alone, 2, True), (beside, 2, True)]:
        finished = run([judgement()], tmp_path, engine)
        assert len(made) == n_made
        assert finished.results[judgement().recourse].about["alone"] is flag


def test_results_without_provenance_are_computed_again(monkeypatch, tmp_path):
    made = []
    fake(monkeypatch, lambda: made.append(1))
    kept = run([judgement()], tmp_path).results
    for cell in (judgement().recourse, judgement()):
        for lost in ("alone", "cell_seconds"):
            about = {name: value for name, value in kept[cell].about.items() if name != lost}
            Store(tmp_path).save(cell, bench.Result(kept[cell].arrays, about))
            finished = run([judgement()], tmp_path)
            assert (finished.n_reused, finished.n_run) == (1, 1)
            assert lost in finished.results[cell].about
    assert len(made) == 3


def test_endless_method_is_stopped(monkeypatch):
    monkeypatch.setattr(cells, "PATIENCE", 0.2)
    fake(monkeypatch, lambda: [None for _ in itertools.count()])
    outcome = Local(1).submit(judgement().recourse, ()).result()
    assert outcome.error.startswith("TimeoutError: GrSp was stopped after")


def test_cell_is_stored_even_if_its_log_cannot_be_written(tmp_path, monkeypatch):
    store, full = Store(tmp_path / "cells"), mock.Mock(side_effect=FileWriteError("No space left on device."))
    monkeypatch.setattr(runner, "write_file", full)
    with pytest.raises(FileWriteError, match="No space left"):
        bench.run([judgement()], store, Local(1), tmp_path / "logs", progress=False)
    assert full.call_args[0][0].suffix == ".log"
    assert store.find(judgement().recourse) is not None


def test_unwritable_folders_are_reported_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(Recourse, "run", lambda cell: pytest.fail("it was computed"))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "judgement").touch()
    with pytest.raises(FileWriteError, match=r"Cannot write .*judgement'"):
        run([judgement()], tmp_path / "b")
    (tmp_path / "logs").touch()
    with pytest.raises(FileWriteError, match=r"Cannot write .*logs'"):
        run([judgement()], tmp_path / "c", logs=tmp_path / "logs")


def test_link_in_place_of_a_cell_is_replaced(tmp_path):
    cell, store = judgement(), Store(tmp_path)
    place = store.path(cell.recourse)
    place.parent.mkdir()
    place.symlink_to(place)
    assert not run([cell], tmp_path).errors
    assert store.find(cell.recourse) is not None
    assert not place.is_symlink()


# --- files of finished cells


def test_finished_cell_comes_back_as_it_was(tmp_path):
    store = Store(tmp_path / "new" / "folder")
    arrays = {
        "counterfactuals": np.array([[1.5, np.nan, np.inf], [0, 1, 2]]), "actions": np.empty((0, 3)),
        "n_actions": np.array([0, 0]),
    }  # fmt: skip
    about = {
        "seconds": 1.25, "training_seconds": 0, "people": 2, "found": 1, "labels": ["a", "7"],
        "hyperparams": {"tau": [0.5, None]},
    }  # fmt: skip
    assert store.find(RECOURSE) is None
    store.save(RECOURSE, Result(arrays, about))
    found = store.find(RECOURSE)
    assert found.about == about
    assert found.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
        assert found.arrays[name].dtype == array.dtype
    assert store.find(CELL) is None


def damage(path, how, other):
    content, middle = path.read_bytes(), path.stat().st_size // 2
    if how == "another key":  # with a valid checksum
        save_arrays(path, {"Proximity": np.arange(64.0)}, {"key": "0" * 64, "about": {}})
    else:
        contents = {"truncated": content[:middle], "empty": b"", "garbage": b"not ours", "foreign": other.read_bytes()}
        flipped = content[:-20] + bytes([content[-20] ^ 1]) + content[-19:]
        path.write_bytes({**contents, "corrupted": flipped}[how])


@pytest.mark.parametrize("how", ["truncated", "corrupted", "empty", "garbage", "foreign", "another key"])
def test_damaged_file_is_reported_and_replaced(tmp_path, how):
    store = Store(tmp_path)
    for cell, name in ((CELL, "Proximity"), (OTHER, "Sparsity")):
        store.save(cell, Result({name: np.arange(64.0)}))
    damage(store.path(CELL), how, store.path(OTHER))
    with pytest.warns(UserWarning, match="Computing 'compas linear GrSp seed 0 Proximity' again: "):
        assert store.find(CELL) is None
    store.save(CELL, Result({"Proximity": np.arange(3.0)}))
    assert store.find(CELL).arrays["Proximity"].tolist() == [0, 1, 2]


def test_file_names_stay_in_the_folder_and_are_unique(tmp_path):
    store = Store(tmp_path)
    ways = ["../../../etc/passwd", "a/b", "a:b", "a" * 500, "a" * 501, "..", "\0", "C:\\x", "ü" * 300]
    paths = [store.path(Recourse(RECOURSE.setting, "GrSp", (("way", way),))) for way in ways]
    assert len({*paths}) == len(ways)
    for path in paths:
        assert path.resolve().parent == tmp_path / "recourse"
        assert len(path.name.encode()) < 200


def test_unwritable_folders_are_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileWriteError, match=r"Cannot write .*below"):
        Store(tmp_path / "file" / "below").check_writable([RECOURSE])
    (tmp_path / "recourse").write_text("a file in the way")
    with pytest.raises(FileWriteError, match=r"Cannot write .*recourse"):
        Store(tmp_path).save(RECOURSE, Result({}))
