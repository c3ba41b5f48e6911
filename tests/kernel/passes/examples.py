"""For every kernel pass: a graph whose kernels it changes, and graphs whose kernels it leaves unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpucomp import ops, targets
from gpucomp.device.target import Target
from gpucomp.ir import F32, Graph, Op, Value, constant
from gpucomp.ir.types import BF16, BOOL, F16, I8, I32, U8, DType
from gpucomp.schedule.expected import Expected
from tests.builders import graph_of, scalar, tensor, weights

SM_80, SM_90A, MALI = (targets.resolve(name) for name in ("cuda:sm_80", "cuda:sm_90a", "opencl:mali"))
AVX512 = targets.resolve("cpu:x86-64-v4")
SMALL_CACHE = AVX512.with_limits(cache_bytes=1 << 20)
TINY_CACHE = AVX512.with_limits(cache_bytes=1 << 15)


class Either(Expected):
    """A model by which every alternative is faster."""

    def faster(self, these: object, those: object) -> bool:
        return True


class Neither(Expected):
    """A model by which no alternative is faster."""

    def faster(self, these: object, those: object) -> bool:
        return False


@dataclass(frozen=True)
class Case:
    """A graph to partition for ``target``. ``stored`` is the type to which values between kernels are rounded."""

    graph: Graph
    target: Target
    precision: str = "fp32"
    expected: type[Expected] = Expected
    terms: int = 64
    stored: type = np.float32


def filters(*shape: int, dtype=F32) -> Value:
    """Random filters with mean zero, so that sums neither grow nor cancel."""
    rng = np.random.default_rng([*shape])
    return constant((rng.standard_normal(shape) / 4).astype(dtype.numpy))


def conv(x: Value, columns: int, window: int = 1, *, group: int = 1, stride: int = 1, dtype=F32) -> Value:
    w = filters(window, window, x.shape[-1] // group, columns, dtype=dtype)
    window_of = {"strides": (stride,) * 2, "pads": (window // 2,) * 4, "dilations": (1, 1)}
    return ops.Conv(x, w, **window_of, group=group, layout="NHWC")


def depthwise(x: Value) -> Value:
    return conv(x, x.shape[-1], 3, group=x.shape[-1])


def two_products() -> Graph:
    return graph_of(ops.MatMul(ops.Softmax(ops.MatMul(tensor("x", 5, 12), filters(12, 9)), axis=1), filters(9, 7)))


def read_twice(codes: Value, *more: Value) -> Graph:
    """``codes`` is stored between kernels, since two reductions read it."""
    return graph_of(ops.ReduceSum(codes, axes=(0,)), ops.ReduceMax(codes, axes=(1,)), *more)


def widened(dtype=U8) -> Value:
    return ops.Add(ops.Mul(ops.Cast(tensor("x", 7, 9, dtype=dtype), to=I32), scalar(2, I32)), scalar(5, I32))


def grouped(channels: int, dtype=F16) -> Graph:
    """Eight groups of ``channels``."""
    return graph_of(conv(tensor("x", 1, 7, 5, 8 * channels, dtype=dtype), 8 * channels, 3, group=8, dtype=dtype))


def activated(activation, to=U8) -> Graph:
    """A quantized activation: from a byte to a byte."""
    real = ops.Mul(ops.Sub(ops.Cast(tensor("x", 7, 33, dtype=U8), to=F32), scalar(99.0)), scalar(0.05))
    return graph_of(ops.Cast(ops.Clip(ops.Round(ops.Mul(activation(real), scalar(99.0))), low=0.0, high=255.0), to=to))


def silu(x: Value) -> Value:
    return ops.Mul(x, ops.Sigmoid(x))


def attention(rows: int, cols: int, heads: int = 2) -> Graph:
    q, k, v = (tensor(name, 1, heads, n, 64) for name, n in zip("qkv", (rows, cols, cols), strict=True))
    return graph_of(ops.Attention(q, k, v, scale=0.125))


def separable(*, also: bool = False) -> Graph:
    """``also``: the image between the two convolutions is an output too."""
    between = ops.Relu(depthwise(conv(tensor("x", 1, 9, 11, 5), 12)))
    return graph_of(ops.Relu(conv(between, 20)), *([between] if also else []))


def bottleneck(side: int) -> Graph:
    x = tensor("x", 1, side, side, 24)
    return graph_of(conv(ops.Relu(depthwise(ops.Relu(conv(x, 144)))), 24))


def added(stride: int = 1, *, channels: int = 72, window: int = 1, relu: bool = False, also: bool = False) -> Graph:
    """Two convolutions that are added. ``also``: the first is an output; ``relu``: it has an activation."""
    shapes = {"x": (1, 5, 7, channels), "y": (1, 4 * stride + 1, 6 * stride + 1, 64)}
    x, y = (ops.Cast(tensor(name, *shape, dtype=F16), to=F32) for name, shape in shapes.items())
    first = ops.Add(conv(x, 24, window), filters(1, 1, 1, 24))
    first = ops.Relu(first) if relu else first
    return graph_of(ops.Relu(ops.Add(first, conv(y, 24, stride=stride))), *([first] if also else []))


def added_and(use: Callable[[Value, Value, Value], Sequence[Value]]) -> Graph:
    """Two convolutions and their sum, of which ``use`` makes the outputs."""
    x, y = (ops.Cast(tensor(name, 1, 5, 7, 72, dtype=F16), to=F32) for name in "xy")
    first, second = conv(x, 24), conv(y, 24)
    return graph_of(*use(first, second, ops.Add(first, second)))


def converted(to: DType) -> Graph:
    """Two convolutions, of which the first is converted before they are added."""
    return added_and(lambda first, second, both: [ops.Add(ops.Cast(ops.Cast(first, to=to), to=F32), second)])


def row_sums(*, of_rows: int = 1) -> Graph:
    """A product, with the sum and the maximum of each of its rows (or columns)."""
    y = ops.MatMul(tensor("x", 19, 24), filters(24, 32))
    return graph_of(y, ops.ReduceSum(y, axes=(of_rows,)), ops.ReduceMax(y, axes=(of_rows,)))


def ranged(x: Value, reduction: Op = ops.ReduceMax, axes: tuple[int, ...] = ()) -> Graph:
    """``x`` divided by its greatest element over ``axes`` (default: all)."""
    return graph_of(ops.Div(x, ops.Add(reduction(x, axes=axes or tuple(range(x.type.rank))), scalar(2.0))))


def both(x: Value) -> Graph:
    """The least and the greatest element of ``x``, which two kernels find, and ``x``."""
    every = tuple(range(x.type.rank))
    return graph_of(x, ops.ReduceMax(x, axes=every), ops.Neg(ops.ReduceMin(x, axes=every)))


EXAMPLES: dict[str, Case] = {
    "precision": Case(two_products(), SM_80, "fp16", stored=np.float16),
    "narrow-integers": Case(read_twice(widened()), SM_80),
    "merge-groups": Case(grouped(4), SM_80, "fp16", stored=np.float16),
    "lookup-tables": Case(activated(silu), AVX512),
    "split-attention": Case(attention(17, 100, 12), AVX512, terms=100),
    "fuse-extremes": Case(both(ops.Tanh(tensor("x", 3, 5, 7, 131))), TINY_CACHE),
    "fuse-depth-first": Case(bottleneck(56), SMALL_CACHE, terms=256),
    "fuse-separable": Case(separable(), SM_90A, expected=Either),
    "fuse-products": Case(added(2), SM_90A, "fp16", expected=Either, terms=136, stored=np.float16),
    "split-winograd": Case(
        graph_of(ops.Relu(conv(tensor("x", 1, 9, 11, 8), 16, 3))), MALI, expected=Either, terms=1 << 12
    ),
    "fuse-row-statistics": Case(row_sums(), SM_80, expected=Either),
}

REFUSALS: dict[str, dict[str, Case]] = {
    "precision": {
        "f32 is asked for": Case(two_products(), SM_80),
        "the numbers are integers": Case(read_twice(widened()), SM_80, "fp16"),
    },
    "narrow-integers": {
        "the values are an output": Case(read_twice(value := widened(), value), SM_80),
        "they have no bounds": Case(read_twice(ops.Mul(tensor("x", 7, 9, dtype=I32), scalar(3, I32))), SM_80),
    },
    "merge-groups": {
        "a group is as wide as an access": Case(grouped(8), SM_80, "fp16"),
        "the numbers are f32": Case(grouped(4, F32), SM_80, "mixed"),
    },
    "lookup-tables": {
        "it costs little": Case(activated(ops.Relu), AVX512),
        "the result is wide": Case(activated(silu, I32), AVX512),
    },
    "split-attention": {"one kernel is expected to be faster": Case(attention(128, 128, 12), AVX512)},
    "fuse-extremes": {
        "the cache holds the array": Case(ranged(ops.Tanh(tensor("x", 3, 5, 7, 131))), SMALL_CACHE),
        "no kernel writes it": Case(ranged(tensor("x", 3, 5, 7, 131)), TINY_CACHE),
        "sums depend on their order": Case(ranged(ops.Tanh(tensor("x", 3, 5, 7, 131)), ops.ReduceSum), TINY_CACHE),
        "rows have extremes of their own": Case(
            ranged(ops.Tanh(tensor("x", 3, 5, 7, 131)), axes=(1, 2, 3)), TINY_CACHE
        ),
        "it has no rows": Case(ranged(ops.Tanh(tensor("x", 13_457))), TINY_CACHE),
        "it has few rows": Case(ranged(ops.Tanh(tensor("x", 3, 4591))), TINY_CACHE),
        "it is stored in 16 bits": Case(ranged(ops.Tanh(tensor("x", 3, 5, 7, 131))), TINY_CACHE, "bf16"),
        "what it reads is not contiguous": Case(
            ranged(ops.Tanh(ops.Transpose(tensor("x", 131, 107), perm=(1, 0)))), TINY_CACHE
        ),
    },
    "fuse-depth-first": {"the cache holds the images": Case(bottleneck(14), SMALL_CACHE)},
    "fuse-separable": {
        "the image between them is an output": Case(separable(also=True), SM_90A, expected=Either),
        "two kernels are expected to be faster": Case(separable(), SM_90A, expected=Neither),
    },
    "fuse-products": {
        "the first result is an output": Case(added(also=True), SM_90A, "fp16", expected=Either),
        "the first has an activation": Case(added(relu=True), SM_90A, "fp16", expected=Either),
        "the first has a window": Case(added(window=3), SM_90A, "fp16", expected=Either),
        "the second result is used besides": Case(
            added_and(lambda first, second, both: [ops.Mul(both, second)]), SM_90A, "fp16", expected=Either
        ),
        "the second result is an output": Case(
            added_and(lambda first, second, both: [ops.Relu(both), ops.Relu(second)]), SM_90A, "fp16", expected=Either
        ),
        "the first result is added twice": Case(
            added_and(lambda first, second, both: [ops.Add(both, first)]), SM_90A, "fp16", expected=Either
        ),
        "the second result is added twice": Case(
            added_and(lambda first, second, both: [ops.Add(both, second)]), SM_90A, "fp16", expected=Either
        ),
        "the first result is made a truth value": Case(converted(BOOL), SM_90A, "fp16", expected=Either),
        "the first result is made a whole number": Case(converted(I8), SM_90A, "fp16", expected=Either),
        "the first result is rounded otherwise": Case(converted(BF16), SM_90A, "fp16", expected=Either),
        "rows are no multiple of 16 bytes": Case(added(channels=12), SM_90A, "fp16", expected=Either),
        "two kernels are expected to be faster": Case(added(), SM_90A, "fp16", expected=Neither),
    },
    "split-winograd": {
        "the window is no 3 x 3": Case(graph_of(conv(tensor("x", 1, 9, 11, 8), 16, 5)), MALI, expected=Either),
        "the window moves by 2": Case(graph_of(conv(tensor("x", 1, 9, 11, 8), 16, 3, stride=2)), MALI, expected=Either),
        "one kernel is expected to be faster": Case(
            graph_of(conv(tensor("x", 1, 9, 11, 8), 16, 3)), MALI, expected=Neither
        ),
    },
    "fuse-row-statistics": {
        "they are of columns, and nothing else is shared": Case(
            graph_of(ops.ReduceSum(ops.MatMul(tensor("x", 19, 24), weights(24, 32)), axes=(0,))), SM_80, expected=Either
        ),
        "kernels of their own are expected to be faster": Case(row_sums(), SM_80, expected=Neither),
    },
}
