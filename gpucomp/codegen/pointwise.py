"""What the templates of loops and pools are given: the statements of one point of the domain, or of a vector of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.access import Rewriter
from gpucomp.codegen.c_printer import CPrinter
from gpucomp.codegen.emit import Emitter, flat_stores, lanes_of
from gpucomp.expr.core import REDUCTIONS, Expr, Var, call, index, reduce, substitute, var
from gpucomp.expr.simplify import unflatten
from gpucomp.kernel import Kernel, Loops, Store, Window


def loops_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """``body``: the statements for one ``point``; ``index``: the type of its number."""
    body = kernel.body
    assert isinstance(body, (Loops, Window))
    return pointwise_hooks(kernel, printer, s, p, body.domain, kernel.stores)


def pool_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """As ``loops``, with the accumulator written out over the window or as a loop."""
    body = kernel.body
    assert isinstance(body, Window)
    taps = list(itertools.product(*(range(a.extent) for a in body.window)))
    acc: Expr = reduce(body.op, body.window, body.value)
    if s.unroll and taps:
        at = [substitute(body.value, dict(zip(body.window, map(index, tap), strict=True))) for tap in taps]
        acc = at[0]
        for value in at[1:]:
            acc = call(REDUCTIONS[body.op], acc, value)
    stores = [Store(t.target, t.index, substitute(t.value, {body.acc: acc})) for t in kernel.stores]
    return pointwise_hooks(kernel, printer, s, p, body.domain, stores)


def pointwise_hooks(
    kernel: Kernel,
    printer: CPrinter,
    s: SimpleNamespace,
    p: SimpleNamespace,
    domain: tuple[Var, ...],
    stores: tuple[Store, ...] | list[Store],
) -> Mapping[str, Any]:
    point, lane = var("point", max(1, p.size // s.vector)), var("lane", s.vector)
    flat = var("flat", max(1, p.size))
    places = dict(zip(domain, unflatten(flat, tuple(a.extent for a in domain)), strict=True)) if domain else {}
    vector = lanes_of(flat, point, lane, s.vector)
    rewriter = Rewriter(kernel.params, {v: substitute(place, vector) for v, place in places.items()})
    emitter = Emitter(printer, {point: "point", lane: "lane"} if s.vector > 1 else {point: "point"})
    body = emitter.store(flat_stores(stores, rewriter), lane, s.vector)
    # one past the last work-group has to be a number of this type as well
    index_type = printer.dialect.index_type(p.size // s.vector + s.threads * s.items)
    return {"body": body, "index": index_type}
