"""The two rows of a data set that are farthest apart."""

from __future__ import annotations

import numpy as np


def largest_distance(rows: np.ndarray) -> float:
    """Largest L1 distance between two of ``rows`` (n, d), exactly.

    Two rows are no farther apart than their distances from the middle add up to. With the outermost rows first, few
    pairs are left to look at.

    Examples
    --------
    >>> largest_distance(np.array([[0.0, 0.0], [1.0, 0.5], [0.2, 0.9]]))
    1.5
    """
    rows = np.unique(np.asarray(rows, dtype=float), axis=0)
    radius = np.abs(rows - np.median(rows, axis=0)).sum(axis=1)
    order = np.argsort(-radius, kind="stable")
    rows, radius = rows[order], radius[order]
    largest = 0.0
    for i in range(len(rows)):
        reachable = int(np.searchsorted(-radius, -(largest - radius[i]), side="right"))
        if reachable <= i:  # later rows can only be farther from earlier ones, which have been looked at
            break
        largest = max(largest, float(np.abs(rows[:reachable] - rows[i]).sum(axis=1).max()))
    return largest
