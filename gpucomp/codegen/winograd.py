"""What the `winograd` contraction template is given besides numbers: names, types and the epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.c_printer import CPrinter
from gpucomp.codegen.epilogue import epilogue
from gpucomp.codegen.tma import Pixels, pixels_of
from gpucomp.errors import ScheduleError
from gpucomp.expr.core import loads, var
from gpucomp.ir.types import F32, U32
from gpucomp.kernel import Contraction, Kernel

TRANSFORM = "winograd23"  # of gpucomp.packing.TRANSFORMS
POSITIONS = 16  # products of a 2 x 2 block of outputs, each a sum over channels
COLUMN_ACCESS = 4  # output channels that one access takes


def winograd_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """See ``kernels_templates/contraction/winograd.j2`` for what each hook is."""
    body, form = kernel.body, pixels_of(kernel)
    assert isinstance(body, Contraction)
    assert isinstance(form, Pixels), form
    rows = p.images * p.out_y * p.out_x
    row_lines, store = epilogue(kernel, printer, var("batch", 1), rows, p.n, derived.out_vector)
    acc_type = printer.dialect.value_type(F32)
    scratch = [
        {"name": "workspace", "type": acc_type, "access": "shared"},
        {"name": "counters", "type": printer.dialect.values[U32], "access": "written"},
    ]
    filters = filters_of(kernel, p, derived)
    largest = max(t.size for t in kernel.params) + derived.all_blocks + s.blocks + p.depth + s.channels
    return {
        "scratch": scratch if s.splits > 1 else [],
        "image": printer.params[form.source][0],
        "filters": printer.params[filters][0],
        "row_lines": row_lines,
        "store": store,
        "index": printer.dialect.index_type(largest),
        "acc_type": acc_type,
        "copy": lambda to, source, width, guard="": printer.dialect.copy(to, source, F32, width, guard),
        "array": lambda name, size: printer.dialect.aligned_array(acc_type, name, size),
    }


def filters_of(kernel: Kernel, p: SimpleNamespace, derived: SimpleNamespace) -> int:
    """The parameter that holds the transformed filters. Raises ``ScheduleError`` where the kernel is not packed."""
    body = kernel.body
    assert isinstance(body, Contraction)
    sources = {ld.source for ld in loads(body.b)}
    shape = (POSITIONS, p.depth, derived.padded_n)
    found = [k for k in sources if kernel.params[k].shape == shape]
    if len(sources) != 1 or not found:
        raise ScheduleError(
            f"contraction/winograd reads filters transformed to {shape}: pack the kernel as its engine asks for",
            code="GPC8001",
        )
    return found[0]
