"""The methods of the paper's tables by name, with the paper's hyper-parameters where it names them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import carla.recourse_methods as carla_methods
from rose_carla import baselines, rose
from carla.models.api import MLModel
from carla.recourse_methods.api import RecourseMethod
from rose_carla._lib.user_code import import_object
from rose_carla.bench import provenance
from rose_carla.errors import ExperimentError, PlanError, error_text, short_repr, unknown_name


@dataclass(frozen=True)
class Entry:
    """A method of the tables."""

    #: Class, or function of a model and hyper-parameters, that returns the method.
    make: Callable[[MLModel, dict[str, Any]], RecourseMethod]
    #: Hyper-parameters in the tables.
    options: Mapping[str, Any]
    #: Whether it is robust by design: the paper underlines the best of these.
    robust: bool
    #: The hyper-parameter that trades cost for robustness, if there is one.
    knob: str | None = None
    #: Values of ``knob`` in the frontier, from the least to the most robust.
    levels: tuple[float, ...] = ()
    #: Whether it has a seed of its own; CARLA's methods use the global generators.
    seeded: bool = True
    #: Source code of a user's method.
    source: str = ""
    #: Hyper-parameters that the name stands for: they have the value in ``options``, and no other.
    fixed: tuple[str, ...] = ()

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules of this package that the method is imported from; all of them for a user's method."""
        package, _, _ = self.make.__module__.partition(".")
        if package == "rose_carla":
            return (self.make.__module__,)
        return () if package == "carla" else provenance.all_modules()

    def resolve(self, options: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
        """Return all hyper-parameters of the method with ``options``, as far as their names are known.

        Raises
        ------
        RoseCarlaError
            For an unknown name, which CARLA would ignore, an invalid value, or another value of a fixed one.
        """
        given = self._all_options(seed, options)
        settings = getattr(self.make, "settings_class", None)
        if settings is not None:
            return dict(settings.from_mapping(given, self.make.default_overrides).as_dict())  # type: ignore[attr-defined]
        known = getattr(self.make, "_DEFAULT_HYPERPARAMS", None if self.source else {})
        for name in options:
            if known is not None and name not in {*known, *self.options}:
                raise PlanError(unknown_name("hyper-parameter", name, {*known, *self.options}))
        return given

    def build(self, model: MLModel, seed: int, options: Mapping[str, Any]) -> RecourseMethod:
        """Create the method, and train it if it learns."""
        return self.make(model, self._all_options(seed, options))

    def _all_options(self, seed: int, options: Mapping[str, Any]) -> dict[str, Any]:
        for name in self.fixed:
            if options.get(name, self.options[name]) != self.options[name]:
                raise PlanError(
                    f"{name} is {self.options[name]} in this method, and cannot be {short_repr(options[name])}: leave "
                    "it out, or use the full method."
                )
        return {**self.options, **({"seed": seed} if self.seeded else {}), **options}


#: The method as the paper has it: the policy's actions as they were taken.
_PLAIN: Mapping[str, Any] = {"search": False, "shorten": False}
_TAU = (0.55, 0.65, 0.75, 0.85, 0.95)

#: Methods in the order of the paper's tables.
METHODS: Mapping[str, Entry] = {
    "Wachter": Entry(carla_methods.Wachter, {"loss_type": "MSE", "y_target": [1]}, False, seeded=False),
    "GrSp": Entry(carla_methods.GrowingSpheres, {}, False, seeded=False),
    "DiCE": Entry(
        carla_methods.Dice, {"num": 1, "desired_class": 1, "posthoc_sparsity_param": 0.1}, False, seeded=False
    ),
    "FastAR": Entry(baselines.FastAR, {"preset": "paper"}, False, "margin", (0.5, 0.6, 0.7, 0.8, 0.9)),
    "ROAR": Entry(baselines.Roar, {"preset": "paper"}, True),
    "ARAR": Entry(baselines.Arar, {"preset": "paper"}, True),
    "CoGS": Entry(baselines.Cogs, {"preset": "paper"}, True),
    "PROBE": Entry(baselines.Probe, {"preset": "paper"}, True, "invalidation_target", (0.45, 0.35, 0.25, 0.15, 0.05)),
    "CROCO": Entry(baselines.Croco, {"preset": "paper"}, True, "target", (0.45, 0.4, 0.35, 0.3, 0.25)),
    "ROSE-one": Entry(rose.RoseOne, {}, True, "tau", _TAU),
    "ROSE-one-plain": Entry(rose.RoseOne, _PLAIN, True, "tau", _TAU, fixed=tuple(_PLAIN)),
    "ROSE-mul": Entry(rose.RoseMul, {}, True, "tau", _TAU),
    "ROSE-mul-plain": Entry(rose.RoseMul, _PLAIN, True, "tau", _TAU, fixed=tuple(_PLAIN)),
}


def entry(name: str) -> Entry:
    """Return a method of the tables by its name, or a user's by ``"module:Class"``.

    Raises
    ------
    ExperimentError
        If the method is unknown or cannot be imported.

    Examples
    --------
    >>> entry("ROSE-one").knob
    'tau'
    >>> entry("carla.recourse_methods:GrowingSpheres").robust
    False
    """
    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        raise ExperimentError(f"{unknown_name('method', name, METHODS)} Your own is given as 'module:Class'.")
    try:
        make = import_object(name)
    except Exception as error:  # the user's module may raise anything
        raise ExperimentError(
            f"The method {name!r} cannot be imported: {type(error).__name__}: {error_text(error)}"
        ) from error
    if not (isinstance(make, type) and issubclass(make, RecourseMethod)):
        raise ExperimentError(f"{name!r} is not a CARLA recourse method: derive it from rose_carla.Method.")
    settings = getattr(make, "settings_class", None)
    seeded = settings is not None and "seed" in settings.__dataclass_fields__
    return Entry(make, {}, False, seeded=seeded, source=inspect.getsource(inspect.getmodule(make) or make))


#: The method of this package.
OURS = ("ROSE-one", "ROSE-mul")
#: From the plain method of the paper, without search and shortening, to the full one; in tables on request.
PLAIN: Mapping[str, str] = {f"{name}-plain": name for name in OURS}
#: All variants of ROSE; the other methods are what they are compared with.
VARIANTS = tuple(name for name in METHODS if name in OURS or name in PLAIN)
#: The methods of Table 1.
TABLE_1 = tuple(name for name in METHODS if name not in ("ROAR", "ARAR", *PLAIN))
