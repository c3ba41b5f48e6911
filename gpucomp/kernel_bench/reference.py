"""What each kind of kernel computes, in numpy, at the precision of the arrays that it is given. In f64 this judges engines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpucomp.expr.functions import FUNCTIONS
from gpucomp.ir.types import NAMED
from gpucomp.kernel_bench.specs import FLOATS, Spec, filters_of, output_image, packed

EPSILON = 1e-5  # of all norms
X_SCALE, W_SCALE, ZERO = 0.02, 0.01, 128  # of quantised convolutions; the result's scale follows from the depth
ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "gelu": lambda x: x * (1 + FUNCTIONS["erf"].numpy(x / math.sqrt(2))) / 2,
}
Arrays = Mapping[str, np.ndarray]


def operands(spec: Spec, seed: int = 0) -> dict[str, np.ndarray]:
    """Random operands by name, in the order of the kernel's inputs: normal numbers, and bytes of the whole range for ``i8``."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int, dtype: str = spec.dtype) -> np.ndarray:
        if dtype == "i8":
            return rng.integers(-128, 128, shape, np.int8)
        return rng.standard_normal(shape, np.float32).astype(NAMED[dtype].numpy)

    def unsigned(*shape: int) -> np.ndarray:
        return rng.integers(0, 256, shape, np.uint8)

    first = unsigned if spec.dtype == "i8" else normal
    match spec.kind:
        case "gemm":
            a, b = (spec.m, spec.k), (spec.k, spec.n)
            found = {"a": first(*(a[::-1] if spec.trans_a else a)), "b": normal(*(b[::-1] if spec.trans_b else b))}
            return found | ({"bias": normal(spec.n)} if spec.bias else {})
        case "batched_gemm":
            b = (spec.n, spec.k) if spec.trans_b else (spec.k, spec.n)
            return {"a": first(spec.batch, spec.m, spec.k), "b": normal(spec.batch, *b)}
        case "nbits_gemm":
            blocks, size = packed(spec)
            scale = normal(spec.n * blocks, dtype="f32") / 2 ** int(spec.bits)
            return {
                "a": normal(spec.m, spec.k),
                "b": unsigned(spec.n, blocks, size),
                "scale": scale.astype(NAMED[spec.dtype].numpy),
            }
        case "conv" | "depthwise":
            filters, depth = filters_of(spec)
            found = {"x": first(spec.n, spec.c, spec.h, spec.w), "w": normal(filters, depth, spec.r, spec.s)}
            if spec.bias and spec.dtype == "i8":
                return found | {"bias": rng.integers(-1000, 1000, filters, np.int32)}
            return found | ({"bias": normal(filters)} if spec.bias else {})
        case "attention":
            kv = (spec.batch, spec.kv_heads or spec.heads, spec.kv or spec.q, spec.d)
            return {"q": normal(spec.batch, spec.heads, spec.q, spec.d), "k": normal(*kv), "v": normal(*kv)}
        case "layer_norm" | "rms_norm":
            found = {"x": normal(spec.rows, spec.cols), "scale": normal(spec.cols)}
            return found | ({"bias": normal(spec.cols)} if spec.kind == "layer_norm" else {})
        case "group_norm" | "batch_norm":
            found = {"x": normal(spec.n, spec.c, spec.h, spec.w), "scale": normal(spec.c), "bias": normal(spec.c)}
            if spec.kind == "batch_norm":
                found |= {"mean": normal(spec.c), "var": np.abs(normal(spec.c)) + found["x"].dtype.type(0.5)}
            return found
        case "max_pool" | "avg_pool":
            return {"x": normal(spec.n, spec.c, spec.h, spec.w)}
        case "softmax":
            return {"x": normal(spec.rows, spec.cols)}
        case "reduce" if spec.op == "prod":  # a product of many normal numbers is zero
            spread = 1 / math.sqrt(math.prod(spec.shape[axis] for axis in spec.axes))
            return {"x": (1 + spread * normal(*spec.shape, dtype="f32")).astype(NAMED[spec.dtype].numpy)}
        case "elementwise" if spec.op == "div":
            y = np.abs(normal(*spec.shape)) + NAMED[spec.dtype].numpy.type(0.5)
            return {"x": normal(*spec.shape), "y": y}
        case "elementwise" if spec.op in ("add", "mul", "sub"):
            return {"x": normal(*spec.shape), "y": normal(*spec.shape)}
    return {"x": normal(*spec.shape)}


def compute(spec: Spec, arrays: Arrays) -> np.ndarray:
    """The kernel's result. Floating-point operands have one type, which is that of the result, or nearly so."""
    return _QUANTISED[spec.kind](spec, arrays) if spec.dtype not in FLOATS else _COMPUTE[spec.kind](spec, arrays)


def in_f64(spec: Spec, arrays: Arrays) -> np.ndarray:
    """The result from operands in f64."""
    return compute(spec, {name: array.astype(np.float64) for name, array in arrays.items()})


def activated(name: str, x: np.ndarray) -> np.ndarray:
    """An activation function of each element; ``none`` is none."""
    found: np.ndarray = ACTIVATIONS[name](x)
    return found


def _product(spec: Spec, arrays: Arrays) -> np.ndarray:
    a, b = arrays["a"], arrays["b"]
    if spec.kind == "gemm" and spec.trans_a:
        a = np.swapaxes(a, -1, -2)
    if spec.trans_b:
        b = np.swapaxes(b, -1, -2)
    y: np.ndarray = a @ b
    return activated(spec.act, y + arrays["bias"] if spec.bias else y) if spec.kind == "gemm" else y


def _of_few_bits(spec: Spec, arrays: Arrays) -> np.ndarray:
    """Weights of n rows, in blocks with a scale each; the first of a byte are its lowest bits, and half the range is zero."""
    bits, blocks = int(spec.bits), packed(spec)[0]
    parts = arrays["b"].astype(np.uint8)[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & (1 << bits) - 1
    whole = parts.reshape(spec.n, blocks, spec.block).astype(arrays["scale"].dtype) - (1 << bits - 1)
    rows = (whole * arrays["scale"].reshape(spec.n, blocks, 1)).reshape(spec.n, -1)[:, : spec.k]
    found: np.ndarray = arrays["a"] @ rows.T
    return found


def _windows(spec: Spec, x: np.ndarray, fill: float) -> np.ndarray:
    """``x`` as n, c, height, width, r, s of what each window covers."""
    (top, left, bottom, right), (down, across), (far, wide) = spec.pad, spec.stride, spec.dilation
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    height, width = output_image(spec)
    reach = ((spec.r - 1) * far + 1, (spec.s - 1) * wide + 1)
    found = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    return found[:, :, ::down, ::across, ::far, ::wide][:, :, :height, :width]


def _sums(spec: Spec, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A convolution's sums, group after group as products of matrices."""
    filters, depth = filters_of(spec)
    groups = spec.c // depth
    seen = _windows(spec, x, 0)
    height, width = output_image(spec)
    if depth == 1:
        many = np.repeat(seen, filters // groups, axis=1)
        found: np.ndarray = np.einsum("nkhwrs,krs->nkhw", many, w[:, 0], optimize=True)
        return found
    parts = []
    for group in range(groups):
        own = seen[:, group * depth : (group + 1) * depth].transpose(0, 2, 3, 1, 4, 5)
        weights = w[group * filters // groups : (group + 1) * filters // groups]
        rows = own.reshape(spec.n * height * width, -1) @ weights.reshape(len(weights), -1).T
        parts.append(rows.reshape(spec.n, height, width, -1).transpose(0, 3, 1, 2))
    return np.concatenate(parts, axis=1)


def _per_channel(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1, 1, 1)


def _convolution(spec: Spec, arrays: Arrays) -> np.ndarray:
    y = _sums(spec, arrays["x"], arrays["w"])
    return activated(spec.act, y + _per_channel(arrays["bias"]) if spec.bias else y)


def result_scale(spec: Spec) -> float:
    """The scale of a quantised convolution's result: three standard deviations of its sums fill the range of a byte."""
    depth = filters_of(spec)[1] * spec.r * spec.s
    return 3 * math.sqrt(depth) * 74 * X_SCALE * 74 * W_SCALE / 127  # 74 is the deviation of a uniform byte


def _quantised_convolution(spec: Spec, arrays: Arrays) -> np.ndarray:
    """``QLinearConv``: bytes in and out, its bias in units of the product of scales."""
    sums = _sums(spec, arrays["x"] - ZERO, arrays["w"])
    if spec.bias:
        sums = sums + _per_channel(arrays["bias"])
    scale = np.float32(X_SCALE) * np.float32(W_SCALE) / np.float32(result_scale(spec))
    found: np.ndarray = np.clip(np.rint(sums * np.float64(scale)) + ZERO, 0, 255)
    return found


def _attention(spec: Spec, arrays: Arrays) -> np.ndarray:
    q, k, v = arrays["q"], arrays["k"], arrays["v"]
    every = spec.heads // k.shape[1]
    k, v = (np.repeat(one, every, axis=1) for one in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) * q.dtype.type(1 / math.sqrt(spec.d))
    if spec.causal:
        scores = np.where(np.tri(spec.q, dtype=bool), scores, q.dtype.type(-np.inf))
    return _softmax(spec, {"x": scores}) @ v


def _softmax(spec: Spec, arrays: Arrays) -> np.ndarray:
    x = arrays["x"]
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    found: np.ndarray = powers / powers.sum(axis=-1, keepdims=True)
    return found


def _row_norm(spec: Spec, arrays: Arrays) -> np.ndarray:
    x = arrays["x"]
    if spec.kind == "layer_norm":
        x = x - x.mean(axis=-1, keepdims=True)
    y: np.ndarray = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON) * arrays["scale"]
    return y + arrays["bias"] if spec.kind == "layer_norm" else y


def _group_norm(spec: Spec, arrays: Arrays) -> np.ndarray:
    x = arrays["x"].reshape(spec.n, spec.groups, -1)
    x = x - x.mean(axis=-1, keepdims=True)
    x = (x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON)).reshape(arrays["x"].shape)
    found: np.ndarray = x * _per_channel(arrays["scale"]) + _per_channel(arrays["bias"])
    return found


def _batch_norm(spec: Spec, arrays: Arrays) -> np.ndarray:
    scale = arrays["scale"] / np.sqrt(arrays["var"] + EPSILON)
    found: np.ndarray = (arrays["x"] - _per_channel(arrays["mean"])) * _per_channel(scale) + _per_channel(
        arrays["bias"]
    )
    return found


def _pooled(spec: Spec, arrays: Arrays) -> np.ndarray:
    found: np.ndarray
    if spec.kind == "max_pool":
        found = _windows(spec, arrays["x"], -np.inf).max(axis=(4, 5))
        return found
    inside = _windows(spec, np.ones_like(arrays["x"][:1, :1]), 0).sum(axis=(4, 5))
    found = _windows(spec, arrays["x"], 0).sum(axis=(4, 5)) / inside
    return found


def _transposed(spec: Spec, arrays: Arrays) -> np.ndarray:
    return np.ascontiguousarray(arrays["x"].transpose(spec.perm))


def _reduced(spec: Spec, arrays: Arrays) -> np.ndarray:
    found: np.ndarray = getattr(np, spec.op)(arrays["x"], axis=spec.axes)
    return found


def _elementwise(spec: Spec, arrays: Arrays) -> np.ndarray:
    binary: dict[str, Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
    if spec.op in binary:
        found: np.ndarray = binary[spec.op](arrays["x"], arrays["y"])
        return found
    return activated(spec.op, arrays["x"])


_COMPUTE = {
    "gemm": _product,
    "batched_gemm": _product,
    "nbits_gemm": _of_few_bits,
    "conv": _convolution,
    "depthwise": _convolution,
    "attention": _attention,
    "softmax": _softmax,
    "layer_norm": _row_norm,
    "rms_norm": _row_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "max_pool": _pooled,
    "avg_pool": _pooled,
    "transpose": _transposed,
    "reduce": _reduced,
    "elementwise": _elementwise,
}
_QUANTISED = {
    "gemm": _product,
    "batched_gemm": _product,
    "conv": _quantised_convolution,
    "depthwise": _quantised_convolution,
}
