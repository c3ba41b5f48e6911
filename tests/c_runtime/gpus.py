"""Kernels of GPUs that run on this processor when a fake driver launches them, for Python and for the C runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gpucomp.artifact.tensor_map import TensorMap
from gpucomp.runtime import artifact
from gpucomp.runtime.executable import Executable
from testing.cuda_on_cpu.harness import Argument, CudaOnCpu, Mapped, compile_many
from tests.fake_cupy import FakeCupy
from tests.fake_driver.driver import CALLBACK, POINTER
from tests.fake_hip.runtime import LAUNCH_FAILED, FakeHip

Model = Executable | artifact.Contents | Path
_COMPILED: dict[tuple[str, str], CudaOnCpu] = {}  # by AMD's set of instructions, or none, and the text


def kernels_of(model: Model) -> dict[str, CudaOnCpu]:
    """The kernels of a model, or of a file, by name. Those of its sets of sizes have the same names: see ``play``."""
    model = artifact.load(model) if isinstance(model, Path) else model
    arch = model.plan.arch if model.plan.arch.startswith("gfx") else ""
    found = {kernel.name: model.sources[kernel.source] for kernel in model.plan.kernels}
    missing = [(text, name) for name, text in found.items() if (arch, text) not in _COMPILED]
    for (text, _), made in zip(missing, compile_many(missing, arch=arch) if missing else [], strict=True):
        _COMPILED[arch, text] = made
    return {name: _COMPILED[arch, text] for name, text in found.items()}


def maps_of(model: Model) -> dict[str, tuple[TensorMap, ...]]:
    """The tensor maps of each kernel, by name."""
    model = artifact.load(model) if isinstance(model, Path) else model
    return {kernel.name: kernel.tensor_maps for kernel in model.plan.kernels}


def pieces(addresses: Sequence[int], extents: Sequence[int]) -> list[np.ndarray]:
    """The bytes from each address to the next one that a kernel is given, or to the end of its allocation."""
    made: dict[int, np.ndarray] = {}
    for address, extent in zip(addresses, extents, strict=True):
        end = min([a for a in addresses if address < a < address + extent], default=address + extent)
        made[address] = np.frombuffer((ctypes.c_uint8 * (end - address)).from_address(address), np.uint8)
    return [made[address] for address in addresses]


class EmulatedHip(FakeHip):
    """A GPU of HIP that runs the kernels of models. A parameter that is no address is a number."""

    def __init__(self, *models: Model, arch: str = "gfx90a", gpus: int = 2) -> None:
        self.play(*models)
        super().__init__(None, arch, gpus)

    def play(self, *models: Model) -> None:
        """Launches are those of these models from now on."""
        self.emulated = {name: kernel for one in models for name, kernel in kernels_of(one).items()}

    def _launched(self, name, grid, block, shared, count, values) -> int:
        try:
            given = [int(values[i]) for i in range(count)]
            extents = [self.library.fake_extent(value) for value in given]
            found = iter(pieces([g for g, e in zip(given, extents, strict=True) if e], [e for e in extents if e]))
            signed = np.array(given, np.uint64).astype(np.int64)
            arguments = [next(found) if extents[i] else signed[i] for i in range(count)]
            self.kernel(name.decode()).run(list(grid[:3]), list(block[:3]), arguments, dynamic_shared=shared)
        except Exception as error:
            self.error = error
            return LAUNCH_FAILED
        return 0

    def kernel(self, name: str) -> CudaOnCpu:
        """What is launched by this name."""
        return self.emulated[name]


class EmulatedCuda:
    """A GPU of CUDA that runs the kernels of models. ``cupy`` is for programs in Python.

    A parameter of 8 bytes that is no address is a number, one of 128 bytes a tensor map.
    """

    def __init__(self, *models: Model, capability: tuple[int, int] = (8, 0), shared: int = 227 << 10) -> None:
        self.play(*models)
        self.cupy = FakeCupy({}, capability, shared)
        self.driver = self.cupy.driver
        self.error: Exception | None = None
        self._callback = CALLBACK(self._launched)
        self.driver.library.fake_on_launch(self._callback)

    def play(self, *models: Model) -> None:
        """Launches are those of these models from now on."""
        self.emulated = {name: kernel for one in models for name, kernel in kernels_of(one).items()}
        self.maps = {name: maps for one in models for name, maps in maps_of(one).items()}

    def _launched(self, name, grid, block, shared, count, pointers, sizes) -> int:
        try:
            words = [ctypes.c_int64.from_address(pointers[i]).value for i in range(count) if sizes[i] == POINTER]
            extents = [self.driver.library.fake_extent(word) for word in words]
            found = pieces([w for w, e in zip(words, extents, strict=True) if e], [e for e in extents if e])
            arguments: list[Argument] = list(found)
            arguments += [Mapped(spec, found[spec.parameter]) for spec in self.maps[name.decode()]]
            arguments += [np.int64(w) for w, e in zip(words, extents, strict=True) if not e]
            self.emulated[name.decode()].run(list(grid[:3]), list(block[:3]), arguments, dynamic_shared=shared)
        except Exception as error:
            self.error = error
            return LAUNCH_FAILED
        return 0
