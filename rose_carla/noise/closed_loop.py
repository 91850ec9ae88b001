"""Closed loop: people who implement an answer noisily, look where they landed, and ask again.

Definition 2 has one fixed list of actions. Here people decide anew after each answer: they ask what to do from where
they are, implement the answer by NoisySteps, and ask again unless the outcome is favourable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from rose_carla.noise.accumulated import continue_from
from rose_carla.noise.invalidation import Favourable
from rose_carla.noise.plausible import Noise

#: From states (m, d) and the L1 lengths (m,) that people can still go to the actions (k, d) advised in each state; k is
#: 0 without an answer.
Advise = Callable[[np.ndarray, np.ndarray], Sequence[np.ndarray]]
#: How a try ends: favourably, with the last decision, before an answer that costs too much, without an answer.
SUCCESS, DECISIONS, COST, NO_ANSWER = range(4)
#: Rounding error allowed in a cost.
_SLACK = 1e-9


@dataclass(frozen=True)
class ClosedLoop:
    """Tries of b people, n of each.

    Parameters
    ----------
    outcomes
        (b, n) how each try ended: ``SUCCESS``, ``DECISIONS``, ``COST`` or ``NO_ANSWER``.
    costs
        (b, n) L1 length of the actions that were implemented, as they were advised.
    decisions
        (b, n) number of answers that were implemented.
    ends
        (b, n, d) where each try ended.
    """

    outcomes: np.ndarray
    costs: np.ndarray
    decisions: np.ndarray
    ends: np.ndarray

    @classmethod
    def concat(cls, parts: Sequence[ClosedLoop]) -> ClosedLoop:
        """Return the tries of all people of several results."""
        return cls(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)))

    @property
    def succeeded(self) -> np.ndarray:
        """(b, n) whether each try ended favourably."""
        return self.outcomes == SUCCESS


def closed_loop(
    advise: Advise,
    favourable: Favourable,
    factuals: np.ndarray,
    noise: Noise,
    variance: float,
    action_unit: float | np.ndarray,
    n_tries: int,
    max_decisions: int,
    rngs: Sequence[np.random.Generator],
    max_costs: np.ndarray | None = None,
    noise_per: str = "unit",
    first: Sequence[np.ndarray] | None = None,
) -> ClosedLoop:
    """Simulate people who ask for advice, implement it noisily, look where they landed and ask again.

    Parameters
    ----------
    advise
        Answers, asked once a decision for all tries on the way; identical states get identical answers.
    favourable
        From states to whether people stop there.
    factuals
        (b, d) where people start. A start that is favourable already succeeds without a decision.
    noise, variance, action_unit, noise_per
        Noise of the implementation, as in :func:`~rose_carla.noise.accumulated.execute`.
    n_tries
        Independent tries of each person.
    max_decisions
        Maximum number of answers that a try implements.
    rngs
        One generator for each person: tries do not depend on the rest of the batch.
    max_costs
        (b,) L1 length that a try may not exceed; None for no limit.
    first
        For each person a plan (k, d) that is their first answer; those with an empty one ask.
    """
    shape = (len(factuals), n_tries)
    states = np.repeat(factuals.astype(float), n_tries, axis=0)
    limits = np.full(len(states), np.inf) if max_costs is None else np.repeat(max_costs, n_tries)
    # a generator of its own for each try: how many draws it needs depends on where it leads
    generators = [np.random.default_rng(seed) for rng in rngs for seed in rng.integers(2**63, size=n_tries)]
    outcomes, decisions = np.full(len(states), DECISIONS), np.zeros(len(states), dtype=int)
    costs = np.zeros(len(states))
    arrived = np.repeat(np.asarray(favourable(factuals), dtype=bool), n_tries)
    outcomes[arrived] = SUCCESS
    alive = np.flatnonzero(~arrived)
    nothing = np.empty((0, states.shape[1]))
    for decision in range(max_decisions):
        if len(alive) == 0:
            break
        given = first if decision == 0 else None
        plans = [nothing if given is None else given[row // n_tries] for row in alive.tolist()]
        asking = np.array([row for row, plan in enumerate(plans) if len(plan) == 0], dtype=int)
        if len(asking):
            tries = alive[asking]
            answers = advise(states[tries], limits[tries] - costs[tries])
            for row, answer in zip(asking.tolist(), answers, strict=True):
                plans[row] = answer
        sizes = np.array([np.abs(plan).sum() for plan in plans])
        answered = sizes > 0  # neither zeros nor NaN
        too_long = costs[alive] + sizes > limits[alive] + _SLACK
        outcomes[alive[too_long]], outcomes[alive[~answered]] = COST, NO_ANSWER
        goes_on = np.flatnonzero(~too_long & answered)
        alive, plans = alive[goes_on], [plans[row] for row in goes_on.tolist()]
        if len(alive) == 0:
            break
        costs[alive] += sizes[goes_on]
        decisions[alive] += 1
        chosen = [generators[row] for row in alive.tolist()]
        landed = continue_from(states[alive, None], plans, noise, variance, action_unit, chosen, noise_per)
        states[alive] = landed[:, 0]
        arrived = np.asarray(favourable(states[alive]), dtype=bool)
        outcomes[alive[arrived]] = SUCCESS
        alive = alive[~arrived]
    return ClosedLoop(
        outcomes.reshape(shape),
        costs.reshape(shape),
        decisions.reshape(shape),
        states.reshape(*shape, factuals.shape[1]),
    )
