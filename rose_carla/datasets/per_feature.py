"""What differs between the features of a data set: scales, bounds of actions, units of action and noise.

The functions of a data set take every CARLA ``DataCatalog``; only ours has anything but the defaults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from carla.data.catalog import DataCatalog
from rose_carla.datasets.scaling import PiecewiseScaler, has_outliers
from rose_carla.errors import DataError, short_repr, unknown_name

#: Ways to scale a continuous feature.
SCALES = ("auto", "minmax", "robust")


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


def _check_continuous(
    name: str, features: Mapping[Any, Any], continuous: Sequence[str], categorical: Sequence[str]
) -> None:
    for feature in features:
        if feature in categorical:
            raise DataError(f"{name} is for continuous features, but {feature!r} is categorical: leave it out.")
        if feature not in continuous:
            raise DataError(unknown_name("continuous feature", feature, continuous))


def check_units(data: DataCatalog) -> None:
    """Raise :class:`DataError` for units of action beyond the values that actions lead to."""
    for feature, unit in data.units.items():
        low, high = reachable_values(data, feature)
        if unit > high - low:
            raise DataError(
                f"The unit of {feature!r} is {unit:g}, but its values reach from {low:g} to {high:g} only: choose a "
                "smaller one."
            )


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
