"""Where the checks run: a CUDA GPU through cupy, or the CUDA-on-CPU harness of the tests in its place."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gpucomp.codegen.source import KernelSource
from gpucomp.runtime.executable import Executable
from gpucomp.targets import cuda
from gpucomp.targets.target import Target

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))  # kernels, their oracle and the harness live there
Arrays = Mapping[str, np.ndarray]


class Device(Protocol):
    """``milliseconds`` of a model are those of one replay of its graph, without transfers; empty where none is timed."""

    target: Target

    def probe(self) -> dict[str, Any]: ...

    def launch(self, source: KernelSource, arguments: Sequence[np.ndarray]) -> None:
        """Run the kernel once and change its arguments in place."""
        ...

    def model(self, executable: Executable, inputs: Arrays, replays: int) -> tuple[Arrays, list[float]]:
        """The outputs of the last of three runs, and milliseconds of ``replays`` replays."""
        ...


class Gpu:
    """The first CUDA device."""

    def __init__(self) -> None:
        self.cupy = importlib.import_module("cupy")
        self.target = cuda.manifest(cuda.architecture_here())

    def probe(self) -> dict[str, Any]:
        """Name, memory, clocks, the bandwidth of a copy and the microseconds of an empty kernel in a graph."""
        cp = self.cupy
        facts = cp.cuda.runtime.getDeviceProperties(0)
        free, total = cp.cuda.runtime.memGetInfo()
        return {
            "gpu": facts["name"].decode(),
            "arch": self.target.arch,
            "units": facts["multiProcessorCount"],
            "clock_mhz": cp.cuda.runtime.deviceGetAttribute(13, 0) / 1e3,  # cudaDevAttrClockRate
            "memory_clock_mhz": cp.cuda.runtime.deviceGetAttribute(36, 0) / 1e3,  # cudaDevAttrMemoryClockRate
            "l2_bytes": facts["l2CacheSize"],
            "memory_bytes": total,
            "free_bytes": free,
            "driver": cp.cuda.runtime.driverGetVersion(),
            "cupy": cp.__version__,
            "compiler": cuda.compiler_version(),
            "copy_gb_per_s": self._copy_bandwidth(),
            "graph_node_us": self._graph_node_us(),
        }

    def _copy_bandwidth(self, nbytes: int = 1 << 30) -> float:
        """Bytes read and written per second, the best of ten copies."""
        cp = self.cupy
        a, b = cp.zeros(nbytes, np.uint8), cp.empty(nbytes, np.uint8)
        stream = cp.cuda.Stream(non_blocking=True)
        cp.cuda.Device().synchronize()
        milliseconds = []
        for _ in range(10):
            start, end = cp.cuda.Event(), cp.cuda.Event()
            start.record(stream)
            b.data.copy_from_device_async(a.data, nbytes, stream)
            end.record(stream)
            end.synchronize()
            milliseconds.append(cp.cuda.get_elapsed_time(start, end))
        return 2 * nbytes / min(milliseconds) / 1e6

    def _graph_node_us(self, nodes: int = 200) -> float:
        """A graph of dependent empty kernels: microseconds a node, the best of ten replays."""
        cp = self.cupy
        text = 'extern "C" __global__ void nothing(int* x) {}\n'
        function = self._function(_source("nothing", text))
        argument, stream = cp.zeros(1, np.int32), cp.cuda.Stream(non_blocking=True)
        with stream:
            function((1,), (32,), (argument,))
            stream.synchronize()
            stream.begin_capture()
            for _ in range(nodes):
                function((1,), (32,), (argument,))
            graph = stream.end_capture()
            milliseconds = []
            for _ in range(11):
                start, end = cp.cuda.Event(), cp.cuda.Event()
                start.record(stream)
                graph.launch(stream)
                end.record(stream)
                end.synchronize()
                milliseconds.append(cp.cuda.get_elapsed_time(start, end))
        return 1e3 * min(milliseconds[1:]) / nodes

    def _function(self, source: KernelSource) -> Any:
        module = self.cupy.cuda.function.Module()
        module.load(cuda.build(source, self.target))
        return module.get_function(source.name)

    def launch(self, source: KernelSource, arguments: Sequence[np.ndarray]) -> None:
        cp, geometry, function = self.cupy, source.geometry, self._function(source)
        with cp.cuda.Stream(non_blocking=True) as stream:
            on_gpu = [cp.empty((max(1, array.nbytes),), np.uint8) for array in arguments]
            for array, memory in zip(arguments, on_gpu, strict=True):
                if array.nbytes:
                    memory.set(np.ascontiguousarray(array).reshape(-1).view(np.uint8), stream=stream)
            function(geometry.groups, geometry.items, tuple(on_gpu), shared_mem=geometry.dynamic_shared_bytes)
            for array, memory in zip(arguments, on_gpu, strict=True):
                if array.nbytes:
                    array[...] = memory.get(stream=stream).view(array.dtype).reshape(array.shape)

    def model(self, executable: Executable, inputs: Arrays, replays: int) -> tuple[Arrays, list[float]]:
        from gpucomp.runtime.cuda import CudaProgram

        program = CudaProgram(executable.plan, executable.sources, executable.binaries, executable.weights)
        for _ in range(3):  # the first launches, the second captures, the third replays
            outputs = program.run(inputs)
        return outputs, [1e3 * seconds for seconds in program.time_replays(replays)]


class Harness:
    """The CUDA-on-CPU harness: the same kernels, on shapes that a CPU can play."""

    def __init__(self) -> None:
        self.target = cuda.manifest("sm_80")

    def probe(self) -> dict[str, Any]:
        return {"gpu": "none: CUDA on the CPU", "arch": self.target.arch}

    def launch(self, source: KernelSource, arguments: Sequence[np.ndarray]) -> None:
        from cuda_on_cpu.harness import CudaOnCpu

        CudaOnCpu(source.text, source.name).run(source.geometry.groups, source.geometry.items, list(arguments))

    def model(self, executable: Executable, inputs: Arrays, replays: int) -> tuple[Arrays, list[float]]:
        from cuda_on_cpu.whole_models import ModelOnCpu

        return ModelOnCpu(executable).run(inputs), []


def _source(name: str, text: str) -> KernelSource:
    from gpucomp.schedule.space import Geometry

    return KernelSource(name, "cuda", text, Geometry((1, 1, 1)))
