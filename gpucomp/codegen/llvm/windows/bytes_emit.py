"""Depthwise convolutions of bytes, channels last: i32 sums in registers, by dot products of neighbouring rows.

    task (lead, some rows of the result, some vectors of channels):
        the weights of each vector as words                             (a word: one column's taps of 4 rows, or of 2)
        for each row of the result, each tile of its columns, each vector:
            word = the image's rows, combined, once for every column that the tile reads
            sums[output] += word . weights[column's tap]                for every output that the column belongs to
            the stores, with the sums in registers

With ``vpdpbusd`` a word is four bytes, one factor unsigned and one signed; signed images are read as ``byte + 128``.
Without it, and for weights that do not fit a byte, a word is two 16-bit integers for ``vpmaddwd``. Offsets of the
bytes, a zero point or those 128, are subtracted at the start: sum (u + o) w = sum u w + o sum w. Padding is a byte like
any other: rows outside the image are read from a line of padding. If the width differs from run to run, that line is as long
as a tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from gpucomp.codegen.llvm.core_space import LINE
from gpucomp.codegen.llvm.ir.builder import Value
from gpucomp.codegen.llvm.ir.printer import LaneValue
from gpucomp.codegen.llvm.ir.types import Type
from gpucomp.codegen.llvm.loops.nest import SMALLEST_TASK, Entry, Flattener, lane_index, lower
from gpucomp.codegen.llvm.windows.emit import (
    MOST_EDGE_TILES,
    MOST_TAPS,
    WIDEST_TILE,
    AnyTiles,
    Tile,
    Windows,
    edge_tiles,
    framed,
)
from gpucomp.device.target import Target
from gpucomp.expr.core import Cast, Const, Expr, Load, Select, hole, index, literal, select, substitute, walk
from gpucomp.expr.simplify import bounds, coefficient, simplify
from gpucomp.ir.size import Size, hint
from gpucomp.ir.types import I8, I32, U8
from gpucomp.kernel import Kernel, Loops
from gpucomp.kernel.example import example_of
from gpucomp.kernel.forms.sliding import depthwise_of
from gpucomp.kernel.passes.narrow_integers import split_offset
from gpucomp.kernel.source import Emitted
from gpucomp.refusal import Refusal, required
from gpucomp.schedule.space import Schedule

MOST_HALO = 1 << 17  # most bytes of the line that is read for rows outside the image
FEWEST_LANES = 4
DOTS = frozenset({"avx512vnni", "avxvnni"})
PAIRS = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}
FLIP = 0x80808080


@dataclass(frozen=True)
class ByteWindows:
    """A depthwise convolution of bytes. An element of the image, or of its padding, is ``byte + offset``.

    windows   its image is a plain load of bytes
    padding   the byte outside the image
    signed    whether bytes are signed
    weights   the smallest and the largest possible weight
    """

    windows: Windows
    offset: int
    padding: int
    signed: bool
    weights: tuple[int, int]


def byte_windows_of(kernel: Kernel) -> ByteWindows | Refusal:
    """The parts of a kernel that this engine computes, or the reason why it cannot."""
    if not isinstance(kernel.body, Loops):
        return Refusal("no depthwise convolution")
    found = depthwise_of(kernel, (I32,))
    if isinstance(found, Refusal):
        return found
    apart = split_offset(found.image)
    if apart is None:
        return Refusal("the image is wider than a byte")
    element, offset = apart
    padding = 0
    match element:
        case Select(condition=condition, then=Cast(value=image), otherwise=Const(value=code)):
            padding = int(code)
            wanted: Expr = select(condition, image, literal(padding, image.dtype))
        case Cast(value=image):
            wanted = image
        case _:
            return Refusal("the padding is not a number")
    if not isinstance(image, Load) or any(isinstance(n, Load) for place in image.index for n in walk(place)):
        return Refusal("the image is computed")
    if image.dtype not in (I8, U8):
        return Refusal("the image is wider than a byte")
    low, high = (-128, 127) if image.dtype is I8 else (0, 255)
    if not low <= padding <= high:
        return Refusal("the padding is not a byte")
    assert found.weight is not None
    weights = bounds(found.weight)
    if not -(1 << 15) <= weights[0] <= weights[1] < 1 << 15:
        return Refusal("weights are wider than 16 bits")
    windows = framed(found, wanted)
    if isinstance(windows, Refusal):
        return windows
    return ByteWindows(windows, offset, padding, image.dtype is I8, (int(weights[0]), int(weights[1])))


def accepts(kernel: Kernel, features: frozenset[str]) -> str:
    found = byte_windows_of(kernel)
    if isinstance(found, Refusal):
        return found.reason
    if "sse4.1" not in features:
        return "no x86 processor"
    windows = found.windows
    if windows.taps > MOST_TAPS:
        return f"more than {MOST_TAPS} taps"
    if _halo_bytes(kernel, windows, WIDEST_TILE) > MOST_HALO:
        return f"a line of the image has more than {MOST_HALO} bytes"
    small = required(byte_windows_of(example_of(kernel))).windows
    slide = small.sliding.x
    if all(len(edge_tiles(slide, small.columns, t)[0]) > MOST_EDGE_TILES for t in range(1, WIDEST_TILE + 1)):
        return "the padding reaches too far into the image"
    return ""


def words(found: Windows, group: int) -> int:
    """Words per column of the window."""
    return -(-found.sliding.y.taps // group)


def _step(kernel: Kernel, found: Windows) -> Any:
    """Bytes from one place along x to the next; ``None`` if the distance varies."""
    place = next((v for v in found.image.free if v.name == "place_x"), None)
    if place is None:
        return 0
    (offset,) = Flattener(kernel.params)(found.image).index  # type: ignore[attr-defined]
    return coefficient(offset, place)


def _halo_bytes(kernel: Kernel, found: Windows, tile: int) -> int:
    """Bytes in a line of the image, as far as windows reach; as far as a tile reaches, if lines have any length."""
    step = _step(kernel, found)
    if step is None or isinstance(step, Size) or step < 0:
        return MOST_HALO + 1
    low, high = found.columns
    reach = high - low
    if AnyTiles.of(found.sliding.x, found.columns, tile) is not None:
        reach = found.sliding.x.reach(tile)
    return int(max(0, reach - 1) * step + found.sliding.channel.extent)


class _Emitter:
    def __init__(self, kernel: Kernel, found: ByteWindows, schedule: Schedule, name: str, target: Target) -> None:
        self.entry = Entry(kernel, name, target)
        self.code, self.found, self.schedule = self.entry.code, found, schedule
        self.windows, self.s = found.windows, found.windows.sliding
        s = self.s
        self.lanes = schedule["lanes"]
        while self.lanes > FEWEST_LANES and s.channel.extent <= self.lanes // 2:
            self.lanes //= 2
        self.dots = bool(target.features & DOTS) and found.weights[0] >= -128 and found.weights[1] <= 127
        self.group = 4 if self.dots else 2
        self.words = words(self.windows, self.group)
        self.offset = found.offset - (128 if self.dots and found.signed else 0)
        self.type = Type("i32", self.lanes)
        flat = Flattener(kernel.params)
        image = flat(self.windows.image)
        assert isinstance(image, Load)
        self.source = image.source
        places = {v.name: v for v in image.free if v.name in {"place_y", "place_x"}}
        self.place_y = places.get("place_y")
        if self.windows.rows is not None and self.place_y is None:
            (self.place_y,) = self.windows.rows.free
        step = _step(kernel, self.windows)
        assert step is not None
        self.step = step
        zero: dict[Expr, Expr] = {v: index(0) for v in (places.get("place_x"), s.channel) if v is not None}
        outer = [*s.lead, *([self.place_y] if self.place_y is not None else [])]
        self.line = lower([simplify(substitute(image.index[0], zero))], outer)
        self.rows = lower([self.windows.rows], outer) if self.windows.rows is not None else None
        assert s.weight is not None
        taps = [v for v in (s.y.tap, s.x.tap) if v is not None]
        self.weight = lower([flat(s.weight)], [s.channel, *taps])
        self.acc = hole("acc", I32)
        self.stores = flat.stores(kernel, {s.total: self.acc})
        outputs = [v for v in (s.y.out, s.x.out) if v is not None]
        self.epilogue = lower(
            [e for store in self.stores for e in (store.offset, store.value)], [*s.lead, s.channel, *outputs, self.acc]
        )
        self.bound: dict[Expr, LaneValue] = {}
        self.vectors = schedule["vectors"]
        self.weight_bytes = s.x.taps * self.words * self.lanes * 4  # bytes for a vector of channels
        self.weights = self.code.stack(f"[{self.vectors * self.weight_bytes} x i8]", LINE)
        self.starts = self.code.stack(f"[{self.vectors * self.lanes} x i32]", LINE)
        self.tiles = AnyTiles.of(s.x, self.windows.columns, schedule["tile_x"])
        if self.rows is not None:
            self.halo_bytes = -(-_halo_bytes(kernel, self.windows, schedule["tile_x"]) // LINE) * LINE
            self.halo = self.code.stack(f"[{self.halo_bytes} x i8]", LINE)

    def text(self) -> Emitted:
        code, s, entry = self.code, self.s, self.entry
        channels, out_y = s.channel.extent, s.y.outputs
        whole = channels // self.lanes
        groups = -(-channels // (self.lanes * self.vectors))
        lead = [a.extent for a in s.lead]
        parts = self._parts(math.prod(lead) * groups)
        rows = -(-out_y // parts)
        if not isinstance(rows, Size):
            parts = -(-out_y // rows)
        if self.rows is not None:
            self._fill_halo()
        with code.loop(entry.first, entry.last) as task:
            *at, part, group = entry.decompose(task, [*lead, parts, groups])
            self.bound.update(zip(s.lead, at, strict=True))
            first = group * self.vectors
            count = code.minimum(code.integer(whole) - first, self.vectors)
            last = group.equals(groups - 1)
            with code.loop(0, count) as vector:
                self._words_of_weights(vector, (first + vector) * self.lanes, None)
            mask = None
            if channels % self.lanes:
                mask = entry.prefix_mask(channels % self.lanes, self.lanes)
                with code.when(last):
                    self._words_of_weights(count, code.integer(whole * self.lanes), mask)
            top = part * rows
            with code.loop(top, code.minimum(top + rows, out_y)) as y:
                self._row(y, first, count, last, mask)
        return entry.emitted(math.prod(lead) * parts * groups)

    def _parts(self, others: Any) -> int:
        """The number of parts into which the rows of the result are divided. It is decided for the example."""
        s = self.s
        rows, several = int(hint(s.y.outputs)), max(1, int(hint(others)))
        work = int(hint(s.x.outputs)) * s.channel.extent * self.windows.taps * rows
        work *= math.prod(int(hint(a.extent)) for a in s.lead)
        wanted = max(1, min(self.schedule["tasks"], work // self.lanes // SMALLEST_TASK))
        return max(1, min(rows, -(-wanted // several)))

    def _fill_halo(self) -> None:
        code = self.code
        byte = self.found.padding & 0xFF
        line = code.const(byte - (256 if byte > 127 else 0), Type("i8", LINE))
        with code.loop(0, self.halo_bytes, LINE) as at:
            code.store(line, code.gep(self.halo, at, "i8"), LINE)

    # weights

    def _words_of_weights(self, vector: Value, channel: Value, mask: Value | None) -> None:
        """The weights of a vector of channels as words, and the initial values of its sums."""
        code, s = self.code, self.s
        self.bound[s.channel] = lane_index(channel, self.lanes)
        bits = 32 // self.group
        total = code.const(0, self.type)
        for x in range(s.x.taps):
            if s.x.tap is not None:
                self.bound[s.x.tap] = code.integer(x)
            for number in range(self.words):
                word = None
                for place, y in enumerate(range(number * self.group, min((number + 1) * self.group, s.y.taps))):
                    if s.y.tap is not None:
                        self.bound[s.y.tap] = code.integer(y)
                    printer = self.entry.printer(self.weight, self.bound, self.lanes, mask)
                    tap = printer.lanes(self.weight.results[0])
                    total = total + tap
                    part = (tap & ((1 << bits) - 1)) << (bits * place)
                    word = part if word is None else word | part
                assert word is not None
                code.store(word, self._weight_at(vector, x, number), 4)
        at = code.gep(self.starts, vector * self.lanes, "i32")
        code.store(total * self.offset, at, 4)

    def _weight_at(self, vector: Value, x: int, number: int) -> Value:
        at = vector * self.weight_bytes + (x * self.words + number) * self.lanes * 4
        return self.code.gep(self.weights, at, "i8")

    # a row of the result

    def _row(self, y: Value, first: Value, count: Value, last: Value, mask: Value | None) -> None:
        code, s = self.code, self.s
        if s.y.out is not None:
            self.bound[s.y.out] = y
        lines = [self._line(y * s.y.stride + r * s.y.dilation) for r in range(s.y.taps)]
        whole = s.channel.extent // self.lanes
        tile = self.schedule["tile_x"]

        def vectors(at: Tile) -> None:
            with code.loop(0, count) as vector:
                self._tile(at, lines, vector, (first + vector) * self.lanes, None)
            if mask is not None:
                with code.when(last):
                    self._tile(at, lines, count, code.integer(whole * self.lanes), mask)

        if self.tiles is not None:
            self.tiles.each(code, s.x, self.windows.columns, tile, vectors)
            return
        edges, inside = edge_tiles(s.x, self.windows.columns, tile)
        for start in edges:
            vectors(Tile(code.integer(start), min(tile, s.x.outputs - start), start))
        if inside:
            with code.loop(inside[0], inside[-1] + tile, tile) as x:
                vectors(Tile(x, tile, None))

    def _line(self, place: Value) -> tuple[Value, Value | None]:
        """The address of the image's row, at place 0 along x and channel 0.

        Also the bytes from output to output, if the line of padding is only as long as a tile: there they are 0.
        """
        code = self.code
        if self.place_y is not None:
            self.bound[self.place_y] = place
        offset = self.entry.printer(self.line, self.bound, 0, None).value(self.line.results[0])
        line = code.gep(self.entry.params[self.source], offset, "i8")
        if self.rows is None:
            return line, None
        inside = self.entry.printer(self.rows, self.bound, 0, None).value(self.rows.results[0])
        if self.tiles is not None:
            return code.select(inside, line, self.halo), code.select(
                inside, self.s.x.stride * self.step, code.integer(0)
            )
        outside = code.gep(self.halo, -self.windows.columns[0] * self.step, "i8")
        return code.select(inside, line, outside), None

    # a tile

    def _tile(
        self,
        at: Tile,
        lines: Sequence[tuple[Value, Value | None]],
        vector: Value,
        channel: Value,
        mask: Value | None,
    ) -> None:
        code, s = self.code, self.s
        start = code.load(code.gep(self.starts, vector * self.lanes, "i32"), self.type, 4)
        here = at.start * (s.x.stride * self.step) + channel
        columns = [
            code.gep(line, here if advance is None else at.start * advance + channel, "i8") for line, advance in lines
        ]
        if at.checked:
            self._checked_outputs(at, columns, start, vector, channel, mask)
            return
        uses, totals = s.x.uses(at.width), [start] * at.width
        for place in sorted(uses):
            if not at.is_inside(place, s.x, self.windows.columns):
                found = self._outside()
            else:
                found = self._column(columns, place * self.step, mask)
            for i, tap in uses[place]:
                for number, word in enumerate(found):
                    weight = code.load(self._weight_at(vector, tap, number), self.type, 4)
                    totals[i] = self._dot(totals[i], word, weight)
        self.bound[s.channel] = lane_index(channel, self.lanes)
        for i, total in enumerate(totals):
            if s.x.out is not None:
                self.bound[s.x.out] = at.start + i
            self._store(total, mask)

    def _checked_outputs(
        self, at: Tile, columns: Sequence[Value], start: Value, vector: Value, channel: Value, mask: Value | None
    ) -> None:
        """The outputs of a tile that exist, one after the other: each within the condition of the one before."""
        code, x = self.code, self.s.x
        found: dict[int, list[Value]] = {}
        self.bound[self.s.channel] = lane_index(channel, self.lanes)
        with ExitStack() as nested:
            for i in range(at.width):
                if i:
                    nested.enter_context(code.when(at.start + i < x.outputs))
                total = start
                for tap in range(x.taps):
                    place = i * x.stride + tap * x.dilation
                    if place not in found:
                        found[place] = self._checked_column(at, columns, place, mask)
                    for number, word in enumerate(found[place]):
                        weight = code.load(self._weight_at(vector, tap, number), self.type, 4)
                        total = self._dot(total, word, weight)
                if x.out is not None:
                    self.bound[x.out] = at.start + i
                self._store(total, mask)

    def _checked_column(self, at: Tile, columns: Sequence[Value], place: int, mask: Value | None) -> list[Value]:
        """The words of a column that may be outside of the image."""
        code, before = self.code, self.code.block
        with code.when(at.reads(place, self.s.x, self.windows.columns)):
            words = self._column(columns, place * self.step, mask)
            there = code.block
        outside = self._outside()
        return [
            code.join(self.type, [(word, there), (other, before)]) for word, other in zip(words, outside, strict=True)
        ]

    def _store(self, total: Value, mask: Value | None) -> None:
        self.bound[self.acc] = total
        printer = self.entry.printer(self.epilogue, self.bound, self.lanes, mask)
        for number, store in enumerate(self.stores):
            printer.store(store.target, *self.epilogue.results[2 * number : 2 * number + 2])

    def _outside(self) -> list[Value]:
        """The words of a column outside the image."""
        padding = self.found.padding
        flip = FLIP if self.found.signed else 0
        word = (padding & 0xFF) * 0x01010101 ^ flip if self.dots else (padding & 0xFFFF) * 0x10001
        return [self.code.const(word - (word >> 31 << 32), self.type)] * self.words

    def _column(self, columns: Sequence[Value], distance: int, mask: Value | None) -> list[Value]:
        """The words of a column of the image."""
        code = self.code
        type = Type("i8", self.lanes)
        rows = []
        for column in columns:
            place = code.gep(column, distance, "i8") if distance else column
            rows.append(code.load(place, type, 1) if mask is None else code.masked_load(place, type, mask))
        found = []
        for number in range(self.words):
            part = rows[number * self.group : (number + 1) * self.group]
            found.append(self._quads(part) if self.dots else self._pairs(part))
        return found

    def _quads(self, rows: Sequence[Value]) -> Value:
        """Combines a byte of each row in each lane's word, the first row lowest.

        Words are shuffled first, then bytes within 16 bytes.
        """
        code, lanes = self.code, self.lanes
        nothing = code.const(0, rows[0].type)
        a, b, c, d = [*rows, *[nothing] * (4 - len(rows))]
        wide = self._joined(self._joined(a, b), self._joined(c, d))
        quarter = lanes // 4
        as_words = code.let(f"bitcast {wide.type} {wide.text} to {self.type}", self.type)
        order = [row * quarter + part for part in range(quarter) for row in range(4)]
        turned = code.shuffle(as_words, as_words, order)
        as_bytes = code.let(f"bitcast {self.type} {turned.text} to {wide.type}", wide.type)
        order = [16 * part + 4 * row + byte for part in range(quarter) for byte in range(4) for row in range(4)]
        mixed = code.shuffle(as_bytes, as_bytes, order)
        word = code.let(f"bitcast {wide.type} {mixed.text} to {self.type}", self.type)
        return word ^ (FLIP - (1 << 32)) if self.found.signed else word

    def _joined(self, a: Value, b: Value) -> Value:
        return self.code.shuffle(a, b, range(2 * a.type.lanes))

    def _pairs(self, rows: Sequence[Value]) -> Value:
        """Combines the 16-bit integers of two rows in each lane's word."""
        code, signed = self.code, self.found.signed
        first, *second = [code.convert("sext" if signed else "zext", row, "i32") for row in rows]
        low = first & 0xFFFF if signed else first
        return low | (second[0] << 16) if second else low

    def _dot(self, total: Value, word: Value, weight: Value) -> Value:
        code = self.code
        if self.dots:
            pieces = Type("i8", 4 * self.lanes)
            name = f"llvm.x86.avx512.vpdpbusd.{32 * self.lanes}"
        else:
            pieces = Type("i16", 2 * self.lanes)
            name = f"llvm.x86.{PAIRS[self.lanes]}"
        factors = [code.let(f"bitcast {f.type} {f.text} to {pieces}", pieces) for f in (word, weight)]
        inner = ", ".join(f"{pieces} {f.text}" for f in factors)
        if self.dots:
            return code.let(f"call {total.type} @{name}({total.type} {total.text}, {inner})", total.type)
        return total + code.let(f"call {total.type} @{name}({inner})", total.type)


def emit_byte_windows(kernel: Kernel, schedule: Schedule, name: str, target: Target) -> Emitted:
    """The function and its number of tasks."""
    found = required(byte_windows_of(kernel))
    return _Emitter(kernel, found, schedule, name, target).text()
