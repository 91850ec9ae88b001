"""The command ``rose-carla``: how it starts and ends, what it refuses, data sets and training."""

from __future__ import annotations

import io
import json
import shutil
import signal
import subprocess
import sys

import rose_carla
import numpy as np
import pytest
from rose_carla import datasets, models
from cli_examples import ROLES, SMALL, people
from rose_carla.cli import COMMANDS, PASSED_ON
from rose_carla.cli.data import meant

pytest_plugins = ("cli_examples",)  # its fixtures


def test_help_and_version_import_no_command(tmp_path):
    script = (
        "import sys; from rose_carla.cli import main\n"
        "assert main(['--help']) == main(['--version']) == 0\n"
        "print([name for name in sys.modules if name.startswith(('sklearn', 'numba', 'rose_carla.bench'))])"
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
    (
        ["train", "compas", *NO_TRAINING, "--seed", "4294967296"],
        "--seed: has to be a whole number of at most 4294967295",
    ),
    (["train", "compas", *NO_TRAINING, "--set", "ppo=" + "[" * 200_000], "write a smaller value"),
    (["train", "compas", *NO_TRAINING, "--set", "tau=" + "9" * 5000], "write a smaller value"),
    (["train", "loans.csv", *ROLES, *SMALL, "--out", "loans.csv"], "'loans.csv' is a file"),
    (["train", "loans.csv", *ROLES, *SMALL, "--out", "loans.csv/x"], "cannot be written"),
    (["train", "named/policy.safetensors", *ROLES, *SMALL, "--out", "named", "--force"], "would be written over"),
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
    (["recourse", "people.csv", "--policy", "policy", "--out", "loans.csv"], "'loans.csv' is read by this command"),
    (["recourse", "people.csv", "--policy", "policy", "--out", "policy/policy.safetensors"], "would be written over"),
    (["recourse", "people.csv", "--policy", "policy", "--out", "policy/train.json"], "would be written over"),
    (["recourse", "people.csv", "--data", "loans.csv", *ROLES, *SMALL, "--out", "loans.csv"], "would be written over"),
    (["recourse", "people.csv", "--policy", "policy", "--out", "no/where.csv"], "there is no folder 'no'"),
    (["recourse", "people.csv", "--policy", "policy", "--data", "people.csv"], "has changed since"),
    (["recourse", "-", "--data", "-"], "stdin, which can be read only once"),
    (["recourse", "people.csv", "--data", "compas", *SMALL, "one", "two"], "'one' is one argument too many"),
    (["evaluate"], "Say which data"),
    (["evaluate", "compas", "--counterfactuals", "people.csv"], "needs --people"),
    (["evaluate", "loans.csv", *ROLES, "--methods", "GrSp", "--per-person", "loans.csv"], "would be written over"),
    (["evaluate", "--policy", "policy", "--per-person", "loans.csv"], "would be written over"),
    (["evaluate", "--policy", "policy", "--per-person", "policy/policy.safetensors"], "would be written over"),
    (
        ["evaluate", "--policy", "policy", "--methods", "GrSp", "--people", "people.csv", "--counterfactuals", "GrSp"],
        "'GrSp' is named like another row of the table: rename the file",
    ),
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
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have it ignored in the background
    try:
        done = run("train", "loans.csv", *ROLES, "--model", "cli_models:stopped", "--out", "stopped")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.code, done.out, done.err) == (130, "", "Stopped.\n")
    assert not (folder / "stopped").exists()


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
        (" own ", [" own", "own"], "own"),
        (" own", ["own", " own"], " own"),
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
    assert about["settings"]["ppo"] == {"n_updates": 4, "n_envs": 64}
    assert (about["model"], about["method"], about["seed"]) == ("linear", "ROSE-one", 0)
    assert about["version"] == rose_carla.__version__
    assert about["command"].startswith("rose-carla train loans.csv --target loan")
    assert {path.name for path in (folder / "policy").iterdir()} == {"policy.safetensors", "train.json"}


def test_another_training_is_written_over_by_force_only(run, folder):
    words = ["train", "loans.csv", *ROLES, *SMALL, "--out", "forced", "--set", "search=false"]
    shutil.copytree(folder / "policy", folder / "forced")
    before = (folder / "forced" / "train.json").read_bytes()
    assert run(*words).code == 2
    assert (folder / "forced" / "train.json").read_bytes() == before
    assert run(*words, "--force").code == 0
    assert json.loads((folder / "forced" / "train.json").read_text())["settings"]["search"] is False
    assert run(*words).code == 0, "the same training may be repeated"
