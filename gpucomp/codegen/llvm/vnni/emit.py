"""Contractions by dot-product instructions: the loop nest of AMX around a register block of vectors.

    for each word of k (two bf16, four bytes):
        sums[row][vector] += the word of the row, in every lane, times the words of 16 columns

``vdpbf16ps`` flushes denormals to zero, rounds to nearest even and raises no exceptions. ``vpdpbusd`` multiplies
unsigned by signed bytes: signed rows are read as ``byte + 128``, and 128 times the sum of a column is subtracted at the
end.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpucomp.codegen.llvm.amx.emit import AHEAD_BYTES, Tiles
from gpucomp.codegen.llvm.amx.rows import CopiedLines
from gpucomp.codegen.llvm.amx.space import COLUMNS, IN_PLACE, LINE, LINES, VnniSchedule
from gpucomp.codegen.llvm.contraction.rest import Height, rest_of_rows
from gpucomp.codegen.llvm.ir.builder import Slot, Value
from gpucomp.codegen.llvm.ir.types import I32, Type
from gpucomp.codegen.llvm.vnni.space import parts_of_tile
from gpucomp.device.target import Target
from gpucomp.ir.types import BF16, I8
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.source import Emitted
from gpucomp.schedule.space import Schedule

UNROLLED = (4, 2, 1)  # words of k that are unrolled
Line = tuple[Value, int]  # a pointer and a constant distance from it, in bytes
ONES, FLIP = 0x01010101, 0x80808080 - (1 << 32)


class Dots(Tiles):
    words_first = True

    def __init__(self, kernel: Kernel[Contraction], s: VnniSchedule, name: str, target: Target) -> None:
        super().__init__(kernel, s, name, target)
        self.parts = parts_of_tile(target.limits)
        self.lanes = COLUMNS // self.parts
        self.sum_type = Type(self.vector.scalar, self.lanes)
        a, b = self.ops.a.dtype, self.ops.b.dtype
        self.flipped = a is I8 and b is I8
        self.rows_signed = a is I8 and not self.flipped

    def _late(self) -> None:
        return None  # the sums occupy the registers that the stores would need

    def _begin_program(self) -> None:
        pass

    def _end_program(self) -> None:
        pass

    # the last rows of any number

    def _begin_rows(self, m_task: Value) -> Value:
        if not self.any_size:
            return super()._begin_rows(m_task)
        assert not isinstance(self.rows, CopiedLines)
        code, d = self.code, self.d
        self.first_row = m_task * (d.task_tiles * d.rows)
        self.task_rows = code.minimum(code.integer(self.p.m) - self.first_row, d.task_tiles * d.rows)
        self.rows.begin(self.first_row, self.task_rows)
        return self.task_rows

    def _begin_lines(self, m_task: Value) -> Value:
        count = super()._begin_lines(m_task)
        self.task_rows = self.code.integer(self.d.flat)
        return count

    def _first_row_of(self, tile: Value) -> Value:
        return tile * self.d.rows if self.any_size else super()._first_row_of(tile)

    def _place(self, row: Value) -> tuple[Value, Value | None]:
        if self.any_size and self.way != LINES:
            return self.first_row + row, None
        return super()._place(row)

    def _tiles(self, panel: Value, start: Value, count: Value, columns: int) -> None:
        if not self.any_size:
            super()._tiles(panel, start, count, columns)
            return
        code, rows = self.code, self.d.rows
        whole = self.task_rows.integer_op("udiv", rows)
        with code.loop(0, whole) as tile:
            self._register_block(panel, start, tile, 1, columns)
        first = code.opaque(self.rows.row(self._first_row_of(whole)))
        left = self.task_rows - whole * rows
        for height in rest_of_rows(code, left, rows, columns * self.parts, lowest=1):
            if self.way == IN_PLACE:
                lines = [self._line(first, height, i) for i in range(height.rows)]
            else:
                lines = [(first, i * self.rows.row_bytes) for i in range(height.rows)]
            self._sum_lines(lines, start, whole, columns)
        self._finish(panel, whole, code.integer(0), left, columns)

    def _line(self, first: Value, height: Height, i: int) -> Line:
        """Row ``i`` from ``first`` on, which may be the last one again."""
        if i < height.least:
            return first, i * self.rows.row_bytes
        return self.code.opaque(self.code.gep(first, height.row(i) * self.rows.row_bytes, "i8")), 0

    # a register block

    def _sum(self, pointers: Sequence[Value], start: Value, tile: Value, columns: int) -> None:
        first = self.code.opaque(pointers[0]) if self.any_size else pointers[0]
        lines = [(first, i * self.rows.row_bytes) for i in range(self.d.rows)]
        self._sum_lines(lines, start, tile, columns)

    def _sum_lines(self, lines: Sequence[Line], start: Value, tile: Value, columns: int) -> None:
        """Computes ``self.sums`` of some rows."""
        code, d = self.code, self.d
        vectors = columns * self.parts
        sums = [[code.slot(self.sum_type) for _ in range(vectors)] for _ in lines]
        totals = [code.slot(self.sum_type) for _ in range(vectors if self.flipped else 0)]
        for slot in (*totals, *(slot for line in sums for slot in line)):
            slot.set(code.const(0, self.sum_type))
        words = d.depth // d.group
        unrolled = next(u for u in UNROLLED if words % u == 0)
        ahead = self.s.ahead and self._reads_once()
        with self._steps(start, tile) as (_, distance, columns_at):
            moved = {pointer: code.gep(pointer, distance, "i8") for pointer in dict(lines)}
            rows = [(moved[pointer], at) for pointer, at in lines]
            with code.loop(0, words, unrolled) as word:
                for u in range(unrolled):
                    if u:
                        code.fence()  # columns loaded earlier would need registers that the sums occupy
                    self._word(rows, columns_at, word + u, sums, totals)
                    if ahead:
                        self._prefetch(code.gep(columns_at, (word + u) * self.word_bytes, "i8"), columns)
        for i, line in enumerate(sums):
            for v, slot in enumerate(line):
                value = slot.get()
                if self.flipped:
                    value = value - (totals[v].get() << 7)
                to = code.gep(self.sums, (i * vectors + v) * self.lanes, "i32")
                code.store(value, to, LINE // self.parts)

    def _prefetch(self, columns: Value, count: int) -> None:
        for at in range(0, count * self.tile_bytes, LINE):
            self.code.prefetch(self.code.gep(columns, AHEAD_BYTES + at, "i8"), far=True)

    def _reads_once(self) -> bool:
        return self.columns is not None and self._blocks() == 1

    def _next_panel(self, start: Value, tile: Value) -> Value | None:
        """Columns that one register block reads are prefetched word by word, as they are read."""
        return None if self._reads_once() else super()._next_panel(start, tile)

    def _word(
        self, rows: Sequence[Line], columns: Value, word: Value, sums: list[list[Slot]], totals: list[Slot]
    ) -> None:
        """Adds the products of one word of k."""
        code = self.code
        type = Type("i32", self.lanes)
        loaded = []
        for v in range(len(sums[0])):
            tile, part = divmod(v, self.parts)
            at = word * self.word_bytes + (tile * self.tile_bytes + part * self.lanes * 4)
            loaded.append(code.load(code.gep(columns, at, "i8"), type, 4))
        for slot, value in zip(totals, loaded, strict=False):
            slot.set(self._dot(slot.get(), code.const(ONES, type), value))
        for (row, further), line in zip(rows, sums, strict=True):
            factor = code.load(code.gep(row, word * 4 + further, "i8"), I32, 1)
            if self.flipped:
                factor = factor ^ FLIP
            spread = code.splat(factor, self.lanes)
            for slot, value in zip(line, loaded, strict=True):
                slot.set(self._dot(slot.get(), spread, value))

    def _dot(self, total: Value, row: Value, column: Value) -> Value:
        bits = self.lanes * 32
        if self.narrow.dtype is BF16:
            name, pieces = f"avx512bf16.dpbf16ps.{bits}", Type("bfloat", 2 * self.lanes)
        else:
            name, pieces = f"avx512.vpdpbusd.{bits}", Type("i8", 4 * self.lanes)
        factors = [column, row] if self.rows_signed else [row, column]  # the unsigned one first
        code = self.code
        cast = [code.let(f"bitcast {f.type} {f.text} to {pieces}", pieces) for f in factors]
        inner = ", ".join([f"{total.type} {total.text}", *(f"{pieces} {f.text}" for f in cast)])
        return code.let(f"call {total.type} @llvm.x86.{name}({inner})", total.type)


def emit_vnni(kernel: Kernel[Contraction], schedule: Schedule, name: str, target: Target) -> Emitted:
    """The function and its number of tasks."""
    return Dots(kernel, VnniSchedule(**schedule), name, target).emit()
