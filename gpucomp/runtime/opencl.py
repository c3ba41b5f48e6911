"""A plan on an OpenCL device: one in-order queue, arguments set once, no host synchronisation inside a run."""

from __future__ import annotations

import importlib
import operator
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from gpucomp.artifact.open_plan import Sized
from gpucomp.artifact.plan import COUNTER, INPUT, NUMBERS, OUTPUT, TEMP, WEIGHT, Buffer, Launch, Plan
from gpucomp.device.target import Target
from gpucomp.errors import DeviceError, KernelBuildError
from gpucomp.ir.types import NAMED
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.runtime.ceilings import Span
from gpucomp.runtime.host import Strings, check_host, numbers_of, run_host
from gpucomp.runtime.options import PLAIN, Options
from gpucomp.runtime.repeats import Moving, in_order, moving_arguments
from gpucomp.runtime.shared_buffers import share
from gpucomp.targets import opencl, opencl_build
from gpucomp.targets.cache import open_cache

FLUSHED = 16  # launches after which the queue is flushed: otherwise Mali and Adreno do not start before the last one


@dataclass(frozen=True)
class _Slice:
    """Memory for the part of ``whole`` that a step of a loop reads or writes."""

    whole: Any
    memory: Any
    moved: Moving

    def place(self, step: int) -> tuple[int, int]:
        """Where it begins in ``whole``, and its size, in bytes."""
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
                self._context = cl.Context([self.device])
                self.queue: Any = cl.CommandQueue(self._context)  # that of the arrays which callers get
                self._queue = self.queue
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
            self._moving: dict[int, list[_Slice]] = {}
            self._own: dict[int, Any] = {}  # buffers for inputs and outputs that nobody gave one for
            self._users: dict[int, list[tuple[int, int]]] = {}
            for number, launch in enumerate(plan.launches):
                for index, position in enumerate(launch.args):
                    self._users.setdefault(position, []).append((number, index))
            self._buffers = self._memory(weights, like)
            self._calls = [self._call(number, launch) for number, launch in enumerate(plan.launches)]
            if like is None or apart:
                self._bind({})
                self._queue.finish()

    def resized(self, sized: Sized) -> OpenCLProgram:
        """The program of the same model at other sizes, which shares what this one has opened."""
        return OpenCLProgram(sized.plan, {}, {}, self._weights, like=self)

    def beside(self) -> OpenCLProgram:
        """The same program in a queue and memory of its own. Built programs and weights are shared."""
        return OpenCLProgram(self.plan, {}, {}, self._weights, like=self, apart=True)

    # ---- opening ----

    def _memory(self, weights: Mapping[str, np.ndarray], like: OpenCLProgram | None) -> list[Any]:
        """A device buffer for each buffer of the plan; ``None`` for temporaries, inputs and outputs, see ``_bind``."""
        buffers = []
        for position, buffer in enumerate(self.plan.buffers):
            if like is not None and buffer.kind == WEIGHT:
                buffers.append(like._buffers[position])
                continue
            if (buffer.kind == TEMP and buffer.nbytes) or buffer.kind in (INPUT, OUTPUT):
                buffers.append(None)
                continue
            memory = self._allocate(buffer.nbytes, buffer.kind)
            if buffer.kind == WEIGHT and buffer.nbytes:
                self._cl.enqueue_copy(self._queue, memory, _bytes(weights[buffer.name]), is_blocking=True)
            if buffer.kind == NUMBERS and buffer.nbytes:
                self._cl.enqueue_copy(self._queue, memory, _bytes(numbers_of(buffer)), is_blocking=True)
            if buffer.kind == COUNTER:
                self._zero(memory, buffer)
            buffers.append(memory)
        return buffers

    def _bind(self, given: Mapping[int, Any]) -> None:
        """Let the temporaries lie in the arena, which may have been replaced by a larger one, and set the kernels' arguments,
        which may be those of another program. ``given`` has buffers for inputs and outputs.

        Temporaries are parts of one buffer if the device allows that.
        """
        memory, shared = self._grown(), self._shared
        changed = [k for k, buffer in self._inputs_and_outputs(given).items() if self._put(k, buffer)]
        if memory is not self._bound_to:
            for position, (number, start) in self._places.items():
                whole, nbytes = memory[number], self.plan.buffers[position].nbytes
                self._buffers[position] = whole if start is None else whole.get_sub_region(start, nbytes)
        elif shared.bound is not None and shared.bound() is self:
            for number, index in (user for position in changed for user in self._users.get(position, ())):
                if (call := self._calls[number]) is not None:
                    call[0].set_arg(index, self._buffers[self.plan.launches[number].args[index]])
            if changed and self._moving:
                self._moving = self._slices()
            return
        self._bound_to, shared.bound = memory, weakref.ref(self)
        for launch, call in zip(self.plan.launches, self._calls, strict=True):
            if call is not None:
                numbers = map(np.int64, self.plan.kernels[launch.kernel].numbers)
                call[0].set_args(*(self._buffers[a] for a in launch.args), *numbers)
        self._moving = self._slices()

    def _put(self, position: int, buffer: Any) -> bool:
        """Use ``buffer`` at ``position``; whether that is another one than before."""
        changed = self._buffers[position] is not buffer
        self._buffers[position] = buffer
        return changed

    def _inputs_and_outputs(self, given: Mapping[int, Any]) -> dict[int, Any]:
        """A buffer for each input and output: those that are ``given``, and of this program's own."""
        found = dict(given)
        for position, buffer in enumerate(self.plan.buffers):
            if buffer.kind in (INPUT, OUTPUT) and position not in found:
                if position not in self._own:
                    self._own[position] = self._allocate(buffer.nbytes, buffer.kind)
                found[position] = self._own[position]
        return found

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
                one = _Slice(self._buffers[launch.args[moved.index]], self._allocate(abs(moved.advance)), moved)
                found.setdefault(number, []).append(one)
                self._calls[number][0].set_arg(moved.index, one.memory)
        return found

    # ---- running ----

    def run(self, inputs: Mapping[str, Any], how: Options = PLAIN) -> dict[str, Any]:
        """The outputs, in fresh arrays or in those of ``how.outputs``. ``inputs`` must be complete, and as the plan has them.

        Arrays of ``zeros`` are used where they lie.
        """
        positions = {
            name: k for k, name in zip(reversed(self.plan.outputs), reversed(self.plan.output_names), strict=True)
        }
        arrays = {self.plan.buffers[k].name: k for k in self.plan.inputs}
        given = {arrays[n]: a.base_data for n, a in inputs.items() if not isinstance(a, np.ndarray)}
        given |= {positions[n]: a.base_data for n, a in how.outputs.items() if not isinstance(a, np.ndarray)}
        with self._running(given):
            return self._run(inputs, self._alone(self._queue), None, how)

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        """A fresh ``pyopencl.array.Array`` of zeros in the program's context, complete. Raises ``DeviceError`` (GPC5004)."""
        with opencl.failing(f"{self.device.name.strip()}: ", "GPC5004"):
            array = importlib.import_module("pyopencl.array").zeros(self._queue, tuple(shape), np.dtype(dtype))
            array.finish()
        return array.with_queue(self.queue)

    def profile(self, inputs: Mapping[str, np.ndarray]) -> list[float]:
        """Seconds of each launch in one run, by the device's clock; 0 for host operators."""
        return self.timeline(inputs)[0]

    def ceilings(self) -> None:
        """Not measured: a device's peaks are in its data sheet, and its clock varies with load."""
        return

    def timeline(self, inputs: Mapping[str, np.ndarray]) -> tuple[list[float], list[Span]]:
        """The seconds of ``profile``, and a span for each kernel on the device's clock, from the start of the first one."""
        events: list[tuple[int, Any]] = []
        with self._running():
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
            for _ in range(count):
                events: list[tuple[int, Any]] = []
                for number, step in in_order(self.plan):
                    if self._calls[number] is not None:
                        self._enqueue(number, step, queue, events)
                queue.finish()
                seconds.append(1e-9 * sum(e.profile.end - e.profile.start for _, e in events))
        return seconds

    @contextmanager
    def _running(self, given: Mapping[int, Any] = MappingProxyType({})) -> Iterator[None]:
        """Run a block that enqueues launches and waits. If it ends early, the next block first resets the counters to zero.

        ``given`` has buffers for inputs and outputs, by their positions.
        """
        with self._shared.lock, opencl.failing(f"{self.device.name.strip()}: the run failed: ", "GPC5006"):
            self._bind(given)
            if self._broken:
                self._mend()
            self._broken = True
            yield
            self._broken = False

    def _mend(self) -> None:
        """Reset the counters: a launch that the device gave up may have left them at any value."""
        for queue in (self._queue, self._timed):
            if queue is not None:
                queue.finish()  # launches of the failed run may still be running
        for buffer, memory in zip(self.plan.buffers, self._buffers, strict=True):
            if buffer.kind == COUNTER:
                self._zero(memory, buffer)

    def _enqueue(self, number: int, step: int, queue: Any, events: list[tuple[int, Any]] | None) -> None:
        """Enqueue launch ``number``, in a loop for ``step``."""
        cl, slices = self._cl, self._moving.get(number, ())
        for one in slices:
            if one.moved.read:
                at, nbytes = one.place(step)
                cl.enqueue_copy(queue, one.memory, one.whole, byte_count=nbytes, src_offset=at, dst_offset=0)
        event = cl.enqueue_nd_range_kernel(queue, *self._calls[number])
        if events is not None:
            events.append((number, event))
        for one in slices:
            if one.moved.written:
                at, nbytes = one.place(step)
                cl.enqueue_copy(queue, one.whole, one.memory, byte_count=nbytes, src_offset=0, dst_offset=at)

    def _run(
        self,
        inputs: Mapping[str, np.ndarray],
        queue: Any,
        events: list[tuple[int, Any]] | None,
        how: Options = PLAIN,
    ) -> dict[str, np.ndarray]:
        plan = self.plan
        self._strings.bind(plan, inputs)
        sent = self._upload(inputs, queue)  # kept until the queue has copied it
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
        outputs = self._download(plan.outputs, queue, [how.outputs.get(name) for name in plan.output_names])
        del sent
        return dict(zip(plan.output_names, outputs, strict=True))

    def _upload(self, inputs: Mapping[str, np.ndarray], queue: Any) -> list[np.ndarray]:
        """Copy the inputs to the device. The caller must keep the returned arrays until the queue has copied them."""
        cl, plan = self._cl, self.plan
        from_host = [p for p in plan.inputs if isinstance(inputs[plan.buffers[p].name], np.ndarray)]
        sent = {p: _bytes(inputs[plan.buffers[p].name]) for p in from_host if plan.buffers[p].nbytes}
        if not self._mapped:
            for position, data in sent.items():
                self._cl.enqueue_copy(queue, self._buffers[position], data, is_blocking=False)
            return list(sent.values())
        for position, data in sent.items():
            # the queue is empty when a run begins, so this does not wait
            view, mapping = self._map(position, queue, cl.map_flags.WRITE_INVALIDATE_REGION, is_blocking=True)
            view[...] = data
            mapping.release()
        return []

    def _download(self, positions: Sequence[int], queue: Any, into: Sequence[Any] | None = None) -> list[Any]:
        """The contents of the buffers, in fresh arrays or in those of ``into``, after everything launched so far.

        Those of ``into`` that are on the device are the buffers themselves, or copies.
        """
        arrays: list[Any] = []
        views = []
        for position, given in zip(positions, into or [None] * len(positions), strict=True):
            buffer = self.plan.buffers[position]
            arrays.append(np.empty(buffer.shape, NAMED[buffer.dtype].numpy) if given is None else given)
            if position in self._strings:
                arrays[-1][...] = self._strings.arrays[position]
                continue
            if not buffer.nbytes:
                continue
            if not isinstance(arrays[-1], np.ndarray):
                if arrays[-1].base_data is not self._buffers[position]:
                    nbytes = buffer.nbytes
                    self._cl.enqueue_copy(queue, arrays[-1].base_data, self._buffers[position], byte_count=nbytes)
                continue
            if self._mapped and buffer.kind in (INPUT, OUTPUT):
                mapped = self._map(position, queue, self._cl.map_flags.READ, is_blocking=False)
                views.append((_bytes(arrays[-1]), *mapped))
            else:
                self._cl.enqueue_copy(queue, _bytes(arrays[-1]), self._buffers[position], is_blocking=False)
        queue.finish()
        for array, view, mapping in views:
            array[...] = view
            mapping.release()
        return arrays

    def _map(self, position: int, queue: Any, how: int, *, is_blocking: bool) -> tuple[Any, Any]:
        """A view of a buffer's bytes, and the mapping, which the caller must release."""
        nbytes = self.plan.buffers[position].nbytes
        view, _ = self._cl.enqueue_map_buffer(
            queue, self._buffers[position], how, 0, (nbytes,), np.uint8, is_blocking=is_blocking
        )
        return view, view.base

    def _run_host(self, launch: Launch, queue: Any) -> None:
        # numpy needs the operands now: this is the one synchronisation that a host operator costs
        operands = self._download(launch.args[: launch.inputs], queue)
        results = run_host(self.plan, launch, operands)
        for position, array in zip(launch.args[launch.inputs :], results, strict=True):
            if position in self._strings:
                self._strings.arrays[position] = array
            elif array.nbytes:
                self._cl.enqueue_copy(queue, self._buffers[position], _bytes(array), is_blocking=True)


def _target_of(plan: Plan) -> Target:
    which = plan.target.partition(":")[2]
    return opencl.manifest(which) if which in opencl.FLAVOURS else opencl.resolve(which)


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
