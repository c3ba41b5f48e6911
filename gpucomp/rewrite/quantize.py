"""Turns products of dequantized operands, as in QuantizeLinear/DequantizeLinear models, into products of their codes.

Quantized are the quantized values.

    sum (x - zx) sx (w - zw) sw  =  sx sw sum (x - zx) (w - zw)

The sum on the right is of integers and exact. On the left, f32 rounds every product and every sum. Constant zero points
stay in the sums; the kernel pass ``narrow_integers`` takes them out. All this is for processors that multiply bytes. It
runs before constants are folded, because a folded weight has lost its scale.

Dynamic quantization computes a zero point when the model runs. Such a zero point is taken out here:

    sum (x - z) w  =  sum x w - z sum w

``w``, less its own zero point, is constant, and so is its sum. The sum is one number per column. If windows are padded,
it also depends on the position, because padding is not a code. The first sum on the right is of bytes as they are in
memory. If ``w`` less its zero point does not fit a byte, an offset per column is subtracted so that it does. The result
is corrected by the offset times the sum of a row of ``x``, or of a window of ``x``. Sums of windows are computed in two
steps: over the channels once, then over the taps of each window.
"""

from __future__ import annotations

import math

import numpy as np

from gpucomp import ops
from gpucomp.ir.graph import Node, Value, constant, constant_value
from gpucomp.ir.size import is_one, is_zero, same_shape
from gpucomp.ir.types import F32, I8, I32, U8
from gpucomp.rewrite.rule import Uses, rule

DEEPEST = 1 << 14  # most products of bytes less zero points in a sum: i32 holds the sum plus the largest bias
EXACT = 1 << 24  # f32 holds every integer up to this
LARGEST = 1 << 30  # largest bias, in steps
ON_GRID = 1e-3  # a bias that is this close to a multiple of the step, in steps, is taken for the multiple
STEPS = 6  # most movements and casts between a constant and its use
BYTES = (I8, U8)
FARTHEST = 255  # largest distance of a code from 0 and from its zero point
ROOM = 1 << 31  # i32 holds magnitudes below this


@rule(ops.Conv, ops.MatMul)
def multiply_codes(node: Node) -> Value | None:
    """contract((x - zx) sx, (w - zw) sw)  ->  f32(contract(i32(x) - zx, w - zw)) (sx sw), bytes x, constants w, sw"""
    x, w = node.inputs
    if node.types[0].dtype is not F32 or node.attrs.get("layout", "NCHW") != "NCHW":
        return None
    left, right = _codes(x), _constant_codes(w)
    if left is None or right is None:
        return None
    (codes, zero, scale), (weights, steps) = left, right
    columns = _columns(node, steps)
    depth = w.type.size // node.types[0].shape[1] if node.op is ops.Conv else w.shape[-2] if w.type.rank > 1 else 0
    if columns is None or not 0 < depth <= DEEPEST:
        return None
    wide = ops.Cast(codes, to=I32)
    centred = ops.Sub(wide, constant(np.int32(zero))) if zero else wide
    product = node.op(centred, constant(weights), **node.attrs)
    return ops.Mul(ops.Cast(product, to=F32), constant(scale * columns))


@rule(ops.Add)
def add_bias_to_codes(node: Node, uses: Uses) -> Value | None:
    """f32(y) s + b  ->  f32(y + b / s) s, if y is a sum of codes and the constants b / s are integers"""
    for product, bias in (node.inputs, node.inputs[::-1]):
        scaled_sum, array = _scaled_sum(product), _array(bias)
        if scaled_sum is None or array is None or uses(product) != 1 or product.type != node.types[0]:
            continue
        total, scale = scaled_sum
        whole = _whole(array, scale)
        if whole is not None:
            return ops.Mul(ops.Cast(ops.Add(total, constant(whole)), to=F32), constant(scale))
    return None


@rule(ops.Div)
def one_multiplier(node: Node, uses: Uses) -> Value | None:
    """(f32(y) s) / q  ->  f32(y) (s / q), and the same for max(f32(y) s, 0) / q: y a sum of codes, s and q constants > 0"""
    value, divisor = node.inputs
    array = _array(divisor)
    relu = value.op is ops.Relu
    product = value.inputs[0] if relu else value
    scaled_sum = _scaled_sum(product)
    if scaled_sum is None or array is None or uses(value) != 1 or uses(product) != 1 or not np.all(array > 0):
        return None
    total, scale = scaled_sum
    with np.errstate(all="ignore"):
        multiplier = (scale / array).astype(np.float32)
    if value.type != node.types[0] or not np.all(np.isfinite(multiplier)):
        return None
    result = ops.Mul(ops.Cast(total, to=F32), constant(multiplier))
    return ops.Relu(result) if relu else result


@rule(ops.MatMul, ops.Conv)
def take_out_zero_point(node: Node) -> Value | None:
    """contract(i32(x) - i32(z), w)  ->  contract(i32(x), w) - i32(z) contract(1, w), bytes x and z, constant w"""
    x, w = node.inputs
    if x.op is not ops.Sub or node.types[0].dtype is not I32 or node.attrs.get("layout", "NCHW") != "NCHW":
        return None
    codes, zero = x.inputs
    if (
        not (_is_widened_byte(codes) and _is_widened_byte(zero))
        or not same_shape(codes.shape, x.shape)
        or _array(zero) is not None
    ):
        return None
    weights = _array(w)
    if weights is None or not _is_one_a_row(zero, x, node) or FARTHEST * _largest_sum(weights, node) >= ROOM:
        return None
    matrix = weights.sum(axis=-2, keepdims=True).astype(np.int32) if node.op is ops.MatMul else None
    sums = _sums_of_windows(weights, node) if matrix is None else constant(matrix)
    return ops.Sub(node.op(codes, w, **node.attrs), ops.Mul(zero, sums))


@rule(ops.MatMul, ops.Conv)
def take_out_offset_of_weights(node: Node) -> Value | None:
    """contract(x, w)  ->  contract(x, w - o) + o contract(x, 1), x widened bytes, w and o constants, only w - o bytes"""
    x, w = node.inputs
    centred = x.op is ops.Sub and _array(x.inputs[1]) is not None
    codes = x.inputs[0] if centred else x
    if node.types[0].dtype is not I32 or not _is_widened_byte(codes) or not same_shape(codes.shape, x.shape):
        return None
    group = node.attrs.get("group", 1)
    weights = _array(w)
    if weights is None or not weights.size or _fit_a_byte(weights) or node.attrs.get("layout", "NCHW") != "NCHW":
        return None
    if weights.shape[_column_axis(node)] == group:
        return None  # one column per group: summing the codes would be as much work as the product
    summed = _summed_axes(weights, node)
    low, high = (f(axis=summed, keepdims=True).astype(np.int64) for f in (weights.min, weights.max))
    offset = low + 128  # one for each column
    shifted = weights - offset
    depth = weights.size // offset.size
    largest = np.abs(offset) * depth + np.abs(shifted).sum(axis=summed, keepdims=True)
    if np.any(high - low > FARTHEST) or FARTHEST * int(largest.max()) >= ROOM:
        return None
    product = node.op(x, constant(shifted.astype(np.int32)), **node.attrs)
    offset = offset.astype(np.int32)
    if node.op is ops.MatMul:
        correction = ops.Mul(ops.ReduceSum(x, axes=(x.type.rank - 1,), keepdims=True), constant(offset))
    else:
        correction = _times_sums_of_windows(offset.reshape(group, -1), x, node)
    return ops.Add(correction, product)  # in this order the codes are summed first, and the product's kernel adds


def _times_sums_of_windows(offset: np.ndarray, x: Value, node: Node) -> Value:
    """The convolution of ``x`` with weights that all equal the ``offset`` [groups, columns] of their column."""
    group, (images, channels, *size), shape = node.attrs["group"], x.shape, node.types[0].shape
    ones = constant(np.ones((group, 1, *node.inputs[1].shape[2:]), np.int32))
    offsets = constant(offset.reshape(*offset.shape, *[1] * len(size)))
    if group == 1:  # without an extra axis, so that these sums are computed channels last, as the product is
        sums = ops.Conv(ops.ReduceSum(x, axes=(1,), keepdims=True), ones, **node.attrs)
        return ops.Mul(sums, offsets)
    pixels = ops.ReduceSum(ops.Reshape(x, shape=(images, group, channels // group, *size)), axes=(2,), keepdims=False)
    sums = ops.Reshape(ops.Conv(pixels, ones, **node.attrs), shape=(images, group, 1, *shape[2:]))
    return ops.Reshape(ops.Mul(sums, offsets), shape=shape)


def _is_widened_byte(value: Value) -> bool:
    return value.op is ops.Cast and value.type.dtype is I32 and value.inputs[0].type.dtype in BYTES


def _is_one_a_row(zero: Value, x: Value, node: Node) -> bool:
    """Whether ``zero`` is constant along all axes that ``node`` sums over."""
    summed = x.shape[-1:] if node.op is ops.MatMul else x.shape[1:]
    return all(map(is_one, zero.shape[-len(summed) :]))


def _column_axis(node: Node) -> int:
    """The axis of the weights that runs over columns of the result."""
    return -1 if node.op is ops.MatMul else 0


def _summed_axes(weights: np.ndarray, node: Node) -> int | tuple[int, ...]:
    """The axes of the weights that the contraction sums over."""
    return -2 if node.op is ops.MatMul else tuple(range(1, weights.ndim))


def _largest_sum(weights: np.ndarray, node: Node) -> int:
    """The largest sum of magnitudes of the weights of one result element."""
    return int(np.abs(weights.astype(np.int64)).sum(axis=_summed_axes(weights, node)).max(initial=0))


def _fit_a_byte(weights: np.ndarray) -> bool:
    return any(np.iinfo(t.numpy).min <= weights.min() and weights.max() <= np.iinfo(t.numpy).max for t in BYTES)


def _sums_of_windows(weights: np.ndarray, node: Node) -> Value:
    """The result of ``node`` for an image of ones: one number per channel if nothing is padded, as all windows are whole.

    Sums at the edges of an image whose size each run decides are computed by each run.
    """
    attrs = dict(node.attrs, group=1)
    rank, pads = weights.ndim - 2, node.attrs["pads"]
    taps = weights.sum(axis=1, keepdims=True, dtype=np.int32)
    if all(map(is_zero, pads)):
        sums = np.asarray(taps.sum(axis=tuple(range(2, 2 + rank)), keepdims=True, dtype=np.int32))
        return constant(sums.reshape(1, -1, *[1] * rank))
    shape = (1, 1, *node.inputs[0].shape[2:])
    if node.inputs[0].type.has_sizes:
        return ops.Conv(ops.Expand(constant(np.ones((), np.int32)), shape=shape), constant(taps), **attrs)
    return constant(np.asarray(ops.Conv.reference(np.ones(shape, np.int32), taps, **attrs)))


def _codes(value: Value) -> tuple[Value, int, np.float32] | None:
    """Match ``value`` as (codes - zero point) scale, where codes are bytes that share one zero point and one scale."""
    match value:
        case Value(ops.Mul, (centred, step)):
            pass
        case _:
            return None
    scale, zero = _array(step), np.zeros(())
    if centred.op is ops.Sub:
        zero_point = _array(centred.inputs[1])
        if zero_point is None:
            return None
        centred, zero = centred.inputs[0], zero_point
    if centred.op is not ops.Cast or centred.inputs[0].type.dtype not in BYTES or value.type.dtype is not F32:
        return None
    if scale is None or scale.size != 1 or zero.size != 1 or not same_shape(centred.shape, value.shape):
        return None
    step_size = np.float32(scale.reshape(())[()])
    return (centred.inputs[0], int(zero.reshape(())[()]), step_size) if math.isfinite(step_size) else None


def _constant_codes(value: Value) -> tuple[np.ndarray, np.ndarray] | None:
    """Constant weights as (codes - zero points, in i32; scales, which broadcast against them)."""
    if value.op is ops.Transpose:
        inner = _constant_codes(value.inputs[0])
        if inner is None:
            return None
        wide = inner[1].reshape([1] * (inner[0].ndim - inner[1].ndim) + list(inner[1].shape))
        return inner[0].transpose(value.attrs["perm"]), wide.transpose(value.attrs["perm"])
    match value:
        case Value(ops.Mul, (centred, step)):
            pass
        case _:
            return None
    zero: np.ndarray | None = np.zeros(())
    if centred.op is ops.Sub:
        zero = _array(centred.inputs[1])
        centred = centred.inputs[0]
    if centred.op is not ops.Cast or centred.inputs[0].type.dtype not in BYTES:
        return None
    codes, scale = _array(centred.inputs[0]), _array(step)
    if codes is None or scale is None or zero is None or scale.dtype != np.float32 or not np.all(np.isfinite(scale)):
        return None
    return codes.astype(np.int32) - zero.astype(np.int32), scale


def _columns(node: Node, scale: np.ndarray) -> np.ndarray | None:
    """Scales of the weights, shaped to broadcast against the result; ``None`` if a column has several."""
    if scale.size == 1:
        return scale.reshape(())
    rank = node.inputs[1].type.rank
    shape = [1] * (rank - scale.ndim) + list(scale.shape)
    axis = 0 if node.op is ops.Conv else rank - 1
    if math.prod(shape) != shape[axis]:
        return None
    return scale.reshape((-1, *[1] * (rank - 2))) if node.op is ops.Conv else scale.reshape(-1)


def _scaled_sum(value: Value) -> tuple[Value, np.ndarray] | None:
    """Match ``value`` as f32(y) s, where y is i32 and s is constant and positive."""
    match value:
        case Value(ops.Mul, (Value(ops.Cast, (total,)), step)) if total.type.dtype is I32 and value.type.dtype is F32:
            scale = _array(step)
            if (
                scale is not None
                and same_shape(total.shape, value.shape)
                and np.all(np.isfinite(scale))
                and np.all(scale > 0)
            ):
                return total, scale
    return None


def _whole(bias: np.ndarray, scale: np.ndarray) -> np.ndarray | None:
    """``bias / scale`` in i32; ``None`` unless it is integers within the precision of an f32 bias."""
    with np.errstate(all="ignore"):
        steps = bias.astype(np.float64) / scale
    if not steps.size or not np.all(np.abs(steps) < LARGEST):
        return None
    whole = np.rint(steps)
    return whole.astype(np.int32) if np.all(np.abs(steps - whole) <= ON_GRID + np.abs(whole) / EXACT) else None


def _array(value: Value, steps: int = STEPS) -> np.ndarray | None:
    """The numbers of a value that at most ``steps`` operators compute from constants; ``None`` for any other value."""
    array = constant_value(value)
    if array is not None or not steps or not value.inputs:
        return array
    arrays = [_array(v, steps - 1) for v in value.inputs]
    if any(a is None for a in arrays) or len(value.node.types) > 1 or value.type.has_sizes:
        return None
    with np.errstate(all="ignore"):
        return np.asarray(value.op.reference(*arrays, **value.attrs))


RULES = (multiply_codes, add_bias_to_codes, one_multiplier)
INTEGERS = (take_out_zero_point, take_out_offset_of_weights)
