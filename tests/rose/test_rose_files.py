"""Policies on disk: round trip, incompatible files, no code execution."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rose_carla import RoseMul, RoseOne, datasets, models
from rose_carla._lib.files import FileWriteError
from rose_carla.errors import ModelError, PlanError


@pytest.fixture(scope="module")
def people(compas_ann):
    return models.negative_instances(compas_ann).head(30)


@pytest.fixture(scope="module")
def rose_one(compas_ann):
    return RoseOne(compas_ann, {"ppo": {"n_updates": 3, "n_envs": 64, "n_steps": 16}, "multiples": [1, 2, 4]})


@pytest.fixture(scope="module")
def german_typed():
    return models.train(datasets.load("german", form="typed"), "linear")


def test_saved_policies_plan_the_same(tmp_path, rose_one, compas_ann, people):
    path = tmp_path / "policy.safetensors"
    rose_one.save(path)
    loaded = RoseOne.load(path, compas_ann)
    assert loaded.settings == rose_one.settings
    assert len(loaded.log_) == len(rose_one.log_)
    expected = rose_one.get_counterfactuals(people)
    pd.testing.assert_frame_equal(loaded.get_counterfactuals(people), expected, check_exact=True)


def test_incompatible_files_raise_an_error(tmp_path, rose_one, compas_ann, compas_linear, german_typed):
    path = tmp_path / "policy.safetensors"
    rose_one.save(path)
    with pytest.raises(PlanError, match="another model"):
        RoseOne.load(path, compas_linear)
    with pytest.raises(PlanError, match="other features"):
        RoseOne.load(path, german_typed)
    with pytest.raises(PlanError, match="of 'ROSE-one', not of 'ROSE-mul'"):
        RoseMul.load(path, compas_ann)
    with pytest.raises(PlanError, match="no file"):
        RoseOne.load(tmp_path / "missing.safetensors", compas_ann)
    data = path.read_bytes()
    for broken in (data[: len(data) // 2], b"", b"not a policy", data[:200] + b"x" + data[201:]):
        path.write_bytes(broken)
        with pytest.raises(PlanError, match="The policy cannot be loaded"):
            RoseOne.load(path, compas_ann)


def test_pickle_in_file_is_not_executed(tmp_path, compas_ann):
    class Payload:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    path = tmp_path / "policy.safetensors"
    np.savez(path, about=np.array([Payload()], dtype=object), header=np.array("{}"))
    with pytest.raises(PlanError):
        RoseOne.load(path, compas_ann)
    assert not (tmp_path / "ran").exists()


def test_invalid_paths_and_models_raise_an_error(tmp_path, rose_one):
    with pytest.raises(FileWriteError, match=r"Cannot write .*: embedded null byte"):
        rose_one.save(f"{tmp_path}/a\0b.safetensors")
    rose_one.save(tmp_path / "policy.safetensors")
    with pytest.raises(ModelError, match="Expected a CARLA model, got str"):
        RoseOne.load(tmp_path / "policy.safetensors", "x")
    for odd in (None, 5, b"policy.safetensors"):
        with pytest.raises(PlanError, match="must be a string or a Path"):
            rose_one.save(odd)
        with pytest.raises(PlanError, match="must be a string or a Path"):
            RoseOne.load(odd, rose_one._mlmodel)
    for folder in ("", tmp_path):
        with pytest.raises(FileWriteError, match=r"Cannot write .*: it is a folder, a device or a pipe"):
            rose_one.save(folder)


def test_plans_can_be_compared_and_kept_in_sets(rose_one, people):
    first, second = rose_one.plan(people.head(2))
    assert first == first
    assert first != second
    assert len({first, second, *first.steps}) == 2 + len(first.steps)
