"""Checks of the arguments of models.wrap."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import models
from rose_carla.carla_compat import import_optional
from rose_carla.errors import ModelError
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier


def _booster(X, y, objective, **options):
    xgboost = import_optional("xgboost")
    return xgboost.train({"objective": objective, **options}, xgboost.DMatrix(X, y), 3)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (
            lambda X, y: _booster(X, y, "binary:logistic"),
            {"favourable": 0},
            "Booster has no names of classes, so favourable must be 1, got 0",
        ),
        (lambda X, y: _booster(X, y, "binary:logistic"), {"favourable": "yes"}, "favourable must be 1, got 'yes'"),
        (
            lambda X, y: _booster(X, y, "reg:squarederror"),
            {},
            "trained for 'reg:squarederror', so it does not predict prob",
        ),
        (lambda X, y: _booster(X, y, "binary:logitraw"), {}, "trained for 'binary:logitraw'"),
        (lambda X, y: _booster(X, y, "multi:softprob", num_class=3), {}, "trained for 'multi:softprob'"),
        (
            lambda X, y: torch.nn.Linear(7, 2),
            {"favourable": 0},
            "Linear has no names of classes",
        ),
        (lambda X, y: torch.nn.Linear(7, 2), {"favourable": np.array([0, 1])}, "got a value of type ndarray"),
    ],
)
def test_outcomes_and_objectives_of_models_without_classes(compas, encoded, make, options, message):
    with pytest.raises(ModelError, match=message):
        models.wrap(make(*encoded), compas, **options)


def test_boosters_that_predict_probabilities_are_accepted(compas, encoded):
    for objective in ("binary:logistic", "reg:logistic"):
        for one in (1, True, 1.0, np.int64(1)):
            model = models.wrap(_booster(*encoded, objective), compas, favourable=one)
            assert models.accuracy(model, compas.df_test) > 0.8


def test_trees_for_carla_need_the_favourable_class_last(compas, encoded):
    fitted = [
        RandomForestClassifier(3, random_state=0).fit(*encoded),
        import_optional("xgboost").XGBClassifier(n_estimators=3).fit(*encoded),
    ]
    for model in fitted:
        assert models.wrap(model, compas).tree_iterator
        with pytest.raises(ModelError, match="take the second class as favourable"):
            models.wrap(model, compas, favourable=0).tree_iterator  # noqa: B018


class NoClasses(BaseEstimator):
    """Fitted estimator without classes_, or with an invalid one."""

    def __init__(self, classes="none"):
        self.classes = classes

    def fit(self, X, y):
        self.n_features_in_ = X.shape[1]
        if self.classes != "none":
            self.classes_ = self.classes
        return self

    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)


_LOGISTIC = lambda X, y: LogisticRegression().fit(X, y)  # noqa: E731


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (_LOGISTIC, {"feature_order": 5}, "feature_order must be a list of column names, got 5"),
        (_LOGISTIC, {"feature_order": "age"}, "feature_order must be a list of column names, got 'age'"),
        (_LOGISTIC, {"feature_order": [["age"]]}, r"a list of column names, got \[\['age'\]\]"),
        (_LOGISTIC, {"feature_order": [None]}, "does not have: None"),
        (_LOGISTIC, {"feature_order": [3, "zz"]}, "does not have: 3, zz"),
        (_LOGISTIC, {"feature_order": []}, "feature_order is empty"),
        (_LOGISTIC, {"feature_order": ["age", "age"]}, "feature_order contains 'age' more than once"),
        (_LOGISTIC, {"favourable": np.array([0, 1])}, "No class a value of type ndarray among"),
        (_LOGISTIC, {"favourable": pd.NA}, "No class <NA> among"),
        (_LOGISTIC, {"space": ["raw"]}, r"Unknown space \['raw'\]"),
        (_LOGISTIC, {"output": np.array(["logit", "logit"])}, "Unknown output"),
        (
            lambda X, y: MultiOutputClassifier(LogisticRegression()).fit(X, np.stack([y, 1 - y], axis=1)),
            {},
            "predicts several targets at once",
        ),
        (lambda X, y: NoClasses().fit(X.to_numpy(), y), {}, "The classes_ of .* cannot be read"),
        (lambda X, y: NoClasses(None).fit(X.to_numpy(), y), {}, "The classes_ of .* cannot be read"),
        (lambda X, y: NoClasses(5).fit(X.to_numpy(), y), {}, "The classes_ of .* cannot be read"),
        (lambda X, y: torch.nn.Linear(7, 2), {"feature_order": 5}, "must be a list of column names, got 5"),
        (lambda X, y: torch.nn.Linear(1, 2), {"feature_order": [None]}, "No such encoded columns .*: None"),
        (lambda X, y: torch.nn.Linear(2, 2), {"feature_order": [3, "zz"]}, "No such encoded columns .*: 3, zz"),
        (lambda X, y: torch.nn.Linear(3, 1), {"feature_order": ["age", "age", "sex_Male"]}, "'age' more than once"),
        (lambda X, y: torch.nn.Linear(7, 2), {"feature_order": []}, "feature_order is empty"),
        (lambda X, y: Then(torch.Tensor.to_sparse), {}, "returns sparse_coo values"),
        (lambda X, y: torch.nn.Linear(7, 1).to("meta"), {}, "on the device meta"),
        (lambda X, y: Then(lambda values: values + 1j), {}, "returns complex64 values"),
        (lambda X, y: Then(lambda values: values > 0), {"output": "probability"}, "returns bool values"),
    ],
)
def test_invalid_arguments_of_wrap_are_rejected(compas, encoded, make, options, message):
    with pytest.raises(ModelError, match=message):
        models.wrap(make(*encoded), compas, **options)


class Then(torch.nn.Module):
    """Linear layer followed by a function."""

    def __init__(self, odd, outputs=1):
        super().__init__()
        self.linear, self.odd = torch.nn.Linear(7, outputs), odd

    def forward(self, x):
        return self.odd(self.linear(x))


@pytest.mark.parametrize("data", [None, "compas", pd.DataFrame({"a": [1.0]}), {}])
def test_wrap_and_train_need_a_data_set(encoded, data):
    for ask in (
        lambda: models.wrap(LogisticRegression().fit(*encoded), data),
        lambda: models.wrap(torch.nn.Linear(7, 2), data),
        lambda: models.default_settings("ann", data),
        lambda: models.train(data),
    ):
        with pytest.raises(ModelError, match="Expected a CARLA data set, got"):
            ask()


@pytest.mark.parametrize("kind", [list, tuple, pd.Index, np.array, pd.Series, iter])
def test_columns_may_be_any_sequence(compas, encoded, kind):
    order = list(encoded[0].columns)[::-1]
    rows = compas.df_test.head(5)
    module = torch.nn.Linear(7, 2)
    wrapped = models.wrap(module, compas, feature_order=kind(order), output="logit")
    assert wrapped.feature_input_order == order
    fitted = LogisticRegression().fit(encoded[0][order].to_numpy(), encoded[1])
    model = models.wrap(fitted, compas, feature_order=kind(order))
    np.testing.assert_allclose(model.predict_proba(rows), fitted.predict_proba(rows[order].to_numpy()))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("outputs", [1, 2])
def test_modules_of_low_precision(compas, outputs, kind):
    module = torch.nn.Linear(7, outputs).to(kind)
    module.bias.data -= 2
    try:
        module(torch.ones(2, 7, dtype=kind))
    except RuntimeError as error:
        pytest.skip(f"this torch does not know how: {error}")
    model = models.wrap(module, compas, output="logit")
    chances = models.probability(model)(compas.df_test[model.feature_input_order].to_numpy())
    assert ((chances >= 0) & (chances <= 1)).all()
    assert torch.isfinite(models.logit(model)(torch.rand(3, 7))).all()
