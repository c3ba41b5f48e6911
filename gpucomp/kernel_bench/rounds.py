"""Measures kernels: each engine's result is judged in f64 before it is timed, then the engines take turns."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path

import numpy as np

import gpucomp
from gpucomp.cli import copies
from gpucomp.cli.compare import ABSOLUTE, ROUNDINGS, TOLERANCE, UNITS, Tolerance, distance
from gpucomp.device.target import Target
from gpucomp.kernel_bench import engines
from gpucomp.kernel_bench.clocks import State, reader
from gpucomp.kernel_bench.models import model
from gpucomp.kernel_bench.problem import Called, Flush, Problem, Ready
from gpucomp.kernel_bench.reference import in_f64, operands
from gpucomp.kernel_bench.specs import Spec, in_whole_numbers, nbytes, operations, spec_of
from gpucomp.lazy_dataclass import dataclass
from gpucomp.refusal import Refusal
from gpucomp.runtime.ceilings import Ceilings, together

MOST_REST_S = 1.0  # between two engines, while threads of the one before spin on the cores that the next is measured on
LOOK_S, QUIET = 0.005, 0.05  # how often to look, and the part of a core that is no spinning thread
WARMUPS = 3  # calls of each turn that do not count
LEAST_CALLS = 3  # of a turn
CONFIDENCE = 0.95
LEAST_FLUSHED = 1 << 25  # bytes


@dataclass(frozen=True)
class Settings:
    """``seconds`` are those of one engine for one kernel, in so many ``rounds``; ``cold`` empties caches before each call.
    ``on_processor``: the target's device is this machine's processor.
    """

    target: Target
    against: Sequence[str]
    threads: int
    seconds: float
    rounds: int
    cold: bool
    on_processor: bool = True
    records: Path | None = None


@dataclass
class Row:
    """One engine on one kernel.

    failure   why it was not timed
    error     relative L2 error against f64
    turns_s   the median call of each of its turns, in seconds
    """

    engine: str
    release: str
    failure: str = ""
    error: float | None = None
    turns_s: list[float] = field(default_factory=list)

    @property
    def median_s(self) -> float | None:
        return statistics.median(self.turns_s) if self.turns_s and not self.failure else None

    @property
    def interval_s(self) -> tuple[float, float] | None:
        return interval(self.turns_s) if self.turns_s and not self.failure else None


@dataclass(frozen=True)
class Measured:
    """One kernel by all engines; ``ceilings`` are those of this machine if they are known, ``clocks`` of each round."""

    spec: Spec
    rows: Sequence[Row]
    ceilings: Ceilings | None = None
    clocks: Sequence[State] = ()

    @property
    def ours(self) -> Row:
        return self.rows[0]

    def floor_s(self) -> float | None:
        """The least seconds by measured peaks, of f32 multiply-adds and of a copy of as many bytes."""
        if self.ceilings is None or self.spec.dtype != "f32":
            return None
        moved = nbytes(self.spec)
        return max((operations(self.spec) or 0) / self.ceilings.flops, moved / self.ceilings.bandwidth(moved))

    def ratio(self, row: Row) -> tuple[float, float, float] | None:
        """An engine's time over ours, turn by turn: the ends of the median's interval, and the median between them."""
        if row.median_s is None or self.ours.median_s is None:
            return None
        found = [theirs / mine for theirs, mine in zip(row.turns_s, self.ours.turns_s, strict=True)]
        low, high = interval(found)
        return low, statistics.median(found), high


def interval(samples: Sequence[float]) -> tuple[float, float]:
    """An interval that has the median with ``CONFIDENCE`` at least: from order statistics, without any assumption on the
    distribution. Fewer than six samples have none: then all of them.

    Source: H. A. David, Order Statistics, section 2.5.
    """
    ordered, count = sorted(samples), len(samples)
    outside, first = 0.0, 0  # the chance that the median is below sample number ``first`` or above its opposite
    while first < count // 2:
        outside += 2 * math.comb(count, first) / 2.0**count
        if outside > 1 - CONFIDENCE:
            break
        first += 1
    first = max(first - 1, 0)
    return ordered[first], ordered[count - 1 - first]


def tolerance(spec: Spec) -> Tolerance:
    """How far a result may be from f64's: bytes by a step, whole numbers not at all, others by their type's roundings."""
    if spec.dtype == "i8":
        return Tolerance(0.0, 0.0) if in_whole_numbers(spec) else Tolerance(0.0, 1.0)
    unit = UNITS.get({"f16": "fp16"}.get(spec.dtype, spec.dtype), 0.0)
    return Tolerance(max(TOLERANCE, ROUNDINGS * unit), ABSOLUTE)


def measure(specs: Sequence[Spec], settings: Settings) -> list[Measured]:
    """Measure kernels, and before and after them what this machine can do at most."""
    found: list[Measured] = []
    probe: Callable[[], Ceilings | None] | None = None
    before: Ceilings | None = None
    ask = reader(settings.target)
    for spec in specs:
        rows, ready, clocks = _measured(spec, settings, ask)
        found.append(Measured(spec, rows, clocks=clocks))
        if probe is None and isinstance(ours := ready.get(engines.OURS), Called):
            probe = ours.ceilings
            before = probe()
    after = probe() if probe is not None else None
    ceilings = together(before, after) if before is not None and after is not None else None
    return [replace(one, ceilings=ceilings) for one in found]


def rest() -> None:
    """Wait until the other threads of this process are idle. onnxruntime's take all of a core for some 0.1 s after a call."""
    end = time.monotonic() + MOST_REST_S
    while time.monotonic() < end:
        used, begin = time.process_time(), time.monotonic()
        time.sleep(LOOK_S)
        if time.process_time() - used < QUIET * (time.monotonic() - begin):
            return


def _measured(
    spec: Spec, settings: Settings, ask: Callable[[], State]
) -> tuple[list[Row], dict[str, Ready], list[State]]:
    """The rows of one kernel, what engines made of it, and the clocks after each round."""
    arrays = operands(spec)
    expected = in_f64(spec, arrays)
    proto = model(spec, arrays)
    problem = Problem(
        spec,
        arrays,
        proto.SerializeToString(),
        settings.target,
        settings.threads,
        settings.on_processor,
        settings.records,
    )
    rows: list[Row] = []
    ready: dict[str, Ready] = {}
    for name in (engines.OURS, *settings.against):
        row = Row(name, engines.release(name))
        rows.append(row)
        made = engines.prepared(name, problem)
        if isinstance(made, Refusal):
            row.failure = made.reason
            continue
        row.error, row.failure = judged(made, expected, tolerance(spec))
        if not row.failure:
            ready[name] = made
    return rows, ready, _take_turns(rows, ready, settings, ask)


def judged(ready: Ready, expected: np.ndarray, allowed: Tolerance) -> tuple[float, str]:
    """The error of a kernel's result, and what is wrong with it; empty if it is right."""
    far = distance(np.asarray(ready.output()), expected)
    return far.l2, "" if allowed.allows(far) else f"wrong: relative error {far.l2:.2e}, {allowed} allowed"


def _take_turns(
    rows: Sequence[Row], ready: dict[str, Ready], settings: Settings, ask: Callable[[], State]
) -> list[State]:
    """Each engine has a turn in each round; another one begins in each. Gives what ``ask`` says after each round."""
    flush = flusher(settings.target) if settings.cold else None
    running = [row for row in rows if row.engine in ready]
    turn_s = settings.seconds / settings.rounds
    counts = {row.engine: _calls(ready[row.engine], turn_s, flush) for row in running}
    states: list[State] = []
    for number in range(settings.rounds):
        for k in range(len(running)):
            row = running[(number + k) % len(running)]
            rest()
            found = ready[row.engine].seconds(WARMUPS + counts[row.engine], flush)
            row.turns_s.append(statistics.median(found[WARMUPS:]))
        states.append(ask())
    return states


def _calls(ready: Ready, turn_s: float, flush: Flush | None) -> int:
    """How many calls of a kernel fill a turn, with what empties the caches. Engines decide in their first calls how they run."""
    rest()
    begin = time.perf_counter()
    ready.seconds(WARMUPS, flush)
    each = (time.perf_counter() - begin) / WARMUPS
    return max(LEAST_CALLS, math.ceil(turn_s / max(each, 1e-6)))


def flusher(target: Target) -> Callable[[], object]:
    """A function that fills the device's last-level cache with something else."""
    from gpucomp.tuning.devices import open_device

    device = open_device(target)
    size = max(4 * device.cache_bytes, LEAST_FLUSHED)
    if device.noisy:
        here = np.zeros(size // 8, np.int64)
        return lambda: np.add(here, 1, out=here)
    if target.kind == "cuda":
        from gpucomp.runtime.cuda_driver import import_cupy

        there = import_cupy().zeros(size, np.uint8)
        return lambda: there.fill(0)
    spec = spec_of(f"elementwise:op=add,shape={size // 12}")  # three tensors of f32
    arrays = operands(spec)
    exe = gpucomp.compile(model(spec, arrays).SerializeToString(), target=target.name)
    given = copies.there(exe, arrays)
    results = exe.run(given, outputs="device")
    return partial(exe.run, given, outputs=results)
