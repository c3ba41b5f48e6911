"""Runs the dynamic part of a model. numpy computes it on the host; expensive steps are compiled on first use.

Behind a NonMaxSuppression every shape depends on how many boxes were kept. The frontend leaves such nodes as an ONNX model
(``frontend.load_split``). Here that model is translated like any other, but ``static`` is answered with values of this
run. The result is a program of numpy references in which every shape is known. Programs are kept by the answers that they
were made with: a count that came before needs no new translation.

Steps that are too expensive for numpy (``expensive``) are compiled for the device. If their rows are independent, they are
compiled for the next power of two of rows in the run that meets them first, so that few counts need a compilation of their
own. Otherwise they are compiled for the exact shape, once that shape has been seen twice or is very expensive.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

import numpy as np
import onnx

from gpucomp import config
from gpucomp.dynamic.outline import REPEATED_WORK, Part, expensive, part_of
from gpucomp.errors import ArtifactError, DeviceError, GpucompError, UnsupportedError, quote
from gpucomp.frontend.onnx import functions, loader
from gpucomp.frontend.onnx.compose import answering
from gpucomp.frontend.onnx.folding import Folding
from gpucomp.frontend.onnx.importer import Importer
from gpucomp.frontend.onnx.open_shapes import declared_outputs
from gpucomp.ir.graph import MAX_RANK, Constant, Graph, Input, Node, Value, topological
from gpucomp.ir.printer import format_graph
from gpucomp.ir.types import TensorType
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.host import UNFIT
from gpucomp.runtime.inputs import TensorSpec, gathered

PROGRAMS = 64  # kept for one model; the least recently used is dropped
STEPS = 200_000  # of all kept programs together, to bound their memory
MADE_BYTES = 64 << 20  # of the constants that all kept programs made, besides those of the model
LARGE = 1 << 12  # bytes; a longer answer is kept by its digest
COMPILED = 8  # compiled graphs kept; the least recently used is dropped
MET = 64  # graphs for an exact shape that are remembered as seen once
LIVE = 2 << 30  # bytes of a run's arrays at one time; on top, eight times the bytes of the model and its inputs
MODELS_OWN = 1 << 20  # bytes; a larger constant is identified by its id: translations do not make new ones so large
Key = tuple[object, ...]


class Compiled(Protocol):
    """A compiled graph."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]: ...


@dataclass(frozen=True)
class Step:
    """Run ``node``'s numpy reference. ``operands`` and ``results`` are positions in the run's arrays."""

    node: Node
    operands: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """The value at ``position`` decides how the program goes on.

    The first ``steps`` steps of the program compute it, in the first ``arrays`` positions.
    """

    position: int
    steps: int
    arrays: int


@dataclass(eq=False)
class Program:
    """The steps of one translation, its questions, and the positions of its arrays.

    Translations with the same first answers have the same first steps. So a run can compute the first steps by one program
    and go on with another.
    """

    steps: list[Step] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    position: dict[Value, int] = field(default_factory=dict)
    inputs: dict[int, tuple[str, TensorType]] = field(default_factory=dict)
    constants: dict[int, np.ndarray] = field(default_factory=dict)
    maker: dict[int, int] = field(default_factory=dict)  # position -> number of the step that makes it
    parts: dict[tuple[int, int, bool], Part | None] = field(default_factory=dict)
    counts: set[int] = field(default_factory=set)  # numbers among the answers: extents that other answers change
    done: set[Node] = field(default_factory=set)
    graph: Graph | None = None

    def extend(self, values: Sequence[Value]) -> None:
        """Add the steps that ``values`` need."""
        for node in topological((v.node for v in values if v.node not in self.done), self.done):
            first = len(self.position)
            self.position.update((v, first + k) for k, v in enumerate(node.values))
            if node.op is Input:
                self.inputs[first] = node.attrs["label"], node.types[0]
            elif node.op is Constant:
                self.constants[first] = node.attrs["value"]
            else:
                results = tuple(range(first, first + len(node.values)))
                operands = tuple(self.position[v] for v in node.inputs)
                self.maker.update((p, len(self.steps)) for p in results)
                self.steps.append(Step(node, operands, results))

    def part(self, numbers: range, outputs: Sequence[int] | None) -> Part | None:
        """The steps of ``numbers`` that are to be compiled. Its results are what ``outputs`` and later steps read.

        Without ``outputs`` every result is kept: a program that is translated later may read any of them. It cannot compute
        them again: another kernel may round differently, and the result might not agree with the answers made from it.
        """
        key = (numbers.start, numbers.stop, outputs is None)
        if key not in self.parts:
            self.parts[key] = self._cut(numbers, outputs)
        return self.parts[key]

    def _cut(self, numbers: range, outputs: Sequence[int] | None) -> Part | None:
        steps = {k: self.steps[k] for k in numbers}
        reads = {k: {self.maker[p] for p in step.operands if p in self.maker} for k, step in steps.items()}
        chosen = expensive({k: step.node for k, step in steps.items()}, reads)
        if not chosen:
            return None
        gives = [p for k in sorted(chosen) for p in steps[k].results]
        if outputs is not None:
            outside = {p for k, step in steps.items() if k not in chosen for p in step.operands}
            gives = [p for p in gives if p in outputs or p in outside]
        values = [steps[self.maker[p]].node[p - steps[self.maker[p]].results[0]] for p in gives]
        return part_of(chosen, [steps[k].node for k in sorted(chosen)], values, self.position, self.counts)

    def made_bytes(self, own: Sequence[np.ndarray]) -> int:
        """Bytes of its constants that are not the model's ``own``."""
        known = {id(array) for array in own}
        return sum(array.nbytes for array in self.constants.values() if id(array) not in known)


class Run:
    """One run: its inputs, the arrays computed so far, and the answers given.

    ``compiled`` returns the compiled part, or ``None`` if numpy shall run it. ``most`` limits the bytes of live arrays.
    """

    def __init__(
        self, inputs: Mapping[str, np.ndarray], compiled: Callable[[Part], Compiled | None] | None, most: int
    ) -> None:
        self.inputs = inputs
        self.compiled = compiled
        self.arrays: list[np.ndarray | None] = []
        self.step = 0
        self.most = most
        self.live = 0  # bytes
        self.owners: Counter[int] = Counter()  # id of the array that owns the memory -> positions that hold it
        self.answers: list[np.ndarray] = []
        self.path = [b""]  # entry k: a digest of the first k answers

    def answer(self, program: Program, number: int) -> np.ndarray:
        """The answer to question ``number`` of ``program``; runs the steps before it if this run has not reached it yet."""
        if number == len(self.answers):
            question = program.questions[number]
            self._go_on(program, question.steps, question.arrays)
            array = self.arrays[question.position]
            assert array is not None
            self.answers.append(array)
            self.path.append(hashlib.sha256(self.path[-1] + repr(_key(array)).encode()).digest())
        return self.answers[number]

    def finish(self, program: Program) -> list[np.ndarray]:
        """The outputs of the program; arrays are freed after their last use."""
        assert program.graph is not None
        outputs = [program.position[v] for v in program.graph.outputs]
        self._go_on(program, len(program.steps), len(program.position), outputs)
        found = [self.arrays[p] for p in outputs]
        assert all(array is not None for array in found)
        return found  # type: ignore[return-value]

    def _go_on(self, program: Program, until: int, arrays: int, outputs: Sequence[int] | None = None) -> None:
        """Run the steps up to ``until`` that have not run. Without ``outputs`` every result is kept for later programs."""
        for position in range(len(self.arrays), arrays):  # positions beyond ``arrays`` may differ in another program
            self.arrays.append(None)
            self._put(position, self._given(program, position))
        numbers = range(self.step, until)
        uses = None
        if outputs is not None:
            uses = Counter([*outputs, *(p for k in numbers for p in program.steps[k].operands)])
            for position in range(len(self.arrays)):
                if not uses[position]:
                    self._put(position, None)
        part = program.part(numbers, outputs) if self.compiled else None
        compiled = self.compiled(part) if part is not None and self.compiled is not None else None
        if part is None or compiled is None:
            for k in numbers:
                self._take(program.steps[k], uses)
        else:
            waiting: set[int] = set()  # steps that read results of the part
            for k in numbers:
                makers = {program.maker[p] for p in program.steps[k].operands if p in program.maker}
                if makers & (part.numbers | waiting) and k not in part.numbers:
                    waiting.add(k)
                elif k not in part.numbers:
                    self._take(program.steps[k], None)
            read = [self.arrays[p] for p in part.reads]
            given = compiled.run(part.padded(read))  # type: ignore[arg-type]
            results = part.cut([given[name] for name in part.graph.output_names])
            for position, array in zip(part.gives, results, strict=True):
                self._put(position, array)
            self._check_bytes(program.steps[max(part.numbers)].node.name)
            for k in sorted(waiting):
                self._take(program.steps[k], None)
        self.step = max(self.step, until)

    def _given(self, program: Program, position: int) -> np.ndarray | None:
        """The array at ``position`` if that is a constant or an input, else ``None``."""
        if position not in program.inputs:
            return program.constants.get(position)
        label, type_ = program.inputs[position]
        array = self.inputs.get(label)
        if array is None or array.shape != type_.shape or array.dtype != type_.dtype.numpy:
            raise ArtifactError(
                f"the dynamic part of the model reads {quote(label)}: {type_}, which was not given", code="GPC7004"
            )
        return array

    def _take(self, step: Step, uses: Counter[int] | None) -> None:
        for position, array in zip(step.results, self._results(step), strict=True):
            self._put(position, array)
        self._check_bytes(step.node.name)
        if uses is not None:
            uses.subtract(step.operands)
            for position in (*step.operands, *step.results):
                if not uses[position]:
                    self._put(position, None)

    def _put(self, position: int, array: np.ndarray | None) -> None:
        """Set the array at ``position``, and count the bytes that this allocates or frees."""
        for other, more in ((array, 1), (self.arrays[position], -1)):
            if other is not None:
                owner = _owner(other)
                before = self.owners[id(owner)]
                self.owners[id(owner)] += more
                if not before or not self.owners[id(owner)]:
                    self.live += more * owner.nbytes
                if not self.owners[id(owner)]:
                    del self.owners[id(owner)]
        self.arrays[position] = array

    def _check_bytes(self, name: str) -> None:
        if self.live > self.most:
            raise UnsupportedError(
                f"the dynamic part of the model takes more than {self.most} bytes, at node {quote(name)}",
                code="GPC4006",
            )

    def _results(self, step: Step) -> list[np.ndarray]:
        node = step.node
        operands = [self.arrays[p] for p in step.operands]
        try:
            with np.errstate(all="ignore"):
                found = node.op.reference(*operands, **node.attrs)
        except UNFIT as error:
            raise DeviceError(
                f"{node.op.name} at node {quote(node.name)}: {type(error).__name__}: {quote(error)}", code="GPC5012"
            ) from error
        results = [np.asarray(r) for r in (found if isinstance(found, tuple) else (found,))]
        for array, type_ in zip(results, node.types, strict=True):
            if array.shape != type_.shape or array.dtype != type_.dtype.numpy:
                raise DeviceError(
                    f"{node.op.name} at node {quote(node.name)} gave {array.dtype}{list(array.shape)}, not {type_}",
                    code="GPC5018",
                )
        return results


def _owner(array: np.ndarray) -> np.ndarray:
    """The array whose memory ``array`` is a view of, or itself."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _key(array: np.ndarray) -> Key:
    """A key that is equal for equal arrays only."""
    if array.dtype == object:
        return array.shape, tuple(array.reshape(-1).tolist())
    data = array.tobytes()
    return array.dtype.str, array.shape, data if len(data) <= LARGE else hashlib.sha256(data).digest()


class DynamicModel:
    """The dynamic part of a model: an ONNX model (``frontend.load_split``) and the programs translated from it.

    ``compile`` compiles the expensive steps; without it numpy runs all of them.
    """

    def __init__(self, model: bytes, compile: Callable[[Graph], Compiled] | None = None) -> None:
        self.proto, self.files = loader.read(model)
        self._compile = compile
        self._model_bytes = len(model)
        self._fold_limit = config.current().fold_limit
        self._compiled: OrderedDict[str, tuple[Compiled | None, list[np.ndarray]]] = OrderedDict()
        self._met: OrderedDict[bytes, None] = OrderedDict()  # digests of graphs that numpy has run once
        self._programs: OrderedDict[bytes, tuple[Program, list[bytes], int]] = OrderedDict()  # by their paths' ends
        self._begun: dict[bytes, Program] = {}  # by every digest of the paths
        self._lock = threading.Lock()
        self.translations = 0

    @property
    def operators(self) -> tuple[tuple[str, str], ...]:
        """Operator and name of every node."""
        return tuple(map(_named, self.proto.graph.node))

    @property
    def first(self) -> tuple[tuple[str, str], ...]:
        """Operator and name of the nodes that read nothing computed in this part: where values decide shapes first."""
        made = {name for node in self.proto.graph.node for name in node.output}
        reads = functions.Reads()
        return tuple(_named(node) for node in self.proto.graph.node if not made & set(reads.of(node)))

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The tensors that the model declares as its outputs; an extent that only a run decides is a ``Dim``."""
        return tuple(TensorSpec(name, *declared) for name, declared in declared_outputs(self.proto).items())

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Compute every output of the model from the outputs of the compiled part: arrays, lists of arrays, or ``None``.

        Raises ``UnsupportedError`` or ``ModelError`` if the standard or gpucomp does not allow these values, and
        ``DeviceError`` for an operator that fails.
        """
        with self._lock:
            arrays_in = _flat(inputs)
            most = LIVE + 8 * (self._model_bytes + sum(array.nbytes for array in arrays_in.values()))
            run = Run(arrays_in, self._part if self._compile else None, most)
            program = self._known(run)
            if program is None:
                program = self._translated(run, inputs)
            assert program.graph is not None
            arrays: dict[str, np.ndarray] = {}
            for name, array in zip(program.graph.output_names, run.finish(program), strict=True):
                taken = any(array is other for other in (*run.inputs.values(), *arrays.values()))
                fresh = array.base is None and array.flags.writeable and not taken
                arrays[name] = array if fresh else array.copy()
            whole = gathered(arrays, program.graph.output_containers)
            return {info.name: whole[info.name] for info in self.proto.graph.output}

    def _part(self, part: Part) -> Compiled | None:
        """The graph of ``part``, compiled. An equal graph that reads the same constants is compiled once.

        ``None`` means that numpy runs it: it cannot be built, or it is for an exact shape that was not seen before and is not
        expensive enough to compile at once.
        """
        graph = part.graph
        constants = [v for node in graph.every_node() for v in node.attrs.values() if isinstance(v, np.ndarray)]
        key = f"{format_graph(graph, constants=False)}\n{list(map(_identity, constants))}"
        if key not in self._compiled:
            if not part.rows and part.work < REPEATED_WORK and not self._was_met(key):
                return None
            assert self._compile is not None
            made: Compiled | None
            try:
                made = self._compile(graph)
            except GpucompError:  # numpy needs no compiler
                made = None
            self._compiled[key] = made, constants  # holding the constants keeps their ids unique
        self._compiled.move_to_end(key)
        if len(self._compiled) > COMPILED:
            self._compiled.popitem(last=False)
        return self._compiled[key][0]

    def _was_met(self, key: str) -> bool:
        digest = hashlib.sha256(key.encode()).digest()
        if digest in self._met:
            return True
        self._met[digest] = None
        if len(self._met) > MET:
            self._met.popitem(last=False)
        return False

    def _known(self, run: Run) -> Program | None:
        """The program for the answers of this run, all of which are then given; ``None`` if it is not translated yet."""
        while (program := self._begun.get(run.path[-1])) is not None:
            if len(program.questions) == len(run.answers):
                self._programs.move_to_end(run.path[-1])
                return program
            run.answer(program, len(run.answers))
        return None

    def _translated(self, run: Run, inputs: Mapping[str, Any]) -> Program:
        """Translate the model with the values of ``run``."""
        program, asked = Program(), dict[Value, np.ndarray]()

        def answer(value: Value) -> np.ndarray:
            if value not in asked:
                program.extend([value])
                program.questions.append(Question(program.position[value], len(program.steps), len(program.position)))
                asked[value] = found = run.answer(program, len(program.questions) - 1)
                if found.dtype.kind in "iu" and found.size <= MAX_RANK:
                    program.counts.update(map(int, found.reshape(-1)))
            return asked[value]

        folding = Folding(
            self.files, self._model_bytes, self._fold_limit
        )  # one a translation: translations with the same first answers must have the same first steps
        with answering(answer):
            program.graph = Importer(self.proto, self.files, self._container_shapes(inputs), {}, folding).run()
        program.extend(program.graph.outputs)
        self.translations += 1
        self._keep(run.path, program)
        return program

    def _container_shapes(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The shapes of inputs that are not tensors. Raises ``ArtifactError`` if the compiled part does not give one of them."""
        found = {}
        for info in self.proto.graph.input:
            if not info.type.HasField("tensor_type"):
                if info.name not in inputs or isinstance(inputs[info.name], np.ndarray):
                    raise ArtifactError(
                        f"the dynamic part of the model reads {quote(info.name)}: a sequence or optional, which was not given",
                        code="GPC7004",
                    )
                found[info.name] = _shapes(inputs[info.name])
        return found

    def _keep(self, path: list[bytes], program: Program) -> None:
        own = [array for _, array in self.files.arrays.values()]
        self._programs[path[-1]] = program, path, program.made_bytes(own)
        while len(self._programs) > 1 and (
            len(self._programs) > PROGRAMS
            or sum(made for *_, made in self._programs.values()) > MADE_BYTES
            or sum(len(program.steps) for program, *_ in self._programs.values()) > STEPS
        ):
            self._programs.popitem(last=False)
        self._begun = {step: known for known, steps, _ in self._programs.values() for step in steps}


def _identity(array: np.ndarray) -> object:
    return id(array) if array.nbytes > MODELS_OWN else _key(array)


def _named(node: onnx.NodeProto) -> tuple[str, str]:
    return node.op_type, node.name or next((o for o in node.output if o), "")


def _flat(inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Name the tensors of sequences as the frontend does: ``name[0]`` and so on."""
    flat: dict[str, np.ndarray] = {}
    for name, value in inputs.items():
        if isinstance(value, list):
            flat.update((f"{name}[{k}]", array) for k, array in enumerate(value))
        elif value is not None:
            flat[name] = value
    return flat


def _shapes(value: Any) -> Any:
    if isinstance(value, list):
        return [array.shape for array in value]
    return None if value is None else value.shape
