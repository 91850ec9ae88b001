"""Random numbers for compiled loops: a splitmix64 stream and normal numbers by the ziggurat method.

Numpy's generators cannot be called from threads that do not hold Python's lock; a stream of one 64-bit number can.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

_LAYERS = 256
#: Where the tail begins, and the area of each layer, for 256 layers.
_TAIL = 3.6541528853610088
_AREA = 0.00492867323399


def _edges() -> np.ndarray:
    """Right edges of the layers, widest first, 0 last; the first stands for the lowest layer with its tail."""
    edges = np.zeros(_LAYERS + 1)
    edges[0] = _AREA / math.exp(-0.5 * _TAIL**2)
    edges[1] = _TAIL
    for i in range(2, _LAYERS):
        edges[i] = math.sqrt(-2.0 * math.log(_AREA / edges[i - 1] + math.exp(-0.5 * edges[i - 1] ** 2)))
    return edges


_EDGES = _edges()


@njit(inline="always")
def bits(stream: np.ndarray) -> int:
    """Next 64 random bits of a splitmix64 stream; ``stream`` is an array of one uint64."""
    stream[0] += np.uint64(0x9E3779B97F4A7C15)
    z = stream[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(inline="always")
def uniform(stream: np.ndarray) -> float:
    """Next uniform number in [0, 1)."""
    return float(bits(stream) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True)
def normal(stream: np.ndarray) -> float:
    """Next standard normal number (Marsaglia and Tsang's ziggurat, in Doornik's form)."""
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
