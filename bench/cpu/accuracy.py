"""Measures the error of whole models on this machine's processor, relative to the same model in double precision.

    python -m bench.cpu.accuracy [MODEL ...] [--precision fp32] [--out bench/results/cpu_accuracy]

The reference is ONNX's own evaluator, in numpy, on the model with f64 weights and inputs. Errors are relative, in the L2 norm,
of the worst output. onnxruntime's error is shown beside gpucomp's. The exit status is 1 if an error exceeds the bound.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import gpucomp
from bench.models import MODELS, build, inputs
from bench.options import add_shared, parser_of
from gpucomp.cli.compare import relative_error
from gpucomp.cli.measure import machine

BOUND = {"fp32": 1e-4, "bf16": 3e-2, "fp16": 3e-3}


@dataclass(frozen=True)
class Error:
    """The errors of one model, relative to f64. ``engines`` counts the kernels of each contraction engine."""

    model: str
    ours: float
    theirs: float
    engines: Mapping[str, int]


class BatchNormalization(OpRun):  # type: ignore[misc]
    """For inference. ONNX's evaluator uses batch statistics if a node of an old opset has a momentum."""

    def _run(self, x, scale, bias, mean, var, epsilon=None, **_):  # type: ignore[no-untyped-def]
        shape = (1, -1, *(1 for _ in x.shape[2:]))
        factor = scale / np.sqrt(var + epsilon)
        return (x * factor.reshape(shape) + (bias - mean * factor).reshape(shape),)


def in_double(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with every f32 tensor, input, output and cast as f64."""
    double = onnx.ModelProto()
    double.CopyFrom(model)
    _doubled(double.graph)
    return double


def _doubled(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen(tensor)
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen(attribute.t)
            elif attribute.type == onnx.AttributeProto.GRAPH:
                _doubled(attribute.g)
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def reference(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of ``model`` in double precision."""
    wide = {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in feeds.items()}
    found = ReferenceEvaluator(in_double(model), new_ops=[BatchNormalization]).run(None, wide)
    if narrow := [a.dtype for a in found if np.issubdtype(a.dtype, np.floating) and a.dtype != np.float64]:
        raise ValueError(f"an output came out as {narrow[0]}: some of the model is not in double precision")
    return list(found)


def worst(found: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> float:
    """The largest relative L2 error of an output; infinite for another shape, and for unexpected NaNs."""
    return max(relative_error(np.asarray(a), b) for a, b in zip(found, right, strict=True))


def measure(name: str, precision: str, *, reduced: bool = False) -> Error:
    """One published model, with the inputs that ``bench.models`` makes."""
    model = build(name, reduced=reduced)
    feeds = inputs(model)
    right = reference(model, feeds)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in model.graph.output]
    exe = gpucomp.compile(model, target="cpu", precision=precision)
    outputs = exe.run(feeds)
    engines = Counter(kernel.family for kernel in exe.kernels if kernel.family.startswith("contraction"))
    return Error(
        name, worst([outputs[n] for n in names], right), worst(session.run(names, dict(feeds)), right), engines
    )


def page(errors: Sequence[Error], precision: str) -> str:
    how = (
        f"`python -m bench.cpu.accuracy --precision {precision}` on {machine()['processor']}: relative L2 error of the worst "
        f"output; the bound is {BOUND[precision]:g}."
    )
    lines = [
        "# Whole models beside double precision",
        "",
        how,
        "",
        "| model | gpucomp | onnxruntime, f32 | contractions by engine |",
        "|---|---|---|---|",
    ]
    for e in errors:
        engines = ", ".join(f"{count} {name}" for name, count in sorted(e.engines.items()))
        lines.append(f"| {e.model} | {e.ours:.1e} | {e.theirs:.1e} | {engines} |")
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.cpu.accuracy", __doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="only this model (default: all of bench.models)")
    parser.add_argument(
        "--precision", choices=sorted(BOUND), default="fp32", help="types that numbers may be rounded to"
    )
    add_shared(parser, "--reduced")
    parser.add_argument("--out", type=Path, metavar="PREFIX", help="also write PREFIX.md")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.models if name not in MODELS]:
        parser.error(f"unknown: {', '.join(unknown)}; models are {', '.join(MODELS)}")
    errors = []
    for name in options.models or list(MODELS):
        errors.append(measure(name, options.precision, reduced=options.reduced))
        print(f"{name:16} {errors[-1].ours:.2e}, onnxruntime {errors[-1].theirs:.2e}", file=sys.stderr, flush=True)
    text = page(errors, options.precision)
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.with_suffix(".md").write_text(text, encoding="utf-8")
    return 1 if any(not e.ours <= BOUND[options.precision] for e in errors) else 0


if __name__ == "__main__":
    sys.exit(main())
