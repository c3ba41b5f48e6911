"""Where inputs, outputs and temporaries of runs on a CUDA device lie, and what is freed with them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np

from gpucomp.artifact.plan import INPUT, OUTPUT, Plan
from gpucomp.device import forks
from gpucomp.errors import DeviceError
from gpucomp.ir.types import NAMED, STRING
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.copies import Copies
from gpucomp.runtime.cuda_driver import Driver, DriverCallError
from gpucomp.runtime.host import Strings
from gpucomp.runtime.options import Options
from gpucomp.runtime.repeats import Moving, moving_arguments

ALIGNMENT = 256  # of an array that kernels use where it lies, in bytes: what allocations have
STAGED_BYTES = 64 << 20  # of pinned memory for inputs, and as much for outputs; the driver stages larger arrays
PINNED_ALIGNMENT = 64  # of a tensor in pinned memory, in bytes


def movable(plan: Plan, strings: Strings) -> dict[int, list[tuple[int, int]]]:
    """The inputs and outputs that may lie elsewhere in each run, with the launches and arguments that use them.

    Not those that a loop moves along.
    """
    uses: dict[int, list[tuple[int, int]]] = {
        k: [] for k, b in enumerate(plan.buffers) if b.kind in (INPUT, OUTPUT) and b.nbytes and k not in strings
    }
    for number, launch in enumerate(plan.launches):
        for index, position in enumerate(launch.args):
            if position in uses and launch.kernel >= 0:
                uses[position].append((number, index))
        for moved in moving_arguments(plan, number):
            uses.pop(launch.args[moved.index], None)
    return uses


def held_elsewhere(plan: Plan, uses: Container[int]) -> set[int]:
    """The states, for which a context has memory."""
    kept = {state.input for state in plan.states}
    return {k for k in plan.inputs if plan.buffers[k].name in kept and k in uses}


def staged(plan: Plan, positions: Sequence[int], cupy: Any) -> dict[int, np.ndarray]:
    """Pinned memory by position, for the buffers that fit into ``STAGED_BYTES`` together."""
    places, end = {}, 0
    for position in positions:
        nbytes = plan.buffers[position].nbytes
        if nbytes and position not in places and end + nbytes <= STAGED_BYTES:
            places[position] = slice(end, end + nbytes)
            end += -(-nbytes // PINNED_ALIGNMENT) * PINNED_ALIGNMENT
    if not places:
        return {}
    pinned = cupy.cuda.alloc_pinned_memory(end)
    memory = np.frombuffer(pinned, np.uint8, end)
    return {position: memory[place] for position, place in places.items()}


def results_of(plan: Plan, uses: Container[int], how: Options, cupy: Any) -> tuple[dict[str, Any], dict[int, int]]:
    """For each output the array that it gets, ``None`` for a fresh one of numpy; and the addresses of those on the device
    that kernels write at once.
    """
    results: dict[str, Any] = {}
    places: dict[int, int] = {}
    for name, position in zip(plan.output_names, plan.outputs, strict=True):
        array = how.outputs.get(name)
        if array is None and how.on_device and plan.buffers[position].dtype != STRING.name:
            buffer = plan.buffers[position]
            array = fresh(cupy, buffer.shape, NAMED[buffer.dtype].numpy, f"output {name}: ")
        results[name] = array
        if array is None or isinstance(array, np.ndarray) or plan.buffers[position].kind != OUTPUT:
            continue
        address = int(array.data.ptr)
        if position in uses and address % ALIGNMENT == 0:
            places.setdefault(position, address)
    return results, places


def fresh(cupy: Any, shape: Sequence[int], dtype: np.dtype, what: str = "") -> Any:
    """An array in the device's memory, from cupy's pool for the current stream. It may hold anything.

    Raises ``DeviceError`` (GPC5019), which begins with ``what``, for an element type that cupy does not have.
    """
    memory = cupy.cuda.alloc(max(1, math.prod(shape) * dtype.itemsize))
    try:
        return cupy.ndarray(tuple(shape), dtype, memptr=memory)
    except (TypeError, ValueError) as error:
        raise DeviceError(
            f"{what}cupy has no arrays of {dtype}; give numpy arrays for it, or none", code="GPC5019"
        ) from error


def zeroed(cupy: Any, driver: Driver, shape: Sequence[int], dtype: np.dtype) -> Any:
    """As ``fresh``, of zeros, which are there when this returns."""
    array, stream = fresh(cupy, shape, dtype), cupy.cuda.get_current_stream().ptr
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes:
        driver("cuMemsetD8Async", int(array.data.ptr), 0, nbytes, stream)
        driver("cuStreamSynchronize", stream)
    return array


def places_of(plan: Plan, uses: Container[int], inputs: Mapping[str, Any], cupy: Any) -> dict[int, int]:
    """The addresses of inputs on the device that kernels can read where they are."""
    places: dict[int, int] = {}
    for position in plan.inputs:
        given = inputs[plan.buffers[position].name]
        if position in uses and not isinstance(given, np.ndarray):
            address = int(cupy.asarray(given).data.ptr)
            if address % ALIGNMENT == 0:
                places[position] = address
    return places


@dataclass(frozen=True)
class Slice:
    """An argument of ``launch`` that advances from ``base`` on, and the memory that its slices are copied to, or 0."""

    launch: int
    moved: Moving
    base: int
    copied: int


class Arena:
    """Memory for the temporaries of one run at a time. It grows to what the largest program needs that shares it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.memory: list[Any] = []  # the current one
        self._nbytes = 0

    def of(self, nbytes: int, allocate: Callable[[int], Any]) -> int:
        """The address of at least ``nbytes`` bytes. What the stream still does with smaller memory comes before its next use."""
        if not self.memory or nbytes > self._nbytes:
            self.memory[:] = [allocate(max(1, nbytes))]
            self._nbytes = nbytes
        return int(self.memory[0].ptr)


# errors after which every call of the process fails: uncorrectable memory errors (214, 220, 226), a bad access, a bad
# instruction or an assertion of a kernel (700, 710, 714 to 719, 721), a launch that was killed (702), a lost context
STICKY = frozenset({214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721})


def destroyed(driver: Driver, graphs: dict[tuple[Any, ...], tuple[Any, Copies]]) -> None:
    while graphs:
        driver("cuGraphExecDestroy", graphs.popitem()[1][0])


def failures(cupy: Any) -> tuple[type[Exception], ...]:
    cuda = cupy.cuda
    return (DriverCallError, cuda.runtime.CUDARuntimeError, cuda.memory.OutOfMemoryError)


def released(cupy: Any, driver: Driver, device: Any, context: Any, owned: ExitStack) -> None:
    """Free what a program owns, the last first. Errors of a lost device are ignored. A child owns nothing of its parent's."""
    if forks.is_child():
        owned.pop_all()
        return
    with suppress(*failures(cupy)), device, driver.current(context):
        owned.close()
