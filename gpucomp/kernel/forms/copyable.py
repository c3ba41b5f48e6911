"""Recognises operands of a contraction that asynchronous copies can bring to shared memory, and the width of a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpucomp.expr.core import (
    Cast,
    Expr,
    Select,
    Var,
    literal,
    select,
    substitute,
    var,
)
from gpucomp.ir.size import divides
from gpucomp.ir.size import is_zero as none
from gpucomp.ir.types import BOOL, DType
from gpucomp.kernel import Kernel
from gpucomp.kernel.forms.access import Rewriter, guarded_load, is_aligned, is_zero
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import count, fast_axis, places
from gpucomp.refusal import Refusal

COPY_BYTES = (16, 8, 4)  # sizes of an asynchronous copy


@dataclass(frozen=True)
class Copyable:
    """How an operand can be copied.

    by_depth   1 if the operand is contiguous in memory along the depth, not along the span
    width      elements per copy; 0 if it cannot be copied
    reason     why it cannot be copied
    """

    by_depth: int
    width: int
    reason: str = ""


def stored(value: Expr) -> Expr:
    """``value`` in the type that it has in memory, without exact conversions.

    ``cast(x[i], f32)`` of f16  ->  ``x[i]``;  ``select(c, cast(x[i], f32), 0.0)``  ->  ``select(c, x[i], 0)``
    """
    match value:
        case Cast(value=inner) if _is_exact(inner.dtype, value.dtype):
            return stored(inner)
        case Select(condition=condition, then=then, otherwise=otherwise) if is_zero(otherwise):
            inner = stored(then)
            return select(condition, inner, literal(0, inner.dtype))
    return value


def _is_exact(source: DType, target: DType) -> bool:
    """Whether every value of ``source`` can be represented in ``target``."""
    if source is BOOL or target is BOOL or target.bits <= source.bits:
        return False
    if source.is_float or target.is_float:
        return source.is_float and target.is_float
    return source.kind == target.kind or source.kind == "u"


def copyable(kernel: Kernel, value: Expr, span: Sequence[Var], depth: Sequence[Var]) -> Copyable:
    """Whether the operand ``value`` over its axes ``span`` and ``depth`` can be copied, along which one, how wide."""
    value = stored(value)
    by_depth, _ = fast_axis(kernel, value, span, depth)
    axes, others = (depth, span) if by_depth else (span, depth)
    found = guarded_load(value)
    if isinstance(found, Refusal):
        return Copyable(by_depth, 0, found.reason)
    for nbytes in COPY_BYTES:
        width = nbytes // value.dtype.nbytes
        if width >= 1 and _is_chunk(kernel, value, axes, others, width):
            return Copyable(by_depth, width)
    return Copyable(by_depth, 0, f"no {COPY_BYTES[-1]} bytes of it are contiguous, aligned and under one guard")


def _is_chunk(kernel: Kernel, value: Expr, axes: Sequence[Var], others: Sequence[Var], width: int) -> bool:
    extent = count(axes)
    if none(extent) or not divides(width, extent) or none(count(others)):
        return False
    flat, other = var("flat", extent), var("other", count(others))
    quotient, lane = var("quotient", extent // width), var(LANE, width)
    at = lanes_of(flat, quotient, lane, width)
    placed = places(axes, flat) | places(others, other)
    found = guarded_load(Rewriter(kernel.params, {v: substitute(e, at) for v, e in placed.items()})(value))
    if not found:
        return False
    read, guards = found
    aligned = width == 1 or is_aligned(read.index[0], lane, width)
    return aligned and not any(lane in g.free for g in guards)
