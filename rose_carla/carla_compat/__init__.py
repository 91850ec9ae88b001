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

from rose_carla.carla_compat.extras import import_optional, install_command
from rose_carla.carla_compat.importer import WrappingFinder
from rose_carla.errors import MissingPackageError

__all__ = ["activate", "import_optional", "install_command"]


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
        importlib.import_module("rose_carla.carla_compat.carla_import").run(module, self.loader)
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
