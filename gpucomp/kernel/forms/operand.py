"""How a contraction's operands and result run through memory: which axis is contiguous, and how wide an access is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from gpucomp.expr.core import Expr, Load, Var, substitute, var, walk
from gpucomp.expr.simplify import coefficient, simplify, unflatten
from gpucomp.ir.types import TensorType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.access import Rewriter, innermost, vector_loads
from gpucomp.kernel.forms.lanes import lanes_of

WIDTHS = (8, 4, 2)
ACCESS_BYTES = 16
CHUNK_BYTES = 16  # of depth: what matrix units take at a time, and what shared memory is swizzled by
USUAL_INPUTS = 4  # operands, bias, residual: more are the parts of a Concat, each with an address of its own


def places(axes: Sequence[Var], flat: Expr) -> dict[Expr, Expr]:
    """The axes as digits of one flat index."""
    return dict(zip(axes, unflatten(flat, tuple(a.extent for a in axes)), strict=True)) if axes else {}


def count(axes: Sequence[Var]) -> int:
    return math.prod(a.extent for a in axes)


def fast_axis(kernel: Kernel, value: Expr, span: Sequence[Var], depth: Sequence[Var]) -> tuple[int, int]:
    """(1 when depth, not the span, is contiguous in memory; elements that one access may take along it).

    An access is as wide as every load that moves with the axis allows: aligned, unguarded by the axis, 16 bytes.
    """
    return _fast_axis(kernel.params, value, tuple(span), tuple(depth))


@lru_cache(maxsize=256)  # sizes, legality and the text of one kernel ask for the same operands again and again
def _fast_axis(
    params: tuple[TensorType, ...], value: Expr, span: tuple[Var, ...], depth: tuple[Var, ...]
) -> tuple[int, int]:
    flattened = Rewriter(params, {})(value)
    runs = {1: _run(flattened, depth), 0: _run(flattened, span)}
    by_depth = max((1, 0), key=lambda side: runs[side])
    axes, others = (depth, span) if by_depth else (span, depth)
    flat, other = var("flat", max(1, count(axes))), var("other", max(1, count(others)))
    rewritten = Rewriter(params, places(axes, flat) | places(others, other))(value)
    return by_depth, max((w for w in WIDTHS if _is_wide(rewritten, flat, w)), default=1)


@lru_cache(maxsize=64)
def along_memory(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    """``kernel`` with the depth's axes in the order in which ``a`` runs through memory, where accesses get wide by that.

    A patch of a planar image, say, is runs of its rows: the depth (row, column, channel) becomes (channel, row, column).
    """
    body = kernel.body
    if len(body.k) < 2 or fast_axis(kernel, body.a, body.m, body.k)[1] > 1:
        return kernel
    flattened = Rewriter(kernel.params, {})(body.a)
    steps = {axis: _memory_step(flattened, axis) for axis in body.k}
    if None in steps.values():
        return kernel
    ordered = tuple(sorted(body.k, key=lambda axis: -(steps[axis] or 0)))
    if ordered == body.k or fast_axis(kernel, body.a, body.m, ordered) <= (1, 1):
        return kernel
    return replace(kernel, body=replace(body, k=ordered))


def _memory_step(flattened: Expr, axis: Var) -> int | None:
    """How far apart in memory neighbours along ``axis`` are, the same in every load; ``None`` where there is no such."""
    found = {coefficient(n.index[0], axis) for n in walk(flattened) if isinstance(n, Load) and axis in n.free}
    return found.pop() if len(found) == 1 else None


def _run(value: Expr, axes: Sequence[Var]) -> int:
    """How many neighbours in memory the last axis walks over; 1 when its steps are not elements."""
    long = [a for a in axes if a.extent > 1]
    return long[-1].extent if long and innermost([value], long[-1]) else 1


def _is_wide(value: Expr, flat: Var, width: int) -> bool:
    if flat.extent % width:
        return False
    quotient, lane = var("quotient", flat.extent // width), var("lane", width)
    changed = simplify(substitute(value, lanes_of(flat, quotient, lane, width)))
    moving = [n for n in walk(changed) if isinstance(n, Load) and lane in n.free]
    found = {f.load for f in vector_loads([changed], lane, width)}
    fits = all(width * n.dtype.nbytes <= ACCESS_BYTES for n in moving)
    return bool(moving) and fits and all(n in found for n in moving)
