"""``rose-carla datasets``: what it prints is what the data set has."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from rose_carla import datasets
from cli_examples import ROLES, people

pytest_plugins = ("cli_examples",)


def test_built_in_data_sets_are_listed(run):
    done = run("datasets")
    lines = {line.split()[0]: line.split() for line in done.out.splitlines()[1:]}
    assert list(lines) == ["german", "german-typed", "adult", "compas"]
    for name in datasets.NAMES:
        data = datasets.load(name)
        share = f"{data.df[data.target].mean():.1%}"
        assert lines[name][1:5] == [f"{len(data.df):,}", str(len(data.continuous)), str(len(data.categorical)), share]
        assert " ".join(lines[name][5:]) == ", ".join(data.immutables)


def test_csv_file_is_described(run, direct):
    done = run("datasets", "loans.csv", *ROLES)
    assert (done.code, done.err) == (0, "")
    first, _, *lines = done.out.splitlines()
    share = (direct.frame["loan"] == "granted").mean()
    assert first == f"loans.csv: 240 people, 6 features, 1 of them immutable, {share:.0%} with the favourable outcome"
    described = {line.split()[0]: line.split()[1:] for line in lines}
    assert described["age"] == [
        "continuous",
        "no",
        str(direct.frame["age"].min()),
        "to",
        str(direct.frame["age"].max()),
    ]
    assert described["home"] == ["categorical", "yes", "family,", "own,", "rent"]
    assert described["zone"] == ["categorical", "yes", "1,", "2,", "3"]
    assert described["loan"] == ["outcome", "favourable:", "granted"]


def test_all_problems_of_a_csv_file_are_listed(run, folder):
    frame = people(80)
    frame["income"] = frame["income"].astype(float)
    frame.loc[3, "income"] = np.nan
    frame["debt"] = frame["debt"].astype(float)
    frame.loc[4, "debt"] = np.inf
    frame["name"] = [f"N{i}" for i in range(80)]
    frame.to_csv(folder / "wrong.csv", index=False)
    done = run("datasets", "wrong.csv", "--target", "loan", "--favourable", "granted")
    assert done.code == 1
    problems = [line for line in done.out.splitlines() if line.startswith("problem: ")]
    assert len(problems) == 3
    assert "income (1)" in problems[0]
    assert "'debt'" in problems[1]
    assert "'name' has 80 values in 80 rows" in problems[2]
    assert run("datasets", "wrong.csv").code == 1


@pytest.mark.parametrize(
    ("kind", "typed"), [({"granted": 1, "refused": 0}, "1"), ({"granted": True, "refused": False}, "true")]
)
def test_favourable_outcome_may_be_a_number_or_boolean(kind, typed, run, folder):
    frame = people(120)
    share = (frame["loan"] == "granted").mean()
    frame.assign(loan=frame["loan"].map(kind)).to_csv(folder / "kind.csv", index=False)
    done = run("datasets", "kind.csv", "--target", "loan", "--favourable", typed)
    assert done.code == 0
    assert f"{share:.0%} with the favourable outcome" in done.out


def test_data_come_from_stdin_and_columns_can_be_ignored(run, folder, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((folder / "people.csv").read_bytes())))
    done = run("datasets", "-", *ROLES, "--ignore", "name", "debt")
    assert done.code == 0
    assert done.out.startswith("stdin: 40 people, 5 features")
    assert "\ndebt" not in done.out
