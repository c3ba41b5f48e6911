"""Shared by engines with sums in mma fragments: the functions that multiply, and how sums are stored.

The text around them is in ``fragments.j2``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gpucomp.codegen.c.banks import best_exchange, half_offset
from gpucomp.codegen.c.epilogue import Epilogue
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.ir.types import BF16, F16, F32, I8, DType

FUNCTIONS = {F16: "gc_mma_m16n8k16_f16", BF16: "gc_mma_m16n8k16_bf16", F32: "gc_mma_m16n8k8_tf32"}


class StagedSums(Protocol):
    """The sizes of an engine whose sums are stored by way of shared memory."""

    @property
    def out_vector(self) -> int: ...
    @property
    def sum_columns(self) -> int: ...


def staged_stores(
    found: Epilogue, printer: CPrinter, dtype: DType, warp_n: int, d: StagedSums, *, together: bool = False
) -> Mapping[str, Any]:
    """What ``store_sums`` of ``contraction/fragments.j2`` reads: the epilogue, and how sums of ``dtype`` are staged.

    early_together    whether all blocks' rows fetch the other operands of their stores at once
    half_offset       offset of the first half within a run of eight sums (banks.py)
    """
    copy, half = printer.dialect.copy, "0"
    sums_copy = copy("sums", "sums_from", dtype, d.out_vector)
    if d.out_vector == 8 and dtype.nbytes == 4:
        runs = warp_n // 8
        terms = best_exchange(runs, d.sum_columns)
        half = half_offset(terms, {"c": "j", "row": "my_lane / 4"})
        first = half_offset(terms, {"c": f"run % {runs}", "row": f"run / {runs}"})
        if terms:
            sums_copy = copy("sums", f"sums_from + {first}", dtype, 4)
            sums_copy += copy("sums + 4", f"sums_from + ({first} ^ 4)", dtype, 4)
    return {
        "row_lines": found.row_lines,
        "store": found.store,
        "sums_copy": sums_copy,
        "half_offset": half,
        "early": found.early,
        "early_count": found.early_count,
        "early_together": together,
    }


def multiply_function(a: DType, b: DType) -> str:
    """The prelude's function that multiplies fragments of ``a`` and ``b``."""
    if a in FUNCTIONS:
        return FUNCTIONS[a]
    signs = ", ".join("true" if t is I8 else "false" for t in (a, b))
    return f"gc_mma_m16n8k32_i8<{signs}>"
