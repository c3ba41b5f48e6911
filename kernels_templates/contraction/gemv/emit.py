"""Blocks of statements for the contraction family's `gemv` template: how the matrix and the vectors are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.dots import product
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import loop, modulo, over, plus, times
from gpucomp.expr.core import var
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernels_templates.contraction.loader import Loader, Operand, loader
from gpucomp.kernels_templates.contraction.simt.emit import stored

if TYPE_CHECKING:
    from gpucomp.kernels_templates.contraction.gemv.space import GemvProblem, GemvSchedule, GemvSizes


@dataclass(frozen=True)
class OperandText:
    """What the template prints for the matrix, or for the vectors.

    prepare      before the loop over the depth: places, offsets, halo positions
    registers    of one step
    read         one step of the depth to them
    """

    prepare: list[str]
    registers: str
    read: list[str]
    numbered: bool  # whether ``depth_chunk`` is read


def gemv_hooks(kernel: Kernel, printer: CPrinter, s: GemvSchedule, p: GemvProblem, d: GemvSizes) -> Mapping[str, Any]:
    """``matrix``, ``vectors``: operands; ``acc``, ``multiply``: a sum, a product; ``row_lines``, ``store``: the epilogue."""
    body = kernel.body_as(Contraction)
    batch = var("batch", max(1, p.batch))
    acc_type = printer.dialect.value_type(body.acc.dtype)
    largest = max(p.many + d.tile, p.k + d.depth_step * s.unroll, p.batch, p.few) + 1
    index = printer.dialect.index_type(largest)
    # names of helpers come in the order of the operands
    found = {o.name: loader(kernel, printer, o, batch) for o in _operands(body, s, p)}
    matrix, vectors = ("a", "b") if p.few_columns else ("b", "a")
    stride = 1 if p.by_depth else p.width
    mine = "my_place" if s.many_items > 1 else "0"
    first = "first" if d.groups_many > 1 else "0"
    place = plus(first, times(mine, stride), times(found[matrix].operand.step, s.many_items * stride))
    text = {
        "matrix": _text(found[matrix], "matrix", index, place, p.many % d.tile != 0),
        "vectors": _text(found[vectors], "vectors", index, found[vectors].operand.step, False),
    }
    return {
        **text,
        **_sums(printer, body, s, p, d),
        **_outputs(first, s, p, d),
        **stored(kernel, printer, batch, 1, "total"),
        "index": index,
        "acc_type": acc_type,
        "zero": printer.dialect.literal(0, body.acc.dtype),
    }


def _operands(body: Contraction, s: GemvSchedule, p: GemvProblem) -> list[Operand]:
    """``a`` and ``b``. What is few is the vectors, which are walked along the depth."""
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


def _text(o: Loader, name: str, index: str, place: str, clamped: bool) -> OperandText:
    operand = o.operand
    at = f"{name}[{operand.step}]" if operand.span_steps > 1 else name
    moved = o.moved(at, f"{at}[lane]" if operand.width > 1 else at)
    return OperandText(
        prepare=o.prepared(index, place, clamped) if o.arrays or o.spans_used else [],
        registers=_registers(
            o.printer, o.printer.dialect.value_type(o.element.dtype), name, operand.span_steps, operand.width
        ),
        read=[*o.depth_lines, *loop(operand.step, operand.span_steps, moved)],
        numbered=o.depth_chunk > 0,
    )


def _registers(printer: CPrinter, ctype: str, name: str, steps: int, lanes: int) -> str:
    full = f"{name}[{steps}]" if steps > 1 else name
    return printer.dialect.aligned_array(ctype, full, lanes) if lanes > 1 else f"{ctype} {full};"


def _element(name: str, *indices: tuple[str, int]) -> str:
    """An element of an array; (index, extent) of each axis, of which one of extent 1 is none."""
    return name + "".join(f"[{index if count > 1 else 0}]" for index, count in indices if count > 1)


def _sums(printer: CPrinter, body: Contraction, s: GemvSchedule, p: GemvProblem, d: GemvSizes) -> dict[str, Any]:
    """Sums ``c`` of vector ``s``: where they are kept, what is added to them, where they meet in shared memory.

    acc        how they are declared
    sum        one of them; ``multiply`` adds a product of lane ``lane`` of access ``c`` to one
    my_place   what says which of them a work-item has
    my_depth   where in the depth it begins, in steps; ``my_part`` its place among those that it shares sums with
    place      of a sum among the work-group's
    """
    vector, c, lane = ("s", p.few), ("c", d.sums), ("lane", p.width)
    my_depth = "my_depth" if s.depth_items > 1 else "0"
    mine = "my_place" if s.many_items > 1 else "0"
    total, at = _element("acc", vector, c), "c" if d.sums > 1 else "0"
    access = "c" if s.accesses > 1 else "0"
    if p.by_depth:
        added, factor = _element("acc", vector, ("c", d.sums)), _element("vectors", vector, lane)
        place = [times(at, s.many_items), mine]
    else:
        lanes = "lane" if p.width > 1 else "0"
        added = _element("acc", vector, (plus(times(access, p.width), lanes), d.sums))
        factor = _element("vectors", vector)
        run = [times(over(at, p.width), s.many_items * p.width), times(mine, p.width), modulo(at, p.width)]
        place = [times(mine, p.width), at] if s.accesses == 1 else run
    matrix = _element("matrix", ("c", s.accesses), lane)
    a, b = (matrix, factor) if p.few_columns else (factor, matrix)
    ctype = printer.dialect.value_type(body.acc.dtype)
    lone = f"{ctype} acc = {printer.dialect.literal(0, body.acc.dtype)};"
    alone = p.few * d.sums == 1
    return {
        "acc": lone if alone else _registers(printer, ctype, "acc", p.few, d.sums),
        "alone": alone,
        "sum": total,
        "multiply": product(printer, body)(added, a, b),
        "my_place": _my_place(s, p),
        "first_depth": times(my_depth, p.width if p.by_depth else 1),
        "depth_width": p.width if p.by_depth else 1,
        "my_part": (over(my_depth, 32) if d.parts > 1 else "0") if s.shuffle else my_depth,
        "leads_warp": f"{modulo('id', 32)} == 0" if s.shuffle else "",
        "place": plus(times("s" if p.few > 1 else "0", d.tile), *place),
    }


def _my_place(s: GemvSchedule, p: GemvProblem) -> str:
    if s.many_items == 1:
        return "const int my_depth = id;" if s.depth_items > 1 else ""
    if s.depth_items == 1:
        return "const int my_place = id;"
    if p.by_depth:
        return f"const int my_place = id / {s.depth_items}, my_depth = id % {s.depth_items};"
    return f"const int my_place = id % {s.many_items}, my_depth = id / {s.many_items};"


def _outputs(first: str, s: GemvSchedule, p: GemvProblem, d: GemvSizes) -> dict[str, Any]:
    """The work-group's elements of the result, dealt to its work-items in ``rounds``.

    mine      the number of one among them; ``mine_inside`` tells whether there are so many
    row       of it, and ``column``, where they are not 0; ``inside`` tells whether they are in the result
    """
    outputs = p.few * d.tile
    rounds = -(-outputs // d.threads)
    number = plus("id" if d.threads > 1 else "0", times("round" if rounds > 1 else "0", d.threads))
    mine = "mine" if rounds > 1 and number != "round" else number
    many = plus(first, modulo(mine, d.tile) if p.few > 1 else mine)
    few = over(mine, d.tile) if p.few > 1 else "0"
    row, column = (many, few) if p.few_columns else (few, many)
    named = ("row" if p.few_columns else "column") if p.many > 1 else many
    return {
        "rounds": rounds,
        "mine": mine,
        "mine_is": number if mine == "mine" else "",
        "mine_inside": f"{number} < {outputs}" if outputs % d.threads else "",
        "row": row if p.m > 1 else "0",
        "column": column if p.n > 1 else "0",
        "inside": f"{named} < {p.many}" if p.many % d.tile else "",
    }
