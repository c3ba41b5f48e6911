"""Attention of a few rows on the CPU, as in decoding. Keys and values are read once, at the speed of memory.

    task (batch):
        for each block of keys:
            for each vector of keys, each row: products with the row, lanes along the head, then sums across lanes
            weights and their totals as in ``attention``, lanes along keys
            for some vectors of values: means of every row, lanes along values
        the stores

There are too few rows to fill a vector's lanes, so both products run along memory instead. They convert keys and values
as they read them.

Where each run decides the number of rows, this is a function that the other engine calls for tasks of few rows. They then
take turns in the product with the values, which the first-level cache holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gpucomp.codegen.llvm.attention.decode_space import DecodeSchedule, derive, problem
from gpucomp.codegen.llvm.attention.parts import Scratch, columns_seen, parts_of, store_means
from gpucomp.codegen.llvm.ir import arithmetic
from gpucomp.codegen.llvm.ir import math as vector_math
from gpucomp.codegen.llvm.ir.builder import Slot, Type, Value
from gpucomp.codegen.llvm.ir.printer import Affine, LaneValue
from gpucomp.codegen.llvm.loops.nest import Entry, Program, lower
from gpucomp.codegen.llvm.loops.rowwise import across
from gpucomp.device.target import Target
from gpucomp.expr.core import Expr, substitute
from gpucomp.ir.extremes import smallest
from gpucomp.ir.size import is_zero, same
from gpucomp.ir.types import F32, DType
from gpucomp.kernel import Kernel
from gpucomp.kernel.forms.causal import NOT_CAUSAL
from gpucomp.kernel.source import Emitted
from gpucomp.schedule.space import Schedule

FEW = "few"  # how the function of ``few_rows`` is called, behind the kernel's name
FEW_KEYS = 64  # whose weights are kept at a time in ``few_rows``: their values are read again for each row


class _Few(Scratch):
    """The function of all rows; or ``void NAME(ptr ..., i64 batch, i64 row)``, of at most ``most`` rows from ``row`` on."""

    def __init__(
        self, kernel: Kernel, s: DecodeSchedule, name: str, target: Target, caller: Entry | None = None, most: int = 0
    ) -> None:
        self.entry = Entry(kernel, name, target)
        if caller is not None:
            self.entry.code.share_sizes(caller.code)
        self.parts, self.lanes = parts_of(kernel), s.lanes
        super().__init__(self.entry.code, Type("float", self.lanes))
        self.d = derive(s, problem(kernel))
        parts, d = self.parts, self.d
        self.part = bool(most)
        self.m, self.n = parts.rows.extent, parts.cols.extent
        if not same(parts.causal, NOT_CAUSAL):
            self.n = smallest(self.n, smallest(self.m, parts.last_rows) + parts.causal)
        self.row = self.entry.last if most else self.code.integer(0)
        room = most or self.m
        self.bound: dict[Expr, LaneValue] = {}
        self.queries, self.sums = self._room(room * d.head), self._room(room * d.means)
        self.weights = self._room(room * d.pitch)
        self.tops, self.totals = self._room(room), self._room(room)
        score = substitute(parts.score, dict(parts.turned))
        self.score = lower([score], [parts.batch, parts.rows, parts.cols, parts.dot])
        self.key = lower([parts.k], [parts.batch, parts.cols, parts.depth])
        self.mean = lower([parts.v], [parts.batch, parts.cols, parts.values])

    def _element(self, program: Program, dtype: DType, at: dict[Expr, LaneValue], mask: Value | None) -> Value:
        """An operand's vector, zero outside ``mask``."""
        value = self.entry.printer(program, {**self.bound, **at}, self.lanes, mask).lanes(program.results[0])
        value = arithmetic.cast(value, dtype, F32)
        return value if mask is None else self.code.select(mask, value, self.code.const(0.0, self.vector))

    def _prefix(self, rest: int) -> Value | None:
        """The mask of the first ``rest`` lanes; ``None`` if these are all."""
        return None if rest >= self.lanes else self.entry.prefix_mask(rest, self.lanes)

    def emit(self) -> Emitted:
        with self.code.loop(self.entry.first, self.entry.last) as batch:
            self._batch(batch, self.m)
        return self.entry.emitted(self.parts.batch.extent)

    def text(self) -> str:
        """The function of a part of the rows."""
        self._batch(self.entry.first, self.code.integer(self.m) - self.row)
        return self.entry.text()

    def _batch(self, batch: Value, rows: Value | int) -> None:
        """The rows from ``self.row`` on."""
        code, parts, entry = self.code, self.parts, self.entry
        self.bound, self.rows = {parts.batch: batch}, rows
        self._start()
        data = parts.last is not None
        self.end = columns_seen(entry, parts, self.bound, self.row, rows) if data else code.integer(self.n)
        with code.loop(0, self.end if data else self.n, self.d.tile_n) as n0:
            count = code.integer(self.d.tile_n)
            if data or not is_zero(self.n % self.d.tile_n):
                count = code.minimum(self.end - n0, self.d.tile_n)
            self._dots(n0, count)
            with code.loop(0, rows) as row:
                self._weigh(row, n0, count)
            if self.part:
                with code.loop(0, rows) as row:
                    self._means(n0, count, [row])
            else:
                self._means(n0, count, range(self.m))
        with code.loop(0, rows) as row, code.loop(0, self.d.means, self.lanes) as c:
            at = row * self.d.means + c
            self._store(self._load(self.sums, at) * code.splat(self._inverse(row), self.lanes), self.sums, at)
        store_means(entry, parts, self.bound, self.lanes, self.sums, self.d.means, self.row, rows)

    def _inverse(self, row: Value) -> Value:
        return self.code.const(1.0, Type("float")) / self.code.load(self._at(self.totals, row), Type("float"))

    def _start(self) -> None:
        code, parts = self.code, self.parts
        program = lower([parts.q], [parts.batch, parts.rows, parts.depth])
        with code.loop(0, self.rows) as row:

            def chunk(at: Value, mask: Value | None) -> None:
                place: dict[Expr, LaneValue] = {parts.rows: self._place(row), parts.depth: Affine(at, 1)}
                element = self._element(program, parts.q.dtype, place, mask)
                self._store(element, self.queries, row * self.d.head + at)

            self.entry.chunks(0, parts.depth.extent, self.lanes, chunk, parts.depth.extent)
            with code.loop(0, self.d.means, self.lanes) as c:
                self._store(code.const(0.0, self.vector), self.sums, row * self.d.means + c)
            code.store(code.const(-math.inf, Type("float")), self._at(self.tops, row))
            code.store(code.const(0.0, Type("float")), self._at(self.totals, row))

    def _is_even(self) -> bool:
        """Whether there are whole vectors of keys."""
        return self.parts.last is None and is_zero(self.n % self.lanes)

    def _place(self, row: Value) -> Value:
        return self.row + row if self.part else row

    # a block of keys

    def _dots(self, n0: Value, count: Value) -> None:
        """Products of every key with every row, one vector of keys at a time. Keys past the last one repeat it."""
        code, parts, lanes = self.code, self.parts, self.lanes
        depth = parts.depth.extent
        with code.loop(0, count, lanes) as j, code.loop(0, self.rows) as row:
            columns, whole = [], self._is_even()
            for lane in range(lanes):
                column = n0 + j + lane
                columns.append(column if whole else code.minimum(column, parts.cols.extent - 1))
            dots = [code.slot(self.vector) for _ in columns]
            for dot in dots:
                dot.set(code.const(0.0, self.vector))

            def chunk(
                at: Value,
                mask: Value | None,
                dots: Sequence[Slot] = dots,
                columns: Sequence[Value] = columns,
                row: Value = row,
            ) -> None:
                query = self._load(self.queries, row * self.d.head + at)
                for dot, column in zip(dots, columns, strict=True):
                    place: dict[Expr, LaneValue] = {parts.cols: column, parts.depth: Affine(at, 1)}
                    dot.set(self._element(self.key, parts.k.dtype, place, mask).muladd(query, dot.get()))

            self.entry.chunks(0, depth, lanes, chunk, depth)
            self._store(sums_of([dot.get() for dot in dots]), self.weights, row * self.d.pitch + j)

    def _weigh(self, row: Value, n0: Value, count: Value) -> None:
        """Turns a row's products into weights, and rescales what was summed with a smaller maximum."""
        code, parts, lanes = self.code, self.parts, self.lanes
        single = Type("float")
        old = code.load(self._at(self.tops, row), single)
        top, total = code.slot(self.vector), code.slot(self.vector)
        top.set(code.splat(old, lanes))
        with self._vectors(row, n0, count) as (at, column, mask):
            place: dict[Expr, LaneValue] = {
                **self.bound,
                parts.rows: self._place(row),
                parts.cols: Affine(column, 1),
                parts.dot: self._load(self.weights, at),
            }
            score = self.entry.printer(self.score, place, lanes, mask).lanes(self.score.results[0])
            if mask is not None:
                score = code.select(mask, score, -math.inf)
            top.set(code.select(score > top.get(), score, top.get()))
            self._store(score, self.weights, at)
        new = across(top.get(), "max", F32)
        code.store(new, self._at(self.tops, row))
        used = code.select(new.equals(-math.inf), 0.0, new)  # -inf - -inf would be NaN, and stay so
        shrunk = code.extract(vector_math.exp(code.splat(old - used, lanes)), 0)
        total.set(code.const(0.0, self.vector))
        with self._vectors(row, n0, count) as (at, _, _):
            weight = vector_math.exp(self._load(self.weights, at) - used)
            self._store(weight, self.weights, at)
            total.set(total.get() + weight)
        before = code.load(self._at(self.totals, row), single)
        code.store(before * shrunk + across(total.get(), "sum", F32), self._at(self.totals, row))
        with code.loop(0, self.d.means, lanes) as c:
            at = row * self.d.means + c
            self._store(self._load(self.sums, at) * shrunk, self.sums, at)

    @contextmanager
    def _vectors(self, row: Value, n0: Value, count: Value) -> Iterator[tuple[Value, Value, Value | None]]:
        """The vectors of a row's block: the offset of the numbers, the first column, and the mask of lanes in use."""
        code = self.code
        with code.loop(0, count, self.lanes) as j:
            mask = None
            if not self._is_even():
                left = code.convert("trunc", self.end - n0 - j, "i32")
                mask = code.vector(list(range(self.lanes)), "i32").compare("slt", left)
            yield row * self.d.pitch + j, n0 + j, mask

    def _means(self, n0: Value, count: Value, rows: Sequence[Value | int]) -> None:
        """Adds values times weights to the sums of ``rows``; some vectors of every row are in registers at a time."""
        values = self.parts.values.extent
        wide = self.d.wide * self.lanes
        whole = values // wide * wide
        with self.code.loop(0, whole, wide) as c:
            self._some_means(n0, count, rows, c, wide)
        if values > whole:
            self._some_means(n0, count, rows, self.code.integer(whole), values - whole)

    def _some_means(self, n0: Value, count: Value, rows: Sequence[Value | int], c: Value, columns: int) -> None:
        """Does this for ``columns`` values of every row, from ``c`` on."""
        code, parts, lanes = self.code, self.parts, self.lanes
        starts = range(0, columns, lanes)
        sums = [[code.slot(self.vector) for _ in starts] for _ in rows]
        places = [[c + (row * self.d.means + start) for start in starts] for row in rows]
        for line, at in zip(sums, places, strict=True):
            for slot, place in zip(line, at, strict=True):
                slot.set(self._load(self.sums, place))
        with code.loop(0, count) as j:
            element = []
            for start in starts:
                here: dict[Expr, LaneValue] = {parts.cols: n0 + j, parts.values: Affine(c + start, 1)}
                element.append(self._element(self.mean, parts.v.dtype, here, self._prefix(columns - start)))
            for row, line in zip(rows, sums, strict=True):
                weight = code.load(self._at(self.weights, j + row * self.d.pitch), Type("float"))
                for slot, value in zip(line, element, strict=True):
                    slot.set(code.splat(weight, lanes).muladd(value, slot.get()))
        for line, at in zip(sums, places, strict=True):
            for slot, place in zip(line, at, strict=True):
                self._store(slot.get(), self.sums, place)


def sums_of(vectors: Sequence[Value]) -> Value:
    """The sum of each vector's lanes: lane i is the sum of vector i. There are as many vectors as lanes.

    Halves of two vectors are added as one vector.
    """
    code, lanes = vectors[0].code, len(vectors)
    segment = lanes
    while len(vectors) > 1:
        half = segment // 2
        starts = range(0, lanes, segment)
        low = [at + k for at in starts for k in range(half)]
        order = [[*low, *(lanes + k for k in low)], [k + half for k in (*low, *(lanes + x for x in low))]]
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [code.shuffle(a, b, order[0]) + code.shuffle(a, b, order[1]) for a, b in pairs]
        segment = half
    return vectors[0]


def few_rows(kernel: Kernel, caller: Entry, lanes: int, most: int) -> str:
    """The function ``NAME.few`` of at most ``most`` rows, for a kernel whose number of rows each run decides."""
    wide = max(w for w in DecodeSchedule.choices("wide") if 2 * w < caller.target.limits.registers)
    s = DecodeSchedule(lanes=lanes, tile_n=max(FEW_KEYS, lanes), wide=wide)
    return _Few(kernel, s, f"{caller.name}.{FEW}", caller.target, caller, most).text()


def emit_decode(kernel: Kernel, schedule: Schedule, name: str, target: Target) -> Emitted:
    """The function and its number of tasks."""
    return _Few(kernel, DecodeSchedule(**schedule), name, target).emit()
