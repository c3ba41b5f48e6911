"""The contraction family on the CPU: packed panels and a register block of sums. The schedule's numbers come from ``space``.

    task (batch, rows of tile_m, panels of nv vectors):
        for each block of k:
            pack a: rows of the block, as they will be broadcast        (or read a in place)
            for each panel:
                pack b: block rows of nv vectors                        (or read b in place)
                for each mr rows:
                    sums[mr][nv] += a[row][k] * b[k][vector]  for every k of the block
                    after the last block: the stores, with the sums in registers

Packing evaluates the operands' expressions, so guards (padding), casts, transposes and elementwise prologues cost
nothing inside the register block. Sums of unfinished blocks wait in a tile on the stack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gpucomp.codegen.llvm import arithmetic, storage
from gpucomp.codegen.llvm.builder import Slot, Type, Value
from gpucomp.codegen.llvm.nest import (
    Entry,
    FlatStore,
    Flattener,
    collapse,
    lane_index,
    lower,
    merge_axes,
    offsets,
    operations,
)
from gpucomp.codegen.llvm.printer import Affine, LaneValue
from gpucomp.expr.core import Cast, Expr, Load, Var, substitute, var
from gpucomp.expr.simplify import coefficient
from gpucomp.ir.types import BF16, F16, DType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.schedule.space import Schedule
from gpucomp.targets.target import Target

LIGHT_EPILOGUE = 40  # operations that may be written out for every vector of the register block


@dataclass(frozen=True)
class Operands:
    """A contraction on flat variables: ``a(batch, m, k...)``, ``b(batch, n, k...)``; ``ki`` is the last axis of k."""

    batch: Var
    m: Var
    n: Var
    ko: tuple[Var, ...]
    ki: Var
    a: Expr
    b: Expr
    stores: tuple[FlatStore, ...]

    @property
    def k(self) -> int:
        return math.prod(a.extent for a in self.ko) * self.ki.extent


@lru_cache(maxsize=16)
def operands_of(kernel: Kernel, width: int) -> Operands:
    """Batch, m and n as one variable each; k merged as far as its loads stay linear."""
    c = kernel.body
    assert isinstance(c, Contraction)
    flat = Flattener(kernel.params)
    batch, batch_parts = collapse(c.batch, "batch")
    m, m_parts = collapse(c.m, "m")
    n, n_parts = collapse(c.n, "n")
    a = flat(substitute(c.a, {**batch_parts, **m_parts}))
    b = flat(substitute(c.b, {**batch_parts, **n_parts}))
    k, (a, b) = merge_axes(c.k, [a, b], flat.simplify)
    while len(k) > 1 and k[-1].extent < width:
        joined, exprs = merge_axes(k[-2:], [a, b], flat.simplify, only_offsets=True)
        if len(joined) == 2:
            break
        k, (a, b) = [*k[:-2], *joined], exprs
    parts = {**batch_parts, **m_parts, **n_parts}
    stores = tuple(
        FlatStore(s.target, flat.simplify(substitute(s.offset, parts)), flat.simplify(substitute(s.value, parts)))
        for s in flat.stores(kernel)
    )
    *ko, ki = k or [var("k", 1)]
    return Operands(batch, m, n, tuple(ko), ki, a, b, stores)


def plain_load(expr: Expr, dtype: DType) -> Expr | None:
    """The flat offset of an operand that is one load of the accumulator's type, unconverted."""
    while isinstance(expr, Cast) and expr.value.dtype is dtype:
        expr = expr.value
    if isinstance(expr, Load) and expr.dtype is dtype and dtype not in (F16, BF16):
        return expr.index[0]
    return None


def in_place(expr: Expr, dtype: DType, ops: Operands, axis: Var) -> tuple[int, int] | None:
    """Strides ``(axis, k)`` of an operand that the register block can read where it lies."""
    offset = plain_load(expr, dtype)
    if offset is None or ops.ko:
        return None
    steps = coefficient(offset, axis), coefficient(offset, ops.ki)
    return steps if None not in steps else None  # type: ignore[return-value]


def k_contiguous(expr: Expr, ops: Operands, other: Var) -> bool:
    """Whether loads run along k rather than along ``other``."""
    along_k = sum(coefficient(o, ops.ki) == 1 for o in offsets([expr]))
    along_other = sum(coefficient(o, other) == 1 for o in offsets([expr]))
    return along_k > along_other


@dataclass(frozen=True)
class Blocks:
    """k in blocks: ``group`` points of the outer axes and ``chunk`` of the inner one each, at most ``length`` in all."""

    count: int
    group: int
    chunk: int
    chunks: int

    @property
    def length(self) -> int:
        return self.group * self.chunk


def block_k(ko: int, ki: int, kc: int, width: int) -> Blocks:
    if ko * ki <= kc:
        return Blocks(1, ko, ki, 1)
    if ki > kc:
        chunks = -(-ki // kc)
        chunk = math.ceil(ki / chunks / width) * width
        chunks = -(-ki // chunk)
        return Blocks(ko * chunks, 1, chunk, chunks)
    group = max(1, kc // ki)
    group = -(-ko // -(-ko // group))
    return Blocks(-(-ko // group), group, ki, 1)


class _Emitter:
    def __init__(self, kernel: Kernel, c: Contraction, schedule: Schedule, name: str, target: Target) -> None:
        self.entry = Entry(kernel, name, target)
        self.code = self.entry.code
        self.dtype, self.acc = c.acc.dtype, c.acc
        self.scalar = storage.register_scalar(self.dtype)
        self.width = max(2, schedule["lanes"] * 4 // self.dtype.nbytes)
        self.vector = Type(self.scalar, self.width)
        self.ops = operands_of(kernel, self.width)
        self.mr = min(schedule["mr"], self.ops.m.extent)
        self.nv = min(schedule["nv"], -(-self.ops.n.extent // self.width))
        self.nr = self.nv * self.width
        self.unroll = schedule["unroll_k"]
        self.tile_m = min(-(-schedule["tile_m"] // self.mr) * self.mr, -(-self.ops.m.extent // self.mr) * self.mr)
        self.panels = min(schedule["panels"], -(-self.ops.n.extent // self.nr))
        self.tile_n = self.panels * self.nr
        ko = math.prod(a.extent for a in self.ops.ko)
        self.blocks = block_k(ko, self.ops.ki.extent, schedule["kc"], self.width)
        a_steps = in_place(self.ops.a, self.dtype, self.ops, self.ops.m)
        b_steps = in_place(self.ops.b, self.dtype, self.ops, self.ops.n)
        self.a_steps = a_steps if not schedule["pack_a"] else None
        self.b_step = b_steps[1] if b_steps is not None and b_steps[0] == 1 and not schedule["pack_b"] else None
        self.a_along_k = k_contiguous(self.ops.a, self.ops, self.ops.m) or self.ops.m.extent < self.width
        self.b_along_k = k_contiguous(self.ops.b, self.ops, self.ops.n)
        axes = [self.ops.batch, *self.ops.ko, self.ops.ki]
        self.a_program = lower([self.ops.a], [*axes, self.ops.m])
        self.b_program = lower([self.ops.b], [*axes, self.ops.n])
        exprs = [e for s in self.ops.stores for e in (s.offset, s.value)]
        self.stores = lower(exprs, [self.ops.batch, self.ops.m, self.ops.n, self.acc], schedule["unroll_k"])
        self.light = operations([s.value for s in self.ops.stores]) <= LIGHT_EPILOGUE
        self.bound: dict[Expr, LaneValue] = {}
        self._scratch()

    # memory on the stack

    def _scratch(self) -> None:
        length = self.blocks.length
        self.a_row = -(-length // self.width) * self.width + self.width
        self.a_room = self.tile_m * self.a_row if self.a_along_k else (length + 1) * (self.tile_m + self.width)
        self.b_room = (length + self.width) * self.nr
        self.partial_row = self.tile_n
        if self.a_steps is None:
            self.a_pack = self.code.stack(f"[{self.a_room} x {self.scalar}]", 64)
        if self.b_step is None:
            self.b_pack = self.code.stack(f"[{self.b_room} x {self.scalar}]", 64)
        if self.blocks.count > 1:
            self.partial = self.code.stack(f"[{self.tile_m * self.tile_n} x {self.scalar}]", 64)
        if not self.light:
            self.tile = self.code.stack(f"[{self.mr * self.nr} x {self.scalar}]", 64)

    # the nest

    def emit(self) -> tuple[str, int]:
        code, ops, entry = self.code, self.ops, self.entry
        m_tiles = -(-ops.m.extent // self.tile_m)
        n_tiles = -(-ops.n.extent // self.tile_n)
        with code.loop(entry.first, entry.last) as task:
            batch, n_tile, m_tile = entry.decompose(task, [ops.batch.extent, n_tiles, m_tiles])
            self.bound[ops.batch] = batch
            m0, n0 = m_tile * self.tile_m, n_tile * self.tile_n
            rows = code.minimum(code.integer(ops.m.extent) - m0, self.tile_m)
            n_end = code.minimum(n0 + self.tile_n, ops.n.extent)
            if self.blocks.count == 1:
                self._block(code.integer(0), m0, rows, n0, n_end)
            else:
                with code.loop(0, self.blocks.count) as block:
                    self._block(block, m0, rows, n0, n_end)
        return entry.text(), ops.batch.extent * m_tiles * n_tiles

    def _block(self, block: Value, m0: Value, rows: Value, n0: Value, n_end: Value) -> None:
        code, blocks, ko = self.code, self.blocks, math.prod(a.extent for a in self.ops.ko)
        if blocks.chunks > 1:
            group0, chunk = self.entry.decompose(block, [ko, blocks.chunks])
            start = chunk * blocks.chunk
            stop = code.minimum(start + blocks.chunk, self.ops.ki.extent)
            groups, length = code.integer(1), stop - start
        else:
            group0, start = block * blocks.group, code.integer(0)
            stop = code.integer(self.ops.ki.extent)
            groups = code.integer(blocks.group)
            if ko % blocks.group:
                groups = code.minimum(code.integer(ko) - group0, blocks.group)
            length = groups * self.ops.ki.extent
        part = _Part(block, group0, groups, start, stop, length)
        if self.a_steps is None:
            self._pack_a(part, m0, rows)
        whole = self.ops.n.extent - self.ops.n.extent % self.nr
        full_end = code.minimum(n_end, whole)
        with code.loop(n0, full_end, self.nr) as panel:
            self._panel(part, m0, rows, n0, panel, self.nr)
        if self.ops.n.extent % self.nr:
            with code.when(n_end.equals(self.ops.n.extent)):
                self._panel(part, m0, rows, n0, code.integer(whole), self.ops.n.extent - whole)

    def _panel(self, part: _Part, m0: Value, rows: Value, n0: Value, panel: Value, columns: int) -> None:
        code = self.code
        if self.b_step is None:
            self._pack_b(part, panel, columns)
        whole = rows - rows.integer_op("urem", self.mr)
        with code.loop(0, whole, self.mr) as row:
            self._register_block(part, m0, row, n0, panel, self.mr, columns)
        rest = self.ops.m.extent % self.mr
        if rest:
            with code.when(whole.differs(rows)):
                self._register_block(part, m0, whole, n0, panel, rest, columns)

    # packing

    def _outer_k(self, part: _Part, q: Value) -> None:
        extents = [a.extent for a in self.ops.ko]
        if extents:
            self.bound.update(zip(self.ops.ko, self.entry.decompose(part.group0 + q, extents), strict=True))

    def _pack_a(self, part: _Part, m0: Value, rows: Value) -> None:
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

    def _k_chunks(self, part: _Part, body: Callable[[Value, Value | None], None]) -> None:
        """Vectors of the inner k axis; the whole axis is written out where it is short, so that its masks are constants."""
        extent = self.ops.ki.extent
        if self.blocks.chunks == 1:
            if extent <= 4 * self.width:
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

    def _pack_b(self, part: _Part, panel: Value, columns: int) -> None:
        code, ops = self.code, self.ops
        with code.loop(0, part.groups) as q:
            self._outer_k(part, q)
            base = q * ops.ki.extent
            if self.b_along_k:
                self._transpose_b(part, base, panel, columns)
            else:
                self._copy_b(part, base, panel, columns)

    def _copy_b(self, part: _Part, base: Value, panel: Value, columns: int) -> None:
        code = self.code
        with code.loop(part.start, part.stop) as k:
            self.bound[self.ops.ki] = k
            at = (base + (k - part.start)) * self.nr
            for v in range(-(-columns // self.width)):
                rest = columns - v * self.width
                mask = None if rest >= self.width else self.entry.prefix_mask(rest, self.width)
                self.bound[self.ops.n] = Affine(panel + v * self.width, 1)
                place = code.gep(self.b_pack, at + v * self.width, self.scalar)
                code.store(self._b_value(mask), place, self.dtype.nbytes)

    def _b_value(self, mask: Value | None) -> Value:
        printer = self.entry.printer(self.b_program, self.bound, self.width, mask)
        return arithmetic.cast(printer.lanes(self.b_program.results[0]), self.ops.b.dtype, self.dtype)

    def _transpose_b(self, part: _Part, base: Value, panel: Value, columns: int) -> None:
        """Vectors along k of as many columns become vectors along n, in registers."""
        code, ops = self.code, self.ops
        vectors = -(-columns // self.width)

        def square(at: Value, mask: Value | None) -> None:
            with code.loop(0, vectors) as v:
                first = panel + v * self.width
                rows = []
                for lane in range(self.width):
                    column = first + lane
                    if columns % self.width:  # columns past the end repeat the last one and are never stored
                        column = code.minimum(column, ops.n.extent - 1)
                    self.bound[ops.n], self.bound[ops.ki] = column, Affine(at, 1)
                    rows.append(self._b_value(mask))
                place = (base + (at - part.start)) * self.nr + v * self.width
                for lane, row in enumerate(transpose(rows)):
                    code.store(row, code.gep(self.b_pack, place + lane * self.nr, self.scalar), self.dtype.nbytes)

        if self.blocks.chunks == 1:
            self.entry.chunks(0, ops.ki.extent, self.width, square, ops.ki.extent)
        else:
            self.entry.chunks(part.start, part.stop, self.width, square, ops.ki.extent)

    # the register block

    def _register_block(self, part: _Part, m0: Value, row: Value, n0: Value, panel: Value, rows: int, columns: int
                        ) -> None:  # fmt: skip
        code = self.code
        vectors = -(-columns // self.width)
        sums = [[code.slot(self.vector) for _ in range(vectors)] for _ in range(rows)]
        partial = None
        if self.blocks.count > 1:
            partial = code.gep(self.partial, row * self.partial_row + (panel - n0), self.scalar)
        self._start_sums(part, sums, partial)
        a, a_row, a_k = self._a_source(part, m0, row)
        b, b_k = self._b_source(part, panel)
        last_mask = None
        if self.b_step is not None and columns % self.width:
            last_mask = self.entry.prefix_mask(columns % self.width, self.width)

        def step(k: Value) -> None:
            b_at = code.gep(b, k * b_k, self.scalar)
            loaded = []
            for v in range(vectors):
                at = code.gep(b_at, v * self.width, self.scalar)
                masked = last_mask is not None and v == vectors - 1
                loaded.append(
                    code.masked_load(at, self.vector, last_mask)  # type: ignore[arg-type]
                    if masked
                    else code.load(at, self.vector, self.dtype.nbytes)
                )
            a_at = code.gep(a, k * a_k, self.scalar)
            for i in range(rows):
                one = code.load(code.gep(a_at, i * a_row, self.scalar), Type(self.scalar))
                factor = code.splat(one, self.width)
                for v in range(vectors):
                    sums[i][v].set(self._multiply_add(factor, loaded[v], sums[i][v].get()))

        length = part.length
        if self.unroll > 1:
            whole = length - length.integer_op("urem", self.unroll)
            with code.loop(0, whole, self.unroll) as k:
                for u in range(self.unroll):
                    step(k + u)
            with code.loop(whole, length) as k:
                step(k)
        else:
            with code.loop(0, length) as k:
                step(k)
        if partial is None:
            self._finish(m0 + row, panel, sums, columns)
            return
        last = part.block.equals(self.blocks.count - 1)
        name = code._name("f")
        code.branch(last, f"{name}.finish", f"{name}.keep")
        code.label(f"{name}.finish")
        self._finish(m0 + row, panel, sums, columns)
        code.jump(f"{name}.end")
        code.label(f"{name}.keep")
        for i, line in enumerate(sums):
            for v, slot in enumerate(line):
                at = code.gep(partial, i * self.partial_row + v * self.width, self.scalar)
                code.store(slot.get(), at, self.dtype.nbytes)
        code.jump(f"{name}.end")
        code.label(f"{name}.end")

    def _multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        return a.muladd(b, c) if self.dtype.is_float else c + a * b

    def _start_sums(self, part: _Part, sums: list[list[Slot]], partial: Value | None) -> None:
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

    def _a_source(self, part: _Part, m0: Value, row: Value) -> tuple[Value, int, int]:
        """Where row ``row`` of the block starts, and the strides of rows and of k."""
        if self.a_steps is None:
            if self.a_along_k:
                return self.code.gep(self.a_pack, row * self.a_row, self.scalar), self.a_row, 1
            return self.code.gep(self.a_pack, row, self.scalar), 1, self.tile_m + self.width
        return self._address(self.ops.a, self.ops.m, m0 + row, part.start), *self.a_steps

    def _b_source(self, part: _Part, panel: Value) -> tuple[Value, int]:
        if self.b_step is None:
            return self.b_pack, self.nr
        return self._address(self.ops.b, self.ops.n, panel, part.start), self.b_step

    def _address(self, expr: Expr, axis: Var, at: Value, k: Value) -> Value:
        while isinstance(expr, Cast):
            expr = expr.value
        assert isinstance(expr, Load)
        program = lower([expr.index[0]], [self.ops.batch, axis, self.ops.ki])
        printer = self.entry.printer(program, {**self.bound, axis: at, self.ops.ki: k}, 0, None)
        return self.code.gep(self.entry.params[expr.source], printer.value(program.results[0]), self.scalar)

    # the stores

    def _finish(self, m: Value, n: Value, sums: Sequence[Sequence[Slot]], columns: int) -> None:
        code = self.code
        if self.light:
            for i, line in enumerate(sums):
                for v, slot in enumerate(line):
                    self._store(m + i, n + v * self.width, slot.get(), columns - v * self.width)
            return
        for i, line in enumerate(sums):
            for v, slot in enumerate(line):
                code.store(slot.get(), code.gep(self.tile, i * self.nr + v * self.width, self.scalar), 64)
        whole = columns // self.width
        with code.loop(0, len(sums)) as row:
            base = row * self.nr
            with code.loop(0, whole) as vector:
                at = vector * self.width
                self._store(m + row, n + at, self._tile_load(base + at), self.width)
            if columns % self.width:
                at = code.integer(whole * self.width)
                self._store(m + row, n + at, self._tile_load(base + at), columns % self.width)

    def _tile_load(self, at: Value) -> Value:
        return self.code.load(self.code.gep(self.tile, at, self.scalar), self.vector, 64)

    def _store(self, m: Value, n: Value, acc: Value, lanes: int) -> None:
        mask = None if lanes >= self.width else self.entry.prefix_mask(lanes, self.width)
        bound: dict[Expr, LaneValue] = {
            **self.bound, self.ops.m: m, self.ops.n: lane_index(n, self.width), self.acc: acc,
        }  # fmt: skip
        printer = self.entry.printer(self.stores, bound, self.width, mask)
        for i, store in enumerate(self.ops.stores):
            printer.store(store.target, self.stores.results[2 * i], self.stores.results[2 * i + 1])


@dataclass(frozen=True)
class _Part:
    """One block of k: points ``group0 ..`` of the outer axes, ``start .. stop`` of the inner one, ``length`` in all."""

    block: Value
    group0: Value
    groups: Value
    start: Value
    stop: Value
    length: Value


def transpose(rows: Sequence[Value]) -> list[Value]:
    """A square of vectors, by rounds of interleaving halves."""
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


def emit_contraction(kernel: Kernel, c: Contraction, schedule: Schedule, name: str, target: Target) -> tuple[str, int]:
    """The function's text and its number of tasks."""
    return _Emitter(kernel, c, schedule, name, target).emit()
