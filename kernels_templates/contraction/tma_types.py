"""The element types that wgmma and tcgen05.mma multiply. tcgen05 has no i8 that all of its devices know (sm_103)."""

from __future__ import annotations

from collections.abc import Mapping

from gpucomp.expr.core import Cast, Expr, Select
from gpucomp.ir.types import BF16, F16, F32, I8, I32, DType
from gpucomp.kernel import Contraction, Kernel

# (operand, accumulator, math) to the instruction's type and TMA's element type
KINDS: Mapping[tuple[DType, DType, str], tuple[str, str]] = {
    (F16, F32, "strict"): ("f16", "f16"),
    (F16, F32, "tf32"): ("f16", "f16"),
    (F16, F32, "3xtf32"): ("f16", "f16"),
    (BF16, F32, "strict"): ("bf16", "bf16"),
    (BF16, F32, "tf32"): ("bf16", "bf16"),
    (BF16, F32, "3xtf32"): ("bf16", "bf16"),
    (F32, F32, "tf32"): ("tf32", "tf32"),
    (I8, I32, "strict"): ("s8", "i8"),
}


def operand_dtypes(kernel: Kernel[Contraction]) -> tuple[DType, DType]:
    """The types of ``a`` and ``b`` before they are cast to the accumulator's type."""
    body = kernel.body
    return _stored(body.a), _stored(body.b)


def _stored(value: Expr) -> DType:
    value = value.then if isinstance(value, Select) else value  # a load that the image's edges guard
    return value.value.dtype if isinstance(value, Cast) else value.dtype


def kind_of(kernel: Kernel[Contraction]) -> tuple[str, str] | None:
    """The instruction's type and TMA's element type for a kernel; ``None`` if there is no such instruction."""
    body = kernel.body
    a, b = operand_dtypes(kernel)
    return KINDS.get((a, body.acc.dtype, body.math)) if a is b else None
