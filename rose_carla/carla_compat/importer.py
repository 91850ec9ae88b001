"""Import a package so that only *its* modules see our views and stand-ins.

The ``import`` statement calls ``__import__`` of the module's own ``__builtins__``. The finder below gives each module
of a scoped package ``__builtins__`` whose ``__import__`` asks the scope first. So no other package is patched, and
imports inside functions work after the package was loaded.
"""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: Function from the importing module's name and the imported module to what the importing module gets.
Substitute = Callable[[str, ModuleType], ModuleType]


class Scope:
    """Imports as the modules of one package see them.

    Parameters
    ----------
    substitute
        Called with ``(importer, module)`` for each import that is not deferred.
    deferred
        Called with ``(name, wants_leaf)`` for each import whose top-level name is in ``deferred_names``;
        ``wants_leaf`` is true for ``from a.b import c`` (the module ``a.b``), false for ``import a.b`` (the module
        ``a``).
    deferred_names
        Top-level names of packages for ``deferred``.
    """

    def __init__(
        self,
        substitute: Substitute,
        deferred: Callable[[str, bool], ModuleType] | None = None,
        deferred_names: frozenset[str] = frozenset(),
    ) -> None:
        self.substitute = substitute
        self.deferred = deferred
        self.deferred_names = deferred_names
        self.builtins = {**vars(builtins), "__import__": self._import}

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if level == 0 and self.deferred is not None and name.partition(".")[0] in self.deferred_names:
            return self.deferred(name, bool(fromlist))
        module = builtins.__import__(name, globals, locals, fromlist or (), level)
        importer = str(globals["__name__"]) if globals else ""
        return self.substitute(importer, module)


class ScopedLoader(Loader):
    """Run the loader found by Python with the scope's built-ins."""

    def __init__(self, loader: Loader, scope: Scope) -> None:
        self.loader = loader
        self.scope = scope

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = self.scope.builtins
        # for inspect.getsource, resources and reloading
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)


class WrappingFinder(MetaPathFinder):
    """Base class of finders that wrap what other finders return."""

    def find_elsewhere(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module as Python would without the finders of this package."""
        for finder in sys.meta_path:
            spec = None if isinstance(finder, WrappingFinder) else finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None


class _ScopedFinder(WrappingFinder):
    """Bind the modules of ``package`` to ``scope``."""

    def __init__(self, package: str, scope: Scope) -> None:
        self.package = package
        self.scope = scope

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != self.package:
            return None
        spec = self.find_elsewhere(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = ScopedLoader(spec.loader, self.scope)
        return spec


@contextlib.contextmanager
def scoped_import(package: str, scope: Scope) -> Iterator[None]:
    """Bind modules of ``package`` that are imported within the context to ``scope``, permanently."""
    finder = _ScopedFinder(package, scope)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
