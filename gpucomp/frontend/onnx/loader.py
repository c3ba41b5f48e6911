"""Reads a model from a path, bytes or a ``ModelProto``. The importer translates it to a ``Graph``."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx.inliner import inline_local_functions

from gpucomp.errors import GpucompError, ModelError, UnsupportedError, UsageError, quote
from gpucomp.frontend.onnx import data_dependent, functions, wire
from gpucomp.frontend.onnx.external import ExternalFiles, beside
from gpucomp.frontend.onnx.importer import Importer
from gpucomp.frontend.onnx.symbols import is_fixed
from gpucomp.ir import Graph
from gpucomp.ir.conditions import Assumed, assuming
from gpucomp.ir.dims import OpenShapes
from gpucomp.ir.polynomial import NotPolynomial
from gpucomp.ir.size import size_of
from gpucomp.lazy_dataclass import dataclass
from gpucomp.ops.registry import OPS


@dataclass(frozen=True)
class Source:
    """A model that ``read`` has read. Its tensors are decoded once, however often it is translated."""

    proto: onnx.ModelProto
    files: ExternalFiles


ModelLike = str | Path | bytes | onnx.ModelProto | Source
MAX_FILE = (1 << 31) - 1  # protobuf's own limit; larger models keep their weights in external files


@dataclass(frozen=True, slots=True)
class Named:
    """A node of a model: its name (or that of its first output), operator and outputs. In bodies, names start with a path."""

    name: str
    op: str
    outputs: tuple[str, ...]


def load(
    model: ModelLike,
    *,
    shapes: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> Graph:
    """The graph of an ONNX model.

    ``shapes`` gives the concrete shapes of inputs with open dimensions. ``constants`` fixes inputs to values, so that
    they are no longer inputs of the graph; this is needed if the value of an input determines a shape. For a sequence,
    both are lists with one entry per tensor; for an empty optional, ``None``.

    Raises ``ModelError`` (unreadable or invalid), ``UnsupportedError`` (``problems`` lists all cases) and
    ``UsageError`` (an open dimension without a size).
    """
    with _memory():
        return _importer(*read(model), shapes, constants).run()


def load_split(
    model: ModelLike,
    *,
    shapes: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> tuple[Graph, bytes]:
    """The graph of the part of a model without data-dependent shapes, and the rest as an ONNX model; empty if there is none.

    The rest is the nodes whose results have data-dependent shapes, such as NonMaxSuppression, and all nodes that depend
    on them. It reads the graph's outputs, and its outputs are the model's. Raises as ``load``.
    """
    with _memory():
        proto, files = read(model)
        importer = _importer(proto, files, shapes, constants)
        graph, rest = importer.run_apart()
        if rest is not None and any((n.domain, n.op_type, n.overload) in importer.functions for n in importer.waiting):
            try:  # inline functions, so that only the data-dependent nodes of a function are in the rest
                proto = inline_local_functions(proto)
                graph, rest = _importer(proto, files, shapes, constants).run_apart()
            except ModelError:  # onnx's inliner fails on some valid names and orders of nodes: keep the first result
                pass
        if rest is None:
            return graph, b""
        if rest.ByteSize() > MAX_FILE:
            raise UnsupportedError("the data-dependent part of the model is larger than 2 GiB", code="GPC4006")
        return graph, rest.SerializeToString(deterministic=True)


@dataclass(frozen=True)
class OpenGraph:
    """The compiled part of a model for a range of shapes. Its extents are formulas, right where ``conditions`` hold.

    ``example`` has the sizes for which everything was decided that no formula decides. ``rest`` is as in ``load_split``.
    """

    shapes: OpenShapes
    graph: Graph
    rest: bytes
    conditions: Assumed
    example: Mapping[str, int]

    def varying(self) -> set[str]:
        """The dimensions that can have quite another size than in the example. A loop over the others is unrolled."""
        found = set()
        for name, dim in self.shapes.dims.items():
            own = self.example[name]
            others = {dim.nearest(around + step) for around in (own // 2, 2 * own, 5 * own) for step in range(64)} - {
                own
            }
            far = {size for size in others if not own < 1.5 * size < 2.25 * own} or others
            if any(self.conditions.hold_at({**self.example, name: size}) for size in sorted(far)):
                found.add(name)
        return found


def load_open(
    model: ModelLike,
    shapes: OpenShapes,
    constants: Mapping[str, Any] | None = None,
    change: Callable[[Graph], Graph] = lambda graph: graph,
) -> OpenGraph:
    """The graph of a model for all ``shapes``, after ``change``. Raises as ``load_split``, if no example fits the model.

    If something in the model has no formula, or if shapes depend on values, the graph is that of one example, and all its
    sizes are conditions.
    """
    examples = list(shapes.examples())
    for example in examples:
        sizes = {name: size_of(dim, example[name]) for name, dim in shapes.dims.items()}
        try:
            with assuming(Assumed()) as conditions:
                graph = change(load(model, shapes=shapes.at(sizes), constants=constants))
            return OpenGraph(shapes, graph, b"", conditions, example)
        except NotPolynomial:
            continue
        except GpucompError as error:  # no convolution fits an image of one pixel; or there is no formula
            if error.code == "GPC2040":  # of ``change``: at no sizes are these states
                raise
    for example in examples:
        try:
            graph, rest = load_split(model, shapes=shapes.at(example), constants=constants)
        except ModelError as error:
            if example is examples[-1]:
                tried = ", ".join(f"{quote(name)} {size}" for name, size in example.items())
                told = f"{error.message}; no sizes that were tried fit the model, such as {tried}: declare such as do"
                raise ModelError(told, code=error.code) from error
            continue
        with assuming(Assumed()) as conditions:
            for name, dim in shapes.dims.items():
                int(size_of(dim, example[name]))
        return OpenGraph(shapes, graph, rest, conditions, example)
    raise AssertionError("there are no examples")


def names_in(rest: bytes) -> set[str]:
    """The names that the nodes of the model ``rest`` have in graphs, and those of its operators that graphs have too.

    Other operators become different ones: a Gemm, for example, becomes a MatMul.
    """
    names: set[str] = set()
    for node in nodes_in(rest):
        names.add(node.name)
        if node.op in OPS:
            names.add(node.op)
    return names


def nodes_in(model: ModelLike) -> Iterator[Named]:
    """Every node of a model, its subgraphs and functions, with the name that its translation has in the graph."""
    proto, _ = read(model)
    bodies = functions.table(proto)
    pending = [("", proto.graph.node)]
    while pending:
        path, nodes = pending.pop()
        for node in nodes:
            name = path + (node.name or next((o for o in node.output if o), ""))
            yield Named(name, node.op_type, tuple(path + output for output in node.output if output))
            body = bodies.get((node.domain, node.op_type, node.overload))
            graphs = [graph for a in node.attribute for graph in ([a.g] if a.HasField("g") else a.graphs)]
            pending += [(f"{name}/", owner.node) for owner in (*graphs, *([] if body is None else [body]))]


def _importer(
    proto: onnx.ModelProto,
    files: ExternalFiles,
    shapes: Mapping[str, Any] | None,
    constants: Mapping[str, Any] | None,
) -> Importer:
    for what, given in (("shapes", shapes), ("constants", constants)):
        if given is not None and not isinstance(given, Mapping):
            raise UsageError(f"{what}: a mapping of input names expected, {type(given).__name__} given", code="GPC2009")
    return Importer(proto, files, dict(shapes or {}), dict(constants or {}))


@contextmanager
def _memory() -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise UnsupportedError("the model needs more memory than there is", code="GPC4009") from None


def deciding_inputs(model: ModelLike, *, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The ``values`` that shapes depend on, which ``load`` needs as ``constants``. Raises as ``load``."""
    fixed: dict[str, Any] = {}
    while True:
        try:
            load(model, shapes=shapes, constants=fixed)
        except UnsupportedError as error:
            named = [label if label in values else label.rpartition("[")[0] for label in error.inputs]  # "x[0]" of "x"
            deciding = [name for name in named if name in values and name not in fixed]
            if not deciding:
                raise
            fixed |= {name: values[name] for name in deciding}
        else:
            return fixed


def check(
    model: ModelLike, shapes: Mapping[str, Any] | None = None, constants: Mapping[str, Any] | None = None
) -> tuple[list[str], bytes]:
    """Everything in ``model`` that gpucomp cannot compile, one line each, and the rest as returned by ``load_split``.

    Raises as ``load``, except for the problems in the list.
    """
    try:
        return [], load_split(model, shapes=shapes, constants=constants)[1]
    except UnsupportedError as error:
        return list(error.problems), b""


def unknown_operators(model: ModelLike) -> list[str]:
    """The nodes of ``model`` that gpucomp cannot compile whatever the shapes of its inputs are, one line each."""
    with _memory():
        return _importer(*read(model), None, None).unknown_operators()


def declared_shapes(model: ModelLike) -> dict[str, tuple[int | None, ...]]:
    """The shapes of the inputs as declared, with ``None`` for open dimensions. Inputs without a shape are left out."""
    proto, _ = read(model)
    weights = {w.name for w in proto.graph.initializer} | {w.values.name for w in proto.graph.sparse_initializer}
    return {
        info.name: tuple(d.dim_value if is_fixed(d) else None for d in info.type.tensor_type.shape.dim)
        for info in proto.graph.input
        if info.name not in weights  # up to IR version 3, initialisers are inputs too
        and info.type.HasField("tensor_type")
        and info.type.tensor_type.HasField("shape")
    }


def read_whole(path: Path) -> onnx.ModelProto:
    """The model in a file, including the data of its external files. Raises as ``load``."""
    proto, files = read(path)
    data_dependent.bring_in(proto, files)
    return proto


def data_files(model: ModelLike) -> set[str]:
    """The names of the files with external data, relative to the model's folder. Raises as ``load``."""
    tensors = data_dependent.external_tensors(read(model)[0])
    return {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}


def read(model: ModelLike) -> tuple[onnx.ModelProto, ExternalFiles]:
    """The parsed model and the files that its external data may be in. Only a model that is a file has such files."""
    if isinstance(model, Source):
        return model.proto, model.files
    if isinstance(model, onnx.ModelProto):
        _check_text(model, "the model")
        return _checked(model, "the model"), ExternalFiles(None)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return _parsed(bytes(model), "the model"), ExternalFiles(None)
    if not isinstance(model, str | os.PathLike):
        raise UsageError(
            f"a model's path, its bytes or a ModelProto expected, {type(model).__name__} given{_way_from(model)}",
            code="GPC2009",
        )
    path = Path(model)
    what = f"model {quote(path)}"
    return _parsed(_content(path, what), what), beside(path)


def _way_from(model: object) -> str:
    """How a model of PyTorch becomes one of ONNX. It is known by its methods, so that torch need not be imported."""
    if hasattr(model, "model_proto"):
        return "; torch.onnx.export gave it: pass its .model_proto"
    if callable(getattr(model, "forward", None)) and callable(getattr(model, "state_dict", None)):
        return (
            "; export a PyTorch module first: "
            "gpucomp.compile(torch.onnx.export(module, (example_input,), dynamo=True).model_proto)"
        )
    if hasattr(model, "graph_signature") and hasattr(model, "run_decompositions"):
        return (
            "; torch.export gave it: write it as ONNX first: "
            "gpucomp.compile(torch.onnx.export(program, dynamo=True).model_proto)"
        )
    return ""


def _content(path: Path, what: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ModelError(f"{what}: not a regular file", code="GPC3001")
            if status.st_size > MAX_FILE:
                raise ModelError(f"{what}: larger than 2 GiB, the limit of an ONNX file", code="GPC3001")
            return file.read()
    except OSError as error:
        raise ModelError(f"{what}: {os.strerror(error.errno or 0).lower()}", code="GPC3001") from None
    except ValueError:
        raise ModelError(f"{what}: no file can have this name", code="GPC3001") from None


def _parsed(data: bytes, what: str) -> onnx.ModelProto:
    if not data:
        raise ModelError(f"{what} is empty", code="GPC3002")
    wire.check(data, what)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        raise ModelError(f"{what} is not an ONNX model, or is truncated", code="GPC3002") from None
    return _checked(proto, what)


def _checked(proto: onnx.ModelProto, what: str) -> onnx.ModelProto:
    if not proto.HasField("graph"):
        raise ModelError(f"{what} has no graph: it is not an ONNX model, or is truncated", code="GPC3002")
    if proto.ir_version < 1 or proto.ir_version > onnx.IR_VERSION + 100:
        raise ModelError(f"{what}: IR version {proto.ir_version} does not exist", code="GPC3002")
    return proto


def _check_text(proto: Message, what: str) -> None:
    """Raise ``ModelError`` unless every string is valid UTF-8. protobuf returns invalid strings as ``bytes``."""
    pending = [proto]
    while pending:
        message = pending.pop()
        if isinstance(message, onnx.TensorProto):  # listing its fields would copy the weights
            strings: list[object] = [message.name]
            pending.extend(message.external_data)
        else:
            strings = []
            for field, value in message.ListFields():
                values = value if field.is_repeated else [value]
                if field.type == FieldDescriptor.TYPE_MESSAGE:
                    pending.extend(values)
                elif field.type == FieldDescriptor.TYPE_STRING:
                    strings.extend(values)
        if not all(isinstance(text, str) for text in strings):
            raise ModelError(f"{what}: a name in it is not UTF-8 text", code="GPC3003")
