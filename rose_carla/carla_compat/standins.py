"""Stand-ins for packages that are optional or slow to load, all of which CARLA imports.

While CARLA is being imported, ``import tensorflow as tf`` and ``from keras.layers import Dense`` return stand-ins.
Their first use afterwards loads the package, or raises :class:`~rose_carla.errors.MissingPackageError` with the extra
to install.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any


def _attribute(module: Any, name: str) -> Any:
    """Return attribute ``name`` of ``module``, or import the submodule of that name, as ``from`` does."""
    try:
        return getattr(module, name)
    except AttributeError:
        if not isinstance(module, ModuleType):
            raise
        return importlib.import_module(f"{module.__name__}.{name}")


class StandIns:
    """Factory of stand-ins; ``load`` turns a module name into the real module (or CARLA's view of it).

    While a thread executes CARLA's own modules, attributes of stand-ins are stand-ins too, because looking them up
    would load the package.
    """

    def __init__(self, load: Callable[[str], Any]) -> None:
        self.load = load
        self._thread = threading.local()  # other threads may be using CARLA meanwhile
        self._modules: dict[str, StandInModule] = {}

    @property
    def importing(self) -> bool:
        """Whether this thread is executing CARLA's modules."""
        return getattr(self._thread, "importing", False)

    @contextlib.contextmanager
    def while_importing(self) -> Iterator[None]:
        """Return stand-ins for attributes within the context."""
        before, self._thread.importing = self.importing, True
        try:
            yield
        finally:
            self._thread.importing = before

    def module(self, name: str) -> StandInModule:
        """Return the stand-in for module ``name``."""
        if name not in self._modules:
            self._modules[name] = StandInModule(name, self)
        return self._modules[name]


class StandInModule(ModuleType):
    """Stand-in for a module."""

    def __init__(self, name: str, stand_ins: StandIns) -> None:
        super().__init__(name)
        self._stand_ins = stand_ins

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if self._stand_ins.importing:
            return StandInAttribute(self._stand_ins, self.__name__, (attribute,))
        return _attribute(self._stand_ins.load(self.__name__), attribute)


class StandInAttribute:
    """Stand-in for an attribute of a module, such as a class in an annotation or a function that is called later."""

    def __init__(self, stand_ins: StandIns, module: str, path: tuple[str, ...]) -> None:
        self._stand_ins = stand_ins
        self._module = module
        self._path = path

    def _real(self) -> Any:
        found = self._stand_ins.load(self._module)
        for attribute in self._path:
            found = _attribute(found, attribute)
        return found

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if self._stand_ins.importing:
            return StandInAttribute(self._stand_ins, self._module, (*self._path, attribute))
        return getattr(self._real(), attribute)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, self._real())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._stand_ins.importing:
            # CARLA's autoencoders disable TensorFlow's eager mode at import; our view of TensorFlow does so on load.
            return None
        return self._real()(*args, **kwargs)
