"""Compiles kernels for this processor and calls them, task by task."""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from gpucomp.artifact.elf import Image
from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.engines import family_of
from gpucomp.device.target import Target
from gpucomp.kernel import Kernel
from gpucomp.kernel.interpreter import UNWRITTEN
from gpucomp.kernel.source import KernelSource
from gpucomp.schedule.space import Family, Schedule
from gpucomp.targets import cpu
from testing.arm64 import Processor


def default_schedule(kernel: Kernel, target: Target | None = None) -> Schedule:
    family = family_of(kernel)
    return family.default(family.problem(kernel), (target or cpu.host()).limits).numbers


def _here() -> list[Target]:
    """The levels of x86-64 that this machine runs, and its own processor where it is more than the last of them."""
    levels = [cpu.named(f"cpu:x86-64-v{level}") for level in (2, 3, 4)] if platform.machine() == "x86_64" else []
    host = cpu.host()
    runs = [level for level in levels if level.features <= host.features]
    return runs if any(level.features == host.features for level in runs) else [*runs, host]


HERE = _here()  # what depends on the processor is tried for each
WIDEST = cpu.host().limits.vector_bytes // 4  # lanes of f32 on this processor


class Library:
    """Several kernels compiled together."""

    def __init__(
        self,
        kernels: Mapping[str, Kernel],
        schedules: Mapping[str, Schedule] | None = None,
        target: Target | None = None,
        family: Family | None = None,
    ) -> None:
        """``family`` is the engine of all the kernels, where it is not the one that does them all."""
        target = target or cpu.host()
        self.kernels = kernels
        self.sources: dict[str, KernelSource] = {
            name: emit(kernel, (schedules or {}).get(name) or default_schedule(kernel, target), target, name, family)
            for name, kernel in kernels.items()
        }
        self.image = Image(cpu.build(list(self.sources.values()), target))

    def run(self, name: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs of a kernel, its tasks run one by one from the last to the first."""
        return run_source(self.image, self.sources[name], self.kernels[name], inputs)


def run_source(image: Image, source: KernelSource, kernel: Kernel, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a kernel of ``image``, its tasks run one by one from the last to the first."""
    arrays = [np.ascontiguousarray(a) for a in inputs]
    outputs = [np.full(t.shape, UNWRITTEN).astype(t.dtype.numpy) for t in kernel.params[kernel.inputs :]]
    workspace = np.full(source.geometry.workspace_bytes, 255, np.uint8)
    counters = np.zeros(source.geometry.counter_bytes, np.uint8)
    pointers = [a.ctypes.data for a in (*arrays, *outputs, *(a for a in (workspace, counters) if a.size))]
    function = _function(image, source.name, len(pointers))
    for task in range(source.geometry.groups[0] - 1, -1, -1):
        function(*pointers, task, task + 1)
    assert not counters.any()
    return outputs


def _function(image: Image, name: str, pointers: int) -> Callable[..., object]:
    if image.machine != platform.machine():
        return partial(Processor().call, image.address(name))
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * pointers, ctypes.c_int64, ctypes.c_int64)
    return prototype(image.address(name))


def image_of(sources: Sequence[KernelSource], target: Target) -> Image:
    """``sources`` compiled as one module."""
    binary = cpu.compile_text(cpu.module_text(sources, target, runner=False), target)
    return Image(len(binary).to_bytes(8, "little") + binary)


def run_kernel(
    kernel: Kernel, inputs: Sequence[np.ndarray], schedule: Schedule | None = None, target: Target | None = None
) -> list[np.ndarray]:
    """One kernel compiled and run."""
    return Library({"k": kernel}, {"k": schedule} if schedule else None, target).run("k", inputs)


def innermost_loops(assembly: str) -> list[str]:
    """The text of every block that ends with a jump to its own label."""
    found = []
    for block in re.split(r"^(?=\.L\w+:)", assembly, flags=re.MULTILINE):
        label = block.partition(":")[0]
        if re.search(rf"\tj\w+\t{re.escape(label)}$", block, re.MULTILINE):
            found.append(block)
    return found
