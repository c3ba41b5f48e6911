"""What the C program of a plan consists of, as plain data: its arguments, launches and loops, and where everything lies."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpucomp.artifact.plan import COUNTER, INPUT, NUMBERS, OUTPUT, TEMP, WEIGHT, Plan
from gpucomp.ir.types import NAMED
from gpucomp.runtime.estimates import Costs
from gpucomp.runtime.repeats import loop_of

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
SHARED_NS = 20_000.0  # of work in a launch that threads share: less ends before a second one has begun
DIGEST_BYTES = 32  # of SHA-256, at the beginning of the weights


@dataclass(frozen=True)
class Argument:
    """An argument of a launch: ``offset`` bytes behind the beginning of ``place``, a constant of the C program.

    ``number`` is that of the input or output. Offsets in the arena count from behind the context.
    """

    place: str
    offset: int
    number: int = 0


@dataclass(frozen=True)
class LaunchRow:
    """``kernel`` is the position of the kernel in the plan. The launch has ``count`` arguments from ``first`` on."""

    kernel: int
    first: int
    count: int
    shared: bool
    tasks: int


@dataclass(frozen=True)
class LoopRow:
    """Rows ``first .. last - 1`` run ``count`` times. Their advances begin at ``advances``."""

    first: int
    last: int
    count: int
    advances: int
    shared: bool
    turns: bool


@dataclass(frozen=True)
class Copy:
    """An output that no kernel writes: ``nbytes`` from ``source``."""

    output: int
    source: Argument
    nbytes: int


@dataclass(frozen=True)
class Layout:
    """``advances`` has the bytes by which each argument of the loops' launches advances with a step.

    The arena has the context, then ``counter_bytes`` that are zero at the beginning, then ``temporary_bytes``.
    """

    arguments: tuple[Argument, ...]
    launches: tuple[LaunchRow, ...]
    loops: tuple[LoopRow, ...]
    advances: tuple[int, ...]
    copies: tuple[Copy, ...]
    counter_bytes: int
    temporary_bytes: int
    weights: bytes

    @property
    def digest(self) -> bytes:
        return self.weights[:DIGEST_BYTES]

    @property
    def arena_bytes(self) -> int:
        """Of the arena, where a pointer has 8 bytes: ``struct context`` of ``model.c.j2`` comes first."""
        return _rounded(8 * (3 + len(self.arguments) + 1)) + self.counter_bytes + self.temporary_bytes

    @property
    def most_arguments(self) -> int:
        """Of a launch in a loop."""
        return max((row.count for loop in self.loops for row in self.launches[loop.first : loop.last]), default=0)


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def layout_of(plan: Plan, weights: Mapping[str, np.ndarray]) -> Layout:
    """The layout of a plan without host launches, of tensors that are no strings and whose sizes are known."""
    places, blob, counters = _places(plan, weights)
    counts = plan.counts()
    numbers = [n for n in range(len(plan.launches)) if counts[n]]
    row_of = {number: row for row, number in enumerate(numbers)}
    tasks = [plan.kernels[plan.launches[n].kernel].groups[0] for n in numbers]
    repeats = [r for r in plan.repeats if r.count]
    nbytes = [b.nbytes for b in plan.buffers]
    advancing = {row_of[r.first] + k: row for r in repeats for k, row in enumerate(r.advances)}
    costs = Costs(plan, numbers).of(nbytes, tasks, advancing)
    starts = {
        row_of[r.first] + k: [r.start(advance) for advance in row] for r in repeats for k, row in enumerate(r.advances)
    }
    arguments: list[Argument] = []
    rows = []
    for row, number in enumerate(numbers):
        launch = plan.launches[number]
        first = len(arguments)
        late = starts.get(row, [0] * len(launch.args))
        for position, start in zip(launch.args, late, strict=True):
            place = places[position]
            arguments.append(Argument(place.place, place.offset + start, place.number))
        shared = bool(costs[row] >= SHARED_NS) and tasks[row] > 1
        rows.append(LaunchRow(launch.kernel, first, len(launch.args), shared, tasks[row]))
    loops, advances = [], list[int]()
    for repeat in repeats:
        first = row_of[repeat.first]
        span = slice(first, first + repeat.last - repeat.first)
        loop = loop_of(plan, repeat, first, costs[span], tasks[span], nbytes, plan.cache_bytes)
        loops.append(LoopRow(loop.first, loop.last, repeat.count, len(advances), not loop.alone, loop.turns))
        advances += [advance for row in repeat.advances for advance in row]
    copies = _copies(plan, places)
    return Layout(
        tuple(arguments), tuple(rows), tuple(loops), tuple(advances), copies, counters, plan.arena_bytes, blob
    )


def _places(plan: Plan, weights: Mapping[str, np.ndarray]) -> tuple[list[Argument], bytes, int]:
    """Where each buffer lies, the bytes of all weights, and those of all counters."""
    counters = sum(_rounded(b.nbytes) for b in plan.buffers if b.kind == COUNTER)
    input_of = {position: number for number, position in enumerate(plan.inputs)}
    output_of = {position: number for number, position in reversed([*enumerate(plan.outputs)])}
    places, parts, at, counted = [], list[bytes](), ALIGNMENT, 0
    for position, buffer in enumerate(plan.buffers):
        match buffer.kind:
            case kind if kind in (WEIGHT, NUMBERS):
                dtype = NAMED[buffer.dtype].numpy
                array = weights[buffer.name] if kind == WEIGHT else np.array(buffer.numbers, dtype)
                content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).tobytes()
                places.append(Argument("IN_WEIGHTS", at))
                parts.append(content + bytes(_rounded(len(content)) - len(content)))
                at += len(parts[-1])
            case kind if kind == COUNTER:
                places.append(Argument("IN_ARENA", counted))
                counted += _rounded(buffer.nbytes)
            case kind if kind == TEMP:
                places.append(Argument("IN_ARENA", counters + max(buffer.offset, 0)))
            case kind if kind == INPUT:
                places.append(Argument("IN_INPUT", 0, input_of[position]))
            case kind if kind == OUTPUT:
                places.append(Argument("IN_OUTPUT", 0, output_of[position]))
    body = b"".join(parts)
    digest = hashlib.sha256(repr((plan.target, plan.launches, plan.buffers)).encode() + body).digest()
    return places, digest + bytes(ALIGNMENT - DIGEST_BYTES) + body, counters


def _copies(plan: Plan, places: list[Argument]) -> tuple[Copy, ...]:
    """The first output that is a buffer gets it, others a copy."""
    found = []
    for number, position in enumerate(plan.outputs):
        buffer, place = plan.buffers[position], places[position]
        own = buffer.kind == OUTPUT and place.number == number
        nbytes = int(np.prod(buffer.shape, dtype=np.int64)) * NAMED[buffer.dtype].nbytes
        if not own and nbytes:
            found.append(Copy(number, place, nbytes))
    return tuple(found)
