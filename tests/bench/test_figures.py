"""The experiments of the figures, and the command that makes them."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from rose_carla import bench, datasets, plots
from plot_examples import log, plan, random_results
from rose_carla.bench import METHODS, OURS, TABLE_1, Scope
from rose_carla.bench import figure_recipes as recipes
from rose_carla.bench.figure_recipes import RECIPES, Recipe, largest_distance
from rose_carla.cli import main
from rose_carla.errors import ExperimentError, PlanError
from scipy.spatial.distance import pdist

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "make_figures.py"
SCOPE = Scope(("german", "adult", "compas"), people=10, n_samples=100)
WITHOUT_EXPERIMENTS = ("lengths", "noise", "orders", "perturbations", "steps", "accumulation", "plan", "learning")
#: Training that takes almost no time.
SHORT_TRAINING = {"ppo": {"n_updates": 1, "n_envs": 16, "n_steps": 4}, "n_samples": 8, "n_check": 20}


@pytest.mark.parametrize("shape", [(1, 3), (2, 1), (40, 1), (60, 2), (200, 5), (300, 12), (120, 30)])
@pytest.mark.parametrize("kind", ["uniform", "corners", "grid", "heavy tails", "one outlier"])
def test_largest_distance_matches_all_pairs(shape, kind):
    rng = np.random.default_rng([*shape, len(kind)])
    rows = {
        "uniform": lambda: rng.random(shape),
        "corners": lambda: rng.integers(0, 2, shape).astype(float),
        "grid": lambda: rng.random(shape).round(1),
        "heavy tails": lambda: rng.standard_cauchy(shape),
        "one outlier": lambda: np.vstack([np.full((1, shape[1]), 5.0), rng.random(shape)])[: shape[0]],
    }[kind]()
    rows = np.concatenate([rows, rows[: len(rows) // 3]])
    expected = pdist(rows, "cityblock").max() if len(rows) > 1 else 0.0
    assert largest_distance(rows) == pytest.approx(expected, rel=1e-12)
    assert largest_distance(rows[::-1]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_largest_distance_of_compas_matches_all_pairs(compas):
    rows = compas.df.drop(columns=compas.target).to_numpy(dtype=float)
    assert len(rows) > 5000
    assert largest_distance(rows) == pytest.approx(pdist(np.unique(rows, axis=0), "cityblock").max(), rel=1e-12)


def keys_of(name, scope=SCOPE):
    return [experiment.key for experiment in RECIPES[name].experiments(scope)]


def test_experiments_of_figures_cover_each_dataset():
    assert {name for name, recipe in RECIPES.items() if not recipe.experiments(SCOPE)} == set(WITHOUT_EXPERIMENTS)
    for name in set(RECIPES) - set(WITHOUT_EXPERIMENTS):
        assert {dataset for dataset, _, _ in keys_of(name)} == set(SCOPE.datasets), name
        for dataset in SCOPE.datasets:
            alone = [key for key in keys_of(name) if key[0] == dataset]
            assert keys_of(name, dataclasses.replace(SCOPE, datasets=(dataset,))) == alone


def test_recipes_have_methods_and_conditions_of_their_figures():
    def on_german(name):
        return [key[1:] for key in keys_of(name) if key[0] == "german"]

    grid = [("ROSE-one", f"tau={tau}, variance={s}") for tau in (0.6, 0.7, 0.8, 0.9) for s in (0.005, 0.01, 0.015)]
    assert on_german("thresholds") == grid
    assert sorted(on_german("action-units")) == [("ROSE-mul", f"action_unit={unit}") for unit in (0.025, 0.05, 0.1)]
    for metric in ("plausible-air", "acc-air", "proximity"):
        assert on_german(f"ranks-{metric}") == [(method, "") for method in TABLE_1]
    for metric in ("plausible-air", "acc-air"):
        knobs = [
            (name, f"{METHODS[name].knob}={level:g}" if level is not None else "")
            for name in TABLE_1
            for level in METHODS[name].levels or (None,)
        ]
        assert on_german(f"frontier-{metric}") == knobs
        assert ("ROSE-mul", "tau=0.75") in knobs
    classifiers = {
        (experiment.key[1], experiment.judgements[0].recourse.setting.classifier)
        for experiment in RECIPES["distances"].experiments(SCOPE)
    }
    assert classifiers == {
        ("ROAR", "ann"), ("ROAR", "linear"), ("ARAR", "linear"), ("ROSE-one", "ann"), ("ROSE-mul", "ann"),
    }  # fmt: skip


def test_default_action_unit_reuses_table_1():
    usual = METHODS["ROSE-mul"].resolve({})["action_unit"]
    units = {
        experiment.condition: experiment.judgements[0].recourse
        for experiment in RECIPES["action-units"].experiments(SCOPE)
    }
    assert units[f"action_unit={usual:g}"].options == ()
    for condition, recourse in units.items():
        assert {**METHODS["ROSE-mul"].resolve({}), **dict(recourse.options)}["action_unit"] == float(condition[12:])


def test_experiments_evaluate_metrics_of_their_figures():
    needed = {
        "thresholds": {"Plausible_AIR", "Proximity"}, "action-units": {"Acc_AIR", "Proximity"},
        "distances": {"Proximity"}, "frontier-plausible-air": {"Plausible_AIR", "Proximity"},
        "frontier-acc-air": {"Acc_AIR", "Proximity"}, "ranks-plausible-air": {"Plausible_AIR"},
        "ranks-acc-air": {"Acc_AIR"}, "ranks-proximity": {"Proximity"},
        "closed-loop": {"Acc_AIR", "Proximity", "Closed_Loop_AIR"},
    }  # fmt: skip
    assert needed.keys() == set(RECIPES) - set(WITHOUT_EXPERIMENTS)
    for name, metrics in needed.items():
        for experiment in RECIPES[name].experiments(SCOPE):
            assert metrics <= {metric for judgement in experiment.judgements for metric in judgement.metrics}
            assert len({judgement.recourse for judgement in experiment.judgements}) == 1
            assert {judgement.noise.n_samples for judgement in experiment.judgements} == {100}


def test_equal_cells_have_equal_keys():
    cells = {}
    for name, recipe in RECIPES.items():
        experiments = recipe.experiments(dataclasses.replace(SCOPE, seeds=(0, 1)))
        keys = [experiment.judgements[0].recourse.key for experiment in experiments]
        assert len(set(keys)) == len(keys), name
        for experiment in experiments:
            recourse = experiment.judgements[0].recourse
            effective = {
                **METHODS[recourse.method].resolve({}),
                "seed": recourse.setting.seed,
                **dict(recourse.options),
            }
            what = recourse.setting, recourse.method, json.dumps(effective, sort_keys=True, default=str)
            assert cells.setdefault(what, recourse.key) == recourse.key, (name, recourse.description)
            for judgement in experiment.judgements:
                same = (*what, judgement.metrics, judgement.noise)
                assert cells.setdefault(same, judgement.key) == judgement.key
    assert len(set(cells.values())) == len(cells)


def test_learning_trains_each_variant_once_per_dataset(monkeypatch):
    trained = []

    def build(name):
        def make(model, seed, options):
            trained.append((name, model, seed, options))
            return SimpleNamespace(log_=log(seed=len(trained)))

        return SimpleNamespace(build=make)

    monkeypatch.setattr(bench, "entry", build)
    monkeypatch.setattr(bench.Setting, "model", lambda self: self.dataset)
    figure = RECIPES["learning"].draw(dataclasses.replace(SCOPE, seeds=(3, 4)), random_results(()))
    assert trained == [(name, dataset, 3, {}) for dataset in SCOPE.datasets for name in OURS]
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert titles == [f"{name}, {title}" for title in ("German Credit", "Adult Income", "COMPAS") for name in OURS]


def test_loan_plan_has_most_steps_of_which_each_helps(monkeypatch):
    falling, short, best = plan([0.5, 0.4, 0.9]), plan([0.9]), plan([0.2, 0.5, 0.9], label="best")
    long, weak, none = plan([0.1, 0.2, 0.3, 0.6, 0.9]), plan([0.1, 0.2, 0.3, 0.8]), plan([], reason="no")
    asked = {}

    class Method:
        found = [falling, short, best, long, weak, none]

        def __init__(self, model, options):
            asked.update(options, model=model)

        def plan(self, factuals):
            asked["people"] = factuals
            return self.found

    def from_frame(table, target, **options):
        asked.update(options, table=table, target=target)
        return "loans"

    monkeypatch.setattr(recipes, "RoseMul", Method)
    monkeypatch.setattr(recipes.datasets, "from_frame", from_frame)
    monkeypatch.setattr(recipes.models, "train", lambda data, kind, seed, settings: (data, kind, seed))
    monkeypatch.setattr(recipes.models, "negative_instances", lambda model, limit: (model, limit))
    assert recipes.loan_plan(2) is best
    assert asked["model"] == ("loans", "ann", 2)
    assert asked["people"] == (("loans", "ann", 2), 50)
    assert (asked["tau"], asked["seed"]) == (0.85, 2)
    free = set(asked["table"].columns) - set(asked["immutables"]) - {asked["target"]}
    assert free == {"credit-amount", "duration", "existing-credits", "installment-rate", "savings"}
    Method.found = [falling, long, weak, none]
    with pytest.raises(PlanError, match="No plan was found in which every step helps: try another seed"):
        recipes.loan_plan(2)


def in_folder(tmp_path, *words):
    return [*words, "--out", str(tmp_path / "out"), "--cells", str(tmp_path / "cells")]


def test_failing_figure_is_reported_and_others_are_written(capsys, monkeypatch, tmp_path):
    def fail(scope, people):
        raise ExperimentError("It cannot be drawn.")

    monkeypatch.setitem(RECIPES, "steps", Recipe("a failing figure", fail))
    words = in_folder(tmp_path, "steps", "accumulation", "steps", "--formats", "svg", "--datasets", "compas")
    assert main(["figures", *words]) == 1
    out, err = capsys.readouterr()
    assert err == "failed: steps: It cannot be drawn.\n"
    assert out == f"{tmp_path / 'out' / 'accumulation'}: {RECIPES['accumulation'].description}\n"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"accumulation.svg", "run.json"}
    about = json.loads((tmp_path / "out" / "run.json").read_text())
    assert about["failed"] == ["steps: It cannot be drawn."]
    assert about["settings"]["formats"] == ["svg"]


def test_failing_cells_are_reported_and_other_figures_written(capsys, monkeypatch, tmp_path):
    def broken(model, options):
        raise ValueError("out of order")

    for name in ("ROAR", "ARAR", *OURS):
        monkeypatch.setitem(METHODS, name, dataclasses.replace(METHODS[name], make=broken))
    words = in_folder(tmp_path, "distances", "accumulation", "--quick", "--jobs", "1", "--datasets", "compas")
    assert main(["figures", *words]) == 1
    err = capsys.readouterr().err
    assert "failed: distances: The results have no column" in err
    assert "failed: compas linear ARAR seed 0: ValueError: out of order" in err
    assert len([line for line in err.splitlines() if line.startswith("failed: ")]) == 1 + 5
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"accumulation.pdf", "accumulation.png", "run.json", "logs"}


def test_unwritable_folder_is_rejected(capsys, tmp_path):
    (tmp_path / "out").write_text("no folder")
    assert main(in_folder(tmp_path, "figures", "accumulation", "--formats", "svg")) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: Cannot write to the folder ")
    assert err.endswith(".\n")
    assert err.count("\n") == 1


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Run the same command twice, with very short training."""
    folder = tmp_path_factory.mktemp("figures")
    words = in_folder(folder, "noise", "distances", "--quick", "--jobs", "1", "--datasets", "compas")
    words += ["--formats", "pdf", "svg"]
    runs = []
    with pytest.MonkeyPatch.context() as patch:
        for name in OURS:
            patch.setitem(METHODS, name, dataclasses.replace(METHODS[name], options=SHORT_TRAINING))
        for _ in range(2):
            code = main(["figures", *words])
            runs.append((code, {path.name: path.read_bytes() for path in (folder / "out").iterdir() if path.is_file()}))
    return folder, runs


@pytest.mark.slow
def test_quick_run_writes_figures_and_provenance(quick):
    folder, ((code, files), _) = quick
    assert code == 0
    assert files.keys() == {"noise.pdf", "noise.svg", "distances.pdf", "distances.svg", "run.json"}
    assert files["noise.pdf"].startswith(b"%PDF")
    assert files["distances.svg"].startswith(b"<?xml")
    assert len([*(folder / "out" / "logs").iterdir()]) == len([*(folder / "cells").rglob("*.safetensors")]) == 5 * 2
    about = json.loads(files["run.json"])
    assert about.keys() == {
        "command", "revision", "source", "started", "seconds", "settings", "versions", "machine", "peak_memory_gb",
        "cells", "failed",
    }  # fmt: skip
    assert about["failed"] == []
    assert (about["cells"]["reused"], about["cells"]["all"]) == (0, 10)
    assert about["cells"]["seconds"] > 0
    assert about["settings"] == {
        "actionable": False, "backend": "local", "cells": str(folder / "cells"), "datasets": ["compas"],
        "formats": ["pdf", "svg"], "jobs": 1, "names": ["noise", "distances"], "noise_per": "unit",
        "out": str(folder / "out"), "quick": True, "scheduler": None, "seeds": 1,
    }  # fmt: skip
    assert plt.get_fignums() == []


@pytest.mark.slow
def test_second_run_reuses_cells_and_writes_same_figures(quick):
    _, ((_, before), (code, after)) = quick
    assert code == 0
    about = json.loads(after.pop("run.json"))
    assert (about["cells"]["reused"], about["cells"]["all"]) == (10, 10)
    before = {name: content for name, content in before.items() if name != "run.json"}
    assert after.keys() == before.keys()
    assert [name for name in before if before[name] != after[name]] == []


def test_distances_are_relative_to_largest_of_whole_dataset(compas, monkeypatch):
    asked = {}
    monkeypatch.setattr(plots, "proximity", lambda people, largest, titles: asked.update(largest))
    RECIPES["distances"].draw(dataclasses.replace(SCOPE, datasets=("compas",)), None)
    rows = datasets.load("compas").df.drop(columns=compas.target).to_numpy(dtype=float)
    assert asked == {"compas": pytest.approx(pdist(np.unique(rows, axis=0), "cityblock").max())}


@pytest.mark.slow
def test_script_lists_every_figure(warm_python):
    asked = [warm_python.executable, str(SCRIPT), "--help"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=True)
    for name, recipe in RECIPES.items():
        assert f"\n  {name:<24}{recipe.description}\n" in done.stdout
    assert "--formats" in done.stdout
    assert done.stderr == ""
