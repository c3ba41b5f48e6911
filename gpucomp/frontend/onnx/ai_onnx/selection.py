"""Translators of operators whose results have data-dependent lengths. The lengths are known once the values are."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.compose import axis_of, cast, part, reshape, scalar, static
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Op, Value, constant, constant_value, spend
from gpucomp.ir import types as t
from gpucomp.ops.interpreter import evaluate

ELEMENTS_A_UNIT = 10  # elements sorted per microsecond
PAIRS_A_UNIT = 100  # pairs of boxes compared per microsecond
BOX_EFFORT = 5  # additional microseconds per box


def _made(op: Op, *operands: Value, **attrs: Any) -> tuple[Value, ...]:
    """The results of a node. If its operands are constants, so are its results, so that their lengths are known."""
    node = op.node(*operands, **attrs)
    if any(constant_value(v) is None for v in operands):
        return node.values
    spend(sum(v.type.size for v in operands) // ELEMENTS_A_UNIT)
    return tuple(constant(np.array(a)) for a in evaluate(node.values, {}))


def _count(x: Value) -> int:
    """The number of elements of ``x`` that are not 0."""
    array = constant_value(x)
    if array is not None:
        return int(np.count_nonzero(array))
    if x.type.dtype is t.STRING:
        zero = ops.StringEqual(x, constant(np.array("", object)))
    else:
        zero = ops.Equal(x, constant(np.zeros((), x.type.dtype.numpy)))
    others = ops.ReduceSum(cast(ops.Not(zero), t.I64), axes=tuple(range(x.type.rank)), keepdims=False)
    return int(static(others, "operand"))


@translates("NonZero", since=9)
def non_zero(x: Value) -> Value:
    (places,) = _made(ops.NonZero, x, count=_count(x))
    return places


@translates("Compress", since=9)
def compress(x: Value, condition: Value, *, axis: int | None = None) -> Value:
    if axis is None:
        x, axis = reshape(x, (x.type.size,)), 0
    axis = axis_of(axis, len(x.shape))
    longest = min(condition.type.size, x.shape[axis])
    kept = static(condition, "condition") if condition.type.size > longest else None
    if kept is not None and kept[longest:].any():
        raise ValueError(
            f"a condition that is true only for the first {x.shape[axis]} elements expected, the length of the axis"
        )
    condition = part(condition, 0, 0, longest) if kept is None else constant(kept[:longest].copy())
    (places,) = _made(ops.NonZero, condition, count=_count(condition))
    return ops.Gather(x, reshape(places, (places.type.size,)), axis=axis)


@translates("Unique", since=11)
def unique(x: Value, *, axis: int | None = None, sorted: int) -> tuple[Value, ...]:
    place = None if axis is None else axis_of(axis, len(x.shape))
    values, first, inverse, counts, total = _made(ops.Unique, x, axis=place, sorted=bool(sorted))
    count = int(static(total, "operand"))
    return part(values, place or 0, 0, count), part(first, 0, 0, count), inverse, part(counts, 0, 0, count)


@translates("NonMaxSuppression", since=10)
def non_max_suppression(
    boxes: Value,
    scores: Value,
    max_output_boxes_per_class: Value | None = None,
    iou_threshold: Value | None = None,
    score_threshold: Value | None = None,
    *,
    center_point_box: int,
) -> Value:
    limit = 0 if max_output_boxes_per_class is None else int(scalar(max_output_boxes_per_class, "limit"))
    overlap = 0.0 if iou_threshold is None else float(scalar(iou_threshold, "iou_threshold"))
    least = None if score_threshold is None else float(scalar(score_threshold, "score_threshold"))
    size, kept_at_most = scores.type.size, min(max(limit, 0), scores.shape[-1] if scores.shape else 0)
    known = constant_value(boxes) is not None and constant_value(scores) is not None
    if known and (size > 1 << 16 or size * kept_at_most > 1 << 24):
        raise UnsupportedError(f"{size} constant scores are too many to compute at compile time", code="GPC4008")
    spend(size * BOX_EFFORT + size * kept_at_most // PAIRS_A_UNIT if known else 0)
    kept, kept_count = _made(
        ops.NonMaxSuppression,
        boxes,
        scores,
        limit=limit,
        overlap=overlap,
        least=least,
        centred=bool(center_point_box),
    )
    return part(kept, 0, 0, int(static(kept_count, "boxes")))
