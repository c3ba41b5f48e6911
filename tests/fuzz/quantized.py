"""Draws quantized operators, alone and in the patterns that quantizers write."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draft import F32, I8, U8, Draft, Value
from tests.fuzz.kinds import draws
from tests.fuzz.movement import SOLID

BYTES = (U8, I8)


def scale_of(d: Draft, *shape: int) -> Value:
    return d.constant(d.rng.uniform(0.01, 0.06, shape).astype(np.float32))


def zero_point(d: Draft, dtype: np.dtype, *shape: int) -> Value:
    low = 120 if dtype == U8 else -6
    return d.constant(d.rng.integers(low, low + 12, shape).astype(dtype))


def quantize(d: Draft, x: Value, dtype: np.dtype) -> tuple[Value, Value, Value] | None:
    """x in bytes, and its scale and zero point. The scale covers what x holds."""
    largest = max(float(np.abs(x.array).max(initial=0.0)), 0.1)
    scale = d.constant(np.array(largest * d.rng.uniform(0.8, 1.3) / 127, np.float32))
    zero = zero_point(d, dtype)
    made = d.add("QuantizeLinear", [x, scale, zero])
    return (made[0], scale, zero) if made else None


@draws(1.5)
def qdq(d: Draft) -> None:
    """QuantizeLinear and back, by tensor or by axis; the zero point may be left out, which makes it u8."""
    x = d.pick((F32,), SOLID, lambda v: min(v.shape) > 0)
    if x is None:
        return
    dtype = d.one(BYTES)
    if d.chance(0.3):
        axis = d.axis(x.rank)
        n = x.shape[axis]
        scale, zero = scale_of(d, n), zero_point(d, dtype, n)
        made = d.add("QuantizeLinear", [x, scale, zero], axis=axis)
        if made:
            d.add("DequantizeLinear", [*made, scale, zero], axis=axis)
    elif d.chance(0.2):
        positive = d.add("Abs", [x])
        scale = scale_of(d)
        made = d.add("QuantizeLinear", [*positive, scale]) if positive else None
        if made:
            d.add("DequantizeLinear", [*made, scale])
    elif found := quantize(d, x, dtype):
        d.add("DequantizeLinear", list(found))


@draws(0.7)
def dynamic(d: Draft) -> None:
    if x := d.pick((F32,), SOLID, lambda v: min(v.shape) > 0):
        d.add("DynamicQuantizeLinear", [x], outputs=3)


@draws(1)
def matmul_of_bytes(d: Draft) -> None:
    x = d.pick((F32,), (2, 3, 4), lambda v: min(v.shape) > 0)
    if x is None:
        return
    dtype = d.one(BYTES)
    found = quantize(d, x, dtype)
    if found is None:
        return
    a, a_scale, a_zero = found
    weight = d.one(BYTES) if dtype == U8 else I8
    n = d.extent(zero=0)
    b = d.constant(d.rng.integers(-9, 10, (x.shape[-1], n)).astype(I8) if weight == I8
                   else d.rng.integers(118, 138, (x.shape[-1], n)).astype(U8))  # fmt: skip
    b_zero = zero_point(d, weight)
    if d.chance(0.5):
        operands = [a, b, a_zero, b_zero]
        d.add("MatMulInteger", operands[: d.one((2, 3, 4, 4))])
        return
    d.add(
        "QLinearMatMul",
        [a, a_scale, a_zero, b, scale_of(d), b_zero, d.constant(np.array(0.08, np.float32)), zero_point(d, dtype)],
    )


@draws(1)
def conv_of_bytes(d: Draft) -> None:
    x = d.pick((F32,), (4,), lambda v: min(v.shape) > 0 and min(v.shape[2:]) >= 3)
    found = quantize(d, x, U8) if x else None
    if x is None or found is None:
        return
    a, a_scale, a_zero = found
    c = x.shape[1]
    group = d.one([g for g in (1, 1, c) if c % g == 0])
    out = group * d.one((1, 2, 3))
    weight = d.constant(d.rng.integers(-9, 10, (out, c // group, 3, 3)).astype(I8))
    options = {
        "kernel_shape": [3, 3],
        "pads": d.one(([0] * 4, [1] * 4, [0, 1, 1, 0])),
        "strides": d.one(([1, 1], [2, 1])),
    }
    if d.chance(0.4):
        d.add("ConvInteger", [a, weight, a_zero][: d.one((2, 3, 3))], group=group, **options)
        return
    per_channel = d.chance(0.5)
    w_scale = scale_of(d, *([out] if per_channel else []))
    w_zero = d.constant(np.zeros(out if per_channel else (), I8))
    bias = [d.constant(d.rng.integers(-50, 50, out).astype(np.int32))] if d.chance(0.6) else []
    after = [d.constant(np.array(0.05, np.float32)), zero_point(d, U8), *bias]
    d.add("QLinearConv", [a, a_scale, a_zero, weight, w_scale, w_zero, *after],
          group=group, **options)  # fmt: skip


@draws(0.5)
def weights_of_bytes(d: Draft) -> None:
    """A product with weights that are stored in bytes, as weight-only quantization has them."""
    x = d.pick((F32,), (2, 3), lambda v: min(v.shape) > 0)
    if x is None:
        return
    k, n = x.shape[-1], d.extent(zero=0)
    weight = d.constant(d.rng.integers(-100, 100, (k, n)).astype(I8))
    by_axis = d.chance(0.5)
    scale = d.constant((d.rng.uniform(0.002, 0.01, n if by_axis else ())).astype(np.float32))
    made = d.add("DequantizeLinear", [weight, scale, zero_point(d, I8, *([n] if by_axis else []))], axis=1)
    if made:
        d.add("MatMul", [x, *made])
