"""Another program's answer to the same inputs, and how far ours is from it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpucomp.errors import AccuracyError, DeviceError, UsageError, quote

REFERENCES = ("onnxruntime", "reference")
TOLERANCE = 1e-4  # of the relative L2 error
ROUNDINGS = 8  # to 16 bits, that two right answers may be apart where each rounds between other operators
# onnxruntime's operators that multiply codes as they are
PRODUCTS_OF_BYTES = frozenset((
    "ConvInteger", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "QAttention", "QGemm",
    "QLinearConv", "QLinearMatMul",
))  # fmt: skip
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Distance:
    """How far a tensor is from another, in f64.

    ``l2`` is ``||a - b|| / ||b||``, ``linf`` the largest ``|a - b|``, ``cosine`` ``a.b / (||a|| ||b||)``, 1 where both
    are zero. Other shapes, or NaN and infinities in other places, are infinitely far.
    """

    l2: float
    linf: float
    cosine: float


FAR = Distance(math.inf, math.inf, 0.0)


SAME = Distance(0.0, 0.0, 1.0)


def distance(actual: Any, expected: Any) -> Distance:
    """Of arrays; of sequences that of their tensors or maps that are farthest apart; texts are the same or infinitely far."""
    if isinstance(actual, list) and isinstance(expected, list):
        found = [distance(a, b) for a, b in zip(actual, expected, strict=False)] + [SAME]
        return max(found, key=lambda d: d.l2) if len(actual) == len(expected) else FAR
    if isinstance(actual, dict) and isinstance(expected, dict):
        same = actual.keys() == expected.keys()
        return distance(np.array(list(actual.values())), np.array([expected[k] for k in actual])) if same else FAR
    if not isinstance(actual, np.ndarray) or not isinstance(expected, np.ndarray):
        return SAME if actual is expected is None else FAR
    if actual.shape != expected.shape:
        return FAR
    if actual.dtype.kind in "OSU" or expected.dtype.kind in "OSU":
        return SAME if np.array_equal(actual.astype(str), expected.astype(str)) else FAR
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return FAR
    a, b = a[finite], b[finite]
    gap, norm, norms = float(np.linalg.norm(a - b)), float(np.linalg.norm(b)), float(np.linalg.norm(a))
    cosine = 1.0 if norm == norms else 0.0
    if norm and norms:
        cosine = float((a / norms) @ (b / norm))  # divided first: the product of two large norms overflows
    return Distance(gap / norm if norm else gap, float(np.abs(a - b).max(initial=0.0)), cosine)


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """``||actual - expected|| / ||expected||`` in f64; infinite for other shapes, or NaN and inf in other places."""
    return distance(actual, expected).l2


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise DeviceError("onnxruntime is not installed: pip install 'gpucomp[ort]'", code="GPC5003") from None
    return onnxruntime


def onnxruntime_session(model: Path | bytes, *, optimised: bool = True, threads: int = 0) -> Any:
    """A session of onnxruntime's CPU provider that judges: its sums of bytes are exact on every processor.

    Without VNNI it adds products of u8 and i8 in pairs of 16 bits, which saturate (``vpmaddubsw``), unless
    ``session.x64quantprecision`` is set: then its extended optimisations make u8 of constant weights of i8, and an
    unoptimised judge of ``PRODUCTS_OF_BYTES`` has these too. They do so beside activations of i8 as well, whose products
    are exact as they are, and onnxruntime 1.32 has none of i8 by u8: a model that it then refuses is not changed.
    Raises ``DeviceError`` where onnxruntime is missing, and onnxruntime's own errors for what it cannot run.
    """
    onnxruntime = _onnxruntime()

    def session(level: Any, *, exact: bool) -> Any:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        options.graph_optimization_level = level
        options.add_session_config_entry("session.x64quantprecision", str(int(exact)))
        given = model if isinstance(model, bytes) else str(model)
        return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])

    levels = onnxruntime.GraphOptimizationLevel
    level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    if not optimised and not _multiplies_bytes(model):
        return session(level, exact=False)
    try:
        return session(levels.ORT_ENABLE_ALL if optimised else levels.ORT_ENABLE_EXTENDED, exact=True)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return session(level, exact=False)


def _multiplies_bytes(model: Path | bytes) -> bool:
    """Whether one of its nodes, its functions' or those of their control flow does. What cannot be read does not."""
    import onnx
    from google.protobuf.message import DecodeError

    from gpucomp.frontend.onnx.functions import nested_nodes

    try:
        proto = onnx.load_from_string(model if isinstance(model, bytes) else model.read_bytes())
    except (DecodeError, OSError):
        return False  # onnxruntime says what is wrong with it
    nodes = nested_nodes([*proto.graph.node, *(n for f in proto.functions for n in f.node)])
    return any(node.op_type in PRODUCTS_OF_BYTES for node in nodes)


def onnxruntime_outputs(model: Path | bytes, inputs: Arrays, *, optimised: bool = True) -> dict[str, np.ndarray]:
    """What onnxruntime's CPU provider answers. Raises ``DeviceError`` where it is missing or cannot run the model."""
    states = vars(_onnxruntime().capi.onnxruntime_pybind11_state).values()
    failures = tuple(kind for kind in states if isinstance(kind, type) and issubclass(kind, Exception))
    try:
        session = onnxruntime_session(model, optimised=optimised)
        answers = session.run(None, dict(inputs))
    except failures as error:
        what = "the model" if isinstance(model, bytes) else quote(model)
        raise DeviceError(f"onnxruntime cannot run {what}: {error}", code="GPC5004") from None
    return {output.name: answer for output, answer in zip(session.get_outputs(), answers, strict=True)}


def reference_outputs(model: Path | bytes, inputs: Arrays) -> dict[str, Any]:
    """What ONNX's reference evaluator answers. Raises ``DeviceError`` where it cannot run the model."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    proto = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
    names = [output.name for output in proto.graph.output]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            answers = ReferenceEvaluator(proto).run(None, dict(inputs))
        except (ArithmeticError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            raise DeviceError(f"ONNX's reference evaluator cannot run the model: {error}", code="GPC5004") from None
    return {
        name: a if isinstance(a, list) or a is None else np.asarray(a) for name, a in zip(names, answers, strict=True)
    }


def answers(model: Path | bytes, inputs: Arrays, against: str, *, optimised: bool = True) -> dict[str, np.ndarray]:
    """What ``against``, one of ``REFERENCES``, answers."""
    if against == "reference":
        return reference_outputs(model, inputs)
    return onnxruntime_outputs(model, inputs, optimised=optimised)


def compare(actual: Arrays, expected: Arrays) -> dict[str, float]:
    """The relative error of every output. Raises ``UsageError`` when the two have other outputs."""
    return {name: found.l2 for name, found in distances(actual, expected).items()}


def distances(actual: Arrays, expected: Arrays) -> dict[str, Distance]:
    """How far every output is. Raises ``UsageError`` when the two have other outputs."""
    if set(actual) != set(expected):
        raise UsageError(
            f"outputs {sorted(map(quote, actual))} cannot be compared with {sorted(map(quote, expected))}",
            code="GPC2006",
        )
    return {name: distance(actual[name], expected[name]) for name in actual}


def tolerance_for(model: Path) -> float:
    """``TOLERANCE``, or ``ROUNDINGS`` to f16 or bf16 where the model computes in these: its tensors, casts and weights tell.

    Raises as ``frontend.load``.
    """
    from onnx import TensorProto

    from gpucomp.frontend.onnx.functions import nested_nodes
    from gpucomp.frontend.onnx.loader import read

    proto, _ = read(model)
    graph = proto.graph
    types = {i.type.tensor_type.elem_type for i in (*graph.input, *graph.output, *graph.value_info)}
    nodes = list(nested_nodes([*graph.node, *(n for f in proto.functions for n in f.node)]))
    computed = {name for node in nodes if node.op_type != "Cast" for name in node.input}
    graphs = [graph, *(g for node in nodes for a in node.attribute for g in ([a.g] if a.HasField("g") else a.graphs))]
    types |= {weight.data_type for g in graphs for weight in g.initializer if weight.name in computed}
    for node in nodes:  # a weight that is only cast is stored so, and nothing is computed in its type
        if node.op_type != "Constant" or not computed.isdisjoint(node.output):
            types |= {a.t.data_type for a in node.attribute if a.HasField("t")}
        types |= {a.i for a in node.attribute if (node.op_type, a.name) == ("Cast", "to")}
    units = {TensorProto.FLOAT16: 2.0**-11, TensorProto.BFLOAT16: 2.0**-8}
    return max([TOLERANCE, *(ROUNDINGS * unit for kind, unit in units.items() if kind in types)])


def wrong(errors: Mapping[str, float], tolerance: float) -> Sequence[str]:
    """The names of those above ``tolerance``; NaN is above everything."""
    return [name for name, error in errors.items() if not error <= tolerance]


def require(errors: Mapping[str, float], tolerance: float, reference: str) -> None:
    """Raise ``AccuracyError`` for the worst output if it is further off than ``tolerance``."""
    if off := wrong(errors, tolerance):
        worst = max(off, key=lambda name: float("inf") if math.isnan(errors[name]) else errors[name])
        raise AccuracyError(
            f"output {quote(worst)}: relative L2 error {errors[worst]:.3e} against {reference} is above {tolerance:g}"
            f" ({len(off)} of {len(errors)} outputs are)",
            code="GPC6001",
        )
