"""What the `winograd` contraction template is given besides numbers: names, types and the epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.c_printer import CPrinter
from gpucomp.codegen.emit import LANE
from gpucomp.codegen.epilogue import epilogue, split_scratch
from gpucomp.codegen.tma import Pixels, pixels_of
from gpucomp.errors import ScheduleError
from gpucomp.expr.core import loads, var
from gpucomp.ir.types import F32
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
    acc = "sum" if derived.out_vector == 1 else f"sums[{LANE}]"
    found = epilogue(kernel, printer, var("batch", 1), derived.out_vector, acc)
    acc_type = printer.dialect.value_type(F32)
    filters = filters_of(kernel, p, derived)
    largest = max(t.size for t in kernel.params) + derived.all_blocks + s.blocks + p.depth + s.channels
    return {
        "scratch": split_scratch(printer, acc_type, s.splits),
        "image": printer.params[form.source][0],
        "filters": printer.params[filters][0],
        "row_lines": found.row_lines,
        "store": found.store,
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
