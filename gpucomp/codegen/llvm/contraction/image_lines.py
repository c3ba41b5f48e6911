"""Copied lines of an image, for convolutions over few channels. A pointer per tap would cost too much there.

Rows of ``a`` along one line of the result overlap: row x starts ``stride`` pixels after row x - 1. A task copies, for
each of its lines and each outer tap, the pixels that the line's windows cover, channels innermost. Row x is then a run
of ``taps * channels`` elements that starts at ``x * stride * channels``, and neighbouring rows overlap as in the image.
The copy also applies padding, layout and elementwise prologues, as every copy of ``a`` does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from gpucomp.codegen.llvm.contraction.operands import Operands, operands_of
from gpucomp.codegen.llvm.ir import arithmetic, storage
from gpucomp.codegen.llvm.ir.builder import Value
from gpucomp.codegen.llvm.ir.printer import Affine, LaneValue
from gpucomp.codegen.llvm.loops.nest import Entry, FlatStore, Flattener, collapse, lower, offsets
from gpucomp.expr.core import Expr, Load, Var, call, index, substitute, var, walk
from gpucomp.expr.simplify import coefficient, simplify
from gpucomp.ir.size import Size, bounds, is_one
from gpucomp.ir.types import DType
from gpucomp.kernel import Contraction, Kernel

STRIDES = (1, 2, 3, 4)
MOST_PLANES = 8  # most channels that are interleaved by unrolled shuffles


@dataclass(frozen=True, eq=False)
class Windows:
    """How ``a`` is copied: ``element(batch, line, ko..., pixel, channel)``.

    ops      the contraction, with the taps and channels of a line as the last axis of k; its ``a`` is ``element``
    span     rows of ``a`` in a line
    stride   pixels between neighbouring rows
    planes   whether channels are separate planes in the image, so that the copy interleaves them
    """

    ops: Operands
    element: Expr
    line: Var
    pixel: Var
    channel: Var
    span: int
    stride: int
    planes: bool

    @property
    def row(self) -> int:
        """Elements of one line at one outer tap."""
        return self.pixel.extent * self.channel.extent

    @property
    def line_elements(self) -> int:
        return self.ops.outer * self.row

    def room(self, tile_m: int) -> int:
        """Elements of the lines that ``tile_m`` consecutive rows touch, at most."""
        if not isinstance(self.span, Size):
            return most_lines(tile_m, self.span) * self.line_elements
        overlap = bounds(self.pixel.extent - self.stride * self.span)[1]
        each = self.ops.outer * self.channel.extent

        def most(span: int) -> int:  # is greatest at an end: it is a sum of span and 1 / span
            return math.ceil(((tile_m - 1) / span + 2) * (self.stride * span + max(overlap, 0))) * each

        return max(most(max(int(span), 1)) for span in self.span.bounds)


@lru_cache(maxsize=32)
def windows_of(kernel: Kernel[Contraction]) -> Windows | None:
    """The windows that slide along the last axis of m; ``None`` if ``a`` has a different form."""
    c = kernel.body
    if not c.m or is_one(c.m[-1].extent) or any(isinstance(e, Load) for o in _indices(c.a) for e in walk(o)):
        return None
    if any(isinstance(axis.extent, Size) for axis in c.k):
        return None
    among = _windows(kernel, c.k[:-2], c.k[-2], c.k[-1]) if len(c.k) > 1 else None
    # an image of one channel has no axis of channels
    return among or (_windows(kernel, c.k[:-1], c.k[-1], var("channel", 1)) if c.k else None)


def _windows(kernel: Kernel[Contraction], outer: tuple[Var, ...], tap: Var, channel: Var) -> Windows | None:
    """The windows whose taps along a line are the axis ``tap`` of k. ``outer`` are its axes before that."""
    c, x = kernel.body, kernel.body.m[-1]
    if is_one(tap.extent):
        return None
    flat = Flattener(kernel.params)
    found = None
    for stride in STRIDES:
        pixel = var("pixel", stride * (x.extent - 1) + tap.extent)
        moved = simplify(substitute(c.a, {tap: pixel - x * stride}))
        if x not in moved.free:
            found = stride, pixel, moved
            break
    if found is None:
        return None
    stride, pixel, moved = found
    line, line_parts = collapse(c.m[:-1], "line")
    plain = operands_of(kernel, 1)
    batch, batch_parts = collapse(c.batch, "batch")
    n, n_parts = collapse(c.n, "n")
    ki = var("run", tap.extent * channel.extent)
    split: dict[Expr, Expr] = {tap: call("floordiv", ki, channel.extent), channel: call("mod", ki, channel.extent)}
    b = flat(substitute(c.b, {**batch_parts, **n_parts, **split}))
    ko = tuple(axis for axis in outer if not is_one(axis.extent))
    single: dict[Expr, Expr] = {axis: index(0) for axis in outer if is_one(axis.extent)}
    element = flat(substitute(moved, {**batch_parts, **line_parts, **single}))
    b = simplify(substitute(b, single))
    steps = [coefficient(o, channel) for o in offsets([element])]
    planes = not is_one(channel.extent) and any(step is not None and not is_one(step) for step in steps)
    if planes and channel.extent > MOST_PLANES:
        return None
    names: dict[Expr, Expr] = {plain.batch: batch, plain.n: n}

    def stores() -> tuple[FlatStore, ...]:
        renamed = [(s.target, substitute(s.offset, names), substitute(s.value, names)) for s in plain.stores]
        return tuple(FlatStore(*one) for one in renamed)

    ops = Operands(batch, plain.m, n, ko, ki, element, b, stores)
    return Windows(ops, element, line, pixel, channel, x.extent, stride, planes)


def _indices(expr: Expr) -> list[Expr]:
    return [i for node in walk(expr) if isinstance(node, Load) for i in node.index]


class Lines:
    """Writes the copies of one contraction's windows. ``bound`` holds the values of its variables."""

    def __init__(
        self, entry: Entry, windows: Windows, dtype: DType, width: int, tile_m: int, bound: dict[Expr, LaneValue]
    ) -> None:
        self.entry, self.code, self.windows, self.bound = entry, entry.code, windows, bound
        self.dtype, self.width = dtype, width
        self.scalar = storage.register_scalar(dtype)
        room = windows.room(tile_m) + width * MOST_PLANES
        self.copy = self.code.stack(f"[{room} x {self.scalar}]", 64)
        w = windows
        self.both = var("both", w.row)
        element = w.element
        if not w.planes:
            channels = w.channel.extent
            parts: dict[Expr, Expr] = {
                w.pixel: call("floordiv", self.both, channels),
                w.channel: call("mod", self.both, channels),
            }
            element = simplify(substitute(element, parts))
        self.program = lower([element], [w.ops.batch, w.line, *w.ops.ko, w.pixel, w.channel, self.both])

    def write(self, m0: Value, rows: Value) -> Value:
        """Copies the lines of ``rows`` rows from ``m0`` on, and returns the first line."""
        code, w = self.code, self.windows
        first = m0.integer_op("udiv", w.span)
        last = (m0 + rows - 1).integer_op("udiv", w.span) + 1
        with code.loop(first, last) as line:
            self.bound[w.line] = line
            with code.loop(0, w.ops.outer) as point:
                places = self.entry.decompose(point, [a.extent for a in w.ops.ko])
                self.bound.update(zip(w.ops.ko, places, strict=True))
                base = ((line - first) * w.ops.outer + point) * w.row
                if w.planes:
                    self._across(base)
                else:
                    self._along(base)
        return first

    def _value(self, axis: Var, at: Value, mask: Value | None) -> Value:
        self.bound[axis] = Affine(at, 1)
        printer = self.entry.printer(self.program, self.bound, self.width, mask)
        return arithmetic.cast(printer.lanes(self.program.results[0]), self.windows.element.dtype, self.dtype)

    def _along(self, base: Value) -> None:
        """Copies vectors of pixels and channels in the order of memory."""

        def put(at: Value, mask: Value | None) -> None:
            place = self.code.gep(self.copy, base + at, self.scalar)
            self.code.store(self._value(self.both, at, mask), place, self.dtype.nbytes)

        self.entry.chunks(0, self.both.extent, self.width, put, self.both.extent)

    def _across(self, base: Value) -> None:
        """Copies a vector of pixels of each channel, interleaved.

        Elements written past the row's end are overwritten by the next row.
        """
        code, width, channels = self.code, self.width, self.windows.channel.extent

        def put(at: Value, mask: Value | None) -> None:
            planes = []
            for channel in range(channels):
                self.bound[self.windows.channel] = code.integer(channel)
                planes.append(self._value(self.windows.pixel, at, mask))
            for part in range(channels):
                place = base + at * channels + part * width
                mixed = interleaved(planes, range(part * width, (part + 1) * width))
                code.store(mixed, code.gep(self.copy, place, self.scalar), self.dtype.nbytes)

        self.entry.chunks(0, self.windows.pixel.extent, width, put, self.windows.pixel.extent)

    def find(self, table: Value, m0: Value, first: Value, count: int) -> None:
        """Fills a table with a pointer for each of ``count`` rows from ``m0`` on."""
        code, w = self.code, self.windows
        m = w.ops.m
        line, x = call("floordiv", m, w.span), call("mod", m, w.span)
        place = line * w.line_elements + x * (w.stride * w.channel.extent)
        program = lower([place], [m])
        with code.loop(0, count, self.width) as at:
            printer = self.entry.printer(program, {m: Affine(m0 + at, 1)}, self.width, None)
            places = printer.lanes(program.results[0]) - first * w.line_elements
            code.store(code.gep(self.copy, places, self.scalar), code.gep(table, at, "ptr"), 8)


def interleaved(planes: Sequence[Value], places: range) -> Value:
    """One vector of the elements ``places`` in this order: pixel 0 of every plane, pixel 1 of every plane ..."""
    width, count = len(places), len(planes)
    result = planes[0]
    code = result.code
    chosen = [at // count if at % count == 0 else 0 for at in places]
    if count == 1:
        return result
    for plane in range(1, count):
        order = [
            width + at // count if at % count == plane else (chosen[lane] if plane == 1 else lane)
            for lane, at in enumerate(places)
        ]
        result = code.shuffle(result, planes[plane], order)
    return result


def most_lines(tile_m: int, span: int) -> int:
    """The most lines that ``tile_m`` consecutive rows touch."""
    return math.ceil((tile_m - 1) / span) + 1
