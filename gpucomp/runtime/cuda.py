"""A plan on a CUDA device: memory and streams by cupy; loading, launches and copies by the driver API.

Cubins are loaded as they are. A device of a newer generation loads the PTX instead, which its driver compiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpucomp.artifact.plan import CompiledKernel, Plan
from gpucomp.errors import DeviceError
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.runtime.cuda_driver import (
    Driver,
    DriverCallError,
    KernelLaunch,
    encoded,
    function_of,
    import_cupy,
    import_driver,
    loaded,
)
from gpucomp.runtime.gpu import GpuProgram
from gpucomp.targets.cuda import architecture_for, compiles_ptx, ptx_name, ptx_version, runs_on

UNSUPPORTED_PTX = 222  # the driver does not know this version of PTX


class CudaProgram(GpuProgram):
    """A ``GpuProgram`` on a GPU of NVIDIA.

    ``cupy`` and ``driver`` (``cuda.bindings.driver``) are the modules, given by tests that have no GPU. Raises
    ``DeviceError`` if one of them, a GPU or memory is missing.
    """

    name = "CUDA"

    def __init__(
        self,
        plan: Plan,
        sources: Mapping[str, str],
        binaries: Mapping[str, bytes],
        weights: Mapping[str, np.ndarray],
        *,
        cupy: Any = None,
        driver: Any = None,
        like: CudaProgram | None = None,
        apart: bool = False,
    ) -> None:
        self._by_ptx: bool = like._by_ptx if like is not None else False
        if like is not None:
            cupy, driver = like._arrays, like._driver.bindings
        cupy = cupy if cupy is not None else import_cupy()
        opened = Driver(driver if driver is not None else import_driver())
        super().__init__(plan, sources, binaries, weights, arrays=cupy, driver=opened, like=like, apart=apart)

    def _retain(self, device: Any) -> Any:
        self._number = self._driver("cuDeviceGet", device.id)
        context = self._driver("cuDevicePrimaryCtxRetain", self._number)
        self._owned.callback(self._driver, "cuDevicePrimaryCtxRelease", self._number)
        return context

    def _check_device(self, binaries: Mapping[str, bytes]) -> None:
        self._by_ptx = self._needs_ptx(binaries)

    @property
    def driver(self) -> str:
        with self._current("", "GPC5005"):
            name = self._driver("cuDeviceGetName", 256, self._number)
            return f"CUDA {self._driver('cuDriverGetVersion')} | {name.split(bytes(1))[0].decode(errors='replace')}"

    def _needs_ptx(self, binaries: Mapping[str, bytes]) -> bool:
        """Whether the device loads the plan's PTX instead of its cubins.

        Raises ``DeviceError`` if it can load neither, or if a kernel needs more shared memory than the device has, for which
        the driver's own error is only "invalid value".
        """
        arch, names = self.plan.arch, self._driver.bindings.CUdevice_attribute
        major, minor, there = (
            self._driver("cuDeviceGetAttribute", attribute, self._number)
            for attribute in (
                names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                names.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )
        )
        native = runs_on(arch, major, minor)
        what = f"the model is compiled for {arch}, the GPU has compute capability {major}.{minor}"
        by_ptx = all(ptx_name(kernel.binary) in binaries for kernel in self.plan.kernels)
        if not native and not (by_ptx and compiles_ptx(arch, major, minor)):
            raise DeviceError(f"{what}: compile for cuda:{architecture_for(major, minor)}", code="GPC5008")
        needed = max((k.shared for k in self.plan.kernels), default=0)
        if needed > there:
            raise DeviceError(
                f"{what}; a kernel needs {needed} bytes of shared memory, the GPU has {there}: "
                f"compile for cuda:{architecture_for(major, minor)}",
                code="GPC5008",
            )
        return not native

    def _function(self, kernel: CompiledKernel, sources: Mapping[str, str], binaries: Mapping[str, bytes]) -> Any:
        if self._by_ptx:
            text = bytes(binaries[ptx_name(kernel.binary)])
            what = f"kernel {kernel.name}, compiled by the driver from PTX for {self.plan.arch}: "
            with self._failing(what, "GPC5008"):
                try:
                    module = loaded(self._driver, text)
                except DriverCallError as error:
                    if error.status != UNSUPPORTED_PTX:
                        raise
                    cuda = self._driver("cuDriverGetVersion")
                    raise DeviceError(
                        f"{self.name}: {what}it is PTX {ptx_version(text)}, which is newer than the driver's CUDA "
                        f"{cuda // 1000}.{cuda % 1000 // 10}: compile for the GPU's own architecture, or with an NVRTC no "
                        "newer than the driver, or install a newer driver",
                        code="GPC5008",
                    ) from error
        else:
            binary = bytes(binaries.get(kernel.binary, b"")) or self._compiled(kernel, sources[kernel.source])
            with self._failing(f"kernel {kernel.name}: ", "GPC5015"):
                module = loaded(self._driver, binary)
        self._owned.callback(self._driver, "cuModuleUnload", module)
        with self._failing(f"kernel {kernel.name}: ", "GPC5015"):
            return function_of(self._driver, module, kernel.name, kernel.shared)

    def _compiled(self, kernel: CompiledKernel, text: str) -> bytes:
        from gpucomp.targets import cuda  # only without binaries: otherwise running needs no compiler
        from gpucomp.targets.cache import open_cache

        source = KernelSource(kernel.name, "cuda", text, Geometry(kernel.groups, kernel.items))
        return cuda.build(source, cuda.manifest(self.plan.arch), open_cache())

    def _prepared(self, kernel: CompiledKernel, addresses: Sequence[int]) -> KernelLaunch:
        arguments = [np.array([a], np.uint64) for a in addresses]
        arguments += [encoded(self._driver, m, addresses[m.parameter]) for m in kernel.tensor_maps]
        arguments += [np.array([n], np.int64) for n in kernel.numbers]
        return KernelLaunch(
            self._driver,
            self._functions[kernel.name],
            kernel.groups,
            kernel.items,
            kernel.shared,
            self._stream.ptr,
            arguments,
            programmatic=kernel.programmatic,
        )

    def _moved(self, launch: int, index: int, address: int) -> None:
        prepared, of = self._launches[launch], self.plan.launches[launch]
        assert prepared is not None, "a host operator has no tensor map"
        for which, one in enumerate(self.plan.kernels[of.kernel].tensor_maps, len(of.args)):
            if one.parameter == index:
                prepared.set_bytes(which, encoded(self._driver, one, address))
