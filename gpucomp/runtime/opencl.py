"""A plan on an OpenCL device: one in-order queue, arguments set once, no host synchronisation inside a run."""

from __future__ import annotations

import operator
import threading
import weakref
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from gpucomp.artifact.open_plan import Sized
from gpucomp.artifact.plan import COUNTER, INPUT, NUMBERS, OUTPUT, TEMP, WEIGHT, Buffer, Launch, Plan
from gpucomp.device.target import Target
from gpucomp.errors import DeviceError, KernelBuildError
from gpucomp.ir.types import NAMED
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.ceilings import Span
from gpucomp.runtime.host import Strings, bytes_of, check_host, numbers_of, run_host
from gpucomp.runtime.opencl_arrays import (
    context_of,
    copy,
    finish,
    forget,
    mapped,
    places_of,
    require_context,
    results_of,
    uses_of,
    zeroed,
)
from gpucomp.runtime.options import NONE, PLAIN, Options
from gpucomp.runtime.repeats import Moving, in_order, moving_arguments
from gpucomp.runtime.shared_buffers import share
from gpucomp.targets import opencl, opencl_build
from gpucomp.targets.cache import open_cache

FLUSHED = 16  # launches after which the queue is flushed: otherwise Mali and Adreno do not start before the last one


@dataclass(frozen=True)
class _Slice:
    """Memory for the part of the buffer at ``position`` that a step of a loop reads or writes."""

    position: int
    memory: Any
    moved: Moving

    def place(self, step: int) -> tuple[int, int]:
        """Where it begins in that buffer, and its size, in bytes."""
        return self.moved.start + step * self.moved.advance, abs(self.moved.advance)


class _Shared:
    """What programs of one model share, one run at a time: memory for temporaries, and the kernels with their arguments.

    The memory grows to what the largest program needs.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.memory: list[Any] = []
        self.kernels: dict[tuple[int, str], Any] = {}  # by the number of the launch, and the kernel's name
        self.bound: weakref.ref[OpenCLProgram] | None = None  # the program that the kernels' arguments are those of

    def grow(self, sizes: Sequence[int], allocate: Callable[[int], Any], most: int) -> list[Any]:
        """Buffers of at least ``sizes`` bytes, the same as before if they are large enough.

        Larger ones get some more, up to ``most``: other programs keep the smaller ones until they run again.
        """
        there = [memory.size for memory in self.memory]
        if len(there) >= len(sizes) and all(map(operator.ge, there, sizes)):
            return self.memory
        first = not there
        there += [0] * (len(sizes) - len(there))
        wanted = [*map(max, there, sizes), *there[len(sizes) :]]
        self.memory = [allocate(n if first else max(n, min(n + n // 4, most))) for n in wanted]
        return self.memory


class OpenCLProgram:
    """Opens the plan's device, builds its kernels and uploads its weights; ``run`` then only enqueues.

    ``like`` is a program of the same model for other sizes. The queue, the kernels, the weights and the arena are shared,
    and runs of both take turns; ``apart``, this one has a queue, kernels with arguments and an arena of its own, and they run
    side by side.

    Raises ``DeviceError`` if the device or pyopencl is missing or memory is exhausted, and ``KernelBuildError`` for a
    kernel that the device refuses.
    """

    def __init__(
        self,
        plan: Plan,
        sources: Mapping[str, str],
        binaries: Mapping[str, bytes],
        weights: Mapping[str, np.ndarray],
        *,
        like: OpenCLProgram | None = None,
        apart: bool = False,
    ) -> None:
        check_host(plan)
        cl = self._cl = opencl.pyopencl()
        self.plan, self._weights = plan, weights
        self.device: Any = opencl.device_of(_target_of(plan)) if like is None else like.device
        self._timed: Any = None
        self._broken = False  # the last run did not finish: counters may hold anything
        with opencl.failing(f"{self.device.name.strip()}: ", "GPC5005"):
            if like is None:
                self._context = context_of(self.device)
                self._queue = cl.CommandQueue(self._context)
                # of arrays that callers get; no run is enqueued there, so that nobody waits for others' runs
                self.queue: Any = cl.CommandQueue(self._context)
                # host memory that the device reads and writes in place needs no second copy
                self._mapped = bool(opencl.answer(self.device, "host_unified_memory"))
                self._shared = _Shared()
                self._programs = self._built(sources, binaries)
            else:
                self._context, self._queue, self._mapped = like._context, like._queue, like._mapped
                self.queue = like.queue
                self._shared, self._programs = like._shared, like._programs
                if apart:
                    self._queue, self._shared = cl.CommandQueue(self._context), _Shared()
            self._strings = Strings(plan, weights)
            self._needs, self._places = self._laid_out()
            self._bound_to: Any = None  # the arena that the temporaries lie in
            self._grown()
            kept = {state.input for state in plan.states}
            # a context has memory for these
            self._held = {k for k in plan.inputs if plan.buffers[k].name in kept and plan.buffers[k].nbytes}
            self._buffers = self._memory(weights, like)
            # the program's own buffers in whose place kernels have arrays of the caller
            self._elsewhere: dict[int, Any] = {}
            self._calls = [self._call(number, launch) for number, launch in enumerate(plan.launches)]
            if like is None or apart:
                self._bind()
                self._queue.finish()

    def resized(self, sized: Sized) -> OpenCLProgram:
        """The program of the same model at other sizes, which shares what this one has opened."""
        return OpenCLProgram(sized.plan, {}, {}, self._weights, like=self)

    def beside(self) -> OpenCLProgram:
        """The same program in a queue and memory of its own. Built programs and weights are shared."""
        return OpenCLProgram(self.plan, {}, {}, self._weights, like=self, apart=True)

    # ---- opening ----

    def _memory(self, weights: Mapping[str, np.ndarray], like: OpenCLProgram | None) -> list[Any]:
        """A device buffer for each buffer of the plan; ``None`` for temporaries, see ``_bind``."""
        buffers = []
        for position, buffer in enumerate(self.plan.buffers):
            if like is not None and buffer.kind == WEIGHT:
                buffers.append(like._buffers[position])
                continue
            if buffer.kind == TEMP and buffer.nbytes:
                buffers.append(None)
                continue
            memory = self._allocate(1 if position in self._held else buffer.nbytes, buffer.kind)
            if buffer.kind == WEIGHT and buffer.nbytes:
                self._cl.enqueue_copy(self._queue, memory, bytes_of(weights[buffer.name]), is_blocking=True)
            if buffer.kind == NUMBERS and buffer.nbytes:
                self._cl.enqueue_copy(self._queue, memory, bytes_of(numbers_of(buffer)), is_blocking=True)
            if buffer.kind == COUNTER:
                self._zero(memory, buffer)
            buffers.append(memory)
        return buffers

    def _bind(self) -> None:
        """Let the temporaries lie in the arena, which may have been replaced by a larger one, and set the kernels' arguments,
        which may be those of another program.

        They are parts of one buffer if the device allows that.
        """
        memory, shared = self._grown(), self._shared
        if memory is not self._bound_to:
            for position, (number, start) in self._places.items():
                whole, nbytes = memory[number], self.plan.buffers[position].nbytes
                self._buffers[position] = whole if start is None else whole.get_sub_region(start, nbytes)
        elif shared.bound is not None and shared.bound() is self:
            return
        self._bound_to, shared.bound = memory, weakref.ref(self)
        self._elsewhere.clear()
        for launch, call in zip(self.plan.launches, self._calls, strict=True):
            if call is not None:
                numbers = map(np.int64, self.plan.kernels[launch.kernel].numbers)
                call[0].set_args(*(self._buffers[a] for a in launch.args), *numbers)
        self._moving = self._slices()

    def _grown(self) -> list[Any]:
        return self._shared.grow(self._needs, self._allocate, self.device.max_mem_alloc_size)

    def _laid_out(self) -> tuple[Sequence[int], dict[int, tuple[int, int | None]]]:
        """The sizes of the arena's buffers, and for each temporary which of them it is, or the offset of its part of it."""
        device, plan = self.device, self.plan
        parts = {k: b for k, b in enumerate(plan.buffers) if b.kind == TEMP and b.nbytes}
        aligned = all(b.offset % opencl.alignment_of(device) == 0 for b in parts.values())
        if aligned and opencl.has_sub_buffers(device) and plan.arena_bytes <= device.max_mem_alloc_size:
            return [plan.arena_bytes] if parts else [], {k: (0, b.offset) for k, b in parts.items()}
        shared = share(plan)
        return shared.sizes, {k: (number, None) for k, number in shared.of.items()}

    def _allocate(self, nbytes: int, kind: str = TEMP) -> Any:
        flags = self._cl.mem_flags.READ_WRITE
        if self._mapped and kind in (INPUT, OUTPUT):
            flags |= self._cl.mem_flags.ALLOC_HOST_PTR
        try:
            return self._cl.Buffer(self._context, flags, max(1, nbytes))
        except self._cl.Error as error:
            most = self.device.max_mem_alloc_size
            reason = f"its largest allocation is {most} bytes" if nbytes > most else str(error)
            raise DeviceError(
                f"{self.device.name.strip()}: cannot allocate a buffer of {nbytes} bytes (the model needs {self._needed()} "
                f"bytes): {reason}",
                code="GPC5004",
            ) from error

    def _needed(self) -> int:
        return self.plan.arena_bytes + sum(b.nbytes for b in self.plan.buffers if b.kind != TEMP)

    def _zero(self, memory: Any, buffer: Buffer) -> None:
        self._cl.enqueue_copy(self._queue, memory, np.zeros(buffer.nbytes, np.uint8), is_blocking=True)

    def _built(self, sources: Mapping[str, str], binaries: Mapping[str, bytes]) -> dict[str, tuple[Any, KernelSource]]:
        """The program of each kernel, by the kernel's name."""
        kernels = []
        for kernel in self.plan.kernels:
            text, binary = sources[kernel.source], bytes(binaries.get(kernel.binary, b""))
            kernels.append((KernelSource(kernel.name, "opencl", text, Geometry(kernel.groups, kernel.items)), binary))
        exact = self.plan.precision == "fp32"
        with self._advising():
            programs = opencl_build.load_all(self._context, self.device, kernels, open_cache(), exact=exact)
        return {source.name: (program, source) for program, (source, _) in zip(programs, kernels, strict=True)}

    @contextmanager
    def _advising(self) -> Iterator[None]:
        """A kernel that this device refuses might work with a smaller schedule, which only a new compilation can choose."""
        try:
            yield
        except KernelBuildError as error:
            raise KernelBuildError(
                f"{error.message}; compile the model on this device ({self.device.name.strip()}): smaller schedules are then "
                "tried",
                code=error.code,
            ) from error

    def _call(self, number: int, launch: Launch) -> Any:
        """A kernel, whose arguments ``_bind`` sets, its global size and its local size; ``None`` for a host operator."""
        if launch.kernel < 0:
            return None
        compiled, kernels = self.plan.kernels[launch.kernel], self._shared.kernels
        kernel = kernels.get((number, compiled.name))
        if kernel is None:
            with self._advising():
                kernel = opencl_build.kernel_of(self.device, *self._programs[compiled.name])
            kernels[number, compiled.name] = kernel
        size = tuple(g * i for g, i in zip(compiled.groups, compiled.items, strict=True))
        return kernel, size, compiled.items

    def _slices(self) -> dict[int, list[_Slice]]:
        """For each launch of a loop, memory for the part of each argument that it works on, which advances with every step.

        Slices are copied: parts of buffers need an alignment that slices need not have.
        """
        found: dict[int, list[_Slice]] = {}
        for number, launch in enumerate(self.plan.launches):
            for moved in moving_arguments(self.plan, number):
                one = _Slice(launch.args[moved.index], self._allocate(abs(moved.advance)), moved)
                found.setdefault(number, []).append(one)
                self._calls[number][0].set_arg(moved.index, one.memory)
        return found

    @property
    def driver(self) -> str:
        return opencl_build.compiler_version(self.device)

    def tried(self, number: int, given: Mapping[int, np.ndarray], wanted: Sequence[int]) -> list[np.ndarray]:
        """See ``self_test.Tried``. No run has placed inputs or outputs elsewhere yet, and states have no memory."""
        with self._running():
            queue = self._alone(self._queue)
            for position, array in given.items():
                copy(queue, self._buffers[position], bytes_of(array), is_blocking=True)
            self._enqueue(number, 0, queue, None)
            return self._download(wanted, queue)

    # ---- running ----

    def run(self, inputs: Mapping[str, Any], how: Options = PLAIN) -> dict[str, Any]:
        """The outputs, in fresh arrays or in those of ``how.outputs``, complete. ``inputs`` must be all that the plan has.

        Arrays of pyopencl are used where they are; one that begins inside a buffer, where no part of one may begin, is copied on
        the device. Raises ``InputError`` for one in another context: GPC2106 for an input, GPC2115 for a result.
        """
        with self._running(inputs, how.outputs):
            return self._run(inputs, self._alone(self._queue), None, how)

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        """A fresh ``pyopencl.array.Array`` of zeros in the program's context, complete. Raises ``DeviceError`` (GPC5004)."""
        with opencl.failing(f"{self.device.name.strip()}: ", "GPC5004"):
            return zeroed(self.queue, shape, np.dtype(dtype))

    def profile(self, inputs: Mapping[str, Any]) -> list[float]:
        """Seconds of each launch in one run, by the device's clock; 0 for host operators."""
        return self.timeline(inputs)[0]

    def ceilings(self) -> None:
        """Not measured: a device's peaks are in its data sheet, and its clock varies with load."""
        return

    def timeline(self, inputs: Mapping[str, Any]) -> tuple[list[float], list[Span]]:
        """The seconds of ``profile``, and a span for each kernel on the device's clock, from the start of the first one."""
        events: list[tuple[int, Any]] = []
        with self._running(inputs):
            self._run(inputs, self._timing_queue(), events)
            times = [(launch, e.profile.start, e.profile.end) for launch, e in events]
        first = min((start for _, start, _ in times), default=0)
        seconds = [0.0] * len(self.plan.launches)
        for launch, start, end in times:
            seconds[launch] += 1e-9 * (end - start)
        return seconds, [Span(k, 0, 1e-9 * (start - first), 1e-9 * (end - first)) for k, start, end in times]

    def _timing_queue(self) -> Any:
        if self._timed is None:
            properties = self._cl.command_queue_properties.PROFILING_ENABLE
            self._timed = self._cl.CommandQueue(self._context, properties=properties)
        return self._alone(self._timed)

    def _alone(self, queue: Any) -> Any:
        """``queue``, after the other queue has finished, its unmaps included."""
        for other in (self._queue, self._timed):
            if other is not None and other is not queue:
                other.finish()
        return queue

    def time_launches(self, inputs: Mapping[str, np.ndarray], count: int, *, warm: bool = True) -> list[float]:
        """Seconds of each of ``count`` executions of all launches on the same memory, by the device's clock.

        One run before them warms up and uploads the inputs. ``warm=False`` leaves it out, for a caller that has run the
        program before. Raises ``DeviceError`` like ``run``.
        """
        if warm:
            self.profile(inputs)
        seconds = []
        with self._running():
            queue = self._timing_queue()
            self._place({})
            for _ in range(count):
                events: list[tuple[int, Any]] = []
                for number, step in in_order(self.plan):
                    if self._calls[number] is not None:
                        self._enqueue(number, step, queue, events)
                queue.finish()
                seconds.append(1e-9 * sum(e.profile.end - e.profile.start for _, e in events))
        return seconds

    @contextmanager
    def _running(self, inputs: Mapping[str, Any] = NONE, outputs: Mapping[str, Any] = NONE) -> Iterator[None]:
        """Run a block that enqueues launches and waits. If it ends early, the next block first resets the counters to zero.

        It may use ``inputs`` and ``outputs`` of the caller. None of them is kept.
        """
        require_context(inputs, "input", self._context)
        require_context(outputs, "output", self._context)
        with self._shared.lock, opencl.failing(f"{self.device.name.strip()}: the run failed: ", "GPC5006"):
            self._bind()
            if self._broken:
                self._mend()
            self._broken = True
            try:
                yield
            except self._cl.Error:
                forget(self._context)  # the device may have given it up
                raise
            finally:
                for position, own in self._elsewhere.items():
                    self._buffers[position] = own
            self._broken = False

    def _mend(self) -> None:
        """Reset the counters: a launch that the device gave up may have left them at any value."""
        for queue in (self._queue, self._timed):
            if queue is not None:
                queue.finish()  # launches of the failed run may still be running
        for buffer, memory in zip(self.plan.buffers, self._buffers, strict=True):
            if buffer.kind == COUNTER:
                self._zero(memory, buffer)

    @cached_property
    def _uses(self) -> dict[int, list[tuple[int, int]]]:
        return uses_of(self.plan, self._strings)

    def _place(self, places: Mapping[int, Any]) -> None:
        """Let inputs and outputs of a run lie in the memory of ``places``, and in the program's own buffers else."""
        for position in self._held - places.keys():
            self._held.discard(position)
            self._buffers[position] = self._allocate(self.plan.buffers[position].nbytes, INPUT)
            self._elsewhere[position] = self._buffers[position]  # which kernels do not have yet
        changed = {position: self._buffers[position] for position in (*self._elsewhere, *places)}
        self._elsewhere = changed
        for position, own in changed.items():
            self._buffers[position] = memory = places.get(position, own)
            for number, index in self._uses[position]:
                self._calls[number][0].set_arg(index, memory)
        self._elsewhere = {position: changed[position] for position in places}

    def _enqueue(self, number: int, step: int, queue: Any, events: list[tuple[int, Any]] | None) -> None:
        """Enqueue launch ``number``, in a loop for ``step``."""
        cl, slices = self._cl, self._moving.get(number, ())
        for one in slices:
            if one.moved.read:
                at, nbytes = one.place(step)
                whole = self._buffers[one.position]
                copy(queue, one.memory, whole, byte_count=nbytes, src_offset=at, dst_offset=0)
        event = cl.enqueue_nd_range_kernel(queue, *self._calls[number])
        if events is not None:
            events.append((number, event))
        for one in slices:
            if one.moved.written:
                at, nbytes = one.place(step)
                whole = self._buffers[one.position]
                copy(queue, whole, one.memory, byte_count=nbytes, src_offset=0, dst_offset=at)

    def _run(
        self,
        inputs: Mapping[str, Any],
        queue: Any,
        events: list[tuple[int, Any]] | None,
        how: Options = PLAIN,
    ) -> dict[str, Any]:
        plan = self.plan
        self._strings.bind(plan, inputs)
        results = results_of(plan, self._strings, how, self.queue)
        places, written = places_of(plan, self._uses, inputs, results, self.device)
        self._place(places)
        finish((*inputs.values(), *how.outputs.values()), queue)
        sent = self._upload(inputs, places, queue)  # kept until the queue has copied it
        for enqueued, (number, step) in enumerate(in_order(plan), 1):
            if self._calls[number] is None:
                self._run_host(plan.launches[number], queue)
            else:
                self._enqueue(number, step, queue, events)
            if enqueued % FLUSHED == 0:
                queue.flush()
                if how.stop is not None:  # what is enqueued runs to its end: no more than this is
                    queue.finish()
                    how.stop.check()
        self._receive(results, written, queue)
        del sent
        return results

    def _upload(self, inputs: Mapping[str, Any], places: Container[int], queue: Any) -> list[np.ndarray]:
        """Copy the inputs to where they are not yet. The caller must keep the returned arrays until the queue has copied them."""
        sent: list[np.ndarray] = []
        for position in self.plan.inputs:
            buffer, memory = self.plan.buffers[position], self._buffers[position]
            if not buffer.nbytes or position in places:
                continue
            given = inputs[buffer.name]
            if not isinstance(given, np.ndarray):
                copied = {"byte_count": buffer.nbytes, "src_offset": given.offset, "dst_offset": 0}
                copy(queue, memory, given.base_data, **copied)
            elif self._mapped:
                # the queue is empty when a run begins, so this does not wait
                view, mapping = mapped(queue, memory, buffer.nbytes, written=True)
                view[...] = bytes_of(given)
                mapping.release()
            else:
                sent.append(bytes_of(given))
                copy(queue, memory, sent[-1], is_blocking=False)
        return sent

    def _receive(self, results: dict[str, Any], written: Container[str], queue: Any) -> None:
        """Fill ``results``, but for those that kernels have ``written``, after everything launched so far."""
        others: list[tuple[str, int]] = []
        for name, position in zip(self.plan.output_names, self.plan.outputs, strict=True):
            array, nbytes = results[name], self.plan.buffers[position].nbytes
            if array is None or isinstance(array, np.ndarray):
                others.append((name, position))
            elif nbytes and name not in written:
                copied = {"byte_count": nbytes, "src_offset": 0, "dst_offset": array.offset}
                copy(queue, array.base_data, self._buffers[position], **copied)
        arrays = self._download([position for _, position in others], queue, [results[name] for name, _ in others])
        results.update(zip((name for name, _ in others), arrays, strict=True))

    def _download(
        self, positions: Sequence[int], queue: Any, into: Sequence[np.ndarray | None] | None = None
    ) -> list[np.ndarray]:
        """The contents of the buffers, in fresh arrays or in those of ``into``, after everything launched so far."""
        arrays: list[np.ndarray] = []
        views = []
        for position, given in zip(positions, into or [None] * len(positions), strict=True):
            buffer = self.plan.buffers[position]
            arrays.append(np.empty(buffer.shape, NAMED[buffer.dtype].numpy) if given is None else given)
            if position in self._strings:
                arrays[-1][...] = self._strings.arrays[position]
                continue
            if not buffer.nbytes:
                continue
            if self._mapped and buffer.kind in (INPUT, OUTPUT):
                found = mapped(queue, self._buffers[position], buffer.nbytes, written=False)
                views.append((bytes_of(arrays[-1]), *found))
            else:
                copy(queue, bytes_of(arrays[-1]), self._buffers[position], is_blocking=False)
        queue.finish()
        for array, view, mapping in views:
            array[...] = view
            mapping.release()
        return arrays

    def _run_host(self, launch: Launch, queue: Any) -> None:
        # numpy needs the operands now: this is the one synchronisation that a host operator costs
        operands = self._download(launch.args[: launch.inputs], queue)
        results = run_host(self.plan, launch, operands)
        for position, array in zip(launch.args[launch.inputs :], results, strict=True):
            if position in self._strings:
                self._strings.arrays[position] = array
            elif array.nbytes:
                copy(queue, self._buffers[position], bytes_of(array), is_blocking=True)


def _target_of(plan: Plan) -> Target:
    which = plan.target.partition(":")[2]
    return opencl.manifest(which) if which in opencl.FLAVOURS else opencl.resolve(which)
