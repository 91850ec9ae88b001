"""Any input ends in a result that keeps its contract, or in an error of this package with a helpful message.

``make test`` runs 200 fixed examples; ``make fuzz`` runs 2,000 new ones and prints the seed. Each test requires a share
of results: it would be easy to reject everything.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import fuzz_inputs as fuzz
import numpy as np
import pandas as pd
import pytest
from rose_carla import Benchmark, checks, datasets, metrics, models, noise
from carla.recourse_methods.api import RecourseMethod
from fuzz_inputs import Tally, examples
from fuzz_models import CHANGING, INVALID_ANSWERS, VALID_ANSWERS, build_model, model_kinds
from hostile_files import flip
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(scope="module", autouse=True)
def _warm_up():
    fuzz.warm_up()


# --- data sets


def test_tables():
    tally = Tally("tables")

    @examples(0.19)
    @given(st.sampled_from([False, False, True]).flatmap(fuzz.tables))
    def run(table):
        with tally.example():
            check_data(table)

    run()
    tally.close()


def check_data(table):
    """Check that encoded values are in [0, 1] and decode to the values of the table."""
    frame = table.frame()
    kept = frame.copy()
    data = datasets.from_frame(frame, **table.arguments)
    pd.testing.assert_frame_equal(frame, kept)
    favourable = table.arguments["favourable"]
    assert data.df[data.target].tolist() == [int(value == favourable) for value in frame["outcome"].tolist()]
    features = data.df.drop(columns=data.target)
    assert data.df.columns.is_unique
    assert data.df.index.equals(frame.index)
    assert np.isfinite(features.to_numpy(dtype=float)).all()
    assert features.to_numpy().min() >= -1e-6
    assert features.to_numpy().max() <= 1 + 1e-6
    pd.testing.assert_frame_equal(datasets.nearest_valid(data, data.df), data.df, check_dtype=False)
    decoded = data.inverse_transform(data.df)
    for feature in data.categorical:
        assert decoded[feature].tolist() == frame[feature].tolist()
    missing, some = np.arange(len(features)) % 3 == 0, features.astype(float)
    some.iloc[missing] = np.nan
    assert data.inverse_transform(some).isna().all(axis=1).tolist() == missing.tolist()
    check_numbers(data, decoded, frame)
    for feature in data.continuous:
        assert np.ptp(frame[feature].to_numpy(dtype=float)) == 0 or abs(np.ptp(features[feature]) - 1) < 1e-6
    again = data.transform(frame.drop(columns="outcome"))
    pd.testing.assert_frame_equal(again[features.columns], features, check_dtype=False)
    assert len(data.df_train) + len(data.df_test) == len(frame)
    assert 0 <= models.accuracy(build_model("linear", data), data.df) <= 1


def check_numbers(data, decoded, frame):
    for feature in data.continuous:
        numbers = frame[feature].to_numpy(dtype=float)
        np.testing.assert_allclose(decoded[feature], numbers, rtol=1e-5, atol=1e-6 * np.ptp(numbers))


@st.composite
def csv_files(draw):
    """Draw the bytes of a file, its table if the file is valid, and the favourable outcome."""
    wrong = draw(st.sampled_from([*[None] * 6, "bytes", "target", "dialect", "damage"]))
    table = draw(fuzz.tables(most=4))
    frame, favourable = table.frame(), table.arguments["favourable"]
    if wrong == "bytes":
        return draw(st.one_of(st.binary(max_size=200), st.text(max_size=100).map(str.encode))), None, favourable
    if wrong == "target":
        frame = frame.drop(columns="outcome")
    separators, encodings = [","], ["utf-8", "utf-8-sig"]
    if wrong == "dialect":
        separators, encodings = [",", ";", "\t", "|"], ["utf-16", "latin-1", "utf-8"]
    with_labels = draw(st.sampled_from([*[False] * 5, True]))
    text = frame.to_csv(index=with_labels, sep=draw(st.sampled_from(separators)))
    content = text.encode(draw(st.sampled_from(encodings)), errors="replace")
    if wrong == "damage":
        content = content[: draw(st.sampled_from([len(content), len(content) // 2, 10]))]
        content += draw(st.sampled_from([b"", b"\0", b'"', b"\xff\xfe", b"1,2,3,4,5,6,7,8,9\n"]))
    return content, None if wrong or with_labels else frame, favourable


def test_csv_files():
    tally = Tally("CSV files")

    @examples(0.1)
    @given(csv_files())
    def run(case):
        content, frame, favourable = case
        with tempfile.TemporaryDirectory() as folder, tally.example():
            path = Path(folder, "table.csv")
            path.write_bytes(content)
            data = datasets.from_csv(path, "outcome", favourable=favourable)
            assert data.df.columns.is_unique
            assert set(data.df["outcome"]) == {0, 1}
            if frame is not None:
                assert {*data.raw_features, "outcome"} == {*frame.columns}
                check_numbers(data, data.inverse_transform(data.df), frame)

    run()
    tally.close(least=0.3)


# --- recourse


@st.composite
def cases(draw):
    """Draw a table, a model, a method, options and people; at most one of them is invalid."""
    wrong = draw(st.sampled_from([*[None] * 6, "table", "model", "options", "people"]))
    table = draw(fuzz.tables(wrong == "table", most=fuzz.MAX_FEATURES))
    kind = draw(model_kinds(wrong == "model"))
    any_method = kind not in {*VALID_ANSWERS, *INVALID_ANSWERS, "logistic", "tree"} or wrong == "options"
    method = draw(st.sampled_from([*fuzz.METHODS] if any_method else fuzz.WITHOUT_GRADIENTS))
    options = draw(fuzz.options(method, wrong == "options"))
    people = draw(st.sampled_from([*(fuzz.INVALID_PEOPLE if wrong == "people" else fuzz.VALID_PEOPLE)]))
    return table, kind, method, options, people


def test_recourse():
    tally = Tally("recourse")

    @examples(0.25)
    @given(cases())
    def run(case):
        with tally.example():
            check_recourse(*case)

    run()
    tally.close()


def check_recourse(table, kind, name, options, people):
    """Check the contract of a method, and that its plans lead to its counterfactuals."""
    data = table.load()
    model = build_model(kind, data)
    method = fuzz.METHODS[name][0](model, options)
    factuals = fuzz.select_people(data, model.feature_input_order, people)
    kept = factuals.copy() if isinstance(factuals, pd.DataFrame) else factuals
    ends = method.get_counterfactuals(factuals)
    pd.testing.assert_frame_equal(factuals, kept)
    assert ends.index.equals(factuals.index)
    assert list(ends.columns) == model.feature_input_order
    ignored = {"finds recourse", "claimed robustness"}  # depend on chance here; tested elsewhere
    if kind in CHANGING:
        ignored |= {"shape", "NaN only on failure", "same seed, same result", "order of columns", "index"}
    elif getattr(method.settings, "reference_quirks", False):
        ignored |= {"bounds", "valid encodings"}
    failures = checks.contract_failures(method, factuals)
    assert not {check: text for check, text in failures.items() if check not in ignored}
    if hasattr(method, "plan") and kind not in CHANGING:
        check_plans(method, factuals, ends)


def check_plans(method, factuals, ends):
    """Check that plans and counterfactuals agree, and that probabilities are in their intervals."""
    rows = models.encoded_rows(method._mlmodel, factuals)
    pd.testing.assert_frame_equal(method.get_counterfactuals(factuals), ends, check_exact=True)
    for row, label, end, plan in zip(rows, factuals.index, ends.to_numpy(), method.plan(factuals), strict=True):
        assert plan.label == label
        assert plan.found == (label in method.plans) == np.isfinite(end).all()
        assert str(plan)
        assert len(plan.to_frame()) == max(len(plan.steps), 1)
        assert plan.found or plan.reason
        if plan.found:
            np.testing.assert_allclose(row + method.plans[label].sum(axis=0), end, rtol=1e-9, atol=1e-9)
            np.testing.assert_array_equal(plan.actions, method.plans[label])
        for success in [plan.success, *(step.success for step in plan.steps)]:
            assert 0 <= success.lower <= success.probability <= success.upper <= 1


def test_saved_policies():
    tally = Tally("saved policies")
    damages = st.sampled_from([None, None, None, None, "cut", "byte", "empty", "text", "other model"])

    @examples(0.04)
    @given(fuzz.tables(most=4), st.data(), damages, st.floats(0, 1, exclude_max=True))
    def run(table, data, damage, place):
        name = data.draw(st.sampled_from(["RoseOne", "RoseMul", "FastAR"]))
        options = data.draw(fuzz.options(name))
        with tempfile.TemporaryDirectory() as folder, tally.example():
            model = build_model("linear", table.load())
            method = fuzz.METHODS[name][0](model, options)
            path = Path(folder, "policy.safetensors")
            method.save(path)
            content = path.read_bytes()
            at = int(place * len(content))
            damaged = {"cut": content[:at], "byte": flip(content, at), "empty": b"", "text": b"a policy"}
            path.write_bytes(damaged.get(damage, content))
            if damage == "other model":
                model = build_model("tree", table.load())
            loaded = type(method).load(path, model)
            people = model.data.df.head(3)
            pd.testing.assert_frame_equal(
                loaded.get_counterfactuals(people), method.get_counterfactuals(people), check_exact=True
            )

    run()
    tally.close(0.25)  # training must succeed first


# --- noise and metrics

_NUMBERS = st.sampled_from([0.0, 0.3, 1.0, -0.5, 1e-300, 1e6, 1e150, 5e-324])


@st.composite
def noises(draw):
    """Draw rows and a bandwidth of a density, now and then invalid, and valid states, actions, variances and sizes."""
    width = draw(st.integers(1, 4))
    rows = np.random.default_rng(draw(st.integers(0, 9))).random((draw(st.sampled_from([2, 3, 20])), width))
    if draw(st.booleans()):
        rows[:, 0] = draw(_NUMBERS)
    wrong = draw(st.sampled_from([*[None] * 6, "value", "rows", "bandwidth"]))
    if wrong == "value":
        rows[0, 0] = draw(st.sampled_from([np.nan, np.inf, -np.inf, 1e308]))
    elif wrong == "rows":
        rows = rows[: draw(st.sampled_from([0, 1]))]
    bandwidths = ["scot", -1.0, None] if wrong == "bandwidth" else ["scott", "silverman", 0.1]
    states = np.array(draw(st.lists(st.lists(_NUMBERS, min_size=width, max_size=width), min_size=1, max_size=3)))
    return {
        "rows": rows,
        "bandwidth": draw(st.sampled_from(bandwidths)),
        "states": states,
        "actions": draw(st.sampled_from([0.0, 0.3, -0.025, 1e-9])) * np.ones_like(states),
        "variance": draw(st.sampled_from([0, 0.01, 1e-300, 1e-12, 1.0, 1e6, 1e300])),
        "unit": draw(st.sampled_from([0.025, 0.5, 1.0])),
        "n": draw(st.sampled_from([1, 7])),
        "confidence": draw(st.sampled_from([0.95, 0.5])),
    }


def test_noise():
    tally = Tally("noise")

    @examples(0.14)
    @given(noises(), st.sampled_from(["gaussian", "plausible"]))
    def run(case, kind):
        with tally.example():
            check_noise(kind, **case)

    run()
    tally.close()


def check_noise(kind, rows, bandwidth, states, actions, variance, unit, n, confidence):
    """Check that noisy states are finite, and rates in their intervals."""
    density = noise.Density(bandwidth).fit(rows)
    chosen = noise.PlausibleNoise(density) if kind == "plausible" else noise.GaussianNoise()
    rng = np.random.default_rng(0)
    assert not np.isnan(density.log_density(states)).any()
    moved = noise.noisy_step(states, actions, chosen, variance, unit, rng)
    assert moved.shape == states.shape
    assert np.isfinite(moved).all()
    assert chosen.sample(states, variance, n, rng).shape == (len(states), n, states.shape[1])
    ends = noise.execute(states, [action[None] for action in actions], chosen, variance, unit, n, rng)
    assert np.isfinite(ends).all()
    rate = noise.invalidation_rate(lambda x: x[:, 0] > 0.5, states, chosen, variance, n, rng, confidence)
    assert ((rate.lower >= 0) & (rate.lower <= rate.rate) & (rate.rate <= rate.upper) & (rate.upper <= 1)).all()


VALID_RETURNS = {
    "plain": lambda ends: ends,
    "renumbered": lambda ends: ends.reset_index(drop=True),
    "other order": lambda ends: ends.iloc[::-1],
    "some missing": lambda ends: ends.iloc[1:],
    "some NaN": lambda ends: ends * np.where(np.arange(len(ends)) == 1, np.nan, 1.0)[:, None],
    "one value NaN": lambda ends: fuzz.with_value(ends, list(ends.columns), np.nan),
    "infinite": lambda ends: fuzz.with_value(ends, list(ends.columns), -np.inf),
    "huge": lambda ends: ends * 1e200,
    "further columns": lambda ends: ends.assign(note="x"),
    "objects": lambda ends: ends.astype(object),
    "all NaN": lambda ends: ends * np.nan,
    "none": lambda ends: ends.head(0),
}
INVALID_RETURNS = {
    "fewer and renumbered": lambda ends: ends.iloc[1:].reset_index(drop=True),
    "other labels": lambda ends: ends.set_axis([f"z{i}" for i in range(len(ends))], axis=0),
    "missing column": lambda ends: ends.iloc[:, 1:],
    "duplicate columns": lambda ends: pd.concat([ends, ends], axis=1),
    "text": lambda ends: ends.astype(str) + "x",
    "array": lambda ends: ends.to_numpy(),
    "None": lambda ends: None,
}
VALID_NOISE = [{}, {"variance": 0}, {"action_unit": 1.0}, {"project_categories": True}, {"bandwidth": 0.5}]
INVALID_NOISE = [{"variance": "x"}, {"plans": {}}, {"n_samples": 0}, {"action_unit": 1e-12}, {"ridge": 0}, 5]
INVALID_PLANS = [{0: [[1.0]]}, {0: "x"}, "plans", {0: None}, {0: np.zeros((0, 3))}]


class Returns(RecourseMethod):
    """A method that moves people half way to another row, and then changes what it returns."""

    def __init__(self, mlmodel, people, change, plans=None):
        super().__init__(mlmodel)
        order = mlmodel.feature_input_order
        ends = (people[order].astype(float) + mlmodel.data.df_train[order].iloc[-1]) / 2
        self.ends = {**VALID_RETURNS, **INVALID_RETURNS}[change](ends)
        if plans is not None:
            self.plans = plans

    def get_counterfactuals(self, factuals):
        return self.ends


@st.composite
def evaluations(draw):
    """Draw a table, a model, what a method returns, people, plans and options of noise; at most one is invalid."""
    wrong = draw(st.sampled_from([*[None] * 6, "returned", "people", "plans", "options"]))
    return (
        draw(fuzz.tables(most=5)),
        draw(model_kinds()),
        draw(st.sampled_from([*(INVALID_RETURNS if wrong == "returned" else VALID_RETURNS)])),
        draw(st.sampled_from([*(fuzz.INVALID_PEOPLE if wrong == "people" else fuzz.VALID_PEOPLE)])),
        draw(st.sampled_from(INVALID_PLANS if wrong == "plans" else [None, {}])),
        draw(st.sampled_from(INVALID_NOISE if wrong == "options" else VALID_NOISE)),
    )


def test_metrics():
    tally = Tally("metrics")

    @examples(0.08)
    @given(evaluations())
    def run(case):
        with tally.example():
            check_metrics(*case)

    run()
    tally.close()


def check_metrics(table, kind, returned, people, plans, options):
    """Check that rates are in [0, 1] and rows have the labels of the factuals, whatever a method returns."""
    data = table.load()
    model = build_model(kind, data)
    factuals = fuzz.select_people(data, model.feature_input_order, people)
    valid = people if people in fuzz.VALID_PEOPLE else "plain"
    method = Returns(model, fuzz.select_people(data, model.feature_input_order, valid), returned, plans)
    if isinstance(options, dict):
        options = {"n_samples": 10, "unit_variance": 0.01, "action_unit": 0.2, **options}
    for column, metric in metrics.METRICS.items():
        if column != "Recourse_Time":
            given = options if "noise" in metric.needs else {}
            if "method" in metric.needs and isinstance(given, dict):
                given = {**given, "method": method, "n_tries": 2, "max_decisions": 2}
            evaluation = metric.evaluation(model, given)
            check_values(evaluation.get_evaluation(factuals, method.ends), factuals)
    check_values(Benchmark(model, method, factuals, options).run_benchmark(), factuals)


def check_values(values, factuals):
    assert values.index.equals(factuals.index)
    rates = values[[column for column in values.columns if "AIR" in column or column == "Validity"]].to_numpy()
    assert (np.isnan(rates) | ((rates >= 0) & (rates <= 1))).all()
