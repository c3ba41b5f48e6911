"""Arrays of pyopencl that runs on OpenCL read and write: what they must be, and which kernels use where they lie."""

from __future__ import annotations

import importlib
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gpucomp.artifact.plan import INPUT, OUTPUT, Plan
from gpucomp.errors import InputError, quote
from gpucomp.ir.types import NAMED
from gpucomp.runtime.copies import FROM_DEVICE, ON_DEVICE, TO_DEVICE, note
from gpucomp.runtime.host import Strings
from gpucomp.runtime.options import Options
from gpucomp.runtime.repeats import moving_arguments
from gpucomp.targets import opencl

# by the process, as a child has no use for its parent's, and the device: one for all programs there, so that the results of one
# can be inputs of another
_contexts: dict[tuple[int, int], Any] = {}


def context_of(device: Any) -> Any:
    """The context of all programs on ``device``, made if there is none."""
    key = os.getpid(), device.int_ptr
    context = _contexts.get(key)
    return context if context is not None else _contexts.setdefault(key, opencl.pyopencl().Context([device]))


def forget(context: Any) -> None:
    """Let later programs use another context than this one, in which something failed."""
    for key, one in list(_contexts.items()):
        if one == context:
            _contexts.pop(key, None)


def fresh(queue: Any, shape: Sequence[int], dtype: np.dtype) -> Any:
    """An array that may hold anything, in memory of its own."""
    return importlib.import_module("pyopencl.array").Array(queue, tuple(shape), dtype)


def zeroed(queue: Any, shape: Sequence[int], dtype: np.dtype) -> Any:
    """An array of zeros, which are there when this returns."""
    array = importlib.import_module("pyopencl.array").zeros(queue, tuple(shape), dtype)
    array.finish()
    return array


def objection(array: Any, *, written: bool = False) -> str:
    """Why no run can use the array, or "". ``written``: one that a result goes into."""
    cl = opencl.pyopencl()
    if not array.dtype.isnative:
        return f"an array in this machine's order of bytes expected, found {array.dtype.str}"
    if not array.flags.c_contiguous:
        return f"a C-contiguous array expected, found strides {list(array.strides)}"
    memory = array.base_data
    if memory is not None and not isinstance(memory, cl.MemoryObjectHolder):
        return f"an array in a buffer expected, found one in {type(memory).__name__}"
    if written and memory is not None and memory.flags & cl.mem_flags.READ_ONLY:
        return "an array that can be written expected, this one is read-only"
    return ""


def to_host(array: Any, told: str) -> np.ndarray:
    """The contents as a numpy array. Raises ``InputError`` (GPC2106), which begins with ``told``."""
    cl = opencl.pyopencl()
    try:
        queue = array.queue or cl.CommandQueue(array.context)
        array.finish()
        found: np.ndarray = array.get(queue)
    except cl.Error as error:
        raise InputError(f"{told} cannot be read from its device: {error}", code="GPC2106") from error
    return found


def fill(array: Any, value: np.ndarray) -> None:
    """Copy ``value``, of the same type and shape, into ``array``. Complete when this returns. Raises ``DeviceError``."""
    if array.base_data is not None:
        with opencl.failing("", "GPC5006"):
            array.finish()
            array.set(np.ascontiguousarray(value), array.queue or opencl.pyopencl().CommandQueue(array.context))


def span(array: Any) -> tuple[int, int, int]:
    """The buffer that a C-contiguous array lies in, and where it begins and ends there, in bytes."""
    memory, start = array.base_data, array.offset
    if memory is None:
        return 0, 0, 0
    if (whole := memory.get_info(opencl.pyopencl().mem_info.ASSOCIATED_MEMOBJECT)) is not None:
        memory, start = whole, start + memory.offset
    return int(memory.int_ptr), start, start + array.nbytes


def require_context(arrays: Mapping[str, Any], what: str, context: Any) -> None:
    """Raise ``InputError`` if an array of pyopencl is in another context. ``what``: "input" (GPC2106) or "output" (GPC2115)."""
    for name, array in arrays.items():
        if isinstance(array, np.ndarray) or array.base_data is None:
            continue
        if array.base_data.get_info(opencl.pyopencl().mem_info.CONTEXT) != context:
            raise InputError(
                f"{what} {quote(name)}: an array in the context of exe.queue expected, this one is in another",
                code="GPC2106" if what == "input" else "GPC2115",
            )


def copy(queue: Any, target: Any, source: Any, **options: Any) -> None:
    """Enqueue a copy as ``pyopencl.enqueue_copy`` does, and count it."""
    host = next((end for end in (target, source) if isinstance(end, np.ndarray)), None)
    way = ON_DEVICE if host is None else FROM_DEVICE if host is target else TO_DEVICE
    note(way, options["byte_count"] if host is None else host.nbytes)
    opencl.pyopencl().enqueue_copy(queue, target, source, **options)


def mapped(queue: Any, memory: Any, nbytes: int, *, written: bool) -> tuple[np.ndarray, Any]:
    """A view of a buffer's bytes and the mapping, which the caller must release, to copy from or to. That copy counts.

    If it is to be ``written``, the view is there at once; else once the queue has come to it.
    """
    flags = opencl.pyopencl().map_flags
    note(TO_DEVICE if written else FROM_DEVICE, nbytes)
    how = flags.WRITE_INVALIDATE_REGION if written else flags.READ
    view, _ = opencl.pyopencl().enqueue_map_buffer(queue, memory, how, 0, (nbytes,), np.uint8, is_blocking=written)
    return view, view.base


def finish(arrays: Iterable[Any], queue: Any) -> None:
    """Wait for what may still be done to pyopencl's arrays, apart from what ``queue`` does."""
    for array in arrays:
        if not isinstance(array, np.ndarray):
            array.finish()
            if array.queue is not None and array.queue != queue:
                array.queue.finish()


def place(array: Any, device: Any) -> Any:
    """The memory of the array as kernels can use it; ``None`` where an array must be copied that is a part of a buffer."""
    memory, start = array.base_data, array.offset
    if memory is None or not start:
        return memory
    if start % opencl.alignment_of(device) or not opencl.has_sub_buffers(device):
        return None
    whole = memory.get_info(opencl.pyopencl().mem_info.ASSOCIATED_MEMOBJECT)
    if whole is not None:  # no part of a part
        memory, start = whole, start + memory.offset
    # a buffer of one of pyopencl's pools has no parts
    return memory.get_sub_region(start, array.nbytes) if hasattr(memory, "get_sub_region") else None


def uses_of(plan: Plan, strings: Strings) -> dict[int, list[tuple[int, int]]]:
    """The inputs and outputs, which may lie elsewhere in each run, with the launches and arguments that have them whole."""
    uses: dict[int, list[tuple[int, int]]] = {
        k: [] for k, b in enumerate(plan.buffers) if b.kind in (INPUT, OUTPUT) and b.nbytes and k not in strings
    }
    for number, launch in enumerate(plan.launches):
        if launch.kernel >= 0:
            copied = {moved.index for moved in moving_arguments(plan, number)}  # slice by slice, from where they lie
            for index, position in enumerate(launch.args):
                if position in uses and index not in copied:
                    uses[position].append((number, index))
    return uses


def results_of(plan: Plan, strings: Strings, how: Options, queue: Any) -> dict[str, Any]:
    """For each output the array that it gets; ``None`` for a fresh one of numpy."""
    results: dict[str, Any] = {}
    for name, position in zip(plan.output_names, plan.outputs, strict=True):
        array = how.outputs.get(name)
        if array is None and how.on_device and position not in strings:
            buffer = plan.buffers[position]
            array = fresh(queue, buffer.shape, NAMED[buffer.dtype].numpy)
        results[name] = array
    return results


def places_of(
    plan: Plan, uses: Container[int], inputs: Mapping[str, Any], results: Mapping[str, Any], device: Any
) -> tuple[dict[int, Any], set[str]]:
    """The memory of inputs and results that kernels use where they lie, by position, and the names of these results."""
    places: dict[int, Any] = {}
    written: set[str] = set()
    for position in plan.inputs:
        given = inputs[plan.buffers[position].name]
        if position in uses and not isinstance(given, np.ndarray) and (memory := place(given, device)) is not None:
            places[position] = memory
    for name, position in zip(plan.output_names, plan.outputs, strict=True):
        array = results[name]
        if array is None or isinstance(array, np.ndarray) or position not in uses or position in places:
            continue
        if plan.buffers[position].kind == OUTPUT and (memory := place(array, device)) is not None:
            places[position] = memory
            written.add(name)
    return places, written
