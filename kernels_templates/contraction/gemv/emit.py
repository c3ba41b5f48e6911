"""Text for the contraction family's ``gemv`` template: how the matrix and the vectors are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.arguments import highest, plain
from gpucomp.codegen.c.dots import product
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import guarded, loop, modulo, over, plus, times
from gpucomp.expr.core import var
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernels_templates.contraction.loader import Loader, Operand, loader, stored

if TYPE_CHECKING:
    from gpucomp.kernels_templates.contraction.gemv.space import GemvProblem, GemvSchedule, GemvSizes


def emit_gemv(
    kernel: Kernel[Contraction], printer: CPrinter, s: GemvSchedule, p: GemvProblem, d: GemvSizes
) -> Mapping[str, Any]:
    """What ``kernels_templates/contraction/gemv/kernel.j2`` reads; each hook is described there."""
    body = kernel.body
    batch = var("batch", plain(max(1, p.batch)))
    acc_type = printer.dialect.value_type(body.acc.dtype)
    largest = highest(p.many + d.tile, p.k + d.depth_step * s.unroll, p.batch, p.few) + 1
    index = printer.dialect.index_type(largest)
    # helpers are named in the order of the operands
    found = {o.name: loader(kernel, printer, o, batch) for o in _operands(body, s, p)}
    matrix, vectors = ("a", "b") if p.few_columns else ("b", "a")
    stride = 1 if p.by_depth else p.width
    mine = "my_place" if s.many_items > 1 else "0"
    first = "first" if d.groups_many > 1 else "0"
    place = plus(first, times(mine, stride), times(found[matrix].operand.step, s.many_items * stride))
    chunked = any(o.depth_chunk for o in found.values())
    depth_width = p.width if p.by_depth else 1
    return {
        "my_place": _my_place(s, p),
        "first_depth": times("my_depth" if s.depth_items > 1 else "0", depth_width),
        "prepare_matrix": _prepared(found[matrix], index, place, p.many % d.tile != 0),
        "prepare_vectors": _prepared(found[vectors], index, found[vectors].operand.step, False),
        "read": [
            *([f"const {index} depth_chunk = depth / {depth_width};"] if chunked else []),
            *_read(found[matrix], "matrix"),
            *_read(found[vectors], "vectors"),
        ],
        **_sums(printer, body, s, p, d),
        "stores": _stores(stored(kernel, printer, batch, 1, "total"), index, acc_type, s, p, d),
        "index": index,
        "acc_type": acc_type,
    }


def _operands(body: Contraction, s: GemvSchedule, p: GemvProblem) -> list[Operand]:
    """``a`` and ``b``. The operand with few rows or columns is the vectors, which are walked along the depth."""
    return [
        Operand(
            name=name,
            value=value,
            axes=axes,
            extent=extent,
            depth=p.k,
            padded=p.k,
            by_depth=p.by_depth if is_matrix else 1,
            width=p.width if is_matrix or p.by_depth else 1,
            span_steps=s.accesses if is_matrix else p.few,
            depth_name="depth",
        )
        for name, value, axes, extent, is_matrix in (
            ("a", body.a, body.m, p.m, bool(p.few_columns)),
            ("b", body.b, body.n, p.n, not p.few_columns),
        )
    ]


def _prepared(o: Loader, index: str, place: str, clamped: bool) -> list[str]:
    """What is computed before the loop over the depth: positions, offsets, halo tests."""
    return o.prepared(index, place, clamped) if o.arrays or o.spans_used else []


def _read(o: Loader, name: str) -> list[str]:
    """Reads one step of the depth into the registers ``name``."""
    operand = o.operand
    at = f"{name}[{operand.step}]" if operand.span_steps > 1 else name
    moved = o.moved(at, f"{at}[lane]" if operand.width > 1 else at)
    ctype = o.printer.dialect.value_type(o.element.dtype)
    registers = _registers(o.printer, ctype, name, operand.span_steps, operand.width)
    return [registers, *o.depth_lines, *loop(operand.step, operand.span_steps, moved)]


def _registers(printer: CPrinter, ctype: str, name: str, steps: int, lanes: int) -> str:
    full = f"{name}[{steps}]" if steps > 1 else name
    return printer.dialect.aligned_array(ctype, full, lanes) if lanes > 1 else f"{ctype} {full};"


def _element(name: str, *indices: tuple[str, int]) -> str:
    """An element of an array. ``indices`` are (index, extent) of each axis; axes of extent 1 are left out."""
    return name + "".join(f"[{index if count > 1 else 0}]" for index, count in indices if count > 1)


def _sums(printer: CPrinter, body: Contraction, s: GemvSchedule, p: GemvProblem, d: GemvSizes) -> dict[str, list[str]]:
    """Sums ``c`` of vector ``s``.

    ``sums`` declares them, ``multiply`` adds a step's products, and ``leave`` writes them to shared memory, where they
    are added.
    """
    ctype, zero = printer.dialect.value_type(body.acc.dtype), printer.dialect.literal(0, body.acc.dtype)
    each = _element("acc", ("s", p.few), ("c", d.sums))
    zeros = [_registers(printer, ctype, "acc", p.few, d.sums), *_each_sum([f"{each} = {zero};"], p, d)]
    lane = ("lane", p.width)
    if p.by_depth:
        added, factor = each, _element("vectors", ("s", p.few), lane)
    else:  # each lane of the matrix is another column
        column = plus(times("c" if s.accesses > 1 else "0", p.width), "lane" if p.width > 1 else "0")
        added, factor = _element("acc", ("s", p.few), (column, d.sums)), _element("vectors", ("s", p.few))
    matrix = _element("matrix", ("c", s.accesses), lane)
    a, b = (matrix, factor) if p.few_columns else (factor, matrix)
    multiply = loop("lane", p.width, [product(printer, body)(added, a, b)])
    return {
        "sums": zeros if p.few * d.sums > 1 else [f"{ctype} acc = {zero};"],
        "multiply": loop("s", p.few, loop("c", s.accesses, multiply)),
        "leave": _each_sum(_left(each, s, p, d), p, d),
    }


def _each_sum(lines: list[str], p: GemvProblem, d: GemvSizes) -> list[str]:
    return loop("s", p.few, loop("c", d.sums, lines))


def _left(each: str, s: GemvSchedule, p: GemvProblem, d: GemvSizes) -> list[str]:
    """Writes a sum to its place in the work-group's shared memory: next to the other parts of it, or one per warp."""
    my_depth, mine = "my_depth" if s.depth_items > 1 else "0", "my_place" if s.many_items > 1 else "0"
    c = "c" if d.sums > 1 else "0"
    if p.by_depth:
        place = plus(times(c, s.many_items), mine)
    elif s.accesses == 1:
        place = plus(times(mine, p.width), c)
    else:
        place = plus(times(over(c, p.width), s.many_items * p.width), times(mine, p.width), modulo(c, p.width))
    place = plus(times("s" if p.few > 1 else "0", d.tile), place)
    if not s.shuffle:
        return [f"partial[{my_depth}][{place}] = {each};"]
    part = over(my_depth, 32) if d.parts > 1 else "0"
    return [f"{each} = gc_warp_sum({each});", f"if ({modulo('id', 32)} == 0) partial[{part}][{place}] = {each};"]


def _my_place(s: GemvSchedule, p: GemvProblem) -> str:
    if s.many_items == 1:
        return "const int my_depth = id;" if s.depth_items > 1 else ""
    if s.depth_items == 1:
        return "const int my_place = id;"
    if p.by_depth:
        return f"const int my_place = id / {s.depth_items}, my_depth = id % {s.depth_items};"
    return f"const int my_place = id % {s.many_items}, my_depth = id / {s.many_items};"


def _stores(
    found: Mapping[str, Any], index: str, acc_type: str, s: GemvSchedule, p: GemvProblem, d: GemvSizes
) -> list[str]:
    """Divides the work-group's results among its work-items: each adds the parts of one and stores it."""
    outputs = p.few * d.tile
    rounds = -(-outputs // d.threads)
    number = plus("id" if d.threads > 1 else "0", times("round" if rounds > 1 else "0", d.threads))
    mine = "mine" if rounds > 1 and number != "round" else number
    first = "first" if d.groups_many > 1 else "0"
    many = plus(first, modulo(mine, d.tile) if p.few > 1 else mine)
    few = over(mine, d.tile) if p.few > 1 else "0"
    row, column = (many, few) if p.few_columns else (few, many)
    named = ("row" if p.few_columns else "column") if p.many > 1 else many
    total = [*_total(acc_type, mine, d.parts), *found["row_lines"], *found["store"]]
    lines = [
        *([f"const int mine = {number};"] if mine == "mine" else []),
        *([f"const {index} row = {row};"] if p.m > 1 and row != "0" else []),
        *([f"const {index} column = {column};"] if p.n > 1 and column != "0" else []),
        *guarded(f"{named} < {p.many}" if p.many % d.tile else "", total),
    ]
    return loop("round", rounds, guarded(f"{number} < {outputs}" if outputs % d.threads else "", lines))


def _total(acc_type: str, mine: str, parts: int) -> list[str]:
    if parts <= 2:
        return [f"const {acc_type} total = " + " + ".join(f"partial[{part}][{mine}]" for part in range(parts)) + ";"]
    return [
        f"{acc_type} total = partial[0][{mine}];",
        "#pragma unroll",
        f"for (int part = 1; part < {parts}; ++part) total += partial[part][{mine}];",
    ]
