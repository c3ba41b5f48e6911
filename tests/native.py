"""Compiles kernels for this processor and calls them, one task range at a time."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from kernel_oracle import UNWRITTEN

from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.space import family_of
from gpucomp.kernel import Kernel
from gpucomp.runtime.elf import Image
from gpucomp.schedule.space import Schedule
from gpucomp.targets import cpu
from gpucomp.targets.target import Target


def default_schedule(kernel: Kernel, target: Target | None = None) -> Schedule:
    from types import SimpleNamespace

    family = family_of(kernel)
    return family.default(SimpleNamespace(**family.problem(kernel)), (target or cpu.host()).limits)


def run_kernel(
    kernel: Kernel, inputs: Sequence[np.ndarray], schedule: Schedule | None = None, target: Target | None = None
) -> list[np.ndarray]:
    """The outputs of ``kernel``, its tasks run one by one from the last to the first."""
    target = target or cpu.host()
    source = emit(kernel, schedule or default_schedule(kernel, target), target, "k")
    image = Image(cpu.build([source], target))
    arrays = [np.ascontiguousarray(a) for a in inputs]
    outputs = [np.full(t.shape, UNWRITTEN).astype(t.dtype.numpy) for t in kernel.params[kernel.inputs :]]
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(kernel.params), ctypes.c_int64, ctypes.c_int64)(
        image.address("k")
    )
    pointers = [a.ctypes.data for a in (*arrays, *outputs)]
    for task in range(source.geometry.groups[0] - 1, -1, -1):
        function(*pointers, task, task + 1)
    return outputs
