"""CPU instruction sets, and the processors of each by their LLVM names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from gpucomp.device.limits import Core, Limits
from gpucomp.errors import DeviceError
from gpucomp.lazy_dataclass import dataclass

X86_64_V2 = frozenset({"sse4.1"})
X86_64_V3 = X86_64_V2 | {"avx", "avx2", "f16c", "fma"}
X86_64_V4 = X86_64_V3 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
ARMV8 = frozenset({"neon"})
# Cores by LLVM's processor name and bytes of a vector. Zen 4 splits 64-byte vectors into two halves: each of its two 32-byte
# units takes one half of a multiply-add or of a dot product of bf16 or bytes a cycle (0.287 ns each at 3.48 GHz); one load a
# cycle. Zen 5 has two whole units of each kind (AMD's optimization guide; not measured).
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
    """How LLVM generates code for an instruction set, and where the native runner differs.

    name        the name in ``platform.machine()``
    triple      LLVM's triple for code that needs no C library
    needed      the feature that all generated code uses
    wait        a statement of LLVM IR for a spinning thread
    cycles      an expression of LLVM IR: an i64 that counts up at a constant rate and that user programs can read
    vectors     (feature, bytes of a vector, vector registers), the widest first; the last row is the fallback
    processors  the features of the processors that ``cpu:NAME`` accepts
    core        used for processors that are not in ``CORES``
    features    LLVM's features of all generated code, besides the processor's
    loads       whether gpucomp runs its code; that of others becomes C projects only
    pointer     the bytes of a pointer
    """

    name: str
    triple: str
    needed: str
    wait: str
    cycles: str
    vectors: tuple[tuple[str, int, int], ...]
    processors: Mapping[str, frozenset[str]] = field(hash=False)
    core: Core = ORDINARY
    features: str = ""
    loads: bool = True
    pointer: int = 8

    def limits(self, features: frozenset[str], cache_bytes: int = 1 << 20, processor: str = "") -> Limits:
        """``cache_bytes`` is the size of the L2 cache; ``processor`` is the LLVM name."""
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
# The cycle counter of aarch64 traps in user programs; the timer does not. ``isb`` keeps a spinning thread off the units of its
# sibling for about as long as x86-64's pause; ``yield`` returns at once on most of these processors.
AARCH64 = Isa(
    name="aarch64",
    triple="aarch64-unknown-linux-gnu",
    needed="neon",
    wait="call void @llvm.aarch64.isb(i32 15)",
    cycles='call i64 @llvm.read_volatile_register.i64(metadata !{!"cntvct_el0"})',
    vectors=(("neon", 16, 32),),
    processors=dict.fromkeys(
        (
            "armv8-a",
            "cortex-a53",
            "cortex-a55",
            "cortex-a57",
            "cortex-a72",
            "cortex-a73",
            "cortex-a75",
            "cortex-a76",
            "cortex-a78",
            "cortex-x1",
            "neoverse-n1",
            "neoverse-n2",
            "neoverse-v1",
            "neoverse-v2",
            "ampere1",
            "apple-m1",
        ),
        ARMV8,
    ),
    core=Core(ways=16),
    features="+reserve-x18",  # Android, Apple and Windows keep x18 for themselves: one object runs on all of them
)
# As Linux distributions have it: RV64GC, and with the vector extension, whose registers have at least 16 bytes. Without it, four
# registers hold what is one vector here.
RISCV64 = Isa(
    name="riscv64",
    triple="riscv64-unknown-linux-gnu",
    needed="d",
    wait="fence seq_cst",
    cycles="call i64 @llvm.readcyclecounter()",
    vectors=(("v", 16, 32), ("d", 16, 8)),
    processors={"rv64gc": frozenset({"d"}), "rv64gcv": frozenset({"d", "v"})},
    features="+m,+a,+f,+d,+c",
    loads=False,
)
# 32-bit Arm with NEON. Linux and Android pass floats to functions in different ways. No kernel has such functions, but linkers
# refuse objects of the other way.
ARMV7 = Isa(
    name="armv7l",
    triple="armv7a-unknown-linux-gnueabihf",
    needed="neon32",
    wait="fence seq_cst",
    cycles="call i64 @llvm.readcyclecounter()",
    vectors=(("neon32", 16, 16),),
    processors={"armv7-a": frozenset({"neon32"})},
    features="+armv7-a,+neon,+vfp4",
    loads=False,
    pointer=4,
)
ARMV7_ANDROID = replace(
    ARMV7,
    name="armv7l-android",
    triple="armv7a-unknown-linux-androideabi",
    needed="android32",
    vectors=(("android32", 16, 16),),
    processors={"armv7-a-android": frozenset({"android32"})},
)
# Cortex-M4 and M7 with their units for floats: no vectors, four registers hold what is one vector here.
THUMB = Isa(
    name="thumbv7em",
    triple="thumbv7em-none-unknown-eabihf",
    needed="fpv4",
    wait="fence seq_cst",
    cycles="call i64 @llvm.readcyclecounter()",
    vectors=(("fpv4", 16, 8),),
    processors={"cortex-m4": frozenset({"fpv4"}), "cortex-m7": frozenset({"fpv4"})},
    loads=False,
    pointer=4,
)
WASM32 = Isa(
    name="wasm32",
    triple="wasm32-unknown-wasi",
    needed="simd128",
    wait="fence seq_cst",
    cycles="call i64 @llvm.readcyclecounter()",
    vectors=(("simd128", 16, 16),),
    processors={"wasm32": frozenset({"simd128"})},
    features="+simd128,+bulk-memory,+sign-ext,+nontrapping-fptoint,+mutable-globals",
    loads=False,
    pointer=4,
)
ISAS = (X86_64, AARCH64, RISCV64, ARMV7, ARMV7_ANDROID, THUMB, WASM32)
KNOWN = frozenset[str]().union(*(f for isa in ISAS for f in isa.processors.values()))
LLVM_NAMES = {
    "armv8-a": "generic",
    "rv64gc": "generic-rv64",
    "rv64gcv": "generic-rv64",
    "armv7-a": "generic",
    "armv7-a-android": "generic",
    "wasm32": "generic",
}  # processors that have another name here
LLVM_FEATURES = {"rv64gcv": "+v"}  # what their other name does not imply


def isa_of(features: frozenset[str]) -> Isa:
    """The instruction set with these features."""
    return next((isa for isa in ISAS if isa.needed in features), X86_64)


def require_loads(features: frozenset[str], arch: str) -> None:
    """Raise ``DeviceError`` for code for ``arch`` if gpucomp runs none of its instruction set, on whatever machine."""
    isa = isa_of(features)
    if not isa.loads:
        raise DeviceError(
            f"gpucomp runs no code for {arch} ({isa.name}): it is for C projects only, which gpucomp export -o writes",
            code="GPC5007",
        )
