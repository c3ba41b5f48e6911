"""The attention family on the CPU: scores are never written to memory.

    task (batch, some vectors of rows):
        transpose the queries: lanes are rows
        for each block of keys:
            scores: dot products of keys and rows, in register blocks; the maximum of each row so far
            weights: exp(score - maximum); the sum of each row; earlier sums are rescaled to the new maximum
            means: values times weights, in register blocks
        transpose the means, divide by the sums, store

Lanes are rows in both products, so keys and values are read in place, element by element, and maxima and sums need no
reduction across lanes. That is online softmax (Milakov and Gimelshein, arXiv 1805.02867) in the tiles of
FlashAttention (Dao et al., arXiv 2205.14135). A row whose scores so far are all -inf has weights of 0. The result is
NaN if all of its scores are -inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gpucomp.codegen.llvm.attention.decode_emit import FEW, few_rows, shared_bytes
from gpucomp.codegen.llvm.attention.decode_space import MOST_ROWS, part_floats, parts_of_keys, splits_of_range
from gpucomp.codegen.llvm.attention.parts import Scratch, columns_seen, parts_of, store_means
from gpucomp.codegen.llvm.attention.space import AttentionProblem, AttentionSchedule, derive, fitted, problem, widths_of
from gpucomp.codegen.llvm.contraction.operands import Rows
from gpucomp.codegen.llvm.contraction.panels import transpose
from gpucomp.codegen.llvm.contraction.register_block import RegisterBlock, Row, Stream
from gpucomp.codegen.llvm.ir import arithmetic
from gpucomp.codegen.llvm.ir import math as vector_math
from gpucomp.codegen.llvm.ir.builder import Slot, Value
from gpucomp.codegen.llvm.ir.printer import Affine, LaneValue
from gpucomp.codegen.llvm.ir.types import Type
from gpucomp.codegen.llvm.loops.nest import Entry, lower
from gpucomp.device.limits import Limits
from gpucomp.device.target import Target
from gpucomp.expr.core import Expr, Var
from gpucomp.ir.extremes import smallest
from gpucomp.ir.size import Size, bounds, is_one, is_zero, same
from gpucomp.ir.types import BOOL, F32
from gpucomp.kernel import Kernel
from gpucomp.kernel.forms.causal import NOT_CAUSAL
from gpucomp.kernel.source import Emitted
from gpucomp.schedule.space import Schedule

UNROLL = 4  # points of depth, and keys, that are unrolled in the innermost loops
LEFT = 2  # sizes of a block for the keys after whole blocks, if these differ from run to run


class _Tile(Scratch):
    """The function of a tile: ``void NAME.V(ptr ..., i64 batch, i64 row)``.

    It computes ``V`` vectors of rows from ``row`` on.
    """

    def __init__(self, kernel: Kernel, s: AttentionSchedule, vectors: int, caller: Entry) -> None:
        self.entry = Entry(kernel, f"{caller.name}.{vectors}", caller.target)
        self.entry.code.share_sizes(caller.code)
        super().__init__(self.entry.code, Type("float", s.lanes))
        self.batch, self.row = self.entry.first, self.entry.last
        self.parts, self.vectors, self.lanes = parts_of(kernel), vectors, s.lanes
        self.rows = vectors * s.lanes  # rows of the tile, and the distance between points of the head, or between keys
        self.m, self.n = self.parts.rows.extent, self.parts.cols.extent
        self.d = derive(s, problem(kernel))
        self.block = RegisterBlock(self.code, F32, s.lanes, UNROLL)
        self.bound: dict[Expr, LaneValue] = {self.parts.batch: self.batch}
        d, parts = self.d, self.parts
        self.queries = self._room(d.head * self.rows)
        self.sums = self._room(d.means * self.rows)
        self.weights = self._room(max(d.tile_n, d.means) * self.rows)
        self.copied_keys = None if parts.key_rows else self._room(d.tile_n * d.head)
        self.copied_values = None if parts.value_rows else self._room(d.tile_n * d.means)
        self.turned = [self._room((d.tile_n + s.lanes) * self.rows) for _ in parts.turned]
        axes = [parts.batch, parts.rows, parts.cols]
        self.score = lower([parts.score], [*axes, parts.dot, *(name for name, _ in parts.turned)])
        self.top = [self.code.slot(self.vector) for _ in range(vectors)]
        self.total = [self.code.slot(self.vector) for _ in range(vectors)]

    def emit(self) -> str:
        code = self.code
        self.masks: list[Value | None] = [None] * self.vectors
        if not is_zero(self.m % self.lanes):
            left = code.convert("trunc", code.integer(self.m) - self.row - (self.rows - self.lanes), "i32")
            self.masks[-1] = code.vector(list(range(self.lanes)), "i32").compare("slt", left)
        self._turn_queries()
        for top, total in zip(self.top, self.total, strict=True):
            top.set(code.const(-math.inf, self.vector))
            total.set(code.const(0.0, self.vector))
        limit = self._limit()
        if is_one(self.d.blocks):
            self._keys(code.integer(0), limit, first=True)
        elif isinstance(self.d.blocks, Size):
            with code.loop(0, limit, self.d.tile_n) as n0:
                self._keys(n0, limit, first=n0.equals(0))
        else:
            zero = code.const(0.0, self.vector)
            with code.loop(0, self.parts.values.extent * self.rows, self.lanes) as at:
                self._store(zero, self.sums, at)
            with code.loop(0, limit, self.d.tile_n) as n0:
                self._keys(n0, limit, first=False)
        self._finish()
        return self.entry.text()

    def _turn_queries(self) -> None:
        """Transposes the queries. Rows past the end repeat the last one and are never stored."""
        code, parts = self.code, self.parts
        program = lower([parts.q], [parts.batch, parts.rows, parts.depth])
        with code.loop(0, self.vectors) as v:
            first = self.row + v * self.lanes

            def square(at: Value, mask: Value | None) -> None:
                loaded = []
                for lane in range(self.lanes):
                    bound = {**self.bound, parts.rows: self._inside(first + lane), parts.depth: Affine(at, 1)}
                    printer = self.entry.printer(program, bound, self.lanes, mask)
                    loaded.append(arithmetic.cast(printer.lanes(program.results[0]), parts.q.dtype, F32))
                for lane, turned in enumerate(transpose(loaded)):
                    self._store(turned, self.queries, (at + lane) * self.rows + v * self.lanes)

            self.entry.chunks(0, parts.depth.extent, self.lanes, square, parts.depth.extent)

    def _inside(self, row: Value) -> Value:
        return row if is_zero(self.m % self.lanes) else self.code.minimum(row, self.m - 1)

    def _limit(self) -> Value:
        """The columns that some row of the tile may attend to, rounded up to whole register blocks."""
        code, parts = self.code, self.parts
        if parts.last is not None:
            rows = (
                self.rows if is_zero(self.m % self.rows) else code.minimum(code.integer(self.m) - self.row, self.rows)
            )
            seen = columns_seen(self.entry, parts, self.bound, self.row, rows) + (self.d.block_keys - 1)
            return code.minimum(seen.integer_op("udiv", self.d.block_keys) * self.d.block_keys, self.n)
        if not self._is_causal():
            return code.integer(self.n)
        last = code.minimum(self.row + self.rows, self.m) - 1
        if not same(parts.last_rows, self.m):  # a tile that continues in the next rows contains their largest index
            begins, ends = (at.integer_op("udiv", parts.last_rows) for at in (self.row, last))
            index = last.integer_op("urem", parts.last_rows)
            last = code.select(begins.equals(ends), index, code.integer(parts.last_rows - 1))
        blocks = (last + (parts.causal + self.d.block_keys)).integer_op("udiv", self.d.block_keys)
        return code.minimum(blocks * self.d.block_keys, self.n)

    def _is_causal(self) -> bool:
        return not same(self.parts.causal, NOT_CAUSAL)

    # a block of keys

    def _keys(self, n0: Value, limit: Value, *, first: bool | Value) -> None:
        """Handles the keys from ``n0`` to ``limit``, at most ``tile_n``. ``first``: there are no keys before these."""
        code, d = self.code, self.d
        count = limit - n0
        if first is not True:
            even = is_zero(self.n % d.tile_n) and not self._is_causal() and self.parts.last is None
            count = code.integer(d.tile_n) if even else code.minimum(count, d.tile_n)
        if self.copied_keys is not None:
            self._copy(self.parts.k, self.parts.depth, n0, count, self.copied_keys, d.head)
        if self.copied_values is not None:
            self._copy(self.parts.v, self.parts.values, n0, count, self.copied_values, d.means)
        for number in range(len(self.turned)):
            self._turn(number, n0, count)
        before = [top.get() for top in self.top]
        rest = self.n % d.block_keys
        if isinstance(rest, Size):
            self._some_blocks(count, d.block_keys, lambda j, keys, sure: self._scores(n0, j, keys, count, sure))
        else:
            last = (n0 + count).equals(self.n)
            self._blocks(count, d.block_keys, rest, last, lambda j, keys: self._scores(n0, j, keys, count, keys))
        shrunk = self._weigh(before, count, first=first)
        values = self.parts.values.extent
        means = partial(self._means, n0, count, shrunk, None if isinstance(first, bool) else first)
        self._blocks(code.integer(values), d.columns, values % d.columns, None, means)

    def _blocks(
        self, count: Value, size: int, rest: int, last: Value | None, body: Callable[[Value, int], None]
    ) -> None:
        """Writes ``body(position, size)`` for whole blocks of ``count``, then for ``rest`` if ``last`` holds."""
        code = self.code
        if count.text.startswith("%"):
            whole = count - count.integer_op("urem", size)
        else:  # a constant
            whole = code.integer(int(count.text) // size * size)
        with code.loop(0, whole, size) as at:
            body(at, size)
        if rest and last is not None:
            with code.when(last):
                body(whole, rest)
        elif rest:
            body(whole, rest)

    def _some_blocks(self, count: Value, size: int, body: Callable[[Value, int, int], None]) -> None:
        """Writes ``body(position, size, size)`` for whole blocks of ``count``, then a block for what is left.

        That is ``body(position, most, sure)`` for what are at least ``sure`` keys and at most ``most``, one of a few sizes.
        """
        code = self.code
        whole = count - count.integer_op("urem", size)
        with code.loop(0, whole, size) as at:
            body(at, size, size)
        left, sure, step = count - whole, 1, -(-size // LEFT)
        while sure < size:
            most = min(sure + step, size) - 1
            with code.when((left >= sure) & (left <= most)):
                body(whole, most, sure)
            sure = most + 1

    def _copy(self, value: Expr, inner: Var, n0: Value, count: Value, room: Value, pitch: int) -> None:
        parts = self.parts
        program = lower([value], [parts.batch, parts.cols, inner])
        with self.code.loop(0, count) as j:

            def chunk(at: Value, mask: Value | None) -> None:
                bound = {**self.bound, parts.cols: n0 + j, inner: Affine(at, 1)}
                printer = self.entry.printer(program, bound, self.lanes, mask)
                element = arithmetic.cast(printer.lanes(program.results[0]), value.dtype, F32)
                self._store(element, room, j * pitch + at)

            self.entry.chunks(0, inner.extent, self.lanes, chunk, inner.extent)

    def _turn(self, number: int, n0: Value, count: Value) -> None:
        """Transposes, in squares of vectors, what the scores load along columns, so that lanes are rows."""
        code, parts = self.code, self.parts
        _, read = parts.turned[number]
        program = lower([read], [parts.batch, parts.rows, parts.cols])
        with code.loop(0, self.vectors) as v, code.loop(0, count, self.lanes) as j:
            first, column = self.row + v * self.lanes, n0 + j
            mask = None
            if not is_zero(self.n % self.lanes) or self.d.tile_n % self.lanes:
                left = code.convert("trunc", code.integer(self.n) - column, "i32")
                mask = code.vector(list(range(self.lanes)), "i32").compare("slt", left)
            loaded = []
            for lane in range(self.lanes):
                bound = {**self.bound, parts.rows: self._inside(first + lane), parts.cols: Affine(column, 1)}
                value = self.entry.printer(program, bound, self.lanes, mask).lanes(program.results[0])
                loaded.append(code.convert("zext", value, "i32") if read.dtype is BOOL else value)
            for lane, turned in enumerate(transpose(loaded)):
                self._store(turned, self.turned[number], (j + lane) * self.rows + v * self.lanes)

    def _turned_at(self, number: int, at: Value) -> Value:
        read = self.parts.turned[number][1]
        if read.dtype is not BOOL:
            return self._load(self.turned[number], at)
        return self.code.load(self._at(self.turned[number], at), self.vector.integer, 4).differs(0)

    def _scores(self, n0: Value, j: Value, keys: int, count: Value, sure: int) -> None:
        """Scores of ``keys`` keys from ``j`` on. Those after the first ``sure`` repeat the last one of ``count``."""
        code, parts = self.code, self.parts
        last = {i: code.minimum(j + i, count - 1) for i in range(sure, keys)}
        sums = self._slots(keys)
        for slot in (slot for line in sums for slot in line):
            slot.set(code.const(0.0, self.vector))
        start, row, step = self._read(parts.key_rows, self.copied_keys, self.d.head, n0, j)
        columns = Stream(self.queries, F32, self.rows, None, None)
        rows = [
            self._beside(start, i, row) if i < sure else (self._at(start, (last[i] - j) * row), 0) for i in range(keys)
        ]
        self.block.sum(rows, step, columns, code.integer(parts.depth.extent), sums)
        for i, line in enumerate(sums):
            for v, slot in enumerate(line):
                at = last.get(i, j + i) * self.rows + v * self.lanes
                bound: dict[Expr, LaneValue] = {
                    **self.bound,
                    parts.rows: Affine(self.row + v * self.lanes, 1),
                    parts.cols: n0 + j + i if i < sure else n0 + last[i],
                    parts.dot: slot.get(),
                }
                bound |= {name: self._turned_at(number, at) for number, (name, _) in enumerate(parts.turned)}
                score = self.entry.printer(self.score, bound, self.lanes, self.masks[v]).lanes(self.score.results[0])
                top = self.top[v].get()
                self.top[v].set(code.select(score > top, score, top))
                self._store(score, self.weights, at)

    def _beside(self, start: Value, number: int, distance: Any) -> Row:
        """Row ``number`` after ``start``: a constant offset from it, or an address, if the distance is a size."""
        if isinstance(distance, Size):
            return self._at(start, self.code.integer(distance) * number), 0
        return start, number * distance

    def _slots(self, count: int) -> list[list[Slot]]:
        return [[self.code.slot(self.vector) for _ in range(self.vectors)] for _ in range(count)]

    def _read(
        self, place: Rows | None, copied: Value | None, pitch: int, n0: Value, j: Value | int
    ) -> tuple[Value, Any, Any]:
        """The address of row ``n0 + j`` of keys or values, the distance between rows, and the distance within a row."""
        if place is None:
            assert copied is not None
            return self._at(copied, j * pitch if isinstance(j, Value) else j), pitch, 1
        assert place.row is not None
        program = lower([place.offset], [self.parts.batch, self.parts.cols])
        bound = {**self.bound, self.parts.cols: n0 + j}
        offset = self.entry.printer(program, bound, 0, None).value(program.results[0])
        return self._at(self.entry.params[place.source], offset), place.row, place.step

    def _weigh(self, before: Sequence[Value], count: Value, *, first: bool | Value) -> list[Value]:
        """Turns scores into weights. Returns the factors by which earlier sums shrink."""
        code = self.code
        tops = [top.get() for top in self.top]
        tops = [code.select(top.equals(-math.inf), 0.0, top) for top in tops]  # -inf - -inf would be NaN, and stay so
        shrunk = []
        if first is not True:  # what is -inf before the first key shrinks to 0
            shrunk = [vector_math.exp_below_zero(old - top) for old, top in zip(before, tops, strict=True)]
            for total, factor in zip(self.total, shrunk, strict=True):
                total.set(total.get() * factor)
        with code.loop(0, count) as j:
            for v, top in enumerate(tops):
                at = j * self.rows + v * self.lanes
                weight = vector_math.exp_below_zero(self._load(self.weights, at) - top)
                self._store(weight, self.weights, at)
                self.total[v].set(self.total[v].get() + weight)
        return shrunk

    def _means(
        self, n0: Value, count: Value, shrunk: Sequence[Value], first: Value | None, c: Value, columns: int
    ) -> None:
        """Adds values times weights, for ``columns`` values from ``c`` on.

        ``shrunk`` is empty for the first block of keys. If only the run knows which that is, ``first`` says so.
        """
        code = self.code
        sums = self._slots(columns)
        places = [[(c + i) * self.rows + v * self.lanes for v in range(self.vectors)] for i in range(columns)]
        for line, at in zip(sums, places, strict=True):
            for v, slot in enumerate(line):
                known = bool(shrunk) and first is None
                slot.set(self._load(self.sums, at[v]) * shrunk[v] if known else code.const(0.0, self.vector))
        if first is not None:
            with code.when(~first):
                for line, at in zip(sums, places, strict=True):
                    for v, slot in enumerate(line):
                        slot.set(self._load(self.sums, at[v]) * shrunk[v])
        start, row, step = self._read(self.parts.value_rows, self.copied_values, self.d.means, n0, 0)
        start = self._at(start, c * step)
        weights = Stream(self.weights, F32, self.rows, None, None)
        self.block.sum([self._beside(start, i, step) for i in range(columns)], row, weights, count, sums)
        for line, at in zip(sums, places, strict=True):
            for v, slot in enumerate(line):
                self._store(slot.get(), self.sums, at[v])

    # the end

    def _finish(self) -> None:
        """Transposes the means to rows, in the space of the weights, and stores them."""
        code, parts, pitch = self.code, self.parts, self.d.means
        one = code.const(1.0, self.vector)
        inverse = [one / total.get() for total in self.total]
        with code.loop(0, self.d.means, self.lanes) as c:
            for v in range(self.vectors):
                places = [(c + lane) * self.rows + v * self.lanes for lane in range(self.lanes)]
                turned = transpose([self._load(self.sums, at) * inverse[v] for at in places])
                for lane, mean in enumerate(turned):
                    self._store(mean, self.weights, c + (lane + v * self.lanes) * pitch)
        whole = is_zero(self.m % self.lanes)
        rows = self.rows if whole else code.minimum(code.integer(self.m) - self.row, self.rows)
        store_means(self.entry, parts, self.bound, self.lanes, self.weights, pitch, self.row, rows)


def emit_attention(kernel: Kernel, schedule: Schedule, name: str, target: Target) -> Emitted:
    """The functions' text and the number of tasks."""
    p = problem(kernel)
    s = fitted(AttentionSchedule(**schedule), p)
    d = derive(s, p)
    parts, entry = parts_of(kernel), Entry(kernel, name, target)
    code = entry.code
    arguments = "".join(f"ptr {p.text}, " for p in entry.params)
    functions: list[str] = []
    given: dict[int | str, str] = {}
    widths = widths_of(s, p)
    for width in widths:
        functions.append(_Tile(kernel, s, width, entry).emit())
        given[width] = arguments + ("ptr %sizes, " if code.sizes else "")
    few, splits = _few(s, p), _splits(p, target.limits)
    keys, tiles_of_batch = parts_of_keys(p.n, splits), d.tiles
    if splits > 1:  # also if none are few by this schedule: see ``part_floats``
        shared = entry.share(*shared_bytes(parts.batch.extent, keys, part_floats(MOST_ROWS, p.values)))
        arguments += "".join(f"ptr {value.text}, " for value in shared) if few else ""
    if few:
        functions.append(few_rows(kernel, entry, s.lanes, splits))
        given[FEW] = arguments + "ptr %sizes, "
    if few and splits > 1:  # a run of few rows has one tile, and so many tasks of each batch instead
        tiles_of_batch = d.tiles + (keys - 1) * (1 - smallest(1, p.m // (few + 1)))
    with code.loop(entry.first, entry.last) as task:
        batch, tile = entry.decompose(task, [parts.batch.extent, tiles_of_batch])
        row = (tile * d.base + code.minimum(tile, d.wider)) * s.lanes

        def call(width: int | str, *more: Value) -> None:
            numbers = ", ".join(f"i64 {value.text}" for value in (batch, *more))
            code.emit(f"call void @{name}.{width}({given[width]}{numbers})")

        def tiles() -> None:
            for width in widths:
                if isinstance(d.base, Size) or isinstance(d.wider, Size):
                    wide = (code.select(tile < d.wider, 1, code.integer(0)) + d.base).equals(width)
                else:
                    wide = tile < d.wider if width > d.base else tile >= d.wider
                with code.when(wide):
                    call(width, row)

        def tiles_or_few(*parts: Value) -> None:
            are_few = code.integer(p.m) - row <= few
            with code.when(are_few):
                call(FEW, row, *parts)
            with code.when(~are_few):
                tiles()

        zero, one = code.integer(0), code.integer(1)
        if not few:
            tiles()
        elif splits == 1:
            tiles_or_few()
        else:
            alone = code.integer(p.m) <= few
            with code.when(alone):
                call(FEW, zero, tile, code.integer(keys))
            with code.when(~alone):
                tiles_or_few(zero, one)
    return entry.emitted(parts.batch.extent * tiles_of_batch, functions)


def _splits(p: AttentionProblem, limits: Limits) -> int:
    """Among how many tasks runs of few rows divide the keys of a batch, if each run decides the number of rows."""
    has_few = isinstance(p.m, Size) and bounds(p.m)[0] <= MOST_ROWS
    return splits_of_range(p, MOST_ROWS, limits) if has_few else 1


def _few(s: AttentionSchedule, p: AttentionProblem) -> int:
    """From how many rows down ``few_rows`` is faster than a tile; 0 where a tile always has more, or each run has as many."""
    return s.lanes // 2 if isinstance(p.m, Size) and bounds(p.m)[0] <= s.lanes // 2 else 0
