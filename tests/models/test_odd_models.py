"""Models and rows that nobody planned for: a right result, or a sentence that says what is wrong."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import Benchmark, RoseOne, baselines, checks, datasets, models
from foreign_models import GRADIENT, TINY, Foreign
from rose_carla.errors import DataError, ModelError, RoseCarlaError
from rose_carla.models.contract import Listed
from sklearn.linear_model import LogisticRegression


@pytest.fixture(scope="module")
def people(compas_linear):
    return models.negative_instances(compas_linear).head(4)


# --- what is not a model


@pytest.mark.parametrize("model", [None, "ann", LogisticRegression(), torch.nn.Linear(7, 2)])
def test_everything_that_takes_a_model_asks_for_one(compas, model):
    rows = compas.df_test.head(2)
    for ask in (
        lambda: models.probability(model),
        lambda: models.favourable(model),
        lambda: models.favourable(model, project=True),
        lambda: models.logit(model),
        lambda: models.encoded_rows(model, rows),
        lambda: models.accuracy(model, rows),
        lambda: models.negative_instances(model),
        lambda: models.to_tensorflow(model),
        lambda: baselines.Cogs(model),
    ):
        with pytest.raises(ModelError, match=r"Expected a CARLA model, got .*: make one with models.wrap"):
            ask()


# --- arrays that are used again, or changed


def test_a_model_may_answer_in_the_same_array_every_time(compas_linear):
    buffer = np.empty((40_000, 2))

    class Buffered(Foreign):
        def predict_proba(self, x):
            buffer[: len(x)] = self.inner.predict_proba(x)
            return buffer[: len(x)]

    rows = np.random.default_rng(0).random((70_000, 7))
    expected = models.probability(compas_linear)(rows)
    predict = models.probability(Buffered(compas_linear))
    first = predict(rows[:10])
    np.testing.assert_array_equal(predict(rows), expected)
    np.testing.assert_array_equal(first, expected[:10])


class Greedy(models.EncodedModel):
    """A model of ours that changes its rows."""

    def predict_proba(self, x):
        x = self._ordered(x)
        answer = self.raw_model.predict_proba(x.copy())
        x -= 0.5
        return answer


class GreedyForeign(Foreign):
    """A model of somebody else that changes its rows, array or frame."""

    def predict_proba(self, x):
        answer = self.inner.predict_proba(x)
        values = x if isinstance(x, np.ndarray) else x.values
        if values.flags.writeable:
            values -= 0.5
        x *= 0
        return answer


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_model_may_change_its_rows(compas, compas_linear, people, order):
    greedy = Greedy(compas, compas_linear, compas_linear.feature_input_order)
    for model in (greedy, GreedyForeign(compas_linear)):
        rows = np.array(people[model.feature_input_order].to_numpy(), order=order)
        kept, expected = rows.copy(), models.probability(compas_linear)(rows)
        rows.flags.writeable = False  # as some of the arrays of our methods are
        np.testing.assert_array_equal(models.probability(model)(rows), expected)
        np.testing.assert_array_equal(rows, kept)
        frame = compas.df_test.copy()
        assert models.accuracy(model, frame) == models.accuracy(compas_linear, frame)
        pd.testing.assert_frame_equal(frame, compas.df_test)
        pd.testing.assert_frame_equal(
            models.negative_instances(model), models.negative_instances(compas_linear), check_exact=True
        )
        for method, options in ((baselines.Cogs, {}), (baselines.FastAR, TINY)):
            ends = [method(each, options).get_counterfactuals(people) for each in (model, compas_linear)]
            pd.testing.assert_frame_equal(*ends, check_exact=True)


# --- accuracy


def _target(change):
    return lambda frame: frame.assign(score=change(frame["score"]))


ODD_OUTCOMES = {
    "text": (_target(lambda y: y.astype(str)), "has to hold the outcomes 0 and 1, but is '[01]' in row"),
    "words": (_target(lambda y: "granted"), "but is 'granted' in row"),
    "NaN": (_target(lambda y: np.nan), "but is nan in row"),
    "NA": (_target(lambda y: y.astype("Int64").where(y == 1)), "but is <NA> in row"),
    "two": (_target(lambda y: y + 1), "but is 2 in row"),
    "lists": (_target(lambda y: pd.Series([[1]] * len(y), index=y.index)), r"but is \[1\] in row"),
    "twice": (lambda frame: pd.concat([frame, frame[["score"]]], axis=1), "'score' is there more than once"),
    "no rows": (lambda frame: frame.head(0), "the frame has no rows"),
    "None": (lambda frame: None, "as a DataFrame, got NoneType"),
    "array": (lambda frame: frame.to_numpy(), "as a DataFrame, got ndarray"),
    "series": (lambda frame: frame.iloc[0], "as a DataFrame, got Series"),
}


@pytest.mark.parametrize("kind", ODD_OUTCOMES)
def test_accuracy_of_outcomes_that_cannot_be_compared(compas, compas_linear, kind):
    change, message = ODD_OUTCOMES[kind]
    with pytest.raises(DataError, match=message):
        models.accuracy(compas_linear, change(compas.df_test))


def test_accuracy_takes_outcomes_of_any_number_type(compas, compas_linear):
    expected = models.accuracy(compas_linear, compas.df_test)
    for kind in (bool, float, np.int8, "Int64", "boolean", "Float64", object, "category"):
        assert models.accuracy(compas_linear, compas.df_test.astype({"score": kind})) == expected, kind


# --- rows


def _objects(value):
    """A change of rows to one that holds a value as an object."""

    def change(rows):
        rows = rows.astype(object)
        rows.iloc[-1, 0] = value
        return rows

    return change


NO_NUMBERS = {
    "days": lambda rows: rows.astype("datetime64[ns]"),
    "durations": lambda rows: rows.assign(age=pd.to_timedelta(rows["age"], unit="D")),
    "days of a zone": lambda rows: rows.assign(age=pd.Timestamp("2024-01-01", tz="UTC")),
    "days as categories": lambda rows: rows.assign(age=pd.Categorical(pd.to_datetime(["2024-01-01"] * len(rows)))),
    "complex": lambda rows: rows.astype(complex),
    "a day": _objects(np.datetime64("2024-01-01")),
    "a duration": _objects(np.timedelta64(5, "ns")),
    "a complex number": _objects(np.complex64(1 + 2j)),
    "huge": _objects(10**400),
    "word": _objects("x"),
}


@pytest.mark.parametrize("kind", NO_NUMBERS)
def test_rows_that_are_no_numbers_are_refused(compas_linear, people, kind):
    people = people[compas_linear.feature_input_order]
    odd = NO_NUMBERS[kind](people)
    with pytest.raises(DataError, match="The factuals hold values that are no numbers"):
        baselines.Cogs(compas_linear).get_counterfactuals(odd)
    for rows in (odd, odd.to_numpy(), odd.to_numpy().tolist()):
        if isinstance(rows, list) and kind in ("days", "durations"):
            continue  # numpy writes these as whole numbers
        with pytest.raises(ModelError, match="rows for the classifier hold values that are not numbers"):
            compas_linear.predict_proba(rows)
        with pytest.raises(ModelError, match="no numbers"):
            models.probability(compas_linear)(rows)


def test_objects_that_are_numbers_stay_numbers(compas_linear, people):
    expected = compas_linear.predict_proba(people)
    for rows in (
        people.astype(object),
        people.astype("Float64"),
        people.astype(str),
        people.apply(lambda column: column.map(Fraction)),
    ):
        np.testing.assert_allclose(compas_linear.predict_proba(rows), expected)


@pytest.mark.parametrize("rows", [None, 5, "x", [[0.5] * 7, [1.0]], [["a"] * 7], np.zeros((3, 4)), np.zeros(7)])
def test_rows_that_are_no_table_are_refused(compas_linear, rows):
    for model in (compas_linear, Foreign(compas_linear), Foreign(compas_linear, tuple("abcdefg"))):
        with pytest.raises(RoseCarlaError, match=r"Expected|no numbers"):
            models.probability(model)(rows)
    with pytest.raises(ModelError, match=r"Expected rows of 7|no numbers"):
        compas_linear.predict_proba(rows)


def test_answers_that_are_too_large_are_refused(compas_linear):
    class Huge(Foreign):
        def predict_proba(self, x):
            return [[10**400, 0]] * len(x)

    with pytest.raises(ModelError, match="returned no array of numbers"):
        models.probability(Huge(compas_linear))(np.zeros((2, 7)))


# --- the order of features


@pytest.mark.parametrize("kind", [tuple, pd.Index, np.array])
def test_features_in_a_tuple_are_those_in_a_list(compas_linear, people, tmp_path, kind):
    module = compas_linear.raw_model
    same = Foreign(compas_linear, module=module)
    other = Foreign(compas_linear, kind(compas_linear.feature_input_order), module=module)
    rose = {**TINY, "n_samples": 8, "n_check": 40, "tau": 0.6}
    quick = {"n_steps": 20}
    for method, options in (
        *((RoseOne, rose), (baselines.FastAR, TINY), (baselines.Cogs, {"n_generations": 3})),
        *((method, quick) for method in GRADIENT),
    ):
        made = [method(model, options) for model in (same, other)]
        ends = [each.get_counterfactuals(people) for each in made]
        pd.testing.assert_frame_equal(*ends, check_exact=True)
        assert list(ends[1].columns) == compas_linear.feature_input_order
        assert isinstance(made[1]._mlmodel, Listed)
        assert made[0]._mlmodel is same
        assert not checks.contract_failures(made[1], people).keys() - {"finds recourse", "claimed robustness"}
        if hasattr(made[1], "save"):
            made[1].save(tmp_path / "policy.safetensors")
            again = method.load(tmp_path / "policy.safetensors", other)
            pd.testing.assert_frame_equal(again.get_counterfactuals(people), ends[1], check_exact=True)
    pd.testing.assert_frame_equal(models.negative_instances(other), models.negative_instances(same))
    judged = [Benchmark(model, made[0], people, {"n_samples": 20}).run_benchmark() for model in (same, other)]
    timed = ["Average_Time", "Recourse_Time"]
    pd.testing.assert_frame_equal(*(each.drop(columns=timed) for each in judged))


ODD_ORDERS = {
    "empty": ([], "feature_input_order of Foreign names no columns"),
    "twice": (["age", "age"], "feature_input_order of Foreign names 'age' more than once"),
    "unhashable": ([["age"]], "has to be a list of column names"),
    "a word": ("age", "has to be a list of column names, got 'age'"),
    "a number": (5, "has to be a list of column names, got 5"),
}


@pytest.mark.parametrize("kind", ODD_ORDERS)
def test_odd_orders_of_features_are_refused(compas, compas_linear, people, kind):
    order, message = ODD_ORDERS[kind]
    model = Foreign(compas_linear, order, compas_linear.raw_model)
    for ask in (
        lambda: baselines.Cogs(model),
        lambda: RoseOne(model, TINY),
        lambda: baselines.Arar(model),
        lambda: models.probability(model),
        lambda: models.encoded_rows(model, people),
        lambda: models.logit(model),
        lambda: models.negative_instances(model),
    ):
        with pytest.raises(ModelError, match=message):
            ask()
    with pytest.raises(ModelError, match=message.replace(" of Foreign", "")):
        models.TorchModel(compas, compas_linear.raw_model, order)


# --- the people who are turned down


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"seed": -1}, DataError, "seed must be an integer from 0 to .*, got -1"),
        ({"seed": "x"}, DataError, "seed must be an integer from 0 to .*, got 'x'"),
        ({"seed": 1.5}, DataError, "seed must be an integer from 0 to .*, got 1.5"),
        ({"limit": True}, DataError, "limit has to be a whole number of at least 1, got True"),
        ({"limit": "x"}, DataError, "limit has to be a whole number of at least 1, got 'x'"),
        ({"split": ["all"]}, DataError, r"Unknown split \['all'\]"),
        ({"data": "compas"}, ModelError, "Expected a CARLA data set, got str"),
        ({"data": pd.DataFrame()}, ModelError, "Expected a CARLA data set, got DataFrame"),
    ],
)
def test_odd_selections_are_explained(compas_linear, options, error, message):
    with pytest.raises(error, match=message):
        models.negative_instances(compas_linear, **{"split": "all", "limit": 2, **options})


def test_one_feature_is_enough(compas):
    frame = pd.DataFrame({"a": np.linspace(0, 1, 40), "good": np.arange(40) % 2})
    data = datasets.from_frame(frame, "good", name="one")
    model = Foreign(models.train(data, "linear", use_cache=False), ("a",))
    assert models.probability(model)(np.zeros((3, 1))).shape == (3,)
