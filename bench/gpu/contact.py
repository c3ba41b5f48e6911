"""Prerequisites of everything else that no device has shown yet; each is tested by itself, in seconds.

Whether NVRTC or clang compiles here, and for which driver; whether the driver encodes tensor maps, and which; whether a kernel
gets 48 KiB of dynamic shared memory in addition to static; whether two launches, which overlap if they can, are correct in a
captured graph.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.gpu import devices, loops
from bench.gpu.loops import Loop
from bench.gpu.work import Job
from gpucomp.artifact.plan import TEMP, Buffer, Launch, Plan
from gpucomp.artifact.tensor_map import TensorMap

NAME = "contact"
SHARED_BYTES = 48 << 10  # limit of a function without opting in, minus its static shared memory
RUNS = 4  # launched, captured, replayed twice, each with other numbers
STEPS = 4000  # of the generator, some tens of microseconds: a launch that does not wait would end earlier
MAPS = {
    "tiled": TensorMap(0, "f16", (256, 512), (512,), box=(64, 128), swizzle=128),
    "im2col": TensorMap(
        0,
        "f16",
        (64, 28, 28, 2),
        (128, 128 * 28, 128 * 28 * 28),
        swizzle=128,
        channels=64,
        pixels=128,
        lower=(-1, -1),
        upper=(-1, -1),
    ),  # a window of 3 x 3 with one pixel of zeros around the image
    # rows of a window that moves by less than its width; no engine needs it, and cuda.h does not say whether it works
    "overlapping": TensorMap(0, "f16", (256, 2000), (128,), box=(64, 64), swizzle=128),
}
OPEN = ("overlapping",)


@dataclass(frozen=True)
class Question:
    """A plan that runs on random words, other ones in each run, and the expected result."""

    loop: Loop
    answer: Callable[[np.ndarray], np.ndarray]


def jobs(context: Any) -> list[Job]:
    target, dry = context.target, context.options.dry_run
    if devices.KINDS[target.kind].build is None:
        return []
    steps, groups = (10, 2) if dry else (STEPS, target.limits.units)
    found = [Job(NAME, "compiler", "compiler")]
    if "tma" in target.features:
        found += [Job(NAME, f"map-{name}", spec) for name, spec in MAPS.items()]
    found.append(Job(NAME, "shared-memory", Question(loops.shared(target, SHARED_BYTES), _backwards)))
    pair = Question(loops.chain(target, groups, steps), lambda x: _generated(x, 2 * steps))
    return [*found, Job(NAME, "pair-of-launches", pair)]


def _backwards(x: np.ndarray) -> np.ndarray:
    return x[::-1] + np.resize(x[: loops.FEW], x.shape)


def _generated(x: np.ndarray, steps: int) -> np.ndarray:
    for _ in range(steps):
        x = x * np.uint32(1664525) + np.uint32(1013904223)
    return x


def prepare(context: Any, job: Job) -> dict[str, Any]:
    loop = job.subject.loop if isinstance(job.subject, Question) else loops.nothing(context.target, 1)
    devices.build(loops.source_of(loop, context.target), context.target, context.harness_folder)
    return {}


def perform(context: Any, device: Any, job: Job, prepared: dict[str, Any]) -> dict[str, Any]:
    match job.subject:
        case TensorMap() as spec:
            refused = device.refused(spec)
            return {"ok": not refused or job.name.removeprefix("map-") in OPEN, "refused": refused}
        case Question() as question:
            return asked(context, device, question)
    facts = device.facts()
    version = devices.KINDS[device.target.kind].version
    assert version is not None
    return {"ok": True, "compiler": facts["compiler"], "driver": version(facts["driver"])}


def asked(context: Any, device: Any, question: Question) -> dict[str, Any]:
    """Run with other numbers each time, so that the output of an earlier run cannot pass."""
    loop = question.loop
    plan, sources, _ = loops.plan_of(loop, device.target)
    if loop.launches > 1:
        plan = in_a_row(plan)
    binaries = devices.build(loops.source_of(loop, device.target), device.target, context.harness_folder)
    program = device.open(plan, sources, binaries, {})
    rng = np.random.default_rng(19)
    for number in range(RUNS):
        x = rng.integers(0, 1 << 32, loop.nbytes // 4, np.uint32)
        differing = int(np.count_nonzero(program.run({"x": x})["out"] != question.answer(x)))
        if differing:
            return {"ok": False, "fault": f"run {number}: {differing} of {x.size} words are wrong"}
    result: dict[str, Any] = {"ok": True, "us": 1e6 * min(program.time_replays(RUNS))}
    if loop.programmatic:
        result["alone_us"] = 1e6 * min(program.time_replays(RUNS, overlap=False))
    return result


def in_a_row(plan: Plan) -> Plan:
    """The plan's launches as a chain: each reads the output of the one before, with buffers between them."""
    ends, (x, y) = len(plan.buffers), plan.launches[0].args
    between = [
        Buffer(
            TEMP,
            f"t{n}",
            plan.buffers[y].dtype,
            plan.buffers[y].shape,
            plan.buffers[y].nbytes,
            n * plan.buffers[y].nbytes,
        )
        for n in range(len(plan.launches) - 1)
    ]
    places = [x, *range(ends, ends + len(between)), y]
    launches = [Launch(0, pair, f"k0_{n}") for n, pair in enumerate(itertools.pairwise(places))]
    arena_bytes = sum(b.nbytes for b in between)
    return replace(plan, buffers=(*plan.buffers, *between), launches=tuple(launches), arena_bytes=arena_bytes)


def summary(entries: Sequence[Mapping[str, Any]], arch: str) -> str:
    """The results in sentences."""
    found = {e["name"]: e for e in entries if e["stage"] == NAME}
    said = []
    if (e := found.get("compiler", {})).get("ok"):
        said.append(f"{e['compiler']} compiles; the driver runs {e['driver']}.")
    for name in MAPS:
        if (e := found.get(f"map-{name}")) is not None:
            why = e.get("refused") or e.get("error")
            said.append(f"Tensor map, {name}: {f'refused, {why}' if why else 'encoded'}.")
    for name, what in (
        ("shared-memory", f"A launch with {SHARED_BYTES} bytes of dynamic shared memory and {4 * loops.FEW} static"),
        ("pair-of-launches", "A captured pair of launches"),
    ):
        if (e := found.get(name)) is not None:
            times = f" ({e['us']:.1f} us)" if "us" in e else ""
            times = f" ({e['us']:.1f} us, without overlap {e['alone_us']:.1f} us)" if "alone_us" in e else times
            said.append(f"{what}: {'right' + times if e['ok'] else e.get('fault') or e.get('error')}.")
    return "\n".join(said)
