"""Fences between work-groups of one OpenCL launch, so that one can read what another has written.

``mem_fence`` orders memory within a work-group only (OpenCL C 1.2, 6.12.9), and compilers implement just that: ROCm
emits a fence of work-group scope, libclc ``membar.cta`` on NVIDIA. Split sums, and scans with look-back, need a fence
of device scope. ``gpucomp.device.fences`` has the statements; ``gpucomp.targets.opencl`` says which device has which.
"""

from __future__ import annotations

from collections.abc import Collection

from gpucomp.codegen.c.printer import CPrinter
from gpucomp.device.fences import STATEMENTS


def add_fences(printer: CPrinter) -> None:
    """Adds the fence functions that the templates of split kernels call; CUDA has them in its prelude."""
    if printer.dialect.extensions:
        printer.helpers.update(fences(printer.features))


def fences(features: Collection[str]) -> dict[str, str]:
    """The text of the two functions, by name. Schedules that need them are legal only on devices with a fence."""
    known = [text for feature, text in STATEMENTS.items() if feature in features]
    assert known, "work-groups meet on a device that has no fence between them"
    return {
        name: f"void {name}() {{\n  {known[0].format(order=order, ORDER=order.upper())}\n}}\n"
        for name, order in (("release_to_device", "release"), ("acquire_from_device", "acquire"))
    }
