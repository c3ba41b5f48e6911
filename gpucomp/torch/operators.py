"""Operators and tensors that stay in eager, and why."""

from __future__ import annotations

import torch
from torch import fx

from gpucomp.frontend.foreign.torch_exporter import LIFTED, pieces
from gpucomp.frontend.foreign.translations import draws, leaves, operator_name, other_in_onnx, place_of
from gpucomp.lazy_dataclass import dataclass

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


def refused(node: fx.Node) -> Missing | None:
    """Why the operator of ``node`` cannot be right when it is compiled; ``None`` if it can be."""
    if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
        if draws(node):
            return Missing.of(node, "it draws random numbers, which must be those of torch's generator")
        if node.target._schema.is_mutable:
            return Missing.of(node, "it writes into an argument")
    if node.op == "call_function" and (why := other_in_onnx(node)):
        return Missing.of(node, why)
    for value in leaves(node.meta.get("val")):
        if isinstance(value, torch.Tensor) and (why := tensor_objection(value)):
            return Missing.of(node, why)
    values = [node.meta.get("val"), *(one.meta.get("val") for one in node.all_input_nodes)]
    if any(map(_unbacked, leaves(values))):
        return Missing.of(node, "a size that depends on values")
    return None


def missing(node: fx.Node) -> Missing | None:
    """Why the operator of ``node`` cannot be compiled; ``None`` if nothing is known against it."""
    if found := refused(node):
        return found
    target = node.target
    if node.op == "call_function" and isinstance(target, torch._ops.OpOverload):
        if target not in LIFTED and not pieces().registry.is_registered(target):
            return Missing.of(node, "torch's exporter has no translation to ONNX")
    elif node.op in ("call_module", "call_method") or isinstance(target, torch._ops.HigherOrderOperator):
        return Missing.of(node, "it is not an operator of ATen")
    return None


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
