"""Clocks, power and temperature while kernels are measured, as far as the device or the system tells them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpucomp.device.target import Target

State = Mapping[
    str, Any
]  # numbers by a name with their unit, and ``held_by`` and ``noted`` as ``Device.clocks`` has them
PROCESSORS = Path("/sys/devices/system/cpu")
POWER = Path("/sys/class/powercap")


def reader(target: Target) -> Callable[[], State]:
    """A function that asks for the state of the device, where that is known; what it gives is else empty."""
    from gpucomp.tuning.devices import open_device

    device = open_device(target)
    return processor() if device.noisy else device.clocks


def processor(processors: Path = PROCESSORS, power: Path = POWER) -> Callable[[], State]:
    """A function that asks Linux for this processor's mean clock, and its mean power since the function was last called."""
    meters = sorted(power.glob("*-rapl:[0-9]/energy_uj"))
    before: list[tuple[float, float]] = []

    def ask() -> State:
        found: dict[str, float] = {}
        if kilohertz := _numbers(sorted(processors.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))):
            found["mhz"] = statistics.fmean(kilohertz) / 1e3
        if energies := _numbers(meters):  # only root may read them on most systems
            now = time.monotonic(), sum(energies) / 1e6
            if before and now[1] > before[-1][1]:  # counters begin again at zero
                found["watts"] = (now[1] - before[-1][1]) / (now[0] - before[-1][0])
            before[:] = [now]
        return found

    return ask


def _numbers(paths: Sequence[Path]) -> list[float]:
    found = []
    for path in paths:
        with suppress(OSError, ValueError):
            found.append(float(path.read_text(encoding="ascii")))
    return found


def told(states: Sequence[State]) -> str:
    """The range of each number over all ``states``, and in how many of them something held the clocks back."""
    known = [state for state in states if state]
    if not known:
        return "Clocks and power: nothing here reports them"
    names = dict.fromkeys(name for state in known for name, value in state.items() if isinstance(value, int | float))
    parts = []
    for name in names:
        values = [float(state[name]) for state in known if name in state]
        low, high = min(values), max(values)
        parts.append(f"{name} {low:.4g}" + (f" to {high:.4g}" if high > low else ""))
    reasons = [reason for state in known for key in ("held_by", "noted") for reason in state.get(key, ())]
    parts += [f"{name} in {reasons.count(name)} of {len(known)} rounds" for name in dict.fromkeys(reasons)]
    return "Clocks and power, asked after each round: " + ", ".join(parts)
