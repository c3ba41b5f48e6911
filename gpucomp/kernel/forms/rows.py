"""The memory layout of rows, and which parts of a row-wise kernel several stages share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpucomp.expr.core import Expr, Hole, Load, Reduce, Select, Var, substitute, var, walk
from gpucomp.expr.simplify import simplify
from gpucomp.ir.extremes import largest
from gpucomp.ir.size import at_most, divides, hint, is_zero
from gpucomp.kernel import Kernel, Rowwise, Scan
from gpucomp.kernel.forms.access import Rewriter, innermost, is_aligned, vector_loads
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import ACCESS_BYTES, WIDTHS, places

SHUFFLED = 32  # threads of a CUDA warp


def sides(kernel: Kernel[Rowwise | Scan]) -> tuple[tuple[Var, ...], tuple[Var, ...], list[Expr]]:
    """The rows, the columns, and the values that are reduced: of a row-wise kernel or of a scan."""
    body = kernel.body
    if isinstance(body, Rowwise):
        return body.rows, body.cols, [s.value for s in body.statistics]
    return body.rows, (body.axis,), [body.value]


def rows_side_by_side(kernel: Kernel[Rowwise | Scan]) -> bool:
    """Whether the largest array that is read is contiguous along the rows, not along the columns."""
    rows, cols, reads = sides(kernel)
    rewrite = Rewriter(kernel.params, {})
    values = [rewrite(e) for e in [*reads, *(s.value for s in kernel.stores)]]
    sizes = {}
    for side, axes in (("cols", cols), ("rows", rows)):
        long = [a for a in axes if not at_most(a.extent, 1)]
        moving = [n for e in values for n in walk(e) if isinstance(n, Load) and any(innermost([n], a) for a in long)]
        sizes[side] = max((hint(math.prod(v.extent for v in n.free)) for n in moving), default=0)
    return sizes["rows"] > sizes["cols"]


def access_width(kernel: Kernel[Rowwise | Scan], side_by_side: bool) -> int:
    """Elements per access along the contiguous axis that all its loads and stores allow."""
    rows, cols, reads = sides(kernel)
    once = kernel.body.row_stores if isinstance(kernel.body, Rowwise) else frozenset()
    axes = rows if side_by_side else cols
    extent = math.prod(a.extent for a in axes)
    flat = var("flat", largest(1, extent))
    for width in WIDTHS:
        if is_zero(extent) or not divides(width, extent):
            continue
        quotient, lane = var("quotient", extent // width), var(LANE, width)
        at = {v: substitute(e, lanes_of(flat, quotient, lane, width)) for v, e in places(axes, flat).items()}
        rewriter = Rewriter(kernel.params, at)
        stores = [s for i, s in enumerate(kernel.stores) if side_by_side or i not in once]
        values = [simplify(rewriter(e)) for e in [*reads, *(s.value for s in stores)]]
        moving = {n for e in values for n in walk(e) if isinstance(n, Load) and lane in n.free}
        found = {f.load for f in vector_loads(values, lane, width)}
        aligned = all(is_aligned(rewriter.offset(s.target, s.index), lane, width) for s in stores)
        fits = all(width * n.dtype.nbytes <= ACCESS_BYTES for n in moving)
        if moving and moving <= found and aligned and fits:
            return width
    return 1


def parts_kept(kernel: Kernel[Rowwise]) -> int:
    """The number of values per element that more than one stage uses."""
    stages, cols = _stages(kernel)
    return len(common_parts(stages, cols))


def parts_early(kernel: Kernel[Rowwise]) -> int:
    """The number of values per element that are read from memory for the stores only."""
    stages, cols = _stages(kernel)
    return len(early_parts(stages, cols))


def _stages(kernel: Kernel[Rowwise]) -> tuple[list[list[Expr]], frozenset[Var]]:
    """The values of each statistic, then those of the stores per element; and the columns."""
    body = kernel.body
    each = [e for i, s in enumerate(kernel.stores) if i not in body.row_stores for e in (*s.index, s.value)]
    return [*([s.value] for s in body.statistics), each], frozenset(body.cols)


def common_parts(stages: Sequence[Sequence[Expr]], cols: frozenset[Var]) -> list[Expr]:
    """The largest subexpressions that more than one stage uses for an element.

    They load from memory, use no statistic, and are not guarded. ``stages`` are the values of each statistic, then
    those of the stores.
    """
    seen: dict[Expr, set[int]] = {}
    for number, stage in enumerate(stages):
        for node in _unguarded(stage):
            if node.free & cols and _is_input(node):
                seen.setdefault(node, set()).add(number)
    shared = {node for node, numbers in seen.items() if len(numbers) > 1}
    found: dict[Expr, None] = {}
    for stage in stages:
        stack = list(reversed(stage))
        while stack:
            node = stack.pop()
            if node in shared:
                found[node] = None
            elif isinstance(node, Select):
                stack.append(node.condition)
            else:
                stack += reversed(node.operands)
    return list(found)


def early_parts(stages: Sequence[Sequence[Expr]], cols: frozenset[Var]) -> list[Expr]:
    """The largest such subexpressions that only the last stage, the stores, uses: see ``common_parts``."""
    kept, found = set(common_parts(stages, cols)), dict[Expr, None]()
    stack = list(reversed(stages[-1]))
    while stack:
        node = stack.pop()
        if node in kept or isinstance(node, Reduce):
            continue
        if node.free & cols and _is_input(node) and not any(n in kept for n in walk(node)):
            found[node] = None
        else:
            stack += [node.condition] if isinstance(node, Select) else list(reversed(node.operands))
    return list(found)


def _is_input(node: Expr) -> bool:
    nodes = list(walk(node))
    return any(isinstance(n, Load) for n in nodes) and not any(isinstance(n, Hole) for n in nodes)


def _unguarded(exprs: Sequence[Expr]) -> set[Expr]:
    """Every subexpression of ``exprs`` that is computed unconditionally."""
    found: set[Expr] = set()
    stack = list(exprs)
    while stack:
        node = stack.pop()
        if node in found:
            continue
        found.add(node)
        stack += [node.condition] if isinstance(node, Select) else list(node.operands)
    return found
