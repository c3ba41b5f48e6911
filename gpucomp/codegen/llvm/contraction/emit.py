"""The contraction family on the CPU: panels of columns, and a register block of sums.

    task (batch, rows of tile_m, panels of nv vectors):
        a table of row pointers, if rows need them: one for each outer point of k
        for each block of k:
            copy a: rows of the block, in the order of broadcasts       (or read a in place, or from copied lines)
            for each panel:
                copy b: the block's rows of nv vectors                  (or read b in place)
                for each mr rows:
                    sums[mr][nv] += a[row][k] * b[k][vector]  for every k of the block
                    after the last block: the stores, with the sums in registers

Constant columns are packed in panels when the model is compiled (``space.packing``). A convolution reads its image in
place: a row of ``a`` has a pointer for each tap, which points to zeros if the tap is in the padding. This is the
indirect convolution of Dukhan, arXiv 1907.02129, except that each task computes the pointers for its own rows. Sums of
blocks of k that are not the last are kept in a tile on the stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from gpucomp.codegen.llvm.contraction.epilogue_lines import Requests, touched_by
from gpucomp.codegen.llvm.contraction.image_lines import Lines, Windows, windows_of
from gpucomp.codegen.llvm.contraction.operands import KBlocks, block_k, columns_in_place, operands_of, rows_in_place
from gpucomp.codegen.llvm.contraction.panels import Panels, Part, Span
from gpucomp.codegen.llvm.contraction.register_block import Apart, RegisterBlock, Row, Stream
from gpucomp.codegen.llvm.contraction.rest import Height, rest_of_rows
from gpucomp.codegen.llvm.contraction.row_pointers import RowPointers
from gpucomp.codegen.llvm.contraction.space import sharers
from gpucomp.codegen.llvm.core_space import LINE, STACK_BYTES
from gpucomp.codegen.llvm.ir import storage
from gpucomp.codegen.llvm.ir.builder import Slot, Value
from gpucomp.codegen.llvm.ir.printer import LaneValue
from gpucomp.codegen.llvm.ir.types import PTR, Type
from gpucomp.codegen.llvm.loops.nest import Entry, lane_index, lower, operations
from gpucomp.device.target import Target
from gpucomp.expr.core import Expr
from gpucomp.ir.size import Size, bounds, divides, hint, is_one, is_zero, same
from gpucomp.ir.types import DType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.example import has_sizes
from gpucomp.kernel.source import Emitted
from gpucomp.schedule.space import Schedule

LIGHT_EPILOGUE = 20  # most operations that are unrolled over the vectors of a register block; an exponential is more

SHORTEST_BLOCK = 64  # fewest points of k in a block, if the stack decides
UNROLLED_REST = 1  # points of k in blocks for what is left of rows: each height has a text of its own
MANY_BLOCKS = 6
REQUESTED = 64  # points of k between two prefetches of the epilogue's lines, if each row has a pointer


class _Emitter:
    def __init__(self, kernel: Kernel[Contraction], schedule: Schedule, name: str, target: Target) -> None:
        self.entry = Entry(kernel, name, target)
        self.code = self.entry.code
        self.acc = kernel.body.acc
        self.dtype = self.acc.dtype
        self.scalar = storage.register_scalar(self.dtype)
        self.width = max(2, schedule["lanes"] * 4 // self.dtype.nbytes)
        self.vector = Type(self.scalar, self.width)
        self.bound: dict[Expr, LaneValue] = {}
        self.unroll = schedule["unroll_k"]
        self.windows = windows_of(kernel) if schedule["pack_a"] == 2 else None
        if self.windows and has_sizes(kernel) and not _fits(self.windows, schedule, self.dtype):
            self.windows = None
        self.ops = self.windows.ops if self.windows else operands_of(kernel, 1)
        self.rows = None if schedule["pack_a"] else rows_in_place(self.ops, self.dtype)
        if self.rows is None and self.windows is None:
            self.ops = operands_of(kernel, self.width)
        ops = self.ops
        most_m, most_n = int(bounds(ops.m.extent)[1]), int(bounds(ops.n.extent)[1])
        self.mr = min(schedule["mr"], most_m)
        self.nv = min(schedule["nv"], -(-most_n // self.width))
        self.nr = self.nv * self.width
        self.tile_m = min(-(-schedule["tile_m"] // self.mr) * self.mr, -(-most_m // self.mr) * self.mr)
        self.panel_count = -(-ops.n.extent // self.nr)
        self.panels = min(schedule["panels"], int(bounds(self.panel_count)[1]))
        self.columns = None
        if schedule["pack_b"] != 1:
            sizes = [type.size for type in kernel.params]
            self.columns = columns_in_place(ops, self.dtype, self.nr, sizes)
        self.any_size = has_sizes(kernel)
        self.blocks = self._blocks(schedule["kc"])
        # bytes of the next columns that each row block prefetches per k; together the row blocks prefetch all of them
        row_bytes = self.nr * (self.columns.dtype if self.columns else self.dtype).nbytes
        # where each run decides the rows, the first row blocks prefetch all, and further ones the same again
        self.sharers = sharers(int(hint(ops.m.extent)), self.mr) if isinstance(ops.m.extent, Size) else 0
        rows = min(self.tile_m, self.sharers * self.mr) if self.sharers else self.tile_m
        self.ahead = -(-row_bytes * self.mr // rows) if schedule["ahead"] else 0
        self.register_block = RegisterBlock(self.code, self.dtype, self.width, self.unroll, self.ahead)
        self.copies = Panels(self.entry, ops, self.dtype, self.width, self.blocks, self.tile_m, self.nr, self.bound)
        if self.windows is not None:
            self.lines = Lines(self.entry, self.windows, self.dtype, self.width, self.tile_m, self.bound)
        exprs = [e for s in ops.stores for e in (s.offset, s.value)]
        self.stores = lower(exprs, [ops.batch, ops.m, ops.n, self.acc], self.unroll)
        self.far_rows = self._rows_come_from_far(target.limits.cache_bytes)
        self.touched = touched_by(ops, kernel.params)
        self.light = operations([s.value for s in ops.stores]) <= LIGHT_EPILOGUE
        self._scratch()

    def _blocks(self, kc: int) -> KBlocks:
        """Blocks of k of ``kc`` points. Those of sizes are shorter if the copies of some run would not fit the stack."""
        ops, width = self.ops, self.width
        blocks = block_k(ops.outer, ops.ki.extent, kc, width)
        while self.any_size and kc > SHORTEST_BLOCK:
            copied = self.tile_m * self.panels * self.nr
            if self.rows is None and self.windows is None:
                copied += (self.tile_m + width) * (blocks.room + 2 * width)
            if self.columns is None:
                copied += (blocks.room + width) * self.nr
            if copied * self.dtype.nbytes <= STACK_BYTES:
                break
            kc = max(SHORTEST_BLOCK, min(kc, blocks.room) // 2)
            blocks = block_k(ops.outer, ops.ki.extent, kc, width)
        return blocks

    def _rows_come_from_far(self, cache_bytes: int) -> bool:
        """Whether a register block's rows are contiguous, in an operand larger than the second-level cache."""
        rows, ops = self.rows, self.ops
        if rows is None or not isinstance(rows.row, int) or not is_one(rows.step) or not is_one(self.blocks.count):
            return False
        if not same(rows.row, ops.ki.extent):
            return False
        return bool(2 * hint(ops.m.extent) * hint(ops.ki.extent) * self.dtype.nbytes > cache_bytes)

    @property
    def _pointers(self) -> bool:
        """Whether each row has a pointer of its own."""
        return self.windows is not None or (self.rows is not None and self.rows.row is None)

    # memory on the stack

    def _scratch(self) -> None:
        code = self.code
        self.table_row = -(-self.tile_m // self.width) * self.width
        if self.windows is not None:
            self.table = code.stack(f"[{self.table_row} x ptr]", 64)
        elif self.rows is None:
            self.copies.room_for_rows()
        elif self.rows.row is None:
            self.pointers = RowPointers(self.entry, self.ops, self.rows, self.scalar, self.width, self.table_row)
            self.table = self.pointers.table
        if self.columns is None:
            self.copies.room_for_columns()
        self.partial_row = self.panels * self.nr
        if not is_one(self.blocks.count):
            self.partial = code.stack(f"[{self.tile_m * self.partial_row} x {self.scalar}]", 64)
        if not self.light or isinstance(self.ops.m.extent % self.mr, Size):
            self.tile = code.stack(f"[{self.mr * self.nr} x {self.scalar}]", 64)

    # the nest

    def emit(self) -> Emitted:
        code, ops, entry = self.code, self.ops, self.entry
        m_tiles = -(-ops.m.extent // self.tile_m)
        n_tiles = -(-self.panel_count // self.panels)
        with code.loop(entry.first, entry.last) as task:
            batch, n_tile, m_tile = entry.decompose(task, [ops.batch.extent, n_tiles, m_tiles])
            self.bound[ops.batch] = batch
            m0, first = m_tile * self.tile_m, n_tile * self.panels
            rows = code.minimum(code.integer(ops.m.extent) - m0, self.tile_m)
            last = code.minimum(first + self.panels, self.panel_count)
            if self.windows is not None:
                self.lines.find(self.table, m0, self.lines.write(m0, rows), self.table_row)
            elif self._pointers:
                self.pointers.find(m0, self.bound)
            if is_one(self.blocks.count):
                self._block(code.integer(0), m0, rows, first, last)
            else:
                with code.loop(0, self.blocks.count) as block:
                    self._block(block, m0, rows, first, last)
        return entry.emitted(ops.batch.extent * m_tiles * n_tiles)

    def _block(self, block: Value, m0: Value, rows: Value, first: Value, last: Value) -> None:
        code, blocks, ko = self.code, self.blocks, self.ops.outer
        if blocks.inside:
            group0, chunk = self.entry.decompose(block, [ko, blocks.chunks])
            start = chunk * blocks.chunk
            stop = code.minimum(start + blocks.chunk, self.ops.ki.extent)
            groups, length = code.integer(1), stop - start
            if divides(blocks.chunk, self.ops.ki.extent):
                length = code.integer(blocks.chunk)
        else:
            group0, start = block * blocks.group, code.integer(0)
            stop = code.integer(self.ops.ki.extent)
            groups = code.integer(blocks.group)
            if not divides(blocks.group, ko):
                groups = code.minimum(code.integer(ko) - group0, blocks.group)
            length = groups * self.ops.ki.extent
        part = Part(block, group0, groups, start, stop, length)
        if self.rows is None and self.windows is None:
            self.copies.copy_rows(part, m0, rows)
        whole, rest = self.ops.n.extent // self.nr, self.ops.n.extent % self.nr
        with code.loop(first, code.minimum(last, whole)) as panel:
            self._panel(part, m0, rows, first, panel, self._span(self.nr))
        if is_zero(rest):
            return
        left = code.integer(rest)
        is_last = last.equals(self.panel_count)
        with code.when(is_last & left.differs(0) if isinstance(rest, Size) else is_last):
            self._panel(part, m0, rows, first, code.integer(whole), self._span(rest))

    def _span(self, count: int) -> Span:
        """``count`` columns of a panel."""
        width, entry = self.width, self.entry
        if isinstance(count, Size):
            left = self.code.integer(count)
            masks = [entry.first_lanes(left - v * width, width) for v in range(self.nv)]
            return Span(left, self.nv, tuple(masks))
        vectors = -(-count // width)
        last = None if count % width == 0 else entry.prefix_mask(count % width, width)
        return Span(count, vectors, (*[None] * (vectors - 1), last))

    def _panel(self, part: Part, m0: Value, rows: Value, first: Value, panel: Value, columns: Span) -> None:
        code = self.code
        if self.columns is None:
            self.copies.copy_columns(part, panel * self.nr, columns)
        whole = rows - rows.integer_op("urem", self.mr)
        with code.loop(0, whole, self.mr) as row:
            self._register_block(part, m0, row, first, panel, Height(self.mr, self.mr, self.mr), columns)
        rest = self.ops.m.extent % self.mr
        if isinstance(rest, Size):
            self._last_rows(part, m0, whole, first, panel, rows - whole, columns)
        elif rest:
            with code.when(whole.differs(rows)):
                self._register_block(part, m0, whole, first, panel, Height(rest, rest, rest), columns)

    def _last_rows(
        self, part: Part, m0: Value, row: Value, first: Value, panel: Value, left: Value, columns: Span
    ) -> None:
        """The ``left`` rows after the last whole register block. All heights share the stores, from sums in memory."""
        code = self.code
        partial = self._partial(row, first, panel)
        kept, stride = (self.tile, self.nr) if partial is None else (partial, self.partial_row)
        block, rows = self.register_block, int(hint(self.ops.m.extent))
        self.register_block = replace(block, unroll=min(block.unroll, UNROLLED_REST))
        # many rows seldom wait for the rest: two heights are enough, as each costs as much text as a whole block
        lowest = (self.mr - 1) * 2 // 3 if rows >= MANY_BLOCKS * self.mr else 0
        for height in rest_of_rows(code, left, self.mr, columns.vectors, lowest):
            sums = self._slots(height, columns)
            self._sum(part, m0, row, panel, height, columns, sums, partial)
            self._keep(sums, kept, stride)
        self.register_block = block
        stored = left
        if not is_one(self.blocks.count):
            stored = code.select(part.block.equals(self.blocks.count - 1), left, 0)
        self._finish_kept(m0 + row, panel * self.nr, kept, stride, stored, columns)

    # the register block

    def _register_block(
        self, part: Part, m0: Value, row: Value, first: Value, panel: Value, height: Height, columns: Span
    ) -> None:
        code = self.code
        sums = self._slots(height, columns)
        partial = self._partial(row, first, panel)
        self._sum(part, m0, row, panel, height, columns, sums, partial)
        if partial is None:
            self._finish(m0 + row, panel * self.nr, sums, height, columns)
            return
        last = part.block.equals(self.blocks.count - 1)
        name = code._name("f")
        code.branch(last, f"{name}.finish", f"{name}.keep")
        code.label(f"{name}.finish")
        self._finish(m0 + row, panel * self.nr, sums, height, columns)
        code.jump(f"{name}.end")
        code.label(f"{name}.keep")
        self._keep(sums, partial, self.partial_row)
        code.jump(f"{name}.end")
        code.label(f"{name}.end")

    def _slots(self, height: Height, columns: Span) -> list[list[Slot]]:
        return [[self.code.slot(self.vector) for _ in range(columns.vectors)] for _ in range(height.rows)]

    def _partial(self, row: Value, first: Value, panel: Value) -> Value | None:
        """Where sums of blocks of k that are not the last are kept; ``None`` if there is one block."""
        if is_one(self.blocks.count):
            return None
        return self.code.gep(self.partial, row * self.partial_row + (panel - first) * self.nr, self.scalar)

    def _keep(self, sums: list[list[Slot]], kept: Value, stride: int) -> None:
        code = self.code
        for i, line in enumerate(sums):
            for v, slot in enumerate(line):
                at = code.gep(kept, i * stride + v * self.width, self.scalar)
                code.store(slot.get(), at, self.dtype.nbytes)

    def _sum(
        self,
        part: Part,
        m0: Value,
        row: Value,
        panel: Value,
        height: Height,
        columns: Span,
        sums: list[list[Slot]],
        partial: Value | None,
    ) -> None:
        """Adds a block of k to the sums of a register block, which start at 0 or at the ``partial`` ones."""
        code, rows = self.code, height.rows
        self._start_sums(part, sums, partial)
        b, b_step = self._columns_from(part, panel)
        masks = None if self.columns is None or self.columns.padded else columns.masks
        b_dtype = self.dtype if self.columns is None else self.columns.dtype
        columns_at = Stream(b, b_dtype, b_step, masks, self._next_columns(b, b_dtype, row))
        requests = None
        if height.least == rows:
            requests = self._requests(part, m0 + row, panel * self.nr, rows, columns)

        def beside(k: Value, points: int) -> None:
            if requests is not None:
                requests.ask(k.integer_op("udiv", points))

        if self._pointers:
            self._sum_along_table(part, row, height, columns_at, sums, requests)
        elif self.rows is None:
            a, a_row, a_step = self.copies.rows_from(row)
            a = self._alone(a)
            self.register_block.sum(self._lines(a, a_row, height), a_step, columns_at, part.length, sums, beside)
        else:
            assert self.rows.row is not None
            a = self._address(self.rows.offset, self.rows.source, {self.ops.m: m0 + row})
            a = self._alone(code.gep(a, part.start * self.rows.step, self.scalar))

            def beside_in_place(k: Value, points: int) -> None:
                beside(k, points)
                if self.far_rows:
                    self._ask_for_rows(a, rows, k, points)

            if isinstance(self.rows.row, Size):
                self._sum_apart(a, part, height, columns_at, sums, requests)
            else:
                lines = self._lines(a, self.rows.row, height)
                self.register_block.sum(lines, self.rows.step, columns_at, part.length, sums, beside_in_place)

    def _lines(self, a: Value, stride: Any, height: Height) -> list[Row]:
        """The rows of a block from ``a`` on, ``stride`` elements apart. Rows past the last are the last again."""
        rows: list[Row] = [(a, i * stride) for i in range(height.least)]
        return rows + self._repeated(a, stride, height)

    def _repeated(self, a: Value, stride: Any, height: Height) -> list[Row]:
        """The rows of a block that may be past the last."""
        code = self.code
        return [
            (code.opaque(code.gep(a, height.row(i) * stride, self.scalar)), 0) for i in range(height.least, height.rows)
        ]

    def _sum_apart(
        self, a: Value, part: Part, height: Height, columns: Stream, sums: list[list[Slot]], requests: Requests | None
    ) -> None:
        """Sums of rows at a distance that each run decides.

        It leaves few address registers, so prefetches come between the innermost loops, as with a pointer for each row.
        """
        assert self.rows is not None
        assert self.rows.row is not None
        code, stride, step = self.code, self.rows.row, self.rows.step

        def run(a: Value, columns: Stream, length: Value) -> None:
            apart = Apart(a, code.integer(stride), height.least)
            rows = self._repeated(a, stride, height)
            self.register_block.sum(rows, step, columns, length, sums, apart=apart)

        if requests is None:
            run(a, columns, part.length)
            return
        with code.loop(0, part.length, REQUESTED) as at:
            requests.ask_share(at.integer_op("udiv", REQUESTED), -(-int(hint(self.blocks.length)) // REQUESTED))
            start = code.gep(columns.start, at * columns.step, storage.memory_scalar(columns.dtype))
            following = columns.following
            if following is not None:
                following = code.gep(following, at * self.ahead, "i8")
            moved = replace(columns, start=start, following=following)
            run(code.gep(a, at * step, self.scalar), moved, code.minimum(part.length - at, REQUESTED))

    def _alone(self, address: Value) -> Value:
        """``address``, which LLVM does not relate to those of other blocks if sizes are open: it would take much longer."""
        return self.code.opaque(address) if self.any_size else address

    def _ask_for_rows(self, a: Value, rows: int, k: Value, points: int) -> None:
        """Prefetches the rows of the next block: the share that belongs to ``points`` points of the current one.

        Hardware prefetchers follow one stream per page, but here several short rows of a page are read at a time.
        """
        code, nbytes = self.code, rows * self.dtype.nbytes
        following = code.gep(a, rows * self.ops.ki.extent, self.scalar)
        at = code.gep(following, k * nbytes, "i8")
        for line in range(0, points * nbytes, LINE):
            code.prefetch(code.gep(at, line, "i8"))

    def _requests(self, part: Part, m: Value, n: Value, rows: int, columns: Span) -> Requests | None:
        """The lines that a block's stores touch; ``None`` if prefetching them does not pay.

        The block has ``rows`` rows and ``columns`` columns.
        """
        if self._pointers and is_one(self.blocks.group) and all(touched.written for touched in self.touched):
            return None  # prefetching would split the inner loops for results only, which are seldom far away
        starts = []
        for touched in self.touched:
            start = self._address(touched.offset, touched.source, {self.ops.m: m, self.ops.n: n})
            nbytes = self.entry.kernel.params[touched.source].dtype.nbytes
            count = columns.count if isinstance(columns.count, int) else columns.vectors * self.width
            starts.append((touched, start, -(-count * nbytes // LINE)))
        if not starts:
            return None
        first = self.code.integer(0)
        if not is_one(self.blocks.count):
            first = self.code.select(part.block.equals(self.blocks.count - 1), first, self.code.integer(rows))
        return Requests(self.code, starts, rows, first)

    def _next_columns(self, b: Value, dtype: DType, row: Value) -> Value | None:
        """The address of this row block's share of the next columns to prefetch."""
        if not self.ahead:
            return None
        code = self.code
        distance = (self.ops.k if self.panels > 1 else self.blocks.length) * self.nr
        number = row.integer_op("udiv", self.mr)
        share = (number & (self.sharers - 1) if self.sharers else number) * (self.blocks.length * self.ahead)
        return code.gep(code.gep(b, distance, storage.memory_scalar(dtype)), share, "i8")

    def _sum_along_table(
        self,
        part: Part,
        row: Value,
        height: Height,
        columns: Stream,
        sums: list[list[Slot]],
        requests: Requests | None,
    ) -> None:
        """Sums with a pointer for each row.

        Pointers take all address registers, so prefetches come between the innermost loops.
        """
        code, ki = self.code, self.ops.ki.extent
        if not self.blocks.inside:
            span = code.integer(ki)
        else:
            span = code.integer(self.blocks.chunk) if divides(self.blocks.chunk, ki) else part.stop - part.start
        with (
            code.loop(0, part.groups) as q,
            nullcontext() if self.windows else self.pointers.when_read(part.group0 + q),
        ):
            if requests is None or not is_one(self.blocks.group):
                if requests is not None:
                    requests.ask_share(q, int(hint(self.blocks.group)))
                self._sum_run(part, row, height, columns, sums, q, code.integer(0), span)
                return
            with code.loop(0, span, REQUESTED) as at:
                requests.ask_share(at.integer_op("udiv", REQUESTED), max(1, int(hint(self.blocks.chunk)) // REQUESTED))
                self._sum_run(part, row, height, columns, sums, q, at, code.minimum(span - at, REQUESTED))

    def _sum_run(
        self,
        part: Part,
        row: Value,
        height: Height,
        columns: Stream,
        sums: list[list[Slot]],
        q: Value,
        at: Value,
        length: Value,
    ) -> None:
        """Sums ``length`` points of ki from ``at`` on, at outer point ``q`` of the block."""
        code, ki = self.code, self.ops.ki.extent
        step = 1 if self.rows is None else self.rows.step
        point = part.group0 + q
        entry, offset = point * self.table_row + row, (part.start + at) * step
        if self.windows is not None:
            entry, offset = row, offset + point * self.windows.row
        lines = []
        for i in range(len(sums)):
            pointer = code.load(code.gep(self.table, entry + height.row(i), "ptr"), PTR)
            lines.append((code.gep(pointer, offset, self.scalar), 0))
        k = q * ki + at
        following = columns.following
        if following is not None:
            following = code.gep(following, k * self.ahead, "i8")
        start = code.gep(columns.start, k * columns.step, storage.memory_scalar(columns.dtype))
        self.register_block.sum(lines, step, replace(columns, start=start, following=following), length, sums)

    def _start_sums(self, part: Part, sums: list[list[Slot]], partial: Value | None) -> None:
        code = self.code
        for line in sums:
            for slot in line:
                slot.set(code.const(0, self.vector))
        if partial is None:
            return
        with code.when(part.block.differs(0)):
            for i, line in enumerate(sums):
                for v, slot in enumerate(line):
                    at = code.gep(partial, i * self.partial_row + v * self.width, self.scalar)
                    slot.set(code.load(at, self.vector, self.dtype.nbytes))

    def _columns_from(self, part: Part, panel: Value) -> tuple[Value, int]:
        """The address of the panel's columns at the block's first k, and the stride of k."""
        if self.columns is None:
            return self.copies.b_pack, self.nr
        start = self._address(self.columns.offset, self.columns.source, {self.columns.panel: panel})
        k = part.group0 * self.ops.ki.extent + part.start
        scalar = storage.memory_scalar(self.columns.dtype)
        return self.code.gep(start, k * self.columns.step, scalar), self.columns.step

    def _address(self, offset: Expr, source: int, at: dict[Expr, LaneValue]) -> Value:
        scalar = storage.memory_scalar(self.entry.kernel.params[source].dtype)
        program = lower([offset], [self.ops.batch, *at])
        printer = self.entry.printer(program, {**self.bound, **at}, 0, None)
        return self.code.gep(self.entry.params[source], printer.value(program.results[0]), scalar)

    # the stores

    def _finish(self, m: Value, n: Value, sums: Sequence[Sequence[Slot]], height: Height, columns: Span) -> None:
        code, width = self.code, self.width
        if self.light:
            for i, line in enumerate(sums):
                for v, slot in enumerate(line):
                    self._store(m + i, n + v * width, slot.get(), columns.masks[v])
            return
        for i, line in enumerate(sums):
            for v, slot in enumerate(line):
                code.store(slot.get(), code.gep(self.tile, i * self.nr + v * width, self.scalar))
        self._finish_kept(m, n, self.tile, self.nr, height.count, columns)

    def _finish_kept(self, m: Value, n: Value, kept: Value, stride: int, rows: Value | int, columns: Span) -> None:
        """The stores of sums in memory, in ``rows`` rows."""
        code, width = self.code, self.width
        align = 0 if kept is self.tile else self.dtype.nbytes
        with code.loop(0, rows) as row:
            base = row * stride

            def one(at: Value, mask: Value | None) -> None:
                acc = code.load(code.gep(kept, base + at, self.scalar), self.vector, align)
                self._store(m + row, n + at, acc, mask)

            if isinstance(columns.count, Value):
                with code.loop(0, columns.count, width) as at:
                    one(at, self.entry.first_lanes(columns.count - at, width))
            else:
                whole = columns.count // width
                with code.loop(0, whole) as vector:
                    one(vector * width, None)
                if columns.cut:
                    one(code.integer(whole * width), columns.masks[-1])

    def _store(self, m: Value, n: Value, acc: Value, mask: Value | None) -> None:
        bound: dict[Expr, LaneValue] = {
            **self.bound,
            self.ops.m: m,
            self.ops.n: lane_index(n, self.width),
            self.acc: acc,
        }
        printer = self.entry.printer(self.stores, bound, self.width, mask)
        for i, store in enumerate(self.ops.stores):
            printer.store(store.target, self.stores.results[2 * i], self.stores.results[2 * i + 1])


def _fits(windows: Windows, schedule: Schedule, dtype: DType) -> bool:
    """Whether the copied lines of every run fit the stack."""
    return windows.room(schedule["tile_m"] + schedule["mr"]) * dtype.nbytes <= STACK_BYTES


def emit_contraction(kernel: Kernel[Contraction], schedule: Schedule, name: str, target: Target) -> Emitted:
    """The function and its number of tasks."""
    return _Emitter(kernel, schedule, name, target).emit()
