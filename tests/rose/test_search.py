"""Parts of the search against closed forms, loops and worlds with a known answer."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from rose_carla.mdp import Accumulated, ActionSpace, Feature, OneOff, Precise
from rose_carla.noise import GaussianNoise, InvalidationRate
from rose_carla.noise.plausible import CommonNoise
from rose_carla.rose.search import Drafts, Task, has_plateaus
from rose_carla.rose.search.order import choose_order
from rose_carla.rose.search.reach import Reach
from rose_carla.rose.search.settle import Settling, trim
from rose_carla.rose.search.sweeps import redo_changes, sweep_search
from scipy.special import expit
from scipy.stats import binomtest

UNIT = 0.05
WEIGHTS, BIAS = np.array([4.0, 3.0, 2.0]), -3.5
SPACE = ActionSpace([Feature(f"x{i}", (i,)) for i in range(3)], 3, UNIT, (1, 2, 4))


def probability(states):
    return expit(states @ WEIGHTS + BIAS)


def one_off(accepts=None):
    return OneOff(accepts or (lambda rows: probability(rows) > 0.5), GaussianNoise(), 0.01, 64)


def task(noise=None, predict=probability, **options):
    noise = noise or one_off()
    return Task(SPACE, predict, noise, 0.75, one_off=noise if isinstance(noise, OneOff) else one_off(), **options)


def drafts(factuals, changes, turns=None):
    """Drafts with the given changes, in column order unless ``turns`` says otherwise."""
    factuals, changes = np.atleast_2d(factuals).astype(float), np.atleast_2d(changes).astype(float)
    turns = np.where(changes != 0, np.arange(3.0) if turns is None else np.asarray(turns, dtype=float), np.inf)
    return Drafts(SPACE, factuals, factuals + changes, turns)


def generators(n, seed=0):
    return [np.random.default_rng([seed, i]) for i in range(n)]


class PullsBack(GaussianNoise):
    """Every step multiplies the first feature by 0.9, without noise: the data pull at it."""

    def sample(self, states, variance, n_samples, rng):
        moved = np.repeat(states[:, None, :], n_samples, axis=1)
        moved[..., 0] *= 0.9
        return moved


def test_reduce_shortens_or_undoes_one_change():
    draft = drafts([[0.1, 0.2, 0.3]] * 3, [[0.2, 0.15, 0.0]] * 3)
    shorter = draft.reduce(np.array([0, 0, 1]), np.array([1.0, np.inf, 3.0]))
    np.testing.assert_allclose(shorter.ends, [[0.25, 0.35, 0.3], [0.1, 0.35, 0.3], [0.3, 0.2, 0.3]])
    assert [len(plan) for plan in shorter.plans()] == [2, 1, 1]
    assert draft.last_changes().tolist() == [1, 1, 1]


def test_plateaus_are_those_of_step_functions():
    rows = np.random.default_rng(0).random((100, 3))
    assert not has_plateaus(SPACE, probability, rows)
    assert has_plateaus(SPACE, lambda states: probability(states.round(1)), rows)


def test_guide_of_a_step_function_tells_how_far_inside_a_state_is():
    def steps(states):
        return np.where(states[:, 0] > 0.5, 0.9, 0.1)

    noise = one_off(lambda rows: rows[:, 0] > 0.5)
    states = np.array([[0.4, 0, 0], [0.51, 0, 0], [0.55, 0, 0], [0.7, 0, 0]], dtype=float)
    margins = task(noise, steps).guide(states)
    assert margins[1] == margins[2] == margins[3]
    guide = task(noise, steps, has_plateaus=True).guide(states)
    assert (np.diff(guide) > 0).all()
    assert guide[0] <= 0


def test_common_noise_is_the_same_for_all_states():
    noise, states = GaussianNoise(), np.random.default_rng(0).random((4, 3))
    offsets = noise.sample(states, 0.01, 5, CommonNoise(3)) - states[:, None, :]
    np.testing.assert_allclose(offsets, np.broadcast_to(offsets[:1], offsets.shape), atol=1e-12)


@pytest.mark.parametrize("k", [2, 3])
def test_order_under_accumulated_noise_is_the_best_of_all(k):
    """What the data pull at comes last; compared with an exhaustive search."""
    changes = np.zeros(3)
    changes[:k] = [0.5, 0.4, 0.3][:k]
    scores = {}
    for order in itertools.permutations(range(k)):
        turns = np.full(3, np.inf)
        turns[list(order)] = np.arange(k)
        plan = drafts([[0.0, 0.0, 0.0]], changes, turns).plans()
        noise = Accumulated(None, PullsBack(), 0.0005, UNIT, 4)
        scores[order] = float(noise.follow(np.zeros((1, 3)), plan, 1, generators(1))[0, 0] @ WEIGHTS)
    # the classifier accepts those that end with the first feature
    border = (max(scores.values()) + max(score for order, score in scores.items() if order[-1] != 0)) / 2
    noise = Accumulated(lambda rows: rows @ WEIGHTS > border, PullsBack(), 0.0005, UNIT, 4)
    start = drafts([[0.0, 0.0, 0.0]], changes)
    chosen = np.argsort(choose_order(task(noise), start, generators(1)).turns[0])[:k]
    assert chosen[-1] == 0
    assert scores[tuple(chosen.tolist())] == pytest.approx(max(scores.values()))


def test_order_of_many_changes_is_greedy_from_the_end():
    space = ActionSpace([Feature(f"x{i}", (i,)) for i in range(6)], 6, UNIT, (1,))
    weights = np.full(6, 2.0)
    noise = Accumulated(lambda rows: rows @ weights > 2.4, PullsBack(), 0.0005, UNIT, 4)
    world = Task(space, lambda states: expit(states @ weights - 2.4), noise, 0.75)
    draft = Drafts(space, np.zeros((1, 6)), np.full((1, 6), 0.25), np.arange(6.0)[None])
    assert choose_order(world, draft, generators(1)).turns[0].argmax() == 0


def test_order_under_one_off_noise_never_lowers_the_chance():
    # the second change alone would be a step back
    weights = np.array([6.0, -2.0, 1.0])
    accepts = lambda rows: (rows @ weights > 2.0) & (rows[:, 1] < 0.9)  # noqa: E731
    world = task(OneOff(accepts, GaussianNoise(), 0.01, 64), lambda states: expit(states @ weights - 2.0))
    draft = drafts([[0.1, 0.2, 0.0]], [[0.5, 0.2, 0.3]], turns=[0, 1, 2])
    after = {}
    for name, plan in (("given", draft.plans()[0]), ("chosen", choose_order(world, draft, generators(1)).plans()[0])):
        prefixes = [plan[:k] for k in range(1, 4)]
        factuals = np.repeat(draft.factuals, 3, axis=0)
        after[name] = world.robustness.evaluate(factuals, prefixes, 2000, generators(3), 0.95).rate
    assert np.diff(after["given"]).max() > 0.05
    assert np.diff(after["chosen"]).max() < 0.02


def test_no_step_of_a_trimmed_plan_can_be_left_out_or_shortened():
    """Gaussian noise, linear classifier: checks against the closed form of the invalidation rate."""
    from scipy.special import ndtr

    world = task()
    settling = Settling(world, None, 1.0, 2000, 0.99)
    rng = np.random.default_rng(0)
    factuals = rng.random((60, 3)) * 0.3
    changes = np.round(rng.random((60, 3)) * 10) * UNIT * (rng.random((60, 3)) < 0.8) + np.array([0.5, 0.0, 0.0])
    start = drafts(factuals, changes)
    passed, rate = settling.check(factuals, start.plans(), start.ends, generators(60))
    start, rates = start[passed], rate.rate[passed]
    trimmed, _ = trim(settling, start, rates, generators(len(start), 1))
    deviation = 0.1 * np.linalg.norm(WEIGHTS)

    def closed_form(ends):
        return ndtr(-(ends @ WEIGHTS + BIAS) / deviation)

    assert len(start) > 20
    assert (closed_form(trimmed.ends) < 0.25).all()
    assert (trimmed.sizes() <= start.sizes() + 1e-9).all()
    for row in range(len(trimmed)):
        for feature in np.flatnonzero(trimmed.sizes()[row] > 0):
            shorter = trimmed[np.array([row])].reduce(np.array([feature]), np.array([1.0]))
            # a rate that passes is at most about 0.227; one in thirty such checks may go either way
            assert closed_form(shorter.ends)[0] > 0.205


def test_sweep_of_the_last_action_gives_the_rates_of_all_lengths():
    noise = Accumulated(lambda rows: probability(rows) > 0.5, GaussianNoise(), 0.002, UNIT, 4)
    factual, plan = np.array([[0.1, 0.3, 0.2]]), np.array([[0.0, 0.2, 0.0], [0.43, 0.0, 0.0]])
    swept = noise.sweep_last_action(factual, [plan], 4000, generators(1))[0]
    assert len(swept) == 10  # before the action, eight units, and the rest
    for length in (0, 3, 8):
        shorter = np.array([plan[0], plan[1] / 0.43 * length * UNIT])
        rate = noise.evaluate(factual, [shorter], 4000, generators(1, seed=2), 0.99)
        assert rate.lower[0] - 0.02 <= swept[length] <= rate.upper[0] + 0.02


@pytest.mark.parametrize("kind", ["one-off", "accumulated"])
def test_rates_after_steps_are_those_of_the_beginnings_of_plans(kind):
    accumulated = Accumulated(lambda rows: probability(rows) > 0.5, GaussianNoise(), 0.002, UNIT, 4)
    noise = accumulated if kind == "accumulated" else one_off()
    factuals = np.array([[0.1, 0.3, 0.2], [0.6, 0.4, 0.3], [0.0, 0.0, 0.0]])
    plans = [np.array([[0.0, 0.2, 0.0], [0.43, 0.0, 0.0], [0.0, 0.0, 0.1]]), np.array([[0.1, 0, 0]]), np.empty((0, 3))]
    after = noise.evaluate_steps(factuals, plans, 4000, generators(3))
    beginnings = [(0, 1), (0, 2), (0, 3), (1, 1), (0, 0), (1, 0), (2, 0)]
    assert len(after.rate) == len(beginnings)
    for rate, (row, k) in zip(after.rate, beginnings, strict=True):
        alone = noise.evaluate(factuals[[row]], [plans[row][:k]], 4000, generators(1, seed=2), 0.99)
        assert alone.lower[0] - 0.02 <= rate <= alone.upper[0] + 0.02


def islands(states):
    """Accepted only where both of the first two features are high: single changes do not help."""
    return np.where((states[:, 0] > 0.7) & (states[:, 1] > 0.7), 0.95, 0.05)


@pytest.mark.parametrize("kind", ["rows", "nothing"])
def test_training_rows_lead_to_states_that_single_moves_do_not(kind):
    noise = OneOff(lambda rows: islands(rows) > 0.5, GaussianNoise(), 0.0004, 64)
    world = task(noise, islands, has_plateaus=True)
    rng = np.random.default_rng(0)
    rows = rng.random((500, 3)) if kind == "rows" else np.empty((0, 3))
    people = np.array([[0.1, 0.2, 0.5], [0.3, 0.1, 0.9]])
    found, rates = Reach(world, rows, 0.2, 0.5).search(people, generators(2))[0]
    reached = islands(found.ends) > 0.5
    if kind == "rows":
        assert reached.all()
        assert (rates < 0.2).all()
        assert (found.ends[:, 2] == people[:, 2]).all()  # the third feature does not matter
    else:
        assert (rates[~reached] == 1).all()


def test_corners_lead_to_states_that_no_row_and_no_single_move_leads_to():
    """Accepted only where all three features are near 1, and every single change lowers the margin."""

    def predict(states):
        return np.where((states > 0.9).all(axis=1), 0.95, 0.4 - 0.1 * states.mean(axis=1))

    noise = OneOff(lambda rows: predict(rows) > 0.5, GaussianNoise(), 1e-6, 64)
    world = task(noise, predict)
    people = np.full((2, 3), 0.3)
    found, _ = Reach(world, np.random.default_rng(0).random((50, 3)) * 0.5, 0.2, 0.5).search(people, generators(2))[0]
    assert (found.ends > 0.9).all()


def test_settling_never_gives_up_an_accepted_end_for_a_more_robust_one_that_is_refused():
    """The noise carries every state to where it is accepted, the more the larger the second feature is."""
    rate = {"near": 0.9, "far": 0.4}

    class Kind(OneOff):
        def evaluate(self, factuals, plans, n_samples, rng, confidence):
            ends = factuals + np.stack([plan.sum(axis=0) for plan in plans])
            failures = np.where(ends[:, 1] > 0.3, rate["far"], rate["near"]) * n_samples
            return InvalidationRate.from_failures(failures.round(), n_samples, confidence)

    world = task(Kind(lambda rows: probability(rows) > 0.5, GaussianNoise(), 0.01, 64))

    class Refused:
        def improve(self, drafts, margins, needed):
            other = drafts.copy()
            other.ends = np.array([[0.0, 0.5, 0.0]])
            return other

    settling = Settling(world, Refused(), 1.0, 500, 0.995)
    start = drafts([[0.0, 0.0, 0.0]], [[0.95, 0.0, 0.0]])
    assert world.margins(start.ends)[0] > 0
    settled, passed, rates = settling.settle(start, generators(1))
    assert not passed[0]
    # the first look is at 62 versions, and the rate of what failed there is cautious
    assert rates[0] == pytest.approx(binomtest(56, 62).proportion_ci(0.7, "wilson").high)
    assert world.margins(settled.ends)[0] > 0


@pytest.mark.parametrize("n_check", [500, 8000])
def test_checks_that_may_stop_early_accept_a_rate_at_the_limit_as_rarely_as_they_say(n_check):
    class AtTheLimit(OneOff):
        def evaluate(self, factuals, plans, n_samples, rng, confidence):
            failures = np.array([each.binomial(n_samples, self.variance) for each in rng])
            seen.append(n_samples * len(plans))
            return InvalidationRate.from_failures(failures, n_samples, confidence)

    n, seen = 4000, []
    start = drafts(np.zeros((n, 3)), np.tile([0.95, 0.0, 0.0], (n, 1)))
    shares = {}
    for rate in (0.25, 0.05, 0.6):
        seen.clear()
        settling = Settling(task(AtTheLimit(None, GaussianNoise(), rate, 64)), None, 1.0, 500, 0.995)
        passed, _ = settling.check(start.factuals, start.plans(), start.ends, generators(n), n_check)
        shares[rate] = passed.mean(), sum(seen) / n / n_check
    # 0.5 % and a tenth of it for each of at most three looks, up to three standard errors
    assert shares[0.25][0] < 0.0065 + 3 * np.sqrt(0.0065 / n)
    assert shares[0.05][0] == 1.0
    assert shares[0.6][0] == 0.0
    assert shares[0.05][1] < 0.3
    assert shares[0.6][1] < 0.3


def test_search_keeps_directions_and_bounds():
    space = ActionSpace(
        [Feature("x0", (0,), direction=1, upper=0.8), Feature("x1", (1,), direction=-1)], 3, UNIT, (1, 2)
    )
    weights = np.array([4.0, 1.0, 3.0])
    noise = OneOff(lambda rows: rows @ weights > 3.0, GaussianNoise(), 0.0025, 64)
    world = Task(space, lambda states: expit(states @ weights - 3.0), noise, 0.75, one_off=noise)
    people = np.random.default_rng(1).random((30, 3)) * 0.5
    people = people[people @ weights < 2.5]
    found, _ = Reach(world, np.random.default_rng(0).random((300, 3)), 0.2, 0.5).search(
        people, generators(len(people))
    )[0]
    assert (found.ends[:, 0] >= people[:, 0]).all()
    assert (found.ends[:, 0] <= 0.8).all()
    assert (found.ends[:, 1] <= people[:, 1]).all()
    np.testing.assert_array_equal(found.ends[:, 2], people[:, 2])


@pytest.mark.parametrize("noise_per", ["unit", "action"])
def test_sweeps_end_with_the_change_that_the_data_pull_at(noise_per):
    noise = Accumulated(lambda rows: probability(rows) > 0.5, PullsBack(), 0.0005, UNIT, 4, noise_per=noise_per)
    world = task(noise)
    reach = Reach(world, np.empty((0, 3)), 0.2, 0.5)
    start = Drafts.empty(SPACE, np.zeros((1, 3)))
    found, owners = sweep_search(world, start, np.array([0]), 0.2, reach._cost, generators(1))
    passed = noise.evaluate(found.factuals, found.plans(), 50, generators(len(found)), 0.95).rate == 0
    assert passed.any()
    assert (world.margins(found.ends)[passed] > 0).all()
    assert (owners == 0).all()
    # brute force over two changes of whole units in both orders, by the closed form of the noise
    cheapest = np.inf
    for a, b in itertools.product(range(1, 21), repeat=2):
        for first, second in itertools.permutations(range(3), 2):
            state, plan = np.zeros((1, 3)), np.zeros((2, 3))
            plan[0, first], plan[1, second] = a * UNIT, b * UNIT
            end = noise.follow(state, [plan], 1, generators(1))[0]
            if probability(end)[0] > 0.5 and probability(plan.sum(axis=0)[None])[0] > 0.5:
                cheapest = min(cheapest, a + b)
    assert found.sizes().sum(axis=1)[passed].min() <= 1.25 * cheapest + 2


@pytest.mark.parametrize("noise_per", ["unit", "action"])
def test_redone_changes_are_long_enough_and_in_the_right_order(noise_per):
    """The data pull at the first feature, so its change belongs to the end; the second is too short."""
    noise = Accumulated(lambda rows: probability(rows) > 0.5, PullsBack(), 0.0005, UNIT, 4, noise_per=noise_per)
    world = task(noise)
    start = drafts(np.zeros((2, 3)), [[0.6, 0.3, 0.3], [0.55, 0.45, 0.0]])
    assert (noise.evaluate(start.factuals, start.plans(), 50, generators(2), 0.95).rate == 1).all()
    redone = redo_changes(world, start, np.arange(2), 0.2, generators(2))
    assert (noise.evaluate(redone.factuals, redone.plans(), 50, generators(2), 0.95).rate == 0).all()
    np.testing.assert_array_equal(start.ends, drafts(np.zeros((2, 3)), [[0.6, 0.3, 0.3], [0.55, 0.45, 0.0]]).ends)
    assert ((redone.ends >= 0) & (redone.ends <= 1)).all()


def test_redone_changes_end_accepted_exactly_although_a_refused_end_is_better_for_the_crowd():
    """Exact states beyond 0.6 in the first feature are refused, which people who are drawn back never reach."""

    def predict(states):
        return np.where(states[:, 0] > 0.6 + 1e-9, 0.2, probability(states))

    noise = Accumulated(lambda rows: predict(rows) > 0.5, PullsBack(), 0.0005, UNIT, 4)
    start = drafts(np.zeros((1, 3)), [[0.5, 0.3, 0.45]])
    further = drafts(np.zeros((1, 3)), [[1.0, 0.3, 0.45]], [2, 0, 1])
    crowds = [noise.follow(each.factuals, each.plans(), 1, generators(1))[0] for each in (start, further)]
    assert predict(crowds[0])[0] < predict(crowds[1])[0]
    assert predict(further.ends)[0] < 0.5 < predict(start.ends)[0]
    redone = redo_changes(task(noise, predict), start, np.arange(1), 0.2, generators(1))
    assert predict(redone.ends)[0] > 0.5
    assert (noise.evaluate(redone.factuals, redone.plans(), 50, generators(1), 0.95).rate == 0).all()


def test_redone_changes_and_later_noise_do_not_depend_on_the_batch():
    """The second person needs more rounds than the first, who draws no more numbers for that."""
    noise = Accumulated(lambda rows: probability(rows) > 0.5, GaussianNoise(), 0.0005, UNIT, 4)
    start = drafts(np.zeros((2, 3)), [[0.6, 0.3, 0.3], [0.3, 0.2, 0.0]])
    together, alone = generators(2), generators(2)
    redone = redo_changes(task(noise), start, np.arange(2), 0.05, together)
    for row in range(2):
        each = redo_changes(task(noise), start[np.array([row])], np.array([row]), 0.05, alone)
        np.testing.assert_array_equal(each.ends[0], redone.ends[row])
        np.testing.assert_array_equal(each.turns[0], redone.turns[row])
    assert [rng.integers(2**63) for rng in together] == [rng.integers(2**63) for rng in alone]


def test_without_noise_drafts_are_only_accepted():
    world = Task(SPACE, probability, Precise(), 0.75)
    people = np.zeros((2, 3))
    found, rates = Reach(world, np.random.default_rng(0).random((200, 3)), 0.2, 0.5).search(people, generators(2))[0]
    assert (probability(found.ends) > 0.5).all()
    assert (rates == 0).all()
