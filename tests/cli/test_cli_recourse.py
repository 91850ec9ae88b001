"""``rose-carla recourse``: plans in files are those of the method, whatever the people's file is like."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from rose_carla import datasets
from cli_examples import ROLES, SMALL, changed, people, read
from rose_carla.cli import streams, training
from rose_carla.cli.parser import CommandError
from rose_carla.cli.people import People
from rose_carla.cli.training import checksum

pytest_plugins = ("cli_examples",)  # its fixtures


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


def test_categories_that_differ_by_spaces_only_are_told_apart(tmp_path):
    homes = ["x", " x", "y"] * 20
    frame = pd.DataFrame({"self": range(60), "home": homes, "loan": [0, 1] * 30})
    data = datasets.from_frame(frame, "loan", name="spaces")
    (tmp_path / "people.csv").write_text("self,home\n 1 , x\n1,x\n1,x \n1,  x\n1, y\n1, z\n1, \n")
    (chunk,) = People(data).chunks(str(tmp_path / "people.csv"), 10)
    assert data.inverse_transform(chunk.encoded)["home"].tolist() == [" x", "x", "x", "x", "y"]
    assert chunk.refused[5].startswith("Unknown category of 'home' 'z'")
    assert chunk.refused[6] == "home is missing: fill it in"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"age,income\n1,2\n", "lacks the columns debt, home, zone, vip"),
        (b"age;income;debt;home;zone;vip\n", "separated by ';'"),
        (b"age,income,debt,home,zone,vip,age\n", "'age' twice"),
        (b"age,income,debt,home,zone,vip\n30,1000,1,\xff,1,True\n", "no text in UTF-8"),
        (b"age,income,debt,home,zone,vip\n3,1,1," + 200_000 * b"a" + b",1,True\n", "from line 2 on: field larger"),
        (b'age,income,debt,home,zone,vip\n3,1,1,own,1,True\n3,"1\n\n', "Look for a quote that is not closed"),
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
    assert "changed or damaged after it was written" in run("recourse", "people.csv", "--policy", "moved").err
    del about["checksum"]
    (moved / "train.json").write_text(json.dumps({**about, "checksum": checksum(about)}))
    assert "not there any more" in run("recourse", "people.csv", "--policy", "moved").err
    there = run("recourse", "people.csv", "--policy", "moved", "--data", "loans.csv")
    assert there.code == 0
    assert there.out == run("recourse", "people.csv", "--policy", "policy").out
    people(seed=1).to_csv(folder / "gone.csv", index=False)
    assert "has changed since" in run("recourse", "people.csv", "--policy", "moved").err
    (moved / "policy.safetensors").write_bytes(b"something else")
    assert (
        "damaged or of another training"
        in run("recourse", "people.csv", "--policy", "moved", "--data", "loans.csv").err
    )
    (moved / "train.json").write_text('{"format": 2}')
    assert "damaged or no training" in run("recourse", "people.csv", "--policy", "moved").err


@pytest.mark.parametrize(
    "odd",
    [
        {"model": 5},
        {"method": None},
        {"seed": True},
        {"seed": 2**32},
        {"settings": []},
        {"sha256": None},
        {"data": {"source": 5}},
        {"data": {"source": ["loans.csv"]}},
        {"data": {"source": [["loans.csv"]]}},
        {"data": {"target": 1}},
        {"data": {"immutable": 5}},
        {"data": {"immutable": "age"}},
        {"data": {"favourable": 1.5}},
        {"data": {"categorical": [["home"]]}},
        {"data": {"continuous": 0}},
        {"data": {"all_actionable": "no"}},
    ],
)
def test_a_training_that_is_signed_and_odd_is_refused(odd, folder, tmp_path):
    about = json.loads((folder / "policy" / "train.json").read_text())
    about |= {**odd, "data": {**about["data"], **odd.get("data", {})}}
    del about["checksum"]
    (tmp_path / "train.json").write_text(json.dumps({**about, "checksum": checksum(about)}))
    with pytest.raises(CommandError, match="is damaged or no training: train anew"):
        training.read(tmp_path)


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


def test_it_works_in_a_pipe(folder, warm_python):
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
    assert done.stderr == "remark: columns that are no features are ignored: name\n"
    full = (folder / "full.txt").read_text().splitlines()
    assert full[-1] == "error: The file cannot be read or written: No space left on device."
    assert len(full) == 2


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


def test_a_link_to_nothing_becomes_a_link_to_a_whole_file(tmp_path):
    path, link, nowhere = tmp_path / "file.csv", tmp_path / "link.csv", tmp_path / "nowhere.csv"
    link.symlink_to(path)
    nowhere.symlink_to(tmp_path / "missing" / "file.csv")
    with contextlib.suppress(KeyError), streams.written(str(link)) as file:
        file.write("half")
        raise KeyError
    assert not path.exists()
    with streams.written(str(link)) as file:
        file.write("whole")
    assert link.is_symlink()
    assert path.read_text() == "whole"
    with pytest.raises(CommandError, match=r"there is no folder '.*missing'"):
        streams.writable(str(nowhere))


def test_a_file_that_is_replaced_stays_as_private_as_it_was(tmp_path):
    path = tmp_path / "file.csv"
    path.write_text("before")
    path.chmod(0o600)
    with streams.written(str(path)) as file:
        assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}
        file.write("whole")
    assert path.read_text() == "whole"
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_file_that_a_shell_reads_from_is_not_written_over(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("before")
    script = "import sys; from rose_carla.cli import streams; streams.writable(sys.argv[1], '-')"
    with path.open() as file:
        done = subprocess.run([sys.executable, "-c", script, path], stdin=file, capture_output=True, text=True)
    assert "would be written over" in done.stderr


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
