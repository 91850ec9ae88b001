"""ARAR: the exact programme against a mixed-integer solver, closed forms, and balls full of random people."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import datasets, models
from baseline_examples import array, check_legal, cube, linear, weights_of
from rose_carla.baselines import Arar
from rose_carla.baselines.arar import adversary, cheapest_change
from rose_carla.datasets import feature_groups
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

#: Encoded columns of :func:`mixed`, with the columns of a feature apart.
ORDER = ["home_none", "age", "pet_cat", "home_own", "income", "job_yes", "home_rent", "pet_dog", "savings", "pet_none"]


def mixed(immutables=()):
    """Three continuous features, one of two categories and two of three."""
    rng = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame(
        {
            "age": rng.uniform(18, 90, n),
            "income": rng.lognormal(size=n),
            "savings": rng.normal(size=n),
            "job": rng.choice(["yes", "no"], n),
            "home": rng.choice(["rent", "own", "none"], n),
            "pet": rng.choice(["cat", "dog", "none"], n),
            "loan": rng.integers(2, size=n),
        }
    )
    return datasets.from_frame(frame, "loan", name="mixed", immutables=immutables)


def solved(model, row, needed, weights):
    """Minimum cost by a mixed-integer solver with variables x' and |x' - x|; infinite if infeasible."""
    data, order, d = model.data, model.feature_input_order, len(row)
    low, high, whole = np.zeros(2 * d), np.r_[np.ones(d), np.full(d, np.inf)], np.zeros(2 * d)
    ones = []
    for feature, columns in feature_groups(data, order).items():
        if feature in data.immutables:
            low[columns] = high[columns] = row[columns]
        elif feature in data.categorical:
            whole[columns] = 1
            if len(columns) > 1:
                one = np.zeros(2 * d)
                one[columns] = 1
                ones.append(LinearConstraint(one, 1, 1))
    same = np.eye(d)
    constraints = [
        *ones,
        LinearConstraint(np.r_[weights, np.zeros(d)], needed + row @ weights, np.inf),
        LinearConstraint(np.hstack([same, -same]), -np.inf, row),
        LinearConstraint(np.hstack([-same, -same]), -np.inf, -row),
    ]
    cost = np.r_[np.zeros(d), np.ones(d)]
    found = milp(cost, constraints=constraints, bounds=Bounds(low, high), integrality=whole)
    return found.fun if found.success else np.inf


@pytest.mark.parametrize(
    "immutables", [(), ("age",), ("home", "job"), ("age", "income", "savings"), ("job", "home", "pet")]
)
def test_cheapest_change_against_mixed_integer_solver(immutables):
    data = mixed(immutables)
    rng = np.random.default_rng(len(immutables))
    infeasible = changed = 0
    for trial in range(6):
        weights = rng.normal(size=len(ORDER)) * rng.choice([0.2, 1.0, 3.0], size=len(ORDER))
        weights[rng.integers(len(ORDER))] = 0.0
        model = linear(data, weights, 0.0, ORDER)
        rows = array(model, data.df.sample(8, random_state=trial))
        needed = rng.uniform(-0.1, 0.6, size=8) * np.abs(weights).sum()
        changes, cost = cheapest_change(rows, needed, weights, model)
        expected = np.array([solved(model, row, each, weights) for row, each in zip(rows, needed, strict=True)])
        np.testing.assert_allclose(cost, expected, atol=1e-6)
        ok = np.isfinite(cost)
        np.testing.assert_allclose(np.abs(changes).sum(axis=1)[ok], cost[ok], atol=1e-9)
        assert (changes @ weights >= needed - 1e-9)[ok].all()
        check_legal(model, rows[ok], (rows + changes)[ok])
        infeasible += (~ok).sum()
        changed += (cost[ok] > 0).sum()
    assert infeasible >= 2
    assert changed >= 4


def test_no_change_if_the_gain_is_not_needed():
    model = linear(mixed(), np.ones(len(ORDER)), 0.0, ORDER)
    rows = array(model, model.data.df.head(5))
    changes, cost = cheapest_change(rows, np.array([0.0, -1.0, -5.0, -1e-9, 0.0]), np.ones(len(ORDER)), model)
    assert (changes == 0).all()
    assert (cost == 0).all()


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.1])
def test_far_from_the_bounds_only_the_largest_weight_moves(epsilon):
    weights, bias = np.array([1.0, -6.0, 2.0, 0.5]), 1.0
    data = cube(4)
    model = linear(data, weights, bias, [f"x{i}" for i in range(4)])
    rows = 0.4 + 0.2 * np.random.default_rng(1).random((40, 4))
    rows = rows[rows @ weights + bias < 0]
    ends = Arar(model, {"epsilon": epsilon}).get_counterfactuals(pd.DataFrame(rows, columns=model.feature_input_order))
    change = ends.to_numpy() - rows
    assert (change[:, [0, 2, 3]] == 0).all()
    expected = (epsilon * np.linalg.norm(weights) - rows @ weights - bias) / 6.0
    np.testing.assert_allclose(-change[:, 1], expected, atol=1e-5)


def test_radius_zero_equals_the_linear_programme():
    weights, bias = np.array([1.5, -3.0, 2.0]), -1.2
    model = linear(cube(3), weights, bias, ["x0", "x1", "x2"])
    rows = np.random.default_rng(2).random((60, 3))
    rows = rows[rows @ weights + bias < -0.5]
    plain, robust = (
        np.abs(Arar(model, {"epsilon": epsilon}).get_counterfactuals(_frame(rows)).to_numpy() - rows).sum(axis=1)
        for epsilon in (0.0, 0.2)
    )
    for row, cost in zip(rows, plain, strict=True):
        programme = linprog(
            np.ones(6),
            A_ub=[np.r_[-weights, weights]],
            b_ub=[row @ weights + bias],
            bounds=[*((0, 1 - x) for x in row), *((0, x) for x in row)],
            method="highs",
        )
        assert cost == pytest.approx(programme.fun, abs=1e-4)
    ok = np.isfinite(robust)
    assert ok.mean() > 0.5
    assert (robust > plain + 1e-3)[ok].all()


@pytest.mark.parametrize("epsilon", [0.01, 0.1])
def test_all_points_in_the_ball_are_accepted(compas_linear, epsilon):
    factuals = models.negative_instances(compas_linear).head(20)
    method = Arar(compas_linear, {"epsilon": epsilon})
    starts, ends = array(compas_linear, factuals), method.get_counterfactuals(factuals).to_numpy()
    assert np.isfinite(ends).all()
    check_legal(compas_linear, starts, ends)
    rng, accepts = np.random.default_rng(0), models.favourable(compas_linear)
    away = rng.standard_normal((10_000, ends.shape[1]))
    away *= epsilon / np.linalg.norm(away, axis=1, keepdims=True)
    away[::2] *= rng.random((5000, 1)) ** (1 / ends.shape[1])
    weights, bias = weights_of(compas_linear)
    for end in ends:
        assert accepts(end + away).all()
        # and the worst of all just so
        worst = end - epsilon * weights / np.linalg.norm(weights)
        assert worst @ weights + bias > 0
        assert accepts(worst[None]).all()
    claim = method.claim()
    rates = claim.evaluate(starts, list((ends - starts)[:, None]), 1000, rng, 0.95)
    assert claim.limit == 0
    assert (rates.rate == 0).all()


def test_cost_equals_that_of_the_programme(compas_linear):
    factuals = models.negative_instances(compas_linear).head(20)
    starts, (weights, bias) = array(compas_linear, factuals), weights_of(compas_linear)
    ends = Arar(compas_linear).get_counterfactuals(factuals).to_numpy()
    needed = 0.01 * np.linalg.norm(weights) - (starts @ weights + bias)
    least = [solved(compas_linear, row, each, weights) for row, each in zip(starts, needed, strict=True)]
    np.testing.assert_allclose(np.abs(ends - starts).sum(axis=1), least, atol=1e-4)


@pytest.mark.parametrize("weights", [[0.0, 3.0, 3.0], [0.2, 3.0, 3.0]])
@pytest.mark.parametrize("network", [False, True])
def test_infeasible_people_get_nan(weights, network):
    """The only mutable feature has no effect, or too little."""
    data = cube(3, immutables=["x1", "x2"])
    model = linear(data, weights, -3.0, ["x0", "x1", "x2"])
    rows = np.array([[0.3, 0.2, 0.3], [0.9, 0.1, 0.2], [0.1, 0.5, 0.49]])
    if network:
        model = models.wrap(_Bent(model.raw_model), data, feature_order=["x0", "x1", "x2"], output="probability")
    ends = Arar(model, {"n_rounds": 5, "distance_weight": 0.01}).get_counterfactuals(_frame(rows))
    assert ends[:2].isna().all(axis=None)
    # the last one is so near to the border that a small weight is enough
    assert ends[2:].notna().all(axis=None) == (weights[0] > 0)
    assert ends[2:].notna().any(axis=None) == (weights[0] > 0)


def test_adversary_of_a_linear_score_is_exact():
    weights = torch.tensor([1.0, -2.0, 0.5])
    points = torch.rand(6, 3, generator=torch.Generator().manual_seed(0))
    for n_steps in (1, 10):
        worst = adversary(lambda rows: rows @ weights, points, 0.3, n_steps)
        torch.testing.assert_close(worst, (points - 0.3 * weights / weights.norm()).expand(6, 3), atol=1e-5, rtol=0)
        assert not worst.requires_grad


def test_adversary_against_exhaustive_search():
    """Exhaustive search over a disc of two features."""

    def g(rows):
        return torch.sin(4 * rows[:, 0]) + torch.cos(5 * rows[:, 1]) * rows[:, 0]

    points = torch.rand(30, 2, generator=torch.Generator().manual_seed(1))
    angles, radii = torch.linspace(0, 2 * np.pi, 400), 0.2 * torch.linspace(0, 1, 40)
    disc = torch.stack([torch.outer(radii, angles.cos()).ravel(), torch.outer(radii, angles.sin()).ravel()], dim=1)
    lowest = torch.stack([g(point + disc).min() for point in points])
    values = [g(adversary(g, points, 0.2, n_steps)) for n_steps in (1, 10)]
    for n_steps in (1, 10):
        assert ((adversary(g, points, 0.2, n_steps) - points).norm(dim=1) <= 0.2 + 1e-6).all()
    off = [(value - lowest) for value in values]
    assert (off[1] > -1e-3).all()
    assert off[1].mean() < 0.5 * off[0].mean()
    assert off[1].median() < 5e-3


def test_adversary_finds_a_minimum_inside_the_ball():
    points = torch.rand(10, 3, generator=torch.Generator().manual_seed(2))
    centres = points + 0.04
    worst = adversary(lambda rows: ((rows - centres) ** 2).sum(dim=1), points, 0.2, n_steps=50)
    assert ((worst - centres).norm(dim=1) < 0.02).all()


def test_networks_are_robust_to_first_order(compas_ann):
    factuals = models.negative_instances(compas_ann).head(25)
    method = Arar(compas_ann, {"epsilon": 0.05})
    ends = method.get_counterfactuals(factuals).to_numpy()
    assert np.isfinite(ends).all()
    check_legal(compas_ann, array(compas_ann, factuals), ends)
    g, points = models.logit(compas_ann), torch.tensor(ends, dtype=torch.float32, requires_grad=True)
    (slope,) = torch.autograd.grad(g(points).sum(), points)
    worst = (points - 0.05 * slope / slope.norm(dim=1, keepdim=True)).detach().double().numpy()
    assert models.favourable(compas_ann)(worst).all()
    assert method.claim() is None


def test_quirks_on_a_network_find_almost_nothing(compas_ann):
    factuals = models.negative_instances(compas_ann).head(40)
    right, odd = (
        Arar(compas_ann, {"reference_quirks": quirks}).get_counterfactuals(factuals).notna().all(axis=1).mean()
        for quirks in (False, True)
    )
    assert right == 1.0
    assert odd < 0.3


def test_quirks_leave_the_bounds_and_the_categories(compas_linear):
    factuals = models.negative_instances(compas_linear).head(20)
    odd = Arar(compas_linear, {"reference_quirks": True}).get_counterfactuals(factuals).to_numpy()
    assert np.nanmin(odd) < -0.05
    nearest = datasets.project_categories(compas_linear.data, compas_linear.feature_input_order, odd)
    assert np.nanmax(np.abs(nearest - odd)) > 0.05


class _Bent(torch.nn.Module):
    """Nonlinear network around a linear one."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        logit = self.inner.logit(x)
        return torch.softmax(torch.stack([torch.zeros_like(logit), logit + 0.1 * torch.tanh(logit)], dim=1), dim=1)


def _frame(rows):
    return pd.DataFrame(rows, columns=[f"x{i}" for i in range(rows.shape[1])])
