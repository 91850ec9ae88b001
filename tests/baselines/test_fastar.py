"""FastAR: its MDP by value iteration and closed forms, its policy against both, its plans against the classifier."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import models
from baseline_examples import array, check_legal, cube, linear, numbers_only
from rose_carla.baselines import FastAR
from scipy.special import expit

#: Enough training for small problems.
SMALL = {"n_updates": 15, "n_envs": 64, "n_steps": 16, "patience": 15}
#: Enough for tests that do not depend on quality.
BRIEF = {"n_updates": 3, "n_envs": 64, "n_steps": 16}


class Table:
    """Transition table of a FastAR problem on a grid, computed by its own MDP."""

    def __init__(self, method, states):
        self.states, self.unit = states, method.settings.action_unit
        self.places = {self._key(state): number for number, state in enumerate(states)}
        shape = len(states), method.space.n
        self.rewards, self.discounts = np.full(shape, -np.inf), np.zeros(shape)
        self.next, self.ended = np.zeros(shape, dtype=int), np.zeros(shape, dtype=bool)
        for number, state in enumerate(states):
            mdp = method.mdp(state[None])
            mdp.reset(method.space.n, np.random.default_rng(0))
            possible = np.flatnonzero(mdp.mask()[0])
            mdp.reset(len(possible), np.random.default_rng(0))
            step = mdp.step(possible)
            self.rewards[number, possible] = step.rewards
            self.discounts[number, possible] = step.discounts
            self.ended[number, possible] = step.terminated
            self.next[number, possible] = [self.places[self._key(state)] for state in step.finals]

    def _key(self, state):
        return tuple((state / self.unit).round().astype(int))

    def values(self):
        """Value iteration: worth (n, actions) of each action in each state."""
        worth = np.zeros(len(self.states))
        while True:
            actions = self.rewards + self.discounts * np.where(self.ended, 0.0, worth[self.next])
            if np.abs(actions.max(axis=1) - worth).max() < 1e-9:
                return actions
            worth = actions.max(axis=1)

    def followed(self, policy, space, start, max_actions=50):
        """Discounted return of the most probable actions."""
        number, total, discount = self.places[self._key(start)], 0.0, 1.0
        for _ in range(max_actions):
            state = self.states[[number]]
            action = int(policy.greedy(state, space.mask(state))[0])
            total += discount * self.rewards[number, action]
            discount *= self.discounts[number, action]
            if self.ended[number, action]:
                break
            number = self.next[number, action]
        return total


@pytest.mark.parametrize(
    ("gamma", "straight"), [(0.9, True), (0.99, True), (0.9945, True), (0.9955, False), (0.999, False)]
)
def test_direct_path_is_optimal_below_a_discount_of_0995(gamma, straight):
    """Next to the border every step pays nearly 1/2: for ever, 1/2 / (1 - gamma), against 100 at the goal."""
    chain = np.linspace(0, 1, 21)[:, None]
    model = linear(numbers_only(chain), [1e-3], -0.975e-3, ["x0"])
    hyperparams = {"fit": False, "density_weight": 0.0, "action_unit": 0.05, "gamma": gamma}
    method = FastAR(model, hyperparams)
    actions = Table(method, chain).values()
    assert method.space.moves.tolist() == [-1, 1]
    rejected = expit(1e-3 * (chain[:, 0] - 0.975)) < 0.5
    assert rejected.sum() == 20
    inner = actions[rejected][1:]
    if straight:
        assert (inner[:, 1] > inner[:, 0]).all()
    else:
        assert (inner[:, 1] < inner[:, 0])[-1]
    last = actions[rejected][-1]
    np.testing.assert_allclose(last[1], 100.0)
    if not straight:
        np.testing.assert_allclose(last[0], 0.5 / (1 - gamma), rtol=2e-3)


def test_rewards_against_a_loop():
    """R or p, less lambda times the L1 distance to the nearest training row, which a loop finds."""
    model = linear(cube(2, n=40), [4.0, -3.0], -1.0, ["x0", "x1"])
    method = FastAR(model, {"fit": False, "density_weight": 0.7, "action_unit": 0.1})
    train = array(model, model.data.df_train)
    starts = np.random.default_rng(0).random((200, 2)) * 0.8 + 0.1
    mdp = method.mdp(starts[starts @ [4.0, -3.0] < 1.0])
    mdp.reset(100, np.random.default_rng(1))
    step = mdp.step(np.random.default_rng(2).integers(4, size=100))
    goals = 0
    for state, reward, reached in zip(step.finals, step.rewards, step.reached, strict=True):
        away = min(abs(state[0] - row[0]) + abs(state[1] - row[1]) for row in train)
        chance = expit(state @ [4.0, -3.0] - 1.0)
        assert reached == (chance > 0.5)
        assert reward == pytest.approx((100.0 if reached else chance) - 0.7 * away, abs=1e-5)
        goals += reached
    assert 0 < goals < 100


def test_density_cost_is_the_distance_to_the_nearest_training_row(compas_linear):
    method = FastAR(compas_linear, {"fit": False, "density_weight": 0.3})
    train = array(compas_linear, compas_linear.data.df_train)
    states = np.random.default_rng(3).random((40, train.shape[1]))
    states[:3] = train[:3]
    nearest = [np.abs(train - state).sum(axis=1).min() for state in states]
    np.testing.assert_allclose(method._cost()(states), 0.3 * np.array(nearest), atol=1e-12)
    assert (method._cost()(states)[:3] == 0).all()
    assert FastAR(compas_linear, {"fit": False, "density_weight": 0.0})._cost() is None


def test_plans_on_a_linear_classifier_are_optimal():
    """From a margin g < 0 it takes ceil(-g / (unit * max|w|)) actions, all on the feature of the largest weight."""
    weights, bias, unit = np.array([-5.0, 2.0, 1.0]), 1.7, 0.05
    model = linear(cube(3, n=300), weights, bias, ["x0", "x1", "x2"])
    method = FastAR(model, {"density_weight": 0.0, "action_unit": unit, "ppo": {**SMALL, "n_updates": 25}})
    rows = np.random.default_rng(4).random((300, 3))
    missing = -(rows @ weights + bias)
    needed = np.ceil(missing / (unit * 5.0))
    fits = (missing > 0) & (needed * unit <= rows[:, 0])
    rows, needed = rows[fits], needed[fits]
    assert len(rows) > 80
    factuals = pd.DataFrame(rows, columns=["x0", "x1", "x2"])
    ends = method.get_counterfactuals(factuals)
    lengths = np.array([len(method.plans[label]) for label in factuals.index])
    assert (lengths >= needed).all()
    assert (lengths == needed).mean() > 0.95
    on_best = np.isclose(ends["x0"], rows[:, 0] - needed * unit, atol=1e-9)
    assert on_best.mean() > 0.95  # now and then a unit of the second best does as well


def test_policy_against_value_iteration():
    """A grid of two features, a bent border and rows that are dense in one part only: 95 % of the best return."""
    grid = np.array(list(itertools.product(np.linspace(0, 1, 11), repeat=2)))
    rng = np.random.default_rng(5)
    rows = grid[(grid[:, 0] < 0.55) | (rng.random(len(grid)) < 0.3)]
    data = numbers_only(np.repeat(rng.permutation(np.vstack([rows, np.eye(2), [[0, 0], [1, 1]]])), 4, axis=0))
    model = models.wrap(_Bent(), data, feature_order=["x0", "x1"], output="logit")
    hyperparams = {"action_unit": 0.1, "density_weight": 2.0, "max_actions": 40, "ppo": SMALL}
    method = FastAR(model, hyperparams)
    table = Table(method, grid)
    optimal = table.values().max(axis=1)
    rejected = np.flatnonzero(models.probability(model)(grid) <= 0.5)
    assert 30 < len(rejected) < 115
    ours = np.array([table.followed(method.policy_, method.space, grid[number]) for number in rejected])
    assert (ours <= optimal[rejected] + 1e-6).all()
    assert ours.mean() >= 0.95 * optimal[rejected].mean()
    # a policy that has learnt nothing does not get there
    untrained = type(method.policy_)(2, 4, 64, torch.Generator().manual_seed(0))
    silly = np.array([table.followed(untrained, method.space, grid[number]) for number in rejected])
    assert silly.mean() < 0.9 * optimal[rejected].mean()


@pytest.fixture(scope="module")
def people(compas_ann):
    return models.negative_instances(compas_ann).head(25)


@pytest.fixture(scope="module")
def fastar(compas_ann):
    return FastAR(compas_ann, {"ppo": {**BRIEF, "n_updates": 8}})


def test_plans_are_unit_actions_that_lead_to_the_counterfactuals(fastar, compas_ann, people):
    found = fastar.get_counterfactuals(people)
    ok = found.notna().all(axis=1)
    assert ok.mean() > 0.8
    assert set(fastar.plans) == set(people.index[ok])
    starts, ends = array(compas_ann, people[ok]), found[ok].to_numpy()
    check_legal(compas_ann, starts, ends)
    assert models.favourable(compas_ann)(ends).all()
    numeric = [compas_ann.feature_input_order.index(name) for name in compas_ann.data.continuous]
    for label, start, end in zip(people.index[ok], starts, ends, strict=True):
        plan = fastar.plans[label]
        np.testing.assert_allclose(start + plan.sum(axis=0), end, atol=1e-9)
        assert 0 < len(plan) <= 50
        assert ((np.abs(plan) > 1e-12).sum(axis=1) == 1).all()
        sizes = np.abs(plan).max(axis=1)
        moved = np.abs(plan).argmax(axis=1)
        np.testing.assert_allclose(sizes, np.where(np.isin(moved, numeric), 0.025, 1.0), atol=1e-9)
        # not longer than needed: the goal is not reached before the last action
        on_the_way = start + plan.cumsum(axis=0)[:-1]
        assert not len(on_the_way) or not models.favourable(compas_ann)(on_the_way).any()


def test_success_is_certain_at_the_end_and_not_before(fastar, people):
    plans = fastar.plan(people)
    assert sum(plan.found for plan in plans) > 20
    for plan in plans:
        if plan.found:
            assert [step.success.probability for step in plan.steps] == [0.0] * (len(plan.steps) - 1) + [1.0]
            assert (plan.success.lower, plan.success.probability, plan.success.upper) == (1.0, 1.0, 1.0)
        else:
            assert "no plan found" in plan.reason


def test_people_who_follow_each_next_action_walk_along_the_plan(fastar, people):
    found = [plan for plan in fastar.plan(people.head(8)) if plan.found]
    assert len(found) > 3
    for plan in found:
        for state, change in zip(plan.states, plan.actions, strict=False):
            answers = fastar.advise(state[None], np.array([np.inf]))
            np.testing.assert_allclose(answers[0][0], change)
    first = fastar.next_action(people.loc[[found[0].label]])
    assert (first.feature, first.after) == (found[0].steps[0].feature, found[0].steps[0].after)


@pytest.mark.parametrize("margin", [0.5, 0.75])
def test_all_plans_end_beyond_the_margin(compas_ann, margin):
    factuals = models.negative_instances(compas_ann).head(40)
    method = FastAR(compas_ann, {"margin": margin, "ppo": {**BRIEF, "n_updates": 8}})
    ends = method.get_counterfactuals(factuals).dropna()
    assert len(ends) > 25
    chances = models.probability(compas_ann)(ends.to_numpy())
    assert (chances >= margin).all()
    assert np.quantile(chances, 0.25) < margin + 0.1
    assert method.plan(factuals.loc[ends.index[:1]])[0].success.probability == 1.0


def test_training_ends_at_the_time_limit(compas_linear):
    assert len(FastAR(compas_linear, {"timeout": 0, "ppo": BRIEF}).log_) == 1
    assert len(FastAR(compas_linear, {"ppo": BRIEF}).log_) == 3


def test_same_seed_gives_the_same_policy(compas_linear):
    factuals = models.negative_instances(compas_linear).head(10)
    first, again, other = (FastAR(compas_linear, {"ppo": BRIEF, "seed": seed}) for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(
        first.get_counterfactuals(factuals), again.get_counterfactuals(factuals), check_exact=True
    )
    rows = array(compas_linear, factuals)
    assert (first.policy_.predict_values(rows) == again.policy_.predict_values(rows)).all()
    assert (first.policy_.predict_values(rows) != other.policy_.predict_values(rows)).any()


def test_policies_can_be_saved_and_loaded(fastar, compas_ann, people, tmp_path):
    fastar.save(tmp_path / "policy.safetensors")
    loaded = FastAR.load(tmp_path / "policy.safetensors", compas_ann)
    assert loaded.settings == fastar.settings
    pd.testing.assert_frame_equal(loaded.get_counterfactuals(people), fastar.get_counterfactuals(people))


class _Bent(torch.nn.Module):
    """Classifier with a curved border, without parameters."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(8.0))

    def forward(self, x):
        return self.scale * (x[:, :1] + 0.5 * torch.sin(4 * x[:, 1:]) - 0.83)
