"""Text and tensor maps for the engines whose tiles TMA loads: the loads of the producer, and the epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpucomp.codegen.c.arguments import Argument, Arguments, highest, plain, told
from gpucomp.codegen.c.banks import best_exchange, half_offset
from gpucomp.codegen.c.epilogue import epilogue
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.row_statistics import emit_tail, tail_scratch
from gpucomp.codegen.c.text import modulo, over, plus, remainder, times
from gpucomp.codegen.c.tma import map_of_a, map_of_b, map_of_result
from gpucomp.errors import ScheduleError
from gpucomp.expr.core import index, var
from gpucomp.ir.size import at_most, is_one
from gpucomp.ir.types import I32, DType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.convolution import Pixels
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernel.forms.matrix import Form, Matrix, SideBySide, form_of_a, matrix_of, result_matrix
from gpucomp.kernels_templates.contraction.tma_space import (
    GROUP,
    PAIR,
    SHARE_A,
    SHARE_B,
    TileProblem,
    TileSchedule,
    TileSizes,
    same_columns,
)


@dataclass(frozen=True, slots=True)
class Sums:
    """Where the sums of a tile are when its products are done.

    A warp has 16 rows of each accumulator of its threads, dealt out as mma does.

    consumers    warpgroups that have them
    blocks       accumulators of a thread
    warp_rows    rows from one warp to the next
    block_rows   rows from one accumulator of a thread to the next
    box_rows     rows that TMA stores at once
    chunk        columns that are loaded at once from tensor memory; 0: all sums are in registers
    """

    consumers: int
    blocks: int
    warp_rows: int
    block_rows: int
    box_rows: int
    chunk: int = 0


def emit_tiles(
    kernel: Kernel[Contraction],
    printer: CPrinter,
    s: TileSchedule,
    p: TileProblem,
    derived: TileSizes,
    held: Sums,
    kind: tuple[str, str] | None,
) -> dict[str, Any]:
    """What ``tma_tiles.j2`` reads; each hook is described there.

    ``kind`` is the instruction's type and TMA's element type. Raises ``ScheduleError`` if there is none, or if TMA does
    not load an operand.
    """
    body = kernel.body
    a, b, c = form_of_a(kernel), matrix_of(kernel, "b"), result_matrix(kernel)
    if not a or not b or kind is None:
        reason = next((r for r in (a, b) if not r), "the instruction does not multiply its types")
        raise ScheduleError(f"{kernel.label or kernel.family}: {reason}", code="GPC8001")
    instruction, element = kind
    near, far = (a.near, a.far) if isinstance(a, SideBySide) else (a, None)
    maps = {
        "map_a": map_of_a(near, element, derived.load_m, derived.tile_k),
        "map_b": map_of_b(b, element, derived.load_n, derived.tile_k, max(1, p.taps)),
    }
    if far is not None:
        maps["map_far"] = map_of_a(far, element, derived.load_m, derived.tile_k)
    batch = var("batch", plain(p.batch)) if p.batch > 1 else index(0)
    if s.tma_store and isinstance(c, Matrix):
        maps["map_c"] = map_of_result(c, held.box_rows, derived.piece)
        found = epilogue(kernel, printer, batch, 2, f"sums[{LANE}]", into="out")
    else:
        acc = f"sums[{LANE if derived.out_vector > 1 else 0}]"
        runs = s.tile_m // s.splits * s.tile_n // derived.out_vector
        few = runs <= derived.early_runs
        found = epilogue(kernel, printer, batch, derived.out_vector, acc, fetched_early=few)
    tail = emit_tail(kernel, printer, p, GROUP * held.consumers, s.tile_m // s.splits, derived.tiles_n)
    return {
        **tail,
        "scratch": tail_scratch(printer, tail),
        "tensor_maps": tuple(maps.values()),
        "maps": tuple(maps),
        "programmatic": bool(s.overlap),
        "instruction": instruction,
        "acc_type": printer.dialect.value_type(body.acc.dtype),
        "start_lines": [] if far is None else ["gc_tma_prefetch(&map_far);"],
        "pair_type": "int2" if body.acc.dtype is I32 else "float2",
        "index": printer.dialect.index_type(highest(p.m + 2 * s.tile_m, p.n + 2 * s.tile_n, p.batch) + 1),
        **_tile(s, p, derived),
        **_tail_place(s, p, derived),
        **_work_group(s, derived, held),
        **_producer(a, b, printer.arguments, s, p, derived),
        **(_pieces(printer, c, s.tile_n, derived, held) if s.tma_store and isinstance(c, Matrix) else {}),
        "row_lines": found.row_lines,
        "store": found.store,
        "early": found.early,
        "early_count": found.early_count,
        "runs": _runs(s, p, derived, held.consumers, early=bool(found.early)),
        **_halves(printer, body.acc.dtype, s.tile_n, derived, held),
    }


def _work_group(s: TileSchedule, derived: TileSizes, held: Sums) -> dict[str, Any]:
    """The roles of threads, and the steps of the depth that each work-group takes.

    accumulators   names of a thread's sums, one per block
    my_thread      the thread's number in its warpgroup
    my_line        the first row of its staged sums
    pair           whether two work-groups multiply as one
    workers_meet   a barrier of the consumers; ``all_meet``: of all threads; ``stores_meet``: before TMA stores;
                   ``sums_meet``: after which staged sums are read, and no others are;
                   ``meet_at_end``: after which tensor memory is freed
    """
    workers, split, blocks = GROUP * held.consumers, s.splits > 1, held.blocks
    several, rows = held.consumers > 1, held.box_rows * (1 if held.chunk else blocks)
    cluster = "2, 1, 1" if s.multicast else f"1, {s.splits}, 1" if split else ""
    begin, end = ("first_step", "last_step") if split else ("0", str(derived.steps))
    # warps follow each other, or each warpgroup has blocks of rows that its warps share
    packed = held.chunk or blocks == 1
    workers_meet = f"gc_named_barrier(1, {workers})"
    pair = s.multicast == PAIR
    stores_meet = f"gc_named_barrier({'2 + id / 128' if several else '2'}, 128)"
    return {
        "pair": pair,
        "turns": 1,  # of engines that compute more than one tile, their own number
        "workers": workers,
        "consumers": held.consumers,
        "chunk": held.chunk,
        "warp_rows": held.warp_rows,
        "block_rows": held.block_rows,
        "cluster": f"__cluster_dims__({cluster}) " if cluster else "",
        "begin": begin,
        "end": end,
        "early_stages": f"{end} - {begin} < {s.stages} ? {end} - {begin} : {s.stages}"
        if split
        else min(s.stages, derived.steps),
        "steps_done": "step - first_step" if split else "step",
        "accumulators": [f"acc{block}" for block in range(blocks)] if blocks > 1 else ["acc"],
        "my_thread": "id % 128" if several else "id",
        "my_line": f"id / 32 * {held.warp_rows}" if packed else f"id / 128 * {rows} + id % 128 / 32 * 16",
        "workers_meet": workers_meet,
        "stores_meet": "gc_cluster_sync()" if pair else workers_meet if held.chunk else stores_meet,
        "sums_meet": "gc_cluster_sync()" if pair or split else workers_meet,
        "meet_at_end": "gc_cluster_sync()" if pair else workers_meet,
        "all_meet": "gc_cluster_sync()" if s.multicast else "__syncthreads()",
    }


@dataclass(frozen=True, slots=True)
class Runs:
    """How consumers read the staged sums: in runs of neighbouring columns of one row."""

    count: int
    trips: int  # runs per thread
    local_row: str  # row of run ``i`` in the tile
    local_column: str
    col: str  # the number of the run along the columns of the result
    inside: str  # whether this run exists


def _runs(s: TileSchedule, p: TileProblem, derived: TileSizes, consumers: int, *, early: bool) -> Runs:
    """With ``early`` all threads make the same number of trips; the last trip may find no run."""
    width, workers = derived.out_vector, GROUP * consumers
    per_row, rows = s.tile_n // width, s.tile_m // s.splits
    count = rows * per_row
    return Runs(
        count=count,
        trips=-(-count // workers),
        local_row=plus(f"rank * {rows}" if s.splits > 1 else 0, over("i", per_row)),
        local_column=times(modulo("i", per_row), width) if width == 1 or per_row == 1 else f"i % {per_row} * {width}",
        col=f"(first_column + local_column) / {width}" if width > 1 else "first_column + local_column",
        inside=f"row < {p.m} && col < {p.n // width}" + (f" && i < {count}" if early and count % workers else ""),
    )


def _halves(printer: CPrinter, dtype: DType, tile_n: int, derived: TileSizes, held: Sums) -> Mapping[str, Any]:
    """How a thread accesses a run of eight staged sums: where it writes and reads the first half (banks.py)."""
    copy, width = printer.dialect.copy, derived.out_vector
    terms = best_exchange(tile_n // 8, derived.pitch) if width == 8 else ()
    sums_copy = copy("sums", "from", dtype, width)
    if terms:
        sums_copy = copy("sums", "from + first_half", dtype, 4) + copy("sums + 4", "from + (first_half ^ 4)", dtype, 4)
    left = half_offset(terms, {"c": "(first / 8 + j / 4)" if held.chunk else "j / 4", "row": "line"})
    return {
        "sums_copy": sums_copy,
        "left_at": f"(id % 4 * 2 ^ {left})" if terms else "id % 4 * 2",
        "first_half": half_offset(terms, {"c": f"i % {tile_n // 8}", "row": "local_row"}) if terms else "",
        "part_at": "(first ^ first_half)" if terms else "first",
    }


# by bytes of a row: the text that is combined, by exclusive or, with a chunk's number
SWIZZLES = {128: "line % 8", 64: "line / 2 % 4", 32: "line / 4 % 2"}


def _pieces(printer: CPrinter, c: Matrix, tile_n: int, derived: TileSizes, held: Sums) -> dict[str, Any]:
    """Text for stores by TMA.

    boxes         boxes of rows of a warpgroup
    acc_bytes     bytes from the staged rows of one accumulator to those of the next
    first_chunk   bytes from a row's start to what a thread writes of columns 0 to 7, or 0 to 15 with stmatrix
    together      groups of eight columns that it writes at once
    """
    is_half, swizzle = c.dtype.nbytes == 2, SWIZZLES.get(derived.piece_bytes)
    chunk = "id % 32 / 16" if is_half else "id % 4 / 2"
    box_bytes = held.box_rows * tile_n * c.dtype.nbytes
    moved = f"({chunk} ^ {swizzle}) * 16" if swizzle else f"{chunk} * 16"
    return {
        "out_type": printer.dialect.storage_type(c.dtype),
        "boxes": 1 if held.chunk else held.blocks,
        "box_rows": held.box_rows,
        "box_bytes": box_bytes,
        "acc_bytes": held.block_rows * derived.piece_bytes if held.chunk else box_bytes,
        "together": 2 if is_half else 1,
        "first_chunk": moved if is_half else f"{moved} + id % 2 * 8",
    }


def _tile(s: TileSchedule, p: TileProblem, derived: TileSizes) -> dict[str, str]:
    """The start of the work-group's tile. Tiles are walked row by row; pairs along the rows are neighbours."""
    if same_columns(s):
        row, column, pairs = (
            over("tile / 2", derived.tiles_n),
            modulo("tile / 2", derived.tiles_n),
            derived.tiles_m // 2,
        )
        row = f"{remainder(row, pairs)} * 2 + tile % 2" if p.batch > 1 and pairs > 1 else _moved_on(row, pairs)
    else:
        row, column = over("tile", derived.tiles_n), modulo("tile", derived.tiles_n)
        row = modulo(row, derived.tiles_m) if p.batch > 1 or derived.tiles_m == 1 else row
    return {
        "first_row": times(row, s.tile_m),
        "first_column": times(column, s.tile_n),
        "in_batch": over("tile", derived.tiles_n * derived.tiles_m),
    }


def _tail_place(s: TileSchedule, p: TileProblem, derived: TileSizes) -> dict[str, str]:
    """The first row that the work-group stores, and the number of its rows among all parts of rows."""
    tile_of_rows = plus(
        times("batch", derived.tiles_m) if p.batch > 1 else 0,
        over("first_row", s.tile_m) if derived.tiles_m > 1 else 0,
    )
    if s.splits == 1:
        return {"tail_row": "first_row", "tail_number": tile_of_rows}
    first = plus("first_row", f"rank * {s.tile_m // s.splits}")
    return {"tail_row": first, "tail_number": plus(times(tile_of_rows, s.splits), "rank")}


def _moved_on(row: str, pairs: int | Argument) -> str:
    return "tile % 2" if pairs == 1 else f"{row} * 2 + tile % 2"


def _producer(
    a: Form | SideBySide, b: Matrix, arguments: Arguments, s: TileSchedule, p: TileProblem, derived: TileSizes
) -> dict[str, Any]:
    """Statements of the producer.

    first_lines     run once per tile: where the pixels start
    step_lines      run once per step: where the step is
    load_a, load_b  the loads of a step. Each work-group of a cluster loads one half of an operand that they share
    """
    shares_a, shares_b = s.multicast == SHARE_A, s.multicast == SHARE_B
    way_a, way_b = ("_pair" if s.multicast == PAIR else "_multicast" * shared for shared in (shares_a, shares_b))
    to_a = f"to + rank * {derived.load_m * 128}" if shares_a else "to"
    to_b = f"to + {s.tile_m * 128}" + (f" + rank * {derived.load_n * 128}" if shares_b else "")
    first_row = f"(first_row + rank * {derived.load_m})" if shares_a else "first_row"
    first_column = f"first_column + rank * {derived.load_n}" if same_columns(s) else "first_column"
    waits = _waits(s, derived)
    if isinstance(a, SideBySide):
        first = a.depth // derived.tile_k
        near_lines, near = _one_tap(
            a.near, "near", to_a, "map_a", f"step * {derived.tile_k}", first_row, arguments, way_a
        )
        depth = f"(step - {first}) * {derived.tile_k}"
        far_lines, far = _one_tap(a.far, "far", to_a, "map_far", depth, first_row, arguments, way_a)
        return {
            "first_lines": [*near_lines, *far_lines],
            "step_lines": [],
            "load_a": f"if (step < {first}) {near}\n  else {far}",
            "load_b": _matrix_load(to_b, "map_b", f"step * {derived.tile_k}", first_column, b, way_b),
            **waits,
        }
    if isinstance(a, Matrix):
        depth = f"step * {derived.tile_k}" if derived.steps > 1 else "0"
        return {
            "first_lines": [],
            "step_lines": [],
            "load_a": _matrix_load(to_a, "map_a", depth, first_row.strip("()"), a, way_a),
            "load_b": _matrix_load(to_b, "map_b", depth, first_column, b, way_b),
            **waits,
        }
    columns, per_tap = a.window[1], derived.steps_per_tap
    tap = "step" if per_tap == 1 else "tap"
    channel = "0" if per_tap == 1 else f"step % {per_tap} * {derived.tile_k}"
    step_lines = [f"const int tap = step / {per_tap};"] if p.taps > 1 and per_tap > 1 else []
    offsets = [
        _scaled(f"{tap} % {columns}" if a.window[0] > 1 else tap, a.dilations[1]) if columns > 1 else "0",
        _scaled(f"{tap} / {columns}" if columns > 1 else tap, a.dilations[0]) if a.window[0] > 1 else "0",
    ]
    load_b = (
        _load("3d", to_b, "map_b", [channel, tap, first_column], way_b)
        if p.taps > 1
        else _matrix_load(to_b, "map_b", channel, first_column, b, way_b)
    )
    pixel = [channel, "first_w", "first_h", "0" if is_one(a.image[0]) else "first_n", *offsets]
    return {
        "first_lines": _first_pixel(a, arguments, first_row, "first"),
        "step_lines": step_lines,
        "load_a": _load("im2col_4d", to_a, "map_a", pixel, way_a),
        "load_b": load_b,
        **waits,
    }


def _waits(s: TileSchedule, derived: TileSizes) -> dict[str, str]:
    """Statements around the loads of a step.

    wait_empty      waits until the ring has room
    announce        tells the stage's barrier of the bytes that come; of a pair, the first one's barrier counts those of both
    """
    announce = f"gc_mbarrier_arrive_expect_tx(full + stage, {derived.stage_bytes});"
    if s.multicast == PAIR:
        announce = f"if (rank == 0) gc_mbarrier_arrive_expect_tx(full + stage, {2 * derived.stage_bytes});"
    return {
        "wait_empty": f"gc_mbarrier_wait{'_cluster' if s.multicast else ''}(empty + stage, parity);",
        "announce": announce,
    }


def _one_tap(
    a: Form, name: str, to: str, tensor_map: str, channel: str, first: str, arguments: Arguments, way: str
) -> tuple[list[str], str]:
    """Where the rows of a part of ``a`` start, and the load of a step of it."""
    if isinstance(a, Matrix):
        return [], _matrix_load(to, tensor_map, channel, first.strip("()"), a, way)
    image = "0" if is_one(a.image[0]) else f"{name}_n"
    pixel = [channel, f"{name}_w", f"{name}_h", image, "0", "0"]
    return _first_pixel(a, arguments, first, name), _load("im2col_4d", to, tensor_map, pixel, way)


def _first_pixel(a: Pixels, arguments: Arguments, first: str, prefix: str) -> list[str]:
    """Where the pixels of the row ``first`` start: in which image, and at which pixel of it."""
    (oh, ow), (several, *_) = a.out, (not is_one(n) for n in a.image)
    image = [f"const int {prefix}_n = {over(first, told(arguments, oh * ow))};"] if several else []
    line, column = over(first, told(arguments, ow)), "0" if at_most(ow, 1) else remainder(first, told(arguments, ow))
    row = line if not several else "0" if at_most(oh, 1) else remainder(line, told(arguments, oh))
    lines = [
        f"const int {prefix}_{name} = {_moved(_scaled(text, step), start)};"
        for name, text, step, start in zip("wh", (column, row), a.steps[::-1], a.first[::-1], strict=True)
    ]
    return [*lines, *image]


def _matrix_load(to: str, name: str, depth: str, span: str, form: Matrix, way: str) -> str:
    if form.has_batch:
        return _load("3d", to, name, [depth, span, "batch"], way)
    return _load("2d", to, name, [depth, span], way)


def _load(form: str, to: str, name: str, at: list[str], way: str) -> str:
    """One load into the stage of this work-group, or of both."""
    ranks = ", 3" if way == "_multicast" else ""
    return f"gc_tma_load_{form}{way}({to}, &{name}, full + stage, {', '.join(at)}{ranks});"


def _scaled(text: str, factor: int) -> str:
    return text if factor == 1 or text == "0" else f"{text} * {factor}"


def _moved(text: str, by: int) -> str:
    if text == "0":
        return str(by)
    return text if by == 0 else f"{text} {'-' if by < 0 else '+'} {abs(by)}"
