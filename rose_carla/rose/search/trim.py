"""Trimming: leave out steps of a plan, and shorten them, as long as the rest passes the check."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rose_carla.rose.search.drafts import Drafts
from rose_carla.rose.search.settle import Settling

#: Maximum number of rounds; each makes every plan shorter or ends it.
_ROUNDS = 24


def trim(
    settling: Settling, drafts: Drafts, rates: np.ndarray, rngs: Sequence[np.random.Generator]
) -> tuple[Drafts, np.ndarray]:
    """Return plans of which no step can be left out or shortened by a unit, and their invalidation rates.

    Every variant is checked on fresh noise. The variant that saves most replaces the plan, until none passes. The
    units by which a step is shortened double while that succeeds. A variant that failed is not tried again: the plan
    is not more robust afterwards.

    Parameters
    ----------
    settling
        Check of plans.
    drafts, rates
        Plans that passed the check, and their invalidation rates.
    rngs
        One generator for each plan.
    """
    drafts, rates = drafts.copy(), rates.copy()
    numeric = np.array([feature.encodings is None for feature in drafts.space.features])
    units = np.ones((len(drafts), len(numeric)))
    may_drop = np.ones(units.shape, dtype=bool)
    may_shorten = np.broadcast_to(numeric, units.shape).copy()
    for _ in range(_ROUNDS):
        sizes = drafts.sizes()
        changed = sizes > 1e-9
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
        passed, rate = settling.check(
            variants.factuals, variants.plans(), variants.ends, [rngs[each] for each in row.tolist()]
        )
        saved = np.minimum(amount, sizes[row, feature])
        whole = np.isinf(amount)
        may_drop[row[whole & ~passed], feature[whole & ~passed]] = False
        failed = ~whole & ~passed
        may_shorten[row[failed], feature[failed]] = units[row[failed], feature[failed]] > 1
        units[row[failed], feature[failed]] = 1
        won = np.flatnonzero(passed)
        if len(won):
            order = won[np.lexsort((-saved[won], row[won]))]
            _, first = np.unique(row[order], return_index=True)
            best = order[first]
            drafts[row[best]], rates[row[best]] = variants[best], rate.rate[best]
            galloped = best[~whole[best]]
            units[row[galloped], feature[galloped]] *= 2
    return drafts, rates
