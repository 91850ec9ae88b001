"""Finished cells on disk: they come back as they were; damaged files are computed again."""

from __future__ import annotations

import numpy as np
import pytest
from rose_carla._lib.files import FileWriteError, save_arrays
from rose_carla.bench import Judgement, Recourse, Result, Setting, Store
from rose_carla.errors import ExperimentError

RECOURSE = Recourse(Setting("compas", "linear", people=4), "GrSp")
CELL, OTHER = (Judgement(RECOURSE, (metric,)) for metric in ("Proximity", "Sparsity"))


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
    if how in SIGNED:
        arrays, metadata = SIGNED[how]
        save_arrays(path, arrays, {"key": CELL.key, **metadata})
    else:
        contents = {"truncated": content[:middle], "empty": b"", "garbage": b"not ours", "foreign": other.read_bytes()}
        flipped = content[:-20] + bytes([content[-20] ^ 1]) + content[-19:]
        path.write_bytes({**contents, "corrupted": flipped}[how])


PROXIMITY = {"Proximity": np.arange(64.0)}
#: Files with a valid checksum and the right key that are not results of the cell.
SIGNED = {
    "another key": (PROXIMITY, {"key": "0" * 64, "about": {}}),
    "without about": (PROXIMITY, {}),
    "about is a list": (PROXIMITY, {"about": [1]}),
    "another metric": ({"Sparsity": np.arange(64.0)}, {"about": {}}),
    "integers": ({"Proximity": np.arange(64)}, {"about": {}}),
    "too many": ({**PROXIMITY, "Sparsity": np.arange(65.0)}, {"about": {}}),
    "a matrix": ({"Proximity": np.ones((8, 8))}, {"about": {}}),
}


@pytest.mark.parametrize("how", ["truncated", "corrupted", "empty", "garbage", "foreign", *SIGNED])
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
    with pytest.raises(ExperimentError, match="for finished cells cannot be made"):
        Store(tmp_path / "file" / "below")
    (tmp_path / "recourse").write_text("a file in the way")
    with pytest.raises(FileWriteError, match=r"Cannot write .*recourse"):
        Store(tmp_path).save(RECOURSE, Result({}))
    store = Store(tmp_path / "new")
    store.path(RECOURSE).mkdir(parents=True)
    with pytest.raises(ExperimentError, match="should be the file of a finished cell, not a folder: remove it"):
        store.check_writable([RECOURSE])
