"""Winograd convolutions on the CPU, in strict f32.

    task (block of tiles, group of panels of nv vectors of output channels):
        for each part of the channels:
            transform each tile of pixels, vectors along channels                   -> data[position][tile][channel]
            for each panel, for each position:
                products[position][tile][column] += data[position] @ filters[panel][position]
                                                     mr rows by nv vectors at a time, in registers
        for each panel: transform each tile's products, vectors along columns, and store the results

A tile is a square of ``outputs + 2`` pixels and gives a square of ``outputs`` results; tiles overlap by two pixels.
With steps of 2 a tile has 5 x 5 pixels, and several positions are multiplied by the same filters. Pixels outside the
image are read from a row of zeros. Results outside the image are computed but not stored. Scratch is on the stack, so
it stays in the second-level cache from task to task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpucomp.codegen.llvm.contraction.rest import rest_of_rows
from gpucomp.codegen.llvm.ir.builder import Slot, Value
from gpucomp.codegen.llvm.ir.printer import LaneValue
from gpucomp.codegen.llvm.ir.storage import from_memory, memory_scalar
from gpucomp.codegen.llvm.ir.types import F32, I64, PTR, Type
from gpucomp.codegen.llvm.loops.nest import Entry, FlatStore, Flattener, collapse, lane_index, lower
from gpucomp.codegen.llvm.winograd.space import (
    LINE_FLOATS,
    WinogradSchedule,
    algorithm_of,
    derive,
    of_any_size,
    pixels,
    problem,
)
from gpucomp.device.target import Target
from gpucomp.expr.core import Expr, substitute
from gpucomp.expr.simplify import simplify
from gpucomp.ir.size import Size, hint, is_one
from gpucomp.kernel import Contraction, Kernel, kernel_of
from gpucomp.kernel.example import example_of, has_sizes
from gpucomp.kernel.forms.convolution import long_axes, packed_filters
from gpucomp.kernel.source import Emitted
from gpucomp.kernel.winograd_matrices import floats, linear
from gpucomp.refusal import required
from gpucomp.schedule.space import Schedule

UNROLL = 4  # channels that are unrolled in the innermost loop
POINTERS = 8  # pointers for a row of a tile's pixels, each in 64 bits; no tile has more


class _Emitter:
    def __init__(self, kernel: Kernel[Contraction], s: WinogradSchedule, name: str, target: Target) -> None:
        self.entry = Entry(kernel, name, target)
        self.code = self.entry.code
        example = problem(kernel_of(example_of(kernel), Contraction))
        any_size = has_sizes(kernel)
        self.s, self.p = s, problem(kernel) if any_size else example
        self.d = of_any_size(s, self.p, example) if any_size else derive(s, self.p)
        algorithm = algorithm_of(self.s, self.p)
        self.to_data, self.to_results = floats(algorithm.data), floats(algorithm.result)
        self.side, self.factors = algorithm.positions, algorithm.factors
        self.width = self.s.lanes
        self.vector = Type("float", self.width)
        form = required(pixels(kernel))
        self.form = form
        self.stored = Type(memory_scalar(form.dtype), self.width)
        shape = (self.d.panels, self.d.factors, self.p.depth, self.d.nr)
        self.image = self.entry.params[form.source]
        self.filters = self.entry.params[packed_filters(kernel, shape, "contraction/winograd")]
        self._read_stores(kernel)
        self._scratch()

    def _read_stores(self, kernel: Kernel[Contraction]) -> None:
        """Rewrites the stores in terms of the result's axes, with ``n`` as one variable.

        Axes of extent 1 are bound to zero.
        """
        c = kernel.body
        flat = Flattener(kernel.params)
        self.n, parts = collapse(c.n, "n")
        self.stores = [
            FlatStore(s.target, simplify(substitute(s.offset, parts)), simplify(substitute(s.value, parts)))
            for s in flat.stores(kernel)
        ]
        self.m, self.acc = c.m, c.acc
        exprs = [e for s in self.stores for e in (s.offset, s.value)]
        self.program = lower(exprs, [*c.batch, *c.m, self.n, c.acc])
        self.batch = c.batch

    # memory on the stack

    def _scratch(self) -> None:
        code, d = self.code, self.d

        def floats(count: int) -> Value:
            return code.stack(f"[{count} x float]", 64)

        self.data = floats(d.data_floats)
        self.products = floats(d.product_floats)
        self.zeros = floats(d.part)
        self.results = floats(self.s.outputs**2 * self.width)
        self.pointers = code.stack(f"[{POINTERS * POINTERS} x i64]", 64)

    # the nest

    def emit(self) -> Emitted:
        code, d, entry = self.code, self.d, self.entry
        with code.loop(0, d.part, self.width) as at:
            code.store(code.const(0, self.vector), code.gep(self.zeros, at, "float"))
        transformed = code.slot(I64)  # the block whose transformed data are in scratch
        transformed.set(code.integer(-1))
        with code.loop(entry.first, entry.last) as task:
            block, group = entry.decompose(task, [d.blocks, d.groups])
            tile0, panel0 = block * d.block, group * self.s.panels
            tiles = code.minimum(code.integer(d.tiles) - tile0, d.block)
            panels = code.minimum(code.integer(d.panels) - panel0, self.s.panels)
            if d.parts == 1:
                with code.when(transformed.get().differs(block)):
                    self._transform_data(tile0, tiles, code.integer(0))
                transformed.set(block)
                with code.loop(0, panels) as panel:
                    self._multiply(panel0 + panel, code.integer(0), tiles, code.integer(0))
                    self._finish(panel0 + panel, code.integer(0), tile0, tiles)
            else:
                with code.loop(0, d.parts) as part:
                    self._transform_data(tile0, tiles, part)
                    with code.loop(0, panels) as panel:
                        self._multiply(panel0 + panel, panel, tiles, part)
                with code.loop(0, panels) as panel:
                    self._finish(panel0 + panel, panel, tile0, tiles)
        return entry.emitted(d.blocks * d.groups)

    # pixels

    def _place(self, tile: Value) -> tuple[Value, Value, Value]:
        """The image, and the first row and column, of a tile's results."""
        image, row, column = self.entry.decompose(tile, [self.p.images, self.d.tiles_y, self.d.tiles_x])
        return image, row * self.s.outputs, column * self.s.outputs

    def _transform_data(self, tile0: Value, tiles: Value, part: Value) -> None:
        code, d, p = self.code, self.d, self.p
        first = part * d.part
        length = code.minimum(code.integer(p.depth) - first, d.part)
        side = self.side
        with code.loop(0, tiles) as tile:
            self._point_at_pixels(tile0 + tile, first)
            to = code.gep(self.data, tile * d.data_tile, "float")
            with code.loop(0, length, self.width) as channel:
                mask = None
                if p.depth % self.width:
                    mask = self._lanes_below(length - channel)
                columns = []
                for j in range(side):
                    pixels = [self._pixels(i, j, channel, mask) for i in range(side)]
                    columns.append(linear(self.to_data, pixels))
                for i in range(side):
                    row = linear(self.to_data, [columns[j][i] for j in range(side)])
                    for j, value in enumerate(row):
                        at = channel + (i * side + j) * d.data_position
                        code.store(value, code.gep(to, at, "float"))

    def _point_at_pixels(self, tile: Value, first: Value) -> None:
        """Fills a table with the address of channel ``first`` of each pixel of a tile, or of zeros outside the image."""
        code, p = self.code, self.p
        side = self.side
        lanes = 4 if side <= 4 else 8
        image, y, x = self._place(tile)
        y, x = y * p.step + p.first_y, x * p.step + p.first_x
        columns = code.splat(x, lanes) + code.vector(list(range(lanes)), "i64")
        inside = columns.compare("ult", p.width)
        pixel_bytes = self.form.dtype.nbytes * p.depth
        steps = columns * pixel_bytes
        base = code.convert("ptrtoint", code.gep(self.image, first, self.stored.scalar), "i64")
        zeros = code.convert("ptrtoint", self.zeros, "i64")
        for i in range(side):
            row = y + i
            start = base + (image * p.height + row) * (p.width * pixel_bytes)
            ok = inside & row.compare("ult", p.height)
            chosen = code.select(ok, steps + start, code.splat(zeros, lanes))
            code.store(chosen, code.gep(self.pointers, i * POINTERS, "i64"), 8)

    def _pixels(self, i: int, j: int, channel: Value, mask: Value | None) -> Value:
        code = self.code
        pointer = code.load(code.gep(self.pointers, i * POINTERS + j, "i64"), PTR)
        at = code.gep(pointer, channel, self.stored.scalar)
        aligned = self.form.dtype.nbytes
        stored = code.load(at, self.stored, aligned) if mask is None else code.masked_load(at, self.stored, mask)
        return from_memory(stored, self.form.dtype)

    def _lanes_below(self, count: Value) -> Value:
        short = self.code.convert("trunc", self.code.minimum(count, self.width), "i32")
        return self.code.vector(list(range(self.width)), "i32").compare("slt", short)

    # products

    def _multiply(self, panel: Value, slot: Value, tiles: Value, part: Value) -> None:
        """``products[slot] += data @ filters`` for every position, ``mr`` tiles at a time."""
        code, d, p, mr = self.code, self.d, self.p, self.s.mr
        first = part * d.part
        length = code.minimum(code.integer(p.depth) - first, d.part)
        if d.parts == 1:
            length = code.integer(p.depth)
        whole = tiles - tiles.integer_op("urem", mr)
        rest = d.tiles % mr  # a block is a multiple of it
        with code.loop(0, d.positions) as position:
            factor = panel * d.factors + self._factor(position)
            b = code.gep(self.filters, (factor * p.depth + first) * d.nr, "float")
            a = code.gep(self.data, position * d.data_position, "float")
            to = code.gep(self.products, slot * d.product_panel + position * d.product_position, "float")
            with code.loop(0, whole, mr) as row:
                self._register_block(a, b, to, row, mr, length, part)
            if isinstance(rest, Size):  # scratch has room for the rows past the last
                for height in rest_of_rows(code, tiles - whole, mr, self.s.nv):
                    self._register_block(a, b, to, whole, height.rows, length, part, alone=whole.equals(0))
            elif rest:
                with code.when(whole < tiles):
                    self._register_block(a, b, to, whole, rest, length, part)

    def _factor(self, position: Value) -> Value:
        """The number of the transformed filters that a position is multiplied by."""
        if self.factors == self.side:
            return position
        row, column = self.entry.decompose(position, [self.side, self.side])
        last = self.factors - 1
        return self.code.minimum(row, last) * self.factors + self.code.minimum(column, last)

    def _register_block(
        self,
        a: Value,
        b: Value,
        to: Value,
        row: Value,
        rows: int,
        length: Value,
        part: Value,
        alone: Value | None = None,
    ) -> None:
        code, d, nv = self.code, self.d, self.s.nv
        a = code.gep(a, row * d.data_tile, "float")
        to = code.gep(to, row * d.product_tile, "float")
        sums = [[code.slot(self.vector) for _ in range(nv)] for _ in range(rows)]
        for slot in (slot for line in sums for slot in line):
            slot.set(code.const(0, self.vector))
        if d.parts > 1:
            with code.when(part.differs(0)):
                self._each_sum(to, sums, lambda slot, at: slot.set(code.load(at, self.vector)))

        def step(k: Value) -> None:
            at = code.gep(b, k * d.nr, "float")
            loaded = [code.load(code.gep(at, v * self.width, "float"), self.vector, 4) for v in range(nv)]
            a_at = code.gep(a, k, "float")
            for i, line in enumerate(sums):
                factor = code.splat(code.load(code.gep(a_at, i * d.data_tile, "float"), F32), self.width)
                for value, slot in zip(loaded, line, strict=True):
                    slot.set(factor.muladd(value, slot.get()))

        whole = length - length.integer_op("urem", UNROLL)
        ahead, lines = self._following_filters(b, row, length)
        with code.loop(0, whole, UNROLL) as k:
            number = k.integer_op("udiv", UNROLL)
            for line in range(lines):
                code.prefetch(code.gep(ahead, (number * lines + line) * LINE_FLOATS, "float"), far=True)
            every = -(-UNROLL * d.nr // LINE_FLOATS)
            if alone is not None and every > lines:
                with code.when(alone):
                    for line in range(every):
                        code.prefetch(code.gep(ahead, (number * every + line) * LINE_FLOATS, "float"), far=True)
            for u in range(UNROLL):
                step(k + u)
        if d.part % UNROLL or self.p.depth % UNROLL:
            with code.loop(whole, length) as k:
                step(k)
        self._each_sum(to, sums, lambda slot, at: code.store(slot.get(), at))

    def _following_filters(self, b: Value, row: Value, length: Value) -> tuple[Value, int]:
        """The address of the filters that this register block prefetches, and the number of lines per step.

        They are the next position's. Each register block of a position prefetches a share; together they prefetch all.
        """
        blocks = -(-min(self.d.block, int(hint(self.d.tiles))) // self.s.mr)
        lines = -(-UNROLL * self.d.nr // LINE_FLOATS // blocks)
        share = length.integer_op("udiv", UNROLL) * (lines * LINE_FLOATS)
        at = row.integer_op("udiv", self.s.mr) * share
        return self.code.gep(b, at + self.p.depth * self.d.nr, "float"), lines

    def _each_sum(self, to: Value, sums: Sequence[Sequence[Slot]], act: Callable[[Slot, Value], None]) -> None:
        for i, line in enumerate(sums):
            for v, slot in enumerate(line):
                act(slot, self.code.gep(to, i * self.d.product_tile + v * self.width, "float"))

    # results

    def _finish(self, panel: Value, slot: Value, tile0: Value, tiles: Value) -> None:
        code, d, p = self.code, self.d, self.p
        side, outputs = self.side, self.s.outputs
        n0 = panel * d.nr
        vectors = code.minimum((code.integer(p.n) - n0 + (self.width - 1)).integer_op("udiv", self.width), self.s.nv)
        source = code.gep(self.products, slot * d.product_panel, "float")
        with code.loop(0, tiles) as tile:
            image, y0, x0 = self._place(tile0 + tile)
            rows = code.minimum(code.integer(p.out_y) - y0, outputs)
            columns = code.minimum(code.integer(p.out_x) - x0, outputs)
            with code.loop(0, vectors) as v:
                at = tile * d.product_tile + v * self.width
                lines = []
                for j in range(side):
                    found = [
                        code.load(code.gep(source, at + (i * side + j) * d.product_position, "float"), self.vector)
                        for i in range(side)
                    ]
                    lines.append(linear(self.to_results, found))
                for i in range(outputs):
                    row = linear(self.to_results, [lines[j][i] for j in range(side)])
                    for j, value in enumerate(row):
                        code.store(value, code.gep(self.results, (i * outputs + j) * self.width, "float"))
                n = n0 + v * self.width
                mask = self._lanes_below(code.integer(p.n) - n) if p.n % self.width else None
                with code.loop(0, rows) as down, code.loop(0, columns) as right:
                    acc = code.load(
                        code.gep(self.results, (down * outputs + right) * self.width, "float"), self.vector, 64
                    )
                    self._store((image, y0 + down, x0 + right), n, acc, mask)

    def _store(self, point: tuple[Value, Value, Value], n: Value, acc: Value, mask: Value | None) -> None:
        bound: dict[Expr, LaneValue] = {axis: self.code.integer(0) for axis in (*self.batch, *self.m)}
        walked = [
            at for at, extent in zip(point, (self.form.image[0], *self.form.out), strict=True) if not is_one(extent)
        ]
        bound.update(zip(long_axes(self.m), walked, strict=True))
        bound |= {self.n: lane_index(n, self.width), self.acc: acc}
        printer = self.entry.printer(self.program, bound, self.width, mask)
        for i, store in enumerate(self.stores):
            printer.store(store.target, self.program.results[2 * i], self.program.results[2 * i + 1])


def emit_winograd(kernel: Kernel[Contraction], schedule: Schedule, name: str, target: Target) -> Emitted:
    """The function's text and its number of tasks. Raises ``ScheduleError`` if the filters are not packed."""
    return _Emitter(kernel, WinogradSchedule(**schedule), name, target).emit()
