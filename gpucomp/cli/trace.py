"""``bench --shapes-from``: the sizes of a trace, one after the other, on a model for any size."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpucomp.cli.measure import Latency
from gpucomp.errors import quote, several
from gpucomp.ir import traces
from gpucomp.ir.dim import Dim
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.any_shape import AnyShapeExecutable
from gpucomp.runtime.inputs import TensorSpec, random_inputs

MOST_KEPT_BYTES = 1 << 30  # of inputs that are made before anything is measured


@dataclass(frozen=True)
class Trace:
    """Sizes in the order of their runs, by the names of the dimensions."""

    path: Path
    sizes: tuple[dict[str, int], ...]

    @property
    def different(self) -> int:
        return traces.different(self.sizes)


def read(path: Path, exe: AnyShapeExecutable) -> Trace:
    """The trace in a file, see ``gpucomp.ir.traces``. Raises the same errors."""
    return Trace(path, tuple(exe.sizes_in(traces.given_sizes(path))))


def feeds(trace: Trace, exe: AnyShapeExecutable) -> Callable[[Mapping[str, int]], dict[str, np.ndarray]]:
    """Random inputs for sizes, the same for the same sizes."""
    kept: dict[tuple[int, ...], dict[str, np.ndarray]] = {}
    left = MOST_KEPT_BYTES

    def feed(sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
        nonlocal left
        key = tuple(sizes.values())
        if key in kept:
            return kept[key]
        made = random_inputs([_at(spec, sizes) for spec in exe.inputs])
        left -= sum(array.nbytes for array in made.values())
        if left >= 0:
            kept[key] = made
        return made

    return feed


def _at(spec: TensorSpec, sizes: Mapping[str, int]) -> TensorSpec:
    shape = tuple(sizes[n.name] if isinstance(n, Dim) else n for n in spec.shape)
    return TensorSpec(spec.name, spec.dtype, shape)


def measure(trace: Trace, exe: AnyShapeExecutable) -> Latency:
    """Run the whole trace once, each size as it comes. One run of the first sizes warms up."""
    feed = feeds(trace, exe)
    for sizes in trace.sizes:
        feed(sizes)
    begin = time.perf_counter()
    exe.run(feed(trace.sizes[0]))
    warm_ms = 1e3 * (time.perf_counter() - begin)
    samples: list[float] = []
    cpu, wall = 0.0, 0.0
    for sizes in trace.sizes:
        given = feed(sizes)
        cpu_before, begin = time.process_time(), time.perf_counter()
        exe.run(given)
        seconds = time.perf_counter() - begin
        cpu += time.process_time() - cpu_before
        wall += seconds
        samples.append(1e3 * seconds)
    return Latency(tuple(samples), 0, 0.0, cpu / wall if wall else 0.0, warm_ms)


def summary(trace: Trace, latency: Latency) -> list[str]:
    runs, shapes = several(len(trace.sizes), "run"), several(trace.different, "set")
    figures = {
        "median": latency.median_ms,
        "percentile(99%)": latency.percentile_ms(99),
        "first": latency.samples_ms[0],
        "max": max(latency.samples_ms),
    }
    return [
        f"Total: {sum(latency.samples_ms):.6g} ms for {runs} of {shapes} of sizes from {quote(trace.path.name)}",
        "Latency: " + ", ".join(f"{name} = {value:.4g} ms" for name, value in figures.items()),
    ]


def as_json(trace: Trace, latency: Latency) -> dict[str, Any]:
    return {
        "trace": str(trace.path),
        "runs": len(trace.sizes),
        "different_sizes": trace.different,
        "total_ms": sum(latency.samples_ms),
        "sizes": list(trace.sizes),
    }
