"""How many adjacent columns of a result one store may write."""

from __future__ import annotations

from gpucomp.expr.core import Var, substitute, var
from gpucomp.expr.simplify import coefficient
from gpucomp.ir.size import divides, is_one
from gpucomp.kernel import Attention, Contraction, Kernel
from gpucomp.kernel.forms.access import Rewriter, is_aligned
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import ACCESS_BYTES, count, places

WIDTHS = (16, 8, 4, 2)


def store_width(kernel: Kernel[Contraction | Attention]) -> int:
    """Columns per access that all stores of the result allow: contiguous, aligned, at most 16 bytes."""
    body = kernel.body
    axes = body.n if isinstance(body, Contraction) else body.values
    columns = count(axes)
    for width in WIDTHS:
        fits = all(width * kernel.params[s.target].dtype.nbytes <= ACCESS_BYTES for s in kernel.stores)
        if not divides(width, columns) or not fits:
            continue
        quotient, lane = var("quotient", columns // width), var(LANE, width)
        at = lanes_of(var("flat", columns), quotient, lane, width)
        flat = next(iter(at))
        assert isinstance(flat, Var)
        rewrite = Rewriter(kernel.params, {v: substitute(e, at) for v, e in places(axes, flat).items()})
        if all(is_aligned(rewrite.offset(s.target, s.index), lane, width) for s in kernel.stores):
            return width
    return 1


def unaligned_store_width(kernel: Kernel[Contraction]) -> int:
    """Columns per access that all stores allow, if vectors need no alignment: contiguous, at most 8 and 16 bytes."""
    body = kernel.body
    columns = count(body.n)
    bytes_each = max((kernel.params[t.target].dtype.nbytes for t in kernel.stores), default=4)
    for width in (8, 4, 2):
        if not divides(width, columns) or width * bytes_each > ACCESS_BYTES:
            continue
        block, lane, flat = var("block", columns // width), var(LANE, width), var("flat", columns)
        at = {v: substitute(e, {flat: block * width + lane}) for v, e in places(body.n, flat).items()}
        rewrite = Rewriter(kernel.params, at)
        if all(is_one(coefficient(rewrite.offset(t.target, t.index), lane)) for t in kernel.stores):
            return width
    return 1
