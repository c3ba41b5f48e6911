"""Kernels as LLVM IR for the CPU: one function a kernel, called with a range of its tasks. Compiling it is the target's."""

from __future__ import annotations

from gpucomp.codegen.llvm.amx.emit import emit_tiles
from gpucomp.codegen.llvm.attention.decode_emit import emit_few
from gpucomp.codegen.llvm.attention.emit import emit_attention
from gpucomp.codegen.llvm.chain.emit import emit_chain
from gpucomp.codegen.llvm.contraction.forms import emit_in_form
from gpucomp.codegen.llvm.engines import family_of
from gpucomp.codegen.llvm.loops.loops import emit_loops, emit_pool
from gpucomp.codegen.llvm.loops.rowwise import emit_rowwise
from gpucomp.codegen.llvm.loops.scan import emit_scan
from gpucomp.codegen.llvm.loops.scatter import emit_scatter
from gpucomp.codegen.llvm.vnni.emit import emit_dots
from gpucomp.codegen.llvm.windows.bytes_emit import emit_byte_windows
from gpucomp.codegen.llvm.windows.emit import emit_windows
from gpucomp.codegen.llvm.winograd.emit import emit_winograd
from gpucomp.device.target import Target
from gpucomp.errors import UnsupportedError
from gpucomp.kernel import Attention, Chain, Contraction, Kernel, Loops, Rowwise, Scan, Scatter, Window
from gpucomp.kernel.forms.tail import no_tail
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.schedule.space import Family, Schedule

EMITTERS = {"winograd": emit_winograd, "tiles": emit_tiles, "dots": emit_dots}  # of contractions, by engine
WINDOWS = {"windows": emit_windows, "bytes": emit_byte_windows}


def emit(kernel: Kernel, schedule: Schedule, target: Target, name: str, family: Family | None = None) -> KernelSource:
    """``void name(ptr ..., i64 first_task, i64 last_task)``; ``geometry.groups[0]`` is the number of tasks.

    Raises ``ScheduleError`` for a schedule that cannot run on ``target``, ``UnsupportedError`` for row statistics behind a
    contraction: nothing is gained here by what saves a launch elsewhere.
    """
    if reason := no_tail(kernel):
        raise UnsupportedError(f"{kernel.label or kernel.family}: {reason}", code="GPC4010")
    family = family or family_of(kernel)
    family.require(schedule, family.problem(kernel), target.limits)
    if all(type.size == 0 for type in kernel.params[kernel.inputs :]):
        arguments = ", ".join(f"ptr %p{i}" for i in range(len(kernel.params)))
        nothing = f"define void @{name}({arguments}, i64 %first, i64 %last) #0 {{\n  ret void\n}}\n"
        return KernelSource(name, "llvm", nothing, Geometry((0, 1, 1)), dict(schedule), family.title)
    if family.engine in WINDOWS:
        text, tasks = WINDOWS[family.engine](kernel, schedule, name, target)
        return KernelSource(name, "llvm", text, Geometry((tasks, 1, 1)), dict(schedule), family.title)
    match kernel.body:
        case Loops(domain=domain):
            text, tasks = emit_loops(kernel, domain, {}, schedule, name, target)
        case Window() as window:
            text, tasks = emit_pool(kernel, window, schedule, name, target)
        case Rowwise() as rowwise:
            text, tasks = emit_rowwise(kernel, rowwise, schedule, name, target)
        case Scatter() as scatter:
            text, tasks = emit_scatter(kernel, scatter, schedule, name, target)
        case Scan() as scan:
            text, tasks = emit_scan(kernel, scan, schedule, name, target)
        case Attention():
            text, tasks = (emit_few if family.engine == "few" else emit_attention)(kernel, schedule, name, target)
        case Chain() as chain:
            text, tasks = emit_chain(kernel, chain, schedule, name, target)
        case Contraction() as contraction:
            text, tasks = EMITTERS.get(family.engine, emit_in_form)(kernel, contraction, schedule, name, target)
    return KernelSource(name, "llvm", text, Geometry((tasks, 1, 1)), dict(schedule), family.title)
