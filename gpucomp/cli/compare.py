"""Answers of other programs to the same inputs, how far gpucomp's answers are from them, and how far is too far."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpucomp.errors import AccuracyError, DeviceError, UsageError, quote
from gpucomp.extras import install
from gpucomp.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import onnx
    from onnx.reference.op_run import OpRun

REFERENCES = ("onnxruntime", "reference")
TOLERANCE = 1e-4  # relative L2 error
ABSOLUTE = 1e-6  # eight roundings of a number near 1 to f32: half an ulp is 2**-24
ROUNDINGS = 8  # roundings to 16 bits by which two right answers may differ, if they round at different operators
# onnxruntime's operators that multiply quantized values as integers
PRODUCTS_OF_BYTES = frozenset(
    (
        "ConvInteger",
        "DynamicQuantizeLSTM",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QAttention",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
    )
)
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Distance:
    """How far a tensor is from another one, computed in f64.

    ``l2`` is ``||a - b|| / ||b||``, or ``||a - b||`` if ``b`` is zero. ``linf`` is the largest ``|a - b|``, ``cosine`` is
    ``a.b / (||a|| ||b||)``, or 1 if both are zero. ``rms`` and ``scale`` are the root mean squares of ``a - b`` and of
    ``b``. Different shapes, or NaN or infinities in different places, are infinitely far.
    """

    l2: float
    linf: float
    cosine: float
    rms: float
    scale: float


FAR = Distance(math.inf, math.inf, 0.0, math.inf, 0.0)
SAME = Distance(0.0, 0.0, 1.0, 0.0, 0.0)


@dataclass(frozen=True)
class Tolerance:
    """How far a tensor ``a`` may be from the expected one, ``b``: ``rms(a - b) <= relative * rms(b) + absolute``.

    This is the criterion of ``numpy.allclose`` for a tensor as a whole. Element by element it would ask too much of
    sums that cancel: the error of a sum is proportional to its largest terms, not to its result. Without the absolute
    part it would ask too much of a tensor that is small as a whole: the sigmoid of -11 is 1.7e-5, and a program that
    computes it as ``1 - y`` or by a polynomial is off by a rounding of 1, which is 1e-7.
    """

    relative: float = TOLERANCE
    absolute: float = ABSOLUTE

    def allows(self, far: Distance) -> bool:
        return far.rms <= self.relative * far.scale + self.absolute  # not so if it is NaN

    def __str__(self) -> str:
        return f"{self.relative:g} relative + {self.absolute:g} absolute"


def distance(actual: Any, expected: Any) -> Distance:
    """The distance of two arrays. For sequences that of the worst element; texts are equal or infinitely far."""
    if isinstance(actual, list) and isinstance(expected, list):
        found = [distance(a, b) for a, b in zip(actual, expected, strict=False)] + [SAME]
        usual = Tolerance()
        worst = max(found, key=lambda d: d.rms / (usual.relative * d.scale + usual.absolute))
        return worst if len(actual) == len(expected) else FAR
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
        cosine = float((a / norms) @ (b / norm))  # divide first: the product of two large norms overflows
    root = math.sqrt(max(a.size, 1))
    largest = float(np.abs(a - b).max(initial=0.0))
    return Distance(gap / norm if norm else gap, largest, cosine, gap / root, norm / root)


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """``||actual - expected|| / ||expected||`` in f64; infinite for different shapes, or NaN or inf in different places."""
    return distance(actual, expected).l2


def require_onnxruntime() -> Any:
    """onnxruntime, imported. Raises ``DeviceError`` if it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        raise DeviceError(f"onnxruntime is not installed: {install('ort')}", code="GPC5003") from None
    return onnxruntime


def onnxruntime_failures() -> tuple[type[Exception], ...]:
    """The types of the errors that onnxruntime raises."""
    states = vars(require_onnxruntime().capi.onnxruntime_pybind11_state).values()
    return tuple(kind for kind in states if isinstance(kind, type) and issubclass(kind, Exception))


def onnxruntime_session(
    model: Path | bytes, *, optimised: bool = True, threads: int = 0, provider: str = "CPUExecutionProvider"
) -> Any:
    """A session of onnxruntime as a reference: its sums of products of bytes are exact on every processor.

    Without VNNI onnxruntime adds products of u8 and i8 in pairs of 16 bits, which saturate (``vpmaddubsw``), unless
    ``session.x64quantprecision`` is set. That option works through extended optimisations, which turn constant i8 weights
    into u8, so a model with ``PRODUCTS_OF_BYTES`` is optimised even if ``optimised`` is false. They also change weights beside
    i8 activations, whose products are exact anyway, and onnxruntime 1.32 has no product of i8 by u8: if it refuses the
    model, the session is made without the option. Raises ``DeviceError`` if onnxruntime is missing, and onnxruntime's own
    errors for a model that it cannot run.
    """
    onnxruntime = require_onnxruntime()

    def session(level: Any, *, exact: bool) -> Any:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        options.graph_optimization_level = level
        options.add_session_config_entry("session.x64quantprecision", str(int(exact)))
        given = model if isinstance(model, bytes) else str(model)
        return onnxruntime.InferenceSession(given, options, providers=[provider])

    levels = onnxruntime.GraphOptimizationLevel
    level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    if not optimised and not multiplies_bytes(model):
        return session(level, exact=False)
    try:
        return session(levels.ORT_ENABLE_ALL if optimised else levels.ORT_ENABLE_EXTENDED, exact=True)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return session(level, exact=False)


def multiplies_bytes(model: Path | bytes) -> bool:
    """Whether a node multiplies bytes, in functions and control flow too. False for a model that cannot be read."""
    import onnx
    from google.protobuf.message import DecodeError

    from gpucomp.frontend.onnx.functions import nested_nodes

    try:
        proto = onnx.load_from_string(model if isinstance(model, bytes) else model.read_bytes())
    except (DecodeError, OSError):
        return False  # onnxruntime reports what is wrong with it
    nodes = nested_nodes([*proto.graph.node, *(n for f in proto.functions for n in f.node)])
    return any(node.op_type in PRODUCTS_OF_BYTES for node in nodes)


def onnxruntime_outputs(model: Path | bytes, inputs: Arrays, *, optimised: bool = True) -> dict[str, np.ndarray]:
    """The outputs of onnxruntime's CPU provider. Raises ``DeviceError`` if it is missing or cannot run the model."""
    try:
        session = onnxruntime_session(model, optimised=optimised)
        answers = session.run(None, dict(inputs))
    except onnxruntime_failures() as error:
        what = "the model" if isinstance(model, bytes) else quote(model)
        raise DeviceError(f"onnxruntime cannot run {what}: {error}", code="GPC5014") from None
    return {output.name: answer for output, answer in zip(session.get_outputs(), answers, strict=True)}


def reference_outputs(model: Path | bytes, inputs: Arrays) -> dict[str, Any]:
    """The outputs of ONNX's reference evaluator. Raises ``DeviceError`` if it cannot run the model."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    proto = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
    names = [output.name for output in proto.graph.output]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            answers = ReferenceEvaluator(proto, new_ops=_mended(proto)).run(None, dict(inputs))
        except (ArithmeticError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            raise DeviceError(f"ONNX's reference evaluator cannot run the model: {error}", code="GPC5014") from None
    return {
        name: a if isinstance(a, list) or a is None else np.asarray(a) for name, a in zip(names, answers, strict=True)
    }


def _mended(model: onnx.ModelProto) -> list[type[OpRun]]:
    """Operators that ONNX's evaluator computes wrongly. From opset 7 to 13 its BatchNormalization always trains."""
    from onnx.reference.op_run import OpRun

    from gpucomp.frontend.onnx.functions import nested_nodes

    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    norms = [node for node in nested_nodes(model.graph.node) if node.op_type == "BatchNormalization"]
    if not 7 <= opset < 14 or any(len(node.output) > 1 for node in norms):
        return []

    class BatchNormalization(OpRun):
        op_domain = ""

        def _run(self, x: Any, *operands: Any, epsilon: float = 1e-5, spatial: int = 1, **_: Any) -> tuple[Any]:
            if not spatial:
                raise NotImplementedError("BatchNormalization with spatial=0")
            scale, bias, mean, var = (v.reshape(-1, *(1,) * (x.ndim - 2)) for v in operands)
            return (((x - mean) / np.sqrt(var + epsilon) * scale + bias).astype(x.dtype),)

    return [BatchNormalization]


def answers(model: Path | bytes, inputs: Arrays, against: str, *, optimised: bool = True) -> dict[str, np.ndarray]:
    """The outputs of ``against``, one of ``REFERENCES``."""
    if against == "reference":
        return reference_outputs(model, inputs)
    return onnxruntime_outputs(model, inputs, optimised=optimised)


def distances(actual: Arrays, expected: Arrays) -> dict[str, Distance]:
    """The distance of every output. Raises ``UsageError`` if the two have different outputs."""
    if set(actual) != set(expected):
        raise UsageError(
            f"outputs {sorted(map(quote, actual))} cannot be compared with {sorted(map(quote, expected))}",
            code="GPC2006",
        )
    return {name: distance(actual[name], expected[name]) for name in actual}


UNITS = {"fp16": 2.0**-11, "mixed": 2.0**-11, "tf32": 2.0**-11, "bf16": 2.0**-8}  # a rounding's relative error


def tolerance_for(model: Path, precision: str = "fp32") -> float:
    """``TOLERANCE``, or ``ROUNDINGS`` roundings to a shorter type, if there are any.

    There are if the model's tensors, casts or weights are in f16 or bf16, or if it is compiled at such a ``precision``. Right
    results of ResNet-18, MobileNetV2 and BERT are off by a fifth to a third of that. Raises the same errors as
    ``frontend.load``.
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
    for node in nodes:  # a weight that is only cast is stored in its type, but nothing is computed in it
        if node.op_type != "Constant" or not computed.isdisjoint(node.output):
            types |= {a.t.data_type for a in node.attribute if a.HasField("t")}
        types |= {a.i for a in node.attribute if (node.op_type, a.name) == ("Cast", "to")}
    own = {TensorProto.FLOAT16: UNITS["fp16"], TensorProto.BFLOAT16: UNITS["bf16"]}
    units = [*(unit for kind, unit in own.items() if kind in types), UNITS.get(precision, 0.0)]
    return max([TOLERANCE, *(ROUNDINGS * unit for unit in units)])


def wrong(found: Mapping[str, Distance], tolerance: Tolerance) -> Sequence[str]:
    """The names of the tensors that are farther away than ``tolerance`` allows, or by NaN."""
    return [name for name, far in found.items() if not tolerance.allows(far)]


def require(found: Mapping[str, Distance], tolerance: Tolerance, reference: str, advice: str = "") -> None:
    """Raise ``AccuracyError`` for the worst output if it is farther away than ``tolerance`` allows.

    ``advice`` ends the message: what to do then.
    """
    if off := wrong(found, tolerance):
        worst = max(off, key=lambda name: math.inf if math.isnan(found[name].l2) else found[name].l2)
        far = found[worst]
        raise AccuracyError(
            f"output {quote(worst)} differs from {reference}: relative L2 error {far.l2:.3e}, root mean square "
            f"{far.rms:.3e}, largest {far.linf:.3e}; allowed: {tolerance} ({len(off)} of {len(found)} outputs are wrong)"
            + (f"; {advice}" if advice else ""),
            code="GPC6001",
        )
