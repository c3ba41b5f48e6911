"""What a model's kernels cost on an AMD or a Mali GPU, without the GPU: the static report where there is no ptxas.

For AMD it is read off clang's listing (``gpucomp.targets.amdgcn``); where no clang is installed, registers are those of
the engines' formulas and the rest is unknown. No Mali compiler can be had: registers are the formulas', and the widths of
loads are read off the OpenCL text, whose statements are the loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from gpucomp.codegen.source import KernelSource
from gpucomp.compiler import Lowered, Progress
from gpucomp.errors import UsageError
from gpucomp.kernel import Step
from gpucomp.planning import Rendered
from gpucomp.schedule.device import AMD, OPENCL, Device
from gpucomp.schedule.model import Terms, terms
from gpucomp.schedule.rank import Ranked
from gpucomp.targets import amdgcn, opencl_text
from gpucomp.targets.target import Target

USUAL_REGISTERS = 32  # of a work-item, for the analytic model, where neither a compiler nor a formula says
USUAL_AMD = "gfx1030"  # the instruction set of ``opencl:amd``, which names none


@dataclass(frozen=True)
class Cost:
    """One launch. ``None`` stands for what nobody at hand knows.

    registers     of a work-item: vector registers where clang compiled the kernel, else by the engine's formula
    spills        registers that clang had to put into memory
    waves         that a SIMD holds at once
    matrix_share  of all multiply-adds in the listing, those on matrix cores
    wide_share    of all loads from global memory, those of 16 bytes
    instructions  of the listing, by name
    tier          who chose the schedule
    others        the best of other engines: none, these targets have no device of their own to rank for
    """

    name: str
    label: str
    engine: str
    schedule: Mapping[str, int]
    groups: tuple[int, int, int]
    items: tuple[int, int, int]
    registers: int | None
    spills: int | None
    shared_bytes: int | None
    waves: int | None
    matrix_share: float | None
    wide_share: float
    instructions: Mapping[str, int] | None
    terms: Terms
    tier: str = ""
    others: Sequence[Ranked] = ()


def is_for(target: Target) -> bool:
    """Whether ``target`` is one that this report knows."""
    return bool({"amd", "mali"} & target.features)


def device_of(target: Target) -> Device:
    """The common device that stands for ``target``, for floors and predictions."""
    return AMD.get(target.arch) or OPENCL["mali" if "mali" in target.features else "amd"]


def costs(lowered: Lowered, target: Target, tell: Progress = lambda stage, done, total: None) -> list[Cost]:
    """The cost of every launch of a model for an AMD or Mali GPU, in order.

    Raises ``UsageError`` for another target, ``DeviceError`` for an instruction set that the clang here does not know.
    """
    if not is_for(target):
        raise UsageError(f"this report is for AMD and Mali GPUs, not for {target.name}", code="GPC2012")
    steps = [s for s in lowered.steps if s in lowered.rendered and 0 not in lowered.rendered[s].source.geometry.groups]
    sources = {lowered.rendered[step].source.name: lowered.rendered[step].source for step in steps}
    compiles = "amd" in target.features and amdgcn.compiler() is not None
    built: dict[str, amdgcn.Resources | None] = {}
    for number, (name, source) in enumerate(sources.items()):
        tell("compile", number, len(sources))
        built[name] = amdgcn.resources(source, instruction_set(target)) if compiles else None
    return [_cost(step, lowered.rendered[step], built[lowered.rendered[step].source.name], target) for step in steps]


def instruction_set(target: Target) -> str:
    """What clang is asked for."""
    return target.arch if target.arch in AMD else USUAL_AMD


def _cost(step: Step, item: Rendered, built: amdgcn.Resources | None, target: Target) -> Cost:
    kernel, source, family = step.kernel, item.source, item.choice.family
    assert kernel is not None
    s, p = SimpleNamespace(**source.schedule), SimpleNamespace(**family.problem(kernel))
    registers = family.registers(s, p) if family.registers is not None else None
    if built is not None:
        registers = built.vector
    shared = built.local_bytes if built is not None else None
    work = family.work(s, p) if family.work is not None else None
    found = terms(
        kernel, device_of(target), source.geometry, registers=registers or USUAL_REGISTERS, shared_bytes=shared or 0,
        work=work,
    )  # fmt: skip
    return Cost(
        step.name,
        kernel.label,
        family.title,
        source.schedule,
        source.geometry.groups,
        source.geometry.items,
        registers,
        built.spilled if built is not None else None,
        shared,
        built.occupancy if built is not None else None,
        matrix_share(built) if built is not None else None,
        _wide_share(source, built),
        built.instructions if built is not None else None,
        found,
        item.choice.tier,
    )


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
