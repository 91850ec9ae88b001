"""Cells, their keys, the store that keeps them and the runner that runs what is missing."""

from __future__ import annotations

import dataclasses
import itertools
from types import SimpleNamespace

import rose_carla
import numpy as np
import pandas as pd
import pytest
from rose_carla import baselines, bench, datasets, metrics, models
from carla.recourse_methods import GrowingSpheres
from rose_carla._lib.runtime import seeded
from rose_carla.bench import METHODS, Entry, Judgement, Local, Recourse, Setting, Store, cells
from rose_carla.bench import sources as code
from rose_carla.bench.store import file_name
from rose_carla.errors import ExperimentError
from rose_carla.metrics import NoiseSettings

SETTING = Setting("compas", "linear", people=4)
FEW = NoiseSettings.from_mapping({"n_samples": 50})


def fake(monkeypatch, prepare=lambda: None, name="GrSp", plans=None):
    """Have ``name`` call ``prepare`` and then move everybody to the training row that the classifier likes best."""

    def make(model, options):
        prepare()
        rows = model.data.df_train[model.feature_input_order]
        goal = rows.iloc[model.predict_proba(rows)[:, 1].argmax()]
        method = SimpleNamespace(plans={}) if plans else SimpleNamespace()

        def get_counterfactuals(factuals):
            ends = pd.DataFrame([goal] * len(factuals), index=factuals.index)
            if plans:
                ends, method.plans = plans(factuals[model.feature_input_order], ends)
            return ends

        method.get_counterfactuals = get_counterfactuals
        return method

    monkeypatch.setitem(METHODS, name, Entry(make, {}, False, seeded=False))


def judgement(method="GrSp", metric="Proximity", setting=SETTING, noise=FEW, **options):
    return Judgement(Recourse.with_options(setting, method, **options), (metric,), noise)


def run(judgements, folder, backend=None, **options):
    return bench.run(judgements, Store(folder), backend or Local(1), progress=False, **options)


def test_cells_have_one_key_and_others_have_another():
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


@pytest.mark.parametrize("what", ["fingerprint", "versions"])
def test_other_code_or_libraries_are_another_cell(monkeypatch, what):
    before = judgement().key
    monkeypatch.setattr(code, what, lambda: "another")
    assert judgement().key != before


def test_options_that_are_the_tables_anyway_make_no_other_cell():
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


def test_a_seed_of_ones_own_is_another_cell_unless_it_is_the_settings():
    setting = dataclasses.replace(SETTING, seed=3)
    plain = Recourse(setting, "PROBE")
    assert Recourse.with_options(setting, "PROBE", seed=0).key != plain.key
    assert Recourse.with_options(setting, "PROBE", seed=3).key == plain.key


def test_unknown_names_are_told_with_the_close_match():
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
def test_cells_agree_with_the_method_and_the_benchmark_called_directly(name, build):
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
    judged = Judgement(cell, tuple(cells.METRICS), noise).run(result).arrays
    assert set(cells.METRICS) < set(judged)
    for column, values in judged.items():
        np.testing.assert_array_equal(values, expected[column], err_msg=column)


def test_plans_of_a_trained_sequential_method_survive(monkeypatch):
    made, usual = [], METHODS["FastAR"]
    monkeypatch.setitem(
        METHODS, "FastAR", dataclasses.replace(usual, make=lambda *given: made.append(usual.make(*given)) or made[-1])
    )
    cell = judgement("FastAR", "Acc_AIR", dataclasses.replace(SETTING, people=5))
    result = cell.recourse.run()
    model, people = cell.recourse.setting.model(), cell.recourse.setting.factuals()
    expected = rose_carla.Benchmark(model, made[0], people, {"n_samples": 50}).compute_metric("Acc_AIR")
    assert result.arrays["n_actions"].sum() == len(result.arrays["actions"]) > 0
    np.testing.assert_array_equal(cell.run(result).arrays["Acc_AIR"], expected["Acc_AIR"])


def test_plans_go_with_their_people_in_their_order_also_past_somebody_without_recourse(monkeypatch, tmp_path):
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


def test_a_sweep_over_the_noise_of_the_evaluation_generates_nothing(monkeypatch, tmp_path):
    noises = [dataclasses.replace(FEW, variance=variance) for variance in (0.001, 0.01, 0.1)]
    first = run([judgement(metric="Plausible_AIR", noise=noises[0])], tmp_path)
    assert (first.n_run, first.n_reused) == (2, 0)

    def never(self):
        raise AssertionError("recourse was generated")

    monkeypatch.setattr(Recourse, "run", never)
    sweep = [judgement(metric="Plausible_AIR", noise=noise) for noise in noises]
    swept = run(sweep, tmp_path)
    assert not swept.errors
    assert (swept.n_run, swept.n_reused) == (2, 2)
    rates = [swept.results[cell].arrays["Plausible_AIR"].mean() for cell in sweep]
    assert len(set(rates)) == 3


def test_finished_cells_are_reused_and_each_is_run_once(monkeypatch, tmp_path):
    made = []
    fake(monkeypatch, lambda: made.append("GrSp"))
    fake(monkeypatch, lambda: made.append("Wachter"), "Wachter")
    wanted = [judgement(), judgement(metric="Sparsity"), judgement()]
    first = run(wanted, tmp_path)
    assert (first.n_run, first.n_reused, made) == (3, 0, ["GrSp"])
    more = run([*wanted, judgement("Wachter")], tmp_path)
    assert (more.n_run, more.n_reused, made) == (2, 3, ["GrSp", "Wachter"])
    for cell, result in first.results.items():
        assert dict(result.about) == dict(more.results[cell].about)
        for name, array in result.arrays.items():
            np.testing.assert_array_equal(array, more.results[cell].arrays[name])


def test_a_method_that_raises_fails_alone_and_is_tried_again(monkeypatch, tmp_path):
    trouble = [ValueError("no such\n  luck"), None]

    def prepare():
        print("about to try")
        if error := trouble.pop(0):
            raise error

    fake(monkeypatch, prepare)
    bad, good = judgement(), judgement("Wachter")
    logs = tmp_path / "logs"
    first = run([bad, good], tmp_path, logs=logs)
    assert dict(first.errors) == {bad.recourse: "ValueError: no such luck", bad: "ValueError: no such luck"}
    assert set(first.results) == {good.recourse, good}
    log = (logs / f"{file_name(bad.recourse)}.log").read_text()
    for words in (bad.recourse.words, "about to try", "Traceback", "raise error", "failed after"):
        assert words in log
    second = run([bad, good], tmp_path, logs=logs)
    assert not second.errors
    assert (second.n_run, second.n_reused) == (2, 2)
    assert "finished after" in (logs / f"{file_name(bad.recourse)}.log").read_text()


def test_a_metric_that_raises_leaves_the_others(monkeypatch, tmp_path):
    bad, good = judgement(metric="Sparsity"), judgement()
    monkeypatch.setitem(cells.METRICS, "Sparsity", (lambda model, options: 1 / 0, False))
    finished = run([bad, good], tmp_path)
    assert dict(finished.errors) == {bad: "ZeroDivisionError: division by zero"}
    assert set(finished.results) == {good.recourse, good}


def test_recourse_that_ran_beside_others_is_generated_again_where_it_runs_alone(monkeypatch, tmp_path):
    made = []
    fake(monkeypatch, lambda: made.append(1))
    beside, alone = Local(1), Local(1)
    beside.outcomes, beside.alone = Local(1).outcomes, False
    for backend, n_made, flag in [(beside, 1, False), (beside, 1, False), (alone, 2, True), (beside, 2, True)]:
        finished = run([judgement()], tmp_path, backend)
        assert len(made) == n_made
        assert finished.results[judgement().recourse].about["alone"] is flag


def test_cells_that_do_not_tell_how_they_came_about_are_computed_again(monkeypatch, tmp_path):
    made = []
    fake(monkeypatch, lambda: made.append(1))
    kept = run([judgement()], tmp_path).results
    for cell in (judgement().recourse, judgement()):
        for lost in ("alone", "cell_seconds"):
            about = {name: value for name, value in kept[cell].about.items() if name != lost}
            Store(tmp_path).save(cell, bench.Result(kept[cell].arrays, about))
            finished = run([judgement()], tmp_path)
            assert (finished.n_reused, finished.n_run) == (1, 1)
            assert lost in finished.results[cell].about
    assert len(made) == 3


def test_a_method_without_an_end_is_given_up(monkeypatch):
    monkeypatch.setattr(cells, "PATIENCE", 0.2)
    fake(monkeypatch, lambda: [None for _ in itertools.count()])
    (outcome,) = Local(1).outcomes([(judgement().recourse, ())])
    assert outcome.error.startswith("TimeoutError: GrSp was given up")
