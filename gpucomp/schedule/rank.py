"""Ranks a kernel's schedules by the analytic model. Nothing is compiled or measured here."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gpucomp.device.device import Device
from gpucomp.device.limits import Limits, register_share
from gpucomp.device.lockstep import array, lockstep
from gpucomp.errors import ScheduleError
from gpucomp.kernel import Kernel
from gpucomp.kernel.sizes import Sizes
from gpucomp.lazy_dataclass import dataclass
from gpucomp.schedule import points
from gpucomp.schedule.analytic import Demand, demand
from gpucomp.schedule.model import Launch, Terms, predict
from gpucomp.schedule.space import MOST_REGISTERS, Family, Schedule, Work

PRESSURE = 240  # registers, by an engine's formula, above which ptxas may spill
KINDS = ("math", "by_warp", "in_cluster", "least_share")  # fields of ``Work`` that all schedules of an engine share
NUMBERS = tuple(f.name for f in dataclasses.fields(Work) if f.name not in KINDS)
Kinds = tuple[Any, ...]
Problems = Sequence[tuple[Family, Sizes]]  # the engines that accept a kernel, each with its problem


@dataclass(frozen=True)
class Ranked:
    """A schedule of an engine, the model's prediction, and the registers that it needs by the engine's formula."""

    family: Family
    schedule: Schedule
    terms: Terms
    registers: int

    @property
    def us(self) -> float:
        return float(self.terms.total_us)

    @property
    def engine(self) -> str:
        return self.family.title


@dataclass(frozen=True)
class Facts:
    """The model's inputs for many schedules: ``numbers`` by name, [schedules] each, and ``kinds``, which all share.

    ``known`` is False for schedules that cannot run. Their numbers have no meaning.
    """

    numbers: Mapping[str, np.ndarray]
    kinds: Kinds
    known: np.ndarray

    def launch(self) -> Launch:
        numbers: dict[str, Any] = {name: self.numbers[name] for name in NUMBERS}
        work = Work(**numbers, **dict(zip(KINDS, self.kinds, strict=True)))
        keeps = self.numbers["keeps"]
        wanted = np.where(work.registers > 0, work.registers, keeps)
        taken = np.minimum(MOST_REGISTERS, wanted)
        # a compiler takes no more than a work-group can have, if what has to be kept fits
        most = register_share(self.numbers["threads"])
        taken = np.where(keeps <= most, np.minimum(taken, most), taken)
        # what it does not take for want of room, it need not keep in scalar registers either
        work = dataclasses.replace(work, uniform=np.maximum(0, work.uniform - (wanted - taken)))
        return Launch(self.numbers["groups"], self.numbers["threads"], taken, work)

    def at(self, rows: np.ndarray) -> Facts:
        return Facts({name: column[rows] for name, column in self.numbers.items()}, self.kinds, self.known[rows])


@dataclass(frozen=True)
class Ranking:
    """The ranked schedules of an engine: ``values`` int64 [schedules, parameters], ``us`` and ``registers``
    [schedules].

    These are the schedules that can run and need at most ``PRESSURE`` registers, in the order of the space. If the
    space is too large for the model, only the engine's ``focus`` is ranked.
    """

    family: Family
    problem: Sizes
    limits: Limits
    values: np.ndarray
    registers: np.ndarray
    terms: Terms

    def __len__(self) -> int:
        return len(self.values)

    @property
    def us(self) -> np.ndarray:
        return np.asarray(self.terms.total_us)

    def best(self) -> Iterator[Ranked]:
        """The schedules after ``Family.settle``, the fastest first, without duplicates."""
        seen = set()
        names = [q.name for q in self.family.params]
        for row in np.argsort(self.us, kind="stable").tolist():
            schedule: Schedule = dict(zip(names, self.values[row].tolist(), strict=True))
            if self.family.settle is not None:
                schedule = dict(self.family.settle(self.family.schedule(schedule), self.problem).numbers)
            key = tuple(schedule.values())
            if key not in seen and not self.family.reasons(schedule, self.problem, self.limits):
                seen.add(key)
                yield Ranked(self.family, schedule, self.terms.row(row), int(self.registers[row]))


def can_rank(family: Family) -> bool:
    """Whether the engine describes its work, so that the model can rank its schedules."""
    return family.work is not None and family.registers is not None


def problems(kernel: Kernel, families: Sequence[Family]) -> Problems:
    return [(family, family.problem(kernel)) for family in families]


def best(kernel: Kernel, engines: Problems, limits: Limits, device: Device) -> list[Ranked]:
    """The fastest schedule of each engine that the model can rank, the fastest engine first.

    An engine is left out if its arithmetic alone takes longer than another engine's whole kernel.
    """
    return improved(kernel, defaults(kernel, engines, limits, device), engines, limits, device)


def improved(
    kernel: Kernel, starts: Sequence[Ranked], engines: Problems, limits: Limits, device: Device
) -> list[Ranked]:
    """Like ``best``, for given defaults of the engines."""
    sizes, wanted = dict(engines), demand(kernel, device)
    found: list[Ranked] = []
    for start in sorted(starts, key=lambda r: r.us):
        if found and _least_us(start.family, sizes[start.family], device, wanted) >= min(r.us for r in found):
            continue
        first = next(ranking(start.family, sizes[start.family], limits, device, wanted).best(), None)
        keeps = first is None or (start.us <= first.us and start.registers <= PRESSURE)
        found.append(start if keeps or first is None else first)
    return sorted(found, key=lambda r: r.us)


def defaults(kernel: Kernel, engines: Problems, limits: Limits, device: Device) -> list[Ranked]:
    """The default of each engine that the model can rank, in the order of the engines, if it is legal.

    An engine is left out if its arithmetic alone takes longer than an earlier engine's default.
    """
    wanted, found = demand(kernel, device), list[Ranked]()
    for family, problem in engines:
        if not can_rank(family):
            continue
        if found and _least_us(family, problem, device, wanted) >= min(r.us for r in found):
            continue
        schedule = family.default(problem, limits).numbers
        if not family.reasons(schedule, problem, limits):
            found.append(predicted(family, problem, schedule, device, wanted))
    return found


def _least_us(family: Family, problem: Sizes, device: Device, wanted: Demand) -> float:
    """The time of a launch, and of the multiply-adds at the peak rate of the engine's arithmetic for the problem."""
    assert family.work is not None
    any_schedule = family.schedule({p.name: p.choices[0] for p in family.params})
    work = family.work(any_schedule, problem)
    return device.launch_us + work.least_share * wanted.flops / 2 / device.rate(work.math)


def predicted(family: Family, problem: Sizes, schedule: Schedule, device: Device, wanted: Demand) -> Ranked:
    """The prediction for one schedule."""
    values = np.array([[schedule[p.name] for p in family.params]], np.int64)
    facts = facts_of(family, problem, values, shuffles=device.shuffles)
    terms = predict(wanted, device, facts.launch())
    return Ranked(family, dict(schedule), terms.row(0), int(facts.numbers["keeps"][0]))


def leading(kernel: Kernel, family: Family, limits: Limits, device: Device, count: int) -> list[Schedule]:
    """The ``count`` fastest schedules of an engine by the model; empty if the model cannot rank the engine."""
    if not can_rank(family):
        return []
    found = ranking(family, family.problem(kernel), limits, device, demand(kernel, device))
    return [r.schedule for r in itertools.islice(found.best(), count)]


def expected_us(kernel: Kernel, family: Family, values: np.ndarray, device: Device) -> np.ndarray | None:
    """The predicted times, in microseconds, of the schedules ``values`` int64 [schedules, parameters] of an engine.

    NaN for schedules that the engine's formulas refuse or that need more than ``PRESSURE`` registers. ``None`` if the
    model cannot rank the engine.
    """
    if not can_rank(family):
        return None
    facts = facts_of(family, family.problem(kernel), values, shuffles=device.shuffles)
    us = predict(demand(kernel, device), device, facts.launch()).total_us
    return np.where(facts.known & (facts.numbers["keeps"] <= PRESSURE), us, np.nan)


@lru_cache(maxsize=128)  # entries of up to 2.5 MB
def ranking(family: Family, problem: Sizes, limits: Limits, device: Device, wanted: Demand) -> Ranking:
    """The schedules of one engine with the model's terms. Equal problems are ranked once."""
    values = points.grid(family, family.focus(problem, limits) if family.focus is not None else None)
    facts = facts_of(family, problem, values, limits, shuffles=device.shuffles)
    kept = np.flatnonzero(facts.known & (facts.numbers["keeps"] <= PRESSURE))
    facts = facts.at(kept)
    terms = predict(wanted, device, facts.launch())
    return Ranking(family, problem, limits, values[kept], facts.numbers["keeps"], terms)


def facts_of(
    family: Family, problem: Sizes, values: np.ndarray, limits: Limits | None = None, *, shuffles: bool = True
) -> Facts:
    """The facts of the schedules ``values`` int64 [schedules, parameters]; with ``limits``, only of legal ones."""
    count = len(values)
    work_of, registers_of = family.work_with(shuffles), family.registers
    assert work_of is not None
    assert registers_of is not None

    def facts(point: Mapping[str, Any]) -> tuple[dict[str, Any], Kinds] | None:
        s = family.schedule(point)
        if limits is not None and next(iter(family.objections(s, problem, limits)), None) is not None:
            return None
        try:
            geometry, work = family.geometry(s, problem), work_of(s, problem)
        except ScheduleError:
            return None  # a legal schedule that the engine's formulas refuse
        numbers = {
            "groups": geometry.groups[0] * geometry.groups[1] * geometry.groups[2],
            "threads": geometry.items[0] * geometry.items[1] * geometry.items[2],
            "keeps": registers_of(s, problem),
        }
        return numbers | {name: getattr(work, name) for name in NUMBERS}, tuple(getattr(work, k) for k in KINDS)

    columns = {name: np.ones(count) for name in ("groups", "threads", "keeps", *NUMBERS)}
    kinds, known = set[Kinds](), np.zeros(count, bool)
    for rows, found in lockstep(facts, points.columns(family, values)):
        if found is not None:
            known[rows] = True
            kinds.add(found[1])
            for name, number in found[0].items():
                columns[name][rows] = array(number, len(rows))
    (shared,) = kinds or {tuple(getattr(Work(0, 0), name) for name in KINDS)}
    return Facts(columns, shared, known)
