"""What all six baselines share: the contract of CARLA, time limits, hyper-parameters, progress."""

from __future__ import annotations

import random
from dataclasses import MISSING, fields
from operator import attrgetter

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import baselines, datasets, models
from rose_carla import method as method_base
from baseline_examples import array, check_legal, stop_after
from carla.recourse_methods.api import RecourseMethod
from carla.recourse_methods.processing.counterfactuals import merge_default_parameters
from rose_carla.baselines import Arar, Cogs, Croco, FastAR, Probe, Roar, cogs
from rose_carla.errors import DataError, ModelError, PlanError
from sklearn.ensemble import RandomForestClassifier

#: Less work than by default, for tests that do not depend on quality.
CHEAP = {
    Arar: {},
    Cogs: {"population": 40, "n_generations": 12, "n_samples": 16},
    Croco: {"target": 0.6, "n_gradient": 10, "n_samples": 100, "learning_rate": 0.05, "distance_weights": (0.1, 0.0)}
    | {"n_steps": 60, "patience": 5},
    FastAR: {"density_weight": 0.0, "ppo": {"n_updates": 3, "n_envs": 64, "n_steps": 16}},
    Probe: {"learning_rate": 0.01, "n_steps": 200, "n_samples": 200},
    Roar: {},
}
GRADIENT = (Arar, Croco, Probe, Roar)
ONE_SHOT = (*GRADIENT, Cogs)

name_of = attrgetter("__name__")
every = pytest.mark.parametrize("kind", CHEAP, ids=name_of)


@pytest.fixture(scope="module")
def people(compas_ann):
    """People with a low probability of the favourable outcome."""
    factuals = models.negative_instances(compas_ann)
    return factuals[models.probability(compas_ann)(array(compas_ann, factuals)) < 0.42].head(6)


@pytest.fixture(scope="module")
def accepted(compas_ann):
    frame = compas_ann.data.df_test
    return frame[models.favourable(compas_ann)(array(compas_ann, frame))].head(4)


@pytest.fixture(scope="module")
def ready(compas_ann):
    """One instance of each method for the network on COMPAS."""
    return {kind: kind(compas_ann, hyperparams) for kind, hyperparams in CHEAP.items()}


@pytest.fixture(scope="module")
def forest(compas, encoded):
    return models.wrap(RandomForestClassifier(20, max_depth=5, random_state=0).fit(*encoded), compas)


def test_all_six_are_exported():
    methods = {name for name in baselines.__all__ if not name.endswith("Settings")}
    assert methods == {name_of(kind) for kind in CHEAP}
    for kind in CHEAP:
        assert issubclass(kind, RecourseMethod)
        assert getattr(baselines, f"{name_of(kind)}Settings") is kind.settings_class
    assert [kind.name for kind in CHEAP] == ["ARAR", "CoGS", "CROCO", "FastAR", "PROBE", "ROAR"]


@every
def test_counterfactuals_are_favourable_and_valid_under_their_labels(kind, ready, compas_ann, people, accepted):
    mixed = pd.concat([people, accepted]).sample(frac=1, random_state=0)
    mixed.index = [f"person {number}" for number in range(len(mixed))]
    before = mixed.copy()
    ends = ready[kind].get_counterfactuals(mixed)
    pd.testing.assert_frame_equal(mixed, before)
    assert ends.index.equals(mixed.index)
    assert list(ends.columns) == compas_ann.feature_input_order
    found = ends.notna().all(axis=1)
    assert ends[~found].isna().all(axis=None)
    assert found.mean() > 0.7
    starts, rows = array(compas_ann, mixed), ends.to_numpy()
    assert models.favourable(compas_ann)(rows[found]).all()
    check_legal(compas_ann, starts[found], rows[found])
    already = models.favourable(compas_ann)(starts)
    assert already.sum() == 4
    np.testing.assert_array_equal(rows[already], starts[already])
    assert (np.abs(rows - starts)[found & ~already].sum(axis=1) > 1e-3).all()
    # the same people in another order, with their columns in another
    again = ready[kind].get_counterfactuals(mixed.sample(frac=1, random_state=1)[reversed(mixed.columns)])
    pd.testing.assert_frame_equal(again.loc[mixed.index], ends, rtol=0, atol=1e-5)


@every
def test_accepted_people_are_unchanged(kind, ready, compas_ann, accepted):
    ends = ready[kind].get_counterfactuals(accepted)
    np.testing.assert_array_equal(ends.to_numpy(), array(compas_ann, accepted))
    assert ends.index.equals(accepted.index)


@every
def test_result_does_not_depend_on_the_batch(kind, ready, compas_ann, people):
    """Single-precision sums depend on the batch size, which Adam amplifies to 1e-5."""
    batch = ready[kind].get_counterfactuals(people)
    assert batch.notna().all(axis=1).mean() > 0.6
    alone = pd.concat([ready[kind].get_counterfactuals(people.iloc[[i]]) for i in range(len(people))])
    pd.testing.assert_frame_equal(alone, batch, rtol=0, atol=1e-5)
    if kind is not FastAR:
        parts = kind(compas_ann, {**CHEAP[kind], "batch_size": 4})
        pd.testing.assert_frame_equal(parts.get_counterfactuals(people), batch, rtol=0, atol=1e-5)


@every
def test_seed_is_local_and_reproducible(kind, ready, compas_ann, people):
    def state():
        legacy = np.random.get_state()  # noqa: NPY002
        return random.getstate(), legacy[1].tolist(), legacy[2:], torch.get_rng_state().tolist()

    before = state()
    first, again = (method.get_counterfactuals(people) for method in (ready[kind], kind(compas_ann, CHEAP[kind])))
    assert state() == before
    pd.testing.assert_frame_equal(first, again, check_exact=True)


@pytest.mark.parametrize("kind", [*GRADIENT, FastAR], ids=name_of)
def test_unfinished_people_get_nan_at_the_deadline(kind, compas_ann, people, accepted, ready, monkeypatch):
    """The clock advances with each call: the search has time for two steps."""
    slowly = {"fit": False} if kind is FastAR else {"learning_rate": 1e-3}
    method = kind(compas_ann, {**CHEAP[kind], **slowly, "timeout": 3})
    if kind is FastAR:
        method._set_policy(ready[kind].policy_, ready[kind].slope_, ready[kind].log_)
    times = stop_after(monkeypatch, calls=20)
    ends = method.get_counterfactuals(pd.concat([people, accepted]))
    assert 3 <= len(times) <= 5
    assert ends[: len(people)].isna().all(axis=None)
    np.testing.assert_array_equal(ends[len(people) :], array(compas_ann, accepted))


def test_cogs_returns_the_best_so_far_at_the_deadline(compas_ann, people, monkeypatch):
    generations = []
    advance = cogs._Evolution.advance
    monkeypatch.setattr(cogs._Evolution, "advance", lambda self: generations.append(1) or advance(self))
    times = stop_after(monkeypatch, calls=40)
    some = Cogs(compas_ann, {"timeout": 12}).get_counterfactuals(people)
    assert 1 <= len(generations) <= 5
    assert len(times) <= 20
    assert some.notna().any(axis=None)
    monkeypatch.undo()
    assert not some.equals(Cogs(compas_ann).get_counterfactuals(people))


@pytest.mark.parametrize("kind", GRADIENT, ids=name_of)
def test_each_batch_has_its_own_time_limit(kind, compas_ann, people, monkeypatch):
    times = stop_after(monkeypatch, calls=40)
    hyperparams = {**CHEAP[kind], "learning_rate": 1e-3, "timeout": 3, "batch_size": 2}
    assert kind(compas_ann, hyperparams).get_counterfactuals(people).isna().all(axis=None)
    assert len(times) == 3 * (1 + 3)  # three batches: the start of each, and three calls


@every
@pytest.mark.parametrize("classifier", ["ann", "linear"])
def test_time_limit_of_zero_returns_nan(kind, classifier, compas, people, accepted):
    model = models.train(compas, classifier)
    both = pd.concat([people, accepted])
    rejected = ~models.favourable(model)(array(model, both))
    assert rejected.any()
    ends = kind(model, {**CHEAP[kind], "timeout": 0}).get_counterfactuals(both)
    np.testing.assert_array_equal(ends[~rejected], array(model, both)[~rejected])
    if kind is Cogs:  # its first generation takes no time
        found = ends.notna().all(axis=1)
        assert models.favourable(model)(ends[found].to_numpy()).all()
    else:
        assert ends[rejected].isna().all(axis=None)


@every
@pytest.mark.parametrize("name", ["german", pytest.param("adult", marks=pytest.mark.slow)])
def test_immutables_and_categories_on_adult_and_german(kind, name, adult):
    data = adult if name == "adult" else datasets.load("german", form="typed")
    model = models.train(data, "ann")
    factuals = models.negative_instances(model).head(5)
    ends = kind(model, CHEAP[kind]).get_counterfactuals(factuals)
    found = ends.notna().all(axis=1)
    assert found.mean() > 0.5
    starts, rows = array(model, factuals)[found], ends[found].to_numpy()
    check_legal(model, starts, rows)
    assert models.favourable(model)(rows).all()
    assert (starts != rows).any(axis=1).all()


@pytest.mark.parametrize("kind", GRADIENT, ids=name_of)
def test_gradient_methods_need_a_torch_model(kind, forest):
    with pytest.raises(ModelError, match=rf"{kind.name} follows gradients.*sklearn.*models\.wrap.*Cogs"):
        kind(forest)
    with pytest.raises(ModelError, match=r"make one with models\.wrap"):
        kind(object())


@pytest.mark.parametrize("kind", [Cogs, FastAR], ids=name_of)
def test_other_methods_accept_a_forest(kind, forest):
    factuals = models.negative_instances(forest).head(8)
    ends = kind(forest, CHEAP[kind]).get_counterfactuals(factuals)
    found = ends.notna().all(axis=1)
    assert found.mean() > 0.5
    assert models.favourable(forest)(ends[found].to_numpy()).all()
    check_legal(forest, array(forest, factuals)[found], ends[found].to_numpy())


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Probe, {"invalidation_target": 0.35, "variance": 0.01, "timeout": 30.0}),
        (Croco, {"n_samples": 500, "slack": 0.1, "variance": 0.01, "target": 0.3, "threshold": 0.5}),
        (Cogs, {"decrease": 0.1, "increase": 0.1, "n_samples": 64, "population": 1000, "n_generations": 100}),
        (Roar, {"learning_rate": 0.1, "distance_weight": 0.01, "max_shift": 0.01}),
        (Arar, {"epsilon": 0.01}),
        (FastAR, {"action_unit": 0.025, "gamma": 0.99, "constant_reward": 100.0, "max_actions": 50, "multiples": (1,)}),
        (FastAR, {"density_weight": 0.1, "margin": 0.5}),
    ],
)
def test_paper_preset(kind, values, compas_ann):
    unfitted = {"fit": False} if kind is FastAR else {}
    settings = kind(compas_ann, {"preset": "paper", **unfitted}).settings
    assert {name: getattr(settings, name) for name in values} == values
    changed = kind(compas_ann, {"preset": "paper", "seed": 7, **unfitted}).settings
    assert changed.seed == 7
    if kind is FastAR:
        learner = settings.ppo_settings()
        known = (learner.gae_lambda, learner.clip_range, learner.n_epochs, learner.ent_coef, learner.vf_coef)
        assert known == (0.95, 0.2, 4, 0.01, 0.5)
        assert learner.max_grad_norm == 0.5


@every
def test_unknown_name_suggests_close_match(kind, compas_ann):
    for hyperparams, close in (({"preset": "papr"}, "paper"), ({"time_out": 3}, "timeout"), ({"sed": 1}, "seed")):
        with pytest.raises(PlanError, match=rf"Unknown .*: did you mean '{close}'\?"):
            kind(compas_ann, hyperparams)
    with pytest.raises(PlanError, match="timeout must be at least 0 and finite, got -1"):
        kind(compas_ann, {"timeout": -1})


@every
def test_carla_defaults_equal_the_settings(kind):
    expected = {
        each.name: each.default if each.default is not MISSING else each.default_factory()
        for each in fields(kind.settings_class)
    }
    expected = {name: list(value) if isinstance(value, tuple) else value for name, value in expected.items()}
    optional = {name: "_optional_" if value is None else value for name, value in expected.items()}
    assert optional == kind._DEFAULT_HYPERPARAMS
    assert kind.settings_class.from_mapping(kind._DEFAULT_HYPERPARAMS).as_dict() == expected
    assert merge_default_parameters({}, kind._DEFAULT_HYPERPARAMS) == expected
    if kind in ONE_SHOT:
        assert expected["reference_quirks"] is False


@every
@pytest.mark.parametrize("progress", [True, False, None])
def test_progress_bar_option(kind, progress, compas_ann, people, capsys):
    kind(compas_ann, {**CHEAP[kind], "progress": progress}).get_counterfactuals(people.head(2))
    shown = capsys.readouterr().err
    if progress:
        assert ("policy:" if kind is FastAR else f"{kind.name}:") in shown
        assert ("0/3" if kind is FastAR else "0/2") in shown
    else:
        assert shown == ""


@pytest.mark.parametrize("kind", ONE_SHOT, ids=name_of)
def test_progress_bar_counts_each_person_once(kind, compas_ann, people, accepted, monkeypatch):
    bars = []

    class Noted(method_base.tqdm):
        def close(self):
            bars.append((self.n, self.total))
            super().close()

    monkeypatch.setattr(method_base, "tqdm", Noted)
    method = kind(compas_ann, {**CHEAP[kind], "progress": True, "batch_size": 4})
    method.get_counterfactuals(pd.concat([people, accepted]))
    assert bars[0] == (len(people), len(people))


@every
@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda frame: frame.drop(columns="age"), "lack the columns age"),
        (lambda frame: frame.head(0), "no rows"),
        (lambda frame: frame.assign(age=np.nan), "missing or infinite"),
        (lambda frame: frame.assign(c_charge_degree_M=0.5), "not at a valid encoding"),
        (lambda frame: frame.set_axis([1] * len(frame)), "occur twice"),
    ],
)
def test_invalid_factuals_raise_an_error(kind, ready, people, spoil, match):
    with pytest.raises(DataError, match=match):
        ready[kind].get_counterfactuals(spoil(people))
