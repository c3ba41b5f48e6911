"""Instruction sets of processors, and the processors known by LLVM's names for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gpucomp.device.limits import Core, Limits

X86_64_V2 = frozenset({"sse4.1"})
X86_64_V3 = X86_64_V2 | {"avx", "avx2", "f16c", "fma"}
X86_64_V4 = X86_64_V3 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
ARMV8 = frozenset({"neon"})
# What is known of processors' cores, by LLVM's names and the bytes of a vector. Zen 4 has 64-byte vectors in two halves: one
# of its 32-byte units each, which do a multiply-add, or take a dot product of bf16 or of bytes, once a cycle (0.287 ns each,
# at 3.48 GHz), and load once. Zen 5's units are whole, two of each (AMD's optimization guide; not measured).
ORDINARY = Core()
EIGHT_WAYS = (
    "haswell",
    "broadwell",
    "skylake",
    "skylake-avx512",
    "cascadelake",
    "cooperlake",
    "znver1",
    "znver2",
    "znver3",
)
CORES = {
    ("znver4", 64): Core(multiply=1.0, pairs=1.0, quads=1.0, load=1.0, ways=8, fetched=5.5),
    ("znver4", 32): Core(pairs=1.0, quads=1.0, ways=8, fetched=5.5),
    ("znver5", 64): Core(pairs=0.5, quads=0.5, fetched=5.5),
}
TILES = frozenset({"amx-tile", "amx-bf16", "amx-int8"})


@dataclass(frozen=True)
class Isa:
    """How LLVM is asked for machine code, and what differs in the runner.

    name        as ``platform.machine()`` says it
    triple      LLVM's name for code of it that needs no C library
    needed      the feature that all generated code uses
    wait        a statement of LLVM IR: this thread spins
    cycles      an expression of LLVM IR, an i64 that counts up at a constant rate and may be read by any process
    vectors     (feature, bytes of a vector, vector registers), the widest first; the last where there is no other
    processors  the features of those that ``cpu:NAME`` may name
    core        of processors of which nothing else is known
    """

    name: str
    triple: str
    needed: str
    wait: str
    cycles: str
    vectors: tuple[tuple[str, int, int], ...]
    processors: Mapping[str, frozenset[str]] = field(hash=False)
    core: Core = ORDINARY

    def limits(self, features: frozenset[str], cache_bytes: int = 1 << 20, processor: str = "") -> Limits:
        """``cache_bytes``: of the second cache of a core; ``processor``: its LLVM name."""
        nbytes, registers = next(row[1:] for row in self.vectors if row[0] in features or row is self.vectors[-1])
        return Limits(
            threads=1,
            shared_bytes=0,
            warp=1,
            registers=registers,
            units=8,
            vector_bytes=nbytes,
            cache_bytes=cache_bytes,
            core=CORES.get((processor, nbytes), replace(self.core, ways=8) if processor in EIGHT_WAYS else self.core),
        )


X86_64 = Isa(
    name="x86_64",
    triple="x86_64-unknown-linux-gnu",
    needed="sse4.1",
    wait="call void @llvm.x86.sse2.pause()",
    cycles="call i64 @llvm.readcyclecounter()",
    vectors=(("avx512f", 64, 32), ("avx2", 32, 16), ("sse4.1", 16, 16)),
    processors={
        "x86-64-v2": X86_64_V2,
        "x86-64-v3": X86_64_V3,
        "x86-64-v4": X86_64_V4,
        **dict.fromkeys(("haswell", "broadwell", "skylake", "znver1", "znver2", "znver3"), X86_64_V3),
        "alderlake": X86_64_V3 | {"avxvnni"},
        "skylake-avx512": X86_64_V4,
        "cascadelake": X86_64_V4 | {"avx512vnni"},
        "cooperlake": X86_64_V4 | {"avx512vnni", "avx512bf16"},
        "icelake-server": X86_64_V4 | {"avx512vnni"},
        "sapphirerapids": X86_64_V4 | TILES | {"avx512vnni", "avx512bf16", "avx512fp16", "avxvnni"},
        "znver4": X86_64_V4 | {"avx512vnni", "avx512bf16"},
        "znver5": X86_64_V4 | {"avx512vnni", "avx512bf16", "avxvnni"},
    },
)
# The cycle counter of aarch64 traps in user programs; the timer's does not. A barrier for instructions keeps a spinning
# thread off its sibling's units for about as long as x86-64's pause; yield is over at once on most of these processors.
AARCH64 = Isa(
    name="aarch64",
    triple="aarch64-unknown-linux-gnu",
    needed="neon",
    wait="call void @llvm.aarch64.isb(i32 15)",
    cycles='call i64 @llvm.read_volatile_register.i64(metadata !{!"cntvct_el0"})',
    vectors=(("neon", 16, 32),),
    processors=dict.fromkeys(
        (
            "armv8-a", "cortex-a53", "cortex-a55", "cortex-a57", "cortex-a72", "cortex-a73", "cortex-a75", "cortex-a76",
            "cortex-a78", "cortex-x1", "neoverse-n1", "neoverse-n2", "neoverse-v1", "neoverse-v2", "ampere1", "apple-m1",
        ),
        ARMV8,
    ),
    core=Core(ways=16),
)  # fmt: skip
ISAS = (X86_64, AARCH64)
KNOWN = frozenset[str]().union(*(f for isa in ISAS for f in isa.processors.values()))
LLVM_NAMES = {"armv8-a": "generic"}  # of processors that we name otherwise


def isa_of(features: frozenset[str]) -> Isa:
    """Whose features these are."""
    return AARCH64 if AARCH64.needed in features else X86_64
