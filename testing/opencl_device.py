"""Runs one rendered kernel on an OpenCL device: PoCL's, Oclgrind's, or that of a driver in ``opencl_drivers``."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyopencl as cl

from gpucomp.device.target import Target
from gpucomp.kernel import Kernel
from gpucomp.kernel.interpreter import UNWRITTEN
from gpucomp.kernel.source import KernelSource
from gpucomp.targets import opencl, opencl_build
from testing import opencl_drivers

GUARD_BYTES = 4096  # before and after a buffer; a multiple of every device's alignment of sub-buffers


class OutOfBoundsError(AssertionError):
    """A kernel wrote outside of its buffers; the message says which one, and where."""


class Buffer:
    """Device memory that starts as ``data``. With ``guarded``, known bytes surround it, and ``read`` checks them.

    Every 16 bits of these are NaN as f16, bf16, f32 and f64, and they differ between buffers with different ``number`` at the
    same offset. So a write shows even if it stores what was read past the end of another buffer.
    """

    def __init__(self, q: Any, number: int, data: np.ndarray, guarded: bool) -> None:
        self.q, self.number, self.whole = q, number, data.view(np.uint8).reshape(-1)
        if self.whole.size == 0:
            self.whole = np.zeros(1, np.uint8)
        words = (number + (np.arange(GUARD_BYTES // 2, dtype=np.uint32) * np.uint32(2654435761) >> 16)) % 13
        self.guard = (0x7FF1 + words).astype(np.uint16).view(np.uint8) if guarded else np.zeros(0, np.uint8)
        size, flags = self.whole.size, cl.mem_flags
        start = np.concatenate([self.guard, self.whole, self.guard])
        self.parent = cl.Buffer(q.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=start)
        self.argument = self.parent[GUARD_BYTES : GUARD_BYTES + size] if guarded else self.parent

    def read(self) -> np.ndarray:
        """The buffer's bytes. Raises ``OutOfBoundsError`` if the bytes around it have changed."""
        found = np.empty(self.whole.size + 2 * self.guard.size, np.uint8)
        cl.enqueue_copy(self.q, found, self.parent)
        before, inside, after = np.split(found, (self.guard.size, self.guard.size + self.whole.size))
        if (wrong := np.flatnonzero(before != self.guard)).size:
            raise OutOfBoundsError(
                f"argument {self.number} is written {self.guard.size - wrong[-1]} bytes before its start"
            )
        if (wrong := np.flatnonzero(after != self.guard)).size:
            raise OutOfBoundsError(f"argument {self.number} is written {wrong[0]} bytes past its end")
        return inside


@cache
def _opened(flavour: str) -> tuple[Any, Any]:
    """The context and a queue. The context is kept because Intel's driver frees it with its last reference, queues or not."""
    context = cl.Context([opencl.device_of(opencl.manifest(flavour))])
    return context, cl.CommandQueue(context)


def device_queue(flavour: str) -> Any:
    return _opened(flavour)[1]


@cache
def target(device: str = "pocl") -> Target:
    """PoCL's manifest, or the target of a driver's only device."""
    if device == "pocl":
        return opencl.manifest("pocl")
    return opencl_drivers.process(device).call(opencl.resolve, "")


@cache
def gpu(device: str = "pocl") -> Target:
    """The same target with a GPU's limits, as far as the device allows: a CPU can run such schedules too."""
    items, local_bytes = opencl_drivers.process(device).call(_sizes) if device != "pocl" else _sizes("pocl")
    return target(device).with_limits(
        threads=min(256, items), shared_bytes=min(49152, local_bytes), warp=32, registers=255
    )


def _sizes(flavour: str = "generic") -> tuple[int, int]:
    device = device_queue(flavour).device
    return int(device.max_work_group_size), int(device.local_mem_size)


def built_together(sources: Sequence[KernelSource], plain: Container[str] = ()) -> dict[str, Any]:
    """Build ``sources`` for ``run``; return programs by kernel name. Names must be unique.

    Sources with the same flags are built by one run of PoCL's compiler, because reading the declarations of OpenCL C takes
    longer than compiling most kernels. Sources named in ``plain`` are built without optimisation, the others as they are
    shipped. Raises ``KernelBuildError`` if PoCL refuses one of them.
    """
    q = device_queue("pocl")
    groups: dict[tuple[str, ...], list[KernelSource]] = {}
    for source in sources:
        flags = {*opencl_build.build_flags(q.device, source), *(["-cl-opt-disable"] if source.name in plain else [])}
        groups.setdefault(tuple(sorted(flags)), []).append(source)
    built = {}
    for flags, group in groups.items():
        program, _ = opencl_build.program(
            q.context, q.device, replace(group[0], text=opencl_build.joined(group)), flags=flags
        )
        built |= {source.name: program for source in group}
    return built


def run(
    kernel: Kernel,
    source: KernelSource,
    inputs: Sequence[np.ndarray],
    launches: int = 1,
    device: str = "pocl",
    *,
    built: Any = None,
    in_place: int | None = None,
    numbers: Sequence[np.int64] = (),
) -> list[np.ndarray]:
    """The outputs after ``launches`` launches. Elements that no store writes are ``UNWRITTEN``.

    ``built`` is the program, if the caller has it. ``in_place`` is the input whose memory the first output shares.
    ``numbers`` are those of ``KernelSource.sizes``. Raises
    ``OutOfBoundsError`` if a kernel wrote outside of a buffer. Oclgrind (``generic``) detects that itself, so its buffers have
    no guards.
    """
    types, geometry = kernel.params[kernel.inputs :], source.geometry
    outputs = [np.full(t.shape, UNWRITTEN).astype(t.dtype.numpy) for t in types]
    arrays = [*(np.ascontiguousarray(a) for a in inputs[: kernel.inputs]), *outputs]
    if geometry.workspace_bytes:
        arrays.append(np.full(geometry.workspace_bytes, 255, np.uint8))  # NaN, so that reading an unwritten sum shows
    if geometry.counter_bytes:
        arrays.append(np.zeros(geometry.counter_bytes, np.uint8))
    same = {} if in_place is None else {kernel.inputs: in_place}
    if device in opencl_drivers.DRIVERS:
        found = opencl_drivers.process(device).call(
            _launched, "generic", source, arrays, launches, True, same, None, numbers
        )
    else:
        found = _launched(device, source, arrays, launches, device != "generic", same, built, numbers)
    return [
        f[: a.nbytes].view(a.dtype).reshape(a.shape)
        for f, a in zip(found[kernel.inputs : len(kernel.params)], outputs, strict=True)
    ]


def _launched(
    flavour: str,
    source: KernelSource,
    arrays: Sequence[np.ndarray],
    launches: int,
    guarded: bool,
    same: Mapping[int, int],
    built: Any = None,
    numbers: Sequence[np.int64] = (),
) -> list[np.ndarray]:
    """The bytes of all arguments after ``launches``; arguments in ``same`` share the memory of another argument."""
    q, geometry = device_queue(flavour), source.geometry
    if built is None:
        built, _ = opencl_build.program(q.context, q.device, source)
    buffers = [Buffer(q, number, array, guarded) for number, array in enumerate(arrays)]
    for number, other in same.items():
        buffers[number] = buffers[other]
    if 0 not in geometry.groups:
        size = tuple(g * i for g, i in zip(geometry.groups, geometry.items, strict=True))
        for _ in range(launches):
            cl.Kernel(built, source.name)(q, size, geometry.items, *(b.argument for b in buffers), *numbers)
    return [b.read() for b in buffers]
