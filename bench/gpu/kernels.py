"""Each distinct layer of the models: the best of many schedules, beside torch, with data in the cache and not."""

from __future__ import annotations

import statistics
from typing import Any

from bench.gpu import measure
from bench.gpu.clblast import clblast_times
from bench.gpu.problems import MODELS, problems, supported
from bench.gpu.work import Job

NAME = "kernels"
REPLAYS = 20  # of CLBlast's product
DRY_MODELS, DRY_PRECISIONS, DRY_PROBLEMS = ("mobilenet_v2",), ("fp32", "fp16"), 2


def jobs(context: Any) -> list[Job]:
    return [Job(NAME, p.name, p, limit_s=60 + 4 * context.options.kernel_s) for p in chosen(context)]


def chosen(context: Any) -> list[Any]:
    """The problems that the options select; only a few in a dry run."""
    from bench.models import build

    options = context.options
    models = options.models or (DRY_MODELS if options.dry_run else MODELS)
    precisions = options.precisions or (DRY_PRECISIONS if options.dry_run else ())
    found = problems(
        models, supported(precisions, context.target), context.target, lambda n: build(n, reduced=context.small)
    )
    return found[-DRY_PROBLEMS:] if options.dry_run else found


def prepare(context: Any, job: Job) -> dict[str, Any]:
    count = 1 if context.options.dry_run else context.options.top
    return measure.prepare(context.target, job.subject, count, context.harness_folder)


def perform(context: Any, device: Any, job: Job, prepared: dict[str, Any]) -> dict[str, Any]:
    problem, options = job.subject, context.options
    inputs = problem.inputs()
    wanted, by = measure.reference(context, problem, inputs)
    found = measure.measured(
        context, device, problem, prepared["candidates"], inputs, wanted, options.kernel_s, tuner=NAME
    )
    wrong = [r for r in found if r.get("invalidity") == "wrong"]
    summary = {
        "precision": problem.precision,
        "label": problem.kernel.label,
        "family": problem.kernel.family,
        "launches": problem.launches,
        "reference": by,
        "floor_us": problem.floor_us(device.target),
        "tried": len(found),
        "wrong": [{k: r.get(k) for k in ("engine", "schedule", "fault")} for r in wrong],
        "refused": [r["fault"] for r in found if r.get("invalidity") in ("build", "run")],
    }
    valid = sorted((r for r in found if "us" in r), key=lambda r: r["us"])
    if not valid:
        return {"ok": False, "error": "no schedule gave the right answer", **summary}
    sets = measure.cold_sets(device, problem, options.dry_run)
    finalists = []
    for record in valid[: 1 if options.dry_run else measure.FINALISTS]:
        cold = measure.one(context, device, problem, measure.candidate_of(record), inputs, wanted, sets=sets)
        if "us" in cold:
            finalists.append((record["us"] + cold["us"], record, cold))
    if not finalists:
        return {"ok": False, "error": "right with one set of buffers, but wrong with several", **summary}
    _, best, cold = min(finalists, key=lambda f: f[0])
    first = prepared["candidates"][0]
    default = next((r["us"] for r in valid if all(r[k] == first[k] for k in ("engine", "schedule"))), None)
    return {
        "ok": not wrong,
        **summary,
        "engine": best["engine"],
        "schedule": best["schedule"],
        "error": best["error"],
        "warm_us": best["us"],
        "warm_samples_us": best["samples_us"],
        "cold_us": cold["us"],
        "cold_samples_us": cold["samples_us"],
        **{
            f"{state}_{name}": found[name]
            for state, found in (("warm", best), ("cold", cold))
            for name in ("alone_us", "alone_samples_us")
            if name in found
        },
        "default_us": default,
        "estimate_us": best["estimate_us"],
        "median_us": statistics.median(r["us"] for r in valid),
        **measure.static_terms(measure.candidate_of(best), problem, device.target),
        **measure.torch_times(context, problem, inputs, sets),
        **(clblast_times(problem.kernel, device.target, REPLAYS) if device.target.kind == "opencl" else {}),
        "clocks": device.clocks(),
    }


def summary(entries: Any, arch: str) -> str:
    from bench.gpu.report import kernels_said

    return kernels_said(entries)
