"""Functions of the model, and the function bodies of ONNX's operators. Their sizes are checked before they are inlined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import onnx

from gpucomp.errors import ModelError, UnsupportedError, quote
from gpucomp.frontend.onnx.tensors import DTYPES
from gpucomp.frontend.onnx.translate import Site, becomes_objects, find_schema
from gpucomp.ir import Value
from gpucomp.ir.size import Size
from gpucomp.ir.types import OptionalType, SequenceType
from gpucomp.lazy_dataclass import dataclass

MAX_DEPTH = 100
MAX_NODES = 250_000  # nodes of a file
MAX_ADDED = 20_000  # nodes added by inlining and unrolling, plus four times the nodes of the file
MAX_LISTED = 6_000_000  # entries of attribute lists that become Python objects; lists that become arrays do not count
# effort is in units of about a microsecond: operands and results of built nodes, bound names, entries of lists
EFFORT = 400_000  # allowed for any file
BUILT_EFFORT, OPERAND_EFFORT = 8, 2  # cost of building a node and of each operand; a result costs 1
EFFORT_OF_THE_FILE = 256  # allowed for each node of the file
EFFORT_AN_OPERAND = (
    BUILT_EFFORT + 2 * OPERAND_EFFORT + 1
)  # allowed for each operand: a Sum of n operands becomes n - 1 additions
EFFORT_A_NODE = 96  # allowed for each translated node: a few nodes of the file can be translated many times
BYTES_A_UNIT = 64  # bytes of a message that is serialised and parsed again, for one unit of effort
COUNTLESS = 10**15
Key = tuple[str, str, str]  # domain, name, overload


def table(model: onnx.ModelProto) -> dict[Key, onnx.FunctionProto]:
    """The model's functions. Raises ``ModelError`` if two have the same name."""
    result: dict[Key, onnx.FunctionProto] = {}
    for function in model.functions:
        key = (function.domain, function.name, function.overload)
        if key in result:
            raise ModelError(f"function {quote(function.name)} is defined twice", code="GPC3011")
        if len(set(function.input)) != len(function.input):
            raise ModelError(f"function {quote(function.name)} has two inputs of one name", code="GPC3011")
        result[key] = function
    return result


def nested_nodes(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and the nodes of all their subgraphs. Iterative."""
    stack = [iter(nodes)]
    while stack:
        node = next(stack[-1], None)
        if node is None:
            stack.pop()
            continue
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                stack.append(iter(attribute.g.node))
            stack.extend(iter(g.node) for g in attribute.graphs)


class Reads:
    """Finds the names that nodes read. The names of each subgraph are computed once, at any depth."""

    def __init__(self) -> None:
        self._outer: dict[
            int, tuple[onnx.GraphProto, frozenset[str]]
        ] = {}  # graphs are kept alive so that their ids stay unique

    def of(self, node: onnx.NodeProto) -> Iterator[str]:
        """The outer names that ``node`` reads, also inside its subgraphs."""
        yield from node.input
        for graph in _subgraphs(node):
            yield from self._of_graph(graph)

    def _of_graph(self, graph: onnx.GraphProto) -> frozenset[str]:
        """The outer names that a subgraph reads. Iterative: a model that is given as an object can have any depth."""
        pending = [graph]
        while pending:
            top = pending[-1]
            inner = [g for node in top.node for g in _subgraphs(node)]
            if unknown := [g for g in inner if id(g) not in self._outer]:
                pending += unknown
                continue
            pending.pop()
            own = {o for node in top.node for o in node.output} | {i.name for i in top.input}
            own |= {i.name for i in top.initializer} | {i.values.name for i in top.sparse_initializer}
            names = {name for node in top.node for name in node.input} | {o.name for o in top.output}
            names = names.union(*(self._outer[id(g)][1] for g in inner))
            self._outer[id(top)] = top, frozenset(names - own)
        return self._outer[id(graph)][1]


def _subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [g for a in node.attribute for g in ([a.g] if a.HasField("g") else a.graphs)]


@dataclass(frozen=True)
class Bounds:
    """Limits for translating a model, computed from the size of its file: see ``bounds``."""

    nodes: int  # after inlining and unrolling
    effort: int  # plus ``EFFORT_A_NODE`` for each node that is translated


def bounds(functions: Mapping[Key, onnx.FunctionProto], graph: onnx.GraphProto) -> Bounds:
    """The limits for translating a model: a multiple of the size of its file.

    Raises ``UnsupportedError`` if the file has too many nodes, or attribute lists that would become too many Python
    objects.
    """
    count = len(graph.node) + sum(len(f.node) for f in functions.values())
    found = _Contents()
    if count <= MAX_NODES:
        for nodes in (graph.node, *(f.node for f in functions.values())):
            for node in nested_nodes(nodes):
                found.add(node, called=(node.domain, node.op_type, node.overload) in functions)
        count = found.nodes
    if count > MAX_NODES:
        raise UnsupportedError(f"the model has {count} nodes, at most {MAX_NODES} are supported", code="GPC4006")
    if found.objects > MAX_LISTED:
        raise UnsupportedError(
            f"the lists in the model's attributes have {found.objects} entries, at most {MAX_LISTED} are supported",
            code="GPC4006",
        )
    effort = EFFORT_OF_THE_FILE * count + 2 * found.names + EFFORT_AN_OPERAND * found.operands + found.numbers
    return Bounds(MAX_ADDED + 4 * count, EFFORT + effort)


@dataclass
class _Contents:
    """What nodes have, counted."""

    nodes: int = 0
    operands: int = 0
    names: int = 0  # of operands, results and attributes
    numbers: int = 0  # entries of lists in attributes
    objects: int = 0  # of these the ones that become objects

    def add(self, node: onnx.NodeProto, *, called: bool) -> None:
        """Count a node; the body of one that is ``called`` reads the lists in its attributes."""
        self.nodes += 1
        self.operands += len(node.input)
        self.names += len(node.input) + len(node.output) + len(node.attribute)
        for a in node.attribute:
            entries = len(a.ints) + len(a.floats) + len(a.strings)
            self.numbers += entries
            if entries and (called or becomes_objects(node.domain, node.op_type, a)):
                self.objects += entries


def check_expansion(functions: Mapping[Key, onnx.FunctionProto], graph: onnx.GraphProto, most: int) -> None:
    """Refuse recursive functions, and inlining that is too deep or too large. Counts before anything is inlined."""
    if not functions:
        return
    calls = {key: _calls(function.node, functions) for key, function in functions.items()}
    sizes: dict[Key, int] = {}
    depths: dict[Key, int] = {}
    active: set[Key] = set()
    for root in functions:
        stack: list[tuple[Key, Iterator[Key]]] = []
        if root not in sizes:
            stack.append((root, iter(dict.fromkeys(calls[root][1]))))
            active.add(root)
        while stack:
            key, pending = stack[-1]
            callee = next(pending, None)
            if callee is None:
                own, inner = calls[key]
                sizes[key] = min(own + sum(sizes[c] for c in inner), COUNTLESS)
                depths[key] = 1 + max((depths[c] for c in inner), default=0)
                active.discard(key)
                stack.pop()
            elif callee in active:
                raise ModelError(f"function {quote(callee[1])} calls itself", code="GPC3019")
            elif callee not in sizes:
                active.add(callee)
                stack.append((callee, iter(dict.fromkeys(calls[callee][1]))))
    own, inner = _calls(graph.node, functions)
    total = own + sum(sizes[c] for c in inner)
    depth = max((depths[c] for c in inner), default=0)
    if total > most or depth > MAX_DEPTH:
        raise UnsupportedError(
            f"inlining the model's functions gives {total if total < COUNTLESS else 'more than 10^15'} nodes, "
            f"{depth} deep; at most {most} nodes and depth {MAX_DEPTH} are supported for this file",
            code="GPC4006",
        )


def _calls(nodes: Sequence[onnx.NodeProto], functions: Mapping[Key, Any]) -> tuple[int, list[Key]]:
    """The number of nodes, and every call of a function among them."""
    own, inner = 0, []
    for node in nested_nodes(nodes):
        key = (node.domain, node.op_type, node.overload)
        if key in functions:
            inner.append(key)
        own += 1
    return own, inner


@lru_cache(maxsize=1)
def standard_domains() -> frozenset[str]:
    """The domains whose operators have schemas. An operator of these domains without a schema does not exist."""
    return frozenset(s.domain for s in onnx.defs.get_all_schemas_with_history())


@lru_cache(maxsize=1)
def all_operator_names() -> frozenset[str]:
    return frozenset(s.name for s in onnx.defs.get_all_schemas_with_history() if not s.domain)


# operators without a schema in the standard's domain: those that onnxruntime's optimiser writes (LayerNormalization only in
# opsets before the standard had it), and those that the standard has removed
ADDED = frozenset(
    (
        *("LayerNormalization", "SimplifiedLayerNormalization"),
        *(
            "Affine",
            "ConstantFill",
            "Crop",
            "ImageScaler",
            "MeanVarianceNormalization",
            "ParametricSoftplus",
            "Scale",
            "ScaledTanh",
        ),
    )
)


def must_have_schema(site: Site) -> bool:
    """Whether the operator is from a domain of the standard and exists only if it has a schema in this opset."""
    return site.domain in standard_domains() and (bool(site.domain) or site.op_type not in ADDED)


def may_have_body(site: Site) -> bool:
    schema = find_schema(site.domain, site.op_type, site.opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def schema_body(
    node: onnx.NodeProto, site: Site, operands: Sequence[Value | None], attributes: Mapping[str, onnx.AttributeProto]
) -> onnx.FunctionProto | None:
    """The function body that ONNX defines for the operator with these operands; ``None`` if there is none."""
    schema = find_schema(site.domain, site.op_type, site.opset)
    assert schema is not None
    if schema.has_function:
        return _plain_body(site.domain, site.op_type, site.opset)
    if not schema.has_context_dependent_function:
        return None
    version = _newest(schema.context_dependent_function_opset_versions, site.opset)
    if version is None:
        return None
    call = onnx.NodeProto()
    call.op_type, call.domain = node.op_type, node.domain
    call.input.extend(node.input)
    call.output.extend(node.output)
    for name, attribute in attributes.items():
        copy = call.attribute.add()
        copy.CopyFrom(attribute)
        copy.name = name
    types = [_type_proto(v).SerializeToString() for v in operands]
    written = call.SerializeToString()
    site.importer.spend(len(written) // BYTES_A_UNIT, site)
    try:
        data = schema.get_context_dependent_function_with_opset_version(version, written, types)
    except (RuntimeError, ValueError, IndexError) as error:  # errors of ONNX's C++ code
        raise ModelError(f"{site}: {error}", code="GPC3013") from None
    if not data:
        return None
    site.importer.spend(len(data) // BYTES_A_UNIT, site)
    function = onnx.FunctionProto()
    function.ParseFromString(data)
    return _with_opset(function, site.scope.opsets.get("", version))


@lru_cache(maxsize=256)
def _plain_body(domain: str, op_type: str, opset: int) -> onnx.FunctionProto | None:
    schema = find_schema(domain, op_type, opset)
    assert schema is not None
    version = _newest(schema.function_opset_versions, opset)
    if version is None:
        return None
    function = onnx.FunctionProto()
    function.ParseFromString(schema.get_function_with_opset_version(version))
    return _with_opset(function, version)


def _with_opset(function: onnx.FunctionProto, version: int) -> onnx.FunctionProto:
    if not any(o.domain in ("", "ai.onnx") for o in function.opset_import):
        function.opset_import.append(onnx.helper.make_opsetid("", version))
    return function


def _newest(versions: Sequence[int], opset: int) -> int | None:
    return max((v for v in versions if v <= opset), default=None)


def _type_proto(value: Value | None) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    if value is None:
        return proto
    inner, type = proto, value.type
    if isinstance(type, OptionalType):
        inner = inner.optional_type.elem_type
    if isinstance(type, SequenceType) or (isinstance(type, OptionalType) and type.sequence):
        inner = inner.sequence_type.elem_type
    inner.tensor_type.elem_type = next(n for n, dtype in DTYPES.items() if dtype is type.dtype)
    if isinstance(value, Value):
        for size in value.shape:
            dim = inner.tensor_type.shape.dim.add()
            if isinstance(size, Size):
                dim.dim_param = str(size)
            else:
                dim.dim_value = size
    return proto
