"""Compiles CUDA text with NVRTC through ctypes, for tests: no GPU, no driver, no toolkit headers.

Only for tests: the compiler proper has its own driver of NVRTC. The library is the one that it has loaded.
"""

import ctypes
import re
from dataclasses import dataclass

from gpucomp.targets import cuda

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")
# where ptxas decides differently; bench.compile_matrix compiles every model's kernels for all of them
SPREAD = ("sm_75", "sm_80", "sm_90a", "sm_100")
# engines that no architecture of NVIDIA's has
OF_OTHER_GPUS = frozenset({"contraction/mali", "contraction/amd", "contraction/simt_pairs", "attention/amd"})
OPTIONS = ("-std=c++17", "-default-device", "-Xptxas=-v")


class NvrtcError(Exception):
    """NVRTC or ptxas rejects the source; the message is their log."""


@dataclass(frozen=True)
class Resources:
    """What ptxas spent on one kernel; per thread, shared memory per block."""

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class Compiled:
    cubin: bytes
    log: str
    kernels: dict[str, Resources]


def compile(source: str, arch: str) -> Compiled:
    """Compile to a cubin for ``arch`` ("sm_80"). Raises NvrtcError with the log."""
    cubin, log = _run(source, arch, "CUBIN")
    return Compiled(cubin, log, resources(log))


def ptx(source: str, arch: str) -> str:
    """Compile to PTX for ``arch`` ("compute_80"). Raises NvrtcError with the log."""
    return _run(source, arch, "PTX")[0].rstrip(b"\0").decode()


def _run(source: str, arch: str, what: str) -> tuple[bytes, str]:
    nvrtc = cuda.nvrtc()
    program = ctypes.c_void_p()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None))
    try:
        options = [f"-arch={arch}".encode(), *(option.encode() for option in OPTIONS)]
        status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        log = _output(program, "ProgramLog").rstrip(b"\0").decode()
        if status != 0:
            raise NvrtcError(log)
        return _output(program, what), log
    finally:
        _check(nvrtc.nvrtcDestroyProgram(ctypes.byref(program)))


def resources(log: str) -> dict[str, Resources]:
    """What ``ptxas -v`` printed, by kernel."""
    found = {}
    for kernel, text in re.findall(
        r"Compiling entry function '(\w+)'.*?\n(.*?)(?=Compiling entry function|\Z)", log, re.DOTALL
    ):
        frame = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", text)
        registers, shared = re.search(r"Used (\d+) registers", text), re.search(r"(\d+) bytes smem", text)
        if not frame or not registers:
            raise NvrtcError(f"no figures for {kernel} in the log of ptxas:\n{log}")
        found[kernel] = Resources(
            registers=int(registers[1]),
            stack_bytes=int(frame[1]),
            spill_store_bytes=int(frame[2]),
            spill_load_bytes=int(frame[3]),
            shared_bytes=int(shared[1]) if shared else 0,
        )
    return found


def _output(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(cuda.nvrtc(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(cuda.nvrtc(), f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _check(status: int) -> None:
    if status != 0:
        cuda.nvrtc().nvrtcGetErrorString.restype = ctypes.c_char_p
        raise NvrtcError(cuda.nvrtc().nvrtcGetErrorString(status).decode())
