"""Contractions of bytes by instructions that add a dot product of four bytes to an i32 sum.

``in_words`` rewrites a kernel so that an element of its operands is an i32 *word* of four bytes along the depth, and
the depth counts words. Templates load and store words like any i32, and multiply them by ``dots.product``.

A word is *whole* if its four bytes are contiguous and aligned in memory and have the same guard: it is one load.
Otherwise it is assembled from four bytes. ``word_packing`` packs a constant operand into whole words;
``packed_in_words`` is the kernel with the operand packed. If the depth is not a multiple of four, the last word is
padded with zeros.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from gpucomp.expr.core import (
    Const,
    Expr,
    Load,
    Select,
    Var,
    call,
    cast,
    index,
    literal,
    load,
    loads,
    select,
    substitute,
    var,
)
from gpucomp.expr.simplify import from_linear, linear, simplify
from gpucomp.ir.size import Size
from gpucomp.ir.types import I8, I32, U8, U32, TensorType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.body import Count
from gpucomp.kernel.forms.access import Rewriter, is_aligned, reads_memory
from gpucomp.kernel.forms.operand import along_memory
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.passes.narrow_integers import as_byte
from gpucomp.kernel.passes.pack_weights import pack, packable

WORD = 4  # bytes
ASKED_AGAIN = 64  # size of the caches: several engines ask the same about a kernel
LEAST_RUN = 3  # least extent of the innermost depth axis: a word of a shorter one would be half zeros or more


@dataclass(frozen=True, eq=False)
class PackedInt8(Contraction):
    """A contraction whose operands are words. ``signed`` says whether the bytes of ``a`` and of ``b`` are signed.

    ``acc[batch, m, n] = sum over k, and over the bytes i of a word, of a[batch, m, k][i] * b[batch, k, n][i]``
    """

    signed: tuple[bool, bool] = (True, True)

    def operations(self, count: Count) -> float:
        more = 2 * (WORD - 1) * math.prod(v.extent for v in (*self.domain, *self.k))
        return super().operations(count) + more


def bytes_per_product(kernel: Kernel) -> int:
    """Steps of the depth per product of ``kernel``: 4 for words, else 1."""
    return WORD if isinstance(kernel.body, PackedInt8) else 1


def is_whole(value: Expr) -> bool:
    """Whether an operand of ``PackedInt8`` is loaded in whole words."""
    return all(ld.dtype is I32 for ld in loads(value))


@lru_cache(maxsize=ASKED_AGAIN)
def in_words(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    """``kernel`` with its depth in words. Kernels that do not sum bytes along a run of the depth stay the same.

    Parameters that are only read in whole words become i32 and one-dimensional. The order of the parameters stays.
    """
    body = kernel.body
    if isinstance(body, PackedInt8) or body.acc.dtype is not I32:
        return kernel
    a, b = as_byte(body.a), as_byte(body.b)
    if a is None or b is None or any(isinstance(axis.extent, Size) for axis in body.k):
        return kernel
    depth, run = _depth(kernel)
    if run is None:
        return kernel
    words = var(run.name, -(-run.extent // WORD))
    beside = [*(body.tail.expressions() if body.tail else ())]
    beside += [e for store in kernel.stores for e in (store.value, *store.index)]
    others = {ld.source for e in beside for ld in loads(e)}
    whole_a, whole_b = (_whole_word(kernel, value, run, words) for value in (a, b))
    if run.extent % WORD and whole_b is not None:
        whole_a = None  # one of the operands must have zeros after the end
    for _ in range(2):  # if one operand reads a parameter by bytes, the other cannot read it by words
        by_bytes = others | {
            ld.source for value, whole in ((a, whole_a), (b, whole_b)) if whole is None for ld in loads(value)
        }
        whole_a, whole_b = (
            None if whole is None or {ld.source for ld in loads(whole)} & by_bytes else whole
            for whole in (whole_a, whole_b)
        )
    viewed = {ld.source for whole in (whole_a, whole_b) if whole is not None for ld in loads(whole)}
    params = tuple(
        TensorType(I32, (t.size // WORD,)) if number in viewed else t for number, t in enumerate(kernel.params)
    )
    changed = PackedInt8(
        body.batch,
        body.m,
        body.n,
        tuple(words if axis is run else axis for axis in depth),
        whole_a if whole_a is not None else _put_together(a, run, words),
        whole_b if whole_b is not None else _put_together(b, run, words),
        body.acc,
        body.math,
        body.tail,
        (a.dtype is I8, b.dtype is I8),
    )
    return replace(kernel, params=params, body=changed)


@lru_cache(maxsize=ASKED_AGAIN)
def _depth(kernel: Kernel[Contraction]) -> tuple[tuple[Var, ...], Var | None]:
    """The axes of the depth in memory order, and the innermost one, along which words are formed."""
    body = along_memory(kernel).body
    long = [axis for axis in body.k if axis.extent > 1]
    return body.k, long[-1] if long and long[-1].extent >= LEAST_RUN else None


def _whole_word(kernel: Kernel, value: Expr, run: Var, words: Var) -> Expr | None:
    """The word of a byte operand as one load; ``None`` if its bytes are not contiguous and aligned."""
    lane = var("lane", WORD)
    placed = Rewriter(kernel.params, {run: call("add", call("mul", words, WORD), lane)})(value)

    def word(expr: Expr) -> Expr | None:
        match expr:
            case Load(source=source, index=(offset,)):
                fits = kernel.params[source].size % WORD == 0 and not reads_memory(offset)
                if not fits or not is_aligned(offset, lane, WORD):
                    return None
                constant, terms = linear(offset)
                quarter = {term: factor // WORD for term, factor in terms.items() if term is not lane}
                return load(source, (from_linear(constant // WORD, quarter),), I32)
            case Select(condition=condition, then=then, otherwise=Const(value=other)) if lane not in condition.free:
                inner = word(then)
                four = np.full(WORD, other, then.dtype.numpy).view(np.int32)
                return None if inner is None else select(condition, inner, literal(int(four[0]), I32))
        return None

    return word(placed)


def _put_together(value: Expr, run: Var, words: Var) -> Expr:
    """The word assembled from four byte loads, with zeros after the end of ``run``."""
    total: Expr | None = None
    for lane in range(WORD):
        place = call("add", call("mul", words, WORD), lane)
        byte = simplify(substitute(value, {run: place}))
        if run.extent % WORD > 0 and (words.extent - 1) * WORD + lane >= run.extent:
            byte = select(call("lt", place, index(run.extent)), byte, literal(0, byte.dtype))
        shifted = cast(cast(byte, U8), U32) * (1 << 8 * lane) if lane else cast(cast(byte, U8), U32)
        total = shifted if total is None else total + shifted
    assert total is not None
    return cast(total, I32)


@lru_cache(maxsize=ASKED_AGAIN)
def word_packing(kernel: Kernel[Contraction]) -> Packing | None:
    """The packing of a constant operand into whole words; ``None`` if no operand needs packing.

    The layout is ``(words of the depth, span, bytes of the word)``. A depth that is not a multiple of four is padded
    with zeros.
    """
    words = in_words(kernel)
    changed = words.body
    if not isinstance(changed, PackedInt8) or words is kernel:
        return None
    body = kernel.body
    for name, value, span in (("b", changed.b, body.n), ("a", changed.a, body.m)):
        if not is_whole(value) and packable(kernel, name):
            return Packing(name, *_digits(kernel, span, getattr(body, name)))
    return None


def _digits(
    kernel: Kernel[Contraction], span: tuple[Var, ...], value: Expr
) -> tuple[tuple[Digit, ...], str, tuple[tuple[int, int], ...]]:
    """The digits of a packing, its transform (none), and how the axes of the depth are padded."""
    body, (depth, run) = kernel.body, _depth(kernel)
    assert run is not None
    room = {axis: -(-axis.extent // WORD) * WORD if axis is run else axis.extent for axis in body.k}
    step = {axis: math.prod(room[v] for v in body.k[place + 1 :]) for place, axis in enumerate(body.k)}
    batched = any(v in value.free for v in body.batch)
    digits = [
        Digit("batch", 1, math.prod(v.extent for v in body.batch) if batched else 1),
        *(Digit("k", step[axis], axis.extent) for axis in depth if axis is not run),
        Digit("k", WORD * step[run], room[run] // WORD),
        Digit("span", 1, math.prod(v.extent for v in span)),
        Digit("k", step[run], WORD),
    ]
    filled = () if run.extent == room[run] else tuple((axis.extent, room[axis]) for axis in body.k)
    return tuple(d for d in digits if d.extent > 1), "", filled


@lru_cache(maxsize=ASKED_AGAIN)
def packed_in_words(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    """``kernel`` with its operand packed as ``word_packing`` says, and its depth in words."""
    packing = word_packing(kernel)
    return in_words(pack(kernel, packing).kernel if packing is not None else kernel)
