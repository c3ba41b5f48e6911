"""Reads the machine code of fixed kernels for GPUs that need not be here, and models how busy their math pipes are.

    python -m bench.machine_code [KERNEL ...] [--arch sm_80 ...] [--markdown out.md] [--json out.json]

A row is one kernel on one architecture, compiled by NVRTC and read by nvdisasm, or compiled and listed by clang. Its main loop is
the innermost natural loop with the most multiply-adds. "per math": instructions of the loop for each of its multiply-adds;
"busy": share of the cycles that the math pipe works in a model of one scheduler with all work-groups that a unit holds, and with
one; for AMD a bound. "first load": instructions, and cycles that their stall counts sum up to, on the shortest way from the entry
to the first load from global memory.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.machine_code import report
from bench.machine_code.kernels import AMD, ARCHITECTURES, KERNELS, NVIDIA, build
from bench.machine_code.row import read
from bench.options import add_shared, parser_of
from gpucomp.targets import amdgcn
from gpucomp.targets.sass import disassembler


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("bench.machine_code", __doc__)
    parser.add_argument(
        "kernels", nargs="*", metavar="KERNEL", help="only kernels whose name contains this (default: all)"
    )
    parser.add_argument(
        "--arch",
        action="append",
        choices=ARCHITECTURES,
        metavar="ARCH",
        help=f"one of {', '.join(ARCHITECTURES)}; may repeat",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all counts to this file, as JSON")
    add_shared(parser, "--markdown")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    names = [name for name in KERNELS if not options.kernels or any(part in name for part in options.kernels)]
    if not names:
        parser.error(f"no kernel has {options.kernels[0]!r} in its name; known are {', '.join(KERNELS)}")
    archs = options.arch or list(ARCHITECTURES)
    if set(archs) & set(NVIDIA) and disassembler() is None:
        parser.error("reading NVIDIA's machine code needs nvdisasm: pip install nvidia-cuda-nvdisasm")
    if set(archs) & set(AMD) and amdgcn.compiler() is None:
        parser.error("compiling for AMD GPUs needs clang: apt-get install clang-19")
    rows = []
    for name in names:
        for arch in archs:
            rows.append(read(build(name, arch)))
            print(report.line(rows[-1]), file=sys.stderr, flush=True)
    print(report.table(rows))
    if options.json:
        options.json.write_text(json.dumps(report.compact(rows), separators=(",", ":")) + "\n", encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(report.page(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
