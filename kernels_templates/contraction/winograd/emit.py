"""What the `winograd` contraction template is given besides numbers: names, types, its sums of lines, the epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.epilogue import epilogue, left_sums, split_scratch
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.sums import sums_of
from gpucomp.expr.core import var
from gpucomp.ir.types import F32
from gpucomp.kernel import Kernel
from gpucomp.kernel.forms.convolution import packed_filters
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernel.forms.matrix import loadable_pixels
from gpucomp.kernel.winograd_matrices import ALGORITHMS, Algorithm, floats
from gpucomp.refusal import required

if TYPE_CHECKING:
    from gpucomp.kernels_templates.contraction.winograd.space import WinogradProblem, WinogradSchedule, WinogradSizes

COLUMN_ACCESS = 4  # output channels that one access takes
CHANNEL_ACCESS = 4  # input channels, of stages that have so many


def transform_of(outputs: int) -> str:
    """The one of ``gpucomp.kernel.passes.pack_weights.TRANSFORMS`` by which F(``outputs``, 3) has its filters."""
    return f"winograd{outputs}3"


def algorithm_of(outputs: int) -> Algorithm:
    return ALGORITHMS[transform_of(outputs)]


def winograd_hooks(
    kernel: Kernel, printer: CPrinter, s: WinogradSchedule, p: WinogradProblem, derived: WinogradSizes
) -> Mapping[str, Any]:
    """See ``kernels_templates/contraction/winograd/kernel.j2`` for what each hook is."""
    form = required(loadable_pixels(kernel))
    algorithm = algorithm_of(s.outputs)
    acc = ("sums[y]" if derived.in_lines else "sums") if derived.out_vector > 1 or derived.in_lines else "sum"
    found = epilogue(kernel, printer, var("batch", 1), derived.out_vector, acc + f"[{LANE}]" * (derived.out_vector > 1))
    acc_type = printer.dialect.value_type(F32)
    filters = packed_filters(kernel, (derived.products, p.depth, derived.padded_n), "contraction/winograd")
    largest = max(t.size for t in kernel.params) + derived.all_blocks + s.blocks + p.depth + s.channels
    return {
        "scratch": split_scratch(printer, acc_type, s.splits),
        **left_sums(printer, F32, s.splits, derived.out_vector),
        "image": printer.params[form.source][0],
        "filters": printer.params[filters][0],
        "row_lines": found.row_lines,
        "store": found.store,
        "index": printer.dialect.index_type(largest),
        "acc_type": acc_type,
        "copy": lambda to, source, width, guard="": printer.dialect.copy(to, source, F32, width, guard),
        "array": lambda name, size: printer.dialect.aligned_array(acc_type, name, size),
        "of_data": sums_of(printer.dialect, acc_type, floats(algorithm.data)),
        "of_products": sums_of(printer.dialect, acc_type, floats(algorithm.result)),
    }
