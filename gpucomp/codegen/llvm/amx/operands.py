"""Operands of contractions as the narrow elements that a CPU's matrix and dot-product instructions multiply.

These instructions multiply pairs of bf16 or quads of bytes, 32 bits along k, and add the products to f32 or i32. A
kernel has ``f32(x) * f32(w)`` of bf16 operands, or ``i32(x) * i32(w)`` of bytes; the instruction implies the casts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gpucomp.codegen.llvm.contraction.operands import Operands, operands_of
from gpucomp.codegen.llvm.loops.nest import Flattener, collapse, offsets
from gpucomp.expr.core import Cast, Const, Expr, Load, Select, Var, index, literal, select, substitute, var, walk
from gpucomp.expr.simplify import coefficient, simplify
from gpucomp.ir.size import is_one
from gpucomp.ir.types import BF16, F32, I8, I32, U8, DType
from gpucomp.kernel import Contraction, Kernel

WORD = 4  # bytes of a pair or quad: the operand of one lane along k
ELEMENTS = {F32: (BF16,), I32: (I8, U8)}
STRIDES = (1, 2, 3, 4)
FEW_ROWS = 4


def element_of(expr: Expr, acc: DType) -> Expr | None:
    """The operand of a cast to ``acc``, if it is bf16 or a byte; ``None`` if it is wider."""
    match expr:
        case Cast(value=value) if value.dtype in ELEMENTS.get(acc, ()):
            return value
        case Select(condition=condition, then=then, otherwise=Const(value=padding)):
            inner = element_of(then, acc)
            if inner is None or not _holds(inner.dtype, padding):
                return None
            return select(condition, inner, literal(padding, inner.dtype))
    return None


def _holds(dtype: DType, value: float) -> bool:
    if dtype is BF16:
        return float(np.asarray(value).astype(dtype.numpy)) == float(value)
    info = np.iinfo(dtype.numpy)
    return bool(info.min <= value <= info.max)


@dataclass(frozen=True, eq=False)
class Narrow:
    """A contraction of narrow elements over flat variables.

    ``ops.a`` and ``ops.b`` are these elements, without the casts.
    """

    ops: Operands

    @property
    def dtype(self) -> DType:
        return self.ops.a.dtype

    @property
    def group(self) -> int:
        """Elements of a word."""
        return WORD // self.dtype.nbytes

    @property
    def few_rows(self) -> bool:
        """Whether dot products of bytes take as long as tiles: each waits for the columns, of which it reads the same lines.

        llama.cpp leaves one row to dot products (ggml-cpu/amx/mmq.cpp). A tile costs its configuration besides, and what the
        system saves of it with each switch of threads.
        """
        rows, factors = self.ops.m.extent, (self.ops.a.dtype, self.ops.b.dtype)
        return isinstance(rows, int) and rows < FEW_ROWS and self.dtype is not BF16 and factors != (U8, U8)


@lru_cache(maxsize=32)
def narrow_of(kernel: Kernel[Contraction]) -> Narrow | None:
    """The contraction as ``Narrow``; ``None`` if an operand is too wide."""
    c = kernel.body
    acc = c.acc.dtype
    if acc not in ELEMENTS:
        return None
    if element_of(c.a, acc) is None or element_of(c.b, acc) is None:
        return None
    ops = operands_of(kernel, 1)
    a, b = element_of(ops.a, acc), element_of(ops.b, acc)
    if a is None or b is None:
        return None
    return Narrow(Operands(ops.batch, ops.m, ops.n, ops.ko, ops.ki, a, b, ops.made))


@dataclass(frozen=True)
class Straight:
    """Rows of ``a`` that the instructions can read in place.

    Element (m, ki) is ``params[source][offset + m * row + ki]``, and ``points[point]`` elements further for each point
    of the outer axes of k. ``offset`` depends on the batch alone.
    """

    source: int
    offset: Expr
    row: int
    points: tuple[int, ...]


def straight_rows(narrow: Narrow) -> Straight | None:
    """How rows are read in place; ``None`` if they are computed, guarded, or not at a constant distance."""
    ops = narrow.ops
    if not isinstance(ops.a, Load) or any(isinstance(node, Load) for node in walk(ops.a.index[0])):
        return None
    at = ops.a.index[0]
    row = coefficient(at, ops.m)
    steps = [coefficient(at, axis) for axis in ops.ko]
    if is_one(ops.m.extent):
        row = 1  # the only one
    if not is_one(coefficient(at, ops.ki)) or not isinstance(row, int) or row <= 0:
        return None
    if not all(isinstance(step, int) for step in steps):
        return None
    zero: dict[Expr, Expr] = {axis: index(0) for axis in (ops.m, ops.ki, *ops.ko)}
    points = [0]
    for axis, step in zip(ops.ko, steps, strict=True):
        points = [p + i * (step or 0) for p in points for i in range(axis.extent)]
    return Straight(ops.a.source, simplify(substitute(at, zero)), row, tuple(points))


@dataclass(frozen=True, eq=False)
class Image:
    """``a`` as windows that slide over an image: ``element(batch, image, line, pixel, channel)``.

    At tap (ty, tx), row (image, y, x) of ``a`` is pixel x * stride_x + tx of line y * stride_y + ty. ``planes`` says
    that neighbouring elements in memory are pixels, not channels.
    """

    element: Expr
    batch: Var
    image: Var
    line: Var
    pixel: Var
    channel: Var
    out_y: int
    out_x: int
    taps_y: int
    taps_x: int
    stride_y: int
    stride_x: int
    planes: bool


@lru_cache(maxsize=32)
def image_of(kernel: Kernel[Contraction]) -> Image | None:
    """The windows of a convolution in at most two dimensions; ``None`` if ``a`` has another form."""
    c = kernel.body
    element = element_of(c.a, c.acc.dtype)
    if element is None or not c.m or not c.k or any(_computed(i) for i in _indices(element)):
        return None
    *taps, channel = c.k
    flat = Flattener(kernel.params)
    batch, parts = collapse(c.batch, "batch")
    element = flat(substitute(element, parts))
    x = _slide(element, c.m[-1], taps, flat, "pixel")
    element = x.moved
    y = _slide(element, c.m[-2], [t for t in taps if t is not x.tap], flat, "line") if len(c.m) > 1 else None
    slides = [x] if y is None else [y, x]
    order = [slide.tap for slide in slides if slide.tap is not None]
    if [t for t in taps if not is_one(t.extent)] != order:
        return None  # taps along another axis, or in an order that differs from the packed filters'
    line = var("line", 1) if y is None else y.place
    moved = x.moved if y is None else y.moved
    image, parts = collapse(c.m[:-2], "image")
    ones: dict[Expr, Expr] = {t: index(0) for t in taps}
    moved = simplify(substitute(moved, {**parts, **ones}))
    if any(axis in moved.free for axis in c.m):
        return None
    planes = any(not is_one(coefficient(o, channel)) for o in offsets([moved])) and not is_one(channel.extent)
    return Image(
        element=moved,
        batch=batch,
        image=image,
        line=line,
        pixel=x.place,
        channel=channel,
        out_y=1 if y is None else c.m[-2].extent,
        out_x=c.m[-1].extent,
        taps_y=1 if y is None else y.taps,
        taps_x=x.taps,
        stride_y=1 if y is None else y.stride,
        stride_x=x.stride,
        planes=planes,
    )


@dataclass(frozen=True, eq=False)
class _Slide:
    """One axis of an image.

    ``moved`` is in terms of ``place`` = axis * stride + tap, instead of the axis and the tap.
    """

    moved: Expr
    place: Var
    tap: Var | None
    taps: int
    stride: int


def _slide(element: Expr, axis: Var, taps: Sequence[Var], flat: Flattener, name: str) -> _Slide:
    for tap in taps:
        if is_one(tap.extent):
            continue
        for stride in STRIDES:
            place = var(name, (axis.extent - 1) * stride + tap.extent)
            moved = simplify(substitute(element, {tap: place - axis * stride}))
            if axis not in moved.free:
                return _Slide(moved, place, tap, tap.extent, stride)
    place = var(name, axis.extent)
    return _Slide(simplify(substitute(element, {axis: place})), place, None, 1, 1)


def _indices(expr: Expr) -> list[Expr]:
    return [i for node in walk(expr) if isinstance(node, Load) for i in node.index]


def _computed(place: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk(place))
