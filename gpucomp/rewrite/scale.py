"""Scales and shifts into the weights of Conv, ConvTranspose and MatMul: how BatchNorm, x * c + d, disappears.

All rules hold up to rounding, and none lets a weight overflow. What cannot fold stays a Mul or Add of its own.
"""

from __future__ import annotations

import numpy as np

from gpucomp import ops
from gpucomp.ir.graph import Node, Op, Value, constant
from gpucomp.rewrite.match import along_axis, is_constant, keeps_type, splat
from gpucomp.rewrite.rule import Uses, rule

CONTRACTIONS: tuple[Op, ...] = (ops.Conv, ops.ConvTranspose, ops.MatMul)
SHARED = 1 << 20  # bytes above which weights that others read too are not scaled into a second copy


def _is_weighted(value: Value) -> bool:
    """Whether ``value`` is a contraction of floats with constant weights as its second operand."""
    return value.op in CONTRACTIONS and value.type.dtype.is_float and is_constant(value.inputs[1])


def _may_copy(weight: Value, uses: Uses) -> bool:
    return uses(weight) == 1 or weight.type.nbytes <= SHARED


def _is_first_channels_last(value: Value) -> bool:
    return value.attrs.get("layout", "NCHW") == "NHWC"


def _result_channel(contraction: Value) -> int:
    """The axis of a contraction's result that runs over columns of its weights."""
    if contraction.op is ops.MatMul or _is_first_channels_last(contraction):
        return contraction.type.rank - 1
    return 1


def _operand_channel(contraction: Node) -> int:
    x = contraction.inputs[0]
    if contraction.op is ops.MatMul or contraction.attrs.get("layout", "NCHW") == "NHWC":
        return x.type.rank - 1
    return 1


def _with_weights(contraction: Value | Node, weights: np.ndarray, x: Value | None = None) -> Value | None:
    """The contraction with other weights; ``None`` where they are no finite numbers of its type."""
    dtype = contraction.inputs[1].type.dtype
    with np.errstate(all="ignore"):
        rounded = weights.astype(dtype.numpy)
    if not np.all(np.isfinite(rounded.astype(np.float64))):
        return None
    return contraction.op(x or contraction.inputs[0], constant(rounded), **contraction.attrs)


def _scaled_columns(contraction: Value, scale: np.ndarray) -> np.ndarray | None:
    """The weights whose contraction is the old one times ``scale``, a number a result channel."""
    w = contraction.inputs[1].attrs["value"].astype(np.float64)
    last = _is_first_channels_last(contraction)
    if contraction.op is ops.MatMul or (contraction.op is ops.Conv and last):
        return w * scale
    if contraction.op is ops.Conv:
        return w * scale.reshape(-1, *[1] * (w.ndim - 1))
    if last:
        return None
    group = contraction.attrs.get("group", 1)
    split = w.reshape(group, w.shape[0] // group, *w.shape[1:])  # [group, C/group, OC/group, *kernel]
    return (split * scale.reshape(group, 1, -1, *[1] * (w.ndim - 2))).reshape(w.shape)


def _rows(contraction: Node, per_channel: np.ndarray) -> np.ndarray | None:
    """A number an operand channel, shaped to broadcast against the weights."""
    w = contraction.inputs[1].attrs["value"]
    last = contraction.attrs.get("layout", "NCHW") == "NHWC"
    group = contraction.attrs.get("group", 1)
    if contraction.op is ops.MatMul:
        return per_channel.reshape(-1, 1)
    if contraction.op is ops.ConvTranspose:
        return None if last else per_channel.reshape(-1, *[1] * (w.ndim - 1))
    if group == 1:
        return per_channel.reshape(-1, 1) if last else per_channel.reshape(1, -1, *[1] * (w.ndim - 2))
    out_channels = w.shape[-1] if last else w.shape[0]
    each = np.repeat(per_channel.reshape(group, -1), out_channels // group, axis=0)  # [OC, C/group]
    return each.T if last else each.reshape(*each.shape, *[1] * (w.ndim - 2))


# after a contraction -----------------------------------------------------------------------------------------


@rule(ops.Mul, ops.Div)
def scale_into_columns(node: Node, uses: Uses) -> Value | None:
    """contract(x, w) * c  ->  contract(x, w * c), c a number or one a result channel; the same for / c"""
    product, factor = node.inputs
    if not _is_weighted(product) or not is_constant(factor) or not keeps_type(node, product):
        return None
    if uses(product) != 1 or not _may_copy(product.inputs[1], uses):
        return None
    scale = along_axis(factor.attrs["value"].astype(np.float64), product.shape, _result_channel(product))
    if scale is None:
        return None
    with np.errstate(all="ignore"):
        weights = _scaled_columns(product, 1 / scale if node.op is ops.Div else scale)
    return None if weights is None else _with_weights(product, weights)


@rule(ops.Mul)
def scale_before_shift(node: Node, uses: Uses) -> Value | None:
    """(y + b) * c  ->  y * c + b * c, where y is a contraction that c folds into"""
    match node:
        case Node(_, (Value(ops.Add, (y, Value(ops.Constant, (), {"value": b}))) as total, Value(ops.Constant) as c)):
            if not _is_weighted(y) or uses(total) != 1 or uses(y) != 1 or not keeps_type(node, y):
                return None
            factor = c.attrs["value"]
            if along_axis(factor, y.shape, _result_channel(y)) is None or not _may_copy(y.inputs[1], uses):
                return None
            with np.errstate(all="ignore"):
                shift = (b.astype(np.float64) * factor.astype(np.float64)).astype(b.dtype)
            if np.all(np.isfinite(shift.astype(np.float64))):
                return ops.Add(ops.Mul(y, c), constant(shift))
    return None


# before a contraction ----------------------------------------------------------------------------------------


@rule(*CONTRACTIONS)
def scale_into_rows(node: Node, uses: Uses) -> Value | None:
    """contract(x * c, w)  ->  contract(x, w * c), c a finite number or one an operand channel; padding stays zero"""
    match node.inputs[0]:
        case Value(ops.Mul, (x, Value(ops.Constant, (), {"value": c}))) as product if x.type == product.type:
            if not _is_weighted(node[0]) or uses(product) != 1 or not _may_copy(node.inputs[1], uses):
                return None
            scale = along_axis(c.astype(np.float64), x.shape, _operand_channel(node))
            rows = None if scale is None else _rows(node, scale)
            if rows is not None:
                return _with_weights(node, node.inputs[1].attrs["value"].astype(np.float64) * rows, x)
    return None


@rule(ops.Conv, ops.MatMul)
def shift_through(node: Node, uses: Uses) -> Value | None:
    """contract(x + d, w)  ->  contract(x, w) + contract(d, w), d a finite number or one an operand channel, no padding"""
    match node.inputs[0]:
        case Value(ops.Add, (x, Value(ops.Constant, (), {"value": d}))) as total if x.type == total.type:
            if not _is_weighted(node[0]) or uses(total) != 1 or any(node.attrs.get("pads", ())):
                return None
            if splat(node.inputs[0].inputs[1]) == 0:
                return None
            shift = along_axis(d.astype(np.float64), x.shape, _operand_channel(node))
            rows = None if shift is None else _rows(node, shift)
            if rows is None:
                return None
            contraction = node.op(x, node.inputs[1], **node.attrs)
            return _shifted(contraction, node.inputs[1].attrs["value"].astype(np.float64) * rows)
    return None


def _shifted(contraction: Value, terms: np.ndarray) -> Value | None:
    """The contraction plus, in each result channel, the sum of ``terms`` over everything else."""
    rank = contraction.type.rank
    if contraction.op is ops.MatMul:
        bias = terms.sum(axis=-2)
        if bias.ndim > 1:
            bias = bias[..., None, :]  # batched weights: one bias a matrix
    elif _is_first_channels_last(contraction):
        bias = terms.reshape(-1, terms.shape[-1]).sum(axis=0)
    else:
        bias = terms.reshape(terms.shape[0], -1).sum(axis=1).reshape(-1, *[1] * (rank - 2))
    rounded = bias.astype(contraction.type.dtype.numpy)
    if not np.all(np.isfinite(rounded.astype(np.float64))):
        return None
    return ops.Add(contraction, constant(rounded))


RULES = (scale_into_columns, scale_before_shift, scale_into_rows, shift_through)
