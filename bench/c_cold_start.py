"""Measures the C runtime from the file to the first result, beside reading the file and a run.

    python -m bench.c_cold_start [MODEL] [--threads N] [--times N] [--write]

Each time is of a fresh process; reading and running alternate, so that other load on the machine meets both. The file is in
the system's cache. The exit status is 1 where the first result takes more than 1.2 times what reading the file's bytes into
memory and one run take, or where the model adds more resident memory to the process than weights, arena and 2 MB.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import gpucomp
from bench import models
from bench.options import parser_of
from testing.c_library import SOURCES, build, folder

RESULTS = Path(__file__).parent / "results" / "c_cold_start.md"
MOST_RATIO, MOST_BESIDE = 1.2, 2_000_000


class Measured(NamedTuple):
    """Medians, in ms; and bytes."""

    model: str
    threads: int
    read: float
    opened: float
    made: float
    first: float
    run: float
    resident: int
    peak: int
    weights: int
    arena: int
    before: int
    tensors: int

    @property
    def ratio(self) -> float:
        return (self.opened + self.made + self.first) / (self.read + self.run)

    @property
    def beside(self) -> int:
        return self.resident - self.before - self.tensors - self.weights - self.arena

    def row(self) -> str:
        times = (self.read, self.run, self.opened, self.made, self.first)
        cells = [f"{value:.2f}" for value in (*times, self.ratio)]
        sizes = [f"{size / 1e6:.2f}" for size in (self.weights, self.arena, self.resident, self.beside, self.peak)]
        return f"| {self.model} | {self.threads} | {' | '.join(cells + sizes)} |"


def measured(name: str, path: Path, threads: int, times: int) -> Measured:
    program = build("cold_start", [Path(__file__).with_suffix(".c"), *SOURCES], "-Os")
    reads, runs = [], []
    for _ in range(times):
        for kind, found in (("read", reads), ("run", runs)):
            done = subprocess.run(
                [program, kind, path, str(threads)], capture_output=True, text=True, timeout=60, check=True
            )
            found.append([float(number) for number in done.stdout.split()])
    read = statistics.median(numbers[0] for numbers in reads)
    opened, made, first, run, *sizes = map(statistics.median, zip(*runs, strict=True))
    return Measured(name, threads, read, opened, made, first, run, *map(int, sizes))


def page(rows: Sequence[Measured], times: int) -> str:
    return "\n".join(
        [
            "# Cold start of the C runtime",
            "",
            f"`python -m bench.c_cold_start {rows[0].model} --times {times} --write`: medians of {times} fresh processes,",
            "in ms and MB; the file is in the system's cache. `read`: its bytes into memory of the process. `run`: the median of",
            "15 runs after the first. `open`, `context` and `first run` together are the time from the file to the first result;",
            "`ratio` is that over `read` and `run`. `resident` is what the process has after the first run, `peak` the most it",
            "had, and `beside` what the model added to it beside weights, arena and the caller's tensors.",
            "",
            "| model | threads | read | run | open | context | first run | ratio | weights | arena | resident | beside | peak |",
            "| --- " + "| ---: " * 12 + "|",
            *(row.row() for row in rows),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.c_cold_start", __doc__)
    parser.add_argument("model", nargs="?", default="mobilenet_v2", help="a model of bench.models")
    parser.add_argument(
        "--threads", type=int, action="append", metavar="N", help="threads; may repeat (default: 1 and 2)"
    )
    parser.add_argument("--times", type=int, default=40, metavar="N", help="processes of each kind")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args(arguments)
    path = folder() / f"{options.model}.gpuc"
    gpucomp.compile(models.build(options.model), target="cpu").save(path)
    rows = [measured(options.model, path, threads, options.times) for threads in options.threads or (1, 2)]
    text = page(rows, options.times)
    print(text)
    if options.write:
        RESULTS.write_text(text, encoding="utf-8")
    return int(any(row.ratio > MOST_RATIO or row.beside > MOST_BESIDE for row in rows))


if __name__ == "__main__":
    sys.exit(main())
