"""Hyper-parameters as frozen dataclasses with a constraint beside each default."""

from __future__ import annotations

import dataclasses
import math
import operator
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
from rose_carla.errors import DataError, PlanError, RoseCarlaError, short_repr, unknown_name

Self = TypeVar("Self", bound="Hyperparameters")

#: The largest seed that torch takes.
LARGEST_SEED = 2**63 - 1
#: Default of a field without one.
REQUIRED: Any = dataclasses.MISSING
#: CARLA's marker of an optional hyper-parameter.
_OPTIONAL = "_optional_"


@dataclasses.dataclass(frozen=True)
class _Constraint:
    """Constraint on a value: a test, its description, and the largest number allowed."""

    is_valid: Callable[[Any], bool]
    words: str
    le: float = math.inf


def _field(default: Any, constraint: _Constraint) -> Any:
    return dataclasses.field(default=default, metadata={"constraint": constraint})


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_integer(value) or isinstance(value, float)


def number(
    default: float, *, gt: float = -math.inf, ge: float = -math.inf, lt: float = math.inf, le: float = math.inf
) -> Any:
    """Field for a finite number."""
    bounds = {"above": gt, "at least": ge, "below": lt, "at most": le}
    words = [f"{name} {bound:g}" for name, bound in bounds.items() if math.isfinite(bound)]
    if min(lt, le) == math.inf:
        words.append("finite")

    def is_valid(value: Any) -> bool:
        return _is_number(value) and gt < value < lt and ge <= value <= le

    return _field(default, _Constraint(is_valid, " and ".join(words), sys.float_info.max))


def integer(default: int, *, ge: int = 1, le: int = 10**9) -> Any:
    """Field for an integer."""
    return _field(
        default, _Constraint(lambda value: _is_integer(value) and ge <= value, f"an integer of at least {ge}", le)
    )


def seed() -> Any:
    """Field for the seed of a generator, 0 by default."""
    return integer(0, ge=0, le=LARGEST_SEED)


def check_seed(seed: object, error: type[RoseCarlaError] = DataError, le: int = LARGEST_SEED) -> int:
    """Return a seed as an int.

    Raises
    ------
    RoseCarlaError
        The given ``error``, if it is not an integer from 0 to ``le``.
    """
    try:
        value = operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        value = -1
    if not 0 <= value <= le:
        raise error(f"seed must be an integer from 0 to {le}, got {short_repr(seed)}.")
    return value


def factor(default: str, *, names: tuple[str, ...]) -> Any:
    """Field for a factor above 0, or the name of a rule that computes it."""

    def is_valid(value: Any) -> bool:
        return value in names if isinstance(value, str) else _is_number(value) and 0 < value < math.inf

    words = f"{', '.join(map(repr, names))} or a number above 0"
    return _field(default, _Constraint(is_valid, words, sys.float_info.max))


def choice(default: str, *, names: tuple[str, ...]) -> Any:
    """Field for one of some names."""
    words = " or ".join(map(repr, names))
    return _field(default, _Constraint(lambda value: isinstance(value, str) and value in names, words))


def flag(default: bool) -> Any:
    """Field for True or False."""
    return _field(default, _Constraint(lambda value: isinstance(value, bool), "True or False"))


def mapping() -> Any:
    """Field for a mapping, empty by default."""
    constraint = _Constraint(lambda value: isinstance(value, Mapping), "a mapping")
    return dataclasses.field(default_factory=dict, metadata={"constraint": constraint})


def numbers(default: tuple[float, ...], *, ge: float, words: str) -> Any:
    """Field for a tuple of finite numbers of at least ``ge``, described by ``words`` in messages."""

    def is_valid(value: Any) -> bool:
        is_sequence = isinstance(value, (tuple, list)) and len(value) > 0
        return is_sequence and all(_is_number(each) and ge <= each < math.inf for each in value)

    return _field(default, _Constraint(is_valid, words))


def integers(default: tuple[int, ...], *, le: int = 10**9) -> Any:
    """Field for a tuple of integers from 1, which may be empty."""

    def is_valid(value: Any) -> bool:
        return isinstance(value, (tuple, list)) and all(_is_integer(each) and 1 <= each <= le for each in value)

    return _field(default, _Constraint(is_valid, f"a tuple of integers from 1 to {le}"))


def optional(field: Any) -> Any:
    """Field for None, the default, or a value of another field."""
    other: _Constraint = field.metadata["constraint"]
    return _field(
        None, _Constraint(lambda value: value is None or other.is_valid(value), f"{other.words}, or None", other.le)
    )


class Hyperparameters:
    """Base class of frozen dataclasses of hyper-parameters, which validate their values.

    Examples
    --------
    >>> import dataclasses
    >>> @dataclasses.dataclass(frozen=True)
    ... class WalkSettings(Hyperparameters):
    ...     length: float = number(1.0, gt=0)
    ...     presets = {"paper": {"length": 0.5}}
    >>> WalkSettings.from_mapping({"preset": "paper"})
    WalkSettings(length=0.5)
    >>> WalkSettings.from_mapping({"lenght": 2.0})
    Traceback (most recent call last):
        ...
    rose_carla.errors.PlanError: Unknown hyper-parameter 'lenght': did you mean 'length'? Known: 'length', 'preset'.
    """

    #: Error raised for an invalid value.
    error: ClassVar[type[RoseCarlaError]] = PlanError
    #: Named sets of values, such as a paper's; chosen by ``{"preset": name}``.
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __post_init__(self) -> None:
        for each in self._fields():
            constraint, given = each.metadata.get("constraint"), getattr(self, each.name)
            value = _python_value(given)
            if constraint is not None and not constraint.is_valid(value):
                raise self.error(f"{each.name} must be {constraint.words}, got {short_repr(given)}.")
            if constraint is not None and _is_number(value) and value > constraint.le:
                raise self.error(f"{each.name} must be at most {constraint.le:.2g}, got {short_repr(given)}.")
            object.__setattr__(self, each.name, value)

    @classmethod
    def _fields(cls) -> tuple[dataclasses.Field[Any], ...]:
        return dataclasses.fields(cls)  # type: ignore[arg-type]

    @classmethod
    def from_mapping(
        cls: type[Self],
        hyperparams: Mapping[str, Any] | None,
        defaults: Mapping[str, Any] | None = None,
        kind: str = "hyper-parameter",
    ) -> Self:
        """Create settings from a mapping such as CARLA's ``hyperparams``.

        Parameters
        ----------
        hyperparams
            Values by name. ``preset`` selects values of :attr:`presets`, which the others override.
        defaults
            Defaults that override those of the fields.
        kind
            Kind of the names, for messages.

        Raises
        ------
        RoseCarlaError
            For an unknown name, with the closest match, or an invalid value.
        """
        if hyperparams is not None and not isinstance(hyperparams, Mapping):
            raise cls.error(f"Expected a dictionary from each {kind} to its value, got {type(hyperparams).__name__}.")
        chosen = dict(hyperparams or {})
        known = {each.name for each in cls._fields()} | ({"preset"} if cls.presets else set())
        for key in chosen:
            if key not in known:
                raise cls.error(unknown_name(kind, key, known))
        preset: Mapping[str, Any] = {}
        if "preset" in chosen:
            name = chosen.pop("preset")
            if not isinstance(name, str) or name not in cls.presets:
                raise cls.error(unknown_name("preset", name, cls.presets))
            preset = cls.presets[name]
            chosen = {key: _override(preset.get(key), value) for key, value in chosen.items()}
        optional = [key for key, value in chosen.items() if isinstance(value, str) and value == _OPTIONAL]
        chosen.update(dict.fromkeys(optional))
        return cls(**{**(defaults or {}), **preset, **chosen})

    @classmethod
    def carla_defaults(cls, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Return CARLA's ``_DEFAULT_HYPERPARAMS``, where None marks a required option."""
        values = cls(**defaults).as_dict()
        return {name: _OPTIONAL if value is None else value for name, value in values.items()}

    def as_dict(self) -> dict[str, Any]:
        """Return plain values that are valid JSON."""
        values = {each.name: getattr(self, each.name) for each in self._fields()}
        return {
            name: list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
            for name, value in values.items()
        }


def _python_value(value: Any) -> Any:
    """Convert numpy values to Python's, also inside sequences and mappings."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    if isinstance(value, np.ndarray):
        return tuple(value.tolist())
    if isinstance(value, (tuple, list)):
        return tuple(_python_value(each) for each in value)
    return {key: _python_value(each) for key, each in value.items()} if isinstance(value, Mapping) else value


def _override(preset: Any, value: Any) -> Any:
    """Override a preset's value; mappings are merged key by key."""
    return {**preset, **value} if isinstance(preset, Mapping) and isinstance(value, Mapping) else value
