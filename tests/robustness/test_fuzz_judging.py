"""Whatever users feed noise and metrics: rates that are rates, or one of our own errors that says what is wrong."""

from __future__ import annotations

import fuzz_models as classifiers
import fuzz_strategies as fuzz
import numpy as np
import pandas as pd
import pytest
from rose_carla import Benchmark, metrics, noise
from carla.recourse_methods.api import RecourseMethod
from fuzz_outcomes import Tally, examples, tell_total
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(scope="module", autouse=True)
def _summary():
    fuzz.warm_up()
    yield
    tell_total()


_NUMBERS = st.sampled_from([0.0, 0.3, 1.0, -0.5, 1e-300, 1e6, 1e150, 5e-324])
_VARIANCES = st.sampled_from([0, 0.01, 1e-300, 1e-12, 1.0, 1e6, 1e300])


@st.composite
def noises(draw):
    """Rows of a density, states, a variance and sizes; rows or bandwidth are broken now and then."""
    width = draw(st.integers(1, 4))
    shape = (draw(st.sampled_from([2, 3, 20])), width)
    rows = np.random.default_rng(draw(st.integers(0, 9))).random(shape)
    if draw(st.booleans()):
        rows[:, 0] = draw(_NUMBERS)
    if draw(st.integers(0, 5)) == 0:
        rows[0, 0] = draw(st.sampled_from([np.nan, np.inf, -np.inf, 1e308]))
    states = np.array(draw(st.lists(st.lists(_NUMBERS, min_size=width, max_size=width), min_size=1, max_size=3)))
    return {
        "rows": rows,
        "states": states,
        "actions": draw(st.sampled_from([0.0, 0.3, -0.025, 1e-9])) * np.ones_like(states),
        "variance": draw(_VARIANCES),
        "unit": draw(st.sampled_from([0.025, 0.5, 1.0])),
        "n": draw(st.sampled_from([1, 7])),
        "confidence": draw(st.sampled_from([0.95, 0.5])),
        "bandwidth": draw(st.sampled_from(["scott", "silverman", 0.1, "scot", -1.0, None, np.ones(3)])),
    }


def test_noise():
    tally = Tally("noise")

    @examples(0.14)
    @given(noises(), st.sampled_from(["gaussian", "plausible"]))
    def run(case, kind):
        with tally.example():
            check_noise(kind, **case)

    run()
    tally.close()


def check_noise(kind, rows, states, actions, variance, unit, n, confidence, bandwidth):
    """Finite numbers of the right shape, and rates in their intervals in [0, 1]."""
    density = noise.Density(bandwidth).fit(rows)
    chosen = noise.PlausibleNoise(density) if kind == "plausible" else noise.GaussianNoise()
    rng = np.random.default_rng(0)
    assert not np.isnan(density.log_density(states)).any()
    moved = noise.noisy_step(states, actions, chosen, variance, unit, rng)
    shape = np.shape(states)
    assert moved.shape == shape
    assert np.isfinite(moved).all()
    assert chosen.sample(states, variance, n, rng).shape == (shape[0], n, shape[1])
    ends = noise.execute(states, [np.asarray(action)[None] for action in actions], chosen, variance, unit, n, rng)
    assert np.isfinite(ends).all()
    rate = noise.invalidation_rate(lambda x: x[:, 0] > 0.5, states, chosen, variance, n, rng, confidence)
    assert ((rate.lower >= 0) & (rate.lower <= rate.rate) & (rate.rate <= rate.upper) & (rate.upper <= 1)).all()


#: From what is odd about counterfactuals to how they come about.
RETURNED = {
    "as they are": lambda ends: ends,
    "renumbered": lambda ends: ends.reset_index(drop=True),
    "another order": lambda ends: ends.iloc[::-1],
    "some missing": lambda ends: ends.iloc[1:],
    "some NaN": lambda ends: ends * np.where(np.arange(len(ends)) == 1, np.nan, 1.0)[:, None],
    "one value NaN": lambda ends: fuzz._put(ends, list(ends.columns), np.nan),
    "infinite": lambda ends: fuzz._put(ends, list(ends.columns), -np.inf),
    "huge": lambda ends: ends * 1e200,
    "further columns": lambda ends: ends.assign(note="x"),
    "objects": lambda ends: ends.astype(object),
    "all NaN": lambda ends: ends * np.nan,
    "none": lambda ends: ends.head(0),
    "fewer and renumbered": lambda ends: ends.iloc[1:].reset_index(drop=True),
    "strange labels": lambda ends: ends.set_axis([f"z{i}" for i in range(len(ends))], axis=0),
    "a column missing": lambda ends: ends.iloc[:, 1:],
    "columns twice": lambda ends: pd.concat([ends, ends], axis=1),
    "words": lambda ends: ends.astype(str) + "x",
    "array": lambda ends: ends.to_numpy(),
    "None": lambda ends: None,
}
_METRICS = (
    metrics.Validity,
    metrics.Sparsity,
    metrics.Proximity,
    metrics.LogDensity,
    metrics.GaussianAIR,
    metrics.PlausibleAIR,
    metrics.AccAIR,
)


class Returns(RecourseMethod):
    """Everybody half way to some other row, and then something odd."""

    def __init__(self, mlmodel, people, odd, plans=None):
        super().__init__(mlmodel)
        order = mlmodel.feature_input_order
        ends = (people[order].astype(float) + mlmodel.data.df_train[order].iloc[-1]) / 2
        self.ends = RETURNED[odd](ends)
        if plans is not None:
            self.plans = plans

    def get_counterfactuals(self, factuals):
        return self.ends


@st.composite
def judgements(draw):
    """Data, model, what is returned, people, plans and options of the noise, at most one of them broken."""
    broken = draw(st.sampled_from([*[None] * 6, "returned", "people", "plans", "options"]))
    returned = draw(st.sampled_from(list(RETURNED)[11:] if broken == "returned" else list(RETURNED)[:11]))
    people = draw(st.sampled_from([name for name in fuzz.PEOPLE if (name in fuzz.SERVED) != (broken == "people")]))
    odd_plans = [{0: [[1.0]]}, {0: "x"}, "plans", {0: None}, {0: np.zeros((0, 3))}]
    odd_options = [{"variance": "x"}, {"plans": {}}, {"n_samples": 0}, {"action_unit": 1e-12}, {"ridge": 0}, 5]
    options = [{}, {"variance": 0}, {"action_unit": 1.0}, {"project_categories": True}, {"bandwidth": 0.5}]
    return (
        draw(fuzz.tables(most=5)),
        draw(classifiers.model_kinds()),
        returned,
        people,
        draw(st.sampled_from(odd_plans if broken == "plans" else [None, {}])),
        draw(st.sampled_from(odd_options if broken == "options" else options)),
    )


def test_metrics():
    tally = Tally("metrics")

    @examples(0.08)
    @given(judgements())
    def run(case):
        with tally.example():
            check_metrics(*case)

    run()
    tally.close()


def check_metrics(table, kind, returned, people, plans, options):
    """Rates are rates, whatever a method returns, and every row has its factual's label."""
    data = table.load()
    model = classifiers.build_model(kind, data)
    factuals = fuzz.people(data, model.feature_input_order, people)
    sound = people if people in fuzz.SERVED else "plain"
    method = Returns(model, fuzz.people(data, model.feature_input_order, sound), returned, plans)
    if isinstance(options, dict):
        options = {"n_samples": 10, "unit_variance": 0.01, "action_unit": 0.2, **options}
    for metric in _METRICS:
        chosen = options if metric in _METRICS[3:] else {}
        values = metric(model, chosen).get_evaluation(factuals, method.ends)
        assert values.index.equals(factuals.index)
        check_values(values)
    result = Benchmark(model, method, factuals, options).run_benchmark()
    assert result.index.equals(factuals.index)
    check_values(result)


def check_values(values):
    """Rates are missing or in [0, 1]."""
    rates = values[[column for column in values.columns if "AIR" in column or column == "Validity"]].to_numpy()
    assert (np.isnan(rates) | ((rates >= 0) & (rates <= 1))).all()
