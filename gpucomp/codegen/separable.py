"""Depthwise separable convolutions: the depthwise part of such a contraction, and statements for the two templates.

A work-group computes the part of the depthwise result that its tile of pixels needs into shared memory, where the
pointwise convolution reads it: a work-item's outputs are the register window of the depthwise family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.c_printer import CPrinter
from gpucomp.codegen.contraction import left_sums
from gpucomp.codegen.convolution import packed_filters
from gpucomp.codegen.copies import stored
from gpucomp.codegen.depthwise import Sliding, depthwise_hooks, depthwise_of
from gpucomp.codegen.emit import LANE
from gpucomp.codegen.epilogue import epilogue, split_scratch
from gpucomp.codegen.mma import multiply_function, staged_stores
from gpucomp.expr.core import Expr, cast, literal, loads, reduces, substitute, var
from gpucomp.ir.types import F32, TensorType
from gpucomp.kernel import Kernel, Loops, Separable, Store
from gpucomp.packing import packable

CHUNK_BYTES = 16  # of depth, as matrix units take them


def depthwise_kernel(kernel: Kernel, value: Expr) -> Kernel:
    """``value``, which ``a`` is made of, as a kernel of its own. Its result, [pixels, channels], is the last parameter."""
    body = kernel.body
    assert isinstance(body, Separable)
    domain = (*body.m, *body.k)
    result = TensorType(value.dtype, tuple(v.extent for v in domain))
    store = Store(kernel.inputs, domain, value)
    params = (*kernel.params[: kernel.inputs], result)
    return replace(kernel, family="loops", params=params, outputs=1, body=Loops(domain), stores=(store,))


def separable_of(kernel: Kernel) -> tuple[Kernel, Sliding] | str:
    """The depthwise convolution that ``a`` is, in the type that memory would hold it in; or what it is instead."""
    body = kernel.body
    assert isinstance(body, Separable)
    if 0 in [v.extent for v in (*body.m, *body.n, *body.k)]:
        return "there is nothing to multiply"
    if not packable(kernel, "b"):
        return "its filters are laid out when the model is compiled, and these are no constants"
    part = depthwise_kernel(kernel, stored(body.a))
    found = depthwise_of(part)
    if isinstance(found, str):
        return found
    value = part.stores[0].value
    beside = substitute(value, {node: literal(0, node.dtype) for node in reduces(value)})
    if any(e.free & set(body.m) for ld in loads(beside) for e in ld.index):
        return "its epilogue reads pixels, and a tile may reach past the image"
    if len(found.lead) > 1 or [*found.lead, *(s.out for s in (found.y, found.x) if s.out)] != list(body.m):
        return "pixels are not walked row by row, image by image"
    return part, found


def window_hooks(
    kernel: Kernel, printer: CPrinter, value: Expr, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> dict[str, Any]:
    """The window of one work-item: ``w``, and ``keep``, which leaves an output's channels in the array ``kept``."""
    part = depthwise_kernel(kernel, value)
    own = CPrinter(printer.dialect, [*printer.params[: kernel.inputs], ("kept", value.dtype)], printer.features)
    sizes = SimpleNamespace(**{**vars(derived.window), "tiles_y": derived.spots_y, "tiles_x": derived.spots_x})
    hooks = depthwise_hooks(part, own, derived.windows, p, sizes, into="kept")
    printer.helpers.update(own.helpers)
    dialect = printer.dialect
    return {
        "w": hooks["w"],
        "keep": hooks["store"],
        "kept_array": dialect.aligned_array(dialect.moved_type(value.dtype), "kept", s.vector),
    }


def filters_of(kernel: Kernel, printer: CPrinter, shape: tuple[int, ...], engine: str) -> tuple[str, Any]:
    return printer.params[packed_filters(kernel, shape, engine)]


def separable_simt_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """See ``kernels_templates/contraction/separable_simt.j2`` for what each hook is."""
    body, dialect, width = kernel.body, printer.dialect, derived.out_vector
    assert isinstance(body, Separable)
    ends = epilogue(kernel, printer, var("batch", 1), width, "acc[i][j]" if width == 1 else f"acc[i][j + {LANE}]")
    filters, dtype = filters_of(kernel, printer, (derived.padded_k, derived.padded_n), "contraction/separable_simt")
    assert dtype is F32
    acc_type = dialect.value_type(F32)
    return {
        **window_hooks(kernel, printer, cast(body.a, F32), s, p, derived),
        "scratch": split_scratch(printer, acc_type, s.splits),
        **left_sums(printer, F32, s.splits, s.reg_n),
        "filters": filters,
        "row_lines": ends.row_lines,
        "store": ends.store,
        "index": dialect.index_type(max(t.size for t in kernel.params) + derived.tile_n),
        "acc_type": acc_type,
        "zero": dialect.literal(0, F32),
        "copy": lambda to, source, width: dialect.copy(to, source, F32, width),
        "array": lambda name, size: dialect.aligned_array(acc_type, name, size),
        "zeros": lambda to: [f"({to})[{k}] = {dialect.literal(0, F32)};" for k in range(s.vector)],
    }


def separable_mma_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """See ``kernels_templates/contraction/separable_mma.j2`` for what each hook is."""
    body, dialect = kernel.body, printer.dialect
    assert isinstance(body, Separable)
    value = stored(body.a)
    acc = "sum" if derived.out_vector == 1 else f"sums[{LANE}]"
    ends = epilogue(kernel, printer, var("batch", 1), derived.out_vector, acc)
    shape = (derived.padded_k // derived.chunk_elements, derived.padded_n, derived.chunk_elements)
    filters, _ = filters_of(kernel, printer, shape, "contraction/separable_mma")
    kind = dialect.storage_type(value.dtype)
    return {
        **window_hooks(kernel, printer, value, s, p, derived),
        "scratch": split_scratch(printer, dialect.value_type(F32), s.splits),
        "filters": filters,
        "pixel_type": kind,
        "copy_kept": dialect.copy("to_row", "kept", value.dtype, s.vector),
        "is_async": "cp_async" in printer.features,
        **staged_stores(ends, printer, F32, s.warp_n, derived),
        "index": dialect.index_type(max(t.size for t in kernel.params) + derived.tile_n),
        "acc_type": dialect.value_type(F32),
        "zero": dialect.literal(0, F32),
        "multiply": multiply_function(value.dtype, value.dtype),
        "rounds": value.dtype is F32,
    }
