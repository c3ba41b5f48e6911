"""The table of operators and the decorators that fill it. The operators themselves are in the files beside this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import numpy as np

from gpucomp.expr.core import Algorithm, Expr, Var, axes_of, cast, index, load
from gpucomp.ir.graph import Op
from gpucomp.ir.types import BF16, BOOL, F16, F32, I32, DType, TensorType

OPS: dict[str, Op] = {}

KINDS = {"f": "float", "iu": "integer", "u": "unsigned", "b": "bool", "fi": "signed", "fiu": "numeric", "fiub": "any"}


def op(name: str) -> Callable[[Callable[..., Any]], Op]:
    """Decorator over a type rule: makes the operator ``name`` and enters it in ``OPS``."""

    def make(rule: Callable[..., Any]) -> Op:
        if name in OPS:
            raise ValueError(f"operator {name!r} is defined twice")
        OPS[name] = Op(name, rule)
        return OPS[name]

    return make


def compute_type(dtype: DType) -> DType:
    """The type functions are computed in: f32 for the 16-bit floats, else ``dtype`` itself."""
    return F32 if dtype in (F16, BF16) else dtype


def accumulator(dtype: DType) -> DType:
    """The type sums are kept in: f32 for the 16-bit floats, i32 for the narrow integers."""
    if dtype.is_integer and dtype.bits < 32:
        return I32
    return compute_type(dtype)


def expect(type: TensorType, kinds: str) -> None:
    """Raise ``ValueError`` unless the elements of ``type`` are of ``kinds``, a key of ``KINDS``."""
    if type.dtype.storage_only:
        raise ValueError(f"{type.dtype} only stores: cast it before computing with it")
    if type.dtype.kind not in kinds:
        raise ValueError(f"{KINDS[kinds]} elements expected, got {type.dtype}")


def expect_axis(axis: int, rank: int, name: str = "axis") -> None:
    """Raise ``ValueError`` unless ``0 <= axis < rank``."""
    if not 0 <= axis < rank:
        raise ValueError(f"{name} of 0 to {rank - 1} expected, got {axis}")


def quiet(reference: Callable[..., Any]) -> Callable[..., Any]:
    """``reference`` without numpy's warnings: NaN and infinities are results like any other."""

    def silenced(*arrays: np.ndarray, **attrs: Any) -> Any:
        with np.errstate(all="ignore"):
            return reference(*arrays, **attrs)

    return silenced


def in_double(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """A reference that computes in f64 and rounds once to the operands' type."""

    def reference(*arrays: np.ndarray, **attrs: Any) -> np.ndarray:
        with np.errstate(all="ignore"):
            result = function(*(np.asarray(a).astype(np.float64) for a in arrays), **attrs)
            return np.asarray(result).astype(arrays[0].dtype)

    return reference


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The broadcast of shapes, as numpy has it for up to 32 axes. Raises ``ValueError`` that shows them."""
    result = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for axis, extent in enumerate(shape, start=len(result) - len(shape)):
            if extent != 1 and result[axis] not in (1, extent):
                raise ValueError(f"shapes do not broadcast: {', '.join(map(str, shapes))}")
            if extent != 1:
                result[axis] = int(extent)
    return tuple(result)


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
    kinds: str = "fiub",
    wide: bool = False,
    check: Callable[..., None] | None = None,
) -> Op:
    """An operator that maps broadcast operands of one element type to one result, element by element.

    ``scalar(*exprs, **attrs)`` is its algorithm's body, and its signature says which attributes there are;
    ``wide`` computes it in f32 for the 16-bit floats. ``kinds`` of elements are taken, a key of ``KINDS``;
    ``check(*types, **attrs)`` raises ``ValueError`` for whatever else is wrong.
    """
    parameters = signature(scalar)

    def rule(*types: TensorType, **attrs: Any) -> TensorType:
        if len(types) != operands:
            raise ValueError(f"{operands} operands expected, {len(types)} given")
        if any(t.dtype is not types[0].dtype for t in types):
            raise ValueError(f"operands of one element type expected, got {', '.join(str(t.dtype) for t in types)}")
        expect(types[0], kinds)
        parameters.bind(*types, **attrs)
        if check is not None:
            check(*types, **attrs)
        return TensorType(BOOL if result_bool else types[0].dtype, broadcast(*(t.shape for t in types)))

    made = op(name)(rule)

    @made.define("algorithm")
    def algorithm(*types: TensorType, **attrs: Any) -> Algorithm:
        axes, exprs = pointwise(types, broadcast(*(t.shape for t in types)))
        if wide:
            exprs = [cast(e, compute_type(e.dtype)) for e in exprs]
        body = scalar(*exprs, **attrs)
        return Algorithm(axes, body if result_bool else cast(body, types[0].dtype))

    made.define("reference")(quiet(reference))
    return made


def operand(position: int, type: TensorType, axes: Sequence[Expr]) -> Expr:
    """Operand ``position`` at ``axes``, broadcast."""
    return load(position, broadcast_index(axes, type.shape), type.dtype)


def pointwise(types: Sequence[TensorType], shape: tuple[int, ...]) -> tuple[tuple[Var, ...], list[Expr]]:
    """Fresh axes of ``shape`` and every operand loaded there, broadcast."""
    axes = axes_of(shape)
    return axes, [operand(k, t, axes) for k, t in enumerate(types)]
