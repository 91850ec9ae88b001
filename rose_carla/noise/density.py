"""K(X): a Gaussian kernel density estimate of the training rows."""

from __future__ import annotations

import math
import weakref

import numpy as np
from carla.models.api import MLModel
from rose_carla._lib.threads import share_out
from rose_carla.errors import NoiseError, short_repr
from rose_carla.models.mlmodel import check_model
from rose_carla.noise._sampling import kernels, normals
from rose_carla.noise.arguments import check_count, check_number, check_seed, check_states, numbers

#: Kernels and the normal numbers around them come from different streams of one seed.
_OTHER_STREAM = np.uint64(0x5851F42D4C957F2D)
#: Squares of wider kernels overflow.
_WIDEST = 1e150


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
        With more rows than that, so many are drawn as kernel centres. Covariance and factor stay those of all rows: a
        smaller sample with the bandwidth of its own size would be a different, wider density.
    seed
        Seed of that draw.

    Attributes
    ----------
    points_ : (n, d) array
        Kernel centres.
    covariance_ : (d, d) array
        H.
    factor_ : float
        Scott's factor, or the one given.
    n_rows_ : int
        Rows it was fitted on.

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
        self, bandwidth: str | float = "scott", ridge: float = 1e-6, max_points: int = 50_000, seed: int = 0
    ) -> None:
        self.bandwidth = bandwidth
        self.ridge = ridge
        self.max_points = max_points
        self.seed = seed

    def fit(self, rows: np.ndarray) -> Density:
        """Fit on ``rows`` of shape (n, d), n at least 2.

        Raises
        ------
        NoiseError
            If rows or parameters cannot be used.
        """
        rows = np.array(numbers("The rows of a density", rows))  # in the order of the memory: sums depend on it
        if rows.ndim != 2 or rows.shape[0] < 2 or rows.shape[1] < 1:
            raise NoiseError(f"A density needs at least 2 rows and 1 column, got an array of shape {rows.shape}.")
        if not np.isfinite(rows).all():
            raise NoiseError("The rows of a density must not hold missing or infinite values.")
        check_number("ridge", self.ridge)
        check_count("max_points", self.max_points, least=2)
        check_seed(self.seed)
        self.n_rows_, width = rows.shape
        self.factor_ = self._factor(self.n_rows_, width)
        with np.errstate(over="ignore", invalid="ignore"):  # told below
            covariance = np.atleast_2d(np.cov(rows, rowvar=False)) * self.factor_**2
        self.covariance_ = covariance + self.ridge * np.eye(width)
        if not np.isfinite(self.covariance_).all():
            raise NoiseError("The rows of a density, or its bandwidth, are too large: scale features to [0, 1] first.")
        eigenvalues, self._rotation = np.linalg.eigh(self.covariance_)
        if self.ridge > 0:  # what rounding leaves of it beside very wide kernels
            eigenvalues = np.maximum(eigenvalues, self.ridge)
        elif eigenvalues[0] <= 1e-13 * eigenvalues[-1]:
            raise NoiseError("Some columns are constant or collinear: a density of them needs a ridge above 0.")
        self._kernel_variance = eigenvalues
        if len(rows) > self.max_points:
            chosen = np.random.default_rng(self.seed).choice(len(rows), self.max_points, replace=False)
            rows = rows[np.sort(chosen)]
        self.points_ = rows
        self._centre = rows.mean(axis=0)
        self._points = self._to_own(rows)
        self._order, self._boxes = _boxes(self._points)
        return self

    @classmethod
    def from_model(cls, mlmodel: MLModel, outcome: int | None = None, **options: object) -> Density:
        """Density of the training rows of a model's data set, of one outcome only if given.

        Raises
        ------
        ModelError
            If the model is none.
        NoiseError
            If there is no such outcome, or the parameters cannot be used.
        """
        check_model(mlmodel)
        if outcome is not None and (not isinstance(outcome, (int, np.integer)) or outcome not in (0, 1)):
            raise NoiseError(f"outcome is 0, 1 or None, got {short_repr(outcome)}.")
        frame = mlmodel.data.df_train
        if outcome is not None:
            frame = frame[frame[mlmodel.data.target] == outcome]
        return cls(**options).fit(frame[list(mlmodel.feature_input_order)].to_numpy(dtype=float))  # type: ignore[arg-type]

    @property
    def width(self) -> int:
        """Number of features."""
        self._check_fitted()
        return self.points_.shape[1]

    def _to_own(self, states: np.ndarray) -> np.ndarray:
        """Coordinates in which kernels are N(y_j, I): centred, rotated to H's axes, in units of its deviations."""
        states, own = np.ascontiguousarray(states, dtype=float), np.empty(states.shape)
        there = self._rotation / np.sqrt(self._kernel_variance)
        share_out(len(own), own.size * self.width, lambda i, j: normals.to_own(i, j, states, self._centre, there, own))
        return own

    def _from_own(self, own: np.ndarray) -> np.ndarray:
        return self._centre + (own * np.sqrt(self._kernel_variance)) @ self._rotation.T

    def log_density(self, states: np.ndarray) -> np.ndarray:
        """Log of the density at ``states`` of shape (b, d)."""
        self._check_fitted()
        own = _measurable(self._to_own(check_states(states, self.width)))
        sums = np.empty(len(own))
        n, width = self._points.shape
        share_out(len(own), len(own) * n * width, lambda i, j: kernels.log_sums(i, j, own, self._points, sums))
        normaliser = 0.5 * (width * math.log(2 * math.pi) + np.log(self._kernel_variance).sum())
        return sums - 0.5 * (own**2).sum(axis=1) - math.log(n) - normaliser

    def log_weights(self, states: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Log of w_j, the share of each kernel in N(x, variance I) K, shape (b, n); each row's weights add up to 1."""
        return self._log_weights(_measurable(self._to_own(states)), variance)

    def _log_weights(self, own: np.ndarray, variance: np.ndarray) -> np.ndarray:
        share = self._kernel_variance / (variance[:, None] + self._kernel_variance)
        # -|r (z - y)|^2 / 2 without the term that all points share
        log_weights = (own * share) @ self._points.T - 0.5 * share @ (self._points**2).T
        log_weights -= log_weights.max(axis=1, keepdims=True)
        return log_weights - np.log(np.exp(log_weights).sum(axis=1, keepdims=True))

    def draw(self, states: np.ndarray, variance: np.ndarray, n_samples: int, seeds: np.ndarray) -> np.ndarray:
        """Samples of N(x, variance I) K for each state x, shape (b, n_samples, d).

        Parameters
        ----------
        states, variance
            (b, d) and (b,), variance above 0.
        seeds
            (b,) uint64: what is drawn for state i depends on its own seed alone.
        """
        self._check_fitted()
        own = self._to_own(states)
        numbers = self._pick(own, variance, n_samples, seeds)
        back = np.sqrt(self._kernel_variance)[:, None] * self._rotation.T
        samples = np.empty((*numbers.shape, self.width))
        around = seeds ^ _OTHER_STREAM

        def part(first: int, last: int) -> None:
            normals.blend(
                first,
                last,
                own,
                variance,
                self._kernel_variance,
                self._points,
                numbers,
                around,
                self._centre,
                back,
                samples,
            )

        share_out(len(own), samples.size, part)
        return samples

    def draw_points(self, states: np.ndarray, variance: np.ndarray, n_samples: int, seeds: np.ndarray) -> np.ndarray:
        """Numbers of kernels drawn by their weights w_j, shape (b, n_samples); exact, see :mod:`.kernels`."""
        self._check_fitted()
        return self._pick(self._to_own(states), variance, n_samples, seeds)

    def _pick(self, own: np.ndarray, variance: np.ndarray, n_samples: int, seeds: np.ndarray) -> np.ndarray:
        """:meth:`draw_points` for states in own coordinates."""
        own = _measurable(own)
        drawn = np.empty((len(own), n_samples), dtype=np.int64)

        def part(first: int, last: int) -> None:
            kernels.draw_points(first, last, own, variance, self._kernel_variance, self._boxes, seeds, drawn)

        share_out(len(own), len(own) * (min(len(self.points_), 5000) + n_samples), part)
        numbers = self._order[drawn]
        for i in np.flatnonzero(drawn[:, 0] == kernels.FAR_AWAY):
            cumulative = np.exp(self._log_weights(own[i : i + 1], variance[i : i + 1])[0]).cumsum()
            levels = np.random.default_rng(int(seeds[i])).random(n_samples) * cumulative[-1]
            numbers[i] = np.searchsorted(cumulative, levels, side="right").clip(max=len(cumulative) - 1)
        return numbers

    def means(self, states: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """m_j of every kernel for every state, shape (b, n, d)."""
        share = (self._kernel_variance / (variance[:, None] + self._kernel_variance))[:, None, :]
        return self._from_own(share * self._to_own(states)[:, None, :] + (1.0 - share) * self._points)

    def component_covariance(self, variance: np.ndarray) -> np.ndarray:
        """C = (I / variance + H^-1)^-1 for each variance, shape (b, d, d)."""
        spread = variance[:, None]
        diagonal = spread * self._kernel_variance / (spread + self._kernel_variance)
        return (self._rotation * diagonal[:, None, :]) @ self._rotation.T

    def _check_fitted(self) -> None:
        if not hasattr(self, "points_"):
            raise NoiseError("The density is not fitted: call fit(rows) first.")

    def _factor(self, n: int, d: int) -> float:
        if isinstance(self.bandwidth, str) and self.bandwidth == "scott":
            return n ** (-1.0 / (d + 4))
        if isinstance(self.bandwidth, str) and self.bandwidth == "silverman":
            return (n * (d + 2) / 4.0) ** (-1.0 / (d + 4))
        if isinstance(self.bandwidth, (int, float, np.number)) and not isinstance(self.bandwidth, bool):
            factor = float(self.bandwidth)
            if 0 < factor < _WIDEST:
                return factor
        raise NoiseError(
            f"bandwidth is 'scott', 'silverman' or a factor above 0 and below {_WIDEST:g}, got {short_repr(self.bandwidth)}."
        )


_densities: weakref.WeakKeyDictionary[MLModel, dict[str, Density]] = weakref.WeakKeyDictionary()


def density_of(
    mlmodel: MLModel,
    bandwidth: str | float = "scott",
    ridge: float = 1e-6,
    max_points: int = 50_000,
    outcome: int | None = None,
) -> Density:
    """Return :meth:`Density.from_model`, fitted once for each model and settings, for planning and for metrics."""
    check_model(mlmodel)
    fitted = _densities.setdefault(mlmodel, {})
    key = repr((bandwidth, ridge, max_points, outcome))  # what cannot be hashed is refused when it is fitted
    if key not in fitted:
        fitted[key] = Density.from_model(mlmodel, outcome, bandwidth=bandwidth, ridge=ridge, max_points=max_points)
    return fitted[key]


def _measurable(own: np.ndarray) -> np.ndarray:
    """Beyond 1e100 deviations no weight changes any more, but squares would overflow."""
    return own.clip(-1e100, 1e100)


def _boxes(points: np.ndarray) -> tuple[np.ndarray, kernels.Boxes]:
    """Near points in one box, near boxes on one shelf: halve along the direction of most variance until one is left.

    Returns which point of the density each point in the boxes is, and the boxes.
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
        inside = points[order[start:stop]] - points[order[start:stop]].mean(axis=0)
        longest = np.linalg.eigh(inside.T @ inside)[1][:, -1]
        longest *= np.sign(longest[np.abs(longest).argmax()])
        order[start:stop] = order[start:stop][np.argpartition(inside @ longest, cut - start)]
        todo += [(first, half), (half, last)]
    # Faces come from the single precision values that distances will be computed with.
    blocks = np.full((n_boxes * kernels.BOX, width), kernels.NOWHERE, dtype=np.float32)
    blocks[:n] = points[order]
    blocks = blocks.reshape(n_boxes, kernels.BOX, width)
    real = np.where(blocks < kernels.NOWHERE, blocks, -kernels.NOWHERE)
    box_low, box_high = _grouped(blocks.min(axis=1)), _grouped(real.max(axis=1))
    shelf_low = box_low.min(axis=2)
    shelf_high = np.where(box_low < kernels.NOWHERE, box_high, -kernels.NOWHERE).max(axis=2)
    inside_out = np.ascontiguousarray(blocks.transpose(0, 2, 1))
    return order, kernels.Boxes(inside_out, n, box_low, box_high, _grouped(shelf_low), _grouped(shelf_high))


def _grouped(faces: np.ndarray) -> np.ndarray:
    """(m, d) faces as (groups, d, BOXES); what does not exist is nowhere."""
    m, width = faces.shape
    groups = -(-m // kernels.BOXES)
    padded = np.full((groups * kernels.BOXES, width), kernels.NOWHERE, dtype=np.float32)
    padded[:m] = faces
    return np.ascontiguousarray(padded.reshape(groups, kernels.BOXES, width).transpose(0, 2, 1))
