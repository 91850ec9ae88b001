"""Networks and forests that CARLA has saved, with something in them that runs: nothing is run."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from bad_networks import CARLAS, HOSTILE
from carla.models.catalog import MLModelCatalog
from joblib.numpy_pickle import NumpyArrayWrapper
from rose_carla.carla_compat.unpickling import load_forest


@pytest.fixture
def mark(tmp_path):
    """What a payload would touch."""
    return tmp_path / "ran"


@pytest.mark.parametrize("name", HOSTILE)
def test_networks_that_carla_saved_run_nothing_either(name, compas, mark, tmp_path, monkeypatch, capsys):
    backend, write = HOSTILE[name]
    if backend == "tensorflow":
        pytest.importorskip("tf_keras")
    if backend == "xgboost":
        pytest.importorskip("xgboost")
    kind, settings, end = CARLAS[backend]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CF_MODELS", str(tmp_path / "carla"))
    MLModelCatalog(compas, kind, backend=backend, load_online=False).train(**settings, force_train=True)
    (saved,) = (tmp_path / "carla").rglob(f"*.{end}")
    write(mark, saved)
    assert not mark.exists()
    with pytest.raises(pickle.UnpicklingError):
        MLModelCatalog(compas, kind, backend=backend, load_online=False).train(**settings)
    assert not mark.exists()


def test_networks_with_programs_would_run(tmp_path):
    """Otherwise those tests would prove nothing."""
    for name in ("torch", "a program while loading"):
        mark, saved = tmp_path / f"{name} ran", tmp_path / name
        HOSTILE[name][1](mark, saved)
        torch.load(saved, weights_only=False)
        assert mark.exists()


def test_arrays_that_joblib_has_not_written_are_refused(tmp_path):
    wrapper = NumpyArrayWrapper(np.ndarray, (1,), "C", np.dtype(float))
    wrapper.read_array = bytearray
    (tmp_path / "forest").write_bytes(pickle.dumps(wrapper))
    with pytest.raises(pickle.UnpicklingError, match="joblib has not written"):
        load_forest(tmp_path / "forest")
