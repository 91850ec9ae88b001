"""The MDP of Algorithm 3 and its actions against plain loops, and on real data."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from rose_carla import datasets
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from rose_carla.datasets import encoded_columns
from rose_carla.errors import PlanError
from rose_carla.mdp import Accumulated, ActionSpace, Feature, OneOff, Precise, RecourseMDP, Revisited, check_mdp
from rose_carla.noise import GaussianNoise
from rose_carla.ppo import PPOSettings, train

BINARY, THREE = np.array([[0.0], [1.0]]), np.eye(3)
#: Columns: income, age (increases only), home (one column), job (three columns), country (immutable).
FEATURES = [
    Feature("income", (0,)),
    Feature("age", (1,), direction=1),
    Feature("home", (2,), BINARY),
    Feature("job", (3, 4, 5), THREE),
]
#: The same actions listed by hand, in tenths.
ACTIONS = [
    *[("move", 0, tenths) for tenths in (-3, -1, 1, 3)],
    *[("move", 1, tenths) for tenths in (1, 3)],
    *[("set", (2,), encoding) for encoding in ((0,), (10,))],
    *[("set", (3, 4, 5), encoding) for encoding in ((10, 0, 0), (0, 10, 0), (0, 0, 10))],
]
WEIGHTS = np.array([1.5, 0.8, 0.7, -0.6, 0.1, 0.9, 0.4])


def space():
    return ActionSpace(FEATURES, width=7, action_unit=0.1, multiples=(3, 1))


def starts():
    rng = np.random.default_rng(0)
    continuous, home = rng.integers(0, 6, (40, 2)) / 10, rng.integers(0, 2, (40, 1))
    return np.hstack([continuous, home, np.eye(3)[rng.integers(0, 3, 40)], rng.random((40, 1))])


def probability(states):
    return 1 / (1 + np.exp(-8 * (states @ WEIGHTS - 2.2)))


def fake_model(data):
    """Stand-in for a classifier with the attributes that an action space needs."""
    return SimpleNamespace(data=data, feature_input_order=[c for c in data.df.columns if c != data.target])


class Fake(Precise):
    """Invalidation rates that depend on the state only."""

    def rates(self, states, crowd, rng):
        return np.array([self.rate(state) for state in states])

    @staticmethod
    def rate(state):
        return 0.5 * abs(float(np.sin(9 * state.sum())))


def possible_by_loop(tenths):
    """Integer tenths have no rounding errors."""
    found = []
    for kind, where, change in ACTIONS:
        if kind == "move":
            # the smaller of two moves across a bound ends at it, the larger is not needed
            found.append(
                0 < tenths[where] + {1: 0, 3: 1, -1: 0, -3: -1}[change] < 10 or 0 < tenths[where] + change < 10
            )
        else:
            found.append([tenths[column] for column in where] != list(change))
    return found


def moved_by_loop(tenths, number):
    kind, where, change = ACTIONS[number]
    tenths = list(tenths)
    if kind == "move":
        tenths[where] = min(max(tenths[where] + change, 0), 10)
    else:
        for column, value in zip(where, change, strict=True):
            tenths[column] = value
    return tenths


NOISES = {
    "fake": (Fake(), Fake.rate),
    # with variance 0 the whole crowd is where the plan leads
    "accumulated": (
        Accumulated(lambda rows: probability(rows) > 0.5, GaussianNoise(), 0.0, 0.1, crowd_size=3),
        lambda state: 0.0,
    ),
}


@pytest.mark.parametrize("noise", NOISES)
def test_mdp_against_plain_loop(noise):
    robustness, rate_of = NOISES[noise]
    mdp = RecourseMDP(space(), probability, starts(), robustness, tau=0.8, gamma=0.97, reward=50.0, max_actions=6)
    rng, n = np.random.default_rng(1), 25
    observations = mdp.reset(n, np.random.default_rng(2))
    tenths = [[round(10 * value) for value in state[:6]] for state in mdp.states]
    country, taken = mdp.states[:, 6], [0] * n
    seen = {"reached": 0, "not robust": 0, "truncated": 0, "continues": 0}
    for _ in range(60):
        np.testing.assert_allclose(observations, mdp.states, atol=1e-12)
        mask = mdp.mask()
        assert mask.tolist() == [possible_by_loop(row) for row in tenths]
        actions = np.array([rng.choice(np.flatnonzero(row)) for row in mask])
        step = mdp.step(actions)
        for e in range(n):
            before, tenths[e] = tenths[e], moved_by_loop(tenths[e], actions[e])
            taken[e] += 1
            state = np.array([*(value / 10 for value in tenths[e]), country[e]])
            size = sum(abs(after - value) for after, value in zip(tenths[e], before, strict=True))
            chance = 1 / (1 + np.exp(-8 * (sum(w * x for w, x in zip(WEIGHTS, state, strict=True)) - 2.2)))
            reached = chance > 0.5 and rate_of(state) < 1 - 0.8
            truncated = not reached and taken[e] == 6
            np.testing.assert_allclose(step.finals[e], state, atol=1e-12)
            assert step.sizes[e] == pytest.approx(size)
            assert step.discounts[e] == pytest.approx(0.97**size)
            assert step.rewards[e] == pytest.approx((1 - rate_of(state)) * 50.0 if reached else chance)
            assert (step.reached[e], step.terminated[e], step.truncated[e]) == (reached, reached, truncated)
            if reached or truncated:
                assert (np.abs(mdp.starts - mdp.states[e]).max(axis=1) == 0).any()
                tenths[e], country[e], taken[e] = [round(10 * x) for x in mdp.states[e, :6]], mdp.states[e, 6], 0
            outcome = "reached" if reached else "truncated" if truncated else "continues"
            seen[outcome] += 1
            seen["not robust"] += chance > 0.5 and not reached
        observations = step.observations
    assert all(seen[outcome] > 20 for outcome in ("reached", "truncated", "continues")), seen
    assert (seen["not robust"] > 20) == (noise == "fake"), seen


def test_one_off_noise_decides_termination_in_a_favourable_state():
    """One feature at 0.6, favourable above 0.5, Gaussian noise of sd 0.1: IR is Phi(-1) = 0.159."""
    noise = OneOff(lambda rows: rows[:, 0] > 0.5, GaussianNoise(), 0.01, 20_000)
    for tau, reached in ((0.82, True), (0.86, False)):
        actions = ActionSpace([Feature("income", (0,))], width=1, action_unit=0.2)
        mdp = RecourseMDP(actions, lambda states: states[:, 0], np.array([[0.4]]), noise, tau=tau)
        mdp.reset(1, np.random.default_rng(0))
        step = mdp.step(np.array([1]))
        assert step.reached[0] == reached
        assert step.rewards[0] == pytest.approx(100 * (1 - 0.1587) if reached else 0.6, abs=1.0 if reached else 1e-9)


def test_episode_terminates_without_possible_actions():
    actions = ActionSpace([Feature("age", (0,), direction=1)], width=1, action_unit=0.5)
    mdp = RecourseMDP(actions, lambda states: 0.1 * states[:, 0], np.array([[0.5], [1.0]]), Precise())
    assert mdp.starts.tolist() == [[0.5]]  # no action is possible from 1.0
    mdp.reset(2, np.random.default_rng(0))
    step = mdp.step(np.array([0, 0]))
    assert step.terminated.all()
    assert not step.reached.any()
    assert not step.truncated.any()
    np.testing.assert_allclose(step.rewards, 0.1)


def test_actions_are_numbered_feature_by_feature():
    actions = space()
    assert actions.n == len(ACTIONS)
    assert actions.feature_numbers.tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 3]
    assert actions.moves.tolist() == [-3, -1, 1, 3, 1, 3, 0, 0, 0, 0, 0]
    assert actions.membership.sum(axis=1).tolist() == [1, 1, 1, 1, 1, 1, 0]
    assert actions.membership[:, 3].tolist() == [0, 0, 0, 1, 1, 1, 0]


def test_categories_are_set_to_other_valid_encodings():
    state = np.array([[0.5, 0.5, 1.0, 0.0, 1.0, 0.0, 0.3]])
    assert space().mask(state)[0, 6:].tolist() == [True, False, True, False, True]
    ends = space().apply(np.repeat(state, 3, axis=0), np.array([6, 8, 10]))
    np.testing.assert_array_equal(ends[0], [0.5, 0.5, 0.0, 0.0, 1.0, 0.0, 0.3])
    np.testing.assert_array_equal(ends[1], [0.5, 0.5, 1.0, 1.0, 0.0, 0.0, 0.3])
    np.testing.assert_array_equal(ends[2], [0.5, 0.5, 1.0, 0.0, 0.0, 1.0, 0.3])


@pytest.mark.parametrize("unit", [0.1, 0.025, 1 / 3, 1 / 7, 0.3])
def test_rounding_errors_do_not_stop_a_move_at_the_bounds(unit):
    actions = ActionSpace([Feature("income", (0,))], width=1, action_unit=unit)
    steps = round(1 / unit + 0.4)  # the last may be shorter
    for number, start in ((1, 0.0), (0, 1.0)):
        state, taken = np.array([[start]]), 0
        while actions.mask(state)[0, number]:
            state = actions.apply(state, np.array([number]))
            taken += 1
            assert 0 <= state[0, 0] <= 1
        assert taken == steps
        assert state[0, 0] == 1 - start


def test_moves_from_outside_lead_towards_the_bounds():
    actions = ActionSpace([Feature("income", (0,))], width=1, action_unit=0.1)
    assert actions.mask(np.array([[1.25], [-0.25], [1.05], [1.0 + 1e-12]])).tolist() == [
        [True, False],
        [False, True],
        [True, False],
        [True, False],
    ]
    # values far outside are moved, not clipped
    assert actions.apply(np.array([[1.25]]), np.array([0]))[0, 0] == pytest.approx(1.15)


def test_moves_stop_at_bounds():
    features = [Feature("income", (0,), unit=0.2, lower=0.1, upper=0.9), Feature("age", (1,), direction=1)]
    actions = ActionSpace(features, width=2, action_unit=0.1, multiples=(1, 2, 4))
    assert actions.units.tolist() == [0.2, 0.1]
    assert actions.moves.tolist() == [-4, -2, -1, 1, 2, 4, 1, 2, 4]
    states = np.array([[0.45, 0.75], [0.1, 1.0], [0.9, 0.99]])
    assert actions.mask(states).astype(int).tolist() == [
        [0, 1, 1, 1, 1, 1, 1, 1, 1],
        [0, 0, 0, 1, 1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 1, 0, 0],
    ]
    ends = actions.apply(states, np.array([1, 4, 6]))
    np.testing.assert_array_equal(ends, [[0.1, 0.75], [0.5, 1.0], [0.9, 1.0]])


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, 60),
            "income": rng.random(60),
            "home": rng.choice(["rent", "own"], 60),
            "job": rng.choice(["none", "blue", "white"], 60),
            "loan": rng.integers(0, 2, 60),
        }
    )
    return datasets.from_frame(frame, "loan", name="people", immutables=["home"])


def test_actions_of_a_data_set(people):
    model = fake_model(people)
    actions = ActionSpace.from_model(model, 0.1, (1, 2), monotone={"age": "increase", "income": "decrease"})
    assert [feature.name for feature in actions.features] == ["age", "income", "job"]
    assert actions.moves.tolist() == [1, 2, -2, -1, 0, 0, 0]
    assert np.flatnonzero(actions.membership.sum(axis=1) == 0).tolist() == [
        model.feature_input_order.index(encoded_columns(people)["home"][0])
    ]
    job = actions.features[2]
    assert [model.feature_input_order[column] for column in job.columns] == encoded_columns(people)["job"]
    np.testing.assert_array_equal(job.encodings, np.eye(3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: ActionSpace.from_model(m, monotone={"incme": "increase"}), "'incme': did you mean 'income'"),
        (lambda m: ActionSpace.from_model(m, monotone={"job": "increase"}), "Unknown continuous feature 'job'"),
        (lambda m: ActionSpace.from_model(m, monotone={"age": "increases"}), "'increases': did you mean 'increase'"),
        (lambda m: ActionSpace([], 3), "All features are immutable"),
        (
            lambda m: ActionSpace.from_model(SimpleNamespace(data=m.data, feature_input_order=["age", "shoes"])),
            r"not in its data set: \['shoes'\]",
        ),
    ],
)
def test_invalid_actions_raise_an_error(people, make, message):
    with pytest.raises(PlanError, match=message):
        make(fake_model(people))


def test_starts_without_possible_action_raise_an_error():
    actions = ActionSpace([Feature("age", (0,), direction=1)], width=1)
    with pytest.raises(PlanError, match="No action is possible in any start state"):
        RecourseMDP(actions, lambda states: states[:, 0], np.array([[1.0]]), Precise())


@pytest.fixture(scope="module")
def real():
    return {"german": datasets.load("german", form="typed"), "adult": datasets.load("adult")}


@pytest.mark.parametrize("name", ["german", "adult"])
@given(
    seed=st.integers(0, 2**32 - 1),
    unit=st.sampled_from([0.025, 0.05, 0.1, 1 / 3, 1.0]),
    multiples=st.sampled_from([(1,), (1, 4), (2, 3, 7)]),
)
@hypothesis_settings(deadline=None, max_examples=15)
def test_random_plans_respect_the_data_set(real, name, seed, unit, multiples):
    """15 times 50 rows and up to 30 actions for each, checked against the data set rather than the action space."""
    data, rng = real[name], np.random.default_rng(seed)
    model = fake_model(data)
    names = np.array(model.feature_input_order)
    monotone = next(feature for feature in data.continuous if feature not in data.immutables)
    actions = ActionSpace.from_model(model, unit, multiples, {monotone: "increase"})
    rows = data.df[names].to_numpy(dtype=float)
    states = first = rows[rng.integers(len(rows), size=50)]
    columns = encoded_columns(data)
    fixed = np.isin(names, [column for feature in data.immutables for column in columns.get(feature, [feature])])
    grows = names == monotone
    assert fixed.any()
    for _ in range(30):
        mask = actions.mask(states)
        assert mask.any(axis=1).all()  # another category is always possible
        ends = actions.apply(states, np.where(mask, rng.random(mask.shape), -1).argmax(axis=1))
        assert (np.abs(ends - states).max(axis=1) > 1e-6).all()
        assert (ends[:, grows] >= states[:, grows]).all()
        states = ends
        np.testing.assert_array_equal(states[:, fixed], first[:, fixed])
        assert states.min() >= 0
        assert states.max() <= 1
        for block in columns.values():
            values = states[:, np.isin(names, block)]
            assert np.isin(values, [0.0, 1.0]).all()
            if len(block) > 1:
                assert (values.sum(axis=1) == 1).all()


@pytest.mark.parametrize(("noise_per", "n_steps"), [("unit", 4), ("action", 1)])
def test_noisy_steps_of_an_action(noise_per, n_steps):
    """Noise that keeps each state where it is, and counts."""
    variances = []

    class Counting(GaussianNoise):
        def sample(self, states, variance, n_samples, rng):
            variances.append(np.broadcast_to(variance, len(states)).tolist())
            return states[:, None]

    noise = Accumulated(lambda rows: rows[:, 0] > 0.5, Counting(), 0.001, 0.1, crowd_size=2, noise_per=noise_per)
    crowd = noise.advance(np.zeros((2, 2, 1)), np.array([[0.4], [0.0]]), np.random.default_rng(0))
    np.testing.assert_allclose(crowd[:, :, 0], [[0.4, 0.4], [0.0, 0.0]])
    np.testing.assert_allclose(variances, [[0.004 / n_steps] * 2] * n_steps)


@given(seed=st.integers(0, 2**32 - 1), partial=st.booleans(), spread=st.sampled_from([0.0, 0.3, 3.0]))
@hypothesis_settings(deadline=None, max_examples=25)
def test_lengths_of_actions_against_a_loop(seed, partial, spread):
    """Wherever people landed: between categories, out of range, at bounds and within rounding errors of them."""
    features = [*FEATURES[:2], Feature("debt", (6,), unit=0.25, lower=0.1, upper=0.8), *FEATURES[2:]]
    actions, rng = ActionSpace(features, 7, 0.1, (1, 3), partial), np.random.default_rng(seed)
    states = starts()[:8] + rng.normal(0, spread, (8, 7))
    edges = rng.choice([0.0, 0.1, 0.8, 1.0, 1e-10, 1 - 1e-10], states.shape)
    states = np.where(rng.random(states.shape) < 0.3, edges, states)
    lengths = actions.lengths(states)
    assert lengths.shape == (8, actions.n)
    for row, state in enumerate(states):
        for number in range(actions.n):
            end = actions.apply(state[None], np.array([number]))[0]
            assert lengths[row, number] == pytest.approx(np.abs(end - state).sum(), abs=3e-9)


def revisited(variance=0.01, stop=None, **options):
    return Revisited(lambda rows: probability(rows) > 0.5, GaussianNoise(), variance, 0.1, stop=stop, **options)


def test_people_who_revisit_act_from_where_they_landed():
    mdp = RecourseMDP(space(), probability, starts(), revisited(0.02), max_actions=8)
    observations, rng = mdp.reset(30, np.random.default_rng(0)), np.random.default_rng(1)
    before, moved = mdp.states, 0
    for _ in range(20):
        np.testing.assert_array_equal(observations, before)
        actions = np.array([rng.choice(np.flatnonzero(row)) for row in mdp.mask()])
        step = mdp.step(actions)
        planned = mdp.actions.apply(before, actions)
        # noise in all columns, also those that no action changes; of a size that grows with the action
        off = step.finals - planned
        assert (off != 0).all()
        assert (np.abs(off) < 6 * np.sqrt(0.02 * step.sizes)[:, None]).all()
        chance = probability(step.finals)
        np.testing.assert_array_equal(step.reached, chance > 0.5)
        np.testing.assert_allclose(step.rewards, np.where(step.reached, 100.0, chance))
        running = ~(step.terminated | step.truncated)
        np.testing.assert_array_equal(mdp.states[running], step.finals[running])
        moved += (np.abs(mdp.states[:, 3:6] * (1 - mdp.states[:, 3:6])) > 1e-3).any(axis=1).sum()
        observations, before = step.observations, mdp.states
    assert moved > 100  # people between categories


def test_people_who_revisit_may_have_to_arrive_robustly():
    """Favourable above 0.5 with one-off noise of sd 0.1: robust above 0.5 + 0.1 * 0.674."""
    accepts = lambda rows: rows[:, 0] > 0.5  # noqa: E731
    noise = revisited(1e-12, OneOff(accepts, GaussianNoise(), 0.01, 20_000))
    actions = ActionSpace([Feature("income", (0,))], width=1, action_unit=0.01)
    for start, reached in ((0.555, False), (0.565, True)):
        mdp = RecourseMDP(actions, lambda states: states[:, 0], np.array([[start]]), noise, tau=0.75)
        mdp.reset(1, np.random.default_rng(0))
        step = mdp.step(np.array([1]))
        assert (step.finals[0, 0], step.reached[0]) == (pytest.approx(start + 0.01, abs=1e-4), reached)
    assert noise.with_samples(7).stop.n_samples == 7
    assert revisited().with_samples(7).stop is None


@pytest.mark.parametrize("noise_per", ["unit", "action"])
def test_revisited_worlds_pass_the_checker(noise_per):
    # noise leads beyond bounds and between categories: what remains is the interface
    mdp = RecourseMDP(space(), probability, starts(), revisited(0.02, noise_per=noise_per))
    interface = {name: getattr(mdp, name) for name in ("width", "n_actions", "reset", "mask", "step")}
    check_mdp(SimpleNamespace(**interface))


def test_a_revisited_world_is_learned():
    """Two features, one of them useless: the policy raises the other, wherever people landed."""
    actions = ActionSpace([Feature("income", (0,)), Feature("shoes", (1,))], 2, 0.1)
    noise = Revisited(lambda rows: rows[:, 0] > 0.5, GaussianNoise(), 0.003, 0.1)
    first = np.random.default_rng(0).random((100, 2)) * [0.5, 1.0]
    mdp = RecourseMDP(actions, lambda rows: np.clip(rows[:, 0], 0, 1), first, noise, max_actions=20)
    policy, _ = train(mdp, PPOSettings(n_updates=6, n_envs=64, n_steps=16, batch_size=256, restarts=0), 0)
    states = np.random.default_rng(1).uniform([-0.3, -0.3], [0.5, 1.3], (200, 2))
    assert (policy.greedy(states, actions.mask(states)) == 1).mean() > 0.95
