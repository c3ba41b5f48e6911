"""Runs every model on every target beside onnxruntime: answers are compared, latencies are measured in turn, A B A B.

    python -m bench.suite --target cpu --target opencl --json bench/results/suite.json [MODEL ...]

A row has the number of kernels, the seconds to compile, the arena and its lower bound, the relative L2 error against
onnxruntime, and the median latency of both with their ratio (above 1: gpucomp is faster). The CPU time of the process relative
to wall time shows whether the machine was busy with something else.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx
import onnxruntime

import gpucomp
from bench.models import MODELS, build, inputs
from bench.options import add_shared, parser_of
from gpucomp import config
from gpucomp.cli.compare import distances, onnxruntime_outputs


@dataclass
class Row:
    model: str
    target: str
    kernels: int
    compile_s: float
    arena_mb: float
    arena_over_bound: float
    error: float
    latency_ms: float
    onnxruntime_ms: float
    ratio: float
    samples_ms: list[float]
    onnxruntime_samples_ms: list[float]
    busy: float  # CPU seconds per wall second during gpucomp's samples


def session(model: onnx.ModelProto, threads: int) -> onnxruntime.InferenceSession:
    """The session that is timed, with the options that users have. ``onnxruntime_outputs`` is the reference."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # otherwise its threads spin for milliseconds after a run, on the cores that gpucomp's turn is measured on
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def interleaved(runs: Sequence[Callable[[], object]], rounds: int, budget_s: float) -> list[list[float]]:
    """Milliseconds of each run, taken in turn: at least three rounds, then more until ``rounds`` or the budget is reached."""
    samples: list[list[float]] = [[] for _ in runs]
    start = time.perf_counter()
    for number in range(rounds):
        if number >= 3 and time.perf_counter() - start > budget_s:
            break
        for k, run in enumerate(runs):
            begin = time.perf_counter()
            run()
            samples[k].append(1e3 * (time.perf_counter() - begin))
    return samples


def measure(name: str, target: str, *, reduced: bool, rounds: int, budget_s: float, threads: int) -> Row:
    model = build(name, reduced=reduced)
    feeds = inputs(model)
    expected = onnxruntime_outputs(model.SerializeToString(), feeds)
    reference = session(model, threads)
    begin = time.perf_counter()
    with config.using(cache=None):  # compile_s is that of a compilation
        executable = gpucomp.compile(model, target=target)
    compile_s = time.perf_counter() - begin
    actual = executable.run(feeds)
    error = max(far.l2 for far in distances(actual, expected).values())
    cpu, wall = time.process_time(), time.perf_counter()
    ours, theirs = interleaved([lambda: executable.run(feeds), lambda: reference.run(None, feeds)], rounds, budget_s)
    busy = (time.process_time() - cpu) / (time.perf_counter() - wall)
    plan = executable.plan
    return Row(
        name,
        target,
        len(plan.launches),
        compile_s,
        plan.arena_bytes / 1e6,
        plan.arena_bytes / plan.live_bytes if plan.live_bytes else 1.0,
        error,
        statistics.median(ours),
        statistics.median(theirs),
        statistics.median(theirs) / statistics.median(ours),
        ours,
        theirs,
        busy,
    )


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| model | target | kernels | compile s | arena MB | over bound | rel. L2 error | gpucomp ms | onnxruntime ms | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.model} | {r.target} | {r.kernels} | {r.compile_s:.1f} | {r.arena_mb:.2f} | {r.arena_over_bound:.3f} "
        f"| {r.error:.1e} | {r.latency_ms:.2f} | {r.onnxruntime_ms:.2f} | {r.ratio:.2f} |"
        for r in rows
    ]
    return "\n".join(lines)


def main() -> int:
    parser = parser_of("bench.suite", __doc__)
    parser.add_argument(
        "models", nargs="*", default=list(MODELS), metavar="MODEL", help="only this model (default: all)"
    )
    parser.add_argument(
        "--target",
        action="append",
        metavar="TARGET",
        help="cpu, opencl[:NAME] or cuda[:ARCH]; may repeat (default: cpu)",
    )
    add_shared(parser, "--reduced")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="largest number of turns of each engine")
    parser.add_argument(
        "--budget", type=float, default=10.0, metavar="S", help="time limit for each model and target, in seconds"
    )
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="number of threads of each engine")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file, as JSON")
    options = parser.parse_args()
    rows, failures = [], []
    for name in options.models:
        for target in options.target or ["cpu"]:
            try:
                row = measure(
                    name,
                    target,
                    reduced=options.reduced,
                    rounds=options.rounds,
                    budget_s=options.budget,
                    threads=options.threads,
                )
            except gpucomp.GpucompError as error:
                failures.append(f"{name} on {target}: {error}")
                print(failures[-1], file=sys.stderr)
                continue
            rows.append(row)
            print(table([row]).splitlines()[-1], file=sys.stderr, flush=True)
            if row.error > 1e-4:
                failures.append(f"{name} on {target}: relative L2 error {row.error:.2e} is above 1e-4")
    print(table(rows))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        machine = {"processor": platform.processor(), "machine": platform.machine(), "threads": options.threads}
        method = "batch 1, fp32, median of samples taken in turn with onnxruntime in one process"
        report = {"method": method, "machine": machine, "rows": [asdict(r) for r in rows], "failures": failures}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
