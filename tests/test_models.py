"""Classifiers: training, cache, wrapping, and the choice of people who are turned down."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import datasets, models
from rose_carla.compat import import_optional
from rose_carla.errors import DataError, ModelError
from rose_carla.models import cache
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

PAPER_ACCURACY = {"ann": 0.86, "linear": 0.86}


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ROSE_CARLA_CACHE", str(tmp_path))
    return tmp_path / "models"


# --- training


@pytest.mark.parametrize("kind", ["ann", "linear"])
def test_accuracy_is_the_papers(compas, compas_ann, compas_linear, kind):
    model = {"ann": compas_ann, "linear": compas_linear}[kind]
    assert models.accuracy(model, compas.df_test) == pytest.approx(PAPER_ACCURACY[kind], abs=0.02)


def test_logistic_regression_agrees_with_scikit_learn(german):
    settings = models.TrainingSettings(hidden=(), learning_rate=0.002, batch_size=100, epochs=400)
    ours = models.train(german, "linear", settings=settings, use_cache=False)
    inputs, outcomes = german.df_train[ours.feature_input_order], german.df_train[german.target]
    theirs = LogisticRegression(C=np.inf, max_iter=2000).fit(inputs, outcomes)
    gap = ours.predict_proba(inputs)[:, 1] - theirs.predict_proba(inputs)[:, 1]
    assert np.abs(gap).mean() < 0.02


def test_same_seed_same_bits_and_no_global_seed(german):
    torch.manual_seed(1)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    one, again, other = (models.train(german, seed=seed, use_cache=False) for seed in (3, np.int64(3), 4))
    assert torch.equal(before, torch.get_rng_state())
    assert threads == torch.get_num_threads()
    weights = [model.raw_model.layers[0].weight for model in (one, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_the_papers_architecture(compas_ann, compas_linear):
    assert [(layer.in_features, layer.out_features) for layer in compas_ann.raw_model.layers] == [(7, 50), (50, 2)]
    assert [(layer.in_features, layer.out_features) for layer in compas_linear.raw_model.layers] == [(7, 2)]


def test_predictions_for_frames_arrays_and_tensors_agree(compas, compas_ann):
    rows = compas.df_test.head(5)
    shuffled = rows[rows.columns[::-1]]
    expected = compas_ann.predict_proba(rows)
    assert expected.shape == (5, 2)
    np.testing.assert_array_equal(compas_ann.predict_proba(shuffled), expected)
    array = rows[compas_ann.feature_input_order].to_numpy()
    np.testing.assert_array_equal(compas_ann.predict_proba(array), expected)
    tensor = torch.tensor(array, dtype=torch.float32, requires_grad=True)
    compas_ann.predict_proba(tensor)[:, 1].sum().backward()
    assert tensor.grad.abs().sum() > 0
    np.testing.assert_array_equal(compas_ann.predict(rows), expected[:, 1:])
    assert compas_ann.get_mutable_mask().tolist() == [
        feature.split("_")[0] not in ("age", "race", "sex") for feature in compas_ann.feature_input_order
    ]


def test_bad_training_input_is_explained(compas):
    with pytest.raises(ModelError, match="Unknown kind of classifier 'anm': did you mean 'ann'"):
        models.train(compas, "anm", settings=models.TrainingSettings((), 0.1, 10))
    with pytest.raises(ModelError, match="whole number"):
        models.train(compas, seed="x")
    with pytest.raises(ModelError, match="Expected a CARLA data set"):
        models.train(compas.df)
    with pytest.raises(ModelError, match="have to be above 0"):
        models.TrainingSettings((50,), 0.002, batch_size=0)
    with pytest.raises(ModelError, match="lack the target"):
        models.accuracy(models.train(compas, "linear"), compas.df.drop(columns="score"))

    class OneOutcome(datasets.Dataset):
        @property
        def df_train(self):
            return super().df_train.assign(score=1)

    table = compas.inverse_transform(compas.df)
    with pytest.raises(ModelError, match="both outcomes 0 and 1"):
        models.train(OneOutcome(table, compas.schema), use_cache=False)


def test_bad_rows_are_explained(compas, compas_ann):
    with pytest.raises(ModelError, match="Columns missing for the classifier: sex_Male"):
        compas_ann.predict_proba(compas.df_test.drop(columns="sex_Male"))
    with pytest.raises(ModelError, match=r"rows of 7 features .* got shape \(3, 4\)"):
        compas_ann.predict_proba(np.zeros((3, 4)))


# --- the cache


def test_cache_returns_the_same_model_without_training(german, cache_folder, monkeypatch):
    first = models.train(german)
    monkeypatch.setattr("rose_carla.models.training._fit", None)  # training again would now fail
    second = models.train(german)
    np.testing.assert_array_equal(first.predict_proba(german.df), second.predict_proba(german.df))


def test_cache_key_depends_on_data_settings_and_seed(german, compas, cache_folder):
    models.train(german)
    models.train(german, seed=1)
    models.train(german, "linear")
    models.train(datasets.load("german", seed=1))
    models.train(german, settings=models.TrainingSettings((50,), 0.002, 512, epochs=1))
    assert len(list(cache_folder.glob("*.npz"))) == 5


class Payload:
    """Unpickling this would create a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def _truncate(path, other, proof):
    path.write_bytes(path.read_bytes()[:-200])


def _flip(path, other, proof):
    content = bytearray(path.read_bytes())
    content[200] ^= 0xFF
    path.write_bytes(bytes(content))


def _foreign(path, other, proof):
    path.write_bytes(other.read_bytes())


def _empty(path, other, proof):
    path.write_bytes(b"")


def _pickled(path, other, proof):
    path.write_bytes(pickle.dumps(Payload(proof)))


def _pickled_array(path, other, proof):
    array = np.empty(1, dtype=object)
    array[0] = Payload(proof)
    with open(path, "wb") as file:
        np.savez(file, header=array)


def _torch_pickle(path, other, proof):
    torch.save({"layers": Payload(proof)}, path)


@pytest.mark.parametrize("damage", [_truncate, _flip, _foreign, _empty, _pickled, _pickled_array, _torch_pickle])
def test_a_bad_cache_file_means_training_anew(german, cache_folder, tmp_path, damage):
    models.train(german, seed=1)
    (other,) = cache_folder.glob("*.npz")
    first = models.train(german)
    (path,) = set(cache_folder.glob("*.npz")) - {other}
    proof = tmp_path / "executed"
    damage(path, other, proof)
    with pytest.warns(UserWarning, match="Training anew"):
        second = models.train(german)
    assert not proof.exists()
    np.testing.assert_array_equal(first.predict_proba(german.df), second.predict_proba(german.df))
    models.train(german)  # and the file is whole again: no warning


def test_another_format_and_an_unwritable_folder(german, cache_folder, monkeypatch):
    models.train(german)
    monkeypatch.setattr(cache, "FORMAT", 2)
    with pytest.warns(UserWarning, match="it has format 1, this version reads 2"):
        models.train(german)
    blocked = cache_folder / "file"
    blocked.write_text("a file where a folder should be")
    monkeypatch.setenv("ROSE_CARLA_CACHE", str(blocked))
    with pytest.warns(UserWarning, match="was not cached"):
        models.train(german)


# --- wrapping


@pytest.fixture(scope="module")
def encoded(compas):
    return compas.df_train.drop(columns=compas.target), compas.df_train[compas.target]


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
    with pytest.raises(ModelError, match="say space='encoded'"):
        models.wrap(pipeline, compas)


def test_wrap_a_pipeline_on_raw_rows_with_words_for_outcomes(compas):
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


def test_the_same_network_in_tensorflow(compas, compas_ann):
    rows = compas.df_test.head(50)
    keras = models.to_tensorflow(compas_ann)
    np.testing.assert_allclose(keras.predict_proba(rows), compas_ann.predict_proba(rows), atol=1e-6)


def test_ambiguous_columns_have_to_be_resolved(german):
    inputs, outcomes = german.df_train.drop(columns=german.target), german.df_train[german.target]
    fitted = LogisticRegression(max_iter=500).fit(inputs, outcomes)
    with pytest.raises(ModelError, match="say space='encoded'"):
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
        (lambda X, y: RidgeClassifier().fit(X, y), {}, "gives no probabilities"),
        (lambda X, y: LogisticRegression().fit(X, y), {"favourable": "yes"}, r"No class 'yes' among \[.*0.*1.*\]"),
        (lambda X, y: LogisticRegression().fit(X, y), {"space": "roar"}, "Unknown space 'roar'"),
        (lambda X, y: LogisticRegression().fit(X, y + (X["age"] > 0.5)), {}, "knows 3 classes"),
        (lambda X, y: LogisticRegression().fit(X.assign(height=1.0), y), {}, "does not have: height"),
        (lambda X, y: LogisticRegression().fit(X.to_numpy()[:, :3], y), {}, "takes 3 features, the data set has 7"),
        (lambda X, y: torch.nn.Linear(3, 2), {}, "does not take rows of 7 features"),
        (lambda X, y: torch.nn.Linear(7, 5), {}, "expected \\(n, 2\\)"),
        (lambda X, y: torch.nn.ReLU(), {}, "no parameters"),
        (lambda X, y: torch.nn.Linear(7, 2), {"space": "raw"}, "takes encoded rows"),
        (lambda X, y: torch.nn.Linear(7, 2), {"feature_order": list("abcdefg")}, "No such encoded columns"),
        (lambda X, y: "a model", {}, "neither a scikit-learn estimator"),
        (lambda X, y: LinearRegression().fit(X, y), {}, "is not a classifier"),
        (lambda X, y: torch.nn.Sequential(torch.nn.Linear(7, 1), Small()), {}, "say output='probability'"),
        (lambda X, y: torch.nn.LSTM(7, 2), {}, "returns tuple"),
    ],
)
def test_bad_models_are_explained(compas, encoded, make, options, message):
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
    with pytest.raises(ModelError, match="no forest"):
        models.wrap(LogisticRegression().fit(*encoded), compas).tree_iterator  # noqa: B018


def test_users_own_values_reach_a_raw_pipeline():
    """Booleans and whole numbers as categories: the estimator sees them as it was fitted, not as text."""
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


def test_wrapping_twice_is_refused(compas, compas_ann):
    with pytest.raises(ModelError, match="CARLA MLModel already"):
        models.wrap(compas_ann, compas)


def test_the_advice_for_models_without_probabilities_works(compas, encoded):
    calibrated = CalibratedClassifierCV(RidgeClassifier()).fit(*encoded)
    assert models.accuracy(models.wrap(calibrated, compas), compas.df_test) > 0.8


def test_only_known_architectures_go_to_tensorflow(compas):
    with pytest.raises(ModelError, match="known architecture"):
        models.to_tensorflow(models.wrap(torch.nn.Linear(7, 2), compas))


# --- negative instances


def test_negative_instances_are_all_and_only_those_refused(compas, compas_ann):
    chosen = models.negative_instances(compas_ann)
    refused = [
        label
        for label, row in compas.df_test.iterrows()
        if compas_ann.predict_proba(row[compas_ann.feature_input_order].to_numpy(dtype=float)[None])[0, 1] < 0.5
    ]
    assert chosen.index.tolist() == refused
    assert chosen.columns.tolist() == [*compas_ann.feature_input_order, "score"]


def test_the_papers_selection_per_data_set(german, adult):
    on_german = models.train(german)
    everyone = models.negative_instances(on_german)
    assert set(everyone.index) & set(german.df_train.index)
    on_adult = models.train(adult, "linear", settings=models.TrainingSettings((), 0.01, 4096, epochs=2))
    drawn = models.negative_instances(on_adult)
    assert len(drawn) == 200
    assert set(drawn.index) <= set(adult.df_test.index)
    pd.testing.assert_frame_equal(drawn, models.negative_instances(on_adult))
    assert set(models.negative_instances(on_adult, seed=1).index) != set(drawn.index)


def test_bad_selections_are_explained(compas, compas_ann, encoded):
    with pytest.raises(DataError, match="Unknown split 'tset': did you mean 'test'"):
        models.negative_instances(compas_ann, split="tset")
    with pytest.raises(DataError, match="at least 1"):
        models.negative_instances(compas_ann, limit=0)
    with pytest.raises(DataError, match="lacks columns"):
        models.negative_instances(compas_ann, datasets.load("german"))
    with pytest.raises(ModelError, match="Expected a CARLA model"):
        models.negative_instances(LogisticRegression(), compas)
    forest = RandomForestClassifier(n_estimators=1, max_depth=1).fit(encoded[0].iloc[:50], [1] * 49 + [0])
    with pytest.raises(DataError, match="turns nobody down"):
        models.negative_instances(models.wrap(forest, compas))
