"""Kernels as LLVM IR for the CPU: one function per kernel, called with a range of its tasks.

The target compiles the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpucomp.codegen.llvm.engines import family_of
from gpucomp.device.target import Target
from gpucomp.errors import UnsupportedError
from gpucomp.ir.size import is_zero
from gpucomp.kernel import Kernel
from gpucomp.kernel.example import example_of, has_sizes
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
    problem = family.problem(example_of(kernel))
    family.require(schedule, problem, target.limits)
    header = _header(kernel, family, problem.numbers, schedule)
    if all(is_zero(type.size) for type in kernel.params[kernel.inputs :]):
        arguments = ", ".join(f"ptr %p{i}" for i in range(len(kernel.params)))
        nothing = f"define void @{name}({arguments}, i64 %first, i64 %last) #0 {{\n  ret void\n}}\n"
        return KernelSource(name, "llvm", header + nothing, Geometry((0, 1, 1)), dict(schedule), family.title)
    made: Emitted = family.emit(kernel, schedule, name, target)
    geometry = Geometry((made.tasks, 1, 1))
    return KernelSource(name, "llvm", header + made.text, geometry, dict(schedule), family.title, sizes=made.sizes)


def _header(kernel: Kernel, family: Family, problem: Mapping[str, int], schedule: Schedule) -> str:
    """A comment for readers, as at the top of a GPU's kernel. Letters of the label that could end it are replaced."""
    label = re.sub(r"[^A-Za-z0-9 .,:+<>=_x\[\]()-]", "?", kernel.label) or kernel.family
    example = "  (an example: each run decides its sizes)" if has_sizes(kernel) else ""
    numbers = [" ".join(f"{name}={value}" for name, value in group.items()) for group in (problem, dict(schedule))]
    return f"; {label}\n; problem   {numbers[0]}{example}\n; schedule  {numbers[1]}\n; engine    {family.title}\n\n"
