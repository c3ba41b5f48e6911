"""What was read, as a table, as JSON, and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bench.machine_code.row import Row
from gpucomp.targets import cuda

HEAD = (
    "| kernel | on | engine | schedule | work-items | registers | shared KB | groups a unit | loop | per math | stalls "
    "| busy / alone | size | first load |"
)
SHOWN = ("math", "shared", "copy", "global", "integer", "float", "special", "shuffle", "sync", "branch")
TITLE = "Machine code of fixed kernels"


def line(row: Row) -> str:
    """A row of the table."""
    loop = row.loop
    of_loop = ["-"] * 4
    if loop is not None:
        share = (
            f"{100 * loop.busy:.0f} / {100 * loop.alone:.0f} %"
            if loop.alone is not None
            else f"<= {100 * loop.busy:.0f} %"
        )
        of_loop = [
            f"{loop.instructions}, {loop.math} {loop.opcode}",
            f"{loop.per_math:.2f}",
            str(loop.stalls or "-"),
            share,
        ]
    first = row.first_load
    schedule = " ".join(f"{name} {value}" for name, value in row.schedule.items())
    cells = [
        row.kernel,
        row.arch,
        row.engine,
        schedule,
        str(row.threads),
        f"{row.registers}{f', {row.spills} spilt' if row.spills else ''}",
        f"{row.shared / 1024:.0f}",
        str(row.groups),
        *of_loop,
        str(row.size),
        "-" if first is None else f"{first.instructions} / {first.cost}" if row.stalls else str(first.instructions),
    ]
    return f"| {' | '.join(cells)} |"


def table(rows: Sequence[Row]) -> str:
    return "\n".join([HEAD, "|" + "---|" * (HEAD.count("|") - 1), *map(line, rows)])


def classes(rows: Sequence[Row]) -> str:
    """The instructions of each main loop by class; of the whole kernel where there is no loop."""
    lines = [f"| kernel | on | of | {' | '.join(SHOWN)} | other |", "|" + "---|" * (len(SHOWN) + 4)]
    for row in rows:
        found, of = (row.loop.classes, "loop") if row.loop else (row.classes, "kernel")
        rest = sum(found.values()) - sum(found.get(name, 0) for name in SHOWN)
        counts = " | ".join(str(found.get(name, 0)) for name in SHOWN)
        lines.append(f"| {row.kernel} | {row.arch} | {of} | {counts} | {rest} |")
    return "\n".join(lines)


def straight(rows: Sequence[Row]) -> str:
    """Kernels without a main loop: their instructions and stalls beside the results that a work-item computes."""
    lines = [
        "| kernel | on | instructions | stalls | results of a work-item | instructions per result |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.loop is None:
            per = row.size / row.results
            lines.append(
                f"| {row.kernel} | {row.arch} | {row.size} | {row.stalls or '-'} | {row.results:.0f} | {per:.1f} |"
            )
    return "\n".join(lines)


def page(rows: Sequence[Row]) -> str:
    """The markdown page of all rows."""
    return "\n".join(
        [
            f"# {TITLE}",
            "",
            f"`python -m bench.machine_code`, {cuda.compiler_version()}. No GPU: counts are exact, shares of busy cycles are",
            "those of a model. What it leaves out is said in `bench/machine_code/issue.py`; of AMD's listings it gives a bound.",
            "",
            table(rows),
            "",
            "## Instructions by class",
            "",
            classes(rows),
            "",
            "## Kernels without a main loop",
            "",
            straight(rows),
            "",
        ]
    )


def compact(rows: Sequence[Row]) -> Mapping[str, Any]:
    return {"compiler": cuda.compiler_version(), "rows": [_plain(row) for row in rows]}


def _plain(row: Row) -> dict[str, Any]:
    found = asdict(row)
    found["first_load"] = row.first_load._asdict() if row.first_load else None
    if row.loop is not None:
        found["loop"]["busy"] = round(row.loop.busy, 3)
        found["loop"]["alone"] = None if row.loop.alone is None else round(row.loop.alone, 3)
        found["loop"]["idle"] = {why: round(share, 3) for why, share in sorted(row.loop.idle.items())}
        found["loop"]["per_math"] = round(row.loop.per_math, 2)
    found["occupancy"], found["results"] = round(row.occupancy, 3), round(row.results, 2)
    return found
