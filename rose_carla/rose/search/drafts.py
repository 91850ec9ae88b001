"""The goal of a plan, drafts of plans, and the walks of a policy that give the first ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rose_carla._lib.runtime import Deadline
from rose_carla.mdp import ActionSpace, OneOff, Probability, Robustness
from rose_carla.noise import InvalidationRate
from rose_carla.noise.plausible import CommonNoise
from rose_carla.ppo import ActorCritic
from scipy.special import logit

#: Smallest change of a feature that counts.
_CHANGED = 1e-9
#: Probabilities are clipped to [_MIN_PROBABILITY, 1 - _MIN_PROBABILITY] before their logit is taken.
_MIN_PROBABILITY = 1e-7
#: Noisy versions in a smoothed margin, and the seed that all states share.
_SMOOTHING, _SMOOTHING_SEED = 16, 20_240_229
#: The largest absolute margin of a noisy version, so that the mean is that of most and not of a few.
MAX_LOGIT = 4.0
#: Share of one-unit moves without any effect above which a classifier counts as a step function.
_PLATEAUS = 0.25


@dataclass(frozen=True)
class Task:
    """Goal of a plan: a state s that is favourable and stays so under noise, f(s) = 1 and IR < 1 - tau."""

    #: Action space.
    space: ActionSpace
    #: From states (b, d) to the probability of the favourable outcome.
    probability: Probability
    #: Noise model.
    robustness: Robustness
    #: Robustness threshold.
    tau: float
    #: Probability above which a state is favourable.
    border: float = 0.5
    #: One-off noise, which smooths margins and screens drafts; None without noise.
    one_off: OneOff | None = None
    #: Whether the classifier is a step function, such as an ensemble of trees.
    has_plateaus: bool = False

    @property
    def limit(self) -> float:
        """Upper limit of the invalidation rate of a plan."""
        return 1.0 - self.tau

    def margins(self, states: np.ndarray) -> np.ndarray:
        """Return the margins (b,) of states in logits of the classifier: above 0 a state is favourable."""
        probabilities = np.asarray(self.probability(states), dtype=float)
        return logit(probabilities.clip(_MIN_PROBABILITY, 1 - _MIN_PROBABILITY)) - logit(self.border)

    def guide(self, states: np.ndarray) -> np.ndarray:
        """Return the quantity (b,) that a search increases: the margin, or the smoothed one on plateaus.

        At or below 0 a state is unfavourable.
        """
        margins = self.margins(states)
        if not self.has_plateaus:
            return margins
        smoothed = self.smoothed_margins(states)
        return np.where(margins > 0, smoothed, np.minimum(smoothed, 0.0))

    def smoothed_margins(self, states: np.ndarray) -> np.ndarray:
        """Return the mean margins (b,) of noisy versions, the same noise for all states."""
        if self.one_off is None:
            return self.margins(states)
        n = len(states)
        noisy = self.one_off.noise.sample(states, self.one_off.variance, _SMOOTHING, CommonNoise(_SMOOTHING_SEED))
        margins = self.margins(noisy.reshape(-1, states.shape[1])).clip(-MAX_LOGIT, MAX_LOGIT)
        return margins.reshape(n, _SMOOTHING).mean(axis=1)

    def evaluate(
        self, drafts: Drafts, n_samples: int, rngs: Sequence[np.random.Generator], confidence: float = 0.95
    ) -> InvalidationRate:
        """Return the invalidation rates of drafts."""
        return self.robustness.evaluate(drafts.factuals, drafts.plans(), n_samples, rngs, confidence)


def has_plateaus(space: ActionSpace, probability: Probability, rows: np.ndarray) -> bool:
    """Return whether many one-unit moves from ``rows`` leave the prediction as it is, bit for bit."""
    columns = [feature.columns[0] for feature in space.features if feature.encodings is None]
    if not columns or len(rows) == 0:
        return False
    before = np.asarray(probability(rows))
    same = []
    for column in columns:
        moved = rows.copy()
        moved[:, column] += np.where(rows[:, column] < 0.5, 1, -1) * space.units[column]
        same.append(np.asarray(probability(moved)) == before)
    inside = (before > 1e-6) & (before < 1 - 1e-6)  # saturated networks do not change either
    return bool(np.stack(same)[:, inside].mean() > _PLATEAUS) if inside.any() else False


@dataclass
class Drafts:
    """Plans of b people during the search: where they end and in which order they change features.

    A draft changes each feature once, by the total change.
    """

    #: Action space.
    space: ActionSpace
    #: (b, d) starts.
    factuals: np.ndarray
    #: (b, d) ends.
    ends: np.ndarray
    #: (b, f) when a feature is changed: smaller is earlier.
    turns: np.ndarray

    @classmethod
    def empty(cls, space: ActionSpace, factuals: np.ndarray) -> Drafts:
        """Create drafts that change nothing."""
        return cls(space, factuals, factuals.copy(), np.full((len(factuals), len(space.features)), np.inf))

    @classmethod
    def largest_first(cls, space: ActionSpace, factuals: np.ndarray, ends: np.ndarray) -> Drafts:
        """Create drafts that make large changes before small ones."""
        drafts = cls(space, factuals, ends, np.empty((len(ends), len(space.features))))
        sizes = drafts.sizes()
        drafts.turns = np.where(sizes > 0, -sizes, np.inf)
        return drafts

    @classmethod
    def concat(cls, drafts: Sequence[Drafts]) -> Drafts:
        """Return all drafts in a row."""
        parts = ([getattr(each, name) for each in drafts] for name in ("factuals", "ends", "turns"))
        return cls(drafts[0].space, *(np.concatenate(part) for part in parts))

    def __len__(self) -> int:
        return len(self.factuals)

    def __getitem__(self, rows: np.ndarray) -> Drafts:
        return Drafts(self.space, self.factuals[rows], self.ends[rows].copy(), self.turns[rows].copy())

    def __setitem__(self, rows: np.ndarray, drafts: Drafts) -> None:
        self.ends[rows], self.turns[rows] = drafts.ends, drafts.turns

    def copy(self) -> Drafts:
        """Return a copy."""
        return self[np.arange(len(self))]

    def sizes(self) -> np.ndarray:
        """Return the size (b, f) of the change of each feature, in units."""
        changes = np.abs(self.ends - self.factuals)
        return np.where(changes < _CHANGED, 0.0, changes / self.space.units) @ self.space.membership

    def act(self, numbers: np.ndarray, turn: int) -> None:
        """Append one action to each draft, as turn ``turn``."""
        self.ends = self.space.apply(self.ends, numbers)
        self.turns[np.arange(len(self)), self.space.feature_numbers[numbers]] = turn

    def last_changes(self) -> np.ndarray:
        """Return the number (b,) of the feature that is changed last, -1 without a change."""
        sizes = self.sizes()
        last = np.where(sizes > 0, self.turns, -np.inf).argmax(axis=1)
        return np.where((sizes > 0).any(axis=1), last, -1)

    def extend(self, units: int) -> Drafts:
        """Return drafts that move the last changed continuous feature with room by up to ``units`` further."""
        space = self.space
        is_numeric = np.array([feature.encodings is None for feature in space.features])
        column = np.array([feature.columns[0] for feature in space.features])
        change = (self.ends - self.factuals)[:, column]
        room = space.room(self.ends, column, change)
        can_move = is_numeric & (np.abs(change) > _CHANGED) & (room > _CHANGED)
        feature = np.where(can_move, self.turns, -np.inf).argmax(axis=1)
        rows = np.flatnonzero(can_move.any(axis=1))
        longer = self.copy()
        moved, sign = column[feature[rows]], np.sign(change[rows, feature[rows]])
        values = longer.ends[rows, moved] + sign * units * space.units[moved]
        longer.ends[rows, moved] = space.stop_at_bounds(values, moved, sign)
        return longer

    def reduce(self, features: np.ndarray, units: np.ndarray) -> Drafts:
        """Return drafts in which the change of ``features`` (b,) is smaller by ``units`` (b,); infinity undoes it."""
        sizes = self.sizes()[np.arange(len(self)), features]
        left = np.where(units >= sizes - _CHANGED, 0.0, 1.0 - units / np.maximum(sizes, _CHANGED))
        columns = self.space.membership[:, features].T > 0
        shorter = self.copy()
        change = self.ends - self.factuals
        shorter.ends = np.where(columns, self.factuals + change * left[:, None], self.ends)
        gone = np.flatnonzero(left == 0)
        shorter.turns[gone, features[gone]] = np.inf
        return shorter

    def plans(self) -> list[np.ndarray]:
        """Return the actions (k, d) of each draft in order, one for each changed feature."""
        sizes = self.sizes()
        order = np.argsort(np.where(sizes > 0, self.turns, np.inf), axis=1, kind="stable")
        counts = (sizes > 0).sum(axis=1)
        changes = self.ends - self.factuals
        membership = self.space.membership.T
        return [
            change * membership[features[:count]]
            for change, features, count in zip(changes, order, counts, strict=True)
        ]


def best_of_each(owners: np.ndarray, keys: np.ndarray, n: int) -> np.ndarray:
    """Return the ``n`` entries of each owner with the smallest keys.

    Examples
    --------
    >>> best_of_each(np.array([7, 4, 7, 7]), np.array([3.0, 9.0, 1.0, 2.0]), 2).tolist()
    [1, 2, 3]
    """
    order = np.lexsort((keys, owners))
    place = np.arange(len(order)) - np.searchsorted(owners[order], owners[order], side="left")
    return order[place < n]


@dataclass
class Walks:
    """Results of the walks of b people."""

    #: Plans; where the goal was not reached, the most robust one.
    drafts: Drafts
    #: (b,) whether the goal was reached.
    reached: np.ndarray
    #: (b,) invalidation rates estimated during the walk, 1 if no state was favourable.
    rates: np.ndarray
    #: For each person the numbers of the actions taken, in order.
    actions: list[np.ndarray]

    def plans(self) -> list[np.ndarray]:
        """Return the actions (k, d) of each person exactly as they were taken."""
        space, plans = self.drafts.space, []
        for factual, numbers in zip(self.drafts.factuals, self.actions, strict=True):
            states = [factual]
            for number in numbers:
                states.append(space.apply(states[-1][None], np.array([number]))[0])
            plans.append(np.diff(np.array(states), axis=0))
        return plans


@dataclass
class _Nodes:
    """States of the walks that go on; ``owners`` are the people they belong to."""

    owners: np.ndarray
    drafts: Drafts
    crowds: np.ndarray
    actions: np.ndarray

    def __getitem__(self, chosen: np.ndarray) -> _Nodes:
        return _Nodes(self.owners[chosen], self.drafts[chosen], self.crowds[chosen], self.actions[chosen])


def walk(
    task: Task,
    policy: ActorCritic,
    factuals: np.ndarray,
    max_actions: int,
    rngs: Sequence[np.random.Generator],
    deadline: Deadline | None = None,
) -> Walks:
    """Follow the policy from all factuals together until each state is robustly favourable.

    Parameters
    ----------
    task, policy, factuals
        Goal, policy and starts (b, d).
    max_actions
        Maximum number of actions per person.
    rngs
        One generator for each factual.
    deadline
        Time at which walks end wherever they are.
    """
    n, m = len(factuals), task.robustness.crowd_size
    found = Walks(Drafts.empty(task.space, factuals), np.zeros(n, dtype=bool), np.ones(n), [np.empty(0, dtype=int)] * n)
    nodes = _Nodes(
        np.arange(n),
        Drafts.empty(task.space, factuals),
        np.repeat(factuals[:, None, :], m, axis=1),
        np.empty((n, 0), dtype=int),
    )
    for turn in range(max_actions):
        mask = task.space.mask(nodes.drafts.ends)
        possible = mask.any(axis=1) & ~found.reached[nodes.owners]
        nodes, mask = nodes[np.flatnonzero(possible)], mask[possible]
        if len(nodes.owners) == 0 or (deadline is not None and deadline.passed):
            break
        observations = task.robustness.observe(nodes.drafts.ends, nodes.crowds)
        numbers = policy.predict_log_probabilities(observations, mask).argmax(axis=1)
        drafts = nodes.drafts.copy()
        drafts.act(numbers, turn)
        generators = [rngs[owner] for owner in nodes.owners.tolist()]
        crowds = task.robustness.advance(nodes.crowds, drafts.ends - nodes.drafts.ends, generators)
        nodes = _Nodes(nodes.owners, drafts, crowds, np.column_stack([nodes.actions, numbers]))
        _record_best(task, nodes, found, rngs)
    return found


def _record_best(task: Task, nodes: _Nodes, found: Walks, rngs: Sequence[np.random.Generator]) -> None:
    """Store for each person the state at the goal, else the one with the lowest invalidation rate so far."""
    ends, owners = nodes.drafts.ends, nodes.owners
    rates = np.ones(len(owners))
    favourable = np.flatnonzero(task.margins(ends) > 0)
    if len(favourable):
        generators = [rngs[owner] for owner in owners[favourable].tolist()]
        rates[favourable] = task.robustness.rates(ends[favourable], nodes.crowds[favourable], generators)
    reached = rates < task.limit
    chosen = np.flatnonzero(reached | (rates <= found.rates[owners]))
    people = owners[chosen]
    found.drafts[people] = nodes.drafts[chosen]
    found.reached[people], found.rates[people] = reached[chosen], rates[chosen]
    for person, node in zip(people, chosen, strict=True):
        found.actions[person] = nodes.actions[node]
