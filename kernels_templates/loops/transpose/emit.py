"""Transposes: kernels that read along one axis what they write along another, and statements for their template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.emit import Emitter, FlatStore, flat_stores
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import Expr, Load, hole, substitute, var
from gpucomp.kernel import Kernel
from gpucomp.kernel.forms.access import Rewriter
from gpucomp.kernel.forms.operand import places
from gpucomp.kernel.forms.transpose import transposed_of
from gpucomp.refusal import required

if TYPE_CHECKING:
    from gpucomp.kernels_templates.loops.transpose.space import TransposeProblem, TransposeSchedule, TransposeSizes


def emit_transpose(
    kernel: Kernel, printer: CPrinter, s: TransposeSchedule, p: TransposeProblem, derived: TransposeSizes
) -> Mapping[str, Any]:
    """``load``: an element of the source, at (``reading``, ``writing``); ``store``: the results there."""
    found = required(transposed_of(kernel))
    batch, reading, writing = var("batch", max(1, p.batch)), var("reading", p.reading), var("writing", p.writing)
    at = places(found.batch, batch) | {found.reading: reading, found.writing: writing}
    rewriter = Rewriter(kernel.params, at)
    known: dict[Expr, str] = {batch: "batch", reading: "reading", writing: "writing"}
    source = rewriter(found.source)
    assert isinstance(source, Load)
    name, dtype = printer.params[source.source]
    stage = hole("staged", source.dtype)
    stores = [
        FlatStore(t.target, t.offset, substitute(t.value, {source: stage}))
        for t in flat_stores(kernel.stores, rewriter)
    ]
    lines, (offset,) = Emitter(printer, known, prefix="l").values([source.index[0]])
    # where the tile holds what this work-item writes: the axes change places
    element = printer.fetched(f"tile[fast][{'slow + step' if derived.rows < s.tile else 'slow'}]", dtype)
    converted = dtype in printer.dialect.converted  # it has no variables: the tile holds values
    return {
        "index": printer.dialect.index_type(max(p.reading, p.writing, derived.tiles) + s.tile),
        "type": printer.dialect.moved_type(dtype),
        "load": lines,
        "loaded": printer.load(source.source, offset) if converted else f"{name}[{offset}]",
        "store": Emitter(printer, known | {stage: element}).store(stores),
    }
