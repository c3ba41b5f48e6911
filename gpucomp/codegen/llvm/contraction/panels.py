"""Panels copied while a contraction runs: rows of ``a`` and columns of ``b`` that cannot be read in place.

A copy evaluates the operand's expression, so guards (padding), casts, transposes and elementwise prologues cost nothing
in the register block. Copied rows are one after the other with k innermost, or k outermost if the operand is contiguous
along rows. Copied columns have k outermost, with the panel's vectors adjacent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpucomp.codegen.llvm.contraction.operands import KBlocks, Operands, k_contiguous
from gpucomp.codegen.llvm.ir import arithmetic, storage
from gpucomp.codegen.llvm.ir.builder import Value
from gpucomp.codegen.llvm.ir.printer import Affine, LaneValue
from gpucomp.codegen.llvm.loops.nest import Entry, lower
from gpucomp.expr.core import Expr
from gpucomp.ir.size import hint
from gpucomp.ir.types import DType


@dataclass(frozen=True)
class Part:
    """One block of k: outer points from ``group0`` on, inner points ``start .. stop``, ``length`` points in all."""

    block: Value
    group0: Value
    groups: Value
    start: Value
    stop: Value
    length: Value


@dataclass(frozen=True)
class Span:
    """The columns of a panel: ``count`` of them, in ``vectors`` vectors. ``masks`` has ``None`` for whole vectors."""

    count: int | Value
    vectors: int
    masks: tuple[Value | None, ...]

    @property
    def cut(self) -> bool:
        return any(mask is not None for mask in self.masks)


class Panels:
    """Writes the copies of one contraction.

    ``bound`` holds the values of its variables, and is shared with the emitter.
    """

    def __init__(
        self,
        entry: Entry,
        ops: Operands,
        dtype: DType,
        width: int,
        blocks: KBlocks,
        tile_m: int,
        nr: int,
        bound: dict[Expr, LaneValue],
    ) -> None:
        self.entry, self.code = entry, entry.code
        self.ops, self.dtype, self.width, self.blocks = ops, dtype, width, blocks
        self.tile_m, self.nr, self.bound = tile_m, nr, bound
        self.scalar = storage.register_scalar(dtype)
        self.a_along_k = k_contiguous(ops.a, ops, ops.m) or hint(ops.m.extent) < width
        self.b_along_k = k_contiguous(ops.b, ops, ops.n)
        self.a_row = -(-blocks.room // width) * width + width

    def room_for_rows(self) -> None:
        self.a_program = lower([self.ops.a], [self.ops.batch, *self.ops.ko, self.ops.ki, self.ops.m])
        room = self.tile_m * self.a_row if self.a_along_k else (self.blocks.room + 1) * (self.tile_m + self.width)
        self.a_pack = self.code.stack(f"[{room} x {self.scalar}]", 64)

    def room_for_columns(self) -> None:
        self.b_program = lower([self.ops.b], [self.ops.batch, *self.ops.ko, self.ops.ki, self.ops.n])
        room = (self.blocks.room + self.width) * self.nr
        self.b_pack = self.code.stack(f"[{room} x {self.scalar}]", 64)

    def rows_from(self, row: Value) -> tuple[Value, int, int]:
        """The address of copied row ``row``, and the strides of rows and of k."""
        if self.a_along_k:
            return self.code.gep(self.a_pack, row * self.a_row, self.scalar), self.a_row, 1
        return self.code.gep(self.a_pack, row, self.scalar), 1, self.tile_m + self.width

    def _outer_k(self, part: Part, q: Value) -> None:
        extents = [a.extent for a in self.ops.ko]
        if extents:
            self.bound.update(zip(self.ops.ko, self.entry.decompose(part.group0 + q, extents), strict=True))

    def copy_rows(self, part: Part, m0: Value, rows: Value) -> None:
        code, ops, entry = self.code, self.ops, self.entry

        def write(mask: Value | None, at: Value) -> None:
            printer = entry.printer(self.a_program, self.bound, self.width, mask)
            value = arithmetic.cast(printer.lanes(self.a_program.results[0]), ops.a.dtype, self.dtype)
            code.store(value, code.gep(self.a_pack, at, self.scalar), self.dtype.nbytes)

        if self.a_along_k:
            with code.loop(0, rows) as i:
                self.bound[ops.m] = m0 + i
                with code.loop(0, part.groups) as q:
                    self._outer_k(part, q)
                    base = i * self.a_row + q * ops.ki.extent

                    def along_k(at: Value, mask: Value | None, base: Value = base) -> None:
                        self.bound[ops.ki] = Affine(at, 1)
                        write(mask, base + (at - part.start))

                    self._k_chunks(part, along_k)
            return
        row = self.tile_m + self.width
        with code.loop(0, part.groups) as q:
            self._outer_k(part, q)
            with code.loop(part.start, part.stop) as k:
                self.bound[ops.ki] = k
                base = (q * ops.ki.extent + (k - part.start)) * row

                def along_m(at: Value, mask: Value | None, base: Value = base) -> None:
                    self.bound[ops.m] = Affine(at, 1)
                    write(mask, base + (at - m0))

                self._m_chunks(m0, rows, along_m)

    def _k_chunks(self, part: Part, body: Callable[[Value, Value | None], None]) -> None:
        """Vectors of the inner k axis. A short axis is unrolled, so that its masks are constants."""
        extent = self.ops.ki.extent
        if not self.blocks.inside:
            if isinstance(extent, int) and extent <= 4 * self.width:
                for at in range(0, extent, self.width):
                    cut = extent - at
                    body(self.code.integer(at), None if cut >= self.width else self.entry.prefix_mask(cut, self.width))
                return
            self.entry.chunks(0, extent, self.width, body, extent)
            return
        self.entry.chunks(part.start, part.stop, self.width, body, extent)

    def _m_chunks(self, m0: Value, rows: Value, body: Callable[[Value, Value | None], None]) -> None:
        code = self.code
        whole = m0 + (rows - rows.integer_op("urem", self.width))
        with code.loop(m0, whole, self.width) as at:
            body(at, None)
        with code.when(whole < m0 + rows):
            rest = code.convert("trunc", m0 + rows - whole, "i32")
            mask = code.vector(list(range(self.width)), "i32").compare("slt", rest)
            body(whole, mask)

    def copy_columns(self, part: Part, panel: Value, columns: Span) -> None:
        code, ops = self.code, self.ops
        with code.loop(0, part.groups) as q:
            self._outer_k(part, q)
            base = q * ops.ki.extent
            if self.b_along_k:
                self._transpose_b(part, base, panel, columns)
            else:
                self._copy_b(part, base, panel, columns)

    def _copy_b(self, part: Part, base: Value, panel: Value, columns: Span) -> None:
        code = self.code
        with code.loop(part.start, part.stop) as k:
            self.bound[self.ops.ki] = k
            at = (base + (k - part.start)) * self.nr
            for v, mask in enumerate(columns.masks):
                self.bound[self.ops.n] = Affine(panel + v * self.width, 1)
                place = code.gep(self.b_pack, at + v * self.width, self.scalar)
                code.store(self._b_value(mask), place, self.dtype.nbytes)

    def _b_value(self, mask: Value | None) -> Value:
        printer = self.entry.printer(self.b_program, self.bound, self.width, mask)
        return arithmetic.cast(printer.lanes(self.b_program.results[0]), self.ops.b.dtype, self.dtype)

    def _transpose_b(self, part: Part, base: Value, panel: Value, columns: Span) -> None:
        """Transposes vectors along k, for as many columns, to vectors along n, in registers."""
        code, ops = self.code, self.ops

        def square(at: Value, mask: Value | None) -> None:
            with code.loop(0, columns.vectors) as v:
                first = panel + v * self.width
                rows = []
                for lane in range(self.width):
                    column = first + lane
                    if columns.cut:  # columns past the end repeat the last one; they are never stored
                        column = code.minimum(column, ops.n.extent - 1)
                    self.bound[ops.n], self.bound[ops.ki] = column, Affine(at, 1)
                    rows.append(self._b_value(mask))
                place = (base + (at - part.start)) * self.nr + v * self.width
                for lane, row in enumerate(transpose(rows)):
                    code.store(row, code.gep(self.b_pack, place + lane * self.nr, self.scalar), self.dtype.nbytes)

        if not self.blocks.inside:
            self.entry.chunks(0, ops.ki.extent, self.width, square, ops.ki.extent)
        else:
            self.entry.chunks(part.start, part.stop, self.width, square, ops.ki.extent)


def transpose(rows: Sequence[Value]) -> list[Value]:
    """Transposes a square of vectors by rounds of interleaving halves."""
    rows = list(rows)
    code, size = rows[0].code, len(rows)
    order = [i // 2 + (i % 2) * size for i in range(size)]
    low = order
    high = [i + size // 2 for i in order]
    rounds = size.bit_length() - 1
    for _ in range(rounds):
        half = size // 2
        following = []
        for i in range(half):
            following.append(code.shuffle(rows[i], rows[i + half], low))
            following.append(code.shuffle(rows[i], rows[i + half], high))
        rows = following
    return rows
