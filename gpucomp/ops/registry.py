"""The table of operators and the decorators that fill it. The operators themselves are in the files beside this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpucomp.expr.core import Algorithm, Expr, Var, axes_of, index, load
from gpucomp.ir.graph import Op
from gpucomp.ir.types import BOOL, TensorType

OPS: dict[str, Op] = {}


def op(name: str) -> Callable[[Callable[..., Any]], Op]:
    """Decorator over a type rule: makes the operator ``name`` and enters it in ``OPS``."""

    def make(rule: Callable[..., Any]) -> Op:
        if name in OPS:
            raise ValueError(f"operator {name!r} is defined twice")
        OPS[name] = Op(name, rule)
        return OPS[name]

    return make


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The numpy broadcast of shapes. Raises ``ValueError`` that shows them."""
    try:
        return tuple(int(d) for d in np.broadcast_shapes(*shapes))
    except ValueError:
        raise ValueError(f"shapes do not broadcast: {', '.join(map(str, shapes))}") from None


def broadcast_index(axes: Sequence[Expr], shape: tuple[int, ...]) -> tuple[Expr, ...]:
    """The index into an operand of ``shape`` that broadcasts against ``axes``."""
    tail = axes[len(axes) - len(shape) :]
    return tuple(index(0) if extent == 1 else axis for axis, extent in zip(tail, shape, strict=True))


def elementwise(
    name: str,
    scalar: Callable[..., Expr],
    reference: Callable[..., Any],
    *,
    operands: int,
    result_bool: bool = False,
    check: Callable[..., None] | None = None,
) -> Op:
    """An operator that maps broadcast operands of one element type to one result, element by element.

    ``scalar(*exprs, **attrs)`` is its algorithm's body; ``check(*types, **attrs)`` raises ``ValueError``.
    """

    def rule(*types: TensorType, **attrs: Any) -> TensorType:
        if len(types) != operands:
            raise ValueError(f"{operands} operands expected, {len(types)} given")
        if any(t.dtype is not types[0].dtype for t in types):
            raise ValueError(f"operands of one element type expected, got {', '.join(str(t.dtype) for t in types)}")
        if check is not None:
            check(*types, **attrs)
        return TensorType(BOOL if result_bool else types[0].dtype, broadcast(*(t.shape for t in types)))

    made = op(name)(rule)

    @made.define("algorithm")
    def algorithm(*types: TensorType, **attrs: Any) -> Algorithm:
        axes = axes_of(broadcast(*(t.shape for t in types)))
        return Algorithm(axes, scalar(*(operand(k, t, axes) for k, t in enumerate(types)), **attrs))

    made.define("reference")(reference)
    return made


def operand(position: int, type: TensorType, axes: Sequence[Expr]) -> Expr:
    """Operand ``position`` at ``axes``, broadcast."""
    return load(position, broadcast_index(axes, type.shape), type.dtype)


def pointwise(types: Sequence[TensorType], shape: tuple[int, ...]) -> tuple[tuple[Var, ...], list[Expr]]:
    """Fresh axes of ``shape`` and every operand loaded there, broadcast."""
    axes = axes_of(shape)
    return axes, [operand(k, t, axes) for k, t in enumerate(types)]
