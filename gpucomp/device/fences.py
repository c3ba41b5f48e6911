"""The fences of device scope that OpenCL devices have, by feature. ``gpucomp.codegen.c.fences`` says what they are for."""

from __future__ import annotations

from collections.abc import Mapping

# the statement by feature; ``order`` is ``release`` or ``acquire``
STATEMENTS: Mapping[str, str] = {
    # clang for AMD compiles OpenCL C 2.0's function to this, but that version would bring generic pointers
    "amd_fence": '__builtin_amdgcn_fence(__ATOMIC_{ORDER}, "agent");',
    # the same as fence.sc.gpu since sm_70 (PTX ISA, membar); NVIDIA's OpenCL C has no fence of device scope
    "ptx_fence": 'asm volatile("membar.gl;" ::: "memory");',
    "device_fence": "atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_{order}, memory_scope_device);",
}
