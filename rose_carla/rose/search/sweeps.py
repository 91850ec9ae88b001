"""Beam search under accumulated noise: one change after the other, each of all lengths in one sweep.

People who implement a change unit by unit pass every shorter version of it, so one simulation of a change to its bound
tells how good each of its lengths is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from rose_carla.mdp import Accumulated
from rose_carla.rose.search.drafts import MAX_LOGIT, Drafts, Task, best_of_each

#: People in the simulation of a draft.
_CROWD = 24
#: Drafts of a person that are continued, and maximum number of changes.
_WIDTH, _DEPTH = 6, 5
#: Lengths of a change that are judged, in units; the bound is as well.
_LENGTHS = np.array([1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32])
#: Increase of the mean margin of a crowd that counts as one.
_GAIN = 0.02
#: Share of the rate aimed at below which a draft is complete: small crowds are inaccurate.
_SAFETY = 0.6
#: Units added to costs, so that the first changes are not the smallest ones.
_COST_OFFSET = 12.0
#: Drafts returned for each person.
_RETURNED = 4
#: People in the simulation of a draft whose changes are redone, in each round over all features.
_REDONE_CROWDS = (32, 32, 96, 96)


@dataclass
class _Lines:
    """Changes of one feature to its bound, or to another category, of drafts ``nodes``."""

    nodes: np.ndarray
    features: np.ndarray
    #: (n, d) change of the whole line, and its size in units.
    changes: np.ndarray
    units: np.ndarray
    #: Whether all lengths can be implemented: of continuous features.
    divisible: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> _Lines:
        return _Lines(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def sweep_search(
    task: Task,
    starts: Drafts,
    owners: np.ndarray,
    aim: float,
    costs: Callable[[np.ndarray, np.ndarray], np.ndarray],
    rngs: Sequence[np.random.Generator],
) -> tuple[Drafts, np.ndarray]:
    """Return drafts whose invalidation rates should be below ``aim``, and their owners.

    Every unit of a later change draws the earlier ones back to the data, so a change that they pull at belongs to the
    end. The search appends changes and keeps several drafts of a person: those with the largest mean margin of the
    crowd per cost, and those with the largest margin, at most one of them for the same last change. Changes of one
    person are compared on common random numbers.

    Parameters
    ----------
    task
        Goal, with accumulated noise.
    starts, owners
        Drafts to continue, empty ones among them, and the numbers of the people they belong to.
    aim
        Invalidation rate that should pass the check.
    costs
        From factuals and states to the costs of the changes.
    rngs
        One generator for each person.
    """
    noise = task.robustness
    assert isinstance(noise, Accumulated)
    drafts = starts
    cheapest = np.full(len(rngs), np.inf)
    pool, pool_owners, pool_keys = [], [], []
    for _ in range(_DEPTH):
        crowds = noise.follow(drafts.factuals, drafts.plans(), _CROWD, _seeded(rngs, owners))
        before = _mean_margins(task, crowds)[0]
        lines = _lines(task, drafts, noise.noise_per)
        spent = costs(drafts.factuals, drafts.ends)
        if len(lines.nodes) == 0:
            break
        room = cheapest[owners] - spent
        tried = _sweep(task, noise, lines, crowds, room[lines.nodes], _seeded(rngs, owners[lines.nodes]))
        if len(tried[0]) == 0:
            break
        line, share, margins, rates = tried
        node = lines.nodes[line]
        following = _appended(drafts[node], lines[line], share)
        owner, cost = owners[node], costs(following.factuals, following.ends)
        complete = (rates <= _SAFETY * aim) & (task.margins(following.ends) > 0)
        np.minimum.at(cheapest, owner[complete], cost[complete])
        kept = best_of_each(owner, np.where(complete, cost, 1e6 * (1 + rates)), _RETURNED)
        pool.append(following[kept])
        pool_owners.append(owner[kept])
        pool_keys.append(np.where(complete, cost, 1e6 * (1 + rates))[kept])
        gains = margins - before[node]
        go = np.flatnonzero((gains > _GAIN) & ~complete & (cost < cheapest[owner]))
        if len(go) == 0:
            break
        # one length of each line by gain per cost, one by margin
        speed = (margins + MAX_LOGIT) / (cost + _COST_OFFSET)
        chosen = np.union1d(
            _spread(owner, line, speed, go, (_WIDTH + 1) // 2), _spread(owner, line, margins, go, _WIDTH // 2)
        )
        drafts, owners = following[chosen], owner[chosen]
    if not pool:
        return starts, owners
    found, owners = Drafts.concat(pool), np.concatenate(pool_owners)
    kept = best_of_each(owners, np.concatenate(pool_keys), _RETURNED)
    return found[kept], owners[kept]


def redo_changes(
    task: Task, drafts: Drafts, owners: np.ndarray, aim: float, rngs: Sequence[np.random.Generator]
) -> Drafts:
    """Return more robust drafts, by coordinate ascent on the mean margin of the crowd.

    One feature after the other is taken out of a draft and appended to it at the best of all lengths, in several rounds
    or until the rate should pass the check. Parameters as in :func:`sweep_search`.
    """
    noise = task.robustness
    assert isinstance(noise, Accumulated)
    drafts, alive = drafts.copy(), np.arange(len(drafts))
    seeds = [int(rng.integers(2**63)) for rng in _seeded(rngs, owners)]
    for turn, size in enumerate(_REDONE_CROWDS):

        def follow(rows: np.ndarray, each: Drafts, n: int = size, turn: int = turn) -> np.ndarray:
            generators = [np.random.default_rng([seeds[row], turn]) for row in rows.tolist()]
            return noise.follow(each.factuals, each.plans(), n, generators)

        crowds = follow(alive, drafts[alive])
        for number in range(len(task.space.features)):
            margins, rates = _mean_margins(task, crowds)
            left = rates > _SAFETY * aim
            alive, crowds, margins = alive[left], crowds[left], margins[left]
            if len(alive) == 0:
                return drafts
            without, start = drafts[alive], crowds.copy()
            used = np.flatnonzero(without.sizes()[:, number] > 0)
            if len(used):
                without[used] = without[used].reduce(np.full(len(used), number), np.full(len(used), np.inf))
                start[used] = follow(alive[used], without[used])
            lines = _lines(task, without, noise.noise_per, (number,))
            chosen = [np.random.default_rng([seeds[row], turn, number]) for row in alive[lines.nodes].tolist()]
            unlimited = np.full(len(lines.nodes), np.inf)
            line, share, seen, _ = _sweep(task, noise, lines, start, unlimited, chosen)
            node = lines.nodes[line]
            following = _appended(without[node], lines[line], share)
            # ends that are accepted exactly come first
            accepted, before = task.margins(following.ends) > 0, task.margins(drafts[alive].ends) > 0
            better = (accepted > before[node]) | ((accepted == before[node]) & (seen > margins[node] + _GAIN))
            best = np.flatnonzero(better)
            best = best[best_of_each(node[best], -seen[best] - 1e3 * accepted[best], 1)]
            node = node[best]
            drafts[alive[node]] = following[best]
            if len(node):
                crowds[node] = follow(alive[node], drafts[alive[node]])
    return drafts


def _appended(drafts: Drafts, lines: _Lines, shares: np.ndarray) -> Drafts:
    """Return drafts with shares of one line each appended."""
    following = drafts.copy()
    following.ends = following.ends + lines.changes * shares[:, None]
    last = np.where(np.isfinite(following.turns), following.turns, -1.0).max(axis=1)
    following.turns[np.arange(len(drafts)), lines.features] = last + 1
    return following


def _lines(task: Task, drafts: Drafts, noise_per: str, features: Sequence[int] | None = None) -> _Lines:
    """Return the changes of features that a draft does not change yet, if one of their lengths raises the margin.

    ``features`` are the numbers of those to change, by default all.
    """
    space, rows = task.space, np.arange(len(drafts))
    unused = drafts.sizes() <= 0
    parts: list[tuple[np.ndarray, int, np.ndarray, bool]] = []
    for number in range(len(space.features)) if features is None else features:
        feature = space.features[number]
        free, columns = rows[unused[:, number]], list(feature.columns)
        if feature.encodings is not None:
            for encoding in feature.encodings:
                changes = np.zeros((len(free), space.width))
                changes[:, columns] = encoding - drafts.ends[free][:, columns]
                parts.append((free, number, changes, False))
            continue
        column = columns[0]
        for bound, sign in ((space.upper[column], 1), (space.lower[column], -1)):
            if sign * feature.direction >= 0:
                changes = np.zeros((len(free), space.width))
                changes[:, column] = (sign * (bound - drafts.ends[free, column])).clip(0) * sign
                if noise_per == "unit":
                    parts.append((free, number, changes, True))
                    continue
                # an action is one NoisyStep: every length is an action of its own
                room = np.abs(changes[:, column])
                for length in [*(_LENGTHS * space.units[column]), np.inf]:
                    fits = (room > length) | np.isinf(length)
                    some = changes[fits].copy()
                    some[:, column] = sign * np.minimum(room[fits], length)
                    parts.append((free[fits], number, some, False))
    changes = np.concatenate([part[2] for part in parts])
    lines = _Lines(
        np.concatenate([part[0] for part in parts]),
        np.concatenate([np.full(len(part[0]), part[1]) for part in parts]),
        changes,
        (np.abs(changes) / space.units).sum(axis=1),
        np.concatenate([np.full(len(part[0]), part[3]) for part in parts]),
    )
    lines = lines[np.flatnonzero(lines.units > 1e-6)]
    # beyond MAX_LOGIT margins are equally good
    needed = task.guide(drafts.ends).clip(max=MAX_LOGIT)[lines.nodes]
    useful = np.zeros(len(lines.nodes), dtype=bool)
    for share in (1.0, 0.3):
        left = np.flatnonzero(~useful & (lines.divisible | (share == 1.0)))
        if len(left):
            useful[left] = task.guide(drafts.ends[lines.nodes[left]] + share * lines.changes[left]) >= needed[left]
    return lines[np.flatnonzero(useful)]


def _sweep(
    task: Task,
    noise: Accumulated,
    lines: _Lines,
    crowds: np.ndarray,
    room: np.ndarray,
    rngs: Sequence[np.random.Generator],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the judged lengths of lines: numbers of lines, shares of their changes, mean margins, rates.

    A line ends where the whole crowd is accepted, or where it costs more than ``room``.
    """
    per_unit = noise.noise_per == "unit"
    steps = np.ceil(lines.units - 1e-9).astype(int) if per_unit else np.ones(len(lines.nodes), dtype=int)
    crowd = crowds[lines.nodes]
    found: list[tuple[np.ndarray, ...]] = []
    alive = np.flatnonzero(room > 0)
    for step in range(1, int(steps.max(initial=0)) + 1):
        if len(alive) == 0:
            break
        before, after = (np.minimum(k / lines.units[alive], 1.0) if per_unit else k for k in (step - 1, step))
        actions = lines.changes[alive] * np.broadcast_to(after - before, len(alive))[:, None]
        crowd[alive] = noise.step(crowd[alive], actions, [rngs[row] for row in alive.tolist()])
        is_last = steps[alive] == step
        judged = np.flatnonzero(is_last | (lines.divisible[alive] & np.isin(step, _LENGTHS)))
        ended = is_last
        if len(judged):
            rows = alive[judged]
            margins, rates = _mean_margins(task, crowd[rows])
            share = np.broadcast_to(np.asarray(after, dtype=float), len(alive))[judged]
            found.append((rows, share, margins, rates))
            ended[judged] |= rates == 0
        # a category costs the same wherever its sweep is
        alive = alive[~ended & (~lines.divisible[alive] | (step < room[alive]))]
    if not found:
        return np.empty(0, dtype=int), np.empty(0), np.empty(0), np.empty(0)
    line, share, margins, rates = (np.concatenate(each) for each in zip(*found, strict=True))
    return line, share, margins, rates


def _mean_margins(task: Task, crowds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean margin of each crowd (n, m, d), and its invalidation rate."""
    if len(crowds) == 0:
        return np.empty(0), np.empty(0)
    margins = task.margins(crowds.reshape(-1, crowds.shape[2])).reshape(crowds.shape[:2])
    return margins.clip(-MAX_LOGIT, MAX_LOGIT).mean(axis=1), (margins <= 0).mean(axis=1)


def _spread(owners: np.ndarray, lines: np.ndarray, scores: np.ndarray, go: np.ndarray, n: int) -> np.ndarray:
    """Return of the entries ``go`` the ``n`` best of each owner, at most one for a line."""
    first = go[best_of_each(lines[go], -scores[go], 1)]
    return first[best_of_each(owners[first], -scores[first], n)]


def _seeded(rngs: Sequence[np.random.Generator], owners: np.ndarray) -> list[np.random.Generator]:
    """Return a generator for each entry; those of one owner draw the same numbers."""
    seeds = {owner: int(rngs[owner].integers(2**63)) for owner in np.unique(owners).tolist()}
    return [np.random.default_rng(seeds[owner]) for owner in owners.tolist()]
