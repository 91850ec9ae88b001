"""Planning with known optimum: a linear classifier, without noise or with Gaussian noise."""

from __future__ import annotations

import numpy as np
import pytest
from rose_carla.mdp import ActionSpace, Feature, OneOff, Precise, RecourseMDP
from rose_carla.noise import GaussianNoise
from rose_carla.ppo import PPOSettings, train
from rose_carla.rose.search import Planner, Task, walk
from rose_carla.rose.search.drafts import Drafts
from rose_carla.rose.search.settle import Settling, probit, usual_slope
from scipy.special import expit, ndtr

UNIT = 0.025
WEIGHTS = np.array([4.0, -2.5, 1.0])
BIAS = -3.0
SPACE = ActionSpace([Feature(f"x{i}", (i,)) for i in range(3)], 3, UNIT, (1, 2, 4, 8))


def probability(states):
    return expit(states @ WEIGHTS + BIAS)


def people(n, seed=0):
    rows = np.random.default_rng(seed).random((20 * n, 3))
    return rows[probability(rows) < 0.5][:n]


def generators(n, seed=0):
    return [np.random.default_rng([seed, i]) for i in range(n)]


@pytest.fixture(scope="module")
def precise():
    policy, _ = train(RecourseMDP(SPACE, probability, people(500), Precise()), PPOSettings(n_updates=15), 0)
    return Task(SPACE, probability, Precise(), 0.75), policy


def least_units(row, inside=1e-3, whole=True):
    """Minimum units to the border, the feature with the largest weight first, up to its bound; perhaps whole units."""
    missing = -(row @ WEIGHTS + BIAS) + inside
    units = 0
    for feature in np.argsort(-np.abs(WEIGHTS)):
        room = (1 - row[feature]) if WEIGHTS[feature] > 0 else row[feature]
        gain = abs(WEIGHTS[feature]) * UNIT
        steps = min(room / UNIT, missing / gain)
        if whole:
            steps = min(int(room / UNIT + 1e-9), int(np.ceil(missing / gain - 1e-9)))
        units, missing = units + steps, missing - steps * gain
        if missing <= 1e-12:
            return units
    return None


def test_plan_length_equals_the_closed_form_minimum(precise):
    task, policy = precise
    rows = people(150, seed=1)
    # without ambiguous cases within a thousandth of the border
    rows = np.array([row for row in rows if least_units(row) == least_units(row, 1e-9)])
    assert len(rows) > 140
    planner = Planner(task, policy, 1.0, 1, 1000, 0.99, 50, sparsity_weight=0.0)
    planned = planner.plan(rows, generators(len(rows)))
    assert planned.found.all()
    units = np.abs(planned.ends - rows).sum(axis=1) / UNIT
    # moves of whole units, of which those to a bound may be shorter
    least = np.array([least_units(row) for row in rows])
    assert (units < least + 1).all()
    assert units.mean() <= least.mean()
    assert (units >= [least_units(row, 0, whole=False) - 1e-6 for row in rows]).all()


def test_walk_follows_the_policy(precise):
    task, policy = precise
    rows = people(100, seed=2)
    greedy = walk(task, policy, rows, 50, generators(100))
    assert greedy.reached.all()
    states = rows.copy()
    for number in range(3):
        alive = [i for i in range(100) if number < len(greedy.actions[i])]
        chosen = policy.greedy(states[alive], SPACE.mask(states[alive]))
        assert (chosen == [greedy.actions[i][number] for i in alive]).all()
        states[alive] = SPACE.apply(states[alive], chosen)
    for plan, row, end in zip(greedy.plans(), rows, greedy.drafts.ends, strict=True):
        np.testing.assert_allclose(row + plan.sum(axis=0), end)


def test_goal_out_of_reach_of_max_actions(precise):
    task, policy = precise
    far = np.array([[0.0, 1.0, 0.0]])
    short = walk(task, policy, far, 1, generators(1))
    assert not short.reached[0]
    assert short.rates[0] == 1.0
    planner = Planner(task, policy, 1.0, 1, 1000, 0.99, max_actions=1)
    planned = planner.plan(far, generators(1))
    assert not planned.found[0]
    assert planned.plans[0].shape == (0, 3)


def test_settling_ends_just_below_the_limit():
    """Gaussian noise and a linear classifier: the invalidation rate is known in closed form."""
    deviation = 0.1 * np.linalg.norm(WEIGHTS)
    noise = OneOff(lambda rows: rows @ WEIGHTS + BIAS > 0, GaussianNoise(), 0.01, 64)
    policy, _ = train(RecourseMDP(SPACE, probability, people(500), noise), PPOSettings(n_updates=12), 0)
    task = Task(SPACE, probability, noise, 0.75)
    rows = people(200, seed=3)
    planned = Planner(task, policy, 1 / deviation, 64, 1000, 0.99, 50).plan(rows, generators(200))
    assert planned.found.all()
    rates = ndtr(-(planned.ends @ WEIGHTS + BIAS) / deviation)
    # a check accepts a rate at the limit once in a hundred times
    assert (rates < 0.25).mean() >= 0.99
    assert (rates < 0.26).all()
    # a unit of the largest weight changes the rate by about 0.06: plans are not much longer than needed
    assert np.quantile(rates, 0.1) > 0.12


def test_early_stop_of_the_check():
    noise = OneOff(lambda rows: rows @ WEIGHTS + BIAS > 0, GaussianNoise(), 0.01, 64)
    task = Task(SPACE, probability, noise, 0.75)
    settling = Settling(task, None, 1.0, 400, 0.95)
    deviation = 0.1 * np.linalg.norm(WEIGHTS)
    ends = np.zeros((60, 3))
    ends[:, 0] = (np.linspace(-0.5, 2.5, 60) * deviation - BIAS) / WEIGHTS[0]
    plans = [end[None] for end in ends]
    passed, rate = settling.check(np.zeros((60, 3)), plans, ends, generators(60))
    exact = ndtr(-(ends @ WEIGHTS + BIAS) / deviation)
    assert passed[exact < 0.15].all()
    assert not passed[exact > 0.3].any()
    assert (np.abs(rate.rate - exact) < 4 * np.sqrt(exact * (1 - exact) / rate.n_samples) + 0.01).all()
    assert rate.n_samples.min() < rate.n_samples.max() == 400


def test_usual_slope_of_a_straight_line():
    margins = np.stack([np.linspace(1, 3, 50), np.linspace(0.5, 2, 50)])
    rates = ndtr(-(0.2 + 0.7 * margins))
    assert usual_slope(margins, rates, 10**9) == pytest.approx(0.7, rel=1e-3)
    assert usual_slope(margins[:, :0], rates[:, :0], 100) == 1.0
    assert np.isfinite(probit(np.array([0.0, 1.0]), 100)).all()


def test_drafts_keep_the_order_of_last_changes():
    rows = np.full((1, 3), 0.5)
    drafts = Drafts.empty(SPACE, rows)
    up = {
        feature: int(np.flatnonzero((SPACE.feature_numbers == feature) & (SPACE.moves == 4))[0]) for feature in (0, 1)
    }
    for turn, feature in enumerate((0, 1, 0)):
        drafts.act(np.array([up[feature]]), turn)
    np.testing.assert_allclose(drafts.plans()[0], [[0, 0.1, 0], [0.2, 0, 0]], atol=1e-12)
    np.testing.assert_allclose(drafts.sizes(), [[8, 4, 0]])
    longer = drafts.extend(4)
    np.testing.assert_allclose(longer.ends, [[0.8, 0.6, 0.5]])
    np.testing.assert_allclose(drafts.ends, [[0.7, 0.6, 0.5]])
    edge = Drafts(SPACE, rows, np.array([[1.0, 0.5, 0.5]]), np.array([[0.0, np.inf, np.inf]]))
    np.testing.assert_allclose(edge.extend(4).ends, edge.ends)
