"""Contractions whose operands are read in words: a word of 32 bits has neighbours along the depth, which counts words.

What the elements of a word are, and for what instructions, is in ``packed_int8`` and ``packed_f16``.

A word is *whole* if its elements are contiguous and aligned in memory and have the same guard: it is one load. Otherwise
it is put together from loads of its elements. ``packing_of`` packs a constant operand into whole words. If the depth is no
multiple of a word, the last one is padded with zeros.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
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
from gpucomp.ir.types import U8, U16, U32, DType, TensorType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.body import Count
from gpucomp.kernel.forms.access import Rewriter, is_aligned, reads_memory
from gpucomp.kernel.forms.operand import along_memory
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.passes.pack_weights import packable

BITS = 32  # of a word
UNSIGNED = {8: U8, 16: U16}  # by the bits of an element
ASKED_AGAIN = 64  # size of the caches: several engines ask the same about a kernel


@dataclass(frozen=True, eq=False)
class PackedWords(Contraction, ABC):
    """A contraction whose operands are words: what is summed are products of their elements of the same place.

    ``acc[batch, m, n] = sum over k, and over the elements i of a word, of a[batch, m, k][i] * b[batch, k, n][i]``
    """

    @property
    @abstractmethod
    def elements(self) -> tuple[DType, DType]:
        """The types of an element of ``a`` and of ``b``."""

    @property
    def per_word(self) -> int:
        return BITS // self.elements[0].bits

    @property
    def factor(self) -> DType:
        return self.a.dtype

    def operations(self, count: Count) -> float:
        more = 2 * (self.per_word - 1) * math.prod(v.extent for v in (*self.domain, *self.k))
        return super().operations(count) + more


@dataclass(frozen=True)
class Words:
    """How elements become words.

    count     elements of a word
    dtype     the type of a word
    least     least extent of the innermost axis of the depth: words of a shorter one would be mostly padding
    cleared   whether what lies behind the depth in a whole word is cleared: it may be no number, and times 0 that is none
    """

    count: int
    dtype: DType
    least: int
    cleared: bool = False


def per_product(kernel: Kernel) -> int:
    """Steps of the depth per product of ``kernel``: the elements of a word, else 1."""
    return kernel.body.per_word if isinstance(kernel.body, PackedWords) else 1


def is_whole(value: Expr, words: Words) -> bool:
    """Whether an operand in words is loaded in whole words."""
    return all(ld.dtype is words.dtype for ld in loads(value))


def formed(kernel: Kernel[Contraction], a: Expr, b: Expr, how: Words) -> tuple[Kernel[Contraction], Expr, Expr] | None:
    """``kernel`` with its depth in words, and its operands so; ``a`` and ``b`` are their elements, integers as wide.

    Parameters that are read in whole words become one-dimensional, of the type of a word. The order of the parameters
    stays. ``None`` if the depth has no run of elements, or if the kernel also reads a parameter as something else.
    """
    if any(isinstance(axis.extent, Size) for axis in kernel.body.k):
        return None
    depth, run = _depth(kernel, how.least)
    if run is None:
        return None
    words = var(run.name, -(-run.extent // how.count))
    whole_a, whole_b = (_whole_word(kernel, value, run, words, how) for value in (a, b))
    if run.extent % how.count and whole_b is not None and not how.cleared:
        whole_a = None  # one of the operands must have zeros after the end
    others = _beside(kernel)
    for _ in range(2):  # if one operand reads a parameter by elements, the other cannot read it by words
        by_elements = {
            ld.source for value, whole in ((a, whole_a), (b, whole_b)) if whole is None for ld in loads(value)
        }
        whole_a, whole_b = (
            None if whole is None or {ld.source for ld in loads(whole)} & (others | by_elements) else whole
            for whole in (whole_a, whole_b)
        )
    new_a = whole_a if whole_a is not None else _put_together(a, run, words, how)
    new_b = whole_b if whole_b is not None else _put_together(b, run, words, how)
    types = {ld.source: ld.dtype for value in (new_a, new_b) for ld in loads(value)}
    if any(types[number] is not kernel.params[number].dtype for number in others & types.keys()):
        return None
    params = tuple(_seen_as(types.get(number), t, how) for number, t in enumerate(kernel.params))
    body = replace(kernel.body, k=tuple(words if axis is run else axis for axis in depth))
    return replace(kernel, params=params, body=body), new_a, new_b


def _beside(kernel: Kernel[Contraction]) -> set[int]:
    """The parameters that the stores and the row statistics read."""
    tail = kernel.body.tail
    beside = [*(tail.expressions() if tail else ())]
    beside += [e for store in kernel.stores for e in (store.value, *store.index)]
    return {ld.source for e in beside for ld in loads(e)}


def _seen_as(dtype: DType | None, type: TensorType, how: Words) -> TensorType:
    """``type`` as a kernel declares a parameter that it reads as ``dtype``; ``None``: not in an operand."""
    if dtype is None or dtype is type.dtype:
        return type
    return TensorType(dtype, (type.size // how.count,) if dtype is how.dtype else type.shape)


@lru_cache(maxsize=ASKED_AGAIN)
def _depth(kernel: Kernel[Contraction], least: int) -> tuple[tuple[Var, ...], Var | None]:
    """The axes of the depth in memory order, and the innermost one, along which words are formed."""
    body = along_memory(kernel).body
    long = [axis for axis in body.k if axis.extent > 1]
    return body.k, long[-1] if long and long[-1].extent >= least else None


def _whole_word(kernel: Kernel, value: Expr, run: Var, words: Var, how: Words) -> Expr | None:
    """The word of an operand as one load; ``None`` if its elements are not contiguous and aligned."""
    lane = var("lane", how.count)
    placed = Rewriter(kernel.params, {run: call("add", call("mul", words, how.count), lane)})(value)

    def word(expr: Expr) -> Expr | None:
        match expr:
            case Load(source=source, index=(offset,)):
                fits = kernel.params[source].size % how.count == 0 and not reads_memory(offset)
                if not fits or not is_aligned(offset, lane, how.count):
                    return None
                constant, terms = linear(offset)
                part = {term: factor // how.count for term, factor in terms.items() if term is not lane}
                return load(source, (from_linear(constant // how.count, part),), how.dtype)
            case Select(condition=condition, then=then, otherwise=Const(value=other)) if lane not in condition.free:
                inner = word(then)
                filled = np.full(how.count, other, then.dtype.numpy).view(how.dtype.numpy)
                return None if inner is None else select(condition, inner, literal(int(filled[0]), how.dtype))
        return None

    found = word(placed)
    left = run.extent % how.count
    if found is None or not left or not how.cleared:
        return found
    bits = BITS // how.count * left
    here = call("lt", words, index(words.extent - 1))
    return call("bitand", found, select(here, literal((1 << BITS) - 1, how.dtype), literal((1 << bits) - 1, how.dtype)))


def _put_together(value: Expr, run: Var, words: Var, how: Words) -> Expr:
    """The word assembled from loads of its elements, with zeros after the end of ``run``."""
    total: Expr | None = None
    bits = BITS // how.count
    for lane in range(how.count):
        place = call("add", call("mul", words, how.count), lane)
        element = simplify(substitute(value, {run: place}))
        if run.extent % how.count > 0 and (words.extent - 1) * how.count + lane >= run.extent:
            element = select(call("lt", place, index(run.extent)), element, literal(0, element.dtype))
        wide = cast(cast(element, UNSIGNED[element.dtype.bits]), U32)
        shifted = wide * (1 << bits * lane) if lane else wide
        total = shifted if total is None else total + shifted
    assert total is not None
    return cast(total, how.dtype)


def packing_of(
    kernel: Kernel[Contraction], in_words: Callable[[Kernel[Contraction]], Kernel[Contraction]], how: Words
) -> Packing | None:
    """The packing of a constant operand into whole words; ``None`` if no operand needs packing.

    The layout is ``(words of the depth, span, elements of the word)``. A depth that is no multiple of a word is padded
    with zeros.
    """
    words = in_words(kernel)
    changed = words.body
    if not isinstance(changed, PackedWords) or words is kernel:
        return None
    body = kernel.body
    for name, value, span in (("b", changed.b, body.n), ("a", changed.a, body.m)):
        if not is_whole(value, how) and packable(kernel, name):
            return Packing(name, *_digits(kernel, span, getattr(body, name), how))
    return None


def _digits(
    kernel: Kernel[Contraction], span: tuple[Var, ...], value: Expr, how: Words
) -> tuple[tuple[Digit, ...], str, tuple[tuple[int, int], ...]]:
    """The digits of a packing, its transform (none), and how the axes of the depth are padded."""
    body, (depth, run) = kernel.body, _depth(kernel, how.least)
    assert run is not None
    room = {axis: -(-axis.extent // how.count) * how.count if axis is run else axis.extent for axis in body.k}
    step = {axis: math.prod(room[v] for v in body.k[place + 1 :]) for place, axis in enumerate(body.k)}
    batched = any(v in value.free for v in body.batch)
    digits = [
        Digit("batch", 1, math.prod(v.extent for v in body.batch) if batched else 1),
        *(Digit("k", step[axis], axis.extent) for axis in depth if axis is not run),
        Digit("k", how.count * step[run], room[run] // how.count),
        Digit("span", 1, math.prod(v.extent for v in span)),
        Digit("k", step[run], how.count),
    ]
    filled = () if run.extent == room[run] else tuple((axis.extent, room[axis]) for axis in body.k)
    return tuple(d for d in digits if d.extent > 1), "", filled
