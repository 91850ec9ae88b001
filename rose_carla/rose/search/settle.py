"""From a draft to one that is just robust enough: checks with fresh noise, and exchanges between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rose_carla.noise import InvalidationRate, wilson_interval
from rose_carla.rose.search.drafts import Drafts
from rose_carla.rose.search.exchange import Exchange
from rose_carla.rose.search.task import Task
from scipy.special import ndtri

#: Change of probit from which on two checks tell a slope.
_TELLING = 0.3
#: Two-sided confidence at which a check is given up early.
_SURELY = 0.998
#: Every draft has to be at least that far inside.
_INSIDE = 1e-3
#: Units that a draft is lengthened by when margins do not tell how far to go.
_FURTHER = 4
#: A slope that noise suggests is taken for at most so many times the usual one, up or down.
_UNUSUAL = 4.0


def probit(rates: np.ndarray, n_samples: int) -> np.ndarray:
    """How many deviations a plan is away from a rate of one half: above 0 it more often holds than not."""
    return -ndtri((rates * n_samples + 0.5) / (n_samples + 1))


class Settling:
    r"""Find the margin at which the invalidation rate is just low enough.

    Along a way into the favourable side the probit of the invalidation rate grows about linearly with the margin,
    :math:`-\Phi^{-1}(IR) \approx a + b m`. A check tells one point of that line, so the next draft is looked for at the
    margin where the line meets the rate aimed at; two checks tell its slope.

    Parameters
    ----------
    task
        What has to be achieved.
    exchange
        Finds the cheapest draft of a margin.
    slope
        The usual b.
    n_check, confidence
        Noisy versions of a draft in a check. It is passed if the upper end of the one-sided interval of that confidence
        is below the limit.
    max_checks
        Checks to a person.
    """

    def __init__(
        self, task: Task, exchange: Exchange, slope: float, n_check: int, confidence: float, max_checks: int = 8
    ) -> None:
        self.task = task
        self.exchange = exchange
        self.slope = slope
        self.n_check = n_check
        self.confidence = confidence
        self.max_checks = max_checks
        # about the largest rate that passes
        error = np.sqrt(task.limit * (1 - task.limit) / n_check)
        self.aim = max(task.limit - ndtri(confidence) * error, task.limit / 4)
        self.goal = float(-ndtri(self.aim))

    def check(
        self,
        factuals: np.ndarray,
        plans: Sequence[np.ndarray],
        ends: np.ndarray,
        rngs: Sequence[np.random.Generator],
        n_check: int | None = None,
    ) -> tuple[np.ndarray, InvalidationRate]:
        """Whether each plan is favourable where it ends and, on fresh noise, surely robust enough.

        A quarter of the noise comes first: a plan that surely fails by then gets no more.
        """
        n_check = self.n_check if n_check is None else n_check
        two_sided = 2 * self.confidence - 1
        first = -(-n_check // 4)
        rate = self.task.robustness.judge(factuals, plans, first, rngs, _SURELY)
        failures, n = rate.rate * first, np.full(len(plans), first)
        on = np.flatnonzero(rate.lower < self.task.limit)
        if len(on) and n_check > first:
            more = n_check - first
            chosen = [rngs[row] for row in on.tolist()]
            rest = self.task.robustness.judge(
                factuals[on], [plans[row] for row in on.tolist()], more, chosen, two_sided
            )
            failures[on] += rest.rate * more
            n[on] += more
        lower, upper = wilson_interval(failures, n, two_sided)
        passed = (upper < self.task.limit) & (self.task.margins(ends) > 0)
        return passed, InvalidationRate(failures / n, lower, upper, n_check)

    def next_margins(self, margins: np.ndarray, rates: np.ndarray, n_samples: int) -> np.ndarray:
        """Margins to aim at after having seen ``rates`` at ``margins``, by the usual slope."""
        return (margins + (self.goal - probit(rates, n_samples)) / self.slope).clip(_INSIDE)

    def settle(
        self, drafts: Drafts, rngs: Sequence[np.random.Generator], faithful: bool
    ) -> tuple[Drafts, np.ndarray, np.ndarray]:
        """The cheapest draft of each person that passed a check, else the most robust; whether it passed; its rate."""
        n = len(drafts)
        best, passed, best_rates = drafts[np.arange(n)], np.zeros(n, dtype=bool), np.ones(n)
        slopes = np.full(n, self.slope)
        before = np.full((2, n), np.nan)  # margin and probit of the last check
        rows = np.arange(n)
        current = drafts
        for _ in range(self.max_checks):
            margins = self.task.margins(current.ends)
            ok, rate = self.check(current.factuals, current.plans(), current.ends, [rngs[row] for row in rows.tolist()])
            keep = ok | (~passed[rows] & (rate.rate < best_rates[rows]))
            best[rows[keep]], best_rates[rows[keep]] = current[keep], rate.rate[keep]
            tried_in_vain = passed[rows] & ~ok
            passed[rows[ok]] = True
            probits = probit(rate.rate, self.n_check)
            with np.errstate(divide="ignore", invalid="ignore"):
                steep = (probits - before[1, rows]) / (margins - before[0, rows])
            telling = (np.abs(probits - before[1, rows]) > _TELLING) & (steep > 0)
            bounded = steep.clip(self.slope / _UNUSUAL, self.slope * _UNUSUAL)
            slopes[rows] = np.where(telling, bounded, slopes[rows])
            before[:, rows] = margins, probits
            needed = margins + (self.goal - probits) / slopes[rows]
            # a draft that did not pass has to get further in any case
            needed = np.where(ok, needed, np.maximum(needed, margins + 0.1 / slopes[rows])).clip(_INSIDE)
            go = ~tried_in_vain & ~(ok & (needed >= margins))
            if not go.any():
                break
            reached = np.where(ok, margins, -np.inf)[go]
            following = self.exchange.improve(current[go], reached, needed[go], faithful)
            changed = np.abs(following.ends - current.ends[go]).max(axis=1) > 1e-9
            # no margin is large enough, or it cannot be told from a larger one: simply go on
            stay = np.flatnonzero(~changed & ~passed[rows[go]])
            if len(stay):
                following[stay] = current[np.flatnonzero(go)[stay]].lengthened(_FURTHER)
                changed = np.abs(following.ends - current.ends[go]).max(axis=1) > 1e-9
            rows, current = rows[go][changed], following[changed]
            if len(rows) == 0:
                break
        return best, passed, best_rates


def usual_slope(margins: np.ndarray, rates: np.ndarray, n_samples: int) -> float:
    """Median slope of the probit over the margin, from pairs (2, n) of drafts of the same people."""
    probits = probit(rates, n_samples)
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = (probits[0] - probits[1]) / (margins[0] - margins[1])
    useful = np.isfinite(slopes) & (slopes > 0) & (np.abs(margins[0] - margins[1]) > 1e-6)
    return float(np.median(slopes[useful])) if useful.any() else 1.0
