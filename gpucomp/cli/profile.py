"""``bench --profile``: each kernel's time beside what the machine could do, and what limits it. Nothing is measured here.

An unknown figure is ``None`` in the data and ``-`` in the table: the work of a host operator, the peak of other numbers
than f32, the ceilings of a device that does not measure them. Winograd's algorithms do fewer operations than are counted,
which are those of the convolution: their share of the peak is unknown too.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from gpucomp.artifact.plan import FEWER_OPERATIONS
from gpucomp.cli.show import counted
from gpucomp.errors import several
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.ceilings import Ceilings, Span
from gpucomp.runtime.kernel_info import KernelInfo

DISTURBED = 0.1  # share by which two measurements of the ceilings may differ
ABOVE = 0.05  # share by which a kernel may be above them; copies of some sizes have measurement errors of this size
HALF = 0.5  # a share that says what limits a kernel: two others cannot be as large, and nothing unknown is much larger
LEGEND = (
    "% of peak: of the machine's f32 multiply-adds; % of copy: of the bandwidth of a copy of as many bytes",
    "% idle: share of all threads' time without work of this kernel, so at least 50% if one of two threads runs it",
    "limit: compute, bandwidth or waiting, the largest of these three shares; - if none is at least 50%",
)
Run = tuple[list[float], list[Span]]  # seconds of each launch, and the spans in which threads were busy


@dataclass(frozen=True)
class Row:
    """One launch. Shares are fractions of 1: ``share`` of the run's time, ``of_peak`` of peak arithmetic, ``of_copy`` of the
    bandwidth of a copy of as many bytes, ``idle`` of the threads' time in which they had no work of this launch.
    ``arithmetic`` is the type of the numbers that ``operations`` counts.

    ``limit`` names the largest of ``of_peak``, ``of_copy`` and ``idle`` if it is at least ``HALF``.
    """

    number: int
    name: str
    kernel: str
    family: str
    ops: tuple[str, ...]
    ms: float
    share: float
    arithmetic: str | None
    operations: int | None
    bytes: int | None
    gflops: float | None
    of_peak: float | None
    gbs: float | None
    of_copy: float | None
    idle: float | None
    limit: str | None
    floor_ms: float | None
    samples_ms: tuple[float, ...]


@dataclass(frozen=True)
class Profile:
    runs: Sequence[Run]
    ceilings: Ceilings | None
    rows: Sequence[Row]


@dataclass(frozen=True)
class Busy:
    """One thread of the program: its share of the kernels' time that it worked, and in how many of the runs it did."""

    thread: int
    share: float
    runs: int


def threads(runs: Sequence[Run], ceilings: Ceilings | None) -> list[Busy]:
    """What each thread did; nothing for a device whose threads are not known."""
    if ceilings is None or not any(spans for _, spans in runs):
        return []
    whole = sum(sum(seconds) for seconds, _ in runs) or 1.0
    return [
        Busy(
            thread,
            sum(span.end - span.start for _, spans in runs for span in spans if span.thread == thread) / whole,
            sum(any(span.thread == thread for span in spans) for _, spans in runs),
        )
        for thread in range(ceilings.threads)
    ]


def threads_said(runs: Sequence[Run], ceilings: Ceilings | None) -> list[str]:
    """A line about the threads, and a diagnosis if one of them took no part in most runs."""
    found = threads(runs, ceilings)
    if not found:
        return []
    lines = ["Threads: " + ", ".join(f"{one.thread} busy {100 * min(one.share, 1.0):.0f} %" for one in found)]
    if late := [one for one in found if 2 * one.runs < len(runs)]:
        counts = ", ".join(f"thread {one.thread} took part in {one.runs} of {len(runs)} runs" for one in late)
        lines.append(
            f"Diagnosis: {counts}: a run is so short that it ends before another thread has started, or other programs hold the "
            "cores; 'idle' counts the time of all threads"
        )
    return lines


def rows(infos: Sequence[KernelInfo], runs: Sequence[Run], ceilings: Ceilings | None) -> list[Row]:
    """One row for each launch, with the medians of ``runs``."""
    times = [statistics.median(run[0][launch] for run in runs) for launch in range(len(infos))]
    whole = sum(times) or 1.0
    return [
        _row(number, info, seconds, seconds / whole, runs, ceilings)
        for number, (info, seconds) in enumerate(zip(infos, times, strict=True))
    ]


def _row(
    launch: int, info: KernelInfo, seconds: float, share: float, runs: Sequence[Run], ceilings: Ceilings | None
) -> Row:
    timed = seconds > 0
    operations = info.operations if info.arithmetic.startswith(("f", "bf")) else None
    flops = operations / seconds if timed and operations else None
    moved = info.traffic / seconds if timed and info.traffic else None
    of_peak = of_copy = idle = floor = None
    if ceilings is not None and info.traffic is not None:
        copied = info.traffic / ceilings.bandwidth(info.held or info.traffic)
        counts = operations and info.arithmetic == "f32" and info.family not in FEWER_OPERATIONS
        computed = operations / ceilings.flops if operations and counts else 0.0
        floor = max(copied, computed) if computed or not operations else None
        of_copy = copied / seconds if timed else None
        of_peak = computed / seconds if timed and computed else None
        idle = statistics.median(_idle(launch, run, ceilings.threads) for run in runs)
    found = {"compute": of_peak, "bandwidth": of_copy, "waiting": idle}
    known = {name: value for name, value in found.items() if value is not None and round(value, 3) >= HALF}
    return Row(
        launch + 1,
        info.name,
        info.label or info.entry or info.name,
        info.family,
        info.ops,
        1e3 * seconds,
        share,
        info.arithmetic if operations else None,
        operations,
        info.traffic,
        flops and flops / 1e9,
        of_peak,
        moved and moved / 1e9,
        of_copy,
        idle,
        max(known, key=lambda name: known[name]) if known else None,
        None if floor is None else 1e3 * floor,
        tuple(1e3 * run[0][launch] for run in runs),
    )


def _idle(launch: int, run: Run, threads: int) -> float:
    seconds = run[0][launch]
    busy = sum(min(span.end - span.start, seconds) for span in run[1] if span.launch == launch)
    return max(0.0, 1 - busy / (threads * seconds)) if seconds > 0 else 0.0


def table(found: Sequence[Row]) -> Table:
    """The launches in the order they run, as a table."""
    result = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("#", "kernel", "operators", "family"):
        result.add_column(name, justify="right" if name == "#" else "left", no_wrap=True)
    for name in ("ms", "% of run", "GFLOP/s", "% of peak", "GB/s", "% of copy", "% idle"):
        result.add_column(name, justify="right", no_wrap=True)
    result.add_column("limit", no_wrap=True)
    for row in found:
        result.add_row(
            str(row.number),
            row.kernel,
            counted(row.ops) or "-",
            row.family,
            significant(row.ms, 4),
            _hundredths(row.share),
            number(row.gflops),
            _hundredths(row.of_peak),
            number(row.gbs),
            _hundredths(row.of_copy),
            _hundredths(row.idle),
            row.limit or "-",
        )
    return result


def significant(value: float, digits: int = 3) -> str:
    """``value`` as a decimal with at least so many digits that are not leading zeros: 0.000123, 41.5, 20572."""
    places = digits - 1 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:.{max(places, 0)}f}"


def _hundredths(share: float | None) -> str:
    """A share for a column whose name says that it is in per cent."""
    return "-" if share is None else f"{100 * share:.1f}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def by_family(found: Sequence[Row]) -> Table:
    """The time of each family, the longest first."""
    result = Table(box=None, pad_edge=False, header_style="bold")
    result.add_column("family", no_wrap=True)
    for name in ("launches", "ms", "% of run", "floor ms", "GFLOP/s"):
        result.add_column(name, justify="right", no_wrap=True)
    families: dict[str, list[Row]] = {}
    for row in found:
        families.setdefault(row.family, []).append(row)
    for name, members in sorted(families.items(), key=lambda item: -sum(r.ms for r in item[1])):
        ms = sum(r.ms for r in members)
        floors = [r.floor_ms for r in members if r.floor_ms is not None]
        work = sum(r.operations or 0 for r in members)
        result.add_row(
            name,
            str(len(members)),
            significant(ms),
            _hundredths(sum(r.share for r in members)),
            significant(sum(floors)) if len(floors) == len(members) else "-",
            f"{work / ms / 1e6:.1f}" if work and ms else "-",
        )
    return result


def summary(found: Sequence[Row], ceilings: Ceilings | None) -> list[str]:
    """The run as a whole, and the measured ceilings. The peak is for f32, so other work has no share of it."""
    ms = sum(r.ms for r in found)
    work = sum(r.operations or 0 for r in found)
    lines = [
        f"Kernels: {len(found)} {'launch' if len(found) == 1 else 'launches'}, {ms:.4g} ms"
        + (f", {work / 1e9:.4g} GFLOP" if work or all(r.bytes is not None for r in found) else "")
    ]
    if ms and work:
        lines[0] += f", {work / ms / 1e6:.4g} GFLOP/s"
    if ceilings is None:
        return [*lines, "Ceilings: not measured on this device, so peaks and limits are unknown"]
    others = [r for r in found if r.operations and (r.arithmetic != "f32" or r.family in FEWER_OPERATIONS)]
    counted = [r for r in found if r not in others]
    counted_ms, counted_work = sum(r.ms for r in counted), sum(r.operations or 0 for r in counted)
    if counted_ms and counted_work:
        share = f"{100 * counted_work / counted_ms / 1e-3 / ceilings.flops:.1f}% of peak"
        lines[0] += f" ({share}" + (f" without {_words(others)})" if others else ")")
    floors = [r.floor_ms for r in counted if r.floor_ms is not None]
    what = "every kernel" + (f" but {_words(others)}" if others else "")
    lines[0] += (
        f"; floor {sum(floors):.4g} ms: {what} at peak or at the bandwidth of a copy"
        if floors or all(r.bytes is not None for r in found)
        else "; no floor: what kernels for any size do is not counted at the sizes of a run"
    )
    copies = ", ".join(f"{size / 2**20:g} MiB {rate / 1e9:.1f} GB/s" for size, rate in ceilings.copies)
    lines.append(
        f"Ceilings: {several(ceilings.threads, 'thread')}, {ceilings.flops / 1e9:.1f} GFLOP/s of f32 multiply-adds, "
        f"a launch {1e6 * ceilings.launch_s:.2f} us; copies (bytes read and written) {copies}"
    )
    return [*lines, *_disturbed(found, ceilings)]


def _words(others: Sequence[Row]) -> str:
    """``12 launches of Winograd's algorithm and 1 launch of other numbers than f32``"""
    fewer = sum(row.family in FEWER_OPERATIONS for row in others)
    parts = [
        f"{count} {'launch' if count == 1 else 'launches'} of {what}"
        for count, what in ((fewer, "Winograd's algorithm"), (len(others) - fewer, "other numbers than f32"))
        if count
    ]
    return " and ".join(parts)


def _disturbed(found: Sequence[Row], ceilings: Ceilings) -> list[str]:
    """A diagnosis if the ceilings cannot be trusted: two measurements of them differ, or a kernel is above them."""
    above = [r for r in found if max(r.of_peak or 0.0, r.of_copy or 0.0) > 1 + ABOVE]
    reasons = []
    if ceilings.spread > DISTURBED:
        reasons.append(f"measured before and after the runs they differ by {100 * ceilings.spread:.0f} %")
    if above:
        kernels = "1 kernel is" if len(above) == 1 else f"{len(above)} kernels are"
        reasons.append(f"{kernels} above them")
    if not reasons:
        return []
    told = (
        f"Diagnosis: the ceilings were disturbed, {' and '.join(reasons)}: other programs share the machine, or clocks "
        "vary; shares of them, floors and limits are not reliable in this run"
    )
    return [told]


def as_json(found: Profile) -> dict[str, Any]:
    """All figures; each name has its unit."""
    return {
        "ceilings": None if found.ceilings is None else asdict(found.ceilings),
        "threads": [asdict(one) for one in threads(found.runs, found.ceilings)],
        "kernels": [asdict(row) for row in found.rows],
    }


def trace(found: Sequence[Row], runs: Sequence[Run], model: str, ceilings: Ceilings | None = None) -> dict[str, Any]:
    """The run of median length as a Chrome trace, which Perfetto opens. A thread that did nothing in it is named so."""
    _, spans = sorted(runs, key=lambda run: sum(run[0]))[len(runs) // 2]
    busy = {span.thread for span in spans}
    every = sorted(busy | set(range(ceilings.threads if ceilings is not None and busy else 0)))
    titles = {t: f"thread {t}" if t in busy else f"thread {t}: no work in this run" for t in every}
    names = [{"ph": "M", "pid": 0, "tid": t, "name": "thread_name", "args": {"name": titles[t]}} for t in every]
    events = [
        {
            "ph": "X",
            "pid": 0,
            "tid": span.thread,
            "ts": 1e6 * span.start,
            "dur": 1e6 * (span.end - span.start),
            "name": found[span.launch].kernel,
            "cat": found[span.launch].family,
            "args": {
                name: value
                for name, value in asdict(found[span.launch]).items()
                if name in ("number", "name", "ops", "operations", "bytes", "gflops", "gbs", "limit")
            },
        }
        for span in spans
    ]
    process = {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": model}}
    return {"displayTimeUnit": "ms", "traceEvents": [process, *names, *events]}
