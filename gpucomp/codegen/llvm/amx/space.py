"""Schedules of contractions on tile registers (AMX): parameters, objections, and a default by a cost model.

A tile has 16 rows of 64 bytes. ``tdpbf16ps`` adds the product of a tile of rows (16 rows of 32 bf16) and a tile of
columns (16 columns, k in pairs) to a tile of f32 sums. The instructions for bytes take 64 points of k, in quads, and
sum to i32.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import ClassVar

from gpucomp.codegen.llvm.amx.operands import WORD, Image, Narrow, image_of, narrow_of, straight_rows
from gpucomp.codegen.llvm.contraction.operands import k_contiguous
from gpucomp.codegen.llvm.core_space import FEW_THREADS, microseconds
from gpucomp.device.limits import Limits
from gpucomp.ir.extremes import largest, smallest
from gpucomp.ir.size import Size, bounds, is_zero
from gpucomp.ir.types import BF16
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.passes.pack_weights import packable
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.schedule.space import can_run, remembered

ROWS, COLUMNS, LINE = 16, 16, 64  # rows and columns of a tile; bytes of a row
REGISTERS = 8
IN_PLACE, COPIED, LINES = range(3)
FEATURES = {BF16: ("amx-tile", "amx-bf16")}
BYTE_FEATURES = ("amx-tile", "amx-int8")
DEEP_PIXEL = 1024  # bytes
STACK_BYTES = 3 << 19  # most scratch of one call
LINES_BYTES = STACK_BYTES * 3 // 4  # of it for lines of images of any size
MOST_PLANES = 16  # most channels that are interleaved by unrolled shuffles
TASK_ROWS = (16, 32, 48, 64, 96, 128, 192, 224, 256, 384, 512, 1024)


class TaskSchedule(Tunables):
    """A task of an engine for narrow operands: its part of the result, and how it reads the operands."""

    tile_m: int = tunable(TASK_ROWS, "about how many rows of the result a task has")
    panels: int = tunable((1, 2, 3, 4, 6, 8, 12, 16, 32, 64), "panels of tiles_n tiles of columns of a task")
    pack_a: int = tunable((0, 1, 2), "rows are 0: read in place, 1: copied together, 2: read from copied image lines")
    pack_b: int = tunable((1, 2), "columns are 1: copied together, 2: packed at compile time")
    across: int = tunable((0, 1), "1: a tile of rows continues in the next line of the image")
    ahead: int = tunable((0, 1), "1: a panel of columns is prefetched while the one before it is multiplied")


class TileBlock(Tunables):
    """The register block of tile registers."""

    rows: ClassVar[int] = ROWS  # most rows of a tile
    even: ClassVar[bool] = True  # all tiles have the same number of rows, which each run decides
    tiles_m: int = tunable((1, 2, 3, 4), "tiles of rows of the register block")
    tiles_n: int = tunable((1, 2, 3, 4, 6), "tiles of columns of the register block")


class DotsBlock(Tunables):
    """The register block of dot-product instructions. Its rows take the place of a tile's."""

    tiles_m: ClassVar[int] = 1
    even: ClassVar[bool] = False
    rows: int = tunable((1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14), "rows of the register block")
    tiles_n: int = tunable((1, 2, 3, 4), "16 columns each, of the register block")


class TileSchedule(TileBlock, TaskSchedule):
    pass


class VnniSchedule(DotsBlock, TaskSchedule):
    pass


NarrowSchedule = TileSchedule | VnniSchedule


class NarrowProblem(Sizes):
    """Sizes of the contraction, and how its operands may be read."""

    batch: int
    m: int
    n: int
    k: int
    run: int  # points of k that are contiguous in memory
    outer: int  # number of runs
    nbytes: int  # bytes of an element of a row
    straight: int  # 1: rows can be read in place
    b_constant: int  # 1: columns can be packed when the model is compiled
    b_batched: int  # 1: each batch has its own columns
    b_along_k: int  # 1: columns are contiguous along k
    window: int  # 1: ``a`` is a window that slides over images; the numbers below describe it
    images: int
    out_y: int
    out_x: int
    taps_y: int
    taps_x: int
    stride_y: int
    stride_x: int
    channels: int
    planes: int  # 1: each channel of an image is a plane

    @property
    def column_bytes(self) -> int:
        """Bytes of an element of a packed column."""
        return self.nbytes


class RowTiles(Sizes):
    """How rows and k are divided into tiles. Fields that describe copied lines of an image are 0 for other rows."""

    depth: int  # points of k in one tile
    parts: int  # tiles per run
    runs: int
    rows: int  # rows per tile
    most_rows: int  # ... in any run
    tiles: int  # tiles of rows: in all, or in a task that copies lines
    task_tiles: int  # tiles of rows in a task
    m_tasks: int  # tasks along the rows
    channels: int = 0  # channels of a pixel of a copied line, padded
    pixel_bytes: int = 0
    taps_inside: bool = (
        False  # each tile's points of k are read at all taps: that much of deep pixels fits the first cache
    )
    lines: int = 0  # lines of the result in a task
    pitch: int = 0  # pixels in a copied line
    width: int = 0  # rows from one line of the result to the next
    flat: int = 0  # rows of a task, counted along copied lines
    along: int = 0  # tiles per line; 0 if tiles continue in the next line
    most_bytes: int = 0  # of copied lines, and rows of their tiles, in any run; 0 without sizes
    most_places: int = 0


class NarrowSizes(RowTiles):
    """What follows from a schedule and a problem."""

    group: int  # elements per word
    steps: int  # tiles of k
    n_tiles: int  # tiles of columns
    tiles_n: int  # tiles of columns per panel
    panel_count: int
    panels: int  # panels per task
    panel_bytes: int
    row_bytes: int  # bytes from one copied row to the next


def accepts(kernel: Kernel[Contraction], features: frozenset[str]) -> str:
    """Why tile registers cannot compute ``kernel``; empty if they can."""
    narrow = narrow_of(kernel)
    if narrow is None:
        return "an operand is wider than bf16, or than a byte for sums in i32"
    if missing := [f for f in FEATURES.get(narrow.dtype, BYTE_FEATURES) if f not in features]:
        return f"the processor has no {' and no '.join(missing)}"
    if features & {"avx512vnni", "avxvnni"} and narrow.few_rows:
        return "the rows are few, for which dot products of bytes are as fast"
    return unreadable_columns(kernel, narrow)


def unreadable_columns(kernel: Kernel[Contraction], narrow: Narrow) -> str:
    """Why panels of columns cannot be made; empty if they can."""
    ops = narrow.ops
    if any(is_zero(axis.extent) for axis in (*kernel.body.domain, *kernel.body.k)):
        return "nothing is multiplied"
    if not packable(kernel, "b") and ops.ko:
        return "columns that are not constant have several axes of k"
    if any(isinstance(axis.extent, Size) for axis in (ops.n, ops.ki, *ops.ko)):
        return "the columns or the depth are not the same in every run"
    image = image_of(kernel)
    if image is not None and has_taps(image) and isinstance(image.out_x, Size):
        p = problem(kernel)
        pixel_bytes = _up(p.channels * p.nbytes, 2 * LINE) + LINE
        if _most_line_bytes(p, 1, pixel_bytes) > LINES_BYTES:
            return "the lines of the largest image do not fit the stack"
    return ""


def has_taps(image: Image) -> bool:
    """Whether windows overlap, so that copied lines are smaller than copied rows."""
    return image.taps_x * image.taps_y > 1


def problem(kernel: Kernel[Contraction]) -> NarrowProblem:
    c = kernel.body
    narrow, image = narrow_of(kernel), image_of(kernel)
    assert narrow is not None
    ops = narrow.ops
    p = NarrowProblem(
        batch=ops.batch.extent,
        m=ops.m.extent,
        n=ops.n.extent,
        k=ops.k,
        run=ops.ki.extent,
        outer=ops.outer,
        nbytes=narrow.dtype.nbytes,
        straight=int(straight_rows(narrow) is not None),
        b_constant=int(packable(kernel, "b")),
        b_batched=int(any(v in c.b.free for v in c.batch)),
        b_along_k=int(k_contiguous(ops.b, ops, ops.n)),
        window=0,
        images=1,
        out_y=1,
        out_x=1,
        taps_y=1,
        taps_x=1,
        stride_y=1,
        stride_x=1,
        channels=1,
        planes=0,
    )
    if image is None or not p.b_constant:
        return p
    return p.replace(
        window=1,
        images=image.image.extent,
        out_y=image.out_y,
        out_x=image.out_x,
        taps_y=image.taps_y,
        taps_x=image.taps_x,
        stride_y=image.stride_y,
        stride_x=image.stride_x,
        channels=image.channel.extent,
        planes=int(image.planes),
    )


def _parts(run: int, deepest: int, group: int) -> int:
    """The smallest number of equal parts of ``run`` points of k that fit a tile in whole words; 0 if there is none."""
    for parts in range(-(-run // deepest), run + 1):
        if run % parts == 0 and run // parts % group == 0:
            return parts
    return 0


def _up(value: int, to: int) -> int:
    return -(-value // to) * to


@remembered
def derive(s: NarrowSchedule, p: NarrowProblem) -> NarrowSizes:
    rows = _tiles_of_lines(s, p) if s.pack_a == LINES else _tiles_of_rows(s, p)
    steps, n_tiles = rows.runs * rows.parts, -(-p.n // COLUMNS)
    tiles_n = min(s.tiles_n, n_tiles)
    panel_count = -(-n_tiles // tiles_n)
    row_bytes = _up(steps * rows.depth * p.nbytes, LINE)
    if row_bytes % 1024 == 0:
        row_bytes += LINE  # rows a power of two apart share few sets of the first-level cache
    return NarrowSizes(
        **rows.numbers,
        group=WORD // p.nbytes,
        steps=steps,
        n_tiles=n_tiles,
        tiles_n=tiles_n,
        panel_count=panel_count,
        panels=min(s.panels, panel_count),
        panel_bytes=steps * tiles_n * rows.depth * COLUMNS * p.column_bytes,
        row_bytes=row_bytes,
    )


def _tiles_of_lines(s: NarrowSchedule, p: NarrowProblem) -> RowTiles:
    """Rows are counted along copied lines of an image."""
    group, deepest = WORD // p.nbytes, LINE // p.nbytes
    least = _up(p.channels, group)
    taps_inside = p.taps_x * p.taps_y > 1 and least * p.nbytes >= DEEP_PIXEL
    run = 1 if taps_inside else p.taps_x  # pixels
    fits = [c for c in range(least, least + deepest, group) if _parts(run * c, deepest, group)]
    channels = min(fits, key=lambda c: (_parts(run * c, deepest, group), c))
    parts = _parts(run * channels, deepest, group)
    pixel_bytes = channels * p.nbytes
    if taps_inside:
        pixel_bytes = _up(pixel_bytes, 2 * LINE) + LINE
    lines = max(1, min(round(s.tile_m / max(1, p.out_x)), p.out_y))
    pitch = _up((p.out_x - 1) * p.stride_x + p.taps_x, p.stride_x)
    width = pitch // p.stride_x
    flat = (lines - 1) * width + p.out_x
    if s.across:
        along, tiles = 0, max(1, -(-flat // s.rows))
        rows = -(-flat // tiles)
    else:
        along = max(1, -(-p.out_x // s.rows))
        rows, tiles = -(-p.out_x // along), along * lines
    return RowTiles(
        depth=run * channels // parts,
        parts=parts,
        runs=p.taps_y * p.taps_x // run,
        rows=rows,
        most_rows=rows,
        tiles=tiles,
        task_tiles=tiles,
        m_tasks=p.images * -(-p.out_y // lines),
        channels=channels,
        pixel_bytes=pixel_bytes,
        taps_inside=taps_inside,
        lines=lines,
        pitch=pitch,
        width=width,
        flat=flat,
        along=along,
    )


def _tiles_of_rows(s: NarrowSchedule, p: NarrowProblem) -> RowTiles:
    """Rows are read in place, or copied whole."""
    group, deepest = WORD // p.nbytes, LINE // p.nbytes
    if s.pack_a == IN_PLACE:
        runs, parts = p.outer, _parts(p.run, deepest, group) or 1
        depth = p.run // parts
    else:
        runs, parts = 1, -(-p.k // deepest)
        depth = _up(-(-p.k // parts), group)
    tiles = max(1, -(-p.m // s.rows))
    rows = max(1, -(-p.m // tiles))  # also where a run has none
    task_tiles = min(_up(max(1, s.tile_m // rows), s.tiles_m), tiles)
    return RowTiles(
        depth=depth,
        parts=parts,
        runs=runs,
        rows=rows,
        most_rows=rows,
        tiles=tiles,
        task_tiles=task_tiles,
        m_tasks=-(-tiles // task_tiles),
    )


def of_any_size(s: NarrowSchedule, p: NarrowProblem, example: NarrowProblem, way: int) -> NarrowSizes:
    """As ``derive``, of a problem with sizes whose rows are read in this ``way``: ``IN_PLACE``, ``COPIED`` or ``LINES``.

    What the layout of columns depends on is as in the example. Tasks have fewer rows if those of some run would not fit
    the stack.
    """
    d = derive(s, example)
    if way == LINES:
        return d.replace(**_lines_of_any_size(s, p, d).numbers)
    tiles = -(-p.m // s.rows)
    task_tiles = min(_up(max(1, s.tile_m // s.rows), s.tiles_m), int(bounds(tiles)[1]))
    if way == COPIED:
        task_tiles = min(task_tiles, max(1, STACK_BYTES // 2 // (s.rows * d.row_bytes)))
    return d.replace(
        rows=largest(-(-p.m // largest(tiles, 1)), 1) if s.even else s.rows,
        most_rows=s.rows,
        tiles=tiles,
        task_tiles=task_tiles,
        m_tasks=-(-tiles // task_tiles),
    )


class _LineTiles(Sizes):
    """The fields of ``RowTiles`` that depend on the sizes of an image."""

    rows: int
    most_rows: int
    tiles: int
    task_tiles: int
    m_tasks: int
    lines: int
    pitch: int
    width: int
    flat: int
    along: int
    most_bytes: int
    most_places: int


def _lines_of_any_size(s: NarrowSchedule, p: NarrowProblem, d: NarrowSizes) -> _LineTiles:
    tile_m = s.tile_m
    while tile_m > 1 and _most_line_bytes(p, tile_m, d.pixel_bytes) > LINES_BYTES:
        tile_m //= 2
    lines = largest(smallest((2 * tile_m + p.out_x) // (2 * p.out_x), p.out_y), 1)
    pitch = _up((p.out_x - 1) * p.stride_x + p.taps_x, p.stride_x)
    width = pitch // p.stride_x
    flat = (lines - 1) * width + p.out_x
    if s.across or not s.even:  # tiles of a fixed number of rows would waste many of them at the end of each line
        along, tiles = 0, -(-flat // s.rows)
        rows = -(-flat // tiles)
    else:
        along = -(-p.out_x // s.rows)
        rows, tiles = -(-p.out_x // along), along * lines
    return _LineTiles(
        rows=rows if s.even else s.rows,
        most_rows=s.rows,
        tiles=tiles,
        task_tiles=tiles,
        m_tasks=p.images * -(-p.out_y // lines),
        lines=lines,
        pitch=pitch,
        width=width,
        flat=flat,
        along=along,
        most_bytes=_most_line_bytes(p, tile_m, d.pixel_bytes),
        most_places=_most_places(p, tile_m),
    )


def _most_line_bytes(p: NarrowProblem, tile_m: int, pixel_bytes: int) -> int:
    """The most bytes of the copied lines of a task of about ``tile_m`` rows, in any run."""

    def most(x: int) -> float:  # is greatest at an end of x: it is convex
        lines = max(tile_m / x - 0.5, 0) * p.stride_y + p.taps_y
        return lines * (x * p.stride_x + p.taps_x) * pixel_bytes

    return int(max(most(max(int(x), 1)) for x in bounds(p.out_x))) + 8 * LINE


def _most_places(p: NarrowProblem, tile_m: int) -> int:
    """The most rows of a task's tiles of lines, in any run."""

    def most(x: int) -> float:
        return (tile_m / x + 1.5) * (x + p.taps_x + ROWS + 1) + 2 * ROWS

    return int(max(most(max(int(x), 1)) for x in bounds(p.out_x)))


def line_counts(d: NarrowSizes, p: NarrowProblem) -> list[int]:
    """Copied lines of a task, for each remainder of a line's number modulo the stride."""
    span = (d.lines - 1) * p.stride_y + p.taps_y
    return [-(-(span - phase) // p.stride_y) for phase in range(min(p.stride_y, p.taps_y))]


def copied_bytes(s: NarrowSchedule, p: NarrowProblem) -> int:
    """Bytes of the rows or lines that a task copies."""
    d = derive(s, p)
    if s.pack_a == LINES:
        return sum(line_counts(d, p)) * d.pitch * d.pixel_bytes + 8 * LINE
    return d.task_tiles * d.rows * d.row_bytes + 4 * LINE if s.pack_a == COPIED else 0


def registers(s: NarrowSchedule) -> tuple[int, int]:
    """Tile registers for rows and for columns, after those for the sums. A block with 0 of either cannot run."""
    left = REGISTERS - s.tiles_m * s.tiles_n
    rows = max(min(s.tiles_m, left - 1), 0)
    return rows, max(min(s.tiles_n, left - rows), 0)


def objections(s: TileSchedule, p: NarrowProblem, limits: Limits) -> Iterator[str]:
    rows, columns = registers(s)
    if not rows or not columns or (rows < s.tiles_m and columns < s.tiles_n):
        yield f"{s.tiles_m} x {s.tiles_n} tiles of sums leave too few of {REGISTERS} registers"
        return
    yield from unreadable(s, p)


def unreadable(s: NarrowSchedule, p: NarrowProblem) -> Iterator[str]:
    """Objections to the ways in which rows and columns are read."""
    if s.pack_a == IN_PLACE and not (p.straight and _parts(p.run, LINE // p.nbytes, WORD // p.nbytes)):
        yield "pack_a=0: rows in memory do not have the layout of tiles"
        return
    if s.pack_a == LINES and not p.window:
        yield "pack_a=2: no windows slide over an image"
        return
    if s.pack_a != LINES and s.across:
        yield "across=1: there are no lines"
    if s.pack_b == 2 and not p.b_constant:
        yield "pack_b=2: the columns are not constant"
    if s.pack_b == 1 and (s.pack_a == LINES or p.outer > 1):
        yield "pack_b=1: columns of several axes of k are not copied"
    d = derive(s, p)
    scratch = copied_bytes(s, p) + (d.panel_bytes if s.pack_b == 1 else 0)
    if scratch > STACK_BYTES:
        yield f"{scratch} bytes of scratch, {STACK_BYTES} are allowed"


def packing(kernel: Kernel, s: NarrowSchedule, p: NarrowProblem, *, words_first: bool = False) -> Packing | None:
    """Panels of tiles of columns: [panel, step of k, tile, word of k, column, element of the word].

    ``words_first``: the word of k comes before the tile.
    """
    if s.pack_b != 2:
        return None
    d = derive(s, p)
    filled: tuple[tuple[int, int], ...] = ()
    if d.channels > p.channels:
        taps = p.taps_y * p.taps_x
        filled = ((taps, taps), (p.channels, d.channels))
    batch = [Digit("batch", 1, p.batch)] if p.b_batched else []
    steps = [Digit("k", d.depth, d.steps)]
    if d.taps_inside:
        steps = [Digit("k", d.depth, d.parts), Digit("k", d.channels, d.runs)]
    inside = [Digit("span", COLUMNS, d.tiles_n), Digit("k", d.group, d.depth // d.group)]
    digits = [
        *batch,
        Digit("span", COLUMNS * d.tiles_n, d.panel_count),
        *steps,
        *(inside[::-1] if words_first else inside),
        Digit("span", 1, COLUMNS),
        Digit("k", 1, d.group),
    ]
    return Packing("b", tuple(x for x in digits if x.extent > 1), filled=filled)


# The cost model of a core, in cycles. Measured on Sapphire Rapids: tdpbf16ps and tdpbssd take one cycle per row of sums.
TILE_START = 2.6  # fixed cost of a multiplication, besides ROW for each of its rows
ROW = 0.84
LOAD = 8.0  # to load a tile of 16 rows
STORE = 16.0
VECTOR = 5.0  # the epilogue of 16 sums
BLOCK = 60.0
TASK = 500.0
FAR_BYTE = 0.12  # per byte of columns from beyond the second-level cache
NEAR_BYTES = 1 << 20
PIXEL = 8.0  # to copy a pixel, besides its bytes
COPY_BYTE = 0.06
FIRST_BYTES = 36 << 10  # bytes of the first-level cache for rows and columns; the rest is for the sums
SECOND_BYTE = 1 / 60  # per byte from the second-level cache
TURN = 140.0  # to transpose a tile of columns
PAIRS = 70.0  # to interleave the words of a tile of columns
TAIL = 0.15


def _block(rows_tiles: int, column_tiles: int, d: NarrowSizes, nbytes: int, far_rows: bool, far_columns: bool) -> float:
    """Cycles of a register block. ``far_*``: these operands come from the second-level cache each time."""
    if not rows_tiles or not column_tiles:
        return 0.0
    count = rows_tiles * column_tiles
    work = count * (TILE_START + ROW * d.rows)
    crossing = d.depth * nbytes / LINE if d.pixel_bytes % LINE else 0.0  # rows are not aligned to cache lines
    load = LOAD * (1 + crossing)
    loads = rows_tiles * (1 + load * d.rows / ROWS) + column_tiles * (1 + LOAD)
    second = LINE * (rows_tiles * d.rows * far_rows + column_tiles * d.depth // d.group * far_columns) * SECOND_BYTE
    finish = count * (STORE + VECTOR * d.rows)
    return (max(work, 1.1 * loads, second) + 0.1 * second) * d.steps + finish + BLOCK


def _cycles(s: TileSchedule, p: NarrowProblem, threads: int) -> float:
    """About how many cycles the busiest of ``threads`` takes."""
    if not p.batch * p.m:  # in some runs of other sizes
        return TASK
    d = derive(s, p)
    n_tasks = -(-d.panel_count // d.panels)
    tasks = p.batch * d.m_tasks * n_tasks
    whole, rest = divmod(d.task_tiles, s.tiles_m)
    tiles = min(d.n_tiles, d.panels * d.tiles_n)
    panels, last = divmod(tiles, d.tiles_n)
    row_bytes = copied_bytes(s, p) or d.task_tiles * d.rows * d.steps * d.depth * p.nbytes
    block_bytes = s.tiles_m * d.rows * d.steps * d.depth * p.nbytes
    far_rows = row_bytes + min(d.panel_bytes, FIRST_BYTES // 2) > FIRST_BYTES
    far_columns = d.panel_bytes + min(block_bytes, FIRST_BYTES // 2) > FIRST_BYTES or whole + bool(rest) == 1

    def panel(columns: int) -> float:
        blocks = whole * _block(s.tiles_m, columns, d, p.nbytes, far_rows, far_columns)
        return blocks + _block(rest, columns, d, p.nbytes, far_rows, far_columns)

    one = TASK + (panels * panel(d.tiles_n) + panel(last))
    if s.pack_a == LINES:
        pixels = sum(line_counts(d, p)) * d.pitch
        one += pixels * (4.0 if p.planes else PIXEL) + pixels * d.channels * p.nbytes * COPY_BYTE
    elif s.pack_a == COPIED:
        one += d.task_tiles * d.rows * (d.row_bytes * COPY_BYTE + PIXEL * (p.k // p.run))
    if s.pack_b == 1:
        one += tiles * d.steps * (TURN if p.b_along_k else PAIRS)
    else:
        far = d.panel_bytes * d.panels * FAR_BYTE
        if d.panel_bytes * d.panel_count <= NEAR_BYTES:
            far *= min(threads, d.m_tasks) / d.m_tasks
        one += far
    each = -(-tasks // threads)
    return one * each * (1 + (TAIL / each if threads > 1 else 0.0))


def estimate(s: TileSchedule, p: NarrowProblem, limits: Limits) -> float:
    """About how many microseconds two threads take."""
    return microseconds(_cycles(s, p, 2))


BLOCKS = ((2, 2), (1, 2), (2, 1), (1, 4), (4, 1), (1, 3), (3, 1), (1, 1))


def default(p: NarrowProblem, limits: Limits) -> TileSchedule:
    """The candidate that is fastest by the cost model on ``FEW_THREADS``; the smallest schedule if no candidate is legal."""
    smallest = TileSchedule(
        tiles_m=1, tiles_n=1, tile_m=16, panels=1, pack_a=COPIED, pack_b=2 if p.b_constant else 1, across=0, ahead=0
    )

    def cost(s: TileSchedule) -> float:
        return sum(_cycles(s, p, threads) * threads for threads in FEW_THREADS)

    legal = (s for s in _candidates(smallest, p) if can_run(s, objections, p, limits))
    return min(legal, key=cost, default=smallest).replace(ahead=int(bool(p.b_constant)))


def _candidates(smallest: TileSchedule, p: NarrowProblem) -> Iterator[TileSchedule]:
    """Register blocks that the result fills, with every task and every way to read the rows."""
    n_tiles = -(-p.n // COLUMNS)
    tasks = [n for n in TASK_ROWS if n <= 16 or n < 2 * p.m]
    for (pack_a, across), (tiles_m, tiles_n) in itertools.product(_ways(p), BLOCKS):
        if tiles_n > n_tiles or (tiles_m > 1 and tiles_m * ROWS >= p.m + ROWS):
            continue
        panels = [n for n in TileSchedule.choices("panels") if n == 1 or n < 2 * -(-n_tiles // tiles_n)]
        block = smallest.replace(tiles_m=tiles_m, tiles_n=tiles_n, pack_a=pack_a, across=across)
        for tile_m, count in itertools.product(tasks, panels):
            yield block.replace(tile_m=tile_m, panels=count)


def _ways(p: NarrowProblem) -> list[tuple[int, int]]:
    """Values of ``pack_a`` and ``across`` that are worth trying."""
    if p.straight and _parts(p.run, LINE // p.nbytes, WORD // p.nbytes) == -(-p.run * p.nbytes // LINE):
        return [(IN_PLACE, 0)]
    of_lines = [(LINES, 0), (LINES, 1)]
    return of_lines if p.window else [(IN_PLACE, 0), (COPIED, 0), *of_lines]
