"""The register block of a product on the CPU: sums of some rows by some vectors of columns, one point of k at a time.

for each k:
    sums[row][vector] += a[row][k] in every lane * b[k][vector]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpucomp.codegen.llvm.core_space import LINE
from gpucomp.codegen.llvm.ir import arithmetic, storage
from gpucomp.codegen.llvm.ir.builder import Code, Slot, Type, Value
from gpucomp.ir.types import DType

SHORT_RUN = 12  # most points of k that are unrolled completely

Row = tuple[Value, int]  # a pointer and a constant offset from it, in elements


@dataclass(frozen=True)
class Stream:
    """Columns of a register block.

    start      address of the first k; the next is ``step`` elements of ``dtype`` later
    masks      lanes of each vector that may be read; ``None`` for all
    following  address of the columns that are read next, to prefetch; ``None`` for none
    """

    start: Value
    dtype: DType
    step: Any
    masks: Sequence[Value | None] | None
    following: Value | None


@dataclass(frozen=True)
class RegisterBlock:
    """Writes register blocks into ``code``: vectors of ``width`` elements of ``dtype``.

    unroll  points of k that are unrolled in the innermost loop
    ahead   bytes of the next columns to prefetch per k
    """

    code: Code
    dtype: DType
    width: int
    unroll: int
    ahead: int = 0

    def sum(
        self,
        rows: Sequence[Row],
        a_step: Any,
        columns: Stream,
        length: Value,
        sums: list[list[Slot]],
        beside: Callable[[Value, int], None] | None = None,
    ) -> None:
        """``sums += a[row][k] * b[k]`` for ``length`` points of k.

        The columns of a point are loaded after the previous point is done; loaded earlier, they would need registers
        that the sums occupy. ``beside(first, count)`` writes extra code for each group of unrolled points.
        """
        code = self.code

        if not length.text.startswith("%") and int(length.text) <= SHORT_RUN:
            for point in range(int(length.text)):
                if point:
                    code.fence()
                self._step(rows, a_step, columns, sums, code.integer(0), point)
            return
        whole: Value | int = 0
        unroll = self._unroll(length)
        if unroll > 1:
            whole = length - length.integer_op("urem", unroll)
            with code.loop(0, whole, unroll) as k:
                for u in range(unroll):
                    if u:
                        code.fence()
                    self._step(rows, a_step, columns, sums, k, u)
                if columns.following is not None:
                    at = code.gep(columns.following, k * self.ahead, "i8")
                    for line in range(0, unroll * self.ahead, LINE):
                        code.prefetch(code.gep(at, line, "i8"), far=True)
                if beside is not None:
                    beside(k, unroll)
        with code.loop(whole, length) as k:
            self._step(rows, a_step, columns, sums, k, 0)

    def _unroll(self, length: Value) -> int:
        """Points of k that are unrolled: somewhat more than requested if ``length`` is then a multiple of it."""
        if self.unroll == 1 or length.text.startswith("%"):
            return self.unroll
        return next((u for u in range(self.unroll, 2 * self.unroll) if int(length.text) % u == 0), self.unroll)

    def _step(
        self, rows: Sequence[Row], a_step: Any, columns: Stream, sums: list[list[Slot]], k: Value, further: int
    ) -> None:
        """Writes point ``k + further``."""
        code, vectors, scalar = self.code, len(sums[0]), storage.memory_scalar(columns.dtype)
        register = storage.register_scalar(self.dtype)
        b_at = code.gep(columns.start, k * columns.step, scalar)
        loaded = []
        for v in range(vectors):
            at = code.gep(b_at, code.integer(columns.step) * further + v * self.width, scalar)
            mask = columns.masks[v] if columns.masks else None
            if mask is not None:
                raw = code.masked_load(at, Type(scalar, self.width), mask)
            else:
                raw = code.load(at, Type(scalar, self.width), columns.dtype.nbytes)
            loaded.append(arithmetic.cast(storage.from_memory(raw, columns.dtype), columns.dtype, self.dtype))
        a_at, a_further = k * a_step, code.integer(a_step) * further
        for (pointer, offset), line in zip(rows, sums, strict=True):
            place = code.gep(code.gep(pointer, a_at, register), a_further + offset, register)
            factor = code.splat(code.load(place, Type(register)), self.width)
            for v in range(vectors):
                line[v].set(self._multiply_add(factor, loaded[v], line[v].get()))

    def _multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        return a.muladd(b, c) if self.dtype.is_float else c + a * b
