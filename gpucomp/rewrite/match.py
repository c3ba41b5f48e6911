"""Helpers for rules: constants, channel vectors, permutations, factors of a product. There are no rules here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from gpucomp import ops
from gpucomp.ir.graph import Node, Op, Value, constant, constant_value
from gpucomp.ir.size import Size, is_one
from gpucomp.ir.types import DType

# fmt: off
UNARY: tuple[Op, ...] = (
    ops.Abs, ops.Neg, ops.Sign, ops.Floor, ops.Ceil, ops.Round, ops.Sqrt, ops.Exp, ops.Log, ops.Sin, ops.Cos, ops.Tan,
    ops.Asin, ops.Acos, ops.Atan, ops.Sinh, ops.Cosh, ops.Tanh, ops.Asinh, ops.Acosh, ops.Atanh, ops.Erf,
    ops.Reciprocal, ops.Relu, ops.LeakyRelu, ops.Elu, ops.Selu, ops.Celu, ops.Sigmoid, ops.HardSigmoid, ops.HardSwish,
    ops.Softplus, ops.Softsign, ops.Mish, ops.Gelu, ops.Swish, ops.ThresholdedRelu, ops.Shrink, ops.Not, ops.IsNaN,
    ops.IsInf, ops.BitwiseNot, ops.Clip, ops.Cast,
)
# fmt: on

COMMUTATIVE: tuple[Op, ...] = (
    ops.Add,
    ops.Mul,
    ops.Max,
    ops.Min,
    ops.And,
    ops.Or,
    ops.Xor,
    ops.Equal,
    ops.BitwiseAnd,
    ops.BitwiseOr,
    ops.BitwiseXor,
)

BINARY: tuple[Op, ...] = (
    *COMMUTATIVE,
    ops.Sub,
    ops.Div,
    ops.Mod,
    ops.Pow,
    ops.PRelu,
    ops.Less,
    ops.LessOrEqual,
    ops.BitShift,
)

REDUCTIONS: tuple[Op, ...] = (ops.ReduceSum, ops.ReduceMean, ops.ReduceMax, ops.ReduceMin, ops.ReduceProd)

MOVEMENTS: tuple[Op, ...] = (ops.Reshape, ops.Transpose, ops.Slice, ops.Expand, ops.Pad, ops.Concat, ops.Tile)


def is_constant(value: Value) -> bool:
    return value.op is ops.Constant


def splat(value: Value) -> float | int | bool | None:
    """The number that all elements of a constant equal, as a Python number; ``None`` if they differ or are no constant.

    A constant may be expanded: a large one stays so.
    """
    while value.op is ops.Expand:
        (value,) = value.inputs
    array = constant_value(value)
    if array is None or array.size == 0:
        return None
    first = array.flat[0]
    # the last element tells most weights, which may be large
    if array.size > 1 and not (array.flat[-1] == first and np.array_equal(array, np.broadcast_to(first, array.shape))):
        return None
    return first.item() if array.dtype.kind in "iub" else float(first)


def is_number(value: Value, number: float, tolerance: float = 0.0) -> bool:
    """Whether ``value`` is a constant that equals ``number`` everywhere, up to a relative ``tolerance``."""
    actual = splat(value)
    return actual is not None and abs(actual - number) <= tolerance * abs(number)


def rounding(dtype: DType) -> float:
    """The relative difference that rounding one constant to ``dtype`` can cause, with some slack."""
    return {64: 1e-7, 32: 1e-6, 16: 1e-2}.get(dtype.bits, 0.0)  # f64 models contain constants that an f32 tool wrote


def like(number: float, value: Value) -> Value:
    """A scalar constant of the element type of ``value``."""
    return constant(np.asarray(number, value.type.dtype.numpy))


def either_way(node: Node | Value) -> Iterator[tuple[Value, Value]]:
    """Both orders of a commutative node's operands."""
    a, b = node.inputs
    yield a, b
    yield b, a


def factors(value: Value, limit: int = 8) -> list[Value]:
    """The factors of ``value``: the leaves of a tree of at most ``limit`` Mul and Div nodes.

    A division by a constant number has two factors: the dividend, and the reciprocal as a constant.
    """
    leaves: list[Value] = []
    stack = [value]
    while stack:
        top = stack.pop()
        if top.op is ops.Mul and limit:
            limit -= 1
            stack += reversed(top.inputs)
        elif top.op is ops.Div and limit and top.type.dtype.is_float and splat(top.inputs[1]):
            limit -= 1
            divisor = splat(top.inputs[1])
            assert divisor
            stack += [constant(np.float64(1 / divisor)), top.inputs[0]]
        else:
            leaves.append(top)
    return leaves


def product(value: Value) -> tuple[float, list[Value]]:
    """``value`` as a number times the other factors."""
    return numbers_apart(factors(value))


def numbers_apart(leaves: Sequence[Value]) -> tuple[float, list[Value]]:
    """The product of the constant numbers among ``leaves``, and the other leaves."""
    number, others = 1.0, []
    for leaf in leaves:
        factor = splat(leaf) if is_constant(leaf) else None
        if factor is None:
            others.append(leaf)
        else:
            number *= factor
    return number, others


def multiple(leaves: Sequence[Value], x: Value) -> float | None:
    """The number ``a`` with product(leaves) = a * x, by structure; ``None`` if there is none."""
    number, others = numbers_apart(leaves)
    if others == [x]:
        return number
    inner, inner_others = product(x)
    return number / inner if inner and Counter(others) == Counter(inner_others) else None


def close(a: float, b: float, dtype: DType) -> bool:
    """Whether two numbers are equal up to the rounding of constants of ``dtype``."""
    return math.isfinite(a) and abs(a - b) <= rounding(dtype) * abs(b)


def compose(inner: Sequence[int], outer: Sequence[int]) -> tuple[int, ...]:
    """The permutation of transpose(transpose(x, inner), outer)."""
    return tuple(inner[i] for i in outer)


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes ``perm``."""
    result = [0] * len(perm)
    for position, axis in enumerate(perm):
        result[axis] = position
    return tuple(result)


def moves_nothing(shape: Sequence[int], perm: Sequence[int]) -> bool:
    """Whether transposing ``shape`` by ``perm`` keeps all elements in order: only axes of extent 1 move."""
    moved = [p for p in perm if not is_one(shape[p])]
    return moved == sorted(moved)


def broadcast_rank(value: Value, rank: int) -> Value:
    """``value`` with leading axes of extent 1 added up to ``rank`` axes, as broadcasting does."""
    if value.type.rank == rank:
        return value
    return ops.Reshape(value, shape=(1,) * (rank - value.type.rank) + value.shape)


def along_axis(array: np.ndarray, shape: Sequence[int], axis: int) -> np.ndarray | None:
    """``array``, broadcast to ``shape``, as a vector of ``shape[axis]`` numbers.

    ``None`` if it varies along any other axis, or if it does not broadcast to ``shape``.
    """
    if array.ndim > len(shape):
        return None
    full = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    if any(n != 1 for d, n in enumerate(full.shape) if d != axis) or isinstance(shape[axis], Size):
        return None
    if full.shape[axis] not in (1, shape[axis]):
        return None
    return np.broadcast_to(full.reshape(-1), (shape[axis],))


def keeps_type(node: Node, value: Value) -> bool:
    """Whether ``value`` has the type of the node's result, and so may replace it."""
    return node.types[0] == value.type


BLOCK = 32  # columns copied at a time


def row_major(array: np.ndarray) -> np.ndarray:
    """A copy of ``array`` in row-major order. Copying blocks of columns is several times faster for a transpose."""
    if array.ndim < 2 or array.strides[-1] == array.itemsize:
        return array.copy(order="C")
    result = np.empty(array.shape, array.dtype)
    for start in range(0, array.shape[-1], BLOCK):
        result[..., start : start + BLOCK] = array[..., start : start + BLOCK]
    return result
