"""The closed-loop AIR against plain loops that ask, implement and look, for well and badly behaved methods."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import Benchmark, RoseOne, models
from carla.recourse_methods import Wachter
from carla.recourse_methods.api import RecourseMethod
from rose_carla._lib.runtime import global_state, seeded
from rose_carla.errors import NoiseError
from rose_carla.metrics import METRICS, ClosedLoopAIR
from rose_carla.noise import PlausibleNoise, density_of, noisy_step, unit_actions, wilson_interval

COLUMNS = [
    "Closed_Loop_AIR", "Closed_Loop_AIR_Lower", "Closed_Loop_AIR_Upper", "Closed_Loop_Cost", "Closed_Loop_Decisions",
]  # fmt: skip
FEW = {"n_tries": 6, "max_decisions": 3}


@pytest.fixture(scope="module")
def factuals(compas_linear):
    return models.negative_instances(compas_linear).head(5)


class Barely(RecourseMethod):
    """Lower the number of priors, and raise the stay a little, until the linear classifier accepts by a margin."""

    def __init__(self, mlmodel, margin=0.1):
        super().__init__(mlmodel)
        layer = mlmodel.raw_model.layers[0]
        self.weights = (layer.weight[1] - layer.weight[0]).detach().double().numpy()
        self.bias, self.margin = float(layer.bias[1] - layer.bias[0]), margin
        self.asked = []

    def get_counterfactuals(self, factuals):
        order = self._mlmodel.feature_input_order
        ends = factuals[order].astype(float)
        self.asked.append(ends.to_numpy())
        ends["length_of_stay"] += 0.03
        missing = self.margin - ((ends.to_numpy() * self.weights).sum(axis=1) + self.bias)
        ends["priors_count"] += missing / self.weights[order.index("priors_count")]
        return ends


class Odd(Barely):
    """Does something else for the rows that ``is_odd`` selects."""

    def __init__(self, mlmodel, is_odd, answer=None):
        super().__init__(mlmodel)
        self.is_odd, self.answer = is_odd, answer

    def get_counterfactuals(self, factuals):
        odd = np.array([bool(self.is_odd(row)) for row in factuals.to_numpy(dtype=float)])
        if odd.any() and self.answer is None:
            raise RuntimeError("no luck")
        ends = super().get_counterfactuals(factuals)
        ends[odd] = self.answer
        return ends


def evaluate(model, method, factuals, **options):
    """The closed-loop AIR of people who all have a counterfactual."""
    order = model.feature_input_order
    return ClosedLoopAIR(model, {**FEW, "method": method, **options}).get_evaluation(factuals, factuals[order])


@pytest.mark.parametrize("noise_per", ["unit", "action"])
def test_one_shot_method_against_a_plain_loop(compas_linear, factuals, noise_per):
    people, n_tries, variance = factuals.head(2), 60, 0.002
    method = Barely(compas_linear)
    options = {"unit_variance": variance, "n_tries": 60, "max_decisions": 2, "max_cost": 0.9, "noise_per": noise_per}
    result = evaluate(compas_linear, method, people, **options)
    order = compas_linear.feature_input_order
    noise, rng = PlausibleNoise(density_of(compas_linear, "scott", 1e-6, 50_000)), np.random.default_rng(5)
    fails, costs, decisions = np.zeros(2), [], []
    for person, row in enumerate(people[order].to_numpy(dtype=float)):
        for _ in range(n_tries):
            state, cost, done = row[None], 0.0, False
            for number in (1, 2):
                (end,) = method.get_counterfactuals(pd.DataFrame(state, columns=order)).to_numpy()
                change = end - state[0]
                if cost + np.abs(change).sum() > 0.9:
                    break
                cost += np.abs(change).sum()
                for column in rng.permutation(np.flatnonzero(change)):
                    action = np.where(np.arange(len(order)) == column, change, 0.0)[None]
                    for part in unit_actions(action, 0.025) if noise_per == "unit" else action:
                        state = noisy_step(state, part[None], noise, variance, 0.025, rng)
                if compas_linear.predict_proba(state)[0, 1] > 0.5:
                    done = True
                    costs.append(cost)
                    decisions.append(number)
                    break
            fails[person] += not done
    lower, upper = wilson_interval(fails, n_tries, 0.999)
    assert (result["Closed_Loop_AIR_Upper"] > lower).all()
    assert (result["Closed_Loop_AIR_Lower"] < upper).all()
    assert abs(result["Closed_Loop_AIR"].mean() - fails.mean() / n_tries) < 0.2
    assert result["Closed_Loop_Cost"].mean() == pytest.approx(np.mean(costs), abs=0.1)
    assert result["Closed_Loop_Decisions"].mean() == pytest.approx(np.mean(decisions), abs=0.3)


def test_a_method_that_raises_for_one_person(compas_linear, factuals):
    order = compas_linear.feature_input_order
    unlucky = factuals.iloc[2][order].to_numpy(dtype=float)
    fussy = Odd(compas_linear, lambda row: np.array_equal(row, unlucky))
    found, expected = evaluate(compas_linear, fussy, factuals), evaluate(compas_linear, Barely(compas_linear), factuals)
    assert list(found.columns) == COLUMNS
    assert found.iloc[2]["Closed_Loop_AIR"] == 1
    assert found.iloc[2][["Closed_Loop_Cost", "Closed_Loop_Decisions"]].isna().all()
    others = [0, 1, 3, 4]
    pd.testing.assert_frame_equal(found.iloc[others], expected.iloc[others])
    assert expected["Closed_Loop_AIR"].iloc[2] < 1


@pytest.mark.parametrize("answer", [None, np.nan, np.inf])
def test_a_method_without_answers(compas_linear, factuals, answer):
    result = evaluate(compas_linear, Odd(compas_linear, lambda row: True, answer), factuals)
    assert (result["Closed_Loop_AIR"] == 1).all()
    assert (result["Closed_Loop_AIR_Upper"] == 1).all()
    assert result[["Closed_Loop_Cost", "Closed_Loop_Decisions"]].isna().all(axis=None)


def test_a_method_that_changes_nothing(compas_linear, factuals):
    same = SimpleNamespace(get_counterfactuals=lambda frame: frame)
    assert (evaluate(compas_linear, same, factuals)["Closed_Loop_AIR"] == 1).all()


def test_people_without_a_counterfactual_are_left_out(compas_linear, factuals):
    ends = factuals[compas_linear.feature_input_order].astype(float)
    ends.iloc[1] = np.nan
    metric = ClosedLoopAIR(compas_linear, {**FEW, "method": Barely(compas_linear)})
    result = metric.get_evaluation(factuals, ends)
    assert result.isna().all(axis=1).tolist() == [False, True, False, False, False]
    whole = evaluate(compas_linear, Barely(compas_linear), factuals)
    pd.testing.assert_frame_equal(result.drop(factuals.index[1]), whole.drop(factuals.index[1]))


def test_methods_that_need_valid_rows_are_asked_for_the_nearest(compas_linear, factuals):
    """Noise leads between categories and out of range: then features that change are set to the answer's values."""
    order = compas_linear.feature_input_order
    columns = [order.index(name) for name in ("c_charge_degree_M", "race_Other", "sex_Male")]

    def is_odd(row):
        return not np.isin(row[columns], (0.0, 1.0)).all() or not ((row >= 0) & (row <= 1)).all()

    strict = Odd(compas_linear, is_odd)
    noise = {"unit_variance": 0.004, "n_tries": 8, "max_decisions": 4}
    result = evaluate(compas_linear, strict, factuals, **noise)
    answered = np.concatenate(strict.asked)
    assert not any(is_odd(row) for row in answered)
    # people came back, were answered, and mostly made it
    assert result["Closed_Loop_Decisions"].mean() > 1.2
    plain = evaluate(compas_linear, Barely(compas_linear), factuals, **noise)
    assert abs(result["Closed_Loop_AIR"].mean() - plain["Closed_Loop_AIR"].mean()) < 0.35
    assert result["Closed_Loop_AIR"].mean() < 0.6


def test_sequential_methods_are_asked_for_the_next_action(compas_linear, factuals):
    seen = []

    def advise(states, budgets):
        seen.extend(budgets.tolist())
        step = np.zeros((1, states.shape[1]))
        step[0, compas_linear.feature_input_order.index("priors_count")] = -0.1
        return [step] * len(states)

    method = SimpleNamespace(advise=advise, get_counterfactuals=lambda frame: pytest.fail("asked for a counterfactual"))
    result = evaluate(compas_linear, method, factuals, max_cost=0.3, unit_variance=0.0)
    assert {round(budget, 9) for budget in seen} == {0.3, 0.2, 0.1}
    # without noise: the number of steps of 0.1, at most three
    order = compas_linear.feature_input_order
    fewer = np.array([name == "priors_count" for name in order]) * np.array([[0.1], [0.2], [0.3]])
    for person, start in enumerate(factuals[order].to_numpy(dtype=float)):
        ends = start - fewer
        accepted = np.flatnonzero(compas_linear.predict_proba(ends)[:, 1] > 0.5)
        assert result["Closed_Loop_AIR"].iloc[person] == (0 if len(accepted) else 1)
        if len(accepted):
            assert result["Closed_Loop_Decisions"].iloc[person] == accepted[0] + 1
            assert result["Closed_Loop_Cost"].iloc[person] == pytest.approx(0.1 * (accepted[0] + 1))


def test_rose_is_asked_by_its_policy(compas_linear, factuals):
    ppo = {"n_updates": 4, "n_envs": 64, "n_steps": 16, "batch_size": 256, "restarts": 0}
    method = RoseOne(compas_linear, {"ppo": ppo})
    result = evaluate(compas_linear, method, factuals, n_tries=20, max_decisions=10)
    followed = method.follow(factuals, 100, max_decisions=10)
    assert result["Closed_Loop_AIR"].mean() == pytest.approx(1 - followed.success.probability, abs=0.1)
    done = followed.tries.succeeded
    assert result["Closed_Loop_Cost"].mean() == pytest.approx(followed.tries.costs[done].mean(), rel=0.3)


def test_global_generators_are_untouched_and_results_repeat(compas_linear, factuals):
    class Draws(Barely):
        def get_counterfactuals(self, factuals):
            ends = super().get_counterfactuals(factuals)
            ends["length_of_stay"] += 0.05 * np.random.random() + 0.05 * torch.rand(1).item()  # noqa: NPY002
            return ends

    before = global_state()
    first = evaluate(compas_linear, Draws(compas_linear), factuals)
    assert global_state() == before
    with seeded(5):
        second = evaluate(compas_linear, Draws(compas_linear), factuals)
    pd.testing.assert_frame_equal(first, second)
    assert not evaluate(compas_linear, Draws(compas_linear), factuals, seed=1).equals(first)


def test_the_benchmark_has_it_on_request(compas_linear, factuals):
    noise = {"n_samples": 20, "unit_variance": 0.002, "seed": 3}
    plain = Benchmark(compas_linear, Barely(compas_linear), factuals, noise)
    assert not set(COLUMNS) & set(plain.run_benchmark().columns)
    benchmark = Benchmark(compas_linear, Barely(compas_linear), factuals, noise, closed_loop=FEW)
    result = benchmark.run_benchmark()
    expected = evaluate(compas_linear, Barely(compas_linear), factuals, unit_variance=0.002, seed=3)
    pd.testing.assert_frame_equal(result[COLUMNS], expected)
    pd.testing.assert_frame_equal(benchmark.compute_metric("Closed_Loop_AIR"), expected)
    # options of its noise hold for it alone
    other = Benchmark(compas_linear, Barely(compas_linear), factuals, noise, closed_loop={**FEW, "unit_variance": 0.01})
    expected = evaluate(compas_linear, Barely(compas_linear), factuals, unit_variance=0.01, seed=3)
    pd.testing.assert_frame_equal(other.compute_metric("Closed_Loop_AIR"), expected)
    pd.testing.assert_frame_equal(other.compute_metric("Acc_AIR"), benchmark.compute_metric("Acc_AIR"))


def test_bad_options_raise_errors_before_anything_runs(compas_linear, factuals):
    never = SimpleNamespace(get_counterfactuals=lambda frame: pytest.fail("the method ran"))
    for options in (None, {}, FEW, {"method": None}, {"method": "ROSE-one"}):
        with pytest.raises(NoiseError, match=r"asks the method again: pass hyperparams=\{'method': ...\}"):
            ClosedLoopAIR(compas_linear, options)
    for options in ({"n_tries": 0}, {"max_decisions": 0}, {"max_cost": -1.0}, {"max_cost": np.nan}, {"n_try": 3}):
        with pytest.raises(NoiseError):
            ClosedLoopAIR(compas_linear, {"method": never, **options})
        with pytest.raises(NoiseError):
            Benchmark(compas_linear, never, factuals, closed_loop=options)
    with pytest.raises(NoiseError, match="Expected a dictionary"):
        ClosedLoopAIR(compas_linear, 5)
    assert METRICS["Closed_Loop_AIR"].in_paper is False


@pytest.mark.slow
def test_carlas_wachter_is_asked_again(compas_ann):
    people = models.negative_instances(compas_ann).head(3)
    options = {"loss_type": "MSE", "y_target": [1], "binary_cat_features": True, "t_max_min": 0.02}
    method = Wachter(compas_ann, options)
    result = Benchmark(compas_ann, method, people, {"n_samples": 20}, {"n_tries": 3, "max_decisions": 3})
    before = global_state()  # the method itself seeds them
    rates = result.compute_metric("Closed_Loop_AIR")
    assert global_state() == before
    found = result.counterfactuals.notna().all(axis=1)
    assert found.any()
    assert rates.loc[found, "Closed_Loop_AIR"].between(0, 1).all()
    assert (rates.loc[found, "Closed_Loop_Decisions"].dropna() >= 1).all()
