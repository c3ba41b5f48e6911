"""What this machine's processor can do, by LLVM's names for it: machine code for another one would crash."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from functools import cache

from gpucomp.errors import DeviceError

_KERNEL_NAMES = {
    "sse4.1": "sse4_1",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "neon": "asimd",
}  # where Linux spells a feature otherwise


@cache
def flags() -> frozenset[str]:
    """The features that the system names; empty where it names none."""
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


def require(features: Iterable[str], arch: str) -> None:
    """Raise ``DeviceError`` when this processor lacks one of the features that code for ``arch`` uses."""
    there = flags()
    if missing := sorted(f for f in features if there and _KERNEL_NAMES.get(f, f) not in there):
        raise DeviceError(
            f"the model is compiled for {arch}, and this processor ({platform.machine()}) has no {', '.join(missing)}: "
            "compile it here, or for a smaller target such as cpu:x86-64-v3",
            code="GPC5007",
        )
