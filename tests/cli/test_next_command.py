"""``rose-carla next``, and the options of other commands for people who come back."""

from __future__ import annotations

import io
import json
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
from rose_carla import Benchmark, RoseOne, models
from cli_examples import ROLES, SMALL, changed, inside, read
from rose_carla._lib.files import load_arrays, save_arrays
from rose_carla.cli import main
from rose_carla.cli.inputs import POLICY
from rose_carla.rose.plan import COLUMNS

pytest_plugins = ("cli_examples",)

NEXT = ("next", "people.csv", "--policy", "policy")
CLOSED_LOOP = ["Closed_Loop_AIR", "Closed_Loop_Cost", "Closed_Loop_Decisions"]


@pytest.fixture(scope="module")
def fastar(folder):
    """The folder of a FastAR policy."""
    with inside(folder):
        assert main(["train", "loans.csv", *ROLES, *SMALL, "--method", "FastAR", "--out", "fastar"]) == 0
    return "fastar"


def test_training_stores_what_the_next_step_needs(run, folder, monkeypatch):
    arrays, _ = load_arrays(folder / "policy" / POLICY)
    assert {name.partition(".")[0] for name in arrays} == {"weights", "fingerprint", "closed-loop-accepted"}
    monkeypatch.setattr(RoseOne, "fit_closed_loop", lambda *given: pytest.fail("trained again"))
    assert run(*NEXT).code == 0


def test_steps_are_those_of_the_method(run, direct):
    done = run(*NEXT, "--id", "name", "--format", "csv")
    assert done.code == 0
    labels = pd.Index([f"P{i}" for i in range(40)])
    people = direct.data.transform(direct.frame.head(40)).set_axis(labels, axis=0)
    plans = direct.method.next_steps(people)
    rows = read(done.out)
    assert rows.columns.tolist() == list(COLUMNS)
    assert rows["person"].tolist() == labels.tolist()  # one row each
    assert {"plan", "accepted"} == set(rows["status"])
    expected = [
        ["" if cell is None else str(cell) for cell in row.values()] for plan in plans for row in plan.to_rows()
    ]
    assert rows.to_numpy().tolist() == expected
    accepted = models.favourable(direct.model)(people[direct.model.feature_input_order].to_numpy(dtype=float))
    assert (rows["status"] == "accepted").tolist() == accepted.tolist()
    assert rows.loc[accepted, "reason"].str.startswith("accepted already").all()
    assert "40 people: " in done.err


def test_formats_agree(run):
    rows = read(run(*NEXT, "--format", "csv").out)
    objects = [json.loads(line) for line in run(*NEXT, "--format", "json").out.splitlines()]
    text = run(*NEXT).out
    assert text == run(*NEXT, "--format", "text").out
    assert [each["person"] for each in objects] == rows["person"].tolist() == [str(i) for i in range(1, 41)]
    for each, (_, row) in zip(objects, rows.iterrows(), strict=True):
        assert each["status"] == row["status"]
        if each["status"] == "plan":
            (step,) = each["steps"]
            assert (step["feature"], str(step["to"])) == (row["feature"], row["to"])
            assert step["success"] == each["success"]
            assert f"Plan for person {row['person']}\n" in text
        else:
            assert each["steps"] == []
            assert f"Person {row['person']}: accepted already" in text


def test_people_come_from_stdin_and_go_to_a_file(run, folder, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((folder / "people.csv").read_bytes())))
    piped = run("next", "-", "--policy", "policy", "--format", "csv", "--out", "next.csv")
    assert (piped.code, piped.out) == (0, "")
    assert (folder / "next.csv").read_text() == run(*NEXT, "--format", "csv").out


def test_people_who_follow_the_steps_exactly_are_accepted(run, folder):
    frame = pd.read_csv(folder / "people.csv", dtype=str)
    for _visit in range(15):
        frame.to_csv(folder / "now.csv", index=False)
        rows = read(run("next", "now.csv", "--policy", "policy", "--format", "csv", "--extrapolate").out)
        for position in np.flatnonzero(rows["status"] == "plan"):
            feature = rows["feature"].iloc[position]
            assert frame.loc[position, feature] != rows["to"].iloc[position]
            frame.loc[position, feature] = rows["to"].iloc[position]
            assert feature != "age"  # immutable
    assert (rows["status"] == "accepted").mean() > 0.9


def test_invalid_rows_do_not_stop_the_others(run, folder):
    def change(frame):
        frame.loc[1, "income"] = ""
        frame.loc[2, "home"] = "tent"
        frame.loc[5, "income"] = "20000"

    done = run("next", changed(folder, "wrong.csv", change), "--policy", "policy", "--format", "csv")
    assert done.code == 1
    assert "3 invalid" in done.err
    rows, good = read(done.out), read(run(*NEXT, "--format", "csv").out)
    assert (rows["status"] == "invalid").to_numpy().nonzero()[0].tolist() == [1, 2, 5]
    assert rows["reason"].iloc[1] == "income is missing: fill it in"
    pd.testing.assert_frame_equal(rows.drop([1, 2, 5]), good.drop([1, 2, 5]))
    outside = run("next", "wrong.csv", "--policy", "policy", "--format", "csv", "--extrapolate")
    assert "outside the range" in read(outside.out)["reason"].iloc[5]
    assert read(outside.out)["status"].iloc[5] != "invalid"


def test_damaged_policies_and_wrong_options_end_in_one_sentence(run, folder):
    arrays, metadata = load_arrays(folder / "policy" / POLICY)
    shutil.copytree(folder / "policy", folder / "broken")
    name = next(name for name, array in arrays.items() if name.startswith("closed-loop-") and array.ndim == 2)
    lost = {key: array for key, array in arrays.items() if key != name}
    for other in (lost, {**arrays, name: arrays[name][:, :1]}, {**arrays, name: arrays[name] * np.nan}):
        save_arrays(folder / "broken" / POLICY, other, metadata)
        check_error(run("next", "people.csv", "--policy", "broken"))
    (folder / "broken" / POLICY).write_bytes(b"something else")
    check_error(run("next", "people.csv", "--policy", "broken"), "Re-run 'rose-carla train'")
    check_error(run("next", "people.csv", "--policy", "nowhere"))
    check_error(run("next", "nobody.csv", "--policy", "policy"), "nobody.csv")
    check_error(run("next", "people.csv"), "--policy")
    check_error(run(*NEXT, "--format", "xml"), "xml")
    check_error(run(*NEXT, "--out", "people.csv"))


def check_error(done, words=""):
    """One sentence on stderr, and nothing on stdout."""
    assert (done.code, done.out) == (2, "")
    message = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(message) == 1
    assert words in message[0]
    assert "Traceback" not in done.err


def test_policies_without_noise_have_a_next_step(run, fastar):
    done = run("next", "people.csv", "--policy", fastar, "--format", "csv")
    assert done.code == 0
    rows = read(done.out)
    assert {"plan", "accepted"} == set(rows["status"])
    assert set(rows["success"].astype(float)) <= {0.0, 1.0}


def test_plans_with_revisits(run, folder, direct):
    pd.read_csv(folder / "people.csv", dtype=str).head(12).to_csv(folder / "few.csv", index=False)
    words = ["recourse", "few.csv", "--policy", "policy", "--id", "name", "--revisits", 3]
    done = run(*words)
    assert done.code == 0
    labels = pd.Index([f"P{i}" for i in range(12)])
    people = direct.data.transform(direct.frame.head(12)).set_axis(labels, axis=0)
    plans = direct.method.plan(people, revisits=3)
    rows = read(done.out)
    expected = [["" if cell is None else str(cell) for cell in row.values()] for p in plans for row in p.to_rows()]
    assert rows.to_numpy().tolist() == expected
    assert set(rows["revisits"]) == {"3"}
    plain = read(run(*words[:-2]).out)
    back = ["revisits", "revisited", "revisited_lower", "revisited_upper"]
    pd.testing.assert_frame_equal(rows.drop(columns=back), plain.drop(columns=back))
    assert (plain[back] == "").all(axis=None)
    text = run(*words, "--format", "text").out
    assert text.count("  Coming back up to 3 times: success ") == 12
    objects = [json.loads(line) for line in run(*words, "--format", "json").out.splitlines()]
    assert [each["revisited"] for each in objects] == [plan.revisited.to_dict() for plan in plans]
    check_error(run(*words[:-1], 0), "revisits")


def test_revisits_need_a_method_that_knows_noise(run, fastar):
    done = run("recourse", "people.csv", "--policy", fastar, "--revisits", 3)
    check_error(done, "--revisits needs a method that knows noise, which FastAR does not.")


def test_closed_loop_is_evaluated_on_request(run, folder, direct):
    words = ["evaluate", "--policy", "policy", "--limit", 4, "--samples", 20]
    done = run(*words, "--closed-loop", "--format", "csv", "--per-person", "each.csv")
    assert done.code == 0, done.err
    shown = pd.read_csv(io.StringIO(done.out)).set_index("Method").loc["ROSE-one of policy"]
    factuals = models.negative_instances(direct.model).head(4)
    benchmark = Benchmark(direct.model, direct.method, factuals, {"n_samples": 20, "seed": 0}, {})
    expected = benchmark.compute_metric("Closed_Loop_AIR")
    for column in CLOSED_LOOP:
        assert shown[column] == pytest.approx(expected[column].mean(), nan_ok=True)
    each = pd.read_csv(folder / "each.csv")
    np.testing.assert_allclose(each[expected.columns], expected, rtol=1e-9)
    table = run(*words, "--closed-loop").out
    assert "Closed-loop AIR" in table
    assert "# of decisions" in table
    assert "Closed" not in run(*words).out


def test_counterfactuals_from_elsewhere_cannot_be_asked_again(run, folder, direct):
    ends = direct.frame.head(40).assign(income=9500, home="own").drop(columns="loan")
    ends.to_csv(folder / "given.csv", index=False)
    words = ["evaluate", "loans.csv", *ROLES, "--model", "linear", "--samples", 20, "--people", "people.csv"]
    words += ["--counterfactuals", "given.csv", "--closed-loop"]
    done = run(*words, "--format", "csv", "--per-person", "each.csv")
    assert done.code == 0, done.err
    shown = pd.read_csv(io.StringIO(done.out)).set_index("Method").loc["given.csv"]
    assert shown[[*CLOSED_LOOP, "Recourse_Time"]].isna().all()
    assert shown["Validity"] > 0.5
    assert pd.read_csv(folder / "each.csv")[CLOSED_LOOP].isna().all(axis=None)
    assert run(*words).out.splitlines()[1].split()[-3:] == ["-", "-", "-"]
