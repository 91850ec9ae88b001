"""Made-up tables: correlated numeric features of which few may change, for tests and benchmarks of unseen data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class MadeUpTable:
    """A table and the rules of its features.

    Parameters
    ----------
    frame
        One row for each person, features and target.
    target
        Name of the column with the outcome; 1 is favourable.
    immutables
        Features that must not change.
    monotone
        From a feature to the only direction in which it may move, "increase" or "decrease".
    """

    frame: pd.DataFrame
    target: str
    immutables: list[str]
    monotone: dict[str, str]


def correlated(
    n_rows: int, n_features: int = 20, seed: int = 0, *, immutable: float = 0.5, one_way: float = 0.2, hard: float = 1.0
) -> MadeUpTable:
    r"""Make a table of correlated numeric features with a noisy, nonlinear outcome.

    Features are z = W h + e with a third as many hidden factors h as features; every third one is skewed, exp(z), as
    incomes and debts are. The outcome is favourable where

    .. math:: w \cdot z + 0.5 \tanh(z_1 z_2) - 0.3 z_3^2 + \text{logistic noise}

    is above its 60 % quantile. All features count, also the immutable ones. One-way features may move only in the
    direction that lowers the score, or raises it, at random.

    Parameters
    ----------
    n_rows, n_features
        Size of the table.
    seed
        Seed of the table, its weights and its rules.
    immutable, one_way
        Share of features that are immutable, and share that may move in one direction only.
    hard
        Divisor of the weights of features that may change, and factor on the noise of the outcome.
    """
    rng = np.random.default_rng(seed)
    hidden = max(n_features // 3, 1)
    weights = rng.normal(size=(hidden, n_features)) / np.sqrt(hidden)
    z = rng.normal(size=(n_rows, hidden)) @ weights + 0.5 * rng.normal(size=(n_rows, n_features))
    order = rng.permutation(n_features)
    n_fixed, n_monotone = round(immutable * n_features), round(one_way * n_features)
    slopes = rng.normal(size=n_features) / np.sqrt(n_features)
    slopes[order[n_fixed:]] /= hard
    first, second, third = z[:, :3].T if n_features > 2 else np.zeros((3, n_rows))
    score = 2.0 * z @ slopes + 0.5 * np.tanh(first * second) - 0.3 * third**2
    score = score + rng.logistic(scale=0.3 * hard, size=n_rows)
    names = [f"x{number:02d}" for number in range(n_features)]
    skewed = np.arange(n_features) % 3 == 2
    frame = pd.DataFrame(np.where(skewed, np.exp(z), z), columns=names)
    frame["outcome"] = (score > np.quantile(score, 0.6)).astype(int)
    one_way_numbers = order[n_fixed : n_fixed + n_monotone]
    return MadeUpTable(
        frame,
        "outcome",
        sorted(names[number] for number in order[:n_fixed]),
        {names[number]: "decrease" if slopes[number] > 0 else "increase" for number in one_way_numbers},
    )
