"""A world of two features: data density, the desirable region, and noise in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rose_carla.errors import NoiseError
from rose_carla.noise import Density, PlausibleNoise
from rose_carla.plots.style import BLUE, GREY, SKY

#: Points of the grid in each direction.
_GRID = 140
#: Shares of the noise that its contours enclose.
_SHARES = (0.5, 0.9)


@dataclass(frozen=True)
class Plane:
    """Two features that can be looked at.

    Parameters
    ----------
    density
        K(X) of the data, of width 2.
    favourable
        From states (n, 2) to the probability of the desired outcome; above 0.5 is the desirable region.
    names
        Of the two features.
    low, high
        Corners of what is drawn.

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
        """Values of both features on the grid."""
        across, up = (np.linspace(low, high, _GRID) for low, high in zip(self.low, self.high, strict=True))
        return across, up

    def states(self) -> np.ndarray:
        """(n, 2) all states of the grid, row by row."""
        return np.stack(np.meshgrid(*self.axes()), axis=-1).reshape(-1, 2)

    def on_grid(self, values: np.ndarray) -> np.ndarray:
        """Values of :meth:`states` as the array that contours are drawn of."""
        return values.reshape(_GRID, _GRID)


def draw_plane(ax: Any, plane: Plane, points: int = 0) -> None:
    """Contours of the density in grey, the border of the desirable region in blue, up to ``points`` of the data."""
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
    """Contours around half and nine tenths of the noise about a state."""
    states = plane.states()
    log_noise = -((states - state) ** 2).sum(axis=1) / (2 * variance)
    if plausible:
        log_noise += plane.density.log_density(states)
    noise = np.exp(log_noise - log_noise.max())
    levels = sorted(_level(noise, share) for share in _SHARES)
    style = {"colors": "black", "linewidths": 0.9, "linestyles": "dotted", "zorder": 3, **line}
    ax.contour(*plane.axes(), plane.on_grid(noise), levels=levels, **style)


def _level(density: np.ndarray, share: float) -> float:
    """The height above which ``share`` of a density lies."""
    highest = np.sort(density)[::-1]
    mass = np.cumsum(highest)
    return float(highest[np.searchsorted(mass, share * mass[-1])])


def draw_path(ax: Any, states: np.ndarray, colour: str, label: str | None = None, width: float = 1.2) -> None:
    """Arrows from state to state."""
    for before, after in itertools.pairwise(states):
        draw_arrow(ax, before, after, colour, width)
    ax.plot([], [], "-", color=colour, linewidth=width, label=label)


def draw_arrow(ax: Any, before: np.ndarray, after: np.ndarray, colour: str, width: float) -> None:
    """One arrow, from point to point."""
    look = {"arrowstyle": "-|>", "color": colour, "lw": width, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 7}
    ax.annotate("", xy=after, xytext=before, arrowprops=look, zorder=4)


def draw_start(ax: Any, state: np.ndarray, label: str = r"$\mathring{x}$") -> None:
    """Where somebody is today."""
    ax.plot(*state, "o", color="black", markersize=4, zorder=5)
    ax.annotate(label, state, xytext=(4, -9), textcoords="offset points")
