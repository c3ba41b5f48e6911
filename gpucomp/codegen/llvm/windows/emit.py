"""Windows that slide over an image, channels last: depthwise convolutions and pooling, in registers.

Lanes run over channels. A tile is some neighbouring outputs of one row by one or a few vectors of channels. Each
element of the image is loaded once per tile and is used for every output that it belongs to. Halos are handled
separately: rows of the window outside the image are branched over, and tiles with columns outside are unrolled at a
fixed place, so that tiles in between need no checks. If the width differs from run to run, tiles at the right edge check each
column at run time, and each output. A skipped padding adds nothing to a sum. It is not multiplied by
its weight, because an infinite weight would make that NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from gpucomp.codegen.llvm.ir import arithmetic, storage
from gpucomp.codegen.llvm.ir.builder import Code, Slot, Value
from gpucomp.codegen.llvm.ir.printer import Affine, LaneValue
from gpucomp.codegen.llvm.ir.types import Type
from gpucomp.codegen.llvm.loops.nest import SMALLEST_TASK, Entry, Flattener, lane_index, lower
from gpucomp.device.target import Target
from gpucomp.expr.core import REDUCTIONS, Const, Expr, Load, Select, Var, call, hole, identity_of, var
from gpucomp.expr.simplify import linear
from gpucomp.ir.extremes import largest, smallest
from gpucomp.ir.size import Size, bounds, hint, is_zero
from gpucomp.ir.types import F32
from gpucomp.kernel import Kernel, Loops
from gpucomp.kernel.example import example_of, has_sizes
from gpucomp.kernel.forms.convolution import conjuncts
from gpucomp.kernel.forms.planes import limits_of
from gpucomp.kernel.forms.sliding import Slide, Sliding, depthwise_of, pooling_of
from gpucomp.kernel.source import Emitted
from gpucomp.refusal import Refusal, required
from gpucomp.schedule.space import Schedule

FEW_TAPS = 16  # loops compute their addresses anew for every tap, which is slower if strides are sizes
MOST_TAPS = 49  # most taps of a window that is unrolled
MOST_EDGE_TILES = 4  # most tiles that are unrolled at a fixed place
WIDEST_TILE = 8
SHORT_EPILOGUE = 14  # most statements that are unrolled over the outputs of a tile


@dataclass(frozen=True)
class Windows:
    """``sliding`` with the padding removed from its image.

    rows      the condition on ``place_y`` under which ``image`` may be read; ``None`` if it always may
    columns   the places along x where it may be read: from .. to (exclusive); each run can have its own
    """

    sliding: Sliding
    image: Expr
    rows: Expr | None
    columns: tuple[Any, Any]

    @property
    def taps(self) -> int:
        return self.sliding.y.taps * self.sliding.x.taps


@lru_cache(maxsize=512)  # each pass over a network asks for all of its kernels again
def windows_of(kernel: Kernel) -> Windows | Refusal:
    """The parts of a kernel that this engine computes, or the reason why it cannot."""
    found = depthwise_of(kernel) if isinstance(kernel.body, Loops) else pooling_of(kernel)
    if isinstance(found, Refusal):
        return found
    if found.total.dtype is not F32:
        return Refusal("not f32")
    if found.y.taps * found.x.taps > MOST_TAPS:
        return Refusal(f"more than {MOST_TAPS} taps")
    if isinstance(found.image, Select):
        halo = found.image.otherwise
        neutral = identity_of(found.op, F32) if found.weight is None else 0.0
        if not isinstance(halo, Const) or halo.value != neutral:
            return Refusal("the padding is not neutral for the reduction")
    return framed(found, found.image)


def framed(found: Sliding, image: Expr) -> Windows | Refusal:
    """``image`` without padding that frames it, or the reason why the padding has another form."""
    low, high = 0, found.x.reach(found.x.outputs)
    if not isinstance(image, Select):
        return Windows(found, image, None, (low, high))
    rows: Expr | None = None
    for part in conjuncts(image.condition):
        names = {v.name for v in part.free}
        if names == {"place_y"}:
            rows = part if rows is None else call("and", rows, part)
            continue
        limits = limits_of(part)
        if names != {"place_x"} or limits is None:
            return Refusal("the padding is not a frame around the image")
        low, high = largest(low, limits[0]), smallest(high, limits[1])
    return Windows(found, image.then, rows, (low, largest(low, high)))


def slide(outputs: int, taps: int, stride: int, dilation: int) -> Slide:
    """A slide of these sizes that belongs to no kernel."""
    return Slide(var("out", outputs), var("tap", taps), stride, dilation)


def edge_tiles(x: Slide, columns: tuple[int, int], tile: int) -> tuple[list[int], list[int]]:
    """The first outputs of unrolled tiles, and of the tiles in between, which read only inside the image.

    A narrower last tile is among the unrolled ones.
    """
    edges: list[int] = []
    inside: list[int] = []
    for start in range(0, x.outputs, tile):
        width = min(tile, x.outputs - start)
        first = start * x.stride
        last = (start + width - 1) * x.stride + (x.taps - 1) * x.dilation
        whole = width == tile and columns[0] <= first and last < columns[1]
        (inside if whole else edges).append(start)
    return edges, inside


def accepts(kernel: Kernel, features: frozenset[str]) -> str:
    found = windows_of(kernel)
    if isinstance(found, Refusal):
        return found.reason
    if found.sliding.weight is None and found.taps <= FEW_TAPS and not has_sizes(kernel):
        return f"plain loops unroll up to {FEW_TAPS} taps of a pool and are as fast"
    small = required(windows_of(example_of(kernel)))
    if all(len(edge_tiles(small.sliding.x, small.columns, t)[0]) > MOST_EDGE_TILES for t in range(1, WIDEST_TILE + 1)):
        return "the padding reaches too far into the image"
    return ""


@dataclass(frozen=True)
class Tile:
    """Where a tile is: its first output, the number of outputs, and whether its columns are known to be inside."""

    start: Value
    width: int
    fixed: int | None  # the first output as a number, for a tile whose columns may lie outside
    checked: bool = False  # columns may lie outside, and there may be fewer outputs

    def is_inside(self, place: int, x: Slide, columns: tuple[Any, Any]) -> bool:
        """Whether a column of a tile at a fixed place is in the image. In a row that is wide enough, none is after it."""
        if self.fixed is None:
            return True
        low, high = columns
        column = self.fixed * x.stride + place
        return bool(low <= column) and (isinstance(high, Size) or bool(column < high))

    def reads(self, place: int, x: Slide, columns: tuple[Any, Any]) -> Value:
        """Whether a column of a tile that is checked is in the image."""
        low, high = columns
        column: Value = self.start * x.stride - low + place
        return column.compare("ult", high - low)


@dataclass(frozen=True)
class AnyTiles:
    """The tiles of a row if its outputs or columns differ from run to run: those inside are ``first .. end``.

    left   the first outputs of tiles before ``first`` that can be unrolled at their places, if the row is wide enough
    stop   where the other outputs end, if those inside are left out
    """

    first: int
    end: Any
    left: tuple[int, ...]
    stop: Any

    @staticmethod
    def of(x: Slide, columns: tuple[Any, Any], tile: int) -> AnyTiles | None:
        """``None`` if all runs have the same tiles."""
        low, high = columns
        if not any(isinstance(n, Size) for n in (x.outputs, low, high)):
            return None
        first = -(-bounds(low)[1] // (x.stride * tile)) * tile
        last = smallest(x.outputs, (high - 1 - (x.taps - 1) * x.dilation) // x.stride + 1) - tile
        end = first + largest((last - first) // tile + 1, 0) * tile
        fixed = not isinstance(low, Size) and first <= tile * MOST_EDGE_TILES
        left = tuple(range(0, first, tile)) if fixed else ()
        return AnyTiles(first, end, left, -(-x.outputs // tile) * tile - (end - first))

    def _is_wide(self, code: Code, x: Slide, columns: tuple[Any, Any]) -> Value:
        """Whether the tiles of ``left`` are whole and have no columns past the image."""
        whole: Value = code.integer(x.outputs) >= self.first
        last = (self.first - 1) * x.stride + (x.taps - 1) * x.dilation
        return whole & (code.integer(columns[1]) > last)

    def each(self, code: Code, x: Slide, columns: tuple[Any, Any], tile: int, body: Callable[[Tile], None]) -> None:
        """Writes ``body`` for the tiles of a row."""
        begin: Value | int = 0
        if self.left:
            wide = self._is_wide(code, x, columns)
            with code.when(wide):
                for first in self.left:
                    body(Tile(code.integer(first), tile, first))
            begin = code.select(wide, self.first, code.integer(0))
        with code.loop(self.first, self.end, tile) as at:
            body(Tile(at, tile, None))
        with code.loop(begin, self.stop, tile) as at:
            body(Tile(self._other(at), tile, None, checked=True))

    def _other(self, at: Value) -> Value:
        """The first output of the tile at ``at``, if those inside are left out."""
        inside = at.code.integer(self.end - self.first)
        return at + (at.code.select(at < self.first, 0, inside) if self.first else inside)


class _Element:
    """An element of the image or of the weights, as it moves along one axis.

    A plain load that moves by a constant step has its address computed once; other elements are at constant offsets.
    """

    def __init__(self, value: Expr, axes: Sequence[Expr], axis: Var | None) -> None:
        self.axis = axis
        self.step: Any = 0
        self.program = lower([value], axes, 16)
        match value:
            case Load(source=source, index=(offset,), dtype=dtype) if dtype is F32 and axis is not None:
                _, terms = linear(offset)
                step = terms.pop(axis, 0)
                if not is_zero(step) and not any(axis in term.free for term in terms):
                    self.step, self.source = step, source
                    self.address = lower([offset], axes, 16)

    def along(self, work: _Emitter, start: Value, mask: Value | None) -> Callable[[int], Value]:
        """A function from ``n`` to the element ``n`` places after ``start``."""
        entry, code = work.entry, work.code

        def printed(n: int) -> Value:
            if self.axis is not None:
                work.bound[self.axis] = start + n
            return entry.printer(self.program, work.bound, work.lanes, mask).lanes(self.program.results[0])

        if is_zero(self.step):
            return printed
        assert self.axis is not None
        work.bound[self.axis] = start
        offset = entry.printer(self.address, work.bound, work.lanes, mask).operand(self.address.results[0])
        if not isinstance(offset, Affine) or offset.stride != 1:
            return printed
        base = code.gep(entry.params[self.source], offset.base, "float")
        type = Type("float", work.lanes)

        def beside(n: int) -> Value:
            at = code.gep(base, code.integer(self.step) * n, "float") if n else base
            return code.load(at, type, 4) if mask is None else code.masked_load(at, type, mask)

        return beside


class _Emitter:
    def __init__(self, kernel: Kernel, found: Windows, schedule: Schedule, name: str, target: Target) -> None:
        self.entry = Entry(kernel, name, target)
        self.code, self.found, self.schedule = self.entry.code, found, schedule
        self.s = found.sliding
        self.lanes = schedule["lanes"]
        while self.lanes > 2 and self.s.channel.extent <= self.lanes // 2:
            self.lanes //= 2
        acc = hole("acc", F32)
        flat = Flattener(kernel.params)
        self.acc = self.s.total if not isinstance(kernel.body, Loops) else acc
        self.stores = flat.stores(kernel, {} if self.acc is self.s.total else {self.s.total: acc})
        free = {v.name: v for e in (found.image, found.rows) if e is not None for v in e.free}
        self.place_y, self.place_x = free.get("place_y"), free.get("place_x")
        outputs = [v for v in (self.s.y.out, self.s.x.out) if v is not None]
        axes = [*self.s.lead, self.s.channel]
        places = [v for v in (self.place_y, self.place_x) if v is not None]
        taps = [v for v in (self.s.y.tap, self.s.x.tap) if v is not None]
        unroll = 16
        self.image = _Element(flat(found.image), [*axes, *places], self.place_x)
        self.weight = _Element(flat(self.s.weight), [*axes, *taps], self.s.x.tap) if self.s.weight is not None else None
        self.rows = lower([found.rows], places, unroll) if found.rows is not None else None
        self.epilogue = lower(
            [e for store in self.stores for e in (store.offset, store.value)], [*axes, *outputs, self.acc], unroll
        )
        self.bound: dict[Expr, LaneValue] = {}

    def text(self) -> Emitted:
        code, s, entry = self.code, self.s, self.entry
        tile, vectors = self.schedule["tile_x"], self.schedule["vectors"]
        step = self.lanes * vectors
        channels = s.channel.extent
        whole = channels - channels % self.lanes
        rows = [*s.lead, *([s.y.out] if s.y.out is not None else [])]
        count = math.prod(a.extent for a in rows)
        blocks, block = self._channel_blocks(count, whole, step)
        several = AnyTiles.of(s.x, self.found.columns, tile)
        edges, inside = edge_tiles(s.x, self.found.columns, tile) if several is None else ([], [])
        with code.loop(entry.first, entry.last) as task:
            parts = entry.decompose(task, [*(a.extent for a in rows), blocks])
            self.bound.update(zip(rows, parts, strict=False))
            start: Value | int = parts[-1] * block if blocks > 1 else 0
            stop: Value | int = code.minimum(parts[-1] * block + block, whole) if blocks > 1 else whole
            last = None if blocks == 1 else parts[-1].equals(blocks - 1)
            for first in edges:
                at = Tile(code.integer(first), min(tile, s.x.outputs - first), first)
                self._channels(at, start, stop, last, vectors)
            if inside:
                with code.loop(inside[0], inside[-1] + tile, tile) as x:
                    self._channels(Tile(x, tile, None), start, stop, last, vectors)
            if several is not None:
                each = partial(self._channels, start=start, stop=stop, last=last, vectors=vectors)
                several.each(code, s.x, self.found.columns, tile, each)
        return entry.emitted(count * blocks)

    def _channel_blocks(self, rows: Any, whole: int, step: int) -> tuple[int, int]:
        """The number of parts of the channels, and the channels in each, if rows make too few tasks."""
        s, rows = self.s, max(1, int(hint(rows)))
        work = hint(s.x.outputs) * s.channel.extent * self.found.taps * rows / self.lanes
        wanted = max(1, min(self.schedule["tasks"], int(4 * work / SMALLEST_TASK)))
        blocks = max(1, min(-(-wanted // rows), whole // step))
        block = -(-whole // step // blocks) * step if whole else 0
        return (-(-whole // block), block) if block else (1, 0)

    def _channels(self, at: Tile, start: Value | int, stop: Value | int, last: Value | None, vectors: int) -> None:
        """The tile for channels ``start .. stop``, and, with ``last``, for the channels that do not fill a vector."""
        code, step, channels = self.code, self.lanes * vectors, self.s.channel.extent
        whole = channels - channels % self.lanes
        even = whole - whole % step
        if even:
            limit = stop if isinstance(stop, int) else code.minimum(stop, even)
            limit = min(limit, even) if isinstance(limit, int) else limit
            with code.loop(start, limit, step) as channel:
                self._tile(at, channel, vectors, None)
        with self._if(last):
            if even < whole:
                self._tile(at, code.integer(even), (whole - even) // self.lanes, None)
            if whole < channels:
                self._tile(at, code.integer(whole), 1, self.entry.prefix_mask(channels - whole, self.lanes))

    @contextmanager
    def _if(self, condition: Value | None) -> Iterator[None]:
        if condition is None:
            yield
        else:
            with self.code.when(condition):
                yield

    def _tile(self, at: Tile, channel: Value, vectors: int, mask: Value | None) -> None:
        code, s = self.code, self.s
        neutral = arithmetic.constant(code, identity_of(s.op, F32), F32, self.lanes)
        type = Type(storage.register_scalar(F32), self.lanes)
        sums = [[code.slot(type) for _ in range(vectors)] for _ in range(at.width)]
        for slot in (slot for row in sums for slot in row):
            slot.set(neutral)
        top = self._output(s.y) * s.y.stride
        for r in range(s.y.taps):
            if self.place_y is not None:
                self.bound[self.place_y] = top + r * s.y.dilation
            if s.y.tap is not None:
                self.bound[s.y.tap] = code.integer(r)
            inside = None
            if self.rows is not None:
                inside = self.entry.printer(self.rows, self.bound, 0, None).value(self.rows.results[0])
            with self._if(inside):
                (self._checked_row if at.checked else self._row)(at, channel, sums, mask)
        if at.width == 1 or len(self.epilogue.block.statements) <= SHORT_EPILOGUE:
            for i, row in enumerate(sums):
                exists = at.start + i < s.x.outputs if at.checked and i else None
                with self._if(exists):
                    self._store(at.start + i, channel, [slot.get() for slot in row], mask)
            return
        # many statements: a loop over sums in memory
        size = self.lanes * 4
        room = code.stack(f"[{at.width * vectors} x {type}]", 64)
        for i, row in enumerate(sums):
            for k, slot in enumerate(row):
                code.store(slot.get(), code.gep(room, (i * vectors + k) * size, "i8"))
        count = code.minimum(code.integer(s.x.outputs) - at.start, at.width) if at.checked else at.width
        with code.loop(0, count) as output:
            here = code.gep(room, output * (vectors * size), "i8")
            loaded = [code.load(code.gep(here, k * size, "i8"), type) for k in range(vectors)]
            self._store(at.start + output, channel, loaded, mask)

    def _store(self, output: Value, channel: Value, sums: Sequence[Value], mask: Value | None) -> None:
        """Stores the results at ``output`` for vectors of channels from ``channel`` on."""
        if self.s.x.out is not None:
            self.bound[self.s.x.out] = output
        for k, total in enumerate(sums):
            self.bound[self.s.channel] = lane_index(channel + k * self.lanes, self.lanes)
            self.bound[self.acc] = total
            printer = self.entry.printer(self.epilogue, self.bound, self.lanes, mask)
            for number, store in enumerate(self.stores):
                printer.store(store.target, *self.epilogue.results[2 * number : 2 * number + 2])

    def _row(self, at: Tile, channel: Value, sums: Sequence[Sequence[Slot]], mask: Value | None) -> None:
        """One row of the window: applies each column of the image that the tile reads to the outputs it belongs to."""
        code, s = self.code, self.s
        uses = s.x.uses(at.width)
        uses = {place: found for place, found in uses.items() if at.is_inside(place, s.x, self.found.columns)}
        for k in range(len(sums[0])):
            self.bound[s.channel] = lane_index(channel + k * self.lanes, self.lanes)
            columns = self.image.along(self, at.start * s.x.stride, mask)
            taps = self.weight.along(self, code.integer(0), mask) if self.weight is not None else None
            weights: dict[int, Value] = {}
            totals = [row[k].get() for row in sums]
            for place in sorted(uses):
                element = columns(place)
                for i, tap in uses[place]:
                    if taps is None:
                        totals[i] = arithmetic.apply(REDUCTIONS[s.op], F32, [totals[i], element])
                        continue
                    if tap not in weights:
                        weights[tap] = taps(tap)
                    totals[i] = element.muladd(weights[tap], totals[i])
            for row, total in zip(sums, totals, strict=True):
                row[k].set(total)

    def _checked_row(self, at: Tile, channel: Value, sums: Sequence[Sequence[Slot]], mask: Value | None) -> None:
        """``_row`` for a tile whose columns can be outside of the image: each is branched over."""
        code, s = self.code, self.s
        uses = s.x.uses(at.width)
        images, weights = [], []
        for k in range(len(sums[0])):
            self.bound[s.channel] = lane_index(channel + k * self.lanes, self.lanes)
            images.append(self.image.along(self, at.start * s.x.stride, mask))
            taps = self.weight.along(self, code.integer(0), mask) if self.weight is not None else None
            weights.append([taps(tap) for tap in range(s.x.taps)] if taps is not None else None)
        for place in sorted(uses):
            with code.when(at.reads(place, s.x, self.found.columns)):
                for k, (columns, taken) in enumerate(zip(images, weights, strict=True)):
                    self.bound[s.channel] = lane_index(channel + k * self.lanes, self.lanes)
                    element = columns(place)
                    for i, tap in uses[place]:
                        self._add(sums[i][k], element, None if taken is None else taken[tap])

    def _add(self, total: Slot, element: Value, weight: Value | None) -> None:
        if weight is None:
            total.set(arithmetic.apply(REDUCTIONS[self.s.op], F32, [total.get(), element]))
        else:
            total.set(element.muladd(weight, total.get()))

    def _output(self, slide: Slide) -> Value:
        found = self.bound[slide.out] if slide.out is not None else self.code.integer(0)
        assert isinstance(found, Value)
        return found


def emit_windows(kernel: Kernel, schedule: Schedule, name: str, target: Target) -> Emitted:
    """The function and its number of tasks."""
    found = required(windows_of(kernel))
    return _Emitter(kernel, found, schedule, name, target).text()
