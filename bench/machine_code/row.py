"""One kernel on one architecture: what its machine code takes, and what the model of its issue expects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bench.machine_code import amd, nvidia
from bench.machine_code.flow import Instruction, Listing, Way, main_loop, shortest
from bench.machine_code.issue import busy
from bench.machine_code.kernels import AMD, Built
from gpucomp.device.device import AMD as AMD_DEVICES
from gpucomp.device.device import CUDA as DEVICES
from gpucomp.device.device import Device
from gpucomp.schedule.model import resident_groups
from gpucomp.targets import amdgcn, cuda, sass

WARPGROUP = 4  # warps whose registers a product of warpgroups uses
IN_TENSOR_MEMORY = "attention/tcgen05"
EXPONENTIAL = "MUFU"
STEP = 16  # depth of a product of 16 bits


@dataclass(frozen=True)
class Loop:
    """The main loop; each of its instructions counts once.

    math         multiply-adds: of matrix units if it has any
    math_cycles  that these take in their pipe, for one warp
    stalls       sum of the stall counts; 0 where the code has none
    busy         share of the cycles that the math pipe works, with as many work-groups as a unit holds: see ``issue``, ``amd``
    alone        the same with one work-group; None for AMD, where the figure is a bound
    idle         share of cycles in which no warp can issue, by reason
    """

    instructions: int
    math: int
    opcode: str
    classes: Mapping[str, int]
    stalls: int
    busy: float
    alone: float | None = None
    idle: Mapping[str, float] = field(default_factory=dict)

    @property
    def per_math(self) -> float:
        return self.instructions / self.math


@dataclass(frozen=True)
class Row:
    """``groups``: work-groups that a unit holds; ``size``: instructions of the whole kernel; ``stalls``: of these."""

    kernel: str
    arch: str
    engine: str
    schedule: Mapping[str, int]
    threads: int
    registers: int
    spills: int
    shared: int
    groups: int
    occupancy: float
    size: int
    stalls: int
    classes: Mapping[str, int]
    results: float
    first_load: Way | None
    loop: Loop | None


def read(built: Built) -> Row:
    """Compile ``built`` and read its machine code. Raises ``DeviceError`` if the compiler or the disassembler is missing."""
    return _read_amd(built) if built.arch in AMD else _read_nvidia(built)


def _read_nvidia(built: Built) -> Row:
    target = cuda.manifest(built.arch)
    cubin, log = cuda.compile_source(built.source, target)
    used = cuda.resources(log)[built.source.name]
    listing = listing_of(cubin)[built.source.name]
    shared = used.shared_bytes + built.source.geometry.dynamic_shared_bytes
    return row_of(built, listing, used.registers, used.spilt, shared)


def listing_of(cubin: bytes) -> dict[str, Listing]:
    """The kernels of ``cubin`` with their control codes."""
    text = sass.listing(cubin, "-hex")
    return {} if text is None else nvidia.kernels(text)


def row_of(built: Built, listing: Listing, registers: int, spills: int, shared: int) -> Row:
    """The row of a kernel for an NVIDIA GPU."""
    device = DEVICES[built.arch]
    groups = int(resident_groups(device, built.threads, registers, shared))
    found = listing.instructions
    math = nvidia.math_of(found)
    loop = main_loop(listing, lambda one: one.opcode in math)
    return Row(
        kernel=built.name,
        arch=built.arch,
        engine=built.engine,
        schedule=dict(built.source.schedule),
        threads=built.threads,
        registers=registers,
        spills=spills,
        shared=shared,
        groups=groups,
        occupancy=groups * built.threads / device.threads,
        size=len(found),
        stalls=sum(map(nvidia.stall, found)),
        classes=nvidia.classify(found, math),
        results=built.results,
        first_load=shortest(listing, nvidia.stall, lambda one: one.opcode in nvidia.LOADS),
        loop=_of_nvidia(built, listing, loop, device, groups) if loop else None,
    )


def _of_nvidia(built: Built, listing: Listing, body: list[Instruction], device: Device, groups: int) -> Loop:
    found = _loop(body, device, _warps(built), groups, _product(built, device))
    return _beside_weights(found, listing, built, device) if built.engine == IN_TENSOR_MEMORY else found


def _beside_weights(loop: Loop, listing: Listing, built: Built, device: Device) -> Loop:
    """``loop``; one whose products wait for weights that other warps compute takes as long as these, if that is longer.

    Their loop counts with the sums that are scaled down in it, which is rare.
    """
    weights = main_loop(listing, lambda one: one.opcode == EXPONENTIAL)
    if weights is None:
        return loop
    warps = _warps(built) // nvidia.SCHEDULERS
    trip = busy(weights, frozenset({EXPONENTIAL}), device, warps, warps).cycles
    share = min(loop.busy, loop.math * _product(built, device) / trip)
    return replace(loop, busy=share, alone=share, idle={"weights": 1 - share})


def _product(built: Built, device: Device) -> float:
    """Cycles of a product by tcgen05 in the matrix unit of a multiprocessor, of attention in the mean.

    64 rows take as long as 128.
    """
    source = built.source
    if built.engine == IN_TENSOR_MEMORY:
        depth, values = (-(-source.tensor_maps[k].extents[0] // STEP) * STEP for k in (0, 2))
        columns = source.schedule["tile_n"]
        products = depth // STEP, columns // STEP  # of scores, and of sums
        mean = (products[0] * columns + products[1] * values) / sum(products)
        return 128 * mean * STEP / device.unit_rate("f16")
    if built.engine != "contraction/tcgen05":
        return 0.0
    kind, depth = ("tf32", 8) if source.tensor_maps[0].dtype == "tf32" else ("f16", 16)
    return 128 * source.schedule["tile_n"] * depth / device.unit_rate(kind)


def _warps(built: Built) -> int:
    """Warps that run the main loop: of engines with ``consumers`` these warpgroups, the others of the work-group copy."""
    consumers = built.source.schedule.get("consumers", 0)
    return consumers * WARPGROUP or built.threads // nvidia.WARP


def _loop(body: list[Instruction], device: Device, warps: int, groups: int, product: float = 0.0) -> Loop:
    math = nvidia.math_of(body)
    if math & nvidia.UNIFORM:
        warps = nvidia.SCHEDULERS  # one warp of a work-group, on one scheduler, for the unit of all four
    if math & nvidia.GROUPED:
        warps = max(WARPGROUP, warps // WARPGROUP * WARPGROUP)
    per_group = max(1, warps // nvidia.SCHEDULERS)
    resident = max(1, groups * warps // nvidia.SCHEDULERS)
    all_of_them = busy(body, math, device, resident, per_group, product)
    return Loop(
        instructions=len(body),
        math=sum(one.opcode in math for one in body),
        opcode=Counter(one.opcode for one in body if one.opcode in math).most_common(1)[0][0],
        classes=nvidia.classify(body, math),
        stalls=sum(map(nvidia.stall, body)),
        busy=all_of_them.share,
        alone=busy(body, math, device, per_group, per_group, product).share,
        idle=all_of_them.idle,
    )


def _read_amd(built: Built) -> Row:
    assembly = amdgcn.assemble(built.source, built.arch)
    used, listing = amdgcn.parse(assembly), amd.kernel(assembly)
    device = AMD_DEVICES[built.arch]
    found = listing.instructions
    math = amd.math_of(found)
    body = main_loop(listing, lambda one: one.name in math)
    _, wave, simds, _ = amd.UNITS[built.arch]
    waves = -(-built.threads // wave)
    groups = max(0, min(used.occupancy * simds // waves, device.shared_bytes // max(1, used.local_bytes)))
    return Row(
        kernel=built.name,
        arch=built.arch,
        engine=built.engine,
        schedule=dict(built.source.schedule),
        threads=built.threads,
        registers=used.vector,
        spills=used.spilled,
        shared=used.local_bytes,
        groups=groups,
        occupancy=groups * waves * wave / device.threads,
        size=len(found),
        stalls=0,
        classes=amd.classify(found, math),
        results=built.results,
        first_load=shortest(listing, lambda one: 1, lambda one: one.name.startswith(amd.LOADS)),
        loop=_amd_loop(body, device, built.arch) if body else None,
    )


def _amd_loop(body: list[Instruction], device: Device, arch: str) -> Loop:
    math = amd.math_of(body)
    return Loop(
        instructions=len(body),
        math=sum(one.name in math for one in body),
        opcode=Counter(one.name for one in body if one.name in math).most_common(1)[0][0],
        classes=amd.classify(body, math),
        stalls=0,
        busy=amd.bound(body, math, device, arch),
    )
