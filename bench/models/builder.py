"""A small ONNX graph builder: values with shapes, names like an exporter's, weights drawn on demand.

No network is defined here.
"""

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

IR_VERSION = 8  # of opset 17; every onnxruntime since 1.12 reads it

Fill = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
Pair = int | tuple[int, int]


def normal(std: float) -> Fill:
    def fill(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        array = rng.standard_normal(shape, np.float32)
        array *= np.float32(std)
        return array

    return fill


def uniform(low: float, high: float) -> Fill:
    return lambda rng, shape: rng.uniform(low, high, shape).astype(np.float32)


def pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value of the graph being built: its ONNX name and its shape."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Weight:
    """An initialiser that is drawn only when the model is made, so that counting needs no memory."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    fill: Fill
    learned: bool

    def declare(self, tensor: TensorProto) -> None:
        """Fill in everything except the data."""
        tensor.name = self.name
        tensor.dims.extend(self.shape)
        tensor.data_type = helper.np_dtype_to_tensor_dtype(self.dtype)

    def draw(self, tensor: TensorProto, seed: int) -> None:
        """Fill in the data; the seed depends on the name, so that a new layer does not change other weights."""
        array = self.fill(np.random.default_rng([seed, zlib.crc32(self.name.encode())]), self.shape)
        assert array.shape == self.shape, f"{self.name}: {array.shape} drawn, {self.shape} declared"
        assert array.dtype == self.dtype, f"{self.name}: {array.dtype} drawn, {self.dtype} declared"
        tensor.raw_data = array.astype(self.dtype.newbyteorder("<"), copy=False).tobytes()


class GraphBuilder:
    """Collects nodes and weights of one network.

    Names are those of torch.onnx.export: '/layer1/layer1.0/conv1/Conv' from opset 13 on, 'Conv_7' with
    numbered values before that. Weights are scaled so that activations keep a variance near one.
    """

    def __init__(self, name: str, opset: int) -> None:
        self.name = name
        self.opset = opset
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Weight] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}  # of all results of nodes
        self.flop = 0  # of contractions only; a multiply-add counts as two
        self._scopes: list[str] = []
        self._used: Counter[str] = Counter()
        self._values = 0

    @property
    def parameters(self) -> int:
        """The number of learned values, without running statistics, masks and index tables."""
        return sum(math.prod(w.shape) for w in self.weights.values() if w.learned)

    def model(self, seed: int = 0, *, draw_weights: bool = True) -> onnx.ModelProto:
        """The ONNX model; with ``draw_weights=False`` its initialisers have shapes but no data."""
        model = helper.make_model(
            helper.make_graph(self.nodes, self.name, self.inputs, self.outputs),
            producer_name="gpucomp.bench",
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", self.opset)],
        )
        for weight in self.weights.values():  # one at a time: a second copy of VGG-16 would take 550 MB
            tensor = model.graph.initializer.add()
            weight.declare(tensor)
            if draw_weights:
                weight.draw(tensor, seed)
        return model

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """A module: 'layer1.0' adds 'layer1.0.' to weight names and '/layer1/layer1.0' to node names."""
        self._scopes.append(name)
        yield
        self._scopes.pop()

    def path(self, name: str) -> str:
        return ".".join([*self._scopes, name])

    def _node_name(self, op: str) -> str:
        if self.opset < 13:
            return f"{op}_{len(self.nodes)}"
        parts = [
            ".".join(pieces[: i + 1])
            for pieces in (scope.split(".") for scope in self._scopes)
            for i in range(len(pieces))
        ]
        base = "/".join(["", *parts, op])
        self._used[base] += 1
        return base if self._used[base] == 1 else f"{base}_{self._used[base] - 1}"

    def input(self, name: str, shape: Sequence[int], dtype: int = TensorProto.FLOAT) -> Tensor:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return Tensor(name, tuple(shape))

    def output(self, x: Tensor, name: str, dtype: int = TensorProto.FLOAT) -> None:
        """Make ``x``, the result of a node, the graph output ``name``."""
        for node in self.nodes:
            for names in (node.input, node.output):
                for index, value in enumerate(names):
                    if value == x.name:
                        names[index] = name
        self.shapes[name] = self.shapes.pop(x.name)
        self.outputs.append(helper.make_tensor_value_info(name, dtype, x.shape))

    def weight(self, name: str, shape: Sequence[int], fill: Fill) -> Tensor:
        """A learned float32 initialiser, named within the current scope."""
        return self._declare(Weight(self.path(name), tuple(shape), np.dtype(np.float32), fill, True))

    def statistic(self, name: str, shape: Sequence[int], fill: Fill) -> Tensor:
        """A float32 initialiser that training accumulates rather than learns."""
        return self._declare(Weight(self.path(name), tuple(shape), np.dtype(np.float32), fill, False))

    def buffer(self, name: str, array: np.ndarray) -> Tensor:
        """An initialiser with a given value, such as position ids or a causal mask."""
        return self._declare(Weight(self.path(name), array.shape, array.dtype, lambda rng, shape: array, False))

    def _declare(self, weight: Weight) -> Tensor:
        assert weight.name not in self.weights, f"two weights are named {weight.name}"
        self.weights[weight.name] = weight
        return Tensor(weight.name, weight.shape)

    def emit_many(
        self, op: str, inputs: Sequence[Tensor], shapes: Sequence[Sequence[int]], **attrs: Any
    ) -> list[Tensor]:
        """Append one node; return a value of the given shape for each result."""
        name = self._node_name(op)
        if self.opset < 13:
            outputs = [str(self._values + i) for i in range(len(shapes))]
            self._values += len(shapes)
        else:
            outputs = [f"{name}_output_{i}" for i in range(len(shapes))]
        self.nodes.append(helper.make_node(op, [x.name for x in inputs], outputs, name, **attrs))
        results = [Tensor(output, tuple(shape)) for output, shape in zip(outputs, shapes, strict=True)]
        self.shapes |= {result.name: result.shape for result in results}
        return results

    def emit(self, op: str, inputs: Sequence[Tensor], shape: Sequence[int], **attrs: Any) -> Tensor:
        """Append a node with one result."""
        return self.emit_many(op, inputs, [shape], **attrs)[0]
