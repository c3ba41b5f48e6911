"""What torch's exporter translates to another computation, or to one that another generator of random numbers drives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import fx

_PLACE = re.compile(r'File "([^"]+)", line (\d+)')
# these draw random numbers only where all of these arguments say so: name, position, and the value that says no
_Switch = tuple[str, int, float]
_RECURRENT: tuple[_Switch, ...] = (("dropout", 5, 0.0), ("train", 6, False))
_DROPOUT: tuple[_Switch, ...] = (("p", 1, 0.0), ("train", 2, False))
_DRAWS_IF: dict[str, tuple[_Switch, ...]] = {
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
    return all(_given(node, name, place, no) != no for name, place, no in _DRAWS_IF.get(str(node.target), ()))


def trains(node: fx.Node) -> bool:
    """Whether an operator is a batch normalization by the batch's own statistics."""
    return str(node.target) in _BATCH_NORMS and _given(node, "training", 5, False) is not False


def other_in_onnx(node: fx.Node) -> str:
    """Why the operator's translation computes something else; "" if nothing is known against it."""
    name = str(node.target)
    if name.startswith("aten.avg_pool") and _given(node, "divisor_override", 6, None) is not None:
        return "torch's exporter leaves out divisor_override"
    if name == "aten.scatter_reduce.two" and _given(node, "reduce", 4, "") == "mean":
        return "ONNX has no mean of what is scattered"
    if name.startswith("aten._upsample_") and "_aa." in name:
        return "ONNX's Resize has other antialiasing filters"
    if name.startswith("aten.upsample_") and name.endswith(".vec"):
        scales: Any = node.kwargs.get("scale_factors", node.args[-1])
        by_scale = isinstance(scales, list | tuple) and _given(node, "output_size", 1, None) is None
        whole = not by_scale or all(isinstance(scale, int | float) and scale == int(scale) for scale in scales)
        if not whole and ("nearest" in name or _given(node, "align_corners", 2, False) is True):
            return "ONNX's Resize rounds other places for a scale that is no whole number"
    return ""


def _given(node: fx.Node, name: str, position: int, default: Any) -> Any:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)
