"""Sixteen lanes at a time: the innermost operations of the density, written for vector registers.

numba's compiler unrolls a loop of sixteen before it looks for vectors and then finds none: measured, such loops run
five times slower than these. Each function below keeps sixteen single-precision numbers in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16

_FLOAT = ir.FloatType()
_INT = ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_INTS = ir.VectorType(_INT, LANES)
_FAST = ("fast",)


def _constant(number: float) -> ir.Constant:
    return ir.Constant(_VECTOR, [ir.Constant(_FLOAT, number)] * LANES)


def _splat(builder: Any, scalar: Any) -> Any:
    """A scalar in every lane."""
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), scalar, ir.Constant(_INT, 0))
    return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), ir.Constant(_INTS, [0] * LANES))


def _load(builder: Any, data: Any, position: Any) -> Any:
    """Sixteen numbers from ``position`` on."""
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
    """``combine`` (sum, smaller or larger of two) over all lanes: fold the vector in half four times."""
    half = LANES // 2
    while half:
        lower, upper = (ir.Constant(ir.VectorType(_INT, half), list(range(i, i + half))) for i in (0, half))
        vector = combine(
            builder, builder.shuffle_vector(vector, vector, lower), builder.shuffle_vector(vector, vector, upper)
        )
        half //= 2
    return builder.extract_element(vector, ir.Constant(_INT, 0))


#: 2^f on [0, 1], highest power first; relative error 2e-7.
_POWER_OF_TWO = (1.8775767e-3, 8.9893397e-3, 5.5826318e-2, 2.4015361e-1, 6.9315308e-1, 9.9999994e-1)


def _exp(builder: Any, x: Any) -> Any:
    """exp of lanes x <= 0; 0 below -86."""
    t = builder.fmul(x, _constant(1.4426950408889634), flags=_FAST)
    large = builder.fcmp_ordered(">", t, _constant(-124.0), flags=_FAST)
    t = _larger(builder, t, _constant(-124.0))
    # t <= 0, so truncation rounds up: subtract one, and f lies in (0, 1]
    whole = builder.sub(builder.fptosi(t, _INTS), ir.Constant(_INTS, [1] * LANES))
    f = builder.fsub(t, builder.sitofp(whole, _VECTOR), flags=_FAST)
    power = _constant(_POWER_OF_TWO[0])
    for coefficient in _POWER_OF_TWO[1:]:
        power = _sum(builder, builder.fmul(power, f, flags=_FAST), _constant(coefficient))
    bits = builder.shl(builder.add(whole, ir.Constant(_INTS, [127] * LANES)), ir.Constant(_INTS, [23] * LANES))
    value = builder.fmul(power, builder.bitcast(bits, _VECTOR), flags=_FAST)
    return builder.select(large, value, _constant(0.0))


def _data(context: Any, builder: Any, array_type: Any, value: Any) -> Any:
    return context.make_array(array_type)(context, builder, value=value).data


def _squares(context: Any, builder: Any, block: Any, scaled_state: Any, scale: Any, gap: Callable[..., Any]) -> Any:
    """Sum over features k of ``gap(position of feature k's lanes in a block, c_k, r_k)^2``."""
    state = context.make_array(scaled_state[0])(context, builder, value=scaled_state[1])
    scales = _data(context, builder, *scale)
    width = cgutils.unpack_tuple(builder, state.shape, 1)[0]
    lanes = ir.Constant(width.type, LANES)
    start = builder.mul(block, builder.mul(width, lanes))
    # Two sums, of even and of odd features: one addition need not wait for the one before.
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
def squared_distances(typing: Any, points: Any, box: Any, scaled_state: Any, scale: Any, out: Any) -> Any:
    """``out[j] = sum_k (c[k] - r[k] * points[box, k, j])^2``: scaled distances of a state to the points of a box."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pairs = list(zip(signature.args, arguments, strict=True))
        start = ir.Constant(arguments[1].type, 0)
        _store(builder, _distances(context, builder, pairs), _data(context, builder, *pairs[4]), start)
        return context.get_dummy_value()

    return types.void(points, types.intp, scaled_state, scale, out), generate


@intrinsic
def weigh_box(typing: Any, points: Any, box: Any, scaled_state: Any, scale: Any) -> Any:
    """Smallest squared distance D to the points of a box, and the sum over them of ``exp((D - distance^2) / 2)``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pairs = list(zip(signature.args, arguments, strict=True))
        distances = _distances(context, builder, pairs)
        nearest = _across(builder, distances, _smaller)
        beyond = builder.fsub(_splat(builder, nearest), distances, flags=_FAST)
        weights = _exp(builder, builder.fmul(beyond, _constant(0.5), flags=_FAST))
        return context.make_tuple(builder, signature.return_type, (nearest, _across(builder, weights, _sum)))

    return types.UniTuple(types.float32, 2)(points, types.intp, scaled_state, scale), generate


@intrinsic
def box_bounds(
    typing: Any, low: Any, high: Any, group: Any, scaled_state: Any, scale: Any, out: Any, start: Any
) -> Any:
    """``out[start + j]``: log of a bound on weights in box j of sixteen; returns the largest.

    That is minus half the squared scaled distance to the box: zero inside, else to its nearest faces.
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
    """``out[start + j] = times[start + j] * exp(min(logs[start + j] - top, 0))`` for sixteen j; returns their sum."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pairs = list(zip(signature.args, arguments, strict=True))
        x = _load(builder, _data(context, builder, *pairs[0]), arguments[4])
        x = builder.fsub(x, _splat(builder, arguments[2]), flags=_FAST)
        factor = _load(builder, _data(context, builder, *pairs[1]), arguments[4])
        mass = builder.fmul(factor, _exp(builder, _smaller(builder, x, _constant(0.0))), flags=_FAST)
        _store(builder, mass, _data(context, builder, *pairs[3]), arguments[4])
        return _across(builder, mass, _sum)

    return types.float32(logs, times, types.float32, out, types.intp), generate
