"""Invalidation rate (IR): how often noise undoes a counterfactual (the paper's Propositions 1 to 3, Algorithm 2)."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from rose_carla.errors import NoiseError
from rose_carla.noise.accumulated import execute
from rose_carla.noise.plausible import GaussianNoise, Noise, PlausibleNoise, Randomness
from scipy.special import ndtr, ndtri

#: From rows (n, d) to whether each is classified favourably.
Favourable = Callable[[np.ndarray], np.ndarray]

#: Floats of noisy versions in memory at once: 64 MB.
_MAX_FLOATS = 8_000_000


@dataclass(frozen=True)
class InvalidationRate:
    """Monte Carlo estimate of IR for a batch, with its Wilson score interval.

    Parameters
    ----------
    rate
        (b,) share of noisy versions that are classified unfavourably.
    lower, upper
        (b,) ends of the interval.
    n_samples
        Noisy versions per entry, or (b,) of each entry.
    """

    rate: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    n_samples: int | np.ndarray

    @classmethod
    def from_failures(cls, failures: np.ndarray, n_samples: int | np.ndarray, confidence: float) -> InvalidationRate:
        """Estimate from the number (b,) of noisy versions that are classified unfavourably."""
        return cls(failures / n_samples, *wilson_interval(failures, n_samples, confidence), n_samples)


@dataclass(frozen=True)
class Claim:
    """Guarantee of a method about its counterfactuals, in a form that can be checked.

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
    """Return Wilson's score interval of a proportion: inside [0, 1], and of sensible width also at 0 and at 1.

    Examples
    --------
    >>> low, high = wilson_interval(np.array([0, 50]), 100)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.404], [0.037, 0.596])
    """
    z = ndtri(0.5 + confidence / 2)
    share = failures / n_samples
    centre = share + z**2 / (2 * n_samples)
    half = z * np.sqrt(share * (1 - share) / n_samples + z**2 / (4 * n_samples**2))
    scale = 1 + z**2 / n_samples
    # at 0 and at 1 one end is the share itself, up to rounding
    return np.minimum((centre - half) / scale, share).clip(0, 1), np.maximum((centre + half) / scale, share).clip(0, 1)


def most_failures_below(limit: float, n_samples: int, confidence: float = 0.95) -> int:
    """Return the largest number of failures whose upper Wilson bound is below ``limit``; -1 if even 0 is too many.

    Examples
    --------
    >>> from rose_carla.noise.invalidation import most_failures_below
    >>> most_failures_below(0.25, 500, 0.99)
    100
    """

    def upper(failures: int) -> float:
        return float(wilson_interval(np.array(failures), n_samples, confidence)[1])

    return bisect.bisect_left(range(n_samples + 1), limit, key=upper) - 1


def invalidation_rate(
    favourable: Favourable,
    counterfactuals: np.ndarray,
    noise: Noise,
    variance: float,
    n_samples: int,
    rng: Randomness,
    confidence: float = 0.95,
) -> InvalidationRate:
    """Estimate IR under one-off noise, 1 - E[f(x')] for x' around each counterfactual (the paper's Proposition 1).

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
        One generator, or one per counterfactual. With the same seeds for every method (see :func:`common_noise`) they
        are compared on the same noise.

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

    def samples(rows: slice, randomness: Randomness) -> np.ndarray:
        each = variance if np.ndim(variance) == 0 else np.asarray(variance)[rows]
        return noise.sample(counterfactuals[rows], each, n_samples, randomness)

    return _monte_carlo(favourable, counterfactuals, samples, n_samples, rng, confidence)


def accumulated_invalidation_rate(
    favourable: Favourable,
    factuals: np.ndarray,
    plans: Sequence[np.ndarray],
    noise: Noise,
    variance: float,
    action_unit: float | np.ndarray,
    n_samples: int,
    rng: Randomness,
    confidence: float = 0.95,
    noise_per: str = "unit",
) -> InvalidationRate:
    """Estimate IR_A, the share of noisy executions of a plan that end unfavourably (the paper's Algorithm 2).

    The paper's Algorithm 2 returns the share of successes; the rate is one minus that, as in its Equation for IR_A.
    Parameters as in :func:`~rose_carla.noise.accumulated.execute` and :func:`invalidation_rate`.
    """

    def ends(rows: slice, randomness: Randomness) -> np.ndarray:
        return execute(factuals[rows], plans[rows], noise, variance, action_unit, n_samples, randomness, noise_per)

    return _monte_carlo(favourable, factuals, ends, n_samples, rng, confidence)


def linear_invalidation_rate(
    states: np.ndarray, noise: Noise, variance: float | np.ndarray, weights: np.ndarray, bias: float
) -> np.ndarray:
    r"""Return IR of the linear classifier f(x) = 1 if weights . x + bias > 0, in closed form, for one-off noise.

    .. math::
        \text{Gaussian: } \Phi\left(-\frac{v \cdot x + b}{s |v|}\right), \qquad
        \text{plausible: } \sum_j w_j\, \Phi\left(-\frac{v \cdot m_j + b}{\sqrt{v' C v}}\right)
    """
    if isinstance(noise, GaussianNoise):
        scaled = weights if noise.relative_noise is None else noise.relative_noise * weights
        deviation = np.sqrt(np.broadcast_to(variance, len(states))) * np.linalg.norm(scaled)
        return _probability_not_above_zero(states @ weights + bias, deviation)
    if not isinstance(noise, PlausibleNoise):
        raise NoiseError(f"No closed form is known for {type(noise).__name__}: use invalidation_rate.")
    rates = np.empty(len(states))
    for rows, shares, means, covariance in noise.components(states, variance):
        deviation = np.sqrt(np.einsum("k,bkl,l->b", weights, covariance, weights))[:, None]
        rates[rows] = (shares * _probability_not_above_zero(means @ weights + bias, deviation)).sum(axis=1)
    return rates


def common_noise(seed: int | Sequence[int], rows: Iterable[int]) -> list[np.random.Generator]:
    """Return a generator per row that depends on the seed (or seeds) and that row's number alone.

    With it every method is evaluated on the same noise, row by row, also where a method has no counterfactual for some
    rows.
    """
    return [np.random.default_rng([*np.atleast_1d(seed).tolist(), int(row)]) for row in rows]


def row_generators(rows: np.ndarray, seed: int, stream: int) -> list[np.random.Generator]:
    """Return a generator per row (b, d) that depends on the seed, the stream and the row's values, not on the batch."""
    digests = [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in np.ascontiguousarray(rows)]
    return [np.random.default_rng([seed, stream, int.from_bytes(digest, "big")]) for digest in digests]


def _monte_carlo(
    favourable: Favourable,
    states: np.ndarray,
    noisy: Callable[[slice, Randomness], np.ndarray],
    n_samples: int,
    rng: Randomness,
    confidence: float,
) -> InvalidationRate:
    """Count the failures among the noisy versions of each state, in parts of bounded memory."""
    n, width = states.shape
    if not np.isfinite(states).all():
        raise NoiseError("States must not hold missing or infinite values: drop rows without a counterfactual first.")
    step = max(1, _MAX_FLOATS // width // n_samples)
    failures = np.zeros(n, dtype=np.int64)
    for start in range(0, n, step):
        rows = slice(start, start + step)
        samples = noisy(rows, rng if isinstance(rng, np.random.Generator) else rng[rows])
        failures[rows] = (~_classify(favourable, samples.reshape(-1, width))).reshape(-1, n_samples).sum(axis=1)
    return InvalidationRate.from_failures(failures, n_samples, confidence)


def _classify(favourable: Favourable, rows: np.ndarray) -> np.ndarray:
    """Return booleans: probabilities would all count as favourable."""
    outcomes = np.asarray(favourable(rows))
    if outcomes.shape != (len(rows),) or not (outcomes.dtype == bool or np.isin(outcomes, (0, 1)).all()):
        raise NoiseError(
            f"The classifier must return for each of {len(rows)} rows whether it is favourable, 1 or 0; it returned "
            f"shape {outcomes.shape} of {outcomes.dtype}: for a CARLA model use rose_carla.models.favourable(mlmodel)."
        )
    return outcomes.astype(bool)


def _probability_not_above_zero(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(deviation > 0, ndtr(-mean / deviation), (mean <= 0).astype(float))
