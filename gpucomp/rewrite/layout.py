"""Channels last: convolutions and the pools after them run in NHWC, between Transposes that ``movement`` then moves.

Weights become [*kernel, C/group, OC] (ConvTranspose: [*kernel, C, OC/group]), a constant. A Transpose that reaches the
next convolution cancels with its inverse. The others end up at the graph's inputs and outputs, as index maps.
"""

from __future__ import annotations

import math

from gpucomp import ops
from gpucomp.ir.graph import Node, Value
from gpucomp.ir.size import is_zero, same_shape
from gpucomp.rewrite.match import is_constant
from gpucomp.rewrite.rule import rule


def to_last(rank: int) -> tuple[int, ...]:
    """The permutation NC... -> N...C."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """The permutation N...C -> NC..."""
    return (0, rank - 1, *range(1, rank - 1))


@rule(ops.Conv, ops.ConvTranspose)
def convolve_channels_last(node: Node) -> Value | None:
    """conv(x, w)  ->  transpose(conv_nhwc(transpose(x), transpose(w))), w a constant"""
    x, w = node.inputs
    rank = x.type.rank
    if node.attrs.get("layout", "NCHW") == "NHWC" or not is_constant(w):
        return None
    kernel_axes = tuple(range(2, rank))
    w_last = ops.Transpose(w, perm=(*kernel_axes, 1, 0) if node.op is ops.Conv else (*kernel_axes, 0, 1))
    last = node.op(ops.Transpose(x, perm=to_last(rank)), w_last, name=node.name, **{**node.attrs, "layout": "NHWC"})
    return ops.Transpose(last, perm=to_first(rank))


@rule(ops.MaxPool, ops.AveragePool)
def pool_channels_last(node: Node) -> Value | None:
    """pool(transpose(x, NHWC to NCHW))  ->  transpose(pool_nhwc(x))"""
    match node.inputs[0]:
        case Value(ops.Transpose, (x,), {"perm": perm}) if node.attrs.get("layout", "NCHW") == "NCHW":
            if perm == to_first(x.type.rank):
                last = node.op(x, name=node.name, **{**node.attrs, "layout": "NHWC"})
                return ops.Transpose(last, perm=perm)
    return None


@rule(ops.ConvTranspose)
def multiply_and_place(node: Node) -> Value | None:
    """conv_transpose_nhwc(x, w), strides = extents of w  ->  x @ w for every tap, each product at its own place

    Taps do not overlap, so every result element is one product. As a gather, all other taps would be multiplied by
    zero.
    """
    x, w = node.inputs
    attrs = node.attrs
    spatial = x.type.rank - 2
    if attrs.get("layout", "NCHW") != "NHWC" or not is_constant(w) or attrs.get("group", 1) != 1:
        return None
    taps, (channels, columns) = w.type.shape[:spatial], w.type.shape[spatial:]
    size = x.type.shape[1:-1]
    whole = tuple(n * t for n, t in zip(size, taps, strict=True))
    if (
        attrs["strides"] != taps
        or not same_shape(attrs["out"], whole)
        or not all(map(is_zero, attrs["pads"]))
        or any(d != 1 for d in attrs["dilations"])
    ):
        return None
    matrix = ops.Reshape(
        ops.Transpose(w, perm=(spatial, *range(spatial), spatial + 1)), shape=(channels, math.prod(taps) * columns)
    )
    products = ops.Reshape(ops.MatMul(x, matrix, name=node.name), shape=(*x.type.shape[:-1], *taps, columns))
    places = [axis for d in range(spatial) for axis in (1 + d, 1 + spatial + d)]
    placed = ops.Transpose(products, perm=(0, *places, 2 * spatial + 1))
    return ops.Reshape(placed, shape=(x.type.shape[0], *whole, columns))


RULES = (convolve_channels_last, multiply_and_place, pool_channels_last)
