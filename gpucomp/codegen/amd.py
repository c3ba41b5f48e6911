"""Blocks of statements for the `amd` contraction template: loads of 16 bytes into local memory, matrix instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.access import Rewriter, parts_within, regroup, split
from gpucomp.codegen.c_printer import CPrinter
from gpucomp.codegen.emit import LANE, Emitter, flat_stores
from gpucomp.codegen.helpers import FP16
from gpucomp.codegen.mali import plain
from gpucomp.codegen.operand import places
from gpucomp.expr.core import Cast, Const, Expr, Load, Select, Var, both, call, index, literal, select, substitute, var
from gpucomp.expr.simplify import coefficient, simplify
from gpucomp.ir.types import F16, F32, DType
from gpucomp.kernel import Contraction, Kernel


@dataclass(frozen=True)
class Instruction:
    """A matrix instruction as a wave issues it, with the lane maps of AMD's matrix instruction calculator.

    builtin   of the compiler: ``(a, b, sums, *rest)``
    size      rows, and columns, of its result
    sums      of its result that each lane holds
    parts     of a lane's 16-byte chunk (of its two chunks, for a wave of 32) that go into one instruction each
    row       of the result in which a lane's sum ``r`` stands; the column is ``lane % size``
    """

    builtin: str
    size: int
    sums: int
    parts: tuple[str, ...]
    row: str
    rest: str = ""


ROW_32 = "r / 4 * 8 + lane / 32 * 4 + r % 4"
ROW_16 = "lane / 16 * 4 + r"
FOUR = (".s0", ".s1", ".s2", ".s3")
INSTRUCTIONS: Mapping[tuple[DType, int, int], Instruction] = {  # by element, lanes of a wave, size
    (F16, 64, 32): Instruction("__builtin_amdgcn_mfma_f32_32x32x8f16", 32, 16, (".lo", ".hi"), ROW_32, ", 0, 0, 0"),
    (F16, 64, 16): Instruction("__builtin_amdgcn_mfma_f32_16x16x16f16", 16, 4, (".lo", ".hi"), ROW_16, ", 0, 0, 0"),
    (F32, 64, 32): Instruction("__builtin_amdgcn_mfma_f32_32x32x2f32", 32, 16, FOUR, ROW_32, ", 0, 0, 0"),
    (F32, 64, 16): Instruction("__builtin_amdgcn_mfma_f32_16x16x4f32", 16, 4, FOUR, ROW_16, ", 0, 0, 0"),
    (F16, 32, 16): Instruction("__builtin_amdgcn_wmma_f32_16x16x16_f16_w32", 16, 8, ("",), "r * 2 + lane / 16"),
}


def bare(value: Expr) -> Expr:
    """An operand of halves without the cast to the sums' type, under a guard too."""
    if isinstance(value, Select) and isinstance(value.otherwise, Const) and value.otherwise.value == 0:
        then = bare(value.then)
        return select(value.condition, then, literal(0, then.dtype))
    return value.value if isinstance(value, Cast) and value.dtype is F32 and value.value.dtype is F16 else value


def element_type(body: Contraction) -> DType | None:
    """What both operands are made of, where a matrix instruction takes it."""
    types = {bare(body.a).dtype, bare(body.b).dtype}
    return types.pop() if len(types) == 1 and types <= {F16, F32} else None


def amd_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """See ``kernels_templates/contraction/amd.j2`` for what each hook is."""
    body = kernel.body
    assert isinstance(body, Contraction)
    element = element_type(body)
    assert element is not None
    scalar = "half" if element is F16 else "float"
    a = _loader(kernel, printer, "a", body.a, body.m, p.m, p, derived)
    b = _loader(kernel, printer, "b", body.b, body.n, p.n, p, derived)
    row, col = var("row", max(1, p.m)), var("col", max(1, p.n))
    batch = var("batch", max(1, p.batch))
    rewriter = Rewriter(kernel.params, places(body.m, row) | places(body.n, col) | places(body.batch, batch))
    known: dict[Expr, str] = {row: "row", col: "col", batch: "batch", body.acc: "sum"}
    store = Emitter(printer, known).store(flat_stores(kernel.stores, rewriter))
    if element is F16 and not any(text.startswith(FP16) for text in printer.helpers.values()):
        printer.helpers = {"half": FP16} | printer.helpers
    return {
        "a": a,
        "b": b,
        "store": store,
        "instruction": INSTRUCTIONS[element, s.wave, s.block],
        "chunk_type": f"{scalar}{derived.vector}",
        "double_type": f"{scalar}{2 * derived.vector}",
        "index": printer.dialect.index_type(max(p.m + derived.tile_m, p.n + derived.tile_n, p.k + derived.tile_k)),
    }


def _loader(
    kernel: Kernel,
    printer: CPrinter,
    name: str,
    value: Expr,
    axes: Sequence[Var],
    extent: int,
    p: SimpleNamespace,
    derived: SimpleNamespace,
) -> SimpleNamespace:
    """One operand's chunks of a tile, a work-item's share of them each with a name.

    before   statements in front of the loop over tiles: row numbers, and what depends on them alone
    lines    statements that fill ``a_next0``, ``a_next1`` ... with the chunk number ``a_chunk`` of each row
    """
    body = kernel.body
    assert isinstance(body, Contraction)
    width, loads = derived.vector, getattr(derived, f"{name}_loads")
    batch = var("batch", max(1, p.batch))
    span, lane = var("span", max(1, extent)), var(LANE, width)
    chunk = var("chunk", max(1, derived.tiles_k * derived.chunks))
    flat = var("flat_depth", max(1, derived.tiles_k * derived.chunks * width))
    depth: Expr = chunk * width + lane
    at = places(axes, span) | {v: substitute(e, {flat: depth}) for v, e in places(body.k, flat).items()}
    rewriter = Rewriter(kernel.params, at | places(body.batch, batch))
    outer, inner = frozenset({span, batch}), frozenset({chunk})
    whole = derived.tiles_k * derived.chunks * width == p.k
    wide = _wide(rewriter, value, lane, chunk, whole=whole, depth=p.k, width=width)
    if wide is not None:
        exprs = [split(wide[1], (outer, inner)), *([regroup(wide[2], (outer, inner))] if wide[2] is not None else [])]
    else:
        element = rewriter(bare(value))
        if not whole:
            element = select(call("lt", depth, index(p.k)), element, literal(0, element.dtype))
        exprs = [regroup(element, (outer, inner))]
    known: dict[Expr, str] = {batch: "batch"}
    lines, shared = Emitter(printer, known | {chunk: f"{name}_chunk"}, prefix=f"{name}c").named(
        [] if wide is None else parts_within(exprs, inner)
    )
    before: list[str] = []
    for i in range(loads):
        step = f" + {i * derived.threads // derived.chunks}" if i else ""
        number = f"first_{'row' if name == 'a' else 'column'} + my_slot{step}"
        clamp = (
            f"min({number}, {extent - 1})"
            if extent % getattr(derived, f"tile_{'m' if name == 'a' else 'n'}")
            else number
        )
        before.append(f"const int {name}_span{i} = {clamp};")
        mine = known | {span: f"{name}_span{i}"}
        more, names = Emitter(printer, mine, prefix=f"{name}{i}s").named(parts_within(exprs, outer))
        before += more
        emitter = Emitter(printer, mine | names | shared | {chunk: f"{name}_chunk"}, prefix=f"{name}{i}e")
        lines += _chunk(printer, emitter, f"{name}_next{i}", wide, exprs, lane, width)
    return SimpleNamespace(name=name, before=before, lines=lines, loads=loads)


def _wide(
    rewriter: Rewriter, value: Expr, lane: Var, chunk: Var, *, whole: bool, depth: int, width: int
) -> tuple[int, Expr, Expr | None] | None:
    """(parameter, offset, condition) of an operand whose chunks are one access each; else ``None``."""
    found = plain(value, F32)
    if found is None or depth % width:
        return None
    guard, ld = found
    if ld.dtype is not bare(value).dtype:
        return None  # it is converted on the way
    placed = rewriter(ld)
    conditions = [] if guard is None else [rewriter(guard)]
    if not whole:
        conditions.append(call("lt", chunk, index(depth // width)))
    conditions = [c for c in conditions if not (isinstance(c, Const) and c.value)]
    if not isinstance(placed, Load) or coefficient(placed.index[0], lane) != 1:
        return None
    if any(lane in c.free for c in conditions):
        return None
    offset = simplify(substitute(placed.index[0], {lane: index(0)}))
    return ld.source, offset, both(conditions) if conditions else None


def _chunk(
    printer: CPrinter,
    emitter: Emitter,
    target: str,
    wide: tuple[int, Expr, Expr | None] | None,
    exprs: Sequence[Expr],
    lane: Var,
    width: int,
) -> list[str]:
    """Statements that put one chunk into ``target``."""
    if wide is not None:
        name, dtype = printer.params[wide[0]]
        ctype = "half" if dtype is F16 else "float"
        lines, texts = emitter.values(exprs)
        loaded = f"vload{width}(0, {name} + {texts[0]})"
        text = f"{texts[1]} ? {loaded} : ({ctype}{width})(0)" if len(texts) > 1 else loaded
        return [*lines, f"{target} = {text};"]
    (element,) = exprs
    ctype = "half" if element.dtype is F16 else "float"
    lines, texts = emitter.values([simplify(substitute(element, {lane: index(k)})) for k in range(width)])
    cast = "(half)" if ctype == "half" else ""
    values = ", ".join(f"{cast}({t})" if cast else t for t in texts)
    return [*lines, f"{target} = ({ctype}{width})({values});"]
