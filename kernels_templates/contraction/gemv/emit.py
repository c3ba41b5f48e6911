"""Blocks of statements for the contraction family's `gemv` template: how the matrix and the vectors are read."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.c.dots import product
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import var
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernels_templates.contraction.simt.emit import loader, stored


def gemv_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """``matrix``, ``vectors``: loaders of one step of the depth each; ``row_lines``, ``store``: the epilogue."""
    body = kernel.body_as(Contraction)
    batch = var("batch", max(1, p.batch))
    matrix, vectors = ("a", "b") if p.few_columns else ("b", "a")
    sizes, ways = {}, {}
    for name, by_depth, width, steps in (
        (matrix, p.by_depth, p.width, s.accesses),
        (vectors, 1, p.width if p.by_depth else 1, p.few),
    ):
        ways[f"{name}_by_depth"] = by_depth
        sizes[f"{name}_vector"] = width
        along, across = ("slow", "fast") if by_depth else ("fast", "slow")
        sizes |= {f"{name}_{along}_items": s.many_items, f"{name}_{along}_steps": steps}
        sizes |= {f"{name}_{across}_items": s.depth_items, f"{name}_{across}_steps": 1}
        sizes |= {f"{name}_slow_guard": 0, f"{name}_pad": 0}
    # a "tile" as deep as one element pads no depth; that of the vectors is all of them
    tiles = {matrix: derived.tile, vectors: p.few}
    schedule = SimpleNamespace(tile_m=tiles["a"], tile_n=tiles["b"], tile_k=1, asynchronous=0, lanes=1)
    problem = SimpleNamespace(**{**vars(p), **ways})
    operands = {
        name: loader(kernel, printer, name, value, batch, schedule, problem,
                     SimpleNamespace(threads=derived.threads, **sizes), "depth")
        for name, value in (("a", body.a), ("b", body.b))
    }  # fmt: skip
    acc_type, multiply = printer.dialect.value_type(body.acc.dtype), product(printer, body)
    largest = max(p.many + derived.tile, p.k + derived.depth_step * s.unroll, p.batch, p.few) + 1
    return {
        "matrix": operands[matrix],
        "vectors": operands[vectors],
        **stored(kernel, printer, batch, 1, "total"),
        "index": printer.dialect.index_type(largest),
        "acc_type": acc_type,
        "array": lambda name, size: printer.dialect.aligned_array(acc_type, name, size),
        "zero": printer.dialect.literal(0, body.acc.dtype),
        "multiply_add": (lambda c, vector, matrix: multiply(c, matrix, vector)) if p.few_columns else multiply,
    }
