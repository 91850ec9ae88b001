"""The command of Table 1: a quick run, an interruption, and the report in a browser."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fault_trials import TIMES, stored_cells, table
from rose_carla.bench import TABLE_1
from rose_carla.cli import main

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "run_table1.py"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
FAST = ("GrSp", "Wachter", "PROBE")
METRICS = ["Validity", "Sparsity", "Proximity", "Log_Density", "Gaussian_AIR", "Plausible_AIR", "Acc_AIR"]


def command(python, out, cells, *further):
    return [
        python, str(SCRIPT), "--quick", "--datasets", "german", "--out", str(out), "--cells", str(cells), *further,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def quick(tmp_path_factory, warm_python):
    """Return the folder of a quick run of all methods on one data set, shared by parallel test processes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "quick"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done.json").exists():
            words = command(warm_python.executable, folder / "out", folder / "cells")
            done = subprocess.run(words, capture_output=True, text=True, timeout=400, check=False)
            output = {"code": done.returncode, "out": done.stdout, "err": done.stderr}
            (folder / "done.json").write_text(json.dumps(output))
    return folder


def test_method_of_failing_module_is_rejected_and_does_not_shadow_libraries(capsys, monkeypatch, tmp_path):
    (tmp_path / "broken_method.py").write_text("raise RuntimeError('not today')")
    (tmp_path / "json.py").write_text("raise RuntimeError('the wrong json')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["table1", "--methods", "broken_method:Method"]) == 2
    assert capsys.readouterr().err == (
        "error: The method 'broken_method:Method' cannot be imported: RuntimeError: not today.\n"
    )
    assert str(tmp_path) not in sys.path


def test_quick_run_writes_all_files_and_values(quick):
    done = json.loads((quick / "done.json").read_text())
    assert done["code"] == 0, done["err"]
    assert {path.name for path in (quick / "out").iterdir()} == {
        "logs", "report.html", "run.json", "table1.csv", "table1.md", "table1.tex", "table1-people.csv",
        "table1-claims.csv", "table1-tests.csv", "table1-plausible-air.svg", "table1-acc-air.svg",
    }  # fmt: skip
    logs, cells = (quick / "out" / "logs").iterdir(), (quick / "cells").rglob("*.safetensors")
    assert {path.stem for path in logs} == {path.stem for path in cells} != set()
    places = pd.read_csv(quick / "out" / "table1.csv")
    assert list(dict.fromkeys(places["method"])) == list(TABLE_1)
    assert len(places) == 9 * 9
    assert np.isfinite(places[["mean", "n"]]).all(axis=None)
    assert set(places["metric"]) == {*METRICS, *TIMES}
    persons = pd.read_csv(quick / "out" / "table1-people.csv")
    assert (persons.groupby("Method").size() == 10).all()
    for method in TABLE_1:
        assert f"\n{method} " in done["out"]
    assert "German Credit" in done["out"]
    assert "0 of 36 cells were stored before" in done["out"]


def test_run_json_has_provenance(quick):
    about = json.loads((quick / "out" / "run.json").read_text())
    assert about["command"].startswith("python benchmarks/run_table1.py --quick --datasets german --out ")
    assert about["revision"]
    assert len(about["source"]) == 64
    assert about["started"].endswith(" UTC")
    assert about["seconds"] > 0
    assert about["failed"] == []
    assert (about["cells"]["reused"], about["cells"]["all"]) == (0, 36)
    assert about["cells"]["seconds"] > 0
    expected = {
        "actionable": False, "backend": "local", "cells": str(quick / "cells"), "classifier": "ann",
        "closed_loop": False,
        "datasets": ["german"], "methods": list(TABLE_1), "noise_per": "unit",
        "out": str(quick / "out"), "quick": True, "scheduler": None,
        "seeds": 1,
    }  # fmt: skip
    assert {name: value for name, value in about["settings"].items() if name != "jobs"} == expected
    assert about["settings"]["jobs"] >= 1
    for name in ("python", "rose-carla", "carla-recourse", "numpy", "pandas", "scikit-learn", "scipy", "torch"):
        assert about["versions"][name][0].isdigit(), name
    assert about["machine"]["cores"] >= 1
    assert about["machine"]["memory_gb"] > 0
    assert about["machine"]["system"]
    assert about["machine"]["processor"]
    assert about["peak_memory_gb"] > 0
    assert about["hyperparams"].keys() == set(TABLE_1)
    assert about["hyperparams"]["ROSE-mul"]["tau"] == 0.75


def test_closed_loop_on_request(capsys, tmp_path):
    words = ["table1", "--quick", "--datasets", "compas", "--classifier", "linear", "--methods", "GrSp", "ARAR"]
    words += ["--jobs", "1", "--out", str(tmp_path / "out"), "--cells", str(tmp_path / "cells")]
    assert main([*words, "--closed-loop"]) == 0
    shown = capsys.readouterr().out
    assert "Closed-loop AIR" in shown
    values = pd.read_csv(tmp_path / "out" / "table1.csv")
    metrics = list(dict.fromkeys(values["metric"]))
    assert metrics[-3:] == ["Closed_Loop_AIR", "Closed_Loop_Cost", "Closed_Loop_Decisions"]
    ours = values[values["metric"].isin(metrics[-3:])]
    assert ours["paper_mean"].isna().all()
    assert np.isfinite(ours["mean"]).all()
    people = pd.read_csv(tmp_path / "out" / "table1-people.csv")
    grsp = people[people["Method"] == "GrSp"]
    estimate = ours.set_index(["method", "metric"]).loc[("GrSp", "Closed_Loop_AIR"), "mean"]
    assert grsp["Closed_Loop_AIR"].mean() == pytest.approx(estimate, rel=1e-4)
    assert (grsp["Closed_Loop_AIR_Lower"] <= grsp["Closed_Loop_AIR"]).all()
    assert (grsp["Closed_Loop_AIR"] <= grsp["Closed_Loop_AIR_Upper"]).all()
    assert json.loads((tmp_path / "out" / "run.json").read_text())["settings"]["closed_loop"] is True
    # without it the same cells are used, and the columns are the paper's
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "Closed-loop" not in shown
    assert "8 of 8 cells were stored before" in shown
    assert list(dict.fromkeys(pd.read_csv(tmp_path / "out" / "table1.csv")["metric"])) == metrics[:-3]


def killed_in_the_middle(folder, methods):
    """Start a run and kill all of its processes when some cells are finished; True if some were not."""
    words = command(sys.executable, folder / "out", folder / "cells", "--methods", *methods, "--jobs", "2")
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    end = time.monotonic() + 200
    while len(stored_cells(folder)) < 2 and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return 0 < len(stored_cells(folder)) < 4 * len(methods)


def test_killed_run_resumes_with_the_same_result(quick, tmp_path, warm_python):
    killed = next(each for each in map(tmp_path.joinpath, "abc") if killed_in_the_middle(each, FAST))
    whole, kept = tmp_path / "whole", stored_cells(killed)
    for folder, cells, before in ((killed, killed / "cells", len(kept)), (whole, quick / "cells", 12)):
        words = command(warm_python.executable, folder / "out", cells, "--methods", *FAST, "--jobs", "2")
        done = subprocess.run(words, capture_output=True, text=True, timeout=200, check=True)
        assert f"{before} of 12 cells were stored before" in done.stdout
    assert kept.items() <= stored_cells(killed).items()
    assert len(stored_cells(killed)) == 12
    ours, expected = (pd.read_csv(folder / "out" / "table1.csv") for folder in (killed, whole))
    assert len(ours) == 3 * 9
    timed = ours["metric"].isin(TIMES)
    pd.testing.assert_frame_equal(ours[~timed], expected[~timed])
    pd.testing.assert_frame_equal(table(killed), table(whole))


@pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
def test_report_opens_in_browser(quick, tmp_path):
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--no-first-run", f"--user-data-dir={tmp_path}",
            "--enable-logging=stderr", "--dump-dom", (quick / "out" / "report.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    body = done.stdout[done.stdout.index("German Credit</h3>") :].split("</table>")[0]
    assert body.count("<tr>") == 1 + 9
    for method in TABLE_1:
        assert body.count(f"<tr><td>{method}</td>") == 1
    assert done.stdout.count("<svg") == 2
