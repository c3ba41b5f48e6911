"""Text for the contraction engine on matrix units: each operand's loader and fragments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.arguments import Argument, highest, plain
from gpucomp.codegen.c.async_copies import Walk, copy_loader, hoisted, place
from gpucomp.codegen.c.emit import Emitter, lane_loop
from gpucomp.codegen.c.epilogue import epilogue, split_scratch
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.row_statistics import emit_tail, tail_scratch
from gpucomp.codegen.c.text import guarded, loop, over, plus, remainder, times
from gpucomp.expr.core import Expr, Var, call, var
from gpucomp.ir.types import F32
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernel.passes.pack_weights import packable
from gpucomp.kernels_templates.contraction.fragments import multiply_function, staged_stores
from gpucomp.kernels_templates.contraction.mma.rows import Rows, fragments_of, scaled

if TYPE_CHECKING:
    from gpucomp.kernels_templates.contraction.mma.space import MmaProblem, MmaSchedule, MmaSizes, OperandSizes

WORDS = {4: "unsigned", 8: "uint2", 16: "uint4"}


def emit_mma(
    kernel: Kernel[Contraction], printer: CPrinter, s: MmaSchedule, p: MmaProblem, d: MmaSizes
) -> Mapping[str, Any]:
    """What ``kernels_templates/contraction/mma/kernel.j2`` reads; each hook is described there."""
    body = kernel.body
    batch = var("batch", plain(max(1, p.batch)))
    acc = "sum" if d.out_vector == 1 else f"sums[{LANE}]"
    runs = s.warp_n // d.out_vector
    # operands that are computed when loaded occupy the registers that early fetches would need
    fetched_early = runs % 2 == 0 and bool(p.a_copied and p.b_copied)
    found = epilogue(kernel, printer, batch, d.out_vector, acc, fetched_early=fetched_early)
    # when sums are stored, the fragments' registers are free
    free = (4 * d.blocks_m + 2 * d.blocks_n) * (2 if d.warp_steps > 1 else 1)
    together = 4 * found.early_count * d.blocks_m * runs // 2 <= free
    acc_type = printer.dialect.value_type(body.acc.dtype)
    index = printer.dialect.index_type(highest(p.m + d.tile_m, p.n + d.tile_n, p.k + d.tile_k * s.splits, p.batch) + 1)
    a, b = (_operand(kernel, printer, name, batch, index, s, p, d) for name in ("a", "b"))
    tail = emit_tail(kernel, printer, p, d.threads, d.tile_m, d.tiles_n)
    return {
        **tail,
        "scratch": split_scratch(printer, acc_type, s.splits) or tail_scratch(printer, tail),
        "prepare_a": a.prepared("first_row"),
        "prepare_b": b.prepared("first_column"),
        **_moved(a, b, printer, packable(kernel, "b"), s, d),
        **_fragments(s, p, d, apart=a.loads.mode == b.loads.mode == "copy"),
        **staged_stores(found, printer, body.acc.dtype, s.warp_n, d, together=together),
        "tile_place": _tile_place(index, s, p, d),
        "index": index,
        "acc_type": acc_type,
        "zero": printer.dialect.literal(0, body.acc.dtype),
        "multiply": multiply_function(stored(body.a).dtype, stored(body.b).dtype),
        "rounds": stored(body.a).dtype is F32,
        "meets": s.splits > 1 or (bool(tail["tail"]) and tail["tail"].sharers > 1),
        "pipelined": d.warp_steps > 1,
        "row": _row(s, d),
        "row_tile": plus(
            d.tiles if s.splits > 1 else 0,
            times("batch", d.tiles_m) if p.batch > 1 else 0,
            over("first_row", d.tile_m) if d.tiles_m > 1 else 0,
        ),
    }


def _row(s: MmaSchedule, d: MmaSizes) -> str:
    """The row of the result of ``run`` of block ``i``."""
    warp = f"a_warp * {s.warp_m}" if s.warps_m > 1 else "0"
    return plus("first_row", warp, "i * 16" if d.blocks_m > 1 else "0", f"run / {s.warp_n // d.out_vector}")


def _tile_place(index: str, s: MmaSchedule, p: MmaProblem, d: MmaSizes) -> list[str]:
    """The position of the work-group's ``tile`` in the result."""
    area = d.tiles_m * d.tiles_n
    inside = "tile" if p.batch == 1 else f"({remainder('tile', area)})"
    wide = "" if index == "int" else f"({index})"
    lines = [] if p.batch == 1 else [f"const int batch = {over('tile', area)};"]
    if 1 in (d.tiles_m, d.tiles_n):
        column = f"{wide}{inside} * {d.tile_n}" if d.tiles_n > 1 else "0"
        row = f"{wide}{inside} * {d.tile_m}" if d.tiles_m > 1 else "0"
    elif isinstance(d.tiles_n, Argument) or s.raster >= d.tiles_n:
        column = f"{wide}({remainder('tile', d.tiles_n)}) * {d.tile_n}"
        row = f"{wide}({over(inside, d.tiles_n)}) * {d.tile_m}"
    else:
        across = str(s.raster)
        order = f"bands of {s.raster} columns of tiles, each walked down row by row"
        lines.append(f"// {order if s.raster > 1 else 'tiles are walked down column by column'}")
        band = s.raster * d.tiles_m
        lines.append(f"const int band = {over(inside, band)}, in_band = {remainder(inside, band)};")
        if d.tiles_n % s.raster:
            last = d.tiles_n // s.raster
            lines.append(f"const int across = band == {last} ? {d.tiles_n % s.raster} : {s.raster};")
            across = "across"
        column = f"{wide}(band * {s.raster} + in_band % {across}) * {d.tile_n}"
        row = f"{wide}(in_band / {across}) * {d.tile_m}"
        if across == "1":
            column, row = f"{wide}band * {d.tile_n}", f"{wide}in_band * {d.tile_m}"
    return [*lines, f"const {index} first_column = {column};", f"const {index} first_row = {row};"]


def _moved(a: Operand, b: Operand, printer: CPrinter, b_known: bool, s: MmaSchedule, d: MmaSizes) -> dict[str, Any]:
    """How tiles are moved from memory to the ring of stages.

    begin, end     the range of the depth, in tiles
    first_tiles    loads that start before the loop
    first_b        instead of ``first_tiles``, if ``b`` is constant: its loads, which need not wait for the previous
                   launch
    first_a        the loads of ``a``, which follow that wait
    fetch          loads of each iteration, to ``to`` or to registers
    keep           statements that write registers to ``to``
    arrived        waits until this work-item's copies have arrived
    commit         makes the copies a group
    """
    begin, end = ("begin", "end") if s.splits > 1 else ("0", str(d.tiles_k))
    is_async = "copy" in (a.loads.mode, b.loads.mode)
    commit = ["gc_cp_async_commit();"] if is_async else []

    def first(*operands: Operand) -> list[str]:
        committed = commit if a in operands else []
        to = "shared" if s.stages == 2 else "to"
        lines = [line for o in operands for line in o.fetched(to)] + [line for o in operands for line in o.kept(to)]
        if s.stages == 2:
            return [*guarded(f"{begin} < {end}", [f"const int ahead = {begin};", *lines]), *committed]
        stage = f"unsigned char* const to = shared + stage * {d.stage_bytes};"
        body = [f"const int ahead = {plus(begin, 'stage')};", *guarded(f"ahead < {end}", [stage, *lines]), *committed]
        return loop("stage", s.stages - 1, body)

    early = "pdl" in printer.features and b_known and b.loads.mode == "copy"
    return {
        "begin": begin,
        "end": end,
        "loads_b_early": early,
        "first_tiles": [] if early else first(a, b),
        "first_a": first(a) if early else [],
        "first_b": first(b) if early else [],
        "fetch": [*a.fetched("to"), *b.fetched("to")],
        "keep": [*a.kept("to"), *b.kept("to")],
        "arrived": f"gc_cp_async_wait<{s.stages - 2}>();" if is_async else "",
        "commit": "".join(commit),
    }


# ---- from memory to shared memory ----


@dataclass(frozen=True)
class Loads:
    """How one chunk of an operand is loaded.

    mode          ``copy``: asynchronously; ``chunk``: through registers, unchanged; ``value``: element by element
    word          the type of one of its registers
    span_lines    statements that depend on the span alone; ``arrays`` are their results, as in ``Copy``; so is
                  ``spans_used``
    depth_lines   statements that depend on the depth alone
    head          statements before the chunk
    address       of a copy: its address in memory; ``valid``: the condition under which it is read
    lane_lines    for elements: statements of each element; ``value``: its text
    """

    mode: str
    word: str
    span_lines: list[str]
    arrays: list[tuple[str, str, str]]
    spans_used: bool
    depth_lines: list[str]
    head: list[str]
    address: str = ""
    valid: str = ""
    lane_lines: list[str] = field(default_factory=list)
    value: str = ""


@dataclass(frozen=True)
class Operand:
    """One operand's tile, which all work-items load from memory to shared memory."""

    name: str
    sizes: OperandSizes
    rows: Rows
    loads: Loads
    index: str
    tile: int  # extents of the tile along the span and along the depth
    tile_k: int
    extent: Any  # extent of the whole operand's span: a number, or an ``Argument``
    element_bytes: int
    begins: int  # offset in a stage, in bytes

    @property
    def t(self) -> str:
        return f"{self.name}_t"

    @property
    def i(self) -> str:
        return f"{self.name}_i"

    @property
    def chunk_bytes(self) -> int:
        return self.sizes.vector * self.element_bytes

    @property
    def turned(self) -> bool:
        """Whether elements are transposed: in shared memory they are across the axis along which they are loaded."""
        return self.rows.by_depth != self.sizes.by_depth

    @property
    def number(self) -> str:
        """The number of a work-item's chunk."""
        o = self.sizes
        depth, span = self.t if o.depth_steps > 1 else "0", self.i if o.span_steps > 1 else "0"
        return plus(f"{depth} * {o.span_steps}" if o.span_steps > 1 and depth != "0" else depth, span)

    def prepared(self, first: str) -> list[str]:
        """What a work-item computes for its part of a tile before the loop over the depth."""
        name, o = self.name, self.sizes
        place = f"id % {o.fast_items}", f"id / {o.fast_items}"
        fast, slow = ("0", "id") if o.fast_items == 1 else ("id", "0") if o.slow_items == 1 else place
        lines = [f"const int {name}_fast = {fast}, {name}_slow = {slow};"]
        if not self.turned:
            lines.append(
                f"const int {name}_to = {self.rows.offset(f'{name}_slow', f'{name}_fast * {self.chunk_bytes}')};"
            )
        lines += self._spans(first)
        if self.loads.mode == "chunk":
            lines.append(f"{self.loads.word} {name}_next[{o.depth_steps * o.span_steps}];")
        elif self.loads.mode == "value":
            lines.append(f"__align__(16) {self.loads.word} {name}_next[{o.depth_steps * o.span_steps * o.vector}];")
        return lines

    def _spans(self, first: str) -> list[str]:
        """The position of each of a work-item's chunks along the span, and what depends on that alone."""
        name, o, several = self.name, self.sizes, self.sizes.span_steps > 1
        span_width = 1 if o.by_depth else o.vector
        local, stride = (f"{name}_slow", o.slow_items) if o.by_depth else (f"{name}_fast", o.fast_items)
        start = f"{over(first, span_width)} + {local}" + (f" + {self.i} * {stride}" if several else "")
        lines = [f"{self.index} {name}_span = {start};"]
        if self.extent % self.tile or (o.slow_guard and o.by_depth):
            limit = self.extent // span_width - 1
            lines.append(f"if ({name}_span > {limit}) {name}_span = {limit};")
        if several and self.loads.spans_used:
            lines.append(f"{name}_spans[{self.i}] = {name}_span;")
        lines += self.loads.span_lines
        if not several:
            return lines
        lines += [f"{array}[{self.i}] = {value};" for array, _, value in self.loads.arrays]
        declared = [f"{ctype} {array}[{o.span_steps}];" for array, ctype, _ in self.loads.arrays]
        if self.loads.spans_used:
            declared.append(f"{self.index} {name}_spans[{o.span_steps}];")
        return [*declared, *loop(self.i, o.span_steps, lines)]

    def fetched(self, stage: str) -> list[str]:
        """Loads this work-item's part of a tile into ``stage`` or into registers."""
        loads, slot = self.loads, f"{self.name}_next[{self.number}]"
        if loads.mode == "copy":
            to = f"{self._begin(stage)} + {self._place()}"
            lines = [f"gc_cp_async{self.chunk_bytes}({to}, {loads.address}, {loads.valid});"]
        elif loads.mode == "chunk":
            read = f"{slot} = *reinterpret_cast<const {loads.word}*>({loads.address});"
            lines = [read] if loads.valid == "true" else [f"{slot} = {{}};", f"if ({loads.valid}) {read}"]
        elif self.sizes.vector == 1:
            lines = [f"{slot} = {loads.value};"]
        else:
            element = f"{self.name}_next[{self._first}{LANE}] = {loads.value};"
            lines = lane_loop([*loads.lane_lines, element], self.sizes.vector)
        return self._each([*loads.head, *lines], loads.depth_lines)

    def kept(self, stage: str) -> list[str]:
        """Writes registers to ``stage``; nothing if copies go past registers."""
        if self.loads.mode == "copy":
            return []
        if self.turned:
            return self._each(self._kept_turned(stage))
        word, to, lanes = self.loads.word, f"{self._begin(stage)} + {self._place()}", self.sizes.vector
        whole = WORDS.get(self.chunk_bytes, "")
        if self.loads.mode == "chunk" or (lanes == 1 and not whole):
            return self._each([f"*reinterpret_cast<{word}*>({to}) = {self.name}_next[{self.number}];"])
        if whole:
            first = f" + ({self.number}) * {lanes}" if self.number != "0" else ""
            value = f"*reinterpret_cast<const {whole}*>({self.name}_next{first})"
            return self._each([f"*reinterpret_cast<{whole}*>({to}) = {value};"])
        element = f"reinterpret_cast<{word}*>({to})[{LANE}] = {self.name}_next[{self._first}{LANE}];"
        return self._each(lane_loop([element], lanes))

    def _kept_turned(self, stage: str) -> list[str]:
        """Writes one element at a time, each to its own row."""
        name, o = self.name, self.sizes
        fast = f"{name}_fast + {self.i} * {o.fast_items}" if o.fast_steps > 1 else f"{name}_fast"
        slow = f"{name}_slow + {self.t} * {o.slow_items}" if o.slow_steps > 1 else f"{name}_slow"
        row = f"{scaled(fast, o.vector)} + {LANE}" if o.vector > 1 else fast
        offset = self.rows.offset(f"{name}_row", f"({slow})" if "+" in slow else slow)  # one byte per element
        at = f"{self._first}{LANE}" if o.vector > 1 else self.number
        lines = [
            f"const int {name}_row = {row};",
            f"reinterpret_cast<{self.loads.word}*>({self._begin(stage)} + {offset})[0] = {name}_next[{at}];",
        ]
        return lane_loop(lines, o.vector) if o.vector > 1 else ["{", *lines, "}"]

    @property
    def _first(self) -> str:
        """The text before the lane in the number of a register."""
        return f"({self.number}) * {self.sizes.vector} + " if self.number != "0" else ""

    def _begin(self, stage: str) -> str:
        return plus(stage, self.begins)

    def _place(self) -> str:
        """The position of a work-item's chunk in the tile."""
        name, o = self.name, self.sizes
        slow_step, fast_step = (self.i, self.t) if o.by_depth else (self.t, self.i)
        changes = []
        if o.fast_steps > 1:
            changes.append(f"{fast_step} * {o.fast_items * self.chunk_bytes}")
        if o.slow_steps > 1 and (swizzle := self.rows.repeating(o.slow_items, o.slow_steps)) is not None:
            changes.append(f"({slow_step}{swizzle}")
        place = " ^ ".join([f"{name}_to", *changes])
        if changes:
            place = f"({place})"
        return f"{place} + {slow_step} * {o.slow_items * o.row_bytes}" if o.slow_steps > 1 else place

    def _each(self, lines: Sequence[str], depth_lines: Sequence[str] = ()) -> list[str]:
        """``lines`` for each of a work-item's chunks; ``depth_lines`` once per step along the depth."""
        o, inside = self.sizes, ""
        if o.slow_guard:
            step = self.i if o.by_depth else self.t
            slow = f"{self.name}_slow" + (f" + {step} * {o.slow_items}" if o.slow_steps > 1 else "")
            inside = f"{slow} < {self.tile if o.by_depth else self.tile_k}"
        spans = loop(self.i, o.span_steps, guarded(inside, lines))
        return loop(self.t, o.depth_steps, [*depth_lines, *spans])


def _operand(
    kernel: Kernel[Contraction],
    printer: CPrinter,
    name: str,
    batch: Var,
    index: str,
    s: MmaSchedule,
    p: MmaProblem,
    d: MmaSizes,
) -> Operand:
    body = kernel.body
    is_a = name == "a"
    value, axes, extent = (body.a, body.m, p.m) if is_a else (body.b, body.n, p.n)
    sizes, copied = (d.a, p.a_copied) if is_a else (d.b, p.b_copied)
    depth_width, span_width = (sizes.vector, 1) if sizes.by_depth else (1, sizes.vector)
    depth, depth_names = _depth(name, sizes, d, depth_width)
    span = var("span", plain(max(1, extent // span_width)))
    padded = d.tiles_k * d.tile_k != p.k
    walk = Walk(span, depth, depth_names, plain(p.k // depth_width) if padded else None, batch)
    brings = _copies if copied else _elements
    return Operand(
        name=name,
        sizes=sizes,
        rows=Rows(sizes.shared_by_depth, sizes.row_bytes, p.element_bytes),
        loads=brings(kernel, printer, name, value, (axes, body.k, body.batch), walk, sizes),
        index=index,
        tile=d.tile_m if is_a else d.tile_n,
        tile_k=d.tile_k,
        extent=extent,
        element_bytes=p.element_bytes,
        begins=0 if is_a else d.a.bytes,
    )


def _depth(name: str, o: OperandSizes, d: MmaSizes, depth_width: int) -> tuple[Expr, dict[Expr, str]]:
    """A work-item's position along the depth, in chunks or elements: from the tile, the work-item and its step."""
    tile = var("tile", plain(d.tiles_k))
    items, axis = (o.fast_items, "fast") if o.by_depth else (o.slow_items, "slow")
    mine, step = var(axis, items), var("step", o.depth_steps)
    names: dict[Expr, str] = {tile: "ahead", mine: f"{name}_{axis}", step: f"{name}_t"}
    depth = call("add", call("mul", tile, d.tile_k // depth_width), mine)
    if o.depth_steps > 1:
        depth = call("add", depth, call("mul", step, items))
    return depth, {v: n for v, n in names.items() if v in depth.free}


Axes = tuple[Sequence[Var], Sequence[Var], Sequence[Var]]  # axes of the span, of the depth, of the batch


def _copies(kernel: Kernel, printer: CPrinter, name: str, value: Expr, of: Axes, walk: Walk, o: OperandSizes) -> Loads:
    """Loads chunks unchanged."""
    copy = copy_loader(
        kernel, printer, name, value, of, walk, by_depth=o.by_depth, width=o.vector, span_steps=o.span_steps
    )
    return Loads(
        mode="copy" if "cp_async" in printer.features else "chunk",
        word=WORDS[copy.nbytes],
        span_lines=copy.span_lines,
        arrays=copy.arrays,
        spans_used=copy.spans_used,
        depth_lines=copy.depth_lines,
        head=copy.lines,
        address=copy.address,
        valid=copy.valid,
    )


def _elements(
    kernel: Kernel, printer: CPrinter, name: str, value: Expr, of: Axes, walk: Walk, o: OperandSizes
) -> Loads:
    """Loads a run of elements that are computed in registers."""
    value, lane = stored(value), var(LANE, o.vector)
    element = place(kernel, value, of, walk, by_depth=o.by_depth, width=o.vector, lane=lane)
    span_lines, arrays, depth_lines, known, spans_used = hoisted(printer, [element], walk, name, o.span_steps)
    lane_lines: list[str] = []
    if o.vector > 1:
        known[lane] = LANE
        head, lane_lines, (text,) = Emitter(printer, known, prefix=f"{name}e").lanes([element], lane, o.vector)
    else:
        head, (text,) = Emitter(printer, known, prefix=f"{name}e").values([element])
    return Loads(
        mode="value",
        word=printer.dialect.storage_type(value.dtype),
        span_lines=span_lines,
        arrays=arrays,
        spans_used=spans_used,
        depth_lines=depth_lines,
        head=head,
        lane_lines=lane_lines,
        value=printer.narrowed(text, value.dtype),
    )


# ---- from shared memory to fragments ----


def _fragments(s: MmaSchedule, p: MmaProblem, d: MmaSizes, *, apart: bool) -> dict[str, list[str]]:
    """Text of a lane's fragments.

    fragments   declarations of the addresses
    read        reads the fragments of the next step, or of the only one
    read_part   block ``i`` of ``blocks_m`` of the former; empty if all are read at once. Not ``apart``, tiles also pass
                through registers, and ptxas has none left for fragments of two steps
    read_first  reads those of the first step
    """
    a, b = fragments_of("a", s, p, d), fragments_of("b", s, p, d)
    if d.warp_steps == 1:
        first, read = [], [*a.read("a_part", "from", "0"), *b.read("b_part", "from", "0")]
    else:
        first = [*a.read("a_part[0]", "shared", "0"), *b.read("b_part[0]", "shared", "0")]
        read = [*a.read("a_part[(k + 1) % 2]", "from", "next"), *b.read("b_part[(k + 1) % 2]", "from", "next")]
    part: list[str] = []
    if apart and d.warp_steps > 1 and d.blocks_m > 1:
        parts = "from", "next", d.blocks_m
        part = [*a.read_part("a_part[(k + 1) % 2]", *parts), *b.read_part("b_part[(k + 1) % 2]", *parts)]
    return {"fragments": [*a.declared(), *b.declared()], "read_first": first, "read": read, "read_part": part}
