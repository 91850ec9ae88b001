"""Random numbers for compiled loops, and the normal draw around a kernel: the second half of plausible noise.

Numpy's generators cannot be called from threads that do not hold Python's lock; a splitmix64 stream of one 64-bit
number can. Normal numbers are drawn by the ziggurat method.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from rose_carla.noise._sampling import jit

_LAYERS = 256
#: Where the tail begins, and the area of each layer, for 256 layers.
_TAIL = 3.6541528853610088
_AREA = 0.00492867323399
#: States that are multiplied by a matrix together.
_BLOCK = 128


def _edges() -> np.ndarray:
    """Return the right edges of the layers, widest first, 0 last; the first is of the lowest layer with its tail."""
    edges = np.zeros(_LAYERS + 1)
    edges[0] = _AREA / math.exp(-0.5 * _TAIL**2)
    edges[1] = _TAIL
    for i in range(2, _LAYERS):
        edges[i] = math.sqrt(-2.0 * math.log(_AREA / edges[i - 1] + math.exp(-0.5 * edges[i - 1] ** 2)))
    return edges


_EDGES = _edges()


@njit(inline="always")
def bits(stream: np.ndarray) -> int:
    """Return the next 64 random bits of a splitmix64 stream; ``stream`` is an array of one uint64."""
    stream[0] += np.uint64(0x9E3779B97F4A7C15)
    z = stream[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(inline="always")
def uniform(stream: np.ndarray) -> float:
    """Return the next uniform number in [0, 1)."""
    return float(bits(stream) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@jit
def normal(stream: np.ndarray) -> float:
    """Return the next standard normal number (Marsaglia and Tsang's ziggurat, in Doornik's form)."""
    while True:
        z = bits(stream)
        layer = int(z & np.uint64(_LAYERS - 1))
        u = float(z >> np.uint64(11)) * (2.0 / 9007199254740992.0) - 1.0
        x = u * _EDGES[layer]
        if abs(x) < _EDGES[layer + 1]:
            return x
        if layer == 0:
            while True:
                beyond = -math.log(1.0 - uniform(stream)) / _TAIL
                height = -math.log(1.0 - uniform(stream))
                if 2.0 * height >= beyond * beyond:
                    return _TAIL + beyond if u > 0 else -_TAIL - beyond
        low = math.exp(-0.5 * (_EDGES[layer] ** 2 - x * x))
        high = math.exp(-0.5 * (_EDGES[layer + 1] ** 2 - x * x))
        if low + uniform(stream) * (high - low) < 1.0:
            return x


@jit
def whiten(first: int, last: int, states: np.ndarray, centre: np.ndarray, to_axes: np.ndarray, out: np.ndarray) -> None:
    """Whiten the states ``first`` to ``last``: (x - centre) times ``to_axes`` (d, d)."""
    columns, zeros = np.empty((states.shape[1], _BLOCK)), np.zeros(states.shape[1])
    for start in range(first, last, _BLOCK):
        n = min(_BLOCK, last - start)
        for m in range(n):
            for k in range(len(columns)):
                columns[k, m] = states[start + m, k] - centre[k]
        _multiply(columns, n, to_axes, zeros, out[start : start + n])


@jit
def _multiply(columns: np.ndarray, n: int, matrix: np.ndarray, offset: np.ndarray, out: np.ndarray) -> None:
    """Set ``out = offset + rows times matrix`` for ``n`` rows, given as columns.

    BLAS has threads of its own, which spin on the cores that ours need, and its sums depend on the batch.
    """
    totals = np.empty(n)
    for j in range(len(offset)):
        totals[:] = offset[j]
        for k in range(len(columns)):
            factor = matrix[k, j]
            for m in range(n):
                totals[m] += factor * columns[k, m]
        for m in range(n):
            out[m, j] = totals[m]


@jit
def draw_around(
    first: int,
    last: int,
    states: np.ndarray,
    variance: np.ndarray,
    kernel_variance: np.ndarray,
    points: np.ndarray,
    chosen: np.ndarray,
    seeds: np.ndarray,
    centre: np.ndarray,
    from_axes: np.ndarray,
    out: np.ndarray,
) -> None:
    """Draw from N(m_j, C) for the kernels j ``chosen`` (b, m) for each of the states ``first`` to ``last``.

    ``states`` (b, d) and ``points`` (n, d) are whitened, ``out`` (b, m, d) is not: it is ``centre`` plus whitened
    coordinates times ``from_axes`` (d, d). ``seeds`` is (b,) uint64.
    """
    each, width = chosen.shape[1], states.shape[1]
    share = np.empty(width)
    deviation = np.empty(width)
    columns = np.empty((width, _BLOCK))
    ends = out.reshape(-1, width)
    stream = np.empty(1, np.uint64)
    filled, start = 0, first * each
    spread = -1.0
    for i in range(first, last):
        stream[0] = seeds[i]
        if variance[i] != spread:
            spread = variance[i]
            for k in range(width):
                share[k] = kernel_variance[k] / (spread + kernel_variance[k])
                deviation[k] = math.sqrt(1.0 - share[k])
        for sample in range(each):
            point = points[chosen[i, sample]]
            for k in range(width):
                mean = share[k] * states[i, k] + (1.0 - share[k]) * point[k]
                columns[k, filled] = mean + deviation[k] * normal(stream)
            filled += 1
            if filled == _BLOCK or (i == last - 1 and sample == each - 1):
                _multiply(columns, filled, from_axes, centre, ends[start : start + filled])
                start += filled
                filled = 0
