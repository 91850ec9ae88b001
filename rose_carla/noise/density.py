"""K(X): a Gaussian kernel density estimate of the training rows."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np
from carla.models.api import MLModel
from rose_carla._lib.runtime import parallel_ranges
from rose_carla.datasets import relative_noise
from rose_carla.errors import NoiseError, short_repr
from rose_carla.models.mlmodel import check_model
from rose_carla.noise._sampling import kernels, normals

#: Kernels and the normal numbers around them come from different streams of one seed.
_OTHER_STREAM = np.uint64(0x5851F42D4C957F2D)
#: States that are asked how many boxes they may draw from: those whose log bounds are this near the largest one.
_STATES, _NEAR = 64, 5.0


class Density:
    r"""Gaussian kernel density estimate with one full covariance matrix.

    .. math:: K(x) = \frac{1}{n} \sum_{j=1}^n N(x;\, x_j, H), \qquad H = f^2 \Sigma + \rho I

    with the covariance :math:`\Sigma` of the rows and Scott's factor :math:`f = n^{-1/(d+4)}`: the estimate of
    ``scipy.stats.gaussian_kde``, plus a ridge :math:`\rho` that keeps it proper for constant, collinear and one-hot
    encoded columns.

    Parameters
    ----------
    bandwidth
        ``"scott"``, ``"silverman"`` or the factor itself.
    ridge
        Variance added in every direction; features are in [0, 1], so the default is a standard deviation of 0.001.
    max_points
        Maximum number of kernel centres, drawn from the rows if there are more. Covariance and factor stay those of
        all rows: a smaller sample with the bandwidth of its own size would be a different, wider density.
    seed
        Seed of that draw.
    relative_noise
        (d,) standard deviation of the noise of each feature relative to s, default 1: in everything below about
        N(x, s^2 I), I becomes the diagonal matrix of its squares. The density itself does not depend on it.

    Attributes
    ----------
    points_ : (n, d) array
        Kernel centres.
    covariance_ : (d, d) array
        H.
    factor_ : float
        Scott's factor, or the one given.
    n_rows_, width : int
        Number of rows it was fitted on, and of features.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.stats import gaussian_kde
    >>> rows = np.random.default_rng(0).normal(size=(50, 2))
    >>> density = Density(ridge=0).fit(rows)
    >>> bool(np.allclose(density.log_density(rows), gaussian_kde(rows.T).logpdf(rows.T)))
    True
    """

    def __init__(
        self,
        bandwidth: str | float = "scott",
        ridge: float = 1e-6,
        max_points: int = 50_000,
        seed: int = 0,
        relative_noise: np.ndarray | None = None,
    ) -> None:
        self.bandwidth = bandwidth
        self.ridge = ridge
        self.max_points = max_points
        self.seed = seed
        self.relative_noise = relative_noise

    def fit(self, rows: np.ndarray) -> Density:
        """Fit on ``rows`` of shape (n, d), n at least 2.

        Raises
        ------
        NoiseError
            If values are missing, infinite or too large, columns are constant or collinear and the ridge is 0, or the
            bandwidth is unknown.
        """
        rows = np.array(rows, dtype=float)  # keeps the memory order, which sums depend on
        if rows.ndim != 2 or len(rows) < 2:
            raise NoiseError(f"A density needs at least 2 rows of features, got an array of shape {rows.shape}.")
        if not np.isfinite(rows).all():
            raise NoiseError("The rows of a density must not hold missing or infinite values.")
        self.n_rows_, self.width = rows.shape
        self.factor_ = self._factor()
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            covariance = np.atleast_2d(np.cov(rows, rowvar=False)) * self.factor_**2
        self.covariance_ = covariance + self.ridge * np.eye(self.width)
        if not np.isfinite(self.covariance_).all():
            raise NoiseError("The rows of a density, or its bandwidth, are too large: scale features to [0, 1] first.")
        # in coordinates divided by the relative noise, noise is N(z, s^2 I)
        self._scale = np.ones(self.width) if self.relative_noise is None else np.array(self.relative_noise, dtype=float)
        eigenvalues, rotation = np.linalg.eigh(self.covariance_ / np.outer(self._scale, self._scale))
        self._axes = rotation.T * self._scale
        self._to_axes = rotation / self._scale[:, None]
        if self.ridge > 0:  # rounding may lose it beside very wide kernels
            eigenvalues = np.maximum(eigenvalues, self.ridge / self._scale.max() ** 2)
        elif eigenvalues[0] <= 1e-13 * eigenvalues[-1]:
            raise NoiseError("Some columns are constant or collinear: a density of them needs a ridge above 0.")
        self._kernel_variance = eigenvalues
        if len(rows) > self.max_points:
            chosen = np.random.default_rng(self.seed).choice(len(rows), self.max_points, replace=False)
            rows = rows[np.sort(chosen)]
        self.points_ = rows
        self._centre = rows.mean(axis=0)
        self._points = self.whiten(rows)
        self._order, self._boxes = _boxes(self._points)
        return self

    @classmethod
    def from_model(cls, mlmodel: MLModel, outcome: int | None = None, **options: Any) -> Density:
        """Fit on the training rows of a model's data set, with its relative noise, of outcome 0 or 1 only if given.

        Raises
        ------
        ModelError
            If ``mlmodel`` is not a CARLA model.
        """
        check_model(mlmodel)
        frame = mlmodel.data.df_train
        if outcome is not None:
            frame = frame[frame[mlmodel.data.target] == outcome]
        order = list(mlmodel.feature_input_order)
        options.setdefault("relative_noise", relative_noise(mlmodel.data, order))
        return cls(**options).fit(frame[order].to_numpy(dtype=float))

    def whiten(self, states: np.ndarray) -> np.ndarray:
        """Return ``states`` centred, on H's axes, in units of its deviations: kernels become N(y_j, I)."""
        # a writable copy: read-only arrays would be compiled for and cached apart
        states, whitened = np.array(states, dtype=float, order="C"), np.empty(states.shape)
        to_axes = self._to_axes / np.sqrt(self._kernel_variance)

        def part(first: int, last: int) -> None:
            normals.whiten(first, last, states, self._centre, to_axes, whitened)

        parallel_ranges(len(states), states.size * self.width, part)
        return whitened

    def unwhiten(self, whitened: np.ndarray) -> np.ndarray:
        """Invert :meth:`whiten`."""
        return self._centre + (whitened * np.sqrt(self._kernel_variance)) @ self._axes

    def log_density(self, states: np.ndarray) -> np.ndarray:
        """Return log K at ``states`` of shape (b, d)."""
        self.check_fitted()
        z = _clip(self.whiten(states))
        sums = np.empty(len(z))
        n = len(self._points)
        parallel_ranges(len(z), z.size * n, lambda i, j: kernels.log_sums(i, j, z, self._points, sums))
        normaliser = 0.5 * (self.width * math.log(2 * math.pi) + np.log(self._kernel_variance).sum())
        return sums - 0.5 * (z**2).sum(axis=1) - math.log(n) - normaliser - np.log(self._scale).sum()

    def log_weights(self, states: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return log w_j, the share of each kernel in N(x, variance I) K, shape (b, n); a row's weights add up to 1."""
        return self._log_weights(_clip(self.whiten(states)), variance)

    def _log_weights(self, z: np.ndarray, variance: np.ndarray) -> np.ndarray:
        share = self._kernel_variance / (variance[:, None] + self._kernel_variance)
        # -|r (z - y)|^2 / 2 without the term that all points share
        log_weights = (z * share) @ self._points.T - 0.5 * share @ (self._points**2).T
        log_weights -= log_weights.max(axis=1, keepdims=True)
        return log_weights - np.log(np.exp(log_weights).sum(axis=1, keepdims=True))

    def means(self, states: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return m_j of every kernel for every state, shape (b, n, d)."""
        share = (self._kernel_variance / (variance[:, None] + self._kernel_variance))[:, None, :]
        return self.unwhiten(share * self.whiten(states)[:, None, :] + (1.0 - share) * self._points)

    def component_covariance(self, variance: np.ndarray) -> np.ndarray:
        """Return C = (I / variance + H^-1)^-1 for each variance, shape (b, d, d)."""
        spread = variance[:, None]
        diagonal = spread * self._kernel_variance / (spread + self._kernel_variance)
        return (self._axes.T * diagonal[:, None, :]) @ self._axes

    def draw(self, states: np.ndarray, variance: np.ndarray, n_samples: int, seeds: np.ndarray) -> np.ndarray:
        """Draw samples of N(x, variance I) K for each state x, shape (b, n_samples, d).

        Parameters
        ----------
        states, variance
            (b, d) and (b,), variance above 0.
        seeds
            (b,) uint64: the samples of state i depend on its own seed alone.
        """
        z = self.whiten(states)
        chosen = self._draw_points(z, variance, n_samples, seeds)
        from_axes = np.sqrt(self._kernel_variance)[:, None] * self._axes
        samples = np.empty((*chosen.shape, self.width))
        normal_seeds = seeds ^ _OTHER_STREAM

        def part(first: int, last: int) -> None:
            normals.draw_around(
                first,
                last,
                z,
                variance,
                self._kernel_variance,
                self._points,
                chosen,
                normal_seeds,
                self._centre,
                from_axes,
                samples,
            )

        parallel_ranges(len(z), samples.size, part)
        return samples

    def draw_points(self, states: np.ndarray, variance: np.ndarray, n_samples: int, seeds: np.ndarray) -> np.ndarray:
        """Draw indices of kernels by their weights w_j, shape (b, n_samples); exact, see :mod:`._sampling.kernels`."""
        return self._draw_points(self.whiten(states), variance, n_samples, seeds)

    def _draw_points(self, z: np.ndarray, variance: np.ndarray, n_samples: int, seeds: np.ndarray) -> np.ndarray:
        z = _clip(z)
        places = np.empty((len(z), n_samples), dtype=np.int64)

        def part(first: int, last: int) -> None:
            kernels.draw_points(first, last, z, variance, self._kernel_variance, self._boxes, seeds, places)

        parallel_ranges(len(z), len(z) * (min(len(self.points_), 5000) + n_samples), part)
        chosen = self._order[places]
        for i in np.flatnonzero(places[:, 0] == kernels.FAR_AWAY):
            cumulative = np.exp(self._log_weights(z[i : i + 1], variance[i : i + 1])[0]).cumsum()
            levels = np.random.default_rng(int(seeds[i])).random(n_samples) * cumulative[-1]
            chosen[i] = np.searchsorted(cumulative, levels, side="right").clip(max=len(cumulative) - 1)
        return chosen

    def check_fitted(self) -> None:
        """Raise :class:`NoiseError` before :meth:`fit`."""
        if not hasattr(self, "points_"):
            raise NoiseError("The density is not fitted: call fit(rows) first.")

    def _factor(self) -> float:
        n, d = self.n_rows_, self.width
        if isinstance(self.bandwidth, str) and self.bandwidth == "scott":
            return n ** (-1.0 / (d + 4))
        if isinstance(self.bandwidth, str) and self.bandwidth == "silverman":
            return (n * (d + 2) / 4.0) ** (-1.0 / (d + 4))
        if isinstance(self.bandwidth, (int, float, np.number)) and self.bandwidth > 0:
            return float(self.bandwidth)
        raise NoiseError(
            f"bandwidth must be 'scott', 'silverman' or a factor above 0, got {short_repr(self.bandwidth)}."
        )


_densities: weakref.WeakKeyDictionary[MLModel, dict[str, Density]] = weakref.WeakKeyDictionary()


def density_of(
    mlmodel: MLModel,
    bandwidth: str | float = "scott",
    ridge: float = 1e-6,
    max_points: int = 50_000,
    outcome: int | None = None,
) -> Density:
    """Return :meth:`Density.from_model`, fitted once per model and settings: planning and metrics share it."""
    check_model(mlmodel)
    fitted = _densities.setdefault(mlmodel, {})
    key = repr((bandwidth, ridge, max_points, outcome))
    if key not in fitted:
        fitted[key] = Density.from_model(mlmodel, outcome, bandwidth=bandwidth, ridge=ridge, max_points=max_points)
    return fitted[key]


def _clip(z: np.ndarray) -> np.ndarray:
    """Clip at 1e100 deviations, beyond which weights no longer change but squares would overflow."""
    return z.clip(-1e100, 1e100)


def _boxes(points: np.ndarray) -> tuple[np.ndarray, kernels.Boxes]:
    """Put near points into one box and near boxes on one shelf: halve along the direction of most variance.

    Returns the index of the point at each place in the boxes, and the boxes.
    """
    n, width = points.shape
    order = np.arange(n)
    n_boxes = -(-n // kernels.BOX)
    todo = [(0, n_boxes)]
    while todo:
        first, last = todo.pop()
        if last - first == 1:
            continue
        half = (first + last) // 2
        if last - first > kernels.BOXES:  # keep shelves whole
            half = max(first // kernels.BOXES + 1, round(half / kernels.BOXES)) * kernels.BOXES
        start, cut, stop = first * kernels.BOX, half * kernels.BOX, min(last * kernels.BOX, n)
        centred = points[order[start:stop]] - points[order[start:stop]].mean(axis=0)
        longest = np.linalg.eigh(centred.T @ centred)[1][:, -1]
        longest *= np.sign(longest[np.abs(longest).argmax()])
        order[start:stop] = order[start:stop][np.argpartition(centred @ longest, cut - start)]
        todo += [(first, half), (half, last)]
    # faces of the single precision values that distances are computed with
    blocks = np.full((n_boxes * kernels.BOX, width), kernels.PADDING, dtype=np.float32)
    blocks[:n] = points[order]
    blocks = blocks.reshape(n_boxes, kernels.BOX, width)
    real = np.where(blocks < kernels.PADDING, blocks, -kernels.PADDING)
    box_low, box_high = _grouped(blocks.min(axis=1)), _grouped(real.max(axis=1))
    shelf_low = box_low.min(axis=2)
    shelf_high = np.where(box_low < kernels.PADDING, box_high, -kernels.PADDING).max(axis=2)
    by_feature = np.ascontiguousarray(blocks.transpose(0, 2, 1))
    weigh_all = n <= kernels.FEW or _likely_share(points, blocks.min(axis=1), real.max(axis=1)) > kernels.LIKELY
    return order, kernels.Boxes(by_feature, n, weigh_all, box_low, box_high, _grouped(shelf_low), _grouped(shelf_high))


def _likely_share(points: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """Return the share of boxes with the faces ``low`` and ``high`` that states like the points may draw from."""
    shares = []
    for state in points[:: -(-len(points) // _STATES)]:
        bounds = -0.5 * (np.maximum(low - state, state - high).clip(0) ** 2).sum(axis=1)
        shares.append((bounds > bounds.max() - _NEAR).mean())
    return float(np.mean(shares))


def _grouped(faces: np.ndarray) -> np.ndarray:
    """Return (m, d) faces as (groups, d, BOXES), padded."""
    m, width = faces.shape
    groups = -(-m // kernels.BOXES)
    padded = np.full((groups * kernels.BOXES, width), kernels.PADDING, dtype=np.float32)
    padded[:m] = faces
    return np.ascontiguousarray(padded.reshape(groups, kernels.BOXES, width).transpose(0, 2, 1))
