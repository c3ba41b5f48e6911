"""Measures schedules of one kernel on the device: each is checked before it is timed; all samples are recorded."""

from __future__ import annotations

import importlib.util
import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu import checks, devices
from bench.gpu.candidates import Candidate, rendered, shortlist
from bench.gpu.problems import Problem
from bench.gpu.results import append
from bench.gpu.translated import Translated, UntranslatedError
from gpucomp.device.target import Target
from gpucomp.errors import DeviceLostError, GpucompError
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.schedule.engine_hash import engine_hash
from gpucomp.schedule.model import terms
from gpucomp.tuning.checks import run_checked
from gpucomp.tuning.setups import Setup, setup

RUNS = 2  # before timing: launched, then captured, which timing needs; each copies the whole arena both ways
REPLAYS = 30
FINALISTS = 3
MOST_SETS, MOST_BYTES = 256, 4 << 30  # of buffers that rotate so that data is not in the cache
SMALL, ORACLE = 1 << 16, 1 << 24  # points: up to SMALL the oracle is preferred to torch; above ORACLE it is not used
RECORDS = "records.jsonl"
CUBLAS_MATH = {"tf32": True}  # precisions at which torch may round f32 to tf32


def prepare(target: Target, problem: Problem, count: int, folder: Path | None) -> dict[str, Any]:
    """The schedules worth measuring; their binaries are put into the cache."""
    candidates = []
    for candidate in shortlist(problem.kernel, target, count):
        try:
            source, _ = rendered(problem.kernel, candidate, target, "k0")
            devices.build(source, target, folder)
        except GpucompError as error:
            candidates.append({**plain_of(candidate), "refused": str(error)[:500]})
            continue
        candidates.append(plain_of(candidate))
    return {"candidates": candidates}


def plain_of(candidate: Candidate) -> dict[str, Any]:
    estimate = None if math.isnan(candidate.estimate_us) else candidate.estimate_us
    return {"engine": candidate.family.title, "schedule": candidate.schedule, "estimate_us": estimate}


def candidate_of(plain: dict[str, Any]) -> Candidate:
    estimate = plain["estimate_us"]
    return Candidate(FAMILIES[plain["engine"]], plain["schedule"], math.nan if estimate is None else estimate)


def torch_here() -> Any:
    """The module, or ``None``."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch


def torch_device(torch: Any, context: Any) -> str:
    """``cuda`` if this torch has such GPUs as are measured, except in a dry run."""
    made_for = devices.KINDS[context.options.target].torch
    fits = bool(made_for) and getattr(torch.version, made_for, None) is not None and torch.cuda.is_available()
    return "cuda" if fits and not context.options.dry_run else "cpu"


def torch_facts(context: Any) -> dict[str, Any]:
    """The versions of torch and of its library for convolutions; empty if torch has no such GPUs."""
    torch = torch_here()
    if torch is None or torch_device(torch, context) == "cpu":
        return {}
    convolver = devices.KINDS[context.options.target].convolver
    return {"torch": str(torch.__version__), convolver: torch.backends.cudnn.version()}


def reference(context: Any, problem: Problem, inputs: Sequence[np.ndarray]) -> tuple[list[np.ndarray], str]:
    """The outputs in float64, and whether torch or the oracle in numpy computed them.

    Raises ``ValueError`` if neither can; such a kernel is not timed.
    """
    from gpucomp.kernel.interpreter import expected

    work = checks.cost(problem.kernel)
    if work <= SMALL:
        return expected(problem.kernel, inputs), "evaluator"
    torch, why = torch_here(), "torch is not installed"
    if torch is not None:
        try:
            function = Translated(problem.step, inputs, torch, torch.float64, torch_device(torch, context))
            with torch.no_grad():
                return [y.cpu().numpy() for y in function(*function.arguments)], "torch f64"
        except UntranslatedError as error:
            why = str(error)
    if work > ORACLE:
        raise ValueError(f"nothing to compare with: {why}, and it is too large for the oracle")
    return expected(problem.kernel, inputs), "evaluator"


def measured(
    context: Any,
    device: Any,
    problem: Problem,
    candidates: Sequence[dict[str, Any]],
    inputs: Sequence[np.ndarray],
    wanted: Sequence[np.ndarray],
    seconds: float,
    tuner: str,
) -> list[dict[str, Any]]:
    """A record for each candidate within the time; ``us`` is the median of a launch with data in the cache."""
    begin, found = time.perf_counter(), []
    facts = device.facts()
    for plain in candidates:
        if found and time.perf_counter() - begin > seconds:
            break
        record = {
            **plain,
            "problem": problem.name,
            "kernel": problem.kernel.digest,
            "tuner": tuner,
            "seed": 0,
            "flags": list(devices.KINDS[device.target.kind].flags),
        }
        if "refused" in plain:
            record |= {"invalidity": "build", "fault": record.pop("refused")}
        else:
            record |= one(context, device, problem, candidate_of(plain), inputs, wanted)
        record |= {"clocks": device.clocks(), "time": time.time()}
        append(context.options.out / RECORDS, {**record, "device": facts})
        found.append(record)
    return found


def one(
    context: Any,
    device: Any,
    problem: Problem,
    candidate: Candidate,
    inputs: Sequence[np.ndarray],
    wanted: Sequence[np.ndarray],
    *,
    sets: int = 1,
) -> dict[str, Any]:
    """Check and time one schedule. ``invalidity`` says why there is no time: ``build``, ``run`` or ``wrong``."""
    target, folder = device.target, context.harness_folder
    try:
        source, packed = rendered(problem.kernel, candidate, target, "k0")
        binaries = devices.build(source, target, folder)
    except GpucompError as error:
        return {"invalidity": "build", "fault": str(error)[:500]}
    hashes = {"source": source.digest, "template": engine_hash(candidate.family)}
    made = setup(
        problem.kernel,
        candidate.family,
        source,
        packed,
        inputs,
        target,
        constants=problem.kernel.constants,
        sets=sets,
        launches=max(sets, device.least_launches),
    )
    try:
        program = device.open(made.plan, made.sources, binaries, made.weights)
        outputs, fault = run_checked(program, made, runs=1 if context.options.dry_run else RUNS)
    except DeviceLostError:
        raise
    except GpucompError as error:
        return {**hashes, "invalidity": "run", "fault": str(error)[:500]}
    error = max((checks.error_of(a, w) for a, w in zip(outputs, wanted, strict=True)), default=0.0)
    limit = checks.LIMITS[problem.precision]
    if not fault and not error <= limit:
        fault = f"relative error {error:.3g}, {problem.precision} may have {limit:g}"
    if fault:
        return {**hashes, "invalidity": "wrong", "fault": fault, "error": error if math.isfinite(error) else None}
    samples = timed(program, made)
    found = {**hashes, "error": error, "us": statistics.median(samples), "samples_us": samples, "sets": sets}
    if source.programmatic:  # its launches overlap: the times above are those of one of many, these of one alone
        alone = timed(program, made, overlap=False)
        found |= {"alone_us": statistics.median(alone), "alone_samples_us": alone}
    return found


def timed(program: Any, made: Setup, *, overlap: bool = True) -> list[float]:
    """Microseconds of a launch, for each replay of all launches."""
    return [round(1e6 * s / len(made.plan.launches), 4) for s in program.time_replays(REPLAYS, overlap=overlap)]


def cold_sets(device: Any, problem: Problem, small: bool) -> int:
    """The number of buffer sets that together are twice the cache, so that no data of a set is left when it is used again."""
    nbytes = max(1, sum(t.nbytes for t in problem.kernel.params))
    most = 2 if small else min(MOST_SETS, max(2, MOST_BYTES // nbytes))
    return max(2, min(most, -(-2 * device.cache_bytes // nbytes)))


def static_terms(candidate: Candidate, problem: Problem, target: Target) -> dict[str, Any]:
    """The analytic model's terms of a schedule, with the registers from the compiler; empty if that is in the driver."""
    used_by = devices.KINDS[target.kind].used
    if used_by is None or target.device is None:
        return {}
    source, packed = rendered(problem.kernel, candidate, target, "k0")
    kernel = packed.kernel if packed else problem.kernel
    try:
        found = used_by(source, target)
    except GpucompError as error:
        return {"static_fault": str(error)[:200]}
    family = candidate.family
    s, p = family.schedule(candidate.schedule), family.problem(kernel)
    work_of = family.work_with(target.device.shuffles)
    work = work_of(s, p) if work_of is not None else None
    shared = found.shared_bytes + source.geometry.dynamic_shared_bytes
    t = terms(kernel, target.device, source.geometry, registers=found.registers, shared_bytes=shared, work=work)
    return {
        "static_us": t.total_us,
        "limiter": t.limiter,
        "registers": found.registers,
        "spill_bytes": found.spill_bytes,
        "occupancy": t.occupancy,
    }


def torch_times(context: Any, problem: Problem, inputs: Sequence[np.ndarray], sets: int) -> dict[str, Any]:
    """Microseconds of torch for the same nodes at the same precision, warm and cold, by replayed graphs."""
    torch = torch_here()
    if torch is None:
        return {"torch": "not installed"}
    from bench.gpu import torch_timing

    device = torch_device(torch, context)
    if device == "cpu" and not context.options.dry_run:
        return {"torch": "it has no GPU"}
    narrow = {"fp16": torch.float16, "mixed": torch.float16, "bf16": torch.bfloat16}
    dtype = narrow.get(problem.precision, torch.float32)
    try:
        with torch_timing.rounding(torch, CUBLAS_MATH.get(problem.precision, False)):
            functions = [Translated(problem.step, inputs, torch, dtype, device) for _ in range(sets)]
            products = devices.KINDS[context.options.target].products if problem.kernel.family == "contraction" else ()
            return torch_timing.fastest(
                torch,
                products if device == "cuda" else (),
                lambda: torch_timing.function_times(
                    torch, functions, REPLAYS, context.options.torch_compile, fake=context.options.dry_run
                ),
            )
    except UntranslatedError as error:
        return {"torch": str(error)}
