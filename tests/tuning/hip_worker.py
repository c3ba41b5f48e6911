"""The tuner's worker on a fake HIP GPU, whose kernels run on this processor: ``main(folder, faults, role, target, parent)``.

Every process that works for a search is one. They share ``folder``: compiled kernels, and which ones came in which order.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpucomp.artifact.plan import CompiledKernel
from gpucomp.device import hip as device
from gpucomp.kernel.source import KernelSource
from gpucomp.runtime.hip import HipProgram
from gpucomp.targets import hip
from gpucomp.tuning import worker
from testing.cuda_on_cpu.harness import CudaOnCpu
from tests.c_runtime.gpus import EmulatedHip
from tests.fake_hip.runtime import ILLEGAL_ADDRESS

FOREVER_S = 600.0
FAULTS = {"fault": 2, "hang": 3}  # which kernel does it, in the order in which they are launched first


class Gpu(EmulatedHip):
    """Knows kernels by their code objects: all candidates have one name. Each takes a time of its own."""

    def __init__(self, folder: Path, faults: str, arch: str) -> None:
        super().__init__(arch=arch)
        self.folder, self.arch = folder, arch
        self.faults = {FAULTS[fault]: fault for fault in faults.split()}
        self.texts: dict[bytes, tuple[str, str]] = {}

    def kernel(self, name: str) -> CudaOnCpu:
        code = self.code()
        text, kernel = self.texts[code]
        assert kernel == name
        self.library.fake_time(milliseconds(code))
        return CudaOnCpu(text, name, cache_dir=self.folder, arch=self.arch)

    def _launched(self, name, grid, block, shared, count, values) -> int:
        match self.faults.get(self.number()):
            case "fault":
                return ILLEGAL_ADDRESS
            case "hang":
                time.sleep(FOREVER_S)
        return super()._launched(name, grid, block, shared, count, values)

    def number(self) -> int:
        """The place of the kernel that runs among all that have run, in any process."""
        digest, listed = digest_of(self.code()), self.folder / "launched"
        seen = listed.read_text().split() if listed.exists() else []
        if digest not in seen:
            listed.write_text("\n".join([*seen, digest]))
            return len(seen)
        return seen.index(digest)


def digest_of(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest()


def milliseconds(code: bytes) -> float:
    return 0.25 + int(digest_of(code)[:2], 16) / 256


def main(folder: str, faults: str, role: str, target: str, parent: str) -> None:
    place, arch = Path(folder), target.removeprefix("hip:")
    if role == "build":
        build = hip.build

        def built(source: KernelSource, *more: Any) -> bytes:
            CudaOnCpu(source.text, source.name, cache_dir=place, arch=arch)
            return build(source, *more)

        hip.build = built
    else:
        gpu, function = Gpu(place, faults, arch), HipProgram._function

        def noted(
            self: HipProgram, kernel: CompiledKernel, sources: Mapping[str, str], binaries: Mapping[str, bytes]
        ) -> Any:
            gpu.texts[bytes(binaries[kernel.binary])] = sources[kernel.source], kernel.name
            return function(self, kernel, sources, binaries)

        HipProgram._function = noted
        device.runtime = lambda: gpu.library
    worker.main(role, target, parent)
