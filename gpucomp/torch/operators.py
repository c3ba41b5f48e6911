"""Operators and tensors that stay in eager, and why."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
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


# operators of which torch's exporter has another one
_OTHERS = {
    "aten.erfc.default": "1 - erf(x) has no digits left where it is small",
    "aten.special_erfc.default": "1 - erf(x) has no digits left where it is small",
    "aten.logcumsumexp.default": "torch's exporter takes the largest number of all, not of those so far",
}
# of f64, what is right in it. The exporter writes numbers as f32, and computes some operators in it
_WIDE = frozenset(
    (
        *(
            "abs",
            "add",
            "ceil",
            "clamp",
            "clone",
            "cos",
            "div",
            "exp",
            "floor",
            "log",
            "maximum",
            "minimum",
            "mul",
            "neg",
        ),
        *("reciprocal", "relu", "round", "rsqrt", "rsub", "sigmoid", "sin", "sqrt", "sub", "tanh", "trunc", "where"),
        *("_to_copy", "eq", "ge", "gt", "le", "lt", "ne", "logical_and", "logical_not", "logical_or"),
        *("bitwise_and", "bitwise_not", "bitwise_or"),
    )
)
_NEAREST = re.compile(r"aten\.upsample_nearest\dd\.vec")
MOST_LOOKED_AT = 1 << 16  # places along an axis


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
    if node.target is operator.floordiv and _may_be_negative(node.args[0]):
        return Missing.of(node, "ONNX rounds quotients of whole numbers towards 0")
    for value in _leaves(node.meta.get("val")):
        if isinstance(value, torch.Tensor) and (why := tensor_objection(value)):
            return Missing.of(node, why)
    values = [node.meta.get("val"), *(one.meta.get("val") for one in node.all_input_nodes)]
    if any(map(_unbacked, _leaves(values))):
        return Missing.of(node, "a size that depends on values")
    return None


def _may_be_negative(number: Any) -> bool:
    value = number.meta.get("val") if isinstance(number, fx.Node) else number
    if isinstance(value, torch.SymInt):
        return bool(value.node.shape_env.bound_sympy(value.node.expr).lower < 0)
    return not isinstance(value, int) or value < 0


def _other_in_onnx(node: fx.Node) -> str:
    """Why the operator's translation computes something else; "" if nothing is known against it."""
    name, args = str(node.target), node.args
    if name in _OTHERS:
        return _OTHERS[name]
    if name.startswith("aten.avg_pool") and len(args) > 6 and args[6] is not None:
        return "torch's exporter leaves out divisor_override"
    if name == "aten.scatter_reduce.two" and args[4] == "mean":
        return "ONNX has no mean of what is scattered"
    if name == "aten.as_strided.default" and not _tensor(args[0]).is_contiguous():
        return "torch's exporter takes steps in the order of the axes, and the tensor has another one in memory"
    if name.startswith("aten.mean.") and node.kwargs.get("dtype") not in (None, _tensor(args[0]).dtype):
        return "torch's exporter leaves out dtype"
    if name in ("aten.__lshift__.Scalar", "aten.__rshift__.Scalar", "aten.bitwise_left_shift.Tensor") and _unsigned(
        node
    ):
        return "torch's exporter shifts signed numbers"
    if name == "aten.instance_norm.default" and args[3] is not None and args[5]:
        return "it writes its statistics, which its declaration does not say"
    return _rounded_scale(name, args) or _nearest(name, args) or _narrowed(node)


def _tensor(node: Any) -> torch.Tensor:
    found: torch.Tensor = node.meta["val"]
    return found


def _unsigned(node: fx.Node) -> bool:
    return any(not one.meta["val"].dtype.is_signed for one in node.all_input_nodes if _is_tensor(one.meta.get("val")))


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _rounded_scale(name: str, args: Sequence[Any]) -> str:
    if name.startswith("aten._upsample_") and "_aa." in name:
        return "ONNX's Resize has other antialiasing filters"
    if name.startswith("aten.upsample_") and name.endswith(".vec"):
        scales = args[-1] if isinstance(args[-1], list | tuple) and len(args) > 2 and args[1] is None else ()
        whole = all(isinstance(scale, int | float) and scale == int(scale) for scale in scales)
        if not whole and ("nearest" in name or args[2] is True):
            return "ONNX's Resize rounds other places for a scale that is no whole number"
    return ""


def _nearest(name: str, args: Sequence[Any]) -> str:
    """Torch computes places in f32: aten/src/ATen/native/UpSample.h, nearest_neighbor_compute_source_index."""
    if not _NEAREST.fullmatch(name) or args[1] is None:
        return ""
    for before, size in zip(_tensor(args[0]).shape[2:], args[1], strict=True):
        after = size.meta["val"] if isinstance(size, fx.Node) else size
        if isinstance(before, int) and isinstance(after, int):
            places = torch.arange(min(after, MOST_LOOKED_AT))
            scale = torch.tensor(before, dtype=torch.float32) / after
            alike = torch.equal((places * scale).floor().long().clamp(max=before - 1), places * before // after)
        else:
            alike = _is_doubled(before, after)
        if not alike:
            return "torch computes the nearest places in f32, and ONNX's Resize others for these sizes"
    return ""


def _is_doubled(before: Any, after: Any) -> bool:
    """Whether a size is a power of two times another: then f32 has the scale as it is."""
    first, second = (size.node.expr if isinstance(size, torch.SymInt) else size for size in (before, after))
    ratio = second / first
    return bool(ratio.is_Integer) and int(ratio).bit_count() == 1


def _narrowed(node: fx.Node) -> str:
    """Why a result in f64 would have numbers of f32 in it."""
    values = [one.meta.get("val") for one in node.all_input_nodes] + _leaves(node.meta.get("val"))
    if not any(isinstance(value, torch.Tensor) and value.dtype is torch.float64 for value in values):
        return ""
    target: Any = node.target
    name = target._schema.name.partition("::")[2]
    if torch.Tag.pointwise in target.tags and name not in _WIDE:
        return "torch's exporter computes it in f32"
    numbers = [one for one in _leaves([*node.args, *node.kwargs.values()]) if isinstance(one, float)]
    if name in ("linspace", "logspace") or any(one == one and float(np.float32(one)) != one for one in numbers):
        return "torch's exporter has numbers in f32"
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
