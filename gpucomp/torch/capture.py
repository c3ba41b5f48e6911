"""What a graph of ATen operators takes and gives, and its ONNX model without the weights.

A graph comes from AOTAutograd: no operator writes into a tensor, and every tensor is an argument. Weights are arguments too;
the model has them as inputs, so that it is the same whatever their values are.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir
import onnxscript
import torch
from torch import fx
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ArgumentSpec,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from torch.utils import _pytree

from gpucomp import config
from gpucomp.artifact import cache as files
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.foreign.fx_graphs import copied, is_tensor, is_whole, memory_of
from gpucomp.frontend.foreign.masks import fill_with_zeros, has_masks
from gpucomp.frontend.foreign.own_code import digest
from gpucomp.frontend.foreign.torch_exporter import LIFTED, to_onnx
from gpucomp.ir.dim import ANY, MOST, Dim
from gpucomp.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Taken:
    """An argument of the graph that the model reads; ``shape`` is ``None`` for a whole number."""

    position: int
    name: str
    shape: tuple[int | Dim, ...] | None


@dataclass(frozen=True)
class Given:
    """An output of the model, and the order of its axes that makes it what the graph computes.

    ``shape`` has ``None`` where each call decides the size.
    """

    name: str
    order: tuple[int, ...]
    dtype: torch.dtype
    shape: tuple[int | None, ...]


@dataclass(frozen=True)
class Captured:
    """A graph as a model, and how its arguments and results are those of the model.

    ``constants`` are tensors that the graph itself has. ``results`` are numbers of arguments, behind these of outputs, and
    behind these of what ``after`` computes from both: views of the same memory, and sizes. ``alone`` says that the graph has
    one result, and no tuple.
    """

    model: bytes
    found: bool  # in the cache
    taken: tuple[Taken, ...]
    given: tuple[Given, ...]
    constants: Mapping[str, torch.Tensor]
    results: tuple[int, ...]
    after: fx.GraphModule | None
    alone: bool

    @property
    def dims(self) -> dict[str, Dim]:
        """The dimensions whose size each call decides, by name."""
        extents = (extent for one in self.taken for extent in one.shape or ())
        return {extent.name: extent for extent in extents if isinstance(extent, Dim)}


def captured(module: fx.GraphModule) -> Captured:
    """Raises ``UnsupportedError`` (GPC4021) if the exporter cannot translate the graph."""
    if has_masks(module.graph):
        module = copied(module)
        fill_with_zeros(module.graph)
    graph = copied(module).graph
    arguments = list(graph.find_nodes(op="placeholder"))
    constants = _lifted(module, graph)
    for operator in LIFTED:
        for node in graph.find_nodes(op="call_function", target=operator):
            node.replace_all_uses_with(node.args[0])
    _sizes_of_tensors(graph)
    given, outputs, results, after = _results(module, graph, arguments)
    graph.eliminate_dead_code()
    for node in graph.find_nodes(op="placeholder"):
        if not node.users and node not in outputs:
            graph.erase_node(node)
    inputs = list(graph.find_nodes(op="placeholder"))
    position = {node.name: number for number, node in enumerate(arguments)}
    if other := next(
        (n for n in inputs if isinstance(n.meta["val"], torch.SymFloat | torch.SymBool | float | bool)), None
    ):
        raise UnsupportedError(f"argument {other.name!r} is no tensor and no whole number", code="GPC4021")
    taken = tuple(
        Taken(position[node.name], node.name, _shape(node.meta["val"])) for node in inputs if node.name in position
    )
    used = {node.name: constants[node.name] for node in inputs if node.name in constants}
    model, found = _model(module, graph, inputs, outputs) if outputs else (b"", False)
    return Captured(model, found, taken, given, used, results, after, _is_alone(module))


def _lifted(module: fx.GraphModule, graph: fx.Graph) -> dict[str, torch.Tensor]:
    """Make inputs of the tensors that the graph has as attributes. Returns them by the inputs' names."""
    found: dict[str, torch.Tensor] = {}
    first = next(iter(graph.nodes))
    for node in graph.find_nodes(op="get_attr"):
        value = _attribute(module, str(node.target))
        if not isinstance(value, torch.Tensor):
            continue
        with graph.inserting_before(first):
            lifted = graph.placeholder(f"constant_{len(found)}")
        lifted.meta["val"] = node.meta.get("val", value)
        node.replace_all_uses_with(lifted)
        graph.erase_node(node)
        found[lifted.name] = value
    return found


def _attribute(module: fx.GraphModule, target: str) -> object:
    value: object = module
    for part in target.split("."):
        value = getattr(value, part)
    return value


def _sizes_of_tensors(graph: fx.Graph) -> None:
    """Read sizes from the shapes of tensors, where they are arguments of their own."""
    nodes = list(graph.find_nodes(op="placeholder"))
    places: dict[Any, tuple[fx.Node, int]] = {}
    for node in nodes:
        if isinstance(value := node.meta["val"], torch.Tensor):
            for axis, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    places.setdefault(size.node.expr, (node, axis))
    for node in nodes:
        value = node.meta["val"]
        if not isinstance(value, torch.SymInt) or value.node.expr not in places or not node.users:
            continue
        with graph.inserting_after(nodes[-1]):
            size_node = graph.call_function(torch.ops.aten.sym_size.int, places[value.node.expr])
        size_node.meta["val"] = value
        node.replace_all_uses_with(size_node, delete_user_cb=lambda user: user.op != "output")


def _is_alone(module: fx.GraphModule) -> bool:
    (output,) = module.graph.find_nodes(op="output")
    return isinstance(output.args[0], fx.Node)


def _results(
    module: fx.GraphModule, graph: fx.Graph, arguments: list[fx.Node]
) -> tuple[tuple[Given, ...], list[fx.Node], tuple[int, ...], fx.GraphModule | None]:
    """What the model gives, these nodes, ``Captured.results``, and ``Captured.after``.

    Outputs are stored with the axes in the order that they have in memory in eager, which costs nothing here.
    """
    (output,) = graph.find_nodes(op="output")
    wanted = (output.args[0],) if isinstance(output.args[0], fx.Node) else tuple(output.args[0])
    shared = Counter(memory_of(node) for node in dict.fromkeys([*wanted, *arguments]) if is_tensor(node))
    roots: dict[fx.Node, None] = {}  # what the model computes, each once
    places: list[tuple[int, fx.Node | None]] = []  # of the results: 0 an argument, 1 a root, 2 what is computed after
    for node in wanted:
        if node in arguments:
            places.append((0, node))
        elif is_tensor(node):
            # a part of a larger tensor comes with that in eager, which steps in its memory may reach
            alone = shared[memory_of(node)] == 1 and is_whole(node.meta["val"])
            root = node if alone else _root(node)
            if root.op != "placeholder":
                roots[root] = None
            places.append((1 if root is node and root.op != "placeholder" else 2, root))
        else:
            places.append((2, None))
    positions = [number for number, (kind, _) in enumerate(places) if kind == 2]
    after = _after(module, positions, [node.name for node in roots]) if positions else None
    starts = {0: arguments, 1: list(roots)}
    results = tuple(
        starts[kind].index(node) + kind * len(arguments)
        if kind < 2 and node is not None
        else len(arguments) + len(roots) + positions.index(number)
        for number, (kind, node) in enumerate(places)
    )
    given, nodes = _stored(graph, output, list(roots))
    return given, nodes, results, after


def _stored(graph: fx.Graph, output: fx.Node, roots: list[fx.Node]) -> tuple[tuple[Given, ...], list[fx.Node]]:
    """Make outputs of the ``roots``, with their axes as they lie in memory."""
    given, nodes = [], []
    for root in roots:
        order, stored = _order(root.meta["val"]), root
        if order:
            with graph.inserting_before(output):
                stored = graph.call_function(torch.ops.aten.permute.default, (root, order))
            stored.meta["val"] = root.meta["val"].permute(order)
        nodes.append(stored)
        value = stored.meta["val"]
        shape = tuple(size if isinstance(size, int) else None for size in value.shape)
        given.append(Given(stored.name, tuple(order.index(axis) for axis in range(len(order))), value.dtype, shape))
    output.args = (tuple(nodes),)
    return tuple(given), nodes


def _root(node: fx.Node) -> fx.Node:
    """The node whose result ``node`` is a view of, or itself."""
    memory = memory_of(node)
    found = node
    while True:
        before = found.all_input_nodes
        step = next((one for one in before if _holds(one, memory)), None)
        if step is None:
            return node
        found = step
        node = found if is_tensor(found) else node


def _holds(node: fx.Node, memory: int) -> bool:
    value = node.meta.get("val")
    parts = value if isinstance(value, list | tuple) else [value]  # several views, of which one is taken
    return any(isinstance(part, torch.Tensor) and part.untyped_storage()._cdata == memory for part in parts)


def _after(module: fx.GraphModule, positions: list[int], roots: list[str]) -> fx.GraphModule:
    """The results at these positions as a function of the graph's arguments and, behind these, of nodes of these names."""
    graph = fx.Graph()
    results = graph.graph_copy(module.graph, {})
    wanted = (results,) if isinstance(results, fx.Node) else results
    output = graph.output(tuple(wanted[position] for position in positions))  # type: ignore[index]
    last = list(graph.find_nodes(op="placeholder"))[-1]
    by_name = {node.name: node for node in graph.nodes}
    for name in roots:
        with graph.inserting_after(last):
            last = graph.placeholder(f"root_{name}")
        by_name[name].replace_all_uses_with(last)
    assert output.op == "output"
    graph.eliminate_dead_code()
    return fx.GraphModule(module, graph)


def _order(value: torch.Tensor) -> list[int]:
    """The axes as they lie in memory, the outermost first; empty if that is their own order, or no order is all of it."""
    hints = [size.node.hint if isinstance(size, torch.SymInt) else size for size in value.shape]
    steps = [step.node.hint if isinstance(step, torch.SymInt) else step for step in value.stride()]
    axes = [axis for axis in range(value.dim()) if hints[axis] != 1]
    if sorted(axes, key=lambda axis: -steps[axis]) == axes or 0 in steps or 0 in hints:
        return []
    return sorted(range(value.dim()), key=lambda axis: (-steps[axis], axis))


def _shape(value: object) -> tuple[int | Dim, ...] | None:
    return tuple(map(_extent, value.shape)) if isinstance(value, torch.Tensor) else None


def _extent(size: int | torch.SymInt) -> int | Dim:
    """A size of an argument. Its range is what Dynamo knows of it, and checks."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if expression.is_number:
        return int(expression)
    limits = size.node.shape_env.bound_sympy(expression)
    low = max(int(limits.lower), 0) if limits.lower.is_Integer else 0
    high = int(limits.upper) if limits.upper.is_Integer and int(limits.upper) <= ANY else max(MOST, 4 * size.node.hint)
    return Dim(str(expression), low, high)


def _model(
    module: fx.GraphModule, graph: fx.Graph, inputs: list[fx.Node], outputs: list[fx.Node]
) -> tuple[bytes, bool]:
    """The model's bytes, and whether they were in the cache."""
    copy = fx.GraphModule(module, graph)
    about = [digest(Path(__file__)), torch.__version__, onnxscript.__version__, onnx_ir.__version__, copy.code]
    about += [_described(node.meta["val"]) for node in graph.nodes if "val" in node.meta]
    key = hashlib.sha256(repr(about).encode()).hexdigest()
    return files.export(config.current().cache, key, lambda: to_onnx(_program(copy, inputs, outputs)))


def _described(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(map(str, value.shape))} {value.device}"
    return f"({', '.join(map(_described, value))})" if isinstance(value, list | tuple) else str(value)


def _program(module: fx.GraphModule, inputs: list[fx.Node], outputs: list[fx.Node]) -> ExportedProgram:
    def argument(node: fx.Node) -> ArgumentSpec:
        return TensorArgument(node.name) if isinstance(node.meta["val"], torch.Tensor) else SymIntArgument(node.name)

    ins = [InputSpec(InputKind.USER_INPUT, argument(node), None) for node in inputs]
    outs = [OutputSpec(OutputKind.USER_OUTPUT, argument(node), None) for node in outputs]
    examples = tuple(node.meta["val"] for node in inputs)
    _, taken = _pytree.tree_flatten((examples, {}))
    _, given = _pytree.tree_flatten(tuple(range(len(outs))))
    signature = ModuleCallSignature([one.arg for one in ins], [one.arg for one in outs], taken, given)
    return ExportedProgram(
        module,
        module.graph,
        ExportGraphSignature(ins, outs),
        {},
        {},
        [ModuleCallEntry("", signature)],
        (examples, {}),
    )
