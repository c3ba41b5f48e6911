"""Contractions on tile registers (AMX): an instruction computes 16 rows by 16 columns of sums.

    task (batch, tiles of rows, panels of columns):
        copy a: rows, or lines of an image                              (or read a in place)
        for each panel of tiles_n tiles of columns:
            copy b                                                      (or packed when the model was compiled)
            for each tiles_m tiles of rows:
                sums[tiles_m][tiles_n] += rows[tiles_m] * columns[tiles_n]      for each step of k
                    between the steps, the stores of the previous block, a vector of 16 columns at a time
                the sums are written to memory

All tiles of rows have the same height. The last one starts early enough to be whole; rows that it shares with the tile
before are computed twice and stored once. The processor treats denormal bf16 as zero, sums in f32 rounded to nearest
even, and raises no exceptions. Sums are in the order of k, the same in each run and for each number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from gpucomp.codegen.llvm.amx.operands import Image, Narrow, image_of, narrow_of, straight_rows
from gpucomp.codegen.llvm.amx.rows import CopiedLines, CopiedRows, RowsInPlace, word_of
from gpucomp.codegen.llvm.amx.space import (
    COLUMNS,
    COPIED,
    IN_PLACE,
    LINE,
    LINES,
    NarrowProblem,
    NarrowSchedule,
    TileSchedule,
    derive,
    has_taps,
    of_any_size,
    packing,
    problem,
    registers,
)
from gpucomp.codegen.llvm.contraction.panels import transpose
from gpucomp.codegen.llvm.ir import storage
from gpucomp.codegen.llvm.ir.builder import Slot, Value
from gpucomp.codegen.llvm.ir.printer import Affine, LaneValue
from gpucomp.codegen.llvm.ir.types import I64, Type
from gpucomp.codegen.llvm.loops.nest import Entry, lower, operations
from gpucomp.device.target import Target
from gpucomp.errors import ScheduleError
from gpucomp.expr.core import Cast, Expr, Load, substitute, var
from gpucomp.expr.simplify import simplify
from gpucomp.ir.size import Size, hint, is_one, is_zero
from gpucomp.ir.types import BF16, U8
from gpucomp.kernel import Contraction, Kernel, kernel_of
from gpucomp.kernel.example import example_of, has_sizes
from gpucomp.kernel.source import Emitted
from gpucomp.schedule.space import Schedule

AHEAD_BYTES = 64 << 10  # distance at which columns are prefetched, if each is read once
LATE_STEPS = 8  # fewest steps of k for late stores; with fewer, stores after the multiplications are faster (measured)
LIGHT_EPILOGUE = 24  # most operations that are unrolled over the tiles of columns
FLOAT = Type("float", COLUMNS)


@dataclass(frozen=True)
class Late:
    """The register block whose stores are still to be done: its number of rows, zero if there is no such block."""

    rows: Slot
    panel: Slot
    tile: Slot


class Tiles:
    """Writes one kernel. The ``vnni`` engine writes the same loop nest around other instructions."""

    words_first = False  # see ``packing``

    def __init__(self, kernel: Kernel[Contraction], s: NarrowSchedule, name: str, target: Target) -> None:
        self.entry = Entry(kernel, name, target)
        self.code = self.entry.code
        self.code.native_bf16 = "avx512bf16" in target.features
        self.narrow, self.acc = self._narrow(kernel), kernel.body.acc
        self.ops = self.narrow.ops
        example = self._problem(kernel_of(example_of(kernel), Contraction))
        self.any_size = has_sizes(kernel)
        self.s, self.p = s, self._problem(kernel) if self.any_size else example
        self.way = self._way(kernel)
        self.d = of_any_size(s, self.p, example, self.way) if self.any_size else derive(s, self.p)
        self.bound: dict[Expr, LaneValue] = {}
        self.vector = Type(storage.register_scalar(self.acc.dtype), COLUMNS)
        self.column_type = Type(f"i{self.d.group * self.ops.b.dtype.bits}", COLUMNS)  # words of 16 columns
        line = COLUMNS * self.d.group * self.ops.b.dtype.nbytes
        words = self.d.depth // self.d.group
        # bytes between the words of k of a tile of columns, and between tiles
        self.word_bytes, self.tile_bytes = (line * self.d.tiles_n, line) if self.words_first else (line, line * words)
        self.columns = _packed_columns(kernel, self.s, example, self.words_first)
        if self.columns is None:
            self.b_program = lower([self.ops.b], [self.ops.batch, self.ops.ki, self.ops.n])
            self.b_room = self.code.stack(f"[{self.d.panel_bytes} x i8]", LINE)
        self.rows = self._rows_of(kernel)
        # a column is a tile and a lane, so that indices that no tile splits stay contiguous
        self.tile, self.lane = var("tile", self.d.n_tiles), var("lane", COLUMNS)
        column: dict[Expr, Expr] = {self.ops.n: self.tile * COLUMNS + self.lane}
        exprs = [simplify(substitute(e, column)) for s in self.ops.stores for e in (s.offset, s.value)]
        self.stores = lower(exprs, [self.ops.batch, self.ops.m, self.tile, self.lane, self.acc])
        self.light = operations([s.value for s in self.ops.stores]) <= LIGHT_EPILOGUE
        self.sums = self.code.stack(f"[{self.s.tiles_m * self.d.tiles_n * self.d.most_rows * COLUMNS} x i32]", LINE)
        self.late = self._late()

    def _narrow(self, kernel: Kernel[Contraction]) -> Narrow:
        """The operands as the instructions read them."""
        narrow = narrow_of(kernel)
        assert narrow is not None
        return narrow

    def _problem(self, kernel: Kernel[Contraction]) -> NarrowProblem:
        return problem(kernel)

    def _image(self, kernel: Kernel[Contraction]) -> Image | None:
        return image_of(kernel)

    def _late(self) -> Late | None:
        """Whether stores are delayed: they may be unrolled several times, and a block has enough steps for them."""
        if not self.light or self.d.steps < LATE_STEPS:
            return None
        return Late(*(self.code.slot(I64) for _ in range(3)))

    def _way(self, kernel: Kernel[Contraction]) -> int:
        """How rows are read: as the schedule says. With sizes they are copied where that says the same of the columns."""
        way = self.s.pack_a
        if not self.any_size:
            return way
        image = self._image(kernel) if way == LINES else None
        read = (way == IN_PLACE and straight_rows(self.narrow)) or (image is not None and has_taps(image))
        return way if read else COPIED

    def _rows_of(self, kernel: Kernel[Contraction]) -> RowsInPlace | CopiedRows | CopiedLines:
        if self.way == IN_PLACE:
            straight = straight_rows(self.narrow)
            assert straight is not None
            return RowsInPlace(self.entry, self.narrow, straight, self.d, self.bound)
        if self.way == LINES:
            image = self._image(kernel)
            assert image is not None
            return CopiedLines(self.entry, image, self.d, self.p, self.bound)
        return CopiedRows(self.entry, self.narrow, self.d, self.bound)

    # the nest

    def emit(self) -> Emitted:
        code, d, p = self.code, self.d, self.p
        n_tasks = -(-d.panel_count // d.panels)
        self._begin_program()
        if self.any_size and isinstance(self.rows, CopiedLines):
            self._find_tiles_of_lines()
            self.rows.find_steps()
        with code.loop(self.entry.first, self.entry.last) as task:
            batch, n_task, m_task = self.entry.decompose(task, [p.batch, n_tasks, d.m_tasks])
            self.bound[self.ops.batch] = batch
            count = self._begin_lines(m_task) if self.way == LINES else self._begin_rows(m_task)
            first = n_task * d.panels
            last = code.minimum(first + d.panels, d.panel_count)
            whole = d.n_tiles // d.tiles_n
            if self.late is not None:
                self.late.rows.set(code.integer(0))
            with code.loop(first, code.minimum(last, whole)) as panel:
                self._panel(panel, count, d.tiles_n)
            self._catch_up(d.tiles_n)
            if d.n_tiles % d.tiles_n:
                with code.when(last.equals(d.panel_count)):
                    self._panel(code.integer(whole), count, d.n_tiles % d.tiles_n)
                    self._catch_up(d.n_tiles % d.tiles_n)
        self._end_program()
        return self.entry.emitted(p.batch * n_tasks * d.m_tasks)

    def _end_program(self) -> None:
        self.code.emit("call void @llvm.x86.tilerelease()")  # tiles in use make saving a thread's registers slow

    def _begin_program(self) -> None:
        """Configures the tiles, in palette 1.

        From byte 16 on there are two bytes per tile, for its bytes per row; from byte 48 on one, for its number of rows.
        """
        d, nbytes = self.d, self.narrow.dtype.nbytes
        sums = self.s.tiles_m * d.tiles_n
        rows = registers(self.s)[0]
        shapes = [(d.most_rows, LINE)] * sums + [(d.most_rows, d.depth * nbytes)] * rows
        shapes += [(d.depth // d.group, LINE)] * (8 - len(shapes))
        table = [1] + [0] * 63
        for tile, (count, width) in enumerate(shapes):
            table[16 + 2 * tile], table[48 + tile] = width, count
        self.row_tiles = list(range(sums, sums + rows))
        self.column_tiles = list(range(sums + rows, 8))
        shapes_at = self.code.table("shapes", table, "i8")
        if isinstance(d.rows, Size):
            shapes_at = self._with_rows(shapes_at, sums + rows)
        self.code.emit(f"call void @llvm.x86.ldtilecfg(ptr {shapes_at.text})")

    def _with_rows(self, shapes: Value, tiles: int) -> Value:
        """A copy of ``shapes`` in which the first ``tiles`` tiles have this run's number of rows."""
        code, whole = self.code, Type("i8", LINE)
        copy = code.stack(f"[{LINE} x i8]", LINE)
        code.store(code.load(shapes, whole), copy)
        for tile in range(tiles):
            code.store(code.const(self.d.rows, Type("i8")), code.gep(copy, 48 + tile, "i8"))
        return copy

    def _begin_rows(self, m_task: Value) -> Value:
        code, d, m = self.code, self.d, self.p.m
        assert not isinstance(self.rows, CopiedLines)
        self.first_tile = m_task * d.task_tiles
        self.first_row = code.minimum(self.first_tile * d.rows, m - d.rows)
        end = code.minimum(self.first_tile * d.rows + d.task_tiles * d.rows, m)
        self.rows.begin(self.first_row, end - self.first_row)
        return code.minimum(code.integer(d.tiles) - self.first_tile, d.task_tiles)

    def _begin_lines(self, m_task: Value) -> Value:
        """Starts a task of ``d.lines`` lines of the result, and returns its number of tiles of rows.

        The last task of an image overlaps with the task before it.
        """
        code, d, p = self.code, self.d, self.p
        assert isinstance(self.rows, CopiedLines)
        image, part = self.entry.decompose(m_task, [p.images, -(-p.out_y // d.lines)])
        line = code.minimum(part * d.lines, p.out_y - d.lines)
        self.skip = (part * d.lines - line) * p.out_x
        self.first_row = (image * p.out_y + line) * p.out_x
        self.rows.begin(self.bound[self.ops.batch], image, line)
        if not self.any_size:
            starts = [self._line_tile(tile) for tile in range(d.tiles)]
            self.starts = code.table("starts", starts, "i32")
            self.places = code.table("places", self._places(starts), "i32")
        return code.integer(d.tiles)

    def _line_tile(self, tile: int) -> int:
        """The first row of a tile, counted along the copied lines."""
        d, p = self.d, self.p
        if self.s.across:
            return min(tile * d.rows, d.flat - d.rows)
        line, part = divmod(tile, d.along)
        return line * d.width + min(part * d.rows, p.out_x - d.rows)

    def _places(self, starts: Sequence[int]) -> list[int]:
        """The row of the result of each row of each tile; -1 if there is none, or if another tile stores it."""
        d, out_x = self.d, self.p.out_x
        seen: set[int] = set()
        places = []
        for row in (start + i for start in starts for i in range(d.rows)):
            line, x = divmod(row, d.width)
            inside = x < out_x and row not in seen
            seen.add(row)
            places.append(line * out_x + x if inside else -1)
        return places

    def _find_tiles_of_lines(self) -> None:
        """``starts`` and ``places`` of this run, for all of its tasks."""
        code, d, out_x = self.code, self.d, self.p.out_x
        self.starts, self.places = (code.stack(f"[{d.most_places} x i32]", LINE) for _ in range(2))
        with code.loop(0, d.tiles) as tile:
            if is_zero(d.along):
                fresh = tile * d.rows
                start = code.minimum(fresh, d.flat - d.rows) if self.s.even else fresh
            else:
                line = self._divided(tile, d.along)
                first = line * d.width
                part = (tile - line * d.along) * d.rows
                fresh, start = first + part, first + code.minimum(part, out_x - d.rows)
            code.store(code.convert("trunc", start, "i32"), code.gep(self.starts, tile, "i32"))
            with code.loop(0, d.rows) as i:
                row = start + i
                line = self._divided(row, d.width)
                x = row - line * d.width
                inside = (x < out_x) & (row >= fresh) & (line < d.lines)
                place = code.select(inside, line * out_x + x, -1)
                code.store(code.convert("trunc", place, "i32"), code.gep(self.places, tile * d.rows + i, "i32"))

    def _divided(self, value: Value, by: int) -> Value:
        return self.code.divided(value, by) if isinstance(by, Size) else value.integer_op("udiv", by)

    def _panel(self, panel: Value, count: Value, columns: int) -> None:
        if self.columns is None:
            self._copy_columns(panel, columns)
            start = self.b_room
        else:
            start = self._packed_panel(panel)
        self._tiles(panel, start, count, columns)

    def _tiles(self, panel: Value, start: Value, count: Value, columns: int) -> None:
        """All tiles of rows of a task, ``count`` of them, by a panel at ``start``."""
        code, d = self.code, self.d
        tiles_m = self.s.tiles_m
        whole = count - count.integer_op("urem", tiles_m)
        if not count.text.startswith("%"):
            whole = code.integer(int(count.text) // tiles_m * tiles_m)
        with code.loop(0, whole, tiles_m) as tile:
            self._register_block(panel, start, tile, tiles_m, columns)
        rests = range(tiles_m) if self.any_size else {d.task_tiles % tiles_m, (d.tiles % d.task_tiles) % tiles_m}
        for rest in sorted({*rests} - {0}):
            with code.when((count - whole).equals(rest)):
                self._register_block(panel, start, whole, rest, columns)

    # a register block

    def _register_block(self, panel: Value, start: Value, tile: Value, tiles_m: int, columns: int) -> None:
        pointers = [self.rows.row(self._first_row_of(tile + i)) for i in range(tiles_m)]
        self._sum(pointers, start, tile, columns)
        rows = self.code.integer(tiles_m * self.d.rows)
        if self.late is None:
            self._finish(panel, tile, self.code.integer(0), rows, columns)
            return
        for slot, value in ((self.late.rows, rows), (self.late.panel, panel), (self.late.tile, tile)):
            slot.set(value)

    def _catch_up(self, columns: int) -> None:
        """Does the stores that were delayed."""
        if self.late is not None:
            late = self.late
            self._finish(late.panel.get(), late.tile.get(), self.code.integer(0), late.rows.get(), columns)
            late.rows.set(self.code.integer(0))

    def _sum(self, pointers: Sequence[Value], start: Value, tile: Value, columns: int) -> None:
        """Computes ``self.sums`` from the tiles of rows at ``pointers`` and ``columns`` tiles of a panel at ``start``."""
        code, d = self.code, self.d
        for k in range(len(pointers) * columns):
            code.emit(f"call void @llvm.x86.tilezero(i8 {k})")
        a_stride = code.integer(self.rows.row_bytes)
        with self._steps(start, tile) as (step, distance, columns_at):
            self._multiply([code.gep(p, distance, "i8") for p in pointers], a_stride, columns_at, columns)
            if self.late is not None:
                self._finish_share(self.late, step, columns)
        stride = code.integer(columns * LINE)
        for i in range(len(pointers)):
            for v in range(columns):
                to = code.gep(self.sums, code.integer(d.rows) * (i * columns * COLUMNS) + v * COLUMNS, "i32")
                code.emit(f"call void @llvm.x86.tilestored64(i8 {i * columns + v}, ptr {to.text}, i64 {stride.text})")

    @contextmanager
    def _steps(self, start: Value, tile: Value) -> Iterator[tuple[Value, Value, Value]]:
        """A loop over the steps of k. It yields the step, the offset of the rows, and the address of the columns."""
        code, d = self.code, self.d
        step_bytes = d.panel_bytes // d.steps
        following, table = self._next_panel(start, tile), self._step_table()
        with code.loop(0, d.steps) as step:
            if table is None:
                distance = step * (self.rows.steps[1] if d.steps > 1 else 0)
            else:
                distance = code.load(code.gep(table, step, "i64"), Type("i64"))
            yield step, distance, code.gep(start, step * step_bytes, "i8")
            if following is not None:
                share = self._share(step_bytes)
                for line in range(0, share, LINE):
                    code.prefetch(code.gep(following, step * share + line, "i8"), far=True)

    def _first_row_of(self, tile: Value) -> Value:
        """The first row of a tile of the task, in the numbering of ``self.rows``."""
        code, d = self.code, self.d
        if self.way == LINES:
            return code.convert("sext", code.load(code.gep(self.starts, tile, "i32"), Type("i32")), "i64")
        row = (self.first_tile + tile) * d.rows
        return code.minimum(row, self.p.m - d.rows) - self.first_row

    def _step_table(self) -> Value | None:
        """Offsets of the steps of k, if they are not multiples of the first."""
        if isinstance(self.rows, CopiedLines) and self.rows.steps_at is not None:
            return self.rows.steps_at
        steps = self.rows.steps
        if len(steps) < 2 or all(at == i * steps[1] for i, at in enumerate(steps)):
            return None
        return self.code.table("steps", steps, "i64")

    def _multiply(self, rows: Sequence[Value], stride: Value, columns: Value, count: int) -> None:
        """One step of k. The operand that fits its registers is loaded once, the other as it is needed."""
        code = self.code

        def load_row(i: int) -> int:
            tile = self.row_tiles[i % len(self.row_tiles)]
            code.emit(f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr {rows[i].text}, i64 {stride.text})")
            return tile

        def load_column(v: int) -> int:
            tile = self.column_tiles[v % len(self.column_tiles)]
            at = code.gep(columns, v * self.tile_bytes, "i8")
            code.emit(f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr {at.text}, i64 {LINE})")
            return tile

        def multiply(i: int, v: int, row: int, column: int) -> None:
            code.emit(f"call void @llvm.x86.{self._instruction()}(i8 {i * count + v}, i8 {row}, i8 {column})")

        if len(self.row_tiles) >= len(rows):
            tiles = [load_row(i) for i in range(len(rows))]
            for v in range(count):
                column = load_column(v)
                for i, row in enumerate(tiles):
                    multiply(i, v, row, column)
            return
        tiles = [load_column(v) for v in range(count)]
        for i in range(len(rows)):
            row = load_row(i)
            for v, column in enumerate(tiles):
                multiply(i, v, row, column)

    def _instruction(self) -> str:
        a, b = self.ops.a.dtype, self.ops.b.dtype
        if a is BF16:
            return "tdpbf16ps"
        return f"tdpb{'u' if a is U8 else 's'}{'u' if b is U8 else 's'}d"

    # columns

    def _packed_panel(self, panel: Value) -> Value:
        d, p = self.d, self.p
        assert self.columns is not None
        at = panel * d.panel_bytes
        if p.b_batched and not is_one(p.batch):
            batch = self.bound[self.ops.batch]
            assert isinstance(batch, Value)
            at = at + batch * (d.panel_bytes * d.panel_count)
        return self.code.gep(self.entry.params[self.columns], at, "i8")

    def _share(self, step_bytes: int) -> int:
        """Bytes of the next panel that each step of a register block prefetches; together the steps prefetch all of it."""
        return -(-step_bytes // self._blocks() // LINE) * LINE

    def _blocks(self) -> int:
        """The number of register blocks of a task that read a panel."""
        return int(hint(-(-self.d.task_tiles // self.s.tiles_m)))

    def _next_panel(self, start: Value, tile: Value) -> Value | None:
        if not self.s.ahead or self.columns is None:
            return None
        d = self.d
        step_bytes = d.panel_bytes // d.steps
        if self._blocks() == 1:
            return self.code.gep(start, min(d.panel_bytes, AHEAD_BYTES), "i8")  # a panel may be larger than a cache
        block = tile.integer_op("udiv", self.s.tiles_m)
        return self.code.gep(start, block * (self._share(step_bytes) * d.steps) + d.panel_bytes, "i8")

    def _copy_columns(self, panel: Value, columns: int) -> None:
        """Copies tiles of words: interleaves vectors along n that are neighbours in k, or transposes vectors along k."""
        code, d = self.code, self.d
        step_bytes = d.panel_bytes // d.steps
        with code.loop(0, columns) as v:
            first = (panel * d.tiles_n + v) * COLUMNS
            to = code.gep(self.b_room, v * self.tile_bytes, "i8")
            turn = self._turn if self.p.b_along_k else self._pair
            whole = self.p.k // d.depth  # steps without an element past the end
            if self.p.b_along_k and d.depth < COLUMNS * d.group:
                whole = max(0, (self.p.k - COLUMNS * d.group) // d.depth + 1)
            with code.loop(0, whole) as step:
                turn(code.gep(to, step * step_bytes, "i8"), first, step * d.depth, d.depth)
            for last in range(whole, d.steps):
                left = self.p.k - last * d.depth
                turn(code.gep(to, last * step_bytes, "i8"), first, code.integer(last * d.depth), left)

    def _pair(self, to: Value, first: Value, k: Value, left: int) -> None:
        """Interleaves vectors along n. Beyond ``left`` points of k, and past the last column, they are zero."""
        code, d, ops = self.code, self.d, self.ops
        mask = self._column_mask(first)
        self.bound[ops.n] = Affine(first, 1)
        for word in range(d.depth // d.group):
            parts = []
            for position in range(word * d.group, (word + 1) * d.group):
                if position >= left:
                    continue
                self.bound[ops.ki] = k + position
                parts.append(self._b_value(COLUMNS, mask))
            value = word_of(parts, ops.b.dtype) if parts else code.const(0, Type("i32", COLUMNS))
            self._store_words(value, to, word)

    def _column_mask(self, first: Value) -> Value | None:
        if self.p.n % COLUMNS == 0:
            return None
        left = self.code.convert("trunc", self.code.integer(self.p.n) - first, "i32")
        return self.code.vector(list(range(COLUMNS)), "i32").compare("slt", left)

    def _turn(self, to: Value, first: Value, k: Value, left: int) -> None:
        """Transposes vectors along k. Columns past the end repeat the last one and are never stored."""
        code, d, ops = self.code, self.d, self.ops
        width = COLUMNS * d.group
        mask = None if left >= width else self.entry.prefix_mask(max(left, 0), width)
        self.bound[ops.ki] = Affine(k, 1)
        vectors = []
        for lane in range(COLUMNS):
            column = first + lane
            self.bound[ops.n] = code.minimum(column, ops.n.extent - 1) if self.p.n % COLUMNS else column
            value = self._b_value(width, mask)
            vectors.append(code.let(f"bitcast {value.type} {value.text} to {self.column_type}", self.column_type))
        for word, value in enumerate(transpose(vectors)[: d.depth // d.group]):
            self._store_words(value, to, word)

    def _store_words(self, value: Value, to: Value, word: int) -> None:
        """Stores word ``word`` of each of 16 columns. Of wider numbers the low bits are stored."""
        code, type = self.code, self.column_type
        value = value if value.type == type else code.convert("trunc", value, type.scalar)
        code.store(value, code.gep(to, word * self.word_bytes, "i8"), 4)

    def _b_value(self, width: int, mask: Value | None) -> Value:
        printer = self.entry.printer(self.b_program, self.bound, width, mask)
        value = storage.to_memory(printer.lanes(self.b_program.results[0]), self.ops.b.dtype)
        return value if mask is None else self.code.select(mask, value, 0)

    # the stores

    def _finish_share(self, late: Late, step: Value, columns: int) -> None:
        """Does a share of the delayed stores.

        Spread evenly over the steps they are faster than all in the first ones (measured).
        """
        code, rows, steps = self.code, self.s.tiles_m * self.d.rows, self.d.steps
        start = (step * rows).integer_op("udiv", steps)
        stop = (step * rows + rows).integer_op("udiv", steps)
        self._finish(late.panel.get(), late.tile.get(), start, code.minimum(stop, late.rows.get()), columns)

    def _finish(self, panel: Value, tile: Value, start: Value, stop: Value, columns: int) -> None:
        """The stores of rows ``start`` to ``stop`` of a register block, counted from the first row of its first tile."""
        code, d = self.code, self.d
        with code.loop(start, stop) as at:
            m, there = self._place(tile * d.rows + at)
            with nullcontext() if there is None else code.when(there):
                self._store_row(m, panel * d.tiles_n, self.sums, at, columns)

    def _place(self, row: Value) -> tuple[Value, Value | None]:
        """The row of the result of a row of the task's tiles, and whether this tile stores it."""
        code, d = self.code, self.d
        if self.way == LINES:
            at = code.load(code.gep(self.places, row, "i32"), Type("i32"))
            place = code.convert("sext", at, "i64")
            return self.first_row + place, place >= self.skip
        m = self.first_tile * d.rows + row
        twice = d.tiles * d.rows - self.p.m  # rows that the last tile shares with the one before
        if is_zero(twice):
            return m, None
        last = (d.tiles - 1) * d.rows
        return code.select(m < last, m, m - twice), (m < last) | (m >= last + twice)

    def _store_row(self, m: Value, first: Value, base: Value, at: Value, columns: int) -> None:
        code, d = self.code, self.d
        line = code.gep(base, at * (columns * COLUMNS), "i32")
        short = self.p.n % COLUMNS > 0 and (d.n_tiles % d.tiles_n or d.tiles_n) == columns
        whole = columns - int(short)
        if self.light or whole == 1:
            for v in range(whole):
                self._store(m, first + v, code.gep(line, v * COLUMNS, "i32"), None)
        else:
            with code.loop(0, whole) as tile:
                self._store(m, first + tile, code.gep(line, tile * COLUMNS, "i32"), None)
        if short:  # only in the last panel; in others the mask has all columns
            mask = self._column_mask((first + whole) * COLUMNS)
            self._store(m, first + whole, code.gep(line, whole * COLUMNS, "i32"), mask)

    def _store(self, m: Value, tile: Value, place: Value, mask: Value | None) -> None:
        acc = self.code.load(place, self.vector, LINE)
        bound: dict[Expr, LaneValue] = {
            **self.bound,
            self.ops.m: m,
            self.tile: tile,
            self.lane: Affine(self.code.integer(0), 1),
            self.acc: acc,
        }
        printer = self.entry.printer(self.stores, bound, COLUMNS, mask)
        for k, store in enumerate(self.ops.stores):
            printer.store(store.target, self.stores.results[2 * k], self.stores.results[2 * k + 1])


def _packed_columns(kernel: Kernel[Contraction], s: NarrowSchedule, p: NarrowProblem, words_first: bool) -> int | None:
    """The parameter whose columns are packed as ``packing`` says; ``None`` if the schedule copies them.

    Raises ``ScheduleError`` if the kernel is not packed. Rows from copied lines, and several axes of k, need columns in
    packed order, and copying other columns would contradict the schedule.
    """
    wanted = packing(kernel, s, p, words_first=words_first)
    if wanted is None:
        return None
    b, shape = kernel.body.b, tuple(x.extent for x in wanted.digits)
    b = b.value if isinstance(b, Cast) else b
    if not isinstance(b, Load) or kernel.params[b.source].shape != shape:
        raise ScheduleError(
            f"pack_b=2 reads columns packed to {shape}: pack the kernel as its engine requires", code="GPC8001"
        )
    return b.source


def emit_amx(kernel: Kernel[Contraction], schedule: Schedule, name: str, target: Target) -> Emitted:
    """The function's text and its number of tasks. Raises ``ScheduleError`` where the columns are not packed."""
    return Tiles(kernel, TileSchedule(**schedule), name, target).emit()
