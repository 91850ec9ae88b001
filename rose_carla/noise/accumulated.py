"""Noise along a path: NoisyStep (Algorithm 1) and accumulated plausible noise (Definition 2, Algorithm 2).

A plan is a list of actions, an action a vector in the encoded space. Plans of a batch are one array of shape (b, k, d);
shorter ones end in actions of zero, which mean staying put, without noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from rose_carla.errors import NoiseError, short_repr
from rose_carla.noise.arguments import (
    Randomness,
    SharedGenerators,
    check_count,
    check_generators,
    check_number,
    check_plans,
    check_states,
    numbers,
)
from rose_carla.noise.plausible import Noise, check_noise

#: A whole number of units may be missed by that much through rounding.
_SLACK = 1e-9
#: Numbers of one batch of particles: 32 MB.
_NUMBERS = 4_000_000
#: Most units of action in a plan.
_MOST_UNITS = 100_000


def noisy_step(
    states: np.ndarray, actions: np.ndarray, noise: Noise, variance: float, action_unit: float, rng: Randomness
) -> np.ndarray:
    """Implement one action in each state, with noise (Algorithm 1).

    The action is added to the state; the noise around the result has variance ``variance * |a|_1 / action_unit``. An
    action of zero leaves its state as it is.

    Parameters
    ----------
    states, actions
        (b, d).
    noise
        Gaussian or plausible.
    variance
        Variance for an action of one unit, the paper's sigma^2.
    action_unit
        Size of a unit, the paper's u.
    rng
        One generator, or one for each state.

    Examples
    --------
    >>> import numpy as np
    >>> from rose_carla.noise import GaussianNoise, noisy_step
    >>> states, actions = np.zeros((2, 3)), np.array([[0.0, 0.0, 0.0], [0.05, 0.0, 0.0]])
    >>> noisy_step(states, actions, GaussianNoise(), 0.0005, 0.025, np.random.default_rng(0))[0]
    array([0., 0., 0.])
    """
    states, actions = check_states(states), numbers("Actions", actions)
    if actions.shape != states.shape or not np.isfinite(actions).all():
        raise NoiseError(f"Expected one finite action of {states.shape[1]} numbers for each of {len(states)} states.")
    _check_unit(action_unit)
    check_number("variance", variance)
    check_noise(noise)
    sizes = np.abs(actions).sum(axis=1) / action_unit
    return noise.sample(states + actions, variance * sizes, 1, rng)[:, 0]


def unit_actions(actions: np.ndarray, action_unit: float) -> np.ndarray:
    """Split the actions of one plan, (k, d), into actions of size ``action_unit``, the last of each perhaps smaller.

    Order is kept and the total of each action is the same. Actions of zero are left out.

    Examples
    --------
    >>> unit_actions(np.array([[0.06, 0.0], [0.0, -0.025]]), 0.025).round(3).tolist()
    [[0.025, 0.0], [0.025, 0.0], [0.01, 0.0], [0.0, -0.025]]
    """
    _check_unit(action_unit)
    actions = numbers("Actions", actions)
    if actions.ndim != 2 or not np.isfinite(actions).all():
        raise NoiseError(f"Expected the finite actions of one plan as an array of shape (k, d), got {actions.shape}.")
    if np.abs(actions).sum() / action_unit > _MOST_UNITS:
        raise NoiseError(
            f"A plan takes more than {_MOST_UNITS:,} units of action, each of them a step: take a larger action_unit "
            f"than {action_unit:g}, or encode states so that features are in [0, 1]."
        )
    parts = [np.empty((0, actions.shape[1]))]
    for action in actions:
        units = np.abs(action).sum() / action_unit
        whole = int(units + _SLACK)
        rest = units - whole
        if units > 0:
            parts.append(np.repeat(action[None] / units, whole, axis=0))
            if rest > _SLACK:
                parts.append(action[None] * (rest / units))
    return np.concatenate(parts)


def one_shot_plan(
    factual: np.ndarray, counterfactual: np.ndarray, groups: Iterable[Sequence[int]], rng: np.random.Generator
) -> np.ndarray:
    """Plan for a counterfactual without an order of its own: one action for each changed feature, in random order.

    Parameters
    ----------
    factual, counterfactual
        (d,).
    groups
        Columns of each feature; a categorical feature changes all of its columns in one action.

    Returns
    -------
    (k, d) array
        k is the number of changed features.
    """
    start, end = numbers("A factual", factual), numbers("A counterfactual", counterfactual)
    if start.ndim != 1 or start.shape != end.shape or not np.isfinite([start, end]).all():
        raise NoiseError("A plan needs a finite factual and a finite counterfactual, both of shape (d,).")
    change = end - start
    groups = [list(columns) for columns in groups]
    named = sorted(column for columns in groups for column in columns)
    if len(set(named)) < len(named) or (named and not 0 <= named[0] <= named[-1] < len(change)):
        raise NoiseError(f"Every column belongs to one feature and is one of {len(change)}, got {short_repr(groups)}.")
    missed = set(np.flatnonzero(change)) - set(named)
    if missed:
        raise NoiseError(f"Columns {sorted(int(column) for column in missed)} change but belong to no feature.")
    check_generators(rng, 1)
    actions = []
    for columns in groups:
        action = np.zeros_like(change)
        action[columns] = change[columns]
        if action.any():
            actions.append(action)
    if not actions:
        return np.empty((0, len(change)))
    return np.stack(actions)[rng.permutation(len(actions))]


def execute(
    factuals: np.ndarray,
    plans: Sequence[np.ndarray],
    noise: Noise,
    variance: float,
    action_unit: float,
    n_particles: int,
    rng: Randomness,
) -> np.ndarray:
    """Where people end up who follow a plan noisily (Definition 2): ``n_particles`` independent tries for each plan.

    Every plan is split into unit actions and implemented as in :func:`noisy_step`, each try from where its last step
    ended.

    Parameters
    ----------
    factuals
        (b, d) where each plan starts.
    plans
        For each factual its actions in order, (k_i, d).
    variance, action_unit
        Noise of one unit of action, and its size.
    rng
        One generator, or one for each plan: then a plan's outcome does not depend on the others in the batch.

    Returns
    -------
    (b, n_particles, d) array
    """
    factuals = check_states(factuals)
    check_plans(plans, len(factuals))
    check_noise(noise)
    check_count("n_particles", n_particles)
    check_generators(rng, len(factuals))
    check_number("variance", variance)
    b, d = factuals.shape
    units = [unit_actions(plan, action_unit) for plan in plans]
    if any(plan.shape[1] != d for plan in units):
        raise NoiseError(f"Actions need {d} numbers each, like the factuals.")
    particles = np.repeat(factuals[:, None, :], n_particles, axis=1)
    rows_at_once = max(1, _NUMBERS // (n_particles * d))
    for step in range(max(len(plan) for plan in units)):
        active = [row for row in range(b) if step < len(units[row])]
        for start in range(0, len(active), rows_at_once):
            rows = active[start : start + rows_at_once]
            actions = np.stack([units[row][step] for row in rows])
            randomness = rng if isinstance(rng, np.random.Generator) else SharedGenerators(rng[row] for row in rows)
            # noisy_step for every particle, but what its plan's particles share is computed once
            spread = np.repeat(variance * (np.abs(actions).sum(axis=1) / action_unit), n_particles)
            reached = (particles[rows] + actions[:, None, :]).reshape(-1, d)
            particles[rows] = noise.sample(reached, spread, 1, randomness).reshape(len(rows), n_particles, d)
    return particles


def _check_unit(action_unit: float) -> None:
    check_number("The size of an action unit", action_unit, zero=False)
