"""Our references agree with those of the ONNX package, if it has the operator and the element type."""

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from gpucomp.ir.types import U8
from gpucomp.ops.registry import OPS
from testing.tolerance import assert_matches
from tests.op_cases import CASES

SAME = {
    *("Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Sqrt", "Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos"),
    *("Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Erf", "Reciprocal", "Not", "IsNaN", "IsInf"),
    *("BitwiseNot", "Relu", "LeakyRelu", "Elu", "Selu", "Sigmoid", "HardSigmoid", "HardSwish", "Softplus", "Softsign"),
    *("Gelu", "ThresholdedRelu", "PRelu", "Add", "Sub", "Mul", "Max", "Min", "Equal", "Less", "LessOrEqual", "And"),
    *("Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Where", "Transpose", "Concat", "Gather", "ScatterND"),
    *("GatherElements", "GatherND", "ScatterElements", "Softmax", "LogSoftmax", "MatMul", "Einsum", "Celu", "Mish"),
    *("Swish", "Shrink", "Mod", "Pow", "Div", "BitShift", "GridSample", "RoiAlign"),
}


FLOAT_ATTRIBUTES = {
    "LeakyRelu",
    "Selu",
    "Swish",
    "HardSigmoid",
    "HardSwish",
    "Gelu",
    "Erf",
    "Resize",
    "LayerNorm",
    "RMSNorm",
    "RowStatistics",
}


def differs(name, case):
    """Whether ONNX's reference is less exact than the standard, or fails."""
    x = case.operands[0]
    return (
        (name in FLOAT_ATTRIBUTES and x.dtype == np.float64)  # computed with f32 attributes, or in f32
        or (name == "RowStatistics" and x.dtype.itemsize == 2)  # rounds them to the operand's type
        or (name == "PRelu" and np.isnan(x.astype(np.float64)).any())  # loses NaN and infinities
        or (name == "LogSoftmax" and np.abs(x).max(initial=0) > 100)  # takes the logarithm of an underflow
        or (name in {"Softsign", "Transpose"} and x.ndim == 0)  # fails
        or (name == "GatherElements" and x.shape[:1] != case.operands[1].shape[:1] and x.ndim > 2)  # no smaller indices
        or (name == "GatherND" and case.operands[1].size == 0)  # fails
        or (name == "ConvTranspose" and (case.attrs.get("group", 1) > 1 or x.ndim == 3))  # fails
        or (name == "Resize" and x.dtype == np.bool_)  # fails
        or (name == "GridSample" and case.operands[1].size == 0)  # fails
        or (name == "GridSample" and 1 in x.shape[2:] and case.attrs["padding_mode"] == "reflection")  # divides by 0
        or (name == "GridSample" and case.attrs.items() >= {"mode": "cubic", "padding_mode": "border"}.items())
    )


def translated(name, case):
    """ONNX's operator, arrays and attributes for a case; None if the standard or its package does not have it."""
    a, attrs, arrays = dict(case.attrs), {}, list(case.operands)
    if name == "Iota":
        numbers = (np.array(n, a["dtype"].numpy) for n in (0, a["size"], 1))
        return ("Range", list(numbers), {}) if a["dtype"] is not U8 else None
    if case.outside or differs(name, case):
        return None
    if name in SAME:
        attrs = {k: int(v) if isinstance(v, bool) else v for k, v in a.items()}
        return name, arrays, attrs
    if name == "Reshape":
        return name, [*arrays, np.array(a["shape"], np.int64)], {"allowzero": 1}
    if name == "Slice":
        if 0 in a["sizes"] or not a["sizes"]:
            return None
        ends = [s + n * t for s, n, t in zip(a["starts"], a["sizes"], a["steps"], strict=True)]
        ends = [e if e >= 0 else -(1 << 40) for e in ends]
        rank = np.arange(len(ends))
        return name, [*arrays, np.array(a["starts"]), np.array(ends), rank, np.array(a["steps"])], {}
    if name == "Pad":
        if min(a["pads"]) < 0:
            return None  # numpy's pad, which ONNX's reference calls, takes no negative pads
        value = [np.array(a.get("value", 0), arrays[0].dtype)] if a["mode"] == "constant" else []
        return name, [*arrays, np.array(a["pads"]), *value], {"mode": a["mode"]}
    if name == "Expand":
        return name, [*arrays, np.array(a["shape"])], {}
    if name == "Tile":
        return name, [*arrays, np.array(a["repeats"])], {}
    if name.startswith("Reduce"):
        if not a["axes"] or 0 in arrays[0].shape:
            return None
        return name, [*arrays, np.array(a["axes"])], {"keepdims": int(a["keepdims"])}
    if name in {"ArgMax", "ArgMin"}:
        return name, arrays, {k: int(v) for k, v in a.items()}
    if name in {"CumSum", "CumProd"}:
        return name, [*arrays, np.array(a["axis"])], {k: int(v) for k, v in a.items() if k != "axis"}
    if name in {"MaxPool", "AveragePool", "MaxPoolIndices"}:
        return _pool(name, arrays, a)
    if name in {"Conv", "ConvTranspose"}:
        if a.get("layout", "NCHW") != "NCHW" or 0 in arrays[0].shape:
            return None
        attrs = {k: a[k] for k in ("strides", "pads", "dilations")} | {"group": a.get("group", 1)}
        if name == "ConvTranspose":
            attrs["output_padding"] = [
                out - ((n - 1) * s + (k - 1) * d + 1 - p - q)
                for out, n, s, k, d, p, q in zip(
                    a["out"],
                    arrays[0].shape[2:],
                    a["strides"],
                    arrays[1].shape[2:],
                    a["dilations"],
                    a["pads"][: len(a["out"])],
                    a["pads"][len(a["out"]) :],
                    strict=True,
                )
            ]
            if min(attrs["output_padding"]) < 0:
                return None
        return name, arrays, attrs
    if name == "Resize":
        return _resize(arrays, a)
    if name == "Clip":
        limits = [None if a[k] is None else np.array(a[k], arrays[0].dtype) for k in ("low", "high")]
        return name, [*arrays, *limits], {}
    if name == "TopK":
        return name, [*arrays, np.array([a["k"]])], {"axis": a["axis"], "largest": int(a.get("largest", True))}
    if name == "ReverseSequence":
        return name, arrays, a
    if name == "DeformConv":
        x, w, moves, mask = arrays
        bias = np.zeros(w.shape[0], w.dtype)
        usable = x.ndim == 4 and x.dtype == np.float32  # ONNX's has two spatial axes and samples in f32
        return (name, [x, w, moves, bias, mask], a) if usable else None
    if name == "Attention":
        usable = arrays[0].ndim == 4 and arrays[0].dtype == np.float32  # intermediate results are rounded differently
        return (name, arrays, {"scale": a["scale"]}) if usable and "causal" not in a else None
    if name in {"LayerNorm", "RMSNorm", "RowStatistics"}:
        if 0 in arrays[0].shape:
            return None
        scale = np.ones(arrays[0].shape[a["axis"] :], arrays[0].dtype)
        kind = "RMSNormalization" if name == "RMSNorm" else "LayerNormalization"
        return kind, [*arrays, scale], {"axis": a["axis"], "epsilon": a.get("epsilon", 1e-5)}
    return None


def _pool(name, arrays, a):
    if a.get("layout", "NCHW") != "NCHW" or 0 in arrays[0].shape:
        return None
    rank = len(a["kernel"])
    attrs = {"kernel_shape": a["kernel"], "strides": a["strides"], "pads": a["pads"], "dilations": a["dilations"]}
    floors = [
        (n + a["pads"][d] + a["pads"][rank + d] - (a["kernel"][d] - 1) * a["dilations"][d] - 1) // a["strides"][d] + 1
        for d, n in enumerate(arrays[0].shape[2:])
    ]
    attrs["ceil_mode"] = int(tuple(floors) != a["out"])
    if name == "AveragePool":
        attrs["count_include_pad"] = int(a.get("count_include_pad", False))
    if name == "MaxPoolIndices":
        attrs["storage_order"] = a.get("storage_order", 0)
        if not np.isfinite(arrays[0].astype(np.float64)).all():
            return None  # ONNX says nothing of NaN, and its reference takes padding for -inf
        return "MaxPool", arrays, attrs
    return name, arrays, attrs


def _resize(arrays, a):
    if 0 in a["sizes"] or (arrays[0].dtype.kind in "iub" and a.get("mode", "nearest") != "nearest"):
        return None
    floors = tuple(int(np.float32(s) * n) for s, n in zip(a["scales"], arrays[0].shape, strict=True))
    attrs = {k: v for k, v in a.items() if k not in {"sizes", "scales", "roi"}}
    attrs = {k: int(v) if isinstance(v, bool) else v for k, v in attrs.items()}
    roi = np.array(a.get("roi", ()), np.float32)
    exact = all(s == o / n for s, o, n in zip(a["scales"], a["sizes"], arrays[0].shape, strict=True))
    if exact:
        return "Resize", [*arrays, roi, np.array((), np.float32), np.array(a["sizes"])], attrs
    if floors != a["sizes"]:
        return None
    return "Resize", [*arrays, roi, np.array(a["scales"], np.float32)], attrs


def onnx_results(op, arrays, attrs, count):
    names = [f"x{k}" if a is not None and not (op == "Resize" and a.size == 0) else "" for k, a in enumerate(arrays)]
    outputs = [f"y{k}" for k in range(count)]
    node = helper.make_node(op, names, outputs, **attrs)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, arrays, strict=True)
        if n
    ]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=o) for o in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(model).run(None, {n: a for n, a in zip(names, arrays, strict=True) if n})


COMPARED = [(n, c, t) for n, cases in CASES.items() for c in cases if (t := translated(n, c)) is not None]


@pytest.mark.parametrize(("name", "case", "onnx_node"), COMPARED, ids=[f"{n}-{c}"[:120] for n, c, _ in COMPARED])
def test_reference_agrees_with_onnx(name, case, onnx_node):
    results = onnx_results(*onnx_node, count={"MaxPoolIndices": 2, "TopK": 2, "RowStatistics": 3}.get(name, 1))
    expected = results[1:] if name in {"MaxPoolIndices", "RowStatistics"} else results

    actual = OPS[name].reference(*case.operands, **case.attrs)

    for ours, theirs in zip(actual if isinstance(actual, tuple) else (actual,), expected, strict=True):
        assert_matches(np.asarray(ours), np.asarray(theirs), terms=case.terms)


def test_every_operator_of_the_standard_is_compared():
    own = {"Rank", "Cast"}  # not in the standard; left by the standard to the implementation for the most part
    # of text, of chance and of ai.onnx.ml: ONNX's own cases compare them, as whole models
    own |= {"StringConcat", "StringEqual", "StringToNumber", "NumberToString", "RegexFullMatch", "TfIdfVectorizer"}
    own |= {"CategoryIndex", "LabelEncoder", "PairwiseCoupling", "RandomNormal", "RandomUniform"}
    own |= {"NonMaxSuppression", "NonZero", "Unique"}  # as long as their input's values say: whole models too
    own |= {"InverseRMS"}  # beside its reference in test_norm_products.py, with what it is the middle of
    own |= {"Copy", "Extremes", "Repeat"}  # a loop is compared as whole models, the others are parts of quantized ones
    own |= {"AdaptiveRoiAlign"}  # beside onnxruntime in test_regions.py
    own |= {"Append"}  # of states: whole decoders in tests/runtime/test_states.py

    missing = "tests/ops/test_references_against_onnx.py: `translated` or `own` has every operator"
    assert {name for name, _, _ in COMPARED} == set(OPS) - own, missing
