"""Scales of continuous features that survive outliers, and the bounds, units and noise of actions on them.

Most of [0, 1] is for the central part of a column, a small share for each tail. The functions of a data set take every
CARLA ``DataCatalog``; only ours has such scales, units and noise of single features. Their options are checked here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from carla.data.catalog import DataCatalog
from rose_carla.errors import DataError, short_repr, unknown_name
from sklearn.preprocessing import MinMaxScaler

#: Ways to scale a continuous feature.
SCALES = ("auto", "minmax", "robust")
#: Share of [0, 1] of each tail.
TAIL_SHARE = 0.05
#: Quantiles between which most people are; their distance measures what is far.
_QUANTILES = (0.05, 0.95)
#: Distances beyond these quantiles: a central part ends after one; a column with values beyond four has outliers.
_CENTRAL, _FAR = 1.0, 4.0
#: Quantiles that are closer, relative to the range, count as equal.
_EQUAL = 1e-12

Self = TypeVar("Self", bound="PiecewiseScaler")


def has_outliers(values: np.ndarray) -> bool:
    """Return whether values are so far out that they would determine a scale from the smallest to the largest value.

    That is, further beyond the 5 % or the 95 % quantile than four times the distance between the two.

    Examples
    --------
    >>> incomes = np.arange(1000.0)
    >>> has_outliers(incomes), has_outliers(np.append(incomes, 100_000.0))
    (False, True)
    """
    low, high = _fences(values, _FAR)
    return bool(values.min() < low or values.max() > high)


def central_part(values: np.ndarray) -> tuple[float, float]:
    """Return the smallest and the largest of ``values`` in their central part.

    The central part reaches from the 5 % to the 95 % quantile, and on either side further by their distance.

    Examples
    --------
    >>> central_part(np.append(np.arange(1001.0), [1500.0, 100_000.0]))
    (0.0, 1500.0)
    """
    low, high = _fences(values, _CENTRAL)
    central = values[(values >= low) & (values <= high)]
    return float(central.min()), float(central.max())


def _fences(values: np.ndarray, factor: float) -> tuple[float, float]:
    """Return the quantiles moved outwards by ``factor`` times their distance."""
    low, high = np.quantile(values, _QUANTILES)
    if high - low <= _EQUAL * (values.max() - values.min()):
        # nearly all people have the same value, so quantiles of the distinct values say more
        low, high = np.quantile(np.unique(values), _QUANTILES)
    low, high = float(low), float(high)  # numpy's numbers would warn of an overflow
    return low - factor * (high - low), high + factor * (high - low)


class PiecewiseScaler(MinMaxScaler):
    """scikit-learn's ``MinMaxScaler``, with a piecewise linear scale for columns with outliers.

    The scale of such a column is strictly increasing from its smallest value at 0 to its largest at 1. Its central part
    takes [0.05, 0.95]; what lies below and above takes the rest, or the central part takes that too where the column
    has no such values. Values outside the range continue the outermost pieces.

    Parameters
    ----------
    robust
        Names of the columns with such a scale; all others are scaled from their smallest to their largest value.

    Attributes
    ----------
    central_ : (d, 2) array
        Scaled ends of the central part of each column, 0 and 1 for columns that are not robust.
    central_values_ : (d, 2) array
        The same in original units.

    Examples
    --------
    >>> incomes = pd.DataFrame({"income": [*range(1001), 100_000]})
    >>> scaler = PiecewiseScaler(["income"]).fit(incomes)
    >>> scaler.transform(pd.DataFrame({"income": [0, 500, 1000, 100_000]})).ravel().tolist()
    [0.0, 0.475, 0.95, 1.0]
    """

    def __init__(self, robust: Sequence[str] = ()) -> None:
        super().__init__()
        self.robust = robust

    def fit(self: Self, X: pd.DataFrame, y: Any = None) -> Self:
        """Fit on a frame without missing values."""
        super().fit(X)
        self.central_ = np.tile([0.0, 1.0], (X.shape[1], 1))
        self.central_values_ = np.column_stack([self.data_min_, self.data_max_])
        self._pieces: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for column in self.robust:
            j = X.columns.get_loc(column)
            values = X[column].to_numpy(dtype=float)
            lowest, highest = values.min(), values.max()
            low, high = central_part(values)
            if (low, high) == (lowest, highest) or low == high:  # no tails, or nothing between them
                continue
            self.central_[j] = TAIL_SHARE * (low > lowest), 1.0 - TAIL_SHARE * (high < highest)
            self.central_values_[j] = low, high
            ends = [(lowest, 0.0), (low, self.central_[j, 0]), (high, self.central_[j, 1]), (highest, 1.0)]
            original, scaled = np.array(list(dict.fromkeys(ends))).T
            self._pieces[j] = original, scaled
        return self

    def transform(self, X: pd.DataFrame) -> np.ndarray:
        """Scale rows."""
        scaled: np.ndarray = super().transform(X)
        rows = np.asarray(X, dtype=float)
        for j, (original, ends) in self._pieces.items():
            scaled[:, j] = _map(rows[:, j], original, ends)
        return scaled

    def inverse_transform(self, X: pd.DataFrame) -> np.ndarray:
        """Convert scaled rows to original units."""
        original: np.ndarray = super().inverse_transform(X)
        rows = np.asarray(X, dtype=float)
        for j, (ends, scaled) in self._pieces.items():
            original[:, j] = _map(rows[:, j], scaled, ends)
        return original


def _map(values: np.ndarray, knots: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Map ``values`` by the polygon through (knots, images), whose outermost pieces go on."""
    piece = np.searchsorted(knots[1:-1], values, side="right")
    share = (values - knots[piece]) / (knots[piece + 1] - knots[piece])
    # from the nearer end of the piece, so that both of its ends are exact
    from_left = images[piece] + share * (images[piece + 1] - images[piece])
    from_right = images[piece + 1] - (1.0 - share) * (images[piece + 1] - images[piece])
    return np.where(share < 0.5, from_left, from_right)


def reachable_values(data: DataCatalog, feature: str) -> tuple[float, float]:
    """Return the smallest and largest value of a continuous feature, in original units, that actions lead to."""
    j, scaler = list(data.continuous).index(feature), data.scaler
    if isinstance(scaler, PiecewiseScaler):
        return float(scaler.central_values_[j, 0]), float(scaler.central_values_[j, 1])
    return float(scaler.data_min_[j]), float(scaler.data_max_[j])


def action_bounds(data: DataCatalog, feature: str) -> tuple[float, float]:
    """Return the encoded values of a continuous feature between which actions stay."""
    scaler = getattr(data, "scaler", None)
    if not isinstance(scaler, PiecewiseScaler):
        return 0.0, 1.0
    low, high = scaler.central_[list(data.continuous).index(feature)]
    return float(low), float(high)


def encoded_unit(data: DataCatalog, feature: str) -> float | None:
    """Return the encoded unit of action of a continuous feature, None for that of the method."""
    unit = getattr(data, "units", {}).get(feature)
    if unit is None or feature in data.immutables:
        return None
    low, high = reachable_values(data, feature)
    lower, upper = action_bounds(data, feature)
    return float(unit * (upper - lower) / (high - low))


def action_units(data: DataCatalog, columns: Sequence[str], action_unit: float) -> float | np.ndarray:
    """Return the unit of action of each of the encoded ``columns``, (d,), or ``action_unit`` if it is that of all."""
    found = {feature: encoded_unit(data, feature) for feature in getattr(data, "units", {})}
    units = [found.get(column) or action_unit for column in columns]
    return action_unit if set(units) <= {action_unit} else np.array(units)


def relative_noise(data: DataCatalog, columns: Sequence[str]) -> np.ndarray | None:
    """Return the relative standard deviation of the noise of encoded ``columns``, (d,); None if it is 1 for all."""
    found = getattr(data, "noise", {})
    scales = np.array([found.get(column, 1.0) for column in columns])
    return None if (scales == 1.0).all() else scales


def choose_scales(
    table: pd.DataFrame, continuous: Sequence[str], categorical: Sequence[str], scale: Any
) -> tuple[list[str], list[str]]:
    """Return the features with a robust scale, and those of them for which ``"auto"`` chose it.

    Raises
    ------
    DataError
        If ``scale`` is neither one of :data:`SCALES` nor a mapping from continuous features to them.
    """
    given = dict(scale) if isinstance(scale, Mapping) else dict.fromkeys(continuous, scale)
    _check_continuous("scale", given, continuous, categorical)
    for each in given.values():
        if not isinstance(each, str) or each not in SCALES:
            raise DataError(unknown_name("scale", each, SCALES))
    chosen = {feature: given.get(feature, "auto") for feature in continuous}
    outlying = [
        feature
        for feature, each in chosen.items()
        if each == "auto" and has_outliers(table[feature].to_numpy(dtype=float))
    ]
    robust = [feature for feature, each in chosen.items() if each == "robust" or feature in outlying]
    return robust, outlying


def outlier_warning(data: DataCatalog, features: Sequence[str]) -> str:
    """Return the warning about features for which a robust scale was chosen."""
    ranges = []
    for feature in features:
        j, (low, high) = data.continuous.index(feature), reachable_values(data, feature)
        lowest, highest = data.scaler.data_min_[j], data.scaler.data_max_[j]
        ranges.append(f"{feature} ({low:.6g} to {high:.6g} of {lowest:.9g} to {highest:.9g})")
    return (
        f"features with outliers are scaled by their central part, which actions do not leave: {', '.join(ranges)}; "
        "choose with scale='minmax' or 'robust', --scale on the command line"
    )


def positive_numbers(name: str, given: Any, continuous: Sequence[str], categorical: Sequence[str]) -> dict[str, float]:
    """Return ``given``, a mapping from continuous features to positive numbers or None, as a dictionary of floats.

    Raises
    ------
    DataError
        If it is anything else; ``name`` is that of the parameter.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise DataError(f"{name} must be a mapping from features to numbers, got {short_repr(given)}.")
    _check_continuous(name, given, continuous, categorical)
    for feature, value in given.items():
        is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, (bool, np.complexfloating))
        if not is_number or not 0 < value < math.inf:
            raise DataError(f"{name} of {feature!r} must be a number above 0, got {short_repr(value)}.")
    return {feature: float(value) for feature, value in given.items()}


def check_units(data: DataCatalog) -> None:
    """Raise :class:`DataError` for units of action beyond the values that actions lead to."""
    for feature, unit in data.units.items():
        low, high = reachable_values(data, feature)
        if unit > high - low:
            raise DataError(
                f"The unit of {feature!r} is {unit:g}, but its values reach from {low:g} to {high:g} only: choose a "
                "smaller one."
            )


def _check_continuous(
    name: str, features: Mapping[Any, Any], continuous: Sequence[str], categorical: Sequence[str]
) -> None:
    for feature in features:
        if feature in categorical:
            raise DataError(f"{name} is for continuous features, but {feature!r} is categorical: leave it out.")
        if feature not in continuous:
            raise DataError(unknown_name("continuous feature", feature, continuous))
