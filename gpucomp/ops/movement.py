"""Operators that only move elements: an index map each, so that they fold into the kernels around them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gpucomp.expr.core import Algorithm, Expr, axes_of, index, load, select
from gpucomp.expr.simplify import flatten, unflatten
from gpucomp.ir.types import TensorType
from gpucomp.ops.registry import op


@op("Reshape")
def Reshape(x: TensorType, *, shape: tuple[int, ...]) -> TensorType:
    """The same elements in the same row-major order, in another shape (no 0 or -1: the frontend resolves them)."""
    if math.prod(shape) != x.size:
        raise ValueError(f"{x.size} elements do not fit in shape {list(shape)}")
    return x.with_shape(shape)


@Reshape.define("reference")
def _reshape_reference(x: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    return x.reshape(shape)


@Reshape.define("algorithm")
def _reshape_algorithm(x: TensorType, *, shape: tuple[int, ...]) -> Algorithm:
    axes = axes_of(shape)
    return Algorithm(axes, load(0, unflatten(flatten(axes, shape), x.shape), x.dtype))


@Reshape.define("push")
def _reshape_push(operand: int, at: Sequence[Expr], x: TensorType, *, shape: tuple[int, ...]) -> tuple[Expr, ...]:
    return unflatten(flatten(tuple(at), x.shape), shape)


@op("Transpose")
def Transpose(x: TensorType, *, perm: tuple[int, ...]) -> TensorType:
    """Axis ``i`` of the result is axis ``perm[i]`` of ``x``."""
    if sorted(perm) != list(range(x.rank)):
        raise ValueError(f"perm {list(perm)} is no permutation of {x.rank} axes")
    return x.with_shape(tuple(x.shape[p] for p in perm))


@Transpose.define("reference")
def _transpose_reference(x: np.ndarray, *, perm: tuple[int, ...]) -> np.ndarray:
    return np.transpose(x, perm)


@Transpose.define("algorithm")
def _transpose_algorithm(x: TensorType, *, perm: tuple[int, ...]) -> Algorithm:
    axes = axes_of(tuple(x.shape[p] for p in perm))
    at: list[Expr] = [index(0)] * x.rank
    for axis, p in zip(axes, perm, strict=True):
        at[p] = axis
    return Algorithm(axes, load(0, at, x.dtype))


@Transpose.define("push")
def _transpose_push(operand: int, at: Sequence[Expr], x: TensorType, *, perm: tuple[int, ...]) -> tuple[Expr, ...]:
    return tuple(at[p] for p in perm)


@op("Concat")
def Concat(*parts: TensorType, axis: int) -> TensorType:
    """The parts one after the other along ``axis`` (0 <= axis < rank)."""
    first = parts[0]
    if not 0 <= axis < first.rank:
        raise ValueError(f"axis {axis} is outside 0..{first.rank - 1}")
    for part in parts:
        if part.dtype is not first.dtype or part.rank != first.rank:
            raise ValueError(f"{part} does not go with {first}")
        if any(a != b for d, (a, b) in enumerate(zip(part.shape, first.shape, strict=True)) if d != axis):
            raise ValueError(f"{part} and {first} differ outside axis {axis}")
    total = sum(part.shape[axis] for part in parts)
    return first.with_shape((*first.shape[:axis], total, *first.shape[axis + 1 :]))


@Concat.define("reference")
def _concat_reference(*parts: np.ndarray, axis: int) -> np.ndarray:
    return np.concatenate(parts, axis)


@Concat.define("algorithm")
def _concat_algorithm(*parts: TensorType, axis: int) -> Algorithm:
    axes = axes_of(Concat.type_rule(*parts, axis=axis).shape)  # type: ignore[union-attr]
    body: Expr | None = None
    end = sum(part.shape[axis] for part in parts)
    for k in reversed(range(len(parts))):
        end -= parts[k].shape[axis]
        at = [a - end if d == axis else a for d, a in enumerate(axes)]
        element = load(k, at, parts[k].dtype)
        body = element if body is None else select(axes[axis] < end + parts[k].shape[axis], element, body)
    assert body is not None
    return Algorithm(axes, body)


@Concat.define("push")
def _concat_push(operand: int, at: Sequence[Expr], *parts: TensorType, axis: int) -> tuple[Expr, ...]:
    start = sum(part.shape[axis] for part in parts[:operand])
    return tuple(a + start if d == axis else a for d, a in enumerate(at))
