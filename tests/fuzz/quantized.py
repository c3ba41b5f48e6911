"""Draws quantized operators, alone and in the patterns that quantizers write."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx

from tests.fuzz.draft import F16, F32, I8, I32, U8, Draft, Value
from tests.fuzz.kinds import draws
from tests.fuzz.lists import Group
from tests.fuzz.movement import SOLID

BYTES = (U8, I8)
# what else a value may be quantized to since opset 21: the type, the zero points drawn, what the scale spreads over
OTHERS = (
    ("int16", (-300, 300), 30000), ("uint16", (30000, 31000), 30000), ("int4", (-2, 3), 6), ("uint4", (6, 10), 6),
    ("float8_e4m3fn", (0, 1), 200), ("float8_e5m2", (0, 1), 200),
)  # fmt: skip


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
    b = d.constant(
        d.rng.integers(-9, 10, (x.shape[-1], n)).astype(I8)
        if weight == I8
        else d.rng.integers(118, 138, (x.shape[-1], n)).astype(U8)
    )
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
    d.add("QLinearConv", [a, a_scale, a_zero, weight, w_scale, w_zero, *after], group=group, **options)


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


@draws(1)
def other_widths(d: Draft) -> None:
    """To 16 or 4 bits or small floats and back, by tensor, by axis or by blocks of one."""
    x = d.pick((F32, F32, F16), SOLID, lambda v: min(v.shape) > 0)
    if x is None or d.opset < 21:
        return
    name, zeros, spread = d.one(OTHERS)
    axis = d.axis(x.rank)
    extent = x.shape[axis]
    attributes: dict[str, int] = {}
    shape: list[int] = []
    if d.chance(0.6):
        attributes["axis"] = axis
        shape = [extent]
        if d.chance(0.6):
            block = d.number(1, extent + 1)
            shape = list(x.shape)
            shape[axis] = -(-extent // block)
            attributes["block_size"] = block
    largest = max(float(np.abs(x.array.astype(np.float64)).max()), 0.1)
    g = Group(d)
    scale = g.constant((d.rng.uniform(0.7, 1.3, shape) * largest / spread).astype(x.dtype))
    parameters = [scale]
    if name != "uint4" or d.chance(0.8):
        parameters.append(g.constant(d.rng.integers(*zeros, shape).astype(getattr(ml_dtypes, name, name))))
    else:
        attributes["output_dtype"] = onnx.TensorProto.UINT4
    quantized = g.node("QuantizeLinear", [g.value(x), *parameters], **attributes)
    attributes.pop("output_dtype", None)
    g.node("DequantizeLinear", [quantized, *parameters], **attributes)
    g.add(levels=True)


@draws(0.5)
def weights_of_four_bits(d: Draft) -> None:
    """A product with weights of four bits in blocks along the depth, as weight-only quantizers of language models write."""
    x = d.pick((F32, F32, F16), (2, 3), lambda v: min(v.shape) > 0)
    if x is None or d.opset < 21:
        return
    k, n, dtype = x.shape[-1], d.extent(zero=0), d.one((ml_dtypes.int4, ml_dtypes.uint4))
    block = d.number(1, k + 1)
    low = -8 if dtype is ml_dtypes.int4 else 0
    blocks = (-(-k // block), n)
    g = Group(d)
    weight = g.constant(d.rng.integers(low, low + 16, (k, n)).astype(dtype))
    scale = g.constant(d.rng.uniform(0.02, 0.1, blocks).astype(x.dtype))
    zero = [g.constant(d.rng.integers(low + 6, low + 11, blocks).astype(dtype))] if d.chance(0.7) else []
    wide = g.node("DequantizeLinear", [weight, scale, *zero], axis=0, block_size=block)
    g.node("MatMul", [g.value(x), wide])
    g.add()


@draws(0.4)
def sums_of_words(d: Draft) -> None:
    """Accumulators of 32 bits back to floats, as behind MatMulInteger."""
    x = d.pick((I32,), range(5))
    if x is None:
        return
    by_axis = x.rank > 0 and d.chance(0.5)
    axis = d.axis(x.rank) if by_axis else 0
    scale = scale_of(d, *([x.shape[axis]] if by_axis else []))
    d.add("DequantizeLinear", [x, scale], **({"axis": axis} if by_axis else {}))


@draws(0.4)
def added_bytes(d: Draft) -> None:
    """onnxruntime's own operators, which its quantizer writes: the evaluator has none."""
    x = d.pick((F32,), (2, 3, 4), lambda v: min(v.shape) > 0)
    dtype = d.one(BYTES)
    found = quantize(d, x, dtype) if x else None
    if x is None or found is None:
        return
    after = [d.constant(np.array(0.05, np.float32)), zero_point(d, dtype)]
    if d.chance(0.5) and x.rank == 4:
        d.add("QLinearGlobalAveragePool", [*found, *after], domain="com.microsoft")
        return
    wide = d.add("Sin", [x])
    other = quantize(d, wide[0], dtype) if wide else None
    if other:
        d.add("QLinearAdd", [*found, *other, *after], domain="com.microsoft")
