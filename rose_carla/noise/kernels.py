"""Compiled inner loops of the density: which data point a draw of plausible noise belongs to.

In the density's own coordinates (centred, rotated so that its kernel covariance is diagonal with entries h, and in
units of sqrt(h); see :mod:`.density`) the weight of data point ``y`` for state ``z`` is ``exp(-|r * (z - y)|^2 / 2)``
with ``r = sqrt(h / (variance + h))``. Drawing a point by its weight looks at every point once, which is the whole cost
of plausible noise. Most weights are negligible, so the points are kept in boxes of :data:`BOX` near points,
:data:`BOXES` boxes to a shelf. The distance of a state to a box bounds the weights in it from above, which gives an
**exact** draw without looking into most boxes:

1. Weigh the points of every box whose bound is not small beside the largest weight seen. All other boxes and shelves
   keep their bound (number of points times the bound on one weight).
2. Pick a box or shelf in proportion to its weight or bound. In a weighed box, pick a point in proportion to its
   weight: done. In any other, pick a point at random and accept it with probability weight / bound; otherwise repeat 2.

That is rejection sampling under an envelope: whatever step 1 leaves out costs time, never correctness. Distances are in
single precision, which is good for weights to about 1e-5 as long as the state is near the data; a state that is not
gets the answer :data:`FAR_AWAY`, and the caller weighs all points in double precision.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from rose_carla.noise.lanes import LANES, box_bounds, masses, squared_distances, weigh_box
from rose_carla.noise.normals import normal, uniform

#: Data points to a box, and boxes to a shelf.
BOX = BOXES = LANES
#: Written instead of a point for a state further from the data than single precision can measure.
FAR_AWAY = -1
#: Coordinate of what does not exist: further than anything, finite because the loops are compiled for finite numbers.
NOWHERE = np.float32(1e12)

_FAR = np.float32(50.0**2)
_LOG_BOX = np.float32(math.log(BOX))
_LOG_SHELF = np.float32(math.log(BOX * BOXES))
_HALF = np.float32(0.5)
#: Boxes whose bound is below the largest weight times exp(-this) are not weighed at first.
_MARGIN = np.float32(-2.0)
#: Below so many points all are weighed: looking for some to leave out takes longer.
_FEW = 2048
_MORE = np.float32(1.5)
#: Samples that are turned back into the data's coordinates together.
_TOGETHER = 128
#: Bounds may add up to so many times the weights: the mean number of tries is one more.
_ENVELOPE = 32.0


@njit(nogil=True, cache=True)
def draw_points(
    first: int,
    last: int,
    states: np.ndarray,
    variance: np.ndarray,
    kernel_variance: np.ndarray,
    points: np.ndarray,
    n_points: int,
    box_low: np.ndarray,
    box_high: np.ndarray,
    shelf_low: np.ndarray,
    shelf_high: np.ndarray,
    seeds: np.ndarray,
    out: np.ndarray,
) -> None:
    """Draw data points by their weights, ``out.shape[1]`` for each of the states ``first`` to ``last``.

    Parameters
    ----------
    states
        (b, d), in the density's coordinates.
    variance
        (b,) variance of the noise around each state.
    kernel_variance
        (d,) variance of the kernels in each coordinate, h.
    points
        (boxes, d, BOX) float32; a last box that is not full is filled up with points :data:`NOWHERE`.
    n_points
        Number of real points.
    box_low, box_high
        (shelves, d, BOXES) float32 faces of the boxes; those that do not exist are :data:`NOWHERE`.
    shelf_low, shelf_high
        (groups, d, BOXES) float32 faces of the shelves, in groups of ``BOXES``.
    seeds
        (b,) uint64, one stream of random numbers for each state.
    out
        (b, n) int64, filled with numbers of points: box * BOX + position.
    """
    n_shelves, n_groups = len(box_low), len(shelf_low)
    scale = np.empty(states.shape[1], np.float32)
    c = np.empty(states.shape[1], np.float32)
    distances = np.empty(BOX, np.float32)
    # Of each shelf: log of a bound on any weight in it, whether its boxes have been looked at, and how much all its
    # weights add up to at most. Of each box: log of its largest weight or of a bound on it, how many times that
    # its weights add up to (at most), and the product of the two.
    shelf_log = np.empty(n_groups * BOXES, np.float32)
    is_open = np.empty(n_shelves, np.bool_)
    cumulative = np.empty(n_shelves)
    box_log = np.empty(n_shelves * BOXES, np.float32)
    times = np.empty(n_shelves * BOXES, np.float32)
    box_mass = np.empty(n_shelves * BOXES, np.float32)
    is_weighed = np.empty(n_shelves * BOXES, np.bool_)
    weighed = np.empty(n_shelves * BOXES, np.int64)
    for i in range(first, last):
        for k in range(len(c)):
            scale[k] = math.sqrt(kernel_variance[k] / (variance[i] + kernel_variance[k]))
            c[k] = scale[k] * states[i, k]
        nearest_shelf = -NOWHERE
        for g in range(n_groups):
            bound = box_bounds(shelf_low, shelf_high, g, c, scale, shelf_log, g * BOXES)
            nearest_shelf = max(nearest_shelf, bound)
        if not nearest_shelf > -_HALF * _FAR:
            out[i] = FAR_AWAY
            continue
        is_open[:] = False

        # 1. Weigh a nearest shelf, then every box whose bound is not small beside the largest weight so far.
        margin = NOWHERE if n_points < _FEW else _MARGIN
        top = -NOWHERE  # log of the largest weight seen
        open_above = nearest_shelf
        n_weighed = 0
        total = 0.0
        while True:
            for s in range(n_shelves):
                if not is_open[s] and shelf_log[s] >= open_above:
                    is_open[s] = True
                    shelf_log[s] = box_bounds(box_low, box_high, s, c, scale, box_log, s * BOXES)
                    for box in range(s * BOXES, (s + 1) * BOXES):
                        times[box] = BOX if box < len(points) else 0
                        is_weighed[box] = False
                    if top == -NOWHERE:
                        break
            first_shelf = top == -NOWHERE
            for s in range(n_shelves):
                if is_open[s] and shelf_log[s] >= top - margin - _LOG_BOX:
                    for box in range(s * BOXES, min((s + 1) * BOXES, len(points))):
                        if not is_weighed[box] and box_log[box] >= top - margin - _LOG_BOX:
                            nearest, mass = weigh_box(points, box, c, scale)
                            box_log[box] = -_HALF * nearest
                            times[box] = mass
                            is_weighed[box] = True
                            weighed[n_weighed] = box
                            n_weighed += 1
                            top = max(top, box_log[box])
            if first_shelf:
                open_above = top - margin - _LOG_SHELF
                continue
            total = 0.0
            for s in range(n_shelves):
                if is_open[s]:
                    total += masses(box_log, times, top, box_mass, s * BOXES)
                else:
                    total += BOX * BOXES * math.exp(min(shelf_log[s] - top, np.float32(0.0)))
                cumulative[s] = total
            weights = 0.0
            for m in range(n_weighed):
                weights += box_mass[weighed[m]]
            if total <= (1.0 + _ENVELOPE) * weights:
                break
            margin += _MORE
            open_above = top - margin - _LOG_SHELF

        # 2. Pick a shelf, a box and a point by weights where they are known, by bounds where they are not.
        stream = seeds[i : i + 1].copy()
        for sample in range(out.shape[1]):
            chosen = -1
            while chosen < 0:
                level = uniform(stream) * total
                s = min(np.searchsorted(cumulative, level, side="right"), n_shelves - 1)
                if not is_open[s]:
                    box = s * BOXES + int(uniform(stream) * BOXES)
                    bound = shelf_log[s]
                else:
                    level = cumulative[s] - level
                    box = (s + 1) * BOXES - 1
                    while box > s * BOXES and level > box_mass[box]:
                        level -= box_mass[box]
                        box -= 1
                    bound = box_log[box]
                if box >= len(points):
                    continue
                squared_distances(points, box, c, scale, distances)
                if is_open[s] and is_weighed[box]:
                    level = uniform(stream) * times[box]
                    for j in range(BOX):
                        weight = math.exp(-_HALF * distances[j] - bound)
                        if weight > 0.0:
                            chosen = box * BOX + j
                        level -= weight
                        if level < 0.0:
                            break
                else:
                    j = int(uniform(stream) * BOX)
                    if uniform(stream) < math.exp(-_HALF * distances[j] - bound):
                        chosen = box * BOX + j
                if chosen >= n_points:
                    chosen = -1
            out[i, sample] = chosen


@njit(nogil=True, cache=True)
def blend(
    first: int,
    last: int,
    states: np.ndarray,
    variance: np.ndarray,
    kernel_variance: np.ndarray,
    points: np.ndarray,
    numbers: np.ndarray,
    seeds: np.ndarray,
    centre: np.ndarray,
    back: np.ndarray,
    out: np.ndarray,
) -> None:
    """Draw from N(m_j, C) for the kernels ``numbers`` drawn for each of the states ``first`` to ``last``.

    ``states`` (b, d) and ``points`` (n, d) are in the density's coordinates, ``out`` (b, m, d) is in the data's:
    ``centre`` plus coordinates times ``back`` (d, d). ``numbers`` is (b, m), ``seeds`` (b,) uint64.
    """
    each, width = numbers.shape[1], states.shape[1]
    share = np.empty(width)
    deviation = np.empty(width)
    own = np.empty((_TOGETHER, width))
    ends = out.reshape(-1, width)
    filled, start = 0, first * each
    for i in range(first, last):
        stream = seeds[i : i + 1].copy()
        for k in range(width):
            share[k] = kernel_variance[k] / (variance[i] + kernel_variance[k])
            deviation[k] = math.sqrt(1.0 - share[k])
        for sample in range(each):
            point = points[numbers[i, sample]]
            for k in range(width):
                own[filled, k] = deviation[k] * normal(stream)
            for k in range(width):
                own[filled, k] += share[k] * states[i, k] + (1.0 - share[k]) * point[k]
            filled += 1
            if filled == _TOGETHER or (i == last - 1 and sample == each - 1):
                np.dot(own[:filled], back, ends[start : start + filled])
                ends[start : start + filled] += centre
                start += filled
                filled = 0


@njit(nogil=True, cache=True)
def log_sums(first: int, last: int, states: np.ndarray, points: np.ndarray, out: np.ndarray) -> None:
    """Log of ``sum_j exp(z . y_j - |y_j|^2 / 2)`` for each state z: a running maximum, never an underflow."""
    halves = np.empty(len(points))
    for j in range(len(points)):
        halves[j] = 0.5 * (points[j] ** 2).sum()
    for i in range(first, last):
        top, total = -np.inf, 0.0
        for j in range(len(points)):
            exponent = -halves[j]
            for k in range(states.shape[1]):
                exponent += states[i, k] * points[j, k]
            if exponent > top:
                total = total * math.exp(top - exponent) + 1.0
                top = exponent
            else:
                total += math.exp(exponent - top)
        out[i] = top + math.log(total)
