"""Kernels as LLVM IR for the CPU: one function per kernel, called with a range of its tasks.

The target compiles the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpucomp.codegen.llvm.engines import family_of
from gpucomp.device.target import Target
from gpucomp.errors import UnsupportedError
from gpucomp.expr.core import Call, loads, reduces, walk
from gpucomp.ir.size import is_zero
from gpucomp.kernel import Attention, Contraction, FusedLayers, Kernel, Loops
from gpucomp.kernel.example import has_sizes
from gpucomp.kernel.forms.row_statistics import no_tail
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import Emitted, KernelSource
from gpucomp.schedule.space import Family, Schedule

X86 = "sse4.1"  # every x86 that code is made for has it
FLUSH_TO_ZERO, DENORMALS_ARE_ZERO = 1 << 15, 1 << 6  # in MXCSR


def emit(kernel: Kernel, schedule: Schedule, target: Target, name: str, family: Family | None = None) -> KernelSource:
    """``void name(ptr ..., i64 first_task, i64 last_task)``; ``geometry.groups[0]`` is the number of tasks.

    Raises ``ScheduleError`` for a schedule that cannot run on ``target``, and ``UnsupportedError`` for row statistics
    after a contraction: they save a launch on a GPU and would gain nothing here.
    """
    if reason := no_tail(kernel):
        raise UnsupportedError(f"{kernel.label or kernel.family}: {reason}", code="GPC4010")
    family = family or family_of(kernel)
    problem = family.problem(kernel)
    family.require(schedule, problem, target.limits)
    header = _header(kernel, family, problem.numbers, schedule)
    if all(is_zero(type.size) for type in kernel.params[kernel.inputs :]):
        arguments = ", ".join(f"ptr %p{i}" for i in range(len(kernel.params)))
        nothing = f"define void @{name}({arguments}, i64 %first, i64 %last) #0 {{\n  ret void\n}}\n"
        return KernelSource(name, "llvm", header + nothing, Geometry((0, 1, 1)), dict(schedule), family.title)
    made: Emitted = family.emit(kernel, schedule, name, target)
    geometry = Geometry((made.tasks, 1, 1), workspace_bytes=made.workspace_bytes, counter_bytes=made.counter_bytes)
    text = _flushed(made.text, name) if _adds_products(kernel) and X86 in target.features else made.text
    return KernelSource(name, "llvm", header + text, geometry, dict(schedule), family.title, sizes=made.sizes)


def _adds_products(kernel: Kernel) -> bool:
    if isinstance(kernel.body, Contraction | Attention | FusedLayers):
        return True
    sums = (r for store in kernel.stores for r in reduces(store.value) if r.op == "sum")
    return isinstance(kernel.body, Loops) and any(
        isinstance(node, Call) and node.fn == "mul" and all(map(loads, node.args))
        for r in sums
        for node in walk(r.body)
    )


def _flushed(text: str, name: str) -> str:
    """The function ``name`` of ``text``, called with the processor in a mode where numbers below the normal ones count as zero.

    A multiplication with such a number takes some hundred cycles on x86. Trained weights have them, for example where a channel
    has died: two of a text detector's convolutions took 50 of its 68 ms. A sum of products hides them.
    """
    begin = text.index(f"define void @{name}(")
    arguments = text[begin + len(f"define void @{name}(") : text.index(")", begin)]
    inner = text.replace(f"define void @{name}(", f"define internal void @{name}.sums(", 1)
    passed = ", ".join(" ".join((part.split()[0], part.split()[-1])) for part in arguments.split(", "))
    return f"""define void @{name}({arguments}) #1 {{
  %mode = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %mode)
  %before = load i32, ptr %mode
  %flushing = or i32 %before, {FLUSH_TO_ZERO | DENORMALS_ARE_ZERO}
  store i32 %flushing, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  call void @{name}.sums({passed})
  store i32 %before, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  ret void
}}

{inner}"""


def _header(kernel: Kernel, family: Family, problem: Mapping[str, int], schedule: Schedule) -> str:
    """A comment for readers, as at the top of a GPU's kernel. Letters of the label that could end it are replaced."""
    label = re.sub(r"[^A-Za-z0-9 .,:+<>=_x\[\]()-]", "?", kernel.label) or kernel.family
    example = "  (an example: each run decides its sizes)" if has_sizes(kernel) else ""
    numbers = [" ".join(f"{name}={value}" for name, value in group.items()) for group in (problem, dict(schedule))]
    return f"; {label}\n; problem   {numbers[0]}{example}\n; schedule  {numbers[1]}\n; engine    {family.title}\n\n"
