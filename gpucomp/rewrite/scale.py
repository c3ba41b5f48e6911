"""Folds scales and shifts into the weights of Conv, ConvTranspose and MatMul. BatchNorm (x * c + d) disappears this way.

All rules hold up to rounding, and none lets a weight overflow. Scales and shifts that cannot be folded stay Mul and
Add.
"""

from __future__ import annotations

import numpy as np

from gpucomp import ops
from gpucomp.ir.graph import Node, Op, Value, constant
from gpucomp.ir.size import is_zero
from gpucomp.rewrite.match import along_axis, is_constant, keeps_type, splat
from gpucomp.rewrite.rule import Uses, rule

CONTRACTIONS: tuple[Op, ...] = (ops.Conv, ops.ConvTranspose, ops.MatMul)
BLOCK = 256  # rows of weights that are widened to f64 at a time
SHARED = 1 << 20  # bytes: larger weights are not copied to be scaled if other nodes read them too


def _is_weighted(value: Value) -> bool:
    """Whether ``value`` is a contraction of floats with constant weights as its second operand."""
    return value.op in CONTRACTIONS and value.type.dtype.is_float and is_constant(value.inputs[1])


def may_copy(weight: Value, uses: Uses) -> bool:
    """Whether ``weight`` may be copied: nothing else reads it, or it is small."""
    return uses(weight) == 1 or weight.type.nbytes <= SHARED


def _is_channels_last(value: Value | Node) -> bool:
    layout: str = value.attrs.get("layout", "NCHW")
    return layout == "NHWC"


def _result_channel(contraction: Value) -> int:
    """The axis of a contraction's result that runs over columns of its weights."""
    if contraction.op is ops.MatMul or _is_channels_last(contraction):
        return contraction.type.rank - 1
    return 1


def _operand_channel(contraction: Node) -> int:
    x = contraction.inputs[0]
    if contraction.op is ops.MatMul or contraction.attrs.get("layout", "NCHW") == "NHWC":
        return x.type.rank - 1
    return 1


def _scaled(contraction: Value | Node, factor: np.ndarray, x: Value | None = None) -> Value | None:
    """The contraction with its weights times ``factor``; ``None`` if a weight would not be finite."""
    w = contraction.inputs[1].attrs["value"]
    weights = np.empty_like(w)  # keeps the order of axes in memory
    with np.errstate(all="ignore"):
        if w.dtype.kind == "f":
            np.multiply(w, factor, out=weights, casting="same_kind")  # in f64, a buffer at a time
        else:
            weights[...] = w.astype(np.float64) * factor
    if not _all_finite(weights):
        return None
    return contraction.op(x or contraction.inputs[0], constant(weights), **contraction.attrs)


def _all_finite(array: np.ndarray) -> bool:
    return bool(np.isfinite(array).all())


def _columns(contraction: Value, scale: np.ndarray) -> np.ndarray:
    """``scale``, one f64 number per result channel, shaped to broadcast against the weights."""
    w = contraction.inputs[1].attrs["value"]
    last = _is_channels_last(contraction)
    if contraction.op is ops.MatMul or (contraction.op is ops.Conv and last):
        return scale
    if contraction.op is ops.Conv:
        return scale.reshape(-1, *[1] * (w.ndim - 1))
    group = contraction.attrs.get("group", 1)
    rows = w.shape[-2] if last else w.shape[0]
    each = np.repeat(scale.reshape(group, -1), rows // group, axis=0)  # [C, OC/group]
    return each if last else each.reshape(*each.shape, *[1] * (w.ndim - 2))


def _rows(contraction: Node, per_channel: np.ndarray) -> np.ndarray:
    """``per_channel``, one f64 number per operand channel, shaped to broadcast against the weights."""
    w = contraction.inputs[1].attrs["value"]
    last = _is_channels_last(contraction)
    if contraction.op is ops.MatMul or (contraction.op is ops.ConvTranspose and last):
        return per_channel.reshape(-1, 1)
    if contraction.op is ops.ConvTranspose:
        return per_channel.reshape(-1, *[1] * (w.ndim - 1))
    group = contraction.attrs.get("group", 1)
    out_channels = w.shape[-1] if last else w.shape[0]
    each = np.repeat(per_channel.reshape(group, -1), out_channels // group, axis=0)  # [OC, C/group]
    return each.T if last else each.reshape(*each.shape, *[1] * (w.ndim - 2))


# after a contraction -----------------------------------------------------------------------------------------


@rule(ops.Mul, ops.Div)
def scale_into_columns(node: Node, uses: Uses) -> Value | None:
    """contract(x, w) * c  ->  contract(x, w * c), c one number or one per result channel; the same for / c"""
    product, factor = node.inputs
    if not _is_weighted(product) or not is_constant(factor) or not keeps_type(node, product):
        return None
    if uses(product) != 1 or not may_copy(product.inputs[1], uses):
        return None
    scale = along_axis(factor.attrs["value"].astype(np.float64), product.shape, _result_channel(product))
    if scale is None:
        return None
    with np.errstate(all="ignore"):
        return _scaled(product, _columns(product, 1 / scale if node.op is ops.Div else scale))


@rule(ops.Mul)
def scale_before_shift(node: Node, uses: Uses) -> Value | None:
    """(y + b) * c  ->  y * c + b * c, if y is a contraction that c can be folded into"""
    match node:
        case Node(_, (Value(ops.Add, (y, Value(ops.Constant, (), {"value": b}))) as total, Value(ops.Constant) as c)):
            if not _is_weighted(y) or uses(total) != 1 or uses(y) != 1 or not keeps_type(node, y):
                return None
            factor = c.attrs["value"]
            if along_axis(factor, y.shape, _result_channel(y)) is None or not may_copy(y.inputs[1], uses):
                return None
            with np.errstate(all="ignore"):
                shift = (b.astype(np.float64) * factor.astype(np.float64)).astype(b.dtype)
            if _all_finite(shift):
                return ops.Add(ops.Mul(y, c), constant(shift))
    return None


# before a contraction ----------------------------------------------------------------------------------------


@rule(*CONTRACTIONS)
def scale_into_rows(node: Node, uses: Uses) -> Value | None:
    """contract(x * c, w)  ->  contract(x, w * c), c finite, one number or one per operand channel; padding stays zero"""
    match node.inputs[0]:
        case Value(ops.Mul, (x, Value(ops.Constant, (), {"value": c}))) as product if x.type == product.type:
            if not _is_weighted(node[0]) or uses(product) != 1 or not may_copy(node.inputs[1], uses):
                return None
            scale = along_axis(c.astype(np.float64), x.shape, _operand_channel(node))
            if scale is not None and _all_finite(scale):
                return _scaled(node, _rows(node, scale), x)
    return None


@rule(ops.Conv, ops.MatMul)
def shift_through(node: Node, uses: Uses) -> Value | None:
    """contract(x + d, w)  ->  contract(x, w) + contract(d, w), d finite, one number or one per operand channel; no padding"""
    match node.inputs[0]:
        case Value(ops.Add, (x, Value(ops.Constant, (), {"value": d}))) as total if x.type == total.type:
            if not _is_weighted(node[0]) or uses(total) != 1 or not all(map(is_zero, node.attrs.get("pads", ()))):
                return None
            if splat(node.inputs[0].inputs[1]) == 0:
                return None
            shift = along_axis(d.astype(np.float64), x.shape, _operand_channel(node))
            if shift is not None and _all_finite(shift):
                return _shifted(node.op(x, node.inputs[1], **node.attrs), shift)
    return None


def _shifted(contraction: Value, shift: np.ndarray) -> Value | None:
    """The contraction plus the contraction of ``shift``, one f64 number per operand channel."""
    w = contraction.inputs[1].attrs["value"]
    rank = contraction.type.rank
    with np.errstate(all="ignore"):
        if contraction.op is ops.MatMul:
            bias = sum(  # a block at a time: an f64 copy of the weights may be large
                np.matmul(shift[k : k + BLOCK], w[..., k : k + BLOCK, :].astype(np.float64))
                for k in range(0, w.shape[-2], BLOCK)
            )
            bias = np.asarray(bias)[..., None, :] if w.ndim > 2 else np.asarray(bias)
        elif _is_channels_last(contraction):
            bias = (w * _rows(contraction.node, shift)).reshape(-1, w.shape[-1]).sum(axis=0)
        else:
            terms = w * _rows(contraction.node, shift)
            bias = terms.reshape(terms.shape[0], -1).sum(axis=1).reshape(-1, *[1] * (rank - 2))
        rounded = bias.astype(contraction.type.dtype.numpy)
    return ops.Add(contraction, constant(rounded)) if _all_finite(rounded) else None


RULES = (scale_into_columns, scale_before_shift, scale_into_rows, shift_through)
