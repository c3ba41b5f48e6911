"""Cuts a wrong model down to the fewest nodes that are still wrong. Another program computes the right tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gpucomp.cli import compare
from gpucomp.lazy_dataclass import dataclass

MOST_TESTS = 400  # models tried while cutting
RANDOM = {
    "RandomNormal",
    "RandomUniform",
    "RandomNormalLike",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
    "Dropout",
}


@dataclass(frozen=True)
class Case:
    """A model with its inputs and expected outputs."""

    model: onnx.ModelProto
    inputs: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]

    @property
    def nodes(self) -> int:
        return len(self.model.graph.node)


def bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs in a node's attributes: the branches of an If, the body of a Loop."""
    kind = onnx.AttributeProto.GRAPH
    return [body for a in node.attribute for body in ([a.g] if a.type == kind else a.graphs)]


def names_read(node: onnx.NodeProto) -> list[str]:
    """The names that a node and its bodies read, including names that the bodies define themselves."""
    names = [name for name in node.input if name]
    for body in bodies(node):
        names += [output.name for output in body.output]
        names += [name for inner in body.node for name in names_read(inner)]
    return names


@dataclass(frozen=True)
class Traced:
    """A model with every tensor as another program computed it; ``known`` are the tensors that depend on no input."""

    model: onnx.ModelProto
    tensors: Mapping[str, np.ndarray]
    known: frozenset[str]

    @property
    def names(self) -> list[str]:
        """The tensors that nodes compute, in order."""
        return [name for node in self.model.graph.node for name in node.output if name in self.tensors]

    def part(self, kept: Sequence[int]) -> Case | None:
        """The nodes ``kept`` as a model of their own. A tensor that they read from other nodes becomes an input, or an
        initialiser if it is known at compile time. A tensor that none of them reads becomes an output. ``None`` if there
        is no output.
        """
        graph = self.model.graph
        nodes = [graph.node[k] for k in sorted(kept)]
        made = [name for node in nodes for name in node.output if name]
        read = list(dict.fromkeys(name for node in nodes for name in names_read(node)))
        outer = [name for name in read if name not in made and name in self.tensors]
        wanted = {output.name for output in graph.output}
        ends = [name for name in made if name in self.tensors and (name not in read or name in wanted)]
        if not ends:
            return None
        inputs = {name: self.tensors[name] for name in outer if name not in self.known}
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        model.ClearField("graph")
        model.graph.CopyFrom(
            helper.make_graph(
                nodes,
                graph.name or "part",
                [_info(name, array) for name, array in inputs.items()],
                [_info(name, self.tensors[name]) for name in ends],
                [numpy_helper.from_array(self.tensors[name], name) for name in outer if name in self.known],
            )
        )
        return Case(model, inputs, {name: self.tensors[name] for name in ends})


def _info(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def every_tensor(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with every tensor that its nodes compute as an output, after its own outputs."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    listed = {output.name for output in model.graph.output}
    made = (name for node in model.graph.node for name in node.output if name)
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(made) if name not in listed)
    return whole


def trace(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], against: str) -> Traced:
    """Every tensor of ``model`` as ``against`` computes it, unoptimised. Raises ``DeviceError`` if it cannot."""
    found = compare.answers(every_tensor(model).SerializeToString(), inputs, against, optimised=False)
    tensors = {name: a for name, a in found.items() if isinstance(a, np.ndarray) and a.dtype.kind not in "OSU"}
    tensors |= {w.name: numpy_helper.to_array(w) for w in model.graph.initializer}
    known = {w.name for w in model.graph.initializer} - set(inputs)
    for node in model.graph.node:
        settled = all(name in known for name in names_read(node)) and node.op_type not in RANDOM
        if settled or node.op_type in ("Shape", "Size"):
            known |= set(node.output)
    return Traced(model, {**tensors, **inputs}, frozenset(known))


def smallest(traced: Traced, fails: Callable[[Case], bool]) -> Case | None:
    """The smallest case found that still fails, by delta debugging (ddmin: Zeller and Hildebrandt, 2002). It tries halves,
    quarters ... of the nodes alone, then everything without each of these, until no single node can be removed. ``None``
    if nothing fails.
    """
    left = [MOST_TESTS]

    def tried(kept: Sequence[int]) -> Case | None:
        case = traced.part(kept) if kept and left[0] > 0 else None
        if case is None:
            return None
        left[0] -= 1
        return case if fails(case) else None

    kept = list(range(len(traced.model.graph.node)))
    best = tried(kept)
    if best is None:
        return None
    pieces = 2
    while len(kept) > 1:
        size = -(-len(kept) // pieces)
        chunks = [kept[k : k + size] for k in range(0, len(kept), size)]
        rests = [[k for k in kept if k not in chunk] for chunk in chunks] if len(chunks) > 2 else []
        for rank, candidate in enumerate([*chunks, *rests]):
            if (found := tried(candidate)) is not None:
                best, kept = found, candidate
                pieces = 2 if rank < len(chunks) else max(pieces - 1, 2)
                break
        else:
            if pieces >= len(kept):
                break
            pieces = min(2 * pieces, len(kept))
    return best
