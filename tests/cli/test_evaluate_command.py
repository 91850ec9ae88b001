"""``rose-carla evaluate`` and ``check``: they print what the package computes."""

from __future__ import annotations

import csv
import io
import os
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
from rose_carla import Benchmark, metrics, models
from cli_examples import ROLES, changed
from rose_carla.baselines import Arar

pytest_plugins = ("cli_examples",)


def test_metrics_are_those_of_the_benchmark(run, folder, direct):
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


def test_policy_is_evaluated(run, direct):
    done = run("evaluate", "--policy", "policy", "--limit", 5, "--samples", 60, "--format", "csv")
    shown = pd.read_csv(io.StringIO(done.out)).set_index("Method").loc["ROSE-one of policy"]
    factuals = models.negative_instances(direct.model).head(5)
    expected = Benchmark(direct.model, direct.method, factuals, {"n_samples": 60, "seed": 0})
    assert shown["Acc_AIR"] == pytest.approx(expected.compute_metric("Acc_AIR")["Acc_AIR"].mean())
    assert shown["Proximity"] == pytest.approx(expected.compute_metric("Proximity")["Proximity"].mean())


def test_noise_of_whole_actions(run, direct):
    words = [
        "evaluate",
        "--policy",
        "policy",
        "--limit",
        5,
        "--samples",
        60,
        "--format",
        "csv",
        "--noise-per",
        "action",
    ]
    shown = pd.read_csv(io.StringIO(run(*words).out)).set_index("Method").loc["ROSE-one of policy"]
    options = {"n_samples": 60, "seed": 0, "noise_per": "action"}
    expected = Benchmark(direct.model, direct.method, models.negative_instances(direct.model).head(5), options)
    assert shown["Acc_AIR"] == pytest.approx(expected.compute_metric("Acc_AIR")["Acc_AIR"].mean())


def test_given_counterfactuals_are_evaluated(run, folder, direct):
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
    assert f"{(~refused).sum()} of 40 people are already accepted and left out" in done.err
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


def test_method_that_fails_does_not_stop_the_others(run):
    words = ["evaluate", "loans.csv", *ROLES, "--model", "linear", "--limit", 4, "--samples", 20, "--format", "csv"]
    done = run(*words, "--methods", "cli_models:Raises", "cli_models:Liked")
    assert done.code == 1
    assert [line.split(",")[0] for line in done.out.splitlines()] == ["Method", "cli_models:Liked"]
    (failed,) = [line for line in done.err.splitlines() if line.startswith("failed: ")]
    assert failed.startswith("failed: cli_models:Raises: RuntimeError: out of luck")


def test_contract_of_a_method_is_checked(run):
    words = ["--data", "loans.csv", *ROLES, "--limit", 5]
    done = run("check", "ARAR", *words)
    assert done.code == 0
    assert done.out.splitlines()[0] == "ARAR on 5 people of loans.csv, classifier linear"
    assert [line.split()[-1] for line in done.out.splitlines()[1:]] == ["holds"] * 13
    done = run("check", "cli_models:Liked", *words)
    assert done.code == 1
    broken = [line.split("  ")[1] for line in done.out.splitlines() if "fails: " in line]
    assert broken == ["immutables"]


@pytest.mark.slow
def test_installation_is_checked(run, monkeypatch, tmp_path):
    done = run("check")
    assert done.code == 0, done.out
    packages = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert packages["carla-recourse"] == "0.0.5"
    assert "ROSE-one trains and plans" in done.out
    monkeypatch.setenv("ROSE_CARLA_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("rose_carla.cli.check._self_test", lambda: "skipped")
    done = run("check")
    assert done.code == 1
    (line,) = [line for line in done.out.splitlines() if line.startswith("cache ")]
    assert "FAILS: " in line


@pytest.fixture
def latin(run, monkeypatch):
    """Run the command with streams that cannot encode Greek letters; return the code and stdout."""

    def call(*words):
        out = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
        code = run(*words).code
        out.flush()
        return code, out.buffer.getvalue()

    return call


def test_csv_and_json_are_utf8_and_text_has_the_encoding_of_the_terminal(latin, folder):
    def change(frame):
        frame["name"] = [f"Ωé\U0001f600{i}" for i in range(len(frame))]

    words = ["recourse", changed(folder, "greek.csv", change), "--policy", "policy", "--id", "name", "--format"]
    for form in ("csv", "json"):
        code, out = latin(*words, form)
        assert code == 0
        assert "Ωé\U0001f6007" in out.decode()
    code, out = latin(*words, "text")
    assert code == 0
    assert "\\u03a9é\\U0001f6007" in out.decode("latin-1")


def test_file_name_may_not_be_valid_text(latin, folder):
    name = os.fsdecode(b"no text \xff.csv")
    shutil.copy(folder / "loans.csv", folder / name)
    code, out = latin("datasets", name, *ROLES)
    assert code == 0
    assert out.startswith(b"no text \\udcff.csv: 240 people")
    (folder / name).unlink()


def test_csv_output_can_be_read_back(run, folder):
    def change(frame):
        frame["name"] = [f'"{i}", line\nbreak' for i in range(len(frame))]

    name = changed(folder, "names.csv", change)
    done = run("recourse", name, "--policy", "policy", "--id", "name")
    rows = [*csv.DictReader(io.StringIO(done.out))]
    assert list(dict.fromkeys(row["person"] for row in rows)) == [f'"{i}", line\nbreak' for i in range(40)]
