"""Merges Pads into the operators that read them: Conv and AveragePool pad with zeros, MaxPool with minus infinity."""

from __future__ import annotations

import math

from gpucomp import ops
from gpucomp.ir.graph import Node, Value
from gpucomp.ir.size import at_most, is_zero
from gpucomp.rewrite.rule import rule


@rule(ops.Conv)
def pad_into_conv(node: Node) -> Value | None:
    """conv(pad(x, p, 0), w, pads=q)  ->  conv(x, w, pads=p + q), p on spatial axes only and not negative"""
    merged = _merged_pads(node, 0)
    return (
        None if merged is None else ops.Conv(node.inputs[0].inputs[0], node.inputs[1], **{**node.attrs, "pads": merged})
    )


@rule(ops.AveragePool)
def pad_into_average(node: Node) -> Value | None:
    """average(pad(x, p, 0), pads=q)  ->  average(x, pads=p + q, count_include_pad), if q is zero or counted too"""
    if not all(map(is_zero, node.attrs["pads"])) and not node.attrs.get("count_include_pad", False):
        return None
    merged = _merged_pads(node, 0)
    if merged is None:
        return None
    return ops.AveragePool(node.inputs[0].inputs[0], **{**node.attrs, "pads": merged, "count_include_pad": True})


@rule(ops.MaxPool)
def pad_into_max(node: Node) -> Value | None:
    """max_pool(pad(x, p, -inf), pads=q)  ->  max_pool(x, pads=p + q)     (a pad of 0 is a candidate for the maximum)"""
    merged = _merged_pads(node, -math.inf)
    return None if merged is None else ops.MaxPool(node.inputs[0].inputs[0], **{**node.attrs, "pads": merged})


def _merged_pads(node: Node, value: float) -> tuple[int, ...] | None:
    """The pads of ``node`` plus those of the Pad before it, if that Pad pads spatial axes only, with ``value``."""
    padded = node.inputs[0]
    if padded.op is not ops.Pad or padded.attrs.get("mode", "constant") != "constant":
        return None
    if padded.attrs.get("value", 0) != value:
        return None
    rank = padded.type.rank
    first = 1 if node.attrs.get("layout", "NCHW") == "NHWC" else 2
    begins, ends = padded.attrs["pads"][:rank], padded.attrs["pads"][rank:]
    spatial = slice(first, first + rank - 2)
    inner = (*begins[spatial], *ends[spatial])
    others = [pad for side in (begins, ends) for axis, pad in enumerate(side) if axis not in range(rank)[spatial]]
    if not all(map(is_zero, others)) or not all(at_most(0, pad) for pad in inner):
        return None
    return tuple(a + b for a, b in zip(inner, node.attrs["pads"], strict=True))


RULES = (pad_into_conv, pad_into_average, pad_into_max)
