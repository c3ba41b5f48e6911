"""What a model's kernels cost on an AMD or a Mali GPU, without the GPU: the static report where there is no ptxas.

For AMD it is read off clang's listing (``gpucomp.targets.amdgcn``); where no clang is installed, registers are those of
the engines' formulas and the rest is unknown. No Mali compiler can be had: registers are the formulas', and the widths of
loads are read off the OpenCL text, whose statements are the loads.
"""

from __future__ import annotations

from gpucomp.compiler import Lowered, Progress
from gpucomp.device.device import OPENCL, Device
from gpucomp.device.target import Target
from gpucomp.errors import UsageError
from gpucomp.kernel.source import KernelSource
from gpucomp.kernel.step import KernelStep
from gpucomp.planning import Rendered
from gpucomp.report.cost import Cost, Spent, compared, cost_of, launched
from gpucomp.schedule.space import sized
from gpucomp.targets import amdgcn, opencl_text

USUAL_AMD = "gfx1030"  # the instruction set of ``opencl:amd``, which names none


def is_for(target: Target) -> bool:
    """Whether ``target`` is one that this report knows."""
    return bool({"amd", "mali"} & target.features)


def device_of(target: Target) -> Device:
    """The common device that stands for ``target``, for floors and predictions."""
    return target.device or OPENCL["amd"]


def costs(
    lowered: Lowered,
    target: Target,
    tell: Progress = lambda stage, done, total: None,
    *,
    compare: bool = False,
) -> list[Cost]:
    """The cost of every launch of a model for an AMD or Mali GPU, in order; with ``compare`` other engines' too.

    Raises ``UsageError`` for another target, ``DeviceError`` for an instruction set that the clang here does not know.
    """
    if not is_for(target):
        raise UsageError(f"this report is for AMD and Mali GPUs, not for {target.name}", code="GPC2012")
    steps = launched(lowered)
    sources = {lowered.rendered[step].source.name: lowered.rendered[step].source for step in steps}
    compiles = "amd" in target.features and amdgcn.compiler() is not None
    built: dict[str, amdgcn.Resources | None] = {}
    for number, (name, source) in enumerate(sources.items()):
        tell("compile", number, len(sources))
        built[name] = amdgcn.resources(source, instruction_set(target)) if compiles else None
    found = []
    for step in steps:
        item = lowered.rendered[step]
        found.append(cost_of(step, item, device_of(target), _spent(step, item, built[item.source.name])))
    return compared(found, lowered, target) if compare else found


def instruction_set(target: Target) -> str:
    """What clang is asked for."""
    return target.arch if target.arch.startswith("gfx") else USUAL_AMD


def _spent(step: KernelStep, item: Rendered, built: amdgcn.Resources | None) -> Spent:
    source, family = item.source, item.choice.family
    if built is not None:
        return Spent(built.vector, built.spilled, built.local_bytes, built.instructions, built.occupancy,
                     matrix_share(built), _wide_share(source, built))  # fmt: skip
    s, p = family.schedule(source.schedule), sized(family.problem(step.kernel))
    registers = family.registers(s, p) if family.registers is not None else None
    return Spent(registers, wide_share=_wide_share(source, None))


MATRIX = ("v_mfma", "v_smfmac", "v_wmma", "v_swmmac")
SCALAR = ("v_fma", "v_fmac", "v_mac", "v_mad", "v_pk_fma", "v_pk_mad", "v_dot", "v_dual_fmac")
LOADS = ("global_load", "flat_load", "buffer_load")


def matrix_share(found: amdgcn.Resources) -> float:
    """Of the multiply-add instructions of a listing, those of matrix cores; 0 where there is none of either."""
    matrix, scalar = sum(map(found.count, MATRIX)), sum(map(found.count, SCALAR))
    return matrix / (matrix + scalar) if matrix else 0.0


def _wide_share(source: KernelSource, built: amdgcn.Resources | None) -> float:
    if built is None:
        return opencl_text.wide_share(opencl_text.loads(source.text))
    total = sum(map(built.count, LOADS))
    wide = sum(built.count(f"{name}_{width}") for name in LOADS for width in ("dwordx4", "b128"))
    return wide / total if total else 1.0
