"""The planner: walk with the policy, shorten, search without it, and check with fresh noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from rose_carla._lib.runtime import Deadline
from rose_carla.ppo import ActorCritic
from rose_carla.rose.search.drafts import Drafts, Task, Walks, walk
from rose_carla.rose.search.exchange import Exchange
from rose_carla.rose.search.order import choose_order
from rose_carla.rose.search.reach import Reach
from rose_carla.rose.search.settle import Settling, trim, usual_slope

#: Parts of the search that :attr:`Planner.without` switches off, to measure what each of them brings.
PARTS = ("walk", "settling", "rivals", "rows", "ascent", "sweeps", "redo", "order", "trimming")
#: Factor on the samples of a second walk.
_MORE_SAMPLES = 4
#: Factors on the samples of the last checks of people without a plan: under one-off noise, and for a crowd, which takes
#: a hundred times as long.
_LAST_CHECKS, _LAST_CROWDS = (16, 128), (4, 16)
#: Multiple of the limit above which a draft without the policy is not settled, and above which there is no last check.
_HOPELESS, _BORDERLINE = 1.6, 1.2
#: Rivals of a plan, rounds of them, and the divisor of ``n_check`` for their samples.
_RIVALS = 2
_RIVAL_ROUNDS = 3
_RIVAL_DIVISOR = 8


@dataclass(frozen=True)
class SearchResult:
    """Plans of b people."""

    #: (k, d) actions in order; empty where nothing was found.
    plans: list[np.ndarray]
    #: (b, d) where they lead.
    ends: np.ndarray
    #: (b,) whether a plan passed the check.
    found: np.ndarray
    #: (b,) invalidation rate in the check, or the lowest observed.
    rates: np.ndarray
    #: (b,) whether a favourable state was found, robust or not.
    reached: np.ndarray


@dataclass(eq=False)
class Planner:
    """Search for plans of many people at once."""

    #: Goal and policy.
    task: Task
    policy: ActorCritic
    #: Usual slope of the probit of the success rate over the margin; see :func:`calibrate`.
    slope: float
    #: Noisy versions of a state during walks.
    n_walk: int
    #: Noisy versions in the final check, and its one-sided confidence.
    n_check: int
    confidence: float
    #: Maximum number of actions of a walk.
    max_actions: int
    #: Whether to search where the policy alone fails, and for cheaper features.
    search: bool = True
    #: Whether to remove changes that are not needed.
    shorten: bool = True
    #: Cost of changing one more feature, in units of action.
    sparsity_weight: float = 0.5
    #: (n, d) training rows, towards which drafts lead where the policy fails; None without such drafts.
    rows: np.ndarray | None = None
    #: Names from :data:`PARTS` of parts that are switched off.
    without: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.exchange = Exchange(self.task, self.policy, self.sparsity_weight)
        self.settling = Settling(self.task, self.exchange, self.slope, self.n_check, self.confidence)
        if not self._has("settling"):
            self.settling.max_checks = 1
        self._reach: Reach | None = None

    def plan(
        self, factuals: np.ndarray, rngs: Sequence[np.random.Generator], deadline: Deadline | None = None
    ) -> SearchResult:
        """Search for plans of (b, d) factuals, all of them unfavourable; ``rngs`` has one generator for each.

        Walks end at the ``deadline``, without a plan where the goal is not reached by then.
        """
        walks = self._walk(self.task, factuals, rngs, deadline)
        if self.shorten:
            drafts, found, rates = self._shorten(walks, rngs)
            plans, ends = drafts.plans(), drafts.ends
            reached = found | (self.task.margins(ends) > 0)
        else:
            plans, ends = walks.plans(), walks.drafts.ends
            found, rates = self._check(factuals, plans, ends, walks, rngs)
            reached = found | (walks.rates < 1)
        empty = np.empty((0, factuals.shape[1]))
        plans = [plan if ok else empty for plan, ok in zip(plans, found, strict=True)]
        return SearchResult(plans, ends, found, rates, reached)

    def _has(self, part: str) -> bool:
        return part not in self.without

    def _walk(
        self,
        task: Task,
        factuals: np.ndarray,
        rngs: Sequence[np.random.Generator],
        deadline: Deadline | None = None,
    ) -> Walks:
        """Follow the policy."""
        length = self.max_actions if self._has("walk") else 0
        return walk(task, self.policy, factuals, length, rngs, deadline)

    def _shorten(self, walks: Walks, rngs: Sequence[np.random.Generator]) -> tuple[Drafts, np.ndarray, np.ndarray]:
        """Settle on the cheapest draft of a walk; where that fails, of a second walk, then of other drafts."""
        # the rates of a walk are those of its luckiest state: only those of checks count
        drafts, found, rates = walks.drafts.copy(), np.zeros(len(rngs), dtype=bool), np.ones(len(rngs))
        everyone = np.arange(len(rngs))
        start = self._shorten_by_margin(walks)
        self._settle_into(drafts, found, rates, everyone, start, rngs)
        if self.search:
            if self._has("rivals"):
                self._try_rivals(drafts, found, rates, rngs)
            rows = np.flatnonzero(~found)
            if len(rows):
                again = self._second_walk(drafts.factuals[rows], [rngs[row] for row in rows.tolist()])
                self._settle_into(drafts, found, rates, rows, again.drafts, rngs)
            rows = np.flatnonzero(~found)
            if len(rows) and self.rows is not None:
                for others, seen in self._other_drafts(drafts.factuals[rows], [rngs[row] for row in rows.tolist()]):
                    left = np.flatnonzero(~found[rows])
                    self._store(drafts, rates, rows[left], others[left], seen[left])
                    left = left[seen[left] < _HOPELESS * self.task.limit]
                    self._settle_into(drafts, found, rates, rows[left], others[left], rngs, True)
        self._check_longer(drafts, found, rates, rngs)
        rows = np.flatnonzero(found)
        if len(rows):
            chosen = [rngs[row] for row in rows.tolist()]
            if self._has("trimming"):
                drafts[rows], rates[rows] = trim(self.settling, drafts[rows], rates[rows], chosen)
            rows = rows[(drafts.sizes()[rows] > 0).sum(axis=1) > 1]
            if len(rows) and self._has("order"):
                self._reorder(drafts, rates, rows, rngs)
        return drafts, found, rates

    @property
    def _ignores_order(self) -> bool:
        return self.task.robustness.crowd_size == 0

    def _settle_into(
        self,
        drafts: Drafts,
        found: np.ndarray,
        rates: np.ndarray,
        rows: np.ndarray,
        starts: Drafts,
        rngs: Sequence[np.random.Generator],
        ordered: bool = False,
    ) -> None:
        """Settle ``starts`` of the people ``rows`` and store what is better than before.

        Their order is chosen first unless they are ``ordered``.
        """
        inside = np.flatnonzero(self.task.margins(starts.ends) > 0)
        if len(inside) == 0:
            return
        start, rows = starts[inside], rows[inside]
        chosen = [rngs[row] for row in rows.tolist()]
        if self._has("order") and not ordered and not self._ignores_order:
            start = choose_order(self.task, start, chosen)
        settled, passed, rate = self.settling.settle(start, chosen)
        self._store(drafts, rates, rows, settled, np.where(passed, -1.0, rate))
        rates[rows[passed]] = rate[passed]
        found[rows] |= passed

    def _store(self, drafts: Drafts, rates: np.ndarray, rows: np.ndarray, others: Drafts, seen: np.ndarray) -> None:
        """Store drafts of the people ``rows`` that are more robust; accepted ends come first, however little robust."""
        accepted, before = (self.task.margins(each.ends) > 0 for each in (others, drafts[rows]))
        better = seen - accepted < rates[rows] - before
        drafts[rows[better]], rates[rows[better]] = others[better], seen[better]

    def _shorten_by_margin(self, walks: Walks) -> Drafts:
        """Return cheaper drafts that should be as robust as required, judged by margins."""
        drafts = walks.drafts.copy()
        rows = np.flatnonzero(self.task.margins(drafts.ends) > 0)
        if len(rows):
            guide = self.task.guide(drafts.ends[rows])
            needed = np.minimum(self.settling.next_margins(guide, walks.rates[rows], self.n_walk), guide)
            drafts[rows] = self.exchange.improve(drafts[rows], guide, needed)
        return drafts

    def _other_drafts(
        self, factuals: np.ndarray, rngs: Sequence[np.random.Generator]
    ) -> list[tuple[Drafts, np.ndarray]]:
        if self._reach is None:
            assert self.rows is not None
            self._reach = Reach(self.task, self.rows, self.settling.aim, self.sparsity_weight, self.without)
        return self._reach.search(factuals, rngs)

    def _reorder(
        self, drafts: Drafts, rates: np.ndarray, rows: np.ndarray, rngs: Sequence[np.random.Generator]
    ) -> None:
        """Adopt the most robust order of actions; where order decides the end, if it passes the check."""
        ordered = choose_order(self.task, drafts[rows], [rngs[row] for row in rows.tolist()])
        if self._ignores_order:
            drafts[rows] = ordered
            return
        changed = (np.argsort(ordered.turns, axis=1) != np.argsort(drafts.turns[rows], axis=1)).any(axis=1)
        rows, ordered = rows[changed], ordered[changed]
        chosen = [rngs[row] for row in rows.tolist()]
        passed, rate = self.settling.check(ordered.factuals, ordered.plans(), ordered.ends, chosen)
        better = passed & (rate.rate < rates[rows])
        rows = rows[better]
        drafts[rows], rates[rows] = ordered[better], rate.rate[better]
        if len(rows) and self._has("trimming"):
            chosen = [rngs[row] for row in rows.tolist()]
            drafts[rows], rates[rows] = trim(self.settling, drafts[rows], rates[rows], chosen)

    def _check_longer(
        self, drafts: Drafts, found: np.ndarray, rates: np.ndarray, rngs: Sequence[np.random.Generator]
    ) -> None:
        """Check drafts that are nearly robust with more samples; estimate the rates of the others with all samples."""
        borderline = _BORDERLINE * self.task.limit
        others = np.flatnonzero(~found & (rates >= borderline) & (rates < 1))
        for factor in _LAST_CHECKS if self._ignores_order else _LAST_CROWDS:
            rows = np.flatnonzero(~found & (rates < borderline))
            if len(rows) == 0:
                break
            part, chosen = drafts[rows], [rngs[row] for row in rows.tolist()]
            passed, rate = self.settling.check(part.factuals, part.plans(), part.ends, chosen, factor * self.n_check)
            found[rows], rates[rows] = passed, rate.rate
        if len(others):
            rates[others] = self.task.evaluate(
                drafts[others], self.n_check, [rngs[row] for row in others.tolist()]
            ).rate

    def _try_rivals(
        self, drafts: Drafts, found: np.ndarray, rates: np.ndarray, rngs: Sequence[np.random.Generator]
    ) -> None:
        """Replace plans by cheaper rivals on other features that pass the check, until none does."""
        rows = np.flatnonzero(found)
        for _ in range(_RIVAL_ROUNDS):
            rivals, owners = self.exchange.rivals(drafts[rows], _RIVALS)
            if len(owners) == 0:
                return
            people = rows[owners]
            n_samples = max(self.n_check // _RIVAL_DIVISOR, 32)
            seen = self.task.evaluate(rivals, n_samples, [rngs[row] for row in people.tolist()]).rate
            order = np.lexsort((seen, people))
            people, first = np.unique(people[order], return_index=True)
            best = order[first]
            promising = seen[best] < self.settling.aim
            people, rivals = people[promising], rivals[best[promising]]
            if len(people) == 0:
                return
            chosen = [rngs[row] for row in people.tolist()]
            settled, passed, rate = self.settling.settle(rivals, chosen)
            won = passed & (self.exchange.scores(settled) < self.exchange.scores(drafts[people]))
            rows = people[won]
            drafts[rows], rates[rows] = settled[won], rate[won]
            if len(rows) == 0:
                return

    def _second_walk(self, factuals: np.ndarray, rngs: Sequence[np.random.Generator]) -> Walks:
        """Walk again with more noisy versions, to a rate that should pass the check."""
        robustness = self.task.robustness.with_samples(_MORE_SAMPLES * self.n_walk)
        task = replace(self.task, robustness=robustness, tau=1 - self.settling.aim)
        return self._walk(task, factuals, rngs)

    def _check(
        self,
        factuals: np.ndarray,
        plans: list[np.ndarray],
        ends: np.ndarray,
        walks: Walks,
        rngs: Sequence[np.random.Generator],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return which plans pass the check unchanged, and their invalidation rates."""
        found, rates = np.zeros(len(plans), dtype=bool), walks.rates.copy()
        rows = np.flatnonzero(walks.reached)
        if len(rows):
            chosen = [plans[row] for row in rows]
            passed, rate = self.settling.check(factuals[rows], chosen, ends[rows], [rngs[row] for row in rows.tolist()])
            found[rows], rates[rows] = passed, rate.rate
        return found, rates


def calibrate(
    task: Task,
    policy: ActorCritic,
    factuals: np.ndarray,
    max_actions: int,
    n_samples: int,
    rngs: Sequence[np.random.Generator],
) -> float:
    """Estimate the usual slope of the probit over the margin, from plans and shorter versions of them."""
    drafts = walk(task, policy, factuals, max_actions, rngs).drafts
    less = drafts.copy()
    less.ends = drafts.factuals + 0.85 * (drafts.ends - drafts.factuals)
    margins = np.stack([task.guide(drafts.ends), task.guide(less.ends)])
    rows = np.flatnonzero((margins > 0).all(axis=0))
    if len(rows) == 0:
        return 1.0
    chosen = [rngs[row] for row in rows.tolist()]
    rates = [task.evaluate(each[rows], n_samples, chosen).rate for each in (drafts, less)]
    return usual_slope(margins[:, rows], np.stack(rates), n_samples)
