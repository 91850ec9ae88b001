"""Invalidation rates against closed forms and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from noise_examples import clusters, plausible, rng
from rose_carla.errors import NoiseError
from rose_carla.models import favourable
from rose_carla.noise import (
    GaussianNoise,
    accumulated_invalidation_rate,
    common_noise,
    execute,
    invalidation_rate,
    linear_invalidation_rate,
    most_failures_below,
    wilson_interval,
)
from scipy.stats import binom, norm


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("n", [1, 10, 37, 400, 500])
@pytest.mark.parametrize("limit", [0.01, 0.25, 0.5, 0.9, 1.0])
def test_most_failures_below_a_limit_against_all_counts(limit, n, confidence):
    passing = [k for k in range(n + 1) if wilson_interval(np.array([k]), n, confidence)[1][0] < limit]
    assert most_failures_below(limit, n, confidence) == max(passing, default=-1)


def test_wilson_interval_against_statsmodels_values():
    # of the score interval at 95 %, from the quadratic that defines it: (p - x)^2 = z^2 x (1 - x) / n
    low, high = wilson_interval(np.array([0, 3, 50, 100]), 100)
    z = norm.ppf(0.975)
    for share, ends in zip([0.0, 0.03, 0.5, 1.0], zip(low, high, strict=True), strict=True):
        for end in ends:
            assert (share - end) ** 2 == pytest.approx(z**2 * end * (1 - end) / 100, abs=1e-12)


@pytest.mark.parametrize("kind", ["gaussian", "plausible"])
def test_closed_form_for_linear_models_against_monte_carlo(kind, compas_linear):
    data = compas_linear.data
    rows = data.df_train[compas_linear.feature_input_order].to_numpy()
    noise = GaussianNoise() if kind == "gaussian" else plausible(rows)
    layer = compas_linear.raw_model.layers[0]
    weights = (layer.weight[1] - layer.weight[0]).numpy().astype(float)
    bias = float(layer.bias[1] - layer.bias[0])
    states = data.df_test[compas_linear.feature_input_order].to_numpy()[:40]
    exact = linear_invalidation_rate(states, noise, 0.01, weights, bias)
    estimate = invalidation_rate(favourable(compas_linear), states, noise, 0.01, 4000, rng())
    failures = estimate.rate * 4000
    assert (binom.cdf(failures, 4000, exact) > 1e-6).all()
    assert (binom.sf(failures - 1, 4000, exact) > 1e-6).all()
    assert estimate.n_samples == 4000


def test_intervals_cover_the_truth_as_often_as_they_say():
    noise, state = GaussianNoise(), np.full((400, 1), 0.1)
    exact = linear_invalidation_rate(state[:1], noise, 0.01, np.ones(1), 0.0)[0]
    ir = invalidation_rate(lambda x: x[:, 0] > 0, state, noise, 0.01, 200, rng(), confidence=0.9)
    covered = ((ir.lower <= exact) & (exact <= ir.upper)).mean()
    assert 0.85 < covered < 0.95


@pytest.mark.parametrize("noise", [GaussianNoise(), plausible(clusters(400, 2))], ids=["gaussian", "plausible"])
def test_more_variance_never_helps_a_valid_point_of_a_linear_model(noise):
    """Plausible noise is centred where data are; a point deep on the good side, in the middle of its cloud."""
    rows = clusters(400, 2)
    centre = rows[rows.sum(axis=1) > 1].mean(axis=0)
    rates = [
        linear_invalidation_rate(centre[None], noise, variance, np.ones(2), -1.0)[0]
        for variance in (1e-6, 1e-4, 1e-3, 0.01, 0.03, 0.1, 1.0)
    ]
    assert rates[0] < 1e-6
    assert (np.diff(rates) >= -1e-12).all()


def test_longer_recourse_is_invalidated_more_often():
    """The paper's Figure 'step-noise': two starts, one twice as far, the same counterfactual in the top left."""
    generator = rng()
    rows = generator.random((4000, 2))
    rows = rows[np.abs(rows[:, 0] + rows[:, 1] - 1) < 0.6]
    noise = plausible(rows)
    good = lambda x: (x[:, 0] < 0.45) & (x[:, 1] > 0.55)  # noqa: E731
    end = np.array([0.35, 0.65])
    starts = np.array([[0.6, 0.4], [0.85, 0.15]])
    plans = [np.array([[end[0] - s[0], 0.0], [0.0, end[1] - s[1]]]) for s in starts]
    ir = accumulated_invalidation_rate(good, starts, plans, noise, 0.0005, 0.025, 4000, rng(1))
    assert ir.upper[0] < ir.lower[1]


def test_accumulated_rate_is_the_share_of_failures():
    """Algorithm 2 as a plain loop; the paper's own line returns successes, which is one minus that."""
    rows = clusters(300, 2)
    noise = plausible(rows)
    good = lambda x: x.sum(axis=1) > 1  # noqa: E731
    factuals, plans = rows[:2], [np.array([[0.2, 0.0]]), np.array([[0.0, 0.1], [0.1, 0.0]])]
    ir = accumulated_invalidation_rate(good, factuals, plans, noise, 0.0005, 0.025, 300, common_noise(2, [0, 1]))
    for row in range(2):
        ends = execute(factuals[row : row + 1], plans[row : row + 1], noise, 0.0005, 0.025, 300, common_noise(2, [row]))
        assert ir.rate[row] == np.mean([not good(end[None])[0] for end in ends[0]])


def test_common_noise_compares_methods_on_the_same_draws():
    """The difference between two near points is known far better on common noise than on independent noise."""
    noise, good = GaussianNoise(), lambda x: x[:, 0] > 0
    a, b = np.full((60, 1), 0.10), np.full((60, 1), 0.11)

    def differences(seed_b):
        first = invalidation_rate(good, a, noise, 0.01, 500, common_noise(0, range(60)))
        second = invalidation_rate(good, b, noise, 0.01, 500, common_noise(seed_b, range(60)))
        return first.rate - second.rate

    assert differences(0).std() < 0.5 * differences(1).std()
    assert (differences(0) >= 0).all()


def test_classifier_must_return_booleans():
    """Probabilities would all count as favourable."""
    states, noise = np.zeros((4, 2)), GaussianNoise()
    for classifier in (lambda x: x[:, 0] * 0 + 0.3, lambda x: np.ones((len(x), 1)), lambda x: np.ones(3)):
        with pytest.raises(NoiseError, match="whether it is favourable"):
            invalidation_rate(classifier, states, noise, 0.01, 10, rng())
    assert invalidation_rate(lambda x: np.ones(len(x), int), states, noise, 0.01, 10, rng()).rate.max() == 0


def test_states_without_a_counterfactual_raise_an_error():
    with pytest.raises(NoiseError, match="drop rows without a counterfactual"):
        invalidation_rate(lambda x: x[:, 0] > 0, np.array([[np.nan, 0.0]]), GaussianNoise(), 0.01, 10, rng())


def test_large_batches_are_evaluated_in_parts_with_the_same_result(monkeypatch):
    import rose_carla.noise.invalidation as module

    good, noise, states = lambda x: x.sum(axis=1) > 0, GaussianNoise(), rng().normal(0, 0.1, (30, 2))
    variances = np.linspace(0.001, 0.1, 30)
    whole = invalidation_rate(good, states, noise, variances, 50, common_noise(0, range(30))).rate
    monkeypatch.setattr(module, "_MAX_FLOATS", 400)  # four states at once
    np.testing.assert_array_equal(
        whole, invalidation_rate(good, states, noise, variances, 50, common_noise(0, range(30))).rate
    )


def test_no_closed_form_for_a_strange_noise():
    class Strange:
        pass

    with pytest.raises(NoiseError, match="No closed form is known for Strange"):
        linear_invalidation_rate(np.zeros((1, 2)), Strange(), 0.01, np.ones(2), 0.0)


def test_weights_of_zero_leave_the_bias():
    for bias, rate in ((0.5, 0.0), (-0.5, 1.0)):
        assert linear_invalidation_rate(np.zeros((1, 2)), GaussianNoise(), 0.01, np.zeros(2), bias) == [rate]


def test_seeds_may_be_numpy_integers():
    first, second = common_noise(3, [0, 5]), common_noise([np.int64(3)], np.array([0, 5]))
    assert [each.random() for each in first] == [each.random() for each in second]
