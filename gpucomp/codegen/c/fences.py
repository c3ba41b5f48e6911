"""OpenCL C's fences between work-groups of one launch: what one leaves in memory, another finds behind them.

``mem_fence`` orders the memory of a work-group alone (OpenCL C 1.2, 6.12.9), and compilers take it at its word: ROCm's is a
fence of work-group scope, libclc's on NVIDIA ``membar.cta``. Sums of a split depth, and scans that look back, need the
scope of the device. Which device has which of these fences, ``gpucomp.targets.opencl`` says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpucomp.codegen.c.printer import CPrinter

# by feature: the statement, of an order that is ``release`` or ``acquire``
STATEMENTS: Mapping[str, str] = {
    # clang's for AMD: what OpenCL C 2.0's function is there, without OpenCL C 2.0's generic pointers
    "amd_fence": '__builtin_amdgcn_fence(__ATOMIC_{ORDER}, "agent");',
    # fence.sc.gpu since sm_70 (PTX ISA, membar); NVIDIA's OpenCL C has no fence of the device's scope
    "ptx_fence": 'asm volatile("membar.gl;" ::: "memory");',
    "device_fence": "atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_{order}, memory_scope_device);",
}


def add_fences(printer: CPrinter) -> None:
    """What the templates' fences call, for a kernel whose work-groups meet: in OpenCL functions of its own."""
    if printer.dialect.extensions:
        printer.helpers.update(fences(printer.features))


def fences(features: Collection[str]) -> dict[str, str]:
    """The two functions, by name; schedules that need them are legal where there is a fence."""
    known = [text for feature, text in STATEMENTS.items() if feature in features]
    assert known, "work-groups meet on a device that has no fence between them"
    return {
        name: f"void {name}() {{\n  {known[0].format(order=order, ORDER=order.upper())}\n}}\n"
        for name, order in (("release_to_device", "release"), ("acquire_from_device", "acquire"))
    }
