"""Hyper-parameters: what a value may be, what a name may be, and what is said about it."""

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
    """A subclass with another default and a field more."""

    speed: float = number(0.1, ge=0, lt=0.2)
    coffee: bool = flag(True)


@dataclass(frozen=True)
class Plain(Hyperparameters):
    """No presets, another error."""

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
def test_allowed_values_are_kept_as_plain_ones(name, values):
    """Numbers of numpy become Python's own: torch and JSON take no others."""
    for value in values:
        kept = getattr(Walk.of({name: value}), name)
        assert kept == (tuple(value) if isinstance(value, list) else value)
        inside = kept if isinstance(kept, tuple) else kept.values() if isinstance(kept, dict) else [kept]
        assert all(type(each) in (bool, int, float, str) for each in inside)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("length", [0, -1, 10.001, np.nan, np.inf, "3", None, True, [3]], "above 0 and at most 10"),
        ("speed", [-1e-9, 1, np.nan, np.bool_(True), 1j], "at least 0 and below 1"),
        ("slope", [np.inf, -np.inf, np.nan, "0"], "finite"),
        ("steps", [0, -3, 2.0, True, "5", None, np.float64(5)], "a whole number of at least 1"),
        ("rests", [-1, 0.5], "a whole number of at least 0"),
        ("uphill", [0, 1, "yes", None], "True or False"),
        ("pauses", [(), 1.0, (-1.0,), (np.inf,), (np.nan,), ("1",), "12", {1.0}], "pauses from 0 on"),
        ("shoes", [[], None, "left"], "a mapping"),
    ],
)
def test_other_values_are_refused_with_the_rule_and_the_value(name, values, words):
    for value in values:
        with pytest.raises(PlanError) as told:
            Walk.of({name: value})
        assert str(told.value) == f"{name} has to be {words}, got {value!r}."
        with pytest.raises(PlanError):
            Walk(**{name: value})


def test_without_anything_the_defaults_hold():
    assert Walk.of(None) == Walk.of({}) == Walk()
    assert Stroll.of({}).speed == 0.1
    assert Walk().shoes == {}
    assert Walk().shoes is not Walk().shoes
    for each in fields(Walk):
        if each.name != "shoes":
            assert getattr(Walk(), each.name) == each.default


def test_presets_go_over_defaults_and_values_over_presets():
    assert Walk.of({"preset": "long"}) == Walk(length=9.0, steps=50)
    assert Walk.of({"preset": "long", "length": 2.0}) == Walk(length=2.0, steps=50)
    defaults = {"length": 3.0, "rests": 4}
    assert Walk.of({}, defaults) == Walk(length=3.0, rests=4)
    assert Walk.of({"preset": "short"}, defaults) == Walk(length=0.5, rests=4)
    assert Walk.of({"preset": "short", "rests": 1}, defaults) == Walk(length=0.5, rests=1)


def test_a_subclass_has_its_parents_rules_and_presets():
    assert Stroll.of({"preset": "long"}) == Stroll(length=9.0, steps=50)
    with pytest.raises(PlanError, match="length has to be above 0"):
        Stroll.of({"length": -1})
    with pytest.raises(PlanError, match=r"below 0\.2, got 0\.5"):
        Stroll.of({"speed": 0.5})


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
def test_unknown_names_are_told_with_the_close_match(hyperparams, message):
    with pytest.raises(PlanError) as told:
        Walk.of(hyperparams)
    assert str(told.value).startswith(message)


def test_an_unhashable_preset_is_told_too():
    with pytest.raises(PlanError, match=r"Unknown preset \['long'\]"):
        Walk.of({"preset": ["long"]})


def test_without_presets_there_is_no_such_name():
    with pytest.raises(NoiseError, match=r"Unknown hyper-parameter 'preset': Known: 'length'\.$"):
        Plain.of({"preset": "long"})


def test_the_kind_of_a_name_and_the_error_can_be_chosen():
    with pytest.raises(NoiseError, match="Unknown option of ppo 'len'"):
        Plain.of({"len": 2}, kind="option of ppo")
    with pytest.raises(NoiseError, match="length has to be above 0 and finite, got 0"):
        Plain(length=0)
    assert issubclass(NoiseError, RoseCarlaError)


@pytest.mark.parametrize("wrong", [[("length", 2)], "length", 3, {"length"}])
def test_anything_but_a_mapping_is_refused(wrong):
    with pytest.raises(
        PlanError, match=f"dictionary from each hyper-parameter to its value, got {type(wrong).__name__}"
    ):
        Walk.of(wrong)


def test_the_mapping_is_left_alone_and_may_be_of_any_kind():
    given = {"preset": "long", "rests": 2}
    first = Walk.of(given)
    assert given == {"preset": "long", "rests": 2}
    assert Walk.of(MappingProxyType(given)) == first


def test_settings_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Walk().length = 2.0


def test_plain_values_lead_back_to_the_same_settings():
    settings = Walk(length=2.5, pauses=(3.0, 4.0), shoes=MappingProxyType({"left": 1}))
    values = settings.as_dict()
    assert list(values) == [each.name for each in fields(Walk)]
    assert values["pauses"] == [3.0, 4.0]
    assert json.loads(json.dumps(values)) == values
    again = Walk.of(json.loads(json.dumps(values)))
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
        ({"ppo": {"n_environments": 2**40}}, "n_environments has to be at most 1e\\+05"),
        ({"multiples": [[1], 1]}, "multiples have to be whole numbers"),
        ({"multiples": [1, 10**40]}, "multiples have to be whole numbers"),
        ({"monotone": {"age": ["increase"]}}, "Unknown direction"),
    ],
)
def test_odd_options_of_rose_are_refused_before_anything_is_computed(compas_linear, options, message):
    with pytest.raises(PlanError, match=message):
        RoseOne(compas_linear, {"fit": False, **options})


def test_a_number_in_an_array_without_dimensions_is_a_number():
    assert RoseSettings.from_mapping({"variance": np.array(0.5), "seed": np.array(2**62)}).variance == 0.5


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, "1", None, [1]])
def test_invalid_seed_is_rejected(seed):
    with pytest.raises(NoiseError, match="seed must be an integer from 0 to 9223372036854775807, got "):
        check_seed(seed, NoiseError)


def test_numpy_seed_becomes_int():
    assert type(check_seed(np.int64(3))) is int
