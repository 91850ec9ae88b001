"""``rose-carla train``: the report, and the folder it writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import rose_carla
from rose_carla import models
from cli_examples import ROLES, SMALL
from rose_carla.cli.inputs import POLICY, load_policy, read_training
from rose_carla.cli.options import DataChoice

pytest_plugins = ("cli_examples",)


def test_report_and_folder_describe_the_training(folder, direct):
    report = dict(line.split(maxsplit=1) for line in (folder / "report").read_text().splitlines())
    accuracy = models.accuracy(direct.model, direct.data.df_test)
    assert report["classifier"].startswith(f"linear, accuracy {accuracy:.3f} on the 48 people")
    rejected = models.negative_instances(direct.model, split="test")
    found = sum(plan.found for plan in direct.method.plan(rejected))
    assert report["plans"].startswith(f"for {found} of {len(rejected)} people of the test split")
    about = json.loads((folder / "policy" / "train.json").read_text())
    assert about["data"]["source"] == str(folder / "loans.csv")
    assert about["data"]["categorical"] == ["home", "zone", "vip"]
    # as asked for; what follows from the table is not known before training
    derived = {"multiples": None, "max_actions": None}
    assert about["settings"] == {**json.loads(json.dumps(direct.method.settings.as_dict())), **derived}
    assert about["settings"]["ppo"] == {"n_updates": 4, "n_envs": 64}
    assert (about["model"], about["method"], about["seed"]) == ("linear", "ROSE-one", 0)
    assert about["version"] == rose_carla.__version__
    assert about["command"].startswith("rose-carla train loans.csv --target loan")
    assert {path.name for path in (folder / "policy").iterdir()} == {"policy.safetensors", "train.json"}


def test_another_policy_is_overwritten_only_with_force(run, folder):
    words = ["train", "loans.csv", *ROLES, *SMALL, "--out", "forced", "--set", "search=false"]
    shutil.copytree(folder / "policy", folder / "forced")
    before = (folder / "forced" / POLICY).read_bytes()
    assert run(*words).code == 2
    assert (folder / "forced" / POLICY).read_bytes() == before
    assert run(*words, "--force").code == 0
    assert read_training(folder / "forced").settings["search"] is False
    assert run(*words).code == 0, "the same training may be repeated"


def test_plain_policies_are_loaded_as_plain(run):
    words = ["train", "loans.csv", *ROLES, *SMALL, "--method", "ROSE-one-plain", "--out", "plain"]
    done = run(*words)
    assert done.code == 0
    assert "policy      ROSE-one-plain, trained in" in done.out
    training = read_training(Path("plain"))
    assert (training.method, training.settings["search"], training.settings["shorten"]) == (
        "ROSE-one-plain", False, False,
    )  # fmt: skip
    loaded = load_policy(Path("plain"), DataChoice(""), None).method
    assert (loaded.settings.search, loaded.settings.shorten) == (False, False)
    assert (loaded.planner.search, loaded.planner.shorten) == (False, False)
    plans = run("recourse", "people.csv", "--policy", "plain")
    assert plans.code == 0
    named = run("recourse", "people.csv", "--policy", "plain", "--method", "ROSE-one-plain")
    anew = run("recourse", "people.csv", "--data", "loans.csv", *words[2:-2])
    assert plans.out == named.out == anew.out
    refused = run("recourse", "people.csv", "--policy", "plain", "--method", "ROSE-one")
    assert refused.code == 2
    assert "trained with --method ROSE-one-plain, not ROSE-one" in refused.err
    shown = run("evaluate", "--policy", "plain", "--limit", "4", "--samples", "20", "--format", "csv")
    assert shown.out.splitlines()[1].startswith("ROSE-one-plain of plain,")
