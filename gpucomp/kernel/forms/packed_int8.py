"""Contractions of bytes by instructions that add a dot product of four bytes to an i32 sum.

``in_words`` rewrites a kernel so that an element of its operands is an i32 *word* of four bytes along the depth, and
the depth counts words (``packed_words``). Templates load and store words like any i32, and multiply them by
``dots.product``. ``word_packing`` packs a constant operand into whole words; ``packed_in_words`` is the kernel with the
operand packed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from gpucomp.expr.core import Expr
from gpucomp.ir.types import I8, I32, U8, DType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms import packed_words
from gpucomp.kernel.forms.packed_words import ASKED_AGAIN, PackedWords, Words, formed, packing_of
from gpucomp.kernel.packing import Packing
from gpucomp.kernel.passes.narrow_integers import as_byte
from gpucomp.kernel.passes.pack_weights import pack

WORD = 4  # bytes
WORDS = Words(WORD, I32, least=3)  # a word of a run of two would be half zeros


@dataclass(frozen=True, eq=False)
class PackedInt8(PackedWords):
    """A contraction whose operands are words of bytes. ``signed`` says whether those of ``a`` and of ``b`` are signed."""

    signed: tuple[bool, bool] = (True, True)

    @property
    def elements(self) -> tuple[DType, DType]:
        a, b = self.signed
        return I8 if a else U8, I8 if b else U8


def is_whole(value: Expr) -> bool:
    """Whether an operand of ``PackedInt8`` is loaded in whole words."""
    return packed_words.is_whole(value, WORDS)


@lru_cache(maxsize=ASKED_AGAIN)
def in_words(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    """``kernel`` with its depth in words. Kernels that do not sum bytes along a run of the depth stay the same.

    Parameters that are only read in whole words become i32 and one-dimensional. The order of the parameters stays.
    """
    body = kernel.body
    if isinstance(body, PackedInt8) or body.acc.dtype is not I32:
        return kernel
    a, b = as_byte(body.a), as_byte(body.b)
    found = formed(kernel, a, b, WORDS) if a is not None and b is not None else None
    if a is None or b is None or found is None:
        return kernel
    made, words_a, words_b = found
    batch, m, n, k = made.body.batch, made.body.m, made.body.n, made.body.k
    signed = (a.dtype is I8, b.dtype is I8)
    changed = PackedInt8(batch, m, n, k, words_a, words_b, body.acc, body.math, body.tail, signed)
    return replace(made, body=changed)


@lru_cache(maxsize=ASKED_AGAIN)
def word_packing(kernel: Kernel[Contraction]) -> Packing | None:
    """The packing of a constant operand into whole words; ``None`` if no operand needs packing."""
    return packing_of(kernel, in_words, WORDS)


@lru_cache(maxsize=ASKED_AGAIN)
def packed_in_words(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    """``kernel`` with its operand packed as ``word_packing`` says, and its depth in words."""
    packing = word_packing(kernel)
    return in_words(pack(kernel, packing).kernel if packing is not None else kernel)
