"""Draws onnxruntime's own operators, as its quantizer and its optimisers write them: onnxruntime alone judges them."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draft import F32, I8, U8, Draft, Value
from tests.fuzz.kinds import draws
from tests.fuzz.quantized import BYTES, quantize, scale_of, zero_point

DOMAIN = "com.microsoft"
NOT_DRAWN = {
    "BiasAdd": "onnxruntime has it for CUDA alone",
    "BiasSoftmax": "onnxruntime has it for CUDA alone",
    "BiasSplitGelu": "onnxruntime has it for CUDA alone",
    "GemmFastGelu": "onnxruntime has it for CUDA alone",
    "GroupNorm": "onnxruntime has it for CUDA alone",
    "SkipGroupNorm": "onnxruntime has it for CUDA alone",
    "NhwcConv": "onnxruntime has it for CUDA alone",
    "NhwcFusedConv": "onnxruntime has it for CUDA alone",
    "QLinearReduceMean": "onnxruntime has it nowhere",
    "QLinearSoftmax": "a code may be the one beside onnxruntime's",
    "QLinearAveragePool": "a code may be the one beside onnxruntime's",
    "SimplifiedLayerNormalization": "no schema knows it in the standard's domain",
    "TransposeMatMul": "FusedMatMul by its old name",
    "ConvTransposeWithDynamicPads": "ConvTranspose behind its pads",
}


def filled(d: Draft, *ranks: int, most: int = 40) -> Value | None:
    return d.pick((F32,), ranks, lambda v: min(v.shape) > 0 and max(v.shape) <= most)


def vector(d: Draft, n: int, low: float = -1.0) -> Value:
    return d.constant(d.rng.uniform(low, 1, n).astype(np.float32))


def after(d: Draft, dtype: np.dtype) -> list[Value]:
    """The scale and the zero point of a result."""
    return [d.constant(np.array(0.05, np.float32)), zero_point(d, dtype)]


@draws(0.6)
def codes_an_element_at_a_time(d: Draft) -> None:
    x, dtype = filled(d, 1, 2, 3, 4), d.one(BYTES)
    found = quantize(d, x, dtype) if x else None
    if x is None or found is None:
        return
    op = d.one(("QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearConcat", "QLinearWhere"))
    if op in ("QLinearSigmoid", "QLinearLeakyRelu"):
        d.add(op, [*found, *after(d, dtype)], domain=DOMAIN)
        return
    wide = d.add("Sin", [x])
    other = quantize(d, wide[0], dtype) if wide else None
    if other is None:
        return
    match op:
        case "QLinearMul":
            d.add(op, [*found, *other, *after(d, dtype)], domain=DOMAIN)
        case "QLinearConcat":
            d.add(op, [*after(d, dtype), *found, *other], domain=DOMAIN, axis=d.axis(x.rank))
        case "QLinearWhere":
            chosen = d.data(d.rng.random(x.shape) < 0.5)
            d.add(op, [chosen, *found, *other, *after(d, dtype)], domain=DOMAIN)


@draws(0.6)
def products_of_codes(d: Draft) -> None:
    x = filled(d, 2)
    found = quantize(d, x, U8) if x else None
    if x is None or found is None:
        return
    k, n = x.shape[1], d.number(1, 12)
    b = d.constant(d.rng.integers(-9, 10, (k, n)).astype(I8))
    scale, zero = (scale_of(d, n), d.constant(np.zeros(n, I8))) if d.chance(0.5) else (scale_of(d), zero_point(d, I8))
    match d.number(0, 4):
        case 0:
            c = [d.constant(d.rng.integers(-50, 50, n).astype(np.int32))]
            tail = [*c, *after(d, U8)] if d.chance(0.7) else c
            d.add("QGemm", [*found, b, scale, zero, *tail], domain=DOMAIN, alpha=1.0)
        case 1:
            operands = [found[0], b, found[1], scale, found[2], zero, vector(d, n)]
            d.add("MatMulIntegerToFloat", operands[: d.one((6, 7))], domain=DOMAIN)
        case 2:
            d.add("DynamicQuantizeMatMul", [x, b, scale, zero, vector(d, n)][: d.one((4, 5))], domain=DOMAIN)
        case 3:
            words = d.constant(d.rng.integers(-300, 300, (5, k)).astype(np.int16))
            d.add(
                "MatMulInteger16", [words, d.constant(d.rng.integers(-99, 99, (k, n)).astype(np.int16))], domain=DOMAIN
            )


@draws(0.4)
def images_of_codes(d: Draft) -> None:
    """Channels last, as onnxruntime lays them out."""
    x = d.pick((F32,), (4,), lambda v: min(v.shape) > 0 and min(v.shape[1:3]) >= 3)
    found = quantize(d, x, U8) if x else None
    if x is None or found is None:
        return
    if d.chance(0.4):
        d.add("NhwcMaxPool", [found[0]], domain=DOMAIN, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 0, 0])
        return
    out = d.number(1, 5)
    w = d.constant(d.rng.integers(-9, 10, (out, x.shape[3], 3, 3)).astype(I8))
    operands = [*found, w, scale_of(d), d.constant(np.array(0, I8)), *after(d, U8)]
    d.add("QLinearConv", operands, domain=DOMAIN, channels_last=1, pads=d.one(([0] * 4, [1, 1, 0, 1])))


@draws(0.4)
def weights_of_few_bits(d: Draft) -> None:
    x = filled(d, 2, 3)
    if x is None:
        return
    k, n, bits, block = x.shape[-1], d.number(1, 9), d.one((4, 4, 8)), 16
    blocks = -(-k // block)
    b = d.constant(d.rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(U8))
    scales = vector(d, n * blocks, 0.2)
    points = [d.constant(d.rng.integers(0, 256, n * -(-blocks * bits // 8)).astype(U8))] if d.chance(0.5) else []
    d.add("MatMulNBits", [x, b, scales, *points], domain=DOMAIN, K=k, N=n, block_size=block, bits=bits)


@draws(0.3)
def rows_of_few_bits(d: Draft) -> None:
    rows, bits, block = d.number(1, 9), d.one((4, 8)), 16
    columns = d.one((16, 24, 40))
    blocks = -(-columns // block)
    table = d.constant(d.rng.integers(0, 256, (rows, columns * bits // 8)).astype(U8))
    scales = d.constant(d.rng.uniform(0.005, 0.02, (rows, blocks)).astype(np.float32))
    places = d.data(d.rng.integers(0, rows, d.one(((3,), (2, 3)))))
    d.add("GatherBlockQuantized", [table, places, scales], domain=DOMAIN, bits=bits, block_size=block)


@draws(0.2)
def recurrence_of_codes(d: Draft) -> None:
    time, batch, width, hidden = d.number(1, 5), d.number(1, 4), d.number(1, 7), d.number(1, 6)
    w, r = (d.constant(d.rng.integers(-60, 60, (1, n, 4 * hidden)).astype(I8)) for n in (width, hidden))
    scale, zero = scale_of(d, 1), d.constant(np.zeros(1, I8))
    bias = d.constant(d.rng.uniform(-0.2, 0.2, (1, 8 * hidden)).astype(np.float32))
    operands = [d.floats(time, batch, width), w, r, bias, None, None, None, None, scale, zero, scale, zero]
    d.add("DynamicQuantizeLSTM", operands, domain=DOMAIN, outputs=3, hidden_size=hidden)


@draws(0.8)
def fused_by_an_optimiser(d: Draft) -> None:
    x = filled(d, 2, 3)
    if x is None:
        return
    n = x.shape[-1]
    match d.number(0, 9):
        case 0:
            d.add(d.one(("Gelu", "QuickGelu", "FastGelu")), [x], domain=DOMAIN)
        case 1:
            d.add(d.one(("BiasGelu", "FastGelu")), [x, vector(d, n)], domain=DOMAIN)
        case 2 | 3:
            if x.rank == 3:
                skip, outputs = d.floats(*x.shape), (True, False, False, True)[: d.one((1, 4))]
                if d.chance(0.5):
                    operands = [x, skip, vector(d, n), vector(d, n), vector(d, n)]
                    d.add(
                        "SkipLayerNormalization",
                        operands[: d.number(3, 6)],
                        domain=DOMAIN,
                        outputs=outputs,
                        epsilon=0.01,
                    )
                else:
                    operands = [x, skip, vector(d, n), vector(d, n)][: d.number(3, 5)]
                    d.add("SkipSimplifiedLayerNormalization", operands, domain=DOMAIN, outputs=outputs, epsilon=0.01)
        case 4:
            b = d.floats(*x.shape[:-2], *(d.number(1, 9), n)[:: d.one((1, -1))])
            turned = int(b.shape[-1] == n != b.shape[-2])
            d.add("FusedMatMul", [x, b], domain=DOMAIN, transB=turned, alpha=d.one((1.0, 0.3)))
        case 5:
            if x.rank == 2:
                w, activation = d.floats(d.number(1, 9), n), d.one(("Relu", "Tanh", "Sigmoid"))
                d.add("FusedGemm", [x, w], domain=DOMAIN, transB=1, activation=activation)
        case 6:
            if x.rank == 2:
                d.add(
                    "CDist", [x, d.floats(d.number(1, 9), n)], domain=DOMAIN, metric=d.one(("sqeuclidean", "euclidean"))
                )
        case 7:
            size = d.number(1, n + 1)
            d.add("UnfoldTensor", [x], domain=DOMAIN, dim=-1, size=size, step=d.number(1, 4))
        case 8:
            d.add("ExpandDims", [x, d.constant(np.array(d.axis(x.rank + 1), np.int32))], domain=DOMAIN)


@draws(0.4)
def fused_convolution(d: Draft) -> None:
    x = d.pick((F32,), (4,), lambda v: min(v.shape) > 0 and min(v.shape[2:]) >= 2)
    if x is None:
        return
    w = d.floats(d.number(1, 6), x.shape[1], 2, 2, scale=0.5)
    activation, given = d.one((("Relu", []), ("Tanh", []), ("LeakyRelu", [0.2]), ("Clip", [-0.4, 0.6])))
    parameters = {"activation_params": given} if given else {}
    d.add("FusedConv", [x, w], domain=DOMAIN, activation=activation, pads=[1, 0, 0, 1], **parameters)


def _mask(d: Draft, batch: int, total: int) -> Value:
    counts = d.rng.integers(1, total + 1, batch)
    if d.chance(0.5):
        return d.data(counts.astype(np.int32))
    return d.data((np.arange(total) < counts[:, None]).astype(np.int32))


@draws(0.8)
def fused_attention(d: Draft) -> None:
    """Of sentences of a few words, with a mask, what was before, or neither."""
    batch, length, heads, size = d.number(1, 3), d.number(1, 7), d.one((1, 2, 3)), d.one((4, 8))
    columns = heads * size
    match d.number(0, 4):
        case 0:
            x = d.floats(batch, length, 5)
            mask = _mask(d, batch, length) if d.chance(0.6) else None
            operands = [x, d.floats(5, 3 * columns), vector(d, 3 * columns), mask]
            d.add("Attention", operands, domain=DOMAIN, num_heads=heads, unidirectional=d.number(0, 2))
        case 1:
            keys = d.number(1, 9)
            q, k, v = (d.floats(batch, n, columns) for n in (length, keys, keys))
            mask = _mask(d, batch, keys) if d.chance(0.6) else None
            bias = vector(d, 3 * columns) if d.chance(0.5) else None
            d.add("MultiHeadAttention", [q, k, v, bias, mask], domain=DOMAIN, num_heads=heads, scale=d.one((0.0, 0.7)))
        case 2:
            tables = [d.floats(11, size // 2) for _ in range(2)]
            places = d.data(d.rng.integers(0, 11, (batch, length)))
            x = d.floats(batch, length, columns)
            d.add("RotaryEmbedding", [x, places, *tables], domain=DOMAIN, interleaved=d.number(0, 2))
        case 3:
            _grouped(d, batch, d.one((1, length)), heads, 16)


def _grouped(d: Draft, batch: int, length: int, heads: int, size: int) -> None:
    before = d.number(1, 6) if length == 1 else 0
    past = [d.floats(batch, heads, before, size) for _ in range(2)] if before else [None, None]
    columns = heads * size
    total = before + length
    counts = d.data(np.full(batch, total - 1, np.int32))
    new = [d.floats(batch, length, c) for c in (2 * columns, columns, columns)]
    rotary = d.number(0, 2)
    tables = [d.floats(16, size // 2) for _ in range(2)] if rotary else []
    operands = [*new, *past, counts, d.constant(np.array(total, np.int32)), *tables]
    d.add(
        "GroupQueryAttention",
        operands,
        domain=DOMAIN,
        outputs=3,
        num_heads=2 * heads,
        kv_num_heads=heads,
        do_rotary=rotary,
        local_window_size=d.one((-1, 2)),
    )


@draws(0.3)
def embedded_words(d: Draft) -> None:
    batch, length, width = d.number(1, 3), d.number(1, 7), d.number(2, 9)
    ids, segments = (d.data(d.rng.integers(0, n, (batch, length)).astype(np.int32)) for n in (9, 2))
    tables = [d.floats(n, width) for n in (9, 7, 2)]
    operands = [ids, segments, *tables, vector(d, width), vector(d, width), _mask_of_words(d, batch, length)]
    d.add("EmbedLayerNormalization", operands, domain=DOMAIN, outputs=2, epsilon=0.01)


def _mask_of_words(d: Draft, batch: int, length: int) -> Value:
    return d.data((np.arange(length) < d.rng.integers(1, length + 1, (batch, 1))).astype(np.int32))


@draws(0.2)
def attention_of_codes(d: Draft) -> None:
    batch, length, heads, size = d.number(1, 3), d.number(1, 6), d.one((1, 2)), 4
    columns = 3 * heads * size
    x = d.data(d.rng.integers(100, 156, (batch, length, 5)).astype(U8))
    w = d.constant(d.rng.integers(-40, 41, (5, columns)).astype(I8))
    mask = d.data(d.rng.integers(1, length + 1, batch).astype(np.int32))
    operands = [
        x,
        w,
        vector(d, columns),
        scale_of(d),
        scale_of(d),
        mask,
        zero_point(d, U8),
        d.constant(np.array(0, I8)),
    ]
    d.add("QAttention", operands, domain=DOMAIN, num_heads=heads, unidirectional=d.number(0, 2))
