"""Blocks of statements for the contraction engine on matrix units: what each operand's loader and fragments do.

A tile in shared memory is rows of chunks of 16 bytes. A chunk lies in its row where its number, combined with bits of
the row's by exclusive or, says: the rows that one access reads together then meet in different banks (kernels.md 1.2).
Sizes are powers of two, so that whatever a position is made of, row, chunk, step or block, sets bits of its own:
parts of an offset are combined by exclusive or as well, constants at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.c.banks import best_exchange, half_offset
from gpucomp.codegen.c.copies import Walk, copy_loader, hoisted, place
from gpucomp.codegen.c.emit import Emitter
from gpucomp.codegen.c.epilogue import Epilogue, epilogue, split_scratch
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.tail import tail_hooks, tail_scratch
from gpucomp.expr.core import Expr, Var, call, var
from gpucomp.ir.types import BF16, F16, F32, I8, DType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernel.passes.pack_weights import packable

CHUNK = 16
WORDS = {4: "unsigned", 8: "uint2", 16: "uint4"}
FUNCTIONS = {F16: "gc_mma_m16n8k16_f16", BF16: "gc_mma_m16n8k16_bf16", F32: "gc_mma_m16n8k8_tf32"}


@dataclass(frozen=True)
class Rows:
    """How the rows of one operand's tile lie in shared memory; positions and offsets are in bytes.

    Rows along the depth are read eight at a time, as are rows across it of 2-byte elements. Rows across the depth of
    4-byte elements are read an element at a time, four rows together.
    """

    by_depth: int
    row_bytes: int
    element_bytes: int

    @property
    def by_element(self) -> bool:
        return not self.by_depth and self.element_bytes == 4

    def _bits(self) -> tuple[int, int, int]:
        """(shift right, mask, factor) of a row's number, giving the bytes that its positions are changed by."""
        chunks = self.row_bytes // CHUNK
        if self.by_element:
            return 0, min(3, (chunks - 1) // 2), 2 * CHUNK
        together = min(chunks, 8)
        return (8 // together).bit_length() - 1, together - 1, CHUNK

    def change(self, row: int) -> int:
        shift, mask, factor = self._bits()
        return (row >> shift & mask) * factor

    def offset(self, row: str, position: str) -> str:
        """C text of the offset of ``position`` in ``row``, a name or a number."""
        shift, mask, factor = self._bits()
        start = f"{row} * {self.row_bytes}"
        if mask == 0:
            return f"{start} + {position}"
        moved = f"{row} >> {shift}" if shift else row
        return f"{start} + ({position} ^ ({moved} & {mask}) * {factor})"


def mma_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """See ``kernels_templates/contraction/mma/kernel.j2`` for what each hook is."""
    body = kernel.body_as(Contraction)
    batch = var("batch", max(1, p.batch))
    is_async = "cp_async" in printer.features
    a_type, b_type = stored(body.a).dtype, stored(body.b).dtype
    acc = "sum" if derived.out_vector == 1 else f"sums[{LANE}]"
    runs = s.warp_n // derived.out_vector
    # operands that are computed on their way keep registers that early fetches would take
    fetched_early = runs % 2 == 0 and bool(p.a_copied and p.b_copied)
    found = epilogue(kernel, printer, batch, derived.out_vector, acc, fetched_early=fetched_early)
    # where sums are stored the fragments' registers are free
    free = (4 * derived.blocks_m + 2 * derived.blocks_n) * (2 if derived.warp_steps > 1 else 1)
    together = 4 * found.early_count * derived.blocks_m * runs // 2 <= free
    acc_type = printer.dialect.value_type(body.acc.dtype)
    a = _operand(kernel, printer, "a", body.a, batch, s, p, derived, is_async)
    b = _operand(kernel, printer, "b", body.b, batch, s, p, derived, is_async)
    largest = max(p.m + derived.tile_m, p.n + derived.tile_n, p.k + derived.tile_k * s.splits, p.batch) + 1
    tail = tail_hooks(kernel, printer, p, derived.threads, derived.tile_m, derived.tiles_n)
    return {
        **tail,
        "scratch": split_scratch(printer, acc_type, s.splits) or tail_scratch(printer, tail),
        "a": a,
        "b": b,
        "b_known": packable(kernel, "b"),
        "is_async": "copy" in (a.mode, b.mode),
        **staged_stores(found, printer, body.acc.dtype, s.warp_n, derived, together=together),
        "index": printer.dialect.index_type(largest),
        "acc_type": acc_type,
        "zero": printer.dialect.literal(0, body.acc.dtype),
        "multiply": multiply_function(a_type, b_type),
        "rounds": a_type is F32,
    }


def staged_stores(
    found: Epilogue, printer: CPrinter, dtype: DType, warp_n: int, derived: SimpleNamespace, *, together: bool = False
) -> Mapping[str, Any]:
    """What ``store_sums`` of ``contraction/fragments.j2`` is given: the epilogue, and how sums of ``dtype`` are staged.

    early_together    whether all blocks' rows fetch at once what their stores read besides
    half_offset       where the first half of a run of eight sums is left in it (banks.py)
    """
    copy, half = printer.dialect.copy, "0"
    sums_copy = copy("sums", "sums_from", dtype, derived.out_vector)
    if derived.out_vector == 8 and dtype.nbytes == 4:
        runs = warp_n // 8
        terms = best_exchange(runs, derived.sum_columns)
        half = half_offset(terms, {"c": "j", "row": "my_lane / 4"})
        first = half_offset(terms, {"c": f"run % {runs}", "row": f"run / {runs}"})
        if terms:
            sums_copy = copy("sums", f"sums_from + {first}", dtype, 4)
            sums_copy += copy("sums + 4", f"sums_from + ({first} ^ 4)", dtype, 4)
    return {
        "row_lines": found.row_lines,
        "store": found.store,
        "sums_copy": sums_copy,
        "half_offset": half,
        "early": found.early,
        "early_count": found.early_count,
        "early_together": together,
    }


def multiply_function(a: DType, b: DType) -> str:
    """The prelude's function that multiplies fragments of ``a`` by those of ``b``."""
    if a in FUNCTIONS:
        return FUNCTIONS[a]
    signs = ", ".join("true" if t is I8 else "false" for t in (a, b))
    return f"gc_mma_m16n8k32_i8<{signs}>"


def _operand(
    kernel: Kernel,
    printer: CPrinter,
    name: str,
    value: Expr,
    batch: Var,
    s: SimpleNamespace,
    p: SimpleNamespace,
    derived: SimpleNamespace,
    is_async: bool,
) -> SimpleNamespace:
    """One operand's tile: from memory to shared memory by all work-items, and from there to each warp's fragments.

    mode          ``copy``: asynchronous; ``chunk``: through registers as it is; ``value``: element by element
    to            offset of the first chunk of a work-item, in the tile
    to_fast, to_slow    what each further step along an axis changes, as C text of the step; to_add is added instead
    at            offset of a lane's first fragment
    """
    body = kernel.body_as(Contraction)
    axes, extent, tile = (body.m, p.m, derived.tile_m) if name == "a" else (body.n, p.n, derived.tile_n)
    own = {
        k: getattr(derived, f"{name}_{k}")
        for k in ("fast_items", "fast_steps", "slow_items", "slow_steps", "slow_guard", "row_bytes", "bytes")
    }
    by_depth, width = getattr(p, f"{name}_by_depth"), getattr(derived, f"{name}_vector")
    copied, nbytes = getattr(p, f"{name}_copied"), p.element_bytes
    rows = Rows(getattr(derived, f"{name}_shared_by_depth"), own["row_bytes"], nbytes)
    depth_width, span_width = (width, 1) if by_depth else (1, width)
    span_steps, depth_steps = (
        (own["slow_steps"], own["fast_steps"]) if by_depth else (own["fast_steps"], own["slow_steps"])
    )
    depth, depth_names = _depth(name, by_depth, depth_steps, own, derived, depth_width)
    span = var("span", max(1, extent // span_width))
    padded = derived.tiles_k * derived.tile_k != p.k
    walk = Walk(span, depth, depth_names, p.k // depth_width if padded else None, batch)
    of = (axes, body.k, body.batch)
    result = SimpleNamespace(
        name=name,
        by_depth=by_depth,
        width=width,
        tile=tile,
        limit=extent // span_width - 1,
        clamp=int(extent % tile != 0),
        span_steps=span_steps,
        depth_steps=depth_steps,
        slow_rows=tile if by_depth else derived.tile_k,
        chunk_bytes=width * nbytes,
        element_bytes=nbytes,
        shared_by_depth=rows.by_depth,
        by_element=rows.by_element,
        turned=rows.by_depth != by_depth,
        whole=WORDS.get(width * nbytes, ""),
        **own,
    )
    if copied:
        copy = copy_loader(
            kernel, printer, name, value, of, walk, by_depth=by_depth, width=width, span_steps=span_steps
        )
        result.mode = "copy" if is_async else "chunk"
        result.word = WORDS[copy.nbytes]
        for key in ("span_lines", "arrays", "spans_used", "depth_lines", "address", "valid"):
            setattr(result, key, getattr(copy, key))
        result.head = copy.lines
    else:
        result.mode = "value"
        _element_loader(kernel, printer, result, stored(value), of, walk)
    _shared_steps(result, rows)
    _fragments(result, rows, name, s, derived)
    return result


def _depth(
    name: str, by_depth: int, depth_steps: int, own: Mapping[str, int], derived: SimpleNamespace, depth_width: int
) -> tuple[Expr, dict[Expr, str]]:
    """Where a work-item stands along the depth, in chunks or elements: tile, then itself, then its steps."""
    tile = var("tile", derived.tiles_k)
    items, axis = (own["fast_items"], "fast") if by_depth else (own["slow_items"], "slow")
    mine, step = var(axis, items), var("step", depth_steps)
    names: dict[Expr, str] = {tile: "ahead", mine: f"{name}_{axis}", step: f"{name}_t"}
    depth = call("add", call("mul", tile, derived.tile_k // depth_width), mine)
    if depth_steps > 1:
        depth = call("add", depth, call("mul", step, items))
    return depth, {v: n for v, n in names.items() if v in depth.free}


def _element_loader(
    kernel: Kernel,
    printer: CPrinter,
    result: SimpleNamespace,
    value: Expr,
    of: tuple[Sequence[Var], Sequence[Var], Sequence[Var]],
    walk: Walk,
) -> None:
    """What computes a run of elements in registers: ``head`` in front of them, ``lane_lines`` and ``value`` of each."""
    lane = var(LANE, result.width)
    element = place(kernel, value, of, walk, by_depth=result.by_depth, width=result.width, lane=lane)
    name = result.name
    lines = hoisted(printer, [element], walk, name, result.span_steps)
    result.span_lines, result.arrays, result.depth_lines, known, result.spans_used = lines
    if result.width > 1:
        known[lane] = LANE
        emitter = Emitter(printer, known, prefix=f"{name}e")
        result.head, result.lane_lines, (text,) = emitter.lanes([element], lane, result.width)
    else:
        result.head, (text,) = Emitter(printer, known, prefix=f"{name}e").values([element])
        result.lane_lines = []
    result.value = printer.narrowed(text, value.dtype)
    result.word = printer.dialect.storage_type(value.dtype)


def _shared_steps(o: SimpleNamespace, rows: Rows) -> None:
    """Where a work-item's chunks go. ``{slow}`` and ``{fast}`` are the numbers of its steps."""
    if o.turned:  # element by element, each to a row of its own
        fast = f"{o.name}_fast + {o.name}_i * {o.fast_items}" if o.fast_steps > 1 else f"{o.name}_fast"
        slow = f"{o.name}_slow + {o.name}_t * {o.slow_items}" if o.slow_steps > 1 else f"{o.name}_slow"
        span = f"{_scaled(fast, o.width)} + {LANE}" if o.width > 1 else fast
        o.turned_row, o.turned_position = span, f"({slow})" if "+" in slow else slow  # a byte an element
        o.turned_offset = rows.offset(f"{o.name}_row", o.turned_position)
        o.to = ""
        return
    position = f"{o.name}_fast * {o.chunk_bytes}"
    o.to = rows.offset(f"{o.name}_slow", position)
    slow_step, fast_step = (f"{o.name}_i", f"{o.name}_t") if o.by_depth else (f"{o.name}_t", f"{o.name}_i")
    changes = []
    if o.fast_steps > 1:
        changes.append(f"{fast_step} * {o.fast_items * o.chunk_bytes}")
    if o.slow_steps > 1 and (swizzle := _repeating(rows, o.slow_items, o.slow_steps)) is not None:
        changes.append(f"({slow_step}{swizzle}")
    o.place = " ^ ".join([f"{o.name}_to", *changes])
    if changes:
        o.place = f"({o.place})"
    if o.slow_steps > 1:
        o.place += f" + {slow_step} * {o.slow_items * o.row_bytes}"


def _repeating(rows: Rows, items: int, steps: int) -> str | None:
    """What a step of ``items`` rows changes positions by, as the rest of C text that begins with ``(step``.

    ``None`` where it changes nothing.
    """
    shift, mask, factor = rows._bits()
    changed = [rows.change(items * step) for step in range(steps)]
    if not any(changed):
        return None
    scale = items >> shift
    if scale == 0:  # several steps share a change
        return f" * {items} >> {shift} & {mask}) * {factor}"
    return f" & {mask // scale}) * {factor * scale}"


def _fragments(o: SimpleNamespace, rows: Rows, name: str, s: SimpleNamespace, derived: SimpleNamespace) -> None:
    """Which row and position a lane reads first (``row``, ``position``, ``at``), and what steps and blocks change.

    ``blocks``: of 16 rows or 8 columns. ``read`` is the function; ``per_read`` how many blocks one call fills.
    """
    warp, span = (f"{name}_warp", s.warp_m) if name == "a" else (f"{name}_warp", s.warp_n)
    first_step = derived.warp_steps
    step_depth = 32 // o.element_bytes
    o.blocks = derived.blocks_m if name == "a" else derived.blocks_n
    o.per_read = 1 if name == "a" or o.blocks == 1 or rows.by_element else 2
    row_bytes = rows.row_bytes
    block_span = 16 if name == "a" else 8
    read_span = block_span * o.per_read
    # lanes 8i to 8i + 7 give the rows of matrix i: matrices of `a` go along the rows first, of `b` along the depth
    high, low = "my_lane / 16", "my_lane / 8 % 2"
    along_span, along_depth = (low, high) if name == "a" else (high, low)
    if name == "b" and o.per_read == 1:
        along_span = ""
    offset_k = f"warp_k * {first_step * step_depth}" if s.warps_k > 1 else ""
    warps = s.warps_m if name == "a" else s.warps_n
    offset_span = f"{warp} * {span}" if warps > 1 else ""
    if rows.by_element:
        o.row = _sum(offset_k, "my_lane % 4")
        o.position = _scaled(_sum(offset_span, "my_lane / 4"), 4)
        o.step_add, o.step_xor = step_depth * row_bytes, 0
        o.block_add, o.block_xor = 0, block_span * 4
        o.half_xor, o.depth_add = 8 * 4, 4 * row_bytes
    elif rows.by_depth:
        o.row = _sum(offset_span, f"{along_span} * 8" if along_span else "", "my_lane % 8")
        o.position = _scaled(_sum(f"warp_k * {first_step * 2}" if s.warps_k > 1 else "", along_depth), 16)
        o.step_add, o.step_xor = 0, 32
        o.block_add, o.block_xor = read_span * row_bytes, 0
    else:
        o.row = _sum(offset_k, f"{along_depth} * 8", "my_lane % 8")
        o.position = _scaled(_sum(f"{warp} * {span // 8}" if warps > 1 else "", along_span), 16)
        o.step_add, o.step_xor = step_depth * row_bytes, 0
        o.block_add, o.block_xor = 0, read_span * 2
    o.at = rows.offset(f"{name}_row", f"{name}_position")
    matrices = 4 if name == "a" else 2 * o.per_read
    o.read = f"gc_ldmatrix_x{matrices}{'' if rows.by_depth else '_trans'}"


def _scaled(text: str, factor: int) -> str:
    """``text * factor``; 0 where there is no text."""
    if not text:
        return "0"
    return f"({text}) * {factor}" if "+" in text else f"{text} * {factor}"


def _sum(*parts: str) -> str:
    return " + ".join(p for p in parts if p)
