"""ROAR: the worst shift against linear programmes and all corners, its results under every shift."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from rose_carla import models
from baseline_examples import array, check_legal, linear, numbers_only, one_category, weights_of
from rose_carla.baselines import Roar, roar
from rose_carla.baselines.gradient_descent import linear_weights, probability_surrogate
from scipy.optimize import linprog
from scipy.special import logit
from sklearn.linear_model import Ridge


def problem(d, n=12, seed=0):
    """Random weights, bias and points, also outside of [0, 1]."""
    rng = np.random.default_rng([seed, d])
    return rng.normal(size=d), rng.normal(), rng.uniform(-1, 2, size=(n, d))


def worst_of(points, weights, bias, max_shift):
    values = torch.tensor(points @ weights + bias)
    return roar.worst_logit(values, torch.tensor(points), max_shift).numpy()


def corners(d, max_shift):
    """All shifts (2^(d+1), d+1) in which every weight and the bias shift as far as they may."""
    return max_shift * np.array(list(itertools.product((-1.0, 1.0), repeat=d + 1)))


@pytest.fixture(scope="module")
def people(compas_linear):
    return models.negative_instances(compas_linear)


@pytest.mark.parametrize("max_shift", [0.01, 0.3])
@pytest.mark.parametrize("d", [1, 3, 7])
def test_worst_logit_against_all_corners(d, max_shift):
    weights, bias, points = problem(d)
    shifts = corners(d, max_shift)
    logits = points @ (weights + shifts[:, :-1]).T + bias + shifts[:, -1]
    np.testing.assert_allclose(worst_of(points, weights, bias, max_shift), logits.min(axis=1), atol=1e-12)


@pytest.mark.parametrize("d", [2, 10])
def test_worst_logit_against_a_linear_programme(d):
    weights, bias, points = problem(d, seed=1)
    for point, worst in zip(points, worst_of(points, weights, bias, 0.2), strict=True):
        solved = linprog(np.append(point, 1.0), bounds=[(-0.2, 0.2)] * (d + 1), method="highs")
        assert worst == pytest.approx(point @ weights + bias + solved.fun)


def test_worst_logit_without_shift_is_the_logit():
    weights, bias, points = problem(5)
    np.testing.assert_array_equal(worst_of(points, weights, bias, 0.0), points @ weights + bias)


def test_worst_loss_increases_with_the_shift():
    weights, bias, points = problem(5, n=200)
    losses = np.stack(
        [np.logaddexp(0, -worst_of(points, weights, bias, shift)) for shift in (0, 0.01, 0.02, 0.1, 0.5, 2)]
    )
    assert (np.diff(losses, axis=0) > 0).all()


@pytest.mark.parametrize("max_shift", [0.0, 0.2, 0.6])
def test_one_feature_ends_where_the_derivative_is_zero(max_shift):
    """(w - shift) * (1 - sigmoid(worst)) = lambda; without a shift it is cross-entropy and distance alone."""
    weight, bias, weight_of_distance = 8.0, -4.0, 1.0
    data = numbers_only(np.linspace(0, 1, 40)[:, None], name="one")
    model = linear(data, [weight], bias, ["x0"])
    factuals = data.df[data.df["x0"] < 0.4].head(5)
    hyperparams = {
        "max_shift": max_shift,
        "distance_weight": weight_of_distance,
        "convergence": 1e-7,
        "learning_rate": 0.005,
        "n_steps": 3000,
    }
    ends = Roar(model, hyperparams).get_counterfactuals(factuals)["x0"].to_numpy()
    steep = weight - max_shift
    expected = (logit(1 - weight_of_distance / steep) - bias + max_shift) / steep
    assert expected < 1
    np.testing.assert_allclose(ends, expected, atol=5e-3)
    # the same by looking at all points
    grid = np.linspace(0, 1, 20_001)
    for start, end in zip(factuals["x0"], ends, strict=True):
        total = np.logaddexp(0, -worst_of(grid[:, None], np.array([weight]), bias, max_shift))
        total = total + weight_of_distance * np.abs(grid - start)
        assert np.interp(end, grid, total) < total.min() + 1e-3


@pytest.mark.parametrize("max_shift", [0.01, 0.1])
def test_linear_classifiers_stay_favourable_under_every_shift(compas_linear, people, max_shift):
    factuals = people.head(40)
    method = Roar(compas_linear, {"max_shift": max_shift})
    found = method.get_counterfactuals(factuals).to_numpy()
    ok = np.isfinite(found).all(axis=1)
    assert ok.mean() > 0.9
    starts, ends = array(compas_linear, factuals)[ok], found[ok]
    check_legal(compas_linear, starts, ends)
    weights, bias = weights_of(compas_linear)
    shifts = corners(len(weights), max_shift)
    logits = ends @ (weights + shifts[:, :-1]).T + bias + shifts[:, -1]
    assert (logits > -1e-5).all()
    claim = method.claim()
    rates = claim.evaluate(starts, list((ends - starts)[:, None]), 500, np.random.default_rng(0), 0.95)
    assert claim.limit == 0
    assert (rates.rate == 0).all()


def test_infeasible_people_get_nan(compas_linear, people):
    """The best corner of the box shows who can be accepted robustly."""
    starts, (weights, bias) = array(compas_linear, people), weights_of(compas_linear)
    order, immutables = compas_linear.feature_input_order, compas_linear.data.immutables
    free = np.array([not name.startswith(tuple(immutables)) for name in order])
    max_shift = 0.8
    best = np.where(free, weights > max_shift, starts)  # a feature is worth its weight less the shift
    reach = worst_of(best, weights, bias, max_shift)
    assert (reach > 0.05).any()
    assert (reach < -0.05).any()
    found = Roar(compas_linear, {"max_shift": max_shift}).get_counterfactuals(people).to_numpy()
    ok = np.isfinite(found).all(axis=1)
    assert not ok[reach < 0].any()
    assert ok[reach > 0.05].all()


def test_larger_shift_needs_a_larger_margin(compas_linear, people):
    """Also with a large distance weight, which keeps points near the border."""
    weights, bias = weights_of(compas_linear)
    margins = []
    for max_shift in (0.0, 0.05, 0.2):
        method = Roar(compas_linear, {"max_shift": max_shift, "learning_rate": 0.01, "distance_weight": 0.5})
        ends = method.get_counterfactuals(people.head(30)).to_numpy()
        margins.append(ends @ weights + bias)
    both = np.isfinite(margins).all(axis=0)
    assert both.mean() > 0.5
    means = np.array(margins)[:, both].mean(axis=1)
    assert (np.diff(means) > 0).all()


def test_networks_are_robust_to_first_order(compas_ann):
    factuals = models.negative_instances(compas_ann).head(20)
    method = Roar(compas_ann, {"max_shift": 0.05})
    ends = method.get_counterfactuals(factuals).to_numpy()
    assert np.isfinite(ends).mean() > 0.9
    ends = ends[np.isfinite(ends).all(axis=1)]
    # the tangent at the end has the network's own value there
    values = models.probability(compas_ann)(ends)
    assert (logit(values) - 0.05 * (np.abs(ends).sum(axis=1) + 1) > -1e-4).all()
    assert method.claim() is None


def test_quirks_leave_the_bounds_but_not_the_categories(compas_ann):
    factuals = models.negative_instances(compas_ann).head(15)
    starts = array(compas_ann, factuals)
    right, odd = (
        Roar(compas_ann, {"reference_quirks": quirks}).get_counterfactuals(factuals).to_numpy()
        for quirks in (False, True)
    )
    ok = np.isfinite(odd).all(axis=1)
    assert ok.any()
    assert odd[ok].min() < -0.1
    assert 0 <= np.nanmin(right) <= np.nanmax(right) <= 1
    numeric = [compas_ann.feature_input_order.index(name) for name in compas_ann.data.continuous]
    assert (np.delete(odd, numeric, axis=1) == np.delete(starts, numeric, axis=1))[ok].all()
    assert (np.delete(right, numeric, axis=1) != np.delete(starts, numeric, axis=1)).any()


def test_quirks_never_change_categories():
    """The number alone would have to go far out of [0, 1], which quirks allow."""
    model = one_category(yes=8.0, number=1.0, bias=-4.0)
    factuals = model.data.df[model.data.df["job_yes"] == 0].head(4)
    right, odd = (Roar(model, {"reference_quirks": quirks}).get_counterfactuals(factuals) for quirks in (False, True))
    assert (right["job_yes"] == 1).all()
    assert (odd["job_yes"] == 0).all()
    assert (odd["x0"] > 4).all()


def test_detection_of_linear_classifiers(compas_linear, compas_ann):
    weights, bias = linear_weights(models.logit(compas_linear), compas_linear)
    expected = weights_of(compas_linear)
    np.testing.assert_allclose(weights, expected[0], rtol=1e-6)
    assert bias == pytest.approx(expected[1])
    assert linear_weights(models.logit(compas_ann), compas_ann) is None


def test_published_surrogate_is_a_weighted_ridge_regression_on_probabilities(compas_ann):
    rows = array(compas_ann, models.negative_instances(compas_ann).head(3))
    train = array(compas_ann, compas_ann.data.df_train)
    surrogate = probability_surrogate(models.logit(compas_ann), rows, compas_ann, seed=4)
    unit = torch.randn(1000, rows.shape[1], generator=torch.Generator().manual_seed(4)).double().numpy()
    near = np.exp(-(unit**2).sum(axis=1) / (0.75**2 * rows.shape[1]))
    elsewhere = np.random.default_rng(0).random((6, rows.shape[1]))
    for number, row in enumerate(rows):
        around = row + unit * train.std(axis=0)
        ridge = Ridge(alpha=1.0).fit(around, models.probability(compas_ann)(around), sample_weight=near)
        points = torch.tensor(elsewhere, dtype=torch.float32)
        np.testing.assert_allclose(surrogate(torch.full((6,), number))(points), ridge.predict(elsewhere), atol=1e-4)
    # probabilities in place of logits: rejected rows are above 0 already
    assert (ridge.predict(rows[2:]) > 0).all()
    assert (models.probability(compas_ann)(rows) < 0.5).all()
