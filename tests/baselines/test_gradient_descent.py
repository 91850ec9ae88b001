"""Gradient descent of the baselines: Adam against torch's, constraints against the data set."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import datasets, models
from rose_carla._lib.runtime import Deadline
from rose_carla.baselines.gradient_descent import Batch, Constraints, Schedule, _State, descend
from rose_carla.models.networks import Network
from tqdm.auto import tqdm

ORDER = ["home_none", "home_own", "home_rent", "income", "married_yes", "savings"]
HOMES, INCOME, MARRIED, SAVINGS = [0, 1, 2], 3, 4, 5


def household(immutables=()):
    """Two continuous features, one of three categories and one of two."""
    rng = np.random.default_rng(0)
    people = pd.DataFrame(
        {
            "income": rng.uniform(0, 9, 60),
            "savings": rng.uniform(-1, 1, 60),
            "home": ["rent", "own", "none"] * 20,
            "married": ["yes", "no"] * 30,
            "loan": rng.integers(2, size=60),
        }
    )
    data = datasets.from_frame(people, "loan", name="household", immutables=immutables)
    return models.TorchModel(data, Network(len(ORDER), generator=torch.Generator().manual_seed(0)), ORDER)


@pytest.fixture(scope="module")
def model():
    return household()


def points(n=500, low=-0.5, high=1.5):
    return torch.rand(n, len(ORDER), generator=torch.Generator().manual_seed(1)) * (high - low) + low


def run(rows, objective, accept, constraints, schedule):
    with tqdm(disable=True) as bar:
        return descend(np.asarray(rows, dtype=float), objective, accept, constraints, schedule, Deadline(3600), bar)


def always(batch, change):
    return torch.ones(len(batch.points), dtype=torch.bool)


def never(batch, change):
    return ~always(batch, change)


@pytest.mark.parametrize("rate", [0.1, 1e-3])
def test_adam_step_equals_torch(rate):
    start = torch.tensor([[0.3, -0.8, 0.5]], dtype=torch.double)
    theirs = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([theirs], lr=rate, amsgrad=True)
    state = _State(start)

    def gradient(at, step):
        # steep at first and noisy, so that the largest square is not the last one
        return torch.cos(7 * at) * 5.0 / (1 + step) + 0.1 * torch.sin(torch.tensor(3.0 * step)) + at

    for step in range(200):
        theirs.grad = gradient(theirs.detach(), step)
        state.points = state.adam_step(gradient(state.points, step), rate)
        optimiser.step()
        torch.testing.assert_close(state.points, theirs.detach(), rtol=0, atol=1e-9)


def test_restart_resets_the_moments_of_chosen_rows():
    state, fresh = _State(torch.zeros(2, 1)), _State(torch.zeros(1, 1))
    for _ in range(5):
        state.points = state.adam_step(torch.tensor([[1.0], [1.0]]), 0.1)
    before = state.points.clone()
    state.restart(torch.tensor([True, False]))
    assert state.round.tolist() == [1, 0]
    assert state.step.tolist() == [0, 5]
    moved = state.adam_step(torch.tensor([[-2.0], [-2.0]]), 0.1) - before
    torch.testing.assert_close(moved[:1], fresh.adam_step(torch.tensor([[-2.0]]), 0.1))
    assert moved[1] < 0 < moved[0]  # the momentum of the second row is kept


def test_categories_are_rounded_to_the_nearest_encoding(model):
    some = points()
    found = Constraints(model).round_categories(some)
    expected = datasets.project_categories(model.data, ORDER, some.double().numpy())
    np.testing.assert_array_equal(found[:, [*HOMES, MARRIED]], expected[:, [*HOMES, MARRIED]])
    torch.testing.assert_close(found[:, [INCOME, SAVINGS]], some[:, [INCOME, SAVINGS]], rtol=0, atol=0)
    assert {tuple(row) for row in found[:, HOMES].tolist()} == {(1, 0, 0), (0, 1, 0), (0, 0, 1)}


def test_straight_through_gradients(model):
    some, weights = points().requires_grad_(), torch.arange(1.0, 7.0)
    rounded = Constraints(model).round_categories(some)
    (gradient,) = torch.autograd.grad((rounded**2 @ weights).sum(), some)
    torch.testing.assert_close(gradient, 2 * rounded.detach() * weights)


@pytest.mark.parametrize(
    ("categories", "mutable"),
    [("valid", [1, 1, 1, 0, 1, 1]), ("fixed", [0, 0, 0, 0, 0, 1]), ("relaxed", [1, 1, 1, 0, 1, 1])],
)
def test_immutable_features_are_unchanged_bit_for_bit(categories, mutable):
    constraints = Constraints(household(immutables=["income"]), categories)
    assert constraints.mutable.tolist() == [bool(each) for each in mutable]
    start = points(low=0, high=1)
    inside = constraints.project(points(), start)
    assert (inside[:, ~constraints.mutable] == start[:, ~constraints.mutable]).all()
    assert (inside[:, constraints.mutable] != start[:, constraints.mutable]).any(dim=0).all()


def test_immutable_categories_are_not_rounded():
    constraints, some = Constraints(household(immutables=["home", "married"])), points()
    torch.testing.assert_close(constraints.round_categories(some), some, rtol=0, atol=0)


def test_values_are_clipped_to_the_unit_interval_or_the_factual(model):
    some, start = points(low=-2, high=3), points(low=0, high=1)
    torch.testing.assert_close(Constraints(model).project(some, start), some.clamp(0, 1))
    torch.testing.assert_close(Constraints(model, "relaxed", clamp=False).project(some, start), some)
    start[:, INCOME], start[:, SAVINGS] = 1.2, -0.3
    inside = Constraints(model).project(some, start)
    torch.testing.assert_close(inside[:, INCOME], some[:, INCOME].clamp(0, 1.2))
    torch.testing.assert_close(inside[:, SAVINGS], some[:, SAVINGS].clamp(-0.3, 1))


@pytest.mark.parametrize("categories", ["fixed", "relaxed"])
def test_other_treatments_of_categories_do_not_round(model, categories):
    some = points()
    torch.testing.assert_close(Constraints(model, categories).round_categories(some), some, rtol=0, atol=0)


def test_descent_finds_the_constrained_minimum(model):
    """Separable quadratic with known minimum."""
    goal = torch.tensor([0.0, 1.0, 0.0, 1.4, 1.0, 0.37])
    constraints = Constraints(model)
    rows = constraints.round_categories(points(20, 0, 1)).numpy()

    def objective(batch):
        return ((batch.points - goal) ** 2).sum(dim=1)

    def accept(batch, change):
        return (batch.points - goal.clamp(0, 1)).abs().amax(dim=1) < 1e-2

    found = run(rows, objective, accept, constraints, Schedule((0.0,), 1000, 0.05))
    np.testing.assert_allclose(found, np.tile(goal.clamp(0, 1), (20, 1)), atol=1e-2)
    np.testing.assert_array_equal(found[:, [*HOMES, MARRIED]], np.tile([0, 1, 0, 1], (20, 1)))


def test_cheapest_accepted_point_is_kept(model):
    """The loss leads away from the factual: later points cost more, so the first accepted one is the answer."""
    rows, constraints = np.full((1, 6), 0.5), Constraints(model, "relaxed")
    seen = []

    def objective(batch):
        return -batch.points[:, SAVINGS]

    def accept(batch, change):
        seen.append(batch.points[0, SAVINGS].item())
        return batch.points[:, SAVINGS] > 0.7

    found = run(rows, objective, accept, constraints, Schedule((0.0,), 100, 0.01, patience=30))
    assert found[0, SAVINGS] == pytest.approx(min(value for value in seen if value > 0.7), abs=1e-6)
    assert found[0, SAVINGS] < 0.715
    np.testing.assert_array_equal(np.delete(found, SAVINGS, axis=1), np.delete(rows, SAVINGS, axis=1))


def test_patience_finds_cheaper_points(model):
    """A large distance weight leads back once the loss is 0."""
    rows, constraints = np.full((1, 6), 0.5), Constraints(model, "relaxed")

    def objective(batch):
        return 40 * (0.7 - batch.points[:, SAVINGS]).clamp_min(0)

    def accept(batch, change):
        return batch.points[:, SAVINGS] > 0.7

    costs = [
        np.abs(run(rows, objective, accept, constraints, Schedule((1.0,), 2000, 0.05, patience)) - rows).sum()
        for patience in (0, 1000)
    ]
    assert 0.2 < costs[1] < costs[0]
    assert costs[1] == pytest.approx(0.2, abs=5e-3)


@pytest.mark.parametrize(("weights", "steps"), [((0.5,), 7), ((0.5, 0.25, 0.0), 21)])
def test_all_rounds_run_without_an_accepted_point(model, weights, steps):
    batches = []

    def objective(batch: Batch):
        batches.append(batch)
        return batch.points.sum(dim=1)

    found = run(np.full((3, 6), 0.5), objective, never, Constraints(model), Schedule(weights, 7, 0.01))
    assert np.isnan(found).all()
    assert len(batches) == steps
    assert all(batch.rows.tolist() == [0, 1, 2] for batch in batches)


def test_acceptance_at_the_end_of_rounds_only(model):
    steps, asked = [], []

    def objective(batch):
        steps.append(1)
        return batch.points.sum(dim=1)

    def accept(batch, change):
        asked.append(len(steps))
        return torch.tensor([len(steps) > 10])

    schedule = Schedule((0.0, 0.0), 10, 0.01, every_step=False)
    run(np.full((1, 6), 0.5), objective, accept, Constraints(model), schedule)
    assert asked == [10, 20]


def test_accepted_rows_start_no_new_round(model):
    """Patience ends with the round."""
    batches = []

    def objective(batch):
        batches.append(batch.rows.tolist())
        return batch.points.sum(dim=1)

    def accept(batch, change):
        return batch.rows == 1

    run(np.full((2, 6), 0.5), objective, accept, Constraints(model), Schedule((0.0, 0.0), 10, 0.01, patience=100))
    assert batches == [[0, 1]] * 10 + [[0]] * 10


def test_stalled_round_ends_early(model):
    batches = []

    def objective(batch):
        batches.append(1)
        return 0 * batch.points.sum(dim=1) + 1.0

    run(
        np.full((1, 6), 0.5), objective, never, Constraints(model, "relaxed"), Schedule((0.0, 0.0), 1000, 0.01, stall=5)
    )
    assert len(batches) == pytest.approx(5 + 4 * 5, abs=3)


def test_finished_rows_are_dropped(model):
    sizes = []

    def objective(batch):
        sizes.append(batch.rows.tolist())
        return batch.points.sum(dim=1)

    def accept(batch, change):
        return torch.tensor([row < len(sizes) for row in batch.rows.tolist()])

    found = run(np.full((4, 6), 0.5), objective, accept, Constraints(model, "relaxed"), Schedule((0.0,), 50, 0.01))
    assert np.isfinite(found).all()
    assert sizes == [[0, 1, 2, 3], [1, 2, 3], [2, 3], [3]]
    lengths = np.abs(found - 0.5).max(axis=1)
    np.testing.assert_allclose(lengths, [0, 0.01, 0.02, 0.03], atol=1e-4)
