"""A plan for the first 45 minutes on a device: prerequisites, correctness, the device's limits, speed.

Each part has a share of the time. Work that did not fit in its share is done at the end, in the same order, so a slow part takes
no time from the others. After a call that its time limit stops, another call continues.
"""

from __future__ import annotations

import importlib
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from bench.gpu.call import Call
from bench.gpu.context import Context
from bench.gpu.work import Job

NAME = "first"


@dataclass(frozen=True)
class Part:
    """Jobs of one stage: all of them, or ``correct``'s jobs of ``engines``, or of the engines that no part names.

    ``minutes`` is the part's share of the time; ``options`` replace values of the command line.
    """

    name: str
    stage: str
    minutes: float
    engines: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


FEW = {"precisions": ("fp16", "tf32"), "top": 6, "kernel_s": 3.0}
PLAN = (
    Part("contact", "contact", 1.0),
    Part("wgmma", "correct", 3.0, ("contraction/wgmma", "contraction/tcgen05")),
    Part("mma", "correct", 4.0, ("contraction/mma", "contraction/amd")),
    Part("attention", "correct", 2.0, tuple(f"attention/{e}" for e in ("wgmma", "tcgen05", "mma", "amd", "simt"))),
    Part("simt", "correct", 3.0, ("contraction/simt", "contraction/simt_pairs")),
    Part("other-engines", "correct", 4.0),
    Part("probe", "probe", 4.0),
    Part("kernels-of-resnet50", "kernels", 8.0, options={"models": ("resnet50",), **FEW}),
    Part("kernels-of-bert", "kernels", 6.0, options={"models": ("bert_base",), **FEW}),
    Part("published", "published", 2.0),
    Part("models", "models", 8.0, options={"models": (), "precisions": ()}),
)
NAMED = frozenset(engine for part in PLAN for engine in part.engines)


def run(call: Call) -> int:
    """Do all parts, at first within their shares; the number of jobs that are left when the time is over."""
    left: dict[str, int] = {}
    for shared in (True, False):
        for part in PLAN:
            ended = call.results.ended.get((NAME, part.name))
            if left.get(part.name) == 0:
                continue
            if ended or (ended is False and not call.context.options.again):
                call.wrong += not ended
                left[part.name] = 0
                continue
            now = time.monotonic()
            share = 60 * part.minutes - call.results.spent.get(part.name, 0.0)
            if shared and share <= 0:
                continue
            left[part.name] = _do(call, part, min(call.deadline, now + share) if shared else call.deadline)
            if left[part.name] and time.monotonic() > call.deadline:
                return sum(left.values())
    return sum(left.values())


def _do(call: Call, part: Part, deadline: float) -> int:
    """Do a part's jobs and print its summary; the number of jobs that are left."""
    begin, wrong = time.monotonic(), call.wrong
    stage = importlib.import_module(f"bench.gpu.{part.stage}")
    context = Context(replace(call.context.options, **part.options), call.context.described)
    jobs = of(part, stage.jobs(context))
    if not jobs:  # the device has nothing of the kind
        call.results.end(NAME, part.name, {"ok": True, "jobs": 0})
        return 0
    left = call.do(stage, context, jobs, deadline)
    call.results.spend(part.name, time.monotonic() - begin)
    if not left:
        # counted from the results, because an earlier call may have found some of the faults
        call.results.end(NAME, part.name, {"ok": call.wrong == wrong, "jobs": len(jobs)})
    names = {job.name for job in jobs}
    entries = [e for e in call.results.entries() if e["stage"] == part.stage and e["name"] in names]
    there = call.context.target
    print(
        f"\n== {part.name}: {len(jobs) - left} of {len(jobs)} done ==\n{stage.summary(entries, there.arch)}", flush=True
    )
    if (save := getattr(stage, "save", None)) is not None:
        save(entries, there.arch, call.context.options.out)
    return left


def of(part: Part, jobs: Sequence[Job]) -> list[Job]:
    """The part's jobs of a stage: engines in turn, spread over all cases, default schedules first."""
    if part.stage != "correct":
        return list(jobs)
    queues: dict[tuple[int, str], list[Job]] = {}
    for job in jobs:
        engine = getattr(getattr(job.subject, "family", None), "title", None)
        if engine is not None and (engine in part.engines if part.engines else engine not in NAMED):
            queues.setdefault((job.subject.number, engine), []).append(job)
    for queue in queues.values():
        random.Random(0).shuffle(queue)
    numbers = sorted({number for number, _ in queues})
    turns = [_in_turn(queue for (n, _), queue in queues.items() if n == number) for number in numbers]
    return [job for turn in turns for job in turn]


def _in_turn(queues: Iterable[list[Job]]) -> list[Job]:
    return [job for row in zip_longest(*queues) for job in row if job is not None]
