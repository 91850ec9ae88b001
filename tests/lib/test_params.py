"""Hyper-parameters: constraints on values, names, presets and messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, fields
from types import MappingProxyType

import numpy as np
import pytest
from rose_carla import RoseOne
from rose_carla._lib.params import Hyperparameters, check_seed, flag, integer, mapping, number, numbers
from rose_carla.errors import NoiseError, PlanError, RoseCarlaError
from rose_carla.rose import RoseSettings


@dataclass(frozen=True)
class Walk(Hyperparameters):
    """One field of every kind."""

    length: float = number(1.0, gt=0, le=10)
    speed: float = number(0.5, ge=0, lt=1)
    slope: float = number(0.0)
    steps: int = integer(5)
    rests: int = integer(0, ge=0)
    uphill: bool = flag(False)
    pauses: tuple[float, ...] = numbers((1.0, 0.0), ge=0, words="pauses from 0 on")
    shoes: Mapping[str, int] = mapping()
    name: str = "walk"

    presets = {"long": {"length": 9.0, "steps": 50}, "short": {"length": 0.5}}


@dataclass(frozen=True)
class Stroll(Walk):
    """Subclass with another default and one more field."""

    speed: float = number(0.1, ge=0, lt=0.2)
    coffee: bool = flag(True)


@dataclass(frozen=True)
class Plain(Hyperparameters):
    """Settings without presets, with another error class."""

    length: float = number(1.0, gt=0)

    error = NoiseError


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("length", [1e-300, 1, 10, 10.0, np.float32(3), np.int64(3)]),
        ("speed", [0, 0.0, 0.999, np.float64(0.5)]),
        ("slope", [-1e300, 1e300]),
        ("steps", [1, 10**9, np.int32(7)]),
        ("rests", [0, np.uint8(3)]),
        ("uphill", [True, False, np.True_]),
        ("pauses", [(0,), [0.5, 3], (1e9,), (np.float64(2),)]),
        ("shoes", [{}, {"left": 1}, MappingProxyType({"right": 2})]),
        ("name", ["anything", 3]),
    ],
)
def test_valid_values_become_plain_python_values(name, values):
    """torch and JSON do not accept numpy scalars."""
    for value in values:
        kept = getattr(Walk.from_mapping({name: value}), name)
        assert kept == (tuple(value) if isinstance(value, list) else value)
        inside = kept if isinstance(kept, tuple) else kept.values() if isinstance(kept, dict) else [kept]
        assert all(type(each) in (bool, int, float, str) for each in inside)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("length", [0, -1, 10.001, np.nan, np.inf, "3", None, True, [3]], "above 0 and at most 10"),
        ("speed", [-1e-9, 1, np.nan, np.bool_(True), 1j], "at least 0 and below 1"),
        ("slope", [np.inf, -np.inf, np.nan, "0"], "finite"),
        ("steps", [0, -3, 2.0, True, "5", None, np.float64(5)], "an integer of at least 1"),
        ("rests", [-1, 0.5], "an integer of at least 0"),
        ("uphill", [0, 1, "yes", None], "True or False"),
        ("pauses", [(), 1.0, (-1.0,), (np.inf,), (np.nan,), ("1",), "12", {1.0}], "pauses from 0 on"),
        ("shoes", [[], None, "left"], "a mapping"),
    ],
)
def test_invalid_values_raise_an_error_with_the_constraint_and_the_value(name, values, words):
    for value in values:
        with pytest.raises(PlanError) as error:
            Walk.from_mapping({name: value})
        assert str(error.value) == f"{name} must be {words}, got {value!r}."
        with pytest.raises(PlanError):
            Walk(**{name: value})


def test_defaults():
    assert Walk.from_mapping(None) == Walk.from_mapping({}) == Walk()
    assert Stroll.from_mapping({}).speed == 0.1
    assert Walk().shoes == {}
    assert Walk().shoes is not Walk().shoes
    for each in fields(Walk):
        if each.name != "shoes":
            assert getattr(Walk(), each.name) == each.default


def test_presets_override_defaults_and_values_override_presets():
    assert Walk.from_mapping({"preset": "long"}) == Walk(length=9.0, steps=50)
    assert Walk.from_mapping({"preset": "long", "length": 2.0}) == Walk(length=2.0, steps=50)
    defaults = {"length": 3.0, "rests": 4}
    assert Walk.from_mapping({}, defaults) == Walk(length=3.0, rests=4)
    assert Walk.from_mapping({"preset": "short"}, defaults) == Walk(length=0.5, rests=4)
    assert Walk.from_mapping({"preset": "short", "rests": 1}, defaults) == Walk(length=0.5, rests=1)


def test_subclass_inherits_constraints_and_presets():
    assert Stroll.from_mapping({"preset": "long"}) == Stroll(length=9.0, steps=50)
    with pytest.raises(PlanError, match="length must be above 0"):
        Stroll.from_mapping({"length": -1})
    with pytest.raises(PlanError, match=r"below 0\.2, got 0\.5"):
        Stroll.from_mapping({"speed": 0.5})


@pytest.mark.parametrize(
    ("hyperparams", "message"),
    [
        ({"lenght": 2}, "Unknown hyper-parameter 'lenght': did you mean 'length'? Known: 'length', 'name', "),
        ({"Steps": 2}, "Unknown hyper-parameter 'Steps': did you mean 'steps'? Known: "),
        ({"preset": "lng"}, "Unknown preset 'lng': did you mean 'long'? Known: 'long', 'short'."),
        ({"preset": None}, "Unknown preset None: Known: 'long', 'short'."),
        ({"presets": "long"}, "Unknown hyper-parameter 'presets': did you mean 'preset'? Known: "),
        ({3: 4}, "Unknown hyper-parameter 3: Known: "),
    ],
)
def test_unknown_name_suggests_close_match(hyperparams, message):
    with pytest.raises(PlanError) as error:
        Walk.from_mapping(hyperparams)
    assert str(error.value).startswith(message)


def test_unhashable_preset_raises_an_error():
    with pytest.raises(PlanError, match=r"Unknown preset \['long'\]"):
        Walk.from_mapping({"preset": ["long"]})


def test_preset_is_unknown_without_presets():
    with pytest.raises(NoiseError, match=r"Unknown hyper-parameter 'preset': Known: 'length'\.$"):
        Plain.from_mapping({"preset": "long"})


def test_kind_and_error_class_of_messages():
    with pytest.raises(NoiseError, match="Unknown option of ppo 'len'"):
        Plain.from_mapping({"len": 2}, kind="option of ppo")
    with pytest.raises(NoiseError, match="length must be above 0 and finite, got 0"):
        Plain(length=0)
    assert issubclass(NoiseError, RoseCarlaError)


@pytest.mark.parametrize("wrong", [[("length", 2)], "length", 3, {"length"}])
def test_non_mapping_raises_an_error(wrong):
    with pytest.raises(
        PlanError, match=f"dictionary from each hyper-parameter to its value, got {type(wrong).__name__}"
    ):
        Walk.from_mapping(wrong)


def test_any_mapping_is_accepted_and_left_unchanged():
    given = {"preset": "long", "rests": 2}
    first = Walk.from_mapping(given)
    assert given == {"preset": "long", "rests": 2}
    assert Walk.from_mapping(MappingProxyType(given)) == first


def test_settings_are_frozen():
    with pytest.raises(FrozenInstanceError):
        Walk().length = 2.0


def test_as_dict_round_trip_through_json():
    settings = Walk(length=2.5, pauses=(3.0, 4.0), shoes=MappingProxyType({"left": 1}))
    values = settings.as_dict()
    assert list(values) == [each.name for each in fields(Walk)]
    assert values["pauses"] == [3.0, 4.0]
    assert json.loads(json.dumps(values)) == values
    again = Walk.from_mapping(json.loads(json.dumps(values)))
    assert again.as_dict() == values
    values["shoes"]["right"] = 2
    assert settings.as_dict()["shoes"] == {"left": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variance": np.array([1, 2])}, "got a value of type ndarray"),
        ({"variance": 10**400}, "at most 1.8e\\+308"),
        ({"ppo": {"learning_rate": 1e300}}, "above 0 and at most 1e\\+06"),
        ({"n_samples": 2**62}, "at most 1e\\+09"),
        ({"bandwidth": ["scott"]}, "'scott', 'silverman' or a number above 0"),
        ({"bandwidth": "scot"}, "'scott', 'silverman' or a number above 0"),
        ({"ppo": {"n_envs": 2**40}}, "n_envs must be at most 1e\\+05"),
        ({"multiples": [[1], 1]}, "multiples must be a tuple of integers from 1 to 1000000"),
        ({"multiples": [1, 10**40]}, "multiples must be a tuple of integers from 1 to 1000000"),
        ({"monotone": {"age": ["increase"]}}, "Unknown direction"),
    ],
)
def test_invalid_options_of_rose_raise_an_error_at_construction(compas_linear, options, message):
    with pytest.raises(PlanError, match=message):
        RoseOne(compas_linear, {"fit": False, **options})


def test_zero_dimensional_array_is_a_number():
    assert RoseSettings.from_mapping({"variance": np.array(0.5), "seed": np.array(2**62)}).variance == 0.5


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, "1", None, [1]])
def test_invalid_seed_is_rejected(seed):
    with pytest.raises(NoiseError, match="seed must be an integer from 0 to 9223372036854775807, got "):
        check_seed(seed, NoiseError)


def test_numpy_seed_becomes_int():
    assert type(check_seed(np.int64(3))) is int
