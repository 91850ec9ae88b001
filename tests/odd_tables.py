"""A table of people with columns of arbitrary values, and classes whose methods raise errors."""

from __future__ import annotations

import enum

import numpy as np
import pandas as pd

N = 60


class Size(str, enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Unwritable:
    def __str__(self):
        raise RuntimeError("no text")


class Incomparable:
    __hash__ = object.__hash__

    def __eq__(self, other):
        raise RuntimeError("no comparison")


def people(**columns):
    rng = np.random.default_rng(0)
    income = rng.random(N) * 100
    table = pd.DataFrame(
        {
            "income": income,
            "age": rng.integers(18, 80, N),
            "home": rng.choice(["own", "rent", "free"], N),
            "sex": rng.choice(["f", "m"], N),
            "y": (income > 50).astype(int),
        }
    )
    return table.assign(**columns)


def column(values):
    """Return a column of objects that repeats ``values``."""
    return pd.Series([values[i % len(values)] for i in range(N)], dtype=object)
