"""Runs a plan on this machine's processor: one native call for each run, shared by persistent threads. Compiles nothing.

The threads are Python threads that enter the native code through ctypes, which releases the interpreter's lock. There
they claim the tasks of one kernel after the other. A thread that waits for a kernel to end first spins, then yields to
other threads, and at last sleeps. A run that would end before a second thread could help is left to one thread.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import threading
import time
import weakref
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np

from gpucomp import config
from gpucomp.artifact.elf import Image
from gpucomp.artifact.plan import COUNTER, INPUT, NUMBERS, OUTPUT, TEMP, WEIGHT, Buffer, Launch, Plan
from gpucomp.device import processor
from gpucomp.errors import ArtifactError, DeviceError
from gpucomp.ir.types import NAMED, STRING
from gpucomp.runtime import ceilings, large_pages
from gpucomp.runtime.ceilings import Ceilings, Span
from gpucomp.runtime.estimates import Costs, estimated_ns
from gpucomp.runtime.host import check_host, numbers_of, run_host
from gpucomp.runtime.native import HOST_ALIGNMENT, Table, address_of, aligned
from gpucomp.runtime.repeats import Loop, LoopTable, divided, loop_of

SPINS = 1_000  # of one pause instruction each: some tens of microseconds
SPINS_TO_SLEEP = SPINS + 20  # each spin beyond SPINS yields to another thread
NAP_MICROSECONDS = 50
SMALLEST_SHARED_NS = 100_000.0  # of work that threads can share: less ends before a second thread has started
CONTEXT_BYTES = 64
REST, LIMIT, NAP, NAP_TIME, SLEEPS, FINISHED = range(6)  # words of the context, in the order of the native runner
CALIBRATION_S = 0.01  # between two runs; their ends calibrate the cycle counter
LARGEST_POOL = 256

Notes = tuple[int, ...]  # for each thread, where it notes when it reached and left each launch; empty for no notes
# table, first launch, last launch, context, threads, epoch, notes, loops
Call = tuple[int, int, int, int, int, int, Notes, int]


def available_threads() -> int:
    """The number of threads in the configuration, or as many as the process may use."""
    return min(config.current().threads or len(os.sched_getaffinity(0)), LARGEST_POOL)


class _Pool:
    """Worker threads of the process, started when first needed. One run at a time uses them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._queues: list[SimpleQueue[Job]] = []

    def start(self, program: CpuProgram, call: Call, table: Table) -> None:
        """Let threads 1, 2 ... of ``call`` enter the native code; the caller is thread 0. The caller must hold ``lock``."""
        threads = call[4]
        while len(self._queues) < threads - 1:
            jobs: SimpleQueue[Job] = SimpleQueue()
            self._queues.append(jobs)
            name = f"gpucomp-{len(self._queues)}"
            threading.Thread(target=_work, args=(jobs,), name=name, daemon=True).start()
        for thread in range(1, threads):
            self._queues[thread - 1].put((program, call, thread, table))


def _work(jobs: SimpleQueue[Job]) -> None:
    while True:
        program, call, thread, table = jobs.get()  # a late thread keeps the program and the table alive
        program.enter(call, thread)
        del program, table


class _Runner:
    """The native runner of one image. It keeps the image in memory as long as it can be called."""

    def __init__(self, image: Image, *, loops: bool) -> None:
        self.image = image
        arguments = (ctypes.c_void_p, *[ctypes.c_int64] * 2, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p)
        self._run = ctypes.CFUNCTYPE(None, *arguments)(image.address("gc_run"))
        self._run_loops = None  # machine code of earlier versions has no such function
        if loops:
            self._run_loops = ctypes.CFUNCTYPE(None, *arguments, ctypes.c_void_p)(image.address("gc_run_loops"))

    def enter(self, call: Call, thread: int) -> None:
        table, first, last, context, threads, epoch, notes, loops = call
        given = (table, first, last, context, thread, threads, epoch, notes[thread] if notes else None)
        if self._run_loops is not None and loops:
            self._run_loops(*given, loops)
        else:
            self._run(*given)


Job = tuple["CpuProgram", Call, int, "Table"]
_pool = _Pool()
_programs: weakref.WeakSet[CpuProgram] = weakref.WeakSet()


def _after_fork() -> None:
    """The child has none of the parent's threads, and a lock may have been held by one of them."""
    global _pool
    _pool = _Pool()
    for program in _programs:
        program.reset()


os.register_at_fork(after_in_child=_after_fork)


@dataclass(frozen=True)
class _Segment:
    """Consecutive launches: ``first .. last`` of the native table, or one host launch.

    shared_ns   about how long one thread takes for the launches that threads can share
    """

    first: int
    last: int
    host: Launch | None = None
    shared_ns: float = 0.0


class _Arena:
    """Memory for the temporaries of one run at a time. It grows to what the largest program needs that shares it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.memory = aligned((0,), np.dtype(np.uint8))

    def of(self, nbytes: int) -> np.ndarray:
        if len(self.memory) < nbytes:
            self.memory = aligned((nbytes,), np.dtype(np.uint8))
        return self.memory


class CpuProgram:
    """A plan with its machine code and memory. ``run`` may be called from several threads: they take turns.

    binaries   one member, the model's object file
    weights    an array for every ``weight`` buffer of the plan, by name; ``large_pages`` replaces those that it moves
    threads    0 for ``GPUCOMP_THREADS``, or as many as the process may use if that is not set
    like       a program of the same model for other sizes: code, weights and the arena are shared, and runs of both take turns
    """

    def __init__(
        self,
        plan: Plan,
        sources: Mapping[str, str],
        binaries: Mapping[str, bytes],
        weights: MutableMapping[str, np.ndarray],
        *,
        threads: int = 0,
        like: CpuProgram | None = None,
    ) -> None:
        self.plan = plan
        if like is None:
            self.threads = min(threads, LARGEST_POOL) or available_threads()
            check_host(plan)
            large_pages.gather(weights)
            self._kept = {
                k: self._loaded(b, weights) for k, b in enumerate(plan.buffers) if b.kind in (WEIGHT, COUNTER)
            }
            self._arena = _Arena()
            self._arena.of(plan.arena_bytes)  # too large is told before what else is wrong
            processor.require(plan.features, plan.arch)
            self._runner = _runner(plan, binaries)
            self._context = aligned((CONTEXT_BYTES,), np.dtype(np.uint8))
            self._context_address = address_of(self._context)
        else:
            self.threads, self._kept, self._arena = like.threads, like._kept, like._arena
            self._runner, self._context, self._context_address = like._runner, like._context, like._context_address
        self._memory: list[np.ndarray | None] = [self._kept.get(k) for k in range(len(plan.buffers))]
        for k, buffer in enumerate(plan.buffers):
            if buffer.kind == NUMBERS:
                self._memory[k] = numbers_of(buffer)
        self._bound_to: np.ndarray | None = None  # the arena in which temporaries lie by the table
        if like is not None and not plan.repeats:
            self._take_table(like)
        else:  # how often a loop runs is in its table
            self._build_table()
        if like is None:
            self.reset()
        self._bind_arena()
        self._clocks = np.zeros((0, 0, 2), np.int64)
        self._notes: Notes = ()
        self._tick = 0.0
        self._epoch = 0
        _programs.add(self)

    def reset(self) -> None:
        """Make fresh locks, for a process that was forked."""
        self._arena.lock = threading.Lock()
        self._context[:] = 0
        words = self._context.view(np.uint64)
        system = ctypes.CDLL(None)
        words[REST] = ctypes.cast(system.sched_yield, ctypes.c_void_p).value or 0
        words[NAP] = ctypes.cast(system.usleep, ctypes.c_void_p).value or 0
        words[LIMIT], words[SLEEPS], words[NAP_TIME] = SPINS, SPINS_TO_SLEEP, NAP_MICROSECONDS

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs, in fresh arrays. ``inputs`` are complete, C-contiguous and of the plan's types."""
        with self._arena.lock:
            self._bind(inputs)
            for segment in self._segments:
                self._run_segment(segment)
            return self._results()

    def profile(self, inputs: Mapping[str, np.ndarray]) -> list[float]:
        """Seconds of each launch in one run, counted from when the first thread reached it. A run before it warms up."""
        return self._timed(inputs)[0]

    def timeline(self, inputs: Mapping[str, np.ndarray]) -> tuple[list[float], list[Span]]:
        """The seconds of ``profile``, and when each thread was busy with each launch."""
        return self._timed(inputs)

    def ceilings(self) -> Ceilings | None:
        """Measure this machine in some tenths of a second; ``None`` for a plan without kernels."""
        if self._runner is None:
            return None
        with self._arena.lock:
            return ceilings.measure(self, self._runner.image)

    def _timed(self, inputs: Mapping[str, np.ndarray]) -> tuple[list[float], list[Span]]:
        with self._arena.lock:
            if not self._notes:
                # never freed: a late thread may write
                words = 3 if self.plan.repeats else 2
                self._clocks = np.zeros((self.threads, len(self._table), words), np.int64)
                self._notes = tuple(address_of(clocks) for clocks in self._clocks)
            warm = self._run_timed(inputs)
            if not self._tick and len(self._table):
                time.sleep(CALIBRATION_S)
                (_, before, first), (_, after, second) = (
                    max(marks, key=lambda mark: mark[2]) for marks in (warm, self._run_timed(inputs))
                )
                self._tick = (after - before) / max(second - first, 1)
            self._clocks[...] = 0
            return self._spans(self._run_timed(inputs))

    def _run_timed(self, inputs: Mapping[str, np.ndarray]) -> list[tuple[float, float, int]]:
        """When each segment began and ended on Python's clock, and its end on the cycle counter (0 on the host)."""
        words, marks = self._context.view(np.uint64), []
        self._bind(inputs)
        for segment in self._segments:
            begin = time.perf_counter()
            self._run_segment(segment, self._notes)
            marks.append((begin, time.perf_counter(), int(words[FINISHED]) if segment.host is None else 0))
        self._results()
        return marks

    def _spans(self, marks: Sequence[tuple[float, float, int]]) -> tuple[list[float], list[Span]]:
        times, spans = [0.0] * len(self.plan.launches), []
        for segment, (begin, end, finished) in zip(self._segments, marks, strict=True):
            if segment.host is not None:
                launch = self.plan.launches.index(segment.host)
                times[launch] = end - begin
                spans.append(Span(launch, 0, begin - marks[0][0], end - marks[0][0]))
                continue

            def time_of(at: int, end: float = end, finished: float = finished) -> float:
                return end - marks[0][0] - (finished - at) * self._tick

            begun = self._clocks[:, segment.first : segment.last, 0]
            begins = np.where(begun > 0, begun, finished).min(axis=0)
            ticks = np.diff(np.append(begins, finished))
            looped = {row: loop for loop in self._loops for row in range(loop.first, loop.last)}
            for row, count in zip(range(segment.first, segment.last), ticks, strict=True):
                launch = self._launch_numbers[row]
                if (loop := looped.get(row)) is not None:
                    if row == loop.first:
                        seconds = float(ticks[row - segment.first : loop.last - segment.first].sum()) * self._tick
                        shares, busy = divided(loop, self._clocks, self._launch_numbers, max(seconds, 0.0), time_of)
                        times = [dict(shares).get(k, t) for k, t in enumerate(times)]
                        spans += busy
                    continue
                times[launch] = max(float(count), 0.0) * self._tick
                for thread, (from_, to) in enumerate(self._clocks[:, row, :2]):
                    if 0 < from_ <= to:
                        spans.append(Span(launch, thread, max(time_of(int(from_)), 0.0), time_of(int(to))))
        return times, spans

    def time_launches(self, inputs: Mapping[str, np.ndarray], count: int, *, warm: bool = True) -> list[float]:
        """Seconds of each of ``count`` executions of all launches on the same memory, after one that warms up.

        ``warm=False`` leaves the warm-up out, for a caller that has run the program before.
        """
        seconds = []
        with self._arena.lock:
            self._bind(inputs)
            for _ in range(count + warm):
                begin = time.perf_counter()
                for segment in self._segments:
                    self._run_segment(segment)
                seconds.append(time.perf_counter() - begin)
            self._results()
        return seconds[warm:]

    # memory

    @staticmethod
    def _loaded(buffer: Buffer, weights: Mapping[str, np.ndarray]) -> np.ndarray:
        """The memory of a weight or a counter: it has the same address in every run."""
        dtype = NAMED[buffer.dtype].numpy
        if buffer.kind == WEIGHT:
            weight = weights[buffer.name]
            if buffer.dtype == STRING.name:
                return weight
            if weight.dtype != dtype or weight.shape != buffer.shape:
                raise ArtifactError(
                    f"weight {buffer.name!r}: {buffer.dtype}{list(buffer.shape)} expected", code="GPC7020"
                )
            if weight.flags.c_contiguous and weight.ctypes.data % HOST_ALIGNMENT == 0:
                return weight
            copy = aligned(buffer.shape, dtype)
            copy[...] = weight
            return copy
        counter = aligned(buffer.shape, dtype)
        counter[...] = 0
        return counter

    def _build_table(self) -> None:
        """Build the launch table of the native runner, and note which of its arguments change from run to run."""
        plan = self.plan
        self._costs: Costs | None = None
        self._segments: list[_Segment] = []
        self._launch_numbers: list[int] = []
        entries: list[tuple[int, int, int]] = []
        arguments: list[int] = []  # positions of buffers; -1 - k for the numbers of kernel k
        starts: list[int] = []  # of the arguments in their buffers
        self._loops: list[Loop] = []
        counts, repeats = plan.counts(), {r.first: r for r in plan.repeats}
        advances = {r.first + k: row for r in plan.repeats for k, row in enumerate(r.advances)}

        def work_ns(number: int) -> float:
            launch = plan.launches[number]
            shared = plan.kernels[launch.kernel].groups[0] > 1
            return estimated_ns(plan, launch, advances.get(number, ())) if shared else 0.0

        for number, launch in enumerate(plan.launches):
            if launch.kernel < 0:
                self._segments.append(_Segment(0, 0, launch))
                continue
            if not counts[number]:  # a loop without steps
                continue
            assert self._runner is not None
            repeat = repeats.get(number)
            if repeat is not None:
                self._loops.append(loop_of(plan, repeat, len(entries), work_ns, processor.second_cache()))
            kernel = plan.kernels[launch.kernel]
            numbers = (-1 - launch.kernel,) if kernel.numbers else ()
            code, count = self._runner.image.address(f"{kernel.name}.call"), len(launch.args) + len(numbers)
            entries.append((code, count, kernel.groups[0]))
            arguments += (*launch.args, *numbers)
            loop = self._loops[-1] if number in advances else None
            starts += [loop.repeat.start(a) for a in advances[number]] if loop else [0] * len(launch.args)
            starts += [0] * len(numbers)
            self._launch_numbers.append(number)
            shared = 0.0 if loop and loop.alone else counts[number] * work_ns(number)
            if self._segments and self._segments[-1].host is None:
                before = self._segments[-1]
                self._segments[-1] = _Segment(before.first, len(entries), None, before.shared_ns + shared)
            else:
                self._segments.append(_Segment(len(entries) - 1, len(entries), None, shared))
        self._table = Table(entries, self.threads)
        self._loop_table = LoopTable([count for _, count, _ in entries], self._loops)
        self._table.loops = self._loop_table.address
        self._place_arguments(arguments, np.array(starts, np.uint64))

    def _place_arguments(self, arguments: Sequence[int], starts: np.ndarray) -> None:
        """Note where in the table the address of each buffer goes, and how far behind its beginning it points."""
        plan, self._starts = self.plan, starts
        places: dict[int, list[int]] = {}
        for place, position in enumerate(arguments):
            places.setdefault(position, []).append(place)
        for position, where in places.items():
            memory = self._memory[position] if position >= 0 else None
            if memory is not None:
                self._table.arguments[where] = address_of(memory) + self._starts[where]
        given = [(place, -1 - k) for k, where in places.items() if k < 0 for place in where]
        self._number_places, self._number_kernels = np.array(given, np.int64).reshape(-1, 2).T
        self._filled = {k: places.get(k, []) for k, b in enumerate(plan.buffers) if b.kind == NUMBERS}
        self._give_numbers()
        temporary = [(place, k) for k, b in enumerate(plan.buffers) if b.kind == TEMP for place in places.get(k, [])]
        self._temporary_places, self._temporary_of = np.array(temporary, np.int64).reshape(-1, 2).T
        on_host = {p for launch in plan.launches if launch.kernel < 0 for p in launch.args}
        self._temporary = [k for k, b in enumerate(plan.buffers) if b.kind == TEMP]
        self._seen = [k for k in self._temporary if k in on_host or k in plan.inputs or k in plan.outputs]
        moving = (k for k, b in enumerate(plan.buffers) if b.kind in (INPUT, OUTPUT))
        self._moving = {k: np.array(places.get(k, []), np.int64) for k in moving}
        # of buffers of which a loop reads or writes the last slice first
        self._late = {k: self._starts[where] for k, where in self._moving.items() if self._starts[where].any()}

    def _take_table(self, like: CpuProgram) -> None:
        """What ``_build_table`` makes, from a program whose plan differs in sizes only, and has no loops."""
        plan = self.plan
        self._launch_numbers, self._temporary, self._seen = like._launch_numbers, like._temporary, like._seen
        self._temporary_places, self._temporary_of = like._temporary_places, like._temporary_of
        self._number_places, self._number_kernels = like._number_places, like._number_kernels
        self._filled, self._starts, self._loops, self._loop_table = like._filled, like._starts, [], like._loop_table
        self._late = like._late
        self._moving, self._costs = like._moving, like._costs or Costs(plan, like._launch_numbers)
        tasks = [plan.kernels[plan.launches[number].kernel].groups[0] for number in self._launch_numbers]
        self._table = like._table.with_tasks(tasks)
        for row, number in enumerate(self._launch_numbers):
            kernel = plan.launches[number].kernel
            if (name := plan.kernels[kernel].name) != like.plan.kernels[kernel].name:  # another variant
                assert self._runner is not None
                self._table.set_code(row, self._runner.image.address(f"{name}.call"))
        self._give_numbers()
        costs = self._costs.of(plan, tasks)
        self._segments = [
            segment
            if segment.host is not None
            else _Segment(segment.first, segment.last, None, float(costs[segment.first : segment.last].sum()))
            for segment in like._segments
        ]
        like._costs = self._costs
        if any(segment.host is not None for segment in self._segments):
            check_host(plan)

    def _give_numbers(self) -> None:
        """Let the launches point to the numbers of this plan: those of their kernels, and whole buffers of them."""
        self._numbers = np.array([n for kernel in self.plan.kernels for n in kernel.numbers], np.int64)
        if len(self._number_places):
            starts = np.cumsum([0, *(len(kernel.numbers) for kernel in self.plan.kernels)])
            self._table.arguments[self._number_places] = address_of(self._numbers) + 8 * starts[self._number_kernels]
        for position, places in self._filled.items():
            memory = self._memory[position]
            assert memory is not None
            self._table.arguments[places] = address_of(memory) + self._starts[places]

    def _bind_arena(self) -> None:
        """Let temporaries lie in the arena, which may have been replaced by a larger one since the last run."""
        memory = self._arena.of(self.plan.arena_bytes)
        if memory is self._bound_to:
            return
        self._bound_to, base = memory, address_of(memory)
        for position in self._temporary:
            buffer = self.plan.buffers[position]
            if not 0 <= buffer.offset <= self.plan.arena_bytes - buffer.nbytes:
                raise ArtifactError(f"buffer {buffer.name!r} lies outside the arena", code="GPC7020")
        if len(self._temporary_places):
            offsets = np.array([buffer.offset for buffer in self.plan.buffers], np.int64)
            starts = self._starts[self._temporary_places]
            self._table.arguments[self._temporary_places] = base + offsets[self._temporary_of] + starts
        for position in self._seen:
            buffer = self.plan.buffers[position]
            dtype = NAMED[buffer.dtype].numpy
            nbytes = math.prod(buffer.shape) * dtype.itemsize  # ``buffer.nbytes`` may be larger
            if buffer.dtype == STRING.name:
                self._memory[position] = np.full(buffer.shape, "", object)
            else:
                part = memory[buffer.offset : buffer.offset + nbytes]
                self._memory[position] = part.view(dtype).reshape(buffer.shape)

    def _bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Bind this run's inputs, used where they are, and fresh outputs. An input that lies in the arena is copied there."""
        self._bind_arena()
        for position in self.plan.inputs:
            memory = self._memory[position]
            if position not in self._moving and memory is not None:
                memory[...] = inputs[self.plan.buffers[position].name]
        for position, places in self._moving.items():
            buffer = self.plan.buffers[position]
            if position in self.plan.inputs:
                array = np.ascontiguousarray(inputs[buffer.name]).reshape(buffer.shape)
                if not array.flags.aligned:
                    array = array.copy()
            else:
                array = self._fresh(buffer)
            self._memory[position] = array
            self._table.arguments[places] = address_of(array) + self._late.get(position, 0)

    @staticmethod
    def _fresh(buffer: Buffer) -> np.ndarray:
        if buffer.dtype == STRING.name:
            return np.full(buffer.shape, "", object)
        return aligned(buffer.shape, NAMED[buffer.dtype].numpy)

    def _results(self) -> dict[str, np.ndarray]:
        results: dict[str, np.ndarray] = {}
        given: set[int] = set()
        for name, position in zip(self.plan.output_names, self.plan.outputs, strict=True):
            array = self._memory[position]
            assert array is not None
            fresh = position in self._moving and position not in self.plan.inputs and position not in given
            results[name] = array if fresh else array.copy()
            given.add(position)
        for position in self._moving:
            self._memory[position] = None
        return results

    # launches

    def _run_segment(self, segment: _Segment, notes: Notes = ()) -> None:
        if segment.host is not None:
            self._run_host(segment.host)
            return
        self.run_native(self._table, segment.first, segment.last, segment.shared_ns >= SMALLEST_SHARED_NS, notes)

    def run_native(self, table: Table, first: int, last: int, shared: bool, notes: Notes = ()) -> None:
        """Run launches of ``table``; by all threads if ``shared``. The caller must hold the program's lock."""
        self._epoch = (self._epoch + 1) % (1 << 31)
        place = (table.address, first, last, self._context_address)
        pool = _pool
        if self.threads > 1 and shared and pool.lock.acquire(blocking=False):
            try:
                table.begin(first, last, self._epoch, self.threads)
                call = (*place, self.threads, self._epoch, notes, table.loops)
                pool.start(self, call, table)
                self.enter(call, 0)
            finally:
                pool.lock.release()
            return
        # another program uses the threads: this one runs on one thread instead of waiting
        table.begin(first, last, self._epoch, 1)
        self.enter((*place, 1, self._epoch, notes, table.loops), 0)

    def enter(self, call: Call, thread: int) -> None:
        """Enter the native code as thread number ``thread`` of the threads that share ``call``."""
        assert self._runner is not None
        self._runner.enter(call, thread)

    def _run_host(self, launch: Launch) -> None:
        operands = [array for p in launch.args[: launch.inputs] if (array := self._memory[p]) is not None]
        with np.errstate(all="ignore"):
            results = run_host(self.plan, launch, operands)
        for position, value in zip(launch.args[launch.inputs :], results, strict=True):
            array = self._memory[position]
            assert array is not None
            array[...] = value


def _runner(plan: Plan, binaries: Mapping[str, bytes]) -> _Runner | None:
    """Load the native runner; ``None`` for a plan without kernels."""
    members = {kernel.binary for kernel in plan.kernels}
    if not members:
        return None
    if len(members) != 1 or not members <= set(binaries):
        raise ArtifactError(f"one member of machine code expected, found {sorted(binaries)}", code="GPC7021")
    image = Image(binaries[members.pop()])
    if image.machine != platform.machine():
        raise DeviceError(
            f"the model was compiled for {plan.arch} ({image.machine}), this is {platform.machine()}: compile it here, "
            "or for one of its processors",
            code="GPC5007",
        )
    _require_features(image.data("gc_features").decode("ascii", "replace"), plan.target)
    return _Runner(image, loops=bool(plan.repeats))


def _require_features(needed: str, target: str) -> None:
    """Refuse code with instructions that this processor lacks."""
    if missing := processor.missing(f for f in needed.split(",") if f):
        raise DeviceError(
            f"the model was compiled for {target} with {', '.join(missing)}, which this processor lacks; "
            "compile it here, or for cpu:x86-64-v3",
            code="GPC5007",
        )
