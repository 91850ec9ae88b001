"""ROSE-mul under both readings of Definition 2: a NoisyStep per unit of action, or per action."""

from __future__ import annotations

import numpy as np
import pytest
from rose_carla import RoseMul, metrics, models
from rose_carla.noise import Density, PlausibleNoise, noisy_step, unit_actions, wilson_interval

#: Little training: what is returned has passed the check however good the policy is.
BRIEF = {"ppo": {"n_updates": 3, "n_envs": 32, "n_steps": 8}}
N = 1000


@pytest.fixture(scope="module")
def people(compas_linear):
    return models.negative_instances(compas_linear).head(6)


@pytest.fixture(scope="module", params=["unit", "action"])
def method(request, compas_linear):
    return RoseMul(compas_linear, {**BRIEF, "noise_per": request.param})


@pytest.fixture(scope="module")
def ends(method, people):
    return method.get_counterfactuals(people)


def fresh_rate(model, start, plan, noise_per):
    """Follow a plan by Algorithm 1, one NoisyStep after the other, with noise that planning has not seen."""
    noise, rng = PlausibleNoise(Density.from_model(model)), np.random.default_rng(987)
    states = np.tile(start, (N, 1))
    for action in unit_actions(plan, 0.025) if noise_per == "unit" else plan:
        states = noisy_step(states, np.tile(action, (N, 1)), noise, 0.0005, 0.025, rng)
    return 1 - models.favourable(model)(states).mean()


def test_plans_pass_under_the_reading_they_are_made_for(method, ends, compas_linear, people):
    chosen, order = method.settings.noise_per, compas_linear.feature_input_order
    assert method.task.robustness.noise_per == chosen
    assert ends.notna().all(axis=1).mean() >= 0.9
    starts = people[order].to_numpy(dtype=float)
    rates = np.array(
        [
            fresh_rate(compas_linear, start, method.plans[label], chosen)
            for label, start in zip(people.index, starts, strict=True)
            if label in method.plans
        ]
    )
    assert (wilson_interval(rates * N, N, 0.99)[0] < 0.25).all()
    assert rates.mean() < 0.22
    predicted = np.array([1 - plan.success.probability for plan in method.plan(people) if plan.found])
    np.testing.assert_allclose(predicted, rates, atol=0.1)


def test_metric_of_the_same_reading_agrees(method, ends, compas_linear, people):
    chosen, order = method.settings.noise_per, compas_linear.feature_input_order
    options = {"plans": method.plans, "n_samples": N, "noise_per": chosen}
    rates = metrics.AccAIR(compas_linear, options).get_evaluation(people, ends)
    assert (rates["Acc_AIR_Lower"].dropna() < 0.25).all()
    for label, plan in method.plans.items():
        start = people.loc[label, order].to_numpy(dtype=float)
        expected = fresh_rate(compas_linear, start, plan, chosen)
        assert rates.loc[label, "Acc_AIR"] == pytest.approx(expected, abs=0.08)


def test_reading_is_saved_with_the_policy(method, ends, compas_linear, people, tmp_path):
    method.save(tmp_path / "policy.safetensors")
    again = RoseMul.load(tmp_path / "policy.safetensors", compas_linear)
    assert again.task.robustness.noise_per == method.settings.noise_per
    np.testing.assert_array_equal(again.get_counterfactuals(people).to_numpy(), ends.to_numpy())
