"""Attention of a few rows on the CPU, as in decoding. Keys and values are read once, at the speed of memory.

    task (batch):
        for each block of keys:
            for each vector of keys, each row: products with the row, lanes along the head, then sums across lanes
            weights and their totals as in ``attention``, lanes along keys
            for some vectors of values: means of every row, lanes along values
        the stores

With ``splits`` a task has a part of a batch's keys, at least ``LEAST_KEYS`` of those that its rows see in this run. It leaves
its sums, maxima and totals in the workspace, and the last of a batch's tasks to do so adds them up, in the order of the keys:
after flash decoding (Dao et al., 2023). So few heads do not leave most threads without work behind many keys.

There are too few rows to fill a vector's lanes, so both products run along memory instead. They convert keys and values
as they read them.

Where each run decides the number of rows, this is a function that the other engine calls for tasks of few rows. Heads that
share keys and values then read them together, and groups of such rows take turns at a block, which a cache holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from gpucomp.codegen.llvm.attention.decode_space import (
    LEAST_KEYS,
    MOST_ROWS,
    DecodeSchedule,
    derive,
    part_floats,
    parts_of_keys,
    problem,
    splits_of_range,
)
from gpucomp.codegen.llvm.attention.parts import Scratch, columns_seen, parts_of, store_means
from gpucomp.codegen.llvm.contraction.operands import Rows
from gpucomp.codegen.llvm.core_space import LINE
from gpucomp.codegen.llvm.ir import arithmetic
from gpucomp.codegen.llvm.ir import math as vector_math
from gpucomp.codegen.llvm.ir.builder import Value
from gpucomp.codegen.llvm.ir.printer import Affine, LaneValue
from gpucomp.codegen.llvm.ir.types import I1, I64, Type
from gpucomp.codegen.llvm.loops.nest import Entry, Program, lower
from gpucomp.codegen.llvm.loops.rowwise import across
from gpucomp.device.target import Target
from gpucomp.expr.core import Expr, substitute
from gpucomp.ir.extremes import smallest
from gpucomp.ir.size import Size, bounds, is_one, is_zero, same
from gpucomp.ir.types import F32, DType
from gpucomp.kernel import Kernel
from gpucomp.kernel.forms.causal import NOT_CAUSAL
from gpucomp.kernel.source import Emitted
from gpucomp.schedule.space import Schedule

FEW = "few"  # how the function of ``few_rows`` is called, behind the kernel's name
OTHER_REGISTERS = 3  # than those of keys and sums of products
FEW_KEYS = 64  # whose weights are kept at a time in ``few_rows``: their values are read again for each row


class _Few(Scratch):
    """The function of all rows; or ``void NAME(ptr ..., i64 batch, i64 row)``, of at most ``most`` rows from ``row`` on.

    Where keys are divided, that has two numbers more: which task of a batch it is, and how many there are.
    """

    def __init__(
        self, kernel: Kernel, s: DecodeSchedule, name: str, target: Target, caller: Entry | None = None, most: int = 0
    ) -> None:
        self.entry = Entry(kernel, name, target)
        if caller is not None:
            self.entry.code.share_sizes(caller.code)
        self.parts, self.lanes = parts_of(kernel), s.lanes
        super().__init__(self.entry.code, Type("float", self.lanes))
        p = problem(kernel)
        self.d = derive(s, p.replace(m=most) if most else p)
        parts, d = self.parts, self.d
        self.part = bool(most)
        self.m, self.n = parts.rows.extent, parts.cols.extent
        if not same(parts.causal, NOT_CAUSAL):
            self.n = smallest(self.n, smallest(self.m, parts.last_rows) + parts.causal)
        self.row = self.entry.last if most else self.code.integer(0)
        room = self.room = most or self.m
        self.together = rows_together(self.m) if most else self.m
        self.registers = target.limits.registers
        self.bound: dict[Expr, LaneValue] = {}
        self.queries, self.sums = self._room(room * d.head), self._room(room * d.means)
        self.weights = self._room(room * d.pitch)
        self.tops, self.totals = self._room(room), self._room(room)
        score = substitute(parts.score, dict(parts.turned))
        self.score = lower([score], [parts.batch, parts.rows, parts.cols, parts.dot])
        self.left = part_floats(room, parts.values.extent)
        self.splits = s.splits
        if not most and any(isinstance(size, Size) for size in (parts.batch.extent, self.n)):
            self.splits = splits_of_range(p, room, target.limits)
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
        code, batches = self.code, self.parts.batch.extent
        if self.splits == 1:
            with code.loop(self.entry.first, self.entry.last) as batch:
                self._batch(batch, self.m)
            return self.entry.emitted(batches)
        tasks = parts_of_keys(self.n, self.splits)
        self.entry.share(*shared_bytes(batches, tasks, self.left))
        with code.loop(self.entry.first, self.entry.last) as task:
            batch, split = self.entry.decompose(task, [batches, tasks])
            self._split(batch, self.m, split, code.integer(tasks))
        return self.entry.emitted(batches * tasks)

    def text(self) -> str:
        """The function of a part of the rows; with ``splits`` of a part of the keys: of task ``split`` of ``tasks``."""
        rows = self.code.integer(self.m) - self.row
        if self.splits == 1:
            self._batch(self.entry.first, rows)
        else:
            self.entry.share(0, 0)
            self.entry.more = [self.code.argument(name, I64) for name in ("split", "tasks")]
            self._split(self.entry.first, rows, *self.entry.more)
        return self.entry.text()

    def _batch(self, batch: Value, rows: Value | int) -> None:
        """The rows from ``self.row`` on."""
        end = self._begin(batch, rows)
        self._start()
        self._walk(self.code.integer(0), end)
        self._finish()

    def _split(self, batch: Value, rows: Value | int, split: Value, tasks: Value) -> None:
        """A part of the keys. All but the last task of a batch to arrive leave it to that one to store the means."""
        code, tile_n, workspace = self.code, self.d.tile_n, self.entry.shared[0]
        end = self._begin(batch, rows)
        keys = (end + tasks - 1).integer_op("udiv", tasks)
        keys = code.select(keys < LEAST_KEYS, LEAST_KEYS, keys)
        keys = (keys + (tile_n - 1)).integer_op("udiv", tile_n) * tile_n
        first = split * keys
        with code.when(split.equals(0) | (first < end)):  # without keys a task stores what no keys give
            self._start()
            self._walk(first, code.minimum(first + keys, end))
            complete = code.slot(I1)
            complete.set(end <= keys)
            with code.when(end > keys):
                own = self._at(workspace, batch * tasks * self.left)
                self._leave(self._at(own, split * self.left))
                last = (end - 1).integer_op("udiv", keys)
                counter = code.gep(self.entry.shared[1], batch, "i64")
                is_last = code.arrive(counter).equals(last)
                complete.set(is_last)
                with code.when(is_last):
                    code.store(code.integer(0), counter, 8)
                    self._gather(own, last + 1)
            with code.when(complete.get()):
                self._finish()

    def _begin(self, batch: Value, rows: Value | int) -> Value:
        """Bind ``batch`` and ``rows``; how many keys these see."""
        parts = self.parts
        self.bound, self.rows = {parts.batch: batch}, rows
        if parts.last is None:
            return self.code.integer(self.n)
        return columns_seen(self.entry, parts, self.bound, self.row, rows)

    def _walk(self, first: Value, end: Value) -> None:
        """Blocks of keys in ``first .. end``. ``first`` is a multiple of a block."""
        code, self.end = self.code, end
        with code.loop(first, end, self.d.tile_n) as n0:
            count = code.integer(self.d.tile_n)
            if self.parts.last is not None or not is_zero(self.n % self.d.tile_n):
                count = code.minimum(end - n0, self.d.tile_n)
            self._dots(n0, count)
            with code.loop(0, self.rows) as row:
                self._weigh(row, n0, count)
            with self._some_rows() as rows:
                self._means(n0, count, rows)

    @contextmanager
    def _some_rows(self) -> Iterator[Sequence[Value | int]]:
        """All rows, so many at a time as read keys and values together. What is past the last row repeats it."""
        if not self.part:
            yield range(self.m)
            return
        with self.code.loop(0, self.rows, self.together) as first:
            yield [first, *(self.code.minimum(first + k, self.rows - 1) for k in range(1, self.together))]

    def _finish(self) -> None:
        """Divide by the totals, and store."""
        code, d, rows = self.code, self.d, self.rows
        with code.loop(0, rows) as row, code.loop(0, d.means, self.lanes) as c:
            at = row * d.means + c
            self._store(self._load(self.sums, at) * code.splat(self._inverse(row), self.lanes), self.sums, at)
        store_means(self.entry, self.parts, self.bound, self.lanes, self.sums, d.means, self.row, rows)

    # what tasks that share a batch leave: the sums of all rows, then their maxima and totals

    def _leave(self, place: Value) -> None:
        code, single, sums = self.code, Type("float"), self.room * self.d.means
        with code.loop(0, self.rows) as row, code.loop(0, self.d.means, self.lanes) as c:
            self._store(self._load(self.sums, row * self.d.means + c), place, row * self.d.means + c)
        with code.loop(0, self.rows) as row:
            for room, offset in ((self.tops, sums), (self.totals, sums + self.room)):
                code.store(code.load(self._at(room, row), single), self._at(place, row + offset))

    def _gather(self, workspace: Value, count: Value) -> None:
        """Add up what ``count`` tasks have left, scaled to the largest of their maxima."""
        code, d, single = self.code, self.d, Type("float")
        tops, totals = self.room * d.means, self.room * d.means + self.room

        def left(split: Value, offset: Value) -> Value:
            return code.load(self._at(workspace, split * self.left + offset), single)

        with code.loop(0, self.rows) as row:
            top, total = code.slot(single), code.slot(single)
            top.set(code.const(-math.inf, single))
            with code.loop(0, count) as split:
                here = left(split, row + tops)
                top.set(code.select(here > top.get(), here, top.get()))
            used = code.select(top.get().equals(-math.inf), 0.0, top.get())
            total.set(code.const(0.0, single))
            with code.loop(0, d.means, self.lanes) as c:
                self._store(code.const(0.0, self.vector), self.sums, row * d.means + c)
            with code.loop(0, count) as split:
                scales = vector_math.exp_below_zero(code.splat(left(split, row + tops) - used, self.lanes))
                total.set(left(split, row + totals).muladd(code.extract(scales, 0), total.get()))
                with code.loop(0, d.means, self.lanes) as c:
                    at = row * d.means + c
                    found = self._load(workspace, split * self.left + at)
                    self._store(found.muladd(scales, self._load(self.sums, at)), self.sums, at)
            code.store(total.get(), self._at(self.totals, row))

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
        with code.loop(0, count, lanes) as j:
            self._fetch(parts.value_rows, n0 + j, lanes, parts.values.extent)
            columns = [n0 + j + lane for lane in range(lanes)]
            if not self._is_even():
                columns = [code.minimum(column, parts.cols.extent - 1) for column in columns]
            with self._some_rows() as rows:
                self._dots_of(rows, columns, j)

    def _fetch(self, place: Rows | None, column: Value, count: int, extent: int) -> None:
        """Fetches what is soon read of ``count`` keys or values from ``column`` on into the second-level cache.

        Blocks of keys and of values take turns, which no processor foresees. Measured on Zen 4, three rows, keys of 64 floats:
        11.5 -> 17.6 GB/s on one thread, 21 -> 26.5 on two.
        """
        if place is None or not is_one(place.step):
            return
        code, memory = self.code, self.entry.params[place.source]
        nbytes = self.entry.kernel.params[place.source].dtype.nbytes
        program = lower([place.offset], [self.parts.batch, self.parts.cols])
        with code.loop(0, count) as k:
            bound = {**self.bound, self.parts.cols: column + k}
            start = self.entry.printer(program, bound, 0, None).value(program.results[0]) * nbytes
            for line in range(0, extent * nbytes, LINE):
                code.prefetch(code.gep(memory, start + line, "i8"), far=True)

    def _dots_of(self, rows: Sequence[Value | int], columns: Sequence[Value], j: Value) -> None:
        """The products of ``rows`` with the keys of ``columns``, a vector from ``j`` on.

        So many keys at a time as the registers have room for, with their sums: a key is read, and converted, once for all
        rows. One row reads keys from memory as it multiplies them.
        """
        lanes, keys = self.lanes, self.lanes
        held = len(rows) + (len(rows) > 1)
        while keys > 1 and keys * held > self.registers - OTHER_REGISTERS:
            keys //= 2
        sums: list[list[Value]] = [[] for _ in rows]
        for first in range(0, lanes, keys):
            for found, dots in zip(sums, self._products(rows, columns[first : first + keys]), strict=True):
                found.append(sums_of(dots))
        for row, found in zip(rows, sums, strict=True):
            self._store(sums_of(found, keys), self.weights, j + row * self.d.pitch)

    def _products(self, rows: Sequence[Value | int], columns: Sequence[Value]) -> list[list[Value]]:
        """For each row, a vector of each column whose lanes add up to their product."""
        code, parts = self.code, self.parts
        dots = [[code.slot(self.vector) for _ in columns] for _ in rows]
        for dot in chain(*dots):
            dot.set(code.const(0.0, self.vector))

        def chunk(at: Value, mask: Value | None) -> None:
            keys = []
            for column in columns:
                place: dict[Expr, LaneValue] = {parts.cols: column, parts.depth: Affine(at, 1)}
                keys.append(self._element(self.key, parts.k.dtype, place, mask))
            for row, line in zip(rows, dots, strict=True):
                query = self._load(self.queries, at + row * self.d.head)
                for dot, key in zip(line, keys, strict=True):
                    dot.set(key.muladd(query, dot.get()))

        self.entry.chunks(0, parts.depth.extent, self.lanes, chunk, parts.depth.extent)
        return [[dot.get() for dot in line] for line in dots]

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
        shrunk = code.extract(vector_math.exp_below_zero(code.splat(old - used, lanes)), 0)
        total.set(code.const(0.0, self.vector))
        with self._vectors(row, n0, count) as (at, _, _):
            weight = vector_math.exp_below_zero(self._load(self.weights, at) - used)
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
        # again for every row: once is too fast for a processor, which drops what it cannot keep track of (14 GB/s, not 17.5)
        ahead = c.equals(0) & (n0 + self.d.tile_n < self.end)
        with code.loop(0, count) as j:
            with code.when(ahead):
                self._fetch(parts.key_rows, n0 + j + self.d.tile_n, 1, parts.depth.extent)
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


def sums_of(vectors: Sequence[Value], done: int = 1) -> Value:
    """The sum of each vector's lanes: lane i is the sum of vector i, if there are as many vectors as lanes.

    Halves of two vectors are added as one vector. Of fewer vectors, each has as many lanes left, side by side; so vectors have
    already, if each is of ``done`` others.
    """
    code, lanes = vectors[0].code, vectors[0].type.lanes
    segment = lanes // done
    while len(vectors) > 1:
        half = segment // 2
        starts = range(0, lanes, segment)
        low = [at + k for at in starts for k in range(half)]
        order = [[*low, *(lanes + k for k in low)], [k + half for k in (*low, *(lanes + x for x in low))]]
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [code.shuffle(a, b, order[0]) + code.shuffle(a, b, order[1]) for a, b in pairs]
        segment = half
    return vectors[0]


def rows_together(rows: Size | int) -> int:
    """How many of ``rows`` that each run decides read keys and values together: heads that share them, so that none is left."""
    return max(count for count in range(1, MOST_ROWS + 1) if is_zero(rows % count))


def few_rows(kernel: Kernel, caller: Entry, lanes: int, splits: int) -> str:
    """The function ``NAME.few`` of at most ``MOST_ROWS`` rows, for a kernel whose number of rows each run decides."""
    s = few_schedule(caller.target, lanes, splits, rows_together(parts_of(kernel).rows.extent))
    return _Few(kernel, s, f"{caller.name}.{FEW}", caller.target, caller, MOST_ROWS).text()


def few_schedule(target: Target, lanes: int, splits: int, rows: int) -> DecodeSchedule:
    """The schedule of ``few_rows``, of which ``rows`` read keys and values together."""
    wide = max(w for w in DecodeSchedule.choices("wide") if w == 1 or rows * w + w < target.limits.registers)
    return DecodeSchedule(lanes=lanes, tile_n=max(FEW_KEYS, lanes), wide=wide, splits=splits)


def shared_bytes(batches: Any, tasks: Any, left: int) -> tuple[Any, int]:
    """The bytes of the workspace and of the counters. There are counters for the most batches, because these stay."""
    most = int(bounds(batches)[1]) if isinstance(batches, Size) else batches
    return batches * tasks * (left * 4), most * 8


def emit_decode(kernel: Kernel, schedule: Schedule, name: str, target: Target) -> Emitted:
    """The function and its number of tasks."""
    return _Few(kernel, DecodeSchedule(**schedule), name, target).emit()
