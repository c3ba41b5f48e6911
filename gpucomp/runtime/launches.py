"""The launches of a program in the layout of the native runner: which there are, and for one set of sizes, their numbers."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from gpucomp.artifact.elf import Image
from gpucomp.artifact.open_plan import Sized
from gpucomp.artifact.plan import INPUT, NUMBERS, OUTPUT, TEMP, Launch, Plan, Repeat
from gpucomp.device import processor
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.ceilings import Span
from gpucomp.runtime.estimates import Costs
from gpucomp.runtime.native import Table, address_of
from gpucomp.runtime.repeats import Loop, LoopTable, divided, loop_of

# of a segment: when it began and ended on Python's clock, and its end on the cycle counter (0 on the host)
Mark = tuple[float, float, int]


@dataclass(frozen=True)
class Segment:
    """Consecutive launches: ``first .. last`` of the native table, or one host launch.

    shared_ns   about how long one thread takes for the launches that threads can share
    """

    first: int
    last: int
    host: Launch | None = None
    shared_ns: float = 0.0


class Rows:
    """Rows of the native table: the launches ``numbers`` of ``plan``, which are alike at all sizes.

    An argument is the position of a buffer, or ``-1 - k`` for the numbers of kernel ``k``. ``places`` has for each where it
    stands among all arguments, and ``begins`` where those of each row begin.
    """

    def __init__(self, plan: Plan, numbers: Sequence[int], image: Image | None) -> None:
        self.plan, self.numbers = plan, numbers
        kernels = [plan.kernels[plan.launches[number].kernel] for number in numbers]
        arguments: list[int] = []
        self.begins: list[int] = []
        self.counts: list[int] = []
        for number, kernel in zip(numbers, kernels, strict=True):
            launch = plan.launches[number]
            self.begins.append(len(arguments))
            arguments += [*launch.args, *((-1 - launch.kernel,) if kernel.numbers else ())]
            self.counts.append(len(arguments) - self.begins[-1])
        self.size = len(arguments)
        self.places: dict[int, list[int]] = {}
        for place, position in enumerate(arguments):
            self.places.setdefault(position, []).append(place)
        self.kernels = [plan.launches[number].kernel for number in numbers]
        self.of_kernel: dict[int, list[int]] = {}
        for row, position in enumerate(self.kernels):
            self.of_kernel.setdefault(position, []).append(row)
        self.codes: dict[str, int] = {}
        if image is not None:
            self.codes = {name: image.address(f"{name}.call") for name in {one.name for one in plan.kernels}}
        given = [(place, -1 - k) for k, where in self.places.items() if k < 0 for place in where]
        self._buffers_in: dict[tuple[int, int], np.ndarray] = {}
        self.number_starts: np.ndarray | None = None  # of each kernel of the open plan, once it is known
        self.number_places, self.number_kernels = np.array(given, np.int64).reshape(-1, 2).T
        kinds = [b.kind for b in plan.buffers]
        temporary = [(place, k) for k, kind in enumerate(kinds) if kind == TEMP for place in self.places.get(k, [])]
        self.temporary_places, self.temporary_of = np.array(temporary, np.int64).reshape(-1, 2).T
        self.filled = {k: self.places.get(k, []) for k, kind in enumerate(kinds) if kind == NUMBERS}
        moving = (k for k, kind in enumerate(kinds) if kind in (INPUT, OUTPUT))
        self.moving = {k: np.array(self.places.get(k, []), np.int64) for k in moving}
        row_of = {number: row for row, number in enumerate(numbers)}
        self.loops = [(row_of[r.first], row_of[r.last - 1] + 1) for r in plan.repeats]

    @cached_property
    def costs(self) -> Costs:
        return Costs(self.plan, self.numbers)

    def buffers_in(self, first: int, last: int) -> np.ndarray:
        """The places of all arguments that are buffers, in rows ``first .. last - 1``."""
        if (first, last) not in self._buffers_in:
            found = [
                self.begins[row] + k
                for row in range(first, last)
                for k in range(len(self.plan.launches[self.numbers[row]].args))
            ]
            self._buffers_in[first, last] = np.array(found, np.int64)
        return self._buffers_in[first, last]

    def wanted(self, tasks: Sequence[int], repeats: Sequence[Repeat]) -> list[int]:
        """``tasks`` of each row. The native runner takes a loop of no steps for one step, in which there is nothing to do."""
        found = list(tasks)
        for (first, last), repeat in zip(self.loops, repeats, strict=True):
            if not repeat.count:
                found[first:last] = [0] * (last - first)
        return found

    def advancing(self, repeats: Sequence[Repeat]) -> set[int]:
        """The buffers that advance with the steps of a loop, at some sizes: an advance may be a ``Place``."""
        return {
            position
            for repeat in repeats
            for launch, row in zip(self.plan.launches[repeat.first : repeat.last], repeat.advances, strict=True)
            for position, advance in zip(launch.args, row, strict=True)
            if advance
        }

    @cached_property
    def segments(self) -> list[tuple[int, int, Launch | None]]:
        """All launches of the plan in order, those that the native runner runs without a break together."""
        found: list[tuple[int, int, Launch | None]] = []
        row = 0
        for number, launch in enumerate(self.plan.launches):
            if launch.kernel < 0:
                found.append((0, 0, launch))
            elif row < len(self.numbers) and self.numbers[row] == number:
                row += 1
                if found and found[-1][2] is None:
                    found[-1] = found[-1][0], row, None
                else:
                    found.append((row - 1, row, None))
        return found


class Launches:
    """The table of all launches of ``plan``, with what a run needs to complete it.

    segments    in order
    loops       of the table's rows
    late        for inputs and outputs of which a loop uses the last slice first, how far behind its beginning each place
                of ``rows.moving`` points
    """

    def __init__(self, plan: Plan, image: Image | None, memory: Mapping[int, np.ndarray], threads: int) -> None:
        """``memory`` is that of buffers whose address never changes, and that of numbers."""
        numbers = [n for n, launch in enumerate(plan.launches) if launch.kernel >= 0]
        self.rows = rows = Rows(plan, numbers, image)
        kernels = [plan.kernels[k] for k in rows.kernels]
        tasks = rows.wanted([kernel.groups[0] for kernel in kernels], plan.repeats)
        codes = [rows.codes[kernel.name] for kernel in kernels]
        self.table = Table(list(zip(codes, rows.counts, tasks, strict=True)), threads)
        nbytes = [b.nbytes for b in plan.buffers]
        self._run_loops(plan, nbytes, tasks)
        self.loop_table = LoopTable(rows.counts, self.loops)
        self.table.loops = self.loop_table.address
        for position, array in memory.items():
            where = rows.places.get(position, [])
            self.table.arguments[where] = address_of(array) + self.starts[where]
        told = [kernel.numbers for kernel in plan.kernels]
        self._give([n for one in told for n in one], np.cumsum([0, *map(len, told)]))

    def at(self, sized: Sized, memory: Mapping[int, np.ndarray], filled: Mapping[int, np.ndarray]) -> Launches:
        """The launches of the same plan at other sizes.

        ``memory`` is as for the constructor, without the numbers, which are in ``filled``.
        """
        rows = self.rows
        made = object.__new__(Launches)
        made.rows = rows
        kernels = [sized.chosen[k] for k in rows.kernels]
        tasks = rows.wanted(sized.first_groups(kernels), sized.repeats)
        made.table = self.table.with_tasks(tasks)
        for choice in sized.choices:
            code = rows.codes[sized.form.kernels[sized.chosen[choice.kernel]].name]
            made.table.set_code(rows.of_kernel.get(choice.kernel, []), code)
        made._run_loops(sized, sized.nbytes, tasks)
        made.loop_table = self.loop_table
        if rows.loops:
            made.loop_table = self.loop_table.with_loops(made.loops)
            made.table.loops = made.loop_table.address
            for position in rows.advancing(sized.form.repeats) & memory.keys():
                where = rows.places[position]
                made.table.arguments[where] = address_of(memory[position]) + made.starts[where]
        for position, array in filled.items():
            where = rows.filled[position]
            made.table.arguments[where] = address_of(array) + made.starts[where]
        if rows.number_starts is None:
            rows.number_starts = np.array(sized.number_starts, np.int64)
        made._give(sized.numbers(), rows.number_starts[sized.chosen])
        return made

    def beside(self, memory: Mapping[int, np.ndarray]) -> Launches:
        """The same launches in a table of their own. ``memory`` is that of buffers that are no longer where they were."""
        made = copy.copy(self)
        made.table = self.table.again()
        for position, array in memory.items():
            where = self.rows.places.get(position, [])
            made.table.arguments[where] = address_of(array) + self.starts[where]
        return made

    def spans(self, marks: Sequence[Mark], clocks: np.ndarray, tick: float) -> tuple[list[float], list[Span]]:
        """The seconds of each launch of the plan in one run, and when each thread was busy with it.

        ``marks`` are those of the segments. ``clocks`` are the native runner's notes by thread and row, in cycles of ``tick``
        seconds.
        """
        times, spans = [0.0] * len(self.rows.plan.launches), []
        for segment, (begin, end, finished) in zip(self.segments, marks, strict=True):
            if segment.host is not None:
                launch = self.rows.plan.launches.index(segment.host)
                times[launch] = end - begin
                spans.append(Span(launch, 0, begin - marks[0][0], end - marks[0][0]))
                continue

            def time_of(at: int, end: float = end, finished: float = finished) -> float:
                return end - marks[0][0] - (finished - at) * tick

            begun = clocks[:, segment.first : segment.last, 0]
            begins = np.where(begun > 0, begun, finished).min(axis=0)
            ticks = np.diff(np.append(begins, finished))
            looped = {row: loop for loop in self.loops for row in range(loop.first, loop.last)}
            for row, count in zip(range(segment.first, segment.last), ticks, strict=True):
                launch = self.rows.numbers[row]
                if (loop := looped.get(row)) is not None:
                    if row == loop.first:
                        seconds = float(ticks[row - segment.first : loop.last - segment.first].sum()) * tick
                        shares, busy = divided(loop, clocks, self.rows.numbers, max(seconds, 0.0), time_of)
                        times = [dict(shares).get(k, t) for k, t in enumerate(times)]
                        spans += busy
                    continue
                times[launch] = max(float(count), 0.0) * tick
                for thread, (from_, to) in enumerate(clocks[:, row, :2]):
                    if 0 < from_ <= to:
                        spans.append(Span(launch, thread, max(time_of(int(from_)), 0.0), time_of(int(to))))
        return times, spans

    def _run_loops(self, plan: Plan | Sized, nbytes: Sequence[int], tasks: Sequence[int]) -> None:
        """Decide how the loops run, and which launches are worth several threads."""
        rows = self.rows
        self.starts = np.zeros(rows.size, np.uint64)
        self.late: dict[int, np.ndarray] = {}
        self.loops: list[Loop] = []
        advances = {
            first + k: row
            for (first, _), repeat in zip(rows.loops, plan.repeats, strict=True)
            for k, row in enumerate(repeat.advances)
        }
        costs = rows.costs.of(nbytes, tasks, advances)
        for (first, last), repeat in zip(rows.loops, plan.repeats, strict=True):
            loop = loop_of(
                rows.plan, repeat, first, costs[first:last], tasks[first:last], nbytes, processor.second_cache()
            )
            self.loops.append(loop)
            starts = [repeat.start(advance) for row in repeat.advances for advance in row]
            self.starts[rows.buffers_in(first, last)] = np.array(starts, np.uint64)
            costs[first:last] *= 0 if loop.alone else repeat.count
        if self.loops:
            self.late = {k: self.starts[where] for k, where in rows.moving.items() if self.starts[where].any()}
        self.segments = [Segment(a, b, host, 0.0 if host else float(costs[a:b].sum())) for a, b, host in rows.segments]

    def _give(self, numbers: Sequence[int], starts: np.ndarray) -> None:
        """Let the launches point to ``numbers``; those of kernel ``k`` begin at ``starts[k]``."""
        self._numbers, places = np.array(numbers, np.int64), self.rows.number_places
        if len(places):
            self.table.arguments[places] = address_of(self._numbers) + 8 * starts[self.rows.number_kernels]

    def place(self, base: int, offsets: Sequence[int]) -> None:
        """Let temporaries lie in an arena at address ``base``."""
        places = self.rows.temporary_places
        if len(places):
            at = np.array(offsets, np.int64)[self.rows.temporary_of] + base
            self.table.arguments[places] = at + self.starts[places] if self.loops else at
