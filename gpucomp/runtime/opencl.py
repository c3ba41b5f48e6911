"""A plan on an OpenCL device: one in-order queue, arguments set once, no host synchronisation inside a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gpucomp.codegen.source import KernelSource
from gpucomp.errors import DeviceError
from gpucomp.ir.types import NAMED
from gpucomp.runtime.ceilings import Span
from gpucomp.runtime.host import Strings, check_host, run_host
from gpucomp.runtime.plan import COUNTER, TEMP, WEIGHT, Buffer, Launch, Plan
from gpucomp.schedule.space import Geometry
from gpucomp.targets import opencl
from gpucomp.targets.cache import open_cache
from gpucomp.targets.target import Target


class OpenCLProgram:
    """Opens the plan's device, builds its kernels and uploads its weights; ``run`` then only enqueues.

    Raises ``DeviceError`` when the device or pyopencl is missing, or when memory does not suffice.
    """

    def __init__(
        self,
        plan: Plan,
        sources: Mapping[str, str],
        binaries: Mapping[str, bytes],
        weights: Mapping[str, np.ndarray],
    ) -> None:
        check_host(plan)
        cl = self._cl = opencl.pyopencl()
        self.plan = plan
        self.device = opencl.device_of(_target_of(plan))
        try:
            self._context = cl.Context([self.device])
            self._queue = cl.CommandQueue(self._context)
            self._timed: Any = None
            self._broken = False  # a run did not come to its end: counters may hold anything
            self._arena = self._allocate(plan.arena_bytes)
            self._strings = Strings(plan, weights)
            self._buffers = [self._buffer(b, weights) for b in plan.buffers]
            programs = self._programs(sources, binaries)
            self._calls = [self._call(launch, programs) for launch in plan.launches]
            self._queue.finish()
        except cl.MemoryError as error:
            need = plan.arena_bytes + sum(b.nbytes for b in plan.buffers if b.kind != TEMP)
            raise DeviceError(f"{self.device.name.strip()}: {need} B do not fit ({error})", code="GPC5004") from error
        except cl.RuntimeError as error:
            raise DeviceError(f"{self.device.name.strip()}: {error}", code="GPC5005") from error

    # ---- opening ----

    def _allocate(self, nbytes: int) -> Any:
        return self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, max(1, nbytes))

    def _buffer(self, buffer: Buffer, weights: Mapping[str, np.ndarray]) -> Any:
        if buffer.kind == TEMP and buffer.nbytes:
            return self._arena.get_sub_region(buffer.offset, buffer.nbytes)
        memory = self._allocate(buffer.nbytes)
        if buffer.kind == WEIGHT and buffer.nbytes:
            self._cl.enqueue_copy(self._queue, memory, _bytes(weights[buffer.name]), is_blocking=True)
        if buffer.kind == COUNTER:
            self._zero(memory, buffer)
        return memory

    def _zero(self, memory: Any, buffer: Buffer) -> None:
        self._cl.enqueue_copy(self._queue, memory, np.zeros(buffer.nbytes, np.uint8), is_blocking=True)

    def _programs(self, sources: Mapping[str, str], binaries: Mapping[str, bytes]) -> list[Any]:
        kernels = []
        for kernel in self.plan.kernels:
            text, binary = sources[kernel.source], bytes(binaries.get(kernel.binary, b""))
            kernels.append((KernelSource(kernel.name, "opencl", text, Geometry(kernel.groups, kernel.items)), binary))
        return opencl.load_all(self._context, self.device, kernels, open_cache())

    def _call(self, launch: Launch, programs: Sequence[Any]) -> Any:
        """A kernel with its arguments set, its global and local sizes; ``None`` for a host operator."""
        if launch.kernel < 0:
            return None
        compiled = self.plan.kernels[launch.kernel]
        kernel = self._cl.Kernel(programs[launch.kernel], compiled.name)
        kernel.set_args(*(self._buffers[a] for a in launch.args))
        size = tuple(g * i for g, i in zip(compiled.groups, compiled.items, strict=True))
        return kernel, size, compiled.items

    # ---- running ----

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs, in fresh arrays. ``inputs`` are complete, of the right type and contiguous."""
        with self._running():
            return self._run(inputs, self._queue, None)

    def profile(self, inputs: Mapping[str, np.ndarray]) -> list[float]:
        """Seconds of each launch in one run, by the device's own clock; 0 for host operators."""
        return self.timeline(inputs)[0]

    def ceilings(self) -> None:
        """Not measured: a device's peaks are in its data sheet, and its clock varies with load."""
        return

    def timeline(self, inputs: Mapping[str, np.ndarray]) -> tuple[list[float], list[Span]]:
        """The same, and a span a kernel on the device's clock, counted from the start of the first one."""
        events: list[Any] = []
        with self._running():
            self._run(inputs, self._timing_queue(), events)
        times = [(e.profile.start, e.profile.end) if e is not None else None for e in events]
        first = min((t[0] for t in times if t is not None), default=0)
        spans = [
            Span(launch, 0, 1e-9 * (t[0] - first), 1e-9 * (t[1] - first))
            for launch, t in enumerate(times)
            if t is not None
        ]
        return [1e-9 * (t[1] - t[0]) if t is not None else 0.0 for t in times], spans

    def _timing_queue(self) -> Any:
        if self._timed is None:
            properties = self._cl.command_queue_properties.PROFILING_ENABLE
            self._timed = self._cl.CommandQueue(self._context, properties=properties)
        return self._timed

    def time_launches(self, inputs: Mapping[str, np.ndarray], count: int, *, warm: bool = True) -> list[float]:
        """Seconds of each of ``count`` executions of all launches on the same memory, by the device's own clock.

        One before them warms up and brings the inputs; without ``warm`` a run has. Raises ``DeviceError`` as ``run``.
        """
        if warm:
            self.profile(inputs)
        queue, seconds = self._timing_queue(), []
        with self._running():
            for _ in range(count):
                calls = [call for call in self._calls if call is not None]
                events = [self._cl.enqueue_nd_range_kernel(queue, *call) for call in calls]
                queue.finish()
                seconds.append(1e-9 * sum(e.profile.end - e.profile.start for e in events))
        return seconds

    @contextmanager
    def _running(self) -> Iterator[None]:
        """The block enqueues launches and waits for them. Whatever ends it early, the next one finds counters of zero."""
        cl = self._cl
        try:
            if self._broken:
                self._mend()
            self._broken = True
            yield
            self._broken = False
        except (cl.RuntimeError, cl.LogicError, cl.MemoryError) as error:
            raise DeviceError(f"{self.device.name.strip()}: the run failed: {error}", code="GPC5006") from error

    def _mend(self) -> None:
        """Counters as before the first run: a launch that the device gave up has left them in the midst of counting."""
        for queue in (self._queue, self._timed):
            if queue is not None:
                queue.finish()  # launches of the run that broke off may still be on their way
        for buffer, memory in zip(self.plan.buffers, self._buffers, strict=True):
            if buffer.kind == COUNTER:
                self._zero(memory, buffer)

    def _run(self, inputs: Mapping[str, np.ndarray], queue: Any, events: list[Any] | None) -> dict[str, np.ndarray]:
        cl, plan = self._cl, self.plan
        self._strings.bind(plan, inputs)
        sent = []
        for position in plan.inputs:
            buffer = plan.buffers[position]
            if buffer.nbytes:
                sent.append(_bytes(inputs[buffer.name]))  # kept until the queue has taken it
                cl.enqueue_copy(queue, self._buffers[position], sent[-1], is_blocking=False)
        for launch, call in zip(plan.launches, self._calls, strict=True):
            if call is None:
                self._run_host(launch, queue)
                event = None
            else:
                kernel, size, items = call
                event = cl.enqueue_nd_range_kernel(queue, kernel, size, items)
            if events is not None:
                events.append(event)
        outputs = {}
        for name, position in zip(plan.output_names, plan.outputs, strict=True):
            outputs[name] = self._download(position, queue)
        queue.finish()
        return outputs

    def _download(self, position: int, queue: Any) -> np.ndarray:
        """Enqueues the copy; the array is complete when the queue is finished."""
        if position in self._strings:
            return self._strings.arrays[position].copy()
        buffer = self.plan.buffers[position]
        array = np.empty(buffer.shape, NAMED[buffer.dtype].numpy)
        if buffer.nbytes:
            self._cl.enqueue_copy(queue, _bytes(array), self._buffers[position], is_blocking=False)
        return array

    def _run_host(self, launch: Launch, queue: Any) -> None:
        operands = [self._download(a, queue) for a in launch.args[: launch.inputs]]
        queue.finish()  # numpy needs the operands here: the one synchronisation that a host operator costs
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
