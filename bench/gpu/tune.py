"""A simple search: the ranked schedules of each problem, then neighbours of the fastest.

Every measurement is a line of DIR/records.jsonl: device, clocks, problem, schedule, hashes of template and source, samples,
error, and the reason if there is no time. Nothing in it is measured twice.
"""

from __future__ import annotations

import time
from typing import Any

from bench.gpu import kernels, measure
from bench.gpu.candidates import Candidate, estimate_us, neighbours
from bench.gpu.results import lines
from bench.gpu.work import Job
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.schedule.engine_hash import engine_hash

NAME = "tune"
MORE = 3  # schedules, as a multiple of those in the stage ``kernels``
BEST = 2  # fastest schedules whose neighbours are tried


def jobs(context: Any) -> list[Job]:
    found = kernels.chosen(context)[: 1 if context.options.dry_run else None]
    return [Job(NAME, p.name, p, limit_s=120 + 6 * context.options.kernel_s) for p in found]


def prepare(context: Any, job: Job) -> dict[str, Any]:
    count = 1 if context.options.dry_run else MORE * context.options.top
    return measure.prepare(context.target, job.subject, count, context.harness_folder)


def perform(context: Any, device: Any, job: Job, prepared: dict[str, Any]) -> dict[str, Any]:
    problem, options = job.subject, context.options
    known = recorded(context, problem.kernel.digest, device.facts())
    fresh = [c for c in prepared["candidates"] if key(c) not in known]
    inputs = problem.inputs()
    wanted, _ = measure.reference(context, problem, inputs)
    begin = time.perf_counter()
    found = measure.measured(context, device, problem, fresh, inputs, wanted, 2 * options.kernel_s, tuner="ranked")
    everything = [*known.values(), *found]
    while (left := 4 * options.kernel_s - (time.perf_counter() - begin)) > 0 and not options.dry_run:
        near = around(problem, device.target, everything)
        if not near:
            break
        more = measure.measured(context, device, problem, near, inputs, wanted, left, tuner="neighbours")
        everything += more
        found += more
    valid = sorted((r for r in everything if "us" in r), key=lambda r: r["us"])
    if not valid:
        return {"ok": False, "error": "no schedule gave the right answer", "tried": len(found)}
    wrong = [r for r in everything if r.get("invalidity") == "wrong"]
    return {
        "ok": not wrong,
        "tried": len(found),
        "known": len(known),
        "wrong": len(wrong),
        "engine": valid[0]["engine"],
        "schedule": valid[0]["schedule"],
        "us": valid[0]["us"],
        "floor_us": problem.floor_us(device.target),
    }


def key(record: dict[str, Any]) -> tuple[Any, ...]:
    return record["engine"], *sorted(record["schedule"].items())


def recorded(context: Any, digest: str, facts: dict[str, Any]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The measurements of a kernel on this device with the present templates."""
    found = {}
    for record in lines(context.options.out / measure.RECORDS):
        same = record.get("kernel") == digest and record.get("device", {}).get("gpu") == facts["gpu"]
        family = FAMILIES.get(record.get("engine", ""))
        if same and family is not None and record.get("template") == engine_hash(family):
            found[key(record)] = record
    return found


def around(problem: Any, target: Any, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Legal schedules one step from the fastest that have not been measured."""
    seen = {key(r) for r in records}
    found = []
    for best in sorted((r for r in records if "us" in r), key=lambda r: r["us"])[:BEST]:
        family = FAMILIES[best["engine"]]
        sizes = family.problem(problem.kernel)
        for schedule in neighbours(family, best["schedule"]):
            if not family.reasons(schedule, sizes, target.limits):
                estimate = estimate_us(problem.kernel, family, schedule, sizes, target)
                plain = measure.plain_of(Candidate(family, schedule, estimate))
                if key(plain) not in seen:
                    seen.add(key(plain))
                    found.append(plain)
    return found
