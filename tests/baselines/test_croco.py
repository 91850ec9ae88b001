"""CROCO: its bound against closed forms for linear classifiers, its results against the bound on fresh noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rose_carla import models
from baseline_examples import array, check_legal, linear, numbers_only, one_category, weights_of
from rose_carla.baselines import Croco, CrocoSettings, croco
from rose_carla.errors import PlanError
from scipy.special import expit, logit, ndtr

#: Less work than by default, and the same result on a linear classifier.
BRIEF = {"n_steps": 300, "n_gradient": 20}
NODES, SHARES = np.polynomial.hermite_e.hermegauss(80)


def rate(points, weights, bias, threshold=0.5, deviation=0.1):
    """Closed form: probability that noise leads to h <= t."""
    return ndtr((logit(threshold) - points @ weights - bias) / (deviation * np.linalg.norm(weights)))


def exact_theta(points, weights, bias, deviation=0.1):
    """E[1 - h] under noise, by Gauss-Hermite quadrature along the normal of the border."""
    logits = (points @ weights + bias)[:, None] + deviation * np.linalg.norm(weights) * NODES
    return (expit(-logits) * SHARES).sum(axis=1) / SHARES.sum()


@pytest.fixture(scope="module")
def people(compas_linear):
    return models.negative_instances(compas_linear).head(20)


@pytest.fixture(scope="module")
def found(compas_linear, people):
    return Croco(compas_linear, BRIEF).get_counterfactuals(people).to_numpy()


@pytest.mark.parametrize(
    ("slack", "n", "threshold", "steepness"),
    [(0.1, 50, 0.01, 4000.0), (0.1, 500, 0.5, 3.0), (0.05, 100, 0.01, 4000.0), (0.03, 300, 0.01, 4000.0)],
)
def test_coverage_of_the_bound(slack, n, threshold, steepness):
    """With a steep classifier and a low threshold it is nearly tight, so a wrong formula would show."""
    weights, bias = steepness * np.array([0.6, -0.8]), 0.0
    points = torch.tensor([[0.05, 0.05], [0.0, 0.0], [0.1, 0.02]], dtype=torch.double)
    true = rate(points.numpy(), weights, bias, threshold)
    generator, n_seeds = torch.Generator().manual_seed(0), 1500
    held = np.zeros(3)
    without = np.zeros(3)
    for _ in range(n_seeds):
        noise = 0.1 * torch.randn(n, 2, generator=generator, dtype=torch.double)
        thetas = croco.theta(lambda rows: rows @ torch.tensor(weights) + bias, points, noise)
        held += croco.bound(thetas, slack, threshold).numpy() >= true
        without += croco.bound(thetas, 0.0, threshold).numpy() >= true
    promised = 1 - np.exp(-2 * slack**2 * n)
    assert (held / n_seeds >= promised - 3 * np.sqrt(promised * (1 - promised) / n_seeds)).all()
    if steepness > 10:  # there the slack is what makes it hold
        assert (without / n_seeds < 0.75).all()


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.8])
def test_bound_is_affine_in_the_slack(threshold):
    theta = torch.tensor([0.0, 0.1, 0.35], dtype=torch.double)
    slacks = np.array([0.0, 0.05, 0.1, 0.4])
    bounds = np.stack([croco.bound(theta, slack, threshold).numpy() for slack in slacks])
    slopes = np.diff(bounds, axis=0) / np.diff(slacks)[:, None]
    np.testing.assert_allclose(slopes, 1 / (1 - threshold))
    np.testing.assert_allclose(bounds[0], theta / (1 - threshold))


def test_theta_is_the_mean_over_noise_for_any_chunk_size(monkeypatch, compas_ann):
    g, width = models.logit(compas_ann), len(compas_ann.feature_input_order)
    generator = torch.Generator().manual_seed(0)
    points, noise = (make(n, width, generator=generator) for make, n in ((torch.rand, 9), (torch.randn, 13)))
    predict = models.probability(compas_ann)
    slow = [np.mean([1 - predict((point + each)[None].numpy())[0] for each in noise]) for point in points]
    with torch.no_grad():
        for size in (1, 30, 10_000):
            monkeypatch.setattr(croco, "_CHUNK", size)
            np.testing.assert_allclose(croco.theta(g, points, noise), slow, atol=1e-6)
        assert croco.theta(g, points[:0], noise).shape == (0,)


def test_theta_equals_the_quadrature_for_many_samples(compas_linear):
    weights, bias = weights_of(compas_linear)
    points = np.random.default_rng(0).random((5, 7))
    noise = 0.1 * torch.randn(200_000, 7, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        sampled = croco.theta(models.logit(compas_linear), torch.tensor(points, dtype=torch.float32), noise)
    np.testing.assert_allclose(sampled, exact_theta(points, weights, bias), atol=4 * 0.25 / 200_000**0.5)


@pytest.mark.parametrize(
    ("hyperparams", "least"),
    [
        ({"target": 0.2}, "0.2"),
        ({"target": 0.15}, "0.2"),
        ({"target": 0.3, "slack": 0.2}, "0.4"),
        ({"target": 0.25, "threshold": 0.6}, "0.25"),
    ],
)
def test_unreachable_target_raises_an_error(compas_linear, hyperparams, least):
    with pytest.raises(PlanError, match=rf"must be above .* = {least}, got .* Take a larger target"):
        Croco(compas_linear, hyperparams)
    assert CrocoSettings(**{**hyperparams, "target": float(least) + 1e-3}).target > float(least)


def test_accepted_points_satisfy_the_bound(compas_linear, people, found):
    starts, (weights, bias) = array(compas_linear, people), weights_of(compas_linear)
    ok = np.isfinite(found).all(axis=1)
    assert 0.2 < ok.mean() < 0.8
    assert np.isnan(found[~ok]).all()
    check_legal(compas_linear, starts[ok], found[ok])
    bounds = (0.1 + exact_theta(found[ok], weights, bias)) / 0.5
    # what 500 samples may be off by, and the documented 0.01
    spread = np.sqrt(exact_theta(found[ok], weights, bias).max() / 500)
    assert (bounds < 0.31 + 3 * spread / 0.5).all()
    assert (rate(found[ok], weights, bias) <= bounds).all()


def test_claim_holds_on_fresh_noise(compas_linear, people, found):
    ok = np.isfinite(found).all(axis=1)
    starts, claim = array(compas_linear, people)[ok], Croco(compas_linear).claim()
    plans = list((found[ok] - starts)[:, None])
    assert claim.limit == pytest.approx(0.31)
    assert (claim.evaluate(starts, plans, 3000, np.random.default_rng(5), 0.9999).upper < claim.limit).all()
    fresh = 0.1 * torch.randn(20_000, 7, generator=torch.Generator().manual_seed(77))
    with torch.no_grad():
        thetas = croco.theta(models.logit(compas_linear), torch.tensor(found[ok], dtype=torch.float32), fresh)
    assert (croco.bound(thetas, 0.1, 0.5) < 0.34).all()


def test_bound_is_reached_wherever_feasible(compas_linear, people, found):
    """The bound decreases with the logit, so the best corner of the box shows whether it can be reached."""
    starts, (weights, bias) = array(compas_linear, people), weights_of(compas_linear)
    order, immutables = compas_linear.feature_input_order, compas_linear.data.immutables
    free = np.array([not name.startswith(tuple(immutables)) for name in order])
    corner = np.where(free, weights > 0, starts)
    lowest = (0.1 + exact_theta(corner, weights, bias)) / 0.5
    ok = np.isfinite(found).all(axis=1)
    assert ok[lowest < 0.30].all()
    assert not ok[lowest > 0.32].any()
    assert (np.abs(found - starts) <= np.abs(corner - starts) + 1e-6)[ok].all()


def test_a_looser_target_costs_less(compas_linear, people, found):
    starts = array(compas_linear, people)
    loose = Croco(compas_linear, {**BRIEF, "target": 0.6}).get_counterfactuals(people).to_numpy()
    assert np.isfinite(loose).all()
    ok = np.isfinite(found).all(axis=1)
    cost, less = (np.abs(ends - starts)[ok].sum(axis=1) for ends in (found, loose))
    assert (less < cost).all()


def test_quirks_keep_categories_and_ignore_the_bound(compas_linear, people, found):
    starts, (weights, bias) = array(compas_linear, people), weights_of(compas_linear)
    hyperparams = {"reference_quirks": True, "n_steps": 100, "n_samples": 50, "learning_rate": 0.03}
    odd = Croco(compas_linear, hyperparams).get_counterfactuals(people).to_numpy()
    numeric = [compas_linear.feature_input_order.index(name) for name in compas_linear.data.continuous]
    ok = np.isfinite(odd).all(axis=1)
    assert ok.mean() > 0.8
    assert (np.delete(odd, numeric, axis=1) == np.delete(starts, numeric, axis=1))[ok].all()
    right = np.isfinite(found).all(axis=1)
    assert (np.delete(found, numeric, axis=1) != np.delete(starts, numeric, axis=1))[right].any()
    assert models.favourable(compas_linear)(odd[ok]).all()
    bounds = (0.1 + exact_theta(odd[ok], weights, bias)) / 0.5
    assert np.median(bounds) > 0.5  # merely valid


def test_quirks_never_change_categories():
    model = one_category(yes=8.0, number=1.0, bias=-4.0)
    factuals = model.data.df[model.data.df["job_yes"] == 0].head(4)
    right, odd = (
        Croco(model, {**BRIEF, "n_steps": 100, "reference_quirks": quirks}).get_counterfactuals(factuals)
        for quirks in (False, True)
    )
    assert (right["job_yes"] == 1).all()
    assert odd.isna().all(axis=None)


def test_quirks_leave_out_the_round_without_distance(compas_linear, people, monkeypatch):
    schedules = []
    monkeypatch.setattr(
        croco, "descend", lambda rows, objective, accept, box, schedule, *rest: schedules.append(schedule) or rows
    )
    for quirks in (False, True):
        Croco(compas_linear, {"reference_quirks": quirks}).get_counterfactuals(people)
    assert schedules[0].weights == (1.0, 0.75, 0.5, 0.25, 0.0)
    assert schedules[1].weights == (1.0, 0.75, 0.5, 0.25)
    assert [schedule.every_step for schedule in schedules] == [True, False]


def test_threshold_of_favourable_points():
    """h must be above t instead of one half, and not much above it."""
    data = numbers_only(np.linspace(0, 1, 40)[:, None], name="one")
    model = linear(data, [6.0], -4.0, ["x0"])
    factuals = data.df.loc[data.df["x0"] < 0.3].head(3)
    hyperparams = {"target": 0.9, "threshold": 0.7, "slack": 0.02, "variance": 1e-4, "n_steps": 400}
    ends = Croco(model, hyperparams).get_counterfactuals(factuals)["x0"].to_numpy()
    assert np.isfinite(ends).all()
    assert (expit(6 * ends - 4) > 0.7).all()
    assert (expit(6 * ends - 4) < 0.8).all()
