"""Loops of a plan on the CPU: as data for the native runner, who runs them, and how their time is divided among launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from gpucomp.artifact.plan import Plan, Repeat
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.ceilings import Span
from gpucomp.runtime.native import address_of

# of work in a step, as estimated: some microseconds, less than what waiting for others costs
SMALLEST_SHARED_STEP_NS = 50_000.0
MOST_CLAIMS = 1 << 31  # of a launch in all steps of its loop: the native runner counts them in 32 bits
COUNT, HOW, ADVANCES = 2, 3, 5  # of the words of a launch's loop: these, and how many there are before its advances


def in_order(plan: Plan) -> Iterator[tuple[int, int]]:
    """Every launch of a run, in order: its number and the step of its loop, 0 outside of loops."""
    number, repeats = 0, {r.first: r for r in plan.repeats}
    while number < len(plan.launches):
        if (repeat := repeats.get(number)) is None:
            yield number, 0
            number += 1
            continue
        for step in range(repeat.count):
            for inner in range(repeat.first, repeat.last):
                yield inner, step
        number = repeat.last


@dataclass(frozen=True)
class Moving:
    """Argument ``index`` of a launch works on ``abs(advance)`` bytes of its buffer, from ``start`` on in the first step.

    ``read`` and ``written``: what the launch does with them. Where several launches write parts of them, each also keeps
    what the others wrote.
    """

    index: int
    start: int
    advance: int
    read: bool
    written: bool


def moving_arguments(plan: Plan, number: int) -> list[Moving]:
    """The arguments of launch ``number`` that advance with every step of its loop."""
    repeat = next((r for r in plan.repeats if r.first <= number < r.last), None)
    if repeat is None:
        return []
    launch, found = plan.launches[number], []
    for index, advance in enumerate(repeat.advances[number - repeat.first]):
        if advance:
            position = launch.args[index]
            writers = [o for o in plan.launches[repeat.first : repeat.last] if position in o.args[o.inputs :]]
            written = index >= launch.inputs
            found.append(Moving(index, repeat.start(advance), advance, not written or len(writers) > 1, written))
    return found


@dataclass(frozen=True)
class Loop:
    """Rows ``first .. last - 1`` of the native table are those of ``repeat``.

    ``alone``: one thread runs them. ``turns``: if it is one thread, it goes through a launch's tasks in turn forwards and
    backwards, because they read more in a step than the cache holds.
    """

    first: int
    last: int
    repeat: Repeat
    alone: bool
    turns: bool


def loop_of(
    plan: Plan,
    repeat: Repeat,
    first: int,
    costs: np.ndarray,
    tasks: Sequence[int],
    nbytes: Sequence[int],
    cache_bytes: int,
) -> Loop:
    """The loop of ``repeat``, whose first row is ``first``. ``costs`` are about the nanoseconds of a step of each launch that
    threads can share, ``tasks`` those of each launch, and ``nbytes`` those of each buffer.
    """
    numbers = range(repeat.first, repeat.last)
    alone = costs.sum() < SMALLEST_SHARED_STEP_NS or repeat.count * max(tasks) >= MOST_CLAIMS
    held = {
        position
        for number, advances in zip(numbers, repeat.advances, strict=True)
        for position, advance in zip(plan.launches[number].args, advances, strict=True)
        if not advance
    }
    turns = sum(nbytes[position] for position in held) > cache_bytes
    return Loop(first, first + len(numbers), repeat, bool(alone), turns)


class LoopTable:
    """``address`` of an array with the address of its loop, or 0, for each launch. ``arguments`` are the numbers of theirs."""

    def __init__(self, arguments: Sequence[int], loops: Sequence[Loop]) -> None:
        rows = [row for loop in loops for row in range(loop.first, loop.last)]
        sizes = [ADVANCES + arguments[row] for row in rows]
        self._begins = np.cumsum([0, *sizes])[:-1]  # of the words of each launch in a loop
        self._words = np.zeros(sum(sizes), np.int64)  # what is no buffer does not advance
        self._rows, self._count = rows, len(arguments)
        told = [len(row) for loop in loops for row in loop.repeat.advances]
        self._advances = np.array(
            [b + ADVANCES + k for b, count in zip(self._begins, told, strict=True) for k in range(count)], np.int64
        )
        for at, row in zip(self._begins, rows, strict=True):
            self._words[at + 4] = arguments[row]
        self._fill(loops)

    def with_loops(self, loops: Sequence[Loop]) -> LoopTable:
        """The same launches, whose loops have other counts and advances."""
        made = object.__new__(LoopTable)
        made._begins, made._rows, made._advances, made._count = self._begins, self._rows, self._advances, self._count
        made._words = self._words.copy()
        made._fill(loops)
        return made

    def _fill(self, loops: Sequence[Loop]) -> None:
        words, done = self._words, 0
        for loop in loops:
            at = self._begins[done : done + loop.last - loop.first]
            count = max(loop.repeat.count, 1)
            for word, number in enumerate((loop.first, loop.last, count, loop.alone + 2 * loop.turns)):
                words[at + word] = number
            done += len(at)
        words[self._advances] = [a for loop in loops for row in loop.repeat.advances for a in row]
        self._pointers = np.zeros(self._count, np.uint64)
        self._pointers[self._rows] = address_of(words) + 8 * self._begins
        self.address = address_of(self._pointers) if loops else 0


def divided(
    loop: Loop, clocks: np.ndarray, numbers: Sequence[int], seconds: float, time_of: Callable[[int], float]
) -> tuple[list[tuple[int, float]], list[Span]]:
    """The seconds of each launch of ``loop`` in all steps, which took ``seconds`` together, and when threads ran them.

    The launches take turns many times over. Each thread is shown as busy with one after the other, for as long as it was
    busy with all their steps. ``clocks`` are the runner's notes, by thread and row.
    """
    rows = clocks[:, loop.first : loop.last]
    busy = rows[:, :, 2].max(axis=0).astype(float)
    shares = busy / max(busy.sum(), 1.0)
    times = [(numbers[loop.first + k], float(share) * seconds) for k, share in enumerate(shares)]
    spans: list[Span] = []
    for thread, noted in enumerate(rows):
        if not (noted[:, 0] > 0).all():
            continue
        begin, end = time_of(int(noted[0, 0])), time_of(int(noted[:, 1].max()))
        ends = begin + (end - begin) * np.cumsum(noted[:, 2]) / max(noted[:, 2].sum(), 1)
        for k, (start, stop) in enumerate(zip([begin, *ends], ends, strict=False)):
            spans.append(Span(numbers[loop.first + k], thread, max(float(start), 0.0), float(stop)))
    return times, spans
