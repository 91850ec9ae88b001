"""Import CARLA's modules with views of current libraries and stand-ins for optional ones, and repair a few.

Loaded at the first ``import carla``, because the views need torch and pandas.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Iterable
from importlib.abc import Loader
from types import ModuleType
from typing import Any

import torch
from rose_carla.carla_compat import views
from rose_carla.carla_compat.importer import ScopedLoader, scoped_import


def run(carla: ModuleType, loader: Loader) -> None:
    """Execute CARLA's top-level module and import all modules below it.

    Parameters
    ----------
    carla
        The module, empty so far.
    loader
        The loader that Python found for it.
    """
    for leftover in [name for name in sys.modules if name.startswith("carla.")]:
        del sys.modules[leftover]  # of an earlier 'import carla' that failed
    with scoped_import("carla", views.CARLA), views.importing():
        ScopedLoader(loader, views.CARLA).exec_module(carla)
        for module in pkgutil.walk_packages(carla.__path__, "carla."):
            importlib.import_module(module.name)
    _repair()


class _Ordered(dict[Any, None]):
    """A ``set`` in insertion order, with the operations that Growing Spheres uses."""

    def __init__(self, items: Iterable[Any]) -> None:
        super().__init__(dict.fromkeys(items))

    def __sub__(self, other: _Ordered) -> list[Any]:
        return [item for item in self if item not in other]


def _save_weights(self: Any, filename: str) -> None:
    """Save CLUE's autoencoder as plain numbers instead of a pickled object."""
    torch.save({"epoch": self.epoch, "lr": self.lr, "model": self.model.state_dict()}, filename)


def _load_weights(self: Any, filename: str) -> int:
    """Load weights into CLUE's autoencoder, which has been built before."""
    state = torch.load(filename, weights_only=True)
    self.epoch, self.lr = state["epoch"], state["lr"]
    self.model.load_state_dict(state["model"])
    self.model.eval()
    return self.epoch


def _repair() -> None:
    """Repair CARLA's own code, where a view of a library is not enough."""
    trees = sys.modules["carla.models.catalog.trees"]
    parse_booster = trees.parse_booster

    @functools.wraps(parse_booster)
    def parse_booster_to_floats(booster: Any) -> tuple[Any, ...]:
        # The scores get compared and the result indexes a list, which numpy's booleans no longer do.
        *structure, scores = parse_booster(booster)
        return (*structure, scores.tolist())

    trees.parse_booster = parse_booster_to_floats  # type: ignore[attr-defined]
    # It draws features in the order of a set of names, which differs between processes whatever the seed.
    spheres = sys.modules["carla.recourse_methods.catalog.growing_spheres.library.gs_counterfactuals"]
    spheres.set = _Ordered  # type: ignore[attr-defined]
    clue = sys.modules["carla.recourse_methods.catalog.clue.library.clue_ml.src.utils"].BaseNet
    clue.save, clue.load = _save_weights, _load_weights
