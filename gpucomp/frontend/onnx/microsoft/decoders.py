"""onnxruntime's rotary embedding and decoder attention with a key-value cache, domain com.microsoft.

Shapes: B sentences, S queries, P past keys, T keys in total, H heads of h elements.
"""

from __future__ import annotations

import math

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.ai_onnx.nn import scaled
from gpucomp.frontend.onnx.ai_onnx.scatter import tensor_scatter
from gpucomp.frontend.onnx.compose import (
    cast,
    concat,
    expand,
    iota,
    is_state,
    like,
    pad,
    part,
    reshape,
    scalar_of,
    transpose,
    unsqueeze,
)
from gpucomp.frontend.onnx.microsoft.attention import LOWEST, expected_bias, heads, joined, thirds
from gpucomp.frontend.onnx.microsoft.common import MICROSOFT, expect_floats, expect_none, expect_types, whole
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value, constant_value
from gpucomp.ir import types as t
from gpucomp.lazy_dataclass import dataclass

# --- rotary embedding


def rotated(x: Value, cosines: Value, sines: Value, positions: Value, *, interleaved: bool) -> Value:
    """Rotate pairs of the first 2 n elements of heads in ``x`` [B, H, S, h] (J. Su et al., RoFormer, 2021).

    ``cosines`` and ``sines`` [places, n] are read at ``positions`` i64[B, S] or [1, S]. A pair is elements k and k + n
    or, with ``interleaved``, 2 k and 2 k + 1. Positions outside the tables are clamped, as by ``Gather``.
    """
    batch, count, length, size = x.shape
    n = cosines.shape[-1]
    if len(cosines.shape) != 2 or sines.shape != cosines.shape or 2 * n > size:
        raise ValueError(
            f"cosines and sines [length, columns] of at most {size // 2} columns expected, half a head; {cosines.type} and "
            f"{sines.type} given"
        )
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
    """``x`` is [B, S, H h] or [B, H, S, h]. ``position_ids`` is i64[B, S], or one element: the position of the first query.

    All h elements of a head are rotated, or the first ``rotary_embedding_dim``.
    """
    expect_none(is_packed_batching=is_packed_batching)
    expect_floats(x, cosines, sines)
    expect_types((t.I64,), position_ids)
    if scale != 1:
        raise UnsupportedError(f"scale={scale} is not supported: 1 expected")
    if rotary_embedding_dim and not num_heads:
        raise ValueError("rotary_embedding_dim needs num_heads, which is not given")
    if len(x.shape) == 3:
        size = x.shape[2] // num_heads if num_heads else 2 * cosines.shape[-1]
        by_heads = heads(x, x.shape[2] // max(size, 1))
    else:
        by_heads = x
    batch, _, length, size = by_heads.shape
    if (rotary_embedding_dim or size) != 2 * cosines.shape[-1]:
        raise ValueError(f"cosines of half of {rotary_embedding_dim or size} elements expected, {cosines.type} given")
    if position_ids.shape in ((), (1,)):
        positions = reshape(ops.Add(iota(length), position_ids), (1, length))
    elif position_ids.shape == (batch, length):
        positions = position_ids
    else:
        raise ValueError(f"one position or those of {batch} x {length} elements expected, {position_ids.type} given")
    y = rotated(by_heads, cosines, sines, positions, interleaved=bool(interleaved))
    return joined(y) if len(x.shape) == 3 else y


# --- attention of decoders with a key-value cache


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
    """Causal attention of queries [B, S, H h]. Groups of query heads share one of ``kv_num_heads`` heads of keys and values.

    ``query`` can contain keys and values after its own columns. ``seqlens_k`` i32[B] is the total number of keys of
    each sentence, minus one. New keys follow the valid keys of ``past_key`` [B, heads, P, h]. ``head_sink`` is [H],
    ``attention_bias`` [B or 1, H or 1, S, T]. Results: [B, S, H h], and keys and values [B, heads, max(P, T), h], which
    are 0 where a sentence has no keys. A past that is a state gets the new keys itself, if T is not constant: T is then P.

    Values of the run are not checked, although onnxruntime refuses some. Lengths outside ``0 .. T - 1`` move keys out of the
    result or leave gaps in it. ``Gather`` clamps ``position_ids`` to the tables.
    """
    _expect_plain_cache(k_scale, v_scale, k_quant_type, v_quant_type, kv_cache_bit_width)
    expect_none(qk_output=qk_output, sliding_window_cache=sliding_window_cache)
    if not causal:
        raise UnsupportedError("causal=0 is not supported")
    _expect_pairs(keys=(key, value), past=(past_key, past_value), norms=(q_norm_weight, k_norm_weight))
    expect_floats(query, key, value, past_key, past_value, cosines, sines, attention_bias, head_sink)
    scores = _Scores(scale, softcap, local_window_size, smooth_softmax, attention_bias, head_sink)
    q, k, v = _by_heads(query, key, value, num_heads, kv_num_heads)
    q, k = _normalized(q, k, q_norm_weight, k_norm_weight, qk_norm_epsilon)
    shared = past_key is not None and is_state(past_key) and constant_value(total_sequence_length) is None
    total, before = _lengths(q, past_key, seqlens_k, total_sequence_length, shared=shared)
    if do_rotary:
        q, k = _turned(q, k, before, cosines, sines, position_ids, interleaved=bool(rotary_interleaved))
    if past_key is not None and past_value is not None:
        k, v = (_appended(past, new, before, total, shared=shared) for past, new in ((past_key, k), (past_value, v)))
    return joined(_grouped(q, k, v, before, total, scores)), k, v


@dataclass(frozen=True)
class _Scores:
    """How products of queries and keys become weights."""

    scale: float  # 0: one over the square root of a head's size
    softcap: float  # 0: none
    window: int  # keys that a query sees, its own the last; -1: all
    smooth: int  # 1: a sink of 0 where there is no other
    bias: Value | None
    sink: Value | None  # for each head, the score of a key more, whose value is 0

    def __post_init__(self) -> None:
        if self.window == 0 or self.softcap < 0 or self.smooth not in (-1, 0, 1):
            raise ValueError(
                f"local_window_size={self.window}, softcap={self.softcap}, smooth_softmax={self.smooth}: a window other than 0, "
                "a softcap of at least 0 and smooth_softmax -1, 0 or 1 expected"
            )

    def sink_of(self, q: Value) -> Value | None:
        if self.sink is None:
            return scalar_of(q.type.dtype, 0) if self.smooth > 0 else None
        if self.sink.shape != (q.shape[1],):
            raise ValueError(f"{q.shape[1]} sinks expected, {self.sink.type} given")
        return self.sink


def _by_heads(
    query: Value, key: Value | None, value: Value | None, num_heads: int, kv_num_heads: int
) -> tuple[Value, Value, Value]:
    """Queries, keys and values split into heads. Without ``key`` and ``value``, ``query`` holds all three."""
    if kv_num_heads < 1 or num_heads % kv_num_heads:
        raise ValueError(f"num_heads={num_heads}: a multiple of kv_num_heads={kv_num_heads} expected")
    if key is None or value is None:
        size = query.shape[-1] // (num_heads + 2 * kv_num_heads)
        query, key, value = thirds(query, (size * num_heads, size * kv_num_heads, size * kv_num_heads))
    q, k, v = heads(query, num_heads), heads(key, kv_num_heads), heads(value, kv_num_heads)
    batch, _, length, size = q.shape
    if (k.shape[0], k.shape[2], k.shape[3]) != (batch, length, size) or v.shape != k.shape:
        raise ValueError(f"queries {q.type}, keys {k.type} and values {v.type} do not fit together")
    return q, k, v


def _normalized(
    q: Value, k: Value, q_weight: Value | None, k_weight: Value | None, epsilon: float
) -> tuple[Value, Value]:
    """Each head of queries and keys, normalised by its root mean square where there are weights for that."""
    if q_weight is None or k_weight is None:
        return q, k
    expect_floats(q, q_weight, k_weight)
    q, k = (ops.Mul(ops.RMSNorm(x, axis=3, epsilon=epsilon), weight) for x, weight in ((q, q_weight), (k, k_weight)))
    return q, k


def _turned(
    q: Value,
    k: Value,
    before: Value,
    cosines: Value | None,
    sines: Value | None,
    position_ids: Value | None,
    *,
    interleaved: bool,
) -> tuple[Value, Value]:
    """Queries and keys after their rotary embedding, at ``position_ids`` or else behind the keys before."""
    if cosines is None or sines is None:
        raise ValueError("do_rotary needs cosines and sines, which are not given")
    batch, _, length, _ = q.shape
    places = ops.Add(before, reshape(iota(length), (1, length))) if position_ids is None else position_ids
    expect_types((t.I64,), places)
    if places.shape != (batch, length):
        raise ValueError(f"positions of {batch} x {length} elements expected, {places.type} given")
    q, k = (rotated(x, cosines, sines, places, interleaved=interleaved) for x in (q, k))
    return q, k


def _expect_plain_cache(
    k_scale: Value | None, v_scale: Value | None, k_quant_type: str, v_quant_type: str, kv_cache_bit_width: int
) -> None:
    """Raises ``UnsupportedError`` for keys and values that are kept in few bits."""
    expect_none(
        k_scale=k_scale,
        v_scale=v_scale,
        k_quant_type=k_quant_type.removeprefix("NONE"),
        v_quant_type=v_quant_type.removeprefix("NONE"),
        kv_cache_bit_width=kv_cache_bit_width,
    )


def _expect_pairs(**pairs: tuple[Value | None, Value | None]) -> None:
    """Raises ``ValueError`` if only one value of a pair is given."""
    if name := next((name for name, (one, other) in pairs.items() if (one is None) != (other is None)), None):
        raise ValueError(f"{name}: both or neither expected, one is missing")


def _lengths(
    q: Value, past_key: Value | None, seqlens_k: Value, total_sequence_length: Value, *, shared: bool
) -> tuple[int, Value]:
    """The total number of keys, and that of each sentence's past keys, i64[B, 1]. ``shared``: the past has room for all."""
    expect_types((t.I32,), seqlens_k, total_sequence_length)
    batch, _, length, _ = q.shape
    if seqlens_k.type.size != batch:
        raise ValueError(f"{batch} lengths expected, {seqlens_k.type} given")
    before, none = (
        ops.Add(reshape(cast(seqlens_k, t.I64), (batch, 1)), scalar_of(t.I64, 1 - length)),
        scalar_of(t.I64, 0),
    )
    if shared and past_key is not None:  # where all keys are new, some can be of no sentence
        all_new = ops.Equal(cast(reshape(total_sequence_length, (1, 1)), t.I64), scalar_of(t.I64, length))
        return past_key.shape[2], ops.Where(all_new, none, before)
    total = length if past_key is None else whole(total_sequence_length, "total_sequence_length")
    if total < length:
        raise ValueError(f"total_sequence_length {total}: at least the {length} new keys expected")
    return total, expand(none, (batch, 1)) if total == length else before


def _appended(past: Value, new: Value, before: Value, total: int, *, shared: bool) -> Value:
    """[B, heads, max(P, total), h]: first ``before`` keys of ``past``, then ``new``, then zeros; what was there if ``shared``."""
    if len(past.shape) != 4 or (*past.shape[:2], past.shape[3]) != (*new.shape[:2], new.shape[3]):
        raise ValueError(
            f"past {past.type} and new {new.type} can differ only in length: [batch, heads, length, columns] expected"
        )
    if shared:
        return tensor_scatter(past, new, before, axis=2, mode="linear")
    kept, length, batch = past.shape[2], new.shape[2], past.shape[0]
    total = max(kept, total)
    place = reshape(iota(total), (1, total))
    behind = ops.Sub(place, before)  # [B, total]: index among the new keys
    zeros = expand(like(new, 0), (*new.shape[:2], 1, new.shape[3]))
    source = ops.Where(ops.Less(behind, scalar_of(t.I64, 0)), place, ops.Add(behind, scalar_of(t.I64, kept)))
    source = ops.Clip(source, low=0, high=kept + length)
    rows = expand(reshape(source, (batch, 1, total, 1)), (*past.shape[:2], total, past.shape[3]))
    return ops.GatherElements(concat([past, new, zeros], 2), rows, axis=2)


def _grouped(q: Value, k: Value, v: Value, before: Value, keys: int, how: _Scores) -> Value:
    """[B, H, S, h] of causal attention over the first ``keys``. A longer buffer's other keys are after all queries."""
    batch, count, length, size = q.shape
    groups, total = k.shape[1], k.shape[2]
    shared = count // groups
    k, v = (
        reshape(expand(unsqueeze(x, (2,)), (batch, groups, shared, total, size)), (batch, count, total, size))
        for x in (k, v)
    )
    scores = scaled(ops.MatMul(q, transpose(k, (0, 1, 3, 2))), how.scale or 1 / math.sqrt(size))
    if how.softcap:
        scores = scaled(ops.Tanh(scaled(scores, 1 / how.softcap)), how.softcap)
    if how.bias is not None:
        bias = expected_bias(how.bias, (batch, count, length, keys))
        scores = ops.Add(scores, pad(bias, (0,) * 7 + (total - keys,)))
    own = ops.Add(reshape(iota(length), (1, length, 1)), reshape(before, (batch, 1, 1)))  # the position of each query
    place = ops.Iota(size=total, dtype=t.I64)  # in a form that says which columns are seen
    seen = ops.LessOrEqual(place, own)
    if how.window > 0:
        seen = ops.And(seen, ops.Less(ops.Sub(own, place), scalar_of(t.I64, how.window)))
    scores = ops.Where(reshape(seen, (batch, 1, length, total)), scores, like(scores, LOWEST[q.type.dtype]))
    sink = how.sink_of(q)
    if sink is None:
        return ops.MatMul(ops.Softmax(scores, axis=3), v)
    column = expand(reshape(sink, (1, count, 1, 1)) if sink.shape else sink, (batch, count, length, 1))
    weights = ops.Softmax(concat([scores, column], 3), axis=3)
    return ops.MatMul(part(weights, 3, 0, total), v)
