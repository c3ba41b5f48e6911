"""A step's nodes in torch: the float64 reference of large kernels, and the rival that kernels are timed beside.

If torch has one function for several nodes, that one is used: for a convolution or a product with its bias, and a layer norm
with scale and shift. NHWC images are torch's channels_last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gpucomp.ir.graph import Node, Value, constant_value
from gpucomp.kernel.step import KernelStep


class UntranslatedError(ValueError):
    """An operator that this module cannot translate."""


Function = Callable[..., Any]


class Translated:
    """``step`` as a function of its inputs that are not constant; ``arguments`` are tensors to call it with.

    ``arrays`` are all inputs of the step, including constants; floats become ``dtype`` on ``device``. Raises
    ``UntranslatedError``.
    """

    def __init__(self, step: KernelStep, arrays: Sequence[np.ndarray], torch: Any, dtype: Any, device: str) -> None:
        self._torch, self._dtype, self._device = torch, dtype, device
        self._nodes = {*step.prologue, *step.nodes}
        self._constants = {v: a for v, a in zip(step.inputs, arrays, strict=True) if constant_value(v) is not None}
        changing = [(v, a) for v, a in zip(step.inputs, arrays, strict=True) if v not in self._constants]
        self._places: dict[Value, int] = {v: k for k, (v, _) in enumerate(changing)}
        self.arguments = [self._tensor(a) for _, a in changing]
        self._program: list[tuple[Function, tuple[int, ...]]] = []
        self._results = [self._place(v) for v in step.outputs]

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        values = list(inputs)
        for function, places in self._program:
            values.append(function(*(values[k] for k in places)))
        return tuple(values[k] for k in self._results)

    def _tensor(self, array: np.ndarray) -> Any:
        if array.dtype.kind not in "iub":
            # torch cannot read ml_dtypes' bfloat16; f32 holds all of its values
            wide = array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)
            return self._torch.from_numpy(np.array(wide)).to(self._device, self._dtype)
        return self._torch.from_numpy(np.array(array)).to(self._device)

    def _constant(self, value: Value) -> np.ndarray | None:
        return self._constants[value] if value in self._constants else constant_value(value)

    def _place(self, value: Value) -> int:
        """The index of the value among the program's results."""
        if value in self._places:
            return self._places[value]
        if (array := self._constant(value)) is not None:
            tensor = self._tensor(array)
            return self._put(value, lambda: tensor, ())
        if value.node not in self._nodes:
            raise UntranslatedError(f"{value!r} comes from outside of the kernel")
        function, operands = self._function(value.node)
        return self._put(value, function, operands)

    def _put(self, value: Value, function: Function, operands: Sequence[Value]) -> int:
        places = tuple(self._place(v) for v in operands)
        self._program.append((function, places))
        self._places[value] = len(self.arguments) + len(self._program) - 1
        return self._places[value]

    def _function(self, node: Node) -> tuple[Function, tuple[Value, ...]]:
        name, a = node.op.name, node.attrs
        if name in ("Conv", "MatMul"):
            return self._product(node, None)
        if name == "Add" and (found := self._with_bias(node)) is not None:
            return found
        if name in MAKERS:
            return MAKERS[name](self._torch, a, self._dtype), tuple(node.inputs)
        raise UntranslatedError(f"torch is not told what {name} is")

    def _with_bias(self, node: Node) -> tuple[Function, tuple[Value, ...]] | None:
        """An Add of a constant vector, fused into the function that makes the other operand."""
        for value, other in (node.inputs, reversed(node.inputs)):
            vector = self._constant(other)
            if vector is None or vector.ndim == 0 or vector.size != vector.shape[-1] or value.node not in self._nodes:
                continue
            if value.type.shape[-1] != vector.size or self._constant(value) is not None:
                continue
            inner = value.node
            if inner.op.name == "Conv" and inner.attrs.get("layout") == "NHWC":
                return self._product(inner, vector)
            if inner.op.name == "MatMul":
                return self._product(inner, vector)
            if inner.op.name == "Mul" and (scaled := self._scaled_norm(inner)) is not None:
                return self._norm(*scaled, vector)
        return None

    def _norm(self, node: Node, scale: np.ndarray, shift: np.ndarray) -> tuple[Function, tuple[Value, ...]]:
        layer_norm = self._torch.nn.functional.layer_norm
        weight, bias, epsilon = self._tensor(scale.reshape(-1)), self._tensor(shift.reshape(-1)), node.attrs["epsilon"]
        return (lambda x: layer_norm(x, (x.shape[-1],), weight, bias, epsilon)), (node.inputs[0],)

    def _scaled_norm(self, node: Node) -> tuple[Node, np.ndarray] | None:
        for value, other in (node.inputs, reversed(node.inputs)):
            scale = self._constant(other)
            last = value.type.shape and value.node.attrs.get("axis") == len(value.type.shape) - 1
            if scale is not None and value.node.op.name == "LayerNorm" and last and scale.size == value.type.shape[-1]:
                return value.node, scale
        return None

    def _product(self, node: Node, bias: np.ndarray | None) -> tuple[Function, tuple[Value, ...]]:
        torch, a = self._torch, node.attrs
        vector = None if bias is None else self._tensor(bias.reshape(-1))
        x, w = node.inputs
        if node.op.name == "MatMul":
            if vector is None:
                return torch.matmul, (x, w)
            if len(w.type.shape) == 2 and self._constant(w) is not None:
                weight = self._tensor(self._constant(w)).t()  # type: ignore[arg-type]
                return (lambda x: torch.nn.functional.linear(x, weight, vector)), (x,)
            return (lambda x, w: torch.matmul(x, w) + vector), (x, w)
        array = self._constant(w)
        if array is None or len(array.shape) != 4:
            raise UntranslatedError("a convolution whose weights are no constant, or not of two dimensions")
        nhwc = a.get("layout") == "NHWC"
        order = (3, 2, 0, 1) if nhwc else (0, 1, 2, 3)
        weight = self._tensor(array).permute(*order)
        weight = weight.contiguous(memory_format=torch.channels_last)
        top, left, bottom, right = a["pads"]
        pad = None if (top, left) == (bottom, right) else (left, right, top, bottom)
        how = {
            "stride": a["strides"],
            "dilation": a["dilations"],
            "groups": a["group"],
            "padding": (top, left) if pad is None else (0, 0),
        }

        def convolve(x: Any) -> Any:
            image = x.permute(0, 3, 1, 2) if nhwc else x
            if pad is not None:
                image = torch.nn.functional.pad(image, pad)
            y = torch.nn.functional.conv2d(image, weight, vector, **how)
            return y.permute(0, 2, 3, 1) if nhwc else y

        return convolve, (x,)


def _pool(torch: Any, a: Mapping[str, Any], dtype: Any) -> Function:
    top, left, bottom, right = a["pads"]
    size = tuple(a["out"])

    def pool(x: Any) -> Any:
        image = x.permute(0, 3, 1, 2) if a.get("layout") == "NHWC" else x
        pad = (top, left)
        need = [
            (o - 1) * s + (k - 1) * d + 1 - e
            for o, s, k, d, e in zip(size, a["strides"], a["kernel"], a["dilations"], image.shape[2:], strict=True)
        ]
        if (top, left) != (bottom, right) or any(n > 2 * p for n, p in zip(need, pad, strict=True)):
            below, beyond = max(bottom, need[0] - top), max(right, need[1] - left)
            image, pad = torch.nn.functional.pad(image, (left, beyond, top, below), value=float("-inf")), (0, 0)
        y = torch.nn.functional.max_pool2d(image, a["kernel"], a["strides"], pad, a["dilations"])
        y = y[:, :, : size[0], : size[1]]
        return y.permute(0, 2, 3, 1) if a.get("layout") == "NHWC" else y

    return pool


def _slice(torch: Any, a: Mapping[str, Any], dtype: Any) -> Function:
    if any(step < 1 for step in a["steps"]):
        raise UntranslatedError("a slice that walks backwards")
    parts = tuple(slice(b, b + n * s, s) for b, s, n in zip(a["starts"], a["steps"], a["sizes"], strict=True))
    return lambda x: x[parts]


def _layer_norm(torch: Any, a: Mapping[str, Any], dtype: Any) -> Function:
    return lambda x: torch.nn.functional.layer_norm(x, tuple(x.shape[a["axis"] :]), eps=a["epsilon"])


def _cast(torch: Any, a: Mapping[str, Any], dtype: Any) -> Function:
    if a["to"].is_float:
        return lambda x: x.to(dtype)
    kinds = {"i64": torch.int64, "i32": torch.int32, "bool": torch.bool}
    if a["to"].name not in kinds:
        raise UntranslatedError(f"torch is not told what a cast to {a['to']} is")
    return lambda x: x.to(kinds[a["to"].name])


def _attention(torch: Any, a: Mapping[str, Any], dtype: Any) -> Function:
    if a.get("causal") is not None:
        raise UntranslatedError("causal attention")
    attend, scale = torch.nn.functional.scaled_dot_product_attention, a.get("scale", 1.0)

    def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        if mask is not None and mask.dtype is torch.bool:
            mask = torch.where(mask, 0.0, a.get("masked", 0.0)).to(q.dtype)
        return attend(q, k, v, attn_mask=mask, scale=scale)

    return attention


MAKERS: dict[str, Callable[[Any, Mapping[str, Any], Any], Function]] = {
    "Add": lambda torch, a, dtype: torch.add,
    "Sub": lambda torch, a, dtype: torch.sub,
    "Mul": lambda torch, a, dtype: torch.mul,
    "Div": lambda torch, a, dtype: torch.div,
    "Relu": lambda torch, a, dtype: torch.relu,
    "Sigmoid": lambda torch, a, dtype: torch.sigmoid,
    "Tanh": lambda torch, a, dtype: torch.tanh,
    "Erf": lambda torch, a, dtype: torch.erf,
    "Clip": lambda torch, a, dtype: lambda x: torch.clamp(x, a["low"], a["high"]),
    "Gelu": lambda torch, a, dtype: lambda x: torch.nn.functional.gelu(x, approximate=a["approximate"]),
    "Softmax": lambda torch, a, dtype: lambda x: torch.softmax(x, a["axis"]),
    "LayerNorm": _layer_norm,
    "ReduceMean": lambda torch, a, dtype: lambda x: x.mean(dim=tuple(a["axes"]), keepdim=a["keepdims"]),
    "Transpose": lambda torch, a, dtype: lambda x: x.permute(*a["perm"]),
    "Reshape": lambda torch, a, dtype: lambda x: x.reshape(*a["shape"]),
    "Concat": lambda torch, a, dtype: lambda *xs: torch.cat(xs, dim=a["axis"]),
    "Gather": lambda torch, a, dtype: (
        lambda x, at: x.index_select(a["axis"], at.reshape(-1)).reshape(
            *x.shape[: a["axis"]], *at.shape, *x.shape[a["axis"] + 1 :]
        )
    ),
    "Slice": _slice,
    "Cast": _cast,
    "MaxPool": _pool,
    "Attention": _attention,
}
