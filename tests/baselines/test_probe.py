"""PROBE: its invalidation rate against closed forms and Monte Carlo, its results against bounds for linear models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rose_carla import models
from baseline_examples import array, check_legal, numbers_only, stop_after, weights_of
from rose_carla.baselines import Probe, probe
from rose_carla.datasets import project_categories
from rose_carla.noise import GaussianNoise, invalidation_rate, linear_invalidation_rate
from scipy.special import ndtr, ndtri

WEIGHTS = np.array([1.5, -2.0, 0.7])
BIAS = 0.2


def straight(rows):
    return rows @ torch.tensor(WEIGHTS) + BIAS


@pytest.fixture(scope="module")
def smooth():
    """Small smooth network in double precision."""
    generator = torch.Generator().manual_seed(3)
    first, second = (torch.randn(*shape, generator=generator, dtype=torch.double) for shape in ((6, 3), (6,)))
    return lambda rows: torch.tanh(2 * rows @ first.T + 0.3) @ second


@pytest.fixture(scope="module")
def people(compas_linear):
    return models.negative_instances(compas_linear).head(30)


def test_rate_of_a_linear_classifier_is_exact():
    rows = np.random.default_rng(0).random((40, 3))
    values, rates = probe.invalidation(straight, torch.tensor(rows), 0.01)
    np.testing.assert_allclose(values.detach(), rows @ WEIGHTS + BIAS)
    known = linear_invalidation_rate(rows, GaussianNoise(), 0.01, WEIGHTS, BIAS)
    np.testing.assert_allclose(rates.detach(), known, atol=1e-12)
    closed = 1 - ndtr((rows @ WEIGHTS + BIAS) / (0.1 * np.linalg.norm(WEIGHTS)))
    np.testing.assert_allclose(rates.detach(), closed, atol=1e-12)


def test_rate_against_monte_carlo():
    rows = np.array([[0.5, 0.6, 0.5], [0.4, 0.6, 0.4], [0.2, 0.3, 0.1]])
    n = 400_000
    rates = probe.invalidation(straight, torch.tensor(rows), 0.01)[1].detach().numpy()
    assert ((rates > 0.05) & (rates < 0.95)).all()
    noise = 0.1 * torch.randn(n, 3, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    error = 4.5 * np.sqrt(rates * (1 - rates) / n)
    assert (np.abs(probe.monte_carlo(straight, torch.tensor(rows), noise).numpy() - rates) < error).all()
    drawn = invalidation_rate(
        lambda x: x @ WEIGHTS + BIAS > 0, rows, GaussianNoise(), 0.01, n, np.random.default_rng(2)
    )
    assert (np.abs(drawn.rate - rates) < error).all()


def test_monte_carlo_against_a_loop(smooth):
    rows = torch.rand(5, 3, generator=torch.Generator().manual_seed(4), dtype=torch.double)
    noise = 0.3 * torch.randn(70, 3, generator=torch.Generator().manual_seed(5), dtype=torch.double)
    counted = [sum(float(smooth((row + each)[None])) <= 0 for each in noise) / 70 for row in rows]
    found = probe.monte_carlo(smooth, rows, noise)
    np.testing.assert_allclose(found, counted)
    assert 0 < found.mean() < 1
    assert probe.monte_carlo(smooth, rows[:0], noise).shape == (0,)


def test_gradients_of_the_rate(smooth):
    """Second derivatives against finite differences."""
    rows = torch.rand(6, 3, generator=torch.Generator().manual_seed(6), dtype=torch.double).requires_grad_()
    rates = probe.invalidation(smooth, rows, 0.5)[1]
    assert ((rates > 0.02) & (rates < 0.98)).any()
    assert torch.autograd.gradcheck(lambda x: probe.invalidation(smooth, x, 0.5), (rows,))
    # without the second derivative it would be another one
    (gradient,) = torch.autograd.grad(rates.sum(), rows)
    values = smooth(rows)
    (slope,) = torch.autograd.grad(values.sum(), rows, retain_graph=True)
    simple = torch.special.ndtr(-values / (0.5**0.5 * slope.norm(dim=1)))
    (without,) = torch.autograd.grad(simple.sum(), rows)
    assert (gradient - without).abs().max() > 1e-2


@pytest.mark.parametrize(
    "hyperparams",
    [
        {},
        {"invalidation_target": 0.2, "learning_rate": 0.01},
        {"invalidation_target": 0.3, "variance": 0.04, "tolerance": 0.0, "learning_rate": 0.01},
    ],
)
def test_rate_of_counterfactuals_of_a_linear_classifier(compas_linear, people, hyperparams):
    method = Probe(compas_linear, hyperparams)
    found = method.get_counterfactuals(people)
    assert found.notna().all(axis=None)
    starts, ends = array(compas_linear, people), found.to_numpy()
    check_legal(compas_linear, starts, ends)
    s, (weights, bias) = method.settings, weights_of(compas_linear)
    limit = s.invalidation_target + s.tolerance
    needed = ndtri(1 - limit) * s.variance**0.5 * np.linalg.norm(weights)
    assert (ends @ weights + bias >= needed - 1e-5).all()
    least = (needed - (starts @ weights + bias)).clip(0) / np.abs(weights).max()
    cost = np.abs(ends - starts).sum(axis=1)
    assert (least > 0.01).all()
    assert (cost >= least - 1e-5).all()
    # descent stops at the first accepted point: without a changed category, the last step of Adam was needed
    numeric = [compas_linear.feature_input_order.index(name) for name in compas_linear.data.continuous]
    same = np.abs(np.delete(ends - starts, numeric, axis=1)).max(axis=1) == 0
    assert same.mean() > 0.9
    assert (ends @ weights + bias)[same].max() < needed + s.learning_rate * np.abs(weights).sum() + 0.02
    claim = method.claim()
    rates = claim.evaluate(starts, list((ends - starts)[:, None]), 2000, np.random.default_rng(9), 0.9999)
    assert claim.limit == limit
    assert (rates.lower <= limit).all()


def test_networks_keep_the_rate_on_fresh_noise(compas_ann):
    factuals = models.negative_instances(compas_ann).head(20)
    ends = Probe(compas_ann, {"learning_rate": 0.005}).get_counterfactuals(factuals).to_numpy()
    assert np.isfinite(ends).all()
    check_legal(compas_ann, array(compas_ann, factuals), ends)
    accepts, rng = models.favourable(compas_ann), np.random.default_rng(7)
    rates = np.array([1 - accepts(end + 0.1 * rng.standard_normal((4000, len(end)))).mean() for end in ends])
    # accepted at 1000 samples below 0.36: four standard errors of both
    assert (rates < 0.36 + 4 * np.sqrt(0.36 * 0.64 * (1 / 1000 + 1 / 4000))).all()
    assert rates.mean() > 0.15


@pytest.mark.parametrize("half", [0.08, 0.15])
def test_monte_carlo_rejects_points_that_the_formula_accepts(half):
    """In the middle of a favourable band the gradient is 0 and so is the formula, however thin the band is."""
    data = numbers_only(np.linspace(0, 1, 40)[:, None], name="band")
    model = models.wrap(_Band(half), data, feature_order=["x0"], output="logit")
    factuals = data.df[data.df["x0"] < 0.4].head(3)
    middle = probe.invalidation(models.logit(model), torch.tensor([[0.6 + 1e-4]]), 0.01)[1]
    assert middle < 1e-3
    ends = Probe(model, {"learning_rate": 0.005}).get_counterfactuals(factuals)["x0"]
    lowest = 2 * ndtr(-half / 0.1)  # in the middle, by closed form
    if lowest > 0.36:
        assert ends.isna().all()
    else:
        away = ends - 0.6
        assert (ndtr((-half - away) / 0.1) + ndtr((-half + away) / 0.1) < 0.36 + 0.05).all()


def test_quirks_leave_the_bounds_and_the_categories(compas_linear, people):
    starts = array(compas_linear, people)
    right, odd = (
        Probe(compas_linear, {"reference_quirks": quirks}).get_counterfactuals(people).to_numpy()
        for quirks in (False, True)
    )
    assert np.isfinite(odd).all()
    assert models.favourable(compas_linear)(odd).all()
    assert odd.min() < -0.05
    assert 0 <= right.min() <= right.max() <= 1
    order, data = compas_linear.feature_input_order, compas_linear.data
    off = [np.abs(ends - project_categories(data, order, ends)).max(axis=1) for ends in (right, odd)]
    assert (off[0] == 0).all()
    assert (off[1] > 0.01).all()
    fixed = [i for i, name in enumerate(order) if name.split("_")[0] in data.immutables]
    assert (odd[:, fixed] == starts[:, fixed]).all()


def test_quirks_reward_distance_in_later_rounds(compas_linear, people, monkeypatch):
    schedules = []
    monkeypatch.setattr(
        probe, "descend", lambda rows, objective, accept, box, schedule, *rest: schedules.append(schedule) or rows
    )
    for quirks in (False, True):
        Probe(compas_linear, {"reference_quirks": quirks}).get_counterfactuals(people)
    right, odd = schedules
    assert right.weights[0] == 0.01
    assert set(right.weights[1:]) == {0.0}
    assert right.every_step
    np.testing.assert_allclose(odd.weights[:3], [0.01, -0.09, -0.19])
    assert not odd.every_step


def test_deadline_affects_unfinished_people_only(compas_linear, people, monkeypatch):
    full = Probe(compas_linear).get_counterfactuals(people)
    stop_after(monkeypatch, calls=200)
    some = Probe(compas_linear, {"timeout": 150}).get_counterfactuals(people)
    done = some.notna().all(axis=1)
    assert 0.1 < done.mean() < 0.9
    assert some[~done].isna().all(axis=None)
    np.testing.assert_array_equal(some[done], full[done])


class _Band(torch.nn.Module):
    """Favourable within ``half`` of 0.6."""

    def __init__(self, half):
        super().__init__()
        self.reach = torch.nn.Parameter(torch.tensor(float(half)))

    def forward(self, x):
        return 40 * (self.reach**2 - (x - 0.6) ** 2)
