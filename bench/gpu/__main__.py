"""One command for a machine with a GPU and no network: does gpucomp compute correctly there, and how fast?

    python -m bench.gpu [STAGE ...] [--out DIR] [--limit-s 540] [--target cuda|hip|opencl] [--dry-run]

    first    a plan for the first 45 minutes on a device: a part of each stage below, with a summary after each
    contact  prerequisites of everything else: the compiler, tensor maps, 48 KiB of shared memory, overlapping launches
    probe    the device: clocks when idle and under load, and the performance limits that everything is compared with
    correct  every engine on awkward shapes against numpy's float64, with poison, guard bands and repeated runs
    kernels  each distinct layer of five models at four precisions: the best of many schedules beside torch
    models   whole models at each precision beside torch, torch.compile and onnxruntime, if installed
    tune     more schedules for each layer; every measurement is a line of DIR/records.jsonl
    published  with --target hip: ResNet-50's layers in MIOpen's find-db (--find-db FILE) beside predictions
    report   the results in DIR as markdown: ratios, losses first, predictions beside measurements

Results are JSON lines in DIR/results.jsonl, written one by one; work that is done with the same sources is not repeated.
Only a child process uses the device. It is killed when it hangs and restarted when it dies.
Exit status 0: all correct; 1: something is wrong; 3: the time limit was reached, so run it again to continue.
--dry-run simulates the device on the CPU, with small shapes and an invented clock.
Required: numpy, onnx, ml_dtypes, jinja2, llvmlite, and cupy with cuda-bindings and NVRTC (--target hip: clang, lld and HIP's
runtime library; --target opencl: pyopencl; --dry-run: g++, and clang for hip). torch, onnxruntime and pynvml are used if
installed, and reported as missing otherwise.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.gpu.context import Context, Options
from bench.gpu.devices import KINDS
from bench.options import parser_of

NEEDED = ("numpy", "onnx", "ml_dtypes", "jinja2", "llvmlite")
STAGES = ("contact", "probe", "correct", "kernels", "models", "tune", "published")
DEFAULT = ("probe", "correct", "kernels", "models")


def missing(options: Options) -> list[str]:
    """The required packages that are not installed."""
    device = () if options.dry_run else KINDS[options.target].packages
    return [name for name in (*NEEDED, *device) if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent package is not installed either
        return False


def parse(arguments: Sequence[str] | None) -> tuple[list[str], bool, Options]:
    """The stages, whether everything runs in this process, and the options."""
    parser = parser_of("bench.gpu", __doc__)
    add = parser.add_argument
    known = ("first", *STAGES, "report")
    add("stages", nargs="*", metavar="STAGE", help=f"one of {', '.join(known)} (default: {' '.join(DEFAULT)})")
    add("--out", type=Path, default=Path("gpu-results"), metavar="DIR", help="folder of the results")
    add("--target", choices=tuple(KINDS), default="cuda", help="the kind of device")
    add("--limit-s", type=float, default=540.0, metavar="S", help="start no more work after this time, in seconds")
    add("--models", default="", metavar="A,B", help="only these models (default: those of the stage)")
    add(
        "--precisions",
        default="",
        metavar="A,B",
        help="only these precisions (default: fp32,tf32,3xtf32,fp16 as far as the device has them)",
    )
    add("--only", action="append", default=[], metavar="PATTERN", help="do only work whose name matches; may repeat")
    add("--top", type=int, default=16, metavar="N", help="number of schedules to measure for each kernel")
    add(
        "--kernel-s",
        type=float,
        default=8.0,
        metavar="S",
        help="start no further schedule of a kernel after this time, in seconds",
    )
    add("--torch-compile", action="store_true", help="stage kernels: also measure torch.compile, which compiles slowly")
    add("--reduced", action="store_true", help="use the small versions of the models")
    add("--again", action="store_true", help="also repeat what failed with the same sources")
    add("--inline", action="store_true", help="use the device from this process, so that a GPU fault ends everything")
    add(
        "--compilers",
        type=int,
        default=max(1, len(os.sched_getaffinity(0)) - 2),
        metavar="N",
        help="number of processes that compile",
    )
    add("--find-db", type=Path, metavar="FILE", help="stage published: MIOpen's find-db as comma-separated values")
    add("--dry-run", action="store_true", help="simulate the device with the CUDA-on-CPU harness")
    given = parser.parse_args(arguments)
    if given.dry_run and not KINDS[given.target].rehearsal:
        parser.error(f"--dry-run has no kernels of {given.target}")
    if unknown := [stage for stage in given.stages if stage not in known]:
        parser.error(f"no stage {unknown[0]!r}; there are {', '.join(known)}")
    options = Options(
        given.out,
        given.target,
        given.limit_s,
        given.dry_run,
        given.reduced,
        given.again,
        tuple(name for name in given.models.split(",") if name),
        tuple(name for name in given.precisions.split(",") if name),
        tuple(given.only),
        given.top,
        given.kernel_s,
        given.torch_compile,
        given.compilers,
        given.find_db,
    )
    if not missing(options):
        from bench.models import MODELS
        from gpucomp.ir.precision import PRECISIONS

        for what, names, there in (("model", options.models, MODELS), ("precision", options.precisions, PRECISIONS)):
            if unknown := [name for name in names if name not in there]:
                parser.error(f"no {what} {unknown[0]!r}; known are {', '.join(there)}")
    return given.stages or list(DEFAULT), given.inline, options


def main(arguments: Sequence[str] | None = None) -> int:
    stages, inline, options = parse(arguments)
    begin = time.monotonic()
    if stages == ["report"]:
        from bench.gpu.report import report

        print(report(options.out))
        return 0
    if absent := missing(options):
        print(f"not installed: {', '.join(absent)}", file=sys.stderr)
        return 2
    from bench.gpu import work
    from bench.gpu.call import Call
    from bench.gpu.devices import Described, described
    from bench.gpu.results import Results
    from gpucomp.errors import GpucompError

    options.out.mkdir(parents=True, exist_ok=True)
    context, log = Context(options), options.out / "work.log"
    device: Any = None
    if inline:
        try:
            device = context.open_device()
        except GpucompError as error:
            print(error, file=sys.stderr)
            return error.exit_code
        found = described(device)
    else:
        found = work.in_a_child(context, described, log)
        if "error" in found:
            print(found["error"], file=sys.stderr)
            return int(found["exit_code"])
    context.described = Described(**found)
    if options.dry_run:
        from bench.gpu.report import REHEARSAL

        print(REHEARSAL, flush=True)
    results = Results(options.out, f"{found['gpu']} {found['arch']}")
    call = Call(context, results, begin + options.limit_s, log, device)
    for name in (stage for stage in stages if stage != "report"):
        stage = importlib.import_module(f"bench.gpu.{name}")
        if name == "first":
            left = stage.run(call)
        else:
            left = call.do(stage, context, stage.jobs(context), call.deadline)
            if (summary := getattr(stage, "summary", None)) is not None:
                print(summary(results.entries(), found["arch"]), flush=True)
            if (save := getattr(stage, "save", None)) is not None:
                save(results.entries(), found["arch"], options.out)
        if left:
            print(
                f"the time limit of {options.limit_s:g} s is over in stage {name}, with {left} jobs left: run this again",
                file=sys.stderr,
            )
            return 3
    print(f"{call.wrong} wrong; results in {results.path}")
    return 1 if call.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
