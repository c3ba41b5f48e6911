"""Fences between work-groups of one OpenCL launch, so that one can read what another has written.

``mem_fence`` orders memory within a work-group only (OpenCL C 1.2, 6.12.9), and compilers implement just that: ROCm
emits a fence of work-group scope, libclc ``membar.cta`` on NVIDIA. Split sums, and scans with look-back, need a fence
of device scope. ``gpucomp.targets.opencl`` says which device has which of these fences.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpucomp.codegen.c.printer import CPrinter

# the statement by feature; ``order`` is ``release`` or ``acquire``
STATEMENTS: Mapping[str, str] = {
    # clang for AMD compiles OpenCL C 2.0's function to this, but that version would bring generic pointers
    "amd_fence": '__builtin_amdgcn_fence(__ATOMIC_{ORDER}, "agent");',
    # the same as fence.sc.gpu since sm_70 (PTX ISA, membar); NVIDIA's OpenCL C has no fence of device scope
    "ptx_fence": 'asm volatile("membar.gl;" ::: "memory");',
    "device_fence": "atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_{order}, memory_scope_device);",
}


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
