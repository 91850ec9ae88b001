"""The command ``rose-carla``: what it prints is what the package computes, and what it refuses it refuses in a line."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import rose_carla
import numpy as np
import pandas as pd
import pytest
from rose_carla import Benchmark, RoseOne, datasets, metrics, models
from rose_carla.baselines import Arar
from rose_carla.cli import COMMANDS, PASSED_ON, endings, main, streams
from rose_carla.cli.classifier import training_settings
from rose_carla.cli.data import meant
from rose_carla.tables import options

ROLES = [
    "--target", "loan", "--favourable", "granted", "--immutable", "age", "--categorical", "home", "zone", "vip",
]  # fmt: skip
SMALL = ["--set", 'ppo={"n_updates": 4, "n_environments": 64}', "--model", "linear"]
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with data, people and a training; what is slow is done once."""
    path = tmp_path_factory.mktemp("cli")
    people().to_csv(path / "loans.csv", index=False)
    some = people().head(40)
    some.insert(0, "name", [f"P{i}" for i in range(40)])
    some.to_csv(path / "people.csv", index=False)
    (path / "cli_models.py").write_text(MODULE)
    out = io.StringIO()
    with inside(path), contextlib.redirect_stdout(out):
        assert main(["train", "loans.csv", *ROLES, *SMALL, "--out", "policy"]) == 0
    (path / "told").write_text(out.getvalue())
    return path


@contextlib.contextmanager
def inside(path):
    before = os.getcwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def direct(folder):
    """The same without the command: the data set, the classifier and the policy."""
    frame = pd.read_csv(folder / "loans.csv")
    data = datasets.from_frame(
        frame, "loan", name="the same", favourable="granted", immutables=["age"], categorical=["home", "zone", "vip"]
    )
    model = models.train(data, "linear", settings=training_settings("linear", data))
    method = RoseOne.load(folder / "policy" / "policy.npz", model)
    return SimpleNamespace(frame=frame, data=data, model=model, method=method)


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """Runs the command in that folder: the exit code, stdout and stderr."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    capsys.readouterr()

    def call(*words):
        code = main([str(word) for word in words])
        told = capsys.readouterr()
        return SimpleNamespace(code=code, out=told.out, err=told.err)

    return call


def read(text):
    return pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)


def changed(folder, name, change):
    """A file of people with some values changed, all of them text."""
    frame = pd.read_csv(folder / "people.csv", dtype=str)
    change(frame)
    frame.to_csv(folder / name, index=False)
    return name


# --- starting and ending


def test_help_and_version_import_no_command(tmp_path):
    script = (
        "import sys; from rose_carla.cli import main\n"
        "assert main(['--help']) == main(['--version']) == 0\n"
        "print([name for name in sys.modules if name.startswith(('sklearn', 'numba', 'rose_carla.tables'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.endswith(f"rose-carla {rose_carla.__version__}\n[]\n")
    for name in (*COMMANDS, *PASSED_ON):
        assert f"\n  {name} " in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name, run):
    done = run(name, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"usage: rose-carla {name} ")
    assert f"examples:\n  rose-carla {name}" in done.out


@pytest.mark.parametrize("name", PASSED_ON)
def test_tables_and_figures_get_all_arguments(name, run):
    done = run(name, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"usage: rose-carla {name} ")
    done = run(name, "--nonsense")
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert "--nonsense" in done.err


def test_exit_codes_are_those_of_the_other_commands():
    assert (endings.DONE, endings.REFUSED, endings.STOPPED) == (options.DONE, options.REFUSED, options.STOPPED)


NO_TRAINING = ["--out", "none", *SMALL]
WRONG = [
    ([], "Say what to do: datasets, train"),
    (["recours"], "Unknown command 'recours': did you mean 'recourse'"),
    (["train", "loans.csv", "--ot", "x"], "Unknown option '--ot': did you mean '--out'"),
    (["train", "compas"], "required: --out"),
    (["train", "comps", *NO_TRAINING], "Unknown data set 'comps': did you mean 'compas'"),
    (["train", "lons.csv", *NO_TRAINING], "There is no file 'lons.csv'"),
    (["train", "policy", *NO_TRAINING], "'policy' is a folder"),
    (["train", "-", *ROLES, *NO_TRAINING], "give a file"),
    (["train", "compas", "--target", "score", *NO_TRAINING], "--target is for CSV files"),
    (["train", "loans.csv", "--all-actionable", *NO_TRAINING], "--all-actionable is for built-in data"),
    (["train", "loans.csv", *NO_TRAINING], "--target COL"),
    (["train", "loans.csv", "--target", "laon", *NO_TRAINING], "Unknown target column 'laon': did you mean 'loan'"),
    (["train", "loans.csv", "--target", "loan", *NO_TRAINING], "--favourable VALUE; 'loan' holds 'granted', 'refused'"),
    (["train", "loans.csv", "--target", "loan", "--favourable", "grant", *NO_TRAINING], "did you mean 'granted'"),
    (["train", "loans.csv", *ROLES, "--immutable", "agee", *NO_TRAINING], "immutable feature 'agee': did you mean"),
    (["train", "loans.csv", *ROLES, "--ignore", "nme", *NO_TRAINING], "Unknown column to ignore 'nme'"),
    (["train", "loans.csv", *ROLES, *NO_TRAINING, "--model", "lineer"], "did you mean 'linear'"),
    (["train", "loans.csv", *ROLES, *NO_TRAINING, "--model", "nowhere:model"], "No module named 'nowhere'"),
    (["train", "loans.csv", *ROLES, *NO_TRAINING, "--model", "cli_models:missing"], "cannot be imported"),
    (["train", "loans.csv", *ROLES, *NO_TRAINING, "--model", "cli_models:broken"], "ZeroDivisionError: division by"),
    (["train", "loans.csv", *ROLES, *NO_TRAINING, "--model", "cli_models:nothing"], "int is neither"),
    (["train", "compas", *NO_TRAINING, "--method", "ROSE-won"], "Unknown method 'ROSE-won': did you mean 'ROSE-one'"),
    (["train", "compas", *NO_TRAINING, "--method", "ROAR"], "ROAR plans no steps"),
    (["train", "compas", *NO_TRAINING, "--set", "tua=0.9"], "Unknown hyper-parameter 'tua': did you mean 'tau'"),
    (["train", "compas", *NO_TRAINING, "--set", "tau=9"], "tau has to be above 0 and below 1, got 9"),
    (
        ["train", "compas", *NO_TRAINING, "--set", "ppo.n_update=9"],
        "option of ppo 'n_update': did you mean 'n_updates'",
    ),
    (["train", "compas", *NO_TRAINING, "--set", "tau"], "--set takes NAME=VALUE"),
    (["train", "compas", *NO_TRAINING, "--set", "seed=3"], "--seed N"),
    (["train", "compas", *NO_TRAINING, "--seed", "-3"], "at least 0, got '-3'"),
    (["train", "loans.csv", *ROLES, *SMALL, "--out", "loans.csv"], "'loans.csv' is a file"),
    (["train", "loans.csv", *ROLES, *SMALL, "--out", "loans.csv/x"], "cannot be written"),
    (["train", "loans.csv", *ROLES, *SMALL, "--out", "policy", "--set", "tau=0.8"], "another training"),
    (["recourse", "people.csv"], "--policy DIR"),
    (["recourse", "nobody.csv", "--policy", "policy"], "'nobody.csv' cannot be read"),
    (["recourse", "people.csv", "--policy", "polic"], "There is no folder 'polic'"),
    (["recourse", "people.csv", "--policy", "."], "holds no training"),
    (["recourse", "people.csv", "--policy", "policy", "--seed", "1"], "--seed belongs to the training"),
    (["recourse", "people.csv", "--policy", "policy", "--method", "ROSE-mul"], "trained with --method ROSE-one"),
    (["recourse", "people.csv", "--policy", "policy", "--format", "jsn"], "Unknown format 'jsn': did you mean 'json'"),
    (["recourse", "people.csv", "--policy", "policy", "--id", "nam"], "Unknown column 'nam': did you mean 'name'"),
    (["recourse", "people.csv", "--policy", "policy", "--out", "people.csv"], "would be written over"),
    (["recourse", "people.csv", "--policy", "policy", "--out", "no/where.csv"], "there is no folder 'no'"),
    (["recourse", "people.csv", "--policy", "policy", "--data", "people.csv"], "has changed since"),
    (["recourse", "-", "--data", "-"], "stdin, which can be read only once"),
    (["recourse", "people.csv", "--data", "compas", *SMALL, "one", "two"], "'one' is one argument too many"),
    (["evaluate"], "Say which data"),
    (["evaluate", "compas", "--counterfactuals", "people.csv"], "needs --people"),
    (["evaluate", "compas", "--limit", "0"], "at least 1, got '0'"),
    (["evaluate", "compas", "--methods", "Wachter", "--set", "n_itr=1"], "of Wachter 'n_itr': did you mean 'n_iter'"),
    (["evaluate", "compas", "--methods", "GrSp", "--set", "n=1"], "Unknown hyper-parameter of GrSp 'n'"),
    (["datasets", "--immutable", "age", "loans.csv"], "Name the data before"),
    (["check", "--data", "compas"], "Name the method to check"),
    (["check", "cli_models:missing"], "cannot be imported"),
]


@pytest.mark.parametrize(("words", "told"), WRONG)
def test_what_cannot_be_done_is_told_in_one_line(words, told, run, folder):
    before = sorted(folder.iterdir())
    done = run(*words)
    assert done.code == 2
    assert done.out == ""
    lines = [line for line in done.err.splitlines() if not line.startswith("remark: ")]
    assert len(lines) == 1, done.err
    assert lines[0].startswith("error: ")
    assert told in lines[0]
    assert [path for path in sorted(folder.iterdir()) if path.name != "__pycache__"] == [
        path for path in before if path.name != "__pycache__"
    ]


def test_ctrl_c_ends_in_one_line(run, folder):
    done = run("train", "loans.csv", *ROLES, "--model", "cli_models:stopped", "--out", "stopped")
    assert (done.code, done.out, done.err) == (130, "", "Stopped.\n")
    assert not (folder / "stopped").exists()


# --- data sets


def test_built_in_data_sets_are_listed_with_their_numbers(run):
    done = run("datasets")
    lines = {line.split()[0]: line.split() for line in done.out.splitlines()[1:]}
    assert list(lines) == ["german", "german-typed", "adult", "compas"]
    for name in datasets.NAMES:
        data = datasets.load(name)
        share = f"{data.df[data.target].mean():.1%}"
        assert lines[name][1:5] == [f"{len(data.df):,}", str(len(data.continuous)), str(len(data.categorical)), share]
        assert " ".join(lines[name][5:]) == ", ".join(data.immutables)


def test_a_csv_file_is_described_as_the_data_set_has_it(run, direct):
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


def test_everything_that_is_wrong_with_a_csv_file_is_told_at_once(run, folder):
    frame = people(80)
    frame["income"] = frame["income"].astype(float)
    frame.loc[3, "income"] = np.nan
    frame["debt"] = frame["debt"].astype(float)
    frame.loc[4, "debt"] = np.inf
    frame["name"] = [f"N{i}" for i in range(80)]
    frame.to_csv(folder / "wrong.csv", index=False)
    done = run("datasets", "wrong.csv", "--target", "loan", "--favourable", "granted")
    assert done.code == 1
    refused = [line for line in done.out.splitlines() if line.startswith("refused: ")]
    assert len(refused) == 3
    assert "income (1)" in refused[0]
    assert "'debt'" in refused[1]
    assert "'name' has 80 values in 80 rows" in refused[2]
    assert run("datasets", "wrong.csv").code == 1


@pytest.mark.parametrize(
    ("text", "values", "value"),
    [
        ("1", [0, 1], 1),
        ("1", [0.0, 1.0], 1.0),
        ("2.0", [1, 2], 2),
        ("true", [False, True], True),
        ("FALSE", [False, True], False),
        ("1", ["10", "1"], "1"),
        (" own ", ["own", "rent"], "own"),
        ("Own", ["own", "rent"], None),
        ("1_0", [10], None),
        ("yes", [0, 1], None),
    ],
)
def test_typed_values_stand_for_numbers_booleans_and_text(text, values, value):
    found = meant(text, values)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "typed"), [({"granted": 1, "refused": 0}, "1"), ({"granted": True, "refused": False}, "true")]
)
def test_favourable_outcomes_may_be_numbers_or_booleans(kind, typed, run, folder):
    frame = people(120)
    share = (frame["loan"] == "granted").mean()
    frame.assign(loan=frame["loan"].map(kind)).to_csv(folder / "kind.csv", index=False)
    done = run("datasets", "kind.csv", "--target", "loan", "--favourable", typed)
    assert done.code == 0
    assert f"{share:.0%} with the favourable outcome" in done.out


def test_columns_can_be_ignored_and_data_come_from_stdin(run, folder, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((folder / "people.csv").read_bytes())))
    done = run("datasets", "-", *ROLES, "--ignore", "name", "debt")
    assert done.code == 0
    assert done.out.startswith("stdin: 40 people, 5 features")
    assert "\ndebt" not in done.out


# --- training


def test_training_tells_and_keeps_what_was_trained(folder, direct):
    told = dict(line.split(maxsplit=1) for line in (folder / "told").read_text().splitlines())
    accuracy = models.accuracy(direct.model, direct.data.df_test)
    assert told["classifier"].startswith(f"linear, accuracy {accuracy:.3f} on the 48 people")
    turned_down = models.negative_instances(direct.model, split="test")
    found = sum(plan.found for plan in direct.method.plan(turned_down))
    assert told["plans"].startswith(f"for {found} of {len(turned_down)} people of the test split")
    about = json.loads((folder / "policy" / "train.json").read_text())
    assert about["data"]["source"] == str(folder / "loans.csv")
    assert about["data"]["categorical"] == ["home", "zone", "vip"]
    assert about["settings"] == json.loads(json.dumps(direct.method.settings.as_dict()))
    assert about["settings"]["ppo"] == {"n_updates": 4, "n_environments": 64}
    assert (about["model"], about["method"], about["seed"]) == ("linear", "ROSE-one", 0)
    assert about["version"] == rose_carla.__version__
    assert about["command"].startswith("rose-carla train loans.csv --target loan")
    assert {path.name for path in (folder / "policy").iterdir()} == {"policy.npz", "train.json"}


def test_another_training_is_written_over_by_force_only(run, folder):
    words = ["train", "loans.csv", *ROLES, *SMALL, "--out", "forced", "--set", "search=false"]
    shutil.copytree(folder / "policy", folder / "forced")
    before = (folder / "forced" / "train.json").read_bytes()
    assert run(*words).code == 2
    assert (folder / "forced" / "train.json").read_bytes() == before
    assert run(*words, "--force").code == 0
    assert json.loads((folder / "forced" / "train.json").read_text())["settings"]["search"] is False
    assert run(*words).code == 0, "the same training may be repeated"


# --- recourse


def test_plans_are_those_of_the_method(run, folder, direct):
    done = run("recourse", "people.csv", "--policy", "policy", "--id", "name")
    assert done.code == 0
    rows = read(done.out)
    plans = direct.method.plan(direct.data.transform(direct.frame.head(40)))
    assert list(dict.fromkeys(rows["person"])) == [f"P{i}" for i in range(40)]
    assert {"plan", "accepted"} <= set(rows["status"])
    for i, plan in enumerate(plans):
        mine = rows[rows["person"] == f"P{i}"]
        assert set(mine["reason"]) == {plan.reason}
        assert float(mine["success"].iloc[-1]) == pytest.approx(plan.success.probability, abs=1e-4)
        if not plan.steps:
            assert mine[["status", "step", "feature"]].to_numpy().tolist() == [
                ["accepted" if plan.found else "no plan", "", ""]
            ]
            continue
        assert set(mine["status"]) == {"plan"}
        expected = plan.to_frame()
        assert mine["feature"].tolist() == expected["feature"].tolist()
        assert mine["step"].astype(int).tolist() == expected["step"].tolist()
        for column, slack in {"size": 1e-9, "success": 1e-4, "success_lower": 1e-4, "success_upper": 1e-4}.items():
            np.testing.assert_allclose(mine[column].astype(float), expected[column].astype(float), atol=slack)
        for column in ("from", "to"):
            for text, value in zip(mine[column], expected[column], strict=True):
                if isinstance(value, float):
                    assert float(text) == pytest.approx(value, rel=1e-9)
                else:
                    assert text == str(value)


def test_all_formats_say_the_same(run, direct):
    rows = read(run("recourse", "people.csv", "--policy", "policy").out)
    objects = [
        json.loads(line)
        for line in run("recourse", "people.csv", "--policy", "policy", "--format", "json").out.splitlines()
    ]
    text = run("recourse", "people.csv", "--policy", "policy", "--format", "text").out
    assert [each["person"] for each in objects] == [str(i) for i in range(1, 41)]
    for each in objects:
        mine = rows[rows["person"] == each["person"]]
        assert set(mine["status"]) == {each["status"]}
        assert [str(step["to"]) for step in each["steps"]] == [to for to in mine["to"] if to]
        assert float(mine["success"].iloc[-1]) == each["success"]["probability"]
    plans = direct.method.plan(direct.data.transform(direct.frame.head(40)).set_axis(range(1, 41), axis=0))
    assert text == "".join(f"{plan}\n" for plan in plans)


def test_people_are_planned_for_in_pieces_as_in_one(run, folder):
    whole = run("recourse", "people.csv", "--policy", "policy")
    pieces = run("recourse", "people.csv", "--policy", "policy", "--chunk", "7", "--out", "pieces.csv")
    assert pieces.out == ""
    assert (folder / "pieces.csv").read_text() == whole.out
    assert "40 people: " in pieces.err
    assert not [*folder.glob(".pieces*")]


def test_a_row_that_cannot_be_used_does_not_stop_the_others(run, folder):
    def change(frame):
        frame.loc[1, "income"] = ""
        frame.loc[2, "home"] = "tent"
        frame.loc[3, "debt"] = "lots"
        frame.loc[4, "income"] = "1e999"
        frame.loc[5, "income"] = "20000"
        frame.loc[6, "zone"] = "4"
        frame.loc[7, ["age", "home"]] = ["NaN", "n/a"]

    changed(folder, "bad.csv", change)
    with (folder / "bad.csv").open("a") as file:
        file.write("P40,30,1000\n\n")
    good, bad = (run("recourse", name, "--policy", "policy", "--id", "name") for name in ("people.csv", "bad.csv"))
    assert (good.code, bad.code) == (0, 1)
    rows = read(bad.out)
    refused = dict(rows.loc[rows["status"] == "refused", ["person", "reason"]].to_numpy())
    assert list(refused) == ["P1", "P2", "P3", "P4", "P5", "P6", "P7", "P40"]
    assert refused["P1"] == "income is missing: fill it in"
    assert refused["P2"].startswith("Unknown category of 'home' 'tent'")
    assert refused["P3"] == "debt is 'lots', which is no finite number"
    assert refused["P4"] == "income is '1e999', which is no finite number"
    assert refused["P5"].startswith("income is 20000, outside the range 8")
    assert "--extrapolate" in refused["P5"]
    assert refused["P6"].startswith("Unknown category of 'zone' '4'")
    assert refused["P7"] == "age is missing: fill it in; home is missing: fill it in"
    assert refused["P40"].startswith("the row has 3 values and there are 8 columns")
    kept = rows[~rows["person"].isin(refused)].reset_index(drop=True)
    others = read(good.out)
    pd.testing.assert_frame_equal(kept, others[~others["person"].isin(refused)].reset_index(drop=True))
    assert "8 refused" in bad.err


def test_values_outside_the_range_are_planned_for_if_asked_and_told(run, folder, direct):
    poor = direct.frame[direct.frame["loan"] == "refused"].head(1).assign(debt=9000)
    poor.to_csv(folder / "outside.csv", index=False)
    assert read(run("recourse", "outside.csv", "--policy", "policy").out)["status"].tolist() == ["refused"]
    done = run("recourse", "outside.csv", "--policy", "policy", "--extrapolate")
    assert done.code == 0
    rows = read(done.out)
    assert rows["reason"].str.contains("debt is 9000, outside the range").all()
    plan = direct.method.plan(direct.data.transform(poor))[0]
    assert rows["feature"].tolist() == ([step.feature for step in plan.steps] or [""])
    assert float(rows["success"].iloc[-1]) == pytest.approx(plan.success.probability, abs=1e-4)


def test_people_may_be_written_otherwise_than_the_data(run, folder):
    def change(frame):
        frame["zone"] = frame["zone"] + ".0"
        frame["vip"] = frame["vip"].str.upper()
        frame["home"] = " " + frame["home"]
        frame["age"] = frame["age"] + ".00"

    plain = run("recourse", "people.csv", "--policy", "policy")
    name = changed(folder, "otherwise.csv", change)
    frame = pd.read_csv(folder / name, dtype=str)[["vip", "zone", "home", "debt", "income", "age"]]
    (folder / name).write_bytes(b"\xef\xbb\xbf" + frame.to_csv(index=False, lineterminator="\r\n").encode())
    other = run("recourse", name, "--policy", "policy")
    assert other.out == plain.out
    assert "columns that are no features are ignored: name" in plain.err
    assert "ignored" not in other.err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"age,income\n1,2\n", "lacks the columns debt, home, zone, vip"),
        (b"age;income;debt;home;zone;vip\n", "separated by ';'"),
        (b"age,income,debt,home,zone,vip,age\n", "'age' twice"),
        (b"age,income,debt,home,zone,vip\n30,1000,1,\xff,1,True\n", "no text in UTF-8"),
    ],
)
def test_files_without_the_columns_are_refused(content, told, run, folder):
    (folder / "file.csv").write_bytes(content)
    done = run("recourse", "file.csv", "--policy", "policy", "--out", "never.csv")
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1
    assert not (folder / "never.csv").exists()


def test_nobody_gets_no_plan(run, folder):
    (folder / "nobody-there.csv").write_text("age,income,debt,home,zone,vip\n")
    done = run("recourse", "nobody-there.csv", "--policy", "policy")
    assert done.code == 0
    assert done.out.count("\n") == 1
    assert done.out.startswith("person,status,")


def test_a_training_is_used_with_its_own_data_and_policy_only(run, folder):
    moved = folder / "moved"
    shutil.copytree(folder / "policy", moved)
    about = json.loads((moved / "train.json").read_text())
    about["data"]["source"] = str(folder / "gone.csv")
    (moved / "train.json").write_text(json.dumps(about))
    assert "not there any more" in run("recourse", "people.csv", "--policy", "moved").err
    there = run("recourse", "people.csv", "--policy", "moved", "--data", "loans.csv")
    assert there.code == 0
    assert there.out == run("recourse", "people.csv", "--policy", "policy").out
    people(seed=1).to_csv(folder / "gone.csv", index=False)
    assert "has changed since" in run("recourse", "people.csv", "--policy", "moved").err
    (moved / "policy.npz").write_bytes(b"something else")
    assert (
        "damaged or of another training"
        in run("recourse", "people.csv", "--policy", "moved", "--data", "loans.csv").err
    )
    (moved / "train.json").write_text('{"format": 1}')
    assert "damaged or no training" in run("recourse", "people.csv", "--policy", "moved").err


def test_code_of_a_training_is_run_only_if_it_is_named_again(run, folder):
    words = ["train", "loans.csv", *ROLES, *SMALL[:2], "--model", "cli_models:fitted", "--out", "own"]
    done = run(*words)
    assert done.code == 0
    assert "noise" not in done.out
    assert "noise on stdout" in done.err
    refused = run("recourse", "people.csv", "--policy", "own")
    assert refused.code == 2
    assert "add --model cli_models:fitted to run it" in refused.err
    done = run("recourse", "people.csv", "--policy", "own", "--model", "cli_models:fitted", "--format", "json")
    assert done.code == 0
    assert len([json.loads(line) for line in done.out.splitlines()]) == 40


def test_a_policy_can_be_trained_on_the_way(run):
    trained = run("recourse", "people.csv", "--data", "loans.csv", *ROLES, *SMALL)
    assert trained.code == 0
    assert trained.out == run("recourse", "people.csv", "--policy", "policy").out


def test_it_works_in_a_pipe(folder):
    program = f"{sys.executable} -m rose_carla recourse"
    line = (
        f"{program} people.csv --policy policy > /dev/full 2> full.txt & "
        f"set -o pipefail; cat people.csv | {program} - --policy policy --chunk 5 | head -n 3; "
        "echo ${PIPESTATUS[@]}; wait $!; echo $?"
    )
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=folder, timeout=120, check=True)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("person,status,step")
    assert lines[1].startswith("1,")
    assert lines[3:] == ["0 0 0", "2"]
    assert done.stderr == "remark: columns that are no features are ignored: name\n"
    full = (folder / "full.txt").read_text().splitlines()
    assert full[-1] == "error: The file cannot be read or written: No space left on device."
    assert len(full) == 2


# --- files


def test_files_are_written_whole_or_stay_as_they_were(tmp_path):
    path, link = tmp_path / "file.csv", tmp_path / "link.csv"
    path.write_text("before")
    link.symlink_to(path)
    with contextlib.suppress(KeyError), streams.written(str(link)) as file:
        file.write("half")
        raise KeyError
    assert path.read_text() == "before"
    with streams.written(str(link)) as file:
        file.write("whole")
    assert link.is_symlink()
    assert path.read_text() == "whole"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file.csv", "link.csv"]


def test_devices_and_streams_are_written_and_not_replaced(tmp_path):
    queue = tmp_path / "queue"
    os.mkfifo(queue)
    reader = os.open(queue, os.O_RDONLY | os.O_NONBLOCK)
    with streams.written(str(queue)) as file:
        file.write("through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert queue.is_fifo()
    with (tmp_path / "plain").open("w") as plain:
        stream = f"/proc/self/fd/{plain.fileno()}"
        with streams.written(stream) as file:
            file.write("through")
        assert os.path.samestat(os.stat(stream), os.stat(tmp_path / "plain"))
    assert (tmp_path / "plain").read_text() == "through"


# --- evaluation


def test_evaluation_is_that_of_the_benchmark(run, folder, direct):
    words = ["evaluate", "loans.csv", *ROLES, "--model", "linear", "--limit", 6, "--samples", 60]
    done = run(*words, "--methods", "ARAR", "GrSp", "--format", "csv", "--per-person", "each.csv")
    assert done.code == 0
    shown = pd.read_csv(io.StringIO(done.out)).set_index("Method")
    each = pd.read_csv(folder / "each.csv")
    factuals = models.negative_instances(direct.model).head(6)
    assert each["Person"].tolist() == 2 * factuals.index.tolist()
    method = Arar(direct.model, {"preset": "paper", "seed": 0})
    expected = Benchmark(direct.model, method, factuals, {"n_samples": 60, "seed": 0}).run_benchmark()
    columns = ["Validity", "Sparsity", "Proximity", "Log_Density", "Gaussian_AIR", "Plausible_AIR", "Acc_AIR"]
    np.testing.assert_allclose(shown.loc["ARAR", columns].astype(float), expected[columns].mean(), rtol=1e-9)
    mine = each[each["Method"] == "ARAR"]
    for column in [*columns, "Plausible_AIR_Lower", "Acc_AIR_Upper"]:
        np.testing.assert_allclose(mine[column], expected[column], rtol=1e-9)
    assert (shown["Recourse_Time"] > 0).all()
    table = run(*words, "--methods", "ARAR", "GrSp")
    head, first, second = table.out.splitlines()
    assert head.split("  ")[-1].strip() == "Acc AIR"
    assert first.split()[:3] == ["ARAR", "6", f"{shown.loc['ARAR', 'Validity']:.2f}"]
    assert second.split()[-1] == f"{shown.loc['GrSp', 'Acc_AIR']:.2f}", "global generators are seeded for each method"


def test_a_policy_is_evaluated_as_it_is(run, direct):
    done = run("evaluate", "--policy", "policy", "--limit", 5, "--samples", 60, "--format", "csv")
    shown = pd.read_csv(io.StringIO(done.out)).set_index("Method").loc["ROSE-one of policy"]
    factuals = models.negative_instances(direct.model).head(5)
    expected = Benchmark(direct.model, direct.method, factuals, {"n_samples": 60, "seed": 0})
    assert shown["Acc_AIR"] == pytest.approx(expected.compute_acc_air()["Acc_AIR"].mean())
    assert shown["Proximity"] == pytest.approx(expected.compute_proximity()["Proximity"].mean())


def test_counterfactuals_made_elsewhere_are_evaluated(run, folder, direct):
    factuals = direct.frame.head(40)
    encoded = direct.data.transform(factuals)
    refused = ~models.favourable(direct.model)(encoded[direct.model.feature_input_order].to_numpy())
    ends = factuals.assign(income=9500, home="own").drop(columns="loan").astype(object)
    nothing = factuals.index[refused][1]
    ends.loc[nothing] = ""
    ends.to_csv(folder / "ends.csv", index=False)
    words = ["evaluate", "loans.csv", *ROLES, "--model", "linear", "--samples", 60, "--people", "people.csv"]
    done = run(*words, "--id", "name", "--counterfactuals", "ends.csv", "--format", "csv", "--per-person", "each.csv")
    assert done.code == 0, done.err
    assert f"{(~refused).sum()} of 40 people are accepted already and left out" in done.err
    each = pd.read_csv(folder / "each.csv")
    assert each["Person"].tolist() == [f"P{i}" for i in np.flatnonzero(refused)]
    there = encoded[refused]
    expected = direct.data.transform(factuals.assign(income=9500, home="own"))[refused]
    expected.loc[nothing] = np.nan
    noise = {"n_samples": 60, "seed": 0}
    for name, metric in {
        "Validity": metrics.Validity(direct.model),
        "Sparsity": metrics.Sparsity(direct.model),
        "Proximity": metrics.Proximity(direct.model),
        "Plausible_AIR": metrics.PlausibleAIR(direct.model, noise),
        "Acc_AIR": metrics.AccAIR(direct.model, noise),
    }.items():
        np.testing.assert_allclose(each[name], metric.get_evaluation(there, expected)[name])
    assert each["Validity"].iloc[1] == 0
    assert each["Recourse_Time"].isna().all()
    ends.head(39).to_csv(folder / "ends.csv", index=False)
    done = run(*words, "--counterfactuals", "ends.csv")
    assert done.code == 2
    assert "39 rows for 40 people" in done.err


def test_a_method_that_fails_does_not_stop_the_others(run):
    words = ["evaluate", "loans.csv", *ROLES, "--model", "linear", "--limit", 4, "--samples", 20, "--format", "csv"]
    done = run(*words, "--methods", "cli_models:Raises", "cli_models:Liked")
    assert done.code == 1
    assert [line.split(",")[0] for line in done.out.splitlines()] == ["Method", "cli_models:Liked"]
    (failed,) = [line for line in done.err.splitlines() if line.startswith("failed: ")]
    assert failed.startswith("failed: cli_models:Raises: RuntimeError: out of luck")


# --- checks


def test_a_method_is_checked_against_the_contract(run):
    words = ["--data", "loans.csv", *ROLES, "--limit", 5]
    done = run("check", "ARAR", *words)
    assert done.code == 0
    assert done.out.splitlines()[0] == "ARAR on 5 people of loans.csv, classifier linear"
    assert [line.split()[-1] for line in done.out.splitlines()[1:]] == ["holds"] * 13
    done = run("check", "cli_models:Liked", *words)
    assert done.code == 1
    broken = [line.split("  ")[1] for line in done.out.splitlines() if "breaks: " in line]
    assert broken == ["immutables"]


def test_the_installation_is_checked(run, monkeypatch, tmp_path):
    done = run("check")
    assert done.code == 0, done.out
    said = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert said["carla-recourse"] == "0.0.5"
    assert "ROSE-one trains and plans" in done.out
    monkeypatch.setenv("ROSE_CARLA_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("rose_carla.cli.commands.check._self_test", lambda: "left out")
    done = run("check")
    assert done.code == 1
    (line,) = [line for line in done.out.splitlines() if line.startswith("cache ")]
    assert "FAILS: " in line


def test_csv_output_can_be_read_back_whatever_the_names(run, folder):
    def change(frame):
        frame["name"] = [f'"{i}", said\nsomebody' for i in range(len(frame))]

    name = changed(folder, "names.csv", change)
    done = run("recourse", name, "--policy", "policy", "--id", "name")
    rows = [*csv.DictReader(io.StringIO(done.out))]
    assert list(dict.fromkeys(row["person"] for row in rows)) == [f'"{i}", said\nsomebody' for i in range(40)]
