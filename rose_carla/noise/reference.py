"""The paper's definitions in plain numpy: slow, obviously right, and not used by the package.

Tests compare the fast code with these functions. States are (d,), data points (n, d), plans lists of actions (d,); a
density K is the pair of its kernel centres and their covariance H. Variances and units are numbers, or arrays (d,) that
differ between columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Kernels = tuple[np.ndarray, np.ndarray]
Number = float | np.ndarray


def normal_density(x: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Return the density of N(mean, covariance) at points ``x``; points and means broadcast."""
    gap = x - mean
    squares = ((gap @ np.linalg.inv(covariance)) * gap).sum(axis=-1)
    return np.exp(-0.5 * squares) / np.sqrt(np.linalg.det(2 * np.pi * covariance))


def kernel_density(x: np.ndarray, kernels: Kernels) -> np.ndarray:
    """Return K at points ``x`` (m, d): the mean of the kernels N(x_j, H)."""
    points, covariance = kernels
    return normal_density(x[:, None], points, covariance).mean(axis=1)


def plausible_noise_density(x: np.ndarray, state: np.ndarray, variance: Number, kernels: Kernels) -> np.ndarray:
    """Return the density of plausible noise, up to the constant c, at points ``x`` (m, d): Definition 1.

    p_state(x') = c N(x'; state, variance I) K(x').
    """
    return normal_density(x, state, variance * np.eye(len(state))) * kernel_density(x, kernels)


def sample_plausible_noise(
    state: np.ndarray, variance: Number, kernels: Kernels, rng: np.random.Generator
) -> np.ndarray:
    """Draw x' from Definition 1 by rejection: propose N(state, variance I), accept with probability K(x') / max K."""
    points, covariance = kernels
    highest = normal_density(points[:1], points[0], covariance)[0]  # of one kernel, so K is nowhere above it
    while True:
        proposal = rng.multivariate_normal(state, variance * np.eye(len(state)))
        if rng.random() * highest < kernel_density(proposal[None], kernels)[0]:
            return proposal


def noisy_step(
    state: np.ndarray, action: np.ndarray, variance: Number, unit: Number, kernels: Kernels, rng: np.random.Generator
) -> np.ndarray:
    """Implement one action noisily: Algorithm 1, NoisyStep.

    The noise around the state that the action leads to has variance sigma^2 |a| / u, where |a| / u is the sum of
    |a_j| / u_j.
    """
    size = (np.abs(action) / unit).sum()
    if size == 0:
        return state
    return sample_plausible_noise(state + action, variance * size, kernels, rng)


def accumulate_noise(
    factual: np.ndarray,
    plan: Sequence[np.ndarray],
    variance: Number,
    unit: Number,
    kernels: Kernels,
    rng: np.random.Generator,
    noise_per: str = "unit",
) -> np.ndarray:
    """Return where a noisy execution of a plan ends: Definition 2.

    s_i = s'_{i-1} + a_i, and s'_i is plausible noise around s_i. Every action is implemented unit by unit, or as a
    whole with ``noise_per="action"``.
    """
    state = factual
    for action in plan:
        if noise_per == "action":
            state = noisy_step(state, action, variance, unit, kernels, rng)
            continue
        left = (np.abs(action) / unit).sum()
        direction = action / max(left, 1e-300)
        while left > 1e-9:
            size = min(1.0, left)
            state = noisy_step(state, direction * size, variance, unit, kernels, rng)
            left -= size
    return state


def invalidation_rate(favourable: Callable[[np.ndarray], np.ndarray], noisy: Sequence[np.ndarray]) -> float:
    """Return IR, the share of noisy versions of a counterfactual that are unfavourable: Proposition 1."""
    return 1.0 - sum(bool(favourable(state[None])[0]) for state in noisy) / len(noisy)


def accumulated_invalidation_rate(
    favourable: Callable[[np.ndarray], np.ndarray],
    factual: np.ndarray,
    plan: Sequence[np.ndarray],
    variance: Number,
    unit: Number,
    kernels: Kernels,
    n_samples: int,
    rng: np.random.Generator,
    noise_per: str = "unit",
) -> float:
    """Return IR_A over ``n_samples`` noisy executions of a plan: Algorithm 2.

    The paper prints the share of successes; by its equation for IR_A the rate is one minus that.
    """
    ends = [accumulate_noise(factual, plan, variance, unit, kernels, rng, noise_per) for _ in range(n_samples)]
    return invalidation_rate(favourable, ends)
