"""Noise around a state: Gaussian, and the paper's plausible noise (Definition 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from rose_carla.errors import NoiseError, short_repr
from rose_carla.noise.density import Density

#: One generator for all states, or one per state: then a state's noise depends on its own generator alone.
Randomness = np.random.Generator | Sequence[np.random.Generator]
#: Floats held at once while moments are computed: 64 MB.
_MAX_FLOATS = 8_000_000


class SharedGenerators(list[np.random.Generator]):
    """Generators each of which serves several consecutive states: the particles of one plan."""


@dataclass(frozen=True)
class CommonNoise:
    """Seed of random numbers that all states share, so that differences between states vary little."""

    seed: int


class Noise(Protocol):
    """Interface of noise; ``states`` are (b, d), ``variance`` is a number or one per state."""

    def sample(
        self, states: np.ndarray, variance: float | np.ndarray, n_samples: int, rng: Randomness | CommonNoise
    ) -> np.ndarray:
        """Draw noisy versions of each state, shape (b, n_samples, d)."""

    def mean(self, states: np.ndarray, variance: float | np.ndarray) -> np.ndarray:
        """Return the mean of the noisy versions of each state, shape (b, d)."""

    def covariance(self, states: np.ndarray, variance: float | np.ndarray) -> np.ndarray:
        """Return the covariance of the noisy versions of each state, shape (b, d, d)."""


class GaussianNoise:
    r"""x' drawn from N(x, s^2 I), the noise of the robust recourse literature.

    Parameters
    ----------
    relative_noise
        (d,) standard deviation of each feature relative to s; default: 1.

    Examples
    --------
    >>> import numpy as np
    >>> GaussianNoise().sample(np.zeros((2, 3)), 0.01, 5, np.random.default_rng(0)).shape
    (2, 5, 3)
    """

    def __init__(self, relative_noise: np.ndarray | None = None) -> None:
        self.relative_noise = relative_noise

    def sample(
        self, states: np.ndarray, variance: float | np.ndarray, n_samples: int, rng: Randomness | CommonNoise
    ) -> np.ndarray:
        """Draw noisy versions of each state, shape (b, n_samples, d)."""
        normals = _draw_normals(rng, (len(states), n_samples, states.shape[1]))
        if self.relative_noise is not None:
            normals = normals * self.relative_noise
        return states[:, None, :] + np.sqrt(_per_state(variance, states))[:, None, None] * normals

    def mean(self, states: np.ndarray, variance: float | np.ndarray) -> np.ndarray:
        """Return the states themselves."""
        return states.copy()

    def covariance(self, states: np.ndarray, variance: float | np.ndarray) -> np.ndarray:
        """Return s^2 I for each state, or s^2 times the squares of the relative noise."""
        scale = np.ones(states.shape[1]) if self.relative_noise is None else self.relative_noise
        return _per_state(variance, states)[:, None, None] * np.diag(scale**2)


class PlausibleNoise:
    r"""x' drawn from the density c N(x, s^2 I) K (the paper's Definition 1), exactly.

    The product of a Gaussian and a mixture of Gaussians is a mixture of Gaussians. With kernels N(x_j, H),

    .. math::
        p_x = \sum_j w_j N(m_j, C), \quad C = (I/s^2 + H^{-1})^{-1}, \quad m_j = C(x/s^2 + H^{-1} x_j), \quad
        w_j \propto N(x;\, x_j, s^2 I + H)

    so a draw picks j by its weight and adds a normal number: no proposals, no resampling, no bias.

    Parameters
    ----------
    density
        K, fitted; its relative noise, if it has any, takes the place of I.

    Examples
    --------
    >>> import numpy as np
    >>> from rose_carla.noise import Density
    >>> rows = np.random.default_rng(0).random((100, 3))
    >>> noise = PlausibleNoise(Density().fit(rows))
    >>> noise.sample(rows[:2], 0.01, 5, np.random.default_rng(0)).shape
    (2, 5, 3)
    """

    def __init__(self, density: Density) -> None:
        if not isinstance(density, Density):
            raise NoiseError(
                f"Plausible noise needs a Density, such as density_of(mlmodel), got {short_repr(density)}."
            )
        density.check_fitted()
        self.density = density

    def sample(
        self, states: np.ndarray, variance: float | np.ndarray, n_samples: int, rng: Randomness | CommonNoise
    ) -> np.ndarray:
        """Draw noisy versions of each state, shape (b, n_samples, d)."""
        spread = _per_state(variance, states)
        seeds = _draw_seeds(rng, len(states))
        is_noisy = spread > 0
        if is_noisy.all():
            return self.density.draw(states, spread, n_samples, seeds)
        samples = np.repeat(states[:, None, :], n_samples, axis=1)
        if is_noisy.any():
            samples[is_noisy] = self.density.draw(states[is_noisy], spread[is_noisy], n_samples, seeds[is_noisy])
        return samples

    def mean(self, states: np.ndarray, variance: float | np.ndarray) -> np.ndarray:
        """Return sum_j w_j m_j for each state."""
        return self._moments(states, variance)[0]

    def covariance(self, states: np.ndarray, variance: float | np.ndarray) -> np.ndarray:
        """Return C + sum_j w_j m_j m_j' - mean mean' for each state."""
        return self._moments(states, variance)[1]

    def _moments(self, states: np.ndarray, variance: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = np.empty(states.shape)
        covariance = np.empty((*states.shape, self.density.width))
        for rows, weights, means, component in self.components(states, variance):
            mean[rows] = np.einsum("bj,bjk->bk", weights, means)
            centred = means - mean[rows][:, None, :]
            between = np.einsum("bj,bjk,bjl->bkl", weights, centred, centred, optimize=True)
            covariance[rows] = component + between
        return mean, covariance

    def components(
        self, states: np.ndarray, variance: float | np.ndarray
    ) -> Iterator[tuple[slice, np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the mixtures in parts of bounded memory: rows, w (p, n), m (p, n, d) and C (p, d, d)."""
        spread = _per_state(variance, states)
        step = max(1, _MAX_FLOATS // self.density.points_.size)
        for start in range(0, len(states), step):
            rows = slice(start, start + step)
            weights = np.exp(self.density.log_weights(states[rows], spread[rows]))
            means = self.density.means(states[rows], spread[rows])
            yield rows, weights, means, self.density.component_covariance(spread[rows])


def _per_state(variance: float | np.ndarray, states: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.asarray(variance, dtype=float), len(states)).copy()


def _draw_seeds(rng: Randomness | CommonNoise, n: int) -> np.ndarray:
    if isinstance(rng, CommonNoise):
        return np.full(n, rng.seed, dtype=np.uint64)
    if isinstance(rng, np.random.Generator):
        return rng.integers(2**64, size=n, dtype=np.uint64)
    per_generator = n // len(rng)
    # raw bits: a call of integers() for a few numbers takes longer than drawing them
    return np.concatenate([np.asarray(generator.bit_generator.random_raw(per_generator)) for generator in rng])


def _draw_normals(rng: Randomness | CommonNoise, shape: tuple[int, ...]) -> np.ndarray:
    if isinstance(rng, CommonNoise):
        return np.broadcast_to(np.random.default_rng(rng.seed).standard_normal(shape[1:]), shape)
    if isinstance(rng, np.random.Generator):
        return rng.standard_normal(shape)
    normals = np.empty(shape)
    per_generator = shape[0] // len(rng)
    for i, generator in enumerate(rng):
        generator.standard_normal(out=normals[i * per_generator : (i + 1) * per_generator])
    return normals
