"""What torch's exporter translates to another computation, or to one that another generator of random numbers drives."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import fx

from gpucomp.frontend.foreign.fx_graphs import is_whole

_PLACE = re.compile(r'File "([^"]+)", line (\d+)')
# these draw random numbers only where all of these arguments say so: name, position, and the value that says no
_Switch = tuple[str, int, float]
_RECURRENT: tuple[_Switch, ...] = (("dropout", 5, 0.0), ("train", 6, False))
_DROPOUT: tuple[_Switch, ...] = (("p", 1, 0.0), ("train", 2, False))
DRAWS_IF: dict[str, tuple[_Switch, ...]] = {
    "aten.scaled_dot_product_attention.default": (("dropout_p", 4, 0.0),),
    "aten.native_dropout.default": _DROPOUT,
    **{
        f"aten.{kind}dropout{in_place}.default": _DROPOUT
        for kind in ("", "feature_", "alpha_", "feature_alpha_")
        for in_place in ("", "_")
    },
    "aten.rrelu.default": (("training", 3, False),),
    "aten.rrelu_.default": (("training", 3, False),),
    "aten.lstm.input": _RECURRENT,
    "aten.gru.input": _RECURRENT,
    "aten.rnn_tanh.input": _RECURRENT,
    "aten.rnn_relu.input": _RECURRENT,
}
# the exporter translates these as if they were not in training
_BATCH_NORMS = (
    "aten.batch_norm.default",
    "aten.native_batch_norm.default",
    "aten.cudnn_batch_norm.default",
    "aten._native_batch_norm_legit.default",
    "aten._native_batch_norm_legit_functional.default",
)

# operators of which torch's exporter has another one
_OTHERS = {
    "aten.erfc.default": "1 - erf(x) has no digits left where it is small",
    "aten.special_erfc.default": "1 - erf(x) has no digits left where it is small",
    "aten.special_erfcx.default": "exp(x * x) is infinite, and erfc(x) is 0, before their product is",
    "aten.special_log_ndtr.default": "it has no digits left where the integral is small",
    "aten.logcumsumexp.default": "torch's exporter takes the largest number of all, not of those so far",
}
# of f64, what is right in it. The exporter writes numbers as f32, and computes some operators in it
_WIDE = {
    *(
        "abs",
        "add",
        "bitwise_and",
        "bitwise_not",
        "bitwise_or",
        "ceil",
        "clamp",
        "clone",
        "cos",
        "div",
        "eq",
        "exp",
        "floor",
    ),
    *(
        "ge",
        "gt",
        "le",
        "log",
        "logical_and",
        "logical_not",
        "logical_or",
        "lt",
        "maximum",
        "minimum",
        "mul",
        "ne",
        "neg",
    ),
    *(
        "reciprocal",
        "relu",
        "round",
        "rsqrt",
        "rsub",
        "sigmoid",
        "sin",
        "sqrt",
        "sub",
        "tanh",
        "trunc",
        "where",
        "_to_copy",
    ),
}
_NEAREST = re.compile(r"aten\.upsample_nearest\dd\.vec")
_SHIFTS = re.compile(r"aten\.(?:__[lr]shift__|bitwise_(?:left|right)_shift)\.\w+")
MOST_LOOKED_AT = 1 << 16  # places along an axis


def operator_name(node: fx.Node) -> str:
    """``aten.relu.default``, as the graph prints it."""
    target: Any = node.target
    if isinstance(target, str) or hasattr(target, "_schema"):
        return str(target)
    return str(getattr(target, "__name__", target))


def place_of(node: fx.Node) -> str:
    """``FILE:LINE`` of the call that made the node; the innermost one that is not in a package is not known here."""
    found = _PLACE.findall(node.meta.get("stack_trace") or "")
    return "{}:{}".format(*found[-1]) if found else ""


def draws(node: fx.Node) -> bool:
    """Whether an operator of ATen draws random numbers, which must be those of torch's generator."""
    if "nondeterministic_seeded" not in {tag.name for tag in getattr(node.target, "tags", ())}:
        return False
    return all(_given(node, name, place, no) != no for name, place, no in DRAWS_IF.get(str(node.target), ()))


def trains(node: fx.Node) -> bool:
    """Whether an operator is a batch normalization by the batch's own statistics."""
    return str(node.target) in _BATCH_NORMS and _given(node, "training", 5, False) is not False


def other_in_onnx(node: fx.Node) -> str:
    """Why the operator's translation computes something else; "" if nothing is known against it."""
    name = str(node.target)
    if name in _OTHERS:
        return _OTHERS[name]
    if node.target is operator.floordiv and any(map(_may_be_negative, node.args)):
        return "ONNX rounds quotients of whole numbers towards 0"
    if name.startswith("aten.avg_pool") and _given(node, "divisor_override", 6, None) is not None:
        return "torch's exporter leaves out divisor_override"
    if name == "aten.scatter_reduce.two":
        return _scattered(node)
    if name.startswith("aten.linspace.") and not _tensor(node).dtype.is_floating_point:
        return "torch's exporter rounds each step to a whole number"
    if name == "aten.as_strided.default" and not _is_all_in_order(node):
        return "torch's exporter takes steps in the order of the axes, and the tensor's memory has another one, or more in it"
    if name.startswith("aten.mean.") and node.kwargs.get("dtype") not in (None, _tensor(node.args[0]).dtype):
        return "torch's exporter leaves out dtype"
    if _SHIFTS.fullmatch(name) and any(not dtype.is_signed for dtype in _types(node.all_input_nodes)):
        return "torch's exporter shifts signed numbers"
    writes = _given(node, "use_input_stats", 5, True) and _given(node, "running_mean", 3, None) is not None
    if name == "aten.instance_norm.default" and writes:
        return "it writes its statistics, which its declaration does not say"
    return _rounded_scale(node, name) or _nearest(node, name) or _narrowed(node)


def _tensor(node: Any) -> torch.Tensor:
    found: torch.Tensor = node.meta["val"]
    return found


def _types(nodes: Iterable[fx.Node]) -> list[torch.dtype]:
    values = [value for node in nodes for value in leaves(node.meta.get("val"))]
    return [value.dtype for value in values if isinstance(value, torch.Tensor)]


def leaves(value: object) -> list[Any]:
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, list | tuple) else [value]


def _scattered(node: fx.Node) -> str:
    how = _given(node, "reduce", 4, "")
    if how == "mean":
        return "ONNX has no mean of what is scattered"
    alone = not _given(node, "include_self", 5, True) and _tensor(node).dtype.is_floating_point
    if alone and how in ("amax", "amin"):
        return "torch's exporter begins at the largest finite number, which an infinite one is beyond"
    return ""


def _is_all_in_order(node: fx.Node) -> bool:
    """Whether steps in the memory of an ``as_strided`` are steps in its tensor."""
    source: Any = node.args[0]
    if _given(node, "storage_offset", 3, None) is not None and source.op == "placeholder":
        return False  # a call may give a part of another tensor, of which the offset is one
    return _tensor(source).is_contiguous() and is_whole(_tensor(source))


def _may_be_negative(number: Any) -> bool:
    value = number.meta.get("val") if isinstance(number, fx.Node) else number
    if isinstance(value, torch.SymInt):
        return bool(value.node.shape_env.bound_sympy(value.node.expr).lower < 0)
    return not isinstance(value, int) or value < 0


def _rounded_scale(node: fx.Node, name: str) -> str:
    if name.startswith("aten._upsample_") and "_aa." in name:
        return "ONNX's Resize has other antialiasing filters"
    if name.startswith("aten.upsample_") and name.endswith(".vec"):
        scales: Any = node.kwargs.get("scale_factors", node.args[-1])
        by_scale = isinstance(scales, list | tuple) and _given(node, "output_size", 1, None) is None
        whole = not by_scale or all(isinstance(scale, int | float) and scale == int(scale) for scale in scales)
        if not whole and ("nearest" in name or _given(node, "align_corners", 2, False) is True):
            return "ONNX's Resize rounds other places for a scale that is no whole number"
    return ""


def _nearest(node: fx.Node, name: str) -> str:
    """Torch computes places in f32: aten/src/ATen/native/UpSample.h, nearest_neighbor_compute_source_index."""
    if not _NEAREST.fullmatch(name):
        return ""
    sizes, scales = (_given(node, *which, None) for which in (("output_size", 1), ("scale_factors", 2)))
    for before, given in zip(_tensor(node.args[0]).shape[2:], sizes or scales, strict=True):
        after = given.meta["val"] if hasattr(given, "meta") else given
        if sizes is None:
            last = before * int(given) if isinstance(before, int) else MOST_LOOKED_AT
            alike = _are_places(last, 1, int(given))
        elif isinstance(before, int) and isinstance(after, int):
            alike = _are_places(after, before, after)
        else:
            alike = _is_doubled(before, after)
        if not alike:
            return "torch computes the nearest places in f32, and ONNX's Resize others for these sizes"
    return ""


def _are_places(last: int, before: int, after: int) -> bool:
    """Whether the first ``last`` places times ``before / after`` are the same in f32 as in whole numbers."""
    places = torch.arange(min(last, MOST_LOOKED_AT))
    exact = places * before // after
    found = (places * float(np.float32(before / after))).floor().long()
    return torch.equal(found.clamp(max=int(exact.max()) if len(exact) else 0), exact)


def _is_doubled(before: Any, after: Any) -> bool:
    """Whether a size is a power of two times another: then f32 has the scale as it is."""
    first, second = (size.node.expr if isinstance(size, torch.SymInt) else size for size in (before, after))
    ratio = second / first
    return bool(ratio.is_Integer) and int(ratio).bit_count() == 1


def _narrowed(node: fx.Node) -> str:
    """Why a result in f64 would have numbers of f32 in it."""
    target: Any = node.target
    if not hasattr(target, "_schema") or torch.float64 not in _types([node, *node.all_input_nodes]):
        return ""
    name = target._schema.name.partition("::")[2].removesuffix("_")
    if torch.Tag.pointwise in target.tags and name not in _WIDE:
        return "torch's exporter computes it in f32"
    numbers = [one for one in leaves([*node.args, *node.kwargs.values()]) if isinstance(one, float)]
    if name in ("linspace", "logspace") or any(one == one and float(np.float32(one)) != one for one in numbers):
        return "torch's exporter has numbers in f32"
    return ""


def _given(node: fx.Node, name: str, position: int, default: Any) -> Any:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)
