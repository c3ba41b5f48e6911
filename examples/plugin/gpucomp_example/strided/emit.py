"""What the template is given: the statements of one point of the domain, and the type of its number."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.emit import Emitter, flat_stores
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import var
from gpucomp.expr.simplify import unflatten
from gpucomp.kernel import Kernel, Loops
from gpucomp.kernel.forms.access import Rewriter

if TYPE_CHECKING:
    from gpucomp_example.strided.space import StridedProblem, StridedSchedule, StridedSizes


def emit(
    kernel: Kernel[Loops], printer: CPrinter, s: "StridedSchedule", p: "StridedProblem", derived: "StridedSizes"
) -> Mapping[str, Any]:
    domain, point = kernel.body.domain, var("point", p.size)
    places = dict(zip(domain, unflatten(point, tuple(axis.extent for axis in domain)), strict=True))
    stores = flat_stores(kernel.stores, Rewriter(kernel.params, places))
    body = Emitter(printer, {point: "point"}).store(stores)
    return {"body": body, "index": printer.dialect.index_type(p.size + derived.stride)}
