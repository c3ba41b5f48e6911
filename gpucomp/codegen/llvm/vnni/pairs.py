"""Contractions of bytes without dot-product instructions: ``pmaddwd`` on the even and on the odd bytes of each word.

Bytes become 16-bit integers, whose products and their sums are exact in 32 bits. Everything else is as in ``emit``.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpucomp.codegen.llvm.amx.operands import WORD, narrow_of
from gpucomp.codegen.llvm.amx.space import COLUMNS, LINE, VnniSchedule, unreadable_columns
from gpucomp.codegen.llvm.ir.builder import I32, Slot, Type, Value
from gpucomp.codegen.llvm.vnni.emit import Dots, Line
from gpucomp.codegen.llvm.vnni.space import PairsProblem, problem
from gpucomp.codegen.llvm.vnni.space import estimate as dots_estimate
from gpucomp.device.limits import Limits
from gpucomp.device.target import Target
from gpucomp.ir.types import BF16, I8
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.source import Emitted
from gpucomp.schedule.space import Schedule

INTEGER = 3.0  # times as long as a multiplication of floats; measured with AVX2 and AVX-512
NAMES = {8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}  # by lanes


def accepts(kernel: Kernel[Contraction], features: frozenset[str]) -> str:
    """Why pairs of 16-bit integers should not compute ``kernel``; empty if they should."""
    narrow = narrow_of(kernel)
    if narrow is None or narrow.dtype is BF16:
        return "an operand is wider than a byte"
    if reason := unreadable_columns(kernel, narrow):
        return reason
    if features & {"avx512vnni", "avxvnni"}:
        return "the processor has dot products of bytes"
    return "" if "avx2" in features else "the processor has no avx2"


def pairs_problem(kernel: Kernel[Contraction]) -> PairsProblem:
    return PairsProblem(**problem(kernel).numbers, pairs=1)


def estimate(s: VnniSchedule, p: PairsProblem, limits: Limits) -> float:
    """For comparison with register blocks of 32-bit integers, whose model takes their multiplications for those of floats."""
    return dots_estimate(s, p, limits) / INTEGER


class _Pairs(Dots):
    def __init__(self, kernel: Kernel[Contraction], s: VnniSchedule, name: str, target: Target) -> None:
        super().__init__(kernel, s, name, target)
        self.flipped = False
        self.signed = self.ops.a.dtype is I8, self.ops.b.dtype is I8
        self.halves = Type("i16", 2 * self.lanes)

    def _word(
        self, rows: Sequence[Line], columns: Value, word: Value, sums: list[list[Slot]], totals: list[Slot]
    ) -> None:
        code, type = self.code, Type("i32", self.lanes)
        tile_bytes = self.d.depth * COLUMNS * self.narrow.dtype.nbytes
        loaded = []
        for v in range(len(sums[0])):
            tile, part = divmod(v, self.parts)
            at = word * LINE + (tile * tile_bytes + part * self.lanes * WORD)
            loaded.append(self._split(code.load(code.gep(columns, at, "i8"), type, 4), signed=self.signed[1]))
        for (row, further), line in zip(rows, sums, strict=True):
            factor = code.load(code.gep(row, word * WORD + further, "i8"), I32, 1)
            factors = self._split(code.splat(factor, self.lanes), signed=self.signed[0])
            for slot, halves in zip(line, loaded, strict=True):
                for ours, theirs in zip(factors, halves, strict=True):
                    slot.set(slot.get() + self._products(ours, theirs))

    def _split(self, words: Value, *, signed: bool) -> Sequence[Value]:
        """The even and the odd bytes of each word as 16-bit integers."""
        code, type = self.code, self.halves
        both = code.let(f"bitcast {words.type} {words.text} to {type}", type)
        eight = code.const(8, type)
        if not signed:
            low = code.let(f"and {type} {both.text}, {code.const(255, type).text}", type)
            return low, code.let(f"lshr {type} {both.text}, {eight.text}", type)
        up = code.let(f"shl {type} {both.text}, {eight.text}", type)
        return tuple(code.let(f"ashr {type} {v.text}, {eight.text}", type) for v in (up, both))

    def _products(self, a: Value, b: Value) -> Value:
        inner = f"{self.halves} {a.text}, {self.halves} {b.text}"
        type = self.sum_type
        return self.code.let(f"call {type} @llvm.x86.{NAMES[self.lanes]}({inner})", type)


def emit_pairs(kernel: Kernel[Contraction], schedule: Schedule, name: str, target: Target) -> Emitted:
    """The function and its number of tasks."""
    return _Pairs(kernel, VnniSchedule(**schedule), name, target).emit()
