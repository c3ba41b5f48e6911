"""Memory access of a contraction's operands and result: which axis is contiguous, and how wide an access may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from gpucomp.expr.core import Expr, Load, Var, substitute, var, walk
from gpucomp.expr.simplify import coefficient, simplify, unflatten
from gpucomp.ir.extremes import largest
from gpucomp.ir.size import at_most, divides, hint
from gpucomp.ir.types import TensorType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.access import Rewriter, innermost, vector_loads
from gpucomp.kernel.forms.lanes import lanes_of

WIDTHS = (8, 4, 2)
ACCESS_BYTES = 16
CHUNK_BYTES = 16  # bytes of depth that matrix units take at a time; shared memory is swizzled by these chunks
USUAL_INPUTS = 4  # operands, bias, residual. More inputs are usually parts of a Concat, each with its own address


def places(axes: Sequence[Var], flat: Expr) -> dict[Expr, Expr]:
    """The axes in terms of one flat index."""
    return dict(zip(axes, unflatten(flat, tuple(a.extent for a in axes)), strict=True)) if axes else {}


def count(axes: Sequence[Var]) -> int:
    return math.prod(a.extent for a in axes)


def fast_axis(kernel: Kernel, value: Expr, span: Sequence[Var], depth: Sequence[Var]) -> tuple[int, int]:
    """(1 if the depth is contiguous in memory, 0 if the span is; elements that one access along that axis may take).

    Every load that depends on the axis must allow the width: it is aligned, no guard depends on the axis within an
    access, and an access is at most 16 bytes.
    """
    return _fast_axis(kernel.params, value, tuple(span), tuple(depth))


@lru_cache(maxsize=256)  # sizes, legality and rendering of a kernel call this repeatedly for the same operands
def _fast_axis(
    params: tuple[TensorType, ...], value: Expr, span: tuple[Var, ...], depth: tuple[Var, ...]
) -> tuple[int, int]:
    flattened = Rewriter(params, {})(value)
    runs = {1: _run(flattened, depth), 0: _run(flattened, span)}
    by_depth = max((1, 0), key=lambda side: runs[side])
    axes, others = (depth, span) if by_depth else (span, depth)
    flat, other = var("flat", largest(1, count(axes))), var("other", largest(1, count(others)))
    rewritten = Rewriter(params, places(axes, flat) | places(others, other))(value)
    return by_depth, max((w for w in WIDTHS if _is_wide(rewritten, flat, w)), default=1)


@lru_cache(maxsize=64)
def along_memory(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    """``kernel`` with the axes of the depth in the memory order of ``a``, if that allows wide accesses.

    For example, a patch of a planar image consists of contiguous pieces of rows: the depth (row, column, channel)
    becomes (channel, row, column).
    """
    body = kernel.body
    if len(body.k) < 2 or fast_axis(kernel, body.a, body.m, body.k)[1] > 1:
        return kernel
    flattened = Rewriter(kernel.params, {})(body.a)
    steps = {axis: _memory_step(flattened, axis) for axis in body.k}
    if None in steps.values():
        return kernel
    ordered = tuple(sorted(body.k, key=lambda axis: -hint(steps[axis] or 0)))
    if ordered == body.k or fast_axis(kernel, body.a, body.m, ordered) <= (1, 1):
        return kernel
    return replace(kernel, body=replace(body, k=ordered))


def _memory_step(flattened: Expr, axis: Var) -> int | None:
    """The stride of ``axis`` in memory, if it is the same in every load; else ``None``."""
    found = {coefficient(n.index[0], axis) for n in walk(flattened) if isinstance(n, Load) and axis in n.free}
    return found.pop() if len(found) == 1 else None


def _run(value: Expr, axes: Sequence[Var]) -> int:
    """The extent of the last axis if it is contiguous in memory, else 1."""
    long = [a for a in axes if not at_most(a.extent, 1)]
    return int(hint(long[-1].extent)) if long and innermost([value], long[-1]) else 1


def _is_wide(value: Expr, flat: Var, width: int) -> bool:
    if not divides(width, flat.extent):
        return False
    quotient, lane = var("quotient", flat.extent // width), var("lane", width)
    changed = simplify(substitute(value, lanes_of(flat, quotient, lane, width)))
    moving = [n for n in walk(changed) if isinstance(n, Load) and lane in n.free]
    found = {f.load for f in vector_loads([changed], lane, width)}
    fits = all(width * n.dtype.nbytes <= ACCESS_BYTES for n in moving)
    return bool(moving) and fits and all(n in found for n in moving)
