"""Contractions of f16 by instructions that add the products of two pairs of f16 to an f32 sum.

``in_pairs`` rewrites a kernel so that an element of its operands is a u32 *word* of two f16 along the depth, and the depth
counts words (``packed_words``). It does so for f16 as memory has them, or zeros and other constants in their place: an operand
that is computed when it is loaded is left to engines that multiply f32. ``pair_packing`` packs a constant operand into whole
words; ``packed_in_pairs`` is the kernel with the operand packed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from gpucomp.expr.core import Cast, Const, Expr, Load, Select, literal, load, select
from gpucomp.ir.types import F16, F32, U16, U32, DType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.access import reads_memory
from gpucomp.kernel.forms.packed_words import ASKED_AGAIN, PackedWords, Words, formed, packing_of
from gpucomp.kernel.packing import Packing
from gpucomp.kernel.passes.pack_weights import pack

WORDS = Words(2, U32, least=2, cleared=True)


@dataclass(frozen=True, eq=False)
class PackedF16(PackedWords):
    """A contraction whose operands are words of two f16, and whose sum is f32."""

    @property
    def elements(self) -> tuple[DType, DType]:
        return F16, F16


def as_bits(value: Expr) -> Expr | None:
    """The bits of ``value`` as u16 if it is an f16 in memory widened to f32, else ``None``.

    ``select(inside, f32(x[i]), 0.0)`` of f16  ->  ``select(inside, x[i], 0)`` with ``x`` of u16
    """
    match value:
        case Cast(value=inner) if inner.dtype is F16 and value.dtype is F32:
            return as_bits(inner)
        case Load(source=source, index=place, dtype=dtype) if dtype is F16:
            return None if any(map(reads_memory, place)) else load(source, place, U16)
        case Const(value=number):
            with np.errstate(over="ignore"):
                half = np.float16(number)
            exact = np.float64(half) == np.float64(number) and value.dtype in (F16, F32)
            return literal(int(half.view(np.uint16)), U16) if exact else None
        case Select(condition=condition, then=then, otherwise=otherwise) if not reads_memory(condition):
            a, b = as_bits(then), as_bits(otherwise)
            return None if a is None or b is None else select(condition, a, b)
    return None


@lru_cache(maxsize=ASKED_AGAIN)
def in_pairs(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    """``kernel`` with its depth in words of two f16. Kernels that do not sum f16 of memory along a run of the depth in f32,
    or that read one of their operands beside, stay the same.

    Parameters that are read in whole words become u32 and one-dimensional, those that are read one by one u16. The order of
    the parameters stays.
    """
    body = kernel.body
    if type(body) is not Contraction or body.acc.dtype is not F32:
        return kernel
    a, b = as_bits(body.a), as_bits(body.b)
    found = formed(kernel, a, b, WORDS) if a is not None and b is not None else None
    if found is None:
        return kernel
    made, words_a, words_b = found
    batch, m, n, k = made.body.batch, made.body.m, made.body.n, made.body.k
    return replace(made, body=PackedF16(batch, m, n, k, words_a, words_b, body.acc, body.math, body.tail))


@lru_cache(maxsize=ASKED_AGAIN)
def pair_packing(kernel: Kernel[Contraction]) -> Packing | None:
    """The packing of a constant operand into whole words; ``None`` if no operand needs packing."""
    return packing_of(kernel, in_pairs, WORDS)


@lru_cache(maxsize=ASKED_AGAIN)
def packed_in_pairs(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    """``kernel`` with its operand packed as ``pair_packing`` says, and its depth in words."""
    packing = pair_packing(kernel)
    return in_pairs(pack(kernel, packing).kernel if packing is not None else kernel)
