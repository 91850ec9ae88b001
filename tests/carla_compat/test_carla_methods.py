"""Every method of CARLA's catalog through CARLA's own ``Benchmark``."""

from __future__ import annotations

from pathlib import Path

import carla
import carla.recourse_methods
import numpy as np
import pandas as pd
import pytest
from rose_carla import models
from carla.models.catalog import MLModelCatalog
from carla_runs import CARLA_RUNS, build, model_for, skip_unless_installed, table

pytestmark = pytest.mark.slow


def _all_measures(benchmark, every_measure):
    if every_measure:
        return benchmark.run_benchmark()
    return pd.concat(
        [
            benchmark.compute_distances(),
            benchmark.compute_redundancy(),
            benchmark.compute_ynn(),
            benchmark.compute_success_rate(),
            benchmark.compute_average_time(),
        ],
        axis=1,
    )


@pytest.mark.parametrize("run", CARLA_RUNS, ids=lambda run: run.id)
def test_method_runs_through_carla_benchmark(run, compas_ann):
    skip_unless_installed(run)
    model = model_for(run.model, compas_ann)
    width = len(model.feature_input_order)
    factuals = models.negative_instances(model, split="all", limit=run.people).reset_index(drop=True)
    before = factuals.copy()
    benchmark = carla.Benchmark(model, build(run, model, width), factuals)
    measures = _all_measures(benchmark, run.every_measure)

    pd.testing.assert_frame_equal(factuals, before)
    assert set(benchmark._counterfactuals.columns) >= set(model.feature_input_order)
    assert len(benchmark._counterfactuals) == run.people
    found = benchmark._counterfactuals[model.feature_input_order].dropna()
    assert measures["Success_Rate"].iloc[0] == len(found) / run.people
    if run.checks_outcome:
        assert (model.predict_proba(found).argmax(axis=1) == 1).all()
    else:
        assert (found != factuals[model.feature_input_order]).any(axis=None)
    assert measures["Average_Time"].iloc[0] > 0


def test_all_methods_are_covered():
    catalog = {
        name
        for name, value in vars(carla.recourse_methods).items()
        if isinstance(value, type) and name != "RecourseMethod"
    }
    assert len(catalog) == 13
    assert {run.method for run in CARLA_RUNS} == catalog


def test_documented_table_is_up_to_date():
    text = (Path(__file__).parents[2] / "docs" / "carla.md").read_text()
    assert table() in text, "docs/carla.md is out of date: paste the output of 'python tests/carla_runs.py'"


@pytest.mark.parametrize(("kind", "backend"), [("ann", "pytorch"), ("linear", "pytorch"), ("ann", "tensorflow")])
def test_carla_networks_are_saved_and_loaded(compas, kind, backend, capsys, tmp_path, monkeypatch):
    if backend == "tensorflow":
        pytest.importorskip("tf_keras")
    monkeypatch.chdir(tmp_path)  # CARLA's TensorFlow networks leave a folder 'saved_models' wherever they are trained
    settings = {"learning_rate": 0.002, "epochs": 3, "batch_size": 256, "hidden_size": [8]}
    rows = compas.df_test.head(20)
    trained = MLModelCatalog(compas, kind, backend=backend, load_online=False)
    trained.train(**settings, force_train=True)
    loaded = MLModelCatalog(compas, kind, backend=backend, load_online=False)
    loaded.train(**settings)
    assert "Loaded model from" in capsys.readouterr().out
    np.testing.assert_allclose(trained.predict_proba(rows), loaded.predict_proba(rows), rtol=1e-5)


@pytest.mark.parametrize("backend", ["sklearn", "xgboost"])
def test_carla_forests_are_trained_with_the_given_settings(compas, backend, tmp_path, monkeypatch):
    if backend == "xgboost":
        pytest.importorskip("xgboost")
    monkeypatch.setenv("CF_MODELS", str(tmp_path))
    for n_estimators in (5, 6):  # CARLA would load the first one for the second
        forest = MLModelCatalog(compas, "forest", backend=backend, load_online=False)
        forest.train(n_estimators=n_estimators, max_depth=4)
        predicted = forest.predict(compas.df_test)
        assert (predicted == compas.df_test[compas.target]).mean() > 0.8
        assert len(list(forest.tree_iterator)) == n_estimators


def test_dice_keeps_one_row_per_factual_when_it_finds_nothing(compas):
    """CARLA drops rows for which DiCE returns None, and would compare later rows with the wrong person."""

    class RejectsAll(type(models.train(compas, "linear"))):
        def predict_proba(self, x):
            favourable = np.zeros(len(x))
            return np.stack([1 - favourable, favourable], axis=1)

    accepting = models.train(compas, "linear")
    model = RejectsAll(compas, accepting.raw_model, accepting.feature_input_order)
    method = carla.recourse_methods.Dice(model, {"num": 1, "desired_class": 1, "posthoc_sparsity_param": 0.1})
    counterfactuals = method.get_counterfactuals(compas.df_test.head(3))
    assert counterfactuals.shape == (3, 7)
    assert counterfactuals.isna().all(axis=None)
