"""Settles which of two programs is right about an operator: computes it in f64 from the operands that each of them had."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from gpucomp.cli import compare
from gpucomp.cli.compare import Distance, Tolerance
from gpucomp.cli.cut import RANDOM, Case, Traced, bodies
from gpucomp.cli.undefined import undefined
from gpucomp.errors import DeviceError, GpucompError, quote, several
from gpucomp.frontend.onnx.loader import load
from gpucomp.ir.graph import Constant, Graph, Input, Value, constant, input_value
from gpucomp.ir.types import BF16, F16, F32, F64, TensorType
from gpucomp.lazy_dataclass import dataclass
from gpucomp.ops.interpreter import interpret
from gpucomp.refusal import Refusal

NARROW = ("float32", "float16", "bfloat16")
STEP = 2.0**-8  # of a number that is rounded to 8 bits, relative to the largest
Judge = Callable[[Case], Mapping[str, np.ndarray]]
OF_TENSORS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


@dataclass(frozen=True)
class Settled:
    """How far each program's result is from f64. Both start from their own operands, so earlier errors do not count.

    The f64 result is by ONNX's evaluator or, if it does not know the operator, by numpy from gpucomp's translation
    (``translated``): that judges kernels and schedules, but not the translation.
    """

    theirs: Distance
    ours: Distance
    tolerance: Tolerance
    translated: bool = False
    rounds: bool = False  # inside, to steps of 8 bits: two right results may be a step apart
    undefined: str = ""  # what ONNX does not define, and was left out

    @property
    def only_theirs(self) -> bool:
        """Whether gpucomp is right and the other program is wrong."""
        return self.ours_right and not self.tolerance.allows(self.theirs)

    @property
    def ours_right(self) -> bool:
        return self.tolerance.allows(self.ours)

    @property
    def both_right(self) -> bool:
        return self.ours_right and self.tolerance.allows(self.theirs)

    def told(self, against: str) -> str:
        """The verdict as a line."""
        how = " by gpucomp's translation, as ONNX's evaluator does not know the operator" if self.translated else ""
        off = f"in f64 from the same operands{how}: {against} is off by {self.theirs.l2:.2e}, gpucomp by {self.ours.l2:.2e}"
        left_out = f"{self.undefined}, of which ONNX defines no result. Of the others, " if self.undefined else ""
        return f"{left_out}{off}: {self.verdict(against)}"

    def verdict(self, against: str) -> str:
        match self.tolerance.allows(self.theirs), self.tolerance.allows(self.ours):
            case True, True if self.undefined:
                return "neither is wrong"
            case True, True if self.rounds:
                return "both are right, within a step of the 8 bits that it rounds to inside"
            case True, True:
                return "both compute it right, their operands differ"
            case True, False:
                return "gpucomp is wrong"
            case False, True:
                return f"{against} is wrong, gpucomp is right"
        return "both are wrong"


@dataclass(frozen=True)
class Rounded:
    """Where the whole numbers of two programs first differ: in ``count`` elements of ``tensor``, at most by ``most``."""

    tensor: str
    operator: str
    count: int
    size: int
    most: float

    def told(self) -> str:
        return (
            f"whole numbers first differ in {quote(self.tensor)}, of {self.operator}: {self.count} of {self.size} elements, "
            f"at most by {self.most:g}. A difference in the last bits was rounded to another number"
        )


def first_rounded(theirs: Traced, ours: Traced) -> Rounded | None:
    """The first tensor of whole numbers, made of floating-point ones, that differs. None if there is none.

    Floor, Cast, DynamicQuantizeLinear and the like turn a difference in the last bit into one of 1, so that two programs
    which compute every operator right may end far apart.
    """
    for node in theirs.model.graph.node:
        if not any(_floating(theirs.tensors.get(name)) for name in node.input):
            continue
        for name in node.output:
            a, b = theirs.tensors.get(name), ours.tensors.get(name)
            if a is None or b is None or a.shape != b.shape or not (_whole(a) and _whole(b)):
                continue
            gaps = np.abs(a.astype(np.float64) - b.astype(np.float64))
            if gaps.any():
                return Rounded(name, node.op_type, int(np.count_nonzero(gaps)), gaps.size, float(gaps.max()))
    return None


def _floating(array: np.ndarray | None) -> bool:
    return array is not None and array.dtype.name in (*NARROW, "float64")


def _whole(array: np.ndarray) -> bool:
    if not _floating(array):
        return True
    wide = array.astype(np.float64)
    return bool(np.isfinite(wide).all() and (wide == np.rint(wide)).all())


def neither_is_wrong(theirs: Traced, ours: Traced, tolerance: Tolerance) -> Rounded | None:
    """Where the whole numbers first differ, if both programs compute each node right from the operands that they had.

    None if one of them is wrong, if ONNX's evaluator does not know an operator, or if no whole numbers differ.
    """
    found = first_rounded(theirs, ours)
    if found is None:
        return None
    for node in theirs.model.graph.node:
        for name in (name for name in node.output if name in ours.tensors and name in theirs.tensors):
            verdict = settle(theirs, ours, name, tolerance)
            if isinstance(verdict, Refusal) or not verdict.both_right:
                return None
    return found


def first_not_right(
    theirs: Traced, ours: Traced, tensors: Sequence[str], tolerance: Tolerance
) -> tuple[str, Settled | Refusal] | None:
    """The first of ``tensors`` that gpucomp computes wrong from its own operands, or of which f64 does not tell, if any."""
    for name in tensors:
        verdict = settle(theirs, ours, name, tolerance)
        if isinstance(verdict, Refusal) or not verdict.ours_right:
            return name, verdict
    return None


def settle(theirs: Traced, ours: Traced, tensor: str, tolerance: Tolerance) -> Settled | Refusal:
    """The verdict on the node that computes ``tensor``, or why there is none: ONNX's evaluator does not know every operator."""
    node = theirs.model.graph.node[_maker(theirs, tensor)]
    if random := sorted(RANDOM & _operators(node)):
        return Refusal(f"{random[0]} is random")
    left_out = _left_out(theirs, ours, tensor)
    try:
        off = _off(theirs, tensor, _evaluated), _off(ours, tensor, _evaluated)
        return Settled(*off, tolerance, undefined=left_out)
    except DeviceError as error:
        unknown = error
    try:
        off = _off(theirs, tensor, _translated), _off(ours, tensor, _translated)
    except GpucompError:  # the translation has a type that stays f32
        return Refusal(unknown.message)
    rounds = "Quantize" in node.op_type or "Integer" in node.op_type
    return Settled(
        *off,
        Tolerance(max(tolerance.relative, STEP), tolerance.absolute) if rounds else tolerance,
        True,
        rounds,
        left_out,
    )


def _left_out(theirs: Traced, ours: Traced, tensor: str) -> str:
    """What ONNX does not define in a tensor that one of two programs computed, in words; empty if it defines all."""
    node = theirs.model.graph.node[_maker(theirs, tensor)]
    found = [mask for traced in (theirs, ours) if (mask := undefined(node, traced.tensors, tensor)) is not None]
    if not found:
        return ""
    count, size = max(int(np.count_nonzero(mask)) for mask in found), found[0].size
    return f"{count} of {several(size, 'element')} come from NaN or a number out of range"


def _off(traced: Traced, tensor: str, judge: Judge) -> Distance:
    """How far a program's ``tensor`` is from what its node gives in f64 for the same operands, where ONNX defines that."""
    case = traced.part([_maker(traced, tensor)])
    assert case is not None, "a node with a tensor that was compared has an output"
    actual, expected = case.expected[tensor], judge(case)[tensor]
    open_to_all = undefined(traced.model.graph.node[_maker(traced, tensor)], traced.tensors, tensor)
    if open_to_all is not None and actual.shape == expected.shape:
        actual, expected = actual[~open_to_all], expected[~open_to_all]
    return compare.distance(actual, expected)


def _evaluated(case: Case) -> Mapping[str, np.ndarray]:
    """The outputs in f64, by ONNX's evaluator."""
    return compare.reference_outputs(_in_double(case.model), {k: _widened(a) for k, a in case.inputs.items()})


def _translated(case: Case) -> Mapping[str, np.ndarray]:
    """The outputs in f64, by the numpy references of the operators that gpucomp translates the node to."""
    graph = load(case.model, shapes={name: array.shape for name, array in case.inputs.items()})
    made: dict[Value, Value] = {}
    for node in graph.nodes():
        if node.op is Input:
            new = input_value(node.attrs["label"], _wide(node.types[0])).node
        elif node.op is Constant:
            new = constant(_widened(node.attrs["value"])).node
        else:
            attrs = {k: F64 if k == "to" and v in (F32, F16, BF16) else v for k, v in node.attrs.items()}
            new = node.op.node(*(made[v] for v in node.inputs), name=node.name, **attrs)
        made.update(zip(node.values, new.values, strict=True))
    wide = Graph(tuple(made.get(v, v) for v in graph.inputs), tuple(made[v] for v in graph.outputs), graph.output_names)
    found = interpret(wide, {name: _widened(case.inputs[name]) for name in wide.input_names})
    return dict(zip(wide.output_names, found, strict=True))


def _wide(type: TensorType) -> TensorType:
    return type.with_dtype(F64) if type.dtype in (F32, F16, BF16) else type


def _maker(traced: Traced, tensor: str) -> int:
    (place,) = (k for k, node in enumerate(traced.model.graph.node) if tensor in node.output)
    return place


def _operators(node: onnx.NodeProto) -> set[str]:
    """The operators of a node and of its bodies."""
    return {node.op_type}.union(*(_operators(inner) for body in bodies(node) for inner in body.node))


def _widened(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype.name in NARROW else array


def _in_double(model: onnx.ModelProto) -> bytes:
    """``model`` with its inputs, outputs and weights in f64 instead of narrower floating-point types."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    _widen(wide.graph)
    data: bytes = wide.SerializeToString()
    return data


def _widen(graph: onnx.GraphProto) -> None:
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type in OF_TENSORS:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for weight in graph.initializer:
        _widen_weight(weight)
    for body in (body for node in graph.node for body in bodies(node)):
        _widen(body)
        for inner in body.node:
            _widen_numbers(inner)


def _widen_weight(weight: TensorProto) -> None:
    if weight.data_type in OF_TENSORS:
        weight.CopyFrom(numpy_helper.from_array(_widened(numpy_helper.to_array(weight)), weight.name))


def _widen_numbers(node: onnx.NodeProto) -> None:
    """Nodes of a body that make f32 of no operand, or of one in another type: constants and casts."""
    for attribute in node.attribute:
        match node.op_type, attribute.name:
            case "Constant" | "ConstantOfShape", "value":
                _widen_weight(attribute.t)
            case "Constant", "value_float":
                attribute.CopyFrom(helper.make_attribute("value", _double(attribute.f)))
            case "Constant", "value_floats":
                attribute.CopyFrom(helper.make_attribute("value", _double(attribute.floats)))
            case "Cast", "to" if attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    if node.op_type == "ConstantOfShape" and not node.attribute:
        node.attribute.append(helper.make_attribute("value", _double([0.0])))


def _double(numbers: float | Sequence[float]) -> TensorProto:
    return numpy_helper.from_array(np.asarray(numbers, np.float64))


def as_computed(traced: Traced, tensors: dict[str, np.ndarray]) -> Traced:
    """``traced`` with the tensors of another program; those that it does not compute, such as weights, stay."""
    return dataclasses.replace(traced, tensors={**traced.tensors, **tensors})
