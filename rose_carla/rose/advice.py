"""Closed loop with a policy: what to do from where a person landed, and how often that succeeds."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from carla.models.api import MLModel
from rose_carla._lib.params import Hyperparameters, choice, integer, optional
from rose_carla.errors import PlanError, short_repr
from rose_carla.mdp import ActionSpace, Revisited
from rose_carla.models import probability
from rose_carla.noise import NOISE_PER, InvalidationRate, closed_loop, row_generators
from rose_carla.noise.closed_loop import COST, DECISIONS, NO_ANSWER, Advise, ClosedLoop
from rose_carla.ppo import ActorCritic
from rose_carla.rose.plan import Success, original_values

#: People who implement an answer noisily, to choose its length.
_CROWD = 16
#: Share of them that must arrive for the length to be chosen by it; below, the longest move is advised.
_PROMISING = 0.25
#: Answers at a time, which bounds memory.
_ROWS = 4000
#: Streams of random numbers of a state: crowds of an answer, tries, and whether people have arrived robustly.
_ADVICE, _TRIES, _ARRIVAL = 2, 3, 4
#: When people stop.
STOPS = ("accepted", "robust")
#: What each outcome of a failed try is called.
_REASONS = {DECISIONS: "decisions", COST: "cost", NO_ANSWER: "no answer"}
#: Share of tries whose cost and number of decisions are below the reported quantile.
_QUANTILE = 0.9


@dataclass(frozen=True)
class FollowSettings(Hyperparameters):
    """Options of :meth:`rose_carla.rose.Rose.follow`."""

    #: Independent tries of each person.
    n_tries: int = integer(100, le=10**6)
    #: Maximum number of answers that a try implements.
    max_decisions: int = integer(20, le=10**4)
    #: When people stop.
    stop: str = choice("accepted", names=STOPS)
    #: Whether answers are implemented with a NoisyStep per unit of action or per action.
    noise_per: str = choice("unit", names=NOISE_PER)


@dataclass(frozen=True)
class RevisitSettings(Hyperparameters):
    """Option of :meth:`rose_carla.rose.Rose.plan`."""

    #: Maximum number of further answers of people who implemented the plan, if it says how they fare.
    revisits: int | None = optional(integer(1, le=10**4))


def cost_limits(max_cost: Any, n: int) -> np.ndarray:
    """Return the largest cost of each of ``n`` people."""
    try:
        limits = np.asarray(max_cost, dtype=float)
    except (TypeError, ValueError):
        limits = np.full(1, np.nan)
    if limits.shape not in ((), (n,)) or not (limits >= 0).all():
        raise PlanError(
            f"max_cost must be a number of at least 0, or one for each of {n} people, got {short_repr(max_cost)}."
        )
    return np.broadcast_to(limits, n)


def greedy_changes(
    space: ActionSpace, policy: ActorCritic, states: np.ndarray, mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers (m,) of the policy's actions in states (m, d), and their changes, 0 without a possible one."""
    numbers = policy.greedy(states, mask)
    changes = space.apply(states, numbers) - states
    changes[~mask.any(axis=1)] = 0.0
    return numbers, changes


def simulate(
    advise: Advise,
    noise: Revisited,
    tau: float,
    factuals: np.ndarray,
    n_tries: int,
    max_decisions: int,
    seed: int,
    max_costs: np.ndarray | None = None,
    first: Sequence[np.ndarray] | None = None,
) -> ClosedLoop:
    """Return tries of people (b, d) who implement answers with ``noise`` until they are where they may stop.

    Parameters as in :func:`~rose_carla.noise.closed_loop.closed_loop`; the random numbers of tries depend on the seed
    and the person's row.
    """

    def arrived(states: np.ndarray) -> np.ndarray:
        accepted = np.asarray(noise.favourable(states), dtype=bool)
        rows = np.flatnonzero(accepted)
        if noise.stop is not None and len(rows):
            generators = row_generators(states[rows], seed, _ARRIVAL)
            accepted[rows] = noise.stop.rates(states[rows], states[rows, None], generators) < 1 - tau
        return accepted

    return closed_loop(
        advise,
        arrived,
        factuals,
        noise.noise,
        noise.variance,
        noise.action_unit,
        n_tries,
        max_decisions,
        row_generators(factuals, seed, _TRIES),
        max_costs,
        noise.noise_per,
        first,
    )


@dataclass(frozen=True, eq=False)
class Advisor:
    """Answers of a policy to people who ask again from where they landed.

    The policy chooses the feature and the direction. How far to go is decided by the noise: people who move unit by
    unit pass all shorter moves, so one simulation of the longest move gives the chance p of success of each length k,
    and the length with the lowest expected cost of a success, (k + w) / p, is advised. Where no length has a fair
    chance, people are still on their way, and the longest move is advised.

    A state may be anywhere. Setting a category sets all of its columns, also those of a person between categories, who
    can be advised the nearest one. A feature out of range can only move back into it. Far from data the policy has been
    too: it is trained on where noise leads. Actions that cost more than a person can still spend are not advised.
    """

    space: ActionSpace
    policy: ActorCritic
    #: Noise of the implementation, and when people stop.
    noise: Revisited
    #: Cost w of a decision, in units of action.
    decision_weight: float
    #: Seed of the crowds.
    seed: int

    def __call__(self, states: np.ndarray, budgets: np.ndarray) -> list[np.ndarray]:
        """Return an action (1, d) for each of ``states`` (m, d), at most ``budgets`` (m,) long where one is."""
        asked = np.column_stack([states, budgets])
        different, which = np.unique(asked, axis=0, return_inverse=True)
        changes = np.concatenate(
            [
                self._changes(different[start : start + _ROWS, :-1], different[start : start + _ROWS, -1])
                for start in range(0, len(different), _ROWS)
            ]
        )
        return list(changes[which.ravel()][:, None, :])

    def _changes(self, states: np.ndarray, budgets: np.ndarray) -> np.ndarray:
        """Return the changes (m, d) to advise, 0 where no action is possible."""
        possible = self.space.mask(states)
        affordable = possible & (self.space.lengths(states) <= budgets[:, None] + 1e-9)
        # without an affordable action, the one that costs too much tells why there is none
        mask = np.where(affordable.any(axis=1, keepdims=True), affordable, possible)
        numbers, changes = greedy_changes(self.space, self.policy, states, mask)
        # robust ends are not a question of the next action alone
        rows = np.flatnonzero(mask.any(axis=1) & (self.space.moves[numbers] != 0) & (self.noise.stop is None))
        if len(rows):
            longest = self.space.apply(states[rows], self._longest[numbers[rows]]) - states[rows]
            shares = self._best_shares(states[rows], longest, budgets[rows])
            chosen = np.flatnonzero(shares > 0)
            changes[rows[chosen]] = longest[chosen] * shares[chosen, None]
        return changes

    @functools.cached_property
    def _longest(self) -> np.ndarray:
        """(n,) for each move the number of the longest one of its feature and direction."""
        features, moves = self.space.feature_numbers, self.space.moves
        same = (features == features[:, None]) & (np.sign(moves) == np.sign(moves)[:, None])
        return np.where(same, np.abs(moves), -1).argmax(axis=1)

    def _best_shares(self, states: np.ndarray, longest: np.ndarray, budgets: np.ndarray) -> np.ndarray:
        """Return which share (m,) of the longest move (m, d) to advise, 0 for the policy's own."""
        units = (np.abs(longest) / self.space.units).sum(axis=1)
        lengths = np.abs(longest).sum(axis=1)
        rngs = row_generators(states, self.seed, _ADVICE)
        starts = np.repeat(states[:, None, :], _CROWD, axis=1)
        crowd = starts.copy()
        best, lowest = (lengths <= budgets + 1e-9).astype(float), np.full(len(states), np.inf)
        for step in range(1, int(np.ceil(units.max() - 1e-9)) + 1):
            share = np.minimum(step / units, 1.0)
            before = np.minimum((step - 1) / units, 1.0)
            rows = np.flatnonzero((before < 1) & (share * lengths <= budgets + 1e-9))
            if len(rows) == 0:
                break
            chosen = [rngs[row] for row in rows.tolist()]
            if self.noise.noise_per == "unit":
                actions = longest[rows] * (share - before)[rows, None]
                crowd[rows] = self.noise.step(crowd[rows], actions, chosen)
            else:
                crowd[rows] = self.noise.step(starts[rows], longest[rows] * share[rows, None], chosen)
            chance = 1.0 - self.noise.rates(states[rows], crowd[rows], chosen)
            with np.errstate(divide="ignore"):
                cost = np.where(chance >= _PROMISING, ((share * units)[rows] + self.decision_weight) / chance, np.inf)
            better = cost < lowest[rows]
            best[rows[better]], lowest[rows[better]] = share[rows[better]], cost[better]
        return best


@dataclass(frozen=True, eq=False)
class Followed:
    """Result of :meth:`rose_carla.rose.Rose.follow`: how people fare who look where they landed and ask again.

    Parameters
    ----------
    mlmodel
        Classifier.
    name
        Name of the method.
    labels
        Row labels of the people.
    tries
        Outcome, cost, number of decisions and end of each try.
    max_decisions
        Maximum number of decisions of a try.
    """

    mlmodel: MLModel
    name: str
    labels: list[Hashable]
    tries: ClosedLoop
    max_decisions: int

    @property
    def success(self) -> Success:
        """Share of successful tries of all people, with its Wilson interval for these people."""
        return _success(self.tries.succeeded.reshape(1, -1))[0]

    @property
    def successes(self) -> list[Success]:
        """Share of successful tries of each person, with its Wilson interval."""
        return _success(self.tries.succeeded)

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each person.

        Cost and number of decisions are those of successful tries, their mean and 90 % quantile; NaN without one. The
        last columns are the shares of tries that ended with the last decision, before an answer that costs too much,
        and without an answer.
        """
        done = self.tries.succeeded
        columns: dict[str, Any] = {"person": self.labels}
        for name in ("probability", "lower", "upper"):
            column = "success" if name == "probability" else f"success_{name}"
            columns[column] = [getattr(each, name) for each in self.successes]
        for name, values in (("cost", self.tries.costs), ("decisions", self.tries.decisions)):
            summaries = [_mean_and_quantile(row[ok]) for row, ok in zip(values, done, strict=True)]
            columns[f"{name}_mean"], columns[f"{name}_q90"] = zip(*summaries, strict=True)
        for outcome, reason in _REASONS.items():
            columns[f"failed_{reason.replace(' ', '_')}"] = (self.tries.outcomes == outcome).mean(axis=1)
        return pd.DataFrame(columns)

    def failures(self) -> pd.DataFrame:
        """Return one row for each failed try: why and where it ended, in original units."""
        person, number = np.nonzero(~self.tries.succeeded)
        ends = self.tries.ends[person, number]
        about = pd.DataFrame(
            {
                "person": [self.labels[row] for row in person.tolist()],
                "reason": [_REASONS[outcome] for outcome in self.tries.outcomes[person, number].tolist()],
                "cost": self.tries.costs[person, number],
                "decisions": self.tries.decisions[person, number],
                "probability": probability(self.mlmodel)(ends) if len(ends) else np.empty(0),
            }
        )
        if len(ends) == 0:
            return about
        return pd.concat([about, original_values(self.mlmodel, ends)], axis=1)

    def __str__(self) -> str:
        n_people, n_tries = self.tries.outcomes.shape
        done = self.tries.succeeded
        cost, decisions = (_mean_and_quantile(each[done]) for each in (self.tries.costs, self.tries.decisions))
        failed = [
            f"{share:.1%} {text}"
            for outcome, text in (
                (DECISIONS, f"after {self.max_decisions} decisions"),
                (COST, "at the limit of cost"),
                (NO_ANSWER, "without an answer"),
            )
            if (share := float((self.tries.outcomes == outcome).mean())) > 0
        ]
        s = self.success
        return "\n".join(
            [
                f"{self.name}, closed loop: {n_people} people, {n_tries} tries each",
                f"  Success    {s.probability:.1%} ({s.lower:.1%} to {s.upper:.1%})",
                f"  Cost       mean {cost[0]:.3f}, 90% quantile {cost[1]:.3f} (L1, successful tries)",
                f"  Decisions  mean {decisions[0]:.2f}, 90% quantile {decisions[1]:.0f} (successful tries)",
                f"  Failed     {', '.join(failed) if failed else 'none'}",
            ]
        )


def _success(succeeded: np.ndarray) -> list[Success]:
    """Return the share of successful tries (b, n) of each row."""
    failures = (~succeeded).sum(axis=1)
    return Success.from_rates(InvalidationRate.from_failures(failures, succeeded.shape[1], 0.95))


def _mean_and_quantile(values: np.ndarray) -> tuple[float, float]:
    if len(values) == 0:
        return float("nan"), float("nan")
    return float(values.mean()), float(np.quantile(values, _QUANTILE))
