"""The descent of the gradient baselines: its Adam against torch's, its box against what the data set allows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import datasets, models
from rose_carla._lib.runtime import Deadline
from rose_carla.baselines.box import Box
from rose_carla.baselines.descent import Look, Schedule, _People, descend
from rose_carla.models.training import Network
from tqdm.auto import tqdm

ORDER = ["home_none", "home_own", "home_rent", "income", "married_yes", "savings"]
HOMES, INCOME, MARRIED, SAVINGS = [0, 1, 2], 3, 4, 5


def household(immutables=()):
    """Two numbers, a feature of three categories and one of two."""
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


def run(rows, objective, accept, box, schedule):
    with tqdm(disable=True) as bar:
        return descend(np.asarray(rows, dtype=float), objective, accept, box, schedule, Deadline(3600), bar)


def always(look, change):
    return torch.ones(len(look.points), dtype=torch.bool)


def never(look, change):
    return ~always(look, change)


@pytest.mark.parametrize("rate", [0.1, 1e-3])
def test_a_row_moves_as_by_adam_of_torch_at_every_step(rate):
    start = torch.tensor([[0.3, -0.8, 0.5]], dtype=torch.double)
    theirs = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([theirs], lr=rate, amsgrad=True)
    people = _People(start)

    def gradient(at, step):
        # steep at first and noisy, so that the largest square is not the last one
        return torch.cos(7 * at) * 5.0 / (1 + step) + 0.1 * torch.sin(torch.tensor(3.0 * step)) + at

    for step in range(200):
        theirs.grad = gradient(theirs.detach(), step)
        people.points = people.move(gradient(people.points, step), rate)
        optimiser.step()
        torch.testing.assert_close(people.points, theirs.detach(), rtol=0, atol=1e-9)


def test_a_row_that_begins_a_new_round_forgets_and_others_do_not():
    people, fresh = _People(torch.zeros(2, 1)), _People(torch.zeros(1, 1))
    for _ in range(5):
        people.points = people.move(torch.tensor([[1.0], [1.0]]), 0.1)
    before = people.points.clone()
    people.restart(torch.tensor([True, False]))
    assert people.round.tolist() == [1, 0]
    assert people.clock.tolist() == [0, 5]
    moved = people.move(torch.tensor([[-2.0], [-2.0]]), 0.1) - before
    torch.testing.assert_close(moved[:1], fresh.move(torch.tensor([[-2.0]]), 0.1))
    assert moved[1] < 0 < moved[0]  # its memory still carries the second one on


def test_valid_points_are_the_nearest_valid_encodings(model):
    some = points()
    found = Box(model).valid(some)
    expected = datasets.project_categories(model.data, ORDER, some.double().numpy())
    np.testing.assert_array_equal(found[:, [*HOMES, MARRIED]], expected[:, [*HOMES, MARRIED]])
    torch.testing.assert_close(found[:, [INCOME, SAVINGS]], some[:, [INCOME, SAVINGS]], rtol=0, atol=0)
    assert {tuple(row) for row in found[:, HOMES].tolist()} == {(1, 0, 0), (0, 1, 0), (0, 0, 1)}


def test_gradients_pass_through_the_rounding(model):
    some, weights = points().requires_grad_(), torch.arange(1.0, 7.0)
    rounded = Box(model).valid(some)
    (gradient,) = torch.autograd.grad((rounded**2 @ weights).sum(), some)
    # of the square, at the rounded point, as if the point itself had been there
    torch.testing.assert_close(gradient, 2 * rounded.detach() * weights)


@pytest.mark.parametrize(
    ("categories", "mutable"),
    [("valid", [1, 1, 1, 0, 1, 1]), ("fixed", [0, 0, 0, 0, 0, 1]), ("relaxed", [1, 1, 1, 0, 1, 1])],
)
def test_immutable_features_stay_to_the_last_bit(categories, mutable):
    box = Box(household(immutables=["income"]), categories)
    assert box.mutable.tolist() == [bool(each) for each in mutable]
    start = points(low=0, high=1)
    inside = box.inside(points(), start)
    assert (inside[:, ~box.mutable] == start[:, ~box.mutable]).all()
    assert (inside[:, box.mutable] != start[:, box.mutable]).any(dim=0).all()


def test_immutable_categories_are_not_rounded():
    box, some = Box(household(immutables=["home", "married"])), points()
    torch.testing.assert_close(box.valid(some), some, rtol=0, atol=0)


def test_values_stay_in_the_unit_interval_or_where_they_were(model):
    some, start = points(low=-2, high=3), points(low=0, high=1)
    torch.testing.assert_close(Box(model).inside(some, start), some.clamp(0, 1))
    torch.testing.assert_close(Box(model, "relaxed", clamp=False).inside(some, start), some)
    start[:, INCOME], start[:, SAVINGS] = 1.2, -0.3
    inside = Box(model).inside(some, start)
    torch.testing.assert_close(inside[:, INCOME], some[:, INCOME].clamp(0, 1.2))
    torch.testing.assert_close(inside[:, SAVINGS], some[:, SAVINGS].clamp(-0.3, 1))


@pytest.mark.parametrize("categories", ["fixed", "relaxed"])
def test_other_boxes_round_nothing(model, categories):
    some = points()
    torch.testing.assert_close(Box(model, categories).valid(some), some, rtol=0, atol=0)


def test_descent_ends_in_the_minimum_of_the_box(model):
    """A separable quadratic: each feature's minimum is known, categories are tried one by one."""
    goal = torch.tensor([0.0, 1.0, 0.0, 1.4, 1.0, 0.37])
    box = Box(model)
    rows = box.valid(points(20, 0, 1)).numpy()

    def objective(look):
        return ((look.points - goal) ** 2).sum(dim=1)

    def accept(look, change):
        return (look.points - goal.clamp(0, 1)).abs().amax(dim=1) < 1e-2

    found = run(rows, objective, accept, box, Schedule((0.0,), 1000, 0.05))
    np.testing.assert_allclose(found, np.tile(goal.clamp(0, 1), (20, 1)), atol=1e-2)
    np.testing.assert_array_equal(found[:, [*HOMES, MARRIED]], np.tile([0, 1, 0, 1], (20, 1)))


def test_the_cheapest_accepted_point_within_patience_is_kept(model):
    """The loss leads away from the factual: later points cost more, so the first accepted one is the answer."""
    rows, box = np.full((1, 6), 0.5), Box(model, "relaxed")
    seen = []

    def objective(look):
        return -look.points[:, SAVINGS]

    def accept(look, change):
        seen.append(look.points[0, SAVINGS].item())
        return look.points[:, SAVINGS] > 0.7

    found = run(rows, objective, accept, box, Schedule((0.0,), 100, 0.01, patience=30))
    assert found[0, SAVINGS] == pytest.approx(min(value for value in seen if value > 0.7), abs=1e-6)
    assert found[0, SAVINGS] < 0.715
    np.testing.assert_array_equal(np.delete(found, SAVINGS, axis=1), np.delete(rows, SAVINGS, axis=1))


def test_patience_finds_points_that_come_cheaper_later(model):
    """A heavy weight of the distance leads back after the loss, by then 0, has led too far."""
    rows, box = np.full((1, 6), 0.5), Box(model, "relaxed")

    def objective(look):
        return 40 * (0.7 - look.points[:, SAVINGS]).clamp_min(0)

    def accept(look, change):
        return look.points[:, SAVINGS] > 0.7

    costs = [
        np.abs(run(rows, objective, accept, box, Schedule((1.0,), 2000, 0.05, patience)) - rows).sum()
        for patience in (0, 1000)
    ]
    assert 0.2 < costs[1] < costs[0]
    assert costs[1] == pytest.approx(0.2, abs=5e-3)


@pytest.mark.parametrize(("weights", "steps"), [((0.5,), 7), ((0.5, 0.25, 0.0), 21)])
def test_without_acceptance_every_round_is_gone_through_and_nothing_is_returned(model, weights, steps):
    looks = []

    def objective(look: Look):
        looks.append(look)
        return look.points.sum(dim=1)

    found = run(np.full((3, 6), 0.5), objective, never, Box(model), Schedule(weights, 7, 0.01))
    assert np.isnan(found).all()
    assert len(looks) == steps
    assert all(look.rows.tolist() == [0, 1, 2] for look in looks)


def test_at_the_end_of_a_round_only_if_asked_for(model):
    steps, asked = [], []

    def objective(look):
        steps.append(1)
        return look.points.sum(dim=1)

    def accept(look, change):
        asked.append(len(steps))
        return torch.tensor([len(steps) > 10])

    schedule = Schedule((0.0, 0.0), 10, 0.01, every_step=False)
    run(np.full((1, 6), 0.5), objective, accept, Box(model), schedule)
    assert asked == [10, 20]


def test_who_has_something_begins_no_new_round(model):
    """Patience may last to the end of the round and not beyond it."""
    looks = []

    def objective(look):
        looks.append(look.rows.tolist())
        return look.points.sum(dim=1)

    def accept(look, change):
        return look.rows == 1

    run(np.full((2, 6), 0.5), objective, accept, Box(model), Schedule((0.0, 0.0), 10, 0.01, patience=100))
    assert looks == [[0, 1]] * 10 + [[0]] * 10


def test_a_round_without_a_falling_loss_ends_early(model):
    looks = []

    def objective(look):
        looks.append(1)
        return 0 * look.points.sum(dim=1) + 1.0

    run(np.full((1, 6), 0.5), objective, never, Box(model, "relaxed"), Schedule((0.0, 0.0), 1000, 0.01, stall=5))
    assert len(looks) == pytest.approx(5 + 4 * 5, abs=3)


def test_rows_that_are_done_are_left_alone(model):
    sizes = []

    def objective(look):
        sizes.append(look.rows.tolist())
        return look.points.sum(dim=1)

    def accept(look, change):
        return torch.tensor([row < len(sizes) for row in look.rows.tolist()])

    found = run(np.full((4, 6), 0.5), objective, accept, Box(model, "relaxed"), Schedule((0.0,), 50, 0.01))
    assert np.isfinite(found).all()
    assert sizes == [[0, 1, 2, 3], [1, 2, 3], [2, 3], [3]]
    lengths = np.abs(found - 0.5).max(axis=1)
    np.testing.assert_allclose(lengths, [0, 0.01, 0.02, 0.03], atol=1e-4)
