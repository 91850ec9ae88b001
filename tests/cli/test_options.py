"""Shared options: hyper-parameters, options of features, and user code given as ``module:name``."""

from __future__ import annotations

import os
import sys

import numpy as np
import pandas as pd
import pytest
from rose_carla import datasets
from cli_examples import ROLES, SMALL, inside, read
from rose_carla.cli.inputs import load_policy
from rose_carla.cli.options import DataChoice, parse_hyperparams

pytest_plugins = ("cli_examples",)

MODULE = """
import os, sys
from pathlib import Path
from fake_methods import Liked
from sklearn.linear_model import LogisticRegression

def exits(data):
    sys.exit(0)

class ExitingModel(LogisticRegression):
    def predict_proba(self, rows):
        sys.exit()

def exits_later(data):
    return ExitingModel().fit(data.df_train.drop(columns=data.target), data.df_train[data.target])

def imports_late(data):
    import kept_in_the_folder

class Exits(Liked):
    def get_counterfactuals(self, factuals):
        sys.exit("enough")
"""
TRAIN = ["train", "loans.csv", *ROLES, *SMALL, "--out", "exited"]


@pytest.fixture(scope="module", autouse=True)
def module(folder):
    (folder / "user_models.py").write_text(MODULE)
    (folder / "kept_in_the_folder.py").write_text("")
    (folder / "exits_at_once.py").write_text("import sys\nsys.exit(0)")


def test_hyperparams_are_json_or_text():
    words = ["tau=0.9", "search=False", "bandwidth=scott", 'ppo={"n_updates": 8}', "ppo.n_envs=4", "fallback=None"]
    assert parse_hyperparams(words) == {
        "tau": 0.9, "search": False, "bandwidth": "scott", "ppo": {"n_updates": 8, "n_envs": 4}, "fallback": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["table1", "--methods", "exits_at_once:A"], "exits_at_once.py, line 2"),
        ([*TRAIN, "--model", "exits_at_once:A"], "exits_at_once.py, line 2"),
        ([*TRAIN, "--method", "exits_at_once:A"], "exits_at_once.py, line 2"),
        ([*TRAIN, "--model", "user_models:exits"], "user_models.py, line 8"),
        ([*TRAIN, "--model", "user_models:exits_later"], "user_models.py, line 12"),
        (["check", "user_models:Exits"], "user_models.py, line 22"),
    ],
)
def test_exit_in_user_code_is_an_error(words, where, run, folder):
    done = run(*words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "sys.exit() was called" in done.err
    assert where in done.err
    assert not (folder / "exited").exists()


def test_method_that_exits_does_not_stop_the_others(run):
    words = ["--policy", "policy", "--people", "people.csv", "--id", "name", "--limit", "2", "--samples", "5"]
    done = run("evaluate", *words, "--methods", "user_models:Exits", "GrSp", "--format", "csv")
    assert done.code == 1
    assert [line.split(",")[0] for line in done.out.splitlines()] == ["Method", "ROSE-one of policy", "GrSp"]
    assert "failed: user_models:Exits: sys.exit() was called in " in done.err


def test_current_directory_is_searched_only_for_named_modules(run):
    before = [*sys.path]
    done = run(*TRAIN, "--model", "user_models:imports_late")
    assert (done.code, sys.path) == (2, before)
    assert "No module named 'kept_in_the_folder'" in done.err


def test_libraries_do_not_import_files_of_the_current_directory(folder, tmp_path, warm_python):
    script, ran = tmp_path / "script" / "rose.py", tmp_path / "ran"
    script.parent.mkdir()
    script.write_text("import sys\nfrom rose_carla.cli import main\nsys.exit(main(sys.argv[1:]))")
    here = tmp_path / "here"
    here.mkdir()
    for name in ("gmpy2", "gmpy", "flint", "cffi", "distributed"):  # optional packages that libraries look for
        (here / f"{name}.py").write_text(f"open({str(ran)!r}, 'w').write({name!r})\nraise ImportError")
    words = ["recourse", str(folder / "people.csv"), "--policy", str(folder / "policy"), "--out", "plans.csv"]
    with inside(here):
        assert os.spawnv(os.P_WAIT, warm_python.executable, ["python", str(script), *words]) == 0
    assert not ran.exists()


@pytest.mark.slow
def test_relative_paths_survive_user_code_that_changes_the_directory(run, folder):
    text = "import os\nfrom cli_models import fitted\n\ndef moves(data):\n    os.chdir('..')\n    return fitted(data)\n"
    (folder / "moving_model.py").write_text(text)
    words = ["train", "loans.csv", *ROLES, *SMALL[:2], "--model", "moving_model:moves", "--out", "moved"]
    assert run(*words).code == 0
    assert (folder / "moved" / "train.json").is_file()
    os.chdir(folder)
    people, moved = folder / "people.csv", folder / "moved"
    done = run("recourse", people, "--policy", moved, "--model", "moving_model:moves", "--out", "moved.csv")
    assert done.code == 0
    assert (folder / "moved.csv").is_file()


@pytest.mark.slow
def test_scales_units_and_noise_reach_the_data_set(run, folder):
    frame = pd.read_csv(folder / "loans.csv")
    frame.loc[:2, "income"] = [500_000, 900_000, 2_000_000]
    frame.to_csv(folder / "rich.csv", index=False)
    described = run("datasets", "rich.csv", *ROLES)
    assert described.code == 0
    assert described.err.count("remark: features with outliers") == 1
    assert "income (" in described.err
    assert "--scale" in described.err
    assert run("datasets", "rich.csv", *ROLES, "--scale", "minmax").err == ""
    words = ["--scale", "debt=minmax", "--unit", "income=250", "debt=100", "--noise", "income=0.5"]
    trained = run("train", "rich.csv", *ROLES, *words, *SMALL, "--out", "rich")
    assert trained.code == 0
    policy = load_policy(folder / "rich", DataChoice(""), None)
    data = policy.loaded.data
    assert (data.robust, data.units, data.noise) == (("income",), {"income": 250.0, "debt": 100.0}, {"income": 0.5})
    income = policy.method.space.units[policy.model.feature_input_order.index("income")]
    assert income == datasets.encoded_unit(data, "income")
    planned = run("recourse", "people.csv", "--policy", "rich", "--id", "name")
    assert planned.code == 0
    steps = read(planned.out).query("feature == 'income'")
    assert len(steps) > 0
    size, moved = steps["size"].astype(float), steps["to"].astype(float) - steps["from"].astype(float)
    np.testing.assert_allclose(size * 250, moved.abs())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scale", "wide"], "Unknown scale 'wide'"),
        (["--scale", "minmax", "robust"], "--scale takes one scale for all features or COL=SCALE words"),
        (["--unit", "income"], "--unit takes COL=VALUE, got 'income'."),
        (["--unit", "income=many"], "--unit takes COL=NUMBER, got 'income=many'."),
        (["--unit", "income=1", "income=2"], "--unit names 'income' twice."),
        (["--unit", "incme=1"], "Unknown continuous feature 'incme': did you mean 'income'?"),
        (["--noise", "home=1"], "noise is for continuous features, but 'home' is categorical"),
        (["--noise", "income=-1"], "noise of 'income' must be a number above 0, got -1.0."),
    ],
)
def test_invalid_scales_units_and_noise_are_one_sentence(words, message, run):
    result = run("train", "loans.csv", *ROLES, *words, "--out", "never")
    assert result.code == 2
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_built_in_data_have_their_scales(run):
    assert "--scale is for CSV files" in run("train", "compas", "--scale", "robust", "--out", "never").err
