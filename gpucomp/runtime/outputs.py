"""Arrays of the caller that results are written into: what they must be, and which are written where they lie."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from gpucomp.errors import InputError, quote
from gpucomp.ir.types import STRING
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.inputs import CPU_MEMORY, GPUS, TensorSpec, as_array, device_view, fits, of_pyopencl, opencl_arrays

ROCM = 10  # kDLROCM


@dataclass(frozen=True)
class Given:
    """Arrays for results: ``objects`` as the caller gave them, ``arrays`` of the same memory.

    Those of ``direct`` can be written while the model runs. What belongs into the others is copied there at the end.
    """

    objects: Mapping[str, object]
    arrays: Mapping[str, Any]
    direct: Mapping[str, Any]

    def returned(self, results: Mapping[str, Any], written: Container[str]) -> dict[str, Any]:
        """The results of a run, with what the caller gave instead of arrays. Copies those that are not ``written`` there.

        Raises ``InputError`` (GPC2115) for one of another shape, which only the run decided.
        """
        found = dict(results)
        for name, array in self.arrays.items():
            if name not in written:
                result = results[name]
                if array.shape != result.shape:
                    raise _wrong(name, f"shape {list(result.shape)} expected, found {list(array.shape)}")
                _put(array, result)
            found[name] = self.objects[name]
        return found


def _put(array: Any, result: np.ndarray) -> None:
    if of_pyopencl(array):
        opencl_arrays().fill(array, result)
    else:
        array[...] = result


def fit_as_they_are(given: Mapping[str, object], specs: Mapping[str, TensorSpec], inputs: Mapping[str, Any]) -> bool:
    """Whether all arrays ``given`` for results can be written where they lie.

    ``specs`` by name are those of outputs that are tensors. This is the part of ``checked_outputs`` that every usual run needs.
    """
    others = [*inputs.values()]
    for name, array in given.items():
        spec = specs.get(name)
        if spec is None or type(array) is not np.ndarray or array.shape != spec.shape:
            return False
        dtype = spec.plain
        if dtype is None or array.dtype != dtype or not array.flags.carray:
            return False
        for other in others:
            if isinstance(other, np.ndarray) and np.may_share_memory(array, other):
                return False
        others.append(array)
    return True


def checked_outputs(
    given: Mapping[str, object], specs: Mapping[str, TensorSpec], inputs: Mapping[str, Any], *, kind: str = "cpu"
) -> Given:
    """The arrays ``given`` for results, checked against the ``specs`` of outputs that are tensors, by name.

    One is not ``direct`` if it is not contiguous or not aligned, shares memory with an input, or only the run decides its shape.
    Arrays in the memory of a device of this ``kind`` are taken: pyopencl's for OpenCL, for CUDA those of libraries that cupy can
    reach. They must be contiguous, and not in an input's memory.
    Raises ``InputError``: GPC2114 for an unknown name or what is no tensor, GPC2115 for an array that the result does not fit in
    or that cannot be written, GPC2116 for two that share memory.
    """
    arrays: dict[str, Any] = {}
    direct: dict[str, Any] = {}
    for name, value in given.items():
        if name not in specs:
            names = ", ".join(map(quote, specs)) or "none"
            raise InputError(f"there is no output {quote(name)}; outputs that are tensors: {names}", code="GPC2114")
        array = _checked(value, specs[name], kind)
        if other := next((n for n in arrays if _meets(array, {n: arrays[n]})), None):
            raise InputError(
                f"outputs {quote(other)} and {quote(name)} share memory: an array of its own for each expected",
                code="GPC2116",
            )
        arrays[name] = array
        if not isinstance(array, np.ndarray):
            if _meets(array, inputs):
                raise _wrong(name, "memory of its own expected, this array shares that of an input")
            direct[name] = array
        elif array.flags.carray and array.shape == specs[name].shape and not _meets(array, inputs):
            direct[name] = array
    return Given(given, arrays, direct)


def _checked(value: Any, spec: TensorSpec, kind: str) -> Any:
    dtype = spec.type.dtype
    there = "" if isinstance(value, np.ndarray) else _device_of(value, kind)
    if isinstance(value, np.generic) or (there and there != kind):
        raise _wrong(spec.name, f"an array in the memory of this model's device expected, found {type(value).__name__}")
    try:
        array = device_view(value, spec.name, kind) if there in GPUS else as_array(value, spec.name, kind, "output")
    except InputError as error:
        raise _wrong(spec.name, error.message.partition(": ")[2] or error.message) from error
    if dtype is STRING and array.dtype != object:
        raise _wrong(spec.name, f"element type object expected for texts, found {array.dtype}")
    if dtype is not STRING and array.dtype != dtype.numpy:
        raise _wrong(spec.name, f"element type {dtype} ({dtype.numpy}) expected, found {array.dtype}")
    if not fits(array.shape, spec.shape):
        wanted = ", ".join(map(str, spec.shape))
        raise _wrong(spec.name, f"shape [{wanted}] expected, found {list(array.shape)}")
    if there in GPUS and not array.flags.c_contiguous:
        raise _wrong(spec.name, "a contiguous array expected on a device")
    if there == "opencl" and (why := opencl_arrays().objection(array, written=True)):
        raise _wrong(spec.name, why)
    if _is_read_only(value) if there in GPUS else not there and not array.flags.writeable:
        raise _wrong(spec.name, "an array that can be written expected, this one is read-only")
    return array


def _is_read_only(value: Any) -> bool:
    """Whether an array in a GPU's memory says so. DLPack's capsules do not tell."""
    interface: Mapping[str, Any] = getattr(value, "__cuda_array_interface__", {})
    return bool(interface.get("data", (0, False))[1])


def _device_of(value: Any, kind: str) -> str:
    """The kind of the device that ``value`` is in the memory of; "" for the host. ``kind`` is that of the model's."""
    if of_pyopencl(value):
        return "opencl"
    if hasattr(value, "__dlpack_device__"):
        where = value.__dlpack_device__()[0]
        return "" if where in CPU_MEMORY else "hip" if where == ROCM else "cuda"
    if not hasattr(value, "__cuda_array_interface__"):
        return ""
    return kind if kind in GPUS else "cuda"  # libraries for ROCm have it as well


def _meets(array: Any, others: Mapping[str, Any]) -> bool:
    """Whether ``array`` may share memory with one of ``others``, by their first and last bytes."""
    if isinstance(array, np.ndarray):
        return any(isinstance(other, np.ndarray) and np.may_share_memory(array, other) for other in others.values())
    memory, first, last = _span(array)
    spans = [_span(other) for other in others.values() if not isinstance(other, np.ndarray)]
    return any(memory == where and first < end and begin < last for where, begin, end in spans)


def _span(array: Any) -> tuple[int, int, int]:
    """The buffer of pyopencl's that an array lies in, or 0 for CUDA's memory, and where it begins and ends there."""
    if of_pyopencl(array):
        span: tuple[int, int, int] = opencl_arrays().span(array)
        return span
    address = int(array.data.ptr)
    return 0, address, address + math.prod(array.shape) * array.dtype.itemsize


def _wrong(name: str, why: str) -> InputError:
    return InputError(f"output {quote(name)}: {why}", code="GPC2115")
