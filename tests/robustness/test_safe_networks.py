"""Networks and forests that CARLA has saved: no code in a file is run."""

from __future__ import annotations

import pytest
import torch
from bad_networks import CARLAS, HOSTILE
from carla.models.catalog import MLModelCatalog
from rose_carla.errors import ModelError


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_runs_nothing(name, compas, tmp_path, monkeypatch):
    backend, write = HOSTILE[name]
    if backend == "tensorflow":
        pytest.importorskip("tf_keras")
    if backend == "xgboost":
        pytest.importorskip("xgboost")
    kind, settings, file = CARLAS[backend]
    mark, saved = tmp_path / "ran", tmp_path / "compas" / file
    saved.parent.mkdir()
    monkeypatch.setenv("CF_MODELS", str(tmp_path))
    write(mark, saved)
    assert not mark.exists()
    with pytest.raises(ModelError, match=rf"{file}' is .*train\(..., force_train=True\)"):
        MLModelCatalog(compas, kind, backend=backend, load_online=False).train(**settings)
    assert not mark.exists()


def test_hostile_files_would_run_without_protection(tmp_path):
    for name in ("torch", "a program while loading"):
        mark, saved = tmp_path / f"{name} ran", tmp_path / name
        HOSTILE[name][1](mark, saved)
        torch.load(saved, weights_only=False)
        assert mark.exists()


def test_forced_training_replaces_a_forest_that_cannot_be_loaded(compas, tmp_path, monkeypatch):
    kind, settings, file = CARLAS["sklearn"]
    (tmp_path / "compas").mkdir()
    (tmp_path / "compas" / file).write_bytes(b"a pickle")
    monkeypatch.setenv("CF_MODELS", str(tmp_path))
    for force_train in (True, False):
        forest = MLModelCatalog(compas, kind, backend="sklearn", load_online=False)
        forest.train(**settings, force_train=force_train)
        assert forest.predict_proba(compas.df_test.head(3)).shape == (3, 2)
