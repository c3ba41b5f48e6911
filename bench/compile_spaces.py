"""Compiles a random sample of every engine's space with NVRTC for every CUDA architecture; no GPU and no driver are needed.

    python -m bench.compile_spaces [--samples 30] [--arch sm_80 ...] [--engine contraction/mma ...] [--seed 0] [--markdown out.md]

A candidate is a random kernel with a random legal schedule of the engine's space. The kernels are those of the benchmark
models at all precisions of the architecture, and kernels of families that no model has. A row is one engine on one
architecture: how many kernels the engine accepts, how many candidates were compiled, the largest number of registers, and how
many candidates spill. An engine whose name ends in " tail" gets only contractions of the models, with row statistics added.
The exit status is 1 if the renderer or the compiler refuses a candidate, or if one spills although the engine's formula
predicts at most 240 registers.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from bench.kernel_sweep.cases import TAILS, matmul, scan, scatter, stores_rows
from bench.models import build
from bench.nvrtc import ENTRY, Journal, Measured, collect, key, measure, open_journal, write_report
from bench.options import add_shared, parser_of
from gpucomp.device.limits import Limits
from gpucomp.device.target import Target
from gpucomp.errors import GpucompError
from gpucomp.frontend import onnx as frontend
from gpucomp.ir.types import F16, F32
from gpucomp.kernel import Contraction, Kernel, KernelStep
from gpucomp.kernel.forms.row_statistics import tail_of
from gpucomp.kernel.passes import fuse_separable as separable
from gpucomp.kernel.passes import precision
from gpucomp.kernel.passes.pack_weights import pack
from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.engines import ENGINES, FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.lowering import KERNEL_PASSES, kernels_of
from gpucomp.rewrite.pipeline import run_pipeline
from gpucomp.schedule.space import Family
from gpucomp.targets import cuda

MODELS = ("resnet18", "mobilenet_v2", "inception_v3", "unet_small", "bert_base", "vit_tiny")
PRECISIONS = ("fp32", "tf32", "3xtf32", "fp16", "bf16")
PRESSURE = 240  # registers by the formula; above this a spill is expected
# kernels of families that no benchmark model has
OTHERS = tuple(
    made
    for dtype in (F32, F16)
    for made in (
        scan("sum", 64, 8192, dtype=dtype),
        scan("sum", 4096, 128, rows_inside=True, exclusive=True, dtype=dtype),
        scan("max", 1, 100_003, reverse=True, dtype=dtype),
        scan("sum", 2, 1 << 20, dtype=dtype),
        scatter((512, 768), (64, 1), "add", dtype=dtype),
        scatter((1000, 37), (300, 37), axis=0, dtype=dtype),
        scatter((50_257,), (999, 1), "max", dtype=dtype),
    )
)
# rows of an odd length, and rows that are too long for a work-item to keep, for row statistics
ROWS = tuple(matmul(77, n, 64, dtype=dtype, b_transposed=True) for n in (771, 4099, 6144) for dtype in (F32, F16))
TAIL = " tail"  # suffix of an engine's name: its kernels have row statistics
NAMES = (*FAMILIES, *(family.title + TAIL for family in ENGINES[Contraction]))
DRAWS = 3000  # random schedules that are tried before a problem counts as having no other legal ones


@dataclass(frozen=True)
class Candidate:
    family: Family
    label: str
    source: KernelSource | None
    pressure: int
    error: str = ""


@dataclass
class Row:
    engine: str
    arch: str
    kernels: int
    compiled: int = 0
    registers: int = 0
    spilling: int = 0
    expected: int = 0
    faults: list[str] = field(default_factory=list)


def kernels(models: Sequence[str], target: Target, reduced: bool = False) -> list[Kernel]:
    """The distinct kernels of ``models``, or of their small versions, at every precision that ``target`` has.

    A depthwise and a pointwise convolution are included as two kernels and as the fused one.
    """
    found: dict[str, Kernel] = {}
    for model in models:
        graph = run_pipeline(frontend.load(build(model, reduced=reduced)), target=target)
        for mode in PRECISIONS:
            try:
                precision.require(mode, target.features, target.name)
            except GpucompError:
                continue
            narrow = kernels_of(graph, target, mode, passes=KERNEL_PASSES[:2])  # types are settled, nothing is fused
            fused = [pair.both for pair in separable.pairs(narrow, graph.outputs)]
            for step in [*narrow, *fused]:
                if isinstance(step, KernelStep):
                    found.setdefault(step.kernel.digest, step.kernel)
    return list(found.values())


def followed(found: Sequence[Kernel]) -> list[Kernel]:
    """Each contraction that stores whole rows, with row statistics of every kind."""
    return [with_tail(kernel) for kernel in found if stores_rows(kernel) for with_tail in TAILS]


def name_of(family: Family, kernel: Kernel) -> str:
    """The row's name of the engine for ``kernel``: one of ``NAMES``."""
    return family.title + (TAIL if tail_of(kernel) else "")


def drawn(family: Family, kernel: Kernel, limits: Limits, rng: random.Random) -> dict[str, int]:
    """A random legal schedule; the default if hardly any other is legal."""
    problem = family.problem(kernel)
    for _ in range(DRAWS):
        schedule = {p.name: rng.choice(p.choices) for p in family.params}
        if not family.reasons(schedule, problem, limits):
            return schedule
    return dict(family.default(problem, limits).numbers)


def candidates(engine: str, found: Sequence[Kernel], target: Target, samples: int, seed: int) -> Iterator[Candidate]:
    """At most ``samples`` different rendered pairs of a kernel and a schedule. ``engine`` is one of ``NAMES``."""
    family, rng = FAMILIES[engine.removesuffix(TAIL)], random.Random(f"{seed} {engine} {target.name}")
    seen: set[tuple[str, tuple[tuple[str, int], ...]]] = set()
    for _ in range(4 * samples):
        if len(seen) == samples:
            return
        kernel = rng.choice(found)
        schedule = drawn(family, kernel, target.limits, rng)
        name = kernel.digest, tuple(schedule.items())
        if name in seen:
            continue
        seen.add(name)
        problem, s = family.problem(kernel), family.schedule(schedule)
        pressure = family.registers(s, problem) if family.registers else 0
        label = f"{kernel.label or kernel.family} {schedule}"
        packing = family.packing(kernel, s, problem)
        try:
            source = render(pack(kernel, packing).kernel if packing else kernel, schedule, target, ENTRY, family)
        except GpucompError as error:
            yield Candidate(family, label, None, pressure, str(error))
            continue
        yield Candidate(family, label, source, pressure)


def row_of(engine: str, arch: str, accepted: int, measured: Sequence[tuple[Candidate, Measured | None]]) -> Row:
    row = Row(engine, arch, accepted)
    for candidate, m in measured:
        where = f"{engine} {arch} {candidate.label}"
        if m is None or m.error:
            row.faults.append(f"{where}: {candidate.error if m is None else m.error}")
            continue
        row.compiled += 1
        row.registers = max(row.registers, m.registers)
        if not m.spills:
            continue
        row.spilling += 1
        row.expected += candidate.pressure > PRESSURE
        if candidate.pressure <= PRESSURE:
            row.faults.append(f"{where}: {m.spills} bytes spilt, its formula says {candidate.pressure} registers")
    return row


def sweep(
    engines: Sequence[str], archs: Sequence[str], samples: int, seed: int, jobs: int, journal: Journal
) -> Iterator[Row]:
    """The rows, architecture by architecture."""
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        for arch in archs:
            target = cuda.manifest(arch)
            found = [*kernels(MODELS, target), *OTHERS]
            accepted: dict[str, list[Kernel]] = {}
            for kernel in [*found, *followed([*found, *ROWS])]:
                for family in engines_of(kernel, target.features):
                    accepted.setdefault(name_of(family, kernel), []).append(kernel)
            for engine in engines:
                if engine not in accepted:
                    continue
                wanted = list(candidates(engine, accepted[engine], target, samples, seed))
                names = [key(c.source, arch) if c.source else "" for c in wanted]
                pending = {
                    name: pool.submit(measure, c.source, arch)
                    for c, name in zip(wanted, names, strict=True)
                    if c.source and name not in journal.known
                }
                for name, future in pending.items():
                    journal.add(name, future.result())
                measured = [(c, journal.known[n] if n else None) for c, n in zip(wanted, names, strict=True)]
                yield row_of(engine, arch, len(accepted[engine]), measured)


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| engine | architecture | kernels that it accepts | candidates | most registers | spill | of them foreseen | faults |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.engine} | {r.arch} | {r.kernels} | {r.compiled} | {r.registers} | {r.spilling} | {r.expected} "
        f"| {len(r.faults)} |"
        for r in rows
    ]
    return "\n".join(lines)


def summary(rows: Sequence[Row], samples: int, seed: int) -> str:
    return (
        f"`python -m bench.compile_spaces --samples {samples} --seed {seed}`, {cuda.compiler_version()}: "
        f"{sum(r.compiled for r in rows)} candidates. A spill is foreseen where the engine's formula says more than "
        f"{PRESSURE} registers."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.compile_spaces", __doc__)
    parser.add_argument(
        "--samples", type=int, default=30, metavar="N", help="number of candidates for each engine and architecture"
    )
    parser.add_argument(
        "--arch",
        action="append",
        choices=list(cuda.ARCHITECTURES),
        metavar="ARCH",
        help="only this architecture, such as sm_80; may repeat (default: all)",
    )
    parser.add_argument(
        "--engine",
        action="append",
        choices=NAMES,
        metavar="ENGINE",
        help="only this engine, such as contraction/mma; may repeat (default: all)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random numbers")
    add_shared(parser, "--jobs", "--journal", "--markdown")
    options = parser.parse_args(arguments)
    journal = open_journal(options.journal, "compile_spaces")
    engines, archs = options.engine or list(NAMES), options.arch or list(cuda.ARCHITECTURES)
    rows = collect(sweep(engines, archs, options.samples, options.seed, options.jobs, journal), table)
    if options.markdown:
        title = "Random schedules of every engine on every CUDA architecture"
        write_report(options.markdown, title, summary(rows, options.samples, options.seed), table(rows), rows)
    return 1 if any(row.faults for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
