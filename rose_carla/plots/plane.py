"""A plane of two features, with the data density, the desirable region and noise; and two synthetic examples of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rose_carla.errors import NoiseError
from rose_carla.noise import Density, PlausibleNoise
from rose_carla.plots.style import BLUE, GREY, RED, SKY, new_axes

#: Points of the grid in each direction.
_GRID = 140
#: Shares of the noise that its contours enclose.
_SHARES = (0.5, 0.9)


@dataclass(frozen=True)
class Plane:
    """A plane of two features.

    Parameters
    ----------
    density
        K(X) of the data, of width 2.
    favourable
        From states (n, 2) to the probability of the desired outcome; above 0.5 is the desirable region.
    names
        Names of the two features.
    low, high
        Corners of the part that is drawn.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).random((50, 2))
    >>> plane = Plane(Density().fit(rows), lambda states: states[:, 1])
    >>> plane.states().shape
    (19600, 2)
    """

    density: Density
    favourable: Callable[[np.ndarray], np.ndarray]
    names: tuple[str, str] = ("$x_1$", "$x_2$")
    low: tuple[float, float] = (0.0, 0.0)
    high: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        if self.density.width != 2:
            raise NoiseError(f"Only densities of two features can be drawn, this one has {self.density.width}.")

    @property
    def noise(self) -> PlausibleNoise:
        """Plausible noise of this density."""
        return PlausibleNoise(self.density)

    def axes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of both features on the grid."""
        across, up = (np.linspace(low, high, _GRID) for low, high in zip(self.low, self.high, strict=True))
        return across, up

    def states(self) -> np.ndarray:
        """Return all states of the grid, row by row, as an array (n, 2)."""
        return np.stack(np.meshgrid(*self.axes()), axis=-1).reshape(-1, 2)

    def on_grid(self, values: np.ndarray) -> np.ndarray:
        """Reshape values of :meth:`states` to the grid, as contours need them."""
        return values.reshape(_GRID, _GRID)


def savings() -> Plane:
    """Return a plane of income and savings, which are correlated; the outcome is favourable if both are high.

    Examples
    --------
    >>> savings().names
    ('income', 'savings')
    """
    rng = np.random.default_rng(0)
    rows = rng.multivariate_normal([0.45, 0.42], [[0.018, 0.015], [0.015, 0.018]], 600)
    return Plane(
        Density().fit(rows),
        lambda states: 1 / (1 + np.exp(-30 * (states.sum(axis=1) - 1.15))),
        ("income", "savings"),
    )


def patches() -> Plane:
    """Return a plane of two clusters of data, the smaller one in the desirable region at the top left.

    Examples
    --------
    >>> float(patches().favourable(np.array([[0.3, 0.8]]))[0])
    1.0
    """
    rng = np.random.default_rng(0)
    large = rng.multivariate_normal([0.68, 0.34], [[0.014, 0.004], [0.004, 0.012]], 450)
    small = rng.multivariate_normal([0.3, 0.76], [[0.009, 0.003], [0.003, 0.008]], 250)
    return Plane(
        Density().fit(np.concatenate([large, small])),
        lambda states: ((states[:, 0] < 0.48) & (states[:, 1] > 0.58)).astype(float),
    )


def plane_panels(
    plane: Plane, titles: Sequence[str], width: float, height: float, points: int = 0
) -> tuple[Any, np.ndarray]:
    """Return a figure and its axes, a panel with the plane for each title."""
    figure, axes = new_axes(width, height, 1, len(titles), sharey=True)
    for ax, title in zip(axes[0], titles, strict=True):
        draw_plane(ax, plane, points)
        ax.set_title(title)
        if ax is not axes[0, 0]:
            ax.set_ylabel("")
    return figure, axes[0]


def draw_plane(ax: Any, plane: Plane, points: int = 0) -> None:
    """Draw contours of the density in grey, the desirable region in blue, and up to ``points`` of the data."""
    across, up = plane.axes()
    log_density = plane.on_grid(plane.density.log_density(plane.states()))
    density = np.exp(log_density - log_density.max())
    levels = [0.03, 0.1, 0.25, 0.5, 0.8]
    ax.contour(across, up, density, levels=levels, colors=GREY, linewidths=0.5, alpha=0.8, zorder=1)
    outcome = plane.on_grid(plane.favourable(plane.states()))
    ax.contourf(across, up, outcome, levels=[0.5, np.inf], colors=[SKY], alpha=0.16, zorder=0)
    ax.contour(across, up, outcome, levels=[0.5], colors=BLUE, linewidths=1.0, zorder=1)
    if points:
        data = plane.density.points_[:points]
        ax.plot(*data.T, ".", color=GREY, markersize=1.2, alpha=0.5, zorder=1, rasterized=True)
    ax.set_xlim(plane.low[0], plane.high[0])
    ax.set_ylim(plane.low[1], plane.high[1])
    ax.locator_params(nbins=2)
    ax.set_aspect("equal")
    ax.set_xlabel(plane.names[0])
    ax.set_ylabel(plane.names[1])


def draw_noise(ax: Any, plane: Plane, state: np.ndarray, variance: float, plausible: bool, **line: Any) -> None:
    """Draw contours around 50 % and 90 % of the noise about a state."""
    states = plane.states()
    log_noise = -((states - state) ** 2).sum(axis=1) / (2 * variance)
    if plausible:
        log_noise += plane.density.log_density(states)
    noise = np.exp(log_noise - log_noise.max())
    levels = sorted(_level(noise, share) for share in _SHARES)
    style = {"colors": "black", "linewidths": 0.9, "linestyles": "dotted", "zorder": 3, **line}
    ax.contour(*plane.axes(), plane.on_grid(noise), levels=levels, **style)


def _level(density: np.ndarray, share: float) -> float:
    """Return the height above which ``share`` of a density lies."""
    highest = np.sort(density)[::-1]
    mass = np.cumsum(highest)
    return float(highest[np.searchsorted(mass, share * mass[-1])])


def draw_path(ax: Any, states: Sequence[np.ndarray], colour: str, label: str | None = None) -> None:
    """Draw arrows from state to state."""
    for before, after in itertools.pairwise(states):
        draw_arrow(ax, before, after, colour)
    ax.plot([], [], "-", color=colour, linewidth=1.2, label=label)


def draw_arrow(ax: Any, before: np.ndarray, after: np.ndarray, colour: str, width: float = 1.2) -> None:
    """Draw one arrow."""
    arrow = {"arrowstyle": "-|>", "color": colour, "lw": width, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 7}
    ax.annotate("", xy=after, xytext=before, arrowprops=arrow, zorder=4)


def draw_samples(ax: Any, states: np.ndarray, colour: str, size: float = 1.6, alpha: float = 0.7) -> None:
    """Draw noisy states (n, 2) as dots."""
    ax.plot(*states.T, ".", color=colour, markersize=size, alpha=alpha, zorder=2)


def draw_start(ax: Any, state: np.ndarray, label: str = r"$\mathring{x}$") -> None:
    """Mark the current state of a person."""
    ax.plot(*state, "o", color="black", markersize=4, zorder=5)
    ax.annotate(label, state, xytext=(4, -9), textcoords="offset points")


def draw_target(ax: Any, state: np.ndarray, size: float = 5, width: float = 1.4) -> None:
    """Mark an intended state with a cross."""
    ax.plot(*state, "x", color=RED, markersize=size, markeredgewidth=width, zorder=5)
