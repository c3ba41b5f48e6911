"""A kernel at the example's sizes: what models of time and choices of schedules look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

from gpucomp.expr.core import Const, Expr, Reduce, Var, index, loads, reduce, transform, var, walk
from gpucomp.ir.example import Example, example_now
from gpucomp.ir.size import Size, hint
from gpucomp.ir.types import TensorType
from gpucomp.kernel.body import Contraction
from gpucomp.kernel.ir import FusedLayers, Kernel


@lru_cache(maxsize=4096)
def has_sizes(kernel: Kernel) -> bool:
    """Whether an extent of ``kernel``, or a number in its expressions, is a size that each run decides."""
    if isinstance(kernel.body, FusedLayers):
        return any(has_sizes(layer.kernel) for layer in kernel.body.layers)
    shapes = (extent for type in kernel.params for extent in type.shape)
    axes = (axis.extent for group in kernel.body.axes().values() for axis in group)
    if any(isinstance(extent, Size) for extents in (shapes, axes) for extent in extents):
        return True
    every = chain(kernel.body.expressions(), *(store.expressions() for store in kernel.stores))
    numbers = (n.value for e in every for n in walk(e) if isinstance(n, Const))
    return any(isinstance(number, Size) for number in numbers)


def example_of(kernel: Kernel) -> Kernel:
    """``kernel`` with every size replaced by its value in the example (``hint``); itself if it has none.

    Constants that a contraction reads by axes with sizes are none in the example: they have no layout for every run.
    """
    return _example_of(kernel, example_now())


@lru_cache(maxsize=1024)
def _example_of(kernel: Kernel, example: Example | None) -> Kernel:
    if not has_sizes(kernel):
        return kernel
    changing: set[int] = set()
    if isinstance(body := kernel.body, Contraction):
        for operand, value in (("a", body.a), ("b", body.b)):
            if not is_fixed(body, operand):
                changing |= {ld.source for ld in loads(value)}
    return replace(at(kernel, hint), constants=kernel.constants - changing)


def is_fixed(body: Contraction, operand: str) -> bool:
    """Whether ``operand`` (``a`` or ``b``) has the same elements in every run if it is constant."""
    axes = (*body.batch, *body.k, *(body.m if operand == "a" else body.n))
    numbers = (node.value for node in walk(body.a if operand == "a" else body.b) if isinstance(node, Const))
    return not any(isinstance(n, Size) for n in (*numbers, *(axis.extent for axis in axes)))


def at(kernel: Kernel, value: Callable[[Any], Any]) -> Kernel:
    """``kernel`` with ``value(size)`` for every size and every number that stands for an extent."""
    if isinstance(kernel.body, FusedLayers):
        raise TypeError("fused layers have no sizes")
    names: dict[Var, Var] = {}

    def renamed(axis: Var) -> Var:
        if axis not in names:
            names[axis] = var(axis.name, value(axis.extent))
        return names[axis]

    def change(node: Expr) -> Expr | None:
        match node:
            case Var():
                return renamed(node)
            case Const(value=Size() as size):
                return index(value(size))
            case Reduce():
                return reduce(node.op, tuple(map(renamed, node.axes)), node.body)
        return None

    def fixed(expr: Expr) -> Expr:
        return transform(expr, change)

    axes = {role: tuple(map(renamed, group)) for role, group in kernel.body.axes().items()}
    body = kernel.body.mapped(fixed).with_axes(axes)
    params = tuple(TensorType(type.dtype, tuple(map(value, type.shape))) for type in kernel.params)
    return replace(kernel, params=params, body=body, stores=tuple(s.mapped(fixed) for s in kernel.stores))
