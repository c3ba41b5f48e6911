"""What the template of a pool reads."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import REDUCTIONS, Expr, call, index, reduce, substitute
from gpucomp.kernel import Kernel, Store, Window
from gpucomp.kernels_templates.loops.emit import emit_pointwise

if TYPE_CHECKING:
    from gpucomp.kernels_templates.loops.space import PointsSizes
    from gpucomp.kernels_templates.pool.space import PoolProblem, PoolSchedule


def emit_pool(
    kernel: Kernel[Window], printer: CPrinter, s: PoolSchedule, p: PoolProblem, derived: PointsSizes
) -> Mapping[str, Any]:
    """Like ``loops``, with the accumulation over the window unrolled or as a loop."""
    body = kernel.body
    taps = list(itertools.product(*(range(a.extent) for a in body.window))) if s.unroll else []
    acc: Expr = reduce(body.op, body.window, body.value)
    if taps:
        at = [substitute(body.value, dict(zip(body.window, map(index, tap), strict=True))) for tap in taps]
        acc = at[0]
        for value in at[1:]:
            acc = call(REDUCTIONS[body.op], acc, value)
    stores = [Store(t.target, t.index, substitute(t.value, {body.acc: acc})) for t in kernel.stores]
    return emit_pointwise(kernel, printer, s, p, body.domain, stores)
