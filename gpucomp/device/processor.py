"""The features of this machine's processor, by LLVM's names. Machine code for features that it lacks would crash."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Iterable
from functools import cache

from gpucomp.errors import DeviceError

_KERNEL_NAMES = {
    "amx-bf16": "amx_bf16",
    "amx-int8": "amx_int8",
    "amx-tile": "amx_tile",
    "avxvnni": "avx_vnni",
    "sse4.1": "sse4_1",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "neon": "asimd",
}  # features that Linux spells differently

_TELLING = {
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("Features", "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"),
}  # lines of /proc/cpuinfo that do not change while the processor runs


@cache
def flags() -> frozenset[str]:
    """The features that the system lists; empty if it lists none."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(("flags", "Features")):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return frozenset()


@cache
def model_name() -> str:
    """The processor's name as the system gives it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@cache
def description() -> tuple[str, ...]:
    """Everything that tells processors apart: what decides the machine code, and the device that records name.

    Raises ``LookupError`` if the system does not describe its processor.
    """
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read().partition("\n\n")[0].splitlines()
    except OSError:
        lines = []
    found = [line for line in lines if line.partition(":")[0].strip() in _TELLING]
    if not found:
        raise LookupError("the system does not describe its processor")
    return (*found, platform.machine(), str(len(os.sched_getaffinity(0))), str(second_cache()), tiles_refused())


@cache
def second_cache() -> int:
    """Bytes of this processor's L2 cache, from Linux; 1 MiB if that is unknown."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index2/size", encoding="ascii") as file:
            text = file.read().strip()
    except OSError:
        return 1 << 20
    return int(text[:-1]) << 10 if text.endswith("K") and text[:-1].isdigit() else 1 << 20


ARCH_PRCTL = 158  # the number of the system call on x86-64
REQUEST_PERMISSION, TILE_DATA = (
    0x1023,
    18,
)  # ARCH_REQ_XCOMP_PERM and the number of the state: Documentation/arch/x86/xstate.rst in Linux


@cache
def tiles_refused() -> str:
    """Why this process cannot use tile registers (AMX); empty if it can. The first call asks the system for permission.

    Linux gives permission to a process, to all its threads, and to the processes forked from it.
    """
    if "amx_tile" not in flags():
        return "the processor has none, or the system does not name them"
    if platform.machine() != "x86_64":
        return "no x86-64 system"
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    if call(ctypes.c_long(ARCH_PRCTL), ctypes.c_long(REQUEST_PERMISSION), ctypes.c_long(TILE_DATA)) == 0:
        return ""
    number = ctypes.get_errno()
    why = os.strerror(number)
    if number == errno.ENOSPC:  # arch/x86/kernel/fpu/xstate.c in Linux, validate_sigaltstack
        why = "a thread's signal stack (sigaltstack) is too small for what they add to it"
    return f"the system refuses them: {why} ({errno.errorcode.get(number, number)})"


def missing(features: Iterable[str]) -> list[str]:
    """The ``features`` that this processor lacks; none if the system does not list its features."""
    available = flags()
    return sorted(f for f in features if available and _KERNEL_NAMES.get(f, f) not in available)


def require(features: Iterable[str], arch: str) -> None:
    """Raise ``DeviceError`` if this processor lacks one of the features that code for ``arch`` uses."""
    features = list(features)
    if lacking := missing(features):
        raise DeviceError(
            f"the model is compiled for {arch}, and this processor ({platform.machine()}) has no {', '.join(lacking)}: "
            "compile it here, or for a smaller target such as cpu:x86-64-v3",
            code="GPC5007",
        )
    if any(f.startswith("amx-") for f in features) and (why := tiles_refused()):
        raise DeviceError(
            f"the model is compiled for tile registers (AMX), and {why}: compile it here, or for a smaller target such "
            "as cpu:x86-64-v4",
            code="GPC5007",
        )
