"""What the template of attention on matrix units is given."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.c.copies import Walk, copy_loader
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import Var, var
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.operand import count
from gpucomp.kernels_templates.attention.emit import shared_hooks
from gpucomp.kernels_templates.contraction.mma.emit import FUNCTIONS


def mma_attention_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """See ``kernels_templates/attention/mma/kernel.j2`` for what each hook is."""
    body = kernel.body_as(Attention)
    batch = var("batch", max(1, p.batch))
    dtype = stored(body.q).dtype
    return {
        **shared_hooks(kernel, printer, batch, s, p, derived),
        "exp2": "gc_exp2",
        "q": _copier(kernel, printer, "q", batch, s, p, derived),
        "k": _copier(kernel, printer, "k", batch, s, p, derived),
        "v": _copier(kernel, printer, "v", batch, s, p, derived),
        "storage": printer.dialect.storage_type(dtype),
        "narrow": printer.dialect.narrow.get(dtype, ""),
        "multiply": FUNCTIONS[dtype],
    }


def _copier(
    kernel: Kernel,
    printer: CPrinter,
    name: str,
    batch: Var,
    s: SimpleNamespace,
    p: SimpleNamespace,
    derived: SimpleNamespace,
) -> SimpleNamespace:
    """As ``_loader``, of asynchronous copies of ``width`` elements along a row: ``copy`` has their text."""
    body = kernel.body_as(Attention)
    value, rows, inner, tile, padded, pitch = {
        "q": (body.q, body.rows, body.depth, derived.tile_m, derived.depth_pad, derived.pitch),
        "k": (body.k, body.cols, body.depth, s.tile_n, derived.depth_pad, derived.pitch),
        "v": (body.v, body.cols, body.values, s.tile_n, derived.values_pad, derived.v_pitch),
    }[name]
    width = getattr(p, f"{name}_wide")
    extent, depth = count(rows), count(inner)
    at = var("at", padded // width)
    walk = Walk(var("row", extent), at, {at: f"{name}_at"}, depth // width if padded != depth else None, batch)
    copy = copy_loader(
        kernel, printer, name, value, (rows, inner, body.batch), walk, by_depth=1, width=width, span_steps=1
    )
    accesses = padded // width * tile
    return SimpleNamespace(
        name=name,
        width=width,
        pitch=pitch,
        fast=padded // width,
        accesses=accesses,
        steps=-(-accesses // derived.threads),
        limit=extent - 1,
        clamp=int(extent % tile != 0),
        copy=copy,
    )
