"""Launches rendered CUDA text on the emulated device, with the workspace, counters and tensor maps that it needs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpucomp.kernel import Kernel
from gpucomp.kernel.interpreter import UNWRITTEN
from gpucomp.kernel.source import KernelSource
from testing.cuda_on_cpu.harness import ORDERS, CudaOnCpu, CudaOnCpuError, Mapped, Order
from testing.kernels import random_inputs

TIMEOUT_S = 900.0  # enough for whole layers on a busy machine


def launched(
    kernel: Kernel,
    source: KernelSource,
    built: CudaOnCpu,
    inputs: Sequence[np.ndarray] | None = None,
    order: Order = "forward",
    numbers: Sequence[np.int64] = (),
) -> list[np.ndarray]:
    """The outputs of one launch on ``inputs``, or on random inputs. Elements that no store writes are ``UNWRITTEN``.

    ``numbers`` are those of ``KernelSource.sizes``.

    Raises CudaOnCpuError, also if an input is written or counters are not zero afterwards.
    """
    return _in_orders((order,), kernel, source, built, inputs, numbers)[0]


def in_any_order(
    kernel: Kernel, source: KernelSource, built: CudaOnCpu, inputs: Sequence[np.ndarray] | None = None
) -> list[np.ndarray]:
    """Like ``launched``, in each of ``ORDERS``. Raises CudaOnCpuError unless all orders give the same bits."""
    first, *others = _in_orders(ORDERS, kernel, source, built, inputs)
    for order, outputs in zip(ORDERS[1:], others, strict=True):
        if any(a.tobytes() != b.tobytes() for a, b in zip(first, outputs, strict=True)):
            raise CudaOnCpuError(f"{source.name}: order {order} gives other bits than order {ORDERS[0]}")
    return first


def _in_orders(
    orders: Sequence[Order],
    kernel: Kernel,
    source: KernelSource,
    built: CudaOnCpu,
    inputs: Sequence[np.ndarray] | None,
    numbers: Sequence[np.int64] = (),
) -> list[list[np.ndarray]]:
    geometry = source.geometry
    outputs = [np.full(t.shape, UNWRITTEN).astype(t.dtype.numpy) for t in kernel.params[kernel.inputs :]]
    scratch = []
    if geometry.workspace_bytes:
        scratch.append(np.full(geometry.workspace_bytes, 255, np.uint8))  # NaN, so that reading an unwritten sum shows
    if geometry.counter_bytes:
        scratch.append(np.zeros(geometry.counter_bytes, np.uint8))
    buffers = [*map(constant, random_inputs(kernel) if inputs is None else inputs), *outputs, *scratch]
    maps = [Mapped(spec, buffers[spec.parameter]) for spec in source.tensor_maps]
    shared, end = geometry.dynamic_shared_bytes, -len(scratch) or None
    # everything except constants may come from earlier launches, which need not have ended yet
    late = sorted(set(range(len(buffers))) - kernel.constants) if source.programmatic else ()
    results = built.run_in_orders(
        geometry.groups,
        geometry.items,
        [*buffers, *maps, *numbers],
        orders=orders,
        seed=5,
        dynamic_shared=shared,
        late=late,
        timeout=TIMEOUT_S,
    )
    if geometry.counter_bytes and any(found[-1].any() for found in results):
        raise CudaOnCpuError(f"{source.name}: counters are not zero afterwards")
    return [found[:end][-len(outputs) :] for found in results]


def constant(array: np.ndarray) -> np.ndarray:
    """A view that the kernel must not change."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
