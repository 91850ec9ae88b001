"""Noise along a path: NoisyStep (the paper's Algorithm 1) and accumulated plausible noise (Definition 2).

A plan is a list of actions, an action a vector in the encoded space.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from rose_carla.errors import NoiseError
from rose_carla.noise.plausible import Noise, Randomness, SharedGenerators

#: What a NoisyStep of Definition 2 implements: a unit of action, or a whole action; see docs/noise.md.
NOISE_PER = ("unit", "action")
#: Rounding error allowed in an integer number of units.
_SLACK = 1e-9
#: Maximum number of units of action in a plan.
_MAX_UNITS = 100_000


def noisy_step(
    states: np.ndarray,
    actions: np.ndarray,
    noise: Noise,
    variance: float,
    action_unit: float | np.ndarray,
    rng: Randomness,
) -> np.ndarray:
    """Implement one action in each state, with noise (the paper's Algorithm 1, NoisyStep).

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
        Size of a unit, the paper's u, or (d,) that of each column.
    rng
        One generator, or one per state.

    Examples
    --------
    >>> import numpy as np
    >>> from rose_carla.noise import GaussianNoise, noisy_step
    >>> states, actions = np.zeros((2, 3)), np.array([[0.0, 0.0, 0.0], [0.05, 0.0, 0.0]])
    >>> noisy_step(states, actions, GaussianNoise(), 0.0005, 0.025, np.random.default_rng(0))[0]
    array([0., 0., 0.])
    """
    sizes = action_sizes(actions, action_unit)
    return noise.sample(states + actions, variance * sizes, 1, rng)[:, 0]


def action_sizes(actions: np.ndarray, action_unit: float | np.ndarray) -> np.ndarray:
    """Return the size in units of each of ``actions`` (..., d): |a|_1 / u, or the sum of |a_j| / u_j.

    Examples
    --------
    >>> actions = np.array([[0.05, 0.0], [0.05, -0.1]])
    >>> action_sizes(actions, 0.025).round(9).tolist(), action_sizes(actions, np.array([0.025, 0.1])).tolist()
    ([2.0, 6.0], [2.0, 3.0])
    """
    if np.ndim(action_unit) == 0:
        return np.abs(actions).sum(axis=-1) / action_unit
    return (np.abs(actions) / action_unit).sum(axis=-1)


def execute(
    factuals: np.ndarray,
    plans: Sequence[np.ndarray],
    noise: Noise,
    variance: float,
    action_unit: float | np.ndarray,
    n_particles: int,
    rng: Randomness,
    noise_per: str = "unit",
) -> np.ndarray:
    """Return where people end up who follow a plan noisily (the paper's Definition 2).

    Every plan is split into unit actions and implemented as in :func:`noisy_step`, each particle from where its last
    step ended. With ``noise_per="action"`` its actions are not split.

    Parameters
    ----------
    factuals
        (b, d) where each plan starts.
    plans
        For each factual its actions in order, (k_i, d).
    variance, action_unit
        Noise of one unit of action, and its size, or (d,) that of each column.
    n_particles
        Independent executions of each plan.
    rng
        One generator, or one per plan: then a plan's outcome does not depend on the others in the batch.
    noise_per
        ``"unit"`` for a NoisyStep per unit of action, ``"action"`` for one per action.

    Returns
    -------
    (b, n_particles, d) array
    """
    particles = np.repeat(factuals[:, None, :].astype(float), n_particles, axis=1)
    return continue_from(particles, plans, noise, variance, action_unit, rng, noise_per)


def continue_from(
    particles: np.ndarray,
    plans: Sequence[np.ndarray],
    noise: Noise,
    variance: float,
    action_unit: float | np.ndarray,
    rng: Randomness,
    noise_per: str = "unit",
) -> np.ndarray:
    """Return where ``particles`` (b, n, d) end up if those of row i follow plan i noisily; see :func:`execute`."""
    particles = particles.copy()
    n_particles, width = particles.shape[1:]
    units = [unit_actions(plan, action_unit) if noise_per == "unit" else plan[plan.any(axis=1)] for plan in plans]
    for step in range(max((len(plan) for plan in units), default=0)):
        rows = [row for row, plan in enumerate(units) if step < len(plan)]
        actions = np.stack([units[row][step] for row in rows])
        shared = rng if isinstance(rng, np.random.Generator) else SharedGenerators(rng[row] for row in rows)
        # noisy_step for every particle, but with the variance of a plan computed once
        spread = np.repeat(variance * action_sizes(actions, action_unit), n_particles)
        reached = (particles[rows] + actions[:, None, :]).reshape(-1, width)
        particles[rows] = noise.sample(reached, spread, 1, shared).reshape(len(rows), n_particles, width)
    return particles


def unit_actions(actions: np.ndarray, action_unit: float | np.ndarray) -> np.ndarray:
    """Split the actions of one plan, (k, d), into actions of one unit, the last of each perhaps smaller.

    ``action_unit`` is the size of a unit, or (d,) that of each column. Order is kept and the total of each action is
    the same. Actions of zero are left out.

    Raises
    ------
    NoiseError
        If there are more than 100,000 units.

    Examples
    --------
    >>> unit_actions(np.array([[0.06, 0.0], [0.0, -0.025]]), 0.025).round(3).tolist()
    [[0.025, 0.0], [0.025, 0.0], [0.01, 0.0], [0.0, -0.025]]
    """
    if action_sizes(actions, action_unit).sum() > _MAX_UNITS:
        raise NoiseError(
            f"A plan has more than {_MAX_UNITS:,} units of action, each of them a step: use a larger action_unit than "
            f"{np.min(action_unit):g}, or encode states so that features are in [0, 1]."
        )
    parts = [np.empty((0, actions.shape[1]))]
    for action in actions:
        units = action_sizes(action, action_unit)
        n_full = int(units + _SLACK)
        rest = units - n_full
        if units > 0:
            parts.append(np.repeat(action[None] / units, n_full, axis=0))
            if rest > _SLACK:
                parts.append(action[None] * (rest / units))
    return np.concatenate(parts)


def one_shot_plan(
    factual: np.ndarray, counterfactual: np.ndarray, groups: Iterable[Sequence[int]], rng: np.random.Generator
) -> np.ndarray:
    """Plan for a counterfactual without an order of its own: one action per changed feature, in random order.

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
    change = counterfactual - factual
    actions = []
    for columns in groups:
        action = np.zeros_like(change)
        action[list(columns)] = change[list(columns)]
        if action.any():
            actions.append(action)
    if not actions:
        return np.empty((0, len(change)))
    return np.stack(actions)[rng.permutation(len(actions))]
