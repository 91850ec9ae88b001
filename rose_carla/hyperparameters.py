"""Hyper-parameters as frozen dataclasses: what a value may be stands beside its default."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
from rose_carla.errors import PlanError, RoseCarlaError, shown, unknown_name

Self = TypeVar("Self", bound="Hyperparameters")

#: In the place of a default: the value has to be given.
REQUIRED: Any = dataclasses.MISSING
#: What CARLA writes for an option that may be left out.
_OPTIONAL = "_optional_"
#: Key under which a field keeps what its value may be.
_RULE = "rule"


@dataclasses.dataclass(frozen=True)
class _Rule:
    """What a value may be: a test, the words for it, and the largest number that anything computes with."""

    allows: Callable[[Any], object]
    words: str
    most: float = math.inf


def number(
    default: float,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> Any:
    """A field for a finite number."""
    bounds = {"above": above, "at least": least, "below": below, "at most": most}
    words = [f"{name} {bound:g}" for name, bound in bounds.items() if math.isfinite(bound)]
    rule = _Rule(
        lambda value: (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and above < value < below
            and least <= value <= most
        ),
        " and ".join([*words, "finite"] if min(below, most) == math.inf else words),
        sys.float_info.max,
    )
    return dataclasses.field(default=default, metadata={_RULE: rule})


def whole(default: int, *, least: int = 1, most: int = 10**9) -> Any:
    """A field for a whole number."""
    rule = _Rule(
        lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value,
        f"a whole number of at least {least}",
        most,
    )
    return dataclasses.field(default=default, metadata={_RULE: rule})


def seed() -> Any:
    """A field for the seed of a generator, 0 by default; at most what fits into 63 bits."""
    return whole(0, least=0, most=2**63 - 1)


def factor(default: str, *, names: tuple[str, ...]) -> Any:
    """A field for a factor above 0, or the name of a rule that tells it."""
    known = ", ".join(map(repr, names))
    rule = _Rule(
        lambda value: (
            value in names
            if isinstance(value, str)
            else isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf
        ),
        f"{known} or a number above 0",
        sys.float_info.max,
    )
    return dataclasses.field(default=default, metadata={_RULE: rule})


def flag(default: bool) -> Any:
    """A field for True or False."""
    rule = _Rule(lambda value: isinstance(value, bool), "True or False")
    return dataclasses.field(default=default, metadata={_RULE: rule})


def maybe() -> Any:
    """A field for True, False or None, which is the default: it depends."""
    rule = _Rule(lambda value: value is None or isinstance(value, bool), "True, False or None")
    return dataclasses.field(default=None, metadata={_RULE: rule})


def mapping() -> Any:
    """A field for a mapping, empty by default."""
    rule = _Rule(lambda value: isinstance(value, Mapping), "a mapping")
    return dataclasses.field(default_factory=dict, metadata={_RULE: rule})


def numbers(default: tuple[float, ...], *, least: float, words: str) -> Any:
    """A field for a tuple of finite numbers of at least ``least``; ``words`` say what it is."""
    rule = _Rule(
        lambda value: (
            isinstance(value, (tuple, list))
            and len(value) > 0
            and not any(isinstance(each, bool) for each in value)
            and all(isinstance(each, (int, float)) and least <= each < math.inf for each in value)
        ),
        words,
    )
    return dataclasses.field(default=default, metadata={_RULE: rule})


def wholes(default: tuple[int, ...], *, least: int = 1, most: int = 10**9) -> Any:
    """A field for a tuple of whole numbers, which may be empty."""
    rule = _Rule(
        lambda value: (
            isinstance(value, (tuple, list))
            and not any(isinstance(each, bool) for each in value)
            and all(isinstance(each, int) and least <= each <= most for each in value)
        ),
        f"a tuple of whole numbers from {least} to {most}",
    )
    return dataclasses.field(default=default, metadata={_RULE: rule})


class Hyperparameters:
    """Base of frozen dataclasses that hold the options of something.

    Examples
    --------
    >>> import dataclasses
    >>> @dataclasses.dataclass(frozen=True)
    ... class WalkSettings(Hyperparameters):
    ...     length: float = number(1.0, above=0)
    ...     presets = {"paper": {"length": 0.5}}
    >>> WalkSettings.of({"preset": "paper"})
    WalkSettings(length=0.5)
    >>> WalkSettings.of({"lenght": 2.0})
    Traceback (most recent call last):
        ...
    rose_carla.errors.PlanError: Unknown hyper-parameter 'lenght': did you mean 'length'? Known: 'length', 'preset'.
    """

    #: What is raised for a value that cannot be.
    error: ClassVar[type[RoseCarlaError]] = PlanError
    #: From a name to values that belong together, such as a paper's; chosen by ``{"preset": name}``.
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __post_init__(self) -> None:
        for each in self._fields():
            rule, given = each.metadata.get(_RULE), getattr(self, each.name)
            value = _plain(given)
            if rule is not None and not rule.allows(value):
                raise self.error(f"{each.name} has to be {rule.words}, got {shown(given)}.")
            if rule is not None and isinstance(value, (int, float)) and value > rule.most:
                raise self.error(f"{each.name} has to be at most {rule.most:.2g}, got {shown(given)}.")
            object.__setattr__(self, each.name, value)

    @classmethod
    def _fields(cls) -> tuple[dataclasses.Field[Any], ...]:
        return dataclasses.fields(cls)  # type: ignore[arg-type]

    @classmethod
    def of(
        cls: type[Self],
        hyperparams: Mapping[str, Any] | None,
        defaults: Mapping[str, Any] | None = None,
        kind: str = "hyper-parameter",
    ) -> Self:
        """Settings from a mapping such as CARLA's ``hyperparams``.

        Parameters
        ----------
        hyperparams
            Values by name. ``preset`` names values of :attr:`presets`, over which the others go.
        defaults
            Instead of the class's own.
        kind
            What a name stands for, in messages.

        Raises
        ------
        RoseCarlaError
            For an unknown name, with the close match, or a value that cannot be.
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
            chosen = {key: _over(preset.get(key), value) for key, value in chosen.items()}
        optional = [key for key, value in chosen.items() if isinstance(value, str) and value == _OPTIONAL]
        chosen.update(dict.fromkeys(optional))
        return cls(**{**(defaults or {}), **preset, **chosen})

    @classmethod
    def carla_defaults(cls, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """CARLA's ``_DEFAULT_HYPERPARAMS``, in which None would stand for an option that has to be given."""
        values = cls(**defaults).as_dict()
        return {name: _OPTIONAL if value is None else value for name, value in values.items()}

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as for JSON."""
        values = {each.name: getattr(self, each.name) for each in self._fields()}
        return {
            name: list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
            for name, value in values.items()
        }


def _plain(value: Any) -> Any:
    """Numbers of numpy as Python's own, also inside of lists and mappings."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    if isinstance(value, np.ndarray):
        return tuple(value.tolist())
    if isinstance(value, (tuple, list)):
        return tuple(_plain(each) for each in value)
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, Mapping) else value


def _over(preset: Any, value: Any) -> Any:
    """A value over a preset's; mappings key by key."""
    return {**preset, **value} if isinstance(preset, Mapping) and isinstance(value, Mapping) else value
