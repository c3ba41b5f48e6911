"""Exported projects, built by a C compiler, and called through ctypes: weights and memory are the test's."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import gpucomp
from gpucomp.export.names import members
from gpucomp.export.project import export_c
from gpucomp.runtime.any_shape import AnyShapeExecutable
from gpucomp.runtime.executable import Executable
from gpucomp.runtime.native import address_of, aligned

WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
SHARE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Share(ctypes.Structure):
    """``gpucomp_share``."""

    _fields_ = [("pool", ctypes.c_void_p), ("run", SHARE)]


def run(*command: str | Path, cwd: Path | None = None, timeout: float = 300) -> str:
    """What a command prints; it must end well."""
    ended = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=timeout)
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def cmake(folder: Path, *options: str, build: str = "build", flags: str = "") -> Path:
    """Configure and build a project as a newcomer does, with all warnings as errors. Returns the folder of the programs."""
    words = " ".join((*WARNINGS[1:], flags))
    run("cmake", "-S", folder, "-B", folder / build, f"-DCMAKE_C_FLAGS={words}", *options)
    run("cmake", "--build", folder / build)
    return folder / build


class Project:
    """A model that was exported for a processor of this machine, and ``exe``, which was exported."""

    def __init__(self, model: object, folder: Path, name: str, target: str = "cpu", **how: object) -> None:
        self.exe: Executable = gpucomp.compile(model, target=target, **how)
        self.folder, self.name = folder, name
        self.files = export_c(self.exe, folder, name=name)
        self.inputs = members("INPUT", self.exe.inputs)
        self.outputs = members("OUTPUT", self.exe.outputs)

    def library(self) -> Library:
        return Library(self)

    def compiled(self, *flags: str, compiler: str = "gcc", files: Sequence[str] = ()) -> list[Path]:
        """The objects of the library, and of other ``files``."""
        made = []
        for file in (f"{self.name}.c", f"{self.name}_weights.S", *files):
            made.append(self.folder / f"{Path(file).stem}-{compiler}.o")
            run(compiler, *WARNINGS, *flags, "-fPIC", "-c", file, "-o", made[-1], cwd=self.folder)
        return [*made, self.folder / f"{self.name}_kernels.o"]


class Library:
    """A project as a shared library. ``init`` and ``run`` return what C returns."""

    def __init__(self, project: Project) -> None:
        self.project, self.name = project, project.name
        place = project.folder / f"{project.name}.so"
        parts = project.compiled("-O2", files=("gpucomp_pool.c",))
        run("gcc", "-shared", "-Wl,-z,defs", "-pthread", *parts, "-o", place)
        self.c = ctypes.CDLL(str(place))
        self.size = getattr(self.c, f"{self.name}_arena_size")
        self.sized = isinstance(project.exe, AnyShapeExecutable)
        sizes = [ctypes.c_void_p] * self.sized
        self.size.restype, self.size.argtypes = ctypes.c_size_t, sizes
        self.error = getattr(self.c, f"{self.name}_error")
        self.error.restype, self.error.argtypes = ctypes.c_char_p, [ctypes.c_int]
        self.c_init = getattr(self.c, f"{self.name}_init")
        self.c_init.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        self.c_run = getattr(self.c, f"{self.name}_run")
        self.c_run.argtypes = [ctypes.c_void_p, *sizes, *[ctypes.c_void_p] * 3]
        if self.sized:
            self.c_shapes = getattr(self.c, f"{self.name}_shapes")
            self.c_shapes.argtypes = [ctypes.c_void_p] * 3
        if self.project.exe.kept:
            self.c_reset = getattr(self.c, f"{self.name}_reset")
            self.c_reset.argtypes = [ctypes.c_void_p]
            self.c_save, self.c_restore = (getattr(self.c, f"{self.name}_{call}") for call in ("save", "restore"))
            self.c_save.argtypes = [ctypes.c_void_p] * 2
            self.growing = any(state.grows for state in self.project.exe.states)
            self.c_restore.argtypes = [ctypes.c_void_p, *sizes, *[ctypes.c_int64] * self.growing, ctypes.c_void_p]
        content = (project.folder / f"{self.name}_weights.bin").read_bytes()
        self.weights = aligned((len(content),), np.dtype(np.uint8))
        self.weights[:] = np.frombuffer(content, np.uint8)

    def sizes(self, sizes: Sequence[int]) -> list[object]:
        """The argument of sizes, of a model that has any."""
        return [(ctypes.c_int64 * max(len(sizes), 1))(*sizes)] if self.sized else []

    def arena(self, extra: int = 0, sizes: Sequence[int] = ()) -> np.ndarray:
        """Memory for a context, full of what was there before."""
        made = aligned((self.size(*self.sizes(sizes)) + extra,), np.dtype(np.uint8))
        made[...] = 0xA5
        return made

    def ready(self, sizes: Sequence[int] = ()) -> np.ndarray:
        arena = self.arena(sizes=sizes)
        assert self.c_init(address_of(arena), len(arena), address_of(self.weights)) == 0
        return arena

    def run(
        self, arena: np.ndarray, inputs: Mapping[str, np.ndarray], share: Share | None = None
    ) -> dict[str, np.ndarray]:
        """The outputs by the model's names. Arrays are aligned as their elements, not more."""
        code, found = self.run_at(arena, (), inputs, [spec.shape for spec in self.project.exe.outputs], share)
        assert code == 0, self.error(code)
        return found

    def run_at(
        self,
        arena: np.ndarray,
        sizes: Sequence[int],
        inputs: Mapping[str, np.ndarray],
        shapes: Sequence[Sequence[int]],
        share: Share | None = None,
    ) -> tuple[int, dict[str, np.ndarray]]:
        """What the run returns, and the outputs."""
        given = [
            _barely_aligned(tensor.itemsize, np.ascontiguousarray(inputs[tensor.name]))
            for tensor in self.project.inputs
        ]
        made = [
            _barely_aligned(tensor.itemsize, np.full(shape, 0x5A).astype(spec.type.dtype.numpy))
            for tensor, spec, shape in zip(self.project.outputs, self.project.exe.outputs, shapes, strict=True)
        ]
        told = ctypes.byref(share) if share else None
        code = self.c_run(address_of(arena), *self.sizes(sizes), table(given), table(made), told)
        return code, {tensor.name: array for tensor, array in zip(self.project.outputs, made, strict=True)}

    def save(self, arena: np.ndarray, like: Mapping[str, np.ndarray]) -> tuple[int, dict[str, np.ndarray]]:
        """What the call returns, and the states, of the shapes and types of ``like``."""
        made = {
            state.name: _barely_aligned(like[state.name].itemsize, np.full_like(like[state.name], 77))
            for state in self.project.exe.states
        }
        return self.c_save(address_of(arena), table(list(made.values()))), made

    def restore(self, arena: np.ndarray, sizes: Sequence[int], saved: Mapping[str, np.ndarray], rows: int = 0) -> int:
        given = [_barely_aligned(saved[state.name].itemsize, saved[state.name]) for state in self.project.exe.states]
        return self.c_restore(address_of(arena), *self.sizes(sizes), *[rows] * self.growing, table(given))

    def shapes(self, arena: np.ndarray, sizes: Sequence[int]) -> list[tuple[int, ...]]:
        """The shapes of the outputs of a run at these sizes."""
        ranks = [len(tensor.extents) for tensor in self.project.outputs]
        numbers = (ctypes.c_int64 * max(sum(ranks), 1))()
        code = self.c_shapes(address_of(arena), *self.sizes(sizes), numbers)
        assert code == 0, self.error(code)
        left = iter(numbers)
        return [tuple(next(left) for _ in range(rank)) for rank in ranks]


def table(arrays: Sequence[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    """A struct of pointers."""
    return (ctypes.c_void_p * max(len(arrays), 1))(*map(address_of, arrays))


def _barely_aligned(itemsize: int, array: np.ndarray) -> np.ndarray:
    """A copy at an address that is a multiple of the element's size and of nothing larger."""
    room = np.zeros(array.nbytes + 192, np.uint8)
    start = -address_of(room) % 64 + itemsize
    made = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made
