"""Runs kernels of CUDA, and of HIP, on the CPU: compiles their text with g++ (clang) and launches them on numpy arrays.

The scheduler that emulates the device is runtime.cpp. translation_unit.py puts the C++ text together, and sanitizers.py
parses the sanitizers' reports. Every launch is a process of its own, so a kernel that crashes or never ends is just an error.
"""

import atexit
import functools
import hashlib
import os
import platform
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from gpucomp.artifact.tensor_map import ELEMENT_BYTES, TensorMap
from gpucomp.targets import amdgcn
from testing.cuda_on_cpu import hip
from testing.cuda_on_cpu.errors import CudaOnCpuError, RaceError
from testing.cuda_on_cpu.sanitizers import memory_error, misaligned_access, races
from testing.cuda_on_cpu.translation_unit import cluster_of, registers_of, translation_unit

HERE = Path(__file__).parent
PRELUDE = HERE / "prelude_cpu.h"
COMPILER = "g++"
# the trap for a misaligned access needs no library of clang's
HIP_FLAGS = (
    *("-std=c++17", "-O0", "-fno-strict-aliasing", "-ffp-contract=off", "-Wno-everything", f"-I{HERE}"),
    *("-fsanitize=alignment", "-fsanitize-trap=alignment"),
)

Sanitizer = Literal["thread", "address"] | None
Order = Literal["forward", "reversed", "shuffled"]
ORDERS: tuple[Order, ...] = ("forward", "reversed", "shuffled")

FLAGS = ("-std=c++17", "-g1", "-pipe", "-fno-strict-aliasing", "-fsigned-char", "-ffp-contract=off")
KERNEL_FLAGS = ("-O0", "-Wno-unknown-pragmas", "-fsanitize=alignment", "-fno-sanitize-recover=alignment")
SANITIZER_FLAGS = {
    None: (),
    "thread": ("-fsanitize=thread",),
    "address": ("-fsanitize=address", "-fsanitize-sections=gc_shared_*", "-fno-omit-frame-pointer"),
}
RUNTIME_DEFINES = {None: (), "thread": ("-DGC_TSAN",), "address": ("-DGC_ASAN",)}
LIBRARIES = {"thread": "tsan", "address": "asan"}  # of clang's sanitizers
ENVIRONMENT = {
    "TSAN_OPTIONS": "exitcode=0:halt_on_error=0:atexit_sleep_ms=0:color=never",
    "ASAN_OPTIONS": "exitcode=99:detect_leaks=0:color=never",
}
# gold halves the time that the default linker takes
LINKER = ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()
MAX_THREADS = 1024
SHARED_LIMIT = 227 << 10  # bytes of a block, static ones included: the maximum of any device
TIMEOUT_S = 120.0  # for a loop that neither waits nor uses an atomic; the runtime detects all other hangs


@dataclass(frozen=True)
class Mapped:
    """A tensor map argument: the descriptor that the driver would encode from ``spec`` for the memory of ``array``."""

    spec: TensorMap
    array: np.ndarray


Argument = np.ndarray | np.generic | Mapped


class CudaOnCpu:
    """One compiled kernel.

    ``source`` is CUDA text without prelude and #include, and ``kernel`` the name of a kernel in it. ``batch`` has
    (source, kernel) pairs, including this one, that one run of g++ compiles together: see ``compile_many``. ``cache_dir``
    keeps executables between processes, under a hash of all their inputs; without it they last as long as the process.
    With an ``arch``, one of AMD's instruction sets such as gfx90a, the text is HIP's, and clang compiles it.
    """

    def __init__(
        self,
        source: str,
        kernel: str,
        *,
        sanitizer: Sanitizer = None,
        cache_dir: Path | None = None,
        batch: Sequence[tuple[str, str]] = (),
        arch: str = "",
    ):
        kernels = tuple(batch) or ((source, kernel),)
        self.source, self.kernel, self.sanitizer = source, kernel, sanitizer
        self.cluster = cluster_of(source, kernel)
        self._index = kernels.index((source, kernel))  # in the executable's table of kernels
        self._executable = _build(kernels, sanitizer, cache_dir or _process_cache(), arch)

    def run(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Argument],
        *,
        order: Order = "forward",
        seed: int = 0,
        dynamic_shared: int = 0,
        shared_limit: int = SHARED_LIMIT,
        late: Sequence[int] = (),
        timeout: float = TIMEOUT_S,
    ) -> None:
        """Launch on ``args`` and change them in place, as a device would.

        ``grid`` and ``block`` have one to three extents, x first. ``dynamic_shared`` is in bytes; together with the kernel's
        static shared memory it can be at most ``shared_limit``. An array is passed as a pointer, a numpy scalar or ``Mapped``
        by value; the same array twice is one buffer. ``order`` is the order of the blocks and of the threads in a block;
        "shuffled" draws both from ``seed``. A kernel must not change a read-only array. ``late`` arguments are results of
        earlier launches that may not have ended: for each cluster they hold poison until none of its threads can
        continue without gc_grid_wait. Raises CudaOnCpuError, or RaceError with ThreadSanitizer.
        """
        buffers = _distinct_buffers(args)
        (found,) = self._play((order,), grid, block, args, buffers, seed, dynamic_shared, shared_limit, late, timeout)
        for buffer, after in zip(buffers, found, strict=True):
            if buffer.flags.writeable:
                buffer[...] = after

    def run_in_orders(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Argument],
        *,
        orders: Sequence[Order] = ORDERS,
        seed: int = 0,
        dynamic_shared: int = 0,
        shared_limit: int = SHARED_LIMIT,
        late: Sequence[int] = (),
        timeout: float = TIMEOUT_S,
    ) -> list[list[np.ndarray]]:
        """The arrays among ``args`` after a launch in each of ``orders``, each memory once; ``args`` are not changed.

        Otherwise like ``run``. For short kernels it takes little longer than one launch.
        """
        buffers = _distinct_buffers(args)
        return self._play(orders, grid, block, args, buffers, seed, dynamic_shared, shared_limit, late, timeout)

    def _play(
        self,
        orders: Sequence[Order],
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Argument],
        buffers: Sequence[np.ndarray],
        seed: int,
        dynamic_shared: int,
        shared_limit: int,
        late: Sequence[int],
        timeout: float,
    ) -> list[list[np.ndarray]]:
        grid3, block3 = _extents(grid, "grid"), _extents(block, "block")
        if (threads := int(np.prod(block3))) > MAX_THREADS:
            raise CudaOnCpuError(f"{self.kernel}: {threads} threads in a block, at most {MAX_THREADS} can run")
        registers = registers_of(self.source, self.kernel, threads)
        how = (len(orders), *map(ORDERS.index, orders), seed, dynamic_shared, shared_limit, registers)
        header = (self._index, *grid3, *block3, *self.cluster, *how)
        request = [struct.pack(f"<{len(header)}Q", *header), struct.pack("<Q", len(buffers))]
        for buffer in buffers:
            first = _first_argument(buffer, args)
            request += [struct.pack("<3Q", first, buffer.nbytes, first in late), buffer.tobytes()]
        request.append(struct.pack("<Q", len(args)))
        request += [_argument(arg, buffers) for arg in args]
        wrapper = _without_address_randomization() if self.sanitizer == "thread" else ()
        try:
            done = subprocess.run(
                [*wrapper, self._executable],
                input=b"".join(request),
                capture_output=True,
                timeout=timeout,
                env=os.environ | ENVIRONMENT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise CudaOnCpuError(f"{self.kernel}: still running after {timeout} s") from error
        log = done.stderr.decode(errors="replace")
        if found := races(log):
            lines = "\n".join(f"  {race}" for race in found)
            raise RaceError(f"{self.kernel}: {len(found)} data races\n{lines}", found)
        if message := memory_error(log) or misaligned_access(log):
            raise CudaOnCpuError(f"{self.kernel}: {message}")
        results, rest = [], done.stdout
        for order in orders:
            arrays, rest = self._reply(order if len(orders) > 1 else "", rest, buffers, args)
            if arrays is None:
                raise CudaOnCpuError(f"{self.kernel}: the process ended with {done.returncode}\n{log}")
            results.append(arrays)
        return results

    def _reply(
        self, order: str, reply: bytes, buffers: Sequence[np.ndarray], args: Sequence[Argument]
    ) -> tuple[list[np.ndarray] | None, bytes]:
        """The buffers after one order, or ``None`` if the process ended before; and the rest of its output."""
        where = f"{self.kernel}{order and f', {order}'}"
        if len(reply) < 16:
            return None, b""
        failed, length = struct.unpack_from("<2Q", reply)
        if failed:
            raise CudaOnCpuError(f"{where}: {reply[16 : 16 + length].decode()}")
        offset, arrays = 16, []
        for buffer in buffers:
            after = reply[offset : offset + buffer.nbytes]
            if len(after) < buffer.nbytes:
                return None, b""
            offset += buffer.nbytes
            if not buffer.flags.writeable and after != buffer.tobytes():
                number = _first_argument(buffer, args)
                raise CudaOnCpuError(f"{where}: argument {number} is read-only, and the kernel wrote to it")
            arrays.append(np.frombuffer(after, buffer.dtype).reshape(buffer.shape))
        return arrays, reply[offset:]


def compile_many(
    kernels: Sequence[tuple[str, str]],
    *,
    sanitizer: Sanitizer = None,
    cache_dir: Path | None = None,
    arch: str = "",
) -> list[CudaOnCpu]:
    """Compile (source, kernel name) pairs in one run of the compiler; a repeated source is compiled once."""
    return [
        CudaOnCpu(source, kernel, sanitizer=sanitizer, cache_dir=cache_dir, batch=kernels, arch=arch)
        for source, kernel in kernels
    ]


@functools.cache
def _build(kernels: tuple[tuple[str, str], ...], sanitizer: Sanitizer, directory: Path, arch: str = "") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    text = translation_unit(kernels)
    if arch:
        return _build_hip(text, directory, arch, sanitizer)
    flags = (*FLAGS, *KERNEL_FLAGS, *SANITIZER_FLAGS[sanitizer])
    executable = directory / f"kernels-{_digest(text, *flags, *LINKER, *RUNTIME_DEFINES[sanitizer])}"
    if not executable.exists():
        runtime, prelude = _runtime_object(directory, sanitizer), _prelude_header(directory, flags)
        inputs = ("-include", str(prelude), "-x", "c++", "-", "-x", "none", str(runtime))
        _compile(executable, *inputs, *flags, *LINKER, text=text)
    return executable


def hip_compiler(sanitizer: Sanitizer = None) -> str | None:
    """The clang that HIP's kernels are compiled by, for the host; ``None`` if it is not here.

    With ``sanitizer`` it is the newest that has its library, which distributions package by itself (libclang-rt-19-dev).
    """
    found = amdgcn.compilers("hip")
    return next((clang for clang in found if _has_library(clang, sanitizer)), next(iter(found), None))


@functools.cache
def _has_library(clang: str, sanitizer: Sanitizer) -> bool:
    if sanitizer is None:
        return True
    name = f"libclang_rt.{LIBRARIES[sanitizer]}"
    for file in (f"{name}.a", f"{name}-{platform.machine()}.a"):
        found = subprocess.run([clang, f"-print-file-name={file}"], capture_output=True, text=True, check=False)
        if Path(found.stdout.strip()).is_absolute():  # otherwise it is the name again
            return True
    return False


def _build_hip(text: str, directory: Path, arch: str, sanitizer: Sanitizer) -> Path:
    compiler = hip_compiler(sanitizer)
    if compiler is None:
        raise CudaOnCpuError(amdgcn.missing("hip").message)
    # clang's AddressSanitizer watches no sections of ours, in which shared memory is
    watching = (flag for flag in SANITIZER_FLAGS[sanitizer] if not flag.startswith("-fsanitize-sections"))
    header, flags = hip.header(arch), (*HIP_FLAGS, *watching)
    executable = directory / f"kernels-{_digest(text, compiler, header, *flags)}"
    if not executable.exists():
        inputs = ("-include", str(_hip_header(directory, compiler, header, flags)), "-x", "c++", "-", "-x", "none")
        runtime = str(_runtime_object(directory, sanitizer))
        _compile(executable, *inputs, runtime, *flags, *LINKER, "-lstdc++", "-lm", text=text, compiler=compiler)
    return executable


def _hip_header(directory: Path, compiler: str, text: str, flags: Sequence[str]) -> Path:
    """What stands in front of HIP's kernels, as a file beside which clang finds it compiled."""
    header = directory / f"hip-{_digest(compiler, text, *flags)}.h"
    precompiled = header.with_name(header.name + ".pch")
    if not precompiled.exists():
        handle, scratch = tempfile.mkstemp(dir=directory, suffix=".h")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(scratch, header)
        _compile(precompiled, "-x", "c++-header", str(header), *flags, compiler=compiler)
    return header


def _compile(output: Path, *arguments: str, text: str | None = None, compiler: str = COMPILER) -> None:
    """Run the compiler. The output file appears complete or not at all, even if several processes make the same one."""
    handle, scratch = tempfile.mkstemp(dir=output.parent)
    os.close(handle)
    done = subprocess.run(
        [compiler, *arguments, "-o", scratch], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        Path(scratch).unlink(missing_ok=True)  # clang removes it by itself
        raise CudaOnCpuError(f"{compiler} rejects the source:\n{done.stderr}")
    os.chmod(scratch, 0o700)
    os.replace(scratch, output)


def _runtime_object(directory: Path, sanitizer: Sanitizer) -> Path:
    flags = (*FLAGS, "-O2", *RUNTIME_DEFINES[sanitizer])
    output = directory / f"runtime-{_digest(*flags)}.o"
    if not output.exists():
        _compile(output, "-c", str(HERE / "runtime.cpp"), *flags)
    return output


def _prelude_header(directory: Path, flags: Sequence[str]) -> Path:
    """The prelude as a precompiled header, which g++ reads in a fifth of the time.

    g++ uses a precompiled header if it is beside the header and was made with the same flags.
    """
    header = directory / f"prelude-{_digest(str(PRELUDE), *flags)}.h"
    precompiled = header.with_name(header.name + ".gch")
    if not precompiled.exists():
        handle, scratch = tempfile.mkstemp(dir=directory, suffix=".h")
        with os.fdopen(handle, "w") as file:
            file.write(f'#include "{PRELUDE}"\n')
        os.replace(scratch, header)  # atomically: another process may be reading it
        _compile(precompiled, "-x", "c++-header", str(header), *flags)
    return header


def _digest(*parts: str) -> str:
    digest = hashlib.sha256(_toolchain().encode())
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()[:24]


@functools.cache
def _toolchain() -> str:
    """Everything that every output depends on: the compiler and the files of the runtime."""
    version = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=True).stdout
    machine = subprocess.run([COMPILER, "-dumpmachine"], capture_output=True, text=True, check=True).stdout
    files = (
        PRELUDE,
        *(HERE / n for n in ("kernel_table.h", "runtime.h", "runtime.cpp", "fiber.h", "fragments.h", "tcgen05.h")),
    )
    return "\n".join([version, machine, *(path.read_text() for path in files)])


@functools.cache
def _process_cache() -> Path:
    directory = tempfile.TemporaryDirectory(prefix="cuda-on-cpu-")
    atexit.register(directory.cleanup)
    return Path(directory.name)


def _extents(extents: Sequence[int], what: str) -> tuple[int, int, int]:
    if not 1 <= len(extents) <= 3 or min(extents) < 1:
        raise CudaOnCpuError(f"{what} {tuple(extents)} needs one to three extents, each at least 1")
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def _distinct_buffers(args: Sequence[Argument]) -> list[np.ndarray]:
    """The arrays among the arguments, each memory once. Partly overlapping arrays are refused: copies would separate them."""
    buffers: list[np.ndarray] = []
    for given in args:
        arg = given.array if isinstance(given, Mapped) else given
        if not isinstance(arg, np.ndarray):
            continue
        if not arg.flags.c_contiguous:
            raise CudaOnCpuError(f"an argument of shape {arg.shape} is not C-contiguous")
        if any(_same_memory(arg, buffer) for buffer in buffers):
            continue
        if any(np.may_share_memory(arg, buffer) for buffer in buffers):
            raise CudaOnCpuError("two arguments overlap in part")
        buffers.append(arg)
    return buffers


def _same_memory(a: np.ndarray, b: np.ndarray) -> bool:
    return a.ctypes.data == b.ctypes.data and a.nbytes == b.nbytes


def _argument(arg: Argument, buffers: Sequence[np.ndarray]) -> bytes:
    if isinstance(arg, np.ndarray):
        return struct.pack("<2Q", 1, next(i for i, b in enumerate(buffers) if _same_memory(arg, b)))
    if isinstance(arg, Mapped):
        position = next(i for i, b in enumerate(buffers) if _same_memory(arg.array, b))
        return struct.pack("<2Q", 2, position) + _tensor_map(arg.spec)
    if not isinstance(arg, np.generic) or arg.nbytes > 8:
        raise CudaOnCpuError(f"{arg!r} is neither an array nor a numpy scalar of at most 8 bytes")
    return struct.pack("<Q", 0) + arg.tobytes().ljust(8, b"\0")


def _tensor_map(spec: TensorMap) -> bytes:
    """The bytes of ``GcTensorMap`` in runtime.h. Raises CudaOnCpuError for a map that no driver encodes."""
    if reasons := spec.objections():
        raise CudaOnCpuError(f"no tensor map: {'; '.join(reasons)}")

    def five(values: Sequence[int]) -> tuple[int, ...]:
        return (*values, *[1] * (5 - len(values)))

    size = ELEMENT_BYTES[spec.dtype]
    head = (spec.offset, len(spec.extents), size, spec.dtype == "tf32", spec.swizzle)
    axes = (*five(spec.extents), *five((size, *spec.strides)), *five(spec.box), *five(spec.steps))
    corners = (*(spec.lower or (0, 0)), *(spec.upper or (0, 0)))
    return struct.pack("<28Q4q", *head, *axes, spec.is_im2col, spec.channels, spec.pixels, *corners)


def _first_argument(buffer: np.ndarray, args: Sequence[Argument]) -> int:
    arrays = [arg.array if isinstance(arg, Mapped) else arg for arg in args]
    return next(i for i, arg in enumerate(arrays) if isinstance(arg, np.ndarray) and _same_memory(arg, buffer))


@functools.cache
def _without_address_randomization() -> tuple[str, ...]:
    """A command that disables address randomisation: ThreadSanitizer rejects some fully randomised address spaces."""
    if not shutil.which("setarch"):
        return ()
    command = ("setarch", platform.machine(), "-R")
    return command if subprocess.run([*command, "true"], capture_output=True).returncode == 0 else ()
