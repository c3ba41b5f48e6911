"""Recognises contractions whose operands are plain loads, which texture units and matrix units can read directly."""

from __future__ import annotations

import numpy as np

from gpucomp.expr.core import Cast, Const, Expr, Load, Select, Var
from gpucomp.ir.types import BF16, F16, F32, I8, I32, U8, DType
from gpucomp.kernel import Contraction


def depth_axes(body: Contraction) -> tuple[tuple[Var, ...], Var | None]:
    """The outer depth axes, which are taps, and the innermost one. Axes of extent 1 are left out."""
    long = [a for a in body.k if a.extent != 1]
    return (tuple(long[:-1]), long[-1]) if long else ((), None)


def exact(source: DType, acc: DType) -> bool:
    """Whether a load can convert from ``source`` to ``acc``."""
    return source is acc or (acc is F32 and source in (F16, BF16)) or (acc is I32 and source in (I8, U8))


def plain(value: Expr, acc: DType) -> tuple[Expr | None, Load] | None:
    """(guard, load) of an operand that is a load widened to ``acc``, with zero where the guard fails; or ``None``."""
    found = padded(value, acc)
    return None if found is None or found[2] else found[:2]


def padded(value: Expr, acc: DType) -> tuple[Expr | None, Load, int] | None:
    """(guard, load, padding): like ``plain``, but bytes may be padded with any byte, such as a zero point."""

    def bare(expr: Expr) -> Expr:
        while isinstance(expr, Cast) and exact(expr.value.dtype, expr.dtype) and exact(expr.dtype, acc):
            expr = expr.value
        return expr

    guard, pad, value = None, 0, bare(value)
    if isinstance(value, Select) and isinstance(value.otherwise, Const):
        other = value.otherwise.value
        guard, value = value.condition, bare(value.then)
        in_bytes = (
            value.dtype in (I8, U8) and np.iinfo(value.dtype.numpy).min <= other <= np.iinfo(value.dtype.numpy).max
        )
        if other != 0 and not in_bytes:
            return None
        pad = int(other)
    return (guard, value, pad) if isinstance(value, Load) and exact(value.dtype, acc) else None


def plain_type(value: Expr) -> DType:
    """The type in which an operand is stored after packing: the one that it is cast from."""
    return value.value.dtype if isinstance(value, Cast) else value.dtype


def is_dot(body: Contraction) -> bool:
    """Whether the contraction sums products of bytes, both signed or both unsigned."""
    found = [padded(value, body.acc.dtype) for value in (body.a, body.b)]
    types = {f[1].dtype for f in found if f is not None}
    return body.acc.dtype is I32 and None not in found and len(types) == 1 and types <= {I8, U8}
