"""The table of operators and the decorators that fill it. The operators are in the other files of this folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import numpy as np

from gpucomp.expr.core import Algorithm, Expr, Var, axes_of, cast, index, load
from gpucomp.ir.graph import Op
from gpucomp.ir.size import Size, is_one, same
from gpucomp.ir.types import BF16, BOOL, F16, F32, I32, DType, TensorType

OPS: dict[str, Op] = {}

KINDS = {"f": "float", "iu": "integer", "u": "unsigned", "b": "bool", "fi": "signed", "fiu": "numeric", "fiub": "any"}


def op(name: str) -> Callable[[Callable[..., Any]], Op]:
    """Decorator of a type rule: creates the operator ``name`` and adds it to ``OPS``."""

    def make(rule: Callable[..., Any]) -> Op:
        if name in OPS:
            raise ValueError(f"operator {name!r} is defined twice")
        OPS[name] = Op(name, rule)
        return OPS[name]

    return make


def compute_type(dtype: DType) -> DType:
    """The type that functions are computed in: f32 for the 16-bit floats, otherwise ``dtype`` itself."""
    return F32 if dtype in (F16, BF16) else dtype


def accumulator(dtype: DType) -> DType:
    """The type of sums: f32 for the 16-bit floats, i32 for integers of fewer than 32 bits, otherwise ``dtype`` itself."""
    if dtype.is_integer and dtype.bits < 32:
        return I32
    return compute_type(dtype)


def expect(type: TensorType, kinds: str) -> None:
    """Raise ``ValueError`` unless the element type of ``type`` is one of ``kinds``, a key of ``KINDS``."""
    if type.dtype.storage_only:
        raise ValueError(f"{type.dtype} can be stored but not computed with: cast it first")
    if type.dtype.kind not in kinds:
        raise ValueError(f"{KINDS[kinds]} elements expected, got {type.dtype}")


def expect_axis(axis: int, rank: int, name: str = "axis") -> None:
    """Raise ``ValueError`` unless ``0 <= axis < rank``."""
    if not 0 <= axis < rank:
        raise ValueError(f"{name} of 0 to {rank - 1} expected, got {axis}")


def quiet(reference: Callable[..., Any]) -> Callable[..., Any]:
    """``reference`` without numpy's warnings, because NaN and infinities are valid results."""

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
    """The broadcast of ``shapes``, by numpy's rules. Raises ``ValueError`` that lists them if they do not broadcast."""
    result = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for axis, extent in enumerate(shape, start=len(result) - len(shape)):
            so_far = result[axis]
            if isinstance(extent, Size) or isinstance(so_far, Size):
                if is_one(extent) or same(extent, so_far):
                    continue
            elif extent == 1:
                continue
            if not is_one(so_far) and so_far != extent:
                raise ValueError(f"shapes do not broadcast: {', '.join(map(str, shapes))}")
            result[axis] = extent if isinstance(extent, Size) else int(extent)
    return tuple(result)


def broadcast_index(axes: Sequence[Expr], shape: tuple[int, ...]) -> tuple[Expr, ...]:
    """The index into an operand of ``shape`` that broadcasts against ``axes``."""
    tail = axes[len(axes) - len(shape) :]
    return tuple(index(0) if is_one(extent) else axis for axis, extent in zip(tail, shape, strict=True))


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

    ``scalar(*exprs, **attrs)`` is the body of its algorithm; its signature defines the attributes. With ``wide``,
    16-bit floats are computed in f32. ``kinds``, a key of ``KINDS``, are the supported element types. ``check(*types,
    **attrs)`` raises ``ValueError`` for all other errors.
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
    """The load of operand ``position``, broadcast against ``axes``."""
    return load(position, broadcast_index(axes, type.shape), type.dtype)


def pointwise(types: Sequence[TensorType], shape: tuple[int, ...]) -> tuple[tuple[Var, ...], list[Expr]]:
    """Fresh axes for ``shape``, and the loads of all operands, broadcast against them."""
    axes = axes_of(shape)
    return axes, [operand(k, t, axes) for k, t in enumerate(types)]
