"""Trimming: leave out steps of a plan, and shorten them, as long as the rest passes the check."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rose_carla.mdp import Accumulated
from rose_carla.rose.search.drafts import Drafts
from rose_carla.rose.search.settle import Settling

#: Maximum number of rounds; each makes every plan shorter or ends it.
_ROUNDS = 24
#: Factors on the samples of the check of a shorter plan, under one-off noise and for a crowd, which takes a hundred
#: times as long, and on its error: of many, those that pass are lucky.
_LONGER, _LONGER_CROWD, _ERROR = 3.0, 1.5, 0.2


def trim(
    settling: Settling, drafts: Drafts, rates: np.ndarray, rngs: Sequence[np.random.Generator]
) -> tuple[Drafts, np.ndarray]:
    """Return plans without changes that are not needed to pass the check, and their invalidation rates.

    Every variant is checked on fresh noise, with more samples and at a higher confidence than usual, which decides
    cases near the limit. The variant that saves most replaces the plan, until none passes. The units by which a step is
    shortened double while that succeeds. A variant that failed is not tried again: the plan is not more robust then.

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
    units = np.ones((len(drafts), len(numeric)))
    may_drop = np.ones(units.shape, dtype=bool)
    may_shorten = np.broadcast_to(numeric, units.shape).copy()
    for _ in range(_ROUNDS):
        sizes = drafts.sizes()
        changed = sizes > 1e-9
        units = np.where(sizes > units + 1e-6, units, 1.0)
        drop = may_drop & changed & (changed.sum(axis=1) > 1)[:, None]
        shorten = may_shorten & changed & (sizes > units + 1e-6)
        # a step of one unit or less is left out as a whole
        kinds = [np.argwhere(drop), np.argwhere(shorten)]
        tried = np.concatenate(kinds)
        if len(tried) == 0:
            break
        row, feature = tried.T
        amount = np.where(np.arange(len(tried)) < len(kinds[0]), np.inf, units[row, feature])
        variants = drafts[row].reduce(feature, amount)
        whole = np.isinf(amount)
        passed, seen = _check(settling, variants, row, rngs)
        saved = np.minimum(amount, sizes[row, feature])
        best = np.flatnonzero(passed)
        best = best[np.lexsort((-saved[best], row[best]))]
        best = best[np.unique(row[best], return_index=True)[1]]
        drafts[row[best]], rates[row[best]] = variants[best], seen[best]
        may_drop[row[whole & ~passed], feature[whole & ~passed]] = False
        failed = ~whole & ~passed
        may_shorten[row[failed], feature[failed]] = units[row[failed], feature[failed]] > 1
        units[row[failed], feature[failed]] = 1
        shortened = best[~whole[best]]
        units[row[shortened], feature[shortened]] *= 2
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
