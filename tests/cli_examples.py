"""Fixtures for tests of the command ``rose-carla``: a folder with data, people and a policy, and a way to run it."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from rose_carla import RoseOne, datasets, models
from rose_carla.cli import main

ROLES = [
    "--target", "loan", "--favourable", "granted", "--immutable", "age", "--categorical", "home", "zone", "vip",
]  # fmt: skip
SMALL = ["--set", 'ppo={"n_updates": 4, "n_envs": 64}', "--model", "linear"]
MODULE = """
import os, signal, time
from fake_methods import Liked
from sklearn.linear_model import LogisticRegression

def fitted(data):
    print("noise on stdout")
    return LogisticRegression().fit(data.df_train.drop(columns=data.target), data.df_train[data.target])

def broken(data):
    return 1 / 0

def stopped(data):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)

nothing = 3

class Raises(Liked):
    def get_counterfactuals(self, factuals):
        print("noise on stdout")
        raise RuntimeError("out of luck")
"""


def people(n=240, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 70, n),
            "income": rng.integers(800, 9000, n),
            "debt": rng.integers(0, 5000, n),
            "home": rng.choice(["rent", "own", "family"], n),
            "zone": rng.choice([1, 2, 3], n),
            "vip": rng.choice([True, False], n),
        }
    )
    score = frame["income"] / 1000 - frame["debt"] / 1500 + 1.5 * (frame["home"] == "own") + rng.normal(0, 0.5, n)
    frame["loan"] = np.where(score > 2.5, "granted", "refused")
    return frame


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with data, people and a policy."""
    path = tmp_path_factory.mktemp("cli")
    people().to_csv(path / "loans.csv", index=False)
    (path / "named").mkdir()
    people().head(40).to_csv(path / "GrSp", index=False)
    people().to_csv(path / "named" / "policy.safetensors", index=False)
    some = people().head(40)
    some.insert(0, "name", [f"P{i}" for i in range(40)])
    some.to_csv(path / "people.csv", index=False)
    (path / "cli_models.py").write_text(MODULE)
    out = io.StringIO()
    with inside(path), contextlib.redirect_stdout(out):
        assert main(["train", "loans.csv", *ROLES, *SMALL, "--out", "policy"]) == 0
    (path / "report").write_text(out.getvalue())
    return path


@contextlib.contextmanager
def inside(path):
    before = os.getcwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


@pytest.fixture(scope="session")
def direct(folder):
    """The same without the command: the data set, the classifier and the policy."""
    frame = pd.read_csv(folder / "loans.csv")
    data = datasets.from_frame(
        frame, "loan", name="the same", favourable="granted", immutables=["age"], categorical=["home", "zone", "vip"]
    )
    model = models.train(data, "linear")
    method = RoseOne.load(folder / "policy" / "policy.safetensors", model)
    return SimpleNamespace(frame=frame, data=data, model=model, method=method)


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """Run the command in that folder; return its exit code, stdout and stderr."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    capsys.readouterr()

    def call(*words):
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return call


def read(text):
    return pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)


def changed(folder, name, change):
    """A file of people with some values changed, all of them text."""
    frame = pd.read_csv(folder / "people.csv", dtype=str)
    change(frame)
    frame.to_csv(folder / name, index=False)
    return name
