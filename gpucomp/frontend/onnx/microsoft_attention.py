"""onnxruntime's attention operators, domain com.microsoft, as products, masks and Softmax, which are then fused for the target.

Shapes: B sentences, S queries, P keys before, T = P + L keys in all, H heads of h elements (values of e).
"""

from __future__ import annotations

import math

import numpy as np

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.compose import (
    cast,
    concat,
    expand,
    iota,
    like,
    part,
    reshape,
    scalar,
    scalar_of,
    transpose,
    unsqueeze,
)
from gpucomp.frontend.onnx.microsoft_quantized import MICROSOFT, matmul_integer_to_float
from gpucomp.frontend.onnx.nn import matmul, scaled
from gpucomp.frontend.onnx.translate import Site, translates
from gpucomp.ir import Value
from gpucomp.ir import types as t

MASKED = -10000.0  # what is added to the score of a key that a mask excludes, where the model does not say


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


def attended(
    q: Value,
    k: Value,
    v: Value,
    *,
    scale: float | None,
    additions: list[Value],
    causal: int | None,
) -> tuple[Value, Value]:
    """softmax(q k^T scale + additions) v, [B, H, S, e], and the scores.

    With ``causal``, row i sees the columns up to i + causal, and what is beyond scores the least that there is.
    """
    scale = scale or 1 / math.sqrt(q.shape[-1])
    scores = scaled(ops.MatMul(q, transpose(k, (0, 1, 3, 2))), scale)
    for addition in additions:
        scores = ops.Add(scores, addition)
    if causal is not None:
        length, total = q.shape[2], k.shape[2]
        last = reshape(ops.Add(iota(length), scalar_of(t.I64, causal)), (length, 1))
        scores = ops.Where(ops.LessOrEqual(iota(total), last), scores, like(scores, LOWEST[q.type.dtype]))
    return ops.MatMul(ops.Softmax(scores, axis=3), v), scores


LOWEST = {t.F32: float(np.finfo(np.float32).min), t.F16: -65504.0, t.F64: float(np.finfo(np.float64).min)} | {
    t.BF16: -3.3895313892515355e38
}


def padding(mask: Value, batch: int, total: int, value: float, dtype: t.DType, *, queries: int) -> Value:
    """The addition to the scores for a mask of integers: ``value`` where it excludes a key, 0 elsewhere.

    [B, T] and [B, S, T] are 0 for keys that are left out; [B] says how many count; [2 B] where they end and begin.
    """
    match mask.shape:
        case (b, n) if (b, n) == (batch, total):
            kept = reshape(ops.Less(like(mask, 0), mask), (batch, 1, 1, total))
        case (b, s, n) if (b, s, n) == (batch, queries, total):
            kept = reshape(ops.Less(like(mask, 0), mask), (batch, 1, queries, total))
        case (n,) if n in (batch, 2 * batch):
            place = reshape(iota(total, mask.type.dtype), (1, total))
            kept = ops.Less(place, reshape(part(mask, 0, 0, batch), (batch, 1)))
            if n == 2 * batch and batch:
                start = reshape(part(mask, 0, batch, batch), (batch, 1))
                kept = ops.And(kept, ops.LessOrEqual(start, place))
            kept = reshape(kept, (batch, 1, 1, total))
        case _:
            raise UnsupportedError(f"a mask {mask.type} for {batch} sentences of {total} keys")
    return ops.Where(kept, scalar_of(dtype, 0), scalar_of(dtype, value))


def _attention(
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None,
    past: Value | None,
    bias: Value | None,
    *,
    scale: float,
    mask_filter_value: float,
    unidirectional: int,
) -> tuple[Value, Value]:
    """[B, S, H e] and the keys and values in all, [2, B, H, T, h]; heads of q, k and v, [B, H, ., h]."""
    own = k.shape[2]
    if past is not None:
        shape = (2, *k.shape[:2], past.shape[3] if len(past.shape) == 5 else -1, k.shape[3])
        if past.shape != shape or k.shape != v.shape:
            raise ValueError(f"past keys and values {list(shape)} expected, {past.type} given")
        k, v = (concat([reshape(part(past, 0, at, 1), past.shape[1:]), new], 2) for at, new in enumerate((k, v)))
    additions = [] if bias is None else [bias]
    if mask is not None:
        filtered = padding(mask, q.shape[0], k.shape[2], mask_filter_value, q.type.dtype, queries=q.shape[2])
        additions.insert(0, filtered)
    y, _ = attended(
        *(q, k, v),
        scale=scale,
        additions=additions,
        causal=k.shape[2] - own if unidirectional else None,
    )
    present = concat([unsqueeze(k, (0,)), unsqueeze(v, (0,))], 0) if k.shape == v.shape else None
    return joined(y), present  # type: ignore[return-value]


def _expect_none(**given: object) -> None:
    if name := next((name for name, value in given.items() if value), None):
        raise UnsupportedError(f"{name} is not supported")


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
) -> tuple[Value, Value]:
    """Queries, keys and values by one product with ``weights`` [D, columns], equal thirds of it or ``qkv_hidden_sizes``."""
    _expect_none(do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer)
    projected = matmul(x, weights)
    projected = projected if bias is None else ops.Add(projected, bias)
    q, k, v = (heads(columns, num_heads) for columns in _thirds(projected, qkv_hidden_sizes))
    return _attention(
        *(q, k, v, mask, past, attention_bias),
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
) -> tuple[Value, Value]:
    """Attention whose first product is one of codes; all behind it is in floats."""
    _expect_none(do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer)
    projected = matmul_integer_to_float(x, weights, x_scale, weight_scale, x_zero, weight_zero, bias)
    q, k, v = (heads(columns, num_heads) for columns in _thirds(projected, ()))
    return _attention(
        *(q, k, v, mask, past, None),
        scale=scale,
        mask_filter_value=mask_filter_value,
        unidirectional=unidirectional,
    )


def _thirds(x: Value, sizes: tuple[int, ...]) -> list[Value]:
    """The columns of ``x`` for queries, keys and values."""
    last = len(x.shape) - 1
    columns = x.shape[last]
    sizes = sizes or (columns // 3,) * 3
    if len(sizes) != 3 or min(sizes) < 0 or sum(sizes) != columns:
        raise ValueError(f"{columns} columns for queries, keys and values of {list(sizes)}")
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
    """``query`` [B, S, H h] with ``key`` and ``value`` [B, L, H h] or as heads, [B, H, L, h]; or ``key`` [B, L, H, 2, h] with
    its values; or ``query`` [B, S, H, 3, h] with both. Results: [B, S, H e], keys and values in all, and the scores.
    """
    _expect_none(past_sequence_length=past_sequence_length, cache_indirection=cache_indirection)
    if len(query.shape) == 5 and key is None and value is None:
        query, key, value = _interleaved(query, 3, num_heads)
    elif key is not None and len(key.shape) == 5 and value is None:
        key, value = _interleaved(key, 2, num_heads)
    if key is None or value is None or len(query.shape) != 3:
        raise ValueError("a query [batch, length, columns], keys and values expected, or these packed")
    if bias is not None:
        biases = _thirds(bias, (query.shape[2], bias.type.size - query.shape[2] - _columns(value), _columns(value)))
        query = ops.Add(query, biases[0])
        key, value = (ops.Add(x, b) if len(x.shape) == 3 else x for x, b in zip((key, value), biases[1:], strict=True))
    q = heads(query, num_heads)
    k, v = (x if len(x.shape) == 4 else heads(x, num_heads) for x in (key, value))
    own = k.shape[2]
    if past_key is not None and past_value is not None:
        k, v = concat([past_key, k], 2), concat([past_value, v], 2)
    additions = [] if attention_bias is None else [attention_bias]
    if mask is not None:
        filtered = padding(mask, q.shape[0], k.shape[2], mask_filter_value, q.type.dtype, queries=q.shape[2])
        additions.insert(0, filtered)
    y, scores = attended(
        *(q, k, v),
        scale=scale,
        additions=additions,
        causal=k.shape[2] - own if unidirectional else None,
    )
    return joined(y), k, v, scores if site.wants(3) else None


def _columns(x: Value) -> int:
    """Of all heads of ``x``, [B, L, columns] or [B, H, L, h]."""
    return x.shape[2] if len(x.shape) == 3 else x.shape[1] * x.shape[3]


def _interleaved(x: Value, count: int, num_heads: int) -> list[Value]:
    """[B, L, H, count, h] to ``count`` times [B, L, H h]"""
    batch, length, own_heads, parts, size = x.shape
    if (own_heads, parts) != (num_heads, count):
        raise ValueError(f"[batch, length, {num_heads}, {count}, columns] expected, {x.type} given")
    return [reshape(part(x, 3, at, 1), (batch, length, num_heads * size)) for at in range(count)]


# --- rotary embedding


def rotated(x: Value, cosines: Value, sines: Value, positions: Value, *, interleaved: bool) -> Value:
    """Pairs of elements of ``x`` [B, H, S, h] turned by an angle each, the first 2 n of h (J. Su et al., RoFormer, 2021).

    ``cosines`` and ``sines`` [places, n] are read at ``positions`` i64[B, S] or [1, S]. A pair is an element and the one n behind
    it, or with ``interleaved`` its neighbour.
    """
    batch, count, length, size = x.shape
    n = cosines.shape[-1]
    if len(cosines.shape) != 2 or sines.shape != cosines.shape or 2 * n > size:
        raise ValueError(f"cosines and sines {cosines.type} and {sines.type} for heads of {size}")
    c, s = (cast(unsqueeze(ops.Gather(v, positions, axis=0), (1,)), x.type.dtype) for v in (cosines, sines))
    turned = part(x, 3, 0, 2 * n)
    if interleaved:
        pairs = reshape(turned, (batch, count, length, n, 2))
        first, second = (reshape(part(pairs, 4, at, 1), (batch, count, length, n)) for at in (0, 1))
    else:
        first, second = part(turned, 3, 0, n), part(turned, 3, n, n)
    results = [ops.Sub(ops.Mul(first, c), ops.Mul(second, s)), ops.Add(ops.Mul(first, s), ops.Mul(second, c))]
    if interleaved:
        turned = reshape(concat([unsqueeze(r, (4,)) for r in results], 4), (batch, count, length, 2 * n))
    else:
        turned = concat(results, 3)
    return turned if 2 * n == size else concat([turned, part(x, 3, 2 * n, size - 2 * n)], 3)


@translates("RotaryEmbedding", since=1, domain=MICROSOFT)
def rotary_embedding(
    x: Value,
    position_ids: Value,
    cosines: Value,
    sines: Value,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Value:
    """``x`` [B, S, H h] or [B, H, S, h]; ``position_ids`` [B, S], or [1]: where the first element is."""
    _expect_none(is_packed_batching=is_packed_batching)
    if scale != 1:
        raise UnsupportedError(f"scale={scale}")
    if len(x.shape) == 3:
        size = x.shape[2] // num_heads if num_heads else 2 * cosines.shape[-1]
        by_heads = heads(x, x.shape[2] // max(size, 1))
    else:
        by_heads = x
    length = by_heads.shape[2]
    if position_ids.type.size == 1 and len(position_ids.shape) == 1:
        positions = reshape(ops.Add(iota(length), position_ids), (1, length))
    else:
        positions = position_ids
    if rotary_embedding_dim and rotary_embedding_dim != 2 * cosines.shape[-1]:
        raise ValueError(f"rotary_embedding_dim={rotary_embedding_dim} with {cosines.type}")
    y = rotated(by_heads, cosines, sines, positions, interleaved=bool(interleaved))
    return joined(y) if len(x.shape) == 3 else y


# --- attention of decoders, which keep their keys and values


@translates("GroupQueryAttention", since=1, domain=MICROSOFT)
def group_query_attention(
    query: Value,
    key: Value | None,
    value: Value | None,
    past_key: Value | None,
    past_value: Value | None,
    seqlens_k: Value,
    total_sequence_length: Value,
    cosines: Value | None = None,
    sines: Value | None = None,
    position_ids: Value | None = None,
    attention_bias: Value | None = None,
    head_sink: Value | None = None,
    k_scale: Value | None = None,
    v_scale: Value | None = None,
    q_norm_weight: Value | None = None,
    k_norm_weight: Value | None = None,
    *,
    causal: int = 1,
    do_rotary: int = 0,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[Value, Value, Value]:
    """Queries [B, S, H h] over the keys of ``kv_num_heads`` heads, each for a group of theirs; causal.

    ``query`` may hold keys and values behind its own columns. ``seqlens_k`` i32[B] is one less than how many keys a sentence has
    in all; the new ones lie behind those of ``past_key`` [B, heads, P, h] that count. Results: [B, S, H h], and keys and values
    [B, heads, max(P, total), h], 0 where a sentence has none.
    """
    _expect_none(
        k_scale=k_scale,
        v_scale=v_scale,
        k_quant_type=k_quant_type != "NONE",
        v_quant_type=v_quant_type != "NONE",
        kv_cache_bit_width=kv_cache_bit_width,
        qk_output=qk_output,
        sliding_window_cache=sliding_window_cache,
        bidirectional=not causal,
    )
    if kv_num_heads < 1 or num_heads % kv_num_heads:
        raise ValueError(f"{num_heads} heads in groups of {kv_num_heads}")
    if key is None or value is None:
        size = query.shape[-1] // (num_heads + 2 * kv_num_heads)
        query, key, value = _thirds(query, (size * num_heads, size * kv_num_heads, size * kv_num_heads))
    q, k, v = heads(query, num_heads), heads(key, kv_num_heads), heads(value, kv_num_heads)
    batch, _, length, size = q.shape
    if q_norm_weight is not None and k_norm_weight is not None:
        q, k = (
            ops.Mul(ops.RMSNorm(x, axis=3, epsilon=qk_norm_epsilon), weight)
            for x, weight in ((q, q_norm_weight), (k, k_norm_weight))
        )
    before = _before(past_key, past_value, seqlens_k, total_sequence_length, batch, length)
    if do_rotary:
        if cosines is None or sines is None:
            raise ValueError("do_rotary without cosines and sines")
        places = ops.Add(before, reshape(iota(length), (1, length))) if position_ids is None else position_ids
        q, k = (rotated(x, cosines, sines, places, interleaved=bool(rotary_interleaved)) for x in (q, k))
    if past_key is not None and past_value is not None:
        total = max(past_key.shape[2], int(scalar(total_sequence_length, "total_sequence_length")))
        k, v = (_appended(past, new, before, total) for past, new in ((past_key, k), (past_value, v)))
    y = _grouped(
        *(q, k, v, before),
        scale=scale or 1 / math.sqrt(size),
        softcap=softcap,
        window=local_window_size,
        bias=attention_bias,
        sink=head_sink if head_sink is not None else scalar_of(q.type.dtype, 0) if smooth_softmax > 0 else None,
    )
    return joined(y), k, v


def _before(
    past_key: Value | None,
    past_value: Value | None,
    seqlens_k: Value,
    total_sequence_length: Value,
    batch: int,
    length: int,
) -> Value:
    """How many keys each sentence has before the new ones, i64[B, 1]; none where all that there are are new."""
    if (past_key is None) != (past_value is None):
        raise ValueError("past keys and past values go together")
    if seqlens_k.type.size != batch:
        raise ValueError(f"{batch} lengths expected, {seqlens_k.type} given")
    if past_key is None or int(scalar(total_sequence_length, "total_sequence_length")) == length:
        return expand(scalar_of(t.I64, 0), (batch, 1))
    return ops.Add(reshape(cast(seqlens_k, t.I64), (batch, 1)), scalar_of(t.I64, 1 - length))


def _appended(past: Value, new: Value, before: Value, total: int) -> Value:
    """[B, heads, total, h]: the first ``before`` of ``past``, then ``new``, then zeros."""
    if len(past.shape) != 4 or (*past.shape[:2], past.shape[3]) != (*new.shape[:2], new.shape[3]):
        raise ValueError(f"{past.type} in front of {new.type}")
    kept, length, batch = past.shape[2], new.shape[2], past.shape[0]
    place = reshape(iota(total), (1, total))
    behind = ops.Sub(place, before)  # [B, total]: which of the new ones
    zeros = expand(like(new, 0), (*new.shape[:2], 1, new.shape[3]))
    source = ops.Where(ops.Less(behind, scalar_of(t.I64, 0)), place, ops.Add(behind, scalar_of(t.I64, kept)))
    source = ops.Clip(source, low=0, high=kept + length)
    rows = expand(reshape(source, (batch, 1, total, 1)), (*past.shape[:2], total, past.shape[3]))
    return ops.GatherElements(concat([past, new, zeros], 2), rows, axis=2)


def _grouped(
    q: Value,
    k: Value,
    v: Value,
    before: Value,
    *,
    scale: float,
    softcap: float,
    window: int,
    bias: Value | None,
    sink: Value | None,
) -> Value:
    """[B, H, S, h] of causal attention; ``sink`` is a score in each row more, that of a key whose value is 0."""
    batch, count, length, size = q.shape
    groups, total = k.shape[1], k.shape[2]
    shared = count // groups
    k, v = (
        reshape(expand(unsqueeze(x, (2,)), (batch, groups, shared, total, size)), (batch, count, total, size))
        for x in (k, v)
    )
    scores = scaled(ops.MatMul(q, transpose(k, (0, 1, 3, 2))), scale)
    if softcap:
        scores = scaled(ops.Tanh(scaled(scores, 1 / softcap)), softcap)
    if bias is not None:
        scores = ops.Add(scores, part(bias, 3, 0, total))
    own = ops.Add(reshape(iota(length), (1, length, 1)), reshape(before, (batch, 1, 1)))  # where each query is
    place = iota(total)
    seen = ops.LessOrEqual(place, own)
    if window > 0:
        seen = ops.And(seen, ops.Less(ops.Sub(own, place), scalar_of(t.I64, window)))
    scores = ops.Where(reshape(seen, (batch, 1, length, total)), scores, like(scores, LOWEST[q.type.dtype]))
    if sink is None:
        return ops.MatMul(ops.Softmax(scores, axis=3), v)
    column = expand(
        reshape(sink, (1, count, 1, 1)) if sink.type.size == count > 1 else reshape(sink, ()), (batch, count, length, 1)
    )
    weights = ops.Softmax(concat([scores, column], 3), axis=3)
    return ops.MatMul(part(weights, 3, 0, total), v)
