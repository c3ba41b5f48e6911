"""A kernel's candidates of all engines as one table, and the records of other kernels and devices for them."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from gpucomp.device.target import Target
from gpucomp.kernel import Kernel
from gpucomp.schedule import rank
from gpucomp.schedule.records import Record, distance, ratio_of
from gpucomp.schedule.space import Family
from gpucomp.schedule.uncertainty import SCHEDULES
from gpucomp.targets.back_end import engines_by_body
from gpucomp.tuning.prior import Prior
from gpucomp.tuning.records import current_hashes
from gpucomp.tuning.space import Candidates
from gpucomp.tuning.tasks import Candidate, Task

MOST = 6000  # points of an engine; a larger space is sampled down to this
EXPECTED = 6  # of an engine's points that are in the table whatever its size: the fastest ones by the analytic model
SOURCES = 4  # other kernels or devices whose records a search starts from
Key = tuple[str, tuple[tuple[str, int], ...]]
Source = list[tuple[dict[str, int], float | None]]  # schedules and ratios of one kernel and device; None: it failed


def candidates(kernel: Kernel, family: Family, target: Target, most: int = MOST, seed: int = 0) -> Candidates:
    """The points of an engine, and what the analytic model says of them if a ``Device`` describes the target."""
    device = target.device
    leading = rank.leading(kernel, family, target.limits, device, EXPECTED) if device is not None else ()

    def expect(values: np.ndarray) -> np.ndarray | None:
        return None if device is None else rank.expected_us(kernel, family, values, device)

    return Candidates.from_family(
        family,
        family.problem(kernel),
        target.limits,
        most=most,
        seed=seed,
        leading=leading,
        expect=expect,
        error=SCHEDULES,
    )


class Engines:
    """One table of all engines' ``Candidates``, one engine after the other. Engines without a legal point are left out.

    Spaces are enumerated when first needed, so a task that is never searched costs nothing.
    """

    def __init__(self, task: Task, seed: int = 0, most: int = MOST) -> None:
        self._task, self._seed, self._most = task, seed, most

    @cached_property
    def spaces(self) -> list[tuple[Family, Candidates]]:
        """The engines with at least one legal point, each with all of its points or a sample of them."""
        task = self._task
        made = [(f, candidates(task.kernel, f, task.target, self._most, self._seed)) for f in task.engines]
        return [(family, found) for family, found in made if len(found)]

    @cached_property
    def starts(self) -> list[int]:
        """The first row of each engine."""
        return [0, *itertools.accumulate(len(found) for _, found in self.spaces)][:-1]

    @property
    def defaults(self) -> list[int]:
        """The row of each engine's default, if the default is legal."""
        spaces = zip(self.starts, self.spaces, strict=True)
        return [start + found.default for start, (_, found) in spaces if found.default is not None]

    def prior(self, number: int, past: Mapping[str, Sequence[Source]]) -> Prior | None:
        """The prior for an engine's points, from the records ``past`` of other kernels and devices, see ``sources``."""
        family, found = self.spaces[number]
        return Prior.from_records(found, past[family.title]) if past.get(family.title) else None

    def __len__(self) -> int:
        return sum(len(found) for _, found in self.spaces)

    def place(self, row: int) -> tuple[int, int]:
        """The number of the engine, and the row among its candidates."""
        number = bisect.bisect_right(self.starts, row) - 1
        return number, row - self.starts[number]

    def candidate(self, row: int) -> Candidate:
        number, point = self.place(row)
        family, found = self.spaces[number]
        return Candidate(family, found.schedule(point))

    def row(self, key: Key) -> int | None:
        """The row of a candidate; ``None`` if it is not legal here or not in the sample."""
        for start, (family, found) in zip(self.starts, self.spaces, strict=True):
            if family.title == key[0] and (point := found.find(dict(key[1]))) is not None:
                return start + point
        return None


def sources(found: Sequence[Record], task: Task, device: Mapping[str, str]) -> dict[str, list[Source]]:
    """For each engine, the trials of the nearest problems on any device, as (schedule, ratio or ``None``)."""
    here = tuple(device[name] for name in ("kind", "arch", "name"))
    result: dict[str, list[Source]] = {}
    for family in task.engines:
        problem = task.problem(family)
        groups: dict[tuple[str, tuple[str, ...]], list[Record]] = {}
        for record in found:
            if record["kind"] != "trial" or record["engine"] != family.title or record["device"]["kind"] != here[0]:
                continue
            there = tuple(record["device"][name] for name in ("kind", "arch", "name"))
            if (record["kernel"], there) != (task.kernel.digest, here):
                groups.setdefault((record["kernel"], there), []).append(record)
        near = sorted(groups.values(), key=lambda trials: distance(problem.numbers, trials[0].get("problem", {})))
        result[family.title] = [
            [(t["configuration"], ratio_of(t) if t["invalidity"] == "correct" else None) for t in trials]
            for trials in near[:SOURCES]
        ]
    return result


def hashes() -> dict[str, dict[str, str]]:
    """The hash of every engine's template, by kind of device."""
    cpu, gpu = (
        current_hashes(family for engines in engines_by_body(language).values() for family in engines)
        for language in ("llvm", "c")
    )
    return {"cpu": cpu, "opencl": gpu, "cuda": gpu, "hip": gpu}
