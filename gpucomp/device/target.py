"""The manifest of a target: what the compiler may know of a device. Devices are opened in ``gpucomp.runtime``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpucomp.device.device import Device
from gpucomp.device.limits import Limits


@dataclass(frozen=True)
class Target:
    """One device, or one kind of device.

    name        what the user writes: ``cpu``, ``opencl:pocl``, ``cuda:sm_90a``
    kind        ``cpu``, ``opencl`` or ``cuda``: which module of ``gpucomp.targets`` builds for it
    arch        what its compiler is asked for: ``sm_90a``, an LLVM CPU name, or an OpenCL flavour
    language    ``llvm``, ``opencl`` or ``cuda``: which source ``codegen`` renders
    alignment   bytes that every buffer in the arena is aligned to
    prologues   whether a contraction's loads may compute (elementwise producers folded into them)
    row_tails   whether a contraction's work-groups may read each other's stores back, for statistics of their rows. Not in
                OpenCL, where that takes fences of the device, which not all have (``gpucomp.codegen.c.fences``)
    device      a common device of this kind, for the analytic model; none for the CPU
    identity    the very device, as tuning records name it: the processor's name, a GPU and its driver;
                empty where a target is but a kind of device
    features    what the device has beyond the language: ``fp16``, ``fp64``, ``avx512f`` ...
    folds_norms whether RMS norms go into the products behind them: it pays where statistics of rows are no launch of their own
    """

    name: str
    kind: str
    arch: str
    language: str
    limits: Limits
    alignment: int = 256
    prologues: bool = True
    row_tails: bool = False
    features: frozenset[str] = frozenset()
    device: Device | None = None
    identity: str = ""
    folds_norms: bool = False

    def with_limits(self, **changes: int) -> Target:
        return replace(self, limits=replace(self.limits, **changes))  # type: ignore[arg-type]
