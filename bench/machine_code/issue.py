"""A model of one scheduler of an NVIDIA multiprocessor that runs a loop for several warps: how busy its math pipe is.

In order and one instruction a cycle. A warp may issue when its stall count has passed, the scoreboards that its instruction waits
for are released, and the instruction's pipe has room. The scheduler goes on with the warp that it had, or else takes the oldest.

What it does not know: conflicts of banks of registers and of shared memory, caches, the bandwidth of anything beyond shared
memory, work-groups that begin and end, branches that are not taken (each instruction of the loop is issued once a trip),
copies by the tensor memory accelerator, which are always there in time, and waits for products by tcgen05. Loads and copies by
threads arrive after the latency of the device's table, and several latencies and queues are assumptions. So the figure is an
estimate, which may be above or below what a device does: it compares loops rather than predicts times.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.machine_code.flow import Instruction
from bench.machine_code.nvidia import GROUPED, MEMORY, SPECIAL, TENSOR, UNIFORM, Pipe, pipe, stall
from gpucomp.device.device import Device

# cycles from the end of an instruction's time in its pipe to its result: shared memory 23 for a load and 19 for a store
# (Abdelkhalik et al., arXiv 2208.11174, A100). That matrices, shuffles, special functions take about as long is assumed
LATENCY = {"LDS": 23, "LDSM": 30, "SHFL": 23, "MUFU": 20, "S2R": 30, "LDC": 30, "LDCU": 30, "STS": 19, "STSM": 19}
OTHER_LATENCY = 6
PRODUCT_LATENCY = 20  # of a product of warpgroups, beyond its time in the matrix unit
FROM_MEMORY = frozenset({"LDG", "LD"})
OPERANDS_READ = 6  # cycles after which an instruction has read its operands
# cycles of work that may wait in front of a pipe: shared memory takes instructions into a queue. Assumptions
QUEUES = {MEMORY: 64, SPECIAL: 8}
SCOREBOARDS = 6
TRIPS, WARM = 12, 4  # of the loop, and those that are not counted
MOST_CYCLES = 3_000_000
DIGITS = re.compile(r"0x([0-9a-f]+)")


@dataclass
class _Warp:
    at: int = 0  # the next instruction
    trips: int = 0
    ready: float = 0.0
    boards: list[float] = field(default_factory=lambda: [0.0] * SCOREBOARDS)
    copies: list[float] = field(default_factory=list)  # when each group of asynchronous copies has arrived
    products: list[float] = field(default_factory=list)  # when each group of products of warpgroups is there


@dataclass(frozen=True)
class Busy:
    """``cycles`` of a trip for all warps; ``share`` of them that the math pipe works; idle cycles of the scheduler by reason."""

    cycles: float
    share: float
    idle: Mapping[str, float]


def busy(
    body: Sequence[Instruction],
    math: frozenset[str],
    device: Device,
    warps: int,
    per_group: int,
    product: float = 0.0,
) -> Busy:
    """How busy the math pipe is in the loop ``body`` with ``warps`` warps on a scheduler, ``per_group`` of each work-group.

    ``product``: cycles of a product by tcgen05.
    """
    broadcast = not any(one.opcode in math for one in body if pipe(one, device).name == TENSOR)
    pipes = [pipe(one, device, broadcast=broadcast, product=product) for one in body]
    model = _Scheduler(body, pipes, device, warps, per_group)
    cycles = model.run()
    work = sum(p.cycles for one, p in zip(body, pipes, strict=True) if one.opcode in math)
    idle = {why: n / (TRIPS * cycles) for why, n in model.idle.items()} if cycles else {}
    return Busy(cycles, min(1.0, warps * work / cycles) if cycles else 0.0, idle)


class _Scheduler:
    def __init__(
        self, body: Sequence[Instruction], pipes: Sequence[Pipe], device: Device, warps: int, per_group: int
    ) -> None:
        self.body, self.pipes, self.device, self.per_group = body, pipes, device, max(1, per_group)
        self.warps = [_Warp() for _ in range(warps)]
        self.free: Counter[str] = Counter()  # when each pipe has done what it was given
        self.meeting: dict[tuple[int, int, int], set[int]] = {}
        self.idle: Counter[str] = Counter()
        self.now: float = 0
        self.last = 0

    def run(self) -> float:
        """Cycles of a trip in the steady state."""
        ends: dict[int, float] = {}
        while min(warp.trips for warp in self.warps) < TRIPS and self.now < MOST_CYCLES:
            blocked = []
            for number in self._order():
                found = self._blocked(number)
                if found is None:
                    self._issue(number)
                    break
                blocked.append(found)
            else:
                until, why = min(blocked)
                self.idle[why] += max(1, until - self.now)
                self.now = max(self.now + 1, until)
                continue
            trips = min(warp.trips for warp in self.warps)
            ends.setdefault(trips, self.now)
            self.now += 1
        if TRIPS not in ends:  # warps wait for each other without an end, which no loop of a compiler does
            return 0.0
        return (ends[TRIPS] - ends[WARM]) / (TRIPS - WARM)

    def _order(self) -> list[int]:
        """Warps that are not done: the last one first, then the oldest."""
        size = len(self.body)
        waiting = [k for k, warp in enumerate(self.warps) if warp.trips < TRIPS]
        return sorted(waiting, key=lambda k: (k != self.last, self.warps[k].trips * size + self.warps[k].at))

    def _blocked(self, number: int) -> tuple[float, str] | None:
        """Until when the warp cannot issue, and why; ``None`` if it can."""
        warp = self.warps[number]
        one, taken = self.body[warp.at], self.pipes[warp.at]
        if warp.ready > self.now:
            return warp.ready, "stall"
        waits = one.control.waits if one.control else 0
        released = max((warp.boards[k] for k in range(SCOREBOARDS) if waits >> k & 1), default=0.0)
        if released > self.now:
            return released, "scoreboard"
        if (arrived := self._arrived(warp, one)) > self.now:
            return arrived, "copies" if one.opcode == "DEPBAR" else "products"
        if one.opcode == "BAR" and "SYNC" in one.name and not one.predicate and not self._met(number):
            return self.now + 1, "barrier"
        room = float("inf") if one.opcode in GROUPED | UNIFORM else QUEUES.get(taken.name, 0)
        if self.free[taken.name] - room > self.now and taken.cycles:
            return self.free[taken.name] - room, taken.name
        return None

    def _arrived(self, warp: _Warp, one: Instruction) -> float:
        """When all but the youngest groups are done, as many as the instruction leaves open."""
        if one.opcode == "DEPBAR" and ".LE" in one.name:
            groups = warp.copies
        elif one.opcode == "WARPGROUP" and "DEPBAR" in one.name:
            groups = warp.products
        else:
            return 0.0
        number = DIGITS.search(one.text)
        left = int(number[1], 16) if number else 0
        return max(groups[: max(0, len(groups) - left)], default=0.0)

    def _met(self, number: int) -> bool:
        """Whether all warps of the work-group are at this barrier."""
        warp = self.warps[number]
        there = self.meeting.setdefault((number // self.per_group, warp.trips, warp.at), set())
        there.add(number)
        return len(there) >= min(self.per_group, len(self.warps))

    def _issue(self, number: int) -> None:
        warp = self.warps[number]
        one, taken = self.body[warp.at], self.pipes[warp.at]
        start = max(self.now, self.free[taken.name]) if taken.cycles else self.now
        end = start + taken.cycles
        if taken.cycles:
            self.free[taken.name] = end
        if one.opcode in UNIFORM:  # its scoreboards are of its descriptors, not of its sums
            end = self.now
        latency = self.device.latency_cycles if one.opcode in FROM_MEMORY else LATENCY.get(one.opcode, OTHER_LATENCY)
        if one.control and one.control.write < SCOREBOARDS:
            warp.boards[one.control.write] = max(warp.boards[one.control.write], end + latency)
        if one.control and one.control.read < SCOREBOARDS:
            warp.boards[one.control.read] = max(warp.boards[one.control.read], end + OPERANDS_READ)
        if one.opcode == "LDGDEPBAR":
            warp.copies.append(self.now + self.device.latency_cycles)
        if one.opcode in GROUPED and "gsb0" in one.text:  # the last product of a group
            warp.products.append(end + PRODUCT_LATENCY)
        warp.ready = self.now + stall(one)
        self.last = number
        warp.at += 1
        if warp.at == len(self.body):
            warp.at, warp.trips = 0, warp.trips + 1
