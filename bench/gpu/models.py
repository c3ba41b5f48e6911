"""Whole models at each precision, in turns with torch, torch.compile and onnxruntime, if installed.

The time of one execution with data on the device, a graph's replay, is measured. All answers are compared with float64, from
torch if it has the model, otherwise from the CPU target. If launches overlap, they are also timed one by one, which must give
the same bits.
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.gpu import checks, devices, measure
from bench.gpu.problems import MODELS, supported
from bench.gpu.work import Job
from gpucomp.artifact.plan import Plan

NAME = "models"
DRY_MODELS = ("mobilenet_v2",)
LIMITS = {"fp32": 1e-4, "3xtf32": 1e-4, "tf32": 2e-2, "fp16": 2e-2, "mixed": 2e-2, "bf16": 1.5e-1}
ROUNDS, REPLAYS = 12, 5  # of each rival in turn
COMPILE_S = 420.0  # time limit of torch.compile for a model


@dataclass(frozen=True)
class Subject:
    """With ``compiled``, only torch.compile is the rival, because it takes minutes; otherwise all others are."""

    model: str
    precision: str
    compiled: bool = False


def jobs(context: Any) -> list[Job]:
    options = context.options
    names = options.models or (DRY_MODELS if options.dry_run else MODELS)
    precisions = options.precisions or (("fp32",) if options.dry_run else ())
    size = "reduced" if context.small else "full"
    pairs = [(m, p) for p in supported(precisions, context.target) for m in names]
    found = [Job(NAME, f"{m}-{p}-{size}", Subject(m, p), limit_s=180) for m, p in pairs]
    if devices.KINDS[options.target].torch and not options.dry_run and importlib.util.find_spec("torch"):
        found += [Job(NAME, f"{m}-{p}-{size}-compiled", Subject(m, p, True), COMPILE_S) for m, p in pairs]
    return found


def built(context: Any, name: str) -> Any:
    from bench.models import build

    return build(name, reduced=context.small)


def prepare(context: Any, job: Job) -> dict[str, Any]:
    if devices.KINDS[context.target.kind].build is not None and not context.options.dry_run:
        compiled(context, job.subject, built(context, job.subject.model))  # fills the cache
    return {}


def compiled(context: Any, subject: Subject, model: Any) -> Any:
    import gpucomp

    name = context.target.name
    return gpucomp.compile(model, target=name, precision=subject.precision)


def perform(context: Any, device: Any, job: Job, prepared: dict[str, Any]) -> dict[str, Any]:
    from bench.models import inputs

    subject: Subject = job.subject
    model = built(context, subject.model)
    feeds = inputs(model)
    executable = compiled(context, subject, model)
    program = device.open(executable.plan, executable.sources, executable.binaries, executable.weights)
    outputs = answers(program, feeds, context)
    wanted, by = reference(context, subject, model, feeds)
    error = max(checks.error_of(outputs[name], right) for name, right in wanted.items())
    limit = LIMITS[subject.precision]
    result = {
        "ok": error <= limit,
        "model": subject.model,
        "precision": subject.precision,
        "error": error if np.isfinite(error) else None,
        "reference": by,
        "kernels": len(executable.kernels),
    }
    if not result["ok"]:
        return {**result, "fault": f"relative error {error:.3g}, {subject.precision} may have {limit:g}"}
    clocks: dict[str, Callable[[], float]] = {"gpucomp": lambda: 1e3 * program.time_replays(1)[0]}
    notes: dict[str, Any] = {}
    if (plan := one_by_one(executable.plan)) is not None and not subject.compiled:
        alone = device.open(plan, executable.sources, executable.binaries, executable.weights)
        if any(y.tobytes() != outputs[name].tobytes() for name, y in answers(alone, feeds, context).items()):
            return {**result, "ok": False, "fault": "launches that overlap give other bits than one by one"}
        clocks["one by one"] = lambda: 1e3 * alone.time_replays(1)[0]
    for name, make in RIVALS.items():
        if (name == "torch_compiled") != subject.compiled:
            continue
        clock, note = make(context, subject, model, feeds, wanted)
        notes[name] = note
        if clock is not None:
            clocks[name] = clock
    before = device.clocks()
    samples = in_turn(clocks, 2 if context.options.dry_run else ROUNDS, REPLAYS)
    return {
        **result,
        "median_ms": {name: statistics.median(found) for name, found in samples.items()},
        **{f"{name}_samples_ms": found for name, found in samples.items()},
        "rivals": notes,
        "clocks": [before, device.clocks()],
    }


def answers(program: Any, feeds: Mapping[str, np.ndarray], context: Any) -> dict[str, np.ndarray]:
    """The outputs of the last of several runs; from the second run on, a captured graph is replayed."""
    for _ in range(1 if context.options.dry_run else checks.RUNS):
        outputs: dict[str, np.ndarray] = program.run(feeds)
    return outputs


def one_by_one(plan: Plan) -> Plan | None:
    """``plan`` with launches that do not overlap; ``None`` if none of its launches do.

    The kernels and results are the same, so the comparison shows the gain of overlapping, and whether it is correct.
    """
    if not any(k.programmatic for k in plan.kernels):
        return None
    return replace(plan, kernels=tuple(replace(k, programmatic=False) for k in plan.kernels))


def in_turn(clocks: Mapping[str, Callable[[], float]], rounds: int, replays: int) -> dict[str, list[float]]:
    """Milliseconds of each: a few runs of one, a few of the other, and again, so that all have the same clocks."""
    samples: dict[str, list[float]] = {name: [] for name in clocks}
    for _ in range(rounds):
        for name, clock in clocks.items():
            clock()  # the cache has another program's data before this
            samples[name] += [round(clock(), 5) for _ in range(replays)]
    return samples


def reference(
    context: Any, subject: Subject, model: Any, feeds: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], str]:
    from bench.gpu import torch_models

    names = [value.name for value in model.graph.output]
    torch = measure.torch_here()
    if torch is not None and subject.model in torch_models.MODELS:
        w = torch_models.Weights(model, torch, torch.float64, measure.torch_device(torch, context))
        with torch.no_grad():
            found = torch_models.MODELS[subject.model](w)(*torch_models.arguments(model, feeds, w))
        return {name: y.cpu().numpy() for name, y in zip(names, found, strict=True)}, "torch f64"
    import gpucomp

    return dict(gpucomp.compile(model, target="cpu").run(feeds)), "gpucomp on the CPU"


Rival = tuple[Callable[[], float] | None, Any]


def by_torch(
    context: Any, subject: Subject, model: Any, feeds: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]
) -> Rival:
    """torch eager and compiled: a captured graph, and its relative error."""
    from bench.gpu import torch_models, torch_timing

    torch = measure.torch_here()
    if torch is None:
        return None, "not installed"
    where = measure.torch_device(torch, context)
    if where == "cpu" and not context.options.dry_run:
        return None, "it has no GPU"
    if subject.model not in torch_models.MODELS:
        return None, "there is no such model in bench/gpu/torch_models.py"
    narrow = {"fp16": torch.float16, "mixed": torch.float16, "bf16": torch.bfloat16}
    with torch_timing.rounding(torch, subject.precision == "tf32"):
        w = torch_models.Weights(model, torch, narrow.get(subject.precision, torch.float32), where)
        run, given = torch_models.MODELS[subject.model](w), torch_models.arguments(model, feeds, w)
        if subject.compiled:
            # the graph is captured here, as for torch without the compiler
            run = torch.compile(run, mode="max-autotune-no-cudagraphs")
        with torch.no_grad():
            found = [y.float().cpu().numpy() for y in run(*given)]
        clock = torch_timing.by_the_host if where == "cpu" else torch_timing.captured
        replay = clock(torch, lambda: run(*given))
    return replay, {"error": max(map(checks.relative_error, found, wanted.values()))}


def by_onnxruntime(
    context: Any, subject: Subject, model: Any, feeds: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]
) -> Rival:
    """onnxruntime's provider with bound buffers, and graphs for CUDA; timed by the host, which includes a call's overhead.

    In an onnxruntime for ROCm the device's memory is ``cuda`` too.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        return None, "not installed"
    import onnxruntime

    provider, settings = devices.KINDS[context.options.target].provider
    if provider not in onnxruntime.get_available_providers() or context.options.dry_run:
        return None, f"it has no {provider or 'provider for OpenCL'}"
    if subject.precision not in ("fp32", "tf32"):
        return None, "the model is f32"
    import time

    how = dict(settings)
    if context.options.target == "cuda":
        how["use_tf32"] = str(int(subject.precision == "tf32"))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=[(provider, how)])
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
    for value in session.get_outputs():
        shape = [int(d) for d in value.shape]
        binding.bind_ortvalue_output(
            value.name, onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, np.float32, "cuda", 0)
        )

    def run() -> float:
        begin = time.perf_counter()
        session.run_with_iobinding(binding)
        return 1e3 * (time.perf_counter() - begin)

    for _ in range(3):
        run()
    found = binding.copy_outputs_to_cpu()
    return run, {"error": max(map(checks.relative_error, found, wanted.values())), "clock": "host"}


def by_tensorrt(
    context: Any, subject: Subject, model: Any, feeds: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]
) -> Rival:
    """Only reports whether TensorRT is installed; it is not measured yet."""
    there = importlib.util.find_spec("tensorrt") is not None
    return None, "installed, and not measured by this kit" if there else "not installed"


RIVALS: Mapping[str, Callable[..., Rival]] = {
    "torch": by_torch,
    "torch_compiled": by_torch,
    "onnxruntime": by_onnxruntime,
    "tensorrt": by_tensorrt,
}


def summary(entries: Sequence[Mapping[str, Any]], arch: str) -> str:
    from bench.gpu.report import models_table

    return models_table(entries)
