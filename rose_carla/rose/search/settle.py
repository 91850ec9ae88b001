"""Settling and trimming: the cheapest draft that passes a check with fresh noise, without changes it does not need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rose_carla.mdp import Accumulated
from rose_carla.noise import InvalidationRate, most_failures_below, wilson_interval
from rose_carla.rose.search.drafts import Drafts, Task, best_of_each
from rose_carla.rose.search.exchange import Exchange
from scipy.special import ndtr, ndtri

#: Minimum difference of probits between two checks for a slope of the person's own.
_MIN_PROBIT_CHANGE = 0.3
#: Smallest number of samples after which a check may stop early.
_FIRST_LOOK = 48
#: A plan fails early if, given what was seen, all samples would let it pass with less than this probability.
_FUTILE = 0.02
#: Confidence of the interval whose upper end is the rate of a draft that did not pass.
_CAUTION = 0.7
#: Smallest margin aimed at.
_MIN_MARGIN = 1e-3
#: Units by which a draft is extended when margins do not determine how far to go.
_EXTENSION = 4
#: Maximum ratio of a person's own slope to the usual one, and of the inverse.
_MAX_SLOPE_RATIO = 4.0
#: Maximum number of rounds of trimming; each checks one shorter version of every plan, and at first all without a step.
_TRIM_ROUNDS = 40
#: Factors on the samples of the check of a shorter plan, under one-off noise and for a crowd, which takes a hundred
#: times as long, and on its error: of many, those that pass are lucky.
_LONGER, _LONGER_CROWD, _ERROR = 3.0, 1.5, 0.2
#: Probit of the success of a plan without its only change.
_HOPELESS = -2.0
#: Smallest share of the lengths in question that a round excludes.
_PROGRESS = 0.2


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

    def settle(self, drafts: Drafts, rngs: Sequence[np.random.Generator]) -> tuple[Drafts, np.ndarray, np.ndarray]:
        """Return each person's cheapest draft that passed, else the most robust; whether it passed; its rate.

        The rate of a draft that did not pass is cautious, the upper end of an interval.
        """
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
            # checks that stop early see few samples, the lowest of many such rates are lucky
            rates = np.where(ok, rate.rate, wilson_interval(rate.rate * rate.n_samples, rate.n_samples, _CAUTION)[1])
            # accepted ends come first, however little robust
            lower = rates - (raw > 0) < best_rates[rows] - best_accepted[rows]
            keep = ok | (~passed[rows] & lower)
            best_accepted[rows[keep]] = raw[keep] > 0
            best[rows[keep]], best_rates[rows[keep]] = current[keep], rates[keep]
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
            following = self.exchange.improve(current[go], reached, needed[go])
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


def trim(
    settling: Settling, drafts: Drafts, rates: np.ndarray, rngs: Sequence[np.random.Generator]
) -> tuple[Drafts, np.ndarray]:
    """Return plans without changes that are not needed to pass the check, and their invalidation rates.

    Every shorter plan is checked on fresh noise, with more samples and at a higher confidence than usual, which decides
    cases near the limit. At first each change is left out; the largest that is not needed goes. Then changes are
    shortened one at a time, to the length where a line through the probits of a length that passes and of one that
    fails reaches the goal. A length that failed is not tried again: the plan is not more robust then.

    Parameters
    ----------
    settling
        Check of plans.
    drafts, rates
        Plans that passed the check, and their invalidation rates.
    rngs
        One generator for each plan.
    """
    drafts, rates = _shorten_last(settling, drafts.copy(), rates.copy(), rngs)
    numeric = np.array([feature.encodings is None for feature in drafts.space.features])
    everyone = np.arange(len(drafts))
    may_drop = np.ones((len(drafts), len(numeric)), dtype=bool)
    # lengths in units that are too short, and the probits of success there
    too_short, low = np.zeros(may_drop.shape), np.full(may_drop.shape, _HOPELESS)
    for _ in range(_TRIM_ROUNDS):
        sizes = drafts.sizes()
        changed = sizes > 1e-9
        drop = may_drop & changed & (changed.sum(axis=1) > 1)[:, None]
        high = probit(rates, settling.n_check)[:, None]
        room = sizes - too_short
        shorten = numeric & changed & ~drop.any(axis=1, keepdims=True) & (room > 1 + 1e-6)
        share = ((settling.goal - low) / np.maximum(high - low, 1e-9)).clip(_PROGRESS, 1 - _PROGRESS)
        units = np.where(shorten, np.floor(room * (1 - share)).clip(1, np.ceil(room - 1e-6) - 1), 0.0)
        longest = units.argmax(axis=1)
        one = units[everyone, longest] > 0
        row, feature = np.concatenate([np.argwhere(drop), np.column_stack([everyone, longest])[one]]).T
        if len(row) == 0:
            break
        whole = np.arange(len(row)) < drop.sum()
        amount = np.where(whole, np.inf, units[row, feature])
        variants = drafts[row].reduce(feature, amount)
        passed, seen = _check_shorter(settling, variants, row, rngs)
        failed = np.flatnonzero(~passed)
        may_drop[row[failed], feature[failed]] = False
        too_short[row[failed], feature[failed]] = np.where(whole, 0.0, sizes[row, feature] - amount)[failed]
        low[row[failed], feature[failed]] = np.minimum(probit(seen[failed], settling.n_check), settling.goal - 1e-3)
        best = np.flatnonzero(passed)
        best = best[best_of_each(row[best], -np.minimum(amount, sizes[row, feature])[best], 1)]
        drafts[row[best]], rates[row[best]] = variants[best], seen[best]
    return drafts, rates


def _check_shorter(
    settling: Settling, drafts: Drafts, people: np.ndarray, rngs: Sequence[np.random.Generator]
) -> tuple[np.ndarray, np.ndarray]:
    """Return which drafts pass the check with more samples and less error, and their rates."""
    chosen = [rngs[person] for person in people.tolist()]
    factor = _LONGER if settling.task.robustness.crowd_size == 0 else _LONGER_CROWD
    n_check, confidence = round(factor * settling.n_check), 1 - _ERROR * (1 - settling.confidence)
    passed, rate = settling.check(drafts.factuals, drafts.plans(), drafts.ends, chosen, n_check, confidence)
    return passed, rate.rate


def _shorten_last(
    settling: Settling, drafts: Drafts, rates: np.ndarray, rngs: Sequence[np.random.Generator]
) -> tuple[Drafts, np.ndarray]:
    """Shorten the last change at once to the shortest length that should pass, where that passes the check.

    Under accumulated noise one sweep gives the rates of all lengths.
    """
    robustness = settling.task.robustness
    if not isinstance(robustness, Accumulated) or robustness.noise_per != "unit":
        return drafts, rates
    last = drafts.last_changes()
    numeric = np.array([feature.encodings is None for feature in drafts.space.features])
    sizes = drafts.sizes()[np.arange(len(drafts)), last]
    rows = np.flatnonzero(numeric[last] & (sizes > 1 + 1e-6))
    if len(rows) == 0:
        return drafts, rates
    chosen, part = [rngs[row] for row in rows.tolist()], drafts[rows]
    swept = robustness.sweep_last_action(part.factuals, part.plans(), settling.n_check, chosen)
    # the shortest length from which on all lengths should pass
    lengths = np.array(
        [len(each) - np.argmin(each[::-1] < settling.aim) if (each >= settling.aim).any() else 1 for each in swept]
    )
    less = sizes[rows] - lengths.clip(1)
    kept = np.flatnonzero(less >= 1 - 1e-6)
    rows, part = rows[kept], part[kept].reduce(last[rows[kept]], less[kept])
    if len(rows):
        passed, rate = _check_shorter(settling, part, rows, rngs)
        drafts[rows[passed]], rates[rows[passed]] = part[passed], rate[passed]
    return drafts, rates
