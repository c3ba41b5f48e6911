"""Contractions of bytes without dot-product instructions: ``pmaddwd`` on pairs of 16-bit integers.

Products of bytes, and sums of two of them, are exact in 32 bits. A task copies its rows as 16-bit integers, so that a pair
is a word that a load spreads over all lanes. Packed columns stay bytes: a load widens those of a pair. Everything else is
as in ``emit``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from gpucomp.codegen.llvm.amx.operands import WORD, Image, Narrow, image_of, narrow_of
from gpucomp.codegen.llvm.amx.space import VnniSchedule, unreadable_columns
from gpucomp.codegen.llvm.ir.builder import Slot, Value
from gpucomp.codegen.llvm.ir.types import I32, Type
from gpucomp.codegen.llvm.vnni.emit import Dots, Line
from gpucomp.codegen.llvm.vnni.space import PairsProblem, problem
from gpucomp.codegen.llvm.vnni.space import estimate as dots_estimate
from gpucomp.device.limits import Limits
from gpucomp.device.target import Target
from gpucomp.expr.core import cast
from gpucomp.ir.types import BF16, I8, I16
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.source import Emitted
from gpucomp.schedule.space import Schedule

INTEGER = 3.0  # times as long as a multiplication of floats; measured with AVX2 and AVX-512
ANY = "v"  # constraint of inline assembly: a vector register
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
    numbers = {**problem(kernel).numbers, "nbytes": I16.nbytes, "straight": 0}
    return PairsProblem(**numbers, pairs=1)


def estimate(s: VnniSchedule, p: PairsProblem, limits: Limits) -> float:
    """For comparison with register blocks of 32-bit integers, whose model takes their multiplications for those of floats."""
    return dots_estimate(s, p, limits) / INTEGER


class _Pairs(Dots):
    def __init__(self, kernel: Kernel[Contraction], s: VnniSchedule, name: str, target: Target) -> None:
        super().__init__(kernel, s, name, target)
        self.flipped = False
        self.widening = "sext" if self.ops.b.dtype is I8 else "zext"
        self.pairs = Type("i16", 2 * self.lanes)

    def _narrow(self, kernel: Kernel[Contraction]) -> Narrow:
        ops = super()._narrow(kernel).ops
        return Narrow(dataclasses.replace(ops, a=cast(ops.a, I16)))

    def _problem(self, kernel: Kernel[Contraction]) -> PairsProblem:
        return pairs_problem(kernel)

    def _image(self, kernel: Kernel[Contraction]) -> Image | None:
        image = image_of(kernel)
        return None if image is None else dataclasses.replace(image, element=cast(image.element, I16))

    def _word(
        self, rows: Sequence[Line], columns: Value, word: Value, sums: list[list[Slot]], totals: list[Slot]
    ) -> None:
        """Adds the products of a pair of points of k."""
        code = self.code
        loaded = []
        for v in range(len(sums[0])):
            tile, part = divmod(v, self.parts)
            at = word * self.word_bytes + (tile * self.tile_bytes + part * self.pairs.lanes)
            taken = code.load(code.gep(columns, at, "i8"), Type("i8", self.pairs.lanes), 4)
            loaded.append(code.convert(self.widening, taken, "i16"))
        for (row, further), line in zip(rows, sums, strict=True):
            factor = code.splat(code.load(code.gep(row, word * WORD + further, "i8"), I32, 1), self.lanes)
            pair = code.let(f"bitcast {factor.type} {factor.text} to {self.pairs}", self.pairs)
            for slot, value in zip(line, loaded, strict=True):
                slot.set(self._kept(slot.get() + self._products(pair, value)))

    def _kept(self, total: Value) -> Value:
        """``total`` as LLVM cannot look into it: it would add unrolled products to each other first, in too many registers."""
        return self.code.let(f'call {total.type} asm "", "={ANY},0"({total.type} {total.text})', total.type)

    def _products(self, a: Value, b: Value) -> Value:
        inner = f"{self.pairs} {a.text}, {self.pairs} {b.text}"
        type = self.sum_type
        return self.code.let(f"call {type} @llvm.x86.{NAMES[self.lanes]}({inner})", type)


def emit_pairs(kernel: Kernel[Contraction], schedule: Schedule, name: str, target: Target) -> Emitted:
    """The function and its number of tasks."""
    return _Pairs(kernel, VnniSchedule(**schedule), name, target).emit()
