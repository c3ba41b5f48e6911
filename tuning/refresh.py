"""Refreshes records of changed engines: they stay valid if the engine still writes the source that was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpucomp.errors import GpucompError
from gpucomp.schedule.engine_hash import engine_hash
from gpucomp.schedule.records import Record, source_hash
from gpucomp.tuning.tasks import NAME, Candidate, Task, rendered_hash


def refreshed(found: Iterable[Record], tasks: Sequence[Task]) -> tuple[list[Record], int]:
    """``found`` with today's engine hash in every trial and pick whose source is still rendered today; and their number.

    An equal source is proof on any processor, because the hash stands only for the source. Kernels that are not in
    ``tasks``, and schedules that are no longer legal, stay as they are.
    """
    by_kernel = {task.kernel.digest: task for task in tasks}
    made: list[Record] = []
    count = 0
    for record in found:
        task = by_kernel.get(record["kernel"]) if record["kind"] in ("trial", "pick") else None
        today = _hash_of(record, task) if task is not None else None
        changed = today is not None and today != record["template"]
        made.append({**record, "template": today} if changed else record)
        count += changed
    return made, count


def stale(found: Iterable[Record], hashes: Mapping[str, Mapping[str, str]]) -> int:
    """The number of trials and picks whose engine has changed, or is gone. ``hashes`` are today's, by kind of device."""
    return sum(
        record["kind"] in ("trial", "pick")
        and hashes.get(record["device"]["kind"], {}).get(record["engine"]) != record["template"]
        for record in found
    )


def _hash_of(record: Record, task: Task) -> str | None:
    """Today's hash of the record's engine if the engine still writes the measured source, else ``None``."""
    family = next((family for family in task.engines if family.title == record["engine"]), None)
    if family is None or family.reasons(record["configuration"], task.problem(family), task.target.limits):
        return None
    try:
        source, packed = task.rendered(Candidate(family, record["configuration"]))
    except GpucompError:
        return None  # the target lacks the arithmetic
    same = source_hash(source.text, NAME) == record["source"]
    return engine_hash(family) if same and record.get("rendered") in (None, rendered_hash(source, packed)) else None
