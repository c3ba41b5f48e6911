"""Operators and tensors that stay in eager, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

_PLACE = re.compile(r'File "([^"]+)", line (\d+)')
# these draw random numbers only where all of these arguments say so: name, position, and the value that says no
_Switch = tuple[str, int, float]
_RECURRENT: tuple[_Switch, ...] = (("dropout", 5, 0.0), ("train", 6, False))
_DRAWS_IF: dict[str, tuple[_Switch, ...]] = {
    "aten.scaled_dot_product_attention.default": (("dropout_p", 4, 0.0),),
    "aten.dropout.default": (("p", 1, 0.0), ("train", 2, False)),
    "aten.native_dropout.default": (("p", 1, 0.0), ("train", 2, False)),
    "aten.feature_dropout.default": (("p", 1, 0.0), ("train", 2, False)),
    "aten.alpha_dropout.default": (("p", 1, 0.0), ("train", 2, False)),
    "aten.rrelu.default": (("training", 3, False),),
    "aten.lstm.input": _RECURRENT,
    "aten.gru.input": _RECURRENT,
    "aten.rnn_tanh.input": _RECURRENT,
    "aten.rnn_relu.input": _RECURRENT,
}
KNOWN = {
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
}


@dataclass(frozen=True)
class Missing:
    """An operator that was not compiled: its name, why, and the line of the user's code that called it, or ""."""

    operator: str
    why: str
    where: str = ""

    @staticmethod
    def of(node: fx.Node, why: str) -> Missing:
        return Missing(operator_name(node), why, place_of(node))

    def __str__(self) -> str:
        at = f" at {self.where}" if self.where else ""
        return f"{self.operator}{at}: {self.why}"


def operator_name(node: fx.Node) -> str:
    """``aten.relu.default``, as the graph prints it."""
    target = node.target
    return target if isinstance(target, str) else str(getattr(target, "__name__", target) if _plain(target) else target)


def _plain(target: Any) -> bool:
    return not isinstance(target, torch._ops.OpOverload)


def place_of(node: fx.Node) -> str:
    """``FILE:LINE`` of the call that made the node; the innermost one that is not in a package is not known here."""
    found = _PLACE.findall(node.meta.get("stack_trace") or "")
    return "{}:{}".format(*found[-1]) if found else ""


def refused(node: fx.Node) -> Missing | None:
    """Why the operator of ``node`` cannot be right when it is compiled; ``None`` if it can be."""
    if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
        if torch.Tag.nondeterministic_seeded in node.target.tags and _draws(node):
            return Missing.of(node, "it draws random numbers, which must be those of torch's generator")
        if node.target._schema.is_mutable:
            return Missing.of(node, "it writes into an argument")
        if why := _other_in_onnx(node):
            return Missing.of(node, why)
    for value in _leaves(node.meta.get("val")):
        if isinstance(value, torch.Tensor) and (why := tensor_objection(value)):
            return Missing.of(node, why)
        if _unbacked(value):
            return Missing.of(node, "a size that depends on values")
    return None


def _other_in_onnx(node: fx.Node) -> str:
    """Why the operator's translation computes something else; "" if nothing is known against it."""
    name, args = str(node.target), node.args
    if name.startswith("aten.avg_pool") and len(args) > 6 and args[6] is not None:
        return "torch's exporter leaves out divisor_override"
    if name == "aten.scatter_reduce.two" and args[4] == "mean":
        return "ONNX has no mean of what is scattered"
    if name.startswith("aten._upsample_") and "_aa." in name:
        return "ONNX's Resize has other antialiasing filters"
    if name.startswith("aten.upsample_") and name.endswith(".vec"):
        scales = args[-1] if isinstance(args[-1], list | tuple) and len(args) > 2 and args[1] is None else ()
        whole = all(isinstance(scale, int | float) and scale == int(scale) for scale in scales)
        if not whole and ("nearest" in name or args[2] is True):
            return "ONNX's Resize rounds other places for a scale that is no whole number"
    return ""


def _draws(node: fx.Node) -> bool:
    def given(switch: _Switch) -> object:
        name, position, no = switch
        return node.args[position] if len(node.args) > position else node.kwargs.get(name, no)

    return all(given(switch) != switch[2] for switch in _DRAWS_IF.get(str(node.target), ()))


def _leaves(value: object) -> list[object]:
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, list | tuple) else [value]


def _unbacked(value: object) -> bool:
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    found = (s for s in sizes if isinstance(s, torch.SymInt | torch.SymFloat | torch.SymBool))
    return any(symbol.name.startswith(("u", "zuf")) for s in found for symbol in s.node.expr.free_symbols)


def tensor_objection(tensor: torch.Tensor) -> str:
    """Why a tensor can be neither an input nor a result; "" if it can be."""
    if tensor.dtype not in KNOWN:
        return f"element type {str(tensor.dtype).removeprefix('torch.')}"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {str(tensor.layout).removeprefix('torch.')}"
    if tensor.device.type not in ("cpu", "cuda"):
        return f"a tensor on {tensor.device}"
    return ""
