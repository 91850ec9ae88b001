"""Vector operations on sixteen lanes in LLVM IR: the innermost operations of the density.

Each function keeps sixteen single-precision numbers in vector registers. LLVM vectorises plain loops too, but keeps
their sums in memory and checks arrays for overlap, so a box takes at least three times as long (see docs/noise.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
#: States that one pass over the points serves: their sums fill the registers of AVX2.
TILE = 4

_FLOAT = ir.FloatType()
_INT = ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_INTS = ir.VectorType(_INT, LANES)
_FAST = ("fast",)


def _constant(number: float) -> ir.Constant:
    return ir.Constant(_VECTOR, [ir.Constant(_FLOAT, number)] * LANES)


def _splat(builder: Any, scalar: Any) -> Any:
    """Return a vector with a scalar in every lane."""
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), scalar, ir.Constant(_INT, 0))
    return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), ir.Constant(_INTS, [0] * LANES))


def _load(builder: Any, data: Any, position: Any) -> Any:
    """Load sixteen numbers from ``position`` on."""
    pointer = builder.bitcast(builder.gep(data, [position]), _VECTOR.as_pointer())
    return builder.load(pointer, align=4)


def _store(builder: Any, vector: Any, data: Any, position: Any) -> None:
    builder.store(vector, builder.bitcast(builder.gep(data, [position]), _VECTOR.as_pointer()), align=4)


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b, flags=_FAST), a, b)


def _smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, b, flags=_FAST), a, b)


def _sum(builder: Any, a: Any, b: Any) -> Any:
    return builder.fadd(a, b, flags=_FAST)


def _across(builder: Any, vector: Any, combine: Callable[..., Any]) -> Any:
    """Reduce all lanes by ``combine`` (sum, smaller or larger of two): fold the vector in half four times."""
    half = LANES // 2
    while half:
        lower, upper = (ir.Constant(ir.VectorType(_INT, half), list(range(i, i + half))) for i in (0, half))
        vector = combine(
            builder, builder.shuffle_vector(vector, vector, lower), builder.shuffle_vector(vector, vector, upper)
        )
        half //= 2
    return builder.extract_element(vector, ir.Constant(_INT, 0))


#: 2^f on [-1/2, 1/2], highest power first; relative error 2e-7.
_POWER_OF_TWO = (1.3276472e-3, 9.675542e-3, 5.550713e-2, 2.402212e-1, 6.9314694e-1, 1.0000001)
#: Added to a number and subtracted again it leaves the nearest integer, which is in the lowest bits in between.
_ROUNDING = 12582912.0


def _exp(builder: Any, x: Any) -> Any:
    """Return exp of lanes x <= 0, at least 1e-38."""
    t = _larger(builder, builder.fmul(x, _constant(1.4426950408889634), flags=_FAST), _constant(-126.0))
    # without fast mathematics, which would cancel the addition
    shifted = builder.fadd(t, _constant(_ROUNDING))
    f = builder.fsub(t, builder.fsub(shifted, _constant(_ROUNDING)))
    power = _constant(_POWER_OF_TWO[0])
    for coefficient in _POWER_OF_TWO[1:]:
        power = _sum(builder, builder.fmul(power, f, flags=_FAST), _constant(coefficient))
    whole = builder.shl(builder.bitcast(shifted, _INTS), ir.Constant(_INTS, [23] * LANES))
    return builder.bitcast(builder.add(builder.bitcast(power, _INTS), whole), _VECTOR)


def _data(context: Any, builder: Any, array_type: Any, value: Any) -> Any:
    return context.make_array(array_type)(context, builder, value=value).data


def _squares(context: Any, builder: Any, block: Any, scaled_state: Any, scale: Any, gap: Callable[..., Any]) -> Any:
    """Return the sum over features k of ``gap(position of feature k's lanes in a block, c_k, r_k)^2``."""
    state = context.make_array(scaled_state[0])(context, builder, value=scaled_state[1])
    scales = _data(context, builder, *scale)
    width = cgutils.unpack_tuple(builder, state.shape, 1)[0]
    lanes = ir.Constant(width.type, LANES)
    start = builder.mul(block, builder.mul(width, lanes))
    # two sums, of even and of odd features: an addition need not wait for the previous one
    totals = [cgutils.alloca_once(builder, _VECTOR) for _ in range(2)]
    for total in totals:
        builder.store(_constant(0.0), total)

    def add(feature: Any, total: Any) -> None:
        position = builder.add(start, builder.mul(feature, lanes))
        c = _splat(builder, builder.load(builder.gep(state.data, [feature])))
        r = _splat(builder, builder.load(builder.gep(scales, [feature])))
        distance = gap(position, c, r)
        square = builder.fmul(distance, distance, flags=_FAST)
        builder.store(_sum(builder, builder.load(total), square), total)

    one = ir.Constant(width.type, 1)
    with cgutils.for_range(builder, builder.lshr(width, one)) as loop:
        even = builder.shl(loop.index, one)
        add(even, totals[0])
        add(builder.add(even, one), totals[1])
    with builder.if_then(builder.trunc(width, ir.IntType(1))):
        add(builder.sub(width, one), totals[0])
    return _sum(builder, builder.load(totals[0]), builder.load(totals[1]))


def _distances(context: Any, builder: Any, pairs: Any) -> Any:
    data = _data(context, builder, *pairs[0])

    def gap(position: Any, c: Any, r: Any) -> Any:
        return builder.fsub(c, builder.fmul(r, _load(builder, data, position), flags=_FAST), flags=_FAST)

    return _squares(context, builder, pairs[1][1], pairs[2], pairs[3], gap)


@intrinsic
def squared_distances(typing: Any, points: Any, box: Any, scaled_state: Any, scale: Any, out: Any, start: Any) -> Any:
    """Set ``out[start + j] = sum_k (c[k] - r[k] * points[box, k, j])^2``: scaled distances to a box's points."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pairs = list(zip(signature.args, arguments, strict=True))
        _store(builder, _distances(context, builder, pairs), _data(context, builder, *pairs[4]), arguments[5])
        return context.get_dummy_value()

    return types.void(points, types.intp, scaled_state, scale, out, types.intp), generate


@intrinsic
def weigh_box(typing: Any, points: Any, box: Any, scaled_state: Any, scale: Any, reference: Any, out: Any) -> Any:
    """Set ``out[j]`` to the weight of point j of a box in units of exp(reference); return log of largest, and sum."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pairs = list(zip(signature.args, arguments, strict=True))
        logs = builder.fmul(_distances(context, builder, pairs), _constant(-0.5), flags=_FAST)
        beyond = builder.fsub(logs, _splat(builder, arguments[4]), flags=_FAST)
        weights = _exp(builder, _smaller(builder, beyond, _constant(0.0)))
        _store(builder, weights, _data(context, builder, *pairs[5]), ir.Constant(arguments[1].type, 0))
        log, mass = _across(builder, logs, _larger), _across(builder, weights, _sum)
        return context.make_tuple(builder, signature.return_type, (log, mass))

    return types.UniTuple(types.float32, 2)(points, types.intp, scaled_state, scale, types.float32, out), generate


@intrinsic
def box_bounds(
    typing: Any, low: Any, high: Any, group: Any, scaled_state: Any, scale: Any, out: Any, start: Any
) -> Any:
    """Set ``out[start + j]`` to the log of a bound on weights in box j of sixteen; return the largest.

    The log is minus half the squared scaled distance to the box, zero inside.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pairs = list(zip(signature.args, arguments, strict=True))
        lows, highs = _data(context, builder, *pairs[0]), _data(context, builder, *pairs[1])

        def gap(position: Any, c: Any, r: Any) -> Any:
            low_face = builder.fmul(r, _load(builder, lows, position), flags=_FAST)
            high_face = builder.fmul(r, _load(builder, highs, position), flags=_FAST)
            below = builder.fsub(low_face, c, flags=_FAST)
            above = builder.fsub(c, high_face, flags=_FAST)
            return _larger(builder, _larger(builder, below, above), _constant(0.0))

        squares = _squares(context, builder, arguments[2], pairs[3], pairs[4], gap)
        bounds = builder.fmul(squares, _constant(-0.5), flags=_FAST)
        _store(builder, bounds, _data(context, builder, *pairs[5]), arguments[6])
        return _across(builder, bounds, _larger)

    return types.float32(low, high, types.intp, scaled_state, scale, out, types.intp), generate


@intrinsic
def masses(typing: Any, logs: Any, times: Any, top: Any, out: Any, start: Any) -> Any:
    """Set ``out[start + j] = times[start + j] * exp(min(logs[start + j] - top, 0))`` for 16 j; return their sum."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pairs = list(zip(signature.args, arguments, strict=True))
        x = _load(builder, _data(context, builder, *pairs[0]), arguments[4])
        x = builder.fsub(x, _splat(builder, arguments[2]), flags=_FAST)
        factor = _load(builder, _data(context, builder, *pairs[1]), arguments[4])
        mass = builder.fmul(factor, _exp(builder, _smaller(builder, x, _constant(0.0))), flags=_FAST)
        _store(builder, mass, _data(context, builder, *pairs[3]), arguments[4])
        return _across(builder, mass, _sum)

    return types.float32(logs, times, types.float32, out, types.intp), generate


@intrinsic
def largest(typing: Any, values: Any, start: Any) -> Any:
    """Return the largest of sixteen values from ``start`` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = _data(context, builder, signature.args[0], arguments[0])
        return _across(builder, _load(builder, data, arguments[1]), _larger)

    return types.float32(values, types.intp), generate


@intrinsic
def products(typing: Any, points: Any, box: Any, states: Any, squares: Any, out: Any, tops: Any) -> Any:
    """Compute ``sum_k states[k, t] * points[box, k, j] - squares[box, j] / 2`` for points j of a box and TILE states t.

    Each coordinate that is loaded serves all the states. Results are ``out[t, box, j]`` (which, like ``squares``, has
    one axis here); ``tops[t, j]`` is updated to the largest result in lane j of state t.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pairs = list(zip(signature.args, arguments, strict=True))
        own = context.make_array(points)(context, builder, value=arguments[0])
        n_boxes, width, _ = cgutils.unpack_tuple(builder, own.shape, 3)
        state_data, square_data, out_data, top_data = (_data(context, builder, *pairs[i]) for i in (2, 3, 4, 5))
        lanes, tile = ir.Constant(width.type, LANES), ir.Constant(width.type, TILE)
        position = builder.mul(arguments[1], lanes)
        start = builder.fmul(_load(builder, square_data, position), _constant(-0.5), flags=_FAST)
        totals = [cgutils.alloca_once_value(builder, start) for _ in range(TILE)]
        with cgutils.for_range(builder, width) as loop:
            feature = builder.add(builder.mul(arguments[1], width), loop.index)
            values = _load(builder, own.data, builder.mul(feature, lanes))
            first = builder.mul(loop.index, tile)
            for t, total in enumerate(totals):
                at = builder.add(first, ir.Constant(width.type, t))
                c = _splat(builder, builder.load(builder.gep(state_data, [at])))
                product = builder.fmul(c, values, flags=_FAST)
                builder.store(_sum(builder, builder.load(total), product), total)
        for t, total in enumerate(totals):
            result = builder.load(total)
            row = builder.mul(builder.mul(n_boxes, lanes), ir.Constant(width.type, t))
            _store(builder, result, out_data, builder.add(row, position))
            at = ir.Constant(width.type, t * LANES)
            _store(builder, _larger(builder, result, _load(builder, top_data, at)), top_data, at)
        return context.get_dummy_value()

    return types.void(points, types.intp, states, squares, out, tops), generate


@intrinsic
def running_sums(typing: Any, values: Any, top: Any) -> Any:
    """Replace logs of weights, sixteen to a box, by running sums of exp(log - top) in each lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(values)(context, builder, value=arguments[0])
        lanes = ir.Constant(array.nitems.type, LANES)
        top_lanes = _splat(builder, arguments[1])
        total = cgutils.alloca_once_value(builder, _constant(0.0))
        with cgutils.for_range(builder, builder.udiv(array.nitems, lanes)) as loop:
            position = builder.mul(loop.index, lanes)
            x = builder.fsub(_load(builder, array.data, position), top_lanes, flags=_FAST)
            running = _sum(builder, builder.load(total), _exp(builder, x))
            builder.store(running, total)
            _store(builder, running, array.data, position)
        return context.get_dummy_value()

    return types.void(values, types.float32), generate
