"""A plan on a CUDA device, through cupy: cubins loaded as they are, one stream, the second run captured and replayed.

A device of a newer generation than the cubins gets their PTX, which its driver compiles when it is loaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from gpucomp.codegen.source import KernelSource
from gpucomp.errors import DeviceError, DeviceLostError
from gpucomp.ir.types import NAMED
from gpucomp.runtime.ceilings import Span
from gpucomp.runtime.cuda_driver import OverlappingLaunch, encoded, import_driver
from gpucomp.runtime.host import Strings, check_host, run_host
from gpucomp.runtime.plan import COUNTER, TEMP, WEIGHT, Buffer, CompiledKernel, Launch, Plan
from gpucomp.schedule.space import Geometry
from gpucomp.targets.cuda import architecture_for, compiles_ptx, ptx_name, runs_on

FIRST_CAPTURED_RUN = 2  # the first run loads code lazily, which a capture may not see
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76  # cudaDevAttrComputeCapabilityMajor, ...Minor
SHARED_BYTES = 97  # cudaDevAttrMaxSharedMemoryPerBlockOptin
# errors after which every call of the process fails: memory that cannot be corrected (214, 220, 226), an access, an
# instruction or an assertion of a kernel (700, 710, 714 to 719, 721), a launch that was killed (702), a lost context
STICKY = frozenset({214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721})

Call = OverlappingLaunch | partial[None]


class CudaProgram:
    """Loads the plan's cubins and uploads its weights; ``run`` launches, and from the second time on replays a graph.

    ``cupy`` and ``driver`` (``cuda.bindings.driver``) are the modules, for tests that have no GPU. Raises ``DeviceError``
    when one that is needed, a GPU or memory is missing.
    """

    def __init__(
        self,
        plan: Plan,
        sources: Mapping[str, str],
        binaries: Mapping[str, bytes],
        weights: Mapping[str, np.ndarray],
        *,
        cupy: Any = None,
        driver: Any = None,
    ) -> None:
        check_host(plan)
        cp = self._cupy = cupy if cupy is not None else import_cupy()
        self._driver = driver if driver is not None else _driver_for(plan)
        self.plan = plan
        self._runs = 0
        self._graphs: dict[bool, Any] = {}  # by whether launches overlap
        self._lost = ""
        self._broken = False  # a run did not come to its end: counters may hold anything
        with self._failing("", "GPC5005"):
            self._device = cp.cuda.Device()  # the current one; runs from threads that have another come here too
            self._by_ptx = self._needs_ptx(binaries)
            self._stream = cp.cuda.Stream(non_blocking=True)
        with self._current("", "GPC5005"):
            self._arena = cp.cuda.alloc(max(1, plan.arena_bytes))
            self._strings = Strings(plan, weights)
            self._memory = [self._buffer(b, weights) for b in plan.buffers]
            self._calls = self._prepare(sources, binaries)
            self._stream.synchronize()

    @contextmanager
    def _failing(self, what: str, code: str) -> Iterator[None]:
        """What CUDA raises in the block becomes a ``DeviceError``; ``DeviceLostError`` when it leaves nothing to use."""
        cuda = self._cupy.cuda
        failures = (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError, cuda.memory.OutOfMemoryError)
        if self._lost:
            raise DeviceLostError(self._lost, code="GPC5201")
        try:
            yield
        except failures as error:
            if getattr(error, "status", None) not in STICKY:
                raise DeviceError(f"CUDA: {what}{error}", code=code) from error
            self._lost = f"CUDA: {what}{error}; the GPU answers this process no more: start it anew"
            raise DeviceLostError(self._lost, code="GPC5201") from error

    @contextmanager
    def _current(self, what: str, code: str) -> Iterator[None]:
        """The block runs on the program's device and stream, and fails as ``_failing`` says."""
        with self._failing(what, code), self._device, self._stream:
            yield

    @contextmanager
    def _running(self) -> Iterator[None]:
        """The block launches and waits. Whatever ends it early, the next one finds counters of zero."""
        with self._current("the run failed: ", "GPC5006"):
            if self._broken:
                self._mend()
            self._broken = True
            yield
            self._broken = False

    def _mend(self) -> None:
        """Counters as before the first run, on the stream behind what the run that broke off has launched."""
        for buffer, memory in zip(self.plan.buffers, self._memory, strict=True):
            if buffer.kind == COUNTER:
                memory.fill(0)

    # ---- opening ----

    def _needs_ptx(self, binaries: Mapping[str, bytes]) -> bool:
        """Whether the device loads the plan's PTX instead of its cubins.

        Raises ``DeviceError`` where it loads neither, or gives a kernel less shared memory: the driver says only "invalid".
        """
        attribute, number, arch = self._cupy.cuda.runtime.deviceGetAttribute, self._device.id, self.plan.arch
        major, minor = attribute(CAPABILITY_MAJOR, number), attribute(CAPABILITY_MINOR, number)
        native = runs_on(arch, major, minor)
        what = f"the model is compiled for {arch}, the GPU has compute capability {major}.{minor}"
        by_ptx = all(ptx_name(kernel.binary) in binaries for kernel in self.plan.kernels)
        if not native and not (by_ptx and compiles_ptx(arch, major, minor)):
            raise DeviceError(f"{what}: compile for cuda:{architecture_for(major, minor)}", code="GPC5008")
        needed, there = max((k.shared for k in self.plan.kernels), default=0), attribute(SHARED_BYTES, number)
        if needed > there:
            raise DeviceError(
                f"{what}; a kernel takes {needed} bytes of shared memory, it has {there}: "
                f"compile for cuda:{architecture_for(major, minor)}",
                code="GPC5008",
            )
        return not native

    def _buffer(self, buffer: Buffer, weights: Mapping[str, np.ndarray]) -> Any:
        """The buffer's bytes as a device array; temporaries are views of the arena."""
        cp = self._cupy
        if buffer.kind == TEMP and buffer.nbytes:
            return cp.ndarray((buffer.nbytes,), np.uint8, memptr=self._arena + buffer.offset)
        memory = cp.zeros((max(1, buffer.nbytes),), np.uint8) if buffer.kind == COUNTER else cp.empty(
            (max(1, buffer.nbytes),), np.uint8)  # fmt: skip
        if buffer.kind == WEIGHT and buffer.nbytes:
            memory.set(_bytes(weights[buffer.name]), stream=self._stream)
        return memory

    def _prepare(self, sources: Mapping[str, str], binaries: Mapping[str, bytes]) -> list[Call | None]:
        """A call that makes each launch, on the current stream, which is ours; ``None`` for a host operator."""
        functions = []
        for kernel in self.plan.kernels:
            module = self._cupy.cuda.function.Module()
            if self._by_ptx:
                with self._failing(
                    f"kernel {kernel.name}, compiled by the driver from PTX for {self.plan.arch}: ", "GPC5008"
                ):
                    module.load(bytes(binaries[ptx_name(kernel.binary)]))
            else:
                module.load(bytes(binaries.get(kernel.binary, b"")) or self._compiled(kernel, sources[kernel.source]))
            function = module.get_function(kernel.name)
            if kernel.shared:  # a function may have 48 KiB less its static bytes unless it asks for more
                driver = self._cupy.cuda.driver
                driver.funcSetAttribute(
                    function.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.shared
                )
            functions.append(function)
        calls: list[Call | None] = []
        for launch in self.plan.launches:
            if launch.kernel < 0:
                calls.append(None)
                continue
            kernel = self.plan.kernels[launch.kernel]
            buffers = [self._memory[a] for a in launch.args]
            maps = [encoded(self._driver, m, _address(buffers[m.parameter])) for m in kernel.tensor_maps]
            function, shape = functions[launch.kernel], (kernel.groups, kernel.items)
            if kernel.programmatic and self._driver is not None:
                raw = [*(np.array([_address(b)], np.uint64) for b in buffers), *maps]
                calls.append(
                    OverlappingLaunch(self._driver, function.ptr, *shape, kernel.shared, self._stream.ptr, raw)
                )
            else:
                calls.append(partial(function, *shape, (*buffers, *maps), shared_mem=kernel.shared))
        return calls

    def _compiled(self, kernel: CompiledKernel, text: str) -> bytes:
        from gpucomp.targets import cuda  # only without binaries: running needs no compiler
        from gpucomp.targets.cache import open_cache

        source = KernelSource(kernel.name, "cuda", text, Geometry(kernel.groups, kernel.items))
        return cuda.build(source, cuda.manifest(self.plan.arch), open_cache())

    # ---- running ----

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The outputs, in fresh arrays. ``inputs`` are complete, of the right type and contiguous.

        Device arrays (``__cuda_array_interface__``) are copied on the device; a graph has its own input buffers.
        """
        with self._running():
            self._send(inputs)
            self._execute()
            outputs = self._receive()
            self._stream.synchronize()
        return outputs

    def profile(self, inputs: Mapping[str, Any]) -> list[float]:
        """Seconds of each launch in one run, by events around it; 0 for host operators."""
        return self.timeline(inputs)[0]

    def ceilings(self) -> None:
        """Not measured here: ``python -m bench.gpu probe`` measures a GPU."""
        return

    def timeline(self, inputs: Mapping[str, Any]) -> tuple[list[float], list[Span]]:
        """The same, and a span a kernel by the events' clock, counted from the start of the first one."""
        cp = self._cupy
        marks: list[Any] = []
        with self._running():
            self._send(inputs)
            for launch, call in zip(self.plan.launches, self._calls, strict=True):
                start, end = cp.cuda.Event(), cp.cuda.Event()
                start.record(self._stream)
                self._launch(launch, call)
                end.record(self._stream)
                marks.append((start, end) if call is not None else None)
            self._stream.synchronize()
            times = [1e-3 * cp.cuda.get_elapsed_time(*m) if m is not None else 0.0 for m in marks]
            spans: list[Span] = []
            origin = next((m[0] for m in marks if m is not None), None)
            for number, (mark, seconds) in enumerate(zip(marks, times, strict=True)):
                if mark is not None:
                    start = 1e-3 * cp.cuda.get_elapsed_time(origin, mark[0]) if spans else 0.0
                    spans.append(Span(number, 0, start, start + seconds))
        return times, spans

    def time_replays(self, count: int, *, overlap: bool = True) -> list[float]:
        """Seconds of each of ``count`` replays of the graph on the last run's inputs, without transfers.

        Without ``overlap``, of a graph in which every kernel starts when the one before it has ended: where one kernel is
        launched many times over, overlapping launches show its throughput, these its latency.
        Needs two runs before it, which capture the graph; empty for a plan with operators on the host.
        """
        cp = self._cupy
        if not self._graphs:
            return []
        seconds = []
        with self._running():
            graph = self._captured(overlap)
            for _ in range(count):
                start, end = cp.cuda.Event(), cp.cuda.Event()
                start.record(self._stream)
                graph.launch(self._stream)
                end.record(self._stream)
                end.synchronize()
                seconds.append(1e-3 * cp.cuda.get_elapsed_time(start, end))
        return seconds

    def _send(self, inputs: Mapping[str, Any]) -> None:
        self._strings.bind(self.plan, inputs)
        for position in self.plan.inputs:
            buffer = self.plan.buffers[position]
            if not buffer.nbytes:
                continue
            given, memory = inputs[buffer.name], self._memory[position]
            if isinstance(given, np.ndarray):
                memory.set(_bytes(given), stream=self._stream)
            else:
                memory[...] = self._cupy.asarray(given).reshape(-1).view(np.uint8)

    def _execute(self) -> None:
        """The launches: one by one at first and where the host takes part, as one captured graph afterwards."""
        self._runs += 1
        if None in self._calls or self._runs < FIRST_CAPTURED_RUN:
            self._launch_all()
            return
        self._captured(overlap=True).launch(self._stream)

    def _captured(self, overlap: bool) -> Any:
        """The graph of all launches; captured once."""
        if overlap not in self._graphs:
            self._stream.begin_capture()
            try:
                self._launch_all(overlap)
            finally:
                graph = self._stream.end_capture()
            self._graphs[overlap] = graph
        return self._graphs[overlap]

    def _launch_all(self, overlap: bool = True) -> None:
        for launch, call in zip(self.plan.launches, self._calls, strict=True):
            self._launch(launch, call, overlap)

    def _launch(self, launch: Launch, call: Call | None, overlap: bool = True) -> None:
        if call is None:
            self._run_host(launch)
        elif isinstance(call, OverlappingLaunch):
            call(overlap)
        else:
            call()

    def _run_host(self, launch: Launch) -> None:
        self._stream.synchronize()
        operands = [self._read(a) for a in launch.args[: launch.inputs]]
        results = run_host(self.plan, launch, operands)
        for position, array in zip(launch.args[launch.inputs :], results, strict=True):
            if position in self._strings:
                self._strings.arrays[position] = array
            elif array.nbytes:
                self._memory[position].set(_bytes(array), stream=self._stream)
        self._stream.synchronize()  # the results are in memory that numpy may take back

    def _read(self, position: int) -> np.ndarray:
        if position in self._strings:
            return self._strings.arrays[position].copy()
        buffer = self.plan.buffers[position]
        array = np.empty(max(1, buffer.nbytes), np.uint8)  # cupy's own might be a view of the device's memory
        self._memory[position].get(stream=self._stream, out=array)  # waits for the stream
        return array[: buffer.nbytes].view(NAMED[buffer.dtype].numpy).reshape(buffer.shape)

    def _receive(self) -> dict[str, np.ndarray]:
        outputs: Sequence[tuple[str, int]] = list(zip(self.plan.output_names, self.plan.outputs, strict=True))
        return {name: self._read(position) for name, position in outputs}


def _driver_for(plan: Plan) -> Any:
    """``cuda.bindings.driver`` where the plan can use it; ``None`` where it is missing and only launches would overlap:
    cupy's do not, and their kernels' waits are over at once.

    Raises ``DeviceError`` when it is missing and kernels have tensor maps.
    """
    needed = any(k.tensor_maps for k in plan.kernels)
    if not needed and not any(k.programmatic for k in plan.kernels):
        return None
    try:
        return import_driver()
    except DeviceError:
        if needed:
            raise
        return None


def _address(memory: Any) -> int:
    return int(memory.__cuda_array_interface__["data"][0])


def import_cupy() -> Any:
    """The module, or ``DeviceError`` naming the extra that brings it."""
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise DeviceError("cupy is not installed: pip install gpucomp[cuda13]", code="GPC5002") from error


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
