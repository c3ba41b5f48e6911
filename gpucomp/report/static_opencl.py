"""The static report for AMD and Mali GPUs, in OpenCL or HIP: what a model's kernels cost, without the GPU.

For AMD it reads clang's listing (``gpucomp.targets.amdgcn``). Without clang, registers come from the engines' formulas and
the other figures are unknown. No Mali compiler is publicly available, so registers come from the formulas too; the widths
of loads are counted in the OpenCL text.
"""

from __future__ import annotations

from gpucomp.compiler import Lowered
from gpucomp.device.device import OPENCL, Device
from gpucomp.device.target import Target
from gpucomp.errors import UsageError
from gpucomp.kernel.source import KernelSource
from gpucomp.kernel.step import KernelStep
from gpucomp.planning import Rendered
from gpucomp.report.cost import Cost, Spent, compared, cost_of, launched
from gpucomp.stages import Progress
from gpucomp.targets import amdgcn, opencl_text

USUAL_AMD = "gfx1030"  # the instruction set for ``opencl:amd``


def is_for(target: Target) -> bool:
    """Whether this report is for ``target``."""
    return bool({"amd", "mali"} & target.features)


def device_of(target: Target) -> Device:
    """The device for floors and predictions: the target's, or a common AMD device."""
    return target.device or OPENCL["amd"]


def costs(
    lowered: Lowered,
    target: Target,
    tell: Progress = lambda stage, done, total: None,
    *,
    compare: bool = False,
) -> list[Cost]:
    """The cost of every launch of a model for an AMD or Mali GPU, in order; with ``compare`` also the other engines' costs.

    Raises ``UsageError`` for another target, and ``DeviceError`` for an instruction set that clang does not know.
    """
    if not is_for(target):
        raise UsageError(f"this report is for AMD and Mali GPUs, not for {target.name}", code="GPC2012")
    steps = launched(lowered)
    sources = {item.source.name: item.source for _, item in steps}
    compiles = "amd" in target.features and amdgcn.compiler(target.language) is not None
    built: dict[str, amdgcn.Resources | None] = {}
    for number, (name, source) in enumerate(sources.items()):
        tell("compile", number, len(sources))
        built[name] = amdgcn.resources(source, instruction_set(target)) if compiles else None
    found = []
    for step, item in steps:
        found.append(cost_of(step, item, device_of(target), _spent(step, item, built[item.source.name])))
    return compared(found, lowered, target) if compare else found


def estimated(lowered: Lowered, target: Target) -> list[Cost]:
    """The cost of every launch for any OpenCL GPU by formulas alone, in order: what ``costs`` gives where nothing compiles."""
    return [cost_of(step, item, device_of(target), _spent(step, item, None)) for step, item in launched(lowered)]


def instruction_set(target: Target) -> str:
    """The instruction set for clang."""
    return target.arch if target.arch.startswith("gfx") else USUAL_AMD


def _spent(step: KernelStep, item: Rendered, built: amdgcn.Resources | None) -> Spent:
    source, family = item.source, item.choice.family
    if built is not None:
        return Spent(
            built.vector,
            built.spilled,
            built.local_bytes,
            built.instructions,
            built.occupancy,
            matrix_share(built),
            _wide_share(source, built),
        )
    schedule, problem = family.schedule(source.schedule), family.problem(step.kernel)
    registers = family.registers(schedule, problem) if family.registers is not None else None
    return Spent(registers, wide_share=_wide_share(source, None))


MATRIX = ("v_mfma", "v_smfmac", "v_wmma", "v_swmmac")
SCALAR = ("v_fma", "v_fmac", "v_mac", "v_mad", "v_pk_fma", "v_pk_mad", "v_dot", "v_dual_fmac")
LOADS = ("global_load", "flat_load", "buffer_load")


def matrix_share(found: amdgcn.Resources) -> float:
    """The share of multiply-add instructions in a listing that run on matrix cores; 0 if there are none."""
    matrix, scalar = sum(map(found.count, MATRIX)), sum(map(found.count, SCALAR))
    return matrix / (matrix + scalar) if matrix else 0.0


def _wide_share(source: KernelSource, built: amdgcn.Resources | None) -> float:
    if built is None:
        return opencl_text.wide_share(opencl_text.loads(source.text))
    total = sum(map(built.count, LOADS))
    wide = sum(built.count(f"{name}_{width}") for name in LOADS for width in ("dwordx4", "b128"))
    return wide / total if total else 1.0
