"""Measures latency: samples, their statistics, and a line on how they were taken. Nothing here depends on the target."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpucomp.device.processor import model_name

UNSTABLE = 0.025
PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True)
class Latency:
    """Samples in milliseconds, in the order they were taken, after ``warmup_runs`` runs that do not count.

    ``busy`` is the CPU time of this process divided by wall time. If it is well below the number of threads, other
    processes used the machine.
    """

    samples_ms: tuple[float, ...]
    warmup_runs: int
    warmup_ms: float
    busy: float

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
    """Time ``run`` from call to return, with at least one warm-up run and ``iterations`` samples, for at least both times."""
    start, warmups = clock(), 0
    while warmups == 0 or clock() - start < warmup_ms / 1e3:
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
    return Latency(tuple(samples), warmups, warm_ms, (time.process_time() - cpu) / wall if wall else 0.0)


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
        f"Noise: {100 * latency.noise:.1f} % (interquartile range over median of {len(latency.samples_ms)} samples)",
    ]
    if latency.noise > UNSTABLE:
        lines.append(unstable(f"noise is above {100 * UNSTABLE:.1f} %", "compare medians of several runs"))
    return lines


def unstable(sign: str, advice: str) -> str:
    """The diagnosis of a machine whose times vary: by which ``sign``, and what to do about it."""
    return f"Diagnosis: unstable, {sign}: other programs share the machine, or clocks vary; {advice}"


def method(latency: Latency, target: str, inputs: str) -> str:
    """One line on how the samples were taken."""
    return (
        f"Method: {target}, {len(latency.samples_ms)} samples after {latency.warmup_runs} warm-up runs "
        f"({latency.warmup_ms:.0f} ms), each one run() from numpy arrays to numpy arrays, copies included; "
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
        "warmup_runs": latency.warmup_runs,
        "warmup_ms": latency.warmup_ms,
        "cpu_s_per_s": latency.busy,
    }


def machine() -> dict[str, object]:
    """The machine that the figures were measured on."""
    return {
        "processor": model_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
