"""Runs random kernels of awkward sizes, with random legal schedules, through every engine in every dtype, against float64.

    python -m bench.kernel_sweep [--cases 200] [--minutes 60] [--cell 'sm_80 contraction/mma f16' ...] [--seed 0]
                                 [--layers [--model resnet18 ...] [--most-work N]] [--races]
                                 [--journal sweep.jsonl] [--again] [--markdown out.md] [--summary out.json]

Kernels of CUDA, and those of HIP (``hip:gfx90a``), run on the CUDA-on-CPU harness in three thread orders, which must give the
same bits; OpenCL kernels run on PoCL. A cell is a target, an engine and a dtype. In ``f16-tail`` row statistics follow a
contraction's stores; they are compared with statistics of the values that it stored. ``--layers`` runs the kernels of the
benchmark models at their exact shapes instead, with every engine's default schedule; large ones are compared at some hundred
points. ``--races`` runs only CUDA kernels, in one order, watched by ThreadSanitizer.

The journal has one line for each case that was run; later calls do not repeat these. ``--again`` repeats failed cases. A case
that ends the process is a failure, which the next call finds. ``--markdown`` writes one line for each engine; ``--summary`` adds
one line for each cell to a JSON file, under the options of the call. The exit status is 1 if a case disagrees.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.gpu.results import append, lines
from bench.kernel_sweep.cases import Case, Cell, cells, device_of, draw, problem_of, steps_of
from bench.kernel_sweep.layers import MOST_WORK, layers
from bench.kernel_sweep.play import Ready, built_by_pocl, by_harness, by_opencl, compiled, prepared
from bench.models import MODELS
from bench.options import add_shared, parser_of
from gpucomp import config
from gpucomp.errors import GpucompError
from gpucomp.targets import cuda

BATCH = 24  # kernels in one run of a compiler
Wanted = tuple[str, str, Callable[[], Case]]  # the names of a case and its cell, and a function that makes the case


class Journal:
    """How each case ended: ``{"case": name, "cell": ..., "fault": "" or what is wrong, ...}``.

    A line without a fault is the start of a case. If no other line follows for that case, it ended the process, or it was in a
    batch that did; the cases of such a batch are then run ``alone``. With ``again``, failed cases are repeated; the old result
    stays until then.
    """

    def __init__(self, path: Path, again: bool = False) -> None:
        self.path, self.ended, self.alone = path, dict[str, dict[str, Any]](), set[str]()
        self.doubtful = set[str]()
        path.parent.mkdir(parents=True, exist_ok=True)
        begun: dict[str, dict[str, Any]] = {}
        for entry in lines(path):
            (self.ended if "fault" in entry else begun)[entry["case"]] = entry
        for name in begun.keys() - self.ended.keys():
            if "batch" in begun[name]:
                self.alone.add(name)
            else:
                self.end(name, begun[name]["cell"], "it ended the process")
        if again:
            self.doubtful = {name for name, entry in self.ended.items() if entry["fault"]}

    def wants(self, name: str) -> bool:
        return name not in self.ended or name in self.doubtful

    def begin(self, name: str, cell: str, **facts: Any) -> None:
        append(self.path, {"case": name, "cell": cell, **facts})

    def end(self, name: str, cell: str, fault: str, **facts: Any) -> None:
        self.ended[name] = {"case": name, "cell": cell, "fault": fault, **facts}
        self.doubtful.discard(name)
        append(self.path, self.ended[name])
        if fault:
            print(f"FAULT {told_as(self.ended[name])}", file=sys.stderr, flush=True)


def told_as(entry: dict[str, Any]) -> str:
    """A failure of the journal in one line."""
    return f"{entry['case']}: {entry.get('kernel', '')} {entry.get('schedule', '')}: {entry['fault']}"


@dataclass
class Row:
    cell: str
    tried: int = 0
    groups: int = 0  # cases with more than one work-group
    steps: int = 0  # cases whose loop over the depth has more than one step
    left_out: int = 0  # cases whose source is too long to compile for a CPU
    faults: list[str] = field(default_factory=list)


def sweep(wanted: Iterable[Wanted], journal: Journal, deadline: float, races: bool = False) -> None:
    """Run the cases that are not in the journal, until ``deadline`` (monotonic seconds)."""
    waiting: dict[str, list[tuple[str, Ready]]] = {}  # by what runs them
    for name, cell, case in wanted:
        if time.monotonic() > deadline:
            break
        if not journal.wants(name):
            continue
        batch = [] if name in journal.alone else waiting.setdefault(device_of(cell.split()[0]), [])
        try:
            ready = prepared(case(), f"k{len(batch)}")
        except (GpucompError, LookupError, ValueError) as error:
            journal.end(name, cell, f"not rendered: {error}")
            continue
        if ready is None:
            journal.end(name, cell, "", left_out="its text is too long to compile for a CPU")
            continue
        batch.append((name, ready))
        if len(batch) == BATCH or name in journal.alone:
            play(batch, journal, races)
            batch.clear()
    for batch in waiting.values():
        play(batch, journal, races)


def play(batch: Sequence[tuple[str, Ready]], journal: Journal, races: bool) -> None:
    """Run cases of one ``device_of``. On the harness each launch has its own process, so a crash does not end this one."""
    cases = [ready for _, ready in batch]
    if not batch:
        return
    if device_of(cases[0].case.cell.target) != "opencl":
        for (name, ready), built in zip(batch, compiled(cases, races), strict=True):
            told(journal, name, by_harness(ready, built) if built else str(built), ready)
        return
    for name, ready in batch if len(batch) > 1 else ():
        journal.begin(name, ready.case.cell.name, batch=len(batch))
    programs = built_by_pocl(cases) if len(batch) > 1 else [None]
    for (name, ready), program in zip(batch, programs, strict=True):
        journal.begin(name, ready.case.cell.name)
        try:
            fault = by_opencl(ready, program)
        except GpucompError as error:
            fault = str(error)
        told(journal, name, fault, ready)


def told(journal: Journal, name: str, fault: str, ready: Ready) -> None:
    case, geometry = ready.case, ready.source.geometry
    steps = steps_of(case.cell.family, case.schedule, problem_of(case.cell.engine, case.kernel))
    journal.end(
        name, case.cell.name, fault, kernel=case.kernel.label, schedule=case.schedule,
        groups=math.prod(geometry.groups), steps=steps,
    )  # fmt: skip


def drawn(chosen: Sequence[Cell], count: int, seed: int) -> Iterator[Wanted]:
    """Case 0 of every cell, then case 1, and so on: whenever a sweep ends, all cells have about as many cases."""
    for number in range(count):
        for cell in chosen:
            yield f"{cell.name} {number}", cell.name, partial(draw, cell, number, seed)


def of_models(chosen: Sequence[Cell], models: Sequence[str], most_work: int) -> Iterator[Wanted]:
    names = {cell.name for cell in chosen}
    for target in dict.fromkeys(cell.target for cell in chosen):
        for name, case in layers(target, models, most_work):
            if case.cell.name in names:
                yield name, case.cell.name, lambda case=case: case


def rows(chosen: Sequence[Cell], source: str, journal: Journal) -> list[Row]:
    found = {cell.name: Row(cell.name) for cell in chosen}
    for name, entry in journal.ended.items():
        row = found.get(entry["cell"])
        if row is None or not name.endswith(source):
            continue
        if "left_out" in entry:
            row.left_out += 1
            continue
        row.tried += 1
        row.groups += entry.get("groups", 0) > 1
        row.steps += entry.get("steps", 0) > 1
        if entry["fault"]:
            row.faults.append(told_as(entry))
    return list(found.values())


def table(found: Sequence[Row]) -> str:
    """A Markdown table with a line for each cell."""
    head = [
        "| target | engine | dtype | cases | of several work-groups | of several steps of depth | too long | disagree |",
        "|---|---|---|---|---|---|---|---|",
    ]
    body = [
        f"| {' | '.join(r.cell.split())} | {r.tried} | {r.groups} | {r.steps} | {r.left_out} | {len(r.faults)} |"
        for r in found
    ]
    return "\n".join(head + body)


def by_engine(found: Sequence[Row]) -> str:
    """A Markdown table with a line for each engine; a row's cell is ``target engine dtype``."""
    engines: dict[str, list[Row]] = {}
    for row in found:
        engines.setdefault(row.cell.rpartition(" ")[0], []).append(row)
    lines_ = [
        "| target | engine | dtypes | cases | of a dtype | of several work-groups | of several steps | too long | disagree |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for engine, cells_ in engines.items():
        tried = [row.tried for row in cells_]
        least = str(min(tried)) if min(tried) == max(tried) else f"{min(tried)} to {max(tried)}"
        sums = (sum(tried), least, sum(r.groups for r in cells_), sum(r.steps for r in cells_))
        ends = (sum(r.left_out for r in cells_), sum(len(r.faults) for r in cells_))
        dtypes = " ".join(row.cell.split()[-1] for row in cells_)
        lines_.append("| " + " | ".join(map(str, (*engine.split(), dtypes, *sums, *ends))) + " |")
    return "\n".join(lines_)


def add_summary(path: Path, how: str, found: Sequence[Row]) -> None:
    """Write each cell's counts and faults, one line each, under ``how`` in a JSON file. Other cells there keep theirs."""
    runs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    own = {row.cell: {k: v for k, v in asdict(row).items() if k != "cell"} for row in found}
    runs[how] = runs.get(how, {}) | own
    parts = []
    for run, cells_ in runs.items():
        body = [f"  {json.dumps(cell)}: {json.dumps(numbers)}" for cell, numbers in cells_.items()]
        parts.append(f"{json.dumps(run)}: {{\n" + ",\n".join(body) + "\n}")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def report(found: Sequence[Row], how: str) -> str:
    faults = [f"- {fault}" for row in found for fault in row.faults]
    lead = (
        f"`python -m bench.kernel_sweep {how}`: {sum(r.tried for r in found)} cases in {len(found)} cells. CUDA (sm_*) "
        "and HIP (hip:*) run on the CUDA-on-CPU harness in three thread orders, which must give equal bits, AMD's matrix "
        "instructions emulated; OpenCL runs on PoCL, with them expanded. The oracle is numpy in float64."
    )
    end = ["Disagreements:", *faults] if faults else ["Disagreements: none."]
    return "\n".join(["# Kernels through every engine, beside float64", "", lead, "", by_engine(found), "", *end, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.kernel_sweep", __doc__)
    names = [cell.name for cell in cells()]
    parser.add_argument("--cases", type=int, default=200, metavar="N", help="number of cases of each cell")
    parser.add_argument(
        "--minutes", type=float, default=60.0, metavar="MIN", help="start no more cases after this time"
    )
    parser.add_argument(
        "--cell", action="append", choices=names, metavar="NAME", help="only this cell; may repeat (default: all)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random numbers")
    parser.add_argument(
        "--layers", action="store_true", help="run the kernels of the benchmark models instead of random ones"
    )
    parser.add_argument(
        "--model",
        action="append",
        choices=list(MODELS),
        metavar="NAME",
        help="with --layers: only this model; may repeat (default: all)",
    )
    parser.add_argument(
        "--most-work",
        type=int,
        default=MOST_WORK,
        metavar="N",
        help="with --layers: leave out kernels with more multiply-adds than this",
    )
    parser.add_argument("--races", action="store_true", help="run CUDA kernels under ThreadSanitizer")
    add_shared(parser, "--journal", "--again", "--markdown", "--summary")
    options = parser.parse_args(arguments)
    path = options.journal or (config.current().cache or Path.cwd()) / "kernel_sweep.jsonl"
    chosen = [cell for cell in cells() if not options.cell or cell.name in options.cell]
    if options.races:
        chosen = [cell for cell in chosen if cell.target in cuda.ARCHITECTURES]
    journal = Journal(path, options.again)
    earlier = {told_as(entry) for name, entry in journal.ended.items() if entry["fault"] and not journal.wants(name)}
    how = ("--layers" if options.layers else f"--seed {options.seed}") + " --races" * options.races
    wanted = (
        of_models(chosen, options.model or list(MODELS), options.most_work)
        if options.layers
        else drawn(chosen, options.cases, options.seed)
    )
    named = ((f"{name} by {how}", cell, case) for name, cell, case in wanted)
    sweep(named, journal, time.monotonic() + 60 * options.minutes, options.races)
    found = rows(chosen, f" by {how}", journal)
    print(table(found))
    if repeated := [fault for row in found for fault in row.faults if fault in earlier]:
        print("\n".join(f"FAULT {fault}" for fault in repeated), file=sys.stderr)
        print(f"these {len(repeated)} are from an earlier call; --again runs them again", file=sys.stderr)
    if options.summary:
        add_summary(options.summary, how, found)
    if options.markdown:
        options.markdown.write_text(report(found, how), encoding="utf-8")
    return 1 if any(row.faults for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
