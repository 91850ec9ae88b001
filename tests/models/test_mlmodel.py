"""Predictions of CARLA models: checks of models, rows and predicted values, accuracy, and rejected people."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import Benchmark, RoseOne, baselines, checks, datasets, models
from foreign_models import GRADIENT, TINY, Foreign
from rose_carla.errors import DataError, ModelError, RoseCarlaError
from rose_carla.models.mlmodel import ListOrderModel
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression


@pytest.fixture(scope="module")
def people(compas_linear):
    return models.negative_instances(compas_linear).head(4)


# --- models


@pytest.mark.parametrize("model", [None, "ann", LogisticRegression(), torch.nn.Linear(7, 2)])
def test_anything_but_a_carla_model_is_rejected(compas, model):
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


# --- arrays that models reuse or change


def test_model_may_return_the_same_array_every_time(compas_linear):
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
    """Subclass of EncodedModel that changes its rows."""

    def predict_proba(self, x):
        x = self._ordered(x)
        answer = self.raw_model.predict_proba(x.copy())
        x -= 0.5
        return answer


class GreedyForeign(Foreign):
    """Other CARLA model that changes its rows, array or frame."""

    def predict_proba(self, x):
        answer = self.inner.predict_proba(x)
        values = x if isinstance(x, np.ndarray) else x.values
        if values.flags.writeable:
            values -= 0.5
        x *= 0
        return answer


@pytest.mark.parametrize("order", ["C", "F"])
def test_model_may_change_its_rows(compas, compas_linear, people, order):
    greedy = Greedy(compas, compas_linear, compas_linear.feature_input_order)
    for model in (greedy, GreedyForeign(compas_linear)):
        rows = np.array(people[model.feature_input_order].to_numpy(), order=order)
        kept, expected = rows.copy(), models.probability(compas_linear)(rows)
        rows.flags.writeable = False  # as some arrays of our methods are
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
    "text": (_target(lambda y: y.astype(str)), "must be 0 or 1, but is '[01]' in row"),
    "words": (_target(lambda y: "granted"), "but is 'granted' in row"),
    "NaN": (_target(lambda y: np.nan), "but is nan in row"),
    "NA": (_target(lambda y: y.astype("Int64").where(y == 1)), "but is <NA> in row"),
    "two": (_target(lambda y: y + 1), "but is 2 in row"),
    "lists": (_target(lambda y: pd.Series([[1]] * len(y), index=y.index)), r"but is \[1\] in row"),
    "twice": (lambda frame: pd.concat([frame, frame[["score"]]], axis=1), "have the column 'score' twice"),
    "no rows": (lambda frame: frame.head(0), "The frame has no rows"),
    "None": (lambda frame: None, "must be a pandas DataFrame, got NoneType"),
    "array": (lambda frame: frame.to_numpy(), "must be a pandas DataFrame, got ndarray"),
    "series": (lambda frame: frame.iloc[0], "must be a pandas DataFrame, got Series"),
}


@pytest.mark.parametrize("kind", ODD_OUTCOMES)
def test_accuracy_rejects_outcomes_other_than_0_and_1(compas, compas_linear, kind):
    change, message = ODD_OUTCOMES[kind]
    with pytest.raises(DataError, match=message):
        models.accuracy(compas_linear, change(compas.df_test))


def test_accuracy_accepts_any_numeric_dtype(compas, compas_linear):
    expected = models.accuracy(compas_linear, compas.df_test)
    for kind in (bool, float, np.int8, "Int64", "boolean", "Float64", object, "category"):
        assert models.accuracy(compas_linear, compas.df_test.astype({"score": kind})) == expected, kind


# --- rows


def _objects(value):
    """Return a function that puts a value into rows of dtype object."""

    def change(rows):
        rows = rows.astype(object)
        rows.iloc[-1, 0] = value
        return rows

    return change


NOT_NUMBERS = {
    "days": lambda rows: rows.astype("datetime64[ns]"),
    "durations": lambda rows: rows.assign(age=pd.to_timedelta(rows["age"], unit="D")),
    "days of a zone": lambda rows: rows.assign(age=pd.Timestamp("2024-01-01", tz="UTC")),
    "complex": lambda rows: rows.astype(complex),
    "huge": _objects(10**400),
    "word": _objects("x"),
}


@pytest.mark.parametrize("kind", NOT_NUMBERS)
def test_rows_that_are_not_numbers_are_rejected(compas_linear, people, kind):
    people = people[compas_linear.feature_input_order]
    odd = NOT_NUMBERS[kind](people)
    with pytest.raises(DataError, match="The factuals contain values that are not numbers"):
        baselines.Cogs(compas_linear).get_counterfactuals(odd)
    for rows in (odd, odd.to_numpy(), odd.to_numpy().tolist()):
        if isinstance(rows, list) and kind in ("days", "durations"):
            continue  # integers in numpy's lists
        with pytest.raises(ModelError, match="rows for the classifier contain values that are not numbers"):
            compas_linear.predict_proba(rows)
        with pytest.raises(ModelError, match="not numbers"):
            models.probability(compas_linear)(rows)


def test_numeric_objects_are_converted(compas_linear, people):
    expected = compas_linear.predict_proba(people)
    for rows in (
        people.astype(object),
        people.astype("Float64"),
        people.astype(str),
        people.apply(lambda column: column.map(Fraction)),
    ):
        np.testing.assert_allclose(compas_linear.predict_proba(rows), expected)


@pytest.mark.parametrize("rows", [None, 5, "x", [[0.5] * 7, [1.0]], [["a"] * 7], np.zeros((3, 4)), np.zeros(7)])
def test_rows_of_wrong_shape_are_rejected(compas_linear, rows):
    for model in (compas_linear, Foreign(compas_linear), Foreign(compas_linear, tuple("abcdefg"))):
        with pytest.raises(RoseCarlaError, match=r"Expected|not numbers"):
            models.probability(model)(rows)
    with pytest.raises(ModelError, match=r"Expected rows of 7|not numbers"):
        compas_linear.predict_proba(rows)


def test_too_large_predictions_are_rejected(compas_linear):
    class Huge(Foreign):
        def predict_proba(self, x):
            return [[10**400, 0]] * len(x)

    with pytest.raises(ModelError, match="did not return real numbers"):
        models.probability(Huge(compas_linear))(np.zeros((2, 7)))


# --- the order of features


@pytest.mark.slow
@pytest.mark.parametrize("kind", [tuple, pd.Index, np.array])
def test_feature_order_may_be_any_sequence(compas_linear, people, tmp_path, kind):
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
        assert isinstance(made[1]._mlmodel, ListOrderModel)
        assert made[0]._mlmodel is same
        assert not checks.contract_failures(made[1], people).keys() - {"finds recourse", "claimed robustness"}
        if hasattr(made[1], "save"):
            made[1].save(tmp_path / "policy.safetensors")
            again = method.load(tmp_path / "policy.safetensors", other)
            pd.testing.assert_frame_equal(again.get_counterfactuals(people), ends[1], check_exact=True)
    pd.testing.assert_frame_equal(models.negative_instances(other), models.negative_instances(same))
    results = [Benchmark(model, made[0], people, {"n_samples": 20}).run_benchmark() for model in (same, other)]
    timed = ["Average_Time", "Recourse_Time"]
    pd.testing.assert_frame_equal(*(each.drop(columns=timed) for each in results))


ODD_ORDERS = {
    "empty": ([], "feature_input_order of Foreign is empty"),
    "twice": (["age", "age"], "feature_input_order of Foreign contains 'age' more than once"),
    "unhashable": ([["age"]], "must be a list of column names"),
    "a word": ("age", "must be a list of column names, got 'age'"),
    "a number": (5, "must be a list of column names, got 5"),
}


@pytest.mark.parametrize("kind", ODD_ORDERS)
def test_invalid_feature_order_is_rejected(compas, compas_linear, people, kind):
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


# --- rejected people


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"seed": -1}, DataError, "seed must be an integer from 0 to .*, got -1"),
        ({"seed": "x"}, DataError, "seed must be an integer from 0 to .*, got 'x'"),
        ({"seed": 1.5}, DataError, "seed must be an integer from 0 to .*, got 1.5"),
        ({"limit": True}, DataError, "limit must be an integer of at least 1, got True"),
        ({"limit": "x"}, DataError, "limit must be an integer of at least 1, got 'x'"),
        ({"split": ["all"]}, DataError, r"Unknown split \['all'\]"),
    ],
)
def test_invalid_selection_of_negative_instances_is_rejected(compas_linear, options, error, message):
    with pytest.raises(error, match=message):
        models.negative_instances(compas_linear, **{"split": "all", "limit": 2, **options})


def test_one_feature_is_enough(compas):
    frame = pd.DataFrame({"a": np.linspace(0, 1, 40), "good": np.arange(40) % 2})
    data = datasets.from_frame(frame, "good", name="one")
    settings = models.paper_settings("linear", "adult")  # few steps
    model = Foreign(models.train(data, "linear", settings=settings, use_cache=False), ("a",))
    assert models.probability(model)(np.zeros((3, 1))).shape == (3,)


def test_negative_instances_are_the_rejected_rows(compas, compas_ann):
    chosen = models.negative_instances(compas_ann)
    rejected = [
        label
        for label, row in compas.df_test.iterrows()
        if compas_ann.predict_proba(row[compas_ann.feature_input_order].to_numpy(dtype=float)[None])[0, 1] < 0.5
    ]
    assert chosen.index.tolist() == rejected
    assert chosen.columns.tolist() == [*compas_ann.feature_input_order, "score"]


def test_paper_selection_per_data_set(german, adult):
    on_german = models.train(german)
    everyone = models.negative_instances(on_german)
    assert set(everyone.index) & set(german.df_train.index)
    on_adult = models.train(adult, "linear", settings=models.TrainingSettings((), 0.01, 4096, epochs=2))
    drawn = models.negative_instances(on_adult)
    assert len(drawn) == 200
    assert set(drawn.index) <= set(adult.df_test.index)
    pd.testing.assert_frame_equal(drawn, models.negative_instances(on_adult))
    assert set(models.negative_instances(on_adult, seed=1).index) != set(drawn.index)


def test_impossible_selection_is_rejected(compas, compas_ann, encoded):
    with pytest.raises(DataError, match="Unknown split 'tset': did you mean 'test'"):
        models.negative_instances(compas_ann, split="tset")
    with pytest.raises(DataError, match="at least 1"):
        models.negative_instances(compas_ann, limit=0)
    with pytest.raises(DataError, match="lacks columns"):
        models.negative_instances(Foreign(compas_ann, ("age", "shoes")))
    with pytest.raises(ModelError, match="Expected a CARLA model"):
        models.negative_instances(LogisticRegression())
    forest = RandomForestClassifier(n_estimators=1, max_depth=1).fit(encoded[0].iloc[:50], [1] * 49 + [0])
    with pytest.raises(DataError, match="accepts all"):
        models.negative_instances(models.wrap(forest, compas))
