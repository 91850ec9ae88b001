"""Compiled loops of the density: draw the data point that a sample of plausible noise belongs to.

After :meth:`.Density.whiten` the weight of data point ``y`` for state ``z`` is ``exp(-|r (z - y)|^2 / 2)`` with
``r = sqrt(h / (variance + h))`` and the variances ``h`` of the kernels. Drawing a point by its weight looks at every
point once, which dominates the cost of plausible noise. There are two ways to do it faster; both are **exact**.

**Weighing all points**, where they are few (:data:`FEW`) or have so many features that bounds exclude hardly any
(:data:`LIKELY`): several states in one pass over the points, and by products: the log of a weight is
``(r^2 z) . y - |r y|^2 / 2`` plus a term that all points share, and the second term is the same for all states with
the same variance. Each lane keeps the running sum of its weights, so a draw is a choice of a lane and a binary search
in it.

**By bounds**: most weights are negligible, so the points are kept in boxes of :data:`BOX` near points, and the boxes on
shelves of :data:`BOXES`. The distance of a state to a shelf bounds the weights on it from above. With these bounds:

1. Draw a shelf in proportion to the bound on the sum of its weights, by a level between 0 and the sum of all bounds.
2. If it is closed, open it: compute the bounds of its boxes, which add up to less. If the level lies beyond them,
   reject the draw and go to 1. Otherwise the level falls into one of the boxes.
3. Compute the weights in that box, which again add up to less. Reject, or accept the point the level falls into.

This is rejection sampling under an envelope that gets tighter wherever it was drawn. A point is accepted in proportion
to its weight whatever the envelope, so points that are never weighed cost no exactness. Shelves with large bounds are
opened in advance, which is faster than waiting until they are drawn.

Distances are in single precision, which gives weights to about 1e-5 while the state is near the data. A state that is
not gets the answer :data:`FAR_AWAY`, and the caller weighs all points in double precision. Products are as accurate
only near the centre of the data: points are drawn by bounds for other states.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from rose_carla.noise._sampling import jit
from rose_carla.noise._sampling.lanes import (
    LANES,
    TILE,
    box_bounds,
    largest,
    masses,
    products,
    running_sums,
    squared_distances,
    weigh_box,
)
from rose_carla.noise._sampling.normals import uniform

#: Data points in a box, and boxes on a shelf.
BOX = BOXES = LANES
#: Up to this number of points all are weighed: bounds take longer than the weights they save.
FEW = 2048
#: All points are weighed too if the bounds of more than this share of the boxes are near the largest one.
LIKELY = 0.18
#: Answer for a state further from the data than single precision can measure.
FAR_AWAY = -1
#: Coordinate of padding: further than any data, and finite, because fast mathematics assumes finite numbers.
PADDING = np.float32(1e12)

#: Squared distance to the data, and coordinate, from which a state is far away; the latter well below PADDING.
_FAR, _FURTHEST = np.float32(50.0**2), 1e9
_HALF = np.float32(0.5)
#: Products are used up to these squared distances of a state to the centre and to the nearest point: terms stay below
#: 200, and their rounding errors below 1e-5.
_CENTRAL, _NEAR = 128.0, 40.0
#: Shelves whose bound is above the largest times exp(-this) are opened in advance.
_IN_ADVANCE = np.float32(5.0)
#: An envelope that has shrunk by this factor is computed anew, in units of a smaller bound: otherwise the rounding
#: errors of its old size would begin to count.
_SHRUNK = 1e-3
#: Sums of bounds are rounded up: a level beyond their parts is rejected, parts beyond the sum would be lost.
_UP = 1.000002


class Boxes(NamedTuple):
    """Points in boxes and shelves.

    Attributes
    ----------
    points
        (boxes, d, BOX) float32; the last box is padded with points at :data:`PADDING`.
    n_points
        Number of points without padding.
    weigh_all
        Whether weighing all points is faster than bounds.
    box_low, box_high
        (shelves, d, BOXES) float32 faces of the boxes, padded.
    shelf_low, shelf_high
        (groups, d, BOXES) float32 faces of the shelves, in groups of ``BOXES``, padded.
    """

    points: np.ndarray
    n_points: int
    weigh_all: bool
    box_low: np.ndarray
    box_high: np.ndarray
    shelf_low: np.ndarray
    shelf_high: np.ndarray


@jit
def draw_points(
    first: int,
    last: int,
    states: np.ndarray,
    variance: np.ndarray,
    kernel_variance: np.ndarray,
    boxes: Boxes,
    seeds: np.ndarray,
    out: np.ndarray,
) -> None:
    """Draw data points by their weights, ``out.shape[1]`` for each of the states ``first`` to ``last``.

    Parameters
    ----------
    states
        (b, d), whitened.
    variance
        (b,) variance of the noise around each state.
    kernel_variance
        (d,) variance of the kernels in each coordinate, h.
    seeds
        (b,) uint64, one stream of random numbers for each state.
    out
        (b, n) int64, filled with places of points: box * BOX + position.
    """
    if boxes.weigh_all:
        _draw_by_weighing_all(first, last, states, variance, kernel_variance, boxes, seeds, out)
    else:
        _draw_by_bounds(first, last, states, variance, kernel_variance, boxes, seeds, out)


@jit
def _draw_by_weighing_all(
    first: int,
    last: int,
    states: np.ndarray,
    variance: np.ndarray,
    kernel_variance: np.ndarray,
    boxes: Boxes,
    seeds: np.ndarray,
    out: np.ndarray,
) -> None:
    """Draw by weighing all points. The draws of a state do not depend on the others it shares a pass with."""
    n_boxes, width = len(boxes.points), states.shape[1]
    scale, origin = np.empty(width, np.float32), np.zeros(width, np.float32)
    squares = np.empty(n_boxes * BOX, np.float32)
    factors = np.zeros((width, TILE), np.float32)
    central = np.empty(TILE)  # squared distance of each state to the centre
    sums = np.empty((TILE, n_boxes * BOX), np.float32)
    tops = np.empty(TILE * BOX, np.float32)
    stream = np.empty(1, np.uint64)
    spread = -1.0
    i = first
    while i < last:
        if variance[i] != spread:
            spread = variance[i]
            for k in range(width):
                scale[k] = math.sqrt(kernel_variance[k] / (spread + kernel_variance[k]))
            for box in range(n_boxes):
                squared_distances(boxes.points, box, origin, scale, squares, box * BOX)
        together = 1
        while together < TILE and i + together < last and variance[i + together] == spread:
            together += 1
        for t in range(together):
            central[t] = 0.0
            for k in range(width):
                central[t] += (scale[k] * states[i + t, k]) ** 2
            for k in range(width):
                factors[k, t] = scale[k] ** 2 * states[i + t, k] if central[t] <= _CENTRAL else 0.0
        tops[:] = -PADDING
        for box in range(n_boxes):
            products(boxes.points, box, factors, squares, sums, tops)
        for t in range(together):
            top = largest(tops, t * BOX)
            if central[t] <= _CENTRAL and central[t] - 2.0 * top <= _NEAR:
                running_sums(sums[t], top)
                stream[0] = seeds[i + t]
                _draw_from_sums(sums[t], boxes.n_points, stream, out[i + t])
            else:
                _draw_by_bounds(i + t, i + t + 1, states, variance, kernel_variance, boxes, seeds, out)
        i += together


@jit
def _draw_from_sums(sums: np.ndarray, n_points: int, stream: np.ndarray, out: np.ndarray) -> None:
    """Draw points by weights whose running sums in each lane are ``sums``."""
    end = len(sums) - BOX
    total = 0.0
    for j in range(end, len(sums)):
        total += sums[j]
    for sample in range(len(out)):
        chosen = n_points
        while chosen >= n_points:
            j, level = _find(sums, end, len(sums), uniform(stream) * total)
            if j == len(sums):
                continue
            low, high = 0, end // BOX  # the box is the first whose running sum is above the level
            while low < high:
                middle = (low + high) // 2
                if sums[middle * BOX + j - end] > level:
                    high = middle
                else:
                    low = middle + 1
            chosen = low * BOX + j - end
        out[sample] = chosen


@njit(inline="always")
def _find(parts: np.ndarray, start: int, stop: int, level: float) -> tuple[int, float]:
    """Return the part that a level falls into, ``stop`` if beyond the last, and the level within it."""
    at = start
    while at < stop and level >= parts[at]:
        level -= parts[at]
        at += 1
    return at, level


class _Envelope(NamedTuple):
    """Bounds on the weights of one state. Logs are of a bound on any one weight, masses of one on their sum."""

    shelf_log: np.ndarray
    shelf_times: np.ndarray  # weights on each shelf
    bounds: np.ndarray  # masses of the shelves if all were closed
    shelf_mass: np.ndarray
    group_mass: np.ndarray
    is_open: np.ndarray
    opened: np.ndarray  # open shelves in the order in which they were opened
    box_log: np.ndarray  # of boxes on open shelves, like the masses
    box_times: np.ndarray  # weights in each box
    box_mass: np.ndarray


@jit
def _empty_envelope(boxes: Boxes) -> _Envelope:
    n_shelves, n_groups = len(boxes.box_low), len(boxes.shelf_low)
    shelf_times, box_times = np.zeros(n_groups * BOXES, np.float32), np.zeros(n_shelves * BOXES, np.float32)
    shelf_times[:n_shelves] = BOX * BOXES
    box_times[: len(boxes.points)] = BOX
    return _Envelope(
        np.empty_like(shelf_times),
        shelf_times,
        np.empty_like(shelf_times),
        np.empty(n_groups * BOXES),
        np.empty(n_groups),
        np.zeros(n_groups * BOXES, np.bool_),
        np.empty(n_shelves, np.int64),
        np.empty_like(box_times),
        box_times,
        np.empty_like(box_times),
    )


@jit
def _compute_masses(envelope: _Envelope, n_opened: int, reference: float) -> float:
    """Compute all masses from the logs, in units of exp(reference), and return their sum."""
    for s in range(0, len(envelope.bounds), BOXES):
        masses(envelope.shelf_log, envelope.shelf_times, reference, envelope.bounds, s)
    envelope.shelf_mass[:] = envelope.bounds
    for s in envelope.opened[:n_opened]:
        mass = masses(envelope.box_log, envelope.box_times, reference, envelope.box_mass, s * BOXES)
        envelope.shelf_mass[s] = _UP * mass
    total = 0.0
    for g in range(len(envelope.group_mass)):
        envelope.group_mass[g] = envelope.shelf_mass[g * BOXES : (g + 1) * BOXES].sum()
        total += envelope.group_mass[g]
    return total


@jit
def _draw_by_bounds(
    first: int,
    last: int,
    states: np.ndarray,
    variance: np.ndarray,
    kernel_variance: np.ndarray,
    boxes: Boxes,
    seeds: np.ndarray,
    out: np.ndarray,
) -> None:
    """Draw by bounds on the weights."""
    n_shelves, n_groups = len(boxes.box_low), len(boxes.shelf_low)
    scale = np.empty(states.shape[1], np.float32)
    c = np.empty(states.shape[1], np.float32)
    weights = np.empty(BOX, np.float32)
    stream = np.empty(1, np.uint64)
    envelope = _empty_envelope(boxes)
    shelf_log, shelf_mass, group_mass = envelope.shelf_log, envelope.shelf_mass, envelope.group_mass
    box_log, box_mass, box_times = envelope.box_log, envelope.box_mass, envelope.box_times
    is_open, opened = envelope.is_open, envelope.opened
    spread = -1.0
    for i in range(first, last):
        if variance[i] != spread:
            spread = variance[i]
            for k in range(len(c)):
                scale[k] = math.sqrt(kernel_variance[k] / (spread + kernel_variance[k]))
        furthest, reference = 0.0, -PADDING
        for k in range(len(c)):
            furthest = max(furthest, abs(states[i, k]))
            c[k] = scale[k] * states[i, k]
        for g in range(n_groups):
            bound = box_bounds(boxes.shelf_low, boxes.shelf_high, g, c, scale, shelf_log, g * BOXES)
            reference = max(reference, bound)
        if not (furthest < _FURTHEST and reference > -_HALF * _FAR):
            out[i] = FAR_AWAY
            continue
        n_opened = 0
        for s in range(n_shelves):  # without a branch: it would be mispredicted too often
            is_open[s] = shelf_log[s] >= reference - _IN_ADVANCE
            opened[n_opened] = s
            n_opened += is_open[s]
        for s in opened[:n_opened]:
            box_bounds(boxes.box_low, boxes.box_high, s, c, scale, box_log, s * BOXES)
        total = _compute_masses(envelope, n_opened, reference)
        full = max(total, 1.0)
        stream[0] = seeds[i]
        for sample in range(out.shape[1]):
            chosen = boxes.n_points
            while chosen >= boxes.n_points:
                if total < _SHRUNK * full:
                    for s in opened[:n_opened]:
                        shelf_log[s] = largest(box_log, s * BOXES)
                    reference = shelf_log.max()
                    total = full = _compute_masses(envelope, n_opened, reference)
                g, level = _find(group_mass, 0, n_groups, uniform(stream) * total)
                if g == n_groups:
                    continue
                s, level = _find(shelf_mass, g * BOXES, (g + 1) * BOXES, level)
                if s == (g + 1) * BOXES:
                    continue
                less = 0.0
                if not is_open[s]:
                    is_open[s] = True
                    opened[n_opened] = s
                    n_opened += 1
                    box_bounds(boxes.box_low, boxes.box_high, s, c, scale, box_log, s * BOXES)
                    less = shelf_mass[s] - _UP * masses(box_log, box_times, reference, box_mass, s * BOXES)
                box, level = _find(box_mass, s * BOXES, (s + 1) * BOXES, level)
                if box < (s + 1) * BOXES:
                    # also one that was weighed before: its weights were not kept
                    box_log[box], mass = weigh_box(boxes.points, box, c, scale, reference, weights)
                    less += box_mass[box] - mass
                    box_mass[box] = mass
                    j, level = _find(weights, 0, BOX, level)
                    if j < BOX:
                        chosen = box * BOX + j
                shelf_mass[s] -= less
                group_mass[g] -= less
                total -= less
            out[i, sample] = chosen


@jit
def log_sums(first: int, last: int, states: np.ndarray, points: np.ndarray, out: np.ndarray) -> None:
    """Set ``out`` to log ``sum_j exp(z . y_j - |y_j|^2 / 2)`` for each state z; a running maximum avoids underflow."""
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
