"""Invalidation rate (IR): how often noise undoes a counterfactual (Propositions 1 to 3, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from rose_carla.errors import NoiseError, short_repr
from rose_carla.noise.accumulated import execute
from rose_carla.noise.arguments import (
    Randomness,
    check_count,
    check_generators,
    check_plans,
    check_seed,
    check_states,
    numbers,
)
from rose_carla.noise.plausible import GaussianNoise, Noise, PlausibleNoise, check_noise
from scipy.special import ndtr, ndtri

#: From rows (n, d) to whether each is classified favourably.
Favourable = Callable[[np.ndarray], np.ndarray]

#: Numbers of noisy versions in memory at once: 64 MB.
_NUMBERS = 8_000_000


@dataclass(frozen=True)
class InvalidationRate:
    """Monte Carlo estimate of IR for a batch, with its Wilson score interval.

    Parameters
    ----------
    rate
        (b,) share of noisy versions that are not classified favourably.
    lower, upper
        (b,) ends of the interval.
    n_samples
        Noisy versions looked at, for each entry.
    """

    rate: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    n_samples: int

    @classmethod
    def from_failures(cls, failures: np.ndarray, n_samples: int, confidence: float) -> InvalidationRate:
        """From the number (b,) of noisy versions that are not classified favourably."""
        return cls(failures / n_samples, *wilson_interval(failures, n_samples, confidence), n_samples)


@dataclass(frozen=True)
class Claim:
    """What a method promises about its counterfactuals, so that anybody can check it.

    Parameters
    ----------
    words
        The promise in words.
    limit
        Invalidation rate that each counterfactual stays at or below.
    evaluate
        From factuals (b, d), plans (b of (k, d)), a number of noisy versions, a generator and a confidence to the
        invalidation rates under noise that was not seen before.
    """

    words: str
    limit: float
    evaluate: Callable[[np.ndarray, Sequence[np.ndarray], int, np.random.Generator, float], InvalidationRate]


def wilson_interval(
    failures: np.ndarray, n_samples: int | np.ndarray, confidence: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's score interval of a proportion; inside [0, 1] and of sensible width also at 0 and at 1.

    Examples
    --------
    >>> low, high = wilson_interval(np.array([0, 50]), 100)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.404], [0.037, 0.596])
    """
    if not isinstance(confidence, (int, float, np.number)) or not 0 < confidence < 1:
        raise NoiseError(f"confidence has to be between 0 and 1, got {short_repr(confidence)}.")
    counted, n_samples = numbers("Failures", failures), numbers("Numbers of samples", n_samples)
    if not ((n_samples >= 1) & (counted >= 0) & (counted <= n_samples)).all():
        raise NoiseError("An interval needs at least one sample, and no more failures than samples.")
    z = ndtri(0.5 + confidence / 2)
    share = counted / n_samples
    centre = share + z**2 / (2 * n_samples)
    half = z * np.sqrt(share * (1 - share) / n_samples + z**2 / (4 * n_samples**2))
    scale = 1 + z**2 / n_samples
    # at 0 and at 1 one end is the share itself, but for rounding
    return np.minimum((centre - half) / scale, share).clip(0, 1), np.maximum((centre + half) / scale, share).clip(0, 1)


def invalidation_rate(
    favourable: Favourable,
    counterfactuals: np.ndarray,
    noise: Noise,
    variance: float,
    n_samples: int,
    rng: Randomness,
    confidence: float = 0.95,
) -> InvalidationRate:
    """IR under one-off noise: 1 - E[f(x')] for x' around each counterfactual (Proposition 1).

    Parameters
    ----------
    favourable
        The classifier.
    counterfactuals
        (b, d).
    noise, variance
        Gaussian or plausible noise of that variance; the paper's is 0.01.
    n_samples
        Noisy versions of each counterfactual; the paper's number is 1000.
    rng
        One generator, or one for each counterfactual. Give every method the same seeds (see :func:`common_noise`) and
        they are compared on the same noise.

    Examples
    --------
    >>> import numpy as np
    >>> from rose_carla.noise import GaussianNoise, invalidation_rate
    >>> at_border = np.array([[0.5, 0.5]])
    >>> rng = np.random.default_rng(0)
    >>> ir = invalidation_rate(lambda x: x.sum(axis=1) > 1, at_border, GaussianNoise(), 0.01, 1000, rng)
    >>> bool(ir.lower[0] < 0.5 < ir.upper[0])
    True
    """
    counterfactuals = check_states(counterfactuals)
    check_noise(noise)

    def samples(rows: slice, n: int, randomness: Randomness) -> np.ndarray:
        each = variance if np.ndim(variance) == 0 else np.asarray(variance)[rows]
        return noise.sample(counterfactuals[rows], each, n, randomness)

    return _monte_carlo(favourable, counterfactuals.shape, samples, n_samples, rng, confidence)


def accumulated_invalidation_rate(
    favourable: Favourable,
    factuals: np.ndarray,
    plans: Sequence[np.ndarray],
    noise: Noise,
    variance: float,
    action_unit: float,
    n_samples: int,
    rng: Randomness,
    confidence: float = 0.95,
) -> InvalidationRate:
    """IR_A: share of tries in which a noisily implemented plan does not end favourably (Algorithm 2).

    The paper's Algorithm 2 returns the share of successes; the rate is one minus that, as in its Equation for IR_A.
    Parameters as in :func:`~rose_carla.noise.accumulated.execute` and :func:`invalidation_rate`.
    """
    factuals = check_states(factuals)
    check_plans(plans, len(factuals))

    def ends(rows: slice, n: int, randomness: Randomness) -> np.ndarray:
        return execute(factuals[rows], plans[rows], noise, variance, action_unit, n, randomness)

    return _monte_carlo(favourable, factuals.shape, ends, n_samples, rng, confidence)


def linear_invalidation_rate(
    states: np.ndarray, noise: Noise, variance: float | np.ndarray, weights: np.ndarray, bias: float
) -> np.ndarray:
    r"""IR of the linear classifier f(x) = 1 if weights . x + bias > 0, in closed form, for one-off noise.

    .. math::
        \text{Gaussian: } \Phi\left(-\frac{v \cdot x + b}{s |v|}\right), \qquad
        \text{plausible: } \sum_j w_j\, \Phi\left(-\frac{v \cdot m_j + b}{\sqrt{v' C v}}\right)
    """
    states, weights, offset = check_states(states), numbers("Weights", weights), numbers("A bias", bias)
    if weights.shape != states.shape[1:] or offset.ndim or not np.isfinite([*weights, offset]).all():
        raise NoiseError(f"Expected {states.shape[1]} finite weights and a finite bias, got weights {weights.shape}.")
    # the rate is the same for a multiple of both; squares of large weights overflow, powers of two lose no bit
    exponent = np.frexp(np.abs(weights).max())[1]
    weights, offset = np.ldexp(weights, -exponent), np.ldexp(offset, -exponent)
    if isinstance(noise, GaussianNoise):
        spread = np.sqrt(np.einsum("bkk->bk", noise.covariance(states, variance))[:, 0])
        return _not_above_zero(states @ weights + offset, spread * np.linalg.norm(weights))
    if not isinstance(noise, PlausibleNoise):
        raise NoiseError(f"No closed form is known for {type(noise).__name__}: use invalidation_rate.")
    rates = np.empty(len(states))
    for rows, shares, means, covariance in noise.components(states, variance):
        deviation = np.sqrt(np.einsum("k,bkl,l->b", weights, covariance, weights))
        rates[rows] = (shares * _not_above_zero(means @ weights + offset, deviation[:, None])).sum(axis=1)
    return rates


def common_noise(seed: int | Sequence[int], rows: Iterable[int]) -> list[np.random.Generator]:
    """A generator for each row that depends on the seed (or seeds) and that row's number alone.

    With it every method is judged on the same noise, row by row, also where some method has no counterfactual for
    some row.
    """
    seeds, rows = np.atleast_1d(np.asarray(seed, dtype=object)).tolist(), list(rows)
    for each in (*seeds, *rows):
        check_seed(each)
    return [np.random.default_rng([*map(int, seeds), int(row)]) for row in rows]


def _monte_carlo(
    favourable: Favourable,
    shape: tuple[int, ...],
    noisy: Callable[[slice, int, Randomness], np.ndarray],
    n_samples: int,
    rng: Randomness,
    confidence: float,
) -> InvalidationRate:
    """Count the failures among ``n_samples`` noisy versions of each entry, in parts of bounded memory.

    How an entry's samples are cut depends on their number and width alone, so it sees the same noise in any batch.
    """
    if not callable(favourable):
        raise NoiseError(
            f"The classifier has to be a function such as models.favourable(mlmodel), got {short_repr(favourable)}."
        )
    n, width = shape
    check_count("n_samples", n_samples)
    check_generators(rng, n)
    at_once = max(1, _NUMBERS // width)
    parts = [min(at_once, n_samples - start) for start in range(0, n_samples, at_once)]
    step = max(1, at_once // n_samples)
    failures = np.zeros(n, dtype=np.int64)
    for start in range(0, n, step):
        rows = slice(start, start + step)
        randomness = rng if isinstance(rng, np.random.Generator) else rng[rows]
        for part in parts:
            failures[rows] += _failures(favourable, noisy(rows, part, randomness))
    return InvalidationRate.from_failures(failures, n_samples, confidence)


def _failures(favourable: Favourable, samples: np.ndarray) -> np.ndarray:
    rows = samples.reshape(-1, samples.shape[2])
    outcomes = np.asarray(favourable(rows))
    if outcomes.shape != (len(rows),) or not (outcomes.dtype == bool or np.isin(outcomes, (0, 1)).all()):
        raise NoiseError(
            f"The classifier has to say for each of {len(rows)} rows whether it is favourable, 1 or 0; it returned "
            f"shape {outcomes.shape} of {outcomes.dtype}: for a CARLA model use rose_carla.models.favourable(mlmodel)."
        )
    return (~outcomes.astype(bool)).reshape(samples.shape[:2]).sum(axis=1)


def _not_above_zero(margin: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Probability that a normal number with that mean and deviation is not above 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(deviation > 0, ndtr(-margin / deviation), (margin <= 0).astype(float))
