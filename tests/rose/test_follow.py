"""Advice from where people landed, and how often it succeeds: closed forms, plain loops and bad input."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from rose_carla import RoseOne, datasets, models
from rose_carla.datasets import feature_groups, valid_encodings
from rose_carla.errors import DataError, PlanError
from rose_carla.mdp import ActionSpace, Feature, OneOff, Revisited
from rose_carla.noise import GaussianNoise, PlausibleNoise, density_of, noisy_step, unit_actions, wilson_interval
from rose_carla.rose.advice import Advisor
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

BRIEF = {"ppo": {"n_updates": 6, "n_envs": 64, "n_steps": 16, "batch_size": 256, "restarts": 0}}
UNIT, WEIGHT = 0.05, 0.5


@pytest.fixture(scope="module")
def method(compas_linear):
    return RoseOne(compas_linear, BRIEF)


@pytest.fixture(scope="module")
def people(compas_linear):
    return models.negative_instances(compas_linear).head(12)


@pytest.fixture(scope="module")
def followed(method, people):
    return method.follow(people, 40, rng=3)


def array(model, frame):
    return frame[model.feature_input_order].to_numpy(dtype=float)


class Fixed:
    """A policy that prefers one action."""

    def __init__(self, number):
        self.number = number

    def greedy(self, states, mask):
        return np.where(mask[:, self.number], self.number, mask.argmax(axis=1))


def advisor(variance=0.002, noise_per="unit", stop=None, number=None):
    """Advice in a linear world: favourable where income is above 0.5, noise is Gaussian."""
    space = ActionSpace([Feature("income", (0,)), Feature("job", (1, 2), np.eye(2))], 3, UNIT, (1, 2, 4, 8))
    noise = Revisited(lambda rows: rows[:, 0] > 0.5, GaussianNoise(), variance, space.units, 1, 8, noise_per, stop)
    number = space.moves.tolist().index(4) if number is None else number
    return Advisor(space, Fixed(number), noise, WEIGHT, 0)


def rows_at(incomes):
    return np.column_stack([incomes, np.ones(len(incomes)), np.zeros(len(incomes))])


@pytest.mark.parametrize("noise_per", ["unit", "action"])
def test_advised_lengths_against_the_closed_form(noise_per):
    incomes = np.linspace(-0.3, 0.49, 300)
    answers = advisor(noise_per=noise_per)(rows_at(incomes), np.full(300, np.inf))
    assert all(answer.shape == (1, 3) and not answer[0, 1:].any() for answer in answers)
    lengths = np.array([answer[0, 0] for answer in answers]) / UNIT
    np.testing.assert_allclose(lengths, lengths.round())
    units = np.arange(1, 9)
    chances = norm.cdf((incomes[:, None] + UNIT * units - 0.5) / np.sqrt(0.002 * units))
    costs = (units + WEIGHT) / chances
    advised = np.take_along_axis(costs, lengths.round().astype(int)[:, None] - 1, axis=1)[:, 0]
    promising = chances.max(axis=1) > 0.6
    assert promising.sum() > 100
    # crowds are small, so lengths are not always the best, but their expected costs are near it
    excess = advised[promising] / costs.min(axis=1)[promising]
    assert excess.mean() < 1.1
    assert np.quantile(excess, 0.95) < 1.5
    assert excess.mean() < (costs[:, 3] / costs.min(axis=1))[promising].mean() - 0.1  # the policy's own length
    # without a fair chance the longest move is advised
    hopeless = chances.max(axis=1) < 0.02
    assert hopeless.sum() > 5
    assert (lengths[hopeless].round() == 8).all()


def test_advice_stays_within_the_budget_where_an_action_does():
    generator = np.random.default_rng(1)
    states, budgets = rows_at(generator.uniform(0, 0.5, 300)), generator.uniform(0, 0.5, 300)
    lengths = np.array([np.abs(answer).sum() for answer in advisor()(states, budgets)])
    # setting the job costs 2, a unit of income 0.05, or less down to 0
    affordable = budgets >= np.minimum(UNIT, states[:, 0])
    assert (lengths[affordable] <= budgets[affordable] + 1e-9).all()
    assert (lengths[affordable] > 0).all()
    assert (lengths[~affordable] > budgets[~affordable]).all()


def test_advice_is_the_same_in_any_batch_and_order():
    generator = np.random.default_rng(2)
    states, budgets = rows_at(generator.uniform(-0.2, 0.5, 60)), generator.choice([0.1, 0.3, np.inf], 60)
    states[:, 1:] += generator.normal(0, 0.1, (60, 2))
    states[30:40], budgets[30:40] = states[:10], budgets[:10]
    ask = advisor()
    whole = np.concatenate(ask(states, budgets))
    order = generator.permutation(60)
    np.testing.assert_array_equal(np.concatenate(ask(states[order], budgets[order])), whole[order])
    np.testing.assert_array_equal(np.concatenate([ask(states[[i]], budgets[[i]])[0] for i in range(60)]), whole)


def test_categories_and_robust_ends_keep_the_policys_action():
    states, budgets = rows_at(np.array([0.1, 0.45])), np.full(2, np.inf)
    states[:, 1:] = [[0.8, 0.1], [0.4, 0.7]]
    category = advisor(number=9)  # sets the second job
    for answer, state in zip(category(states, budgets), states, strict=True):
        np.testing.assert_allclose(state + answer[0], [state[0], 0.0, 1.0])
    one_off = OneOff(lambda rows: rows[:, 0] > 0.5, GaussianNoise(), 0.01, 20)
    for answer in advisor(stop=one_off)(states, budgets):
        np.testing.assert_allclose(answer, [[4 * UNIT, 0.0, 0.0]])


@pytest.mark.parametrize("spread", [0.05, 1.0])
def test_advice_is_valid_wherever_people_landed(method, compas_linear, people, spread):
    data, order = compas_linear.data, compas_linear.feature_input_order
    generator = np.random.default_rng(4)
    states = np.repeat(array(compas_linear, people), 10, axis=0)
    states = states + generator.normal(0, spread, states.shape)
    answers = method.advise(states, np.full(len(states), np.inf))
    groups = feature_groups(data, order)
    advised = set()
    for state, answer in zip(states, answers, strict=True):
        (name,) = [name for name, columns in groups.items() if answer[0, columns].any()]
        assert name not in data.immutables
        advised.add(name)
        end = state[groups[name]] + answer[0, groups[name]]
        if name in data.categorical:
            assert np.abs(end - valid_encodings(data, name, len(groups[name]))).max(axis=1).min() < 1e-9
        else:
            # towards the range from outside, and never beyond its other end
            assert min(state[groups[name][0]], 0) - 1e-9 <= end[0] <= max(state[groups[name][0]], 1) + 1e-9
    assert advised


def test_columns_of_the_frame_and_its_shares(followed, people):
    frame = followed.to_frame()
    assert frame.columns.tolist() == [
        "person", "success", "success_lower", "success_upper", "cost_mean", "cost_q90", "decisions_mean",
        "decisions_q90", "failed_decisions", "failed_cost", "failed_no_answer",
    ]  # fmt: skip
    assert frame["person"].tolist() == people.index.tolist()
    shares = frame[["success", "failed_decisions", "failed_cost", "failed_no_answer"]]
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert frame["success"].mean() == pytest.approx(followed.success.probability)
    n = len(people) * 40
    lower, upper = wilson_interval(np.array([round(frame["success"].sum() * 40)]), n, 0.95)
    assert (followed.success.lower, followed.success.upper) == (pytest.approx(lower[0]), pytest.approx(upper[0]))
    assert [each.probability for each in followed.successes] == pytest.approx(frame["success"].tolist())
    for row, done, costs in zip(frame["cost_mean"], followed.tries.succeeded, followed.tries.costs, strict=True):
        assert row == pytest.approx(np.mean([cost for cost, ok in zip(costs, done, strict=True) if ok]))
    text = str(followed)
    assert text.splitlines()[0] == "ROSE-one, closed loop: 12 people, 40 tries each"
    assert f"{followed.success.probability:.1%}" in text


def test_success_against_a_plain_loop(method, compas_linear, people):
    """Other random numbers, one try after another: ask, implement unit by unit, look."""
    limit, n = 0.2, 40
    noise, generator = PlausibleNoise(density_of(compas_linear, "scott", 1e-6, 50_000)), np.random.default_rng(9)
    some = people.head(3)
    ours = method.follow(some, 200, max_cost=limit, max_decisions=3)
    counts, spent = np.zeros(3), []
    for person, row in enumerate(array(compas_linear, some)):
        for _ in range(n):
            state, left = row[None], limit
            for _ in range(3):
                action = method.advise(state, np.array([left]))[0]
                if not 0 < np.abs(action).sum() <= left + 1e-9:
                    break
                left -= np.abs(action).sum()
                for unit in unit_actions(action, 0.025):
                    state = noisy_step(state, unit[None], noise, 0.0005, 0.025, generator)
                if compas_linear.predict_proba(state)[0, 1] > 0.5:
                    counts[person] += 1
                    spent.append(limit - left)
                    break
    lower, upper = wilson_interval(counts, n, 0.999)
    for each, low, high in zip(ours.successes, lower, upper, strict=True):
        assert low - 0.1 < each.probability < high + 0.1
    assert abs(ours.success.probability - counts.sum() / (3 * n)) < 0.12
    assert 0.05 < ours.success.probability < 0.98
    assert ours.tries.costs[ours.tries.succeeded].mean() == pytest.approx(np.mean(spent), abs=0.02)


def test_costs_are_limited_for_all_or_for_each(method, people):
    some = people.head(4)
    scalar, each = (method.follow(some, 10, max_cost=limit) for limit in (0.15, [0.15] * 4))
    pd.testing.assert_frame_equal(scalar.to_frame(), each.to_frame())
    limits = np.array([0.0, 0.05, 0.3, 2.0])
    mixed = method.follow(some, 10, max_cost=limits)
    assert (mixed.tries.costs <= limits[:, None] + 1e-9).all()
    assert mixed.to_frame()["failed_cost"].iloc[0] == 1
    alone = method.follow(some.tail(1), 10, max_cost=2.0)
    np.testing.assert_array_equal(alone.tries.ends[0], mixed.tries.ends[3])
    assert "at the limit of cost" in str(mixed)


def test_same_seed_gives_the_same_tries(method, people, followed):
    again = method.follow(people, 40, rng=3)
    pd.testing.assert_frame_equal(again.to_frame(), followed.to_frame())
    # chunks of people and the rest of the batch do not matter
    some = method.follow(people.iloc[[7, 2]], 40, rng=3)
    np.testing.assert_array_equal(some.tries.ends, followed.tries.ends[[7, 2]])
    other = method.follow(people, 40)
    assert not np.array_equal(other.tries.ends, followed.tries.ends)
    drawn = [method.follow(people.head(1), 5, rng=np.random.default_rng(8)).tries.ends for _ in range(2)]
    np.testing.assert_array_equal(*drawn)


def test_many_tries_are_simulated_in_parts(method, people, followed, monkeypatch):
    monkeypatch.setattr("rose_carla.rose.methods._TRIES", 100)
    np.testing.assert_array_equal(method.follow(people, 40, rng=3).tries.ends, followed.tries.ends)


def test_accepted_people_are_done(method, compas_linear, people):
    frame = compas_linear.data.df_test
    accepted = frame[models.favourable(compas_linear)(array(compas_linear, frame))].head(2)
    result = method.follow(pd.concat([accepted, people.head(1)]), 10).to_frame()
    assert result["success"].tolist()[:2] == [1.0, 1.0]
    assert (result.loc[:1, ["cost_mean", "cost_q90", "decisions_mean", "decisions_q90"]] == 0).all(axis=None)
    assert result["decisions_mean"].iloc[2] >= 1
    steps = method.next_steps(accepted)
    assert [(plan.status, plan.steps) for plan in steps] == [("accepted", ())] * 2


def test_failures_say_why_and_where_in_original_units(method, compas_linear, people):
    result = method.follow(people, 5, max_decisions=1, max_cost=0.05)
    failures = result.failures()
    assert len(failures) == (~result.tries.succeeded).sum() > 0
    assert set(failures["reason"]) <= {"decisions", "cost", "no answer"}
    data, order = compas_linear.data, compas_linear.feature_input_order
    features = [*data.continuous, *data.categorical]
    assert sorted(failures.columns) == sorted(["person", "reason", "cost", "decisions", "probability", *features])
    ends = result.tries.ends[~result.tries.succeeded]
    np.testing.assert_allclose(failures["probability"], compas_linear.predict_proba(ends)[:, 1], atol=1e-6)
    # original units are linear in the encoded values: two people of the data fix the line
    column = order.index("age")
    first, last = data.df.loc[data.df["age"].idxmin()], data.df.loc[data.df["age"].idxmax()]
    ages = [data.inverse_transform(row.to_frame().T.astype(float))["age"].iloc[0] for row in (first, last)]
    np.testing.assert_allclose(failures["age"], ages[0] + ends[:, column] * (ages[1] - ages[0]), rtol=1e-6)
    whole = method.follow(people.head(2), 5)
    assert len(whole.failures()) == (~whole.tries.succeeded).sum()


BAD = [
    ({"n_tries": 0}, "n_tries must be an integer of at least 1, got 0"),
    ({"n_tries": 2.5}, "n_tries must be an integer"),
    ({"max_decisions": 0}, "max_decisions must be an integer of at least 1, got 0"),
    ({"max_decisions": 10**6}, "max_decisions must be at most"),
    ({"max_cost": -0.1}, "max_cost must be a number of at least 0, or one for each of 2 people, got -0.1"),
    ({"max_cost": np.nan}, "max_cost must be a number of at least 0"),
    ({"max_cost": [0.1, np.nan]}, "max_cost must be a number of at least 0"),
    ({"max_cost": [0.1, 0.2, 0.3]}, "one for each of 2 people"),
    ({"max_cost": "much"}, "max_cost must be a number of at least 0"),
    ({"stop": "robustly"}, "stop must be .*'accepted'.*'robust', got 'robustly'"),
    ({"stop": None}, "stop must be"),
    ({"noise_per": "day"}, "noise_per must be .*'unit'.*'action'"),
    ({"noise_per": ""}, "noise_per must be"),
    ({"rng": "x"}, "seed must be an integer from 0"),
    ({"rng": -1}, "seed must be an integer from 0"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_options_end_in_one_sentence(method, people, options, message):
    with pytest.raises(PlanError, match=message) as raised:
        method.follow(people.head(2), **options)
    text = str(raised.value)
    assert "\n" not in text
    assert text.endswith(".")


def test_an_unknown_end_is_not_trained_for(method):
    with pytest.raises(PlanError, match="stop must be"):
        method.fit_closed_loop("robustly")
    with pytest.raises(PlanError, match="stop must be"):
        method.advise(np.zeros((1, 7)), np.full(1, np.inf), "robustly")
    assert "robustly" not in method.closed_loop_policies_


def test_bad_people_end_in_one_sentence(method, compas_linear, people):
    for odd, message in (
        (people.drop(columns="age"), "lack the columns age"),
        (people.head(0), "has no rows"),
        (pd.concat([people, people]), "occur twice"),
        (people.assign(age=np.nan), "missing or infinite values"),
        (people.assign(sex_Male=0.5), "not at a valid encoding"),
        (people.to_numpy(), "DataFrame"),
    ):
        for ask in (method.follow, method.next_steps):
            with pytest.raises(DataError, match=message):
                ask(odd)
    untrained = RoseOne(compas_linear, {"fit": False})
    for ask in (untrained.follow, untrained.next_steps, lambda some: untrained.next_action(some.head(1))):
        with pytest.raises(PlanError, match=r"not trained yet: call fit\(\) first"):
            ask(people)


def test_people_whom_everything_leaves_refused(compas, compas_linear):
    class Strict(models.TorchModel):
        def predict_proba(self, x):
            return np.tile([0.9, 0.1], (len(x), 1))

    model = Strict(compas, compas_linear.raw_model, compas_linear.feature_input_order)
    ppo = {"n_updates": 1, "n_envs": 8, "n_steps": 8, "batch_size": 64, "restarts": 0}
    with pytest.warns(UserWarning, match="reaches the goal for 0%"):
        method = RoseOne(model, {"ppo": ppo, "max_actions": 5, "search": False})
    result = method.follow(compas.df_test.head(3), 4, max_decisions=3)
    frame = result.to_frame()
    assert (frame["success"] == 0).all()
    assert (frame["failed_decisions"] == 1).all()
    assert frame[["cost_mean", "cost_q90", "decisions_mean", "decisions_q90"]].isna().all(axis=None)
    assert (result.failures()["decisions"] == 3).all()
    assert "100.0% after 3 decisions" in str(result)


@pytest.fixture(scope="module")
def only_up():
    """Income may only increase, debt is immutable; without noise people stop at the bound."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"income": rng.random(300), "debt": rng.random(300)})
    frame.loc[:1] = [[0.0, 0.0], [1.0, 1.0]]
    frame["loan"] = (frame["income"] > frame["debt"]).astype(int)
    data = datasets.from_frame(frame, "loan", name="loans", immutables=["debt"])
    rows, outcomes = data.df_train[["income", "debt"]], data.df_train["loan"]
    model = models.wrap(LogisticRegression(C=1e4).fit(rows, outcomes), data, space="encoded")
    return RoseOne(model, {**BRIEF, "monotone": {"income": "increase"}, "unit_variance": 0.0, "variance": 0.0001})


def test_people_at_all_bounds_get_no_answer(only_up):
    stuck = pd.DataFrame({"income": [1.0, 0.4], "debt": [1.2, 0.3]}, index=["stuck", "fine"])
    stuck = pd.concat([stuck, pd.DataFrame({"income": [0.1], "debt": [0.35]}, index=["ready"])])
    probabilities = only_up._mlmodel.predict_proba(stuck)[:, 1]
    assert (probabilities > 0.5).tolist() == [False, True, False]
    frame = only_up.follow(stuck, 3).to_frame().set_index("person")
    assert frame["failed_no_answer"].tolist() == [1, 0, 0]
    assert frame["success"].tolist() == [0, 1, 1]
    # without noise people arrive with the first answer that leads there
    assert frame.loc["ready", "cost_mean"] >= 0.25 - 0.02
    plans = only_up.next_steps(stuck)
    assert [plan.status for plan in plans] == ["no plan", "accepted", "plan"]
    assert plans[0].reason == "no action is possible: all features are at their bounds"
    with pytest.raises(PlanError, match="no action is possible"):
        only_up.next_action(stuck.head(1))


def test_robust_ends_are_robust(method, compas_linear, people):
    result = method.follow(people, 12, stop="robust")
    assert result.success.probability > 0.9
    done = result.tries.succeeded
    ends = result.tries.ends[done]
    noise = PlausibleNoise(density_of(compas_linear, "scott", 1e-6, 50_000))
    noisy = noise.sample(ends, 0.01, 400, np.random.default_rng(11))
    accepts = models.favourable(compas_linear)
    rates = 1 - accepts(noisy.reshape(-1, ends.shape[1])).reshape(len(ends), 400).mean(axis=1)
    assert accepts(ends).all()
    # people stop by a check of 64 samples, whose rate is below 0.25
    assert rates.mean() < 0.25
    assert (rates < 0.25 + 4 * np.sqrt(0.25 * 0.75 * (1 / 64 + 1 / 400))).all()
    plain = method.follow(people, 12)
    assert plain.tries.costs[plain.tries.succeeded].mean() < result.tries.costs[done].mean()


def test_saved_policies_give_the_same_advice(method, compas_linear, people, tmp_path, monkeypatch):
    expected, steps = method.follow(people.head(4), 10), method.next_steps(people.head(4))
    method.save(tmp_path / "with")
    loaded = RoseOne.load(tmp_path / "with", compas_linear)
    assert set(loaded.closed_loop_policies_) == set(method.closed_loop_policies_) >= {"accepted"}
    with monkeypatch.context() as patch:
        patch.setattr(RoseOne, "fit_closed_loop", lambda *given: pytest.fail("trained again"))
        pd.testing.assert_frame_equal(loaded.follow(people.head(4), 10).to_frame(), expected.to_frame())
        assert [plan.to_dict() for plan in loaded.next_steps(people.head(4))] == [plan.to_dict() for plan in steps]
    # a file without them is completed by training when it is needed, with the same result
    loaded.closed_loop_policies_ = {}
    loaded.save(tmp_path / "without")
    bare = RoseOne.load(tmp_path / "without", compas_linear)
    assert bare.closed_loop_policies_ == {}
    pd.testing.assert_frame_equal(bare.get_counterfactuals(people.head(4)), method.get_counterfactuals(people.head(4)))
    assert [plan.to_dict() for plan in bare.next_steps(people.head(4))] == [plan.to_dict() for plan in steps]


def test_plans_tell_the_success_of_people_who_come_back(method, people):
    some = people.head(3)
    plain, once, often = method.plan(some), method.plan(some, revisits=1), method.plan(some, revisits=6)
    for first, other, last in zip(plain, once, often, strict=True):
        assert first.revisits is first.revisited is None
        np.testing.assert_array_equal(first.actions, last.actions)
        assert str(last).startswith(str(first))
        assert f"Coming back up to 6 times: success {last.revisited}" in str(last)
        # the tries are the same, and go on
        assert other.revisited.probability <= last.revisited.probability
        assert last.to_frame()["revisits"].tolist() == [6] * len(last.steps)
        assert last.to_dict()["revisited"]["probability"] == pytest.approx(last.revisited.probability, abs=1e-4)
    # without coming back, people fare as under accumulated noise
    rows, noise = some[method._mlmodel.feature_input_order].to_numpy(dtype=float), method._implementation()
    fixed = noise.evaluate(rows, [plan.actions for plan in plain], 4000, np.random.default_rng(0), 0.95)
    alone = method.follow(some, 400, max_decisions=1, plans=plain)
    for rate, success, other in zip(fixed.rate, alone.successes, once, strict=True):
        assert success.lower - 0.02 < 1 - rate < success.upper + 0.02
        assert other.revisited.upper > 1 - rate
    np.testing.assert_allclose(alone.tries.costs, np.repeat([[plan.cost] for plan in plain], 400, axis=1))
    with pytest.raises(PlanError, match="Expected a plan for each of 3 people, got 1"):
        method.follow(some, plans=plain[:1])
    for odd in (0, -1, 2.5, "x"):
        with pytest.raises(PlanError, match="revisits must be an integer of at least 1"):
            method.plan(some, revisits=odd)
