"""``Target``: everything the compiler knows about a device. ``gpucomp.runtime`` opens devices."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpucomp.device.device import Device
from gpucomp.device.limits import Limits


@dataclass(frozen=True)
class Target:
    """One device, or one kind of device.

    name        the name that users write: ``cpu``, ``opencl:pocl``, ``cuda:sm_90a``, ``hip:gfx90a``
    kind        ``cpu``, ``opencl``, ``cuda`` or ``hip``: the module of ``gpucomp.targets`` that builds for it
    arch        the architecture that its compiler is given: ``sm_90a``, ``gfx90a``, an LLVM CPU name, or an OpenCL flavour
    language    ``llvm``, ``opencl``, ``cuda`` or ``hip``: the source that ``codegen`` renders
    alignment   bytes that every buffer in the arena is aligned to; each manifest in ``targets`` sets it
    prologues   whether elementwise producers can be fused into the loads of a contraction
    row_tails   whether work-groups of a contraction can read each other's stores, for statistics of its rows. Not in
                OpenCL: that takes device-wide fences, which not all devices have (``gpucomp.codegen.c.fences``)
    device      a common device of this kind, for the analytic model; none for the CPU
    identity    the exact device, as tuning records name it: the processor's name, or a GPU and its driver;
                empty if the target is only a kind of device
    features    features of the device beyond the language: ``fp16``, ``fp64``, ``avx512f`` ...
    folds_norms whether RMS norms are folded into products: it pays if row statistics need no launch of their own
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

    @property
    def cache_bytes(self) -> int:
        """Size of the cache in which data stays from one kernel to the next: a GPU's last one, or a CPU core's second."""
        return self.device.l2_bytes if self.device is not None else self.limits.cache_bytes

    def with_limits(self, **changes: int) -> Target:
        return replace(self, limits=replace(self.limits, **changes))  # type: ignore[arg-type]
