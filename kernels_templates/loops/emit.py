"""What the templates of loops and pools read: the statements of one point of the domain, or of a vector of points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.arguments import highest, plain
from gpucomp.codegen.c.emit import Emitter, flat_stores
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import Var, substitute, var
from gpucomp.expr.simplify import unflatten
from gpucomp.kernel import Kernel, Loops, Store
from gpucomp.kernel.forms.access import Rewriter
from gpucomp.kernel.forms.lanes import lanes_of

if TYPE_CHECKING:
    from gpucomp.kernels_templates.loops.space import LoopsProblem, LoopsSchedule, PointsProblem, PointsSizes


def emit_loops(
    kernel: Kernel[Loops], printer: CPrinter, s: LoopsSchedule, p: LoopsProblem, derived: PointsSizes
) -> Mapping[str, Any]:
    """``loads``, ``values`` and ``stores`` are the stages of one ``point``; ``index`` is the type of its number."""
    return emit_pointwise(kernel, printer, s, p, kernel.body.domain, kernel.stores)


def emit_pointwise(
    kernel: Kernel,
    printer: CPrinter,
    s: LoopsSchedule,
    p: PointsProblem,
    domain: tuple[Var, ...],
    stores: tuple[Store, ...] | list[Store],
) -> Mapping[str, Any]:
    point, lane = var("point", plain(max(1, p.size // s.vector))), var("lane", s.vector)
    flat = var("flat", plain(max(1, p.size)))
    places = dict(zip(domain, unflatten(flat, tuple(a.extent for a in domain)), strict=True)) if domain else {}
    vector = lanes_of(flat, point, lane, s.vector)
    rewriter = Rewriter(kernel.params, {v: substitute(place, vector) for v, place in places.items()})
    emitter = Emitter(printer, {point: "point", lane: "lane"} if s.vector > 1 else {point: "point"})
    found = emitter.store_stages(flat_stores(stores, rewriter), lane, s.vector)
    # the type must also hold one past the last point of the last work-group
    index_type = printer.dialect.index_type(highest(p.size // s.vector + s.threads * s.items))
    return {"loads": found.loads, "values": found.values, "stores": found.writes, "index": index_type}
