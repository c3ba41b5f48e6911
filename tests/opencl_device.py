"""Runs one rendered kernel on the OpenCL device of the tests: PoCL, or what else ``device_queue`` opened."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pyopencl as cl
from kernel_oracle import UNWRITTEN

from gpucomp.codegen.source import KernelSource
from gpucomp.kernel import Kernel
from gpucomp.targets import opencl
from gpucomp.targets.target import Target


@cache
def device_queue(flavour: str) -> Any:
    device = opencl.device_of(opencl.manifest(flavour))
    return cl.CommandQueue(cl.Context([device]))


def target() -> Target:
    return opencl.manifest("pocl")


def run(
    kernel: Kernel, source: KernelSource, inputs: Sequence[np.ndarray], launches: int = 1, flavour: str = "pocl"
) -> list[np.ndarray]:
    """The outputs after ``launches`` launches. Elements that no store writes hold ``kernel_oracle.UNWRITTEN``."""
    q = device_queue(flavour)
    built, _ = opencl.program(q.context, q.device, source)
    flags = cl.mem_flags
    buffers = [cl.Buffer(q.context, flags.READ_WRITE, max(1, t.nbytes)) for t in kernel.params]
    for buffer, array in zip(buffers, inputs, strict=False):
        if array.nbytes:
            cl.enqueue_copy(q, buffer, np.ascontiguousarray(array).view(np.uint8).reshape(-1))
    outputs = [np.full(max(1, t.size), UNWRITTEN).astype(t.dtype.numpy) for t in kernel.params[kernel.inputs :]]
    for buffer, array in zip(buffers[kernel.inputs :], outputs, strict=True):
        if array.nbytes <= buffer.size:
            cl.enqueue_copy(q, buffer, array.view(np.uint8))
    geometry = source.geometry
    if geometry.workspace_bytes:
        nothing = np.full(geometry.workspace_bytes, 255, np.uint8)  # NaN: a partial sum that nobody left shows
        buffers.append(cl.Buffer(q.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=nothing))
        counters = np.zeros(geometry.counter_bytes, np.uint8)
        buffers.append(cl.Buffer(q.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=counters))
    if 0 not in geometry.groups:
        size = tuple(g * i for g, i in zip(geometry.groups, geometry.items, strict=True))
        for _ in range(launches):
            cl.Kernel(built, source.name)(q, size, geometry.items, *buffers)
    for t, buffer, array in zip(
        kernel.params[kernel.inputs :], buffers[kernel.inputs : len(kernel.params)], outputs, strict=True
    ):
        if t.nbytes:
            cl.enqueue_copy(q, array.view(np.uint8), buffer)
    q.finish()
    types = kernel.params[kernel.inputs :]
    return [array[: t.size].reshape(t.shape) for t, array in zip(types, outputs, strict=True)]
