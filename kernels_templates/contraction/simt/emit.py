"""Text for the contraction template: how tiles are loaded, multiplied and stored.

Index texts are the names of the template's loop variables: ``a_t`` and ``a_i`` count a work-item's accesses of ``a``
along the depth and along the rows, ``i`` and ``j`` its sums. A loop with a single iteration is omitted, and its index
is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.arguments import Argument, highest, plain
from gpucomp.codegen.c.dots import product
from gpucomp.codegen.c.epilogue import left_sums, split_scratch
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.row_statistics import emit_tail, tail_scratch
from gpucomp.codegen.c.text import guarded, loop, modulo, over, plus, remainder, times
from gpucomp.expr.core import var
from gpucomp.ir.types import DType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernel.forms.packed_f16 import PackedF16
from gpucomp.kernels_templates.contraction.loader import Loader, Operand, loader, stored

if TYPE_CHECKING:
    from gpucomp.kernels_templates.contraction.simt.space import OperandSizes, SimtProblem, SimtSchedule, SimtSizes


AHEAD = 64  # registers, of AMD's 256


def emit_contraction(
    kernel: Kernel[Contraction], printer: CPrinter, s: SimtSchedule, p: SimtProblem, d: SimtSizes
) -> Mapping[str, Any]:
    """What ``kernels_templates/contraction/simt/kernel.j2`` reads; each hook is described there."""
    body = kernel.body
    batch = var("batch", plain(max(1, p.batch)))
    index = printer.dialect.index_type(_largest_index(s, p))
    walk = _walk(index, s, p, d)
    acc_type, tile_type = (printer.dialect.value_type(dtype) for dtype in (body.acc.dtype, body.factor))
    a, b = (_access(loader(kernel, printer, o, batch), walk, s, d) for o in _operands(body, s, p, d))
    moved = _moved(a, b, walk, s, d)
    tail = emit_tail(kernel, printer, p, d.threads, s.tile_m, d.tiles_n)
    scratch = split_scratch(printer, acc_type, s.splits) or tail_scratch(printer, tail)
    stores = _stores(stored(kernel, printer, batch, d.out_vector, _sum(s, d.out_vector)), walk, s, p, d)
    if tail["tail"]:
        stores = guarded("slice == 0" if s.slices > 1 else "", stores)
    meets = s.splits > 1 or (bool(tail["tail"]) and tail["tail"].sharers > 1)
    left = left_sums(printer, body.acc.dtype, s.splits, s.reg_n)
    return {
        **tail,
        "scratch": scratch,
        **left,
        "aligned": printer.dialect.aligned if left["left_at_once"] > 1 else "",
        "prepare_a": _prepared(a, walk.row, d.threads),
        "prepare_b": _prepared(b, walk.column, d.threads),
        **moved,
        **_places(walk, s, p, d),
        **_computed(printer, body, s, d),
        "stores": stores,
        "index": index,
        "begin": walk.begin,
        "end": walk.end,
        "split_end": plus("depth_begin", times(d.tiles_per_split, s.tile_k)),
        "acc_type": acc_type,
        "tile_type": tile_type,
        "array": lambda name, size: printer.dialect.aligned_array(acc_type, name, size),
        "zero": printer.dialect.literal(0, body.acc.dtype),
        "first_row": walk.row,
        "item": "id" if s.slices == 1 else "item",
        "vectors": s.reg_n // s.lanes,
        "b_inner": s.tile_n + d.b.pad,
        "shared_arrays": _shared(acc_type, tile_type, s, d, meets),
        "meets": meets,
        "row_tile": plus(d.tiles if s.splits > 1 else 0, over("tile", d.tiles_n)) if tail["tail"] else "",
    }


def _largest_index(s: SimtSchedule, p: SimtProblem) -> int:
    return highest(p.m + s.tile_m, p.n + s.tile_n, p.k + s.tile_k * s.splits, p.batch) + 1


@dataclass(frozen=True)
class Walk:
    """Text for the position of a work-group's tile in the result, and for its walk along the depth."""

    index: str  # the C type of indices
    row: str
    column: str
    begin: str  # where the depth begins
    end: str


def _walk(index: str, s: SimtSchedule, p: SimtProblem, d: SimtSizes) -> Walk:
    split = s.splits > 1
    return Walk(
        index=index,
        row="first_row" if d.tiles_m > 1 else "0",
        column="first_column" if d.tiles_n > 1 else "0",
        begin="depth_begin" if split else "0",
        end="depth_end" if split else str(d.tiles_k * s.tile_k),
    )


def _shared(
    acc_type: str, tile_type: str, s: SimtSchedule, d: SimtSizes, meets: bool
) -> list[tuple[str, str, list[int]]]:
    """Arrays of fixed size in shared memory: type, name, extents."""
    ring = [s.stages] if s.stages > 1 else []
    tiles = [
        (tile_type, "tile_a", [*ring, d.a_outer, d.a_inner]),
        (tile_type, "tile_b", [*ring, s.tile_k, s.tile_n + d.b.pad]),
    ]
    slices = (acc_type, "slice_sums", [s.slices - 1, s.reg_m * s.reg_n, d.rows * d.columns])
    return [
        *([] if d.dynamic_shared_bytes else tiles),
        *([slices] if s.slices > 1 else []),
        *([("int", "is_last", [1])] if meets else []),
    ]


# ---- the position of a work-item ----


def _places(walk: Walk, s: SimtSchedule, p: SimtProblem, d: SimtSizes) -> dict[str, list[str]]:
    """``my_place`` is a work-item's position in the tile, from ``id``; ``tile_place`` the tile's, from ``tile``."""
    items = d.rows * d.columns  # work-items of a slice
    item = "id" if s.slices == 1 else "item"
    mine: list[str] = []
    if s.slices > 1:
        mine.append(f"const int slice = id / {items}, item = id % {items};")
        mine.append(f"const int first_k = {times('slice', s.tile_k // s.slices)};")
    if d.rows == 1 and d.columns > 1:
        mine.append(f"const int my_column = {item};")
    elif d.columns == 1 and d.rows > 1:
        mine.append(f"const int my_row = {item};")
    elif d.quads:
        eights = d.columns // 8
        mine.append(f"const int my_row = {item} / 32 / {eights} * 4 + {item} % 32 / 8;")
        mine.append(f"const int my_column = {item} / 32 % {eights} * 8 + {item} % 8;")
    elif d.threads > 1:
        mine.append(f"const int my_row = {item} / {d.columns}, my_column = {item} % {d.columns};")

    tile: list[str] = []
    if d.tiles_n > 1:
        column = "tile" if d.tiles == d.tiles_n else f"({remainder('tile', d.tiles_n)})"
        tile.append(f"const {walk.index} first_column = {times(_wide(walk, column), s.tile_n)};")
    if d.tiles_m > 1:
        row = over("tile", d.tiles_n)
        if p.batch > 1:
            row = f"({remainder(row, d.tiles_m)})"
        elif walk.index != "int" and d.tiles_n > 1:
            row = f"({row})"
        tile.append(f"const {walk.index} first_row = {times(_wide(walk, row), s.tile_m)};")
    if p.batch > 1:
        tile.append(f"const int batch = {over('tile', d.tiles_n * d.tiles_m)};")
    return {"my_place": mine, "tile_place": tile}


def _wide(walk: Walk, text: str) -> str:
    return text if walk.index == "int" else f"({walk.index}){text}"


# ---- from memory to shared memory ----


def _operands(body: Contraction, s: SimtSchedule, p: SimtProblem, d: SimtSizes) -> list[Operand]:
    padded = -(-p.k // s.tile_k) * s.tile_k  # the last tile reads zeros past the end
    return [
        Operand(
            name=name,
            value=value,
            axes=axes,
            extent=extent,
            depth=p.k,
            padded=padded,
            by_depth=sizes.by_depth,
            width=sizes.vector,
            span_steps=sizes.span_steps,
            depth_name=f"{name}_depth",
            late=bool(s.asynchronous),
            # a CPU's compiler chooses what to unroll; if told to unroll a whole tile's loops, it takes a minute
            unrolled=s.lanes == 1,
        )
        for name, value, axes, extent, sizes in (("a", body.a, body.m, p.m, d.a), ("b", body.b, body.n, p.n, d.b))
    ]


def _prepared(o: Access, first: str, threads: int) -> list[str]:
    """What a work-item computes for its accesses before the loop over the depth: positions, offsets, halo tests."""
    operand, sizes = o.loader.operand, o.sizes
    clamped = operand.extent % o.tile != 0 or bool(sizes.slow_guard and sizes.by_depth)
    lines = o.loader.prepared(o.index, plus(first, o.span), clamped)
    if 1 in (sizes.fast_items, sizes.slow_items):
        return lines  # it has all elements along the other axis, or it is the only work-item
    return [f"const int {o.fast} = id % {sizes.fast_items}, {o.slow} = id / {sizes.fast_items};", *lines]


def _moved(a: Access, b: Access, walk: Walk, s: SimtSchedule, d: SimtSizes) -> dict[str, list[str]]:
    """How tiles are moved from global to shared memory.

    registers     registers of a tile in flight, if it is not copied past them
    first_tiles   loads that start before the loop over the depth
    next_tile     loads that start in each iteration, while another tile is multiplied
    keep_tile     statements that write registers to shared memory
    """
    if s.stages == 1:
        return {"registers": [], "first_tiles": [], "next_tile": [*a.loaded("depth", ""), *b.loaded("depth", "")]}
    split = s.splits > 1
    if not s.asynchronous:
        first = [*a.loaded(walk.begin, None), *b.loaded(walk.begin, None), *a.kept("[0]"), *b.kept("[0]")]
        return {
            "registers": [a.registers(), b.registers()],
            "first_tiles": guarded(f"{walk.begin} < {walk.end}" if split else "", first) if d.tiles_k else [],
            "next_tile": [*a.loaded("following", None), *b.loaded("following", None)],
            "keep_tile": [*a.kept("[now]"), *b.kept("[now]")],
        }
    ahead = "ahead" if s.stages > 2 else "0"
    begin, stage = plus(walk.begin, times(ahead, s.tile_k)), f"[{ahead}]"
    may_be_none = split or isinstance(d.tiles_k, Argument) or d.tiles_k < s.stages - 1
    first = guarded(f"{begin} < {walk.end}" if may_be_none else "", [*a.loaded(begin, stage), *b.loaded(begin, stage)])
    first_tiles = [
        "// the first tiles set out, each a group of copies",
        *loop(ahead, s.stages - 1, [*first, "gc_cp_async_commit();"], unrolled=s.lanes == 1),
    ]
    return {
        "registers": [],
        "first_tiles": first_tiles if d.tiles_k else [],
        "next_tile": [*a.loaded("following", "[free_stage]"), *b.loaded("following", "[free_stage]")],
    }


def _access(o: Loader, walk: Walk, s: SimtSchedule, d: SimtSizes) -> Access:
    is_a = o.operand.name == "a"
    sizes = d.a if is_a else d.b
    fast, slow = _items(o, sizes, d.threads)
    return Access(
        loader=o,
        sizes=sizes,
        index=walk.index,
        fast=fast,
        slow=slow,
        tile_k=s.tile_k,
        tile=s.tile_m if is_a else s.tile_n,
        unrolled=s.lanes == 1,
        in_rows=bool(d.a_rows),
    )


def _items(o: Loader, sizes: OperandSizes, threads: int) -> tuple[str, str]:
    """The names of a work-item's positions along the fast and the slow axis of a tile."""

    def item(axis: str, count: int) -> str:
        return "0" if count == 1 else "id" if count == threads else f"{o.operand.name}_{axis}"

    return item("fast", sizes.fast_items), item("slow", sizes.slow_items)


@dataclass(frozen=True)
class Access:
    """One access of a work-item to an operand's tile: its position there, and its statements."""

    loader: Loader
    sizes: OperandSizes
    index: str
    fast: str  # the work-item's position along the axis that is contiguous in memory, and across it
    slow: str
    tile_k: int
    tile: int  # extent of the span
    unrolled: bool
    in_rows: bool  # the tile of ``a`` has rows along the depth, as copies write them

    @property
    def name(self) -> str:
        return self.loader.operand.name

    @property
    def width(self) -> int:
        return self.sizes.vector

    @property
    def t(self) -> str:
        """The number of an access along the depth."""
        return f"{self.name}_t" if self.sizes.depth_steps > 1 else "0"

    @property
    def _slow(self) -> str:
        step = self.loader.operand.step if self.sizes.by_depth else self.t
        return plus(self.slow, times(step, self.sizes.slow_items))

    @property
    def _fast(self) -> str:
        step = self.t if self.sizes.by_depth else self.loader.operand.step
        return times(plus(self.fast, times(step, self.sizes.fast_items)), self.width)

    @property
    def span(self) -> str:
        """The position of its first element along the span of the tile."""
        return self._slow if self.sizes.by_depth else self._fast

    @property
    def depth(self) -> str:
        """The position of its first element along the depth."""
        return self._fast if self.sizes.by_depth else self._slow

    @property
    def next(self) -> str:
        """The registers of an access that is under way."""
        o, steps = self.loader.operand, self.sizes.depth_steps * self.sizes.span_steps
        return f"{self.name}_next" + (f"[{plus(times(self.t, o.span_steps), o.step)}]" if steps > 1 else "")

    def registers(self) -> str:
        steps = self.sizes.depth_steps * self.sizes.span_steps
        printer, body = self.loader.printer, f"{self.name}_next" + (f"[{steps}]" if steps > 1 else "")
        ctype = printer.dialect.value_type(self.loader.element.dtype)
        return f"{ctype} {body};" if self.width == 1 else printer.dialect.aligned_array(ctype, body, self.width)

    def place(self, stage: str, lane: str) -> str:
        """Element ``lane`` in a stage of shared memory."""
        if self.in_rows and self.name == "a":
            return f"tile_a{stage}[{self.span}][{plus(self.depth, lane)}]"
        along, across = (lane, "0") if self.sizes.by_depth else ("0", lane)
        return f"tile_{self.name}{stage}[{plus(self.depth, along)}][{plus(self.span, across)}]"

    def loaded(self, first: str, stage: str | None) -> list[str]:
        """Loads the part of the tile that begins at depth ``first``, to ``stage`` or (``None``) to registers."""
        o, name = self.loader, self.name
        depth: list[str] = []
        if o.depth_used:
            depth.append(f"const {self.index} {name}_depth = {plus(first, self.depth)};")
        if o.depth_chunk:
            depth.append(f"const {self.index} {name}_depth_chunk = {name}_depth / {o.depth_chunk};")
        lane = "lane" if self.width > 1 else "0"
        if stage is None:
            moved = o.moved(self.next, self.next + ("[lane]" if self.width > 1 else ""))
        else:
            side_by_side = not self.sizes.by_depth or self.in_rows
            moved = o.moved("&" + self.place(stage, "0"), self.place(stage, lane), side_by_side=side_by_side)
        return self._each([*depth, *o.depth_lines], moved)

    def kept(self, stage: str) -> list[str]:
        """Writes registers to shared memory."""
        if self.width == 1:
            return self._each([], [f"{self.place(stage, '0')} = {self.next};"])
        if self.sizes.by_depth:
            element = f"{self.place(stage, 'lane')} = {self.next}[lane];"
            return self._each([], ["#pragma unroll", f"for (int lane = 0; lane < {self.width}; ++lane) {element}"])
        copy = self.loader.printer.dialect.copy
        return self._each([], copy("&" + self.place(stage, "0"), self.next, self.loader.element.dtype, self.width))

    def _each(self, depth_lines: list[str], access: list[str]) -> list[str]:
        """``access`` for each of a work-item's accesses; ``depth_lines`` once per step along the depth."""
        o = self.loader.operand
        inside = f"{self._slow} < {self.tile if self.sizes.by_depth else self.tile_k}" if self.sizes.slow_guard else ""
        spans = loop(o.step, self.sizes.span_steps, guarded(inside, access), unrolled=self.unrolled)
        return loop(self.t, self.sizes.depth_steps, [*depth_lines, *spans], unrolled=self.unrolled)


# ---- from shared memory to the sums ----


def _computed(printer: CPrinter, body: Contraction, s: SimtSchedule, d: SimtSizes) -> dict[str, Any]:
    """How a tile is multiplied.

    parts        the registers of a step's operands
    read_first   with fragments=2, reads the first step's operands
    read         in each step ``k``, reads its operands, or with fragments=2 those of the next step
    multiply     the statement of one product
    steps_at_once  steps that are written out at once; 0: all
    b_vector     with vector accumulators: the address of a vector of ``b`` in shared memory
    lane_sums    with vector accumulators: where the elements of a sum are written
    """
    reads = Reads(printer, body.factor, s, d)
    steps = s.tile_k // s.slices
    first = "first_k" if s.slices > 1 else "0"
    depth = plus(first, "k" if steps > 1 else "0")
    multiply_add = product(printer, body, s.lanes)
    i, j = "i" if s.reg_m > 1 else "0", "j" if s.reg_n > s.lanes else "0"
    lane_sums = plus(f"sums[{i}]", times(j, s.lanes))

    def multiply(a_part: str, b_part: str) -> str:
        of_row = f"[k % {d.a_deep}]" if d.a_rows else ""
        return multiply_add(f"acc[{i}][{j}]", f"{a_part}[{i}]{of_row}", f"{b_part}[{j}]")

    at_once = {"steps_at_once": _steps_at_once(s) if isinstance(body, PackedF16) else 0}
    if s.fragments == 1:
        return at_once | {
            "parts": reads.declared(""),
            "read_first": [],
            "read": [*reads.a("a_part", depth, once="k"), *reads.b("b_part", depth)],
            "multiply": multiply("a_part", "b_part"),
            "b_vector": reads.b_vector(depth),
            "lane_sums": lane_sums,
        }
    next_a = f"a_part[(k + 1) / {d.a_deep} % 2]" if d.a_rows else "a_part[(k + 1) % 2]"
    following = [*reads.a(next_a, f"{depth} + 1", once="(k + 1)"), *reads.b("b_part[(k + 1) % 2]", f"{depth} + 1")]
    now_a, now_b = (f"a_part[k / {d.a_deep} % 2]" if d.a_rows else "a_part[k % 2]"), "b_part[k % 2]"
    return at_once | {
        "parts": reads.declared("[2]"),
        "read_first": [*reads.a("a_part[0]", first), *reads.b("b_part[0]", first)],
        "read": guarded(f"k + 1 < {steps}", following) if steps > 1 else [],
        "multiply": multiply(now_a, now_b) if steps > 1 else multiply("a_part[0]", "b_part[0]"),
        "b_vector": "",
        "lane_sums": "",
    }


def _steps_at_once(s: SimtSchedule) -> int:
    """As many steps as ``AHEAD`` registers hold operands of, because clang reads those of all steps that it sees ahead.

    Of two steps that take turns with their registers it has to see both.
    """
    fits = AHEAD // (s.fragments * (s.reg_m + s.reg_n))
    return max(n for n in (1, 2, 4, 8, 16) if n <= max(fits, s.fragments))


@dataclass(frozen=True)
class Reads:
    """How a work-item reads a step's operands from the current stage of shared memory."""

    printer: CPrinter
    dtype: DType
    s: SimtSchedule
    d: SimtSizes

    @property
    def stage(self) -> str:
        return "" if self.s.stages == 1 else "[now]"

    def declared(self, buffers: str) -> list[str]:
        ctype, array = self.printer.dialect.value_type(self.dtype), self.printer.dialect.aligned_array
        rows = array(ctype, f"a_part{buffers}[{self.s.reg_m}]", self.d.a_deep) if self.d.a_rows else ""
        a = rows or array(ctype, f"a_part{buffers}", self.s.reg_m)
        return [a] if self.s.lanes > 1 else [a, array(ctype, f"b_part{buffers}", self.s.reg_n)]

    def a(self, part: str, k: str, once: str = "") -> list[str]:
        """Reads the rows of step ``k`` into ``part``.

        If rows are along the depth, it reads ``a_deep`` steps at once, in every such step.
        """
        s, d = self.s, self.d
        if d.a_rows:
            i = "i" if s.reg_m > 1 else "0"
            row = _place(i, 1, s.reg_m, 1, d.rows, "my_row")
            lines = loop("i", s.reg_m, self._copy(f"{part}[{i}]", f"&tile_a{self.stage}[{row}][{k}]", d.a_deep))
            return guarded(f"{once} % {d.a_deep} == 0" if once else "", lines)
        run = 1 if s.lanes > 1 else d.run_m
        return self._runs("a", part, k, s.reg_m, run, lambda i: _place(i, run, s.reg_m, d.run_m, d.rows, "my_row"))

    def b(self, part: str, k: str) -> list[str]:
        s, d = self.s, self.d
        if s.lanes > 1:
            return []  # the template reads vectors itself
        run = d.run_n
        return self._runs("b", part, k, s.reg_n, run, lambda j: _place(j, run, s.reg_n, run, d.columns, "my_column"))

    def b_vector(self, k: str) -> str:
        s, d = self.s, self.d
        mine = times("my_column" if d.columns > 1 else "0", s.lanes)
        j = "j" if s.reg_n > s.lanes else "0"
        return f"&tile_b{self.stage}[{k}][{plus(times(j, d.columns * s.lanes), mine)}]"

    def _runs(self, name: str, part: str, k: str, reg: int, run: int, place: Callable[[str], str]) -> list[str]:
        """Reads a work-item's ``reg`` elements of step ``k``, ``run`` neighbours at a time."""
        count = reg // run
        index = "j" if run == 1 and name == "b" else "i"
        at = index if count > 1 else "0"
        source = f"tile_{name}{self.stage}[{k}][{place(at)}]"
        if run == 1:
            return loop(index, count, [f"{part}[{at}] = {source};"])
        return loop(index, count, self._copy(plus(part, times(at, run)), f"&{source}", run))

    def _copy(self, to: str, source: str, width: int) -> list[str]:
        return self.printer.dialect.copy(to, source, self.dtype, width)


def _place(i: str, unit: int, reg: int, run: int, items: int, mine: str) -> str:
    """The position, in the tile, of element ``unit * i`` of a work-item's ``reg`` elements.

    Elements are in runs of ``run``; the runs of the work-items are adjacent.
    """
    if items == 1:
        return times(i, unit)
    if reg == run:
        return plus(times(mine, run), times(i, unit))
    if unit % run == 0:
        return plus(times(times(i, unit // run), items * run), times(mine, run))
    return plus(times(over(times(i, unit), run), items * run), times(mine, run), modulo(times(i, unit), run))


# ---- from the sums to memory ----


def _stores(found: Mapping[str, Any], walk: Walk, s: SimtSchedule, p: SimtProblem, d: SimtSizes) -> list[str]:
    """The stores of the sums, row by row, except for rows and columns past the end of the result."""
    unrolled, runs = s.lanes == 1, s.reg_n // d.out_vector
    i, j = "i" if s.reg_m > 1 else "0", "j" if runs > 1 else "0"
    row = plus(walk.row, _place(i, 1, s.reg_m, d.run_m, d.rows, "my_row"))
    column = plus(walk.column, _place(j, d.out_vector, s.reg_n, d.run_n, d.columns, "my_column"))
    chunk = found["column_chunk"]
    of_run = [*([f"const {walk.index} column_chunk = column / {chunk};"] if chunk else []), *found["store"]]
    of_run = [
        *([f"const {walk.index} column = {column};"] if column != "0" else []),
        *guarded(f"column < {p.n}" if p.n % s.tile_n and column != "0" else "", of_run),
    ]
    of_row = [*found["row_lines"], *loop("j", runs, of_run, unrolled=unrolled)]
    of_row = [
        *([f"const {walk.index} row = {row};"] if row != "0" else []),
        *guarded(f"row < {p.m}" if p.m % s.tile_m and row != "0" else "", of_row),
    ]
    return loop("i", s.reg_m, of_row, unrolled=unrolled)


def _sum(s: SimtSchedule, width: int) -> str:
    """The sum of lane ``lane`` in the template's vector ``j`` of row ``i``."""
    sums, lane = "sums" if s.lanes > 1 else "acc", LANE if width > 1 else "0"
    return f"{sums}[{'i' if s.reg_m > 1 else '0'}][{plus(times('j' if s.reg_n > width else '0', width), lane)}]"
