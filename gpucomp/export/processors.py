"""What a C program asks a processor before it runs code for a target, and how its compiler tells what it compiles for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpucomp.artifact.plan import Plan
from gpucomp.device.isa import TILES, X86_64, Isa, isa_of
from gpucomp.lazy_dataclass import dataclass

# Where cpuid tells an x86 feature: the C variable, and the bit (Intel's manual 325462, volume 2A, CPUID; AMD's 24594, appendix E)
CPUID = {
    "sse3": ("leaf1[2]", 0),
    "ssse3": ("leaf1[2]", 9),
    "cx16": ("leaf1[2]", 13),
    "sse4.1": ("leaf1[2]", 19),
    "sse4.2": ("leaf1[2]", 20),
    "popcnt": ("leaf1[2]", 23),
    "lahf": ("extended[2]", 0),
    "fma": ("leaf1[2]", 12),
    "movbe": ("leaf1[2]", 22),
    "osxsave": ("leaf1[2]", 27),
    "avx": ("leaf1[2]", 28),
    "f16c": ("leaf1[2]", 29),
    "lzcnt": ("extended[2]", 5),
    "bmi1": ("leaf7[1]", 3),
    "avx2": ("leaf7[1]", 5),
    "bmi2": ("leaf7[1]", 8),
    "avx512f": ("leaf7[1]", 16),
    "avx512dq": ("leaf7[1]", 17),
    "avx512cd": ("leaf7[1]", 28),
    "avx512bw": ("leaf7[1]", 30),
    "avx512vl": ("leaf7[1]", 31),
    "avx512vnni": ("leaf7[2]", 11),
    "amx-bf16": ("leaf7[3]", 22),
    "avx512fp16": ("leaf7[3]", 23),
    "amx-tile": ("leaf7[3]", 24),
    "amx-int8": ("leaf7[3]", 25),
    "avxvnni": ("leaf71[0]", 4),
    "avx512bf16": ("leaf71[0]", 5),
}
# The levels of the x86-64 psABI, section 3.1.1: what is in each beyond the one before, by the feature that our targets know it by
_LEVELS = {
    "sse4.1": ("sse3", "ssse3", "cx16", "sse4.1", "sse4.2", "popcnt", "lahf"),
    "avx2": ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "lzcnt", "movbe", "osxsave"),
    "avx512f": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}
_LEVEL_NAMES = {"sse4.1": "x86-64-v2", "avx2": "x86-64-v3", "avx512f": "x86-64-v4"}
# registers that the system saves (XCR0): those of AVX, those of AVX-512, and tiles with their configuration
_SAVED = {"avx": 0x6, "avx512f": 0xE0, "amx-tile": 0x60000}


@dataclass(frozen=True)
class Check:
    """The bits ``bits`` of the C variable ``words`` have to be set. ``told`` has their names."""

    words: str
    bits: str
    told: str


@dataclass(frozen=True)
class Asked:
    """What ``init`` asks a processor, for readers: "" if it asks nothing. ``whole`` if it asks for all that the code may use."""

    told: str
    whole: bool


def asked(plan: Plan) -> Asked:
    """A level of x86-64 is asked for as a whole. LLVM may use more of a processor by its name, and of this machine's."""
    if isa_of(frozenset(plan.features)) is not X86_64:
        return Asked("", False)
    level = [_LEVEL_NAMES[one] for one in _LEVELS if one in plan.features][-1]
    more = sorted(frozenset(plan.features) - {*_level_members(plan)})
    return Asked(", ".join([level, *more]), plan.target == f"cpu:{level}")


def _level_members(plan: Plan) -> list[str]:
    """The features of the level that the target has."""
    return [f for level, members in _LEVELS.items() if level in plan.features for f in members]


def checks(plan: Plan) -> list[Check]:
    """What ``init`` checks; nothing for other instruction sets than x86-64, whose features a program must ask its system for."""
    if isa_of(frozenset(plan.features)) is not X86_64:
        return []
    needed = _level_members(plan)
    needed += [f for f in sorted(plan.features) if f not in needed]
    found: dict[str, list[str]] = {}
    for feature in needed:
        found.setdefault(CPUID[feature][0], []).append(feature)
    made = [
        Check(words, hex(sum(1 << CPUID[f][1] for f in features)), ", ".join(features))
        for words, features in found.items()
    ]
    saved = sum(bits for feature, bits in _SAVED.items() if feature in needed)
    return [*made, *([Check("saved", hex(saved), "the system saves the registers")] if saved else [])]


def uses_tiles(plan: Plan, sources: Mapping[str, str]) -> bool:
    """Whether a kernel uses tile registers (AMX), which a process must ask Linux for. ``sources`` has the kernels' texts."""
    return any("@llvm.x86.ldtilecfg" in sources[kernel.source] for kernel in plan.kernels)


def needed(plan: Plan, sources: Mapping[str, str]) -> Plan:
    """``plan`` without the tile registers of its target, if no kernel uses them: LLVM does not use them by itself."""
    if uses_tiles(plan, sources):
        return plan
    return replace(plan, features=tuple(f for f in plan.features if f not in TILES))


@dataclass(frozen=True)
class Compiler:
    """How C code is compiled for an instruction set.

    architecture  a condition of C's preprocessor that is true where the code may be compiled
    told          the instruction set, for readers
    name          a compiler of Debian for it
    cross         commands for another machine, each a line; UPPER stands for the name of the project in capitals
    pointer       the bytes of a pointer
    """

    architecture: str
    told: str
    name: str
    cross: tuple[str, ...] = ()
    pointer: int = 8


_QEMU = (
    "cmake -S . -B build -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR={machine} \\",
    "    -DCMAKE_C_COMPILER={prefix}-gcc -DCMAKE_CROSSCOMPILING_EMULATOR='qemu-{machine};-L;/usr/{prefix}'",
    "cmake --build build && ctest --test-dir build",
)


def _in_qemu(machine: str, system: str = "linux-gnu") -> tuple[str, ...]:
    return tuple(line.format(machine=machine, prefix=f"{machine}-{system}") for line in _QEMU)


_IN_NDK = (
    "cmake -S . -B build -DCMAKE_TOOLCHAIN_FILE=$ANDROID_NDK/build/cmake/android.toolchain.cmake -DANDROID_ABI=armeabi-v7a",
    "cmake --build build",
)
_M4 = "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16"
_BARE = (
    "cmake -S . -B build -DCMAKE_SYSTEM_NAME=Generic -DCMAKE_C_COMPILER=arm-none-eabi-gcc -DUPPER_TESTS=OFF \\",
    f"    -DCMAKE_C_FLAGS='{_M4} --specs=nosys.specs'",
    "cmake --build build",
)
_ZIG = "python -m ziglang cc -target wasm32-wasi -mcpu=generic+simd128"
_IN_WASMTIME = (
    f"export CC='{_ZIG}'",
    'ASM="$CC" cmake -S . -B build -DCMAKE_SYSTEM_NAME=WASI',
    "cmake --build build && wasmtime build/selftest",
)
_ARM32 = "defined(__arm__) && defined(__ELF__) && __ARM_ARCH >= 7"
_COMPILERS = {
    "x86_64": Compiler(
        "defined(__x86_64__) && defined(__ELF__)", "x86-64 (Linux, Android and other ELF systems)", "cc"
    ),
    "aarch64": Compiler(
        "defined(__aarch64__) && defined(__ELF__)",
        "64-bit Arm (Linux, Android and other ELF systems)",
        "aarch64-linux-gnu-gcc",
        _in_qemu("aarch64"),
    ),
    "riscv64": Compiler(
        "defined(__riscv) && __riscv_xlen == 64 && defined(__riscv_float_abi_double) && defined(__ELF__)",
        "64-bit RISC-V (RV64GC, lp64d)",
        "riscv64-linux-gnu-gcc",
        _in_qemu("riscv64"),
    ),
    "armv7l": Compiler(
        f"{_ARM32} && defined(__ARM_PCS_VFP)",
        "32-bit Arm with NEON (Linux, hard-float)",
        "arm-linux-gnueabihf-gcc",
        _in_qemu("arm", "linux-gnueabihf"),
    ),
    "armv7l-android": Compiler(
        f"{_ARM32} && !defined(__ARM_PCS_VFP)",
        "32-bit Arm with NEON (Android)",
        "armv7a-linux-androideabi21-clang",
        _IN_NDK,
    ),
    "thumbv7em": Compiler(
        f"{_ARM32} && defined(__ARM_PCS_VFP) && defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M'",
        "Cortex-M with a unit for floats, without an operating system",
        f"arm-none-eabi-gcc {_M4}",
        _BARE,
    ),
    "wasm32": Compiler(
        "defined(__wasm32__)",
        "WebAssembly (32 bits, with SIMD)",
        _ZIG,
        _IN_WASMTIME,
    ),
}


def compiler_of(plan: Plan) -> Compiler:
    """How C code is compiled for the instruction set of ``plan``."""
    isa: Isa = isa_of(frozenset(plan.features))
    return replace(_COMPILERS[isa.name], pointer=isa.pointer)
