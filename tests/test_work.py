"""What a method does to whoever calls it ends its own cell at most; the others go on."""

from __future__ import annotations

import pytest
from rose_carla.errors import ExperimentError
from rose_carla.experiments import Judgement, Local, Recourse, Setting, Store, run


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


def test_what_is_in_the_place_of_a_cell_is_told_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(Recourse, "run", lambda cell: pytest.fail("it was computed"))
    cell = judged("GrSp")
    store = Store(tmp_path / "a")
    store.path(cell.recourse).mkdir(parents=True)
    with pytest.raises(ExperimentError, match="in the place of a finished cell: remove it"):
        run([cell], store, Local(), progress=False)
    store = Store(tmp_path / "b")
    (tmp_path / "b" / "judgement").touch()
    with pytest.raises(ExperimentError, match="judgement' cannot be written"):
        run([cell], store, Local(), progress=False)
    (tmp_path / "logs").touch()
    with pytest.raises(ExperimentError, match="logs' cannot be written"):
        run([cell], Store(tmp_path / "c"), Local(), logs=tmp_path / "logs", progress=False)


def test_a_link_in_the_place_of_a_cell_is_replaced(tmp_path):
    cell, store = judged("GrSp"), Store(tmp_path)
    place = store.path(cell.recourse)
    place.parent.mkdir()
    place.symlink_to(place)
    assert not run([cell], store, Local(), progress=False).errors
    assert store.find(cell.recourse) is not None
    assert not place.is_symlink()
