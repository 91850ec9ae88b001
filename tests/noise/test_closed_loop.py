"""People who look where they landed and ask again: closed forms, a Markov chain on a grid, and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from noise_examples import clusters, plausible, rng
from rose_carla.noise import ClosedLoop, GaussianNoise, closed_loop, common_noise, noisy_step, unit_actions
from rose_carla.noise.closed_loop import COST, DECISIONS, NO_ANSWER, SUCCESS
from scipy.stats import norm

UNIT, STEP = 0.1, 0.1
NOTHING = np.empty((0, 1))


def above(states):
    return states[:, 0] > 0.5


def up(states, budgets):
    """Advise the same step everywhere."""
    return [np.full((1, 1), STEP)] * len(states)


def ask(advise, starts, n_tries, max_decisions, variance=0.004, noise=None, seed=0, **options):
    """Follow ``advise`` from numbers, or rows, with a generator for each person."""
    factuals = np.asarray(starts, dtype=float).reshape(len(starts), -1)
    rngs = common_noise(seed, range(len(factuals)))
    noise = noise or GaussianNoise()
    return closed_loop(advise, above, factuals, noise, variance, UNIT, n_tries, max_decisions, rngs, **options)


def first_passage(start, sd, n):
    """Probability of first being above 0.5 at each of ``n`` steps, by a Markov chain on a fine grid below."""
    grid, width = np.linspace(-1.5, 0.5, 801, endpoint=False, retstep=True)
    grid += width / 2
    density = norm.pdf(grid, start + STEP, sd)
    arrived = [norm.sf(0.5, start + STEP, sd)]
    onwards = norm.pdf(grid[:, None], grid + STEP, sd) * width
    leaves = norm.sf(0.5, grid + STEP, sd) * width
    for _ in range(n - 1):
        arrived.append(leaves @ density)
        density = onwards @ density
    return np.array(arrived)


@pytest.mark.parametrize("start", [0.1, 0.38])
def test_success_cost_and_decisions_against_a_markov_chain(start):
    n, n_tries = 6, 5000
    exact = first_passage(start, np.sqrt(0.004), n)
    tries = ask(up, [start], n_tries, n)
    share = np.array([(tries.succeeded & (tries.decisions == k)).mean() for k in range(1, n + 1)])
    assert (np.abs(share - exact) < 4 * np.sqrt(exact * (1 - exact) / n_tries) + 1e-4).all()
    # the expected number of decisions, those of failed tries included, and their cost
    expected = exact @ np.arange(1, n + 1) + n * (1 - exact.sum())
    assert tries.decisions.mean() == pytest.approx(expected, abs=0.06)
    np.testing.assert_allclose(tries.costs, STEP * tries.decisions)
    assert set(np.unique(tries.outcomes)) <= {SUCCESS, DECISIONS}
    assert (above(tries.ends[0]) == tries.succeeded[0]).all()


def test_answers_that_lead_to_one_point_succeed_geometrically():
    """All tries start anew from 0.4: each decision succeeds with the same probability p."""

    class Constant(GaussianNoise):
        def sample(self, states, variance, n_samples, rng):
            return super().sample(states, 0.01, n_samples, rng)

    def to_one_point(states, budgets):
        return list((0.4 - states)[:, None, :])

    p, n = norm.sf(1.0), 8
    tries = ask(to_one_point, [0.0], 4000, n, noise=Constant(), noise_per="action")
    assert tries.succeeded.mean() == pytest.approx(1 - (1 - p) ** n, abs=0.03)
    assert tries.decisions.mean() == pytest.approx((1 - (1 - p) ** n) / p, abs=0.2)


@pytest.mark.parametrize("noise_per", ["unit", "action"])
def test_tries_against_a_plain_loop(noise_per):
    """Plausible noise, answers of several actions that depend on state and budget, and limits of cost."""
    noise = plausible(clusters(200, 2))
    factuals = np.array([[0.3, 0.3], [0.45, 0.2], [0.7, 0.7], [-1.5, 1.3], [0.4, 0.05]])
    limits = np.array([0.4, 0.9, 0.2, 5.0, 0.5])

    def answer(state, budget):
        if state[1] < 0.1:
            return np.empty((0, 2))
        return np.array([[min(0.25, budget), 0.0], [0.0, -0.05]])

    def advise(states, budgets):
        return [answer(state, budget) for state, budget in zip(states, budgets, strict=True)]

    tries = ask(advise, factuals, 3, 2, 0.002, noise, 7, max_costs=limits, noise_per=noise_per)
    outcomes = []
    for person, generator in enumerate(common_noise(7, range(5))):
        for number, seed in enumerate(generator.integers(2**63, size=3)):
            own = np.random.default_rng(seed)
            state, cost, decisions, outcome = factuals[person], 0.0, 0, None
            while outcome is None:
                if state[0] > 0.5:
                    outcome = SUCCESS
                elif decisions == 2:
                    outcome = DECISIONS
                else:
                    plan = answer(state, limits[person] - cost)
                    if len(plan) == 0:
                        outcome = NO_ANSWER
                    elif cost + np.abs(plan).sum() > limits[person] + 1e-9:
                        outcome = COST
                    else:
                        for action in unit_actions(plan, UNIT) if noise_per == "unit" else plan:
                            state = noisy_step(state[None], action[None], noise, 0.002, UNIT, own)[0]
                        cost, decisions = cost + np.abs(plan).sum(), decisions + 1
            outcomes.append(outcome)
            assert tries.outcomes[person, number] == outcome
            assert tries.decisions[person, number] == decisions
            assert tries.costs[person, number] == pytest.approx(cost)
            np.testing.assert_allclose(tries.ends[person, number], state)
    assert set(outcomes) == {SUCCESS, DECISIONS, COST, NO_ANSWER}


def test_costs_stay_within_the_budget():
    def all_of_it(states, budgets):
        return [np.array([[min(0.15, budget)]]) for budget in budgets]

    limits = np.array([0.3, 0.1, 0.0, 0.45])
    tries = ask(all_of_it, [-5.0, -5.0, -5.0, -5.0], 5, 10, max_costs=limits)
    # spent to the end, although 0.15 + 0.15 + 0.15 is not 0.45 in floating point
    np.testing.assert_allclose(tries.costs, np.repeat(limits[:, None], 5, axis=1), atol=1e-12)
    assert (tries.outcomes == NO_ANSWER).all()
    tries = ask(up, [-5.0], 5, 10, max_costs=np.array([0.35]))
    assert (tries.outcomes == COST).all()
    assert (tries.decisions == 3).all()


def test_people_do_not_depend_on_the_batch():
    starts, rngs = np.array([[0.1], [0.3], [0.2]]), lambda rows: common_noise(3, rows)
    noise, limits = GaussianNoise(), np.array([0.5, 0.2, 0.9])
    whole = closed_loop(up, above, starts, noise, 0.004, UNIT, 30, 6, rngs([0, 1, 2]), limits)
    parts = [
        closed_loop(up, above, starts[rows], noise, 0.004, UNIT, 30, 6, rngs(rows), limits[rows])
        for rows in ([0], [1, 2])
    ]
    joined = ClosedLoop.concat(parts)
    for name in ("outcomes", "costs", "decisions", "ends"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))
    fewer = closed_loop(up, above, starts, noise, 0.004, UNIT, 10, 6, rngs([0, 1, 2]), limits)
    np.testing.assert_array_equal(fewer.ends, whole.ends[:, :10])


def test_accepted_starts_need_no_decision():
    def never(states, budgets):
        assert (states < 0.5).all()
        return up(states, budgets)

    tries = ask(never, [0.6, 0.45], 50, 3)
    assert tries.succeeded[0].all()
    assert (tries.decisions[0] == 0).all()
    assert (tries.costs[0] == 0).all()
    assert (tries.ends[0] == 0.6).all()
    assert (tries.decisions[1] >= 1).all()
    assert ask(lambda *asked: pytest.fail("asked"), [0.6], 5, 3).succeeded.all()


@pytest.mark.parametrize("answer", [NOTHING, np.zeros((1, 1)), np.full((1, 1), np.nan)])
def test_tries_end_without_an_answer(answer):
    tries = ask(lambda states, budgets: [answer] * len(states), [0.1, 0.2], 4, 10)
    assert (tries.outcomes == NO_ANSWER).all()
    assert (tries.decisions == 0).all()
    assert (tries.ends[:, :, 0] == [[0.1], [0.2]]).all()


def test_a_classifier_that_changes_its_answers_ends():
    answers = rng(1)

    def moody(states):
        return answers.random(len(states)) < 0.3

    starts = np.full((100, 1), 0.2)
    tries = closed_loop(up, moody, starts, GaussianNoise(), 0.001, UNIT, 20, 5, common_noise(0, range(100)))
    # a start is asked about once, for all tries of the person
    accepted = tries.decisions.max(axis=1) == 0
    assert tries.succeeded[accepted].all()
    assert accepted.mean() == pytest.approx(0.3, abs=0.2)
    assert tries.succeeded[~accepted].mean() == pytest.approx(1 - 0.7**5, abs=0.05)
    assert tries.decisions.max() == 5


def test_noise_of_whole_actions_is_one_step():
    """Both have the variance of three units under Gaussian noise, in three draws or one."""
    counts = []

    class Counting(GaussianNoise):
        def sample(self, states, variance, n_samples, rng):
            counts.append(np.unique(variance).round(12).tolist())
            return super().sample(states, variance, n_samples, rng)

    def far(states, budgets):
        return [np.full((1, 1), 3 * STEP)] * len(states)

    for noise_per, expected in (("unit", [[0.001]] * 3), ("action", [[0.003]])):
        counts.clear()
        tries = ask(far, [-5.0], 2000, 1, 0.001, Counting(), noise_per=noise_per)
        assert counts == expected
        assert tries.ends.var() == pytest.approx(0.003, rel=0.1)
