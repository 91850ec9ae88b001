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
from rose_carla.carla_compat.extras import OPTIONAL_PACKAGES, import_optional
from rose_carla.carla_compat.importer import Scope, ScopedLoader, scoped_import

#: Packages that CARLA's modules get a stand-in for: the optional ones, and two that would double the import time.
_DEFERRED = frozenset(OPTIONAL_PACKAGES) | {"keras", "sklearn", "scipy"}

_SEEN_BY_CARLA = {view.__name__: view for view in (views.NUMPY, views.TORCH, views.JOBLIB, views.LOGGING)}
#: Two modules that call ``pd.DataFrame`` in removed ways; all others need the real class for ``isinstance``.
_PANDAS_SEEN_BY = {
    "carla.data.causal_model.synthethic_data": views.PANDAS_WITH_SETS,
    "recourse.flipset": views.PANDAS_WITH_APPEND,
}
_VIEWS_ON_USE = {
    "dice_ml": views.dice_ml,
    "sklearn": views.sklearn,
    "tensorflow": views.tensorflow_1,
    "xgboost": views.xgboost_1,
}


def _for_carla(importer: str, module: ModuleType) -> ModuleType:
    if module.__name__ == "pandas":
        return _PANDAS_SEEN_BY.get(importer, module)
    return _SEEN_BY_CARLA.get(module.__name__, module)


def _for_causal_models(importer: str, module: ModuleType) -> ModuleType:
    return views.COLLECTIONS if module.__name__ == "collections" else module


@functools.cache
def _load(name: str) -> ModuleType:
    """Return the real optional module ``name``, or CARLA's view of it."""
    package = name.partition(".")[0]
    below = name[len(package) :]
    if name in _VIEWS_ON_USE:
        return _VIEWS_ON_USE[name]()
    if package == "keras":
        views.tensorflow_1()  # Keras follows TensorFlow's mode: set that first
        return import_optional("tf_keras" + below)
    if package in ("sklearn", "scipy"):
        return importlib.import_module(name)
    if name == "recourse":
        # Without this solver the package falls back on another one that aborts the whole process.
        import_optional("cplex")
        plots = Scope(_for_carla, _deferred, frozenset({"seaborn", "matplotlib"}))
        with scoped_import("recourse", plots), _stand_ins.while_importing():
            return import_optional("recourse")
    if name == "causalgraphicalmodels":
        with scoped_import("causalgraphicalmodels", Scope(_for_causal_models)):
            return import_optional(name)
    return import_optional(name)


_stand_ins = views.StandIns(_load)


def _deferred(name: str, wants_leaf: bool) -> ModuleType:
    if _stand_ins.importing:
        return _stand_ins.module(name if wants_leaf else name.partition(".")[0])
    leaf = _load(name)
    return leaf if wants_leaf else _load(name.partition(".")[0])


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
    scope = Scope(_for_carla, _deferred, _DEFERRED)
    with scoped_import("carla", scope), _stand_ins.while_importing():
        ScopedLoader(loader, scope).exec_module(carla)
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
