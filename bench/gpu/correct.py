"""Every engine on awkward shapes against numpy's float64: outputs poisoned, bands around buffers, runs repeated.

The kernels are the cases of the tests, also with constant weights, so that engines can pack them, and with the arithmetic of
tf32 and 3xtf32. Each engine that accepts a kernel computes it, with its default schedule and with random ones from its whole
space. If compute-sanitizer is installed, it watches some of them.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu import checks, devices
from bench.gpu.candidates import Candidate, rendered, spread
from bench.gpu.cases import cases, engines_on
from bench.gpu.work import Job
from gpucomp.errors import UnsupportedError
from gpucomp.kernel import Kernel
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.schedule.space import Family
from gpucomp.tuning.checks import run_checked
from gpucomp.tuning.setups import poisoned, setup

NAME = "correct"
DRAWN = 3  # random schedules besides the default
DRY = (
    "loops-add_relu",
    "contraction-conv_stem",
    "contraction-f16",
    "rowwise-softmax",
    "pool-3x3",
    "gemv-cases-bf16",
    "attention_amd-cases-copies_of_4_bytes",
)
SHOWN = 8  # wrong results in a summary
TOOLS = ("memcheck", "racecheck", "synccheck")
WATCHED = 8  # kernels that each tool of compute-sanitizer watches
PLACES = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")


@dataclass(frozen=True, eq=False)
class Case:
    """``number`` 0 is the engine's default schedule; the others are random."""

    kernel: Kernel
    family: Family
    number: int


@dataclass(frozen=True)
class Watch:
    tool: str
    path: str
    names: tuple[str, ...]


def jobs(context: Any) -> list[Job]:
    found = cases()
    if context.options.dry_run:
        found = {name: found[name] for name in DRY}
    count = 1 if context.options.dry_run else 1 + DRAWN
    engines = [(name, kernel, engines_on(kernel, context.target)) for name, kernel in found.items()]
    # the default schedules first, because models use these
    work = [
        Job(NAME, f"{name}-{family.title.replace('/', '.')}-{number}", Case(kernel, family, number))
        for number in range(count)
        for name, kernel, families in engines
        for family in families
    ]
    return [*work, *_watches(context, work)]


def _watches(context: Any, work: list[Job]) -> list[Job]:
    path = next((p for p in map(shutil.which, PLACES) if p), None)
    if path is None or context.options.dry_run or not devices.KINDS[context.options.target].sanitizer:
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
    """Run a kernel on random inputs; compare with the oracle, within the bound of its math."""
    from gpucomp.kernel.interpreter import update
    from testing.kernels import random_inputs
    from testing.tolerance import assert_matches

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
    """Repeat the named cases in a process that a tool of compute-sanitizer watches."""
    folder = tempfile.mkdtemp(prefix="gpucomp-")
    command = [
        watch.path,
        "--tool",
        watch.tool,
        "--error-exitcode",
        "86",
        sys.executable,
        "-m",
        "bench.gpu",
        NAME,
        "--inline",
        "--again",
        "--out",
        folder,
        *(f"--only={n}" for n in watch.names),
    ]
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


def summary(entries: Sequence[Mapping[str, Any]], arch: str) -> str:
    """A line for each engine, then the wrong results."""
    found = [e for e in entries if e["stage"] == NAME]
    lines = []
    for title in dict.fromkeys(e["engine"] for e in found if "engine" in e):
        mine = [e for e in found if e.get("engine") == title]
        worst = max((e["error"] for e in mine if e["ok"] and "error" in e), default=0.0)
        lines.append(f"{title}: {sum(e['ok'] for e in mine)} of {len(mine)} right, relative error at most {worst:.1e}.")
    bad = [e for e in found if not e["ok"]]
    lines += [f"WRONG {e['name']}: {str(e.get('fault') or e.get('error') or e.get('said'))[:200]}" for e in bad[:SHOWN]]
    return "\n".join([*lines, *([f"... and {len(bad) - SHOWN} more"] if len(bad) > SHOWN else [])])
