"""Trimming: leave out steps of a plan, and shorten them, as long as the rest passes the check."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rose_carla.mdp import Accumulated
from rose_carla.rose.search.drafts import Drafts, best_of_each
from rose_carla.rose.search.settle import Settling, probit

#: Maximum number of rounds; each checks one shorter version of every plan, and at first all without a step.
_ROUNDS = 40
#: Factors on the samples of the check of a shorter plan, under one-off noise and for a crowd, which takes a hundred
#: times as long, and on its error: of many, those that pass are lucky.
_LONGER, _LONGER_CROWD, _ERROR = 3.0, 1.5, 0.2
#: Probit of the success of a plan without its only change.
_HOPELESS = -2.0
#: Smallest share of the lengths in question that a round excludes.
_PROGRESS = 0.2


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
    for _ in range(_ROUNDS):
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
        passed, seen = _check(settling, variants, row, rngs)
        failed = np.flatnonzero(~passed)
        may_drop[row[failed], feature[failed]] = False
        too_short[row[failed], feature[failed]] = np.where(whole, 0.0, sizes[row, feature] - amount)[failed]
        low[row[failed], feature[failed]] = np.minimum(probit(seen[failed], settling.n_check), settling.goal - 1e-3)
        best = np.flatnonzero(passed)
        best = best[best_of_each(row[best], -np.minimum(amount, sizes[row, feature])[best], 1)]
        drafts[row[best]], rates[row[best]] = variants[best], seen[best]
    return drafts, rates


def _check(
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
        passed, rate = _check(settling, part, rows, rngs)
        drafts[rows[passed]], rates[rows[passed]] = part[passed], rate[passed]
    return drafts, rates
