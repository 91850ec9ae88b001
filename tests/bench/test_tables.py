"""Values of the tables: estimates, tags, marks, tests and claims."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from rose_carla.bench import (
    TABLE_METRICS,
    Column,
    Experiment,
    Finished,
    Judgement,
    Layout,
    PaperValue,
    Recourse,
    Result,
    Setting,
    build_table,
    claims,
    dominating,
    estimate,
    layouts,
    paper_value,
    results_frame,
    t_tests,
    tag,
)
from rose_carla.bench.comparison import BETTER, DIFFERS, TESTED, WITHIN, best_methods
from rose_carla.bench.layouts import Scope
from rose_carla.bench.runner import experiment_errors, to_csv
from rose_carla.metrics import NoiseSettings
from scipy import stats

METHODS = ("GrSp", "FastAR", "CROCO", "PROBE", "ROSE-one", "ROSE-mul")


def random_results(rng, datasets=("german",), methods=METHODS, conditions=("",), seeds=(0,), n=12, missing=0.2):
    """Return a results frame of random values, some of them missing."""
    rows = [
        {"Dataset": dataset, "Method": method, "Condition": condition, "Seed": seed, "Person": str(person)}
        for dataset, method, condition, seed, person in itertools.product(
            datasets, methods, conditions, seeds, range(n)
        )
    ]
    frame = pd.DataFrame(rows)
    for metric in (*TESTED, "Recourse_Time", "Training_Time"):
        frame[metric] = rng.normal(1, 0.3, len(frame)).round(3)
    frame["Validity"] = (rng.random(len(frame)) > missing).astype(float)
    frame.loc[frame["Validity"] == 0, list(TESTED)] = np.nan
    return frame.assign(Alone=True)


def test_interval_of_one_seed_is_students_over_people():
    values = np.array([0.2, np.nan, 0.5, 0.9, 0.1, np.nan])
    known = values[np.isfinite(values)]
    found = estimate(values, np.zeros(6))
    low, high = stats.t.interval(0.95, len(known) - 1, loc=known.mean(), scale=stats.sem(known))
    assert (found.mean, found.std, found.n) == (pytest.approx(known.mean()), pytest.approx(known.std(ddof=1)), 4)
    assert (found.lower, found.upper) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize(("ones", "n"), [(3, 4), (0, 10), (10, 10), (1, 1), (120, 257)])
def test_interval_of_zeros_and_ones_is_wilsons(ones, n):
    found = estimate(np.array([1.0] * ones + [0.0] * (n - ones)), np.zeros(n))
    wilson = stats.binomtest(ones, n).proportion_ci(0.95, method="wilson")
    assert found.mean == pytest.approx(ones / n)
    assert (found.lower, found.upper) == (pytest.approx(wilson.low, abs=1e-12), pytest.approx(wilson.high))


def test_interval_of_several_seeds_is_students_over_seed_means():
    values = np.array([1.0, 0.0, 1.0, 1.0, np.nan, 1.0, 0.0, 0.0, 0.0])
    seeds = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])
    means = [2 / 3, 1.0, 0.0]
    found = estimate(values, seeds)
    low, high = stats.t.interval(0.95, 2, loc=np.mean(means), scale=stats.sem(means))
    assert (found.mean, found.n) == (pytest.approx(np.nanmean(values)), 8)
    assert (found.lower, found.upper) == (pytest.approx(low), pytest.approx(high))


def test_too_few_values_have_no_interval():
    empty, one = estimate(np.array([np.nan, np.nan]), np.zeros(2)), estimate(np.array([0.3]), np.zeros(1))
    assert empty.n == 0
    assert math.isnan(empty.mean)
    assert (one.mean, one.n) == (0.3, 1)
    assert all(math.isnan(value) for value in (one.std, one.lower, one.upper))


@pytest.mark.parametrize(
    ("metric", "ours", "paper", "expected"),
    [
        ("Proximity", 2.29, 2.0, WITHIN),
        ("Proximity", 2.31, 2.0, DIFFERS),
        ("Proximity", 1.71, 2.0, WITHIN),
        ("Proximity", 1.69, 2.0, BETTER),
        ("Validity", 0.84, 1.0, DIFFERS),
        ("Validity", 0.86, 1.0, WITHIN),
        ("Validity", 0.99, 0.8, BETTER),
        ("Log_Density", -11.4, -10.0, WITHIN),
        ("Log_Density", -11.6, -10.0, DIFFERS),
        ("Log_Density", -8.4, -10.0, BETTER),
        ("Acc_AIR", 0.0049, 0.0, WITHIN),
        ("Acc_AIR", 0.0051, 0.0, DIFFERS),
        ("Acc_AIR", 0.0, 0.01, BETTER),
        ("Recourse_Time", 0.0054, 0.005, WITHIN),
        ("Recourse_Time", 0.0058, 0.005, DIFFERS),
    ],
)
def test_tags_respect_printed_digits_and_direction(metric, ours, paper, expected):
    assert tag(ours, PaperValue(paper, None), TABLE_METRICS[metric]) == expected


def test_best_methods_are_equal_in_printed_digits():
    means = {"a": 0.104, "b": 0.0951, "c": 0.2, "d": np.nan}
    assert best_methods(means, TABLE_METRICS["Acc_AIR"]) == {"a", "b"}
    assert best_methods(means, TABLE_METRICS["Log_Density"]) == {"c"}
    assert best_methods({"a": 0.0204, "b": 0.0196, "c": 0.0206}, TABLE_METRICS["Recourse_Time"]) == {"a", "b"}
    assert best_methods({"a": np.nan}, TABLE_METRICS["Acc_AIR"]) == best_methods({}, TABLE_METRICS["Acc_AIR"]) == set()


def test_t_tests_match_scipy():
    frame = random_results(np.random.default_rng(0), ("german", "compas"), seeds=(0, 1), missing=0.4)
    found = t_tests(frame)
    assert set(found["Dataset"]) == {"german", "compas"}
    assert set(found["Metric"]) == set(TESTED)
    for row in found.to_dict("records"):
        part = frame[frame["Dataset"] == row["Dataset"]].set_index(["Seed", "Person"])
        mine, theirs = (part.loc[part["Method"] == name, row["Metric"]] for name in (row["Ours"], row["Other"]))
        both = mine.notna() & theirs.notna()
        assert 2 < both.sum() < both.size
        welch = stats.ttest_ind(mine, theirs, equal_var=False, nan_policy="omit")
        paired = stats.ttest_rel(mine, theirs, nan_policy="omit")
        assert row["Welch p"] == pytest.approx(welch.pvalue)
        assert row["Paired p"] == pytest.approx(paired.pvalue)
        assert row["Pairs"] == both.sum()
        assert (row["Mean"], row["Other mean"]) == (pytest.approx(mine.mean()), pytest.approx(theirs.mean()))
        gap = (mine - theirs).mean()
        assert row["Difference"] == pytest.approx(gap)
        assert row["Better"] == (gap > 0 if row["Metric"] == "Log_Density" else gap < 0)


def test_t_tests_compare_with_croco_and_best_baseline():
    frame = random_results(np.random.default_rng(1), missing=0)
    found = t_tests(frame)
    for metric in TESTED:
        means = {name: frame.loc[frame["Method"] == name, metric].mean() for name in METHODS[:4]}
        top = (max if metric == "Log_Density" else min)(means, key=means.get)
        expected = {"CROCO": "also the best baseline"} if top == "CROCO" else {"CROCO": "CROCO", top: "best baseline"}
        for ours in ("ROSE-one", "ROSE-mul"):
            rows = found[(found["Metric"] == metric) & (found["Ours"] == ours)]
            assert dict(zip(rows["Other"], rows["As"], strict=True)) == expected
    assert len(set(found["As"])) == 3


def test_t_tests_of_constant_differences():
    frame = random_results(np.random.default_rng(2), methods=("CROCO", "ROSE-one"), missing=0)
    frame.loc[frame["Method"] == "ROSE-one", list(TESTED)] = frame.loc[
        frame["Method"] == "CROCO", list(TESTED)
    ].to_numpy()
    frame.loc[frame["Method"] == "CROCO", "Sparsity"], frame.loc[frame["Method"] == "ROSE-one", "Sparsity"] = 2.0, 1.0
    found = t_tests(frame).set_index("Metric")
    assert found.loc["Proximity", "Paired p"] == 1
    assert not found.loc["Proximity", "Better"]
    assert found.loc["Sparsity", "Paired p"] == 0
    assert found.loc["Sparsity", "Better"]


def dominating_by_hand(frame, ours, others, metric):
    """Find methods with both values lower, by loops over people."""
    point = {}
    for row in frame.to_dict("records"):
        values = row[metric], row["Proximity"]
        if not any(math.isnan(value) for value in values):
            point.setdefault((row["Method"], row["Condition"]), {})[row["Seed"], row["Person"]] = values
    found = {}
    for other in others:
        shared = [each for each in point.get(other, {}) if each in point.get(ours, {})]
        gaps = [[point[other][each][i] - point[ours][each][i] for each in shared] for i in (0, 1)]
        if len(shared) >= 2 and all(sum(gap) < 0 for gap in gaps):
            sure = all(len({*gap}) == 1 or stats.ttest_rel(gap, [0.0] * len(gap)).pvalue < 0.05 for gap in gaps)
            found[other] = (sum(gaps[0]) / len(shared), sum(gaps[1]) / len(shared), len(shared), sure)
    return found


def test_claims_match_loops_over_people():
    kinds = set()
    for seed in range(4):
        frame = random_results(
            np.random.default_rng(seed), ("german",), conditions=("", "k=1"), seeds=(0, 1), n=5, missing=0.3
        )
        baseline = ~frame["Method"].isin(["ROSE-one", "ROSE-mul"])
        frame.loc[baseline, ["Acc_AIR", "Plausible_AIR", "Proximity"]] += 0.25 - 0.2 * seed
        verdicts = claims(frame)
        assert len(verdicts) == 2 * 2
        for verdict in verdicts.to_dict("records"):
            part = frame[frame["Dataset"] == verdict["Dataset"]]
            ours = verdict["Ours"], verdict["Condition"]
            metric = {"ROSE-mul": "Acc_AIR", "ROSE-one": "Plausible_AIR"}[ours[0]]
            others = [*itertools.product(METHODS[:4], ("", "k=1"))]
            expected = dominating_by_hand(part, ours, others, metric)
            rows = dominating(part, ours, others)
            assert len(rows) == len(expected)
            for row in rows.to_dict("records"):
                gaps = row[metric], row["Proximity"], row["People"], row["Beyond chance"]
                assert gaps == pytest.approx(expected[row["Method"], row["Condition"]])
            words = {other: " ".join(other).strip() for other in expected}
            sure = ", ".join(words[other] for other, each in expected.items() if each[3])
            found = verdict["Metric"], verdict["Held"], verdict["Safer and shorter"], verdict["Beyond chance"]
            assert found == (metric, not expected, ", ".join(words.values()), sure)
            kinds.add("held" if not expected else "sure" if sure else "by chance")
    assert kinds == {"held", "sure", "by chance"}


RATE = {"Acc_AIR": 0.2, "Acc_AIR_Lower": 0.1, "Acc_AIR_Upper": 0.3}


def finished_cells():
    """Return a complete experiment, one with a failed judgement, one with failed recourse, and the finished cells."""
    setting, noise = Setting("german", "linear", seed=3), NoiseSettings.from_mapping({"action_unit": 0.05})
    cells = [Recourse(setting, name) for name in ("GrSp", "PROBE", "CROCO")]
    points = [
        Experiment("action_unit=0.05", tuple(Judgement(cell, (metric,), noise) for metric in ("Proximity", "Acc_AIR")))
        for cell in cells
    ]
    (whole, half, none) = points
    about = {"seconds": 3.0, "people": 2, "training_seconds": 7.0, "alone": False, "labels": ["8", "11"]}
    recourse = Result({}, about)
    results = {
        cells[0]: recourse,
        cells[1]: recourse,
        whole.judgements[0]: Result({"Proximity": np.array([0.5, np.nan])}),
        whole.judgements[1]: Result({name: np.array([rate, np.nan]) for name, rate in RATE.items()}),
        half.judgements[0]: Result({"Proximity": np.array([1.0, 2.0])}),
    }
    failed = {half.judgements[1]: "E: judged", cells[2]: "E: made", none.judgements[0]: "E: made"}
    return points, Finished(results, failed, 0, 9)


def test_results_frame_collects_cell_results():
    points, finished = finished_cells()
    expected = pd.DataFrame(
        {
            "Dataset": "german", "Classifier": "linear", "Method": ["GrSp", "GrSp", "PROBE", "PROBE"],
            "Condition": "action_unit=0.05", "Seed": 3, "Person": ["8", "11"] * 2,
            "Proximity": [0.5, np.nan, 1.0, 2.0], "Steps": [10.0, np.nan, 20.0, 40.0],
            **{name: [rate, np.nan, np.nan, np.nan] for name, rate in RATE.items()},
            "Recourse_Time": 1.5, "Training_Time": 7.0, "Alone": False,
        }
    )  # fmt: skip
    pd.testing.assert_frame_equal(results_frame(points, finished), expected, check_like=True, check_dtype=False)
    key = ("german", "PROBE", "action_unit=0.05")
    assert experiment_errors(points, finished) == {key: "E: judged", ("german", "CROCO", key[2]): "E: made"}
    assert results_frame(points[2:], finished).empty
    assert "8,0.5" in to_csv(expected[["Person", "Proximity"]])


def test_column_order_of_results_frame_is_that_of_the_metrics():
    metrics = ("Validity", "Proximity", "Acc_AIR")
    judgement = Judgement(Recourse(Setting("german", "linear"), "GrSp"), metrics)
    about = {"seconds": 1.0, "people": 1, "training_seconds": 0.0, "alone": True, "labels": ["8"]}
    arrays = {name: np.ones(1) for name in (*metrics, "Acc_AIR_Lower", "Acc_AIR_Upper")}
    orders = []
    for stored in (arrays, dict(sorted(arrays.items()))):  # files keep arrays sorted by name
        results = {judgement.recourse: Result({}, about), judgement: Result(stored)}
        orders.append(list(results_frame([Experiment("", (judgement,))], Finished(results, {}, 0, 2))))
    assert orders[0] == orders[1]
    assert orders[0][6:11] == list(arrays)


def test_failed_cells_and_incomparable_times_are_marked():
    frame = random_results(np.random.default_rng(3), methods=("GrSp", "PROBE"), missing=0)
    frame["Alone"] = frame["Method"] != "PROBE"
    frame.loc[frame["Method"] == "PROBE", "Acc_AIR"] = np.nan
    columns = tuple(map(Column, ("Proximity", "Recourse_Time", "Training_Time", "Acc_AIR")))
    layout = Layout("table1", "", columns, tuple((name, "") for name in ("GrSp", "PROBE", "CROCO", "DiCE")))
    table = build_table(layout, frame, ["german"], {("german", "CROCO", ""): "E: made"})
    grsp, probe, croco, dice = (row.values for row in table.rows)
    assert [value.text for value in croco] == ["failed"] * 4
    assert [value.text for value in dice] == ["–"] * 4
    assert probe[3].text == "–"
    for value, metric in zip(probe[1:3], ("Recourse_Time", "Training_Time"), strict=True):
        mean = frame.loc[frame["Method"] == "PROBE", metric].mean()
        assert value.text == f"~{mean:.{TABLE_METRICS[metric].digits}f}"
        assert (value.tag, value.reason, value.best, value.best_robust) == ("", "", False, False)
    assert grsp[1].tag
    assert not grsp[1].text.startswith("~")
    assert [value.best for value in grsp[1:]] == [False, False, True]
    assert not grsp[3].best_robust


def test_mean_over_fewer_seeds_is_annotated():
    frame = random_results(np.random.default_rng(5), methods=("GrSp", "PROBE"), seeds=(0, 1))
    frame = frame[(frame["Method"] == "GrSp") | (frame["Seed"] == 0)]
    table = build_table(
        Layout("table1", "", (Column("Acc_AIR"),), (("GrSp", ""), ("PROBE", ""))), frame, ["german"], {}
    )
    (whole,), (part,) = (row.values for row in table.rows)
    assert "seeds" not in whole.text
    assert part.text.endswith(" (1 of 2 seeds)")


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, 1.37), ({"classifier": "linear"}, 1.14), ({"actionable": True}, None)],
    ids=["as in the paper", "logistic regression", "immutable features kept"],
)
def test_values_are_compared_with_paper_table_of_same_protocol(options, expected):
    plan = layouts.table_1(Scope(("german",), **options), ("CROCO",))
    table = build_table(plan.layout, random_results(np.random.default_rng(6), methods=("CROCO",)), ["german"], {})
    value = dict(zip((column.metric for column in table.columns), table.rows[0].values, strict=True))["Proximity"]
    assert (value.printed and value.printed.mean) == expected
    assert bool(value.tag) == (expected is not None)
    assert ("Immutable features are kept" in table.note) == (expected is None)


@pytest.mark.parametrize("noise_per", ["unit", "action"])
def test_noise_per_reaches_the_cells_and_the_note(noise_per):
    spec = layouts.table_1(Scope(("german",), noise_per=noise_per), ("CROCO",))
    assert {cell.noise.noise_per for each in spec.experiments for cell in each.judgements} == {noise_per}
    assert ("one NoisyStep for each action" in spec.layout.note) == (noise_per == "action")


def test_every_value_of_a_table_matches_a_loop():
    rng = np.random.default_rng(4)
    frame = random_results(rng, ("german", "compas"), conditions=("variance=0.005", "variance=0.01"), missing=0.3)
    frame["Plausible_AIR"] *= 0.5
    columns = tuple(Column("Plausible_AIR", condition) for condition in ("variance=0.005", "variance=0.01"))
    rows = build_table(
        Layout("plausible", "", columns, tuple((name, "") for name in METHODS)), frame, ["german", "compas"], {}
    )
    places = rows.frame()
    assert len(places) == 2 * len(METHODS) * 2
    robust = {"CROCO", "PROBE", "ROSE-one", "ROSE-mul"}
    means = {}
    for key, part in frame.groupby(["Dataset", "Method", "Condition"]):
        means[key] = round(part["Plausible_AIR"].mean(), 2)
    for place in places.to_dict("records"):
        key = place["dataset"], place["method"], place["condition"]
        values = frame[(frame[["Dataset", "Method", "Condition"]] == key).all(axis=1)]["Plausible_AIR"].dropna()
        low, high = stats.t.interval(0.95, len(values) - 1, loc=values.mean(), scale=stats.sem(values))
        printed = paper_value("plausible", place["dataset"], place["method"], "Plausible_AIR", place["condition"])
        assert (place["mean"], place["std"], place["n"]) == pytest.approx((values.mean(), values.std(), len(values)))
        assert (place["lower"], place["upper"]) == pytest.approx((low, high))
        assert place["text"] == f"{values.mean():.2f} ± {values.std():.2f}"
        assert (place["paper_mean"], place["paper_std"]) == printed
        assert place["tag"] == tag(values.mean(), printed, TABLE_METRICS["Plausible_AIR"])
        assert bool(place["reason"]) == (place["tag"] == DIFFERS)
        rivals = {name: means[place["dataset"], name, place["condition"]] for name in METHODS}
        top = min(rivals[name] for name in robust)
        assert place["best"] == (rivals[place["method"]] == min(rivals.values()))
        assert place["best_robust"] == (place["method"] in robust and rivals[place["method"]] == top)
    assert set(places["tag"]) == {WITHIN, BETTER, DIFFERS}


def test_closed_loop_is_in_table_1_and_the_frontier_on_request():
    plain, asked = Scope(("german",)), Scope(("german",), closed_loop=True)
    for make in (layouts.table_1, layouts.frontier):
        before, after = make(plain), make(asked)
        columns = [column.metric for column in after.layout.columns]
        assert columns == [*(column.metric for column in before.layout.columns), *layouts.CLOSED_LOOP]
        for old, new in zip(before.experiments, after.experiments, strict=True):
            (further,) = set(new.judgements) - set(old.judgements)
            assert further.metrics == ("Closed_Loop_AIR",)
            assert set(old.judgements) < set(new.judgements)
    for make in (layouts.linear, layouts.rose_one, layouts.rose_mul, layouts.plausible):
        assert make(plain) == make(asked)
