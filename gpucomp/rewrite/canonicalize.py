"""Canonical forms: constants on the right, x - c as x + (-c), nodes that do nothing removed, chains merged.

Every rule here is exact, for NaN and infinities too. Rules that may change the sign of a zero say so.
"""

from __future__ import annotations

import numpy as np

from gpucomp import ops
from gpucomp.ir.graph import Node, Value, constant
from gpucomp.ir.size import at_most, is_one, is_zero, same_shape
from gpucomp.ir.types import BF16, BOOL, F8E8M0, F16, F32, DType
from gpucomp.rewrite.concat import WIDEST
from gpucomp.rewrite.match import (
    COMMUTATIVE,
    REDUCTIONS,
    compose,
    is_constant,
    is_number,
    keeps_type,
    moves_nothing,
    splat,
)
from gpucomp.rewrite.rule import Uses, rule

# constants ---------------------------------------------------------------------------------------------------


@rule(*COMMUTATIVE)
def constant_on_the_right(node: Node) -> Value | None:
    """c + x  ->  x + c"""
    a, b = node.inputs
    if is_constant(a) and not is_constant(b):
        return node.op(b, a)
    return None


@rule(ops.Sub)
def subtract_constant(node: Node) -> Value | None:
    """x - c  ->  x + (-c)"""
    match node:
        case Node(_, (x, Value(ops.Constant, (), {"value": c}))) if not is_constant(x):
            with np.errstate(all="ignore"):
                return ops.Add(x, constant(np.negative(c)))
    return None


@rule(ops.Div)
def divide_by_power_of_two(node: Node) -> Value | None:
    """x / 2^k  ->  x * 2^-k, if 2^k and 2^-k are normal numbers: exact"""
    match node:
        case Node(_, (x, Value(ops.Constant, (), {"value": c}))) if node.types[0].dtype.is_float and not is_constant(x):
            wide = c.astype(np.float64)
            with np.errstate(all="ignore"):
                inverse = (1 / wide).astype(c.dtype)
            smallest = float(np.finfo(np.float32 if c.dtype.itemsize >= 4 else np.float16).tiny)
            if (
                c.size
                and np.all(np.abs(np.frexp(wide)[0]) == 0.5)
                and np.all(np.isfinite(wide) & (np.abs(wide) >= smallest))
                and np.all(np.abs(inverse.astype(np.float64)) >= smallest)
            ):
                return ops.Mul(x, constant(inverse))
    return None


@rule(ops.Div)
def divide_one(node: Node) -> Value | None:
    """1 / x  ->  reciprocal(x)"""
    numerator, x = node.inputs
    if is_number(numerator, 1) and x.type == node.types[0] and x.type.dtype.is_float:
        return ops.Reciprocal(x)
    return None


# nodes that do nothing ---------------------------------------------------------------------------------------

NEUTRAL = {ops.Add: 0, ops.Sub: 0, ops.Mul: 1, ops.Div: 1, ops.Pow: 1, ops.And: True, ops.Or: False, ops.Xor: False}


@rule(*NEUTRAL)
def drop_neutral_operand(node: Node) -> Value | None:
    """x + 0, x - 0, x * 1, x / 1, x^1, x and true, x or false  ->  x     (-0 + 0 is 0: the zero's sign may differ)"""
    x, c = node.inputs
    if is_number(c, NEUTRAL[node.op]) and keeps_type(node, x):
        return x
    return None


@rule(ops.Cast)
def drop_cast(node: Node) -> Value | None:
    """cast(x, its own type)  ->  x"""
    return node.inputs[0] if keeps_type(node, node.inputs[0]) else None


@rule(ops.Reshape, ops.Expand, ops.Tile, ops.Concat)
def drop_movement(node: Node) -> Value | None:
    """reshape, expand, tile or concat to the shape that x has  ->  x"""
    if len(node.inputs) == 1 and keeps_type(node, node.inputs[0]):
        return node.inputs[0]
    return None


@rule(ops.Transpose)
def drop_transpose(node: Node) -> Value | None:
    """transpose(x, (0, 1, ...))  ->  x"""
    perm = node.attrs["perm"]
    return node.inputs[0] if perm == tuple(range(len(perm))) else None


@rule(ops.Slice)
def drop_slice(node: Node) -> Value | None:
    """slice(x) that keeps all elements in order  ->  x"""
    x = node.inputs[0]
    steps = zip(node.attrs["steps"], x.shape, strict=True)
    return x if keeps_type(node, x) and all(step == 1 or at_most(extent, 1) for step, extent in steps) else None


@rule(ops.Pad)
def drop_pad(node: Node) -> Value | None:
    """pad(x, zeros)  ->  x, where no axis is padded"""
    return node.inputs[0] if all(map(is_zero, node.attrs["pads"])) else None


@rule(ops.Where)
def decided_where(node: Node) -> Value | None:
    """where(true, a, b)  ->  a;  where(false, a, b)  ->  b;  where(c, a, a)  ->  a"""
    condition, a, b = node.inputs
    known = splat(condition)
    chosen = a if a is b or known is True else b if known is False else None
    return chosen if chosen is not None and keeps_type(node, chosen) else None


@rule(*REDUCTIONS)
def reduce_nothing(node: Node) -> Value | None:
    """sum, mean, max, min or product over axes of extent 1  ->  reshape(x)"""
    x = node.inputs[0]
    if all(is_one(x.shape[axis]) for axis in node.attrs["axes"]):
        return ops.Reshape(x, shape=node.types[0].shape)
    return None


# chains ------------------------------------------------------------------------------------------------------


@rule(ops.Reshape)
def merge_reshapes(node: Node) -> Value | None:
    """reshape(reshape(x, s), t)  ->  reshape(x, t)"""
    match node:
        case Node(_, (Value(ops.Reshape, (x,)),), {"shape": shape}):
            return ops.Reshape(x, shape=shape)
    return None


@rule(ops.Transpose)
def merge_transposes(node: Node) -> Value | None:
    """transpose(transpose(x, p), q)  ->  transpose(x, p∘q)"""
    match node:
        case Node(_, (Value(ops.Transpose, (x,), {"perm": inner}),), {"perm": outer}):
            return ops.Transpose(x, perm=compose(inner, outer))
    return None


@rule(ops.Transpose)
def transpose_unit_axes(node: Node) -> Value | None:
    """transpose(x, p) that moves only axes of extent 1  ->  reshape(x)"""
    if moves_nothing(node.inputs[0].shape, node.attrs["perm"]):
        return ops.Reshape(node.inputs[0], shape=node.types[0].shape)
    return None


def holds(wide: DType, narrow: DType) -> bool:
    """Whether ``wide`` can represent every number of ``narrow``."""
    if wide is narrow or (narrow is BOOL and wide is not F8E8M0):  # f8e8m0 has no zero
        return True
    if wide.storage_only or narrow.storage_only or wide is BOOL:
        return False
    if wide.is_float and narrow.is_float:
        return wide.bits > narrow.bits
    if wide.is_float:
        digits = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}[wide.name]
        return narrow.bits - (narrow.kind == "i") <= digits and wide.name != "f16"
    if narrow.is_float or (wide.kind == "u" and narrow.kind == "i"):
        return False
    return wide.bits > narrow.bits


@rule(ops.Cast)
def merge_casts(node: Node) -> Value | None:
    """cast(cast(x, t), u)  ->  cast(x, u), if t can represent every number of x's type"""
    match node:
        case Node(_, (Value(ops.Cast, (x,), {"to": through}),)) if holds(through, x.type.dtype):
            return ops.Cast(x, **node.attrs)
    return None


@rule(ops.Slice)
def merge_slices(node: Node) -> Value | None:
    """slice(slice(x))  ->  slice(x)"""
    match node:
        case Node(_, (Value(ops.Slice, (x,), inner),), outer):
            axes = range(x.type.rank)
            return ops.Slice(
                x,
                starts=tuple(inner["starts"][d] + outer["starts"][d] * inner["steps"][d] for d in axes),
                steps=tuple(inner["steps"][d] * outer["steps"][d] for d in axes),
                sizes=outer["sizes"],
            )
    return None


@rule(ops.Pad)
def merge_pads(node: Node) -> Value | None:
    """pad(pad(x, p, v), q, v)  ->  pad(x, p + q, v), if neither p nor q is negative"""
    match node:
        case Node(_, (Value(ops.Pad, (x,), inner),), outer):
            grows = all(at_most(0, pad) for pad in (*inner["pads"], *outer["pads"]))
            constant_modes = all(a.get("mode", "constant") == "constant" for a in (inner, outer))
            values = [a.get("value", 0) for a in (inner, outer)]
            if grows and constant_modes and repr(float(values[0])) == repr(float(values[1])):
                pads = tuple(a + b for a, b in zip(inner["pads"], outer["pads"], strict=True))
                return ops.Pad(x, pads=pads, mode="constant", value=values[0])
    return None


@rule(ops.Expand)
def merge_expands(node: Node) -> Value | None:
    """expand(expand(x, s), t)  ->  expand(x, t)"""
    match node:
        case Node(_, (Value(ops.Expand, (x,)),), {"shape": shape}):
            return ops.Expand(x, shape=shape)
    return None


@rule(ops.Concat)
def merge_concats(node: Node, uses: Uses) -> Value | None:
    """concat(concat(a, b), c)  ->  concat(a, b, c), if nothing else reads the inner one and at most WIDEST parts result"""
    axis = node.attrs["axis"]
    parts: list[Value] = []
    for part in node.inputs:
        inner = part.op is ops.Concat and part.attrs["axis"] == axis and uses(part) == 1
        parts += part.inputs if inner else (part,)
    return ops.Concat(*parts, axis=axis) if len(node.inputs) < len(parts) <= WIDEST else None


@rule(ops.Concat)
def drop_empty_parts(node: Node) -> Value | None:
    """concat(a, empty, b)  ->  concat(a, b)"""
    axis = node.attrs["axis"]
    parts = [part for part in node.inputs if not is_zero(part.shape[axis])]
    return ops.Concat(*parts, axis=axis) if parts and len(parts) < len(node.inputs) else None


@rule(ops.Reshape)
def drop_kept_axes(node: Node, uses: Uses) -> Value | None:
    """reshape(reduce(x, keepdims=True), without those axes)  ->  reduce(x, keepdims=False)"""
    match node:
        case Node(_, (Value(op, (x,), {"axes": axes} as attrs) as reduced,), {"shape": shape}) if op in REDUCTIONS:
            left = tuple(extent for d, extent in enumerate(x.shape) if d not in axes)
            dropped = same_shape(shape, left) and not same_shape(shape, reduced.shape)
            if attrs.get("keepdims", True) and dropped and uses(reduced) == 1:
                return op(x, axes=axes, keepdims=False)
    return None


@rule(ops.ScatterElements, ops.ScatterND)
def scatter_in_single(node: Node) -> Value | None:
    """scatter(data, i, updates) of 16-bit floats  ->  cast(scatter(f32(data), i, f32(updates))), if it adds or multiplies

    Updates of one element are applied one after another. In 16 bits, each of them would round.
    """
    data, indices, updates = node.inputs
    if node.attrs.get("reduction") not in {"add", "mul"} or data.type.dtype not in (F16, BF16):
        return None
    wide = node.op(ops.Cast(data, to=F32), indices, ops.Cast(updates, to=F32), name=node.name, **node.attrs)
    return ops.Cast(wide, to=data.type.dtype)


RULES = (
    constant_on_the_right,
    subtract_constant,
    divide_by_power_of_two,
    divide_one,
    drop_neutral_operand,
    drop_cast,
    drop_movement,
    drop_transpose,
    drop_slice,
    drop_pad,
    decided_where,
    reduce_nothing,
    merge_reshapes,
    merge_transposes,
    merge_casts,
    merge_slices,
    merge_pads,
    merge_expands,
    merge_concats,
    drop_empty_parts,
    drop_kept_axes,
    scatter_in_single,
)

# only after all Transposes have been moved: as a Reshape, a Transpose of axes of extent 1 cannot cancel with its inverse
LATE_RULES = (transpose_unit_axes,)
