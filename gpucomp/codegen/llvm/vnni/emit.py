"""Contractions by dot-product instructions: the loop nest of AMX around a register block of vectors.

    for each word of k (two bf16, four bytes):
        sums[row][vector] += the word of the row, in every lane, times the words of 16 columns

``vdpbf16ps`` flushes denormals to zero, rounds to nearest even and raises no exceptions. ``vpdpbusd`` multiplies
unsigned by signed bytes: signed rows are read as ``byte + 128``, and 128 times the sum of a column is subtracted at the
end.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpucomp.codegen.llvm.amx.emit import Tiles
from gpucomp.codegen.llvm.amx.space import COLUMNS, LINE, VnniSchedule
from gpucomp.codegen.llvm.ir.builder import I32, Slot, Type, Value
from gpucomp.codegen.llvm.vnni.space import parts_of_tile
from gpucomp.device.target import Target
from gpucomp.ir.types import BF16, I8
from gpucomp.kernel import Contraction, Kernel
from gpucomp.schedule.space import Schedule

UNROLLED = (4, 2, 1)  # words of k that are unrolled
ONES, FLIP = 0x01010101, 0x80808080 - (1 << 32)


class Dots(Tiles):
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

    def _sum(self, pointers: Sequence[Value], start: Value, tile: Value, columns: int) -> None:
        code, d = self.code, self.d
        vectors = columns * self.parts
        sums = [[code.slot(self.sum_type) for _ in range(vectors)] for _ in range(d.rows)]
        totals = [code.slot(self.sum_type) for _ in range(vectors if self.flipped else 0)]
        for slot in (*totals, *(slot for line in sums for slot in line)):
            slot.set(code.const(0, self.sum_type))
        words = d.depth // d.group
        unrolled = next(u for u in UNROLLED if words % u == 0)
        with self._steps(start, tile) as (_, distance, columns_at):
            row = code.gep(pointers[0], distance, "i8")
            with code.loop(0, words, unrolled) as word:
                for u in range(unrolled):
                    if u:
                        code.fence()  # columns loaded earlier would need registers that the sums occupy
                    self._word(row, columns_at, word + u, sums, totals)
        for i, line in enumerate(sums):
            for v, slot in enumerate(line):
                value = slot.get()
                if self.flipped:
                    value = value - (totals[v].get() << 7)
                to = code.gep(self.sums, (i * vectors + v) * self.lanes, "i32")
                code.store(value, to, LINE // self.parts)

    def _word(self, row: Value, columns: Value, word: Value, sums: list[list[Slot]], totals: list[Slot]) -> None:
        """Adds the products of one word of k."""
        code = self.code
        tile_bytes = self.d.depth * COLUMNS * self.narrow.dtype.nbytes
        type = Type("i32", self.lanes)
        loaded = []
        for v in range(len(sums[0])):
            tile, part = divmod(v, self.parts)
            at = word * LINE + (tile * tile_bytes + part * self.lanes * 4)
            loaded.append(code.load(code.gep(columns, at, "i8"), type, 4))
        for slot, value in zip(totals, loaded, strict=False):
            slot.set(self._dot(slot.get(), code.const(ONES, type), value))
        for i, line in enumerate(sums):
            factor = code.load(code.gep(row, word * 4 + i * self.rows.row_bytes, "i8"), I32, 1)
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


def emit_vnni(kernel: Kernel[Contraction], schedule: Schedule, name: str, target: Target) -> tuple[str, int]:
    """The function's text and its number of tasks."""
    return Dots(kernel, VnniSchedule(**schedule), name, target).emit()
