"""Settling: find the cheapest draft that passes a check with fresh noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rose_carla.noise import InvalidationRate, most_failures_below, wilson_interval
from rose_carla.rose.search.drafts import Drafts, Task
from rose_carla.rose.search.exchange import Exchange
from scipy.special import ndtr, ndtri

#: Minimum difference of probits between two checks for a slope of the person's own.
_MIN_PROBIT_CHANGE = 0.3
#: Smallest number of samples after which a check may stop early.
_FIRST_LOOK = 48
#: A plan fails early if, given what was seen, all samples would let it pass with less than this probability.
_FUTILE = 0.02
#: Smallest margin aimed at.
_MIN_MARGIN = 1e-3
#: Units by which a draft is extended when margins do not determine how far to go.
_EXTENSION = 4
#: Maximum ratio of a person's own slope to the usual one, and of the inverse.
_MAX_SLOPE_RATIO = 4.0


def probit(rates: np.ndarray, n_samples: int) -> np.ndarray:
    """Return the probit of the success rate, with a continuity correction: 0 at a rate of one half."""
    return -ndtri((rates * n_samples + 0.5) / (n_samples + 1))


@dataclass(eq=False)
class Settling:
    r"""Search for the margin at which the invalidation rate is just low enough.

    The probit of the success rate grows about linearly with the margin, :math:`-\Phi^{-1}(IR) \approx a + b m`. A check
    gives one point of that line, so the next draft is made for the margin where the line reaches the rate aimed at; two
    checks give its slope.
    """

    #: Goal of the plans.
    task: Task
    #: Search for the cheapest draft of a margin.
    exchange: Exchange
    #: Usual slope b.
    slope: float
    #: Noisy versions of a draft in a check. A draft passes if the upper end of the one-sided interval of that
    #: confidence is below the limit.
    n_check: int
    confidence: float
    #: Maximum number of checks per person.
    max_checks: int = 8

    def __post_init__(self) -> None:
        limit = self.task.limit
        # approximately the largest rate that passes
        error = np.sqrt(limit * (1 - limit) / self.n_check)
        self.aim = max(limit - ndtri(self.confidence) * error, limit / 4)
        self.goal = float(-ndtri(self.aim))

    def check(
        self,
        factuals: np.ndarray,
        plans: Sequence[np.ndarray],
        ends: np.ndarray,
        rngs: Sequence[np.random.Generator],
        n_check: int | None = None,
        confidence: float | None = None,
    ) -> tuple[np.ndarray, InvalidationRate]:
        """Return which plans end favourably and are robust on fresh noise, and their invalidation rates.

        The samples come in parts, each as large as all before. Plans that would hardly pass with all samples get no
        more of them, and neither do plans that pass with a part of the allowed error.
        """
        n_check, confidence = n_check or self.n_check, confidence or self.confidence
        ends_accepted = self.task.margins(ends) > 0
        sizes = [n_check]
        while sizes[0] >= 2 * _FIRST_LOOK:
            sizes.insert(0, sizes[0] // 2)
        most = most_failures_below(self.task.limit, n_check, 2 * confidence - 1)
        early = 1 - (1 - confidence) / len(sizes)
        failures, n = np.zeros(len(plans)), np.zeros(len(plans), dtype=int)
        left = np.arange(len(plans))
        for size in sizes:
            if len(left) == 0:
                break
            more, chosen = size - int(n[left[0]]), [rngs[row] for row in left.tolist()]
            part = [plans[row] for row in left.tolist()]
            seen = self.task.robustness.evaluate(factuals[left], part, more, chosen, 0.95)
            failures[left] += seen.rate * more
            n[left] = size
            _, upper = wilson_interval(failures[left], size, early)
            may_pass = _chance_of_at_most(most, failures[left], size, n_check) > _FUTILE
            left = left[may_pass & (upper >= self.task.limit)]
        rates = InvalidationRate.from_failures(failures, n, 2 * confidence - 1)
        return (rates.upper < self.task.limit) & ends_accepted, rates

    def next_margins(self, margins: np.ndarray, rates: np.ndarray, n_samples: int) -> np.ndarray:
        """Return the margins to aim at, given ``rates`` observed at ``margins``, by the usual slope."""
        return (margins + (self.goal - probit(rates, n_samples)) / self.slope).clip(_MIN_MARGIN)

    def settle(
        self, drafts: Drafts, rngs: Sequence[np.random.Generator], same_features: bool
    ) -> tuple[Drafts, np.ndarray, np.ndarray]:
        """Return each person's cheapest draft that passed, else the most robust; whether it passed; its rate."""
        n = len(drafts)
        best, passed, best_rates = drafts.copy(), np.zeros(n, dtype=bool), np.ones(n)
        best_accepted = self.task.margins(best.ends) > 0
        slopes = np.full(n, self.slope)
        before = np.full((2, n), np.nan)  # margin and probit of the last check
        rows = np.arange(n)
        current = drafts
        for _ in range(self.max_checks):
            margins, raw = self.task.guide(current.ends), self.task.margins(current.ends)
            ok, rate = self.check(current.factuals, current.plans(), current.ends, [rngs[row] for row in rows.tolist()])
            # accepted ends come first, however little robust
            lower = rate.rate - (raw > 0) < best_rates[rows] - best_accepted[rows]
            keep = ok | (~passed[rows] & lower)
            best_accepted[rows[keep]] = raw[keep] > 0
            best[rows[keep]], best_rates[rows[keep]] = current[keep], rate.rate[keep]
            failed_after_pass = passed[rows] & ~ok
            passed[rows[ok]] = True
            probits = probit(rate.rate, self.n_check)
            with np.errstate(divide="ignore", invalid="ignore"):
                slope = (probits - before[1, rows]) / (margins - before[0, rows])
            informative = (np.abs(probits - before[1, rows]) > _MIN_PROBIT_CHANGE) & (slope > 0)
            bounded = slope.clip(self.slope / _MAX_SLOPE_RATIO, self.slope * _MAX_SLOPE_RATIO)
            slopes[rows] = np.where(informative, bounded, slopes[rows])
            before[:, rows] = margins, probits
            needed = margins + (self.goal - probits) / slopes[rows]
            # a draft that did not pass always needs a larger margin
            needed = np.where(ok, needed, np.maximum(needed, margins + 0.1 / slopes[rows])).clip(_MIN_MARGIN)
            go = ~failed_after_pass & ~(ok & (needed >= margins))
            if not go.any():
                break
            reached = np.where(ok, margins, -np.inf)[go]
            following = self.exchange.improve(current[go], reached, needed[go], same_features)
            changed = np.abs(following.ends - current.ends[go]).max(axis=1) > 1e-9
            # no draft has that margin, or margins are saturated: go further in the same direction
            stay = np.flatnonzero(~changed & ~passed[rows[go]])
            if len(stay):
                following[stay] = current[np.flatnonzero(go)[stay]].extend(_EXTENSION)
                changed = np.abs(following.ends - current.ends[go]).max(axis=1) > 1e-9
            rows, current = rows[go][changed], following[changed]
            if len(rows) == 0:
                break
        return best, passed, best_rates


def _chance_of_at_most(most: int, failures: np.ndarray, n: int, n_all: int) -> np.ndarray:
    """Return the chance of at most ``most`` failures in ``n_all`` samples, given ``failures`` in the first ``n``.

    The other samples are approximately normal, with the mean and variance of their predictive distribution.
    """
    rate, others = (failures + 0.5) / (n + 1), n_all - n
    deviation = np.sqrt(others * rate * (1 - rate) * (1 + others / n))
    missing = most - failures - others * rate
    return np.where(deviation > 0, ndtr(missing / np.maximum(deviation, 1e-12)), missing >= 0)


def usual_slope(margins: np.ndarray, rates: np.ndarray, n_samples: int) -> float:
    """Return the median slope of the probit over the margin, from pairs (2, n) of drafts of the same people."""
    probits = probit(rates, n_samples)
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = (probits[0] - probits[1]) / (margins[0] - margins[1])
    useful = np.isfinite(slopes) & (slopes > 0) & (np.abs(margins[0] - margins[1]) > 1e-6)
    return float(np.median(slopes[useful])) if useful.any() else 1.0
