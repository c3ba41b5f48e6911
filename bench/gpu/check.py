"""One command for a machine with a CUDA GPU and no network: does gpucomp compute right there, and how fast?

    python -m bench.gpu.check [STAGE ...] [--out DIR] [--limit-s 540] [--models resnet18,...] [--reduced] [--dry-run]

    probe    the device: clocks, memory, bandwidth of a copy, microseconds of an empty kernel in a graph
    correct  every family's kernels on awkward shapes against numpy's float64, outputs poisoned beforehand
    models   the benchmark models against gpucomp's CPU target, and milliseconds of a graph's replay
    layers   ResNet-50's convolutions at strict fp32, beside torch's (cuDNN) where that is installed

Results are JSON lines in DIR/results.jsonl, written one by one; what is there with the same sources is not run again.
Exit status 0: all right; 1: something is wrong; 3: the time limit came first, so call it again.
--dry-run plays the device on the CPU, with small shapes and no times.
Needed: numpy, onnx, ml_dtypes, jinja2, llvmlite, and cupy with NVRTC (--dry-run: g++). Nothing else is imported but
torch, where it is there.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.gpu.devices import Device

NEEDED = ("numpy", "onnx", "ml_dtypes", "jinja2", "llvmlite")
ROOT = Path(__file__).parents[2]
REPLAYS = 50
TOLERANCE = 1e-4  # relative L2 error of a model's output
Work = tuple[str, Callable[[], dict[str, Any]]]


def missing(dry_run: bool) -> list[str]:
    """The packages that are needed and not installed."""
    return [name for name in (*NEEDED, *(() if dry_run else ("cupy",))) if importlib.util.find_spec(name) is None]


def fingerprint() -> str:
    """Names the sources that results come from."""
    digest = hashlib.sha256()
    for folder in ("gpucomp", "kernels_templates", "bench/models", "bench/gpu"):
        for path in sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in {".py", ".j2", ".h"}):
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


class Results:
    """A file of JSON lines; ``done`` are the (stage, name) that went well with these sources on this kind of device."""

    def __init__(self, folder: Path, device: str) -> None:
        self.path, self.version, self.device = folder / "results.jsonl", fingerprint(), device
        folder.mkdir(parents=True, exist_ok=True)
        self.done: set[tuple[str, str]] = set()
        for line in self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else ():
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # a line that an interruption cut off
            if entry.get("ok") and (entry["version"], entry["device"]) == (self.version, device):
                self.done.add((entry["stage"], entry["name"]))

    def add(self, stage: str, name: str, result: dict[str, Any]) -> None:
        entry = {**result, "stage": stage, "name": name, "version": self.version, "device": self.device}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def probe(device: Device, options: argparse.Namespace) -> Iterator[Work]:
    yield "device", lambda: {"ok": True, **device.probe()}


def correct(device: Device, options: argparse.Namespace) -> Iterator[Work]:
    import template_cases

    cases = template_cases.CASES
    names = [name for name in cases if not template_cases.is_empty(cases[name])]
    if options.dry_run:
        names = ["loops-add_relu", "contraction-conv_stem", "contraction-f16", "rowwise-softmax", "pool-3x3"]
    for name in names:
        schedules = [template_cases.default(cases[name], device.target.limits)]
        if not options.dry_run:
            schedules += template_cases.spread(cases[name], device.target.limits, 3, seed=7)
        for number, schedule in enumerate(schedules):
            yield f"{name}-{number}", lambda name=name, s=schedule: check_kernel(device, cases[name], s)  # type: ignore[misc]


def check_kernel(device: Device, kernel: Any, schedule: dict[str, int]) -> dict[str, Any]:
    """Run a kernel on random inputs and poisoned outputs; compare with the evaluator of the tests."""
    import math

    import numpy as np
    from kernel_oracle import update
    from kernels import random_inputs
    from tolerance import assert_matches

    from gpucomp.codegen.render import render
    from gpucomp.kernel import Attention, Contraction, Rowwise

    def poisoned() -> list[Any]:
        types = kernel.params[kernel.inputs :]
        return [np.full(t.shape, math.nan if t.dtype.is_float else 113).astype(t.dtype.numpy) for t in types]

    source = render(kernel, schedule, device.target, "k0")
    inputs = [np.ascontiguousarray(a) for a in random_inputs(kernel, seed=23)]
    outputs, wanted = poisoned(), poisoned()
    update(kernel, inputs, wanted)
    scratch = []
    if source.geometry.workspace_bytes:
        scratch = [
            np.full(source.geometry.workspace_bytes, 255, np.uint8),
            np.zeros(source.geometry.counter_bytes, np.uint8),
        ]
    device.launch(source, [*inputs, *outputs, *scratch])
    axes = {Contraction: "k", Rowwise: "cols", Attention: "cols"}.get(type(kernel.body))
    terms = max(1, math.prod(v.extent for v in getattr(kernel.body, axes))) if axes else 1
    try:
        for actual, right in zip(outputs, wanted, strict=True):
            assert_matches(actual, right, terms=terms)
    except AssertionError as error:
        return {"ok": False, "schedule": schedule, "error": str(error)[:500]}
    return {"ok": True, "schedule": schedule}


def relative_error(actual: Any, expected: Any) -> float:
    """||actual - expected|| / ||expected||, in f64; infinite for another shape or anything that is not finite."""
    import numpy as np

    a, b = actual.astype(np.float64), expected.astype(np.float64)
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    return float(np.linalg.norm(a - b)) / (float(np.linalg.norm(b)) or 1.0)


def run_model(device: Device, model: Any, feeds: Any) -> dict[str, Any]:
    """The model on the device against the CPU target."""
    import gpucomp

    begin = time.perf_counter()
    executable = gpucomp.compile(model, target=device.target.name)
    compile_s = time.perf_counter() - begin
    outputs, milliseconds = device.model(executable, feeds, REPLAYS)
    expected = gpucomp.compile(model, target="cpu").run(feeds)
    error = max(relative_error(outputs[name], expected[name]) for name in expected)
    result = {"ok": error <= TOLERANCE, "error": error, "kernels": len(executable.kernels), "compile_s": compile_s}
    if milliseconds:
        result |= {"median_ms": statistics.median(milliseconds), "samples_ms": milliseconds}
    return result


def models(device: Device, options: argparse.Namespace) -> Iterator[Work]:
    from bench.models import MODELS, build, inputs

    names = options.models.split(",") if options.models else ["mobilenet_v2"] if options.dry_run else list(MODELS)

    def check(name: str) -> dict[str, Any]:
        model = build(name, reduced=options.reduced or options.dry_run)
        return run_model(device, model, inputs(model))

    size = "reduced" if options.reduced or options.dry_run else "full"
    for name in names:
        yield f"{name}-{size}", lambda name=name: check(name)  # type: ignore[misc]


def layers(device: Device, options: argparse.Namespace) -> Iterator[Work]:
    import onnx
    from onnx import helper

    from bench.models import build

    small = options.reduced or options.dry_run
    graph = onnx.shape_inference.infer_shapes(build("resnet50", reduced=small)).graph
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*graph.value_info, *graph.input)}
    shapes |= {w.name: list(w.dims) for w in graph.initializer}
    distinct: dict[str, tuple[list[int], list[int], dict[str, Any]]] = {}
    for node in graph.node:
        if node.op_type == "Conv":
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            x, w = shapes[node.input[0]], shapes[node.input[1]]
            name = f"{'x'.join(map(str, x))}-{'x'.join(map(str, w))}-s{attributes['strides'][0]}"
            distinct.setdefault(name, (x, w, attributes))
    for name in list(distinct)[: 2 if options.dry_run else None]:
        yield name, lambda layer=distinct[name]: check_layer(device, *layer)  # type: ignore[misc]


def check_layer(device: Device, x: list[int], w: list[int], attributes: dict[str, Any]) -> dict[str, Any]:
    """One convolution as a model of its own, and as torch computes it."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(5)
    image = rng.standard_normal(x, np.float32)
    weight = rng.standard_normal(w, np.float32) * np.float32((2 / np.prod(w[1:])) ** 0.5)
    node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    graph = helper.make_graph(
        [node], "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    result = run_model(device, model, {"x": image})
    if "median_ms" in result and (torch_ms := torch_conv_ms(image, weight, attributes)) is not None:
        result["torch_ms"] = torch_ms
    return result


def torch_conv_ms(image: Any, weight: Any, attributes: dict[str, Any]) -> float | None:
    """Median milliseconds of cuDNN's convolution in a replayed graph, TF32 off; ``None`` without torch and its GPU."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    x, w = torch.from_numpy(image).cuda(), torch.from_numpy(weight).cuda()
    top, left, _, _ = attributes["pads"]

    def step() -> None:
        torch.nn.functional.conv2d(x, w, stride=tuple(attributes["strides"]), padding=(top, left))

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    milliseconds = []
    for _ in range(REPLAYS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        milliseconds.append(start.elapsed_time(end))
    return statistics.median(milliseconds)


STAGES: dict[str, Callable[[Device, argparse.Namespace], Iterator[Work]]] = {
    "probe": probe,
    "correct": correct,
    "models": models,
    "layers": layers,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(STAGES)}; default all")
    parser.add_argument("--out", type=Path, default=Path("gpu-check"))
    parser.add_argument("--limit-s", type=float, default=540.0, help="start nothing after so many seconds")
    parser.add_argument("--models", help="comma-separated; default all")
    parser.add_argument("--reduced", action="store_true", help="the small versions of the models")
    parser.add_argument("--dry-run", action="store_true", help="no GPU: the CUDA-on-CPU harness is the device")
    options = parser.parse_args(arguments)
    if unknown := [stage for stage in options.stages if stage not in STAGES]:
        parser.error(f"no stage {unknown[0]!r}; there are {', '.join(STAGES)}")
    begin = time.monotonic()
    if absent := missing(options.dry_run):
        print(f"not installed: {', '.join(absent)}", file=sys.stderr)
        return 2
    from bench.gpu.devices import Gpu, Harness
    from bench.models import MODELS
    from gpucomp.errors import GpucompError

    if unknown := [name for name in (options.models or "").split(",") if name and name not in MODELS]:
        parser.error(f"no model {unknown[0]!r}; known are {', '.join(MODELS)}")

    try:
        device: Device = Harness() if options.dry_run else Gpu()
    except GpucompError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    results = Results(options.out, "harness" if options.dry_run else device.target.arch)
    wrong = 0
    for stage in options.stages or STAGES:
        for name, work in STAGES[stage](device, options):
            if (stage, name) in results.done:
                continue
            if time.monotonic() - begin > options.limit_s:
                print(f"stopped before {stage} {name}: {options.limit_s:g} s are over; call again", file=sys.stderr)
                return 3
            try:
                result = work()
            except GpucompError as error:
                result = {"ok": False, "error": str(error)}
            results.add(stage, name, result)
            wrong += not result["ok"]
            shown = {k: v for k, v in result.items() if k not in {"samples_ms", "schedule"}}
            print(f"{stage} {name}: {json.dumps(shown)}", file=sys.stderr, flush=True)
    print(f"{wrong} wrong; results in {results.path}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
