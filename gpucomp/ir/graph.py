"""The graph IR: ``Op``, ``Node``, ``Value``, ``Graph``, immutable and compared by identity. No operator is defined here.

Why immutable: a pass returns the same object when it changed nothing, and nobody can edit a graph behind a
reader's back. Why identity: a node is its own dictionary key; two graphs are equal when they print the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from gpucomp.errors import ShapeError, quote
from gpucomp.ir.size import Size, hint, is_assuming
from gpucomp.ir.state import State
from gpucomp.ir.types import DType, TensorType, type_of
from gpucomp.lazy_dataclass import dataclass

MAX_RANK = 32  # the largest rank that all of numpy's functions support

_origin: ContextVar[str] = ContextVar("origin", default="")
_tally: ContextVar[Tally | None] = ContextVar("tally", default=None)


@contextmanager
def origin(name: str) -> Iterator[None]:
    """Nodes built in this block are named ``name`` unless they are given a name, so that messages name the model's node."""
    token = _origin.set(name)
    try:
        yield
    finally:
        _origin.reset(token)


class Tally(Protocol):
    """Counts the work of building a graph."""

    def built(self, node: Node) -> None: ...

    def spend(self, effort: int) -> None:
        """Count about ``effort`` microseconds of work."""


@contextmanager
def counted(tally: Tally) -> Iterator[None]:
    """``tally`` counts every node that is built in this block, and all effort that is reported by ``spend``."""
    token = _tally.set(tally)
    try:
        yield
    finally:
        _tally.reset(token)


def spend(effort: int) -> None:
    """Report work other than building nodes, about ``effort`` microseconds, to the tally in force, if there is one."""
    if (tally := _tally.get()) is not None:
        tally.spend(effort)


TypeRule = Callable[..., TensorType | tuple[TensorType, ...]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Op:
    """Everything the compiler knows about an operator. ``gpucomp.ops.registry`` makes these.

    ``type_rule(*input_types, **attrs)`` gives the output type(s) and raises ``ValueError`` for bad operands.
    ``meaning`` holds what ``define`` added:

    ``reference(*arrays, **attrs)``   computes the operator with numpy: one array, or a tuple of arrays
    ``algorithm(*types, **attrs)``    the scalar meaning: one ``Algorithm`` per result; absent for a host operator
    ``push(operand, index, *types, **attrs)``  for pure data movement: the index in the result of the operand's element
                                      ``index``, so that a producer can store there; absent if there is no such function
    """

    name: str
    type_rule: TypeRule
    meaning: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.name

    def __call__(self, *inputs: Value, name: str = "", **attrs: Any) -> Value:
        """Build a node and return its first result."""
        return self.node(*inputs, name=name, **attrs)[0]

    def node(self, *inputs: Value, name: str = "", **attrs: Any) -> Node:
        """Build a node, inferring its types. Raises ``ShapeError`` naming the operator, its operands and node."""
        name = name or _origin.get()
        types = infer(self, [v.type for v in inputs], attrs, name)
        node = Node(self, tuple(inputs), MappingProxyType(dict(attrs)), types, name)
        if (tally := _tally.get()) is not None:
            tally.built(node)
        return node

    @property
    def reference(self) -> Callable[..., Any]:
        return self.meaning["reference"]

    @property
    def algorithm(self) -> Callable[..., Any] | None:
        return self.meaning.get("algorithm")

    @property
    def push(self) -> Callable[..., Any] | None:
        return self.meaning.get("push")

    def define(self, what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: ``@Relu.define("reference")``."""

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self.meaning[what] = function
            return function

        return add


def infer(op: Op, types: Sequence[TensorType], attrs: Mapping[str, Any], name: str = "") -> tuple[TensorType, ...]:
    """The types of the results of ``op``. Turns the exceptions of type rules into ``ShapeError``."""
    try:
        result = op.type_rule(*types, **attrs)
    except (ValueError, ArithmeticError) as error:
        operands = ", ".join(map(str, types))
        where = f" at node {quote(name)}" if name else ""
        raise ShapeError(f"{op.name}({operands}){where}: {error}", code="GPC3101") from error
    results = (result,) if isinstance(result, TensorType) else tuple(result)
    for t in results:
        if len(t.shape) > MAX_RANK:
            where = f" at node {quote(name)}" if name else ""
            raise ShapeError(
                f"{op.name}{where}: its result has rank {len(t.shape)}, at most {MAX_RANK} is supported", code="GPC3102"
            )
        extents = tuple(map(hint, t.shape)) if is_assuming() else t.shape
        if any(d < 0 for d in t.shape) or math.prod(max(d, 1) for d in extents) > 1 << 48:
            where = f" at node {quote(name)}" if name else ""
            raise ShapeError(
                f"{op.name}{where}: its result {t} has an extent below 0, or more than 2**48 elements", code="GPC3102"
            )
    return results


@dataclass(frozen=True, slots=True, eq=False, repr=False)  # compared by identity: a node is its own key
class Node:
    op: Op
    inputs: tuple[Value, ...]
    attrs: Mapping[str, Any]
    types: tuple[TensorType, ...]
    name: str = ""  # the ONNX node's name; used in messages only
    _values: list[Value] = field(default_factory=list, init=False)

    __match_args__ = ("op", "inputs", "attrs")

    def __post_init__(self) -> None:
        self._values.extend(Value(self, i) for i in range(len(self.types)))

    def __getitem__(self, index: int) -> Value:
        return self._values[index]

    @property
    def values(self) -> tuple[Value, ...]:
        return tuple(self._values)

    def __repr__(self) -> str:  # the generated one would print the DAG as a tree, of exponential size
        return f"{self.op}{f' {self.name!r}' if self.name else ''} : {', '.join(map(str, self.types))}"

    def with_inputs(self, inputs: Iterable[Value]) -> Node:
        """This node with other operands; the same object if the operands are the same."""
        inputs = tuple(inputs)
        if all(a is b for a, b in zip(inputs, self.inputs, strict=True)):
            return self
        types = self.types
        if any(a.type != b.type for a, b in zip(inputs, self.inputs, strict=True)):
            types = infer(self.op, [v.type for v in inputs], self.attrs, self.name)
        return Node(self.op, inputs, self.attrs, types, self.name)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Value:
    """Result ``index`` of ``node``. Matches like its node: ``Value(ops.Transpose, (x,), {"perm": p})``."""

    node: Node
    index: int

    __match_args__ = ("op", "inputs", "attrs")

    @property
    def op(self) -> Op:
        return self.node.op

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.node.inputs

    @property
    def attrs(self) -> Mapping[str, Any]:
        return self.node.attrs

    @property
    def type(self) -> TensorType:
        return self.node.types[self.index]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    def __repr__(self) -> str:
        return f"{self.node!r}#{self.index}" if self.index else repr(self.node)


Input = Op("Input", lambda *, type, label: type)
Constant = Op("Constant", lambda *, value: type_of(value))


Sizes = Op("Sizes", lambda *, values, dtype: TensorType(dtype, values.shape))


def input_value(label: str, type: TensorType) -> Value:
    """A graph input named ``label`` in messages and in ``run``."""
    return Input(type=type, label=label)


def constant(array: np.ndarray | np.generic | float | int | bool, name: str = "") -> Value:
    """A constant. The array is not copied and becomes read-only: pass a copy if you still need to write to it."""
    array = np.asarray(array)
    array.flags.writeable = False
    return Constant(value=array, name=name)


def sizes(values: np.ndarray, dtype: DType) -> Value:
    """Numbers of which each run decides some: an array of objects, with a ``Size`` for each of these. Else a constant."""
    if any(isinstance(v, Size) for v in values.reshape(-1)):
        return Sizes(values=values, dtype=dtype)
    return constant(values.astype(dtype.numpy))


def constant_value(value: Value) -> np.ndarray | None:
    """The array of a constant, else ``None``."""
    return value.attrs["value"] if value.op is Constant else None


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Inputs, outputs and the outputs' names. The nodes are those that the outputs need.

    ``input_containers`` and ``output_containers`` map each sequence or optional of the model to the names of the inputs
    or outputs that hold its elements, or to ``None`` for an empty optional. A sequence of maps as an output is stored
    as two outputs: a tensor with its own name, with one row per map, and the keys.

    ``states`` are inputs that a context keeps. One that grows has its capacity as an input; as an output it is an ``Append``.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    output_names: tuple[str, ...] = ()
    name: str = ""
    input_containers: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    output_containers: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    states: tuple[State, ...] = ()

    def __post_init__(self) -> None:
        if not self.output_names:
            object.__setattr__(self, "output_names", tuple(f"output{i}" for i in range(len(self.outputs))))

    def in_place(self) -> dict[Value, Value]:
        """The outputs that lie in the memory of an input, and these inputs."""
        inputs = dict(zip(self.input_names, self.inputs, strict=True))
        outputs = dict(zip(self.output_names, self.outputs, strict=True))
        return {outputs[one.output]: inputs[one.input] for one in self.states if one.in_place}

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(v.attrs["label"] for v in self.inputs)

    def nodes(self) -> list[Node]:
        """All nodes that the outputs need, operands first. Iterative, so any depth is possible."""
        return topological(v.node for v in self.outputs)

    def every_node(self) -> Iterator[Node]:
        """All nodes, and those of the bodies of loops."""
        for node in self.nodes():
            yield node
            for body in node.attrs.values():
                if isinstance(body, Graph):
                    yield from body.every_node()

    def uses(self) -> Counter[Value]:
        """How often each value is read, by nodes and as a graph output. Computed on demand, never stored."""
        counts: Counter[Value] = Counter(self.outputs)
        for node in self.nodes():
            counts.update(node.inputs)
        return counts

    def consumers(self) -> dict[Value, list[Node]]:
        """The nodes that read each value; a node that reads it twice is listed once."""
        readers: dict[Value, list[Node]] = {}
        for node in self.nodes():
            for value in dict.fromkeys(node.inputs):
                readers.setdefault(value, []).append(node)
        return readers

    def with_outputs(self, outputs: Iterable[Value]) -> Graph:
        """The graph with other outputs; the same object if the outputs are the same."""
        outputs = tuple(outputs)
        if all(a is b for a, b in zip(outputs, self.outputs, strict=True)):
            return self
        return replace(self, outputs=outputs)


def topological(roots: Iterable[Node], done: set[Node] | None = None) -> list[Node]:
    """``roots`` and all nodes that they need, operands before users, in a stable order.

    Nodes in ``done`` are left out. The nodes of the result are added to ``done``.
    """
    order: list[Node] = []
    done = set() if done is None else done
    for root in roots:
        if root in done:
            continue
        stack: list[tuple[Node, Iterator[Value]]] = [(root, iter(root.inputs))]
        done.add(root)
        while stack:
            node, pending = stack[-1]
            for value in pending:
                if value.node not in done:
                    done.add(value.node)
                    stack.append((value.node, iter(value.node.inputs)))
                    break
            else:
                order.append(node)
                stack.pop()
    return order
