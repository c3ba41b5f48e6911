"""Products of dequantized operands as products of their codes: what QuantizeLinear/DequantizeLinear models mean.

    sum (x - zx) sx (w - zw) sw  =  sx sw sum (x - zx) (w - zw)

The sum on the right is of integers and exact; the left one rounds every product and every sum in f32. Constant zero
points stay where they are: the pass ``narrow_integers`` takes them out of the sums. For processors that multiply bytes. Constants
are not folded yet when this runs: a folded weight has lost its scale.

A zero point that is known only when the model runs, as dynamic quantization computes it, is taken out here:

    sum (x - z) w  =  sum x w - z sum w

``w``, less its own zero point, is constant, and so is its sum: a number a column, of padded windows also a position, since
padding is no code. The first sum on the right is of bytes as memory holds them. Where ``w`` fits no byte, its codes do, and
what a column's codes are off by is taken out the same way, times the sum of a row of ``x``, or of a window: the sum over
its channels once, and that of the window's taps of these sums.
"""

from __future__ import annotations

import math

import numpy as np

from gpucomp import ops
from gpucomp.ir.graph import Node, Value, constant, constant_value
from gpucomp.ir.types import F32, I8, I32, U8
from gpucomp.rewrite.rule import Uses, rule

DEEPEST = 1 << 14  # products of two bytes, less their zero points: i32 holds the sum, and the largest bias beside it
EXACT = 1 << 24  # what f32 counts to
LARGEST = 1 << 30  # of a bias, in steps
ON_GRID = 1e-3  # of a step, that a bias may be off by and be meant as a multiple of it
STEPS = 6  # movements and casts between a constant and where it is used
BYTES = (I8, U8)
FARTHEST = 255  # a code from 0, and from a zero point
ROOM = 1 << 31  # of i32


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
    """f32(y) s + b  ->  f32(y + b / s) s, sums y of codes and constants b / s that are whole numbers"""
    for product, bias in (node.inputs, node.inputs[::-1]):
        found, array = _scaled_sum(product), _array(bias)
        if found is None or array is None or uses(product) != 1 or product.type != node.types[0]:
            continue
        total, scale = found
        whole = _whole(array, scale)
        if whole is not None:
            return ops.Mul(ops.Cast(ops.Add(total, constant(whole)), to=F32), constant(scale))
    return None


@rule(ops.Div)
def one_multiplier(node: Node, uses: Uses) -> Value | None:
    """(f32(y) s) / q  ->  f32(y) (s / q), and max(f32(y) s, 0) / q the same: positive constants s and q, sums y of codes"""
    value, divisor = node.inputs
    array = _array(divisor)
    relu = value.op is ops.Relu
    product = value.inputs[0] if relu else value
    found = _scaled_sum(product)
    if found is None or array is None or uses(value) != 1 or uses(product) != 1 or not np.all(array > 0):
        return None
    total, scale = found
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
    if not (_is_widened_byte(codes) and _is_widened_byte(zero)) or codes.shape != x.shape or _array(zero) is not None:
        return None
    weights = _array(w)
    if weights is None or not _is_one_a_row(zero, x, node) or FARTHEST * _largest_sum(weights, node) >= ROOM:
        return None
    sums = _sums_of_windows(weights, node) if node.op is ops.Conv else weights.sum(axis=-2, keepdims=True)
    return ops.Sub(node.op(codes, w, **node.attrs), ops.Mul(zero, constant(sums.astype(np.int32))))


@rule(ops.MatMul, ops.Conv)
def take_out_offset_of_weights(node: Node) -> Value | None:
    """contract(x, w)  ->  contract(x, w - o) + o contract(x, 1), widened bytes x, constants w, o: w - o are bytes, w are not"""
    x, w = node.inputs
    centred = x.op is ops.Sub and _array(x.inputs[1]) is not None
    codes = x.inputs[0] if centred else x
    if node.types[0].dtype is not I32 or not _is_widened_byte(codes) or codes.shape != x.shape:
        return None
    group = node.attrs.get("group", 1)
    weights = _array(w)
    if weights is None or not weights.size or _fit_a_byte(weights) or node.attrs.get("layout", "NCHW") != "NCHW":
        return None
    if weights.shape[_column_axis(node)] == group:
        return None  # beside one column the sums of codes are as much work as the product
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
    return ops.Add(correction, product)  # in this order the codes are summed first, and the product's kernel corrects


def _times_sums_of_windows(offset: np.ndarray, x: Value, node: Node) -> Value:
    """The result of a convolution of ``x`` and weights of which each is the ``offset`` [groups, columns] of its column."""
    group, (images, channels, *size), shape = node.attrs["group"], x.shape, node.types[0].shape
    ones = constant(np.ones((group, 1, *node.inputs[1].shape[2:]), np.int32))
    offsets = constant(offset.reshape(*offset.shape, *[1] * len(size)))
    if group == 1:  # no axis more: such sums are made channels last, where the product reads its codes too
        sums = ops.Conv(ops.ReduceSum(x, axes=(1,), keepdims=True), ones, **node.attrs)
        return ops.Mul(sums, offsets)
    pixels = ops.ReduceSum(ops.Reshape(x, shape=(images, group, channels // group, *size)), axes=(2,), keepdims=False)
    sums = ops.Reshape(ops.Conv(pixels, ones, **node.attrs), shape=(images, group, 1, *shape[2:]))
    return ops.Reshape(ops.Mul(sums, offsets), shape=shape)


def _is_widened_byte(value: Value) -> bool:
    return value.op is ops.Cast and value.type.dtype is I32 and value.inputs[0].type.dtype in BYTES


def _is_one_a_row(zero: Value, x: Value, node: Node) -> bool:
    """Whether ``zero`` is the same along everything that ``node`` sums over."""
    summed = x.shape[-1:] if node.op is ops.MatMul else x.shape[1:]
    return all(n == 1 for n in zero.shape[-len(summed) :])


def _column_axis(node: Node) -> int:
    """The axis of the weights that runs over columns of the result."""
    return -1 if node.op is ops.MatMul else 0


def _summed_axes(weights: np.ndarray, node: Node) -> int | tuple[int, ...]:
    """The axes of the weights that one element of the result is summed over."""
    return -2 if node.op is ops.MatMul else tuple(range(1, weights.ndim))


def _largest_sum(weights: np.ndarray, node: Node) -> int:
    """The largest sum of magnitudes that one element of the result is made of."""
    return int(np.abs(weights.astype(np.int64)).sum(axis=_summed_axes(weights, node)).max(initial=0))


def _fit_a_byte(weights: np.ndarray) -> bool:
    return any(np.iinfo(t.numpy).min <= weights.min() and weights.max() <= np.iinfo(t.numpy).max for t in BYTES)


def _sums_of_windows(weights: np.ndarray, node: Node) -> np.ndarray:
    """What ``node`` makes of an image of ones; one number a channel where nothing is padded, and all windows are whole."""
    attrs = dict(node.attrs, group=1)
    rank, pads = weights.ndim - 2, node.attrs["pads"]
    taps = weights.sum(axis=1, keepdims=True, dtype=np.int32)
    if not any(pads):
        return taps.sum(axis=tuple(range(2, 2 + rank)), keepdims=True, dtype=np.int32).reshape(1, -1, *[1] * rank)
    image = np.ones((1, 1, *node.inputs[0].shape[2:]), np.int32)
    return np.asarray(ops.Conv.reference(image, taps, **attrs))


def _codes(value: Value) -> tuple[Value, int, np.float32] | None:
    """``value`` as (codes - zero point) scale: bytes, and one zero point and scale for all of them."""
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
    if scale is None or scale.size != 1 or zero.size != 1 or centred.shape != value.shape:
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
    """Scales of the weights against the result; ``None`` where one column has several."""
    if scale.size == 1:
        return scale.reshape(())
    rank = node.inputs[1].type.rank
    shape = [1] * (rank - scale.ndim) + list(scale.shape)
    axis = 0 if node.op is ops.Conv else rank - 1
    if math.prod(shape) != shape[axis]:
        return None
    return scale.reshape((-1, *[1] * (rank - 2))) if node.op is ops.Conv else scale.reshape(-1)


def _scaled_sum(value: Value) -> tuple[Value, np.ndarray] | None:
    """``value`` as f32(y) s, with y of i32 and a constant s."""
    match value:
        case Value(ops.Mul, (Value(ops.Cast, (total,)), step)) if total.type.dtype is I32 and value.type.dtype is F32:
            scale = _array(step)
            if scale is not None and total.shape == value.shape and np.all(np.isfinite(scale)) and np.all(scale > 0):
                return total, scale
    return None


def _whole(bias: np.ndarray, scale: np.ndarray) -> np.ndarray | None:
    """``bias / scale`` in i32, where that is whole numbers as far as an f32 bias can tell."""
    with np.errstate(all="ignore"):
        steps = bias.astype(np.float64) / scale
    if not steps.size or not np.all(np.abs(steps) < LARGEST):
        return None
    whole = np.rint(steps)
    return whole.astype(np.int32) if np.all(np.abs(steps - whole) <= ON_GRID + np.abs(whole) / EXACT) else None


def _array(value: Value, steps: int = STEPS) -> np.ndarray | None:
    """The numbers of a value that little but movements and casts makes of constants; ``None`` of any other."""
    found = constant_value(value)
    if found is not None or not steps or not value.inputs:
        return found
    arrays = [_array(v, steps - 1) for v in value.inputs]
    if any(a is None for a in arrays) or len(value.node.types) > 1:
        return None
    with np.errstate(all="ignore"):
        return np.asarray(value.op.reference(*arrays, **value.attrs))


RULES = (multiply_codes, add_bias_to_codes, one_multiplier)
INTEGERS = (take_out_zero_point, take_out_offset_of_weights)
