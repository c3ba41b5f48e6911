"""Targets for GPUs by the names that drivers and tables of measurements give them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from gpucomp.device.catalogue import find
from gpucomp.device.device import waiting
from gpucomp.device.target import Target
from gpucomp.targets import cuda, hip, opencl


@lru_cache(maxsize=1024)
def target_of(name: str, interface: str = "") -> Target | None:
    """The target for a device as a file names it, with that device's figures; ``None`` if nothing is known of it.

    With ``interface`` ``hip``, the target of HIP for a GPU of AMD; ``None`` for others. Files have times of libraries, whose
    launches wait for each other, so those of the device do too.
    """
    known = find(name)
    if known is None:
        return None
    kind, _, arch = known.target.partition(":")
    device = waiting(known.device)
    if interface == "hip":
        if not hip.is_known(arch):
            return None
        target, device = hip.manifest(arch), replace(device, shuffles=True)
    else:
        target = cuda.manifest(arch) if kind == "cuda" else opencl.manifest(arch)
    limits = replace(target.limits, units=device.units)
    return replace(target, limits=limits, device=device, features=target.features - known.lacks)
