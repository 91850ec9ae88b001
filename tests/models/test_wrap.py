"""Fitted classifiers as CARLA models."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import datasets, models
from rose_carla.carla_compat import import_optional
from rose_carla.errors import DataError, ModelError
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler


def test_wrap_an_estimator_on_encoded_rows(compas, encoded):
    fitted = LogisticRegression().fit(*encoded)
    model = models.wrap(fitted, compas)
    rows = compas.df_test.head(7)
    expected = fitted.predict_proba(rows[encoded[0].columns])
    np.testing.assert_allclose(model.predict_proba(rows), expected)
    np.testing.assert_array_equal(model.predict(rows), fitted.predict(rows[encoded[0].columns]))
    assert model.feature_input_order == list(encoded[0].columns)
    assert model.backend == "sklearn"
    tensor = torch.tensor(rows[encoded[0].columns].to_numpy())
    np.testing.assert_allclose(model.predict_proba(tensor).numpy(), expected)


class Duck:
    """Classifier with the interface of scikit-learn that does not derive from it."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        share = np.asarray(X, dtype=float).mean(axis=1)
        return np.stack([1 - share, share], axis=1)


def test_wrap_duck_typed_estimator(compas, encoded):
    model = models.wrap(Duck().fit(*encoded), compas, feature_order=list(encoded[0].columns))
    rows = compas.df_test.head(7)
    np.testing.assert_allclose(model.predict_proba(rows)[:, 1], rows[encoded[0].columns].mean(axis=1))
    with pytest.raises(ModelError, match="Duck is not fitted: call its fit"):
        models.wrap(Duck(), compas)
    with pytest.raises(ModelError, match="Speechless is not a classifier"):
        models.wrap(type("Speechless", (), {"fit": None})(), compas)


def test_wrap_an_estimator_fitted_on_arrays(compas, encoded):
    fitted = LogisticRegression().fit(encoded[0].to_numpy(), encoded[1])
    model = models.wrap(fitted, compas)
    expected = fitted.predict_proba(compas.df_test[encoded[0].columns].to_numpy())
    np.testing.assert_allclose(model.predict_proba(compas.df_test), expected)
    order = sorted(encoded[0].columns)
    fitted = LogisticRegression().fit(encoded[0][order].to_numpy(), encoded[1])
    ordered = models.wrap(fitted, compas, feature_order=order)
    np.testing.assert_allclose(
        ordered.predict_proba(compas.df_test), fitted.predict_proba(compas.df_test[order].to_numpy())
    )
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(encoded[0].to_numpy(), encoded[1])
    with pytest.raises(ModelError, match="pass space='encoded'"):
        models.wrap(pipeline, compas)


def test_wrap_a_pipeline_on_raw_rows_with_text_outcomes(compas):
    raw = compas.inverse_transform(compas.df_train)
    words = raw[compas.target].map({0: "refuse", 1: "grant"})
    pipeline = make_pipeline(
        make_column_transformer((OneHotEncoder(), compas.categorical), (StandardScaler(), compas.continuous)),
        LogisticRegression(),
    ).fit(raw[[*compas.categorical, *compas.continuous]], words)
    model = models.wrap(pipeline, compas, favourable="grant")
    rows = compas.df_test.head(9)
    raw_rows = compas.inverse_transform(rows)[[*compas.categorical, *compas.continuous]]
    np.testing.assert_allclose(model.predict_proba(rows)[:, 1], pipeline.predict_proba(raw_rows)[:, 0])
    assert (model.predict_proba(rows).argmax(axis=1) == (pipeline.predict(raw_rows) == "grant")).all()


def test_wrap_xgboost(compas, encoded):
    fitted = import_optional("xgboost").XGBClassifier(n_estimators=5).fit(*encoded)
    model = models.wrap(fitted, compas)
    assert model.backend == "xgboost"
    expected = fitted.predict_proba(compas.df_test[encoded[0].columns])
    np.testing.assert_allclose(model.predict_proba(compas.df_test), expected, rtol=1e-6)
    assert len(model.tree_iterator) == 5


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("kind", ["logit", "probability"])
def test_wrap_a_torch_module(compas, outputs, kind):
    layers = [torch.nn.Linear(7, 4), torch.nn.ReLU(), torch.nn.Linear(4, outputs)]
    layers[-1].bias.data -= 3.0  # so that logits cannot be taken for probabilities
    logits = torch.nn.Sequential(*layers)
    last = torch.nn.Softmax(dim=-1) if outputs == 2 else torch.nn.Sigmoid()
    module = logits if kind == "logit" else torch.nn.Sequential(logits, last)
    model = models.wrap(module, compas)
    rows = torch.tensor(compas.df_test[model.feature_input_order].to_numpy()[:6], dtype=torch.float32)
    expected = last(logits(rows)).detach()[:, -1]
    assert model.raw_model.output == kind
    torch.testing.assert_close(model.predict_proba(rows)[:, 1], expected)
    torch.testing.assert_close(model.predict_proba(rows).sum(dim=1), torch.ones(6))


def test_wrapped_torch_module_takes_another_order(compas, compas_ann):
    order = compas_ann.feature_input_order[::-1]

    class Backwards(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = compas_ann.raw_model

        def forward(self, x):
            return self.inner(x.flip(1))

    model = models.wrap(Backwards(), compas, feature_order=order)
    np.testing.assert_allclose(model.predict_proba(compas.df_test), compas_ann.predict_proba(compas.df_test))


@pytest.mark.slow
def test_the_same_network_in_tensorflow(compas, compas_ann):
    pytest.importorskip("tf_keras")
    rows = compas.df_test.head(50)
    keras = models.to_tensorflow(compas_ann)
    np.testing.assert_allclose(keras.predict_proba(rows), compas_ann.predict_proba(rows), atol=1e-6)


def test_ambiguous_columns_are_rejected(german):
    inputs, outcomes = german.df_train.drop(columns=german.target), german.df_train[german.target]
    fitted = LogisticRegression(max_iter=500).fit(inputs, outcomes)
    with pytest.raises(ModelError, match="pass space='encoded'"):
        models.wrap(fitted, german)
    encoded = models.wrap(fitted, german, space="encoded")
    assert models.accuracy(encoded, german.df) > 0.7
    raw = german.inverse_transform(german.df_train)[inputs.columns]
    on_raw = models.wrap(LogisticRegression(max_iter=5000).fit(raw, outcomes), german, space="raw")
    assert models.accuracy(on_raw, german.df) > 0.7


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda X, y: LogisticRegression(), {}, "not fitted: call its fit"),
        (lambda X, y: LogisticRegression, {}, "is a class: pass a fitted instance"),
        (lambda X, y: RidgeClassifier().fit(X, y), {}, "has no predict_proba"),
        (lambda X, y: LogisticRegression().fit(X, y), {"favourable": "yes"}, r"No class 'yes' among \[.*0.*1.*\]"),
        (lambda X, y: LogisticRegression().fit(X, y), {"space": "roar"}, "Unknown space 'roar'"),
        (lambda X, y: LogisticRegression().fit(X, y + (X["age"] > 0.5)), {}, "has 3 classes"),
        (lambda X, y: LogisticRegression().fit(X.assign(height=1.0), y), {}, "does not have: height"),
        (lambda X, y: LogisticRegression().fit(X.to_numpy()[:, :3], y), {}, "takes 3 features, the data set has 7"),
        (lambda X, y: torch.nn.Linear(3, 2), {}, "does not take rows of 7 features"),
        (lambda X, y: torch.nn.Linear(7, 5), {}, "expected \\(n, 2\\)"),
        (lambda X, y: torch.nn.ReLU(), {}, "no parameters"),
        (lambda X, y: torch.nn.Linear(7, 2), {"space": "raw"}, "takes encoded rows"),
        (lambda X, y: torch.nn.Linear(7, 2), {"feature_order": list("abcdefg")}, "No such encoded columns"),
        (lambda X, y: "a model", {}, "neither a scikit-learn estimator"),
        (lambda X, y: LinearRegression().fit(X, y), {}, "is not a classifier"),
        (lambda X, y: torch.nn.Sequential(torch.nn.Linear(7, 1), Small()), {}, "pass output='probability'"),
        (lambda X, y: torch.nn.LSTM(7, 2), {}, "returns tuple"),
    ],
)
def test_invalid_models_are_rejected(compas, encoded, make, options, message):
    with pytest.raises(ModelError, match=message):
        models.wrap(make(*encoded), compas, **options)


class Small(torch.nn.Module):
    def forward(self, x):
        return 0.5 + 0.1 * torch.tanh(x)


def test_wrap_an_xgboost_booster(compas, encoded):
    xgboost = import_optional("xgboost")
    booster = xgboost.train({"objective": "binary:logistic"}, xgboost.DMatrix(*encoded), 5)
    model = models.wrap(booster, compas)
    expected = booster.predict(xgboost.DMatrix(compas.df_test[encoded[0].columns]))
    np.testing.assert_allclose(model.predict_proba(compas.df_test)[:, 1], expected, rtol=1e-6)
    assert len(model.tree_iterator) == 5


def test_precision_rows_and_labels_of_any_kind(compas, compas_ann, encoded):
    assert compas_ann.predict_proba(torch.zeros(1, 7, dtype=torch.float64)).shape == (1, 2)
    assert compas_ann.predict_proba([[0.0] * 7]).shape == (1, 2)
    double = models.wrap(torch.nn.Linear(7, 2).double(), compas)
    assert double.raw_model(torch.zeros(1, 7)).shape == (1, 2)
    fitted = models.wrap(LogisticRegression().fit(*encoded), compas)
    assert fitted.predict(torch.zeros(2, 7)).shape == (2,)
    assert fitted.predict(compas.df_test.head(0)).shape == (0,)


def test_trees_for_carla_need_plain_outcomes(compas, encoded):
    words = encoded[1].map({0: "refuse", 1: "grant"})  # "grant" sorts first: the trees' class 1 is the other one
    forest = models.wrap(RandomForestClassifier(5).fit(encoded[0], words), compas, favourable="grant")
    with pytest.raises(ModelError, match="outcomes 0 and 1"):
        forest.tree_iterator  # noqa: B018
    with pytest.raises(ModelError, match="is not a forest"):
        models.wrap(LogisticRegression().fit(*encoded), compas).tree_iterator  # noqa: B018


def test_raw_pipeline_gets_original_values():
    """Booleans and integers as categories reach the estimator as it was fitted, not as text."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"z": rng.random(400), "member": rng.random(400) < 0.5, "city": rng.integers(3, size=400), "loan": 0}
    )
    table["loan"] = ((table["city"] == 2) | table["member"]).astype(int)
    data = datasets.from_frame(table, "loan", name="own", categorical=["member", "city"])
    back = data.inverse_transform(data.df)
    assert back["member"].tolist() == table["member"].tolist()
    assert back["city"].tolist() == table["city"].tolist()
    pipeline = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["member", "city"]), remainder="passthrough"), LogisticRegression()
    ).fit(table[["z", "member", "city"]], table["loan"])
    model = models.wrap(pipeline, data)
    rows = data.transform(table.drop(columns="loan"))
    np.testing.assert_allclose(model.predict_proba(rows), pipeline.predict_proba(table[["z", "member", "city"]]))
    forest = RandomForestClassifier(5, random_state=0).fit(
        table[["z", "member", "city"]].to_numpy(float), table["loan"]
    )
    on_array = models.wrap(forest, data, space="raw")
    assert models.accuracy(on_array, data.df) == pytest.approx(1.0, abs=0.01)
    with pytest.raises(DataError, match="Unknown category of 'city' '7'"):
        data.transform(table.assign(city=7))


def test_data_sets_and_models_can_be_pickled(compas, compas_ann, encoded):
    for model in (compas_ann, models.wrap(LogisticRegression().fit(*encoded), compas)):
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.predict_proba(compas.df_test), model.predict_proba(compas.df_test))
        pd.testing.assert_frame_equal(again.data.df_train, compas.df_train)


def test_wrapping_twice_is_rejected(compas, compas_ann):
    with pytest.raises(ModelError, match="CARLA MLModel already"):
        models.wrap(compas_ann, compas)


def test_calibrated_classifier_provides_probabilities(compas, encoded):
    calibrated = CalibratedClassifierCV(RidgeClassifier()).fit(*encoded)
    assert models.accuracy(models.wrap(calibrated, compas), compas.df_test) > 0.8


@pytest.mark.slow
def test_only_trained_networks_convert_to_tensorflow(compas):
    with pytest.raises(ModelError, match="can be converted"):
        models.to_tensorflow(models.wrap(torch.nn.Linear(7, 2), compas))


ANSWERS = {
    "raises": (lambda x: 1 / 0, "ZeroDivisionError, division by zero"),
    "NaN": (lambda x: np.full((len(x), 2), np.nan), "returned NaN or infinity for rows"),
    "logits": (lambda x: np.tile([-3.0, 4.0], (len(x), 1)), "values from -3 to 4, which are not probabilities"),
    "sums": (lambda x: np.full((len(x), 2), 0.8), "do not sum to 1"),
    "flat": (lambda x: np.full(len(x), 0.5), r"returned shape \(5,\) for 5 rows"),
    "words": (lambda x: np.full((len(x), 2), "yes"), "did not return real numbers"),
    "ragged": (lambda x: [[0.5, 0.5], [1.0]], "did not return real numbers"),
    "complex": (lambda x: np.full((len(x), 2), 0.5 + 1j), "complex numbers"),
    "nothing": (lambda x: None, r"returned shape \(\)"),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_invalid_predictions_are_reported(kind, compas_linear):
    answer, message = ANSWERS[kind]

    class Broken(type(compas_linear)):
        raw_model = None

        def predict_proba(self, x):
            return answer(x)

    model = Broken(compas_linear.data, compas_linear.raw_model, compas_linear.feature_input_order)
    rows = compas_linear.data.df.head(5)
    for ask in (
        lambda: models.probability(model)(rows[model.feature_input_order].to_numpy()),
        lambda: models.accuracy(model, rows),
    ):
        with pytest.raises(ModelError, match=message) as raised:
            ask()
        assert kind in ("NaN", "raises") or "Broken" in str(raised.value)


def test_estimator_that_raises_is_reported(compas, encoded):
    class Stubborn(LogisticRegression):
        def predict_proba(self, X):
            raise OSError("licence expired")

    with pytest.raises(ModelError, match="Stubborn cannot predict rows of this data set: licence expired"):
        models.wrap(Stubborn().fit(*encoded), compas)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_columns_may_be_in_reversed_order(kind):
    """pandas returns a view with negative strides, which torch does not accept."""
    numbers = np.random.default_rng(0).random((40, 3)).astype(kind)
    frame = pd.DataFrame(numbers, columns=["c", "b", "a"]).assign(good=np.arange(40) % 2)
    data = datasets.from_frame(frame, "good", name="reversed")
    settings = models.paper_settings("linear", "adult")  # few steps
    model = models.train(data, "linear", settings=settings, use_cache=False)
    wrapped = models.wrap(model.raw_model, data, feature_order=model.feature_input_order, output="probability")
    np.testing.assert_array_equal(wrapped.predict_proba(data.df), model.predict_proba(data.df))
