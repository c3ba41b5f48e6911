"""onnxruntime's norms of rows and of groups of channels, fused with preceding sums, domain com.microsoft."""

from __future__ import annotations

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.ai_onnx.nn import layer_normalization, normalized_groups
from gpucomp.frontend.onnx.compose import (
    axis_of,
    cast,
    channels,
    expand,
    like,
    part,
    reshape,
    scalar_of,
)
from gpucomp.frontend.onnx.microsoft.common import MICROSOFT, expect_floats, to_channels_first, to_channels_last
from gpucomp.frontend.onnx.translate import Site, translates
from gpucomp.ir import Value
from gpucomp.ir import types as t


@translates("LayerNormalization", since=1, until=17)
@translates("LayerNormalization", since=1, domain=MICROSOFT)
def early_layer_normalization(
    x: Value,
    scale: Value,
    bias: Value | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    site: Site,
) -> tuple[Value, ...]:
    """onnxruntime writes it into models of opsets without LayerNormalization. ``x`` can have another type than the others."""
    x, wide = _widened(x, scale)
    bias = None if bias is None else cast(bias, wide.type.dtype)
    y, *statistics = layer_normalization(*(x, wide, bias), axis=axis, epsilon=epsilon, stash_type=stash_type, site=site)
    return cast(y, scale.type.dtype), *statistics


def _widened(x: Value, scale: Value) -> tuple[Value, Value]:
    """Both operands in the wider of their types, in which the norm is computed. The result has the type of ``scale``."""
    for operand in (x, scale):
        expect_floats(operand)
    kinds = {x.type.dtype, scale.type.dtype}
    dtype = x.type.dtype if len(kinds) == 1 else t.F64 if t.F64 in kinds else t.F32
    return cast(x, dtype), cast(scale, dtype)


@translates("SimplifiedLayerNormalization")
@translates("SimplifiedLayerNormalization", since=1, domain=MICROSOFT)
def simplified_layer_normalization(
    x: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, site: Site
) -> tuple[Value, ...]:
    """x / sqrt(mean of squares + epsilon) scale, and the reciprocal of the root. onnxruntime also uses the standard's domain.

    The floating-point type of ``x`` can differ from that of ``scale`` and the result.
    """
    place = axis_of(axis, len(x.shape))
    x, factor = _widened(x, scale)
    y = cast(ops.Mul(ops.RMSNorm(x, axis=place, epsilon=epsilon), factor), scale.type.dtype)
    if not site.wants(1):
        return (y,)
    return y, ops.InverseRMS(x, axis=place, epsilon=epsilon)


def _with_skip(x: Value, skip: Value, bias: Value | None) -> Value:
    total = ops.Add(x, skip)
    total = total if bias is None else ops.Add(total, bias)
    if total.shape != x.shape:
        raise ValueError(f"an addend that broadcasts to {x.type} expected, {skip.type} given")
    return total


def _of_rows(x: Value, skip: Value, *vectors: Value | None) -> None:
    """Raises ``ValueError`` unless the rows of ``x`` and ``skip`` have equal shapes, and ``vectors`` the length of a row."""
    if len(x.shape) not in (2, 3) or len(skip.shape) not in (2, 3) or skip.shape[-2:] != x.shape[-2:]:
        raise ValueError(f"an addend that broadcasts to {x.type} expected, {skip.type} given")
    if other := next((v for v in vectors if v is not None and v.shape != x.shape[-1:]), None):
        raise ValueError(f"{x.shape[-1]} elements expected, {other.type} given")


@translates("SkipLayerNormalization", since=1, domain=MICROSOFT)
def skip_layer_normalization(
    x: Value,
    skip: Value,
    gamma: Value,
    beta: Value | None = None,
    bias: Value | None = None,
    *,
    epsilon: float = 1e-12,
    site: Site,
) -> tuple[Value | None, ...]:
    """The layer norm of x + skip + bias, its statistics, and the sum."""
    _of_rows(x, skip, gamma, beta, bias)
    total = _with_skip(x, skip, bias)
    y, *statistics = layer_normalization(total, gamma, beta, axis=-1, epsilon=epsilon, stash_type=1, site=site)
    return y, *(statistics or (None, None)), total


@translates("SkipSimplifiedLayerNormalization", since=1, domain=MICROSOFT)
def skip_simplified_layer_normalization(
    x: Value, skip: Value, gamma: Value, bias: Value | None = None, *, epsilon: float = 1e-12, site: Site
) -> tuple[Value | None, ...]:
    _of_rows(x, skip, gamma, bias)
    total = _with_skip(x, skip, bias)
    y = ops.Mul(ops.RMSNorm(total, axis=len(x.shape) - 1, epsilon=epsilon), gamma)
    return y, None, None, total


@translates("EmbedLayerNormalization", since=1, domain=MICROSOFT)
def embed_layer_normalization(
    ids: Value,
    segments: Value | None,
    words: Value,
    positions: Value,
    segment_table: Value | None,
    gamma: Value,
    beta: Value,
    mask: Value | None = None,
    position_ids: Value | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
    site: Site,
) -> tuple[Value, ...]:
    """The layer norm of the sum of three embeddings of each word: word, position and segment.

    Other results: the number of words of each sentence that the mask keeps, i32[batch], and the sum.
    """
    if len(ids.shape) != 2 or (segments is None) != (segment_table is None):
        raise ValueError(f"[batch, length] expected, {ids.type} given, and segments with their table")
    batch, length = ids.shape
    total = ops.Gather(words, cast(ids, t.I64), axis=0)
    if position_ids is None:
        total = ops.Add(total, part(positions, 0, 0, length))
    else:
        total = ops.Add(total, ops.Gather(positions, cast(position_ids, t.I64), axis=0))
    if segments is not None and segment_table is not None:
        total = ops.Add(total, ops.Gather(segment_table, cast(segments, t.I64), axis=0))
    y = ops.Add(ops.Mul(ops.LayerNorm(total, axis=2, epsilon=epsilon), gamma), beta)
    if mask is None:
        kept = expand(scalar_of(t.I32, 0), (batch,))
    else:
        one = ops.Equal(mask, like(mask, 1))
        kept = ops.ReduceSum(cast(one, t.I32), axes=(1,), keepdims=False)
    return y, kept, total


@translates("GroupNorm", since=1, domain=MICROSOFT)
def group_norm(
    x: Value,
    gamma: Value,
    beta: Value,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
) -> Value:
    """The norm of each group of channels, followed by Swish if ``activation`` is 1."""
    if activation not in (0, 1):
        raise ValueError(f"activation 0 or 1 expected, {activation} given")
    first = to_channels_first(x) if channels_last else x
    rank, dtype = len(x.shape), x.type.dtype
    y = normalized_groups(first, groups, epsilon)
    y = ops.Add(ops.Mul(y, channels(cast(gamma, dtype), rank)), channels(cast(beta, dtype), rank))
    y = ops.Swish(y, alpha=1.0) if activation else y
    return to_channels_last(y) if channels_last else y


@translates("SkipGroupNorm", since=1, domain=MICROSOFT)
def skip_group_norm(
    x: Value,
    gamma: Value,
    beta: Value,
    skip: Value,
    bias: Value | None = None,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
) -> tuple[Value, Value]:
    """``skip`` is [N, H, W, C], or [N, 1, 1, C] or [N, C] for all pixels; ``bias`` is [C]."""
    if not channels_last:
        raise UnsupportedError("channels_last=0")
    skip = reshape(skip, (skip.shape[0], 1, 1, skip.shape[1])) if len(skip.shape) == 2 else skip
    total = _with_skip(x, skip, bias)
    y = group_norm(total, gamma, beta, activation=activation, epsilon=epsilon, groups=groups)
    return y, total
