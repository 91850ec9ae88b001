"""Plans on a table with outliers, and with units and noise of single features, from the table to the metrics."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import Benchmark, RoseMul, RoseOne, datasets, models
from rose_carla.mdp import check_mdp
from rose_carla.metrics import AccAIR, GaussianAIR, PlausibleAIR
from rose_carla.noise import (
    GaussianNoise,
    PlausibleNoise,
    accumulated_invalidation_rate,
    common_noise,
    density_of,
    linear_invalidation_rate,
)

#: Little training, for tests that do not depend on quality.
BRIEF = {"ppo": {"n_updates": 6, "n_envs": 64, "n_steps": 16}, "progress": False}


def people(n=1500, seed=0):
    """Incomes and debt ratios of a few per cent of the people are out of all proportion."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"age": rng.integers(20, 70, n), "income": rng.lognormal(8, 0.4, n), "ratio": rng.beta(2, 4, n)}
    )
    score = frame["income"] / 1000 - 5 * frame["ratio"] + rng.normal(0, 0.3, n)
    rich, strange = rng.choice(n, 10, replace=False), rng.choice(n, 30, replace=False)
    frame.loc[rich, "income"] = rng.uniform(1e5, 2e6, 10)
    frame.loc[strange, "ratio"] = rng.uniform(50, 1200, 30)
    frame["loan"] = (score > 1.5).astype(int)
    return frame


def train(kind="ann", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = datasets.from_frame(people(), "loan", name="strange", immutables=["age"], **options)
    return models.train(data, kind, use_cache=False)


@pytest.fixture(scope="module")
def method():
    return RoseOne(train(units={"income": 100}), BRIEF)


def test_plans_stay_where_the_data_are(method):
    data = method._mlmodel.data
    factuals = models.negative_instances(method._mlmodel, split="all")
    strange = factuals[factuals["ratio"] > 0.95].head(5)
    plans = method.plan(pd.concat([factuals[factuals["ratio"] <= 0.95].head(60), strange]))
    steps = [step for plan in plans for step in plan.steps]
    assert len(steps) > 30
    reachable = {name: datasets.scaling.reachable_values(data, name) for name in ("income", "ratio")}
    assert reachable["income"][1] < 20_000
    assert reachable["ratio"][1] < 2
    for step in steps:
        low, high = reachable[step.feature]
        inward = min(step.before, low) - 1e-9 <= step.after <= max(step.before, high) + 1e-9
        assert inward
        if low <= step.before <= high:
            assert low - 1e-9 <= step.after <= high + 1e-9
    # ordinary people change their income by thousands, not by millions
    moves = [abs(step.after - step.before) for step in steps if step.feature == "income"]
    assert 50 < np.median(moves) < 5000
    units = [step.size * 100 for step in steps if step.feature == "income"]
    np.testing.assert_allclose(units, moves, rtol=1e-9)


def test_with_outliers_in_the_scale_a_unit_is_out_of_proportion():
    """The reason for robust scales: with the same options a unit is several times the income of most people."""
    model = train(scale="minmax")
    space = RoseOne(model, {"fit": False}).space
    j = model.feature_input_order.index("income")
    step = model.data.scaler.inverse_transform(np.full((1, 3), space.units[j]))[0, 1]
    assert step > 10 * people()["income"].median()


def test_the_action_space_has_units_and_bounds_of_the_data(method):
    data, order, space = method._mlmodel.data, method._mlmodel.feature_input_order, method.space
    income, ratio = order.index("income"), order.index("ratio")
    assert space.units[ratio] == 0.025
    assert space.units[income] == datasets.encoded_unit(data, "income")
    assert (space.lower[income], space.upper[income]) == (0.0, 0.95)
    rows = data.df_train[order].to_numpy(dtype=float)
    outside = rows[rows[:, ratio] > 0.95]
    mask = space.mask(outside)
    up = [k for k in range(space.n) if space.features[space.feature_numbers[k]].name == "ratio" and space.moves[k] > 0]
    assert not mask[:, up].any()
    check_mdp(method.mdp(rows[method.task.probability(rows) <= 0.5]))


def test_metrics_use_the_noise_and_the_units_of_the_data():
    model = train("linear", noise={"income": 0.3, "ratio": 2.0}, units={"income": 100})
    order, data = model.feature_input_order, model.data
    scale = np.array([{"income": 0.3, "ratio": 2.0}.get(column, 1.0) for column in order])
    factuals = models.negative_instances(model).head(6)
    ends = factuals.copy()
    ends["income"] = 0.9
    rows = ends[order].to_numpy(dtype=float)
    values = (
        models.logit(model)(torch.tensor(np.vstack([np.zeros(3), np.eye(3)]), dtype=torch.float32)).detach().numpy()
    )
    bias, weights = float(values[0]), (values[1:] - values[0]).astype(float)
    noise = PlausibleNoise(density_of(model))
    np.testing.assert_array_equal(noise.density.relative_noise, scale)
    options = {"n_samples": 20_000}
    for metric, kind in ((GaussianAIR, GaussianNoise(scale)), (PlausibleAIR, noise)):
        found = metric(model, options).get_evaluation(factuals, ends).iloc[:, 0]
        exact = linear_invalidation_rate(rows, kind, 0.01, weights, bias)
        np.testing.assert_allclose(found, exact, atol=0.02)
    units = np.array([datasets.encoded_unit(data, column) or 0.025 for column in order])
    starts = factuals[order].to_numpy(dtype=float)
    plans = [(end - start)[None] for start, end in zip(starts, rows, strict=True)]
    expected = accumulated_invalidation_rate(
        models.favourable(model), starts, plans, noise, 0.0005, units, 200, common_noise([0, 2], range(6))
    )
    found = AccAIR(model, {"n_samples": 200}).get_evaluation(factuals, ends)
    np.testing.assert_array_equal(found["Acc_AIR"], expected.rate)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [RoseOne, RoseMul])
def test_plans_are_robust_to_the_noise_of_the_data(kind):
    model = train("linear", noise={"income": 0.3}, units={"income": 200})
    method = kind(model, BRIEF)
    factuals = models.negative_instances(model).head(20)
    metric = "Plausible_AIR" if kind is RoseOne else "Acc_AIR"
    rates = Benchmark(model, method, factuals, {"n_samples": 500}).compute_metric(metric)[metric].dropna()
    assert len(rates) >= 15
    assert (rates < 0.3).all()
    assert rates.mean() < 0.25
