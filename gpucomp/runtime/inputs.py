"""Checks the inputs of ``run`` and converts them to numpy arrays, or to arrays on the device. Nothing is run here."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from gpucomp.errors import InputError, UsageError, quote
from gpucomp.extras import install
from gpucomp.ir.dim import Dim
from gpucomp.ir.dims import Extent
from gpucomp.ir.types import DTYPES, NAMED, STRING, TensorType
from gpucomp.lazy_dataclass import dataclass

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_./:-]{1,80}")
_EXPORT_ERRORS = (
    BufferError,
    RuntimeError,
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    OSError,
    MemoryError,
)
GPUS = ("cuda", "hip")  # kinds of targets whose arrays ``gpu_arrays`` makes
CPU_MEMORY = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost
_NUMBERS = {d.numpy for d in DTYPES.values()}
Containers = Mapping[str, tuple[str, ...] | None]


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of an executable; prints as ``x: f32[1,3,224,224]``."""

    name: str
    dtype: str
    shape: tuple[Any, ...]  # of whole numbers; a ``Dim`` where each run decides the size

    @property
    def type(self) -> TensorType:
        return TensorType(NAMED[self.dtype], self.shape)

    @property
    def plain(self) -> np.dtype | None:
        """The element type of arrays that are taken without a look at each element; ``None`` for strings."""
        return None if self.dtype == STRING.name else NAMED[self.dtype].numpy

    def __str__(self) -> str:
        return f"{self.name if _PLAIN_NAME.fullmatch(self.name) else quote(self.name)}: {self.type}"


def checked_inputs(
    given: Mapping[str, object], specs: Sequence[TensorSpec], *, kind: str = "cpu", stream: Any = None
) -> dict[str, Any]:
    """C-contiguous arrays, one for each spec, in the order of the specs. Arrays that fit are not copied.

    ``kind`` is that of the device. The arrays are numpy's. For CUDA, those in a GPU's memory stay there as cupy arrays, and are
    complete when this returns; with a ``stream`` of the caller's they are complete once that stream has done what it was given
    so far. For HIP the same holds with arrays of ``HipArrays``, which need no cupy. For OpenCL, those of pyopencl stay where they
    are; what their queues do may not have ended.

    Raises ``InputError``: GPC2101 for an unknown name, GPC2109 for a missing one, GPC2103 for a wrong shape, GPC2104 for a
    wrong element type, GPC2105 for a value that is not an array, GPC2106 for memory that cannot be read from here.
    """
    if not isinstance(given, Mapping):
        raise InputError(f"inputs: a mapping of names to arrays expected, found {type(given).__name__}", code="GPC2105")
    known = {spec.name for spec in specs}
    names = ", ".join(quote(spec.name) for spec in specs) or "none"
    if unknown := [name for name in given if name not in known]:
        raise InputError(f"there is no input {quote(unknown[0])}; the model's inputs are {names}", code="GPC2101")
    if missing := [spec for spec in specs if spec.name not in given]:
        listed = ", ".join(f"{quote(spec.name)} {spec.type}" for spec in missing)
        told = f"not all inputs are given, missing: {listed}"
        raise InputError(told, code="GPC2109", in_shell=f"{told}; give each a file: --input NAME=FILE")
    return {spec.name: _checked(given[spec.name], spec, kind, stream) for spec in specs}


def as_they_are(
    given: object, expected: Sequence[tuple[str, np.dtype | None]]
) -> tuple[dict[str, np.ndarray], tuple[tuple[int, ...], ...]] | None:
    """The arrays and their shapes, if there is nothing to convert, and nothing to refuse but shapes.

    ``expected`` has names and ``TensorSpec.plain``. This is the part of ``checked_inputs`` that every usual run needs.
    """
    if type(given) is not dict or len(given) != len(expected):
        return None
    arrays: dict[str, np.ndarray] = {}
    shapes = []
    for name, dtype in expected:
        array = given.get(name)
        if type(array) is not np.ndarray or dtype is None or array.dtype != dtype or not array.flags.c_contiguous:
            return None
        arrays[name] = array
        shapes.append(array.shape)
    return arrays, tuple(shapes)


def _checked(value: object, spec: TensorSpec, kind: str, stream: Any) -> Any:
    dtype = spec.type.dtype
    array = _texts(value, spec.name) if dtype is STRING else as_array(value, spec.name, kind, stream=stream)
    if array.dtype.newbyteorder("=") != dtype.numpy:
        of_torch = type(value).__module__.partition(".")[0] == "torch"
        call = f".to(torch.{dtype.numpy})" if of_torch else f".astype({str(dtype.numpy)!r})"
        raise InputError(
            f"input {quote(spec.name)}: element type {dtype} ({dtype.numpy}) expected, found {array.dtype}; "
            f"convert with {call}",
            code="GPC2104",
        )
    if not fits(array.shape, spec.shape):
        raise InputError(
            f"input {quote(spec.name)}: shape [{', '.join(map(str, spec.shape))}] expected, found {list(array.shape)}; "
            f"for another shape compile with shapes={{{spec.name!r}: {array.shape}}}",
            code="GPC2103",
            in_shell=f"input {quote(spec.name)}: shape [{', '.join(map(str, spec.shape))}] expected, found {list(array.shape)}; "
            f"for another shape compile with --shapes {spec.name}:{'x'.join(map(str, array.shape))}",
        )
    return np.asarray(array, dtype=dtype.numpy, order="C") if isinstance(array, np.ndarray) else array


def fits(shape: Sequence[int], expected: Sequence[Extent]) -> bool:
    """Whether the ranks are equal, and the sizes that no run decides."""
    pairs = zip(shape, expected, strict=False)
    return len(shape) == len(expected) and all(isinstance(wanted, Dim) or size == wanted for size, wanted in pairs)


def _texts(value: object, name: str) -> np.ndarray:
    """An array of ``str`` from numpy strings or Python strings; each element is checked."""
    try:
        array = np.asarray(value)
    except _EXPORT_ERRORS:  # lists of different lengths, or a value that cannot be made a list
        raise InputError(f"input {quote(name)}: an array of strings expected", code="GPC2105") from None
    array = array.astype(object) if array.dtype.kind in "UT" else array
    if array.dtype != object or not all(isinstance(text, str) for text in array.reshape(-1)):
        raise InputError(f"input {quote(name)}: strings expected, found {quote(array.dtype)}", code="GPC2104")
    return array


def flattened(given: object, containers: Containers) -> object:
    """``given`` with every sequence and optional of the model replaced by its tensors. Raises ``InputError`` (GPC2107).

    The tensors can also be given by the names ``name[0]``, ``name[1]`` and so on.
    """
    if not containers or not isinstance(given, Mapping):
        return given
    flat = {name: value for name, value in given.items() if name not in containers}
    for name, parts in containers.items():
        if name not in given:
            if parts is None or any(part not in given for part in parts):
                raise InputError(f"not all inputs are given, missing: {quote(name)}", code="GPC2109")
            continue
        value = given[name]
        wanted = "None" if parts is None else f"a list of {len(parts)} arrays"
        if (value is None) != (parts is None) or (parts is not None and not isinstance(value, (list, tuple))):
            raise InputError(f"input {quote(name)}: {wanted} expected, found {type(value).__name__}", code="GPC2107")
        if parts is not None and isinstance(value, (list, tuple)):
            if len(value) != len(parts):
                raise InputError(
                    f"input {quote(name)}: {wanted} expected, found {len(value)}; "
                    "for another length compile with shapes=",
                    code="GPC2107",
                )
            flat.update(zip(parts, value, strict=True))
    return flat


def gathered(results: Mapping[str, Any], containers: Containers) -> dict[str, Any]:
    """The inverse of ``flattened``: lists of arrays, and ``None`` for an optional that holds nothing.

    A container whose first part has its own name is a sequence of maps: the rows of that tensor, with the second part as keys.
    """
    if not containers:
        return dict(results)
    inside = {name for parts in containers.values() for name in parts or ()}
    whole = {name: array for name, array in results.items() if name not in inside}
    for name, parts in containers.items():
        if parts is not None and len(parts) == 2 and parts[0] == name:
            values, keys = (np.asarray(results[part]) for part in parts)
            labels = keys.reshape(-1).tolist()
            whole[name] = [dict(zip(labels, row.reshape(-1).tolist(), strict=False)) for row in np.atleast_2d(values)]
        else:
            whole[name] = None if parts is None else [results[part] for part in parts]
    return whole


def of_pyopencl(value: object) -> bool:
    """Whether ``value`` is a ``pyopencl.array.Array``. Nobody has one who has not imported that module."""
    arrays = sys.modules.get("pyopencl.array")
    return arrays is not None and isinstance(value, arrays.Array)


def opencl_arrays() -> ModuleType:
    """The module for arrays of pyopencl, imported where there is one: processors and CUDA need no OpenCL."""
    return importlib.import_module("gpucomp.runtime.opencl_arrays")


def as_array(value: Any, name: str, kind: str, what: str = "input", stream: Any = None) -> Any:
    """``value`` as an array for a device of this ``kind``: of numpy's arrays, of pyopencl's, or of anything with
    ``__cuda_array_interface__`` or ``__dlpack__``.
    """
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.kind in "OSUVMm" and array.dtype.newbyteorder("=") not in _NUMBERS:
            raise InputError(f"{what} {quote(name)}: an array of {array.dtype} is not a tensor", code="GPC2105")
        return array
    if of_pyopencl(value):
        return _from_opencl(value, name, kind == "opencl", what)
    if _has(value, "__cuda_array_interface__", name, what):
        return _from_gpu(value, name, kind, what, stream)
    if _has(value, "__dlpack__", name, what) and _has(value, "__dlpack_device__", name, what):
        try:
            device = value.__dlpack_device__()[0]
            if device in CPU_MEMORY:
                return np.from_dlpack(value)
        except _EXPORT_ERRORS as error:
            raise InputError(f"{what} {quote(name)}: its DLPack export failed: {error}", code="GPC2106") from error
        return _from_gpu(value, name, kind, what, stream)
    raise InputError(
        f"{what} {quote(name)}: an array expected (numpy, pyopencl, DLPack or __cuda_array_interface__), "
        f"found {type(value).__name__}",
        code="GPC2105",
    )


def _has(value: object, protocol: str, name: str, what: str) -> bool:
    try:
        return hasattr(value, protocol)
    except _EXPORT_ERRORS as error:
        raise InputError(f"{what} {quote(name)}: its {protocol} failed: {quote(error)}", code="GPC2106") from error


def _from_opencl(array: Any, name: str, there: bool, what: str) -> Any:
    """The array of pyopencl itself if it stays ``there``, else a numpy array."""
    if why := opencl_arrays().objection(array):
        raise InputError(f"{what} {quote(name)}: {why}", code="GPC2106")
    return array if there else opencl_arrays().to_host(array, f"{what} {quote(name)}")


def gpu_arrays(kind: str) -> Any:
    """The arrays of a GPU: those of HIP need no package, others are cupy's. Raises ``ImportError`` without it."""
    if kind == "hip":
        return importlib.import_module("gpucomp.runtime.hip_arrays").shared()
    return importlib.import_module("cupy")


def _from_gpu(value: object, name: str, kind: str, what: str, stream: Any) -> Any:
    try:
        cupy = gpu_arrays(kind)
    except ImportError:
        raise InputError(
            f"{what} {quote(name)} is in a device's memory, and cupy, which would read it, is not installed: "
            f"{install('cuda13')}, or give it as a numpy array",
            code="GPC2106",
        ) from None
    try:
        array = _complete(cupy, value) if stream is None else _in_order(cupy, value, stream)
        return array if kind in GPUS else cupy.asnumpy(array)
    except (BufferError, MemoryError, RuntimeError, TypeError, ValueError) as error:  # CUDA's errors are subclasses
        raise InputError(f"{what} {quote(name)} cannot be read from its device: {error}", code="GPC2106") from error


def _complete(cupy: Any, value: object) -> Any:
    """``value`` as a contiguous cupy array to which all writes have ended, because the model runs in a stream of its own.

    A DLPack exporter makes cupy's current stream wait for its own stream. ``__cuda_array_interface__`` need not name a
    stream, and PyTorch's names none, so the whole device is waited for: the null stream does not wait for non-blocking
    streams.
    """
    array = _by_dlpack(cupy, value)
    if array is None:
        array = cupy.asarray(value)
        array.device.synchronize()
    with array.device:
        array = array if array.flags.c_contiguous else array.copy(order="C")
        cupy.cuda.get_current_stream().synchronize()
    return array


def _in_order(cupy: Any, value: object, stream: Any) -> Any:
    """``value`` as a contiguous cupy array to which all writes end before what ``stream`` is given next."""
    with cupy.cuda.ExternalStream(stream_of(stream)):  # for which a DLPack exporter makes its own stream wait
        array = _by_dlpack(cupy, value)
        array = cupy.asarray(value) if array is None else array
        return array if array.flags.c_contiguous else array.copy(order="C")


def device_view(value: Any, name: str, kind: str) -> Any:
    """``value``, in a GPU's memory, as an array of ``gpu_arrays`` of the same memory. Raises ``InputError`` (GPC2115)."""
    try:
        cupy = gpu_arrays(kind)
        array = _by_dlpack(cupy, value)
        return cupy.asarray(value) if array is None else array
    except _EXPORT_ERRORS as error:
        raise InputError(f"output {quote(name)} cannot be reached on its device: {error}", code="GPC2115") from error


def _by_dlpack(cupy: Any, value: object) -> Any:
    """``value`` by DLPack; ``None`` if only ``__cuda_array_interface__`` can export it."""
    if not hasattr(value, "__dlpack__"):
        return None
    try:
        return cupy.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError):  # for example an element type that one of the two lacks
        if not hasattr(value, "__cuda_array_interface__"):
            raise
        return None


def stream_of(given: Any) -> int:
    """The handle of a stream of CUDA or HIP: a number, or one of cupy's, of torch's, or of what has ``__cuda_stream__``.

    ``None`` is the default stream, in which torch and cupy work unless told otherwise. Raises ``UsageError`` (GPC2038).
    """
    if given is None:
        return 0
    if hasattr(given, "__cuda_stream__"):
        return int(given.__cuda_stream__()[1])
    for name in ("ptr", "cuda_stream"):
        given = getattr(given, name, given)
    if isinstance(given, int) and given >= 0:
        return int(given)
    raise UsageError(
        f"stream: one of CUDA's expected, with __cuda_stream__, ptr or cuda_stream, found {type(given).__name__}",
        code="GPC2038",
    )


def random_inputs(specs: Sequence[TensorSpec], seed: int = 0) -> dict[str, np.ndarray]:
    """Standard normal floats, and integers 0 or 1, which are valid indices into most tensors; strings are these as text.

    The same ``seed`` gives the same arrays.
    """
    rng = np.random.default_rng(seed)
    for spec in specs:
        if open_dims := [dim for dim in spec.shape if isinstance(dim, Dim)]:
            told = f"no random array for {spec}, because each run decides {quote(open_dims[0])}"
            raise UsageError(
                f"{told}: give an array",
                code="GPC2017",
                in_shell=f"{told}: give an array of the size to measure with --input {spec.name}=FILE, or many sizes with "
                "--shapes-from TRACE.jsonl",
            )

    def drawn(spec: TensorSpec) -> np.ndarray:
        dtype = spec.type.dtype
        numbers = rng.standard_normal(spec.shape) if dtype.is_float else rng.integers(0, 2, spec.shape)
        return np.asarray(numbers).astype(str if dtype is STRING else dtype.numpy).astype(dtype.numpy)

    return {spec.name: drawn(spec) for spec in specs}
