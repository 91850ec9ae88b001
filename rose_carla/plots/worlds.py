"""Worlds of two features for the paper's pictures: made up, and the same every time."""

from __future__ import annotations

import numpy as np
from rose_carla.noise import Density
from rose_carla.plots.plane import Plane


def savings(seed: int = 0) -> Plane:
    """Income and savings, positively correlated; both high enough is what a bank wants.

    Examples
    --------
    >>> savings().names
    ('income', 'savings')
    """
    rng = np.random.default_rng(seed)
    rows = rng.multivariate_normal([0.45, 0.42], [[0.018, 0.015], [0.015, 0.018]], 600)
    return Plane(
        Density().fit(rows),
        lambda states: 1 / (1 + np.exp(-30 * (states.sum(axis=1) - 1.15))),
        ("income", "savings"),
    )


def patches(seed: int = 0) -> Plane:
    """Two clouds of data and a desirable patch at the top left, which the smaller one lies in.

    Examples
    --------
    >>> float(patches().favourable(np.array([[0.3, 0.8]]))[0])
    1.0
    """
    rng = np.random.default_rng(seed)
    crowd = rng.multivariate_normal([0.68, 0.34], [[0.014, 0.004], [0.004, 0.012]], 450)
    few = rng.multivariate_normal([0.3, 0.76], [[0.009, 0.003], [0.003, 0.008]], 250)
    return Plane(
        Density().fit(np.concatenate([crowd, few])),
        lambda states: ((states[:, 0] < 0.48) & (states[:, 1] > 0.58)).astype(float),
    )
