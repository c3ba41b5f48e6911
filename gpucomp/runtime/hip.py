"""A plan on an AMD GPU through HIP: code objects are loaded as they are, by ctypes on ``libamdhip64.so`` alone.

No package of Python is needed. Whoever has torch or cupy for ROCm can exchange arrays with a program by DLPack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpucomp.artifact.plan import CompiledKernel, Plan
from gpucomp.device import hip
from gpucomp.errors import DeviceError
from gpucomp.runtime.gpu import GpuProgram
from gpucomp.runtime.hip_arrays import HipArrays, shared
from gpucomp.runtime.hip_driver import HipLaunch


class HipProgram(GpuProgram):
    """A ``GpuProgram`` on a GPU of AMD.

    ``arrays`` is what programs of this process share, unless a test gives another. Raises ``DeviceError``: GPC5001 without
    HIP's runtime or a GPU, GPC5008 for a GPU of another instruction set.
    """

    name = "HIP"

    def __init__(
        self,
        plan: Plan,
        sources: Mapping[str, str],
        binaries: Mapping[str, bytes],
        weights: Mapping[str, np.ndarray],
        *,
        arrays: HipArrays | None = None,
        like: HipProgram | None = None,
        apart: bool = False,
    ) -> None:
        if like is not None:
            arrays = like._arrays
        elif arrays is None:
            hip.count(hip.runtime())  # whose error says more than that of a first call
            arrays = shared()
        assert arrays is not None
        super().__init__(plan, sources, binaries, weights, arrays=arrays, driver=arrays.driver, like=like, apart=apart)

    def _retain(self, device: Any) -> Any:
        return device.id

    def _check_device(self, binaries: Mapping[str, bytes]) -> None:
        """The instruction set decides the size of waves and of shared memory as well."""
        here = hip.gpu(self._driver.bindings, self._device.id)
        if here.arch != self.plan.arch:
            raise DeviceError(
                f"the model is compiled for {self.plan.arch}, the GPU {here.name} is {here.arch or 'of none that is known'}: "
                f"compile for hip:{here.arch or 'NAME'}",
                code="GPC5008",
            )

    @property
    def driver(self) -> str:
        library = self._driver.bindings
        return f"HIP {hip.version(library)} | {hip.gpu(library, self._device.id).name}"

    def _function(self, kernel: CompiledKernel, sources: Mapping[str, str], binaries: Mapping[str, bytes]) -> Any:
        code = bytes(binaries.get(kernel.binary, b""))
        if not code:
            raise DeviceError(
                f"kernel {kernel.name}: its code object {kernel.binary} is missing: compile the model again",
                code="GPC5015",
            )
        with self._failing(f"kernel {kernel.name}: ", "GPC5015"):
            module = self._driver("cuModuleLoadData", code)
            self._owned.callback(self._driver, "cuModuleUnload", module)
            return self._driver("cuModuleGetFunction", module, kernel.name.encode())

    def _prepared(self, kernel: CompiledKernel, addresses: Sequence[int]) -> HipLaunch:
        """A launch asks for ``kernel.shared`` as it is: AMD's runtime has no attribute for more than some size, as CUDA's has.

        Engines for AMD declare their local memory in the text, so the code object says how much, up to 160 KiB on gfx950.
        """
        arguments = [np.array([a], np.uint64) for a in addresses]
        arguments += [np.array([n], np.int64) for n in kernel.numbers]
        return HipLaunch(
            self._driver,
            self._functions[kernel.name],
            kernel.groups,
            kernel.items,
            kernel.shared,
            self._stream.ptr,
            arguments,
        )

    def _moved(self, launch: int, index: int, address: int) -> None:
        """Kernels of HIP are given nothing but addresses and numbers."""
