"""CARLA 0.0.5, unmodified, on Python 3.10+ with current numpy, pandas, scikit-learn and torch.

``import rose_carla`` calls :func:`activate`; from then on ``import carla`` works. CARLA's files are not touched and
nothing outside CARLA's own modules is patched: see :mod:`rose_carla.carla_compat.importer` for how.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

from rose_carla.carla_compat.importer import WrappingFinder
from rose_carla.errors import MissingPackageError

__all__ = ["OPTIONAL_PACKAGES", "activate", "import_optional", "install_command"]


#: Import name: (extras that install it or its dependencies, requirement to install with ``--no-deps``).
#: The latter pin versions that do not exist for supported Pythons, or depend on gigabytes that they do not need.
OPTIONAL_PACKAGES: dict[str, tuple[str, str | None]] = {
    "tensorflow": ("tensorflow", "tf_keras==2.21.0"),
    "tf_keras": ("tensorflow", "tf_keras==2.21.0"),
    "xgboost": ("xgboost", None),
    "dice_ml": ("dice", "dice-ml==0.12"),
    "raiutils": ("dice", None),
    "recourse": ("recourse,cplex", "recourse==1.0.0"),
    "cplex": ("cplex", None),
    "lime": ("recourse", None),
    "prettytable": ("recourse", None),
    "causalgraphicalmodels": ("causal", None),
    "networkx": ("causal", None),
    "graphviz": ("causal", None),
    "matplotlib": ("plots", None),
    "seaborn": ("plots", None),
    "gymnasium": ("gymnasium", None),
    "distributed": ("dask", None),
    "torchvision": ("", "torchvision"),
}


def install_command(package: str) -> str:
    """Return the shell command that installs an optional ``package``.

    Examples
    --------
    >>> install_command("dice_ml")
    'pip install "rose-carla[dice]" && pip install --no-deps dice-ml==0.12'
    """
    extra, no_deps = OPTIONAL_PACKAGES[package]
    steps = [f'pip install "rose-carla[{extra}]"'] if extra else []
    if no_deps:
        steps.append(f"pip install --no-deps {no_deps}")
    return " && ".join(steps)


def import_optional(name: str) -> ModuleType:
    """Import module ``name`` of an optional package.

    Raises
    ------
    MissingPackageError
        With the extra to install, if the package (or one that it needs in turn) is missing.
    """
    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or package).partition(".")[0]
        if missing not in OPTIONAL_PACKAGES:
            if missing != package:
                raise MissingPackageError(
                    f"'{package}' needs the package '{missing}', which is not installed: {install_command(package)}"
                ) from error
            raise
        raise MissingPackageError(
            f"This needs the optional package '{missing}', which is not installed: {install_command(missing)}"
        ) from error


class _CarlaFinder(WrappingFinder):
    """Find CARLA where Python would; it is prepared when it is executed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "carla":
            return None
        spec = self.find_elsewhere(fullname, path, target)
        if spec is None or spec.loader is None:
            raise MissingPackageError(
                "CARLA is not installed: pip install --no-deps carla-recourse==0.0.5 "
                "(--no-deps because its pins exist for no Python that is still supported)"
            )
        spec.loader = _CarlaLoader(spec.loader)
        return spec


class _CarlaLoader(Loader):
    """Import CARLA with all its modules."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        importlib.import_module("rose_carla.carla_compat.views").import_carla(module, self.loader)
        if _FINDER in sys.meta_path:
            sys.meta_path.remove(_FINDER)


_FINDER = _CarlaFinder()


def activate() -> None:
    """Make ``import carla`` work.

    CARLA itself is imported at the first ``import carla``, which raises
    :class:`~rose_carla.errors.MissingPackageError` if ``carla-recourse`` is not installed. If CARLA has been imported
    before, it runs natively and this function does nothing.
    """
    if "carla" not in sys.modules and _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
