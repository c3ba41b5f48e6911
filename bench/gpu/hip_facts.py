"""What HIP's runtime library and Linux say of the first AMD GPU: its size, memory and clocks. It needs no tool of ROCm."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# hipDeviceAttribute_t since ROCm 5, by our names of the figures
ATTRIBUTES = {"units": 63, "l2_bytes": 19, "clock_khz": 5}
TWO_IN_ONE = re.compile(r"gfx1[0-2]\d\d")  # RDNA: HIP counts work-group processors, which have two compute units
PCI = Path("/sys/bus/pci/devices")
BUS_ID_BYTES = 64
# files of amdgpu (Linux, driver-api/thermal and hwmon): what one of their units is in ours
SENSORS: Mapping[str, tuple[tuple[str, ...], float]] = {
    "sm_mhz": (("freq1_input",), 1e-6),
    "memory_mhz": (("freq2_input",), 1e-6),
    "celsius": (("temp1_input",), 1e-3),
    "watts": (("power1_average", "power1_input"), 1e-6),
}


def numbers(library: ctypes.CDLL, arch: str) -> dict[str, int]:
    """Compute units, bytes of the second-level cache, and the peak clock in kHz; what the library does not tell is left out."""
    found: dict[str, int] = {}
    for name, attribute in ATTRIBUTES.items():
        value = ctypes.c_int()
        if not library.hipDeviceGetAttribute(ctypes.byref(value), attribute, 0) and value.value > 0:
            found[name] = value.value
    if "units" in found and TWO_IN_ONE.fullmatch(arch):
        found["units"] *= 2
    if "clock_khz" in found:
        found["clock_mhz"] = found.pop("clock_khz") // 1000
    return found


def memory(library: ctypes.CDLL) -> dict[str, int]:
    """Bytes of all of the memory, and of what is free."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if library.hipMemGetInfo(ctypes.byref(free), ctypes.byref(total)):
        return {}
    return {"memory_bytes": total.value, "free_bytes": free.value}


def clocks(library: ctypes.CDLL) -> dict[str, Any]:
    """The present clocks in MHz, temperature and power, as the kernel's driver has them; empty without it."""
    bus = ctypes.create_string_buffer(BUS_ID_BYTES)
    if library.hipDeviceGetPCIBusId(bus, len(bus), 0):
        return {}
    return sensors(PCI / bus.value.decode(errors="replace").lower())


def sensors(device: Path) -> dict[str, float]:
    """What the files of a PCI device say; those that are missing, or say nothing, are left out."""
    found: dict[str, float] = {}
    for folder in sorted(device.glob("hwmon/hwmon*")):
        for name, (files, factor) in SENSORS.items():
            value = next((v for file in files if (v := _number(folder / file)) is not None), None)
            if value is not None:
                found.setdefault(name, round(value * factor, 3))
    return found


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None
