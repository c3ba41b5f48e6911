"""Transposes: kernels that read along one axis what they write along another, and statements for their template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.arguments import highest, plain
from gpucomp.codegen.c.emit import Emitter, FlatStore, flat_stores
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import over, remainder
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
    """See ``kernels_templates/loops/transpose/kernel.j2`` for what each hook is."""
    found = required(transposed_of(kernel))
    batch = var("batch", plain(max(1, p.batch)))
    reading, writing = var("reading", plain(p.reading)), var("writing", plain(p.writing))
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
    several = derived.rows < s.tile
    slow = "slow + step" if several else "slow"
    element = printer.fetched(f"tile[fast][{slow}]", dtype)
    converted = dtype in printer.dialect.converted  # it has no variables: the tile holds values
    index = printer.dialect.index_type(highest(p.reading, p.writing, derived.tiles) + s.tile)
    each_step = f"for (int step = 0; step < {s.tile}; step += {derived.rows}) {{"
    return {
        "index": index,
        "tile_place": _tile_place(index, s, p, derived),
        "slow": slow,
        "each_step": ["#pragma unroll", each_step] if several else ["{"],
        "inside": " && ".join(f"{a} < {n}" for a, n in (("reading", p.reading), ("writing", p.writing)) if n % s.tile),
        "type": printer.dialect.moved_type(dtype),
        "load": lines,
        "loaded": printer.load(source.source, offset) if converted else f"{name}[{offset}]",
        "store": Emitter(printer, known | {stage: element}).store(stores),
    }


def _tile_place(index: str, s: TransposeSchedule, p: TransposeProblem, d: TransposeSizes) -> list[str]:
    """The first element of the tile ``number``."""
    inner = d.tiles_writing * d.tiles_reading
    writing = remainder("number", d.tiles_writing) if d.tiles_reading * p.batch > 1 else "number"
    reading = over("number", d.tiles_writing)
    reading = remainder(reading, d.tiles_reading) if p.batch > 1 else reading
    return [
        f"const {index} first_writing = {f'{writing} * {s.tile}' if d.tiles_writing > 1 else '0'};",
        f"const {index} first_reading = {f'{reading} * {s.tile}' if d.tiles_reading > 1 else '0'};",
        *([f"const {index} batch = {over('number', inner)};"] if p.batch > 1 else []),
    ]
