"""Recognises transposes: kernels whose reads and writes are contiguous along different axes."""

from __future__ import annotations

from dataclasses import dataclass

from gpucomp.expr.core import Expr, Load, Reduce, Select, Var, walk
from gpucomp.expr.simplify import coefficient
from gpucomp.ir.size import is_one, is_zero
from gpucomp.kernel import Kernel, Loops
from gpucomp.kernel.forms.access import Rewriter
from gpucomp.refusal import Refusal


@dataclass(frozen=True)
class Transposed:
    """The axes of a transpose. ``source`` is contiguous along ``reading``, the results are along ``writing``."""

    batch: tuple[Var, ...]
    reading: Var
    writing: Var
    source: Load  # as in the kernel, with one index per dimension


def transposed_of(kernel: Kernel) -> Transposed | Refusal:
    """The parts of a transpose, or why ``kernel`` is not one."""
    body = kernel.body
    if not isinstance(body, Loops):
        return Refusal("it does not compute its results point by point")
    flat = Rewriter(kernel.params, {})
    stores = [flat.offset(s.target, s.index) for s in kernel.stores]
    writing = [v for v in body.domain if all(is_one(coefficient(offset, v)) for offset in stores)]
    if len(writing) != 1:
        return Refusal("the results are not contiguous along one common axis")
    values = [s.value for s in kernel.stores]
    if any(isinstance(n, Reduce) for e in values for n in walk(e)):
        return Refusal("it contains a reduction")
    turned = {}
    for node in (
        n for e in values for n in walk(e) if isinstance(n, Load) and not is_zero(kernel.params[n.source].size)
    ):
        offset = flat(node).index[0]  # type: ignore[attr-defined]
        along = [v for v in body.domain if v is not writing[0] and is_one(coefficient(offset, v))]
        if along and writing[0] in offset.free and not is_one(coefficient(offset, writing[0])):
            turned[node] = along[0]
    if len(turned) != 1:
        return Refusal(f"{len(turned)} loads are contiguous along another axis than the results, exactly one expected")
    ((source, reading),) = turned.items()
    if any(isinstance(n, Load) for i in source.index for n in walk(i)) or source in _guarded(values):
        return Refusal("the load is guarded, or its index is loaded too")
    batch = tuple(v for v in body.domain if v is not reading and v is not writing[0])
    return Transposed(batch, reading, writing[0], source)


def _guarded(values: list[Expr]) -> set[Expr]:
    """The nodes in the branches of ``Select`` nodes."""
    found: set[Expr] = set()
    for value in values:
        for node in walk(value):
            if isinstance(node, Select):
                found |= {n for branch in (node.then, node.otherwise) for n in walk(branch)}
    return found
