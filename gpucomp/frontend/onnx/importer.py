"""From ``ModelProto`` to ``Graph``: scopes, names, inlining, folding. Iterative: neither long chains nor deep functions
use Python's stack. The translators of operators are in the other files of this folder.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import onnx

from gpucomp.errors import GpucompError, ModelError, ShapeError, UnsupportedError, UsageError, quote
from gpucomp.frontend.onnx import containers, data_dependent, functions, tensors
from gpucomp.frontend.onnx.compose import tracing
from gpucomp.frontend.onnx.containers import MapsValue, OptionalValue, SequenceValue
from gpucomp.frontend.onnx.external import ExternalFiles
from gpucomp.frontend.onnx.folding import Folding
from gpucomp.frontend.onnx.structure import in_order, opsets_of, repeated
from gpucomp.frontend.onnx.symbols import Symbols, element_type_of, fixed_array
from gpucomp.frontend.onnx.translate import (
    Site,
    check_arity,
    check_operand_types,
    checked_attributes,
    find_schema,
    find_translator,
    is_translated_at,
    located,
    signature_of,
    unchecked_attributes,
)
from gpucomp.ir import Constant, Graph, Node, TensorType, Value, constant, counted, input_value, origin
from gpucomp.ir.size import hint
from gpucomp.lazy_dataclass import dataclass

MAX_NODE_BYTES = 16 << 30  # bytes of one value
MAX_LISTED = 1000  # problems collected before giving up
INITIALISER_EFFORT = 8  # cost of an initialiser, an attribute's default or an opset, in units of ``functions.EFFORT``
MAX_PATH = 1000  # characters of the path of functions and loops in front of a node's name: it is built for every node


class Unknown:
    """Replaces a value that could not be translated. The list of problems has the reason."""


UNKNOWN = Unknown()
Known = Value | SequenceValue | OptionalValue | MapsValue | Unknown
Body = Generator[Any, list[Known], list[Known]]


@dataclass
class _Tally:
    """Counts the nodes and constants that the translator of one node builds."""

    importer: Importer
    site: Site
    constants: list[np.ndarray] = field(default_factory=list)

    def built(self, node: Node) -> None:
        self.spend(functions.BUILT_EFFORT + functions.OPERAND_EFFORT * len(node.inputs) + len(node.types))
        if node.op is Constant:
            self.constants.append(node.attrs["value"])

    def spend(self, effort: int) -> None:
        self.importer.spend(effort, self.site)


@dataclass
class Scope:
    """The names visible in one body: its own and, for a subgraph, those of the enclosing scopes."""

    opsets: Mapping[str, int]
    parent: Scope | None = None
    path: str = ""  # prefix of node names: the enclosing functions and subgraphs
    attributes: Mapping[str, onnx.AttributeProto] = field(default_factory=dict)  # of the function call
    values: dict[str, Known] = field(default_factory=dict)
    from_function: bool = False
    of_standard: bool = (
        False  # a body that ONNX defines for an operator. It may use types that its operators did not support yet
    )
    absent: set[str] = field(default_factory=set)  # optional inputs of the function that the call omits

    @property
    def depth(self) -> int:
        """The number of enclosing scopes. Names are looked up in each of them."""
        count, scope = 0, self.parent
        while scope is not None:
            count, scope = count + 1, scope.parent
        return count

    def is_absent(self, name: str) -> bool:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return False
            if name in scope.absent:
                return True
            scope = scope.parent
        return False

    def find(self, name: str) -> Known | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        return None


class Importer:
    """Translates one model once. ``run`` returns the graph; ``problems`` holds the reasons if that is not possible.

    ``run_apart`` leaves out the nodes whose shapes are data-dependent and all nodes that depend on these.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        files: ExternalFiles,
        shapes: Mapping[str, Any],
        constants: dict[str, Any],
        folding: Folding | None = None,
    ) -> None:
        self.model = model
        self.files = files
        self.shapes = shapes
        self.constants = constants
        self.problems: dict[str, tuple[str, ...]] = {}  # text -> the inputs that would have to be fixed
        self.waiting: list[onnx.NodeProto] = []  # nodes of the main graph with unknown results
        self.reasons: list[str] = []  # problems that can be solved at run time, when values are known
        self.nodes = 0
        self.folding = folding or Folding(files)
        self.functions = functions.table(model)
        self.input_containers: dict[str, tuple[str, ...] | None] = {}
        self.bounds = functions.bounds(self.functions, model.graph)
        self.effort = 0
        self.reads = functions.Reads()
        self.orders: dict[int, tuple[Any, list[onnx.NodeProto]]] = {}  # of bodies, which can be translated many times

    # --- the whole model

    def run(self) -> Graph:
        inputs, scope = self._begun()
        outputs = self._outputs(scope)
        if self.problems:
            raise self._unsupported(self.problems)
        return self._graph(inputs, outputs)

    def run_apart(self) -> tuple[Graph, onnx.ModelProto | None]:
        """The graph of the nodes without data-dependent shapes, and the rest of the model; ``None`` if nothing is left.

        If there is a rest, the outputs of the graph are the values that the rest reads, by the model's own names. The
        rest computes all outputs of the model. Raises as ``run``, except for problems that can be solved at run time.
        """
        inputs, scope = self._begun()
        outputs = self._outputs(scope)
        if hopeless := {text: names for text, names in self.problems.items() if text not in self.reasons}:
            raise self._unsupported(hopeless)
        if not self.problems:
            return self._graph(inputs, outputs), None
        if any(isinstance(value, MapsValue) for value in outputs.values()):  # the rest cannot read them
            raise UnsupportedError("a ZipMap is not supported in a model with data-dependent shapes", code="GPC4003")
        rest, read = data_dependent.rest(
            self.model, self.waiting, scope.values, scope.opsets, self.files, self.constants
        )
        return self._graph(inputs, read), rest

    def _begun(self) -> tuple[tuple[Value, ...], Scope]:
        """The inputs, and the scope of the main graph with the inputs and the initialisers."""
        graph = self.model.graph
        before_opsets = self.model.ir_version < 3 and not self.model.opset_import  # all operators are of version 1
        scope = Scope({"": 1} if before_opsets else opsets_of(self.model.opset_import, "the model"))
        functions.check_expansion(self.functions, graph, self.bounds.nodes)
        inputs = self._inputs(graph, scope)
        names = [output.name for output in graph.output]
        if not names:
            raise ModelError("the model has no outputs", code="GPC3010")
        if len(set(names)) != len(names):
            raise ModelError(f"output {quote(repeated(names))} is listed twice", code="GPC3011")
        return inputs, scope

    def _outputs(self, scope: Scope) -> dict[str, Known]:
        names = [output.name for output in self.model.graph.output]
        with tracing():
            return dict(zip(names, drive(self.body(self.model.graph, names, scope)), strict=True))

    def _graph(self, inputs: tuple[Value, ...], outputs: Mapping[str, Known]) -> Graph:
        for declared in self.model.graph.output:
            if declared.name in outputs:
                containers.check_declared(outputs[declared.name], declared)  # type: ignore[arg-type]
        named: list[tuple[str, Value]] = []
        made_up: dict[str, tuple[str, ...] | None] = {}
        for name, output in outputs.items():
            tensors_of_it, parts = containers.flattened(name, output)  # type: ignore[arg-type]
            named += tensors_of_it
            made_up |= parts
        if len({name for name, _ in named}) != len(named):
            raise ModelError(f"output {quote(repeated([n for n, _ in named]))} is listed twice", code="GPC3011")
        values = tuple(value for _, value in named)
        return Graph(inputs, values, tuple(n for n, _ in named), self.model.graph.name, self.input_containers, made_up)

    def _unsupported(self, reasons: Mapping[str, tuple[str, ...]]) -> UnsupportedError:
        problems = tuple(reasons)
        inputs = tuple(dict.fromkeys(name for names in reasons.values() for name in names))
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return UnsupportedError(
            f"the model cannot be compiled: {problems[0]}{more}", problems=problems, inputs=inputs, code="GPC4001"
        )

    def unknown_operators(self) -> list[str]:
        """The problems of nodes whose operator is unknown or has no translation, whatever the shapes are."""
        graph, found = self.model.graph, dict[str, None]()
        pending = [(graph.node, Scope(opsets_of(self.model.opset_import, "the model")))]
        pending += [
            (
                f.node,
                Scope(opsets_of(f.opset_import, f"function {quote(f.name)}"), path=f"{f.name}/", from_function=True),
            )
            for f in self.functions.values()
        ]
        for nodes, scope in pending:
            for node in functions.nested_nodes(nodes):
                site = self._site(node, scope)
                if (node.domain, node.op_type, node.overload) in self.functions or not site.opset:
                    continue
                signature = signature_of(site.domain, node.op_type, site.opset)
                registered = find_translator(site.domain, node.op_type, site.opset)
                if signature is None and (registered is None or functions.must_have_schema(site)):
                    found[f"{site}: {self._unknown_operator(site).message}"] = None
                elif registered is None and not functions.may_have_body(site):
                    found[f"{site}: no translation for this operator"] = None
        return list(found)

    # --- inputs and initialisers

    def _inputs(self, graph: onnx.GraphProto, scope: Scope) -> tuple[Value, ...]:
        declared = [i.name for i in graph.input]
        if len(set(declared)) != len(declared):
            raise ModelError(f"input {quote(repeated(declared))} is declared twice", code="GPC3011")
        for what, given in (("shapes", self.shapes), ("constants", self.constants)):
            if unknown := [name for name in given if name not in declared]:
                weights = {w.name for w in graph.initializer} | {w.values.name for w in graph.sparse_initializer}
                fed = [name for name in declared if name not in weights]  # up to IR version 3, weights are inputs too
                known = ", ".join(map(quote, fed[:20])) or "none"
                raise UsageError(
                    f"{what}: the model has no input {quote(unknown[0])}; its inputs are: {known}", code="GPC2101"
                )
        self._initialisers(graph, scope, set(self.shapes) | set(self.constants))
        made_up = {i.name for i in graph.input if i.type.WhichOneof("value") in ("sequence_type", "optional_type")}
        tensors_given = {i.name: i for i in graph.input if i.name in self.constants and i.name not in made_up}
        self.constants |= {n: fixed_array(i, self.constants[n]) for n, i in tensors_given.items()}
        symbols = Symbols(
            {n: s for n, s in self.shapes.items() if n not in made_up},
            {n: a for n, a in self.constants.items() if n not in made_up},
        )
        open_inputs = [i for i in graph.input if i.name not in scope.values]
        for info in open_inputs:
            if info.name not in made_up:
                symbols.note(info)
        inputs = []
        for info in open_inputs:
            if info.name in self.constants:
                scope.values[info.name] = self._fixed(info)
                continue
            where = f"input {quote(info.name)}"
            try:
                if info.name in made_up:
                    whole, parts = containers.model_input(info, self.shapes)
                    self.input_containers |= containers.flattened(info.name, whole)[1]
                    scope.values[info.name] = whole
                    inputs += parts
                    continue
                type = TensorType(element_type_of(info, where), tensors.checked_shape(symbols.shape(info), where))
                value = input_value(info.name, type)
            except UnsupportedError as error:
                self._problem(error)
                scope.values[info.name] = UNKNOWN
                continue
            inputs.append(value)
            scope.values[info.name] = value
        labels = [value.attrs["label"] for value in inputs]
        if len(set(labels)) != len(labels):
            raise ModelError(f"input {quote(repeated(labels))} is declared twice", code="GPC3011")
        return tuple(inputs)

    def _fixed(self, info: onnx.ValueInfoProto) -> Known:
        if info.type.WhichOneof("value") in ("sequence_type", "optional_type"):
            return containers.fixed(info, self.constants[info.name])
        array = np.array(self.constants[info.name])
        where = f"constants: input {quote(info.name)}"
        expected = element_type_of(info, where)
        if array.dtype != expected.numpy:
            raise UsageError(f"{where}: {expected} expected, {array.dtype} given", code="GPC2108")
        return constant(array, name=info.name)

    def _initialisers(self, graph: onnx.GraphProto, scope: Scope, overridden: set[str]) -> None:
        dense = [(tensor.name, tensor) for tensor in graph.initializer]
        sparse = [(tensor.values.name, tensor) for tensor in graph.sparse_initializer]
        for name, tensor in [*dense, *sparse]:
            where = f"initializer {quote(name)}"
            if not name or name in scope.values:
                raise ModelError(f"{where}: {'defined twice' if name else 'has no name'}", code="GPC3011")
            if name in overridden and scope.parent is None:
                continue
            try:
                if isinstance(tensor, onnx.TensorProto):
                    array = tensors.to_array(tensor, self.files, where)
                else:
                    array = tensors.sparse_to_array(tensor, self.files, where)
                scope.values[name] = constant(array, name=name)
            except UnsupportedError as error:
                self._problem(error)
                scope.values[name] = UNKNOWN

    # --- bodies

    def body(self, owner: onnx.GraphProto | onnx.FunctionProto, outputs: Sequence[str], scope: Scope) -> Body:
        """Translate the nodes of ``owner`` in ``scope``. The generator returns the values of ``outputs``."""
        _, order = self.orders.get(id(owner), (owner, None))
        named = (name for node in order or owner.node for name in node.output if name)
        if duplicate := next((name for name in named if name in scope.values), None):
            raise ModelError(f"{quote(scope.path + duplicate)} is defined twice", code="GPC3011")
        if order is None:
            order = in_order(owner.node, scope.path, self.reads)
            self.orders[id(owner)] = owner, order
        for node in order:
            site = self._site(node, scope)
            self.count(1, site)
            self.spend(len(node.input) + len(node.output) + len(node.attribute), site)
            results: list[Known] | Body
            try:
                results = self._node(node, site, scope)
                if inspect.isgenerator(results):
                    results = yield results
            except UnsupportedError as error:
                if error.code == "GPC4006":  # a limit of the whole model
                    raise
                self._problem(error, site)
                results = [UNKNOWN] * len(node.output)
            self._bind(node, results, site, scope)  # type: ignore[arg-type]
            top = scope.parent is None and not scope.from_function
            if top and any(isinstance(scope.values.get(name), Unknown) for name in node.output):
                self.waiting.append(node)
        output_values = [scope.find(name) for name in outputs]
        for name, value in zip(outputs, output_values, strict=True):
            if value is None:
                raise ModelError(f"output {quote(scope.path + name)} is not computed by any node", code="GPC3012")
        return output_values  # type: ignore[return-value]

    def count(self, nodes: int, site: Site) -> None:
        """Count translated and unrolled nodes. Raises ``UnsupportedError`` if there are too many."""
        self.nodes += nodes
        if self.nodes > self.bounds.nodes:
            raise UnsupportedError(
                f"{site}: more than {self.bounds.nodes} nodes after inlining and unrolling, the limit for a file of this size",
                code="GPC4006",
            )

    def spend(self, effort: int, site: Site) -> None:
        """Count work besides the number of nodes. Raises ``UnsupportedError`` if it is too much."""
        self.effort += effort
        if self.effort > self.bounds.effort + functions.EFFORT_A_NODE * self.nodes:
            raise UnsupportedError(
                f"{site}: the model has more operands, results and names than are supported for a file of this size",
                code="GPC4006",
            )

    def subgraph(self, graph: onnx.GraphProto, arguments: Sequence[Known], site: Site) -> Body:
        """Translate the body of a control-flow operator, with its inputs bound to ``arguments``."""
        outer: Scope = site.scope
        scope = Scope(outer.opsets, outer, f"{site.name}/", outer.attributes, from_function=outer.from_function)
        if len(graph.input) != len(arguments):
            raise ModelError(
                f"{site}: its body has {len(graph.input)} inputs, {len(arguments)} expected", code="GPC3013"
            )
        names = [info.name for info in graph.input]
        if len(set(names)) != len(names):
            raise ModelError(f"{site}: input {quote(repeated(names))} of its body is declared twice", code="GPC3011")
        self.count(scope.depth, site)  # entering a scope takes as long as one node per enclosing scope
        named = len(graph.input) + len(graph.output)
        self.spend(named + INITIALISER_EFFORT * (len(graph.initializer) + len(graph.sparse_initializer)), site)
        self._initialisers(graph, scope, set())
        for info, value in zip(graph.input, arguments, strict=True):
            scope.values[info.name] = containers.declared_as(info, value)
        return self.body(graph, [o.name for o in graph.output], scope)

    def _site(self, node: onnx.NodeProto, scope: Scope) -> Site:
        domain = "" if node.domain == "ai.onnx" else node.domain
        name = node.name or next((o for o in node.output if o), "")
        opset = scope.opsets.get(domain, 0)
        if scope.path:
            name = scope.path[:MAX_PATH] + name[:MAX_PATH]
        return Site(node.op_type, domain, opset, name, tuple(node.output), scope, self)

    def _bind(self, node: onnx.NodeProto, results: Sequence[Known | None], site: Site, scope: Scope) -> None:
        for position, name in enumerate(node.output):
            if not name:
                continue
            value = results[position] if position < len(results) else None
            if value is None:
                self._problem(UnsupportedError(f"its output {position} is not supported"), site)
                value = UNKNOWN
            elif isinstance(value, Value) and hint(value.type.nbytes) > MAX_NODE_BYTES:
                raise UnsupportedError(f"{site}: its result {value.type} is larger than 16 GiB", code="GPC4006")
            scope.values[name] = value

    def _problem(self, error: UnsupportedError, site: Site | None = None) -> None:
        text = f"{site}: {error.message}" if site is not None else error.message
        self.problems.setdefault(text, error.inputs)
        if error.code == "GPC4005":
            self.reasons.append(text)
        if len(self.problems) > MAX_LISTED:
            raise self._unsupported(self.problems)

    # --- one node

    def _node(self, node: onnx.NodeProto, site: Site, scope: Scope) -> list[Known] | Body:
        """The values of the node's outputs, or a generator that returns them."""
        names = ["" if scope.is_absent(name) else name for name in node.input]
        while names and not names[-1]:
            del names[-1]
        operands = [self._operand(name, site, scope) for name in names]
        local = self.functions.get((node.domain, node.op_type, node.overload))
        if local is not None:
            return self._call(local, operands, node, site, scope)
        if not site.opset and not scope.from_function:
            raise ModelError(f"{site}: the model imports no opset of domain {quote(site.domain)}", code="GPC3016")
        signature = signature_of(site.domain, node.op_type, site.opset)
        registered = find_translator(site.domain, node.op_type, site.opset)
        if signature is None and (registered is None or functions.must_have_schema(site)):
            raise self._unknown_operator(site)
        if signature is not None:
            if signature.deprecated and not is_translated_at(site.domain, node.op_type, signature.since):
                raise ModelError(f"{site}: the operator does not exist in this opset", code="GPC3017")
            check_arity(names, node.output, signature, site)
        if registered is None and not functions.may_have_body(site):
            raise self._untranslated(operands)
        if any(isinstance(v, Unknown) for v in operands):
            return [UNKNOWN] * len(node.output)
        known_operands: list[Value | None] = operands  # type: ignore[assignment]
        given = self._resolved(node, scope)
        self.spend(sum(map(_entries, given)), site)
        if signature is None:
            assert registered is not None
            attributes = unchecked_attributes(given, registered[0], known_operands, self.files, site)
        else:
            if not scope.of_standard:
                check_operand_types(known_operands, signature, site)
            attributes = checked_attributes(given, signature, registered[0] if registered else None, self.files, site)
        if registered is None:
            body = functions.schema_body(node, site, known_operands, dict(given))
            if body is None:
                raise self._untranslated(operands)
            return self._call(body, operands, node, site, scope, of_standard=True)
        translator, takes_site = registered
        tally = _Tally(self, site)
        with origin(site.name), counted(tally), located(site, known_operands):
            result: Any = translator(*known_operands, **attributes, **({"site": site} if takes_site else {}))
            if isinstance(result, Generator):
                return self._guarded(result, site, known_operands)
            results = list(result) if isinstance(result, (tuple, list)) else [result]
            self.spend(sum(len(v.elements) for v in results if isinstance(v, SequenceValue)) // 2, site)
            if attributes.get("value", attributes.get("sparse_value")) is None:  # otherwise it is the model's own
                self.folding.made(tally.constants)
            return self.folding.results(results)

    def _guarded(self, generator: Body, site: Site, operands: Sequence[Value | None]) -> Body:
        """Run ``generator`` step by step, with the site's name on its nodes and in its errors."""
        answer: Any = None
        while True:
            try:
                with origin(site.name), counted(_Tally(self, site)), located(site, operands):
                    request = generator.send(answer)
            except StopIteration as stop:
                return self.folding.results(stop.value)
            answer = yield request

    def _operand(self, name: str, site: Site, scope: Scope) -> Known | None:
        if not name:
            return None
        value = scope.find(name)
        if value is None:
            raise ModelError(f"{site}: its input {quote(name)} is not defined", code="GPC3012")
        return value

    def _untranslated(self, operands: Sequence[Known | None]) -> UnsupportedError:
        known = next((v for v in operands if v is not None and not isinstance(v, Unknown)), None)
        dtype = known.type.dtype if known is not None else "unknown element type"
        return UnsupportedError(f"no translation for this operator ({dtype})", code="GPC4002")

    def _unknown_operator(self, site: Site) -> GpucompError:
        if site.domain == "" and site.op_type in functions.all_operator_names():
            return ModelError(f"{site}: the operator is not part of this opset", code="GPC3017")
        return UnsupportedError("unknown operator", code="GPC4002")

    def _resolved(self, node: onnx.NodeProto, scope: Scope) -> list[tuple[str, onnx.AttributeProto]]:
        """The node's attributes by name. References to a function's attributes are replaced by the caller's."""
        result = []
        for attribute in node.attribute:
            resolved = scope.attributes.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
            if resolved is not None:
                result.append((attribute.name, resolved))
        return result

    def _call(
        self,
        function: onnx.FunctionProto,
        operands: Sequence[Known | None],
        node: onnx.NodeProto,
        site: Site,
        scope: Scope,
        *,
        of_standard: bool = False,
    ) -> Body:
        """Inline ``function``."""
        if len(operands) > len(function.input) or len(node.output) > len(function.output):
            raise ModelError(
                f"{site}: the function takes {len(function.input)} inputs and gives {len(function.output)} outputs",
                code="GPC3013",
            )
        names = len(function.input) + len(function.output) + len(function.attribute)
        self.spend(names + INITIALISER_EFFORT * (len(function.attribute_proto) + len(function.opset_import)), site)
        given = dict(self._resolved(node, scope))
        attributes = {a.name: a for a in function.attribute_proto} | given
        signature = signature_of(site.domain, node.op_type, site.opset)
        if signature is None:
            allowed = set(function.attribute) | {a.name for a in function.attribute_proto}
            if unknown := sorted(set(given) - allowed):
                raise ModelError(f"{site}: unknown attribute {quote(unknown[0])}", code="GPC3014")
            if missing := sorted(set(function.attribute) - set(given)):
                raise ModelError(f"{site}: attribute {quote(missing[0])} is required", code="GPC3014")
        else:
            schema = find_schema(site.domain, node.op_type, site.opset)
            assert schema is not None
            for name, attribute in schema.attributes.items():
                if attribute.default_value is not None and attribute.default_value.name:
                    attributes.setdefault(name, attribute.default_value)
        opsets = opsets_of(function.opset_import, f"function {quote(function.name)}")
        inner = Scope(opsets, None, f"{site.name}/", attributes, from_function=True, of_standard=of_standard)
        padded = [*operands, *[None] * (len(function.input) - len(operands))]
        for name, value in zip(function.input, padded, strict=True):
            if value is None:
                inner.absent.add(name)
            else:
                inner.values[name] = value
        return self._call_body(function, node, inner)

    def _call_body(self, function: onnx.FunctionProto, node: onnx.NodeProto, scope: Scope) -> Body:
        names = [inner for inner, outer in zip(function.output, node.output, strict=False) if outer]
        results = yield self.body(function, names, scope)
        by_name = dict(zip(names, results, strict=True))
        return [by_name.get(inner, UNKNOWN) for inner in function.output[: len(node.output)]]


def _entries(attribute: tuple[str, onnx.AttributeProto]) -> int:
    """The cost of reading an attribute, in units of ``functions.EFFORT``."""
    value = attribute[1]
    return (len(value.ints) + len(value.floats) + len(value.strings)) // 8 + len(value.s) // 1024


def drive(generator: Body) -> list[Known]:
    """Run ``generator`` and the generators that it yields. Each is sent the result of the generator that it yielded.

    There is no recursion.
    """
    stack = [generator]
    answer: Any = None
    failure: BaseException | None = None
    while stack:
        try:
            if failure is not None:
                pending, failure = failure, None
                request = stack[-1].throw(pending)
            else:
                request = stack[-1].send(answer)
        except StopIteration as stop:
            stack.pop()
            answer = stop.value
        except (UnsupportedError, ShapeError) as error:  # the enclosing body can continue with an unknown value
            stack.pop()
            failure = error
        else:
            stack.append(request)
            answer = None
    if failure is not None:
        raise failure
    results: list[Known] = answer
    return results
