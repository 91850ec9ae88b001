"""CARLA 0.0.5, unmodified, on Python 3.10+ with current numpy, pandas, scikit-learn and torch.

``import rose_carla`` calls :func:`activate`; from then on ``import carla`` works. CARLA's files are not touched and
nothing outside CARLA's own modules is patched: see :mod:`rose_carla.carla_compat.importer` for how.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
import sys
from types import ModuleType

from rose_carla.carla_compat import repairs, views
from rose_carla.carla_compat.extras import OPTIONAL_PACKAGES, import_optional, install_command
from rose_carla.carla_compat.importer import Scope, scoped_import
from rose_carla.carla_compat.standins import StandIns
from rose_carla.errors import MissingPackageError

#: What CARLA's modules get a stand-in for: the optional packages, and two that would double the time of the import.
_DEFERRED = frozenset(OPTIONAL_PACKAGES) | {"keras", "sklearn", "scipy"}

__all__ = ["activate", "import_optional", "install_command"]

_SEEN_BY_CARLA = {view.__name__: view for view in (views.NUMPY, views.TORCH, views.JOBLIB, views.LOGGING)}
#: Two modules that call ``pd.DataFrame`` in ways gone by; others have to find the real class for ``isinstance``.
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
    """The real optional module ``name``, or CARLA's view of it."""
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


_stand_ins = StandIns(_load)


def _deferred(name: str, wants_leaf: bool) -> ModuleType:
    if _stand_ins.importing:
        return _stand_ins.module(name if wants_leaf else name.partition(".")[0])
    leaf = _load(name)
    return leaf if wants_leaf else _load(name.partition(".")[0])


def activate() -> None:
    """Import CARLA with all its modules; later calls do nothing.

    Raises
    ------
    MissingPackageError
        If ``carla-recourse`` is not installed.
    """
    if "carla" in sys.modules:
        # Somebody imported it before us, so it runs natively (or we are called a second time).
        return
    if importlib.util.find_spec("carla") is None:
        raise MissingPackageError(
            "CARLA is not installed: pip install --no-deps carla-recourse==0.0.5 "
            "(--no-deps because its pins exist for no Python that is still supported)"
        )
    for leftover in [name for name in sys.modules if name.startswith("carla.")]:
        del sys.modules[leftover]  # of an 'import carla' that failed before ours
    scope = Scope(_for_carla, _deferred, _DEFERRED)
    with scoped_import("carla", scope), _stand_ins.while_importing():
        carla = importlib.import_module("carla")
        for module in pkgutil.walk_packages(carla.__path__, "carla."):
            importlib.import_module(module.name)
    repairs.apply()
