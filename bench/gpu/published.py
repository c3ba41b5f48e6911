"""The layers of ResNet-50 as MIOpen publishes them, beside what our kernels are predicted to take: a peer that needs no device.

Its find-db has times of gfx906 and gfx908. The file is given by ``--find-db``; without one the stage says what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.gpu.work import Job
from bench.measured import layers
from gpucomp.kernel_bench.formats import load

NAME = "published"
LEFT_OUT = "no file is given: --find-db FILE"


def jobs(context: Any) -> list[Job]:
    return [Job(NAME, layers.MODEL, layers.MODEL, limit_s=300)] if context.target.kind == "hip" else []


def prepare(context: Any, job: Job) -> dict[str, Any]:
    """The whole comparison. The compiling processes do it, because it only predicts."""
    from bench.models import build

    place = context.options.find_db
    if place is None:
        return {"left_out": LEFT_OUT}
    if not place.is_file():
        return {"left_out": f"no file {place}"}
    found = layers.layers_of(build(job.subject))
    rows = layers.published(load(place), found, layers.BATCH)
    if not rows:
        return {"left_out": f"{place} has no layer of {job.subject}"}
    times = layers.predictions(rows, 1)
    return {"layers": len(rows), "table": layers.lines(found, rows, times, layers.BATCH)}


def perform(context: Any, device: Any, job: Job, prepared: dict[str, Any]) -> dict[str, Any]:
    return {"ok": True, **prepared}


def summary(entries: Sequence[Mapping[str, Any]], arch: str) -> str:
    found = [e for e in entries if e["stage"] == NAME and e["ok"]]
    return "\n".join(
        line for e in found for line in e.get("table", [f"MIOpen's find-db is left out: {e.get('left_out')}."])
    )
