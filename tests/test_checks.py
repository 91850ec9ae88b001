"""The contract of recourse methods: ours fulfil it, CARLA's fail the documented checks, mutants are detected."""

from __future__ import annotations

import contextlib
import dataclasses
import io

import numpy as np
import pytest
from rose_carla import RoseMul, RoseOne, baselines, checks, models
from carla.recourse_methods.api import RecourseMethod
from carla_runs import CARLA_RUNS, build, model_for, skip_unless_installed
from rose_carla._lib.runtime import global_state, seeded
from rose_carla.errors import ContractError, RoseCarlaError
from rose_carla.noise import Claim

OURS = (
    baselines.Probe,
    baselines.Croco,
    baselines.Cogs,
    baselines.FastAR,
    baselines.Roar,
    baselines.Arar,
    RoseOne,
    RoseMul,
)
#: Short training is enough for the contract; with COMPAS' immutable features few people can meet CROCO's bound.
OPTIONS = {
    baselines.Croco: {"target": 0.6, "n_steps": 80},
    baselines.Probe: {"n_steps": 300},
    **{method: {"ppo": {"n_updates": 8}} for method in (baselines.FastAR, RoseOne, RoseMul)},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ann", "linear"])
@pytest.mark.parametrize("method", OURS, ids=lambda method: method.__name__)
def test_our_methods_fulfil_the_contract(method, kind, compas):
    model = models.train(compas, kind)
    factuals = models.negative_instances(model).iloc[::60]
    made = method(model, OPTIONS.get(method, {}))
    checks.check_recourse_method(made, factuals)
    assert made.get_counterfactuals(factuals).notna().any(axis=None)


@pytest.mark.slow
@pytest.mark.parametrize("run", CARLA_RUNS, ids=lambda run: run.id)
def test_carla_methods_fail_the_documented_checks(run, compas_ann):
    skip_unless_installed(run)
    with seeded(0), contextlib.redirect_stdout(io.StringIO()):
        model = model_for(run.model, compas_ann)
        factuals = models.negative_instances(model, split="all", limit=run.people)
        method = build(run, model, len(model.feature_input_order))
        found = checks.contract_failures(method, factuals, model)
    assert set(found) - set(run.may_break) == set(run.breaks), found


@pytest.fixture(scope="module")
def factuals(compas_linear):
    return models.negative_instances(compas_linear).head(6)


class Good(RecourseMethod):
    """ARAR's counterfactuals, which a mutant changes."""

    def __init__(self, mlmodel):
        super().__init__(mlmodel)
        self.inner = baselines.Arar(mlmodel)

    def get_counterfactuals(self, factuals):
        return self.modify(self.inner.get_counterfactuals(factuals), factuals)

    def modify(self, ends, factuals):
        return ends


def _put(ends, column, value, row=1):
    ends = ends.copy()
    ends.iloc[row, list(ends.columns).index(column)] = value
    return ends


def _mutate(ends, factuals):
    factuals.iloc[0, 0] = 0.123
    return ends


def _draw(ends, factuals):
    np.random.random()  # noqa: NPY002
    return ends


class _Changing:
    def __init__(self):
        self.calls = 0

    def __call__(self, ends, factuals):
        self.calls += 1
        return _put(ends, "length_of_stay", 0.5 + 0.001 * self.calls)


#: Changes to the result, and the checks that must fail.
MUTANTS = {
    "an array": (lambda ends, factuals: ends.to_numpy(), {"shape", "columns", "NaN only on failure", "bounds"}),
    "a row is missing": (lambda ends, factuals: ends.iloc[1:], {"shape"}),
    "another column": (lambda ends, factuals: ends.assign(score=0.0), {"columns"}),
    "columns in another order": (lambda ends, factuals: ends[ends.columns[::-1]], {"columns"}),
    "renumbered": (lambda ends, factuals: ends.reset_index(drop=True), {"index"}),
    "partly missing": (lambda ends, factuals: _put(ends, "age", np.nan), {"NaN only on failure"}),
    "infinite": (lambda ends, factuals: _put(ends, "length_of_stay", np.inf), {"NaN only on failure"}),
    "the factual again": (
        lambda ends, factuals: factuals[ends.columns],
        {"NaN only on failure"},
    ),
    "outside": (lambda ends, factuals: ends.assign(priors_count=ends["priors_count"] - 2), {"bounds"}),
    "immutable": (lambda ends, factuals: ends.assign(age=ends["age"] + 0.001), {"immutables"}),
    "no category": (lambda ends, factuals: _put(ends, "c_charge_degree_M", 0.5), {"valid encodings"}),
    "changes its input": (_mutate, {"input not mutated"}),
    "global generator": (_draw, {"seeds are local"}),
    "another result every time": (_Changing(), {"same seed, same result"}),
    "first column of the factuals": (
        lambda ends, factuals: ends.assign(length_of_stay=factuals.iloc[:, 0] * 0.1),
        {"order of columns"},
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_detected(name, compas_linear, factuals):
    modify, expected = MUTANTS[name]
    method = Good(compas_linear)
    method.modify = modify
    found = checks.contract_failures(method, factuals)
    assert expected <= set(found), found
    with pytest.raises(ContractError, match="violates the contract"):
        checks.check_recourse_method(method, factuals)


def test_unmodified_method_passes(compas_linear, factuals):
    assert checks.contract_failures(Good(compas_linear), factuals) == {}


def test_false_claim_is_detected(compas_linear, factuals):
    probe = baselines.Probe(compas_linear, {"n_steps": 300})
    true, stored = probe.claim(), probe.get_counterfactuals(factuals)
    method = Good(compas_linear)
    method.modify = lambda ends, factuals: stored.set_axis(factuals.index, axis=0)
    method.claim = lambda: dataclasses.replace(true, words="too good", limit=0.2)
    assert "too good" in checks.contract_failures(method, factuals)["claimed robustness"]
    method.claim = lambda: Claim(true.words, true.limit, true.evaluate)
    assert checks.contract_failures(method, factuals) == {}


def test_method_that_always_raises_is_reported_once(compas_linear, factuals):
    class Raises(Good):
        def get_counterfactuals(self, factuals):
            raise RuntimeError("no luck today")

    assert checks.contract_failures(Raises(compas_linear), factuals) == {
        "shape": "raises RuntimeError: no luck today",
    }


def test_checks_can_be_skipped_by_name(compas_linear, factuals):
    method = Good(compas_linear)
    method.modify = _draw
    checks.check_recourse_method(method, factuals, skip=["seeds are local"])
    with pytest.raises(RoseCarlaError, match="Unknown checks"):
        checks.check_recourse_method(method, factuals, skip=["seeds"])
    for skip in (None, 5, [5]):
        with pytest.raises(RoseCarlaError, match="Unknown checks"):
            checks.check_recourse_method(method, factuals, skip=skip)
    with pytest.raises(RoseCarlaError, match="is unknown: pass it as mlmodel"):
        checks.check_recourse_method(method, factuals, mlmodel="x")


def test_global_generators_are_restored(compas_linear, factuals):
    before = global_state()
    method = Good(compas_linear)
    method.modify = _draw
    checks.contract_failures(method, factuals)
    assert global_state() == before
