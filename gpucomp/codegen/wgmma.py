"""Blocks of statements and tensor maps for the `wgmma` engine: what its producer loads, and the epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.c_printer import CPrinter
from gpucomp.codegen.emit import LANE
from gpucomp.codegen.epilogue import epilogue
from gpucomp.codegen.tma import Matrix, Pixels, form_of_a, map_of_a, map_of_b, matrix_of
from gpucomp.errors import ScheduleError
from gpucomp.expr.core import Cast, Expr, Select, index, var
from gpucomp.ir.types import BF16, F16, F32, I8, I32, DType
from gpucomp.kernel import Contraction, Kernel

# operands, accumulator and what may be done to them: the instruction, and the element that TMA brings
KINDS: Mapping[tuple[DType, DType, str], tuple[str, str]] = {
    (F16, F32, "strict"): ("f16", "f16"),
    (F16, F32, "tf32"): ("f16", "f16"),
    (F16, F32, "3xtf32"): ("f16", "f16"),
    (BF16, F32, "strict"): ("bf16", "bf16"),
    (BF16, F32, "tf32"): ("bf16", "bf16"),
    (BF16, F32, "3xtf32"): ("bf16", "bf16"),
    (F32, F32, "tf32"): ("tf32", "tf32"),
    (I8, I32, "strict"): ("s8", "i8"),
}


def operand_dtypes(kernel: Kernel) -> tuple[DType, DType]:
    """What ``a`` and ``b`` are before they are cast to the accumulator's type."""
    body = kernel.body
    assert isinstance(body, Contraction)
    return _stored(body.a), _stored(body.b)


def _stored(value: Expr) -> DType:
    value = value.then if isinstance(value, Select) else value  # a load guarded by the image's edges
    return value.value.dtype if isinstance(value, Cast) else value.dtype


def kind_of(kernel: Kernel) -> tuple[str, str] | None:
    """The instruction and TMA's element for the kernel's types; ``None`` when there is none."""
    body = kernel.body
    assert isinstance(body, Contraction)
    a, b = operand_dtypes(kernel)
    return KINDS.get((a, body.acc.dtype, body.math)) if a is b else None


def wgmma_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """See ``kernels_templates/contraction/wgmma.j2`` for what each hook is."""
    body = kernel.body
    assert isinstance(body, Contraction)
    a, b, kind = form_of_a(kernel), matrix_of(kernel, "b"), kind_of(kernel)
    if isinstance(a, str) or isinstance(b, str) or kind is None:
        reason = next((r for r in (a, b) if isinstance(r, str)), "its types are not multiplied by wgmma")
        raise ScheduleError(f"{kernel.label or kernel.family}: {reason}", code="GPC8001")
    instruction, element = kind
    maps = (
        map_of_a(a, element, s.tile_m, derived.tile_k),
        map_of_b(b, element, s.tile_n, derived.tile_k, max(1, p.taps)),
    )
    batch = var("batch", p.batch) if p.batch > 1 else index(0)
    found = epilogue(kernel, printer, batch, derived.out_vector, f"sums[{LANE if derived.out_vector > 1 else 0}]")
    return {
        "tensor_maps": maps,
        "programmatic": bool(s.overlap),
        "instruction": instruction,
        "acc_type": printer.dialect.value_type(body.acc.dtype),
        "pair_type": "int2" if body.acc.dtype is I32 else "float2",
        "zero": printer.dialect.literal(0, body.acc.dtype),
        "index": printer.dialect.index_type(max(p.m + s.tile_m, p.n + s.tile_n, p.batch) + 1),
        **_producer(a, b, s, p, derived),
        "row_lines": found.row_lines,
        "store": found.store,
        "sums_copy": printer.dialect.copy("sums", "from", body.acc.dtype, derived.out_vector),
    }


def _producer(
    a: Matrix | Pixels, b: Matrix, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> dict[str, Any]:
    """``first_lines``: once, where the pixels start. ``step_lines``: where a step is. ``load_a``, ``load_b``: its loads."""
    to_b = f"to + {s.tile_m * 128}"
    if isinstance(a, Matrix):
        depth = f"step * {derived.tile_k}" if derived.steps > 1 else "0"
        return {
            "first_lines": [],
            "step_lines": [],
            "load_a": _matrix_load("to", "map_a", depth, "first_row", a.batch),
            "load_b": _matrix_load(to_b, "map_b", depth, "first_column", b.batch),
        }
    columns, per_tap = a.window[1], derived.steps_per_tap
    tap = "step" if per_tap == 1 else "tap"
    channel = "0" if per_tap == 1 else f"step % {per_tap} * {derived.tile_k}"
    step_lines = [f"const int tap = step / {per_tap};"] if p.taps > 1 and per_tap > 1 else []
    offsets = [
        _scaled(f"{tap} % {columns}" if a.window[0] > 1 else tap, a.dilations[1]) if columns > 1 else "0",
        _scaled(f"{tap} / {columns}" if columns > 1 else tap, a.dilations[0]) if a.window[0] > 1 else "0",
    ]
    (oh, ow), first = a.out, "first_row"
    image = "0" if a.image[0] == 1 else f"{first} / {oh * ow}"
    line = f"{first} / {ow}" if ow > 1 else first
    at = [f"{first} % {ow}" if ow > 1 else "0", line if a.image[0] == 1 else f"{line} % {oh}" if oh > 1 else "0"]
    first_lines = [
        f"const int first_{name} = {_moved(_scaled(text, step), start)};"
        for name, text, step, start in zip("wh", at, a.steps[::-1], a.first[::-1], strict=True)
    ]
    load_b = (
        f"gc_tma_load_3d({to_b}, &map_b, full + stage, {channel}, {tap}, first_column);"
        if p.taps > 1
        else _matrix_load(to_b, "map_b", channel, "first_column", b.batch)
    )
    return {
        "first_lines": [*first_lines, *([f"const int first_n = {image};"] if a.image[0] > 1 else [])],
        "step_lines": step_lines,
        "load_a": f"gc_tma_load_im2col_4d(to, &map_a, full + stage, {channel}, first_w, first_h, "
        f"{'first_n' if a.image[0] > 1 else '0'}, {', '.join(offsets)});",
        "load_b": load_b,
    }


def _matrix_load(to: str, name: str, depth: str, span: str, batch: int) -> str:
    if batch > 1:
        return f"gc_tma_load_3d({to}, &{name}, full + stage, {depth}, {span}, batch);"
    return f"gc_tma_load_2d({to}, &{name}, full + stage, {depth}, {span});"


def _scaled(text: str, factor: int) -> str:
    return text if factor == 1 or text == "0" else f"{text} * {factor}"


def _moved(text: str, by: int) -> str:
    if text == "0":
        return str(by)
    return text if by == 0 else f"{text} {'-' if by < 0 else '+'} {abs(by)}"
