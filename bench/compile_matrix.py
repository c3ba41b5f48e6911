"""Compiles every kernel of every benchmark model with NVRTC for every CUDA architecture, and with clang for instruction sets
of HIP that --arch names; no GPU and no driver are needed.

    python -m bench.compile_matrix [MODEL ...] [--arch sm_80 | gfx942 ...] [--precision fp16] [--sass] [--jobs 2]
                                   [--json out.json]

A row is one model on one architecture: distinct kernels at their default schedules, seconds of NVRTC, the largest number of
registers, bytes of spills, stack and shared memory of any kernel, and the distance of contractions from the register formula
of their space. The exit status is 1 if a kernel is refused, spills, uses a stack or exceeds that formula. With --sass it is
also 1 if a contraction that matrix cores could compute has no instruction for them (except a product of few rows, which is
bound by its weights), if one accesses local memory, or if less than 90 % of the global loads in their machine code move 16
bytes. For HIP, spills are in registers, and loads may be narrower. A repeated text is compiled once for each architecture. The
journal keeps all measurements, so a second run continues.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from bench.models import MODELS, build
from bench.nvrtc import ENTRY, Journal, Measured, collect, key, measure, open_journal, write_report
from bench.options import add_shared, parser_of
from gpucomp.device.target import Target
from gpucomp.frontend import onnx as frontend
from gpucomp.ir.graph import Graph
from gpucomp.ir.precision import PRECISIONS
from gpucomp.kernel import Contraction, KernelStep
from gpucomp.kernel.passes.pack_weights import pack
from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.lowering import kernels_of, rewritten
from gpucomp.schedule.analytic import math_of
from gpucomp.schedule.choose import choose
from gpucomp.schedule.model import MAC_CYCLES
from gpucomp.targets import cuda, hip
from gpucomp.targets.sass import disassembler

HIP_SETS = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201")
WIDE = 0.9  # least share of the global loads of contractions that must move 16 bytes


@dataclass(frozen=True)
class Case:
    """One distinct kernel of a model on an architecture.

    bound    the engine's upper bound on registers; 0 if unknown
    matrix   whether it is a contraction of more than a few rows, of types that the device's matrix cores have
    """

    label: str
    source: KernelSource
    bound: int
    matrix: bool = False


@dataclass
class Row:
    model: str
    arch: str
    kernels: int
    seconds: float = 0.0
    registers: int = 0
    spills: int = 0
    stack: int = 0
    shared: int = 0
    margin: int | None = None  # the least distance of a contraction below its register formula; negative if above
    contractions: int = 0  # that matrix cores could compute
    by_matrix: int = 0  # those that do use matrix cores
    loads: int = 0  # global loads in the machine code of these
    wide: int = 0  # loads that move 16 bytes
    faults: list[str] = field(default_factory=list)


def target_of(arch: str) -> Target:
    """The target of a CUDA architecture, or of an AMD instruction set by HIP."""
    return hip.manifest(arch) if arch.startswith("gfx") else cuda.manifest(arch)


def cases(graph: Graph, target: Target, precision: str = "fp32") -> list[Case]:
    """The distinct kernels of ``graph`` on ``target``, with the schedules that ``compile`` would choose."""
    found: dict[str, Case] = {}
    graph = rewritten(graph, target, precision)
    for step in kernels_of(graph, target, precision):
        if not isinstance(step, KernelStep):
            continue
        kernel = step.kernel
        choice = choose(kernel, engines_of(kernel, target.features), target.limits, target.device)
        family, schedule = choice.family, choice.schedule
        problem = family.problem(kernel)
        matrix = isinstance(kernel.body, Contraction) and family.engine != "gemv"
        matrix = matrix and target.device is not None and math_of(kernel, target.device) not in MAC_CYCLES
        if choice.packing:
            kernel = pack(kernel, choice.packing).kernel
        source = render(kernel, schedule, target, ENTRY, family)
        code = source.text.partition("\n")[2]  # without the first line, a label for readers
        bound = family.taken(family.schedule(schedule), problem) if family.taken else 0
        found.setdefault(code, Case(kernel.label or step.name, source, bound, matrix))
    return list(found.values())


def row_of(model: str, arch: str, measured: Sequence[tuple[Case, Measured]], *, sass: bool = False) -> Row:
    """The sum over a model's kernels on one architecture, and what is wrong with any; ``sass`` checks machine code too."""
    row = Row(model, arch, len(measured))
    for case, m in measured:
        row.seconds += m.seconds
        row.registers, row.stack = max(row.registers, m.registers), max(row.stack, m.stack)
        row.spills, row.shared = row.spills + m.spills, max(row.shared, m.shared)
        where = f"{model} {arch} {case.label}"
        if m.error:
            row.faults.append(f"{where}: {m.error}")
            continue
        if m.spills or m.stack:
            row.faults.append(
                f"{where}: {m.spills} bytes spilt, {m.stack} bytes of stack, {dict(case.source.schedule)}"
            )
        if case.bound:
            margin = case.bound - m.registers
            row.margin = margin if row.margin is None else min(row.margin, margin)
            if margin < 0:
                row.faults.append(
                    f"{where}: {m.registers} registers, the formula says at most {case.bound}, "
                    f"{dict(case.source.schedule)}"
                )
        if case.matrix and sass:
            row.contractions, row.by_matrix = row.contractions + 1, row.by_matrix + (m.matrix > 0)
            row.loads, row.wide = row.loads + m.loads, row.wide + m.wide
            if m.matrix <= 0 or m.local:
                said = f"{m.matrix} instructions for matrix cores, {m.local} accesses of local memory"
                row.faults.append(f"{where}: {said}, {dict(case.source.schedule)}")
    if row.wide < WIDE * row.loads and arch not in HIP_SETS:  # their epilogues read element by element
        row.faults.append(f"{model} {arch}: {row.wide} of {row.loads} global loads of contractions move 16 bytes")
    return row


def sweep(
    models: Sequence[str],
    archs: Sequence[str],
    jobs: int,
    journal: Journal,
    *,
    reduced: bool,
    precision: str = "fp32",
    sass: bool = False,
) -> Iterator[Row]:
    """The rows, model by model, each as soon as it is complete."""
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        for model in models:
            graph = frontend.load(build(model, reduced=reduced))
            waiting: list[tuple[str, list[tuple[Case, str]]]] = []
            pending: dict[str, Future[Measured]] = {}
            for arch in archs:
                wanted = [(case, key(case.source, arch)) for case in cases(graph, target_of(arch), precision)]
                waiting.append((arch, wanted))
                for case, name in wanted:
                    known = journal.known.get(name)
                    if name not in pending and (known is None or (sass and known.matrix < 0 and not known.error)):
                        pending[name] = pool.submit(measure, case.source, arch)
            for arch, wanted in waiting:
                for _, name in wanted:
                    if name in pending:
                        journal.add(name, pending.pop(name).result())
                yield row_of(model, arch, [(case, journal.known[name]) for case, name in wanted], sass=sass)


def table(rows: Sequence[Row]) -> str:
    lines = [
        (
            "| model | architecture | kernels | NVRTC s | most registers | under formula | spills B | stack B "
            "| most shared B | by matrix cores | loads of 16 B |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.model} | {r.arch} | {r.kernels} | {r.seconds:.1f} | {r.registers} | {'-' if r.margin is None else r.margin} "
        f"| {r.spills} | {r.stack} | {r.shared} | {f'{r.by_matrix} of {r.contractions}' if r.contractions else '-'} "
        f"| {f'{r.wide} of {r.loads}' if r.contractions else '-'} |"
        for r in rows
    ]
    return "\n".join(lines)


def compilers_of(rows: Sequence[Row]) -> str:
    """The compilers of these rows, in words."""
    return ", ".join(
        dict.fromkeys(hip.compiler_version() if r.arch in HIP_SETS else cuda.compiler_version() for r in rows)
    )


def summary(rows: Sequence[Row]) -> str:
    kernels, seconds = sum(r.kernels for r in rows), sum(r.seconds for r in rows)
    return (
        f"`python -m bench.compile_matrix`, {compilers_of(rows)}: batch 1, published sizes, default schedules. "
        f"{kernels} kernels, {seconds:.0f} s of compilation; 'under formula' is the least difference between the registers of "
        "a contraction and the bound that its space computes."
    )


def compact(rows: Sequence[Row]) -> Mapping[str, object]:
    names = ("model", "arch", "kernels", "seconds", "registers", "spills", "stack", "shared", "margin")
    return {
        "compiler": compilers_of(rows),
        "columns": names,
        "rows": [[round(v, 2) if isinstance(v := getattr(r, n), float) else v for n in names] for r in rows],
        "faults": [fault for row in rows for fault in row.faults],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.compile_matrix", __doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="only this model (default: all)")
    parser.add_argument(
        "--arch",
        action="append",
        choices=[*cuda.ARCHITECTURES, *HIP_SETS],
        metavar="ARCH",
        help="only this architecture, such as sm_80 or gfx942; may repeat (default: all of CUDA)",
    )
    add_shared(parser, "--jobs")
    parser.add_argument("--precision", default="fp32", choices=PRECISIONS, help="types that numbers may be rounded to")
    add_shared(parser, "--reduced")
    parser.add_argument("--sass", action="store_true", help="also check the machine code of contractions")
    add_shared(parser, "--journal")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file, as JSON")
    add_shared(parser, "--markdown")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.models if name not in MODELS]:
        parser.error(f"no model {unknown[0]!r}; known are {', '.join(MODELS)}")
    journal = open_journal(options.journal, "compile_matrix")
    models, archs = options.models or list(MODELS), options.arch or list(cuda.ARCHITECTURES)
    if options.sass and disassembler() is None and not all(arch in HIP_SETS for arch in archs):
        parser.error("--sass needs nvdisasm: pip install nvidia-cuda-nvdisasm")
    how = {"reduced": options.reduced, "precision": options.precision, "sass": options.sass}
    rows = collect(sweep(models, archs, options.jobs, journal, **how), table)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(compact(rows), separators=(",", ":")) + "\n", encoding="utf-8")
    if options.markdown:
        title = "Every kernel of the benchmark models on every CUDA architecture"
        write_report(options.markdown, title, summary(rows), table(rows), rows)
    return 1 if any(row.faults for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
