"""Cells: their keys, and results against methods and metrics called directly."""

from __future__ import annotations

import dataclasses

import rose_carla
import numpy as np
import pytest
from rose_carla import baselines, datasets, metrics, models
from carla.recourse_methods import GrowingSpheres
from cell_examples import FEW, SETTING, fake, judgement, run
from rose_carla._lib.runtime import seeded
from rose_carla.bench import METHODS, METRICS, Experiment, Judgement, Recourse, Setting, Store, results_frame
from rose_carla.errors import ExperimentError
from rose_carla.metrics import PAPER_METRICS, NoiseSettings

WITHOUT_TIME = tuple(name for name in PAPER_METRICS if name != "Recourse_Time")


def test_key_depends_on_everything_that_shapes_the_result():
    noises = [dataclasses.replace(FEW, **{name: value}) for name, value in {"variance": 0.02, "n_samples": 51}.items()]
    variants = [
        judgement(),
        *(judgement(setting=dataclasses.replace(SETTING, **{name: value})) for name, value in {
            "dataset": "german", "classifier": "ann", "seed": 1, "actionable": True, "people": 5,
        }.items()),
        judgement(setting=dataclasses.replace(SETTING, people=None)),
        judgement("Wachter"),
        judgement("PROBE"),
        judgement("PROBE", invalidation_target=0.25),
        judgement("PROBE", invalidation_target=0.15),
        judgement("PROBE", variance=0.25),
        judgement(metric="Sparsity"),
        Judgement(judgement().recourse, ("Proximity", "Sparsity"), FEW),
        *(judgement(noise=noise) for noise in noises),
    ]  # fmt: skip
    keys = [cell.key for cell in variants] + [cell.key for cell in {cell.recourse for cell in variants}]
    assert len(set(keys)) == len(keys)
    again = judgement(setting=Setting(people=4, classifier="linear", dataset="compas"))
    assert (again.key, again.recourse.key) == (variants[0].key, variants[0].recourse.key)
    assert again == variants[0]


def test_options_equal_to_the_defaults_do_not_change_the_key():
    plain = Recourse(SETTING, "ROSE-one")
    assert Recourse.with_options(SETTING, "ROSE-one", tau=0.75) == plain
    assert Recourse.with_options(SETTING, "ROSE-one", tau=0.75, variance=0.01).key == plain.key
    assert Recourse.with_options(SETTING, "PROBE", invalidation_target=0.35).key == Recourse(SETTING, "PROBE").key
    assert Recourse.with_options(SETTING, "DiCE", num=1).key == Recourse(SETTING, "DiCE").key
    one, two = {"tau": 0.85, "variance": 0.02}, {"variance": 0.02, "tau": 0.85}
    assert Recourse.with_options(SETTING, "ROSE-one", **one) == Recourse.with_options(SETTING, "ROSE-one", **two)
    for name, entry in METHODS.items():
        made = [Recourse.with_options(SETTING, name, **{entry.knob: level}) for level in entry.levels]
        assert len({cell.key for cell in made}) == len(made)
        assert sum(cell == Recourse(SETTING, name) for cell in made) == bool(made), name


def test_seed_option_changes_the_key_unless_it_is_the_settings():
    setting = dataclasses.replace(SETTING, seed=3)
    plain = Recourse(setting, "PROBE")
    assert Recourse.with_options(setting, "PROBE", seed=0).key != plain.key
    assert Recourse.with_options(setting, "PROBE", seed=3).key == plain.key


def test_unknown_names_suggest_the_close_match():
    with pytest.raises(ExperimentError, match="Unknown data set 'germen': did you mean 'german'"):
        Setting("germen")
    with pytest.raises(ExperimentError, match="Unknown classifier 'lineer': did you mean 'linear'"):
        Setting("german", "lineer")
    with pytest.raises(ExperimentError, match="Unknown method 'rose-On': did you mean 'ROSE-one'"):
        Recourse(SETTING, "rose-On")
    with pytest.raises(ExperimentError, match="Unknown metric 'Plausible_IAR': did you mean 'Plausible_AIR'"):
        judgement(metric="Plausible_IAR")
    with pytest.raises(ExperimentError, match="at least 1, got 0"):
        Setting("german", people=0)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("GrSp", lambda model: GrowingSpheres(model, {})),
        ("PROBE", lambda model: baselines.Probe(model, {"preset": "paper", "seed": 2})),
    ],
)
def test_cells_agree_with_method_and_benchmark_called_directly(name, build):
    model = models.train(datasets.load("german", all_actionable=True, seed=2), "linear", seed=2)
    people = models.negative_instances(model, seed=2).head(4)
    with seeded(2):
        method = build(model)
    with seeded(2):
        benchmark = rose_carla.Benchmark(model, method, people, {"n_samples": 50, "variance": 0.02, "seed": 2})
    expected = benchmark.run_benchmark()
    cell = Recourse(Setting("german", "linear", seed=2, people=4), name)
    result = cell.run()
    np.testing.assert_array_equal(result.arrays["counterfactuals"], benchmark.counterfactuals)
    assert result.about["labels"] == [str(label) for label in people.index]
    assert (result.about["people"], result.about["found"]) == (4, 4)
    noise = NoiseSettings.from_mapping({"n_samples": 50, "variance": 0.02})
    judged = Judgement(cell, WITHOUT_TIME, noise).run(result).arrays
    assert set(WITHOUT_TIME) < set(judged)
    for column, values in judged.items():
        np.testing.assert_array_equal(values, expected[column], err_msg=column)


def test_plans_of_a_sequential_method_are_judged_as_by_the_benchmark(monkeypatch):
    made, usual = [], METHODS["FastAR"]
    monkeypatch.setitem(
        METHODS, "FastAR", dataclasses.replace(usual, make=lambda *given: made.append(usual.make(*given)) or made[-1])
    )
    brief = {"ppo": {"n_updates": 3, "n_envs": 64}}
    cell = judgement("FastAR", "Acc_AIR", dataclasses.replace(SETTING, people=5), **brief)
    result = cell.recourse.run()
    model, people = cell.recourse.setting.model(), cell.recourse.setting.factuals()
    expected = rose_carla.Benchmark(model, made[0], people, {"n_samples": 50}).compute_metric("Acc_AIR")
    assert result.arrays["n_actions"].sum() == len(result.arrays["actions"]) > 0
    np.testing.assert_array_equal(cell.run(result).arrays["Acc_AIR"], expected["Acc_AIR"])


def test_plans_stay_with_their_people_when_one_has_no_recourse(monkeypatch, tmp_path):
    def from_the_last_feature_to_the_first(starts, ends):
        plans = {label: np.diag((ends - starts).loc[label])[::-1] for label in ends.index}
        for label in ends.index[1:2]:
            ends.loc[label] = np.nan
            del plans[label]
        return ends, plans

    fake(monkeypatch, plans=from_the_last_feature_to_the_first)
    options = {"n_samples": 50, "unit_variance": 0.02}
    cell = judgement(metric="Acc_AIR", noise=NoiseSettings.from_mapping(options))
    run([cell], tmp_path)
    rates = Store(tmp_path).find(cell).arrays["Acc_AIR"]
    model, people = SETTING.model(), SETTING.factuals()
    benchmark = rose_carla.Benchmark(model, METHODS["GrSp"].build(model, 0, {}), people, options)
    np.testing.assert_array_equal(rates, benchmark.compute_metric("Acc_AIR")["Acc_AIR"])
    assert np.isnan(rates).tolist() == [False, True, False, False]
    at_once = metrics.AccAIR(model, options).get_evaluation(people, benchmark.counterfactuals)["Acc_AIR"]
    assert (at_once.to_numpy() != rates)[[0, 2, 3]].any()


def test_closed_loop_of_a_cell_is_that_of_the_benchmark():
    setting = dataclasses.replace(SETTING, people=2)
    cell = judgement("GrSp", "Closed_Loop_AIR", setting)
    judged = cell.run(cell.recourse.run()).arrays
    model, people = setting.model(), setting.factuals()
    with seeded(0):
        method = GrowingSpheres(model, {})
    benchmark = rose_carla.Benchmark(model, method, people, {"n_samples": 50}, {})
    expected = benchmark.compute_metric("Closed_Loop_AIR")
    assert list(judged) == list(expected.columns)
    for column, values in judged.items():
        np.testing.assert_array_equal(values, expected[column], err_msg=column)
    assert (judged["Closed_Loop_Decisions"] >= 1).all()


def test_key_of_the_closed_loop_depends_on_the_method(monkeypatch):
    cell, plain = judgement("GrSp", "Closed_Loop_AIR"), judgement("GrSp", "Acc_AIR")
    before = cell.key, plain.key
    assert before[0] != before[1]
    monkeypatch.setitem(METHODS, "GrSp", dataclasses.replace(METHODS["GrSp"], source="changed"))
    assert judgement("GrSp", "Closed_Loop_AIR").key not in before
    assert judgement("ROSE-one", "Closed_Loop_AIR").key != judgement("ROSE-mul", "Closed_Loop_AIR").key


def test_closed_loop_that_fails_is_nan_in_the_results(monkeypatch, tmp_path):
    made = []

    def second_time_unlucky():
        made.append(1)
        if len(made) == 2:
            raise MemoryError("none left")

    fake(monkeypatch, second_time_unlucky)
    bad, good = judgement("GrSp", "Closed_Loop_AIR"), judgement("GrSp")
    finished = run([bad, good], tmp_path)
    assert dict(finished.errors) == {bad: "MemoryError: none left"}
    frame = results_frame([Experiment("", (good, bad))], finished)
    assert frame[list(METRICS["Closed_Loop_AIR"].evaluation.columns)].isna().all(axis=None)
    assert frame["Proximity"].notna().all()
    # the most favourable row of the data: one decision is enough
    found = run([bad, good], tmp_path).results[bad].arrays
    assert (found["Closed_Loop_AIR"] < 0.2).all()
    assert found["Closed_Loop_Decisions"] == pytest.approx(1, abs=0.3)
