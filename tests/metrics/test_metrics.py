"""The eight metrics in both of CARLA's interfaces, for valid and invalid results of methods."""

from __future__ import annotations

import warnings

import rose_carla
import numpy as np
import pandas as pd
import pytest
from rose_carla import datasets, metrics, models
from carla.recourse_methods import GrowingSpheres
from carla.recourse_methods.api import RecourseMethod
from rose_carla._lib.runtime import seeded
from rose_carla.errors import DataError, ModelError, NoiseError, PlanError
from rose_carla.noise import Density, PlausibleNoise, common_noise, execute, linear_invalidation_rate
from sklearn.ensemble import RandomForestClassifier

FEW = {"n_samples": 200}


@pytest.fixture(scope="module")
def factuals(compas_ann):
    return models.negative_instances(compas_ann).head(12)


class Steps(RecourseMethod):
    """Return an accepted training row for all people; optionally fails for some rows, and has plans."""

    def __init__(self, mlmodel, index="keep", fail=(), plans=False):
        super().__init__(mlmodel)
        rows = mlmodel.data.df_train[mlmodel.feature_input_order]
        self._goal = rows[mlmodel.predict_proba(rows)[:, 1] > 0.9].iloc[0]
        self._index, self._fail, self._with_plans = index, list(fail), plans

    def get_counterfactuals(self, factuals):
        order = self._mlmodel.feature_input_order
        ends = pd.DataFrame([self._goal] * len(factuals), index=factuals.index, columns=order)
        if self._with_plans:
            self.plans = {
                label: np.diag(ends.loc[label] - factuals.loc[label, order])[::-1] for label in factuals.index
            }
        ends.iloc[self._fail] = np.nan
        if self._index == "renumber":
            return ends.reset_index(drop=True)
        if self._index == "drop":
            return ends.dropna()
        if self._index == "shuffle":
            return ends.sample(frac=1, random_state=0)
        return ends


@pytest.mark.parametrize("index", ["renumber", "drop", "shuffle"])
def test_rows_are_matched_with_their_factuals(compas_ann, factuals, index):
    options = {"n_samples": 20}
    result = rose_carla.Benchmark(compas_ann, Steps(compas_ann, index, fail=[1, 4]), factuals, options).run_benchmark()
    expected = rose_carla.Benchmark(compas_ann, Steps(compas_ann, fail=[1, 4]), factuals, options).run_benchmark()
    timing = ["Average_Time", "Recourse_Time"]
    pd.testing.assert_frame_equal(result.drop(columns=timing), expected.drop(columns=timing))
    assert result.index.equals(factuals.index)
    missing = factuals.index[[1, 4]]
    assert (result.loc[missing, "Validity"] == 0).all()
    assert result.loc[missing, ["Sparsity", "Proximity", "Gaussian_AIR", "Acc_AIR", "Distance_1"]].isna().all(axis=None)
    assert result["Validity"].mean() == pytest.approx(10 / 12)


def test_metrics_match_their_definitions(compas_ann, factuals):
    benchmark = rose_carla.Benchmark(compas_ann, Steps(compas_ann), factuals, FEW)
    result, order = benchmark.run_benchmark(), compas_ann.feature_input_order
    density = Density.from_model(compas_ann, outcome=1)
    everyone = PlausibleNoise(Density.from_model(compas_ann))
    for row, (label, start) in enumerate(factuals[order].iterrows()):
        end = benchmark.counterfactuals.loc[label]
        assert result.loc[label, "Validity"] == 1
        assert result.loc[label, "Sparsity"] == sum(abs(start[c] - end[c]) > 1e-6 for c in order)
        assert result.loc[label, "Proximity"] == pytest.approx(sum(abs(start[c] - end[c]) for c in order))
        assert result.loc[label, "Proximity"] == pytest.approx(result.loc[label, "Distance_2"])
        assert result.loc[label, "Log_Density"] == pytest.approx(density.log_density(end.to_numpy()[None])[0])
        (generator,) = common_noise([0, 1], [row])
        noisy = everyone.sample(end.to_numpy()[None], 0.01, 200, [generator])[0]
        rejected = sum(compas_ann.predict_proba(sample[None])[0, 1] <= 0.5 for sample in noisy)
        assert result.loc[label, "Plausible_AIR"] == rejected / 200
        assert result.loc[label, "Plausible_AIR_Lower"] <= rejected / 200 <= result.loc[label, "Plausible_AIR_Upper"]
    assert (result["Recourse_Time"] == result["Average_Time"].iloc[0]).all()


def test_plausible_air_of_linear_model_matches_closed_form(compas_linear):
    factuals = models.negative_instances(compas_linear).head(8)
    ends = Steps(compas_linear).get_counterfactuals(factuals)
    layer = compas_linear.raw_model.layers[0]
    weights = (layer.weight[1] - layer.weight[0]).numpy().astype(float)
    bias = float(layer.bias[1] - layer.bias[0])
    result = metrics.PlausibleAIR(compas_linear, {"n_samples": 5000}).get_evaluation(factuals, ends)
    noise = PlausibleNoise(Density.from_model(compas_linear))
    exact = linear_invalidation_rate(ends.to_numpy(), noise, 0.01, weights, bias)
    np.testing.assert_allclose(result["Plausible_AIR"], exact, atol=0.03)


@pytest.mark.parametrize("noise_per", ["unit", "action"])
def test_acc_air_follows_plans_in_order(compas_ann, factuals, noise_per):
    method = Steps(compas_ann, plans=True)
    benchmark = rose_carla.Benchmark(compas_ann, method, factuals, {**FEW, "noise_per": noise_per})
    result = benchmark.compute_metric("Acc_AIR")
    noise, order = PlausibleNoise(Density.from_model(compas_ann)), compas_ann.feature_input_order
    for row, label in enumerate(factuals.index[:4]):
        start = factuals.loc[[label], order].to_numpy()
        generators = common_noise([0, 2], [row])
        ends = execute(start, [method.plans[label]], noise, 0.0005, 0.025, 200, generators, noise_per)[0]
        assert result.loc[label, "Acc_AIR"] == (compas_ann.predict_proba(ends)[:, 1] <= 0.5).mean()


@pytest.mark.slow
def test_many_small_steps_away_from_the_data_are_drawn_back_more_than_one_large_step():
    """The example of docs/noise.md: Adult's capital gain, raised to where few people are."""
    model = models.train(datasets.load("adult", all_actionable=True), "linear")
    few = models.negative_instances(model).head(3)[model.feature_input_order].astype(float)
    ends = few.assign(**{"capital-gain": 0.8})
    plans = {label: (ends.loc[[label]] - few.loc[[label]]).to_numpy() for label in few.index}
    rates = {
        reading: metrics.AccAIR(model, {**FEW, "plans": plans, "noise_per": reading}).get_evaluation(few, ends)
        for reading in ("unit", "action")
    }
    assert models.favourable(model)(ends.to_numpy()).all()
    assert (rates["unit"]["Acc_AIR_Lower"] > rates["action"]["Acc_AIR_Upper"]).all()


def test_plan_must_lead_to_its_counterfactual(compas_ann, factuals):
    ends = Steps(compas_ann).get_counterfactuals(factuals)
    plans = {factuals.index[0]: np.ones((1, 7))}
    with pytest.raises(NoiseError, match="does not lead to its counterfactual"):
        metrics.AccAIR(compas_ann, {**FEW, "plans": plans}).get_evaluation(factuals, ends)


def test_all_methods_see_the_same_noise(compas_ann, factuals):
    """A method that fails for some rows sees the same noise in the others."""
    all_rows = metrics.GaussianAIR(compas_ann, FEW).get_evaluation(
        factuals, Steps(compas_ann).get_counterfactuals(factuals)
    )
    some = metrics.GaussianAIR(compas_ann, FEW).get_evaluation(
        factuals, Steps(compas_ann, fail=[0, 3]).get_counterfactuals(factuals)
    )
    kept = some["Gaussian_AIR"].notna()
    pd.testing.assert_frame_equal(all_rows[kept], some[kept])
    other = metrics.GaussianAIR(compas_ann, {**FEW, "seed": 1}).get_evaluation(
        factuals, Steps(compas_ann).get_counterfactuals(factuals)
    )
    assert not other.equals(all_rows)


@pytest.mark.parametrize(
    "name",
    ["Validity", "Sparsity", "Proximity", "LogDensity", "GaussianAIR", "PlausibleAIR", "AccAIR", "RecourseTime"],
)
def test_interface_of_carla_development_version(compas_ann, factuals, name):
    options = {"RecourseTime": {"seconds": 2.4}, "AccAIR": FEW, "GaussianAIR": FEW, "PlausibleAIR": FEW}.get(name)
    evaluation = getattr(metrics, name)(mlmodel=compas_ann, hyperparams=options)
    ends = Steps(compas_ann, fail=[2]).get_counterfactuals(factuals)
    before = factuals.copy(), ends.copy()
    result = evaluation.get_evaluation(factuals=factuals, counterfactuals=ends)
    assert result.index.equals(factuals.index)
    assert list(result.columns) == list(evaluation.columns)
    pd.testing.assert_frame_equal(factuals, before[0])
    pd.testing.assert_frame_equal(ends, before[1])


def test_method_without_counterfactuals(compas_ann, factuals):
    method = Steps(compas_ann, fail=range(12))
    result = rose_carla.Benchmark(compas_ann, method, factuals, FEW).run_benchmark()
    assert (result["Validity"] == 0).all()
    assert result["Plausible_AIR"].isna().all()
    assert result["Success_Rate"].iloc[0] == 0


def test_categories_count_once_and_can_be_projected():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "income": rng.random(300),
            "city": rng.choice(["Bonn", "Köln", "Mainz"], 300),
            "home": rng.choice(["own", "rent"], 300),
        }
    )
    frame["loan"] = ((frame["income"] > 0.4) & (frame["city"] != "Bonn")).astype(int)
    data = datasets.from_frame(frame, "loan", name="loans")
    model = models.train(data, settings=models.TrainingSettings((20,), 0.01, 50, 60), use_cache=False)
    factuals = models.negative_instances(model, split="all").head(5)
    ends = factuals[model.feature_input_order].copy()
    ends["income"] = 1.0
    ends[["city_Bonn", "city_Köln", "city_Mainz"]] = [0.0, 0.0, 1.0]
    changed = metrics.Sparsity(model).get_evaluation(factuals, ends)["Sparsity"]
    was_mainz = factuals["city_Mainz"] == 1
    assert changed.tolist() == [1 if mainz else 2 for mainz in was_mainz]
    plain = metrics.GaussianAIR(model, {"variance": 0.04}).get_evaluation(factuals, ends)
    projected = metrics.GaussianAIR(model, {"variance": 0.04, "project_categories": True}).get_evaluation(
        factuals, ends
    )
    assert not plain.equals(projected)
    assert np.isfinite(metrics.AccAIR(model, FEW).get_evaluation(factuals, ends)).all(axis=None)


def test_constraint_violation_is_nan_for_forest_on_some_features(compas):
    inputs, outcomes = compas.df_train[compas.continuous], compas.df_train[compas.target]
    forest = RandomForestClassifier(n_estimators=5, max_depth=4, random_state=0).fit(inputs, outcomes)
    model = models.wrap(forest, compas, space="encoded")
    factuals = models.negative_instances(model, limit=4)
    with pytest.warns(UserWarning, match="CARLA cannot compute constraint violation"):
        result = rose_carla.Benchmark(model, Steps(model), factuals, FEW).run_benchmark()
    assert result["Constraint_Violation"].isna().all()
    assert result["Plausible_AIR"].notna().all()


def test_growing_spheres(compas_ann, factuals):
    with warnings.catch_warnings(), seeded(0):  # draws from the global generator
        warnings.simplefilter("error", UserWarning)
        result = rose_carla.Benchmark(compas_ann, GrowingSpheres(compas_ann, {}), factuals, FEW).run_benchmark()
    assert result["Validity"].mean() == 1
    assert result["Plausible_AIR"].mean() > 0.3  # stops at the decision boundary


def test_invalid_options_and_labels_raise_errors(compas_ann, factuals):
    with pytest.raises(NoiseError, match="Unknown hyper-parameter 'varience': did you mean 'variance'"):
        metrics.GaussianAIR(compas_ann, {"varience": 0.1})
    with pytest.raises(NoiseError, match="Unknown hyper-parameter 'n_sample'"):
        rose_carla.Benchmark(compas_ann, Steps(compas_ann), factuals, {"n_sample": 10})
    with pytest.raises(NoiseError, match="does not measure time"):
        metrics.RecourseTime(compas_ann)
    with pytest.raises(NoiseError, match="Unknown hyper-parameter 'norm'"):
        metrics.Proximity(compas_ann, {"norm": 2})
    ends = Steps(compas_ann).get_counterfactuals(factuals)
    with pytest.raises(DataError, match="Row labels of the factuals occur twice"):
        metrics.Proximity(compas_ann).get_evaluation(pd.concat([factuals, factuals]), ends)
    with pytest.raises(DataError, match="lack the columns sex_Male"):
        metrics.Proximity(compas_ann).get_evaluation(factuals, ends.drop(columns="sex_Male"))
    with pytest.raises(DataError, match="Cannot match 5 counterfactuals"):
        metrics.Proximity(compas_ann).get_evaluation(factuals, ends.head(5).reset_index(drop=True))


def test_input_is_checked_before_the_method_runs(compas_ann, factuals):
    class Never(Steps):
        def get_counterfactuals(self, factuals):
            raise AssertionError("the method ran")

    for options in ({"n_sample": 3}, {"n_samples": 0}, {"n_samples": 1e2}, {"seed": -1}, {"variance": -1.0}):
        with pytest.raises(NoiseError):
            rose_carla.Benchmark(compas_ann, Never(compas_ann), factuals, options)
    with pytest.raises(DataError, match="occur twice"):
        rose_carla.Benchmark(compas_ann, Never(compas_ann), pd.concat([factuals, factuals]))
    with pytest.raises(DataError, match="has no rows"):
        rose_carla.Benchmark(compas_ann, Never(compas_ann), factuals.head(0))
    for model in (None, "ann"):
        with pytest.raises(ModelError, match="Expected a CARLA model"):
            rose_carla.Benchmark(model, Never(compas_ann), factuals)
    for method in (None, Never, "ROSE-one"):
        with pytest.raises(PlanError, match="an instance of a recourse method"):
            rose_carla.Benchmark(compas_ann, method, factuals)


@pytest.mark.parametrize("given", ["numbers", "text"])
def test_methods_that_modify_factuals_get_a_copy(given, compas_ann, factuals):
    class Modifies(Steps):
        def get_counterfactuals(self, factuals):
            ends = super().get_counterfactuals(factuals.astype(float))
            factuals.drop(columns="age", inplace=True)
            return ends

    factuals = factuals.head(4)
    kept = factuals.copy()
    people = factuals.astype(str) if given == "text" else factuals
    ours = rose_carla.Benchmark(compas_ann, Modifies(compas_ann), people, FEW).run_benchmark()
    expected = rose_carla.Benchmark(compas_ann, Steps(compas_ann), factuals, FEW).run_benchmark()
    timing = ["Average_Time", "Recourse_Time"]
    pd.testing.assert_frame_equal(ours.drop(columns=timing), expected.drop(columns=timing))
    pd.testing.assert_frame_equal(factuals, kept)


def test_infinite_rows_and_empty_results_count_as_not_found(compas_ann, factuals):
    ends = Steps(compas_ann).get_counterfactuals(factuals)
    ends.iloc[0, 0] = np.inf
    assert metrics.Validity(compas_ann).get_evaluation(factuals, ends)["Validity"].tolist() == [0.0] + [1.0] * 11
    nothing = metrics.Validity(compas_ann).get_evaluation(factuals, pd.DataFrame())
    assert (nothing["Validity"] == 0).all()


def test_plan_of_wrong_shape_raises_an_error(compas_ann, factuals):
    ends = Steps(compas_ann).get_counterfactuals(factuals)
    label = factuals.index[0]
    change = (ends.loc[label] - factuals.loc[label, ends.columns]).to_numpy()
    with pytest.raises(NoiseError, match=r"has shape \(7, 1\), expected \(k, 7\)"):
        metrics.AccAIR(compas_ann, {**FEW, "plans": {label: change[:, None]}}).get_evaluation(factuals, ends)
    with pytest.raises(NoiseError, match="must be a mapping"):
        metrics.AccAIR(compas_ann, {**FEW, "plans": [change]})


def test_renumbered_subset_of_rows_warns(compas_ann, factuals):
    numbered = factuals.reset_index(drop=True)
    ends = Steps(compas_ann).get_counterfactuals(numbered).iloc[[0, 2, 4]].reset_index(drop=True)
    with pytest.warns(UserWarning, match="dropped rows and renumbered"):
        metrics.Proximity(compas_ann).get_evaluation(numbered, ends)


def test_renumbered_rows_are_matched_by_position(compas_ann, factuals):
    """Factuals labelled 3, 2, 1, 0: a method that renumbers returns 0, 1, 2, 3 in their order."""
    backwards = factuals.head(4).set_axis([3, 2, 1, 0], axis=0)
    ends = Steps(compas_ann).get_counterfactuals(backwards)
    ends["age"] = [0.0, 0.1, 0.2, 0.3]
    with pytest.warns(UserWarning, match="the same numbers in another order"):
        aligned = metrics.align(backwards, ends.reset_index(drop=True), compas_ann.feature_input_order)
    assert aligned.loc[3, "age"] == 0.0
    assert aligned.loc[0, "age"] == 0.3


def test_invalid_frames_raise_errors(compas_ann, factuals):
    ends = Steps(compas_ann).get_counterfactuals(factuals)
    metric = metrics.Sparsity(compas_ann)
    broken = factuals.copy()
    broken.iloc[0, 0] = np.nan
    with pytest.raises(DataError, match="factuals contain missing or infinite values"):
        metric.get_evaluation(broken, ends)
    for returned, message in (
        (None, "counterfactuals must be a pandas DataFrame"),
        (ends.to_numpy(), "counterfactuals must be a pandas DataFrame"),
        (pd.concat([ends, ends], axis=1), "have the column .* twice"),
        (ends.astype(object).replace(ends.iloc[0, 0], "x"), "values that are not numbers"),
    ):
        with pytest.raises(DataError, match=message):
            metric.get_evaluation(factuals, returned)
    with pytest.raises(NoiseError, match="Expected a dictionary"):
        metrics.Sparsity(compas_ann, 5)
    with pytest.raises(NoiseError, match="must be an array of numbers"):
        metrics.AccAIR(compas_ann, {**FEW, "plans": {factuals.index[0]: "x"}}).get_evaluation(factuals, ends)


@pytest.mark.parametrize("name", ["GaussianAIR", "PlausibleAIR", "AccAIR"])
def test_subclass_of_invalidation_metric_gives_the_same_numbers(compas_ann, factuals, name):
    metric = getattr(metrics, name)

    class Renamed(metric):
        pass

    ends = Steps(compas_ann).get_counterfactuals(factuals)
    expected = metric(compas_ann, FEW).get_evaluation(factuals, ends)
    pd.testing.assert_frame_equal(Renamed(compas_ann, FEW).get_evaluation(factuals, ends), expected, check_exact=True)


def test_registry_lists_the_column_of_each_metric(compas_ann, factuals):
    assert all(metric.evaluation.columns[0] == column for column, metric in metrics.METRICS.items())
    benchmark = rose_carla.Benchmark(compas_ann, Steps(compas_ann), factuals, FEW)
    columns = set(benchmark.run_benchmark().columns)
    assert set(metrics.METRICS) & columns == set(metrics.PAPER_METRICS)
    assert len(metrics.PAPER_METRICS) == 8
    with pytest.raises(NoiseError, match="Unknown metric 'Acc_Air': did you mean 'Acc_AIR'"):
        benchmark.compute_metric("Acc_Air")
