"""What the functions of the noise ask of their arguments: each check says what is wrong with one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rose_carla.errors import NoiseError, error_text, short_repr

#: One generator for all states, or one for each entry of the first axis: then a row's noise depends on its own alone.
Randomness = np.random.Generator | Sequence[np.random.Generator]
#: The largest value of a state: more would overflow. And the most noisy versions or kernels of anything.
_LARGEST, _MOST = 1e300, 10**9


class SharedGenerators(list[np.random.Generator]):
    """Generators each of which serves several consecutive states: the particles of one plan."""


def check_states(states: np.ndarray, width: int | None = None) -> np.ndarray:
    """``states`` as a contiguous array of shape (b, width), or an error that says what is wrong with it."""
    states = np.ascontiguousarray(numbers("States", states))
    if states.ndim != 2 or states.shape[1] == 0 or (width is not None and states.shape[1] != width):
        raise NoiseError(f"Expected states of shape (b, {'d' if width is None else width}), got {states.shape}.")
    if len(states) == 0:
        raise NoiseError("The batch of states is empty.")
    largest = max(states.max(initial=0.0), -states.min(initial=0.0))
    if not np.isfinite(largest):
        raise NoiseError("States must not hold missing or infinite values: drop rows without a counterfactual first.")
    if largest > _LARGEST:
        raise NoiseError(f"States hold values beyond {_LARGEST:g}: encode them first, features are scaled to [0, 1].")
    return states


def numbers(what: str, values: object) -> np.ndarray:
    """``values`` as an array of real numbers, or an error that names ``what`` is none."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "cmM":  # numpy would drop imaginary parts, and count nanoseconds
            raise TypeError(f"they are of type {array.dtype}")
        return np.asarray(array, dtype=float)
    except (TypeError, ValueError, OverflowError) as error:
        raise NoiseError(f"{what} have to be an array of numbers: {error_text(error)}") from error


def check_number(name: str, value: object, zero: bool = True) -> None:
    """Refuse what is no finite number above 0, or from 0 on."""
    try:
        known = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        fits = known and 0 <= float(value) < np.inf and (zero or value != 0)  # type: ignore[arg-type]
    except (TypeError, OverflowError):  # a complex number, or a whole one that is too large
        fits = False
    if not fits:
        wanted = "and not negative" if zero else "above 0"
        raise NoiseError(f"{name} has to be a finite number {wanted}, got {short_repr(value)}.")


def check_count(name: str, value: object, least: int = 1) -> None:
    """Refuse what is no whole number of at least ``least``, or more than fits into memory."""
    if not _whole(value) or not least <= value <= _MOST:  # type: ignore[operator]
        raise NoiseError(
            f"{name} has to be a whole number of at least {least}, at most {_MOST:,}, got {short_repr(value)}."
        )


def check_seed(seed: object) -> None:
    """Refuse what is no whole number from 0 on."""
    if not _whole(seed) or seed < 0:  # type: ignore[operator]
        raise NoiseError(f"A seed has to be a whole number that is not negative, got {short_repr(seed)}.")


def check_generators(rng: Randomness, n: int) -> None:
    """One generator, or exactly one for each of ``n`` entries."""
    if isinstance(rng, np.random.Generator) or (isinstance(rng, SharedGenerators) and n % len(rng) == 0):
        return
    if not isinstance(rng, Sequence) or not all(isinstance(each, np.random.Generator) for each in rng):
        raise NoiseError(
            f"Expected a generator, such as np.random.default_rng(0), or one for each of {n} entries, got {short_repr(rng)}."
        )
    if len(rng) != n:
        raise NoiseError(f"Expected one generator, or one for each of {n} entries, got {len(rng)} generators.")


def check_plans(plans: Sequence[np.ndarray] | np.ndarray, n: int) -> None:
    """Refuse what is no sequence of one plan for each of ``n`` factuals."""
    if not isinstance(plans, (Sequence, np.ndarray)) or isinstance(plans, (str, bytes)):
        raise NoiseError(f"Expected the plans as a list of arrays of actions, got {short_repr(plans)}.")
    if len(plans) != n:
        raise NoiseError(f"Expected one plan for each of {n} factuals, got {len(plans)}.")


def _whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
