"""ONNX files as torch modules that torch's compilers take. Runs in the environments of torch's peers."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


def plain(path: Path) -> Any:
    """The model as onnx2torch takes it: onnxruntime's basic optimisations fold constants, also those that decide a branch.

    Without Dropout, which does nothing in inference, and Reshape's ``allowzero``, which is about tensors without elements. Clip
    with computed bounds is a maximum and a minimum.
    """
    import onnx

    ort = import_module("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path.with_suffix(".basic.onnx"))
    options.log_severity_level = 4
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    model = onnx.load(path.with_suffix(".basic.onnx"))
    sources: dict[str, str] = {}
    for node in model.graph.node:
        node.input[:] = [sources.get(name, name) for name in node.input]
        while node.input and not node.input[-1]:
            node.input.pop()  # the name of an input that is not there
        if node.op_type == "Dropout":
            sources[node.output[0]] = node.input[0]
        for attribute in [a for a in node.attribute if a.name == "allowzero"]:
            node.attribute.remove(attribute)
    weights = {tensor.name for tensor in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type == "Clip" and not weights.issuperset(filter(None, node.input[1:])):
            kept += _maximum_and_minimum(node)
        elif node.op_type != "Dropout":
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def _maximum_and_minimum(clip: Any) -> Iterator[Any]:
    """Nodes that do what a Clip does; onnx2torch refuses bounds that are computed."""
    from onnx import helper

    last, bounds = clip.input[0], [*clip.input[1:], "", ""]
    low, high = bounds[:2]
    between = f"{clip.output[0]}/at_least"
    if low:
        yield helper.make_node("Max", [last, low], [between if high else clip.output[0]])
        last = between
    if high:
        yield helper.make_node("Min", [last, high], [clip.output[0]])


def torch_module(path: Path) -> Any:
    """The model of an ONNX file as onnx2torch's module."""
    for name in ("torchvision", "torchvision.ops"):
        # onnx2torch imports these packages for detection operators; their CUDA wheels fail with a CPU-only torch
        empty = sys.modules[name] = ModuleType(name)
        empty.__dict__["__getattr__"] = lambda _: None
    _convert_more()
    return import_module("onnx2torch").convert(plain(path)).eval()


@cache
def _convert_more() -> None:
    """Add converters to onnx2torch for LSTM, which torch has, and simple operators. Integer ones stay refused."""
    torch = import_module("torch")
    add = import_module("onnx2torch.node_converters.registry").add_converter
    common = import_module("onnx2torch.utils.common")

    class Called(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, function: Callable[..., Any]) -> None:
            super().__init__()
            self.forward = function

    def global_max_pool(x: Any) -> Any:
        return x.amax(tuple(range(2, x.dim())), keepdim=True)

    missing = [("GreaterOrEqual", 16, torch.ge), ("LessOrEqual", 16, torch.le), ("GlobalMaxPool", 1, global_max_pool)]
    for operator_name, since, function in missing:

        def converted(node: Any, graph: Any, function: Callable[..., Any] = function) -> Any:
            mapping = common.onnx_mapping_from_node(node)
            return common.OperationConverterResult(torch_module=Called(function), onnx_mapping=mapping)

        add(operation_type=operator_name, version=since)(converted)
    for since in (7, 14):
        add(operation_type="LSTM", version=since)(_lstm)


def _lstm(node: Any, graph: Any) -> Any:
    """torch's LSTM for ONNX's with constant weights; raises ``NotImplementedError`` for what torch's does not have."""
    torch = import_module("torch")
    common = import_module("onnx2torch.utils.common")
    x, w, r, b, lengths, *states = [*node.input_values, *8 * [""]][:7]
    hidden, direction = node.attributes["hidden_size"], node.attributes.get("direction", "forward")
    others = {
        name: value for name, value in node.attributes.items() if value and name not in ("hidden_size", "direction")
    }
    functions = list(others.pop("activations", ()))
    if (
        lengths
        or len(node.input_values) > 7
        or others
        or functions != len(functions) // 3 * ["Sigmoid", "Tanh", "Tanh"]
    ):
        raise NotImplementedError("LSTM with lengths of sequences, peepholes, other functions or another layout")
    if direction == "reverse" or not {w, r} <= graph.initializers.keys():
        raise NotImplementedError("LSTM that only runs backwards, or whose weights are computed")
    weights, recurrent = graph.initializers[w].to_torch(), graph.initializers[r].to_torch()
    lstm = torch.nn.LSTM(weights.shape[2], hidden, bias=bool(b), bidirectional=direction == "bidirectional")
    biases = graph.initializers[b].to_torch() if b else torch.zeros(len(weights), 8 * hidden)

    def gates(rows: Any) -> Any:
        """ONNX's input, output, forget, cell as torch's input, forget, cell, output."""
        i, o, f, c = rows.split(hidden)
        return torch.cat([i, f, c, o])

    for k, suffix in enumerate(("", "_reverse")[: len(weights)]):
        values = {"weight_ih": weights[k], "weight_hh": recurrent[k]}
        if b:
            values |= dict(zip(("bias_ih", "bias_hh"), biases[k].split(4 * hidden), strict=True))
        for name, value in values.items():
            getattr(lstm, f"{name}_l0{suffix}").data = gates(value)

    class Lstm(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = lstm

        def forward(self, x: Any, *states: Any) -> Any:
            y, (h, c) = self.lstm(x, states or None)
            by_direction = y.reshape(*y.shape[:2], -1, hidden).transpose(1, 2)
            return by_direction if len(node.output_values) == 1 else (by_direction, h, c)[: len(node.output_values)]

    inputs = (x, *[name for name in states if name])
    mapping = common.OnnxMapping(inputs=inputs, outputs=tuple(node.output_values))
    return common.OperationConverterResult(torch_module=Lstm(), onnx_mapping=mapping)


def with_constant_shapes(model: Any, inputs: Sequence[Any]) -> Any:
    """An onnx2torch module whose shapes, slices and splits are Python numbers, recorded in one run with ``inputs``.

    onnx2torch keeps them as constant tensors; each breaks the graph for torch.compile and torch.export, or makes them fail.
    """
    seen = _recorded(model, inputs)
    known = _constants(model)
    for node in [n for n in model.graph.nodes if n.op == "call_module" and n.args]:
        if node in known:
            continue  # numbers; what reads them takes them from ``seen``, or as a tensor below
        if call := _plain_call(model.get_submodule(node.target), node, seen, known):
            with model.graph.inserting_before(node):
                plain = model.graph.call_function(*call)
            node.replace_all_uses_with(plain)
            model.graph.erase_node(node)
            seen[plain] = seen[node]
    _fold(model, known, seen)
    model.graph.eliminate_dead_code()
    model.recompile()
    return model


def _recorded(model: Any, inputs: Sequence[Any]) -> dict[Any, Any]:
    """The value of every node in one run."""
    fx = import_module("torch.fx")
    seen: dict[Any, Any] = {}

    class Recorder(fx.Interpreter):  # type: ignore[name-defined, misc]
        def run_node(self, n: Any) -> Any:
            seen[n] = super().run_node(n)
            return seen[n]

    with import_module("torch").inference_mode():
        Recorder(model).run(*inputs)
    return seen


def _constants(model: Any) -> set[Any]:
    """Nodes whose value is the same in every run: weights, shapes, and what is computed from them alone."""
    known: set[Any] = set()
    for node in model.graph.nodes:
        if node.op == "get_attr":
            known.add(node)
        elif node.op in ("call_module", "call_function"):
            shape = node.op == "call_module" and type(model.get_submodule(node.target)).__name__ == "OnnxShape"
            if shape or all(source in known for source in node.all_input_nodes):
                known.add(node)
    return known


def _plain_call(module: Any, node: Any, seen: dict[Any, Any], known: set[Any]) -> tuple[Any, ...] | None:
    """The function of torch, and its arguments, that does the same as onnx2torch's module; None if that has no numbers."""
    torch = import_module("torch")
    x, found = node.args[0], seen[node]
    name = type(module).__name__.removeprefix("Onnx")
    if name.startswith(("Reshape", "Squeeze", "Unsqueeze", "Flatten")):
        return torch.reshape, (x, tuple(found.shape))
    if name.startswith("Expand"):
        return torch.broadcast_to, (x, tuple(found.shape))
    if name == "Split13":
        return torch.split, (x, [part.shape[module.axis] for part in found], module.axis)
    if name == "Gather" and node.args[1] in known and seen[node.args[1]].dim() == 0:
        return torch.select, (x, module._axis, int(seen[node.args[1]]))
    if name == "Slice":
        starts, ends, *others = (seen[a].tolist() for a in node.args[1:])
        axes, steps = [*others, *[list(range(len(starts))), [1] * len(starts)][len(others) :]]
        if min(steps) < 1:
            return None
        index = [slice(None)] * seen[x].dim()
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            index[axis] = slice(start, end, step)
        return operator.getitem, (x, tuple(index))
    return None


def _fold(model: Any, known: set[Any], seen: dict[Any, Any]) -> None:
    """What is computed from constants alone becomes a buffer, if something else still reads it."""
    torch = import_module("torch")
    for place, node in enumerate(list(model.graph.nodes)):
        read = any(user not in known for user in node.users)
        if node in known and node.op != "get_attr" and read and isinstance(seen[node], torch.Tensor):
            model.register_buffer(f"folded_{place}", seen[node].detach().clone())
            with model.graph.inserting_before(node):
                node.replace_all_uses_with(model.graph.get_attr(f"folded_{place}"))
