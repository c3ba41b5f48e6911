"""Shared by engines with sums in mma fragments: the functions that multiply, and how sums are stored.

The text around them is in ``fragments.j2``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gpucomp.codegen.c.banks import best_exchange, half_offset
from gpucomp.codegen.c.epilogue import Epilogue
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import over, plus
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


# ---- where engines whose fragments come straight out of shared memory read them ----


def b_fragments(filters: str, tile_n: int, warp_n: int, warps_n: int, wide: int) -> str:
    """Where a lane reads its first fragments of filters, chunks of 16 bytes of depth by columns; ``wide`` blocks at once."""
    column = plus(f"b_warp * {warp_n}" if warps_n > 1 else 0, "my_lane / 16 * 8" if wide == 2 else 0, "my_lane % 8")
    return f"{filters} + (my_lane / 8 % 2 * {tile_n} + {column}) * 16"


def read_b(wide: int, offset: str) -> str:
    """The statement that reads ``wide`` blocks of filters."""
    return f"gc_ldmatrix_x{2 * wide}(b_part + j * {2 * wide}, b_from + {offset});"


def copy_chunk(source: str, *, is_async: bool) -> str:
    """The statement that brings 16 bytes of constants ``to`` shared memory."""
    if is_async:
        return f"gc_cp_async16(to, {source}, true);"
    return f"*reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>({source});"


def my_pixel(warp_m: int, warps_m: int, blocks_m: int, runs: int) -> str:
    """The output of the tile whose ``run`` of columns a lane stores."""
    first = plus(f"a_warp * {warp_m}" if warps_m > 1 else 0, "i * 16" if blocks_m > 1 else 0)
    return plus(first, over("run", runs))
