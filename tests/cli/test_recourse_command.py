"""``rose-carla recourse``: the plans it writes are those of the method."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading

import pandas as pd
import pytest
from cli_examples import ROLES, SMALL, changed, people, read
from rose_carla._lib.files import load_arrays, save_arrays
from rose_carla.cli.console import CommandError
from rose_carla.cli.inputs import POLICY, read_training
from rose_carla.rose.plan import COLUMNS

pytest_plugins = ("cli_examples",)


def test_csv_has_the_rows_of_the_plans(run, direct):
    done = run("recourse", "people.csv", "--policy", "policy", "--id", "name")
    assert done.code == 0
    labels = pd.Index([f"P{i}" for i in range(40)])
    plans = direct.method.plan(direct.data.transform(direct.frame.head(40)).set_axis(labels, axis=0))
    rows = read(done.out)
    assert {"plan", "accepted"} <= set(rows["status"])
    expected = [
        ["" if cell is None else str(cell) for cell in row.values()] for plan in plans for row in plan.to_rows()
    ]
    assert rows.columns.tolist() == list(COLUMNS)
    assert rows.to_numpy().tolist() == expected


def test_formats_agree(run, direct):
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
        assert {float(nothing) for nothing in mine["without_plan"]} == {each["without_plan"]["probability"]}
        assert [str(step["accepted"]) for step in each["steps"]] == [*mine.loc[mine["step"] != "", "accepted"]]
    plans = direct.method.plan(direct.data.transform(direct.frame.head(40)).set_axis(range(1, 41), axis=0))
    assert text == "".join(f"{plan}\n" for plan in plans)


def test_chunks_do_not_change_the_plans(run, folder):
    whole = run("recourse", "people.csv", "--policy", "policy")
    pieces = run("recourse", "people.csv", "--policy", "policy", "--chunk", "7", "--out", "pieces.csv")
    assert pieces.out == ""
    assert (folder / "pieces.csv").read_text() == whole.out
    assert "40 people: " in pieces.err
    assert not [*folder.glob(".pieces*")]


def test_invalid_row_does_not_stop_the_others(run, folder):
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
    invalid = dict(rows.loc[rows["status"] == "invalid", ["person", "reason"]].to_numpy())
    assert list(invalid) == ["P1", "P2", "P3", "P4", "P5", "P6", "P7", "P40"]
    assert invalid["P1"] == "income is missing: fill it in"
    assert invalid["P2"].startswith("Unknown category of 'home' 'tent'")
    assert invalid["P3"] == "debt is 'lots', not a finite number"
    assert invalid["P4"] == "income is '1e999', not a finite number"
    assert invalid["P5"].startswith("income is 20000, outside the range 8")
    assert "--extrapolate" in invalid["P5"]
    assert invalid["P6"].startswith("Unknown category of 'zone' '4'")
    assert invalid["P7"] == "age is missing: fill it in; home is missing: fill it in"
    assert invalid["P40"].startswith("the row has 3 values for 8 columns")
    kept = rows[~rows["person"].isin(invalid)].reset_index(drop=True)
    others = read(good.out)
    pd.testing.assert_frame_equal(kept, others[~others["person"].isin(invalid)].reset_index(drop=True))
    assert "8 invalid" in bad.err


def test_extrapolate_plans_outside_the_range(run, folder, direct):
    poor = direct.frame[direct.frame["loan"] == "refused"].head(1).assign(debt=9000)
    poor.to_csv(folder / "outside.csv", index=False)
    assert read(run("recourse", "outside.csv", "--policy", "policy").out)["status"].tolist() == ["invalid"]
    done = run("recourse", "outside.csv", "--policy", "policy", "--extrapolate")
    assert done.code == 0
    rows = read(done.out)
    assert rows["reason"].str.contains("debt is 9000, outside the range").all()
    plan = direct.method.plan(direct.data.transform(poor))[0]
    assert rows["feature"].tolist() == ([step.feature for step in plan.steps] or [""])
    assert float(rows["success"].iloc[-1]) == pytest.approx(plan.success.probability, abs=1e-4)


def test_spelling_may_differ_from_the_data(run, folder):
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
    assert "ignored columns that are not features: name" in plain.err
    assert "ignored" not in other.err


def test_empty_file_gives_the_header_only(run, folder):
    (folder / "empty.csv").write_text("age,income,debt,home,zone,vip\n")
    done = run("recourse", "empty.csv", "--policy", "policy")
    assert done.code == 0
    assert done.out.count("\n") == 1
    assert done.out.startswith("person,status,")


def rewrite(folder, change):
    """Change the training in a policy file, with a valid checksum."""
    arrays, metadata = load_arrays(folder / POLICY)
    change(metadata["training"])
    save_arrays(folder / POLICY, arrays, metadata)


def test_policy_requires_its_own_data(run, folder):
    elsewhere = folder / "elsewhere"
    shutil.copytree(folder / "policy", elsewhere)
    rewrite(elsewhere, lambda training: training["data"].update(source=str(folder / "gone.csv")))
    assert "no longer exist" in run("recourse", "people.csv", "--policy", "elsewhere").err
    there = run("recourse", "people.csv", "--policy", "elsewhere", "--data", "loans.csv")
    assert there.code == 0
    assert there.out == run("recourse", "people.csv", "--policy", "policy").out
    people(seed=1).to_csv(folder / "gone.csv", index=False)
    assert "has changed since training" in run("recourse", "people.csv", "--policy", "elsewhere").err
    (elsewhere / POLICY).write_bytes(b"something else")
    assert "Re-run 'rose-carla train'" in run("recourse", "people.csv", "--policy", "elsewhere").err


@pytest.mark.parametrize("values", [{"unknown": 1}, {"data": {"unknown": 1}}])
def test_training_with_unknown_entries_is_an_error(values, folder, tmp_path):
    shutil.copy(folder / "policy" / POLICY, tmp_path)
    data = values.get("data", {})
    rewrite(tmp_path, lambda training: training.update({**values, "data": {**training["data"], **data}}))
    with pytest.raises(CommandError, match="not a valid policy folder"):
        read_training(tmp_path)


@pytest.mark.slow
def test_user_code_of_a_policy_must_be_named_again(run, folder):
    words = ["train", "loans.csv", *ROLES, *SMALL[:2], "--model", "cli_models:fitted", "--out", "own"]
    done = run(*words)
    assert done.code == 0
    assert "noise" not in done.out
    assert "noise on stdout" in done.err
    done = run("recourse", "people.csv", "--policy", "own")
    assert done.code == 2
    assert "add --model cli_models:fitted to run it" in done.err
    done = run("recourse", "people.csv", "--policy", "own", "--model", "cli_models:fitted", "--format", "json")
    assert done.code == 0
    assert len([json.loads(line) for line in done.out.splitlines()]) == 40


def test_policy_can_be_trained_by_the_command(run):
    trained = run("recourse", "people.csv", "--data", "loans.csv", *ROLES, *SMALL)
    assert trained.code == 0
    assert trained.out == run("recourse", "people.csv", "--policy", "policy").out


@pytest.mark.slow
def test_works_in_a_pipe(folder, warm_python):
    program = f"{warm_python.executable} -m rose_carla recourse"
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
    assert done.stderr == "remark: ignored columns that are not features: name\n"
    full = (folder / "full.txt").read_text().splitlines()
    assert full[-1] == "error: Cannot read or write the file: No space left on device."
    assert len(full) == 2


@pytest.mark.slow
def test_plans_are_written_before_the_input_ends(folder, warm_python):
    lines = (folder / "people.csv").read_text().splitlines(keepends=True)
    words = [warm_python.executable, "-m", "rose_carla", "recourse", "-", "--policy", "policy", "--format", "json"]
    with subprocess.Popen(
        [*words, "--chunk", "5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
    ) as process:
        timer = threading.Timer(60, process.stdin.close)
        timer.start()
        process.stdin.writelines(lines[:8])  # the header and seven people
        process.stdin.flush()
        first = [json.loads(process.stdout.readline()) for _ in range(5)]
        timer.cancel()
        assert not process.stdin.closed, "the command waits for the end of its input"
        process.stdin.writelines(lines[8:])
        process.stdin.close()
        answers = [*first, *map(json.loads, process.stdout)]
    assert process.returncode == 0
    assert [answer["person"] for answer in answers] == [str(number) for number in range(1, 41)]
