"""Windows that slide over an image, channels first: pools and depthwise convolutions, whose rows are contiguous.

Lanes run along a row of the result. A task copies what its windows read into lines of its own, padding included, so that
the loop over the result has no masks. Column p of a line is in part p % stride of it, at p // stride: the columns that one tap
takes for neighbouring results are neighbours there, whatever the stride is.

    task (lead, some rows of the result):
        a product, for each band of rows:                a pool, for each row:
            line[k] = row k of the image                     line = op over the window's rows of the image
            sums = line . weights, a tile at a time          result = op over the window's columns of the line

A pool's operation does not depend on the order of its operands, so that its two axes are taken one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from gpucomp.codegen.llvm.ir import arithmetic, storage
from gpucomp.codegen.llvm.ir.builder import Value
from gpucomp.codegen.llvm.ir.printer import NEAR, Affine, LaneValue
from gpucomp.codegen.llvm.ir.shuffles import parted
from gpucomp.codegen.llvm.ir.types import Type
from gpucomp.codegen.llvm.loops.nest import Entry, Flattener, cut, lane_index, lower
from gpucomp.device.target import Target
from gpucomp.expr.core import REDUCTIONS, Expr, hole, identity_of
from gpucomp.ir.size import Size, bounds, hint
from gpucomp.ir.types import BOOL, F32, F64
from gpucomp.kernel import Kernel
from gpucomp.kernel.example import example_of
from gpucomp.kernel.forms.planes import Planes, planes_of
from gpucomp.kernel.forms.sliding import Slide
from gpucomp.kernel.source import Emitted
from gpucomp.refusal import Refusal, required
from gpucomp.schedule.space import Schedule

MOST_TAPS = 49  # of a product, which are unrolled
MOST_ALONG = 32  # of a pool along one axis
BAND_BYTES = 16 << 10  # of lines, which stay in the first cache
MOST_BYTES = 128 << 10  # of the stack, if the window reaches over many rows
FEWEST = 4  # results of a row that are worth a vector

Element = Callable[[Value, int, Value | None], Value]  # of columns of the image: the first, their distance, the mask


@dataclass(frozen=True)
class Band:
    """The lines of a task, in elements.

    rows      rows of the result that are computed from them
    columns   results of a row that are computed from them; ``several`` if rows can be longer
    part      of a line: those of its columns that are a stride apart
    """

    rows: int
    columns: int
    several: bool
    lines: int
    part: int
    line: int

    @staticmethod
    def of(y: Slide, x: Slide, weighted: bool, nbytes: int, lanes: int, tile: int) -> Band:
        """The band for tiles of ``tile`` rows."""
        y, tile = (y, tile) if weighted else (Slide(None, None), 1)
        longest = bounds(x.outputs)[1]
        room = int(BAND_BYTES // (y.reach(tile) * x.stride * nbytes))
        columns = max(4 * lanes, room // lanes * lanes)
        several = longest > columns
        columns = columns if several else int(longest)
        part = -(-(columns + (x.taps - 1) * x.dilation // x.stride + 3 * lanes + 2) // 16) * 16
        line = part * x.stride
        fitting = (BAND_BYTES // (line * nbytes) - y.reach(1)) // y.stride + 1
        rows = max(tile, min(fitting, -(-int(bounds(y.outputs)[1]) // tile) * tile) // tile * tile)
        return Band(rows, columns, several, y.reach(rows), part, line)


def accepts(kernel: Kernel, features: frozenset[str]) -> str:
    found = planes_of(kernel)
    if isinstance(found, Refusal):
        return found.reason
    dtype = found.image.dtype
    if dtype is BOOL or dtype.storage_only or dtype is not found.total.dtype or dtype.bits > 64:
        return "the image has another type than the result of the window"
    if found.weight is not None and found.y.taps * found.x.taps > MOST_TAPS:
        return f"more than {MOST_TAPS} taps"
    if max(found.y.taps, found.x.taps) > MOST_ALONG:
        return f"more than {MOST_ALONG} taps along an axis"
    if found.weight is None and found.halo is not None and found.halo.value != identity_of(found.op, dtype):
        return "the padding is not neutral for the reduction"
    small = required(planes_of(example_of(kernel)))
    if small.x.outputs < FEWEST:
        return "rows are too short for vectors"
    band = Band.of(found.y, found.x, found.weight is not None, dtype.nbytes, 16, 1)
    if band.lines * band.line * dtype.nbytes > MOST_BYTES:
        return "the window reaches over too many rows"
    return ""


class _Emitter:
    def __init__(self, kernel: Kernel, found: Planes, schedule: Schedule, name: str, target: Target) -> None:
        self.entry, self.found, self.schedule = Entry(kernel, name, target), found, schedule
        self.code, self.lanes, self.dtype = self.entry.code, schedule["lanes"], found.image.dtype
        self.scalar = storage.register_scalar(self.dtype)
        self.weighted = found.weight is not None
        self.tile = schedule["rows"] if self.weighted else 1
        self.band = Band.of(found.y, found.x, self.weighted, self.dtype.nbytes, self.lanes, self.tile)
        while self.tile > 1 and self.band.lines * self.band.line * self.dtype.nbytes > MOST_BYTES:
            self.tile -= 1  # rows far apart share nothing, and their lines would overflow the stack
            self.band = Band.of(found.y, found.x, self.weighted, self.dtype.nbytes, self.lanes, self.tile)
        self.begins = self._begins()
        self.offsets = [self._offset(tap * found.x.dilation) for tap in range(found.x.taps)]
        flat = Flattener(kernel.params)
        self.acc = hole("acc", found.total.dtype)
        self.stores = flat.stores(kernel, {found.total: self.acc})
        self.image = lower([flat(found.image)], [*found.lead, found.place_y, found.place_x], 16)
        taps = [v for v in (found.y.tap, found.x.tap) if v is not None]
        self.weight = lower([flat(found.weight)], [*found.lead, *taps], 16) if found.weight is not None else None
        outputs = [v for v in (found.y.out, found.x.out) if v is not None]
        spelled = [e for store in self.stores for e in (store.offset, store.value)]
        self.epilogue = lower(spelled, [*found.lead, *outputs, self.acc], 16)
        self.bound: dict[Expr, LaneValue] = {}
        self.lines = self.code.stack(f"[{self.band.lines * self.band.line} x {self.scalar}]", 64)
        self.halo = arithmetic.constant(self.code, found.halo.value, self.dtype, self.lanes) if found.halo else None

    def text(self) -> Emitted:
        code, entry, found = self.code, self.entry, self.found
        work = hint(found.x.outputs) * (3 * found.y.taps * found.x.taps + 6) / self.lanes
        rows = found.y.outputs
        tasks = cut(found.lead, rows, self.tile, self.schedule["tasks"], float(work))
        if not self.band.several:  # what surrounds the image's columns stays as it is
            self._fill(self.lines, self.band.lines)
        with code.loop(entry.first, entry.last) as task:
            parts = entry.decompose(task, [*(a.extent for a in tasks.axes), tasks.blocks])
            self.bound.update(zip(tasks.axes, parts, strict=False))
            start = parts[-1] * tasks.block
            stop = code.minimum(start + tasks.block, rows)
            with entry.nested(tasks.inner, self.bound):
                weights = self._weights()
                with code.loop(start, stop, self.band.rows) as y:
                    count = code.minimum(stop - y, self.band.rows)
                    with self._blocks() as x:
                        self._band(y, count, x, weights)
        return entry.emitted(tasks.count)

    def _blocks(self) -> Any:
        """The parts of a row: where each begins."""
        if not self.band.several:
            return nullcontext(self.code.integer(0))
        return self.code.loop(0, self.found.x.outputs, self.band.columns)

    def _band(self, y: Value, count: Value, x: Value, weights: dict[tuple[int, int], Value]) -> None:
        """``count`` rows of the result from ``y`` on, its columns from ``x`` on."""
        code, slide = self.code, self.found.y
        if self.band.several:
            self._fill(self.lines, self.band.lines)
        if not self.weighted:
            self._reduced_rows(y * slide.stride, x)
            self._tiles(x, lambda at, vectors, mask: self._pool(y, x, at, vectors, mask))
            return
        with code.loop(0, (count - 1) * slide.stride + slide.reach(1)) as number:
            self._copied_row(y * slide.stride + number, code.gep(self.lines, number * self.band.line, self.scalar), x)
        whole = count - count.integer_op("urem", self.tile)

        def rows(first: Value, tile: int) -> None:
            line = code.gep(self.lines, first * (slide.stride * self.band.line), self.scalar)
            self._tiles(x, lambda at, vectors, mask: self._sum(line, y + first, tile, x, at, vectors, mask, weights))

        with code.loop(0, whole, self.tile) as first:
            rows(first, self.tile)
        if self.tile > 1 and (isinstance(slide.outputs, Size) or slide.outputs % self.tile):
            with code.loop(whole, count) as first:
                rows(first, 1)

    # lines

    def _begins(self) -> list[int]:
        """Where each part of a line begins: so that what is copied into it first has the address of a whole vector."""
        (low, _), stride = self.found.columns, self.found.x.stride
        begins = [part * self.band.part for part in range(stride)]
        if isinstance(low, int) and not self.band.several:
            for column in range(low, low + stride):
                begins[column % stride] += -(column // stride) % self.lanes
        return begins

    def _offset(self, column: int) -> int:
        """Where a column is in a line."""
        return self.begins[column % self.found.x.stride] + column // self.found.x.stride

    def _fill(self, line: Value, lines: int) -> None:
        """Writes the padding, where there is any, to whole lines."""
        if self.halo is None:
            return
        with self.code.loop(0, lines * self.band.line, self.lanes) as at:
            self.code.store(self.halo, self.code.gep(line, at, self.scalar), self.dtype.nbytes)

    def _exists(self, place: Value, rows: tuple[Any, Any]) -> Value:
        return (place - self.code.integer(rows[0])).compare("ult", self.code.integer(rows[1] - rows[0]))

    def _copied_row(self, place: Value, line: Value, x: Value) -> None:
        """Row ``place`` of the image, or of the padding, into ``line``."""
        code, rows = self.code, self.found.rows

        def copy() -> None:
            self._columns(line, x, lambda at, step, mask: self._element(place, at, step, mask))

        if rows is None:
            copy()
            return
        exists = self._exists(place, rows)
        with code.when(exists):
            copy()
        with code.when(~exists):
            self._fill(line, 1)

    def _reduced_rows(self, top: Value, x: Value) -> None:
        """The reduction of the window's rows of the image into the line, in one pass if all of them exist."""
        code, found = self.code, self.found
        places = [top + tap * found.y.dilation for tap in range(found.y.taps)]

        def reduced(at: Value, step: int, mask: Value | None) -> Value:
            elements = [self._element(place, at, step, mask) for place in places]
            return arithmetic.reduced(REDUCTIONS[found.op], self.dtype, elements)

        if found.rows is None:
            self._columns(self.lines, x, reduced)
            return
        inside = self._exists(places[0], found.rows) & self._exists(places[-1], found.rows)
        with code.when(inside):
            self._columns(self.lines, x, reduced)
        with code.when(~inside):
            self._fill(self.lines, 1)
            with code.loop(0, found.y.taps) as tap:
                place = top + tap * found.y.dilation
                with code.when(self._exists(place, found.rows)):
                    self._columns(
                        self.lines, x, lambda at, step, mask: self._element(place, at, step, mask), combine=True
                    )

    def _element(self, row: Value, column: Value, step: int, mask: Value | None) -> Value:
        self.bound[self.found.place_y] = row
        self.bound[self.found.place_x] = Affine(column, step)
        return self.entry.printer(self.image, self.bound, self.lanes, mask).lanes(self.image.results[0])

    def _columns(self, line: Value, x: Value, value: Element, *, combine: bool = False) -> None:
        """Writes ``value(column, step of lanes, mask)`` of the image's columns that results from ``x`` on read to ``line``.

        With ``combine`` the line's own values are operands too.
        """
        code, lanes, slide = self.code, self.lanes, self.found.x
        stride, (low, high) = slide.stride, self.found.columns
        origin, begin, end = x * stride, code.integer(low), code.integer(high)
        if self.band.several:
            begin = (begin - origin).intrinsic("smax", 0)
            end = code.minimum(end - origin, slide.reach(self.band.columns))
        bases = [self._address(line, begin, j) for j in range(stride)]

        def put(step: Value, left: Any) -> None:
            parts = self._parts(origin + begin + step * stride, left, value)
            for base, part in zip(bases, parts, strict=True):
                address = code.gep(base, step, self.scalar)
                if combine:
                    known = code.load(address, part.type, self.dtype.nbytes)
                    part = arithmetic.apply(REDUCTIONS[self.found.op], self.dtype, [known, part])
                code.store(part, address, self.dtype.nbytes)

        if not self.band.several and not isinstance(high - low, Size):
            whole, left = divmod(high - low, lanes * stride)
            if whole:
                with code.loop(0, whole * lanes, lanes) as step:
                    put(step, None)
            if left:
                put(code.integer(whole * lanes), left)
            return
        count = (end - begin).intrinsic("smax", 0)
        groups = count.integer_op("udiv", lanes * stride)
        with code.loop(0, groups * lanes, lanes) as step:
            put(step, None)
        rest = count - groups * (lanes * stride)
        with code.when(rest > 0):
            put(groups * lanes, rest)

    def _address(self, line: Value, first: Value, j: int) -> Value:
        """The address of the column ``first + j`` in ``line``."""
        if not first.text.startswith("%"):
            return self.code.gep(line, self._offset(int(first.text) + j), self.scalar)
        stride, column = self.found.x.stride, first + j
        place = column.integer_op("urem", stride) * self.band.part + column.integer_op("udiv", stride)
        return self.code.gep(line, place, self.scalar)

    def _parts(self, at: Value, left: Any, value: Element) -> Sequence[Value]:
        """A vector for each part of a line: of the columns from ``at`` on, of which ``left`` exist (``None``: all)."""
        lanes, stride = self.lanes, self.found.x.stride
        near = stride <= min(NEAR, lanes)
        vectors = []
        for j in range(stride):
            start, step = (j * lanes, 1) if near else (j, stride)
            if left is None or near:
                count = None if left is None else left - j * lanes
            elif isinstance(left, Value):
                count = (left + (stride - 1 - j)).integer_op("udiv", stride)
            else:
                count = (left - j + stride - 1) // stride
            vectors.append(self._vector(at + start, step, count, value))
        return parted(self.code, vectors, stride) if near else vectors

    def _vector(self, at: Value, step: int, count: Any, value: Element) -> Value:
        """``value`` of the columns from ``at`` on, ``step`` apart, in the first ``count`` lanes, and padding in the others."""
        code, lanes = self.code, self.lanes
        rest = self.halo if self.halo is not None else code.const(0, Type(self.scalar, lanes))
        if isinstance(count, int) and count <= 0:
            return rest
        if count is None or (isinstance(count, int) and count >= lanes):
            return value(at, step, None)
        mask = self.entry.prefix_mask(count, lanes) if isinstance(count, int) else self.entry.first_lanes(count, lanes)
        return code.select(mask, value(at, step, mask), rest)

    # results

    def _tiles(self, x: Value, body: Callable[[Value, int, Value | None], None]) -> None:
        """``body(column, vectors, mask of the last one)`` for the columns of the result from ``x`` on."""
        code, lanes = self.code, self.lanes
        step, outputs = lanes * self.schedule["vectors"], self.found.x.outputs
        if not self.band.several and not isinstance(outputs, Size):
            whole, left = outputs - outputs % step, outputs % step
            if whole:
                with code.loop(0, whole, step) as at:
                    body(at, step // lanes, None)
            if left:
                mask = self.entry.prefix_mask(left % lanes, lanes) if left % lanes else None
                body(code.integer(whole), -(-left // lanes), mask)
            return
        count = code.integer(outputs) - x
        if self.band.several:
            count = code.minimum(count, self.band.columns)
        start: Value | int = 0
        for width in dict.fromkeys((step, lanes)):
            stop = count - count.integer_op("urem", width)
            with code.loop(start, stop, width) as at:
                body(at, width // lanes, None)
            start = stop
        rest = count.integer_op("urem", lanes)
        with code.when(rest.differs(0)):
            body(count - rest, 1, self.entry.first_lanes(rest, lanes))

    def _loaded(self, base: Value, offset: int) -> Value:
        address = self.code.gep(base, offset, self.scalar)
        return self.code.load(address, Type(self.scalar, self.lanes), self.dtype.nbytes)

    def _pool(self, y: Value, x: Value, at: Value, vectors: int, mask: Value | None) -> None:
        """Reduces the columns of each window along the line."""
        base = self.code.gep(self.lines, at, self.scalar)
        for v in range(vectors):
            elements = [self._loaded(base, offset + v * self.lanes) for offset in self.offsets]
            total = arithmetic.reduced(REDUCTIONS[self.found.op], self.dtype, elements)
            self._store(total, y, x + at + v * self.lanes, mask if v == vectors - 1 else None)

    def _weights(self) -> dict[tuple[int, int], Value]:
        """The weights of the taps, in all lanes."""
        code, found = self.code, self.found
        weights: dict[tuple[int, int], Value] = {}
        if self.weight is None:
            return weights
        for r in range(found.y.taps):
            for s in range(found.x.taps):
                for slide, tap in ((found.y, r), (found.x, s)):
                    if slide.tap is not None:
                        self.bound[slide.tap] = code.integer(tap)
                scalar = self.entry.printer(self.weight, self.bound, 0, None).value(self.weight.results[0])
                weights[r, s] = code.splat(scalar, self.lanes)
        return weights

    def _sum(
        self,
        line: Value,
        y: Value,
        rows: int,
        x: Value,
        at: Value,
        vectors: int,
        mask: Value | None,
        weights: dict[tuple[int, int], Value],
    ) -> None:
        """A tile of sums: each element of ``line`` and of the lines after it is loaded once for all rows of the tile."""
        base = self.code.gep(line, at, self.scalar)
        sums: list[list[Value | None]] = [[None] * vectors for _ in range(rows)]
        for place, uses in sorted(self.found.y.uses(rows).items()):
            for s, offset in enumerate(self.offsets):
                for v in range(vectors):
                    element = self._loaded(base, place * self.band.line + offset + v * self.lanes)
                    for row, tap in uses:
                        sums[row][v] = self._added(sums[row][v], element, weights[tap, s])
        for row, totals in enumerate(sums):
            for v, total in enumerate(totals):
                assert total is not None
                self._store(total, y + row, x + at + v * self.lanes, mask if v == vectors - 1 else None)

    def _added(self, total: Value | None, element: Value, weight: Value) -> Value:
        if total is not None and self.dtype in (F32, F64):
            return element.muladd(weight, total)
        product = arithmetic.apply("mul", self.dtype, [element, weight])
        return product if total is None else arithmetic.apply("add", self.dtype, [total, product])

    def _store(self, total: Value, y: Value, x: Value, mask: Value | None) -> None:
        if self.found.y.out is not None:
            self.bound[self.found.y.out] = y
        if self.found.x.out is not None:
            self.bound[self.found.x.out] = lane_index(x, self.lanes)
        self.bound[self.acc] = total
        printer = self.entry.printer(self.epilogue, self.bound, self.lanes, mask)
        for number, store in enumerate(self.stores):
            printer.store(store.target, *self.epilogue.results[2 * number : 2 * number + 2])


def emit_planes(kernel: Kernel, schedule: Schedule, name: str, target: Target) -> Emitted:
    """The function and its number of tasks."""
    return _Emitter(kernel, required(planes_of(kernel)), schedule, name, target).text()
