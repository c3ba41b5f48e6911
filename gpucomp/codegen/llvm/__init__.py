"""Kernels as LLVM IR for the CPU: one function per kernel, called with a range of its tasks.

The target compiles the text.
"""

from __future__ import annotations

from gpucomp.codegen.llvm.engines import family_of
from gpucomp.device.target import Target
from gpucomp.errors import UnsupportedError
from gpucomp.ir.size import is_zero
from gpucomp.kernel import Kernel
from gpucomp.kernel.example import example_of
from gpucomp.kernel.forms.row_statistics import no_tail
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import Emitted, KernelSource
from gpucomp.schedule.space import Family, Schedule


def emit(kernel: Kernel, schedule: Schedule, target: Target, name: str, family: Family | None = None) -> KernelSource:
    """``void name(ptr ..., i64 first_task, i64 last_task)``; ``geometry.groups[0]`` is the number of tasks.

    Raises ``ScheduleError`` for a schedule that cannot run on ``target``, and ``UnsupportedError`` for row statistics
    after a contraction: they save a launch on a GPU and would gain nothing here.
    """
    if reason := no_tail(kernel):
        raise UnsupportedError(f"{kernel.label or kernel.family}: {reason}", code="GPC4010")
    family = family or family_of(kernel)
    family.require(schedule, family.problem(example_of(kernel)), target.limits)
    if all(is_zero(type.size) for type in kernel.params[kernel.inputs :]):
        arguments = ", ".join(f"ptr %p{i}" for i in range(len(kernel.params)))
        nothing = f"define void @{name}({arguments}, i64 %first, i64 %last) #0 {{\n  ret void\n}}\n"
        return KernelSource(name, "llvm", nothing, Geometry((0, 1, 1)), dict(schedule), family.title)
    made: Emitted = family.emit(kernel, schedule, name, target)
    geometry = Geometry((made.tasks, 1, 1))
    return KernelSource(name, "llvm", made.text, geometry, dict(schedule), family.title, sizes=made.sizes)
