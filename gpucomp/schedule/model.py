"""Predicts the time of a schedule by a formula, for one schedule or for thousands at once.

    launch + waves x (start + first bytes + steps x max(math, issue, shared, cache, latency) + end) + join + tail

DeepGEMM ranks its kernels by a similar formula. A wave is as many work-groups as the units hold at once. The last wave
may have fewer; its work-groups then share their units with fewer others. Constants of devices are in
``gpucomp.device.device``, those of the model are here. All are guesses until ``bench/gpu probe`` has measured a device.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from gpucomp.device.device import Device
from gpucomp.kernel import Kernel
from gpucomp.kernel.geometry import Geometry
from gpucomp.lazy_dataclass import dataclass
from gpucomp.schedule.analytic import Demand, Number, bytes_us, demand
from gpucomp.schedule.space import WARP, Work

FILLED = 0.6  # part of a scheduler's cycles in which a single warp issues an instruction
MAC_CYCLES = {"fma": 4, "dot2": 4, "dp4a": 4}  # of lanes: latency of an accumulation (PMC10448217, table 3)
MATRIX_CYCLES = 33  # the same on matrix cores: a 16 x 8 product of mma.sync on an A100
# multiply-adds of one instruction of a warp
MACS = {
    "fma": 32,
    "dot2": 64,
    "dp4a": 128,
    "f16": 2048,
    "bf16": 2048,
    "tf32": 1024,
    "3xtf32": 1024,
    "s8": 4096,
    "f32": 512,
}
# latencies before the last work-group adds: partial sums are stored, of which the end of a work-group has half, a fence waits for
# them, the group is counted, sums are read. Narrow products of an A100, an H100 and an L40S want 3.5 to 5, not 3 or less
MEETING = 3.5
CLUSTER_MEETING = 1.5  # the same in a cluster: two barriers and a remote read


@dataclass(frozen=True)
class Terms:
    """The parts of a kernel's time in microseconds. Each is a number, or an array over schedules.

    ``math_us`` to ``latency_us`` are the time of the loop if nothing else limited it: the longest one counts most.
    ``join_us`` is the time to add up partial sums of split-K, ``tail_us`` the time of row statistics, and ``memory_us``
    the time to move every byte once. ``early_us`` is what launch and start would take longer if no launch began before the one
    before it has ended.
    """

    flops: float
    bytes: float
    floor_us: float
    occupancy: Number  # resident work-items of a unit, divided by its maximum
    resident: Number  # work-groups per unit
    waves: Number
    math_us: Number
    issue_us: Number
    shared_us: Number
    cache_us: Number
    latency_us: Number
    loop_us: Number
    start_us: Number
    end_us: Number
    join_us: Number
    tail_us: Number
    memory_us: Number
    launch_us: Number
    early_us: Number = 0.0

    @property
    def total_us(self) -> Number:
        groups = self.start_us + self.loop_us + self.end_us + self.join_us + self.tail_us
        return self.launch_us + np.maximum(groups, self.memory_us)

    @property
    def limiter(self) -> str:
        """The name of the largest term. If that is the loop, the name of the term that limits the loop."""
        found = {name: getattr(self, f"{name}_us") for name in ("start", "end", "join", "tail", "memory", "launch")}
        inner = {name: getattr(self, f"{name}_us") for name in ("math", "issue", "shared", "cache", "latency")}
        largest = max(found, key=lambda name: found[name])
        return largest if found[largest] > self.loop_us else max(inner, key=lambda name: inner[name])

    def row(self, number: int) -> Terms:
        """The terms of one schedule."""
        return Terms(**{f.name: _at(getattr(self, f.name), number) for f in fields(self)})


def _at(value: Number, number: int) -> Any:
    return value[number].item() if isinstance(value, np.ndarray) else value


def resident_groups(device: Device, threads: Number, registers: Number, shared_bytes: Number) -> Number:
    """Work-groups that fit on a unit at once. Registers are allotted to whole waves, by eights for each work-item.

    Each SIMD of GCN and CDNA has registers of its own: a wave of more than half of them is alone there. A compiler saves
    registers for a work-group that has more waves than that.
    """
    waves = np.maximum(1, -(-threads // device.wave))
    each = device.wave * np.maximum(8, -(-registers // 8) * 8)
    by_registers = device.registers // (waves * each)
    if device.wave > WARP:
        apart = device.registers // device.schedulers // each * device.schedulers // waves
        by_registers = np.maximum(apart, np.minimum(1, by_registers))
    asked = shared_bytes + device.group_shared
    by_shared = np.where(np.asarray(asked) > 0, device.shared_bytes // np.maximum(1, asked), device.groups)
    by_threads = device.threads // (waves * device.wave)
    return np.maximum(0, np.minimum(np.minimum(device.groups, by_threads), np.minimum(by_registers, by_shared)))


@dataclass(frozen=True)
class Launch:
    """The launch of a schedule, or columns for many schedules.

    groups      work-groups
    threads     work-items per work-group
    registers   registers per work-item
    work        the work of one work-group
    """

    groups: Number
    threads: Number
    registers: Number
    work: Work


def predict(wanted: Demand, device: Device, launch: Launch) -> Terms:
    """The terms of ``launch`` for a kernel with the demand ``wanted``.

    If ``launch`` and its work have arrays over schedules, so do the terms.
    """
    w, groups = _in_whole_waves(device, launch), launch.groups
    warps = -(-launch.threads // device.wave)
    registers = launch.registers - (w.uniform if device.scalars else 0)
    resident = resident_groups(device, launch.threads, registers, w.shared_bytes)
    share = -(-groups // device.units)  # work-groups of the busiest unit
    at_once = device.units * np.maximum(1, resident)
    full, left = groups // at_once, groups % at_once  # whole waves, and the work-groups of the last one
    rest = -(-left // device.units)
    loop = partial(_loop, device, w, warps)
    waves = [
        full * of_full + of_rest for of_full, of_rest in zip(loop(resident, at_once), loop(rest, left), strict=True)
    ]
    rounds = full + (rest > 0)
    # while one of a unit's work-groups starts or ends, the others multiply; only in the first round do all start together
    together = np.maximum(1, np.minimum(resident, share))
    bare = 1 / together + (1 - 1 / together) / np.maximum(1, rounds)
    end = bare * (_store_cycles(device, w, groups, wanted.result_bytes) + rounds * device.latency_cycles / 2)
    overlaps = w.overlaps if device.waits_us else 0.0
    early = bare * np.minimum(1, rounds) * overlaps * w.early_cycles * np.greater(wanted.constant_bytes, 0)
    start = bare * rounds * (w.start_cycles + device.latency_cycles) - early
    us = 1e-3 / device.ghz * _slowdown(device, w.math, waves[0] / np.maximum(1e-9, waves[-1] + start + end))
    maths_us, issue_us, shared_us, cache_us, latency_us, loop_us = (cycles * us for cycles in waves)
    return Terms(
        flops=wanted.flops,
        bytes=wanted.bytes,
        floor_us=wanted.floor_us,
        occupancy=np.minimum(resident, share) * launch.threads / device.threads,
        resident=resident,
        waves=groups / at_once,
        math_us=maths_us,
        issue_us=issue_us,
        shared_us=shared_us,
        cache_us=cache_us,
        latency_us=latency_us,
        loop_us=np.where(resident > 0, loop_us, np.inf),
        start_us=start * us,
        end_us=end * us,
        join_us=_join_cycles(device, w, groups) * us,
        tail_us=_tail_cycles(device, w, groups, warps) * us,
        memory_us=_memory_us(device, wanted),
        launch_us=device.launch_us + device.waits_us * (1 - overlaps),
        early_us=device.waits_us * overlaps + early * us,
    )


def _in_whole_waves(device: Device, launch: Launch) -> Work:
    """The work with the lanes that idle in a partial wave of 64. Engines count those of a partial warp of 32, if any."""
    if device.wave == WARP:
        return launch.work
    warps = -(-launch.threads // WARP)
    filled = -(-launch.threads // device.wave) * device.wave / (warps * WARP)
    return replace(launch.work, macs=launch.work.macs * filled, instructions=launch.work.instructions * filled)


def _loop(device: Device, w: Work, warps: Number, n: Number, everywhere: Number) -> tuple[Number, ...]:
    """Cycles that the loops of ``n`` work-groups on a unit take: each term alone, then all terms together.

    ``everywhere`` is the number of work-groups that run at that time on all units. They share the cache.
    """
    peak, losses, lanes = _rates(device, w), device.losses, w.math in MAC_CYCLES
    each = n * warps / device.schedulers  # warps of a scheduler
    scheduled = np.minimum(1.0, each)
    fed = scheduled * np.minimum(1.0, n * warps * w.chains / np.maximum(1e-9, peak.in_flight * scheduled))
    reached = losses.efficiency if lanes else losses.matrix
    maths = n * w.macs / (peak.macs * reached * np.maximum(1e-9, fed))
    slots = device.schedulers * np.minimum(device.issue, FILLED * each)
    issue = n * _instructions(device, w) / np.maximum(1e-9, slots)
    shared = n * (w.shared_traffic + losses.fragments * w.fragment_traffic) / device.shared_rate
    cache = _cache_cycles(device, n, everywhere, w.cache_bytes)
    # the bytes of the first iterations arrive after one latency; then ``ahead`` iterations arrive per latency
    steps = np.maximum(1, w.steps)
    latency = np.where(n > 0, np.maximum(0, steps - w.ahead) * device.latency_cycles / w.ahead, 0.0)
    longest = np.maximum(np.maximum(np.maximum(maths, issue), np.maximum(shared, cache)), latency)
    exposed = losses.exposed + losses.lone / np.maximum(1.0, each) if lanes else losses.matrix_exposed
    others = longest + np.minimum(1.0, exposed) * (maths + issue + shared + cache + latency - longest)
    # copies bring the next bytes meanwhile, so what a warp does in turn is the rest
    mine = np.maximum(np.maximum(maths, issue), shared)
    in_turn = mine + np.minimum(1.0, w.in_turn / np.maximum(1, n)) * (maths + issue + shared - mine)
    together = np.where(n > 0, np.maximum(others, in_turn) + steps * w.step_cycles / np.maximum(1, n), 0.0)
    return maths, issue, shared, cache, latency, together


def _instructions(device: Device, w: Work) -> Number:
    """Instructions of waves. Engines count one for 32 work-items, and one for a dot product of bytes."""
    dots = w.macs / MACS["dp4a"] if w.math == "dp4a" else 0.0
    return (w.instructions + (device.dot_instructions - 1) * dots) * WARP / device.wave


def _cache_cycles(device: Device, n: Number, everywhere: Number, nbytes: Number) -> Number:
    """Cycles in which ``n`` work-groups of a unit, of those ``everywhere``, move ``nbytes`` each through the shared cache.

    A unit with more work-groups than others has more of the cache's bandwidth, up to what its own port takes.
    """
    return nbytes * np.maximum(n / device.unit_bytes, everywhere * device.ghz / device.l2_gbs)


def _store_cycles(device: Device, w: Work, groups: Number, result_bytes: float) -> Number:
    """Cycles in which the busiest unit stores its part of the result: through the cache if half of it holds all of it.

    Work-groups that run at the same time store at the same time, so memory is then the limit and nothing hides it. Engines count
    sums of four bytes; without split-K they are stored as narrow as the result is, at least a byte each.
    """
    share = -(-groups // device.units)
    narrow = np.clip(result_bytes / np.maximum(1e-9, groups * w.out_bytes), 0.25, 1)
    each = w.out_bytes * np.where(np.asarray(w.splits) > 1, 1.0, narrow)
    total = np.maximum(1, groups * each)
    kept = np.minimum(1, device.l2_bytes / 2 / total)
    through = np.maximum(share * each / device.unit_bytes, total * device.ghz / device.dram_gbs)
    return kept * _cache_cycles(device, share, groups, each) + (1 - kept) * through


def _slowdown(device: Device, math: str, busy: Number) -> Number:
    """How much longer a cycle is than at the clock of the data sheet, if arithmetic is busy for this part of the time."""
    held = device.loaded.get(math, 1.0)
    return 1 + (1 / held - 1) * np.minimum(1.0, busy)


def _memory_us(device: Device, wanted: Demand) -> Number:
    """Microseconds to move every byte once, from the cache those that it kept.

    The first bytes arrive after a latency, and the last ones are stored half a latency after they are computed.
    """
    ends = 1.5e-3 * device.latency_cycles / device.ghz
    return ends + bytes_us(wanted.bytes, wanted.constant_bytes, device)


def _join_cycles(device: Device, w: Work, groups: Number) -> Number:
    """Cycles to add up split-K: the last work-group of a tile adds all partial sums; in a cluster each adds a part."""
    tiles = np.maximum(1, groups // np.maximum(1, w.splits))
    rate = np.minimum(device.unit_bytes, device.l2_gbs / device.ghz / np.minimum(device.units, tiles))
    last = MEETING * device.latency_cycles + -(-tiles // device.units) * w.splits * w.joined_bytes / rate
    near = CLUSTER_MEETING * device.latency_cycles + 2 * w.joined_bytes / device.shared_rate
    return np.where(np.asarray(w.splits) > 1, np.where(w.in_cluster, near, last), 0.0)


def _tail_cycles(device: Device, w: Work, groups: Number, warps: Number) -> Number:
    """Cycles of row statistics: the last work-group that stores a part of some rows reads these rows back.

    Few work-groups do, each alone on its unit. The latency of the first read is the last one that ``MEETING`` counts.
    """
    parts = np.maximum(1, groups // np.maximum(1, w.splits * w.tail_sharers))
    rate = np.minimum(device.unit_bytes, device.l2_gbs / device.ghz / np.minimum(device.units, parts))
    meeting = np.where(np.asarray(w.tail_sharers) > 1, MEETING - 1, 0) * device.latency_cycles
    issue = w.tail_instructions / (device.schedulers * np.minimum(device.issue, FILLED * warps / device.schedulers))
    read = -(-parts // device.units) * (w.tail_bytes / rate + issue) + w.tail_trips * device.latency_cycles
    return np.where(np.asarray(w.tail_bytes) > 0, meeting + read, 0.0)


@dataclass(frozen=True)
class _Rates:
    """Of one unit: multiply-adds per cycle, and the independent products in flight that this rate needs."""

    macs: Number
    in_flight: Number


def _rates(device: Device, w: Work) -> _Rates:
    rate = device.unit_rate(w.math) * (device.by_warp_share if w.by_warp else 1.0)
    if w.math == "3xtf32":  # three instructions for one product
        return _Rates(rate, MATRIX_CYCLES * 3 * rate / MACS[w.math])
    if device.wave > WARP:  # a wave takes as long as its accumulation: its core has the next one when that ends
        return _Rates(rate, device.schedulers)
    cycles = MAC_CYCLES.get(w.math, MATRIX_CYCLES)
    return _Rates(rate, cycles * rate / MACS[w.math])


def terms(
    kernel: Kernel, device: Device, geometry: Geometry, *, registers: int, shared_bytes: int, work: Work | None = None
) -> Terms:
    """The terms of one launch, with the registers and the shared memory that the compiler allocated.

    Without ``work``, the kernel's operations and bytes are divided evenly among the work-groups, which load them in one
    step.
    """
    wanted = demand(kernel, device)
    groups, threads = math.prod(geometry.groups), math.prod(geometry.items)
    if work is None:
        macs, moved = wanted.flops / 2 / max(1, groups), wanted.bytes / max(1, groups)
        work = Work(macs, moved, instructions=macs / WARP, start_cycles=0.0)
    known = replace(work, shared_bytes=shared_bytes, uniform=0)  # the compiler's registers have no uniform values
    found = predict(wanted, device, Launch(groups, threads, registers, known))
    return Terms(**{f.name: _plain(getattr(found, f.name)) for f in fields(found)})


def _plain(value: Number) -> Any:
    return value.item() if isinstance(value, (np.generic, np.ndarray)) else value
