"""Sources of tiles of rows: memory in place, rows that a task copies, or lines of an image that it copies.

A tile of rows is a pointer and a constant distance between rows; the steps of k are constant distances from it. A
convolution therefore need not copy its rows. A task copies the lines of the image that its part of the result covers,
including padding, and a tap is a distance. With a stride, lines with the same remainder are adjacent, so that the
distance between rows of the result is constant. Rows may continue from line to line, over a few that are no rows of the
result and are not stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpucomp.codegen.llvm.amx.operands import Image, Narrow, Straight
from gpucomp.codegen.llvm.amx.space import LINE, MOST_PLANES, NarrowProblem, NarrowSizes, line_counts
from gpucomp.codegen.llvm.contraction.image_lines import interleaved
from gpucomp.codegen.llvm.ir import storage
from gpucomp.codegen.llvm.ir.builder import Value
from gpucomp.codegen.llvm.ir.printer import Affine, LaneValue
from gpucomp.codegen.llvm.ir.types import Type
from gpucomp.codegen.llvm.loops.nest import Entry, Program, lower
from gpucomp.expr.core import Expr, Select, Var, substitute, var, walk
from gpucomp.expr.simplify import simplify
from gpucomp.ir.size import Size
from gpucomp.ir.types import DType

Bound = dict[Expr, LaneValue]
PIXELS = 16  # pixels of planes that are interleaved at a time


class RowsInPlace:
    """Rows that are read in place."""

    def __init__(self, entry: Entry, narrow: Narrow, rows: Straight, d: NarrowSizes, bound: Bound) -> None:
        self.code, self.entry, self.rows, self.bound, self.batch = entry.code, entry, rows, bound, narrow.ops.batch
        nbytes = narrow.dtype.nbytes
        self.row_bytes = rows.row * nbytes
        self.steps = [(point + part * d.depth) * nbytes for point in rows.points for part in range(d.parts)]
        self.scalar = storage.memory_scalar(narrow.dtype)
        self.program = lower([rows.offset], [self.batch])

    def begin(self, m: Value, rows: Value) -> None:
        """Starts a task of ``rows`` rows from row ``m`` on."""
        printer = self.entry.printer(self.program, self.bound, 0, None)
        start = self.code.gep(self.entry.params[self.rows.source], printer.value(self.program.results[0]), self.scalar)
        self.start = self.code.gep(start, m * self.row_bytes, "i8")

    def row(self, at: Value) -> Value:
        """The address of row ``at`` of the task."""
        return self.code.gep(self.start, at * self.row_bytes, "i8")


class _Copy:
    """Writes elements of ``a`` along ``axis``, in vectors of ``width``.

    The axis is split until no part of it chooses between sources: a Concat of channels is copied part by part.
    """

    def __init__(self, entry: Entry, element: Expr, free: Sequence[Var], axis: Var, bound: Bound, width: int) -> None:
        self.entry, self.code, self.dtype, self.bound, self.width = entry, entry.code, element.dtype, bound, width
        self.extent = axis.extent
        self.parts: list[tuple[int, Var, Program]] = []

        def cut(start: int, stop: int) -> None:
            part = var(axis.name, stop - start)
            found = simplify(substitute(element, {axis: part + start}))
            vectors = -(-(stop - start) // width)
            chooses = any(isinstance(node, Select) and part in node.condition.free for node in walk(found))
            if chooses and not isinstance(stop, Size) and vectors > 1:
                middle = start + vectors // 2 * width
                cut(start, middle)
                cut(middle, stop)
                return
            self.parts.append((start, part, lower([found], [*free, part])))

        cut(0, axis.extent)

    def value(self, part: int, at: Value, lanes: int | Value) -> Value:
        """The elements of one part from ``at`` on in the first ``lanes`` lanes, zero in the others."""
        _, axis, program = self.parts[part]
        self.bound[axis] = Affine(at, 1)
        if isinstance(lanes, Value):
            mask: Value | None = self.entry.first_lanes(lanes, self.width)
        else:
            mask = None if lanes >= self.width else self.entry.prefix_mask(lanes, self.width)
        printer = self.entry.printer(program, self.bound, self.width, mask)
        value = storage.to_memory(printer.lanes(program.results[0]), self.dtype)
        return value if mask is None else self.code.select(mask, value, 0)

    def put(self, to: Value, room: int) -> None:
        """Writes all elements from ``to`` on, and zeros up to ``room``, in whole vectors."""
        code, nbytes = self.code, self.dtype.nbytes
        for number, (start, axis, _) in enumerate(self.parts):

            def one(at: Value, lanes: int, number: int = number, start: int = start) -> None:
                value = self.value(number, at, lanes)
                code.store(value, code.gep(to, (at + start) * nbytes, "i8"), nbytes)

            whole = axis.extent - axis.extent % self.width
            if whole > 4 * self.width:
                with code.loop(0, whole, self.width) as at:
                    one(at, self.width)
            else:
                for place in range(0, whole, self.width):
                    one(code.integer(place), self.width)
            if axis.extent % self.width:
                one(code.integer(whole), axis.extent % self.width)
        zeros = code.const(0, Type(storage.memory_scalar(self.dtype), self.width))
        for place in range(-(-self.extent // self.width) * self.width, room, self.width):
            code.store(zeros, code.gep(to, place * nbytes, "i8"), nbytes)


def _vector(extent: int) -> int:
    return 32 if extent >= 32 else 16


class CopiedRows:
    """Rows that the task copies, whatever they are computed from."""

    def __init__(self, entry: Entry, narrow: Narrow, d: NarrowSizes, bound: Bound) -> None:
        self.entry, self.code, self.ops, self.bound, self.d = entry, entry.code, narrow.ops, bound, d
        self.nbytes = narrow.dtype.nbytes
        self.row_bytes = d.row_bytes
        self.steps = [step * d.depth * self.nbytes for step in range(d.steps)]
        ops = self.ops
        self.copy = _Copy(entry, ops.a, [ops.batch, *ops.ko, ops.m], ops.ki, bound, _vector(ops.ki.extent))
        self.room = entry.code.stack(f"[{d.task_tiles * d.most_rows * d.row_bytes + 4 * LINE} x i8]", LINE)

    def begin(self, m: Value, rows: Value) -> None:
        code, ops = self.code, self.ops
        filled = self.d.steps * self.d.depth
        extents = [a.extent for a in ops.ko]
        with code.loop(0, rows) as row:
            self.bound[ops.m] = m + row
            to = self.row(row)
            if filled > ops.k:  # the next row overwrites what this one writes past its end
                zeros = code.const(0, Type("i8", LINE))
                code.store(zeros, code.gep(to, ops.k * self.nbytes, "i8"), 1)
            with code.loop(0, ops.outer) as point:
                if extents:
                    self.bound.update(zip(ops.ko, self.entry.decompose(point, extents), strict=True))
                run = code.gep(to, point * (ops.ki.extent * self.nbytes), "i8")
                self.copy.put(run, ops.ki.extent)

    def row(self, at: Value) -> Value:
        return self.code.gep(self.room, at * self.row_bytes, "i8")


class CopiedLines:
    """Lines of an image. Rows are counted along them, ``d.width`` from one line of the result to the next."""

    def __init__(self, entry: Entry, image: Image, d: NarrowSizes, p: NarrowProblem, bound: Bound) -> None:
        self.entry, self.code, self.image, self.bound, self.d = entry, entry.code, image, bound, d
        dtype = image.element.dtype
        self.pixel_bytes = d.pixel_bytes
        self.row_bytes = image.stride_x * self.pixel_bytes
        self.line_bytes = d.pitch * self.pixel_bytes
        self.counts = line_counts(d, p)
        firsts = [sum(self.counts[:phase]) for phase in range(len(self.counts))]
        taps = [(firsts[tap % image.stride_y], tap // image.stride_y) for tap in range(image.taps_y)]
        part = d.depth * dtype.nbytes
        if d.taps_inside:
            points = [(tap, x * self.pixel_bytes) for tap in taps for x in range(image.taps_x)]
            self.places = [(tap, at + step * part) for step in range(d.parts) for tap, at in points]
        else:
            self.places = [(tap, step * part) for tap in taps for step in range(d.parts)]
        self.steps = [(first + further) * self.line_bytes + at for (first, further), at in self.places]
        self.steps_at: Value | None = None
        i = image
        self.across = i.planes and i.channel.extent <= MOST_PLANES
        axis, other = (i.pixel, i.channel) if self.across else (i.channel, i.pixel)
        width = PIXELS if self.across else _vector(axis.extent)
        self.copy = _Copy(entry, i.element, [i.batch, i.image, i.line, other], axis, bound, width)
        past = d.most_rows * self.row_bytes  # a tile may go on behind the last line
        room = d.most_bytes + past if d.most_bytes else sum(self.counts) * self.line_bytes + 8 * LINE
        self.room = entry.code.stack(f"[{room} x i8]", LINE)

    def find_steps(self) -> None:
        """A table of this run's ``steps``, if they are not the same in all."""
        code = self.code
        if not any(isinstance(at, Size) for at in self.steps):
            return
        self.steps_at = code.stack(f"[{len(self.steps)} x i64]", LINE)
        for step, ((first, further), at) in enumerate(self.places):
            distance = (code.integer(first) + further) * self.line_bytes + at
            code.store(distance, code.gep(self.steps_at, step, "i64"))

    def begin(self, batch: LaneValue, image: Value, line: Value) -> None:
        """Starts a task of lines of the result from ``line`` on."""
        code, i = self.code, self.image
        self.bound[i.batch], self.bound[i.image] = batch, image
        first = 0
        for phase, count in enumerate(self.counts):
            with code.loop(0, count) as at:
                self.bound[i.line] = (line + at) * i.stride_y + phase
                to = code.gep(self.room, (at + first) * self.line_bytes, "i8")
                if self.across:
                    self._interleave(to)
                else:
                    self._pixels(to)
            first += count

    def _pixels(self, to: Value) -> None:
        code, i = self.code, self.image
        with code.loop(0, i.pixel.extent) as pixel:
            self.bound[i.pixel] = pixel
            place = code.gep(to, pixel * self.pixel_bytes, "i8")
            self.copy.put(place, self.d.channels)

    def _interleave(self, to: Value) -> None:
        """Interleaves a vector of pixels of every channel to words of a pixel."""
        code, i = self.code, self.image

        def put(number: int, start: int, at: Value, lanes: int | Value) -> None:
            planes = []
            for channel in range(i.channel.extent):
                self.bound[i.channel] = code.integer(channel)
                planes.append(self.copy.value(number, at, lanes))
            words = [
                word_of(planes[first : first + self.d.group], i.element.dtype)
                for first in range(0, i.channel.extent, self.d.group)
            ]
            words += [code.const(0, Type("i32", PIXELS))] * (self.d.channels // self.d.group - len(words))
            for part in range(len(words)):
                mixed = interleaved(words, range(part * PIXELS, (part + 1) * PIXELS))
                code.store(mixed, code.gep(to, (at + start) * self.pixel_bytes + part * LINE, "i8"), 4)

        for number, (start, axis, _) in enumerate(self.copy.parts):
            rest = axis.extent % PIXELS
            with code.loop(0, axis.extent - rest, PIXELS) as at:
                put(number, start, at, PIXELS)
            if isinstance(rest, Size):
                left = code.integer(rest)
                with code.when(left.differs(0)):
                    put(number, start, code.integer(axis.extent - rest), left)
            elif rest:
                put(number, start, code.integer(axis.extent - rest), rest)

    def row(self, at: Value) -> Value:
        return self.code.gep(self.room, at * self.row_bytes, "i8")


def word_of(parts: Sequence[Value], dtype: DType) -> Value:
    """Combines vectors of elements, as stored, to 32-bit words, the first element lowest."""
    code = parts[0].code
    word = code.convert("zext", parts[0], "i32")
    for position, part in enumerate(parts[1:], start=1):
        word = word.integer_op("or", code.convert("zext", part, "i32") << (position * dtype.bits))
    return word
