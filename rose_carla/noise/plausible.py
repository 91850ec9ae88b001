"""Noise around a state: Gaussian, and the paper's plausible noise (Definition 1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from rose_carla.errors import NoiseError, short_repr
from rose_carla.noise.arguments import Randomness, check_count, check_generators, check_states, numbers
from rose_carla.noise.density import Density

#: Numbers held at once while moments are computed: 64 MB.
_NUMBERS = 8_000_000


class Noise(Protocol):
    """What a noise can do; ``states`` are (b, d), ``variance`` is a number or one for each state."""

    def sample(self, states: np.ndarray, variance: float | np.ndarray, n_samples: int, rng: Randomness) -> np.ndarray:
        """Noisy versions of each state, shape (b, n_samples, d)."""

    def mean(self, states: np.ndarray, variance: float | np.ndarray) -> np.ndarray:
        """Mean of the noisy versions of each state, shape (b, d)."""

    def covariance(self, states: np.ndarray, variance: float | np.ndarray) -> np.ndarray:
        """Covariance of the noisy versions of each state, shape (b, d, d)."""


class GaussianNoise:
    r"""x' drawn from N(x, s^2 I), the noise of the robust recourse literature.

    Examples
    --------
    >>> import numpy as np
    >>> GaussianNoise().sample(np.zeros((2, 3)), 0.01, 5, np.random.default_rng(0)).shape
    (2, 5, 3)
    """

    def sample(self, states: np.ndarray, variance: float | np.ndarray, n_samples: int, rng: Randomness) -> np.ndarray:
        """Noisy versions of each state, shape (b, n_samples, d)."""
        states, spread = _checked(states, variance, n_samples)
        check_generators(rng, len(states))
        normals = _normals(rng, (len(states), n_samples, states.shape[1]))
        return states[:, None, :] + np.sqrt(spread)[:, None, None] * normals

    def mean(self, states: np.ndarray, variance: float | np.ndarray) -> np.ndarray:
        """The states themselves."""
        return _checked(states, variance)[0].copy()

    def covariance(self, states: np.ndarray, variance: float | np.ndarray) -> np.ndarray:
        """s^2 I for each state."""
        states, spread = _checked(states, variance)
        return spread[:, None, None] * np.eye(states.shape[1])


class PlausibleNoise:
    r"""x' drawn from the density c N(x, s^2 I) K (Definition 1), exactly.

    The product of a Gaussian and a mixture of Gaussians is a mixture of Gaussians. With kernels N(x_j, H),

    .. math::
        p_x = \sum_j w_j N(m_j, C), \quad C = (I/s^2 + H^{-1})^{-1}, \quad m_j = C(x/s^2 + H^{-1} x_j), \quad
        w_j \propto N(x;\, x_j, s^2 I + H)

    so a draw picks j by its weight and adds a normal number: no proposals, no resampling, no bias.

    Parameters
    ----------
    density
        K, fitted.

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
        self.density = density

    def sample(self, states: np.ndarray, variance: float | np.ndarray, n_samples: int, rng: Randomness) -> np.ndarray:
        """Noisy versions of each state, shape (b, n_samples, d)."""
        states, spread = _checked(states, variance, n_samples, self.density)
        check_generators(rng, len(states))
        seeds = _seeds(rng, len(states))
        moving = spread > 0
        if moving.all():
            return self.density.draw(states, spread, n_samples, seeds)
        samples = np.repeat(states[:, None, :], n_samples, axis=1)
        if moving.any():
            samples[moving] = self.density.draw(states[moving], spread[moving], n_samples, seeds[moving])
        return samples

    def mean(self, states: np.ndarray, variance: float | np.ndarray) -> np.ndarray:
        """sum_j w_j m_j for each state."""
        return self._moments(states, variance)[0]

    def covariance(self, states: np.ndarray, variance: float | np.ndarray) -> np.ndarray:
        """C + sum_j w_j m_j m_j' - mean mean' for each state."""
        return self._moments(states, variance)[1]

    def _moments(self, states: np.ndarray, variance: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        states = check_states(states, self.density.width)
        mean = np.empty_like(states)
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
        """The mixtures of a batch in parts of bounded memory: rows, w (p, n), m (p, n, d) and C (p, d, d)."""
        states, spread = _checked(states, variance, density=self.density)
        step = max(1, _NUMBERS // self.density.points_.size)
        for start in range(0, len(states), step):
            rows = slice(start, start + step)
            weights = np.exp(self.density.log_weights(states[rows], spread[rows]))
            means = self.density.means(states[rows], spread[rows])
            yield rows, weights, means, self.density.component_covariance(spread[rows])


def check_noise(noise: Noise) -> None:
    """Refuse what is no noise, or only the class of one."""
    if isinstance(noise, type) or not callable(getattr(noise, "sample", None)):
        raise NoiseError(f"Expected a noise, GaussianNoise() or PlausibleNoise(density), got {short_repr(noise)}.")


def _checked(
    states: np.ndarray, variance: float | np.ndarray, n_samples: int = 1, density: Density | None = None
) -> tuple[np.ndarray, np.ndarray]:
    states = check_states(states, None if density is None else density.width)
    spread = numbers("Variances", variance)
    if spread.ndim > 1 or (spread.ndim == 1 and len(spread) != len(states)):
        raise NoiseError(f"variance is one number or one for each of {len(states)} states, got shape {spread.shape}.")
    if not np.isfinite(spread).all() or (spread < 0).any():
        raise NoiseError("A variance must be finite and not negative.")
    check_count("n_samples", n_samples)
    return states, np.broadcast_to(spread, len(states)).copy()


def _seeds(rng: Randomness, n: int) -> np.ndarray:
    if isinstance(rng, np.random.Generator):
        return rng.integers(2**64, size=n, dtype=np.uint64)
    each = n // len(rng)
    # raw bits: a call of integers() for a few numbers takes longer than drawing them
    return np.concatenate([np.asarray(generator.bit_generator.random_raw(each)) for generator in rng])


def _normals(rng: Randomness, shape: tuple[int, ...]) -> np.ndarray:
    if isinstance(rng, np.random.Generator):
        return rng.standard_normal(shape)
    normals = np.empty(shape)
    each = shape[0] // len(rng)
    for i, generator in enumerate(rng):
        generator.standard_normal(out=normals[i * each : (i + 1) * each])
    return normals
