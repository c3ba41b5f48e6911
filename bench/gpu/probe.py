"""The device itself: its properties, its clocks, and the limits and latencies that everything else is compared with."""

from __future__ import annotations

import importlib.util
import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu import checks, devices, loops, measure
from bench.gpu.candidates import Candidate, default, rendered
from bench.gpu.loops import Loop
from bench.gpu.work import Job
from gpucomp.device.device import CUDA
from gpucomp.device.target import Target
from gpucomp.errors import GpucompError
from gpucomp.ir.types import F16, F32
from gpucomp.kernel import Kernel
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.tuning.checks import run_checked
from gpucomp.tuning.setups import setup

NAME = "probe"
REPLAYS = 10
MIB = 1 << 20
SHAPES = ((49, 512, 4608), (196, 256, 2304), (784, 128, 1152), (3136, 64, 576))  # 3x3 layers of ResNet-50
L2_COPIES = {"copy-l2-8": 8 * MIB, "copy-l2-25": 25 * MIB}
LOADED_REPLAYS = 60  # of the arithmetic; the clocks after these are those under load


@dataclass(frozen=True)
class Square:
    """A large product by torch's library: the speed that matrix units reach."""

    size: int
    dtype: str


@dataclass(frozen=True, eq=False)
class Split:
    kernel: Kernel
    shape: tuple[int, int, int]
    dtype: str


def jobs(context: Any) -> list[Job]:
    dry, target = context.options.dry_run, context.target
    if dry:
        target = target.with_limits(units=1)
    found = [Job(NAME, "device", "device")]
    found += [Job(NAME, name, make(target), limit_s=90) for name, make in _loops(target, dry)]
    if devices.KINDS[context.options.target].torch:
        dtypes = ("fp32",) if dry else ("fp32", "tf32", "fp16", "bf16")
        found += [Job(NAME, f"torch-matmul-{d}", Square(32 if dry else 8192, d), limit_s=120) for d in dtypes]
    found += [Job(NAME, f"split-{'x'.join(map(str, s.shape))}-{s.dtype}", s, limit_s=120) for s in _splits(dry)]
    return found


def _loops(target: Target, dry: bool) -> Iterator[tuple[str, Callable[[Target], Loop]]]:
    """Names and constructors: a loop that the device does not support is not constructed."""
    many = (lambda full, small: small) if dry else (lambda full, small: full)
    yield "copy-dram", partial(loops.copy, nbytes=many(512 * MIB, 8192))
    # reads and writes so many bytes again and again. A cache of two partitions, as Hopper's of 50 MB, keeps data twice that
    # both partitions read: 25 + 25 do not fit completely, 8 + 8 do
    for name, nbytes in L2_COPIES.items():
        yield name, partial(loops.copy, nbytes=many(nbytes, 4096), launches=many(20, 2))
    yield "fma", partial(loops.fma, steps=many(4000, 2) if target.kind == "opencl" else many(40000, 2))
    yield "empty", partial(loops.nothing, launches=many(200, 2))
    if target.kind == "opencl":
        return
    for operands in loops.operands(target)[: 2 if dry else None]:
        yield f"mma-{operands}", partial(loops.mma, operands=operands, steps=many(20000, 2))
    if "pdl" in target.features:
        yield "empty-overlapping", partial(loops.nothing, launches=many(200, 2), programmatic=True)
    yield "grid-barrier", partial(loops.barrier, groups=target.limits.units, rounds=many(200, 2))


def _splits(dry: bool) -> Iterator[Split]:
    from testing.kernels import matmul

    for shape in ((9, 16, 40),) if dry else SHAPES:
        for name, dtype in (("f32", F32),) if dry else (("f32", F32), ("f16", F16)):
            yield Split(matmul(*shape, dtype=dtype), shape, name)


def prepare(context: Any, job: Job) -> dict[str, Any]:
    target, subject = context.target, job.subject
    if isinstance(subject, Loop):
        devices.build(loops.source_of(subject, target), target, context.harness_folder)
    if isinstance(subject, Split):
        found = list(split_candidates(subject.kernel, target))[: 2 if context.options.dry_run else None]
        for candidate in found:
            devices.build(rendered(subject.kernel, candidate, target, "k0")[0], target, context.harness_folder)
        return {"candidates": [{"engine": c.family.title, "schedule": c.schedule} for c in found]}
    return {}


def split_candidates(kernel: Kernel, target: Target) -> Iterator[Candidate]:
    """Each engine's default schedule with its depth split into one, two, three ... parts."""
    for family in engines_of(kernel, target.features):
        splits = next((p.choices for p in family.params if p.name == "splits"), ())
        first, problem = default(kernel, family, target.limits), family.problem(kernel)
        for number in splits:
            schedule = {**first.schedule, "splits": number}
            if not family.reasons(schedule, problem, target.limits):
                yield Candidate(family, schedule)


def perform(context: Any, device: Any, job: Job, prepared: dict[str, Any]) -> dict[str, Any]:
    match job.subject:
        case "device":
            facts = device.facts() | measure.torch_facts(context)
            return {"ok": True, **facts, "at_rest": device.clocks(), "missing": missing()}
        case Loop() as loop:
            return timed_loop(context, device, loop, job.name)
        case Square(size=size, dtype=dtype):
            return square(context, size, dtype)
        case split:
            return split_times(context, device, split, prepared["candidates"])


def missing() -> list[str]:
    """The packages that are not installed and would add measurements."""
    optional = ("torch", "triton", "pynvml", "onnxruntime", "tensorrt")
    return [name for name in optional if importlib.util.find_spec(name) is None]


def timed_loop(context: Any, device: Any, loop: Loop, name: str) -> dict[str, Any]:
    source = loops.source_of(loop, device.target)
    plan, sources, inputs = loops.plan_of(loop, device.target)
    binaries = devices.build(source, device.target, context.harness_folder)
    program = device.open(plan, sources, binaries, {})
    for _ in range(1 if context.options.dry_run else measure.RUNS):
        out = program.run(inputs)["out"]
    right = np.array_equal(out, inputs["x"]) if name.startswith("copy") else not loop.counters or not out.any()
    replays = 2 if context.options.dry_run else LOADED_REPLAYS if name in ("fma", "mma-f16") else REPLAYS
    seconds = program.time_replays(replays)
    clocks = device.clocks()
    work = loop.per_launch * loop.launches
    figures = [1e6 * s / work if loop.unit == "us" else work / s for s in seconds]
    best = min(figures) if loop.unit == "us" else max(figures)
    return {
        "ok": bool(right),
        "median": statistics.median(figures),
        "best": best,
        "unit": loop.unit,
        "samples": figures,
        "clocks": clocks,
    }


def square(context: Any, size: int, dtype: str) -> dict[str, Any]:
    torch = measure.torch_here()
    if torch is None:
        return {"ok": True, "left_out": "torch is not installed"}
    from bench.gpu import torch_timing

    where = measure.torch_device(torch, context)
    if where == "cpu" and not context.options.dry_run:
        return {"ok": True, "left_out": "torch has no GPU"}
    kind = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(dtype, torch.float32)
    a, b = (torch.randn(size, size, device=where, dtype=kind) for _ in range(2))
    clock = torch_timing.by_the_host if where == "cpu" else torch_timing.captured
    with torch_timing.rounding(torch, dtype == "tf32"):
        replay = clock(torch, lambda: torch.matmul(a, b))
        milliseconds = [replay() for _ in range(REPLAYS)]
    figures = [2e-9 * size**3 / ms for ms in milliseconds]
    return {
        "ok": True,
        "median": statistics.median(figures),
        "best": max(figures),
        "unit": "TFLOP/s",
        "samples": figures,
    }


def split_times(context: Any, device: Any, split: Split, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Microseconds for each engine and number of splits, of a product that is checked against numpy's float64."""
    rng = np.random.default_rng(5)
    types = split.kernel.params[: split.kernel.inputs]
    inputs = [rng.standard_normal(t.shape, np.float32).astype(t.dtype.numpy) for t in types]
    a, b, bias = (x.astype(np.float64) for x in inputs)
    relu = np.maximum(a @ b + bias, 0)
    wanted, precision = (relu, 2 * relu), "fp32" if split.dtype == "f32" else "fp16"
    times: dict[str, dict[str, float]] = {}
    faults = []
    for plain in found:
        candidate = measure.candidate_of({**plain, "estimate_us": None})
        name, number = candidate.family.title, str(candidate.schedule["splits"])
        try:
            source, packed = rendered(split.kernel, candidate, device.target, "k0")
            made = setup(
                split.kernel, candidate.family, source, packed, inputs, device.target, launches=device.least_launches
            )
            program = device.open(
                made.plan, made.sources, devices.build(source, device.target, context.harness_folder), made.weights
            )
            outputs, fault = run_checked(program, made, 1 if context.options.dry_run else measure.RUNS)
        except GpucompError as error:
            faults.append(f"{candidate.title}: {error}")
            continue
        error = max(checks.relative_error(x, w) for x, w in zip(outputs, wanted, strict=True))
        if fault or not error <= checks.LIMITS[precision]:
            faults.append(f"{candidate.title}: {fault or f'relative error {error:.3g}'}")
            continue
        times.setdefault(name, {})[number] = statistics.median(measure.timed(program, made))
    return {"ok": not faults, "us_by_splits": times, **({"faults": faults} if faults else {})}


def figures(entries: Sequence[Mapping[str, Any]], arch: str) -> dict[str, Any]:
    """The measured fields of ``gpucomp.device.device.Device``.

    ``matrix`` is the speed of torch's library, or of ``mma.sync`` if that is faster; ``by_warp_share`` is the share that
    ``mma.sync`` reaches.
    """
    found = _ended(entries)
    facts, listed = found.get("device", {}), devices.listed(arch)
    mhz = found.get("fma", {}).get("clocks", {}).get("sm_mhz") or facts.get("clock_mhz")
    units, ghz = facts.get("units"), mhz / 1e3 if mhz else listed.ghz if listed else None

    def per_unit(name: str) -> int | None:
        value = _median(found, name)
        return round(value * 1e12 / 2 / (units * ghz * 1e9)) if value and units and ghz else None

    by_warp = {o: per_unit(f"mma-{o}") or 0 for o in ("f16", "bf16", "f32", "tf32", "s8")}
    library = {"f16": "fp16", "bf16": "bf16", "tf32": "tf32"} | ({"f32": "fp32"} if by_warp["f32"] else {})
    matrix = {o: max(rate, per_unit(f"torch-matmul-{library.get(o)}") or 0) for o, rate in by_warp.items()}
    dram, l2, empty = (_median(found, name) for name in ("copy-dram", "copy-l2-8", "empty"))
    launch = _median(found, "empty-overlapping") or empty  # kernels are launched like this if they can overlap
    waits = max(0.0, empty - launch) if empty and launch else None
    pairs = {
        "units": units,
        "ghz": ghz and round(ghz, 3),
        "dram_gbs": dram and round(dram),
        "l2_gbs": l2 and round(l2),
        "l2_bytes": facts.get("l2_bytes"),
        "launch_us": launch and round(launch, 2),
        "waits_us": waits and round(waits, 2),
        "fma": per_unit("fma"),
        "matrix": {operand: rate for operand, rate in matrix.items() if rate},
        # AMD's matrix cores have no other instructions than a wave's
        "by_warp_share": round(by_warp["f16"] / matrix["f16"], 3) if by_warp["f16"] and arch in CUDA else None,
    }
    return {name: value for name, value in pairs.items() if value}


def _ended(entries: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {entry["name"]: entry for entry in entries if entry["stage"] == NAME and entry["ok"]}


def _median(found: Mapping[str, Mapping[str, Any]], name: str) -> float | None:
    return found.get(name, {}).get("median")


def constants(entries: Sequence[Mapping[str, Any]], arch: str) -> str:
    """The measured figures in the form of the device's line in ``gpucomp/device/device.py``."""
    found, listed, lines = _ended(entries), devices.listed(arch), []
    for name, value in figures(entries, arch).items():
        before = getattr(listed, name, None) if listed else None
        lines.append(f"    {name}={value}" + (f"  # the table says {before}" if before is not None else ""))
    for name, what, unit in (
        *((name, f"copies of {nbytes // MIB} MB to {nbytes // MIB} MB", "GB/s") for name, nbytes in L2_COPIES.items()),
        ("grid-barrier", "a barrier of the whole grid", "us"),
        ("empty", "a node that does not overlap", "us"),
    ):
        if (value := _median(found, name)) is not None:
            lines.append(f"    # {what}: {round(value, 2)} {unit}")
    return f"Device {found.get('device', {}).get('gpu', '?')} ({arch}), as measured:\n" + "\n".join(lines)


def save(entries: Sequence[Mapping[str, Any]], arch: str, folder: Path) -> None:
    """Write ``devices.json`` in ``folder``: the figures for the analytic model, read through ``GPUCOMP_DEVICES``."""
    text = json.dumps({arch: figures(entries, arch)}, indent=1)
    (folder / "devices.json").write_text(text + "\n", encoding="utf-8")


def summary(entries: Sequence[Mapping[str, Any]], arch: str) -> str:
    return constants(entries, arch)
