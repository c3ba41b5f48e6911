"""onnxruntime's attention operators, domain com.microsoft, as products, masks and Softmax. Passes fuse them for the target.

Shapes: B sentences, S queries, P past keys, L new keys, T = P + L keys in total, H heads of h elements (values: e).
"""

from __future__ import annotations

import math

import numpy as np

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.ai_onnx.nn import matmul, scaled
from gpucomp.frontend.onnx.compose import (
    concat,
    iota,
    like,
    part,
    reshape,
    scalar_of,
    transpose,
    unsqueeze,
)
from gpucomp.frontend.onnx.microsoft.common import MICROSOFT, expect_floats, expect_none, expect_types
from gpucomp.frontend.onnx.microsoft.quantized import matmul_integer_to_float
from gpucomp.frontend.onnx.translate import Site, translates
from gpucomp.ir import Value
from gpucomp.ir import types as t

MASKED = -10000.0  # default of the number that is added to the scores of masked keys


def heads(x: Value, count: int) -> Value:
    """[B, S, H h] to [B, H, S, h]"""
    if len(x.shape) != 3 or count < 1 or x.shape[2] % count:
        raise ValueError(f"[batch, length, columns] of {count} heads expected, {x.type} given")
    batch, length, columns = x.shape
    return transpose(reshape(x, (batch, length, count, columns // count)), (0, 2, 1, 3))


def joined(x: Value) -> Value:
    """[B, H, S, h] to [B, S, H h]"""
    batch, count, length, size = x.shape
    return reshape(transpose(x, (0, 2, 1, 3)), (batch, length, count * size))


LOWEST = {t.F32: float(np.finfo(np.float32).min), t.F16: -65504.0, t.F64: float(np.finfo(np.float64).min)} | {
    t.BF16: -3.3895313892515355e38
}


def attended(
    q: Value,
    k: Value,
    v: Value,
    *,
    past: tuple[Value, Value] | None,
    mask: Value | None,
    bias: Value | None,
    scale: float,
    mask_filter_value: float,
    unidirectional: int,
) -> tuple[Value, Value, Value, Value]:
    """softmax(q k^T scale + mask + bias) v, [B, S, H e], all keys, all values, and the scores.

    ``q`` [B, H, S, h], ``k`` [B, H, L, h] and ``v`` [B, H, L, e]; ``past`` keys and values come before the new ones.
    ``bias`` is [B or 1, H or 1, S, T]. With ``unidirectional``, row i sees the keys up to P + i; the scores of later
    keys are the lowest number of the type. This also holds if L > S, where onnxruntime's last row sees all keys. Raises
    ``ValueError`` for other shapes.
    """
    if q.shape[:2] != k.shape[:2] or q.shape[3] != k.shape[3] or v.shape[:3] != k.shape[:3]:
        raise ValueError(f"queries {q.type}, keys {k.type} and values {v.type} do not fit together")
    before = 0
    if past is not None:
        for kept, new in zip(past, (k, v), strict=True):
            if len(kept.shape) != 4 or (*kept.shape[:2], kept.shape[3]) != (*new.shape[:2], new.shape[3]):
                raise ValueError(
                    f"past keys and values can differ from the new ones, {new.type}, only in length; {kept.type} given"
                )
        before = past[0].shape[2]
        k, v = concat([past[0], k], 2), concat([past[1], v], 2)
    (batch, count, length, size), total = q.shape, k.shape[2]
    scores = scaled(ops.MatMul(q, transpose(k, (0, 1, 3, 2))), scale or 1 / math.sqrt(size))
    if mask is not None:
        scores = _masked(scores, _counting(mask, batch, length, total), mask_filter_value)
    if bias is not None:
        scores = ops.Add(scores, expected_bias(bias, (batch, count, length, total)))
    if unidirectional:
        last = reshape(ops.Add(iota(length), scalar_of(t.I64, before)), (length, 1))
        scores = ops.Where(ops.LessOrEqual(iota(total), last), scores, like(scores, LOWEST[q.type.dtype]))
    return joined(ops.MatMul(ops.Softmax(scores, axis=3), v)), k, v, scores


def expected_bias(bias: Value, scores: tuple[int, ...]) -> Value:
    """``bias``. Raises ``ValueError`` if it is not [B or 1, H or 1, S, T] for ``scores`` [B, H, S, T]."""
    batch, count, *each = scores
    shape = bias.shape
    if len(shape) != 4 or shape[0] not in (1, batch) or shape[1] not in (1, count) or shape[2:] != tuple(each):
        raise ValueError(f"a bias of scores {list(scores)} expected, {bias.type} given")
    return bias


def _masked(scores: Value, kept: Value, value: float) -> Value:
    """``scores``, plus ``value`` for keys that are not ``kept``.

    If ``value`` is below all numbers of the type, sums would be infinite, and a row of them would have no Softmax. Such
    scores are the lowest number instead, which is also the result in f32, the type of onnxruntime's addition.
    """
    least = LOWEST[scores.type.dtype]
    if value <= least:
        return ops.Where(kept, scores, like(scores, least))
    return ops.Add(scores, ops.Where(kept, like(scores, 0), like(scores, value)))


def _counting(mask: Value, batch: int, queries: int, total: int) -> Value:
    """The keys that an i32 ``mask`` keeps, as bool[B, 1, 1 or S, T].

    Masks [B, T] and [B, S, T] are 0 for keys that are left out. [B] holds the number of keys, as do the first B
    elements of [3 B + 2], whose other elements are for kernels without padding. [2 B] holds the ends of the keys, then
    their beginnings.
    """
    expect_types((t.I32,), mask)
    match mask.shape:
        case (b, n) if (b, n) == (batch, total):
            return reshape(ops.Less(like(mask, 0), mask), (batch, 1, 1, total))
        case (b, s, n) if (b, s, n) == (batch, queries, total):
            return reshape(ops.Less(like(mask, 0), mask), (batch, 1, queries, total))
        case (n,) if n in (batch, 2 * batch, 3 * batch + 2):
            place = reshape(iota(total, mask.type.dtype), (1, total))
            kept = ops.Less(place, reshape(part(mask, 0, 0, batch), (batch, 1)))
            if n == 2 * batch and batch:
                start = reshape(part(mask, 0, batch, batch), (batch, 1))
                kept = ops.And(kept, ops.LessOrEqual(start, place))
            return reshape(kept, (batch, 1, 1, total))
    raise UnsupportedError(f"a mask {mask.type} for {batch} sequences of {total} keys is not supported")


def _of_one_operand(
    projected: Value,
    sizes: tuple[int, ...],
    num_heads: int,
    mask: Value | None,
    past: Value | None,
    bias: Value | None,
    *,
    scale: float,
    mask_filter_value: float,
    unidirectional: int,
) -> tuple[Value, Value | None]:
    """[B, S, H e], and all keys and values, [2, B, H, T, h], if the two have the same size."""
    q, k, v = (heads(columns, num_heads) for columns in thirds(projected, sizes))
    before = None
    if past is not None:
        if len(past.shape) != 5 or past.shape[0] != 2 or k.shape != v.shape:
            raise ValueError(f"past keys and values [2, B, H, P, h] expected, {past.type} given")
        before = reshape(part(past, 0, 0, 1), past.shape[1:]), reshape(part(past, 0, 1, 1), past.shape[1:])
    y, k, v, _ = attended(
        *(q, k, v),
        past=before,
        mask=mask,
        bias=bias,
        scale=scale,
        mask_filter_value=mask_filter_value,
        unidirectional=unidirectional,
    )
    return y, concat([unsqueeze(k, (0,)), unsqueeze(v, (0,))], 0) if k.shape == v.shape else None


@translates("Attention", since=1, domain=MICROSOFT)
def attention(
    x: Value,
    weights: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    past: Value | None = None,
    attention_bias: Value | None = None,
    past_sequence_length: Value | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = MASKED,
    num_heads: int,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: tuple[int, ...] = (),
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Value, Value | None]:
    """One product with ``weights`` [D, columns] gives queries, keys and values: equal thirds, or ``qkv_hidden_sizes``."""
    expect_none(do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer)
    expect_floats(x, weights, bias, past, attention_bias)
    projected = matmul(x, weights)
    if bias is not None and bias.shape != projected.shape[-1:]:
        raise ValueError(f"a bias of {projected.shape[-1]} elements expected, {bias.type} given")
    projected = projected if bias is None else ops.Add(projected, bias)
    return _of_one_operand(
        *(projected, qkv_hidden_sizes, num_heads, mask, past, attention_bias),
        scale=scale,
        mask_filter_value=mask_filter_value,
        unidirectional=unidirectional,
    )


@translates("QAttention", since=1, domain=MICROSOFT)
def quantized_attention(
    x: Value,
    weights: Value,
    bias: Value,
    x_scale: Value,
    weight_scale: Value,
    mask: Value | None = None,
    x_zero: Value | None = None,
    weight_zero: Value | None = None,
    past: Value | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = MASKED,
    num_heads: int,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Value, Value | None]:
    """Attention whose first product is of quantized values. Everything after it is in floats."""
    expect_none(do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer)
    projected = matmul_integer_to_float(x, weights, x_scale, weight_scale, x_zero, weight_zero, bias)
    expect_floats(projected, past)
    return _of_one_operand(
        *(projected, (), num_heads, mask, past, None),
        scale=scale,
        mask_filter_value=mask_filter_value,
        unidirectional=unidirectional,
    )


def thirds(x: Value, sizes: tuple[int, ...]) -> list[Value]:
    """The columns of ``x`` for queries, keys and values."""
    last = len(x.shape) - 1
    columns = x.shape[last]
    sizes = sizes or (columns // 3,) * 3
    if len(sizes) != 3 or min(sizes) < 0 or sum(sizes) != columns:
        raise ValueError(
            f"queries, keys and values of {list(sizes)} columns do not make up the {columns} columns of {x.type}"
        )
    starts = (0, sizes[0], sizes[0] + sizes[1])
    return [part(x, last, start, size) for start, size in zip(starts, sizes, strict=True)]


@translates("MultiHeadAttention", since=1, domain=MICROSOFT)
def multi_head_attention(
    query: Value,
    key: Value | None = None,
    value: Value | None = None,
    bias: Value | None = None,
    mask: Value | None = None,
    attention_bias: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    past_sequence_length: Value | None = None,
    cache_indirection: Value | None = None,
    *,
    mask_filter_value: float = MASKED,
    num_heads: int,
    scale: float = 0.0,
    unidirectional: int = 0,
    site: Site,
) -> tuple[Value | None, ...]:
    """``query`` [B, S, H h] with ``key`` and ``value`` [B, L, H h] or [B, H, L, h]; or ``key`` [B, L, H, 2, h], which contains
    the values; or ``query`` [B, S, H, 3, h], which contains both. Results: [B, S, H e], all keys, all values, and the
    scores.

    Past keys and values are supported only with keys and values [B, L, H h]. With [B, H, L, h], onnxruntime uses or
    ignores them depending on the requested results.
    """
    expect_none(past_sequence_length=past_sequence_length, cache_indirection=cache_indirection)
    expect_floats(query, key, value, bias, attention_bias, past_key, past_value)
    if mask is not None and len(mask.shape) == 1 and mask.shape[0] == 2 * query.shape[0] > 0:
        raise ValueError(f"a mask of the numbers of keys expected, {mask.type} given")
    if (past_key is None) != (past_value is None):
        raise ValueError("past keys and past values belong together: one is missing")
    if len(query.shape) == 5 and key is None and value is None:
        query, key, value = _interleaved(query, 3, num_heads)
    elif key is not None and len(key.shape) == 5 and value is None:
        key, value = _interleaved(key, 2, num_heads)
    if key is None or value is None or len(query.shape) != 3 or len(key.shape) != len(value.shape):
        raise ValueError(
            "a query [batch, length, columns] with keys and values expected, or all three packed in the query"
        )
    if past_key is not None and len(key.shape) == 4:
        raise ValueError(
            "past keys and values cannot be combined with keys and values that are already split into heads"
        )
    if bias is not None:
        if len(bias.shape) != 1:
            raise ValueError(f"a bias of all columns expected, {bias.type} given")
        biases = thirds(bias, (query.shape[2], bias.type.size - query.shape[2] - _columns(value), _columns(value)))
        query = ops.Add(query, biases[0])
        key, value = (ops.Add(x, b) if len(x.shape) == 3 else x for x, b in zip((key, value), biases[1:], strict=True))
    y, k, v, scores = attended(
        heads(query, num_heads),
        *(x if len(x.shape) == 4 else heads(x, num_heads) for x in (key, value)),
        past=None if past_key is None or past_value is None else (past_key, past_value),
        mask=mask,
        bias=attention_bias,
        scale=scale,
        mask_filter_value=mask_filter_value,
        unidirectional=unidirectional,
    )
    return y, k, v, scores if site.wants(3) else None


def _columns(x: Value) -> int:
    """The number of columns of all heads of ``x``, [B, L, columns] or [B, H, L, h]."""
    return x.shape[2] if len(x.shape) == 3 else x.shape[1] * x.shape[3]


def _interleaved(x: Value, count: int, num_heads: int) -> list[Value]:
    """[B, L, H, count, h] to ``count`` times [B, L, H h]"""
    batch, length, own_heads, parts, size = x.shape
    if (own_heads, parts) != (num_heads, count):
        raise ValueError(f"[batch, length, {num_heads}, {count}, columns] expected, {x.type} given")
    return [reshape(part(x, 3, at, 1), (batch, length, num_heads * size)) for at in range(count)]
