"""Training of classifiers, and their cache."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import datasets, models
from rose_carla._lib import files
from rose_carla._lib.runtime import global_state
from rose_carla.errors import DataError, ModelError
from sklearn.linear_model import LogisticRegression

PAPER_ACCURACY = {"ann": 0.86, "linear": 0.86}


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ROSE_CARLA_CACHE", str(tmp_path))
    return tmp_path / "models"


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


@pytest.mark.parametrize("kind", ["ann", "linear"])
def test_small_tables_are_trained_long_enough(kind):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"income": rng.random(240), "debt": rng.random(240)})
    frame["loan"] = (frame["income"] > frame["debt"]).astype(int)
    data = datasets.from_frame(frame, "loan", name="small")
    assert models.accuracy(models.train(data, kind, use_cache=False), data.df_test) > 0.9
    if kind == "linear":
        few = models.train(data, kind, settings=models.paper_settings(kind, "adult"), use_cache=False)
        assert models.accuracy(few, data.df_test) < 0.9, "otherwise the paper's settings would do"


@pytest.mark.parametrize("kind", ["ann", "linear"])
@pytest.mark.parametrize("name", datasets.NAMES)
def test_the_papers_data_sets_are_trained_as_in_the_paper(kind, name, request):
    assert models.default_settings(kind, request.getfixturevalue(name)) == models.paper_settings(kind, name)


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


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "hidden": [5, (2.5,), (0,), (True,), "x", None, (10**9,), 50.0],
        "learning_rate": ["x", None, 0, -1, np.nan, np.inf, 1e300, True],
        "batch_size": [0, 2.5, "x", None, 10**40],
        "epochs": [0, 1.5, "x", None],
    }.items(),
)
def test_invalid_settings_are_rejected(name, values):
    sound = {"hidden": (50,), "learning_rate": 0.002, "batch_size": 512}
    for value in values:
        with pytest.raises(ModelError, match=f"{name} must be .*, got "):
            models.TrainingSettings(**{**sound, name: value})


def test_settings_accept_lists_and_numpy_numbers():
    settings = models.TrainingSettings([np.int64(50)], np.float32(0.5), np.int32(8))
    assert settings == models.TrainingSettings((50,), 0.5, 8)
    with pytest.raises(TypeError, match="learning_rate"):
        models.TrainingSettings((50,), batch_size=8)


def test_diverging_training_raises(compas):
    settings = models.TrainingSettings((50,) * 6, 1e6, 512, epochs=2)
    with pytest.raises(ModelError, match=r"The training diverged.*try a learning_rate below 1e\+06"):
        models.train(compas, settings=settings, use_cache=False)


def test_invalid_training_input_is_rejected(compas):
    with pytest.raises(ModelError, match="Unknown kind of classifier 'anm': did you mean 'ann'"):
        models.train(compas, "anm", settings=models.TrainingSettings((), 0.1, 10))
    with pytest.raises(ModelError, match="seed must be an integer from 0 to"):
        models.train(compas, seed="x")
    with pytest.raises(ModelError, match="Expected a CARLA data set"):
        models.train(compas.df)
    with pytest.raises(ModelError, match="seed must be an integer from 0 to"):
        models.train(compas, seed=2**64)
    with pytest.raises(ModelError, match=r"settings must be a models.TrainingSettings, got \{\}"):
        models.train(compas, settings={})
    with pytest.raises(DataError, match="lack the columns score"):
        models.accuracy(models.train(compas, "linear"), compas.df.drop(columns="score"))

    class OneOutcome(datasets.Dataset):
        @property
        def df_train(self):
            return super().df_train.assign(score=1)

    table = compas.inverse_transform(compas.df)
    with pytest.raises(ModelError, match="must be 0 and 1 in the training split"):
        models.train(OneOutcome(table, compas.schema), use_cache=False)


def test_invalid_rows_are_rejected(compas, compas_ann):
    with pytest.raises(ModelError, match="Columns missing for the classifier: sex_Male"):
        compas_ann.predict_proba(compas.df_test.drop(columns="sex_Male"))
    with pytest.raises(ModelError, match=r"rows of 7 features .* got shape \(3, 4\)"):
        compas_ann.predict_proba(np.zeros((3, 4)))


# --- the cache


def test_cache_returns_the_same_model_without_training(german, cache_folder, monkeypatch):
    first = models.train(german)
    monkeypatch.setattr("rose_carla.models.networks._fit", None)  # training again would now fail
    second = models.train(german)
    np.testing.assert_array_equal(first.predict_proba(german.df), second.predict_proba(german.df))


def test_without_a_home_folder_nothing_is_cached(compas, monkeypatch):
    monkeypatch.setenv("ROSE_CARLA_CACHE", "~nobody-of-that-name/cache")
    settings = models.TrainingSettings((), 0.1, 512, 1)
    with pytest.warns(UserWarning, match="was not cached: the user has no home folder: set ROSE_CARLA_CACHE"):
        trained = models.train(compas, "linear", settings=settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = models.train(compas, "linear", settings=settings, use_cache=False)
    rows = compas.df_test.head(5)
    np.testing.assert_array_equal(trained.predict_proba(rows), again.predict_proba(rows))
    monkeypatch.delenv("ROSE_CARLA_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(files.Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    with pytest.raises(files.FileWriteError, match="no home folder"):
        files.cache_dir()


def test_cache_key_depends_on_data_settings_and_seed(german, compas, cache_folder):
    models.train(german)
    models.train(german, seed=1)
    models.train(german, "linear")
    models.train(datasets.load("german", seed=1))
    models.train(german, settings=models.TrainingSettings((50,), 0.002, 512, epochs=1))
    assert len(list(cache_folder.glob("*.safetensors"))) == 5


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
    (other,) = cache_folder.glob("*.safetensors")
    first = models.train(german)
    (path,) = set(cache_folder.glob("*.safetensors")) - {other}
    proof = tmp_path / "executed"
    damage(path, other, proof)
    with pytest.warns(UserWarning, match="Training the classifier again"):
        second = models.train(german)
    assert not proof.exists()
    np.testing.assert_array_equal(first.predict_proba(german.df), second.predict_proba(german.df))
    models.train(german)  # and the file is whole again: no warning


def test_another_format_and_an_unwritable_folder(german, cache_folder, monkeypatch):
    models.train(german)
    monkeypatch.setattr(files, "FORMAT", 99)
    with pytest.warns(UserWarning, match="has format 2, this version reads format 99"):
        models.train(german)
    blocked = cache_folder / "file"
    blocked.write_text("a file where a folder should be")
    monkeypatch.setenv("ROSE_CARLA_CACHE", str(blocked))
    with pytest.warns(UserWarning, match="was not cached"):
        models.train(german)


def test_no_global_generator_is_touched_whether_it_is_trained_or_found(compas, tmp_path, monkeypatch):
    monkeypatch.setenv("ROSE_CARLA_CACHE", str(tmp_path))
    for _ in range(2):
        before = global_state()
        models.train(compas, "linear", settings=models.TrainingSettings((), 0.1, 512, 1))
        assert global_state() == before
