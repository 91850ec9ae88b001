"""The places in CARLA's own code that no view can mend."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from typing import Any


class _Ordered(dict[Any, None]):
    """What ``set`` is used for in Growing Spheres, in the order that things came in."""

    def __init__(self, items: Iterable[Any]) -> None:
        super().__init__(dict.fromkeys(items))

    def __sub__(self, other: _Ordered) -> list[Any]:
        return [item for item in self if item not in other]


def apply() -> None:
    """Mend what is left of CARLA's code after its import."""
    trees = sys.modules["carla.models.catalog.trees"]
    parse_booster = trees.parse_booster

    @functools.wraps(parse_booster)
    def parse_booster_to_floats(booster: Any) -> tuple[Any, ...]:
        # The scores get compared and the outcome indexes a list, which numpy's booleans no longer do.
        *structure, scores = parse_booster(booster)
        return (*structure, scores.tolist())

    trees.parse_booster = parse_booster_to_floats  # type: ignore[attr-defined]
    # It draws features in the order of a set of names, which is another one in every process: no seed brings its
    # results back.
    spheres = sys.modules["carla.recourse_methods.catalog.growing_spheres.library.gs_counterfactuals"]
    spheres.set = _Ordered  # type: ignore[attr-defined]
