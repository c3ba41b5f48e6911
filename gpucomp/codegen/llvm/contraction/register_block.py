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
from gpucomp.codegen.llvm.ir.builder import Code, Slot, Value
from gpucomp.codegen.llvm.ir.types import Type
from gpucomp.ir.types import DType

SHORT_RUN = 12  # most points of k that are unrolled completely

Row = tuple[Value, int]  # a pointer and a constant offset from it, in elements


@dataclass(frozen=True)
class Apart:
    """``rows`` rows from ``start`` on. Their distance, in elements, is a value.

    Three of them share a pointer that is moved along: [p], [p + distance], [p + 2 * distance] are addresses in one register
    more. LLVM would keep a pointer for each row, and they do not fit the registers.
    """

    start: Value
    distance: Value
    rows: int

    def places(self, k: Value, step: Any, scalar: str) -> list[tuple[Value, Value]]:
        """A pointer for each row at point ``k``, and the distance from it."""
        code = self.start.code
        pointer = code.opaque(code.gep(self.start, k * step, scalar))
        found = []
        for row in range(self.rows):
            if row and row % 3 == 0:
                pointer = code.opaque(code.gep(pointer, self.distance * 3, scalar))
            found.append((pointer, self.distance * (row % 3)))
        return found


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
        apart: Apart | None = None,
    ) -> None:
        """``sums += a[row][k] * b[k]`` for ``length`` points of k. The rows are those ``apart``, then ``rows``.

        The columns of a point are loaded after the previous point is done; loaded earlier, they would need registers
        that the sums occupy. ``beside(first, count)`` writes extra code for each group of unrolled points.
        """
        code = self.code

        def steps(k: Value, count: int) -> None:
            moved = apart.places(k, a_step, storage.register_scalar(self.dtype)) if apart else []
            for point in range(count):
                if point:
                    code.fence()
                self._step(moved, rows, a_step, columns, sums, k, point)

        if not length.text.startswith("%") and int(length.text) <= SHORT_RUN:
            steps(code.integer(0), int(length.text))
            return
        whole: Value | int = 0
        unroll = self._unroll(length)
        if unroll > 1:
            whole = length - length.integer_op("urem", unroll)
            with code.loop(0, whole, unroll) as k:
                steps(k, unroll)
                if columns.following is not None:
                    at = code.gep(columns.following, k * self.ahead, "i8")
                    for line in range(0, unroll * self.ahead, LINE):
                        code.prefetch(code.gep(at, line, "i8"), far=True)
                if beside is not None:
                    beside(k, unroll)
        with code.loop(whole, length) as k:
            steps(k, 1)

    def _unroll(self, length: Value) -> int:
        """Points of k that are unrolled: somewhat more than requested if ``length`` is then a multiple of it."""
        if self.unroll == 1 or length.text.startswith("%"):
            return self.unroll
        return next((u for u in range(self.unroll, 2 * self.unroll) if int(length.text) % u == 0), self.unroll)

    def _step(
        self,
        moved: Sequence[tuple[Value, Value]],
        rows: Sequence[Row],
        a_step: Any,
        columns: Stream,
        sums: list[list[Slot]],
        k: Value,
        further: int,
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
        for number, line in enumerate(sums):
            if number < len(moved):
                pointer, distance = moved[number]
                place = code.gep(code.gep(pointer, a_further, register), distance, register)
            else:
                pointer, offset = rows[number - len(moved)]
                place = code.gep(code.gep(pointer, a_at, register), a_further + offset, register)
            factor = code.splat(code.load(place, Type(register)), self.width)
            for v in range(vectors):
                line[v].set(self._multiply_add(factor, loaded[v], line[v].get()))

    def _multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        return a.muladd(b, c) if self.dtype.is_float else c + a * b
