"""Compiles a rendered kernel for an AMD GPU, without the GPU, and counts registers, spills and instructions.

Any clang with the amdgcn target can do this. The OpenCL library comes with a driver, so the few functions of it that
OpenCL kernels call are defined in a prelude, and these are not linked. HIP kernels have all that they need
(``gpucomp.targets.hip_text``): they become code objects. Nothing here runs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path

from gpucomp.errors import DeviceError, KernelBuildError
from gpucomp.kernel.source import KernelSource
from gpucomp.lazy_dataclass import dataclass
from gpucomp.targets import hip_text
from gpucomp.targets.failure import build_failed

SCALARS = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "float", "double")
WIDTHS = (2, 4, 8, 16)


def _types() -> str:
    return "\n".join(
        f"typedef {s} {s}{n} __attribute__((ext_vector_type({n})));\n"
        f"typedef {s}{n} loose_{s}{n} __attribute__((aligned(sizeof({s}))));"
        for s in SCALARS
        for n in WIDTHS
    ) + "\n".join(f"typedef {s} {s}3 __attribute__((ext_vector_type(3)));" for s in SCALARS)


def _memory_functions() -> str:
    """``vload4`` and the like: one access without an alignment requirement, as the hardware allows."""
    lines = []
    for space in ("__global", "__private", "__local"):
        for s in SCALARS:
            for n in WIDTHS:
                read, write = (
                    f"*({space} const loose_{s}{n}*)(p + i * {n})",
                    f"*({space} loose_{s}{n}*)(p + i * {n}) = v",
                )
                lines.append(f"OVER {s}{n} vload{n}(size_t i, {space} const {s}* p) {{ return {read}; }}")
                lines.append(f"OVER void vstore{n}({s}{n} v, size_t i, {space} {s}* p) {{ {write}; }}")
            three = ", ".join(f"p[3 * i + {k}]" for k in range(3))
            lines.append(f"OVER {s}3 vload3(size_t i, {space} const {s}* p) {{ return ({s}3)({three}); }}")
        for n in WIDTHS:
            read, write = f"__builtin_convertvector(vload{n}(i, p), float{n})", f"__builtin_convertvector(v, half{n})"
            lines.append(f"OVER float{n} vload_half{n}(size_t i, {space} const half* p) {{ return {read}; }}")
            lines.append(
                f"OVER void vstore_half{n}_rte(float{n} v, size_t i, {space} half* p) {{ vstore{n}({write}, i, p); }}"
            )
        lines.append(f"OVER float vload_half(size_t i, {space} const half* p) {{ return p[i]; }}")
        lines.append(f"OVER void vstore_half_rte(float v, size_t i, {space} half* p) {{ p[i] = (half)v; }}")
    return "\n".join(lines)


def _coordinate(name: str, of: str) -> str:
    x, y, z = (f"__builtin_amdgcn_{of}_{axis}()" for axis in "xyz")
    return f"OVER size_t {name}(uint d) {{ return d == 0 ? {x} : d == 1 ? {y} : {z}; }}"


def _stand_ins() -> str:
    """Stand-ins for the other library functions. In double all but roots and roundings are a polynomial of 13 terms."""
    of_one = (
        "exp2",
        "exp",
        "log",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
    )
    inverse = "{ return __builtin_sqrtf(1 - a * a) * (a + a * a * a * 0.1667f); }"
    lines = [f"OVER float {name}(float a) {inverse}" for name in ("asin", "acos", "atan")]
    lines += [
        f"OVER float {name}(float a) {{ return log(a + sqrt(a * a + 1)); }}" for name in ("asinh", "acosh", "atanh")
    ]
    lines += [f"OVER float {name}(float a) {{ return 0.5f * (exp(a) - exp(-a)); }}" for name in ("sinh", "cosh")]
    series = "r = __builtin_fma(r, a, 0.1); " * 12
    lines += [f"OVER double {name}(double a) {{ double r = a; {series}return r; }}" for name in of_one]
    lines += [
        f"OVER double {name}(double a) {{ return __builtin_{name}(a); }}"
        for name in ("fabs", "floor", "ceil", "rint", "sqrt")
    ]
    lines.append("OVER double pow(double a, double b) { return exp(log(a) * b); }")
    for t in ("float", "double"):
        lines.append(f"OVER {t} fmod({t} a, {t} b) {{ return a - b * __builtin_trunc{'f' * (t == 'float')}(a / b); }}")
        lines.append(f"OVER {t} copysign({t} a, {t} b) {{ return __builtin_copysign{'f' * (t == 'float')}(a, b); }}")
    return "\n".join(lines)


# functions such as exp have stand-ins of about the same cost: the text is compiled and counted, but never run
PRELUDE = f"""
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef unsigned long size_t;
{_types()}
#define OVER static inline __attribute__((overloadable, always_inline))
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define as_int4(x) __builtin_astype((x), int4)
#define as_short8(x) __builtin_astype((x), short8)
#define as_long(x) __builtin_astype((x), long)
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
{_memory_functions()}
{_coordinate("get_local_id", "workitem_id")}
{_coordinate("get_group_id", "workgroup_id")}
{_coordinate("get_local_size", "workgroup_size")}
OVER size_t get_global_id(uint d) {{ return get_group_id(d) * get_local_size(d) + get_local_id(d); }}
OVER void barrier(uint flags) {{
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}}
OVER uint atomic_inc(volatile __global uint* p) {{
  return __opencl_atomic_fetch_add((volatile __global atomic_uint*)p, 1, __ATOMIC_RELAXED, __OPENCL_MEMORY_SCOPE_DEVICE);
}}
OVER uint atomic_xchg(volatile __global uint* p, uint v) {{
  return __opencl_atomic_exchange((volatile __global atomic_uint*)p, v, __ATOMIC_RELAXED, __OPENCL_MEMORY_SCOPE_DEVICE);
}}
OVER uint atomic_or(volatile __global uint* p, uint v) {{
  return __opencl_atomic_fetch_or((volatile __global atomic_uint*)p, v, __ATOMIC_RELAXED, __OPENCL_MEMORY_SCOPE_DEVICE);
}}
OVER int atomic_min(volatile __local int* p, int v) {{
  return __opencl_atomic_fetch_min((volatile __local atomic_int*)p, v, __ATOMIC_RELAXED, __OPENCL_MEMORY_SCOPE_DEVICE);
}}
OVER int min(int a, int b) {{ return a < b ? a : b; }}
OVER int max(int a, int b) {{ return a > b ? a : b; }}
OVER float fabs(float a) {{ return __builtin_fabsf(a); }}
OVER float floor(float a) {{ return __builtin_floorf(a); }}
OVER float ceil(float a) {{ return __builtin_ceilf(a); }}
OVER float rint(float a) {{ return __builtin_rintf(a); }}
OVER float sqrt(float a) {{ return __builtin_sqrtf(a); }}
OVER float exp2(float a) {{ return __builtin_exp2f(a); }}
OVER float exp(float a) {{ return __builtin_exp2f(a * 1.44269504f); }}
OVER float log(float a) {{ return __builtin_log2f(a) * 0.69314718f; }}
OVER float tanh(float a) {{ return 1 - 2 / (exp(2 * a) + 1); }}
OVER float erf(float a) {{ return tanh(a * (1.128379f + a * a * 0.1009f)); }}
OVER float pow(float a, float b) {{ return exp(log(a) * b); }}
OVER float sin(float a) {{ return __builtin_sinf(a); }}
OVER float cos(float a) {{ return __builtin_cosf(a); }}
OVER float tan(float a) {{ return sin(a) / cos(a); }}
{_stand_ins()}
OVER float convert_float(half a) {{ return a; }}
OVER half convert_half_rte(float a) {{ return (half)a; }}
"""


CALLED = re.compile(r"([\w.$]+)@(?:gotpc)?rel32@lo")  # a function whose address the listing loads
NEWEST, OLDEST = 24, 14  # versions of clang to look for
# HIP has no library to correct what older ones make of builtins: until 16, f32 exp and log are the bare instruction (up to 32
# ulp), and ldexp and frexp stay calls; until 17, so is the square root (1 ulp)
OLDEST_FOR_HIP = 18
# Debian 12's clang is 14. gfx950 needs 20: Debian has 22 too, among its security updates
PACKAGES = {"opencl": "clang", "hip": "clang-19 lld-19", "newest": "clang-22 lld-22"}
LIMIT_S = 600.0  # of one compilation: the slowest takes a minute on a busy machine
UNKNOWN = re.compile("unknown target CPU|invalid target ID|is not a valid processor")
NO_LINKER = re.compile('unable to execute command: Executable "[^"]*lld')
# without ROCm: neither its headers nor its device library. Sums of products within an expression are fused, as in OpenCL.
# Without an identifier of the compilation (cuid), which clang hashes from file names too, a text gives the same bytes each time
HIP_FLAGS = (
    *("-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "-nostdinc", "-std=c++17"),
    *("-O3", "-ffp-contract=on", "-w", "-fuse-cuid=none"),
    # clang 22 moves the products of a tile behind the next branch, so that the operands of all of them are in registers at once:
    # 256 and 157 spilt, in place of 144
    *("-mllvm", "-disable-machine-sink"),
)


@dataclass(frozen=True)
class Resources:
    """What one kernel uses: registers of a lane, local and private bytes, waves on a SIMD, instructions by name.

    ``vector`` includes accumulation registers on devices with one register file for both.
    """

    vector: int
    scalar: int
    spilled: int
    local_bytes: int
    private_bytes: int
    occupancy: int
    instructions: Mapping[str, int] = field(default_factory=dict)

    def count(self, prefix: str) -> int:
        """The number of instructions whose name starts with ``prefix``: ``v_mfma``, ``global_load_dwordx4`` ..."""
        return sum(n for name, n in self.instructions.items() if name.startswith(prefix))


def compiler(language: str = "opencl") -> str | None:
    """The first clang to try for ``language``, or ``None``."""
    return next(iter(compilers(language)), None)


def compilers(language: str = "opencl") -> list[str]:
    """The installed clangs for ``language``: the default one, then others from new to old, by Debian's names.

    For HIP the default one comes last, and those before ``OLDEST_FOR_HIP`` are left out.
    """
    found = _installed("clang")
    if language == "hip":
        return [clang for clang in [*found[1:], *found[:1]] if _major(clang) >= OLDEST_FOR_HIP]
    return found


@cache
def version(clang: str) -> str:
    """The first line of what ``clang`` says of its version."""
    said = subprocess.run([clang, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    return said.partition("\n")[0]


def _major(clang: str) -> int:
    found = re.search(r"\bversion (\d+)", version(clang))
    return int(found[1]) if found else 0


def missing(language: str) -> DeviceError:
    """The error where ``compilers`` finds none for ``language``."""
    wanted = f"clang {OLDEST_FOR_HIP} or newer" if language == "hip" else "clang"
    old = ", ".join(dict.fromkeys(map(version, _installed("clang"))))
    return DeviceError(
        f"{wanted} is not installed, which compiles for AMD GPUs: apt-get install {PACKAGES[language]}"
        f"{old and f' (here: {old})'}",
        code="GPC5002",
    )


def linker() -> str | None:
    """The first installed lld, or ``None``. Each clang calls its own."""
    return next(iter(_installed("ld.lld")), None)


def _installed(program: str) -> list[str]:
    names = [program, *(f"{program}-{version}" for version in range(NEWEST, OLDEST - 1, -1))]
    return [path for name in names if (path := shutil.which(name)) is not None]


def assemble(source: KernelSource, arch: str) -> str:
    """The assembly of ``source``, OpenCL C or HIP C++, for ``arch``, such as ``gfx90a``.

    Raises ``DeviceError`` if no clang is installed or none knows ``arch``. Raises ``KernelBuildError`` if clang refuses the
    source or leaves a call in it: clang declares all library functions by itself, so a function that the prelude does not
    define stays a call, and the registers of such a kernel differ from those that a driver's compiler would use.
    """
    if source.language == "hip":
        flags, text = [*HIP_FLAGS, f"--offload-arch={arch}"], hip_text.text_of(source.text)
    else:
        flags = ["-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}", "-nogpulib", "-O3", "-w"]
        flags, text = [*flags, "-Xclang", "-cl-ext=+all"], f"{PRELUDE}\n#line 1\n{source.text}"
    assembly = _run([*flags, "-S", "-o", "-", "-"], text, source, arch)
    if "s_swappc" in assembly:
        names = ", ".join(sorted(set(CALLED.findall(assembly)))) or "a function"
        place = f"{hip_text.MATHEMATICS} does" if source.language == "hip" else "amdgcn.PRELUDE does"
        raise KernelBuildError(build_failed(source, f"{names} is called, which {place} not define"))
    return assembly


def code_object_flags(arch: str) -> list[str]:
    """The flags by which clang makes a code object for ``arch`` of HIP C++."""
    return [*HIP_FLAGS, f"--offload-arch={arch}", "--no-gpu-bundle-output"]


def code_object(source: KernelSource, arch: str) -> bytes:
    """The code object of ``source``, HIP C++, for ``arch``: an ELF file that ``hipModuleLoadData`` loads.

    Raises the same errors as ``assemble``. The linker, lld, must be installed too.
    """
    with tempfile.TemporaryDirectory(prefix="gpucomp-hip-") as folder:
        place = Path(folder, "kernel.co")
        _run([*code_object_flags(arch), "-o", str(place), "-"], hip_text.text_of(source.text), source, arch)
        return place.read_bytes()


def _run(flags: Sequence[str], text: str, source: KernelSource, arch: str) -> str:
    """What the first suitable clang prints for ``text``, which is ``source`` with its prelude."""
    found, unlinked = compilers(source.language), ""
    if not found:
        raise missing(source.language)
    for clang in found:
        try:
            done = subprocess.run(
                [clang, *flags], input=text, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise KernelBuildError(build_failed(source, f"{clang} took more than {LIMIT_S:g} s")) from None
        if NO_LINKER.search(done.stderr):
            unlinked = done.stderr.partition("\n")[0].strip()
        elif not UNKNOWN.search(done.stderr):
            break
    else:
        if unlinked:
            raise DeviceError(
                f"lld, which links code objects, is missing ({unlinked}): apt-get install {PACKAGES['hip']}",
                code="GPC5002",
            )
        raise DeviceError(
            f"no installed clang knows {arch}: install a newer one, for example apt-get install {PACKAGES['newest']}",
            code="GPC5002",
        )
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error:" in line), done.stderr.strip())
        raise KernelBuildError(build_failed(source, first))
    return done.stdout


def resources(source: KernelSource, arch: str) -> Resources:
    """Registers, memory and instructions of ``source`` on ``arch``. Raises the same errors as ``assemble``."""
    return parse(assemble(source, arch))


def code_of(assembly: str) -> str:
    """The kernel's own lines. The listing has inlined functions before the kernel, and its descriptor after it."""
    found = re.search(r"^\s*\.amdhsa_kernel (\S+)", assembly, re.M)
    return assembly[: found.start()].rpartition(f"\n{found[1]}:")[2] if found else assembly


def parse(assembly: str) -> Resources:
    """The resources of the single kernel in ``assembly``, from its metadata and its instructions."""

    def noted(name: str) -> int:
        found = re.search(rf"^ +\.?(?:- )?\.?{name}: +(\d+)", assembly, re.M)
        return int(found[1]) if found else 0

    names = re.findall(r"^\t([a-z][a-z0-9_]+)(?:[ \t]|$)", code_of(assembly), re.M)
    occupancy = re.search(r"; Occupancy: (\d+)", assembly)
    return Resources(
        vector=noted("vgpr_count"),
        scalar=noted("sgpr_count"),
        spilled=noted("vgpr_spill_count") + noted("sgpr_spill_count"),
        local_bytes=noted("group_segment_fixed_size"),
        private_bytes=noted("private_segment_fixed_size"),
        occupancy=int(occupancy[1]) if occupancy else 0,
        instructions=Counter(names),
    )
