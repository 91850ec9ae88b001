"""From a policy to plans: walk, search where that does not get there, shorten, check with fresh noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from rose_carla._lib.runtime import Deadline
from rose_carla.ppo import ActorCritic
from rose_carla.rose.search.drafts import Drafts
from rose_carla.rose.search.exchange import Exchange
from rose_carla.rose.search.settle import Settling, usual_slope
from rose_carla.rose.search.task import Task
from rose_carla.rose.search.walk import Walks, walk

#: Actions to a branch of the search; what takes more is no plan for a person.
_BEAM_DEPTH = 16
#: How many times as long as others the last check of somebody without a plan is.
_LONGER = 4
#: Rivals to a plan, rounds of them, and the share of the noisy versions of a check that they are looked at with.
_RIVALS = 2
_CHALLENGES = 3
_RIVAL_SHARE = 8


@dataclass(frozen=True)
class Planned:
    """What was found for b people.

    Parameters
    ----------
    plans
        (k, d) actions in order; empty where nothing was found.
    ends
        (b, d) where they lead.
    found
        (b,) whether a plan passed the check.
    rates
        (b,) invalidation rate in the check, or the lowest seen.
    """

    plans: list[np.ndarray]
    ends: np.ndarray
    found: np.ndarray
    rates: np.ndarray


class Planner:
    """Plans for many people at once.

    Parameters
    ----------
    task, policy
        What has to be achieved, and who knows how.
    slope
        How fast the probit of the invalidation rate grows with the margin; see :func:`calibrate`.
    n_walk
        Noisy versions behind a rate that the walk sees.
    n_check, confidence
        Noisy versions in the final check, and its one-sided confidence.
    max_actions
        Actions to a walk.
    search
        Where the policy alone does not get there, search with a beam, and look for cheaper features.
    shorten
        Take off what is not needed.
    sparsity_weight
        Units of action that one feature less is worth.
    gamma
        Discount of one unit.
    beam_width
        Branches followed in the search.
    """

    def __init__(
        self,
        task: Task,
        policy: ActorCritic,
        slope: float,
        n_walk: int,
        n_check: int,
        confidence: float,
        max_actions: int,
        search: bool = True,
        shorten: bool = True,
        sparsity_weight: float = 0.5,
        gamma: float = 0.99,
        beam_width: int = 8,
    ) -> None:
        self.task = task
        self.policy = policy
        self.n_walk = n_walk
        self.n_rivals = max(n_check // _RIVAL_SHARE, 32)
        self.max_actions = max_actions
        self.search = search
        self.shorten = shorten
        self.gamma = gamma
        self.beam_width = beam_width
        self.exchange = Exchange(task, policy, sparsity_weight)
        self.settling = Settling(task, self.exchange, slope, n_check, confidence)

    def plan(
        self, factuals: np.ndarray, rngs: Sequence[np.random.Generator], deadline: Deadline | None = None
    ) -> Planned:
        """A plan for each of (b, d) factuals, all of them unfavourable; ``rngs`` has a generator for each.

        Walks end at the ``deadline``; who is not there by then has no plan.
        """
        walks = self._walk(self.task, factuals, rngs, deadline)
        if self.shorten:
            drafts, found, rates = self._shortened(walks, rngs)
            plans, ends = drafts.plans(), drafts.ends
        else:
            plans, ends = walks.plans(), walks.drafts.ends
            found, rates = self._checked(factuals, plans, ends, walks, rngs)
        empty = np.empty((0, factuals.shape[1]))
        plans = [plan if ok else empty for plan, ok in zip(plans, found, strict=True)]
        return Planned(plans, ends, found, rates)

    def _walk(
        self,
        task: Task,
        factuals: np.ndarray,
        rngs: Sequence[np.random.Generator],
        deadline: Deadline | None = None,
    ) -> Walks:
        """Follow the policy; search with a beam for those whom that does not get there."""
        walks = walk(task, self.policy, factuals, self.max_actions, rngs, deadline=deadline)
        missed = np.flatnonzero(~walks.reached)
        if self.search and len(missed):
            chosen = [rngs[row] for row in missed.tolist()]
            depth = min(self.max_actions, _BEAM_DEPTH)
            walks[missed] = walk(
                task, self.policy, factuals[missed], depth, chosen, width=self.beam_width, gamma=self.gamma
            )
        return walks

    def _shortened(self, walks: Walks, rngs: Sequence[np.random.Generator]) -> tuple[Drafts, np.ndarray, np.ndarray]:
        """Settle on the cheapest draft: of any features first; where that fails, of those that a second, more careful
        walk changes."""
        n = len(rngs)
        drafts, found, rates = walks.drafts[np.arange(n)], np.zeros(n, dtype=bool), walks.rates.copy()
        rows = np.arange(n)
        for careful in (False, True):
            faithful = careful or not self.search
            if careful:
                rows = np.flatnonzero(~found)
                if len(rows) == 0:
                    break
                walks = self._carefully(walks.drafts.factuals[rows], [rngs[row] for row in rows.tolist()])
            start = walks.drafts
            margins = self.task.margins(start.ends)
            inside = np.flatnonzero(margins > 0)
            if len(inside) == 0:
                continue
            start, margins, seen, rows = start[inside], margins[inside], walks.rates[inside], rows[inside]
            if not careful:
                needed = self.settling.next_margins(margins, seen, self.n_walk)
                start = self.exchange.improve(start, margins, np.minimum(needed, margins), faithful)
            chosen = [rngs[row] for row in rows.tolist()]
            settled, passed, rate = self.settling.settle(start, chosen, faithful)
            better = passed | (rate < rates[rows]) | (not careful)
            drafts[rows[better]], rates[rows[better]] = settled[better], rate[better]
            found[rows] = passed
            if not careful and self.search:
                self._challenge(drafts, found, rates, rngs)
        self._reconsider(drafts, found, rates, rngs)
        return drafts, found, rates

    def _reconsider(
        self, drafts: Drafts, found: np.ndarray, rates: np.ndarray, rngs: Sequence[np.random.Generator]
    ) -> None:
        """A draft that is robust enough, but not by the margin that a check asks for, may pass a longer one."""
        rows = np.flatnonzero(~found & (rates < self.task.limit))
        if len(rows) == 0:
            return
        part, chosen = drafts[rows], [rngs[row] for row in rows.tolist()]
        n_check = _LONGER * self.settling.n_check
        found[rows], rate = self.settling.check(part.factuals, part.plans(), part.ends, chosen, n_check)
        rates[rows] = rate.rate

    def _challenge(
        self, drafts: Drafts, found: np.ndarray, rates: np.ndarray, rngs: Sequence[np.random.Generator]
    ) -> None:
        """Let cheaper rivals on other features try, as long as one wins: the noise, not the margin, decides."""
        rows = np.flatnonzero(found)
        for _ in range(_CHALLENGES):
            rivals, owners = self.exchange.rivals(drafts[rows], _RIVALS)
            if len(owners) == 0:
                return
            people = rows[owners]
            seen = self.task.judge(rivals, self.n_rivals, [rngs[row] for row in people.tolist()], 0.95).rate
            order = np.lexsort((seen, people))
            people, first = np.unique(people[order], return_index=True)
            best = order[first]
            promising = seen[best] < self.settling.aim
            people, challengers = people[promising], rivals[best[promising]]
            if len(people) == 0:
                return
            chosen = [rngs[row] for row in people.tolist()]
            settled, passed, rate = self.settling.settle(challengers, chosen, faithful=True)
            won = passed & (self.exchange.scores(settled) < self.exchange.scores(drafts[people]))
            rows = people[won]
            drafts[rows], rates[rows] = settled[won], rate[won]
            if len(rows) == 0:
                return

    def _carefully(self, factuals: np.ndarray, rngs: Sequence[np.random.Generator]) -> Walks:
        """Walk again with four times as much noise to judge by, to where a check should be passed."""
        task = replace(self.task, robustness=self.task.robustness.sized(4 * self.n_walk), tau=1 - self.settling.aim)
        return self._walk(task, factuals, rngs)

    def _checked(
        self,
        factuals: np.ndarray,
        plans: list[np.ndarray],
        ends: np.ndarray,
        walks: Walks,
        rngs: Sequence[np.random.Generator],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which plans pass the check as they are, and their invalidation rates."""
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
    """The usual slope of the probit of the invalidation rate over the margin, from plans and a bit less of each."""
    drafts = walk(task, policy, factuals, max_actions, rngs).drafts
    less = drafts[np.arange(len(drafts))]
    less.ends = drafts.factuals + 0.85 * (drafts.ends - drafts.factuals)
    margins = np.stack([task.margins(drafts.ends), task.margins(less.ends)])
    rows = np.flatnonzero((margins > 0).all(axis=0))
    if len(rows) == 0:
        return 1.0
    chosen = [rngs[row] for row in rows.tolist()]
    rates = [task.judge(each[rows], n_samples, chosen, 0.95).rate for each in (drafts, less)]
    return usual_slope(margins[:, rows], np.stack(rates), n_samples)
