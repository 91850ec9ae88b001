"""The one place in CARLA's own code that no view can mend."""

from __future__ import annotations

import functools
import sys
from typing import Any


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
