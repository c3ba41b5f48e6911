"""A plan on a GPU of CUDA or HIP: buffers, launches, graphs, runs and measuring; what differs is in ``cuda`` and ``hip``.

The second run is captured as a graph, and later runs replay it. Functions of the driver have the names of CUDA's driver API;
``hip_driver`` knows what they are in HIP.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Self

import numpy as np

from gpucomp.artifact.open_plan import Sized
from gpucomp.artifact.plan import COUNTER, NUMBERS, TEMP, WEIGHT, Buffer, CompiledKernel, Launch, Plan
from gpucomp.device import forks
from gpucomp.errors import DeviceError, DeviceLostError
from gpucomp.ir.types import NAMED
from gpucomp.runtime.ceilings import Span
from gpucomp.runtime.copies import FROM_DEVICE, ON_DEVICE, TO_DEVICE, Copies, counted, note_all
from gpucomp.runtime.cuda_driver import Driver, PreparedLaunch, captured
from gpucomp.runtime.cuda_places import (
    ALIGNMENT,
    STICKY,
    Arena,
    Slice,
    destroyed,
    failures,
    held_elsewhere,
    movable,
    places_of,
    released,
    results_of,
    staged,
    zeroed,
)
from gpucomp.runtime.host import Strings, bytes_of, check_host, numbers_of, run_host
from gpucomp.runtime.inputs import stream_of
from gpucomp.runtime.options import PLAIN, Options
from gpucomp.runtime.repeats import Moving, in_order, moving_arguments
from gpucomp.runtime.stopping import Stop

DISABLE_TIMING = 2  # CU_EVENT_DISABLE_TIMING
FIRST_CAPTURED_RUN = 2  # the first run loads code lazily, which is not allowed during a capture
MOST_GRAPHS = 8  # of a program, for different arrays of the caller's; the one captured first goes
MOST_SEEN = 64  # sets of such arrays that are remembered
MOST_CAPTURED = 100_000  # launches in a graph, with those of all steps of loops
SLICE_ALIGNMENT = 16  # bytes that kernels load at once: slices of other sizes are copied to where they are aligned


class GpuProgram(ABC):
    """Loads the plan's kernels and uploads its weights. ``run`` launches the kernels; from the second time it replays a graph.

    ``arrays`` is cupy, or has as much of its interface (``HipArrays``). Raises ``DeviceError`` if a GPU or memory is missing.

    ``like`` is a program of the same model for other sizes. The stream, the kernels, the weights and the arena are shared, and
    runs of both take turns; ``apart``, this one has a stream and an arena of its own, and they run side by side.
    """

    name: str  # of the interface, as messages have it

    def __init__(
        self,
        plan: Plan,
        sources: Mapping[str, str],
        binaries: Mapping[str, bytes],
        weights: Mapping[str, np.ndarray],
        *,
        arrays: Any,
        driver: Driver,
        like: GpuProgram | None = None,
        apart: bool = False,
    ) -> None:
        check_host(plan)
        lane = None if apart else like  # whose stream and arena this one uses too
        cp: Any = arrays
        self._arrays: Any = arrays
        self._driver: Driver = driver
        self.plan, self._weights = plan, weights
        self._like = like  # it owns what is shared
        self._runs = 0
        # by whether launches overlap, and where inputs and outputs lie; with the copies in them
        self._graphs: dict[tuple[Any, ...], tuple[Any, Copies]] = {}
        self._seen: dict[tuple[int, ...], None] = {}  # where they lay
        self._kept: Any = None  # arrays that the device may still use
        self._in_flight = False
        self._lost = ""
        self._broken = False  # the last run did not finish: counters may hold anything
        self._uploading: list[np.ndarray] = []  # arrays that the stream may still have to read
        self._owned = ExitStack()
        self._enter(like)
        with self._failing("", "GPC5005"):
            if like is None:
                self._check_device(binaries)
            with self._device:
                self._stream: Any = cp.cuda.Stream(non_blocking=True) if lane is None else lane._stream
        stream = self._stream
        memory: list[Any] = []  # keeps it alive; cupy pools memory by stream, so no other program would reuse it
        if lane is None:
            self._owned.callback(lambda: cp.get_default_memory_pool().free_all_blocks(stream=stream))
        self._arena: Arena = Arena() if lane is None else lane._arena
        if lane is None:
            self._owned.callback(self._arena.memory.clear)
        self._owned.callback(memory.clear)
        self._allocated = memory
        with self._current("", "GPC5005"):
            self._open(sources, binaries)
        self._owned.callback(driver, "cuStreamSynchronize", stream.ptr)

    def _open(self, sources: Mapping[str, str], binaries: Mapping[str, bytes]) -> None:
        """Allocate and fill the buffers, and load the kernels."""
        plan, weights = self.plan, self._weights
        self._strings = Strings(plan, weights)
        self._bound_to = 0  # the address of the arena that the temporaries lie in
        self._uses = movable(plan, self._strings)
        elsewhere = held_elsewhere(plan, self._uses)
        some = self._allocate(ALIGNMENT) if elsewhere else 0  # for tensor maps, until the address is known
        self._memory = [some if k in elsewhere else self._buffer(k, b, weights) for k, b in enumerate(plan.buffers)]
        self._own = {position: 0 if position in elsewhere else self._memory[position] for position in self._uses}
        self._event = self._driver("cuEventCreate", DISABLE_TIMING)
        self._owned.callback(self._driver, "cuEventDestroy", self._event)
        self._staged_inputs = staged(plan, [k for k in plan.inputs if k not in elsewhere], self._arrays)
        self._staged_outputs = staged(plan, plan.outputs, self._arrays)
        made: dict[str, Any] = {}
        if self._like is None:
            made = {kernel.name: self._function(kernel, sources, binaries) for kernel in plan.kernels}
        self._functions: dict[str, Any] = made if self._like is None else self._like._functions
        self._owned.callback(destroyed, self._driver, self._graphs)
        self._bind()
        self._never_captured = None in self._launches or sum(plan.counts()) > MOST_CAPTURED
        self._wait()

    # ---- what CUDA and HIP differ in ----

    @abstractmethod
    def _check_device(self, binaries: Mapping[str, bytes]) -> None:
        """Raise ``DeviceError`` (GPC5008) if the device cannot run what the plan was compiled for."""

    @abstractmethod
    def _retain(self, device: Any) -> Any:
        """The context of the device, for ``Driver.current``. What it needs in the end is put into ``_owned``."""

    @property
    @abstractmethod
    def driver(self) -> str:
        """Names and versions of the driver and the device."""

    @abstractmethod
    def _function(self, kernel: CompiledKernel, sources: Mapping[str, str], binaries: Mapping[str, bytes]) -> Any:
        """Load a kernel, and unload it with ``_owned``. Raises ``DeviceError``."""

    @abstractmethod
    def _prepared(self, kernel: CompiledKernel, addresses: Sequence[int]) -> PreparedLaunch:
        """A launch of ``kernel`` on buffers at these addresses."""

    @abstractmethod
    def _moved(self, launch: int, index: int, address: int) -> None:
        """Change what else a launch is given when its argument ``index`` lies at ``address``."""

    # ---- opening and closing ----

    def resized(self, sized: Sized) -> Self:
        """The program of the same model at other sizes, which shares what this one has opened."""
        return self._another(sized.plan)

    def beside(self) -> Self:
        """The same program in a stream and memory of its own. Kernels and weights are shared."""
        return self._another(self.plan, apart=True)

    def _another(self, plan: Plan, *, apart: bool = False) -> Self:
        made: Callable[..., Self] = type(self)  # each kind takes its own modules besides
        return made(plan, {}, {}, self._weights, like=self, apart=apart)

    def _enter(self, like: GpuProgram | None) -> None:
        """Retain the context of the device, until everything is freed that the program owns."""
        with self._failing("", "GPC5005"):
            # the current device, also for later runs from threads with another one
            device: Any = self._arrays.cuda.Device() if like is None else like._device
            self._device: Any = device
            self._arrays.cuda.runtime.setDevice(device.id)  # which also initialises the driver
            self._context = self._retain(device)
        self._close = weakref.finalize(self, released, self._arrays, self._driver, device, self._context, self._owned)
        self._close.atexit = False  # the end of the process frees everything

    def close(self) -> None:
        """Free everything on the device; nothing can be run afterwards. Otherwise this happens when the object is deleted."""
        self._close()

    @contextmanager
    def _failing(self, what: str, code: str) -> Iterator[None]:
        """Turn errors of the driver in the block into ``DeviceError``, or ``DeviceLostError`` if the context is lost."""
        forks.use_gpu()
        if self._lost:
            raise DeviceLostError(self._lost, code="GPC5201")
        try:
            yield
        except failures(self._arrays) as error:
            if getattr(error, "status", None) not in STICKY:
                raise DeviceError(f"{self.name}: {what}{error}", code=code) from error
            self._lost = f"{self.name}: {what}{error}; the GPU no longer answers this process: start it anew"
            raise DeviceLostError(self._lost, code="GPC5201") from error

    @contextmanager
    def _current(self, what: str, code: str) -> Iterator[None]:
        """Run the block on the program's device and stream, with the errors of ``_failing``."""
        with self._failing(what, code), self._device, self._driver.current(self._context), self._stream:
            yield

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Run a block that launches and waits. If it ends early, the next block first resets the counters to zero."""
        forks.use_gpu()  # before the lock, which a thread may have held that a child does not have
        with self._arena.lock, self._current("the run failed: ", "GPC5006"):
            self._bind()
            if self._broken:
                self._mend()
            self._broken = True
            yield
            self._broken = False

    def _mend(self) -> None:
        """Reset the counters, on the stream, after the launches of the run that failed."""
        for buffer, address in zip(self.plan.buffers, self._memory, strict=True):
            if buffer.kind == COUNTER:
                self._driver("cuMemsetD8Async", address, 0, max(1, buffer.nbytes), self._stream.ptr)

    def _wait(self) -> None:
        self._driver("cuStreamSynchronize", self._stream.ptr)
        self._uploading.clear()
        self._kept, self._in_flight = None, False

    # ---- opening ----

    def _allocate(self, nbytes: int) -> int:
        """Allocate memory from cupy's pool for the life of the program; return its address."""
        memory = self._arrays.cuda.alloc(max(1, nbytes))
        self._allocated.append(memory)
        return int(memory.ptr)

    def _buffer(self, position: int, buffer: Buffer, weights: Mapping[str, np.ndarray]) -> int:
        """The buffer's address; that of a temporary is known once ``_bind`` was called."""
        if buffer.kind == TEMP and buffer.nbytes:
            return 0
        if self._like is not None and buffer.kind == WEIGHT:
            return self._like._memory[position]
        address = self._allocate(buffer.nbytes)
        if buffer.kind == COUNTER:
            self._driver("cuMemsetD8Async", address, 0, max(1, buffer.nbytes), self._stream.ptr)
        if buffer.kind == WEIGHT and buffer.nbytes:
            self._upload(buffer, address, bytes_of(weights[buffer.name]))
        if buffer.kind == NUMBERS and buffer.nbytes:
            self._upload(buffer, address, bytes_of(numbers_of(buffer)))
        return address

    def _upload(self, buffer: Buffer, address: int, array: np.ndarray) -> None:
        """Enqueue a copy to the device. It is complete after ``_wait``; until then ``array`` must not change."""
        assert array.nbytes == buffer.nbytes, "bytes of another buffer"
        self._uploading.append(array)
        self._driver.copy(TO_DEVICE, address, array.ctypes.data, array.nbytes, self._stream.ptr)

    def _download(self, array: np.ndarray, address: int) -> None:
        """Enqueue a copy from the device. It is complete after ``_wait``."""
        self._driver.copy(FROM_DEVICE, array.ctypes.data, address, array.nbytes, self._stream.ptr)

    def _bind(self) -> None:
        """Let the temporaries lie in the arena, which may have been replaced by a larger one, and prepare the launches."""
        address = self._arena.of(self.plan.arena_bytes, self._arrays.cuda.alloc)
        if address == self._bound_to:
            return
        self._bound_to = address
        for position, buffer in enumerate(self.plan.buffers):
            if buffer.kind == TEMP and buffer.nbytes:
                self._memory[position] = address + buffer.offset
        self._launches = self._prepare()
        self._moving: dict[int, list[Slice]] = {}
        for one in self._slices:
            self._moving.setdefault(one.launch, []).append(one)
        destroyed(self._driver, self._graphs)  # they have the old addresses

    def _prepare(self) -> list[PreparedLaunch | None]:
        """The plan's launches, prepared; ``None`` for a host operator. Notes the parts of buffers that loops move along."""
        launches: list[PreparedLaunch | None] = []
        self._slices: list[Slice] = []
        for number, launch in enumerate(self.plan.launches):
            if launch.kernel < 0:
                launches.append(None)
                continue
            kernel = self.plan.kernels[launch.kernel]
            addresses = [self._memory[a] for a in launch.args]
            self._slices += [
                self._slice(number, kernel, moved, addresses) for moved in moving_arguments(self.plan, number)
            ]
            launches.append(self._prepared(kernel, addresses))
        return launches

    def _slice(self, launch: int, kernel: CompiledKernel, moved: Moving, addresses: list[int]) -> Slice:
        """How an argument advances in a loop: by its address, or by copies where kernels need an alignment."""
        base, copied = addresses[moved.index], 0
        if moved.advance % SLICE_ALIGNMENT or any(m.parameter == moved.index for m in kernel.tensor_maps):
            copied = addresses[moved.index] = self._allocate(abs(moved.advance))
        return Slice(launch, moved, base, copied)

    # ---- running ----

    def run(self, inputs: Mapping[str, Any], how: Options = PLAIN) -> dict[str, Any]:
        """The outputs, in fresh arrays or in those of ``how.outputs``.

        ``inputs`` must be complete, of the right type and contiguous. Arrays in the device's memory are used where they are if
        they begin at a multiple of ``ALIGNMENT``, and copied on the device else.
        """
        plan = self.plan
        current = self._arrays.cuda.get_current_stream().ptr if how.stream is None else stream_of(how.stream)
        with self._running():
            if how.stop is not None:
                how.stop.check()
            if how.on_device or how.outputs or how.stream is not None:
                self._wait_for(current)  # the caller's arrays, and memory that was one's, may still be in use there
            with self._arrays.cuda.ExternalStream(current):  # whose pool gives memory for results, and gets it back
                results, places = results_of(plan, self._uses, how, self._arrays)
            self._place(places_of(plan, self._uses, inputs, self._arrays) | places)
            self._send(inputs)
            self._execute(how.stop)
            self._receive(results, how)
            if self._in_flight:
                self._kept = inputs, results  # until the device has done with them
            if how.stop is not None:
                how.stop.check()
            return results

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        """A fresh cupy array of zeros, complete. Raises ``DeviceError``: GPC5004 without memory, GPC5019 without such a type."""
        current = self._arrays.cuda.get_current_stream().ptr  # whose pool gives the memory, and gets it back
        with self._current("", "GPC5004"), self._arrays.cuda.ExternalStream(current):
            return zeroed(self._arrays, self._driver, shape, np.dtype(dtype))

    def tried(self, number: int, given: Mapping[int, np.ndarray], wanted: Sequence[int]) -> list[np.ndarray]:
        """See ``self_test.Tried``. No run has placed inputs or outputs elsewhere yet, and states have no memory."""
        with self._running():
            for position, array in given.items():
                self._upload(self.plan.buffers[position], self._memory[position], bytes_of(array))
            self._launch(number, 0, overlap=False)
            return self._read(wanted, {})

    # ---- where inputs and outputs lie ----

    def _place(self, places: Mapping[int, int]) -> None:
        """Let inputs and outputs lie at the addresses in ``places``, and in the program's own buffers else."""
        for position, own in self._own.items():
            address = places.get(position, own)
            if not address:
                address = self._own[position] = self._allocate(self.plan.buffers[position].nbytes)
            if address == self._memory[position]:
                continue
            self._memory[position] = address
            for number, index in self._uses[position]:
                launch = self._launches[number]
                assert launch is not None, "a host operator uses no address"
                launch.set_address(index, address)
                self._moved(number, index, address)

    def _wait_for(self, stream: int) -> None:
        """Let this program's stream go on when ``stream`` has done what it was given so far."""
        self._driver("cuEventRecord", self._event, stream)
        self._driver("cuStreamWaitEvent", self._stream.ptr, self._event, 0)

    def _let_wait(self, stream: int) -> None:
        """Let ``stream`` go on when this program's stream has done what it was given so far."""
        self._driver("cuEventRecord", self._event, self._stream.ptr)
        self._driver("cuStreamWaitEvent", stream, self._event, 0)

    # ---- measuring ----

    def profile(self, inputs: Mapping[str, Any]) -> list[float]:
        """Seconds of each launch in one run, measured by events around it; 0 for host operators."""
        return self.timeline(inputs)[0]

    def ceilings(self) -> None:
        """Not measured here: ``python -m bench.gpu probe`` measures a GPU."""
        return

    def timeline(self, inputs: Mapping[str, Any]) -> tuple[list[float], list[Span]]:
        """The seconds of ``profile``, and a span for each kernel by the events' clock, from the start of the first one."""
        cp = self._arrays
        marks: list[Any] = []
        with self._running():
            self._place({})
            self._send(inputs)
            for number, step in in_order(self.plan):
                start, end = cp.cuda.Event(), cp.cuda.Event()
                start.record(self._stream)
                self._launch(number, step)
                end.record(self._stream)
                if self._launches[number] is not None:
                    marks.append((number, start, end))
            self._wait()
            times = [0.0] * len(self.plan.launches)
            spans: list[Span] = []
            for number, start, end in marks:
                begin = 1e-3 * cp.cuda.get_elapsed_time(marks[0][1], start) if spans else 0.0
                seconds = 1e-3 * cp.cuda.get_elapsed_time(start, end)
                times[number] += seconds
                spans.append(Span(number, 0, begin, begin + seconds))
        return times, spans

    def time_replays(self, count: int, *, overlap: bool = True) -> list[float]:
        """Seconds of each of ``count`` replays of the graph on the last run's inputs, without transfers.

        Without ``overlap``, every kernel of the graph starts after the one before it has ended. This matters where one kernel
        is launched many times over: overlapping launches show its throughput, others its latency.
        Two runs must come before, which capture the graph. The result is empty for a plan with host operators.
        """
        cp = self._arrays
        if not self._graphs:
            return []
        seconds = []
        with self._running():
            self._place({})
            graph, _ = self._captured(overlap)
            for _ in range(count):
                start, end = cp.cuda.Event(), cp.cuda.Event()
                start.record(self._stream)
                self._driver("cuGraphLaunch", graph, self._stream.ptr)
                end.record(self._stream)
                end.synchronize()
                seconds.append(1e-3 * cp.cuda.get_elapsed_time(start, end))
        return seconds

    def _send(self, inputs: Mapping[str, Any]) -> None:
        self._strings.bind(self.plan, inputs)
        for position in self.plan.inputs:
            buffer, address = self.plan.buffers[position], self._memory[position]
            if not buffer.nbytes:
                continue
            given = inputs[buffer.name]
            if isinstance(given, np.ndarray):
                if self._in_flight:  # the run before may not have read what was staged for it
                    self._wait()
                array = bytes_of(given)
                if (staged := self._staged_inputs.get(position)) is not None:
                    staged[:] = array
                    array = staged
                self._upload(buffer, address, array)
            else:
                source = int(self._arrays.asarray(given).data.ptr)
                if source != address:
                    self._driver.copy(ON_DEVICE, address, source, buffer.nbytes, self._stream.ptr)

    def _execute(self, stop: Stop | None) -> None:
        """Run the launches: one by one in the first run, on arrays not seen before and with host operators, else as a graph.

        ``stop`` may end them before a host operator, which waits for the device. A graph runs to its end.
        """
        self._runs += 1
        lie = self._lie()
        again = lie in self._seen
        self._seen[lie] = None
        if len(self._seen) > MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        if self._never_captured or self._runs < FIRST_CAPTURED_RUN or not again:
            self._launch_all(stop=stop)
        else:
            graph, inside = self._captured(overlap=True)
            note_all(inside)
            self._driver("cuGraphLaunch", graph, self._stream.ptr)

    def _captured(self, overlap: bool) -> tuple[Any, Copies]:
        """The graph of all launches on inputs and outputs where they are now, captured once, and the copies in it."""
        key = overlap, *self._lie()
        if key not in self._graphs:
            with counted() as inside:
                graph = captured(self._driver, self._stream.ptr, partial(self._launch_all, overlap))
            if len(self._graphs) >= MOST_GRAPHS:
                self._driver("cuGraphExecDestroy", self._graphs.pop(next(iter(self._graphs)))[0])
            self._graphs[key] = graph, inside
        return self._graphs[key]

    def _lie(self) -> tuple[int, ...]:
        return tuple([self._memory[position] for position in self._own])

    def _launch_all(self, overlap: bool = True, stop: Stop | None = None) -> None:
        for number, step in in_order(self.plan):
            if stop is not None and self._launches[number] is None:
                self._wait()
                stop.check()
            self._launch(number, step, overlap)

    def _launch(self, number: int, step: int, overlap: bool = True) -> None:
        kernel = self._launches[number]
        if kernel is None:
            self._run_host(self.plan.launches[number])
            return
        slices = self._moving.get(number, ())
        for one in slices:
            at = one.base + one.moved.start + step * one.moved.advance
            if not one.copied:
                kernel.set_address(one.moved.index, at)
            elif one.moved.read:
                self._driver.copy(ON_DEVICE, one.copied, at, abs(one.moved.advance), self._stream.ptr)
        kernel(overlap and not any(one.copied for one in slices))
        for one in slices:
            if one.copied and one.moved.written:
                at = one.base + one.moved.start + step * one.moved.advance
                self._driver.copy(ON_DEVICE, at, one.copied, abs(one.moved.advance), self._stream.ptr)

    def _run_host(self, launch: Launch) -> None:
        results = run_host(self.plan, launch, self._read(launch.args[: launch.inputs], {}))
        for position, array in zip(launch.args[launch.inputs :], results, strict=True):
            if position in self._strings:
                self._strings.arrays[position] = array
            elif array.nbytes:
                self._upload(self.plan.buffers[position], self._memory[position], bytes_of(array))

    def _read(self, positions: Sequence[int], staged: Mapping[int, np.ndarray]) -> list[np.ndarray]:
        """The buffers in fresh arrays, after everything launched so far. Those in ``staged`` are copied through that memory."""
        arrays = []
        for position in positions:
            if position in self._strings:
                arrays.append(self._strings.arrays[position])
                continue
            buffer = self.plan.buffers[position]
            memory = staged[position] if position in staged else np.empty(buffer.nbytes, np.uint8)
            if buffer.nbytes:
                self._download(memory, self._memory[position])
            arrays.append(memory.view(NAMED[buffer.dtype].numpy).reshape(buffer.shape))
        self._wait()
        kept = [position in staged or position in self._strings for position in positions]
        return [array.copy() if copied else array for array, copied in zip(arrays, kept, strict=True)]

    def _receive(self, results: dict[str, Any], how: Options) -> None:
        """Fill ``results``. What goes to the device's memory does not pass through the host's, and with a stream of the caller's
        only that waits for it.
        """
        others: list[tuple[str, int]] = []
        for name, position in zip(self.plan.output_names, self.plan.outputs, strict=True):
            array, source = results[name], self._memory[position]
            if array is None or isinstance(array, np.ndarray):
                others.append((name, position))
            elif (nbytes := self.plan.buffers[position].nbytes) and int(array.data.ptr) != source:
                self._driver.copy(ON_DEVICE, int(array.data.ptr), source, nbytes, self._stream.ptr)
        if not others and how.stream is not None:
            self._let_wait(stream_of(how.stream))
            self._in_flight = True
            return
        found = self._read([position for _, position in others], self._staged_outputs)
        for (name, _), array in zip(others, found, strict=True):
            if results[name] is None:
                results[name] = array
            else:
                results[name][...] = array
