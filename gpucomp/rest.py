"""What of a model waits for values, run while they are known: by numpy, on the host. Nothing is compiled here.

Behind a NonMaxSuppression every shape depends on how many boxes were kept. The frontend leaves such nodes as an ONNX model
(``frontend.load_apart``). Here that model is translated as any other, except that ``static`` is answered with the values
of this run: the translation becomes a program of numpy references in which every shape is known. Programs are kept by the
answers that they were made with, so that a count that was there before costs no translation.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from gpucomp.errors import ArtifactError, DeviceError, quote
from gpucomp.frontend.onnx import functions, loader, tensors
from gpucomp.frontend.onnx.compose import answering
from gpucomp.frontend.onnx.importer import Importer
from gpucomp.ir.graph import Constant, Graph, Input, Node, Value, topological
from gpucomp.ir.types import Dim, TensorType
from gpucomp.runtime.inputs import TensorSpec, gathered

PROGRAMS = 64  # of one model, the least recently used goes
MADE_BYTES = 64 << 20  # of the constants that all programs made, besides those of the model
LARGE = 1 << 12  # bytes of an answer that is kept by its digest
Key = tuple[object, ...]


@dataclass(frozen=True)
class Step:
    """Run ``node``'s reference on the arrays ``operands``; the results are the arrays ``results``. Both are positions."""

    node: Node
    operands: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """The value at ``position`` decides how the program goes on; ``steps`` of it compute it."""

    position: int
    steps: int


@dataclass(eq=False)
class Program:
    """The steps of one translation, the questions in it, and where its arrays are.

    Translations with the same first answers have the same first steps: what one run computed by one of them, another
    goes on with.
    """

    steps: list[Step] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    position: dict[Value, int] = field(default_factory=dict)
    inputs: dict[str, tuple[int, TensorType]] = field(default_factory=dict)
    constants: dict[int, np.ndarray] = field(default_factory=dict)
    done: set[Node] = field(default_factory=set)
    graph: Graph | None = None

    def extend(self, values: Sequence[Value]) -> None:
        """Add the steps that ``values`` need."""
        for node in topological((v.node for v in values if v.node not in self.done), self.done):
            first = len(self.position)
            self.position.update((v, first + k) for k, v in enumerate(node.values))
            if node.op is Input:
                self.inputs[node.attrs["label"]] = first, node.types[0]
            elif node.op is Constant:
                self.constants[first] = node.attrs["value"]
            else:
                results = tuple(range(first, first + len(node.values)))
                self.steps.append(Step(node, tuple(self.position[v] for v in node.inputs), results))

    def made_bytes(self, own: Sequence[np.ndarray]) -> int:
        """Bytes of its constants that are not the model's ``own``."""
        known = {id(array) for array in own}
        return sum(array.nbytes for array in self.constants.values() if id(array) not in known)


class Run:
    """One run: its inputs, the arrays computed so far, and the answers given."""

    def __init__(self, inputs: Mapping[str, np.ndarray]) -> None:
        self.inputs = inputs
        self.arrays: list[np.ndarray | None] = []
        self.step = 0
        self.answers: list[np.ndarray] = []
        self.keys: list[Key] = []

    def answer(self, program: Program, number: int) -> np.ndarray:
        """The answer to question ``number`` of ``program``, computed where this run has not come so far yet."""
        if number == len(self.answers):
            question = program.questions[number]
            self.go_on(program, question.steps)
            array = self.arrays[question.position]
            assert array is not None
            self.answers.append(array)
            self.keys.append(_key(array))
        return self.answers[number]

    def go_on(self, program: Program, until: int, uses: Counter[int] | None = None) -> None:
        """Take the steps up to number ``until``; with ``uses``, arrays are freed after the last one."""
        self.arrays += [None] * (len(program.position) - len(self.arrays))
        for position, array in program.constants.items():
            self.arrays[position] = array
        for label, (position, type_) in program.inputs.items():
            given = self.inputs.get(label)
            if given is None or given.shape != type_.shape or given.dtype != type_.dtype.numpy:
                raise ArtifactError(f"the rest of the model reads {quote(label)}: {type_}, which is not there", code="GPC7004")
            self.arrays[position] = given
        if uses is not None:
            self.arrays = [array if uses[k] else None for k, array in enumerate(self.arrays)]
        for step in program.steps[self.step : until]:
            for position, array in zip(step.results, self._results(step), strict=True):
                self.arrays[position] = array
            if uses is not None:
                uses.subtract(step.operands)
                for position in (*step.operands, *step.results):
                    if not uses[position]:
                        self.arrays[position] = None
        self.step = max(self.step, until)

    def _results(self, step: Step) -> list[np.ndarray]:
        node = step.node
        operands = [self.arrays[p] for p in step.operands]
        try:
            with np.errstate(all="ignore"):
                found = node.op.reference(*operands, **node.attrs)
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, MemoryError) as error:
            raise DeviceError(
                f"{node.op.name} at node {quote(node.name)}: {type(error).__name__}: {quote(error)}", code="GPC5012"
            ) from error
        results = [np.asarray(r) for r in (found if isinstance(found, tuple) else (found,))]
        for array, type_ in zip(results, node.types, strict=True):
            if array.shape != type_.shape or array.dtype != type_.dtype.numpy:
                raise DeviceError(
                    f"{node.op.name} at node {quote(node.name)} gave {array.dtype}{list(array.shape)}, not {type_}",
                    code="GPC5012",
                )
        return results


def _key(array: np.ndarray) -> Key:
    """What tells two answers apart."""
    if array.dtype == object:
        return array.shape, tuple(array.reshape(-1).tolist())
    data = array.tobytes()
    return array.dtype.str, array.shape, data if len(data) <= LARGE else hashlib.sha256(data).digest()


class Rest:
    """The part of a model that waits for values: an ONNX model (``frontend.load_apart``) and the programs made of it."""

    def __init__(self, model: bytes) -> None:
        self.proto, self.files = loader.read(model)
        self._programs: OrderedDict[tuple[Key, ...], tuple[Program, int]] = OrderedDict()
        self._begun: dict[tuple[Key, ...], Program] = {}
        self._lock = threading.Lock()
        self.translations = 0

    @property
    def operators(self) -> tuple[tuple[str, str], ...]:
        """Operator and name of every node in it."""
        return tuple(map(_named, self.proto.graph.node))

    @property
    def first(self) -> tuple[tuple[str, str], ...]:
        """Those of the operators that wait for nothing else in it: where values decide shapes first."""
        made = {name for node in self.proto.graph.node for name in node.output}
        return tuple(_named(node) for node in self.proto.graph.node if not made & set(functions.reads(node)))

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The tensors that the model declares as its outputs; an extent that only a run tells is a ``Dim``."""
        found = []
        for info in self.proto.graph.output:
            if info.type.HasField("tensor_type"):
                dtype = tensors.element_type(info.type.tensor_type.elem_type, info.name)
                found.append(TensorSpec(info.name, dtype.name, _declared(info.type.tensor_type)))
        return tuple(found)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Every output of the model, from what the compiled part gave: arrays, lists of them, or ``None``.

        Raises ``UnsupportedError`` or ``ModelError`` for what the standard or gpucomp does not allow with these values,
        ``DeviceError`` for an operator that fails.
        """
        with self._lock:
            run = Run(_flat(inputs))
            program = self._known(run)
            if program is None:
                program = self._translated(run, inputs)
            assert program.graph is not None
            outputs = [program.position[v] for v in program.graph.outputs]
            later = program.steps[run.step :]
            uses = Counter([*outputs, *(p for step in later for p in step.operands)])
            run.go_on(program, len(program.steps), uses)
            arrays: dict[str, np.ndarray] = {}
            for name, position in zip(program.graph.output_names, outputs, strict=True):
                array = run.arrays[position]
                assert array is not None
                taken = any(array is other for other in (*run.inputs.values(), *arrays.values()))
                fresh = array.base is None and array.flags.writeable and not taken
                arrays[name] = array if fresh else array.copy()
            whole = gathered(arrays, program.graph.output_containers)
            return {info.name: whole[info.name] for info in self.proto.graph.output}

    def _known(self, run: Run) -> Program | None:
        """The program that fits the answers of this run, all of which are then given; ``None`` where none does yet."""
        while (program := self._begun.get(tuple(run.keys))) is not None:
            if len(program.questions) == len(run.keys):
                self._programs.move_to_end(tuple(run.keys))
                return program
            run.answer(program, len(run.keys))
        return None

    def _translated(self, run: Run, inputs: Mapping[str, Any]) -> Program:
        """The model translated with the values of ``run``."""
        program, asked = Program(), dict[Value, np.ndarray]()

        def answer(value: Value) -> np.ndarray:
            if value not in asked:
                program.extend([value])
                program.questions.append(Question(program.position[value], len(program.steps)))
                asked[value] = run.answer(program, len(program.questions) - 1)
            return asked[value]

        shapes = {
            info.name: _shapes(inputs[info.name])
            for info in self.proto.graph.input
            if not info.type.HasField("tensor_type")
        }
        with answering(answer):
            program.graph = Importer(self.proto, self.files, shapes, {}).run()
        program.extend(program.graph.outputs)
        self.translations += 1
        self._keep(tuple(run.keys), program)
        return program

    def _keep(self, keys: tuple[Key, ...], program: Program) -> None:
        own = [array for _, array in self.files.arrays.values()]
        self._programs[keys] = program, program.made_bytes(own)
        while len(self._programs) > 1 and (
            len(self._programs) > PROGRAMS or sum(made for _, made in self._programs.values()) > MADE_BYTES
        ):
            self._programs.popitem(last=False)
        self._begun = {
            path[:k]: known for path, (known, _) in self._programs.items() for k in range(len(path) + 1)
        }


def _named(node: onnx.NodeProto) -> tuple[str, str]:
    return node.op_type, node.name or next((o for o in node.output if o), "")


def _declared(type: onnx.TypeProto.Tensor) -> tuple[Any, ...]:
    if not type.HasField("shape"):
        return (Dim("..."),)
    return tuple(d.dim_value if d.HasField("dim_value") else Dim(d.dim_param or "?") for d in type.shape.dim)


def _flat(inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The tensors of sequences by names of their own, ``name[0]`` and so on, as the frontend names them."""
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
