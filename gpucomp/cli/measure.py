"""Measures latency: samples, their statistics, and a line on how they were taken. Nothing here depends on the target."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import numpy as np

from gpucomp import __version__
from gpucomp.device.processor import model_name
from gpucomp.errors import DeviceError, several
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.inputs import TensorSpec

UNSTABLE = 0.025
PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True)
class Latency:
    """Samples in milliseconds, in the order they were taken, after runs that do not count: the first one, which may compile
    and took ``first_ms``, and ``warmup_runs`` that warm up.

    ``busy`` is the CPU time of this process divided by wall time. If it is well below the number of threads, other
    processes used the machine.
    """

    samples_ms: tuple[float, ...]
    warmup_runs: int
    warmup_ms: float
    busy: float
    first_ms: float = 0.0

    @property
    def median_ms(self) -> float:
        return statistics.median(self.samples_ms)

    @property
    def mean_ms(self) -> float:
        return statistics.fmean(self.samples_ms)

    @property
    def noise(self) -> float:
        """Interquartile range over median."""
        return (self.percentile_ms(75) - self.percentile_ms(25)) / self.median_ms if self.median_ms else 0.0

    def percentile_ms(self, percent: float) -> float:
        """The smallest sample that is not less than ``percent`` per cent of the samples."""
        ordered = sorted(self.samples_ms)
        rank = -(-percent * len(ordered) // 100)
        return ordered[max(int(rank), 1) - 1]


def measure(
    run: Callable[[], object],
    *,
    warmup_ms: float,
    duration_s: float,
    iterations: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Latency:
    """Time ``run`` from call to return, with at least ``iterations`` samples, and for at least both times.

    A device's driver may compile in the first run. So the time of the warm-up begins after it.
    """
    start, warmups = clock(), 0
    run()
    first_ms = 1e3 * (clock() - start)
    start = clock()
    while clock() - start < warmup_ms / 1e3:
        run()
        warmups += 1
    warm_ms = 1e3 * (clock() - start)
    samples: list[float] = []
    cpu, start = time.process_time(), clock()
    while len(samples) < iterations or clock() - start < duration_s:
        begin = clock()
        run()
        samples.append(1e3 * (clock() - begin))
    wall = clock() - start
    busy = (time.process_time() - cpu) / wall if wall else 0.0
    return Latency(tuple(samples), warmups, warm_ms, busy, first_ms)


def summary(latency: Latency, percentiles: Sequence[float] = PERCENTILES) -> list[str]:
    """The lines of trtexec's performance summary, and a diagnosis if the samples are noisy."""
    figures = {
        "min": min(latency.samples_ms),
        "max": max(latency.samples_ms),
        "mean": latency.mean_ms,
        "median": latency.median_ms,
        **{f"percentile({p:g}%)": latency.percentile_ms(p) for p in percentiles},
    }
    lines = [
        f"Throughput: {1e3 / latency.mean_ms:.6g} qps",
        "Latency: " + ", ".join(f"{name} = {value:.4g} ms" for name, value in figures.items()),
        f"Noise: {100 * latency.noise:.1f} % (interquartile range over median of {several(len(latency.samples_ms), 'sample')})",
    ]
    if latency.noise > UNSTABLE:
        lines.append(unstable(f"noise is above {100 * UNSTABLE:.1f} %", "compare medians of several runs"))
    return lines


def unstable(sign: str, advice: str) -> str:
    """The diagnosis of a machine whose times vary: by which ``sign``, and what to do about it."""
    return f"Diagnosis: unstable, {sign}: other programs share the machine, or clocks vary; {advice}"


def method(latency: Latency, target: str, inputs: str) -> str:
    """One line on how the samples were taken."""
    warm = (
        f" and {several(latency.warmup_runs, 'warm-up run')} ({latency.warmup_ms:.0f} ms)"
        if latency.warmup_runs
        else ""
    )
    return (
        f"Method: {target}, {several(len(latency.samples_ms), 'sample')} after a first run of {latency.first_ms:.4g} ms{warm}, "
        "each one run() from numpy arrays to numpy arrays, copies included; "
        f"{inputs}; {latency.busy:.2f} CPU seconds per second"
    )


def as_json(latency: Latency, percentiles: Sequence[float] = PERCENTILES) -> dict[str, object]:
    """All figures and samples; each name has its unit."""
    return {
        "latency_ms": {
            "min": min(latency.samples_ms),
            "max": max(latency.samples_ms),
            "mean": latency.mean_ms,
            "median": latency.median_ms,
            **{f"p{p:g}": latency.percentile_ms(p) for p in percentiles},
        },
        "throughput_qps": 1e3 / latency.mean_ms,
        "noise_iqr_over_median": latency.noise,
        "samples_ms": list(latency.samples_ms),
        "first_run_ms": latency.first_ms,
        "warmup_runs": latency.warmup_runs,
        "warmup_ms": latency.warmup_ms,
        "cpu_s_per_s": latency.busy,
    }


def setting(target: str, precision: str, specs: Sequence[TensorSpec], given: Mapping[str, Any]) -> dict[str, Any]:
    """What somebody else needs to compare figures: what ran on which device, on inputs of which shapes, and when."""
    return {
        "target": target,
        "device": device(target),
        "precision": precision,
        "inputs": {
            spec.name: {"type": spec.dtype, "shape": list(_shape(spec, given.get(spec.name)))} for spec in specs
        },
        "gpucomp": __version__,
        "date": now(),
    }


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def said(setting: Mapping[str, Any]) -> str:
    """``setting`` as a line."""
    specs = [TensorSpec(name, one["type"], tuple(one["shape"])) for name, one in setting["inputs"].items()]
    inputs = ", ".join(map(str, specs)) or "none"
    return (
        f"Setting: {setting['device']}, target {setting['target']}, precision {setting['precision']}; inputs {inputs}; "
        f"gpucomp {setting['gpucomp']}; {setting['date']}"
    )


def _shape(spec: TensorSpec, array: Any) -> Sequence[Any]:
    return array.shape if isinstance(array, np.ndarray) else spec.shape


def device(target: str) -> str:
    """The name of the device that programs for ``target`` run on here, with its driver if it has one."""
    if target.partition(":")[0] == "cpu":
        return model_name()
    with suppress(DeviceError):  # a program needs no compiler, and neither has the device's name to be known
        from gpucomp import targets

        found = targets.resolve(kind if (kind := target.partition(":")[0]) in ("cuda", "hip") else target)
        return found.identity or found.name
    return target


def machine() -> dict[str, object]:
    """The machine that the figures were measured on."""
    return {
        "processor": model_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
