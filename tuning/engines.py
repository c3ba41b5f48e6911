"""A kernel's candidates of all engines, as one table: what a search of the kernel proposes from."""

from __future__ import annotations

from gpucomp.codegen import families
from gpucomp.codegen.llvm import space
from gpucomp.tuning.records import current_hashes


def hashes() -> dict[str, dict[str, str]]:
    """The hash of every engine's template, by kind of device."""
    cpu = [family for engines in space.ENGINES.values() for family in engines]
    gpu = current_hashes(families.FAMILIES.values())
    return {"cpu": current_hashes(cpu), "opencl": gpu, "cuda": gpu}
