"""Runs a plan on this machine's processor: one native call for each run, shared by persistent threads. Compiles nothing.

The threads are Python threads that enter the native code through ctypes, which releases the interpreter's lock. There
they claim the tasks of one kernel after the other. A thread that waits for a kernel to end first spins, then yields to
other threads, and at last sleeps. A run that would end before a second thread could help is left to one thread, and so is
one that finds the others busy with runs beside it (gpucomp.runtime.workers).
"""

from __future__ import annotations

import copy
import ctypes
import math
import os
import platform
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

import numpy as np

from gpucomp.artifact.elf import Image
from gpucomp.artifact.open_plan import Sized
from gpucomp.artifact.plan import COUNTER, INPUT, NUMBERS, TEMP, WEIGHT, Buffer, Launch, Plan
from gpucomp.device import processor
from gpucomp.device.isa import require_loads
from gpucomp.errors import ArtifactError, DeviceError
from gpucomp.ir.types import NAMED, STRING
from gpucomp.runtime import ceilings, large_pages
from gpucomp.runtime.arguments import Argument, Bound, bound
from gpucomp.runtime.ceilings import Ceilings, Span
from gpucomp.runtime.copies import copied
from gpucomp.runtime.host import check_host, numbers_of, run_host
from gpucomp.runtime.launches import Launches, Mark, Rows, Segment
from gpucomp.runtime.native import HOST_ALIGNMENT, Table, address_of, aligned, zeroed
from gpucomp.runtime.options import NONE, PLAIN, Options
from gpucomp.runtime.runner import Call, Notes, Runner
from gpucomp.runtime.stopping import Stop
from gpucomp.runtime.trial import AGAIN, Trial, clocks, seconds_of, shared_trial
from gpucomp.runtime.workers import LARGEST_POOL, Bell, Helper, available_threads, workers

SPINS = 1_000  # of one pause instruction each: some tens of microseconds
# Each spin beyond SPINS yields to another thread. Naps come after some tenths of a millisecond: they take twice their time, in
# which launches wait for the thread.
SPINS_TO_SLEEP = SPINS + 1_000
NAP_MICROSECONDS = 50
SMALLEST_SHARED_NS = 100_000.0  # of work that threads can share: less ends before a second thread has started
LONG_NS = 5_000_000.0  # of such work: more is shared in any case
BRIEF_S = 50e-6  # runs that take less keep the interpreter's lock: handing it on takes other threads as long
CONTEXT_BYTES = 64
REST, LIMIT, NAP, NAP_TIME, SLEEPS, FINISHED, HALT = range(7)  # words of the context, in the order of the native runner
CALIBRATION_S = 0.01  # between two runs; their ends calibrate the cycle counter
EPOCHS = 1 << 31  # runs until their numbers begin anew
NO_CLOCKS = np.zeros((0, 0, 2), np.int64)


_programs: weakref.WeakSet[CpuProgram] = weakref.WeakSet()


def _after_fork() -> None:
    for program in _programs:
        program.reset()


os.register_at_fork(after_in_child=_after_fork)


class _Arena:
    """Memory for the temporaries of one run at a time. It grows to what the largest program needs that shares it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.memory = aligned((0,), np.dtype(np.uint8))
        self.trials: dict[int, Trial] = {}  # of programs whose estimates are alike, see ``_expect``

    def of(self, nbytes: int) -> np.ndarray:
        memory = self.memory  # another program may replace it meanwhile
        if len(memory) < nbytes:
            memory = self.memory = aligned((nbytes,), np.dtype(np.uint8))
        return memory


class CpuProgram:
    """A plan with its machine code and memory. ``run`` may be called from several threads: they take turns.

    binaries   one member, the model's object file
    weights    an array for every ``weight`` buffer of the plan, by name; ``large_pages`` replaces those that it moves
    threads    0 for ``GPUCOMP_THREADS``, or as many as the process may use if that is not set
    """

    knows_inputs: ClassVar[bool] = False  # whether shapes and types of inputs are right when it is given them

    def __init__(
        self,
        plan: Plan,
        sources: Mapping[str, str],
        binaries: Mapping[str, bytes],
        weights: MutableMapping[str, np.ndarray],
        *,
        threads: int = 0,
    ) -> None:
        self._form = plan
        self._sized: Sized | None = None
        self.threads = min(threads, LARGEST_POOL) or available_threads()
        check_host(plan)
        large_pages.gather(weights)
        self._kept = {k: self._loaded(b, weights) for k, b in enumerate(plan.buffers) if b.kind in (WEIGHT, COUNTER)}
        self._arena = _Arena()
        self._arena.of(plan.arena_bytes)  # too large is told before what else is wrong
        require_loads(frozenset(plan.features), plan.arch)
        processor.require(plan.features, plan.arch)
        self._runner = _runner(plan, binaries)
        self._context = aligned((CONTEXT_BYTES,), np.dtype(np.uint8))
        self._context_address = address_of(self._context)
        numbers = {k: numbers_of(b) for k, b in enumerate(plan.buffers) if b.kind == NUMBERS}
        memory = self._kept | numbers
        self._memory: list[np.ndarray | None] = [memory.get(k) for k in range(len(plan.buffers))]
        image = self._runner.image if self._runner is not None else None
        self._launches = Launches(plan, image, memory, self.threads)
        on_host = {p for launch in plan.launches if launch.kernel < 0 for p in launch.args}
        seen = on_host.union(plan.inputs, plan.outputs)
        self._seen = [k for k, b in enumerate(plan.buffers) if b.kind == TEMP and k in seen]
        self.reset()
        for position in (k for k, b in enumerate(plan.buffers) if b.kind == TEMP):
            buffer = plan.buffers[position]
            if not 0 <= buffer.offset <= plan.arena_bytes - buffer.nbytes:
                raise ArtifactError(f"buffer {buffer.name!r} lies outside the arena", code="GPC7020")
        self._finish()

    def resized(self, sized: Sized) -> CpuProgram:
        """The program of the same model at other sizes: code, weights and the arena are shared, and runs of both take turns."""
        made = object.__new__(CpuProgram)
        made._form, made._sized = sized.form, sized
        made.threads, made._kept, made._arena = self.threads, self._kept, self._arena
        made._runner, made._context, made._context_address = self._runner, self._context, self._context_address
        made._memory, made._seen = [None] * len(self._memory), self._seen
        for position, array in self._kept.items():
            made._memory[position] = array
        filled = {position: numbers_of(sized.buffer(position)) for position in self._launches.rows.filled}
        for position, array in filled.items():
            made._memory[position] = array
        made._launches = self._launches.at(sized, self._kept, filled)
        if any(segment.host is not None for segment in made._launches.segments):
            check_host(sized.plan)
        made._finish(self)
        return made

    def beside(self) -> CpuProgram:
        """The same program in memory of its own, which may run at the same time. Code, weights and numbers are shared."""
        made = copy.copy(self)
        made._arena = _Arena()
        made._context = aligned((CONTEXT_BYTES,), np.dtype(np.uint8))
        made._context_address = address_of(made._context)
        counters = {
            k: aligned(a.shape, a.dtype) for k, a in self._kept.items() if self._form.buffers[k].kind == COUNTER
        }
        for counter in counters.values():
            counter[...] = 0
        made._kept = self._kept | counters
        made._memory = [None if k in self._seen else a for k, a in enumerate(self._memory)]
        for position, counter in counters.items():
            made._memory[position] = counter
        made._launches = self._launches.beside(counters)
        made._arena.trials = {key: copy.deepcopy(trial) for key, trial in [*self._arena.trials.items()] if trial.over}
        made.reset()
        made._finish(self)
        return made

    def _finish(self, like: CpuProgram | None = None) -> None:
        """Prepare for runs. What is the same at these sizes is taken from ``like``."""
        self._bound_to: np.ndarray | None = None  # the arena in which temporaries lie by the table
        launches, form = self._launches, self._form
        needed = (*launches.rows.moving, *self._seen, *form.inputs)
        others = needed if like is None or self._sized is None else [k for k in needed if self._sized.varies(k)]
        # those that a run needs
        self._buffers: dict[int, Buffer] = {**(like._buffers if like else {}), **{k: self._buffer(k) for k in others}}
        name_of = dict(zip(reversed(form.outputs), reversed(form.output_names), strict=True))
        same = (
            like is not None and launches.rows is like._launches.rows and not launches.late and not like._launches.late
        )
        known = {one.position: one for one in like._used} if like is not None and same else {}
        for position in others:
            known.pop(position, None)
        used = [
            known.get(k) or Argument(k, name_of.get(k, ""), self._buffers[k], places, launches.late.get(k))
            for k, places in launches.rows.moving.items()
        ]
        self._use(used)
        for one in self._read:
            one.name = one.buffer.name
        self._copied = [k for k in form.inputs if k not in launches.rows.moving]
        # the first output that is a buffer gets it, others a copy
        own = {name for k, name in name_of.items() if k in launches.rows.moving and k not in form.inputs}
        self._results_of = [(n, k, n in own) for n, k in zip(form.output_names, form.outputs, strict=True)]
        # every result is written where it is wanted, and no launch on the host reads an argument, as those with strings do
        own_results = all(own for _, _, own in self._results_of) and len(self._results_of) == len(self._written)
        self._writes_all = own_results and all(segment.host is None for segment in launches.segments)
        self._expect(int(max((segment.shared_ns for segment in launches.segments), default=0)))
        self._seats, self._epoch, self._tick = 1, 0, 0.0
        self._bind_arena()
        self._clocks = NO_CLOCKS
        self._notes: Notes = ()
        _programs.add(self)

    def _use(self, arguments: list[Argument]) -> None:
        self._used = arguments
        order = {name: place for place, name in enumerate(self._form.output_names)}  # of the results
        written = (one for one in arguments if one.buffer.kind != INPUT)
        self._written = sorted(written, key=lambda one: order.get(one.name, 0))
        self._read = [one for one in arguments if one.buffer.kind == INPUT]

    def _expect(self, shared_ns: int) -> None:
        """Decide by how many threads a run is, of which the largest segment has ``shared_ns`` of work."""
        self._expected_ns, threads = shared_ns or 1, self.threads if shared_ns >= SMALLEST_SHARED_NS else 1
        self._trial, self._until_own = None, 0  # and the runs, until it has one of its own
        if shared_ns < LONG_NS:  # estimates of as many bits are alike, if as many threads may run them
            alike = shared_ns.bit_length() if threads == 1 else -shared_ns.bit_length()
            trial = self._arena.trials.get(alike)
            self._until_own = AGAIN if trial is not None and threads > 1 else 0
            self._trial = trial or shared_trial(self._arena.trials, alike, threads)

    @property
    def plan(self) -> Plan:
        return self._form if self._sized is None else self._sized.plan

    @property
    def rows(self) -> Rows:
        """The launches, as far as they are alike at all sizes."""
        return self._launches.rows

    @property
    def can_move(self) -> bool:
        """Whether native code can find the numbers of other sizes: machine code of earlier versions cannot."""
        return self._runner is not None and self._runner.sizes is not None

    def _buffer(self, position: int) -> Buffer:
        return self._form.buffers[position] if self._sized is None else self._sized.buffer(position)

    def reset(self) -> None:
        """Make fresh locks, for a process that was forked."""
        self._arena.lock = threading.Lock()
        self._reset_counters()
        self._context[:] = 0
        words = self._context.view(np.uint64)
        system = ctypes.CDLL(None)
        words[REST] = ctypes.cast(system.sched_yield, ctypes.c_void_p).value or 0
        words[NAP] = ctypes.cast(system.usleep, ctypes.c_void_p).value or 0
        words[LIMIT], words[SLEEPS], words[NAP_TIME] = SPINS, SPINS_TO_SLEEP, NAP_MICROSECONDS

    def bound(self, inputs: Mapping[str, object], outputs: Mapping[str, Any]) -> Bound | None:
        """What a run with these arrays writes into the table; ``None`` if not all of them can be used where they lie."""
        if not self._writes_all or self._copied:
            return None
        return bound(self._read, self._written, inputs, outputs, known=self.knows_inputs)

    def run(
        self, inputs: Mapping[str, np.ndarray], how: Options = PLAIN, bound: Bound | None = None
    ) -> dict[str, np.ndarray]:
        """The outputs, in fresh arrays or in those of ``how.outputs``.

        ``inputs`` are complete, C-contiguous and of the plan's types. So are the outputs, by their names, but not complete. They
        are aligned, and no other array lies in their memory. What is ``bound`` takes the place of both.
        """
        with self._arena.lock:
            trial, done = self._trial, False
            self._seats = seats = workers.take(self.threads if trial is None else trial.wanted, how.stop)
            try:
                if bound is None:
                    self._bind(inputs, how.outputs)
                else:
                    self._bind_arena()
                    words = self._launches.table.words
                    for one, address, _ in bound[0]:
                        one.put(address, words)
                learning = trial is not None and not trial.over
                begin = clocks() if learning else (0.0, 0.0)
                if how.stop is None:
                    brief = trial is not None and trial.alone * self._expected_ns < BRIEF_S
                    for segment in self._launches.segments:
                        self._run_segment(segment, brief=brief)
                else:
                    self._run_until(how.stop)
                if trial is not None and learning:
                    trial.note(seats, seconds_of(begin, clocks(), alone=seats == 1) / self._expected_ns)
                elif trial is not None and self._until_own:
                    self._until_own -= 1
                    self._trial = trial if self._until_own else Trial(trial.most)
                elif trial is not None and trial.left:
                    trial.doubt()
                done = True
                return self._results(how.outputs) if bound is None else bound[1]
            finally:
                if not done:  # stopped, or interrupted from the keyboard
                    self._reset_counters()
                workers.give(seats)
                if bound is None:
                    for one in self._used:  # the caller's
                        self._memory[one.position] = None

    def _run_until(self, stop: Stop) -> None:
        """Run the launches, without those that are left when ``stop`` wants the run to end."""
        words = self._context.view(np.uint64)
        with stop.during(partial(words.__setitem__, HALT, 1), partial(words.__setitem__, HALT, 0)):
            for segment in self._launches.segments:
                if words[HALT]:
                    return
                self._run_segment(segment)  # not briefly: others must be able to say that it is to stop

    def _reset_counters(self) -> None:
        """Tasks that were left out have not counted."""
        for position, kept in self._kept.items():
            if self._form.buffers[position].kind == COUNTER:
                kept[...] = 0

    @contextmanager
    def _seated(self, wanted: int) -> Iterator[None]:
        """Run a block that runs launches by up to ``wanted`` threads."""
        with self._arena.lock:
            self._seats = seats = workers.take(wanted)
            try:
                yield
            finally:
                workers.give(seats)
                for one in self._used:
                    self._memory[one.position] = None

    def zeros(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """A fresh array of zeros, aligned as kernels want it. Raises ``DeviceError`` (GPC5013) if memory is exhausted."""
        return zeroed(shape, np.dtype(dtype))

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
        with self._seated(self.threads):
            return ceilings.measure(self, self._runner.image)

    def _timed(self, inputs: Mapping[str, np.ndarray]) -> tuple[list[float], list[Span]]:
        with self._seated(self.threads if self._trial is None else self._trial.threads):
            if not self._notes:
                # never freed: a late thread may write
                words = 3 if self.plan.repeats else 2
                self._clocks = np.zeros((self.threads, len(self._launches.table), words), np.int64)
                self._notes = tuple(address_of(clocks) for clocks in self._clocks)
            warm = self._run_timed(inputs)
            if not self._tick and len(self._launches.table):
                time.sleep(CALIBRATION_S)
                (_, before, first), (_, after, second) = (
                    max(marks, key=lambda mark: mark[2]) for marks in (warm, self._run_timed(inputs))
                )
                self._tick = (after - before) / max(second - first, 1)
            self._clocks[...] = 0
            return self._launches.spans(self._run_timed(inputs), self._clocks, self._tick)

    def _run_timed(self, inputs: Mapping[str, np.ndarray]) -> list[Mark]:
        words, marks = self._context.view(np.uint64), list[Mark]()
        self._bind(inputs)
        for segment in self._launches.segments:
            begin = time.perf_counter()
            self._run_segment(segment, self._notes)
            marks.append((begin, time.perf_counter(), int(words[FINISHED]) if segment.host is None else 0))
        self._results()
        return marks

    def time_launches(self, inputs: Mapping[str, np.ndarray], count: int, *, warm: bool = True) -> list[float]:
        """Seconds of each of ``count`` executions of all launches on the same memory, after one that warms up.

        ``warm=False`` leaves the warm-up out, for a caller that has run the program before.
        """
        seconds = []
        with self._seated(self.threads if self._trial is None else self._trial.threads):
            self._bind(inputs)
            for _ in range(count + warm):
                begin = time.perf_counter()
                for segment in self._launches.segments:
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

    def _bind_arena(self) -> None:
        """Let temporaries lie in the arena, which may have been replaced by a larger one since the last run."""
        placed: Plan | Sized = self._form if self._sized is None else self._sized
        memory = self._arena.of(placed.arena_bytes)
        if memory is self._bound_to:
            return
        self._bound_to = memory
        offsets = [b.offset for b in self._form.buffers] if self._sized is None else self._sized.offsets
        self._launches.place(address_of(memory), offsets)
        for position in self._seen:
            buffer = self._buffers[position]
            dtype = NAMED[buffer.dtype].numpy
            nbytes = math.prod(buffer.shape) * dtype.itemsize  # ``buffer.nbytes`` may be larger
            if buffer.dtype == STRING.name:
                self._memory[position] = np.full(buffer.shape, "", object)
            else:
                part = memory[buffer.offset : buffer.offset + nbytes]
                self._memory[position] = part.view(dtype).reshape(buffer.shape)

    def _bind(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray] = NONE) -> None:
        """Bind this run's inputs and outputs, used where they are, and fresh outputs. An input in the arena is copied there."""
        self._bind_arena()
        memory, words = self._memory, self._launches.table.words
        for position in self._copied:
            target = memory[position]
            if target is not None:
                copied(inputs[self._buffers[position].name], target)
        for one in self._read:
            array = inputs[one.name]
            if not (array.flags.aligned and array.flags.c_contiguous):
                array = copied(array)
            memory[one.position] = array
            one.put(address_of(array), words)
        for one in self._written:
            if one.name in outputs:
                array = outputs[one.name]
                address = address_of(array)
            else:
                array, address = one.fresh()
            memory[one.position] = array
            one.put(address, words)

    def _results(self, outputs: Mapping[str, np.ndarray] = NONE) -> dict[str, np.ndarray]:
        results: dict[str, np.ndarray] = {}
        memory = self._memory
        for name, position, own in self._results_of:
            array = memory[position]
            assert array is not None
            if name in outputs:
                if outputs[name] is not array:
                    copied(array, outputs[name])
                results[name] = outputs[name]
            elif own and not any(array is one for one in outputs.values()):
                results[name] = array
            else:
                results[name] = copied(array)
        return results

    # launches

    def _run_segment(self, segment: Segment, notes: Notes = (), *, brief: bool = False) -> None:
        if segment.host is not None:
            self._run_host(segment.host)
            return
        self.run_native(
            self._launches.table,
            segment.first,
            segment.last,
            segment.shared_ns >= SMALLEST_SHARED_NS,
            notes,
            brief=brief,
        )

    def run_native(
        self, table: Table, first: int, last: int, shared: bool, notes: Notes = (), *, brief: bool = False
    ) -> None:
        """Run launches of ``table``; by all threads of this run if ``shared``. The caller must hold the program's lock.

        If ``brief``, the interpreter's lock is kept meanwhile.
        """
        runner, threads = self._runner, self._seats if shared else 1
        assert runner is not None
        if threads == 1 and runner.alone is not None and runner.brief is not None:
            enter = runner.brief if brief else runner.alone
            enter(table.address, first, last, self._context_address, notes[0] if notes else None, table.loops)
            return
        self._epoch = (self._epoch + 1) % EPOCHS
        runner.begin(table, first, last, self._epoch, threads)
        call = (table.address, first, last, self._context_address, threads, self._epoch, notes, table.loops)
        helpers: list[Helper] = []
        try:
            if threads > 1:  # a late one keeps the program and the table alive
                helpers = workers.start(partial(self._help, call, table), threads)
            self.enter(call, 0)
        except BaseException:  # Ctrl+C, while helpers may work on arrays that the caller is about to free
            self.enter(call, 0)
            raise
        finally:
            workers.rest(helpers)

    def _help(self, call: Call, table: Table, thread: int, bell: Bell) -> None:
        assert self._runner is not None
        self._runner.help(call, thread, bell)

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


def _runner(plan: Plan, binaries: Mapping[str, bytes]) -> Runner | None:
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
    return Runner(image, loops=bool(plan.repeats))


def _require_features(needed: str, target: str) -> None:
    """Refuse code with instructions that this processor lacks."""
    if missing := processor.missing(f for f in needed.split(",") if f):
        raise DeviceError(
            f"the model was compiled for {target} with {', '.join(missing)}, which this processor lacks; "
            "compile it here, or for cpu:x86-64-v3",
            code="GPC5007",
        )
