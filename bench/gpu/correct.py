"""Every engine on awkward shapes against numpy's float64: outputs poisoned, bands around buffers, runs repeated.

Kernels come from the cases of the tests, also with constant weights, so that engines may pack them, and with the
arithmetic that tf32 and 3xtf32 allow. Each engine that accepts one computes it, by its default schedule and by some
drawn from all over its space. Where compute-sanitizer is installed, it watches some of them.
"""

from __future__ import annotations

import importlib.util
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from bench.gpu import checks, devices
from bench.gpu.candidates import Candidate, rendered, spread
from bench.gpu.work import Job
from gpucomp.codegen.families import FAMILIES, engines_of
from gpucomp.errors import UnsupportedError
from gpucomp.ir.types import F32
from gpucomp.kernel import Blocks, Contraction, Kernel
from gpucomp.schedule.space import Family
from gpucomp.targets import opencl
from gpucomp.targets.target import Target
from gpucomp.tuning.checks import run_checked
from gpucomp.tuning.setups import poisoned, setup

NAME = "correct"
DRAWN = 3  # schedules besides the default
LARGEST = 1 << 22  # elements that numpy multiplies for one kernel
DRY = ("loops-add_relu", "contraction-conv_stem", "contraction-f16", "rowwise-softmax", "pool-3x3")
TOOLS = ("memcheck", "racecheck", "synccheck")
WATCHED = 8  # kernels that each tool of compute-sanitizer watches
PLACES = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")


@dataclass(frozen=True, eq=False)
class Case:
    """``number`` 0 is the engine's default schedule, the others are drawn."""

    kernel: Kernel
    family: Family
    number: int


@dataclass(frozen=True)
class Watch:
    tool: str
    path: str
    names: tuple[str, ...]


def cases() -> dict[str, Kernel]:
    """The kernels of the tests that have something to compute: ``family-name``."""
    import template_cases

    found = dict(template_cases.CASES)
    for path in sorted((devices.TESTS / "kernels_templates").glob("test_*.py")):
        for name, kernel in _listed(path).items():
            found.setdefault(f"{path.stem.removeprefix('test_')}-{name}", kernel)
    live = {n: k for n, k in found.items() if not template_cases.is_empty(k) and checks.cost(k) <= LARGEST}
    live |= {n: k for name, kernel in live.items() for n, k in _variants(name, kernel)}
    distinct: dict[str, str] = {}
    for name, kernel in live.items():
        distinct.setdefault(kernel.digest, name)
    return {name: live[name] for name in distinct.values()}


def _listed(path: Path) -> dict[str, Kernel]:
    """Kernels in the tables of a test module; none where what it imports is not installed.

    A module that asks for an OpenCL device is told of one that does not exist: a driver that was opened here would hang
    in the processes that are forked from this one.
    """
    spec = importlib.util.spec_from_file_location(f"cases_of_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        with mock.patch.multiple(opencl, devices=lambda: (), device_of=lambda target: mock.Mock()):
            spec.loader.exec_module(module)
    except ImportError as error:
        print(f"no cases of {path.name}: {error}", file=sys.stderr)
        return {}
    found: dict[str, Kernel] = {}
    for table, value in vars(module).items():
        if not table.isupper() or not isinstance(value, dict):
            continue
        for name, entry in value.items():
            parts = entry if isinstance(entry, tuple) else (entry,)
            kernel = next((part for part in parts if isinstance(part, Kernel)), None)
            if kernel is not None:
                found.setdefault(f"{table.lower()}-{name}".replace(" ", "_"), kernel)
    return found


def engines_on(kernel: Kernel, target: Target) -> tuple[Family, ...]:
    """The engines that can compute ``kernel`` on ``target``; none for what only OpenCL targets are given."""
    if isinstance(kernel.body, Blocks) and target.kind == "cuda":
        return ()
    return engines_of(kernel, target.features)


def _variants(name: str, kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """A contraction with constant weights, and with the arithmetic of each precision."""
    body = kernel.body
    if not isinstance(body, Contraction):
        return
    if not kernel.constants and kernel.inputs > 1:
        yield f"{name}-constant", replace(kernel, constants=frozenset({1}))
    if body.acc.dtype is F32 and body.math == "strict" and all(t.dtype is F32 for t in kernel.params):
        for math_ in ("tf32", "3xtf32"):
            yield f"{name}-{math_}", replace(kernel, body=replace(body, math=math_))


def jobs(context: Any) -> list[Job]:
    found = cases()
    if context.options.dry_run:
        found = {name: found[name] for name in DRY}
    count = 1 if context.options.dry_run else 1 + DRAWN
    # the default schedules first: they are what a model gets
    work = [
        Job(NAME, f"{name}-{family.title.replace('/', '.')}-{number}", Case(kernel, family, number))
        for number in range(count)
        for name, kernel in found.items()
        for family in engines_on(kernel, context.target)
    ]
    return [*work, *_watches(context, work)]


def _watches(context: Any, work: list[Job]) -> list[Job]:
    path = next((p for p in map(shutil.which, PLACES) if p), None)
    if path is None or context.options.dry_run or context.options.target != "cuda":
        return []
    each: dict[str, list[str]] = {title: [] for title in FAMILIES}
    for job in work:
        each[job.subject.family.title].append(job.name)
    spread_out = [names[n] for n in range(WATCHED) for names in each.values() if n < len(names)]
    names = tuple(spread_out[: max(WATCHED, len(each))])
    return [Job(NAME, f"sanitizer-{tool}", Watch(tool, path, names), limit_s=240.0) for tool in TOOLS]


def prepare(context: Any, job: Job) -> dict[str, Any]:
    if not isinstance(job.subject, Case):
        return {}
    case = job.subject
    found = spread(case.kernel, case.family, context.target, case.number, seed=7)
    if len(found) <= case.number:
        return {"left_out": "no more schedules were found"}
    try:
        source, _ = rendered(case.kernel, found[case.number], context.target, "k0")
    except UnsupportedError as error:
        return {"left_out": str(error)}
    devices.build(source, context.target, context.harness_folder)
    return {"schedule": found[case.number].schedule}


def perform(context: Any, device: Any, job: Job, prepared: dict[str, Any]) -> dict[str, Any]:
    if isinstance(job.subject, Watch):
        return watched(context, job.subject)
    if "left_out" in prepared:
        return {"ok": True, **prepared}
    return checked(context, device, job.subject.kernel, Candidate(job.subject.family, prepared["schedule"]))


def checked(context: Any, device: Any, kernel: Kernel, candidate: Candidate) -> dict[str, Any]:
    """Run a kernel on random inputs; compare with the evaluator of the tests, where one math allows with its bound."""
    from kernel_oracle import update
    from kernels import random_inputs
    from tolerance import assert_matches

    source, packed = rendered(kernel, candidate, device.target, "k0")
    inputs = [np.ascontiguousarray(a) for a in random_inputs(kernel, seed=23)]
    wanted = poisoned(kernel)
    update(kernel, inputs, wanted)
    made = setup(kernel, candidate.family, source, packed, inputs, device.target)
    binaries = devices.build(source, device.target, context.harness_folder)
    program = device.open(made.plan, made.sources, binaries, made.weights)
    outputs, fault = run_checked(program, made, runs=1 if context.options.dry_run else checks.RUNS)
    result = {"engine": candidate.family.title, "schedule": candidate.schedule}
    errors = [checks.relative_error(a, w) for a, w in zip(outputs, wanted, strict=True) if w.dtype.kind not in "iub"]
    finite = [e for e in errors if math.isfinite(e)]
    if finite:
        result["error"] = max(finite)
    rounds = getattr(kernel.body, "math", "strict") == "tf32"
    try:
        for actual, right in zip(outputs, wanted, strict=True):
            if not rounds:
                assert_matches(actual, right, terms=checks.terms_of(kernel))
            elif (error := checks.relative_error(actual, right)) > checks.LIMITS["tf32"]:
                fault = fault or f"relative error {error:.3g}, tf32 may have {checks.LIMITS['tf32']:g}"
    except AssertionError as error:
        fault = fault or str(error)[:500]
    return {**result, "ok": not fault, **({"fault": fault} if fault else {})}


def watched(context: Any, watch: Watch) -> dict[str, Any]:
    """The named cases again, in a process that a tool of compute-sanitizer watches."""
    folder = tempfile.mkdtemp(prefix="gpucomp-")
    command = [watch.path, "--tool", watch.tool, "--error-exitcode", "86", sys.executable, "-m", "bench.gpu", NAME,
               "--inline", "--again", "--out", folder, *(f"--only={n}" for n in watch.names)]  # fmt: skip
    root = Path(__file__).parents[2]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root, timeout=230)
    except subprocess.TimeoutExpired:
        return {"ok": False, "error": f"{watch.tool} took more than 230 s"}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    said = (done.stdout + done.stderr)[-4000:]
    if "not supported" in said and "Device" in said:
        return {"ok": True, "left_out": "compute-sanitizer refuses this device"}
    summary = [line for line in said.splitlines() if "=========" in line][-3:]
    return {"ok": done.returncode == 0, "kernels": list(watch.names), "said": summary if done.returncode == 0 else said}
