"""Throughput figures of devices, for the analytic model and the static report.

One common device represents each architecture. Figures are from the vendor's data sheets; a comment marks those that
were measured instead. They rank schedules and give lower bounds of times; they do not predict times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from gpucomp.errors import UsageError, quote
from gpucomp.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Losses:
    """What a loop of an architecture loses beside what data sheets say. ``bench.measured.fit`` finds these numbers.

    efficiency  part of the peak rate that arithmetic reaches if nothing else limits it
    exposed     part of a loop's other terms that the longest one does not hide: overlap is never complete
    lone        what a single warp on a scheduler does not hide besides; of two warps it is half, and so on
    matrix, matrix_exposed   efficiency and exposed of matrix cores, which need no warp while they multiply
    fragments   cycles that lanes' reads of operands in shared memory take over those that engines count: an engine counts
                two for 16 bytes of each lane, as some lanes read the same, but a quarter of a warp is served in a cycle
    """

    efficiency: float = 0.85
    exposed: float = 0.1
    lone: float = 0.0
    matrix: float = 0.85
    matrix_exposed: float = 0.1
    fragments: float = 1.35


@dataclass(frozen=True)
class Device:
    """One GPU.

    units         number of SMs or compute units
    ghz           clock under load
    fma           f32 multiply-adds that a unit starts per cycle
    matrix        multiply-adds of a unit's matrix cores per cycle, by operand type, and of its dot products of four
                  bytes (``dp4a``) and of two f16 (``dot2``); empty if it has none
    dram_gbs      bandwidth of memory, GB/s
    l2_gbs        bandwidth of the last cache that the units share, GB/s
    l2_bytes      size of that cache
    unit_bytes    bytes that a unit can read from that cache per cycle
    registers     32-bit registers per unit
    threads       work-items that can be resident on a unit
    groups        work-groups that can be resident on a unit
    shared_bytes  shared memory of a unit
    group_shared  shared memory that each work-group takes besides what it asks for
    launch_us     cost of a kernel in a graph that reads results of the kernel before it, in microseconds. If launches can
                  overlap, that of one that does
    waits_us      what a launch costs more if it begins only when the one before it has ended
    latency_cycles  latency of loading a tile from that cache, or from memory behind it, under load
    by_warp_share   share of the matrix cores' rate that ``mma.sync`` reaches
    dot_instructions  instructions for a dot product of four bytes: one if the device has such an instruction
    wave          work-items whose instructions a scheduler starts at once
    schedulers    of a unit. Each has a part of its lanes and of its matrix cores
    issue         instructions of a wave that a scheduler starts in a cycle
    shared_rate   bytes that a unit's shared memory, or its own cache, moves in a cycle
    loaded        part of ``ghz`` that is held while arithmetic of a kind is always busy: the limit is power
    losses        what loops lose
    scalars       whether the compiler keeps what a wave's lanes share in registers of another kind
    shuffles      whether templates exchange values between lanes by shuffles, as they do in CUDA
    """

    name: str
    units: int
    ghz: float
    fma: int
    dram_gbs: float
    l2_gbs: float
    l2_bytes: int
    shared_bytes: int
    threads: int = 2048
    groups: int = 32
    registers: int = 65536
    unit_bytes: int = 64
    group_shared: int = 1024
    launch_us: float = 2.5
    waits_us: float = 0.0
    latency_cycles: int = 600
    by_warp_share: float = 1.0
    dot_instructions: int = 1
    wave: int = 32
    schedulers: int = 4
    issue: float = 1.0
    shared_rate: int = 128
    loaded: Mapping[str, float] = field(default_factory=dict)
    losses: Losses = Losses()
    scalars: bool = False
    shuffles: bool = False
    matrix: Mapping[str, int] = field(default_factory=dict)

    def __hash__(self) -> int:  # mappings have no hash; equal devices have equal names
        return hash((self.name, self.units, self.ghz))

    def rate(self, math: str) -> float:
        """Multiply-adds of the whole device in a microsecond; ``math`` is ``fma``, ``dp4a``, ``dot2`` or a matrix operand type.

        Types that the matrix cores do not support have the rate of ordinary multiply-adds.
        """
        return self.units * self.unit_rate(math) * self.ghz * 1e3

    def unit_rate(self, math: str) -> float:
        """Multiply-adds of one unit in a cycle."""
        plain = math == "dp4a" and self.dot_instructions > 1
        lanes = self.fma * 4 / self.dot_instructions if plain else self.fma
        return self.matrix.get(math, lanes)


FIGURES = (
    "units",
    "ghz",
    "fma",
    "dram_gbs",
    "l2_gbs",
    "l2_bytes",
    "unit_bytes",
    "launch_us",
    "waits_us",
    "latency_cycles",
    "by_warp_share",
)  # fields that measured figures may replace


def waiting(device: Device) -> Device:
    """``device`` with launches that begin only when the one before has ended, as those of most libraries do."""
    return replace(device, launch_us=device.launch_us + device.waits_us, waits_us=0.0)


def measured(device: Device, figures: Mapping[str, float]) -> Device:
    """``device`` with ``figures`` instead of the fields of the same names; ``matrix`` is a mapping by operand type.

    A measured launch without what waiting adds is that of every launch: nobody knows whether the one measured had waited.

    Raises ``UsageError`` for a name that is not in ``FIGURES``, or a figure that is not a positive number.
    """
    changes: dict[str, Any] = {"waits_us": 0.0} if "launch_us" in figures else {}
    for name, value in figures.items():
        table = name == "matrix"
        numbers = value.values() if isinstance(value, Mapping) else [value]
        known = (name in FIGURES or table) and table == isinstance(value, Mapping)
        if not known or not all(type(n) in (int, float) and 0 < n < math.inf for n in numbers):
            names = ", ".join((*FIGURES, "matrix"))
            raise UsageError(
                f"figure {quote(str(name))} of a device: positive numbers of {names} expected", code="GPC2001"
            )
        changes[name] = dict(device.matrix) | dict(value) if isinstance(value, Mapping) else value
    return replace(device, **changes)


# multiply-adds of an SM per cycle by dot products of four bytes. An SM starts 64 i32 multiply-adds per cycle (CUDA C++
# Programming Guide, throughput of arithmetic instructions); dot products are assumed to run in the same pipe
DOTS = 256
# instructions of a dot product of four bytes in plain C (``codegen.c.dots``): seven shifts for each operand's word, four
# multiply-adds
PLAIN_DOT = 18


def _matrix(f16: int, tf32: int, s8: int) -> dict[str, int]:
    rates = {"f16": f16, "bf16": f16, "tf32": tf32, "3xtf32": tf32 // 3, "s8": s8, "dp4a": DOTS}
    return {name: rate for name, rate in rates.items() if rate}


MIB = 1 << 20
# bandwidths of memory: a T4's is measured (bench/results/measured.md, memory). Those of a B200 (aiconfigurator's narrow products)
# and of an MI100 and an MI210 (NeuSight's element-wise operators) are from rows of these collections that the files compared
# there lack. Of others, unless a comment says more, they are guesses, at or below the data sheet's
# fmt: off
CUDA = {
    "sm_75": Device("T4", 40, 1.35, 64, 240, 1200, 4 * MIB, 65536, threads=1024, groups=16, group_shared=0,
                    shared_rate=64, matrix=_matrix(512, 0, 1024) | {"bf16": 0}),  # 64 bytes a cycle: arXiv 1903.07486
    "sm_80": Device("A100", 108, 1.41, 64, 1400, 4800, 40 * MIB, 167936, matrix=_matrix(1024, 512, 2048)),
    "sm_86": Device("RTX 3090", 82, 1.70, 128, 880, 2500, 6 * MIB, 102400, threads=1536, groups=16,
                    matrix=_matrix(256, 128, 1024)),
    "sm_89": Device("RTX 4090", 128, 2.52, 128, 930, 5000, 72 * MIB, 102400, threads=1536, groups=24,
                    matrix=_matrix(256, 128, 1024)),
    # a copy reaches 4.3 TB/s, a narrow product 4.0; 6154 bytes a cycle from L2 is the ceiling that DeepGEMM's cost model uses;
    # mma.sync reaches 62.9 % of the peak in the mean (Luo et al., arXiv 2402.13499)
    "sm_90a": Device("H200", 132, 1.83, 128, 4000, 11000, 50 * MIB, 233472, launch_us=2.0,
                     by_warp_share=0.63, matrix=_matrix(2048, 1024, 4096)),
    # 2250 TFLOP/s of f16 by tcgen05; mma.sync has 1024 multiply-adds a cycle, as on sm_80
    "sm_100": Device("B200", 148, 1.85, 128, 6150, 14000, 126 * MIB, 233472, launch_us=2.0,
                     by_warp_share=0.25, matrix=_matrix(4096, 2048, 8192)),
    "sm_120": Device("RTX 5090", 170, 2.41, 128, 1650, 7000, 96 * MIB, 102400, threads=1536, groups=24,
                     matrix=_matrix(256, 128, 1024)),
}
CUDA = {name: replace(device, shuffles=True) for name, device in CUDA.items()}
# Launches of sm_80, sm_89 and sm_90a: the smallest products in a CUDA graph on an A100, an L40S and an H100, less what the model
# adds; these wait for each other. Of sm_100 the same from aiconfigurator's rows of a B200, which the files compared lack; of the
# others a guess. Losses are fitted (bench/results/measured.md says to what): those of lanes to CLBlast's space on a 2080 Ti, f32
# products of a V100 and CLBlast's space on a 3060; of matrix cores to bf16 products of an A100 and an H100, and tried on an L40S
_BESIDE_HBM = Losses(matrix=0.9, matrix_exposed=0.03)  # their units have more cache bandwidth for each multiply-add
# What a programmatic dependent launch saves: the gap between two empty kernels is 0.96 us shorter, at 1755 MHz in a project that
# measures on an H100 and an H200 (github.com/pegainfer-project/pegainfer/issues/569, comment of 6 July 2026, which calls it the
# most that a launch gains). Of Blackwell nothing like it is known here, so its launches are priced as if they waited
OVERLAPPED = 0.96
_FITTED: dict[str, tuple[float, Losses]] = {
    "sm_75": (2.5, Losses(fragments=1.5)),
    "sm_80": (2.95, _BESIDE_HBM),
    "sm_86": (2.5, Losses(fragments=1.7)),
    "sm_89": (2.0, Losses(fragments=1.7)),
    "sm_90a": (2.15 - OVERLAPPED, replace(_BESIDE_HBM, fragments=1.7)),
    "sm_100": (1.5, replace(_BESIDE_HBM, fragments=1.7)),
    "sm_120": (2.0, Losses(fragments=1.7)),
}
CUDA = {name: replace(CUDA[name], launch_us=us, losses=losses) for name, (us, losses) in _FITTED.items()}
CUDA["sm_90a"] = replace(CUDA["sm_90a"], waits_us=OVERLAPPED)
# by instruction set; rates of matrix cores are multiply-adds of a compute unit per cycle, from the peaks that AMD publishes. So
# are those of dot products of f16: an MI50's 26.5 TFLOP/s of f16 are twice its f32's. RDNA2's are a guess: its white paper calls
# them a mode of the lanes
AMD = {
    "gfx906": Device("MI50", 60, 1.725, 64, 1000, 2000, 4 * MIB, 65536, threads=2560, launch_us=8,
                     matrix={"dp4a": 256, "dot2": 128}),
    "gfx908": Device("MI100", 120, 1.502, 64, 970, 3000, 8 * MIB, 65536, threads=2560, launch_us=8,
                     matrix={"f16": 512, "bf16": 256, "f32": 128, "s8": 512, "dp4a": 256, "dot2": 128}),
    "gfx90a": Device("MI210", 104, 1.7, 64, 1300, 3400, 8 * MIB, 65536, registers=131072, launch_us=8,
                     matrix={"f16": 512, "bf16": 512, "f32": 128, "s8": 512, "dp4a": 256}),
    "gfx942": Device("MI300X", 304, 2.1, 128, 5300, 10000, 256 * MIB, 65536, registers=131072, launch_us=8,
                     matrix={"f16": 1024, "bf16": 1024, "f32": 128, "tf32": 512, "s8": 2048, "dp4a": 256}),
    # 160 KiB of shared memory; 2.5 PFLOP/s of f16, 5 POP/s of bytes by instructions twice as deep as gfx942's, which kernels take
    "gfx950": Device("MI355X", 256, 2.4, 128, 6300, 12000, 256 * MIB, 163840, registers=131072, launch_us=8,
                     matrix={"f16": 2048, "bf16": 2048, "f32": 128, "s8": 4096, "dp4a": 256}),
    "gfx1030": Device("RX 6800 XT", 72, 2.25, 64, 480, 1900, 128 * MIB, 65536, registers=131072, launch_us=8,
                      matrix={"dp4a": 256, "dot2": 128}),
    "gfx1100": Device("RX 7900 XTX", 96, 2.5, 128, 960, 3500, 96 * MIB, 65536, registers=196608, launch_us=8,
                      matrix={"f16": 256, "bf16": 256, "s8": 256, "dp4a": 256}),
    # 195 TFLOP/s of f16 and 389 TOP/s of bytes without sparsity; the bandwidth of its cache is a guess
    "gfx1201": Device("RX 9070 XT", 64, 2.97, 128, 640, 2500, 64 * MIB, 65536, registers=196608, launch_us=8,
                      matrix={"f16": 512, "bf16": 512, "s8": 1024, "dp4a": 256}),
}
# fmt: on
# a work-group takes no local memory besides its own: two of 32 KB fit into 64 KB.
# A SIMD of GCN and CDNA takes four cycles for a wave of 64; RDNA's units have two SIMDs of 32 lanes. What a lone wave does not
# hide is chosen by both layouts of Tensile's spaces on an MI50, so no test has confirmed it (bench/results/measured.md)
for isa in ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"):
    AMD[isa] = replace(AMD[isa], group_shared=0, wave=64, issue=0.25, losses=Losses(exposed=0.0, lone=0.3))
# of gfx90a and later sets, whose waves may have 512 registers, clang takes more, not less, than the engines' formulas
for isa in ("gfx906", "gfx908"):
    AMD[isa] = replace(AMD[isa], scalars=True)
for isa in ("gfx1030", "gfx1100", "gfx1201"):
    AMD[isa] = replace(AMD[isa], group_shared=0, schedulers=2)
OPENCL = {
    "generic": Device("a GPU of 8 units", 8, 1.0, 64, 100, 400, MIB, 32768, threads=1024, launch_us=10),
    # its local memory is ordinary memory, so the model is told that there is none
    "mali": Device("Mali-G610 MP4", 4, 1.0, 64, 25, 100, MIB, 0, threads=1024, group_shared=0, launch_us=40),
    "amd": Device("RX 6800 XT", 72, 2.25, 64, 480, 1900, 128 * MIB, 65536, threads=2048, registers=131072, launch_us=8),
}


def typical(units: int, *, dots: bool = True) -> Device:
    """An unknown GPU with ``units`` units; without ``dots`` it has no instruction for dot products of bytes."""
    like = replace(CUDA["sm_80"], name=f"a GPU of {units} units", units=units, shuffles=False)
    return like if dots else without_dots(like)


def without_dots(device: Device) -> Device:
    """``device`` without an instruction for dot products of bytes, for which templates use plain C, nor one for those of f16."""
    matrix = {name: rate for name, rate in device.matrix.items() if name not in ("dp4a", "dot2")}
    return replace(device, matrix=matrix, dot_instructions=PLAIN_DOT)
