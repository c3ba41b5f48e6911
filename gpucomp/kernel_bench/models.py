"""A kernel as an ONNX model, which gpucomp and onnxruntime read: one operator, with its bias and activation behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gpucomp.ir.types import NAMED
from gpucomp.kernel_bench.reference import EPSILON, W_SCALE, X_SCALE, ZERO, result_scale
from gpucomp.kernel_bench.specs import Spec, filters_of, in_whole_numbers, result_shape

if TYPE_CHECKING:
    import onnx

IR_VERSION, OPSET = 11, 23  # the first with Attention and RMSNormalization
BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div"}
ACTIVATIONS = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "gelu": "Gelu"}
REDUCTIONS = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}
MICROSOFT = "com.microsoft"
WEIGHTS = ("b", "w", "scale", "bias", "mean", "var")
RESULT = "result"


def constants(spec: Spec, names: Any) -> list[str]:
    """Which operands are constants of the model: weights, if ``weights=constant``, and the parameters of norms."""
    if spec.values.get("weights", "constant") == "input" or spec.kind == "batched_gemm":
        return []
    return [name for name in names if name in WEIGHTS]


class _Model:
    def __init__(self, spec: Spec, arrays: Mapping[str, np.ndarray]) -> None:
        self.spec, self.arrays = spec, arrays
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Append a node: its result."""
        from onnx import helper

        name = f"value_{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, inputs, [name], name=f"{operator}_{len(self.nodes)}", **attributes)
        )
        return name

    def constant(self, name: str, array: np.ndarray) -> str:
        from onnx import numpy_helper

        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def activated(self, value: str, name: str) -> str:
        if name == "silu":
            return self.node("Mul", value, self.node("Sigmoid", value))
        return self.node(ACTIVATIONS[name], value) if name != "none" else value

    def finished(self) -> onnx.ModelProto:
        """The model whose result is that of the last node."""
        from onnx import helper

        kept = constants(self.spec, self.arrays)
        for name in kept:
            self.constant(name, self.arrays[name])

        def info(name: str, dtype: np.dtype[Any], shape: Any) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)

        self.nodes[-1].output[0] = RESULT
        graph = helper.make_graph(
            self.nodes,
            "kernel",
            [info(name, array.dtype, array.shape) for name, array in self.arrays.items() if name not in kept],
            [info(RESULT, result_type(self.spec), result_shape(self.spec))],
            self.weights,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        if any(node.domain for node in self.nodes):
            opsets.append(helper.make_opsetid(MICROSOFT, 1))
        return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opsets)


def result_type(spec: Spec) -> np.dtype[Any]:
    if spec.dtype == "i8":
        return np.dtype(np.int32 if in_whole_numbers(spec) else np.uint8)
    return NAMED[spec.dtype].numpy


def model(spec: Spec, arrays: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The kernel for operands like ``arrays``, and with those of them that are constants."""
    made = _Model(spec, arrays)
    match spec.kind:
        case "gemm" | "batched_gemm":
            _product(made, spec)
        case "nbits_gemm":
            how = {"K": spec.k, "N": spec.n, "bits": int(spec.bits), "block_size": spec.block}
            made.node("MatMulNBits", "a", "b", "scale", domain=MICROSOFT, **how)
        case "conv" | "depthwise":
            _convolution(made, spec)
        case "max_pool" | "avg_pool":
            kind = "MaxPool" if spec.kind == "max_pool" else "AveragePool"
            made.node(kind, "x", kernel_shape=(spec.r, spec.s), **_window(spec))
        case "attention":
            made.node("Attention", "q", "k", "v", is_causal=int(spec.causal))
        case "softmax":
            made.node("Softmax", "x", axis=-1)
        case "layer_norm":
            made.node("LayerNormalization", "x", "scale", "bias", axis=-1, epsilon=EPSILON)
        case "rms_norm":
            made.node("RMSNormalization", "x", "scale", axis=-1, epsilon=EPSILON)
        case "group_norm":
            made.node("GroupNormalization", "x", "scale", "bias", num_groups=spec.groups, epsilon=EPSILON)
        case "batch_norm":
            made.node("BatchNormalization", *arrays, epsilon=EPSILON)
        case "transpose":
            made.node("Transpose", "x", perm=spec.perm)
        case "reduce":
            axes = made.constant("axes", np.array(spec.axes, np.int64))
            made.node(REDUCTIONS[spec.op], "x", axes, keepdims=0)
        case "elementwise" if spec.op in BINARY:
            made.node(BINARY[spec.op], "x", "y")
        case "elementwise":
            made.activated("x", spec.op)
    return made.finished()


def _product(made: _Model, spec: Spec) -> None:
    if spec.kind == "gemm" and spec.dtype != "i8":
        bias = ["bias"] if spec.bias else []
        y = made.node("Gemm", "a", "b", *bias, transA=int(spec.trans_a), transB=int(spec.trans_b))
        made.activated(y, spec.act)
    else:
        operator = "MatMulInteger" if spec.dtype == "i8" else "MatMul"
        made.node(operator, "a", made.node("Transpose", "b", perm=(0, 2, 1)) if spec.trans_b else "b")


def _window(spec: Spec) -> dict[str, Any]:
    return {"strides": spec.stride, "pads": spec.pad, "dilations": spec.dilation}


def _convolution(made: _Model, spec: Spec) -> None:
    how = {**_window(spec), "group": spec.c // filters_of(spec)[1], "kernel_shape": (spec.r, spec.s)}
    bias = ["bias"] if spec.bias else []
    if spec.dtype == "i8":
        numbers: dict[str, Any] = {"x_scale": np.float32(X_SCALE), "x_zero": np.uint8(ZERO)}
        numbers |= {"w_scale": np.float32(W_SCALE), "w_zero": np.int8(0)}
        numbers |= {"y_scale": np.float32(result_scale(spec)), "y_zero": np.uint8(ZERO)}
        x, w, y = ([made.constant(name, np.asarray(n)) for name, n in numbers.items() if name[0] == of] for of in "xwy")
        made.node("QLinearConv", "x", *x, "w", *w, *y, *bias, **how)
    else:
        made.activated(made.node("Conv", "x", "w", *bias, **how), spec.act)
