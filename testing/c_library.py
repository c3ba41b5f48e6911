"""Builds libgpucomp_rt, and calls it from Python through its C interface."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gpucomp
from gpucomp.ir.types import NAMED

NATIVE = Path(gpucomp.__file__).parent / "native"
ALL = sorted((NATIVE / "src").glob("*.c"))
WITHOUT = ("no_opencl.c", "no_gpu.c")  # what stands in for the files of devices in a library for the processor alone
SOURCES = [path for path in ALL if path.name not in WITHOUT]
CPU_SOURCES = [path for path in ALL if not path.name.startswith(("cl", "device", "gpu", "kernel_cache"))]
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
MAX_RANK = 32


@functools.cache
def folder() -> Path:
    """Where what this process builds lies."""
    made = Path(tempfile.mkdtemp(prefix="gpucomp_rt."))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


_built: set[tuple[object, ...]] = set()


def build(name: str, files: Sequence[Path], *options: str, compiler: str = "") -> Path:
    """Compile and link ``files``, unless that was done before; a warning is an error."""
    target = folder() / name
    compiler = compiler or COMPILERS[0]
    if (key := (name, compiler, options)) in _built:
        return target
    _built.add(key)
    command = [
        compiler,
        *WARNINGS,
        f"-I{NATIVE / 'include'}",
        *options,
        *map(str, files),
        "-o",
        str(target),
        *(() if "-c" in options else ("-lpthread", "-lm")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return target


@functools.cache
def shared(compiler: str = "", *, cpu_only: bool = False) -> Path:
    """The library as it is shipped, or for the processor alone."""
    script = f"-Wl,--version-script={NATIVE / 'gpucomp.map'}"
    small = "-Oz" if compiler == "clang" else "-Os"
    options = (small, "-fPIC", "-shared", "-fvisibility=hidden", "-ffunction-sections", "-Wl,--gc-sections", script)
    lean = (
        "-fno-math-errno",  # errno is not asked
        "-fno-semantic-interposition",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
        "-Wl,-z,noseparate-code",
        "-Wl,--hash-style=gnu",
    )
    name, files = ("libgpucomp_rt_cpu", CPU_SOURCES) if cpu_only else ("libgpucomp_rt", SOURCES)
    return build(f"{name}.{compiler or 'so'}", files, *options, *lean, compiler=compiler)


class Error(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("code", ctypes.c_int), ("text", ctypes.c_char * 2048))


class Tensor(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("shape", ctypes.c_void_p),
        ("rank", ctypes.c_size_t),
        ("memory", ctypes.c_int),
    )


class _Axis(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("low", ctypes.c_int64),
        ("high", ctypes.c_int64),
        ("multiple", ctypes.c_int64),
    )


class _TensorInfo(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("element_bytes", ctypes.c_size_t),
        ("rank", ctypes.c_size_t),
        ("axes", _Axis * MAX_RANK),
        ("bytes", ctypes.c_uint64),
    )


class ModelInfo(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("target", ctypes.c_char_p),
        ("processor", ctypes.c_char_p),
        *((name, ctypes.c_size_t) for name in ("inputs", "outputs", "states", "dims", "kernels", "launches", "fixed")),
        *((name, ctypes.c_uint64) for name in ("weight_bytes", "code_bytes", "arena_bytes")),
        ("device", ctypes.c_char_p),
        ("compiled", ctypes.c_uint64),
        ("native_context", ctypes.c_void_p),
        ("native_device", ctypes.c_void_p),
        ("device_number", ctypes.c_int),
    )


class _OpenOptions(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("keep_mapped", ctypes.c_int),
        *((name, ctypes.c_char_p) for name in ("library", "device", "cache")),
    )


class _Size(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("value", ctypes.c_int64))


class Options(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("threads", ctypes.c_int),
        ("arena", ctypes.c_void_p),
        ("arena_bytes", ctypes.c_size_t),
        ("largest", ctypes.POINTER(_Size)),
        ("largest_count", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
    )


class NativeError(Exception):
    """What a call of the library told: its code as text, and its sentence."""

    def __init__(self, code: int, text: str) -> None:
        self.code, self.message = f"GPC{code:04d}", text.partition(" ")[2]
        super().__init__(text)


class Native:
    """The library, loaded."""

    def __init__(self, path: Path | None = None) -> None:
        self.c = ctypes.CDLL(str(path or shared()))
        for name in ("gpucomp_close", "gpucomp_context_destroy"):
            getattr(self.c, name).restype = None

    def __call__(self, name: str, *arguments: Any) -> None:
        error = Error(ctypes.sizeof(Error), 77, b"untouched")
        code = getattr(self.c, name)(*arguments, ctypes.byref(error))
        text = error.text.decode()
        assert code == error.code, (name, code, error.code, text)
        assert text.startswith(f"GPC{code:04d} ") if code else text == "", text
        if code:
            raise NativeError(code, text)


@functools.cache
def native() -> Native:
    return Native()


class Model:
    """A file that the library opened."""

    def __init__(self, path: Path | bytes, using: Native | None = None, **options: str | Path) -> None:
        """``options``: texts of gpucomp_open_options."""
        self.library = using or native()
        self._contexts: weakref.WeakSet[Context] = weakref.WeakSet()
        self.handle = ctypes.c_void_p()
        how = _OpenOptions(ctypes.sizeof(_OpenOptions), **{name: os.fsencode(text) for name, text in options.items()})
        self.library("gpucomp_open", os.fsencode(path), ctypes.byref(how), ctypes.byref(self.handle))
        info = ModelInfo(ctypes.sizeof(ModelInfo))
        self.library("gpucomp_describe", self.handle, ctypes.byref(info))
        self.info = info
        self.inputs = [self._tensor("gpucomp_input", k) for k in range(info.inputs)]
        self.outputs = [self._tensor("gpucomp_output", k) for k in range(info.outputs)]
        self.states = [self._tensor("gpucomp_state", k) for k in range(info.states)]

    def _tensor(self, call: str, number: int) -> _TensorInfo:
        info = _TensorInfo(ctypes.sizeof(_TensorInfo))
        self.library(call, self.handle, ctypes.c_size_t(number), ctypes.byref(info))
        return info

    def arena_bytes(self, **sizes: int) -> int:
        found = ctypes.c_uint64()
        given = (_Size * max(len(sizes), 1))(*((name.encode(), value) for name, value in sizes.items()))
        self.library("gpucomp_arena_bytes", self.handle, given, ctypes.c_size_t(len(sizes)), ctypes.byref(found))
        return found.value

    def context(self, **options: Any) -> Context:
        made = Context(self, **options)
        self._contexts.add(made)
        return made

    def __del__(self) -> None:
        for context in list(getattr(self, "_contexts", ())):  # which may be garbage together with it
            context.close()
        if not getattr(self, "handle", None):
            return
        self.library.c.gpucomp_close(self.handle)


@dataclass(frozen=True)
class OnDevice:
    """A tensor in a device's memory: an address, or a handle."""

    place: int
    shape: tuple[int, ...]
    nbytes: int


class Context:
    """A context of the library. It keeps its model."""

    def __init__(
        self,
        model: Model,
        threads: int = 1,
        largest: Mapping[str, int] | None = None,
        arena: np.ndarray | None = None,
        arena_bytes: int = 0,
        stream: int | None = None,
    ) -> None:
        self.model, self.library, self.arena = model, model.library, arena
        sizes = [_Size(name.encode(), value) for name, value in (largest or {}).items()]
        options = Options(ctypes.sizeof(Options), threads, None, arena_bytes)
        if arena is not None:
            options.arena, options.arena_bytes = arena.ctypes.data, arena.nbytes
        options.largest, options.largest_count = (_Size * max(len(sizes), 1))(*sizes), len(sizes)
        options.stream = stream
        self.handle = ctypes.c_void_p()
        self.library("gpucomp_context_create", model.handle, ctypes.byref(options), ctypes.byref(self.handle))

    def tensors(self, arrays: Sequence[np.ndarray | OnDevice]) -> Any:
        made = (Tensor * max(len(arrays), 1))()
        self.kept = [*getattr(self, "kept", [])[-64:], arrays]
        for tensor, array in zip(made, arrays, strict=False):
            shape = np.array(array.shape, np.int64)
            self.kept.append(shape)
            at = array.place if isinstance(array, OnDevice) else array.ctypes.data
            tensor.size, tensor.data, tensor.bytes = ctypes.sizeof(Tensor), at, array.nbytes
            tensor.shape, tensor.rank = shape.ctypes.data, len(array.shape)
            tensor.memory = isinstance(array, OnDevice)
        return made

    def start(
        self, call: str, inputs: Sequence[np.ndarray | OnDevice], outputs: Sequence[np.ndarray | OnDevice]
    ) -> None:
        """gpucomp_run, or gpucomp_enqueue, on these tensors."""
        given, made = (self.tensors(arrays) for arrays in (inputs, outputs))
        self.call(call, given, ctypes.c_size_t(len(inputs)), made, ctypes.c_size_t(len(outputs)))

    def call(self, name: str, *arguments: Any) -> None:
        self.library(name, self.handle, *arguments)

    def arrays(self, given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [np.asarray(given[info.name.decode()], order="C") for info in self.model.inputs]

    def output(self, number: int) -> np.ndarray:
        """An array for an output of the sizes that are planned."""
        shape, rank = np.zeros(MAX_RANK, np.int64), ctypes.c_size_t()
        at = ctypes.c_size_t(number), ctypes.c_void_p(shape.ctypes.data), ctypes.byref(rank), None
        self.call("gpucomp_output_shape", *at)
        return np.full(shape[: rank.value], 77, NAMED[self.model.outputs[number].dtype.decode()].numpy)

    def run(self, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """As ``Executable.run``."""
        arrays = self.arrays(given)
        inputs, count = self.tensors(arrays), ctypes.c_size_t(len(arrays))
        self.call("gpucomp_plan", inputs, count)
        outputs = [self.output(k) for k in range(len(self.model.outputs))]
        self.call("gpucomp_run", inputs, count, self.tensors(outputs), ctypes.c_size_t(len(outputs)))
        return {info.name.decode(): array for info, array in zip(self.model.outputs, outputs, strict=True)}

    def save(self, number: int) -> np.ndarray:
        """The valid part of a state."""
        shape, rank, nbytes = np.zeros(MAX_RANK, np.int64), ctypes.c_size_t(), ctypes.c_size_t()
        at = ctypes.c_void_p(shape.ctypes.data), ctypes.byref(rank)
        self.call("gpucomp_state_save", ctypes.c_size_t(number), None, ctypes.c_size_t(0), ctypes.byref(nbytes), *at)
        array = np.empty(shape[: rank.value], NAMED[self.model.states[number].dtype.decode()].numpy)
        assert array.nbytes == nbytes.value
        data = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
        self.call("gpucomp_state_save", ctypes.c_size_t(number), *data, None, None, None)
        return array

    def restore(self, number: int, array: np.ndarray) -> None:
        self.call("gpucomp_state_restore", ctypes.c_size_t(number), self.tensors([array]))

    def rows(self, number: int) -> int:
        found = ctypes.c_int64()
        self.call("gpucomp_state_rows", ctypes.c_size_t(number), ctypes.byref(found))
        return found.value

    def close(self) -> None:
        handle, self.handle = getattr(self, "handle", None), None
        if handle:
            self.library.c.gpucomp_context_destroy(handle)

    def __del__(self) -> None:
        self.close()


def same_bits(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> bool:
    """Whether two results are equal in every bit."""
    return found.keys() == expected.keys() and all(
        found[name].dtype == array.dtype
        and found[name].shape == array.shape
        and found[name].tobytes() == array.tobytes()
        for name, array in expected.items()
    )
