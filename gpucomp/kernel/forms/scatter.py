"""The memory layout of a scatter's slices."""

from __future__ import annotations

import math

from gpucomp.expr.core import Expr, Load, both, call, index, substitute, var, walk
from gpucomp.expr.simplify import coefficient, flatten, simplify
from gpucomp.ir.size import divides, is_one, same
from gpucomp.kernel import Kernel, Scatter
from gpucomp.kernel.forms.access import Rewriter, is_aligned, vector_loads
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import ACCESS_BYTES, WIDTHS, places


def lines_side_by_side(kernel: Kernel[Scatter]) -> bool:
    """Whether the result is contiguous in memory along the lines, not along the places."""
    body = kernel.body
    if not body.lines:
        return False
    (store, *_) = kernel.stores
    offset = flatten(store.index, kernel.params[store.target].shape)
    return is_one(coefficient(offset, body.lines[-1]))


def copied_in_place(kernel: Kernel[Scatter]) -> int | None:
    """The input that the result may share memory with: only updates change its elements, at the same index."""
    body = kernel.body
    initial = body.initial
    if len(kernel.stores) != 1 or not isinstance(initial, Load):
        return None
    (store,) = kernel.stores
    source, target = kernel.params[initial.source], kernel.params[store.target]
    if source.dtype is not target.dtype or not same(source.size, target.size):
        return None
    others = (body.guard, body.where, body.after, *body.found)
    if any(isinstance(n, Load) and n.source == initial.source for e in others for n in walk(e)):
        return None  # updates would read elements that other updates change
    in_place = flatten(initial.index, source.shape) is flatten(store.index, target.shape)
    return initial.source if in_place else None


def slice_width(kernel: Kernel[Scatter]) -> int:
    """Adjacent lines that a work-item may update in one access: updates hit all at the same place, at most 16 bytes."""
    body = kernel.body
    if not lines_side_by_side(kernel):
        return 1
    fast = body.lines[-1]
    if any(fast in e.free for e in (body.guard, body.where, *body.found)):
        return 1
    count = math.prod(v.extent for v in body.lines)
    flat = var("flat", count)
    for width in WIDTHS:
        if not divides(width, fast.extent):
            continue
        quotient, lane = var("quotient", count // width), var(LANE, width)
        at = {v: substitute(e, lanes_of(flat, quotient, lane, width)) for v, e in places(body.lines, flat).items()}
        rewriter = Rewriter(kernel.params, at)
        values = [simplify(rewriter(e)) for e in (body.initial, body.after)]
        moving = {n for e in values for n in walk(e) if isinstance(n, Load) and lane in n.free}
        wide = {f.load for f in vector_loads(values, lane, width)}
        aligned = all(is_aligned(rewriter.offset(s.target, s.index), lane, width) for s in kernel.stores)
        nbytes = [n.dtype.nbytes for n in moving] + [kernel.params[s.target].dtype.nbytes for s in kernel.stores]
        if moving <= wide and aligned and all(width * n <= ACCESS_BYTES for n in nbytes):
            return width
    return 1


def inside_of(body: Scatter) -> Expr:
    """Whether the index of an update is within the extents of the places."""
    pairs = zip(body.found, (v.extent for v in body.places), strict=True)
    return both([side for at, n in pairs for side in (call("le", index(0), at), call("lt", at, index(n)))])
