"""Runs kernels as AMD machine code in an instruction emulator, beside float64: matrix instructions without a GPU.

    python -m bench.amd_emulator PATH [--arch gfx1100 ...] [--cell 'gfx942 contraction/amd f16' ...] [--cases 20] [--seed 0]
                                      [--minutes 60] [--limit S] [--journal F] [--again] [--markdown F] [--summary F]

PATH is a checkout of tinygrad. Its ``test/mockgpu/amd/emu.py`` decodes machine code and executes AMD's own pseudocode (from
the instruction set documents), each instruction compiled for the CPU. Kernels are compiled by clang (``targets.amdgcn``),
linked by ld.lld, and loaded as a driver does it (kernel descriptor, kernel arguments, user registers). Each case runs in a
process that may crash. The bytes around every buffer are checked after a launch. Cases, oracle and journal are those of
``bench.kernel_sweep``.

Cache instructions become ``s_nop``, because the emulator has no caches. First, small kernels with obvious results test
whether the emulator is right about what kernels need. If it is not, ``PROBES`` says what has to be repaired in it, and the
cases that depend on that are left out.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import itertools
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from bench.kernel_sweep.cases import HIP_PREFIX, Cell, features_of
from bench.kernel_sweep.play import Ready
from bench.simulated import SimulatorError, arguments_of, commit_of, run, simulator_parser
from gpucomp.errors import DeviceError, KernelBuildError
from gpucomp.ir.types import F16
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.contraction.amd.emit import has_instruction
from gpucomp.targets import amdgcn

EMULATOR = Path("test/mockgpu/amd/emu.py")
ARCHITECTURES = {"gfx1100": "rdna3", "gfx1201": "rdna4", "gfx942": "cdna", "gfx950": "cdna"}  # the emulator's names
ENGINES = {
    "contraction/amd": ("f16", "bf16", "i8", "f32"),
    "contraction/simt": ("f32", "f16", "i8"),
    "contraction/gemv": ("f32", "f16", "i8"),
    "attention/simt": ("f32", "f16"),
}
ON_CACHES = re.compile(r"\b(buffer_(gl[01]_inv|wbl2|invl2|wbinvl1(_vol)?|inv)|global_(inv|wb|wbinv))\b[^\n]*")
# a 16-bit instruction on a register from v128 on, in an encoding that means an upper half on gfx11 (LLVM D128054)
HALF_FROM_128 = re.compile(r"\bv_\w*16\w*_(?:e32|dpp)\b[^\n;]*\bv(?:12[89]|1[3-9]\d|2\d\d)\b")
CONSTANT_SUM = re.compile(r"\bv_wmma\w* (?:v\[\d+:\d+\], ){3}-?\d")  # a product that a constant is added to
TWO_BYTES = re.compile(r"\bglobal_load_(?:[us]short|short_d16\w*|[ui]16|d16_\w*b16)\b")  # of GCN and CDNA, and of RDNA
GUARD, FILL = 4096, 0xA5  # bytes around every buffer, and their value
RAISED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    subprocess.SubprocessError,
)
GRANULE = 512  # bytes; local memory is allocated in multiples of it
PAGE = 4096
LOADED, DYNAMIC_SYMBOLS = 1, 11  # ELF: PT_LOAD, SHT_DYNSYM
LINKERS = ("ld.lld", *(f"ld.lld-{version}" for version in range(amdgcn.NEWEST, amdgcn.OLDEST - 1, -1)))


@dataclass(frozen=True)
class Descriptor:
    """A kernel's requests to the hardware (LLVM's AMDGPUUsage, "Code Object V3 Kernel Descriptor")."""

    local_bytes: int
    private_bytes: int
    entry: int  # relative to the descriptor
    resources: int  # COMPUTE_PGM_RSRC2
    properties: int

    @classmethod
    def read(cls, raw: bytes) -> Descriptor:
        local, private = struct.unpack_from("<II", raw, 0)
        (entry,) = struct.unpack_from("<q", raw, 16)
        resources, properties = struct.unpack_from("<IH", raw, 52)
        return cls(local, private, entry, resources, properties)

    def resources_with(self, dynamic_bytes: int) -> int:
        """COMPUTE_PGM_RSRC2 with the local memory of a launch in bits 15 to 23."""
        granules = -(-(self.local_bytes + dynamic_bytes) // GRANULE)
        return self.resources & ~(0x1FF << 15) | granules << 15

    def user_registers(self, packet: int, arguments: int) -> list[int]:
        """The initial scalar registers of a wave: addresses, and zeros for values that no kernel here reads."""

        def pair(address: int) -> list[int]:
            return [address & 0xFFFFFFFF, address >> 32]

        parts = ([0] * 4, pair(packet), [0] * 2, pair(arguments), [0] * 2, [0] * 2, [self.private_bytes])
        asked = itertools.chain.from_iterable(part for bit, part in enumerate(parts) if self.properties >> bit & 1)
        found = list(asked)
        return found + [0] * ((self.resources >> 1 & 31) - len(found))


@dataclass(frozen=True)
class CodeObject:
    """A linked kernel: its loaded segments, and the address of its descriptor."""

    size: int
    parts: tuple[tuple[int, bytes], ...]
    descriptor: int

    @classmethod
    def read(cls, elf: bytes, kernel: str) -> CodeObject:
        """Raises ``KeyError`` if the file has no such kernel."""
        headers, sections = struct.unpack_from("<QQ", elf, 32)
        (many,), (more,) = struct.unpack_from("<H", elf, 56), struct.unpack_from("<H", elf, 60)
        segments = [struct.unpack_from("<IIQQQQQQ", elf, headers + 56 * n) for n in range(many)]
        loads = [s for s in segments if s[0] == LOADED]
        parts = tuple((at, elf[offset : offset + length]) for _, _, offset, at, _, length, _, _ in loads)
        table = [struct.unpack_from("<IIQQQQIIQQ", elf, sections + 64 * n) for n in range(more)]
        for section in (s for s in table if s[1] == DYNAMIC_SYMBOLS):
            names = table[section[6]][4]
            for at in range(section[4], section[4] + section[5], 24):
                name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", elf, at)
                if elf[names + name : elf.index(b"\0", names + name)].decode() == f"{kernel}.kd":
                    return cls(max(s[3] + s[6] for s in loads), parts, value)
        raise KeyError(kernel)


def linked(source: KernelSource, arch: str) -> bytes:
    """The code object of ``source``, without cache instructions."""
    assembly = ON_CACHES.sub("s_nop 0", amdgcn.assemble(source, arch))
    linker = next((path for name in LINKERS if (path := shutil.which(name))), None)
    if linker is None:
        raise DeviceError("ld.lld is not installed: it links AMD's machine code", code="GPC5002")
    with tempfile.TemporaryDirectory() as folder:
        text, made, done = (str(Path(folder, f"k.{suffix}")) for suffix in ("s", "o", "hsaco"))
        Path(text).write_text(assembly, encoding="utf-8")
        how = ["-x", "assembler", "-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}", "-c", text, "-o", made]
        for clang in reversed(amdgcn.compilers()):  # the default clang last: it may be old
            said = subprocess.run([clang, *how], capture_output=True, text=True, check=False)
            if said.returncode == 0:
                break
        else:
            raise KernelBuildError(f"{source.name}: no clang assembles for {arch}: {said.stderr[:300]}")
        subprocess.run([linker, "-shared", "--no-undefined", made, "-o", done], check=True)
        return Path(done).read_bytes()


def kernel_arguments(addresses: Sequence[int], groups: Sequence[int], items: Sequence[int]) -> bytes:
    """The kernel's own arguments, all addresses, then the hidden ones of code object V5: the sizes of the launch."""
    own = struct.pack(f"<{len(addresses)}Q", *addresses)
    return own + struct.pack("<III", *groups) + struct.pack("<HHH", *items) + bytes(256)


def packet_of(groups: Sequence[int], items: Sequence[int]) -> bytes:
    """The part of the dispatch packet that kernels read."""
    sizes = [g * i for g, i in zip(groups, items, strict=True)]
    return struct.pack("<HHHHHHIII", 0, 3, *items, 0, *sizes) + bytes(40)


def outside(around: np.ndarray) -> bool:
    """Whether a guard has changed."""
    return bool((around != FILL).any())


def emulate(
    path: str, arch: str, elf: bytes, kernel: str, geometry: Geometry, given: list[np.ndarray]
) -> list[np.ndarray]:
    """``given`` after a launch. Runs in a process of its own, because the emulator may crash."""
    run_asm = _emulator(path)
    code = CodeObject.read(elf, kernel)
    memory = (ctypes.c_ubyte * (code.size + 2 * PAGE))()
    base = -(-ctypes.addressof(memory) // PAGE) * PAGE
    for at, part in code.parts:
        ctypes.memmove(base + at, part, len(part))
    descriptor = Descriptor.read(ctypes.string_at(base + code.descriptor, 64))
    buffers = []
    for array in given:
        whole = np.full(array.nbytes + 2 * GUARD, FILL, np.uint8)
        whole[GUARD : GUARD + array.nbytes] = array.view(np.uint8).reshape(-1)
        buffers.append(whole)
    addresses = [int(b.ctypes.data) + GUARD for b in buffers]
    arguments = ctypes.create_string_buffer(kernel_arguments(addresses, geometry.groups, geometry.items))
    packet = ctypes.create_string_buffer(packet_of(geometry.groups, geometry.items))
    start = base + code.descriptor + descriptor.entry
    registers = descriptor.user_registers(ctypes.addressof(packet), ctypes.addressof(arguments))
    resources = descriptor.resources_with(geometry.dynamic_shared_bytes)
    error = run_asm(
        start,
        base + code.size - start,
        *geometry.groups,
        *geometry.items,
        ctypes.addressof(arguments),
        resources,
        descriptor.private_bytes,
        ARCHITECTURES[arch],
        registers,
    )
    if error:
        raise SimulatorError(f"the emulator stops with {error}")
    found = []
    for number, (array, whole) in enumerate(zip(given, buffers, strict=True)):
        if outside(whole[:GUARD]) or outside(whole[GUARD + array.nbytes :]):
            raise SimulatorError(f"argument {number} is written outside of its bounds")
        found.append(whole[GUARD : GUARD + array.nbytes].view(array.dtype).reshape(array.shape))
    return found


@functools.cache
def _emulator(path: str) -> Callable[..., int]:
    sys.dont_write_bytecode = True
    sys.path.insert(0, path)
    found: Callable[..., int] = importlib.import_module("test.mockgpu.amd.emu").run_asm
    return found


def _opened(path: str) -> None:
    """Initialise the process."""
    _emulator(path)


class Emulator:
    """The emulator in a process of its own, which is started anew when it has ended or takes more than ``limit`` seconds."""

    def __init__(self, path: Path, limit: float) -> None:
        self.path, self.limit = path.resolve(), limit
        self._pool: ProcessPoolExecutor | None = None
        self._folder = tempfile.TemporaryDirectory()
        # the emulator compiles for the CPU and needs a recent clang
        self._python = Path(self._folder.name, "python")
        newest = (amdgcn.compilers()[1:] or ["clang"])[0]
        self._python.write_text(f'#!/bin/sh\nexec env DEV=CPU CC={newest} {sys.executable} "$@"\n', encoding="utf-8")
        self._python.chmod(0o755)

    def launch(self, arch: str, source: KernelSource, given: list[np.ndarray]) -> list[np.ndarray]:
        """Raises ``SimulatorError`` for anything that ends a launch early."""
        elf = linked(source, arch)
        arguments = str(self.path), arch, elf, source.name, source.geometry, given
        if self._pool is None:
            self._pool = self._started()
        work = self._pool.submit(emulate, *arguments)
        try:
            return work.result(self.limit)
        except BrokenProcessPool as error:
            self._end()
            raise SimulatorError("the emulator ended its process") from error
        except TimeoutError as error:
            self._end()
            raise SimulatorError(f"no end after {self.limit:.0f} s") from error
        except RAISED as error:  # an exception of the emulator is its answer
            raise SimulatorError(f"the emulator raises {type(error).__name__}: {str(error)[:200]}") from error

    def _started(self) -> ProcessPoolExecutor:
        context = get_context("spawn")
        pool = ProcessPoolExecutor(1, mp_context=context)
        context.set_executable(str(self._python))
        try:
            pool.submit(_opened, str(self.path))
        finally:
            context.set_executable(sys.executable)
        return pool

    def play(self, ready: Ready) -> list[np.ndarray]:
        given, first, count = arguments_of(ready)
        return self.launch(arch_of(ready.case.cell), ready.source, given)[first : first + count]

    def close(self) -> None:
        self._end()
        self._folder.cleanup()

    def _end(self) -> None:
        if self._pool is not None:
            for process in list((self._pool._processes or {}).values()):
                process.kill()
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None


@dataclass(frozen=True)
class Probe:
    """A kernel of 128 work-items with obvious results, and the emulator's fault if it gives others.

    body    of a kernel on ``x``, 64 words that count from 0, and ``y``, 1,024 words that start as 0
    right   the first words of ``y`` after it
    needs   whether a case depends on it
    """

    name: str
    archs: tuple[str, ...]
    body: str
    right: Callable[[int], np.ndarray]
    needs: Callable[[Ready], bool]
    repair: str

    def source(self) -> KernelSource:
        text = f"__kernel void probe(__global int* x, __global int* y) {{\n  const int id = get_local_id(0);\n{self.body}}}\n"
        return KernelSource("probe", "opencl", text, Geometry((1, 1, 1), (128, 1, 1)), {}, "")


def _is_matrix(*dtypes: str) -> Callable[[Ready], bool]:
    return lambda ready: ready.case.cell.engine == "contraction/amd" and ready.case.cell.dtype in dtypes


def _meets(ready: Ready) -> bool:
    return ready.source.geometry.counter_bytes > 0


def _spills(ready: Ready) -> bool:
    return amdgcn.resources(ready.source, arch_of(ready.case.cell)).private_bytes > 0


def _moves_bytes(ready: Ready) -> bool:
    """Whether bytes are loaded two at a time, at any address. The matrix engine does so if clang merges loads of bytes."""
    if ready.case.cell.dtype != "i8" or ready.case.cell.engine != "contraction/amd":
        return ready.case.cell.dtype == "i8"
    return bool(TWO_BYTES.search(amdgcn.assemble(ready.source, arch_of(ready.case.cell))))


def _stores_halves(ready: Ready) -> bool:
    """Whether the compiler may merge stores of several halves in rows that begin at odd elements."""
    outputs = ready.kernel.params[ready.kernel.inputs :]
    return any(t.dtype is F16 and t.shape[-1:] and t.shape[-1] % 2 for t in outputs)


def _adds_lanes_up(ready: Ready) -> bool:
    return ready.case.cell.engine == "contraction/gemv"


def _has_16_bits_from_v128_on(ready: Ready) -> bool:
    return bool(HALF_FROM_128.search(amdgcn.assemble(ready.source, arch_of(ready.case.cell))))


def _adds_constants(ready: Ready) -> bool:
    """Whether a constant is added to a product, and registers from v128 on hold anything."""
    assembly = amdgcn.assemble(ready.source, arch_of(ready.case.cell))
    return bool(CONSTANT_SUM.search(assembly)) and amdgcn.parse(assembly).vector > 128


def _rows_of_32(lanes: int) -> np.ndarray:
    """The row of result ``r`` of each lane in 32 x 32 results: CDNA3's instruction set document, 7.1.5."""
    lane, r = np.arange(64)[:, None], np.arange(16)[None, :]
    return (8 * (r // 4) + 4 * (lane // 32) + r % 4).reshape(-1).astype(np.int32)


PROBES = (
    Probe(
        "rows of 32 x 32 results of MFMA",
        ("gfx942", "gfx950"),
        "  float16 c = 0;\n"
        "  c = __builtin_amdgcn_mfma_f32_32x32x2f32(id < 32 ? (float)id : 0.0f, id < 32 ? 1.0f : 0.0f, c, 0, 0, 0);\n"
        "  for (int r = 0; r < 16 && id < 64; ++r) y[id * 16 + r] = (int)c[r];\n",
        _rows_of_32,
        _is_matrix("f32", "f16", "bf16", "i8"),
        "a lane's result r of a 32 x 32 instruction stands in row 8 * (r / 4) + 4 * (lane / 32) + r % 4",
    ),
    Probe(
        "MFMA of bytes",
        ("gfx942", "gfx950"),
        "  int16 c = 0;\n"
        "  c = __builtin_amdgcn_mfma_i32_32x32x16_i8(id < 32 ? (long)(id * 3) : 0, id < 32 ? 255 : 0, c, 0, 0, 0);\n"
        "  for (int r = 0; r < 16 && id < 64; ++r) y[id * 16 + r] = c[r];\n",
        lambda lanes: -3 * _rows_of_32(lanes),
        _is_matrix("i8"),
        "bytes are widened in an unsigned type of 32 bits before they are signed, so that the instruction compiles",
    ),
    Probe(
        "16 bits in registers from v128 on",
        ("gfx942", "gfx950"),
        '  __asm("v_mov_b32_e32 v130, %1\\n"\n'
        '        "v_lshlrev_b16_e32 v131, 8, v130\\n"\n'
        '        "v_add_u16_e32 v131, v130, v131\\n"\n'
        '        "v_cmp_lt_u16_e32 vcc, v130, v131\\n"\n'
        '        "v_cndmask_b32_e32 %0, 0, v131, vcc"\n'
        '        : "=v"(y[id]) : "v"(x[id % 64]) : "v130", "v131", "vcc");\n',
        lambda lanes: (257 * np.arange(lanes)).astype(np.int32),
        _has_16_bits_from_v128_on,
        "v128 to v255 are registers to instructions of 16 bits too: upper halves of v0 to v127 they name from gfx11 on",
    ),
    Probe(
        "constants that WMMA adds",
        ("gfx1201",),  # for gfx1100 clang 19 puts constants into registers
        '  __asm volatile("v_mov_b32_e32 v128, 7" : : : "v128");\n'
        "  int2 a = x[0];\n"
        "  int8 c = 0;\n"
        "  c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, a, true, a, c, false);\n"
        "  y[id] = c[0] + 1;\n",
        lambda lanes: np.ones(lanes, np.int32),
        _adds_constants,
        "the operand 128 that a product is added to is the constant 0, not v128",
    ),
    Probe(
        "atomics that return",
        ("gfx1100", "gfx1201", "gfx942", "gfx950"),
        "  volatile __global uint* count = (volatile __global uint*)x;\n"
        "  if (id == 0) { y[0] = atomic_xchg(count + 3, 50); y[1] = atomic_xchg(count + 3, 60); }\n",
        lambda lanes: np.array([3, 50], np.int32),
        _meets,
        "an atomic with sc0 (CDNA3) or TH_ATOMIC_RETURN (RDNA4) returns what was there, as one with glc does",
    ),
    Probe(
        "16 bits at an odd address",
        ("gfx1100", "gfx1201", "gfx942", "gfx950"),
        "  __global const char* bytes = (__global const char*)x;\n"
        "  char2 two = vload2(0, bytes + 4 * (id % 64) + 3);\n"
        "  y[id] = id < 63 ? (two.s0 + 1) * 100 + two.s1 : 0;\n",
        lambda lanes: np.array([100 + (n + 1) if n < 63 else 0 for n in range(64)], np.int32),
        _moves_bytes,
        "a load of 16 bits may stand at any address",
    ),
    Probe(
        "64 bits stored at an odd address",
        ("gfx1100", "gfx1201", "gfx942", "gfx950"),
        "  __global char* bytes = (__global char*)y;\n"
        "  if (id < 64) vstore8((char8)(1, 2, 3, 4, 5, 6, 7, 8), 0, bytes + 16 * id + 1);\n",
        lambda lanes: np.array([0x03020100, 0x07060504, 8, 0] * 64, np.int32),
        _stores_halves,
        "a store may stand at any address, as unaligned accesses are on",
    ),
    Probe(
        "local addresses of lanes that are off",
        ("gfx1100", "gfx1201", "gfx942", "gfx950"),
        "  __local int kept[64];\n"
        "  kept[id % 64] = x[id % 64];\n"
        "  barrier(CLK_LOCAL_MEM_FENCE);\n"
        "  const int at = x[id % 64] < 8 ? x[id % 64] : x[id % 64] << 24;\n"  # the compiler does not know that x[id] is id
        "  __local int* place = kept + at;\n"
        "  y[512 + id] = (int)(size_t)place;\n"  # every lane has an address
        "  if (id < 8) y[id] = *place;\n",
        lambda lanes: np.arange(8, dtype=np.int32),
        _adds_lanes_up,
        "what lanes that EXEC has off would address is not read",
    ),
    Probe(
        "private memory of several waves",
        ("gfx1100", "gfx1201", "gfx942", "gfx950"),
        "  int kept[64];\n"
        "  for (int i = 0; i < 64; ++i) kept[i] = x[i] + 64 * id;\n"
        "  barrier(CLK_LOCAL_MEM_FENCE);\n"
        "  y[id] = kept[x[id % 64]];\n",
        lambda lanes: (np.arange(128) % 64 + 64 * np.arange(128)).astype(np.int32),
        _spills,
        "every wave of a work-group has private memory of its own",
    ),
)


def probe(emulator: Emulator, arch: str) -> dict[str, str]:
    """The probes that fail on ``arch``, by name, with what they gave."""
    wrong = {}
    for each in (p for p in PROBES if arch in p.archs):
        x, y = np.arange(64, dtype=np.int32), np.zeros(1024, np.int32)
        try:
            _, found = emulator.launch(arch, each.source(), [x, y])
        except SimulatorError as error:
            wrong[each.name] = str(error)
            continue
        right = each.right(64)
        if (found[: right.size] != right).any():
            at = int(np.flatnonzero(found[: right.size] != right)[0])
            wrong[each.name] = f"word {at} is {found[at]}, not {right[at]}"
    return wrong


def arch_of(cell: Cell) -> str:
    """The instruction set of a cell, of OpenCL or HIP."""
    return cell.target.removeprefix(HIP_PREFIX)


def cells(language: str = "opencl") -> list[Cell]:
    """The cells that an architecture has instructions for; see ``unsuited`` for the others."""
    targets = [f"{HIP_PREFIX if language == 'hip' else ''}{arch}" for arch in ARCHITECTURES]
    found = [Cell(a, engine, dtype) for a in targets for engine, dtypes in ENGINES.items() for dtype in dtypes]
    return [cell for cell in found if not unsuited(cell)]


def unsuited(cell: Cell) -> str:
    """Why there are no kernels for a cell, or ""."""
    wanted = cell.engine == "contraction/amd" and not has_instruction(cell.type, features_of(cell))
    return f"no matrix instruction of {cell.target} takes {cell.dtype}" if wanted else ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = simulator_parser(
        "bench.amd_emulator", __doc__, [cell.name for language in ("opencl", "hip") for cell in cells(language)], 20
    )
    parser.add_argument(
        "--arch", action="append", choices=list(ARCHITECTURES), help="only this architecture; may repeat (default: all)"
    )
    parser.add_argument(
        "--language",
        choices=("opencl", "hip"),
        default="opencl",
        help="what the kernels are rendered in (default: opencl)",
    )
    options = parser.parse_args(arguments)
    if not (options.path / EMULATOR).is_file():
        parser.error(f"{options.path} is not a checkout of tinygrad: it has no {EMULATOR}")
    if amdgcn.compiler() is None:
        parser.error("clang is not installed, which compiles for AMD GPUs: apt-get install clang")
    archs = options.arch or list(ARCHITECTURES)
    chosen = [
        c for c in cells(options.language) if arch_of(c) in archs and (not options.cell or c.name in options.cell)
    ]
    emulator = Emulator(options.path, options.limit)
    try:
        wrong = {arch: probe(emulator, arch) for arch in dict.fromkeys(map(arch_of, chosen))}
        for arch, name, said in ((a, n, s) for a, found in wrong.items() for n, s in found.items()):
            print(f"{arch}: the emulator has {name} wrong ({said})", file=sys.stderr)

        def without(ready: Ready) -> str:
            """Why the emulator cannot judge a case, or ""."""
            of = [p.name for p in PROBES if p.name in wrong[arch_of(ready.case.cell)] and p.needs(ready)]
            return f"the emulator has {of[0]} wrong" if of else ""

        lead = " ".join(
            [
                f"`python -m bench.amd_emulator`: machine code for {', '.join(wrong)} in tinygrad's emulator of instructions",
                f"({commit_of(options.path)}), which executes AMD's pseudocode.",
                *known(wrong),
            ]
        )
        return run(options, chosen, emulator.play, without, "AMD emulator", lead)
    finally:
        emulator.close()


def known(wrong: dict[str, dict[str, str]]) -> list[str]:
    """Sentences on what the probes found, and on missing cells."""
    told = [
        f"It fails the probe «{p.name}» on {', '.join(a for a in wrong if p.name in wrong[a])}: right would be that {p.repair}."
        for p in PROBES
        if any(p.name in found for found in wrong.values())
    ]
    missing = {unsuited(Cell(a, "contraction/amd", t)) for a in wrong for t in ENGINES["contraction/amd"]} - {""}
    return told + [f"Not there: {reason}." for reason in sorted(missing)]


if __name__ == "__main__":
    sys.exit(main())
