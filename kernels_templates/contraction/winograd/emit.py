"""Text for the ``winograd`` contraction template: addresses, the statements of each stage, the epilogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.arguments import highest
from gpucomp.codegen.c.constant_matvec import sums_of
from gpucomp.codegen.c.dialect import Dialect
from gpucomp.codegen.c.epilogue import epilogue, left_sums, split_scratch
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import modulo, over, plus, times
from gpucomp.expr.core import var
from gpucomp.ir.types import F32, DType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.convolution import packed_filters
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernel.forms.matrix import loadable_pixels
from gpucomp.kernel.winograd_matrices import ALGORITHMS, Algorithm, floats
from gpucomp.kernels_templates.contraction.winograd import halves
from gpucomp.refusal import required

if TYPE_CHECKING:
    from gpucomp.kernels_templates.contraction.winograd.space import WinogradProblem, WinogradSchedule, WinogradSizes

COLUMN_ACCESS = 4  # output channels per access
CHANNEL_ACCESS = 4  # input channels per access, in stages that have as many


def transform_of(outputs: int) -> str:
    """The name, in ``gpucomp.kernel.passes.pack_weights.TRANSFORMS``, of the filter transform of F(``outputs``, 3)."""
    return f"winograd{outputs}3"


def algorithm_of(outputs: int) -> Algorithm:
    return ALGORITHMS[transform_of(outputs)]


def emit_winograd(
    kernel: Kernel[Contraction], printer: CPrinter, s: WinogradSchedule, p: WinogradProblem, derived: WinogradSizes
) -> Mapping[str, Any]:
    """The text for ``kernels_templates/contraction/winograd/kernel.j2``, by stage."""
    form = required(loadable_pixels(kernel))
    filters = packed_filters(kernel, (derived.products, p.depth, derived.padded_n), "contraction/winograd")
    most = highest(*(t.size for t in kernel.params)) + highest(derived.all_blocks) + s.blocks + p.depth + s.channels
    index, acc_type = printer.dialect.index_type(most), printer.dialect.value_type(F32)
    work = _Work(printer, form.dtype, acc_type, "" if index == "int" else f"({index})", s, p, derived)
    by_fours = left_sums(printer, F32, s.splits, derived.out_vector)["left_at_once"] == 4
    found = epilogue(kernel, printer, var("batch", 1), derived.out_vector, work.sum)
    return {
        "index": index,
        "acc_type": acc_type,
        "scratch": split_scratch(printer, acc_type, s.splits),
        "buffers": [2] if s.stages > 1 else [],
        "q": "q" if s.positions > 1 else "0",
        **_places(work, index),
        **_reads(work),
        **_loads(work, printer.params[form.source][0], printer.params[filters][0]),
        "kept": {buffer: _kept(work, buffer) for buffer in ("", "[0]", "[now]")},
        "halves_kept": {buffer: _halves_kept(work, buffer) for buffer in ("[0]", "[now ^ 1]")}
        if derived.halves
        else {},
        "operands": _operands(work, "[now]" if s.stages > 1 else ""),
        **_products(work),
        **_tasks(work),
        "partial_at": times("tile", s.splits * s.blocks * s.outputs * s.outputs * s.columns),
        "leave_sums": lambda split: _left(work, split, by_fours=by_fours),
        "add_sums": _added(work, by_fours=by_fours),
        "store_lines": [*found.row_lines, *found.store],
    }


@dataclass(frozen=True, slots=True)
class _Work:
    """What one work-item computes, and the names of its values."""

    printer: CPrinter
    pixel: DType
    acc_type: str
    wide: str  # a cast before operands that are multiplied in 64 bits
    s: WinogradSchedule
    p: WinogradProblem
    d: WinogradSizes

    @property
    def dialect(self) -> Dialect:
        return self.printer.dialect

    @property
    def first_block(self) -> str:
        return "first_block" if self.d.tiles_b > 1 else "0"

    @property
    def first_column(self) -> str:
        return "first_column" if self.d.tiles_n > 1 else "0"

    @property
    def part(self) -> str:
        """The row of blocks of an output task."""
        return "part" if self.d.rows > 1 else "0"

    @property
    def first(self) -> str:
        """The buffer in shared memory that products are exchanged through."""
        return "[0]" if self.s.stages > 1 else ""

    @property
    def has_channel_tail(self) -> bool:
        return self.p.depth % self.s.channels != 0

    @property
    def sum(self) -> str:
        """The sum that the epilogue reads; of a vector, the element of its lane; of a line's outputs, that of its row."""
        row = "sums[y]" if self.d.in_lines else "sums"
        if self.d.out_vector > 1:
            return f"{row}[{LANE}]"
        return row if self.d.in_lines else "sum"

    @property
    def task(self) -> str:
        return "task" if self.d.out_tasks > self.d.threads else "id"

    def array(self, name: str, size: int) -> str:
        return self.dialect.aligned_array(self.acc_type, name, size)

    def copy(self, to: str, source: str, width: int, guard: str = "") -> list[str]:
        return self.dialect.copy(to, source, F32, width, guard)

    def row_at(self, i: int | str, mine: str) -> str:
        """The position, in a tile, of block ``i`` of a work-item."""
        return _place(i, self.s.reg_b, self.d.rows, mine)

    def column_at(self, j: int) -> str:
        """The position, in a tile, of column ``j`` of a work-item."""
        return _place(j, self.s.reg_n, self.d.row_columns, "my_column")


def _place(i: int | str, reg: int, items: int, mine: str) -> str:
    """The position, in a tile, of element ``i`` of a work-item's ``reg`` elements.

    They are in runs of four, and the runs of ``items`` work-items are adjacent.
    """
    if items == 1:
        return str(i)
    if reg <= 4:
        return plus(times(mine, reg), i)
    return plus(times(over(i, 4), items * 4), times(mine, 4), modulo(i, 4))


def _places(work: _Work, index: str) -> dict[str, list[str]]:
    """The positions, blocks and columns that a work-item computes, and the start of its work-group's tile."""
    s, d = work.s, work.d
    lanes = d.rows * d.row_columns
    column_tile = "tile" if d.tiles_b == 1 else f"(tile % {d.tiles_n})"
    row_tile = over("tile", d.tiles_n)
    if work.wide and d.tiles_n > 1:
        row_tile = f"({row_tile})"
    first_column, first_block = times(work.wide + column_tile, s.columns), times(work.wide + row_tile, s.blocks)
    return {
        "my_place": [
            f"const int my_position = {times(over('id', lanes), s.positions)};",
            *([f"const int my_row = {over(modulo('id', lanes), d.row_columns)};"] if d.rows > 1 else []),
            f"const int my_column = {modulo('id', d.row_columns)};",
        ],
        "tile_place": [
            *([f"const {index} first_column = {first_column};"] if d.tiles_n > 1 else []),
            *([f"const {index} first_block = {first_block};"] if d.tiles_b > 1 else []),
        ],
    }


def _reads(work: _Work) -> dict[str, Any]:
    """The column of pixels that a work-item reads and its block, the rows it transforms, and the filters it moves."""
    s, p, d = work.s, work.p, work.d
    block_line = over("from_block", d.blocks_x)
    from_line = modulo(block_line, d.blocks_y) if p.images > 1 else block_line
    image = over("from_block", d.blocks_y * d.blocks_x)
    line = plus(times(image, p.height), "from_y") if p.images > 1 else "from_y"
    pixel = plus(times(line, p.width), "from_x")
    filter_columns = s.columns // COLUMN_ACCESS
    row = plus(times("u_position", p.depth), "u_channel")
    guards = [
        f"from_block < {d.all_blocks}" if d.all_blocks % s.blocks else "",
        f"id < {d.column_tasks}" if d.column_tasks < d.threads else "",
    ]
    return {
        "half_place": halves.places(s) if d.halves else [],
        "read_y": f"y / {halves.COLUMNS}" if d.halves else "y",
        "read_x": f"from_x + y % {halves.COLUMNS}" if d.halves else "from_x",
        "v_block": modulo("id", s.blocks),
        "v_column": modulo(over("id", s.blocks), d.side),
        "v_channel": times(over("id", s.blocks * d.side), d.v_wide),
        "row_at": modulo("id", d.patches),
        "row_line": over("id", d.patches),
        "from_block": plus(work.first_block, "v_block"),
        "from_y": _signed(plus(times(from_line, s.outputs), p.first_y)),
        "from_x": _signed(plus(times(modulo("from_block", d.blocks_x), s.outputs), p.first_x))
        + (" + v_half" if d.halves else " + v_column"),
        "v_at": plus(times(pixel, p.depth), "v_channel"),
        "reads_pixels": " && ".join(filter(None, guards)),
        "reads_columns": guards[1],
        "transforms_rows": f"id < {d.row_tasks}" if d.row_tasks < d.threads else "",
        "u_column": times(modulo("id", filter_columns), COLUMN_ACCESS),
        "u_channel": modulo(over("id", filter_columns), s.channels),
        "u_position": over("id", filter_columns * s.channels),
        "u_at": plus(times(f"({row})", d.padded_n), work.first_column, "u_column"),
    }


def _signed(text: str) -> str:
    return text.replace("+ -", "- ")


@dataclass(frozen=True, slots=True)
class LoadText:
    """Statements that load the pixels and filters of a stage into registers."""

    guard: list[str]  # run once
    pixels: list[str]  # for pixel ``y`` of the column
    filters: list[str]  # for filter ``i`` of ``filter_steps``


def _loads(work: _Work, image: str, filters: str) -> dict[str, Any]:
    """The arrays in registers, and the statements that load the first channels and the next ones."""
    s, p, d = work.s, work.p, work.d
    begin, end = ("channel_begin", "channel_end") if s.splits > 1 else ("0", str(p.depth))
    filter_next = "filter_next" + (f"[{d.filter_steps}]" if d.filter_steps > 1 else "")
    second = plus("channel_begin" if s.splits > 1 else 0, s.channels)
    share = plus("channel_begin", d.tiles_per_split * s.channels)
    return {
        "arrays": [
            work.dialect.aligned_array(work.dialect.moved_type(work.pixel), "pixels", d.v_reads * d.v_wide),
            work.array(filter_next, COLUMN_ACCESS),
            work.array(f"acc[{s.positions}][{s.reg_b}]", s.reg_n),
        ],
        "split_channels": d.tiles_per_split * s.channels,
        "channel_end": f"{share} < {p.depth} ? {share} : {p.depth}",
        "has_channels": "channel_begin < channel_end" if s.splits > 1 else "",
        "begin": begin,
        "end": end,
        "load_first": _load(work, image, filters, begin),
        "second": second,
        "load_second": _load(work, image, filters, second),
        "load_following": _load(work, image, filters, "following"),
    }


def _load(work: _Work, image: str, filters: str, start: str) -> LoadText:
    """Loads the pixels and filters of the channels from ``start`` on."""
    p, d = work.p, work.d
    guard, inside, in_depth = [], "inside", ""
    if work.has_channel_tail:
        guard = [f"const unsigned int read = {plus('v_channel', start)} < {p.depth} ? inside : 0u;"]
        inside, in_depth = "read", f"{plus('u_channel', start)} < {p.depth}"
    step = d.filter_step * p.depth * d.padded_n
    pixel_at = plus("v_at", start, halves.pixel_at(p) if d.halves else times("y", p.width * p.depth))
    filter_at = plus("u_at", times(start, d.padded_n), times(_filter(work), step))
    pixel = "pixels + " + times("y", d.v_wide)
    return LoadText(
        guard,
        _fetched(work, pixel, f"{image} + {pixel_at}", f"{inside} >> y & 1u"),
        work.copy(_filter_next(work), f"{filters} + {filter_at}", COLUMN_ACCESS, in_depth),
    )


def _fetched(work: _Work, to: str, source: str, guard: str) -> list[str]:
    """Loads ``v_wide`` channels of a pixel, zeros if ``guard`` is false."""
    if work.d.v_wide == 1 and work.pixel in work.dialect.converted:
        return [f"*({to}) = {guard} ? vload_half(0, {source}) : 0.0f;"]
    return work.dialect.fetch(to, source, work.pixel, work.d.v_wide, guard)


def _filter(work: _Work) -> str:
    """The number of a work-item's access to the filters."""
    return "i" if work.d.filter_steps > 1 else "0"


def _filter_next(work: _Work) -> str:
    return "filter_next[i]" if work.d.filter_steps > 1 else "filter_next"


@dataclass(frozen=True, slots=True)
class KeptText:
    """Statements that write registers to a buffer of shared memory: pixels as B^T d B, filters unchanged."""

    columns: list[str]  # for B^T times channel ``c`` of a column of pixels
    filters: list[str]  # for filter ``i`` of ``filter_steps``
    rows: list[str]  # for row ``i`` of ``row_steps`` times B, in place


def _kept(work: _Work, buffer: str) -> KeptText:
    s, d = work.s, work.d
    pixel = work.printer.fetched(f"pixels[{times('%s', d.v_wide)} + c]", work.pixel)
    kept = f"tile_v{buffer}[{d.side} * %s + v_column][{times('(v_channel + c)', s.blocks)} + v_block]"
    line = plus("row_line", times("i" if d.row_steps > 1 else "0", d.row_step))
    in_row = f"tile_v{buffer}[{plus(times(line, d.side), '%s')}][row_at]"
    position = plus("u_position", times(_filter(work), d.filter_step))
    return KeptText(
        _transformed(work, pixel, kept),
        work.copy(f"&tile_u{buffer}[{position}][u_channel][u_column]", _filter_next(work), COLUMN_ACCESS),
        _transformed(work, in_row, in_row),
    )


def _halves_kept(work: _Work, buffer: str) -> list[tuple[int, list[str]]]:
    """What writes a stage to ``buffer`` between products: after those of which channel, and the statements.

    With each row of half a block a part of the filters.
    """
    s, d = work.s, work.d
    parts = []

    def pixel(y: int) -> str:
        return work.printer.fetched(f"pixels[{y}]", work.pixel)

    for row in range(d.side):
        lines = halves.row_of_half(work.acc_type, algorithm_of(s.outputs), pixel, row, buffer)
        for i in range(d.filter_steps * row // d.side, d.filter_steps * (row + 1) // d.side):
            target = f"&tile_u{buffer}[{plus('u_position', i * d.filter_step)}][u_channel][u_column]"
            lines += work.copy(target, f"filter_next[{i}]" if d.filter_steps > 1 else "filter_next", COLUMN_ACCESS)
        parts.append((halves.written_at(row, s, d.side), lines))
    return parts


def _transformed(work: _Work, source: str, target: str) -> list[str]:
    """B^T times a line, from ``source`` to ``target``. In these texts %s is the element's number in the line."""
    numbers = [str(k) for k in range(work.d.side)]
    values = [f"d{k}" for k in numbers]
    transform = sums_of(work.dialect, work.acc_type, floats(algorithm_of(work.s.outputs).data))
    return [
        *(f"const {work.acc_type} d{k} = {source.replace('%s', k)};" for k in numbers),
        *transform(values, [target.replace("%s", k) for k in numbers]),
    ]


def _operands(work: _Work, buffer: str) -> list[str]:
    """Reads the pixels and filters of one position and channel into registers."""
    s = work.s
    position = plus("my_position", "q" if s.positions > 1 else "0")
    run = min(s.reg_b, 4)
    lines = [work.array("v_part", s.reg_b), work.array("u_part", s.reg_n)]
    for i in range(0, s.reg_b, run):
        row = work.row_at(i, "my_row")
        at = plus(times("k", s.blocks), f"({row} ^ {halves.moved('k', s)})" if work.d.halves else row)
        lines += work.copy(plus("v_part", i), f"&tile_v{buffer}[{position}][{at}]", run)
    for j in range(0, s.reg_n, COLUMN_ACCESS):
        at = f"&tile_u{buffer}[{position}][k][{work.column_at(j)}]"
        lines += work.copy(plus("u_part", j), at, COLUMN_ACCESS)
    return lines


# ---- the outputs ----


def _products(work: _Work) -> dict[str, Any]:
    """Writes a work-item's products of block ``i`` to shared memory; whole lines are first reduced to outputs."""
    s, d = work.s, work.d
    values = [f"acc[{q}][i][j]" for q in range(d.side)]
    back = sums_of(work.dialect, work.acc_type, floats(algorithm_of(s.outputs).result))
    in_lines = bool(d.in_lines)  # otherwise a work-item may have fewer positions than a line
    position = plus("my_position", "q" if s.positions > 1 else "0")
    return {
        "line_array": work.array(f"line[{s.outputs}]", s.reg_n),
        "line_outputs": back(values, [f"line[{x}][j]" for x in range(s.outputs)]) if in_lines else [],
        "my_line": over("my_position", d.side),
        "leave_line": _to_shared(work, "line[x]", plus(times("my_line", s.outputs), "x")),
        "leave_products": _to_shared(work, f"acc[{'q' if s.positions > 1 else '0'}][i]", position),
    }


def _to_shared(work: _Work, sums: str, position: str) -> list[str]:
    """Writes a work-item's columns of one position."""
    row = "my_row" if work.d.rows > 1 else "0"
    lines = []
    for j in range(0, work.s.reg_n, COLUMN_ACCESS):
        lines += work.copy(f"&tile_u{work.first}[{position}][{row}][{work.column_at(j)}]", plus(sums, j), COLUMN_ACCESS)
    return lines


def _tasks(work: _Work) -> dict[str, Any]:
    """All outputs of ``rows`` blocks. A task is a run of columns of one output, or of a column of outputs."""
    s, p, d = work.s, work.p, work.d
    runs = s.columns // d.out_vector
    each = {
        1: f"for (int task = id; task < {d.out_tasks}; task += {d.threads})",
        0: "",
        -1: f"if (id < {d.out_tasks})",
    }
    block_line = over("block", d.blocks_x)
    out_line = modulo(block_line, d.blocks_y) if p.images > 1 else block_line
    image_line = plus(times(over("block", d.blocks_y * d.blocks_x), p.out_y), "out_y") if p.images > 1 else "out_y"
    guards = [
        f"block < {d.all_blocks}" if d.all_blocks % s.blocks else "",
        f"out_y < {p.out_y}" if p.out_y % s.outputs else "",
        f"out_x < {p.out_x}" if p.out_x % s.outputs else "",
        f"col < {p.n // d.out_vector}" if p.n % s.columns else "",
    ]
    output = f"x = {over(work.task, runs)} % {s.outputs}"
    if not d.in_lines:
        output += f", y = {over(work.task, runs * s.outputs)} % {s.outputs}"
    outputs = s.outputs * s.outputs // d.task_outputs  # tasks of a block per run of columns
    return {
        "each_task": each[(d.out_tasks > d.threads) - (d.out_tasks < d.threads)],
        "task_place": [
            f"const int run = {modulo(work.task, runs)};",
            f"const int {output};",
            *([f"const int part = {over(work.task, runs * outputs)};"] if d.rows > 1 else []),
        ],
        "sums": _declared(work),
        "sum": work.sum,
        "lane": f"[{LANE}]" if d.out_vector > 1 else "",
        "read_products": _read_products(work),
        "column_outputs": _column_outputs(work) if d.in_lines else [],
        "block": plus(work.first_block, work.row_at("i", work.part)),
        "out_x_at": plus(times(modulo("block", d.blocks_x), s.outputs), "x"),
        "out_y_at": plus(times(out_line, s.outputs), "y"),
        "col": plus(over(work.first_column, d.out_vector), "run"),
        "stored": " && ".join(filter(None, guards)),
        "row": plus(times(image_line, p.out_x), "out_x"),
    }


def _declared(work: _Work) -> str:
    """Declares the sums of a task; with lines, the sums of a column of outputs."""
    width, name = work.d.out_vector, f"sums[{work.s.outputs}]" if work.d.in_lines else "sums"
    if width > 1:
        return work.array(name, width)
    return f"{work.acc_type} {name};" if work.d.in_lines else f"{work.acc_type} sum = 0.0f;"


def _read_products(work: _Work) -> list[str]:
    """Reads a task's operands from shared memory.

    With lines, these are a column of their outputs; otherwise three products of position ``j``.
    """
    d = work.d
    if d.in_lines:
        positions = [plus("x", k * work.s.outputs) for k in range(d.side)]
    else:
        positions = [plus("4 * y + x + j", 4 * k) for k in range(3)]
    lines: list[str] = []
    for k, position in enumerate(positions):
        source = f"tile_u{work.first}[{position}][{work.part}][{times('run', d.out_vector)}]"
        if d.out_vector > 1:
            lines += [work.array(f"m{k}", d.out_vector), *work.copy(f"m{k}", f"&{source}", d.out_vector)]
        else:
            lines.append(f"const {work.acc_type} m{k} = {source};")
    return lines


def _column_outputs(work: _Work) -> list[str]:
    """A^T times a column of lines' outputs."""
    at_lane = f"[{LANE}]" if work.d.out_vector > 1 else ""
    back = sums_of(work.dialect, work.acc_type, floats(algorithm_of(work.s.outputs).result))
    values = [f"m{k}{at_lane}" for k in range(work.d.side)]
    return back(values, [f"sums[{y}]{at_lane}" for y in range(work.s.outputs)])


# ---- the sums of work-groups that share the channels ----


def _left(work: _Work, split: str, *, by_fours: bool) -> list[str]:
    """Writes a task's sums to the place of ``split`` in the workspace."""
    if by_fours:
        return _each_four(work, lambda first, _, at: [work.dialect.leave(plus("partial", at), first)], split)
    return _each_sum(work, lambda total, at: f"partial[{at}] = {total};", split)


def _added(work: _Work, *, by_fours: bool) -> dict[str, list[str]]:
    """``start`` sets a task's sums to zero; ``add`` adds the sums that ``split`` stored."""
    starts_at_zero = work.d.out_vector == 1 and not work.d.in_lines  # in its declaration
    start = [] if starts_at_zero else _each_sum(work, lambda total, _: f"{total} = 0.0f;", "split")
    if not by_fours:
        return {"start": start, "add": _each_sum(work, lambda total, at: f"{total} += partial[{at}];", "split")}

    def add(_: str, total: str, at: str) -> list[str]:
        return [
            work.array("left", 4),
            work.dialect.found("left", plus("partial", at)),
            "#pragma unroll",
            f"for (int r = 0; r < 4; ++r) {total} += left[r];",
        ]

    return {"start": start, "add": _each_four(work, add, "split")}


def _sums_at(work: _Work, split: str) -> str:
    """The address of the sums of a task for block ``i`` in the workspace."""
    s, d = work.s, work.d
    own = d.task_outputs * d.out_vector
    group = s.blocks * s.outputs * s.outputs * s.columns
    return plus(times(split, group), times("i", d.out_tasks * own), times(work.task, own))


def _each_sum(work: _Work, statement: Callable[[str, str], str], split: str) -> list[str]:
    """``statement`` for each sum of a task, given the text of the sum and of its place in the workspace."""
    d = work.d
    row = times("y", d.out_vector) if d.in_lines else "0"
    lane = LANE if d.out_vector > 1 else "0"
    line = statement(work.sum, plus(_sums_at(work, split), row, lane))
    if d.out_vector > 1:
        line = f"for (int {LANE} = 0; {LANE} < {d.out_vector}; ++{LANE}) {line}"
    return _each_row(work, ["#pragma unroll", line] if d.out_vector > 1 else [line])


def _each_four(work: _Work, statements: Callable[[str, str, str], list[str]], split: str) -> list[str]:
    """The same for four sums at a time: ``statements`` are given the first sum, sum ``r``, and their place, as text."""
    row = "sums[y]" if work.d.in_lines else "sums"
    at = plus(_sums_at(work, split), times("y", work.d.out_vector) if work.d.in_lines else "0")
    return _each_row(work, statements(row, f"{row}[r]", at))


def _each_row(work: _Work, lines: Sequence[str]) -> list[str]:
    """``lines`` for each row ``y`` of a task's outputs."""
    if not work.d.in_lines:
        return list(lines)
    return ["#pragma unroll", f"for (int y = 0; y < {work.s.outputs}; ++y) {{", *lines, "}"]
