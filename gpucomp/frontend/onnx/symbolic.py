"""Arithmetic on shapes of which each run decides sizes: what exporters write as Shape, Gather, Mul, Concat and so on.

Integers are exact. A float has a formula only as long as its type holds the value of every run exactly; what is rounded by a
floating-point division, for example, is computed in the run instead.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, cast

import numpy as np

from gpucomp import ops
from gpucomp.ir import Constant, Input, Node, Op, Sizes, Value, sizes, topological
from gpucomp.ir.extremes import largest, smallest
from gpucomp.ir.size import Size, bounds, hint, is_assuming, quotient
from gpucomp.ir.types import BOOL, F16, F32, F64, DType

MOST = 1024  # elements of a value with sizes
EXACT = {F64: 1 << 53, F32: 1 << 24, F16: 1 << 11}  # whole numbers up to here are exact
Reference = Callable[..., Any]


class NoFormula(ArithmeticError):
    """A value that is no formula of the sizes."""


def _divided(a: Any, b: Any) -> Any:
    """The quotient of integers, rounded to zero. Both must be known not to be negative."""
    if bounds(a)[0] < 0 or bounds(b)[0] < 0:
        raise NoFormula
    return quotient(a, b)


def _rounded(down: bool) -> Reference:
    return math.floor if down else math.ceil


ELEMENTWISE: dict[Op, Reference] = {
    ops.Add: operator.add,
    ops.Sub: operator.sub,
    ops.Mul: operator.mul,
    ops.Neg: operator.neg,
    ops.Abs: abs,
    ops.Min: smallest,
    ops.Max: largest,
    ops.Floor: _rounded(down=True),
    ops.Ceil: _rounded(down=False),
    ops.Equal: lambda a, b: bool(a == b),
    ops.Less: lambda a, b: bool(a < b),
    ops.LessOrEqual: lambda a, b: bool(a <= b),
    ops.Where: lambda c, a, b: a if c else b,
}
MOVED = (ops.Reshape, ops.Transpose, ops.Concat, ops.Slice, ops.Expand, ops.Tile)
REDUCED: dict[Op, Reference] = {ops.ReduceProd: operator.mul, ops.ReduceSum: operator.add}


def with_sizes(value: Value) -> Value:
    """``value`` as ``sizes``, if it is computed from these and from constants only; else ``value`` itself."""
    if not is_assuming() or value.op in (Constant, Sizes) or hint(value.type.size) > MOST or not _has_formula(value):
        return value
    order = topological([value.node])
    known: dict[Value, np.ndarray] = {}
    try:
        for node in order:
            if len(node.types) > 1:
                return value
            known[node[0]] = _computed(node, [known[v] for v in node.inputs])
    except (NoFormula, TypeError, ValueError, ArithmeticError):
        return value
    return sizes(known[value], value.type.dtype)


def _has_formula(value: Value) -> bool:
    """Whether ``value`` is computed from sizes and constants only, and in few steps."""
    seen: set[Node] = set()
    pending = [value.node]
    while pending:
        node = pending.pop()
        if node.op is Input or len(seen) > MOST:
            return False
        if node not in seen:
            seen.add(node)
            pending.extend(v.node for v in node.inputs)
    return any(node.op is Sizes for node in seen)


def _computed(node: Node, operands: Sequence[np.ndarray]) -> np.ndarray:
    """The result of ``node`` as an array of objects. Raises ``NoFormula``."""
    dtype = node.types[0].dtype
    if node.op is Sizes:
        return np.asarray(node.attrs["values"])
    if node.op is Constant:
        return _objects(node.attrs["value"], dtype)
    if node.op in MOVED:
        return np.asarray(node.op.reference(*operands, **node.attrs))
    if node.op is ops.Gather:
        places = operands[1].astype(np.int64)
        return np.asarray(ops.Gather.reference(operands[0], places, **node.attrs))
    if node.op is ops.Cast:
        return _each(lambda v: _cast(v, dtype), dtype, operands)
    if node.op in REDUCED:
        return _reduced(node, operands[0], dtype)
    if node.op is ops.Div:
        return _each(_divided if dtype.is_integer else operator.truediv, dtype, operands)
    if node.op not in ELEMENTWISE:
        raise NoFormula
    return _each(ELEMENTWISE[node.op], dtype, operands)


def _each(function: Reference, dtype: DType, operands: Sequence[np.ndarray]) -> np.ndarray:
    whole = np.broadcast_arrays(*operands)
    result = np.empty(whole[0].shape, object)
    for place in np.ndindex(*result.shape):
        result[place] = _checked(function(*(operand[place] for operand in whole)), dtype)
    return result


def _reduced(node: Node, operand: np.ndarray, dtype: DType) -> np.ndarray:
    axes, keepdims = node.attrs["axes"], node.attrs["keepdims"]
    combine, start = REDUCED[node.op], 1 if node.op is ops.ReduceProd else 0
    moved = np.moveaxis(operand, axes, range(len(axes)))
    rows = moved.reshape(-1, *moved.shape[len(axes) :])
    result = np.full(rows.shape[1:], start, object)
    for row in rows:
        result = _each(combine, dtype, [result, row])
    return np.expand_dims(result, axes) if keepdims else result


def _cast(value: Any, dtype: DType) -> Any:
    if dtype is BOOL:
        return bool(value != 0)
    if not dtype.is_integer or isinstance(value, int):
        return value
    if bounds(value)[0] < 0:  # it would be rounded to zero, not down
        raise NoFormula
    return math.floor(value)


def _checked(value: Any, dtype: DType) -> Any:
    """``value``, if every run can have it exactly in ``dtype``. Raises ``NoFormula``."""
    if dtype is BOOL:
        return value
    low, high = cast(tuple[Any, Any], bounds(value))
    if dtype.is_integer:
        if low < -(1 << (dtype.bits - 1)) or high >= 1 << (dtype.bits - 1):
            raise NoFormula
        return value
    coefficients = value.terms.values() if isinstance(value, Size) else (value,)
    scale = math.lcm(*(Fraction(c).denominator for c in coefficients))
    if scale & (scale - 1) or dtype not in EXACT or max(abs(low), abs(high)) * scale >= EXACT[dtype]:
        raise NoFormula
    return value


def _objects(array: np.ndarray, dtype: DType) -> np.ndarray:
    """The numbers of a constant, exactly, as Python's. Raises ``NoFormula`` for texts, and for numbers that are not finite."""
    if array.size > MOST or dtype.kind == "s":
        raise NoFormula
    result = np.empty(array.shape, object)
    for place in np.ndindex(*array.shape):
        number = array[place].item()
        if isinstance(number, float) and not math.isfinite(number):
            raise NoFormula
        result[place] = Fraction(number) if isinstance(number, float) else number
    return result
