"""From people to numbers in a table: mean, deviation and confidence interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rose_carla.noise.invalidation import wilson_interval
from scipy import stats

#: Of all intervals.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over people.

    Parameters
    ----------
    mean, std
        Over everybody who has a value, as in the paper.
    lower, upper
        Confidence interval of the mean; NaN where one value tells nothing about its spread.
    n, n_seeds
        Values it was computed from, and seeds that they came from.
    """

    mean: float
    std: float
    lower: float
    upper: float
    n: int
    n_seeds: int = 1


def estimate(values: np.ndarray, seeds: np.ndarray) -> Estimate:
    """Mean, deviation and interval of some people's values; NaN means that somebody has none.

    With one seed people are the sample: Student's interval, or Wilson's for shares of zeros and ones. With several, the
    means of the seeds are: everybody in one seed shares a classifier and a policy.

    Examples
    --------
    >>> estimate(np.array([1.0, 1.0, 0.0, 1.0]), np.zeros(4)).mean
    0.75
    """
    known = np.isfinite(values)
    values, seeds = values[known], seeds[known]
    n = len(values)
    if n == 0:
        return Estimate(np.nan, np.nan, np.nan, np.nan, 0, 0)
    mean = float(values.mean())
    std = float(values.std(ddof=1)) if n > 1 else np.nan
    of_seeds = [float(values[seeds == seed].mean()) for seed in np.unique(seeds)]
    if len(of_seeds) > 1:
        lower, upper = _student(of_seeds)
    elif np.isin(values, (0.0, 1.0)).all():
        low, high = wilson_interval(np.array([values.sum()]), n, CONFIDENCE)
        lower, upper = float(low[0]), float(high[0])
    else:
        lower, upper = _student(values)
    return Estimate(mean, std, lower, upper, n, len(of_seeds))


def _student(sample: Sequence[float] | np.ndarray) -> tuple[float, float]:
    sample = np.asarray(sample, dtype=float)
    if len(sample) < 2:
        return np.nan, np.nan
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(sample) - 1)) * sample.std(ddof=1) / np.sqrt(len(sample))
    return float(sample.mean() - half), float(sample.mean() + half)
