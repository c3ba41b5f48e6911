"""What the C program of a plan consists of, as plain data: its arguments, launches and loops, and where everything lies."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from gpucomp.artifact.plan import COUNTER, INPUT, NUMBERS, OUTPUT, TEMP, WEIGHT, Buffer, Plan
from gpucomp.export.sizes import OpenParts, is_open
from gpucomp.export.states import StateRow
from gpucomp.ir.types import NAMED
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.estimates import Costs
from gpucomp.runtime.repeats import loop_of

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
SHARED_NS = 20_000.0  # of work in a launch that threads share: less ends before a second one has begun
DIGEST_BYTES = 32  # of SHA-256, at the beginning of the weights


@dataclass(frozen=True)
class Argument:
    """An argument of a launch: ``offset`` bytes behind the beginning of ``place``, a constant of the C program.

    ``number`` is that of the input, output or temporary. Offsets in the arena count from behind the context.
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
    """Rows ``first .. last - 1`` run ``count`` times, in other loops ``before`` and ``after`` that.

    Their advances begin at ``advances``.
    """

    first: int
    last: int
    count: int
    before: int
    after: int
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

    The arena has the context, then ``counter_bytes`` that are zero at the beginning, the states, and then the temporaries.
    Where ``open`` has numbers that each run decides, ``temporary_bytes`` and the bytes of states, the counts and advances of
    loops and the bytes of copies are places of such numbers.
    """

    arguments: tuple[Argument, ...]
    launches: tuple[LaunchRow, ...]
    loops: tuple[LoopRow, ...]
    advances: tuple[int, ...]
    copies: tuple[Copy, ...]
    states: tuple[StateRow, ...]
    counter_bytes: int
    state_bytes: int
    temporary_bytes: int
    weights: bytes
    open: OpenParts | None = None

    @property
    def digest(self) -> bytes:
        return self.weights[:DIGEST_BYTES]

    def arena_bytes(self, pointer: int) -> int:
        """Of the arena of a plan for one set of sizes, where a pointer has ``pointer`` bytes: ``struct context`` of
        ``model.c.j2`` comes first.
        """
        head = 8 + 2 * max(pointer, 4) + (8 if self.states else 0) + pointer * (len(self.arguments) + 1)
        return rounded(head) + self.counter_bytes + self.state_bytes + self.temporary_bytes

    @property
    def most_arguments(self) -> int:
        """Of a launch in a loop."""
        return max((row.count for loop in self.loops for row in self.launches[loop.first : loop.last]), default=0)


@dataclass(frozen=True)
class Places:
    """Where each buffer lies, the bytes of all weights, and those at the beginning of the arena."""

    of: list[Argument]
    weights: bytes
    counters: int
    filled: dict[int, int]  # the buffers whose numbers each run decides, and where they are in the arena


def rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def layout_of(
    plan: Plan, weights: Mapping[str, np.ndarray], states: Sequence[StateRow] = (), state_bytes: int = 0
) -> Layout:
    """The layout of a plan without host launches, of tensors that are no strings and whose sizes are known."""
    places = places_of(plan, weights)
    shift = places.counters + state_bytes
    for position, buffer in enumerate(plan.buffers):
        if buffer.kind == TEMP:
            places.of[position] = Argument("IN_ARENA", shift + max(buffer.offset, 0))
    counts = plan.counts()
    numbers = [n for n in range(len(plan.launches)) if counts[n]]
    arguments, rows, loops, advances = rows_of(plan, plan, numbers, places.of, int)
    copies = copies_of(plan, places.of, lambda b: int(np.prod(b.shape, dtype=np.int64)) * NAMED[b.dtype].nbytes)
    return Layout(
        tuple(arguments),
        tuple(rows),
        tuple(loops),
        tuple(advances),
        tuple(copy for copy in copies if copy.nbytes),
        tuple(states),
        places.counters,
        state_bytes,
        plan.arena_bytes,
        places.weights,
    )


def rows_of(
    plan: Plan, example: Plan, numbers: Sequence[int], places: Sequence[Argument], number: Callable[..., int]
) -> tuple[list[Argument], list[LaunchRow], list[LoopRow], list[int]]:
    """The arguments of launches ``numbers``, these launches, the loops, and the advances in these.

    What decides only speed is decided at the sizes of ``example``. ``number`` makes a number of the C program from one of the
    plan.
    """
    row_of = {launch: row for row, launch in enumerate(numbers)}
    tasks = [example.kernels[example.launches[n].kernel].groups[0] for n in numbers]
    nbytes = [b.nbytes for b in example.buffers]
    repeats = [r for r in example.repeats if r.first in row_of]
    advancing = {row_of[r.first] + k: row for r in repeats for k, row in enumerate(r.advances)}
    costs = Costs(example, numbers).of(nbytes, tasks, advancing)
    arguments: list[Argument] = []
    rows: list[LaunchRow] = []
    for row, launch_number in enumerate(numbers):
        launch = plan.launches[launch_number]
        shared = bool(costs[row] >= SHARED_NS) and tasks[row] > 1
        kernel = plan.kernels[launch.kernel]
        rows.append(LaunchRow(launch.kernel, len(arguments), len(launch.args), shared, number(kernel.groups[0])))
        arguments += [places[position] for position in launch.args]
        if kernel.numbers:
            arguments.append(Argument("IN_GIVEN", 0, row))
            rows[-1] = replace(rows[-1], count=len(launch.args) + 1)
    loops, advances = [], list[int]()
    for repeat, known in zip((r for r in plan.repeats if r.first in row_of), repeats, strict=True):
        first = row_of[repeat.first]
        span = slice(first, first + repeat.last - repeat.first)
        loop = loop_of(example, known, first, costs[span], tasks[span], nbytes, example.cache_bytes)
        steps = number(repeat.count), repeat.before, number(repeat.after)
        loops.append(LoopRow(loop.first, loop.last, *steps, len(advances), not loop.alone, loop.turns))
        for launched, moves in zip(rows[span], repeat.advances, strict=True):
            still = [0] * (launched.count - len(moves))
            advances += [number(advance) for advance in chain(moves, still)]
    return arguments, rows, loops, advances


def places_of(plan: Plan, weights: Mapping[str, np.ndarray]) -> Places:
    """All but temporaries."""
    input_of = {position: number for number, position in enumerate(plan.inputs)}
    output_of = {position: number for number, position in reversed([*enumerate(plan.outputs)])}
    places, parts, at, counted = [], list[bytes](), ALIGNMENT, 0
    filled: dict[int, int] = {}
    for position, buffer in enumerate(plan.buffers):
        if buffer.kind == COUNTER or (buffer.kind == NUMBERS and is_open(buffer.numbers)):
            if buffer.kind == NUMBERS:
                filled[position] = counted
            places.append(Argument("IN_ARENA", counted))
            counted += rounded(buffer.nbytes)
        elif buffer.kind in (WEIGHT, NUMBERS):
            dtype = NAMED[buffer.dtype].numpy
            array = weights[buffer.name] if buffer.kind == WEIGHT else np.array(buffer.numbers, dtype)
            content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).tobytes()
            places.append(Argument("IN_WEIGHTS", at))
            parts.append(content + bytes(rounded(len(content)) - len(content)))
            at += len(parts[-1])
        elif buffer.kind == INPUT:
            places.append(Argument("IN_INPUT", 0, input_of[position]))
        elif buffer.kind == OUTPUT:
            places.append(Argument("IN_OUTPUT", 0, output_of[position]))
        else:
            places.append(Argument("IN_TEMPORARY", 0))
    body = b"".join(parts)
    digest = hashlib.sha256(repr((plan.target, plan.launches, plan.buffers)).encode() + body).digest()
    return Places(places, digest + bytes(ALIGNMENT - DIGEST_BYTES) + body, counted, filled)


def copies_of(plan: Plan, places: Sequence[Argument], nbytes: Callable[[Buffer], int]) -> list[Copy]:
    """The first output that is a buffer gets it, others a copy."""
    found = []
    for number, position in enumerate(plan.outputs):
        buffer, place = plan.buffers[position], places[position]
        if buffer.kind != OUTPUT or place.number != number:
            found.append(Copy(number, place, nbytes(buffer)))
    return found
